#!/bin/bash
# pgBackRest 2.45 (Debian 2.45-1), PostgreSQL 15.20 (Debian 15.20-0+deb12u1): with
# backup-standby=y, files that PostgreSQL does not know come from two servers.
#
# Files of an extension or of an administrator in the data directory are backed up too, and
# streaming replication does not carry them.  A good guess: such a backup takes from the standby
# what is replicated, and all else from the primary, so that it equals a backup of the primary.
#
# Seen: the directory's name decides, whatever the file is.  After a restore, a directory and a
# file that both servers have, each with its own content, are
#     the primary's in the data directory itself, pg_logical and pg_stat
#     the standby's in base, global, pg_xact, pg_multixact and in tablespaces
# so one extension that keeps files in the data directory and in a tablespace gets a mixture.
# Backup and restore report no error and no warning about it.
set -eu
dir=$(mktemp -d)
PATH=$dir/root/usr/lib/postgresql/15/bin:$dir/root/usr/bin:$PATH
as_server=
[ "$(id -u)" != 0 ] || as_server="runuser -u postgres --"
cleanup()
{
	for name in standby primary; do
		$as_server pg_ctl -D "$dir/run/$name" -m immediate stop >/dev/null 2>&1 || :
	done
	rm -rf "$dir"
}
trap cleanup EXIT
chmod 755 "$dir"
mkdir "$dir/deb" "$dir/run"

fetch() # package=version…: unpack them into $dir/root
{
	(cd "$dir/deb"
	get="apt-get -qq -o APT::Sandbox::User=root"
	$get download "$@" 2>/dev/null || { $get update && $get download "$@"; }
	for deb in *.deb; do dpkg -x "$deb" "$dir/root"; done) >&2
}

fetch pgbackrest=2.45-1 {postgresql-15,postgresql-client-15,libpq5}=15.20-0+deb12u1
for lib in "$dir"/root/usr/lib/*-linux-gnu; do export LD_LIBRARY_PATH=$lib; done
[ -z "$as_server" ] || chown postgres "$dir/run"
cd "$dir/run"
export PGHOST=$dir/run PGUSER=postgres PGDATABASE=postgres PSQLRC=/dev/null PGPORT=5432
$as_server mkdir repo log space space-standby space-restored
$as_server mkdir -m 700 restored
backrest="$as_server $dir/root/usr/bin/pgbackrest --config=$dir/run/conf --stanza=s"
cat >conf <<CONF
[global]
repo1-path=$dir/run/repo
lock-path=$dir/run/log
log-path=$dir/run/log
spool-path=$dir/run/log
log-level-console=warn
log-level-file=off
repo1-retention-full=1
start-fast=y
backup-standby=y
[s]
pg1-path=$dir/run/primary
pg1-socket-path=$dir/run
pg1-port=5432
pg1-user=postgres
pg2-path=$dir/run/standby
pg2-socket-path=$dir/run
pg2-port=5433
pg2-user=postgres
CONF
# archive-push is of the server that runs it
sed '/^backup-standby\|^pg2-/d' conf >conf-archive

$as_server initdb -D primary -U postgres -A trust --no-locale >/dev/null
cat >>primary/postgresql.conf <<CONF
listen_addresses = ''
unix_socket_directories = '$dir/run'
archive_mode = on
archive_command = 'pgbackrest --config=$dir/run/conf-archive --stanza=s archive-push %p'
jit = off
CONF
$as_server pg_ctl -D primary -l log/primary -w start >/dev/null
psql -q -c "CREATE TABLESPACE t LOCATION '$dir/run/space'"
$as_server pg_basebackup -D standby -c fast -R --tablespace-mapping="$dir/run/space=$dir/run/space-standby"
echo "port = 5433" >>standby/postgresql.conf
$as_server pg_ctl -D standby -l log/standby -w start >/dev/null
space=$(cd primary && echo pg_tblspc/*/PG_15_*)
for place in . pg_logical pg_stat base global pg_xact pg_multixact "$space"; do
	for server in primary standby; do
		$as_server mkdir "$server/$place/extra"
		for file in extra/file extra_file; do
			echo $server | $as_server tee "$server/$place/$file" >/dev/null
		done
	done
done
{
	$backrest stanza-create
	$backrest backup --type=full
	$backrest --pg1-path="$dir/run/restored" --tablespace-map="t=$dir/run/space-restored" \
		--type=immediate restore
} >seen 2>&1
(cd restored && grep -R --include=file --include=extra_file '' ./* | LC_ALL=C sort) >>seen
sed -i -E 's,[0-9]+/PG_15_[0-9]+,T,' seen
cat seen
diff - seen <<'OUT'
./base/extra/file:standby
./base/extra_file:standby
./extra/file:primary
./extra_file:primary
./global/extra/file:standby
./global/extra_file:standby
./pg_logical/extra/file:primary
./pg_logical/extra_file:primary
./pg_multixact/extra/file:standby
./pg_multixact/extra_file:standby
./pg_stat/extra/file:primary
./pg_stat/extra_file:primary
./pg_tblspc/T/extra/file:standby
./pg_tblspc/T/extra_file:standby
./pg_xact/extra/file:standby
./pg_xact/extra_file:standby
OUT
