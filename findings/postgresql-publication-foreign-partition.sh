#!/bin/bash
# PostgreSQL 15.20 (Debian 15.20-0+deb12u1): a publication copies a foreign partition's rows once.
#
# CREATE PUBLICATION refuses foreign tables, and FOR ALL TABLES leaves them out.  A good guess for
# a partitioned table that has a foreign partition: refused too, or published without that
# partition; in any case its first copy and its later changes are of the same rows.
#
# Seen: FOR TABLE of the partitioned table succeeds, lists the foreign partition in
# pg_publication_tables, and the subscriber's first copy has its rows.  What is written to that
# partition later, also through the partitioned table, never arrives, without an error or a
# warning, while pg_subscription_rel says "ready".  FOR ALL TABLES leaves the partition out of
# that view, but copies its rows once too if publish_via_partition_root is set.
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
wal_level = logical
fsync = off
jit = off
CONF
$as_server pg_ctl -D data -l run/log -w start >/dev/null

psql -qAt -v host="$PGHOST" >seen 2>&1 <<'SQL'
CREATE EXTENSION postgres_fdw;
CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host :'host', dbname 'remote');
CREATE USER MAPPING FOR postgres SERVER here;
CREATE DATABASE remote;
CREATE DATABASE one;
CREATE DATABASE two;
\c remote
CREATE TABLE remote (k int, v text);
\c postgres
CREATE TABLE p (k int, v text) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
CREATE FOREIGN TABLE p2 PARTITION OF p FOR VALUES IN (2) SERVER here OPTIONS (table_name 'remote');
INSERT INTO p VALUES (1, 'first'), (2, 'first');
\set VERBOSITY terse
\echo -- publications
CREATE PUBLICATION refused FOR TABLE p2;
CREATE PUBLICATION one FOR TABLE p;
CREATE PUBLICATION two FOR ALL TABLES WITH (publish_via_partition_root);
CREATE PUBLICATION other FOR ALL TABLES;
SELECT pubname, tablename FROM pg_publication_tables ORDER BY 1, 2;
SQL

# two subscribers, databases of the same server: their slots are made first
for name in one two; do
	psql -qAt -c "SELECT FROM pg_create_logical_replication_slot('$name', 'pgoutput')" >/dev/null
	psql -qAt -d $name <<-SQL
	CREATE TABLE p (k int, v text) PARTITION BY LIST (k);
	CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
	CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
	CREATE SUBSCRIPTION $name CONNECTION 'host=$PGHOST user=postgres dbname=postgres'
		PUBLICATION $name WITH (create_slot = false);
	SQL
done

until_true() # database query
{
	for _ in {1..600}; do
		[ "$(psql -qAt -d "$1" -c "$2")" != t ] || return 0
		sleep 0.1
	done
	echo "never true in database $1: $2" >&2
	return 1
}

ready="SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"
for name in one two; do until_true $name "$ready"; done
# rows arrive in the order in which they were committed
psql -q -c "INSERT INTO p VALUES (2, 'later')" -c "INSERT INTO p2 VALUES (2, 'direct')" \
	-c "INSERT INTO p VALUES (1, 'last')"
for name in one two; do
	until_true $name "SELECT count(*) = 1 FROM p WHERE v = 'last'"
	echo "-- subscriber $name"
	psql -qAt -d $name -c "SELECT * FROM p ORDER BY 1, 2" -c "$ready"
done >>seen
{
	echo "-- publisher"
	psql -qAt -c "SELECT * FROM p ORDER BY 1, 2"
	echo "-- errors and warnings in the log: $(grep -cE ' (WARNING|ERROR): ' run/log)"
} >>seen
cat seen
for name in one two; do psql -q -d $name -c "DROP SUBSCRIPTION $name" 2>/dev/null; done
diff - seen <<'OUT'
-- publications
ERROR:  cannot add relation "p2" to publication
one|p1
one|p2
other|p1
two|p
-- subscriber one
1|first
1|last
2|first
t
-- subscriber two
1|first
1|last
2|first
t
-- publisher
1|first
1|last
2|direct
2|first
2|later
-- errors and warnings in the log: 1
OUT
