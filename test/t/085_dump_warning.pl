# Promise: pg_dump of a database whose kvfdw tables have rows says on stderr which rows it leaves
# out and how to include them. It says so to no other program, and not if the tables are empty.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap rows are dumped' if heap_only();
my $node = kv_cluster('dump', max_wal_senders => 2, wal_level => 'replica');
my $dir = $PostgreSQL::Test::Utils::tmp_check;
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
delete $ENV{PGAPPNAME};		# by which pg_dump would go

# What a program has written to stderr; it must succeed.
sub said
{
	my (@command) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([@command], '>', \$out, '2>', \$err) or fail("@command: $err");
	return $err;
}
sub sql { my ($sql, $db) = @_; return $node->safe_psql($db // 'd', $sql); }
sub warning
{
	my ($db, $table, $servers) = @_;
	return qq{WARNING:  rows of kvfdw tables are not dumped without --include-foreign-data
DETAIL:  Database "$db" has rows in kvfdw tables, among them "$table".
HINT:  Dump them with: pg_dump -Fc $servers -f kvfdw.dump $db. The option -j and pg_dumpall cannot dump these rows.
};
}
my $one = '--include-foreign-data=kvfdw';

sql('CREATE DATABASE d', 'postgres');
is(said('pg_dump', 'd'), '', 'a database without the extension: silence');
sql('CREATE EXTENSION kvfdw; CREATE TABLE heap (k int); INSERT INTO heap VALUES (1);' . kv_table('empty', 'k int, v text', 'k')
	  . kv_table('truncated', 'k int', 'k') . kv_table('undone', 'k int', 'k') . 'INSERT INTO truncated VALUES (1); TRUNCATE truncated;
	CREATE FOREIGN DATA WRAPPER others; CREATE SERVER other FOREIGN DATA WRAPPER others; CREATE FOREIGN TABLE foreigner (k int) SERVER other');
sql('BEGIN; INSERT INTO undone VALUES (1); ROLLBACK; SELECT kvfdw_flush(\'undone\')');
is(said('pg_dump', 'd'), '', 'tables without rows: silence');

sql(q{CREATE TABLE mixed (k int, v text) PARTITION BY RANGE (k); CREATE TABLE mixed_1 PARTITION OF mixed FOR VALUES FROM (0) TO (10);
	CREATE FOREIGN TABLE mixed_2 PARTITION OF mixed FOR VALUES FROM (10) TO (20) SERVER kvfdw OPTIONS (key 'k');
	INSERT INTO mixed SELECT g, 'v' FROM generate_series(0, 9) g});
is(said('pg_dump', 'd'), '', 'partitions without rows: silence');
sql(q{INSERT INTO mixed SELECT g, 'v' FROM generate_series(10, 19) g});
my $w = warning('d', 'public.mixed_2', $one);
is(said('pg_dump', 'd'), $w, 'pg_dump of a mixed partitioned table');
is(said('pg_dump', '-Fc', '-f', "$dir/c", 'd'), $w, '… -Fc');
is(said('pg_dump', '--serializable-deferrable', '-f', "$dir/deferrable", 'd'), $w, '… --serializable-deferrable');
is(said('pg_dump', '--schema-only', 'd'), $w, '… --schema-only: true there as well');
is(said('pg_dump', '--data-only', '--inserts', '-t', 'mixed*', 'd'), $w, '… of some tables');
is(said('pg_dump', '-Fd', '-j', '2', '-f', "$dir/j", 'd'), $w x 3, '… -j 2: each connection');
like(said('pg_dump', '-v', 'd'), qr/\Q$w\E/, '… -v');
is(said('pg_dump', $one, '-f', "$dir/complete", 'd'), $w, '… with the option: the server does not see it');
like(slurp_file("$dir/complete"), qr/^COPY public\.mixed_2 .*\n10\tv\n/m, '… and the rows are dumped');

is(said('pg_dumpall', '-f', "$dir/all"), $w, 'pg_dumpall: of the database that has them');
unlike(slurp_file("$dir/all"), qr/^1\d\tv$/m, '… whose rows it leaves out');
is(said('pg_dumpall', '--globals-only', '-f', "$dir/globals", '-l', 'd'), '', '… not where it takes none');

# Who has read it can have silence.
{
	local $ENV{PGOPTIONS} = '-c client_min_messages=error';
	is(said('pg_dump', $one, 'd'), '', 'client_min_messages at the start of the session: silence');
}
# Others than pg_dump.
is(said('psql', '-XAtc', 'BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SELECT count(*) FROM mixed', 'd'), '', 'psql: silence');
is(said('pg_restore', '-f', '-', "$dir/c"), '', 'pg_restore: silence');
sql('CREATE DATABASE e', 'postgres');
is(said('pg_restore', '-d', 'e', "$dir/c"), '', '… into a database');
is(sql('SELECT count(*) FROM mixed', 'e'), 10, '… which has half of the rows then');
is(said('pg_dump', 'e'), '', '… and no kvfdw table with any');
is(said('pg_basebackup', '-D', "$dir/backup", '-c', 'fast'), '', 'pg_basebackup: silence');

# Each server is named once.
sql(q{CREATE SERVER "S 2" FOREIGN DATA WRAPPER kvfdw; CREATE SCHEMA "A"; CREATE FOREIGN TABLE "A"."b ""c" (k int) SERVER "S 2"; CREATE FOREIGN TABLE second (k int) SERVER kvfdw;
	INSERT INTO "A"."b ""c" VALUES (1); INSERT INTO second VALUES (1); TRUNCATE mixed_2});
like(said('pg_dump', 'd'), qr/among them "(A\.b "c|public\.second)"\.\nHINT:  Dump them with: pg_dump -Fc (--include-foreign-data=(kvfdw|'"S 2"') ){2}-f kvfdw.dump d\./, 'two servers');
# The command is complete: as it stands it dumps the rows, whatever the names.
sql(q{CREATE DATABASE "it's ""D"""}, 'postgres');
sql(q{CREATE EXTENSION kvfdw; CREATE SERVER "o'S" FOREIGN DATA WRAPPER kvfdw; CREATE FOREIGN TABLE t (k int, v text) SERVER "o'S"; INSERT INTO t VALUES (1, 'dumped')}, q{it's "D"});
my ($command) = said('pg_dump', '--schema-only', q{it's "D"}) =~ /Dump them with: (.*)\. The option/;
is(system("cd $dir && " . ($command // 'false') . ' 2>/dev/null && pg_restore -f plain kvfdw.dump'), 0, 'the command of the hint runs');
like(slurp_file("$dir/plain"), qr/^1\tdumped$/m, '... and dumps the rows');
sql(q{DROP DATABASE "it's ""D"""}, 'postgres');
sql('DROP SERVER "S 2" CASCADE; DROP FOREIGN TABLE second');
is(said('pg_dump', 'd'), '', 'without rows again: silence');

# What cannot be looked at may have rows.  It keeps nobody from connecting.
my $locker = $node->background_psql('d');
$locker->query_safe(q{INSERT INTO truncated VALUES (1); BEGIN; TRUNCATE truncated});
is(said('pg_dump', '-t', 'heap', 'd'), warning('d', 'public.truncated', $one), 'a table that is locked');
$locker->quit;
my $path = sql(q{SELECT 'kvfdw/' || d.oid || '/' || 'truncated'::regclass::oid FROM pg_database d WHERE datname = 'd'});
$node->stop;
rename($node->data_dir . "/$path", "$dir/away") or die "$path: $!";
$node->start;
is(said('pg_dump', 'd'), warning('d', 'public.truncated', $one), 'a table whose data is missing');
$node->stop;
rename("$dir/away", $node->data_dir . "/$path") or die "$path: $!";
$node->start;
is(said('pg_dump', 'd'), warning('d', 'public.truncated', $one), '… and is there again');

# On a standby, of a table that is usable there and of one that is not.
sql(kv_table('none', 'k int', 'k', "wal 'none'"));
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
local $ENV{PGHOST} = $standby->host;
local $ENV{PGPORT} = $standby->port;
is(said('pg_dump', 'd'), warning('d', 'public.truncated', $one), 'on a standby');
sql('TRUNCATE truncated; INSERT INTO none VALUES (1)');
$node->wait_for_catchup($standby);
is(said('pg_dump', 'd'), warning('d', 'public.none', $one), '… of a table that is unusable there');
sql('DROP FOREIGN TABLE none');
$node->wait_for_catchup($standby);
is(said('pg_dump', 'd'), '', '… without rows: silence');
done_testing();
