# Promise: options of a server go to a standby and to other sessions; a dump restores tables as they are, whatever
# servers say then; and statements that make tables and statements that alter their server wait for each other, so
# that no table is there whose level or tablespace the server could change.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no servers' if heap_only();
my $node = kv_primary('primary');
my $dir = $PostgreSQL::Test::Utils::tmp_check;
delete $ENV{PGAPPNAME};    # by which pg_dump would go

sub sql { my ($sql, $db, $on) = @_; return ($on // $node)->safe_psql($db // 'postgres', $sql); }
sub own { my ($table, $db) = @_; return sql("SELECT array_agg(o ORDER BY o) FROM pg_foreign_table, unnest(ftoptions) o WHERE ftrelid = '$table'::regclass", $db); }
sub level { my ($table, $db, $on) = @_; return sql("SELECT wal FROM kvfdw_stat_tables WHERE relid = '$table'::regclass", $db, $on); }
sub waits { my ($what) = @_; return wait_for($what, sub { sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND classid = 'pg_foreign_server'::regclass}) == 1 }); }

# ---- sessions ----

sql('CREATE SERVER s FOREIGN DATA WRAPPER kvfdw');
my $make = in_steps($node, 'make', 'BEGIN; CREATE FOREIGN TABLE made (k int, v text) SERVER s;', 'COMMIT;');
step_done($make);
my $alter = psql_writer($node, q{ALTER SERVER s OPTIONS (ADD wal 'none');}, 'alter');
waits('ALTER SERVER to wait for CREATE FOREIGN TABLE');
step_go($make);
like(outcome($alter), qr/cannot change option "wal" of server "s".*public\.made/s, 'ALTER SERVER sees a table that was being made');
step_go($make);
sql('DROP FOREIGN TABLE made');

for my $end ('COMMIT', 'ROLLBACK')
{
	my $change = in_steps($node, "change_$end", q{BEGIN; ALTER SERVER s OPTIONS (ADD wal 'keys');}, "$end;");
	step_done($change);
	my $maker = psql_writer($node, 'CREATE FOREIGN TABLE made (k int, v text) SERVER s', "maker_$end");
	waits('CREATE FOREIGN TABLE to wait for ALTER SERVER');
	step_go($change);
	is(outcome($maker), '', "$end: the table is made");
	step_go($change);
	is(own('made'), $end eq 'COMMIT' ? '{wal=keys}' : '', "$end: and has what the server has then");
	sql("DROP FOREIGN TABLE made; ALTER SERVER s OPTIONS (DROP wal)") if $end eq 'COMMIT';
}
sql(q{ALTER FOREIGN TABLE made OPTIONS (ADD wal 'keys'); ALTER SERVER s OPTIONS (ADD wal 'none')});
my $drop = in_steps($node, 'drop', 'BEGIN; ALTER FOREIGN TABLE made OPTIONS (DROP wal);', 'COMMIT;');
step_done($drop);
$alter = psql_writer($node, q{ALTER SERVER s OPTIONS (SET wal 'full');}, 'alter2');
waits('ALTER SERVER to wait for DROP of an option');
step_go($drop);
like(outcome($alter), qr/cannot change option "wal"/, 'ALTER SERVER sees a table that has dropped its own');
step_go($drop);

# another server has the name when the statement that waits for the first goes on
my $turn = 0;
for my $change (q{DROP SERVER x CASCADE; CREATE SERVER x FOREIGN DATA WRAPPER kvfdw OPTIONS (wal 'keys');},
	q{ALTER SERVER x OPTIONS (ADD wal 'full'); ALTER SERVER x OPTIONS (SET wal 'none'); ALTER SERVER x RENAME TO y; CREATE SERVER x FOREIGN DATA WRAPPER kvfdw OPTIONS (wal 'keys');})
{
	sql('DROP SERVER IF EXISTS x, y CASCADE; CREATE SERVER x FOREIGN DATA WRAPPER kvfdw');
	my $other = in_steps($node, "other" . ++$turn, "BEGIN; $change", 'COMMIT;');
	step_done($other);
	my $maker = psql_writer($node, 'CREATE FOREIGN TABLE of_x (k int, v text) SERVER x', "maker_of_x$turn");
	waits('CREATE FOREIGN TABLE to wait for the other server');
	step_go($other);
	is(outcome($maker), '', 'the table is made');
	step_go($other);
	is(own('of_x'), '{wal=keys}', 'and has what the server of that name has then');
}
sql('DROP SERVER x, y CASCADE');

