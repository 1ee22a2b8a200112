#!/bin/bash
# make scale-demo: one table on three servers with a coordinator, compared with the same table on one server.
#
#   ROWS=100000     rows of 1000 bytes
#   POINTS=4000     reads by key of each of the CLIENTS=4
#   SECONDS=20      how long writers and readers go on, at least, of which a server is dead the middle third
#
# The coordinator's tables `readings` and `visits` are partitioned by hash; their partitions are kvfdw tables on
# the servers one, two and three, through postgres_fdw.  `readings_there` is the same on their standbys.  What is
# printed are ratios within this run: all servers share this machine, so they show what the coordinator
# costs, not what three machines gain.  docs/how-to/scale-out.md explains it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:-20}
bash "$here/../lib/setup.sh"
. "$here/../lib/server.sh"
. "$here/../../bench/lib/measure.sh"
. "$here/servers.sh"
ROWS=${ROWS:-100000} POINTS=${POINTS:-4000} CLIENTS=${CLIENTS:-4}

step() { printf '%s\n' "$*"; }
part() { printf '\n== %s\n' "$*"; }
kv_at_end() { [ "$1" = 0 ] || [ "$1" = 130 ] || printf '\nscale-demo: FAILED\n' >&2; }

part "Servers"
kv_begin scale
step "building"
kv_build
declare -A columns=([readings]='k bigint NOT NULL, grp int, body text' [visits]='device int NOT NULL, n bigint NOT NULL, ms int')
declare -A key=([readings]='k' [visits]='device, n') hashed=([readings]=k [visits]=device)
new_server alone
new_server coordinator "max_connections = 100"
servers=(one two three)
on coordinator -c 'CREATE EXTENSION postgres_fdw'
for name in "${servers[@]}"; do
	new_server "$name"
done
for table in readings visits; do
	on alone -c "CREATE FOREIGN TABLE $table (${columns[$table]}) SERVER kvfdw OPTIONS (key '${key[$table]}')"
	partitioned="(${columns[$table]}) PARTITION BY HASH (${hashed[$table]})"
	on coordinator -c "CREATE TABLE $table $partitioned" -c "CREATE TABLE ${table}_there $partitioned"
	for i in 0 1 2; do
		# the same partitions there: who writes to a wrong one is refused by its own server
		on "${servers[i]}" -c "CREATE TABLE $table $partitioned" -c "CREATE FOREIGN TABLE ${table}_$i PARTITION OF $table
		  FOR VALUES WITH (MODULUS 3, REMAINDER $i) SERVER kvfdw OPTIONS (key '${key[$table]}')"
	done
done
for i in 0 1 2; do
	new_standby "${servers[i]}-standby" "${servers[i]}"
	for there in '' _there; do
		at=${servers[i]}${there:+-standby}
		on coordinator <<-EOF
			CREATE SERVER "$at" FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$KV_SOCKETS', port '${PORT[$at]}',
			  dbname 'postgres', async_capable 'true', batch_size '1000', fetch_size '1000',
			  use_remote_estimate '$([ -z "$there" ] && echo false || echo true)');
			CREATE USER MAPPING FOR postgres SERVER "$at" OPTIONS (user 'postgres');
		EOF
		for table in readings visits; do
			on coordinator -c "CREATE FOREIGN TABLE $table${there}_$i PARTITION OF $table$there
			  FOR VALUES WITH (MODULUS 3, REMAINDER $i) SERVER \"$at\" OPTIONS (table_name '${table}_$i')"
		done
	done
done
on coordinator -c "ALTER DATABASE postgres SET enable_partitionwise_aggregate = on" -c "ALTER DATABASE postgres SET enable_partitionwise_join = on"
step "$("$KV_BIN/postgres" --version): alone; one, two, three, each with a standby; a coordinator"

# ---- the same work on both sides ----

declare -A took=()
# The seconds that a command takes on the server alone and through the coordinator; the first answer is kept.
both() # what command…
{
	local what=$1 side
	shift
	for side in alone coordinator; do
		kv_timed "took[$side]" "$@" "$side" >"$KV_RUN/$side.out"
	done
	printf '%-44s %8s s %8s s %8sx\n' "$what" "${took[alone]}" "${took[coordinator]}" "$(kv_calc "${took[coordinator]} / ${took[alone]}")"
	cmp -s "$KV_RUN/alone.out" "$KV_RUN/coordinator.out" || kv_die "$what: the answers differ"
}

