#!/bin/bash
# PostgreSQL 15.20 (Debian 15.20-0+deb12u1): MERGE writes foreign partitions when they are pruned.
#
# MERGE is not for foreign tables: on one, and on a partitioned table that has one among its
# partitions, it ends with "cannot execute MERGE on relation".  A good guess: with a foreign
# partition every MERGE is refused, or at least no MERGE ever writes that partition.
#
# Seen, with a local partition for k = 1 and one of postgres_fdw for k = 2:
#     ON p.k = s.k               refused, also with WHEN MATCHED THEN DO NOTHING alone
#     ON p.k = s.k AND p.k = 1   works: INSERT puts a row with k = 2 into the foreign partition,
#                                UPDATE SET k = 2 moves one there
#     ON p.k = s.k AND p.k = $1  prepared: works five times with 1, is refused from the sixth on
# Only partitions that are left when the statement is planned are looked at; rows are routed
# later, as for INSERT.  A generic plan keeps all partitions, so it cannot even be made.
set -eu
dir=$(mktemp -d)
PATH=$dir/root/usr/lib/postgresql/15/bin:$PATH
as_server=
[ "$(id -u)" != 0 ] || as_server="runuser -u postgres --"
trap '$as_server pg_ctl -D "$dir/data" -m immediate stop >/dev/null 2>&1 || :; rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/deb" "$dir/data" "$dir/run"

fetch() # package=version…: unpack them into $dir/root
{
	(cd "$dir/deb"
	get="apt-get -qq -o APT::Sandbox::User=root"
	$get download "$@" 2>/dev/null || { $get update && $get download "$@"; }
	for deb in *.deb; do dpkg -x "$deb" "$dir/root"; done) >&2
}

fetch {postgresql-15,postgresql-client-15,libpq5}=15.20-0+deb12u1
for lib in "$dir"/root/usr/lib/*-linux-gnu; do export LD_LIBRARY_PATH=$lib; done
[ -z "$as_server" ] || chown postgres "$dir/data" "$dir/run"
cd "$dir"
export PGHOST=$dir/run PGUSER=postgres PGDATABASE=postgres PSQLRC=/dev/null
$as_server initdb -D data -U postgres -A trust --no-locale >/dev/null
cat >>data/postgresql.conf <<CONF
listen_addresses = ''
unix_socket_directories = '$dir/run'
fsync = off
jit = off
CONF
$as_server pg_ctl -D data -l run/log -w start >/dev/null

psql -qAt -v host="$PGHOST" >seen 2>&1 <<'SQL'
CREATE EXTENSION postgres_fdw;
CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host :'host', dbname 'postgres');
CREATE USER MAPPING FOR postgres SERVER here;
CREATE TABLE remote (k int, v text);
CREATE TABLE p (k int, v text) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE FOREIGN TABLE p2 PARTITION OF p FOR VALUES IN (2) SERVER here OPTIONS (table_name 'remote');
CREATE TABLE s (k int, v text);
INSERT INTO s VALUES (1, 'one'), (2, 'two');
\set VERBOSITY terse
\echo -- refused
MERGE INTO p USING s ON p.k = s.k WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v);
MERGE INTO p USING s ON p.k = s.k WHEN MATCHED THEN DO NOTHING;
TABLE remote;
\echo -- inserted
MERGE INTO p USING s ON p.k = s.k AND p.k = 1 WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.v);
TABLE remote;
\echo -- moved
MERGE INTO p USING s ON p.k = s.k AND p.k = 1 WHEN MATCHED THEN UPDATE SET k = 2;
TABLE remote;
\echo -- prepared
\set QUIET off
PREPARE m AS MERGE INTO p USING s ON p.k = s.k AND p.k = $1 WHEN MATCHED THEN DELETE;
EXECUTE m(1);
EXECUTE m(1);
EXECUTE m(1);
EXECUTE m(1);
EXECUTE m(1);
EXECUTE m(1);
EXECUTE m(1);
SQL
cat seen
diff - seen <<'OUT'
-- refused
ERROR:  cannot execute MERGE on relation "p2"
ERROR:  cannot execute MERGE on relation "p2"
-- inserted
2|two
-- moved
2|two
2|one
-- prepared
PREPARE
MERGE 0
MERGE 0
MERGE 0
MERGE 0
MERGE 0
ERROR:  cannot execute MERGE on relation "p2"
ERROR:  cannot execute MERGE on relation "p2"
OUT