# a session that has the table in its cache follows the server
sql(q{CREATE SERVER small FOREIGN DATA WRAPPER kvfdw; CREATE FOREIGN TABLE c (k int, v text) SERVER small});
my $cached = in_steps($node, 'cached', "INSERT INTO c VALUES (1, repeat('x', 100000));", "INSERT INTO c VALUES (2, repeat('x', 100000));");
my $bytes = sub { sql("SELECT value_bytes FROM kvfdw_stat_tables WHERE relid = 'c'::regclass") };
step_done($cached);
cmp_ok($bytes->(), '>=', 100000, 'a value is not compressed');
sql(q{ALTER SERVER small OPTIONS (ADD compression 'lz4')});
step_go($cached);
cmp_ok($bytes->(), '<', 110000, 'the next one of the same session is');
step_go($cached);
is(outcome($cached->{w}), '', 'the session ends well');

# ---- standby ----

my $standby = kv_standby($node, 'standby');
sql(q{CREATE SERVER far FOREIGN DATA WRAPPER kvfdw OPTIONS (wal 'full', compression 'lz4'); CREATE FOREIGN TABLE f (k int, v text) SERVER far;
	INSERT INTO f SELECT g, repeat(g::text, 1000) FROM generate_series(1, 100) g; ALTER SERVER far OPTIONS (SET wal 'none', SET compression 'none');
	INSERT INTO f SELECT g, repeat(g::text, 1000) FROM generate_series(101, 200) g; TRUNCATE c; INSERT INTO c SELECT * FROM f});
caught_up($node, $standby);
is(rows_of($standby, $_, 'k'), rows_of($node, $_, 'k'), "a standby has the rows of $_") for qw(f c);
is(level('f', undef, $standby), 'full', 'and the level that the table was made with');

# ---- dump and restore ----

sql('CREATE DATABASE d');
sql(q{CREATE EXTENSION kvfdw; CREATE SERVER mine FOREIGN DATA WRAPPER kvfdw;
	CREATE FOREIGN TABLE before (k int, v text) SERVER mine OPTIONS (wal 'full');
	ALTER SERVER mine OPTIONS (ADD wal 'none', ADD compression 'lz4', ADD max_space_amplification '3');
	CREATE FOREIGN TABLE follows (k int, v text) SERVER mine;
	ALTER SERVER mine OPTIONS (SET wal 'keys');
	ALTER SERVER kvfdw OPTIONS (ADD wal 'keys');
	CREATE FOREIGN TABLE of_member (k int, v text) SERVER kvfdw;
	CREATE FOREIGN TABLE differs (k int, v text) SERVER kvfdw OPTIONS (wal 'full', compression 'lz4')}, 'd');
my @tables = qw(before follows of_member differs);
sql("INSERT INTO $_ SELECT g, repeat(md5(g::text), 10) FROM generate_series(1, 300) g", 'd') for @tables;
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my $err = '';
	my @dump = ('pg_dump', '-Fc', '-f', "$dir/d.dump", (map { "--include-foreign-data=$_" } qw(mine kvfdw)), 'd');
	ok(IPC::Run::run(\@dump, '2>', \$err), 'pg_dump') or diag($err);
	sql('CREATE DATABASE r');
	ok(IPC::Run::run([ 'pg_restore', '-e', '-d', 'r', "$dir/d.dump" ], '2>', \$err), 'pg_restore') or diag($err);
}
for my $table (@tables)
{
	is(own($table, 'r'), own($table, 'd'), "$table has the same options");
	is(level($table, 'r'), level($table, 'd'), '... and level: ' . level($table, 'r'));
	my $rows = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM $table t";
	is(sql($rows, 'r'), sql($rows, 'd'), '... and rows');
}
my $servers = q{SELECT srvname, srvoptions FROM pg_foreign_server ORDER BY 1};
is(sql($servers, 'r'), "kvfdw|\nmine|{compression=lz4,max_space_amplification=3,wal=keys}", 'a server of your own has its options, that of the extension has none');
is(kv_check_clean($node, qw(c f)), '', 'kvfdw_check finds nothing');
$standby->stop;
$node->stop;
done_testing();
