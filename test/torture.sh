#!/bin/bash
# make torture: ROUNDS (300) rounds of concurrent writers and SIGKILL; see torture.pl.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/lib/setup.sh"
. "$here/lib/server.sh"
kv_begin torture
echo "building with fault injection"
kv_build faults
root=$(kv_readable_root)
kept=$(dirname "$KV_RUN")/torture-failed
rm -rf "$kept"
if kv_as perl "$root/test/torture.pl" --rounds "${ROUNDS:-300}" --dir "$KV_RUN/torture" ${SEED:+--seed "$SEED"}; then
	echo "torture: ${ROUNDS:-300} rounds, no acknowledged row lost, no unacknowledged row visible"
else
	mv "$KV_RUN/torture" "$kept"
	kv_die "torture failed; the data directory, the server's log and the writers' journals are in $kept"
fi
