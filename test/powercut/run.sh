#!/bin/bash
# make powercut: power cuts at random moments, and what is left; see powercut.pl.
#
#   test/powercut/run.sh [SECONDS]
#
#   SECONDS=20           how long the server is written and recorded
#   CUTS=100             power cuts, about
#   LEVEL=full,keys,none levels of the kvfdw tables; and heap tables with the same rows
#   CLIENTS=8            concurrent sessions
#   REGISTERS=3          clients of memcached that write at the same time
#   ASYNC=2              how many of them have synchronous_commit off
#   SEED=n               repeat a run's transactions and choice of cuts
#   DISK=2048            MB of the recorded disk; what is used of it is copied for each cut
#   VALUE_FILE_KB=64          the smallest value files of so many kB
#   COMPACTIONS=on            all tables are compacted all the time
#   SPLITS=on            shards are split and cut all the time
#   TIER=1               with a second tier that the cuts do not meet, so that it has values of a later time
#   MOVES=on             tables move from tablespace to tablespace of the disk all the time
#   CONTROL=fsync        break durability instead: fsync, checkpointer or data_sync.  The run
#                        passes only if lost transactions are seen.  With TIER=1 also tier_check:
#                        what is read in the tier is not verified, and wrong values must be seen
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" != 0 ]; then
	echo "powercut: this needs root: it mounts disks" >&2
	exit 1
fi
bash "$here/../lib/setup.sh" nbdkit nbdkit-plugin-dev libnbd-bin fuse3 e2fsprogs
. "$here/../lib/server.sh"
[ -c /dev/fuse ] && [ -c /dev/loop-control ] || kv_die "this machine has no /dev/fuse or no loop devices"
kv_begin powercut
echo "building with fault injection"
kv_build faults
export KV_RECORDER=$KV_RUN/recorder.so
"${CC:-cc}" -O2 -Wall -Wextra -Wno-unused-parameter -shared -fPIC -o "$KV_RECORDER" "$here/recorder.c" || kv_die "cannot compile recorder.c"
# after a cut the machine has booted, the library must think
if grep -q 'kvfdw\.boot_id' "$KV_ROOT/kvfdw.so"; then export KV_BOOT_ID=1; fi
dir=$KV_RUN/powercut
kept=$(dirname "$KV_RUN")/powercut-failed
rm -rf "$kept"
install -d -o "$KV_SERVER_USER" "$dir"

# The first process only waits, for all that become its children.  When it ends,
# so do the others, and with them the mounts.
if ! unshare --mount --pid --fork --kill-child --mount-proc bash -c '"$@"; exit $?' powercut \
	perl "$here/powercut.pl" --dir "$dir" --seconds "${1:-20}" --cuts "${CUTS:-100}" --clients "${CLIENTS:-8}" \
	${LEVEL:+--level "$LEVEL"} ${SEED:+--seed "$SEED"} ${ASYNC:+--async "$ASYNC"} ${REGISTERS:+--registers "$REGISTERS"} ${DISK:+--disk "$DISK"} ${CONTROL:+--control "$CONTROL"}; then
	mkdir -p "$kept"
	cp "$dir"/*.log "$dir"/*.err "$kept/" 2>/dev/null || true
	if [ -d "$dir/kept" ]; then mv -f "$dir/kept"/* "$kept/"; fi
	kv_note "what the sessions and the server said, and the disk of the first failing cut, if there is one, are in $kept"
	kv_die "powercut failed"
fi
if [ "${CONTROL:-}" = tier_check ]; then echo "powercut: wrong values are seen"; elif [ -n "${CONTROL:-}" ]; then echo "powercut: lost transactions are seen"; else echo "powercut: no acknowledged transaction lost"; fi
