#!/bin/bash
# The inside of make upgrade: as the user postgres, in a root with all these versions and kvfdw for each.
#
#   chain.sh 15 17 18
set -euo pipefail
cd /tmp
dir=$(mktemp -d /var/tmp/chain.XXXXXX)
export PGHOST=$dir PGPORT=6155 PGUSER=postgres PGDATABASE=postgres LC_ALL=C.UTF-8
levels='full keys none'
bin=
failed=0

at_end() { [ -z "$bin" ] || "$bin/pg_ctl" -s -D "$data" -m immediate stop 2>/dev/null || true; rm -rf "$dir"; }
trap at_end EXIT
say() { printf '%s\n' "$*"; }
sql() { "$bin/psql" -XAtq -v ON_ERROR_STOP=1 -d "${DB:-postgres}" -c "$1"; }
start() { "$bin/pg_ctl" -s -w -t 180 -D "$data" -l "$data.log" -o "-k $dir -p $PGPORT -c listen_addresses=''" start || { tail -n 20 "$data.log"; exit 1; }; }
stop() { "$bin/pg_ctl" -s -w -t 180 -D "$data" -m "${1:-fast}" stop; }
is() # got expected what
{
	[ "$1" = "$2" ] && return
	say "not ok - $version: $3: $1 instead of $2"
	failed=1
}

make_cluster() # version
{
	local options=(-U postgres -A trust -N --encoding=UTF8 --locale-provider=icu --icu-locale=en --locale=C.UTF-8)
	version=$1 bin=/usr/lib/postgresql/$1/bin data=$dir/$1
	# 18 has checksums unless it is told; both clusters must agree
	[ "$1" -lt 18 ] || options+=(--no-data-checksums)
	"$bin/initdb" -D "$data" "${options[@]}" >>"$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log"; exit 1; }
	printf '%s\n' "shared_preload_libraries = 'kvfdw'" 'fsync = off' 'max_prepared_transactions = 4' "kvfdw.write_buffers = 4MB" >>"$data/postgresql.conf"
}

# The same of a table and its twin.
differences() # database table
{
	DB=$1 sql "SELECT (SELECT count(*) FROM (TABLE $2 EXCEPT ALL TABLE heap_$2) s) + (SELECT count(*) FROM (TABLE heap_$2 EXCEPT ALL TABLE $2) s) + (SELECT count(*) FROM kvfdw_check('$2'))"
}
compare() # when
{
	local n=0 level shape
	for level in $levels; do
		for shape in num txt many; do
			is "$(differences postgres "${shape}_$level")" 0 "$1: ${shape}_$level is as its twin"
			n=$((n + $(sql "SELECT count(*) FROM ${shape}_$level")))
		done
		is "$(sql "SELECT count(*) FROM never_$level")" "$written" "$1: never_$level"
	done
	is "$(differences second num_full)" 0 "$1: another database"
	is "$(sql "SELECT count(*) FROM partitioned")" 300 "$1: partitions"
	is "$(sql "SELECT string_agg(m::text || d || a::text || p::text, ',' ORDER BY k) FROM typed")" 'okayx{1,2}(1,okay),happyx{1,2}(2,happy)' "$1: types of the user's"
	say "  $1: $n rows are as their twins"
}
change() # so that each version adds its own
{
	local level shape table
	for level in $levels; do
		for shape in num txt many; do
			for table in "${shape}_$level" "heap_${shape}_$level"; do
				sql "BEGIN; DELETE FROM $table WHERE hashtext(k::text || '$version') % 13 = 0; UPDATE $table SET v = v || ' $version' WHERE hashtext(k::text || '$version') % 11 = 0;
					SAVEPOINT s; DELETE FROM $table; ROLLBACK TO s; COMMIT; BEGIN; UPDATE $table SET v = 'aborted'; ROLLBACK"
			done
		done
		for table in "num_$level" "heap_num_$level"; do
			sql "INSERT INTO $table SELECT ${version}0000000 + g, repeat('v', g % 5000) FROM generate_series(1, 1000) g"
		done
	done
}

# ---- the first ----
make_cluster "$1"
start
sql 'CREATE DATABASE second'
sql "CREATE EXTENSION kvfdw; CREATE COLLATION de (provider = icu, locale = 'de-AT'); CREATE COLLATION sys (provider = libc, locale = 'C.UTF-8');
	CREATE TYPE mood AS ENUM ('sad', 'okay', 'happy'); CREATE DOMAIN short AS text CHECK (length(VALUE) < 10); CREATE TYPE pair AS (a int, b mood)"