part "The same statements: alone, and through the coordinator"
printf '%-44s %10s %10s %9s\n' '' alone coordinator ratio
psql "host=$KV_SOCKETS port=${PORT[alone]}" -XqAt >"$KV_RUN/rows" -c "COPY (SELECT (i * 7919) % 1000000007, i % 100,
	left(repeat(md5(i::text), 32), 988) FROM generate_series(1, $ROWS) i) TO STDOUT"
load() { on "$1" -c "\\copy readings FROM '$KV_RUN/rows'"; }
both "COPY $ROWS rows" load
visit() { on "$1" -c "INSERT INTO visits SELECT i / 100, i, i % 1009 FROM generate_series(1, $ROWS) i"; }
both "INSERT ... SELECT of $ROWS small rows" visit
for name in "${servers[@]}" alone coordinator; do on "$name" -c 'ANALYZE'; done
[ "$(on alone -c 'SELECT count(*) FROM readings')" = "$ROWS" ] || kv_die "rows are missing"
for i in 0 1 2; do
	[ "$(on "${servers[i]}" -c "SELECT count(*) FROM readings_$i")" -gt $((ROWS / 4)) ] || kv_die "the rows do not spread"
done

insert() { on "$1" -c "INSERT INTO readings SELECT -i, 0, 'x' FROM generate_series(1, 5000) i"; }
both "INSERT ... SELECT of 5000 rows" insert
cat >"$KV_RUN/points.sql" <<-EOF
	\set i random(1, $ROWS)
	SELECT grp, length(body) FROM readings WHERE k = (:i * 7919) % 1000000007;
EOF
cat >"$KV_RUN/inserts.sql" <<-EOF
	\set i random(1, $ROWS)
	INSERT INTO readings VALUES (-1000000000 - :client_id * 1000000 - :i, 1, repeat(md5(:i::text), 30)) ON CONFLICT DO NOTHING;
EOF
clients() { PGPORT=${PORT[$3]} "$KV_BIN/pgbench" -n -M "$2" --random-seed=1 -f "$KV_RUN/$1.sql" -c "$CLIENTS" -j 2 -t "$POINTS" >"$KV_RUN/pgbench.log" 2>&1 ||
	{ cat "$KV_RUN/pgbench.log" >&2; kv_die "pgbench failed"; }; }
both "$((POINTS * CLIENTS)) reads by key, $CLIENTS clients" clients points simple
both "$((POINTS * CLIENTS)) reads by key, prepared" clients points prepared
POINTS=$((POINTS / 4)) both "$((POINTS / 4 * CLIENTS)) INSERTs of a row" clients inserts simple
query() { on "$2" -c "$1"; }
both "count(*)" query 'SELECT count(*) FROM readings'
both "sum and max, 100 groups" query 'SELECT grp, count(*), sum(length(body)), max(k) FROM readings GROUP BY grp ORDER BY grp'
both "sum and max by device, partition-wise" query 'SELECT device, count(*), sum(ms), max(n) FROM visits GROUP BY device ORDER BY device'
both "all rows, in key order" query 'SELECT k, grp, body FROM readings ORDER BY k'
both "1000 rows of a range, in key order" query 'SELECT k, grp, body FROM readings WHERE k > 500000000 ORDER BY k LIMIT 1000'
both "100 keys in one IN list" query "SELECT k, body FROM readings WHERE k IN ($(seq -s, 7919 7919 791900)) ORDER BY k"
both "UPDATE of 1000 keys" query "UPDATE readings SET grp = grp + 1000 WHERE k BETWEEN -1000 AND -1"
both "DELETE of 5000 keys" query "DELETE FROM readings WHERE k BETWEEN -5000 AND -1"
both "all rows afterwards" query 'SELECT count(*), sum(hashtextextended(r::text, 0)) FROM readings r'

# ---- plans ----

