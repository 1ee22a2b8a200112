# Promise: rows whose column has got another type are those of heap after crashes, on standbys, in a dump and to a
# later reader; an ALTER that a crash, a cancel or an error has undone leaves nothing of it; and a snapshot from
# before gets an error, never rows that it cannot read.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

my $node = kv_primary('p', wal_writer_delay => '10s');
my $alter = heap_only() ? 'ALTER TABLE' : 'ALTER FOREIGN TABLE';
sub run { return $node->safe_psql('postgres', join(';', @_)); }
my @tables = heap_only() ? ('ty_full') : qw(ty_full ty_keys ty_none);
for my $t (@tables)
{
	my ($level) = $t =~ /_(.*)/;
	run(kv_table($t, 'k int, a bigint, v text, n int', 'k', "wal '$level'"), "INSERT INTO $t SELECT g, g * 1000000, repeat('v', g % 50), g FROM generate_series(1, 2000) g");
}
run('CREATE TABLE twin AS TABLE ty_full');
run('CHECKPOINT');
my $standby = kv_standby($node, 's');

# ---- undone: by a crash, an error, a cancel, a savepoint ----

my $s = in_steps($node, 'crash', "BEGIN; " . join('', map { "$alter $_ ALTER a TYPE text, ALTER n TYPE bigint; UPDATE $_ SET a = a || '!' WHERE k = 1;" } @tables), 'ROLLBACK;');
step_done($s);
kill_all($node);
$node->start;
is(tables_differ($node, $_, 'twin', 'k'), '', "$_: undone by a crash") for @tables;
like(answer($node, "$alter $tables[0] ALTER a TYPE smallint"), qr/smallint out of range/, 'a value that does not fit: an error');
like(answer($node, "$alter $tables[0] ALTER v TYPE int"), qr/cannot be cast automatically to type integer/, 'no cast: an error');
is(tables_differ($node, $tables[0], 'twin', 'k'), '', 'which leaves nothing');
run('CREATE TYPE slow', "CREATE FUNCTION slow_in(cstring) RETURNS slow IMMUTABLE STRICT LANGUAGE internal AS 'textin'", "CREATE FUNCTION slow_out(slow) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal AS 'textout'",
	'CREATE TYPE slow (INPUT = slow_in, OUTPUT = slow_out, LIKE = text)',
	q{CREATE FUNCTION wait_slowly(int) RETURNS slow VOLATILE LANGUAGE plpgsql AS 'BEGIN IF $1 > 1000 THEN PERFORM pg_sleep(600); END IF; RETURN $1::text::slow; END'}, 'CREATE CAST (int AS slow) WITH FUNCTION wait_slowly(int) AS ASSIGNMENT');
my $w = psql_writer($node, "$alter $tables[0] ALTER n TYPE slow;", 'slow');
wait_for('the rows that come before', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) eq '1' });
answer($node, q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'});
like(outcome($w), qr/canceling statement/, 'it can be canceled');
is(tables_differ($node, $tables[0], 'twin', 'k'), '', 'which leaves nothing, either');

# ---- done: snapshots from before, a session that had read the table, crashes, the standby, a dump ----

my $old = in_steps($node, 'old', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;', "SELECT count(*), sum(length(a::text)) FROM $tables[0];");
my $cached = in_steps($node, 'cached', "SELECT max(a) FROM $tables[0];", "SELECT a || '!' FROM $tables[0] WHERE k = 2; UPDATE $tables[0] SET n = n + 1 WHERE k = 3;");
step_done($old);
step_done($cached);
run(map { "$alter $_ ALTER a TYPE text, ALTER n TYPE bigint, ADD COLUMN d int DEFAULT 5" } @tables);
run('ALTER TABLE twin ALTER a TYPE text, ALTER n TYPE bigint, ADD COLUMN d int DEFAULT 5', 'UPDATE twin SET n = n + 1 WHERE k = 3');
eval { step_go($old); step_go($old); };    # which an error ends
reap_writer($old->{w});
like(slurp_file($old->{w}{out}) . slurp_file($old->{w}{err}), heap_only() ? qr/^0\|$/m : qr/could not serialize access due to concurrent ALTER/, 'a snapshot from before');
step_go($cached);
step_go($cached);
reap_writer($cached->{w});
like(slurp_file($cached->{w}{out}), qr/^2000000!$/m, 'a session that had read the table');
is(tables_differ($node, $tables[0], 'twin', 'k'), '', 'and writes to it');
run(map { "UPDATE $_ SET n = n + 1 WHERE k = 3" } @tables[ 1 .. $#tables ]) if @tables > 1;
caught_up($node, $standby);
is(tables_differ($standby, $tables[0], 'twin', 'k'), '', 'the standby has the same');
kill_all($node);
$node->start;
is(tables_differ($node, $_, 'twin', 'k'), '', "$_: after SIGKILL") for @tables;
power_loss($node);
is(tables_differ($node, $_, 'twin', 'k'), '', "$_: after a power loss") for @tables;
run(map { "INSERT INTO $_ (k, a) VALUES (0, 'zero')" } @tables, 'twin');
run(map { "$alter $_ ALTER a TYPE varchar(20), ALTER n TYPE numeric(10,2)" } @tables);
run('ALTER TABLE twin ALTER a TYPE varchar(20), ALTER n TYPE numeric(10,2)');
is(tables_differ($node, $_, 'twin', 'k'), '', "$_: another change") for @tables;
unless (heap_only())
{
	is(kv_check_clean($node, $_), '', "$_: is sound") for @tables;
	my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump";
	$node->command_ok([ 'pg_dump', '--include-foreign-data=kvfdw', '-f', $dump, $node->connstr('postgres') ], 'the database can be dumped');
	like(slurp_file($dump), qr/^2\t2000000\tvv\t2\.00\t5$/m, 'with the rows');
}
caught_up($node, $standby);
$standby->promote;
is(tables_differ($standby, $tables[0], 'twin', 'k'), '', 'a promoted standby');
is(answer($standby, "$alter $tables[0] ALTER n TYPE int; SELECT n FROM $tables[0] WHERE k = 2"), '2', 'which goes on');

# ---- where the rows cannot be had ----

unless (heap_only())
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$node->restart;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nLOAD 'kvfdw';\n$alter $tables[0] ALTER n TYPE int");
	like($err, qr/ERROR:  55000: .*HINT:[^\n]*shared_preload_libraries/s, 'loaded too late: an error');
}
$standby->stop('immediate');
$node->stop;
done_testing();
