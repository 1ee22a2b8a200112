# Promise: kvfdw_stat_progress has a row for each process that flushes, compacts, rewrites, recovers or
# checks a table, of whatever database, with its table, phase and how far it is, and none for what
# has ended, in whatever way.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has views of its own' if heap_only();
my $node = kv_cluster('progress', 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.recovery_workers' => 0);
plan skip_all => 'needs stop points' unless has_faults($node);
delete $ENV{COMPACTIONS};

sub query { return $node->safe_psql('postgres', @_); }

# Rows of the table, from another database; a session counts only once it is there.
query('CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION kvfdw');
query(kv_table('t', 'k int, v text', 'k', "shards '2'") . "INSERT INTO t SELECT g * 7919 % 3001, repeat('v', 300) FROM generate_series(-1500, 1500) g; UPDATE t SET v = repeat('w', 300) WHERE k % 2 = 0");
my $relid = query("SELECT 't'::regclass::oid");
sub progress
{
	my ($columns) = @_;
	return $node->safe_psql('other', "SELECT $columns FROM kvfdw_stat_progress p WHERE datname = 'postgres' AND relid = $relid AND command_start <= clock_timestamp() ORDER BY pid");
}

# What is shown of a call that has come to a stop point; nothing is when it has gone on, nor in the same
# transaction when an error has ended it there.
my $n = 0;
sub shows
{
	my ($point, $call, $columns, $expected) = @_;
	my $session = psql_writer($node, "SET kvfdw.stop_points = '$point=wait'; SELECT 'pid ' || pg_backend_pid(); SELECT count(*) FROM $call;", 'session' . ++$n);
	stopped($node, $point);
	my ($pid) = slurp_file($session->{out}) =~ /pid (\d+)/;
	is(progress("pid, $columns"), "$pid|$expected", "$call at $point");
	unlike(go_on($node, $point, $session), qr/ERROR/, 'it goes on');
	is(progress('*'), '', 'and has no row any more');
	query("UPDATE t SET v = 'x' || v WHERE k < 200");
	my (undef, undef, $err) = $node->psql('postgres', "SET kvfdw.stop_points = '$point=error'; DO \$\$BEGIN PERFORM count(*) FROM $call; EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE '% rows', (SELECT count(*) FROM kvfdw_stat_progress WHERE relid = $relid); END\$\$");
	like($err, qr/NOTICE:  0 rows/, 'nor after an error, in the same transaction');
	return;
}

shows('flush_before_merge', "kvfdw_flush('t')", 'command, phase, shard_id, unit, done, total IS NULL', 'flush|draining|0|entries|0|t');
shows('flush_before_files', "kvfdw_flush('t')", 'command, phase, shard_id IN (0, 1), unit, total > 100, done = total', 'flush|publishing|t|entries|t|t');
shows('compact_slice', "kvfdw_compact('t', true)", 'command, phase, shard_id, unit, done, total > 10000', 'compact|moving|0|bytes|0|t');
shows('warm_read', "kvfdw_prewarm('t')", 'command, phase, shard_id, unit, done > 100000, total >= done', 'prewarm|reading|1|bytes|t|t');
shows('check_run_pinned', "kvfdw_check('t')", 'command, phase, shard_id, unit, done, total >= 3001', 'check|runs and values|0|entries|0|t');

# ---- a rewrite: its expression waits for a lock, after a thousand rows ----
query(q{CREATE FUNCTION waits() RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN
	IF nextval('rows') = 1000 THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN 1; END $$; CREATE SEQUENCE rows;});
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $alter = psql_writer($node, 'ALTER FOREIGN TABLE t ADD COLUMN w int DEFAULT waits()', 'alter');
wait_for('the ALTER', sub { query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) });
is(progress('command, phase, shard_id IS NULL, unit, done, total >= 3001'), 'rewrite|writing rows|t|rows|999|t', 'a column with a default for each row');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
is(outcome($alter), '', 'it goes on');
$holder->quit;
is(progress('*'), '', 'and has no row any more');

# ---- a recovery, by whoever comes first ----
query("INSERT INTO t SELECT g, 'new' FROM generate_series(10001, 11000) g");
query('CHECKPOINT');		# so that redo needs no table
worker_stop_points($node, 'recover_after_logs=wait');
kill_all($node);
restart_killed($node);
stopped($node, 'recover_after_logs');
is(progress('command, phase, shard_id IN (0, 1), unit, done IN (0, 1), total'), 'recovery|reading|t|shards|t|2', 'a recovery');
worker_stop_points($node, '');
go_on($node, 'recover_after_logs');
is(query('SELECT count(*) FROM t'), '4001', 'the table has its rows');
wait_for('the end of recoveries', sub { progress('*') eq '' });

# ---- a session that is terminated in the middle ----
query("SELECT kvfdw_flush('t')");
my $checking = psql_writer($node, "SET kvfdw.stop_points = 'check_run_pinned=wait'; SELECT count(*) FROM kvfdw_check('t')", 'terminated');
stopped($node, 'check_run_pinned');
is(progress('command, pg_terminate_backend(pid)'), 'check|t', 'a session that checks is terminated');
like(outcome($checking), qr/terminating connection/, 'and ends');
ok(wait_for('the end of the session', sub { progress('*') eq '' }), 'then it has no row any more');
$node->stop;
done_testing();
