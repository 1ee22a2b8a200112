#!/bin/bash
# make memcached-oracle: random streams of requests to a server of ours and to memcached, side by side, as make oracle
# has them with a dictionary in the server's place.
#
# Half of them with compactions, which give items new cas numbers: so none of an earlier stream is asked for then.
#
#   ROUNDS=n   so many streams (800, which are 24,000 requests)
#   SEED=n     repeat them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/../lib/setup.sh" memcached
memcached -V
. "$here/../lib/server.sh"
. "$here/../lib/memcached.sh"

kv_begin oracle
mc_server faults
user=()
if [ "$(id -u)" = 0 ]; then user=(-u "$KV_SERVER_USER"); fi
memcached "${user[@]}" -s "$KV_SOCKETS/theirs" -U 0 >/dev/null 2>&1 &
theirs=$!
kv_at_end() { kill "$theirs" "${freezes:-$theirs}" 2>/dev/null; }
until [ -S "$KV_SOCKETS/theirs" ]; do
	kill -0 "$theirs" || kv_die "memcached does not start"
	sleep 0.1
done
# so that runs and what is recent are met, and one becomes the other
{ while kv_psql -c "SELECT kvfdw_flush('cache')"; do sleep 0.2; done; } >/dev/null 2>&1 &
freezes=$!
rounds=$((${ROUNDS:-800} / 2))
ask() { perl "$here/../unit/memcached_oracle.pl" --ours "$MC_PORT" --theirs "$KV_SOCKETS/theirs" --rounds "$rounds" ${SEED:+--seed "$SEED"} "$@"; }
ask --forget
[ "$rounds" -lt 100 ] || [ "$(kv_psql -c "SELECT moved_bytes > 0 FROM kvfdw_stat_tables WHERE relid = 'cache'::regclass")" = t ] || kv_die "nothing was compacted"
kv_psql -c "ALTER SYSTEM SET kvfdw.max_space_amplification = 0"
kv_server_stop
kv_server_start
mc_wait
ask
problems=$(kv_psql -c "SELECT c FROM kvfdw_check('cache') c LIMIT 3")
[ -z "$problems" ] || kv_die "kvfdw_check: $problems"