DB=second sql "CREATE EXTENSION kvfdw; CREATE FOREIGN TABLE num_full (k bigint, v text) SERVER kvfdw; CREATE TABLE heap_num_full (k bigint, v text)"
DB=second sql "INSERT INTO num_full SELECT g, 'second ' || g FROM generate_series(1, 3000) g; INSERT INTO heap_num_full TABLE num_full"
for level in $levels; do
	sql "CREATE FOREIGN TABLE num_$level (k bigint, v text) SERVER kvfdw OPTIONS (wal '$level', shards '5');
		CREATE FOREIGN TABLE txt_$level (dead int, k text COLLATE de, n int, v text) SERVER kvfdw OPTIONS (key 'k', wal '$level');
		CREATE FOREIGN TABLE many_$level (k varchar(40), s text COLLATE sys, v text, j jsonb) SERVER kvfdw OPTIONS (key 'k, s', wal '$level');
		CREATE FOREIGN TABLE never_$level (k int, v text) SERVER kvfdw OPTIONS (wal '$level');
		INSERT INTO num_$level SELECT g::bigint * 7919 % 100003, repeat(md5(g::text), g % 100) FROM generate_series(1, 10000) g;
		INSERT INTO txt_$level SELECT g, 'käse ' || g, g, md5(g::text) FROM generate_series(1, 5000) g;
		ALTER FOREIGN TABLE txt_$level DROP COLUMN dead; ALTER FOREIGN TABLE txt_$level ADD COLUMN added int DEFAULT 7;
		INSERT INTO many_$level SELECT 'a' || g % 100, 'ß' || g, repeat('w', g * 3), jsonb_build_object('g', g) FROM generate_series(1, 5000) g;
		SELECT kvfdw_flush('num_$level'); UPDATE num_$level SET v = 'later' WHERE k % 3 = 0;
		SELECT kvfdw_compact('many_$level', true)" >/dev/null
	for shape in num txt many; do sql "CREATE TABLE heap_${shape}_$level AS TABLE ${shape}_$level"; done
done
sql "CREATE TABLE partitioned (k int, v text) PARTITION BY HASH (k);
	CREATE FOREIGN TABLE p0 PARTITION OF partitioned FOR VALUES WITH (MODULUS 2, REMAINDER 0) SERVER kvfdw;
	CREATE FOREIGN TABLE p1 PARTITION OF partitioned FOR VALUES WITH (MODULUS 2, REMAINDER 1) SERVER kvfdw;
	INSERT INTO partitioned SELECT g, 'p' || g FROM generate_series(1, 300) g;
	CREATE FOREIGN TABLE typed (k int, m mood, d short, a int[], p pair) SERVER kvfdw;
	INSERT INTO typed VALUES (1, 'okay', 'x', '{1,2}', (1, 'okay')), (2, 'happy', 'x', '{1,2}', (2, 'happy'))"
written=0
change
compare "at first"
say "$version: $("$bin/postgres" --version | sed 's/.*) //')"

# ---- the others, by a copy, a link and a move in turn ----
ways=('--copy:--copy' '--link:--rename' '--copy:--reflink')
turn=0
for next in "${@:2}"; do
	stop
	before=$version old=$data oldbin=$bin
	way=${ways[turn % 3]}
	turn=$((turn + 1))
	make_cluster "$next"
	cd "$dir"
	if "$bin/pg_upgrade" --check -d "$old" -D "$data" -b "$oldbin" -B "$bin" -s "$dir" >"$dir/out" 2>&1; then
		is started refused "pg_upgrade without kvfdw.allow_pg_upgrade"
	fi
	"$bin/pg_upgrade" ${way%%:*} --no-sync -d "$old" -D "$data" -b "$oldbin" -B "$bin" -s "$dir" -o '-c kvfdw.allow_pg_upgrade=on' >"$dir/out" 2>&1 ||
		{ cat "$dir/out"; find "$data" -path '*pg_upgrade_output*' -name '*.log' -exec tail -n 5 {} +; exit 1; }
	cd /tmp
	"$bin/kvfdw_upgrade" "${way#*:}" "$old" "$data" >"$dir/out" 2>&1 || {
		# not each file system shares blocks
		[ "${way#*:}" = --reflink ] && way=${way%%:*}:--copy && "$bin/kvfdw_upgrade" --copy "$old" "$data" >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }
	}
	start
	say "$version from $before, pg_upgrade ${way%%:*}, kvfdw_upgrade ${way#*:}: $("$bin/postgres" --version | sed 's/.*) //')"
	sql "ALTER EXTENSION kvfdw UPDATE" 2>/dev/null
	compare "as it came"
	# the next is written to by each version in turn
	for level in $levels; do sql "INSERT INTO never_$level VALUES ($version, 'by $version')"; done
	written=$((written + 1))
	change
	stop immediate
	start
	compare "changed and killed"
	sql CHECKPOINT
	for level in $levels; do sql "SELECT kvfdw_compact('num_$level')" >/dev/null; done
	compare "compacted"
	rm -rf "$old"
done
stop
bin=
[ $failed = 0 ] && say "ok - $* with all levels"
exit $failed
