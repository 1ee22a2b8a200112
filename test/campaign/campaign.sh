#!/bin/bash
# make torture, make append, make bank, make counters, make registers: rounds of concurrent clients and
# SIGKILL; make crowd: clients under admission; make damage: damaged files; make space: clients that
# overwrite; make idle: clients of memcached that do nothing; make backups:
# base backups while all else goes on; make versions: sequences of all that changes a version log.  See backup.pl,
# torture.pl, append.pl, bank.pl, counters.pl, registers.pl, crowd.pl, damage.pl, space.pl, idle.pl, versions.pl.
#
#   test/campaign/campaign.sh torture|append|bank|counters|registers|crowd|damage|space|idle|backup|versions [SECONDS]
#
#   ROUNDS=n             how many rounds; torture: 300, or 30 with a KIND
#   KIND=remount         torture, as root: the disk goes in each round; also syncfail, full
#   SEED=n               repeat a round's choices, with ROUNDS=1
#   VALUE_FILE_KB=64          the smallest value files of so many kB
#   COMPACTIONS=on            all tables are compacted all the time
#   SPLITS=on            shards are split and cut all the time
#   DEAD=1               scans step over so many dead keys in a row, in place of 64
#   TIER=1               with a second tier of 2 MB and a recent ring of 1 MB
#   MOVES=on             torture, without a KIND: tables move from tablespace to tablespace all the time
#
# append, bank, counters, registers, crowd and space:
#
#   SECONDS=300          how long, without ROUNDS; the round under way is finished
#   CLIENTS=8, KILLS=1   concurrent clients, kills in a round
#   LEVEL=serializable   one isolation level only
#   KIND=heap            append: the same on heap tables
#   UPSERTS=n            counters: until so many are acknowledged, in place of SECONDS
#
# idle:
#
#   CONNECTIONS=10000    how many
#
# damage:
#
#   CASES=600            how many cases
#   CASE=n               only that one, of the same SEED
#   KIND=log FAULT=flip STATE=crash LEVEL=full
#                        only such files, faults, states of the server, tables
#
# versions:
#
#   SEQUENCES=1000       how many sequences, in all
#   JOBS=2               servers at a time
#   TABLES=40            tables of each
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1
evidence="clients' messages" promise='nothing that the isolation level forbids, nothing lost'
if [ "$name" = torture ]; then
	ROUNDS=${ROUNDS:-$([ -n "${KIND:-}" ] && echo 30 || echo 300)}
	evidence="writers' journals" promise="$ROUNDS rounds, no acknowledged row lost, no unacknowledged row visible"
	LEVEL='' CLIENTS='' KILLS=''
fi
if [ "$name" = damage ]; then
	ROUNDS='' CLIENTS='' KILLS=''
	length=(--cases "${CASES:-600}" ${CASE:+--case "$CASE"} ${FAULT:+--fault "$FAULT"} ${STATE:+--state "$STATE"})
	evidence='prepared states' promise="${CASES:-600} cases, no row missing or wrong in silence, no crash"
elif [ -n "${ROUNDS:-}" ]; then length=(--rounds "$ROUNDS"); else length=(--seconds "${2:-300}"); fi
if [ "$name" = counters ]; then
	promise='each acknowledged upsert counts once'
	if [ -n "${UPSERTS:-}" ]; then length=(--upserts "$UPSERTS"); fi
fi
if [ "$name" = registers ]; then promise='each request acknowledged to clients of memcached is there, and counts once'; LEVEL=''; fi
if [ "$name" = crowd ]; then promise='no session paused too long, no request without an answer, no slot lost'; fi
if [ "$name" = space ]; then
	promise='value files within their bounds, nothing damaged'
	[ -n "${ROUNDS:-}" ] || length=(--rounds 8)
	LEVEL='' KIND=''
fi
if [ "$name" = backup ]; then
	evidence="data directories of the primary, the standby and the restored server" promise='what was restored has the rows of heap'
	[ -n "${ROUNDS:-}${2:-}" ] || length=(--rounds 20)
	LEVEL='' KIND='' CLIENTS='' KILLS=''
fi
if [ "$name" = versions ]; then
	ROUNDS='' LEVEL='' KIND='' CLIENTS='' KILLS=''
	length=(--sequences "${SEQUENCES:-1000}" ${JOBS:+--jobs "$JOBS"} ${TABLES:+--tables "$TABLES"})
	evidence="tables' directories" promise='version logs, servers and models agree'
fi
if [ "$name" = idle ]; then
	promise='little memory for each, all are answered, nothing of them is left'
	length=(--rounds "${ROUNDS:-3}" --connections "${CONNECTIONS:-10000}")
	LEVEL='' KIND='' CLIENTS='' KILLS=''
fi
bash "$here/../lib/setup.sh"
. "$here/../lib/server.sh"
kv_begin "$name"
echo "building with fault injection"
kv_build faults
root=$(kv_readable_root)
kept=$(dirname "$KV_RUN")/$name-failed
rm -rf "$kept"
as=kv_as
if [ "$name" = torture ] && [ -n "${KIND:-}" ]; then
	[ "$(id -u)" = 0 ] || kv_die "KIND=$KIND needs root: it mounts disks"
	as=kv_as_is
fi
if ! $as perl "$root/test/campaign/$name.pl" --dir "$KV_RUN/$name" "${length[@]}" ${SEED:+--seed "$SEED"} ${LEVEL:+--level "$LEVEL"} \
	${KIND:+--kind "$KIND"} ${CLIENTS:+--clients "$CLIENTS"} ${KILLS:+--kills "$KILLS"}; then
	mv "$KV_RUN/$name" "$kept"
	kv_die "$name failed; the data directory, the server's log and the $evidence are in $kept"
fi
echo "$name: $promise"