part "How the coordinator does it"
plan_has() # what pattern statement
{
	on coordinator -c "EXPLAIN (VERBOSE, COSTS OFF) $3" >"$KV_RUN/plan"
	grep -qE "$2" "$KV_RUN/plan" || { cat "$KV_RUN/plan" >&2; kv_die "the plan has no '$2'"; }
	step "  $1"
}
plan_has "a key that is known is asked of one server" 'Foreign Scan on public.readings_[012] ' 'SELECT body FROM readings WHERE k = 7919'
plan_has "the three scan at the same time" 'Async Foreign Scan' 'SELECT body FROM readings'
plan_has "groups by the partitions' column are made there" 'Relations: Aggregate on' 'SELECT device, sum(ms) FROM visits GROUP BY device'
plan_has "rows come in order and are merged" 'Merge Append' 'SELECT k FROM readings ORDER BY k'
plan_has "UPDATE by key is sent as it is" 'Foreign Update on public.readings_[012]' 'UPDATE readings SET grp = 1 WHERE k = 7919'
refused() # what sqlstate statement
{
	local state
	state=$(on coordinator -v ON_ERROR_STOP=0 -c '\set VERBOSITY sqlstate' -c "$3" 2>&1 >/dev/null | sed -n 's/^ERROR: *//p' | head -n 1) || true
	[ "$state" = "$2" ] || kv_die "$1: '$state', not $2"
	step "  refused, $2: $1"
}
refused "a new key that belongs to another server" 23514 'BEGIN; UPDATE readings SET k = k + 1 WHERE k BETWEEN 1 AND 1000000; ROLLBACK'
refused "UPDATE and DELETE that cannot be sent as they are" 0A000 "UPDATE readings SET body = 'x' WHERE k = 7919 AND random() < 2"
refused "FOR UPDATE" 0A000 "SELECT grp FROM readings WHERE k = 7919 FOR UPDATE"
refused "ON CONFLICT with a target" 42P10 "INSERT INTO readings VALUES (7919, 1, 'x') ON CONFLICT (k) DO UPDATE SET grp = 1"
refused "PREPARE TRANSACTION" 0A000 "BEGIN; UPDATE readings SET grp = 1 WHERE k = 7919; PREPARE TRANSACTION 'x'"

# A deferred constraint on one server fails when that is to commit: in one direction or the other, the server
# with the row has committed by then.
for name in one two; do
	on "$name" -c 'CREATE TABLE promise (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)' -c 'INSERT INTO promise VALUES (1)'
	on coordinator -c "CREATE FOREIGN TABLE promise_$name (n int) SERVER $name OPTIONS (table_name 'promise')"
done
half() # remainder server
{
	on coordinator -v ON_ERROR_STOP=0 2>/dev/null <<-EOF
		SELECT max(k) AS k FROM generate_series(-9000000100, -9000000000) k WHERE satisfies_hash_partition('readings'::regclass, 3, $1, k) \gset
		BEGIN;
		INSERT INTO readings VALUES (:k, 1, 'half');
		INSERT INTO promise_$2 VALUES (1);
		COMMIT;
		SELECT :'LAST_ERROR_SQLSTATE' || ' ' || count(*) FROM readings WHERE k = :k;
	EOF
}
halves=$(half 0 two; half 1 one)
case $(sort <<<"$halves" | paste -sd,) in
	'23505 0,23505 1') step "  a COMMIT that the second server refuses has been done on the first" ;;
	*) kv_die "transactions on two servers: $halves" ;;
esac
on coordinator -c 'DELETE FROM readings WHERE k <= -9000000000'

# ---- standbys ----

part "Reads from the standbys"
for name in "${servers[@]}"; do caught_up "$name-standby" "$name"; done
for statement in 'SELECT count(*), sum(hashtextextended(r::text, 0)) FROM TABLE r' 'SELECT k, body FROM TABLE WHERE k > 1000 ORDER BY k LIMIT 1000'; do
	[ "$(on coordinator -c "${statement/TABLE/readings_there}")" = "$(on alone -c "${statement/TABLE/readings}")" ] ||
		kv_die "the standbys answer otherwise"
	step "  as alone: $statement"
done
plan_has "joins of the partitions are made there: their servers estimate them" 'INNER JOIN' \
	'SELECT a.n, b.ms FROM visits_there a JOIN visits_there b USING (device, n) WHERE a.ms = 7'
on one -c 'CREATE VIEW reached AS SELECT pg_is_in_recovery() AS standby'
caught_up one-standby one
on coordinator <<-EOF
	CREATE SERVER either FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$KV_SOCKETS,$KV_SOCKETS',
	  port '${PORT[one]},${PORT[one-standby]}', dbname 'postgres', target_session_attrs 'prefer-standby');
	CREATE USER MAPPING FOR postgres SERVER either OPTIONS (user 'postgres');
	CREATE FOREIGN TABLE reached (standby bool) SERVER either;
EOF
[ "$(on coordinator -c 'TABLE reached' -c "ALTER SERVER either OPTIONS (SET target_session_attrs 'read-write')" -c 'TABLE reached' | paste -sd' ')" = 't f' ] ||
	kv_die "a list of hosts does not find the standby, or not the primary"
step "  a list of hosts finds the standby, or the primary, as it is told"
kv_timed "took[there]" on coordinator -o /dev/null -c 'SELECT max(body) FROM readings_there'
kv_timed "took[here]" on coordinator -o /dev/null -c 'SELECT max(body) FROM readings'
step "  max(body) there: $(kv_calc "${took[there]} / ${took[here]}") of the time on the primaries"

. "$here/kill.sh"
