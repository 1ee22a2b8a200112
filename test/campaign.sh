#!/bin/bash
# make append, make bank: rounds of concurrent clients and SIGKILL; see append.pl, bank.pl.
#
#   test/campaign.sh append|bank [SECONDS]
#
#   SECONDS=300          how long; the round under way is finished
#   ROUNDS=n             how many rounds instead
#   SEED=n               repeat a round's choices, with ROUNDS=1
#   CLIENTS=8, KILLS=1   concurrent clients, kills in a round
#   LEVEL=serializable   one isolation level only
#   KIND=heap            append: the same on heap tables
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1
length=(--seconds "${2:-300}")
[ -z "${ROUNDS:-}" ] || length=(--rounds "$ROUNDS")
bash "$here/lib/setup.sh"
. "$here/lib/server.sh"
kv_begin "$name"
echo "building with fault injection"
kv_build faults
root=$(kv_readable_root)
kept=$(dirname "$KV_RUN")/$name-failed
rm -rf "$kept"
if ! kv_as perl "$root/test/$name.pl" --dir "$KV_RUN/$name" "${length[@]}" ${SEED:+--seed "$SEED"} ${LEVEL:+--level "$LEVEL"} \
	${KIND:+--kind "$KIND"} ${CLIENTS:+--clients "$CLIENTS"} ${KILLS:+--kills "$KILLS"}; then
	mv "$KV_RUN/$name" "$kept"
	kv_die "$name failed; the data directory, the server's log and the clients' messages are in $kept"
fi
echo "$name: nothing that the isolation level forbids, nothing lost"
