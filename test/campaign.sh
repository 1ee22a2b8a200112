#!/bin/bash
# make torture, make append, make bank: rounds of concurrent clients and SIGKILL;
# see torture.pl, append.pl, bank.pl.
#
#   test/campaign.sh torture|append|bank [SECONDS]
#
#   ROUNDS=n             how many rounds; torture: 300
#   SEED=n               repeat a round's choices, with ROUNDS=1
#
# append and bank:
#
#   SECONDS=300          how long, without ROUNDS; the round under way is finished
#   CLIENTS=8, KILLS=1   concurrent clients, kills in a round
#   LEVEL=serializable   one isolation level only
#   KIND=heap            append: the same on heap tables
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1
evidence="clients' messages" promise='nothing that the isolation level forbids, nothing lost'
if [ "$name" = torture ]; then
	ROUNDS=${ROUNDS:-300}
	evidence="writers' journals" promise="$ROUNDS rounds, no acknowledged row lost, no unacknowledged row visible"
	LEVEL='' KIND='' CLIENTS='' KILLS=''
fi
if [ -n "${ROUNDS:-}" ]; then length=(--rounds "$ROUNDS"); else length=(--seconds "${2:-300}"); fi
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
	kv_die "$name failed; the data directory, the server's log and the $evidence are in $kept"
fi
echo "$name: $promise"
