# Promise: rows that a DELETE removes together share WAL records, and stay removed after kills, on a standby and after
# power loss. What ends between rows and their record removes nothing, nor does a DELETE that is canceled while it waits
# for a row. Triggers, RETURNING, volatile conditions and partitions have what they need.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

my $node = kv_primary('deletes', max_prepared_transactions => 5);
my @levels = heap_only() ? ('full') : qw(full keys none);
sub run { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sub both { my ($sql) = @_; return join('', map { my $t = $_; $sql =~ s/%s/$t/gr } qw(t heap)); }
sub fill { my ($t, $rows) = @_; return "INSERT INTO $t SELECT g, repeat(md5(g::text), g % 9) FROM generate_series(1, $rows) g;"; }

run(join('', map { kv_table("t_$_", 'k int NOT NULL, v text', 'k', "shards '4', wal '$_'") } @levels) .
	kv_table('t', 'k int NOT NULL, v text', 'k') . 'CREATE TABLE heap (k int PRIMARY KEY, v text); CREATE EXTENSION pg_walinspect');
my $standby = kv_standby($node, 'standby') unless heap_only();
run(both(fill('%s', 6400)) . join('', map { fill("t_$_", 2000) } @levels));
run(heap_only() ? '' : "SELECT kvfdw_flush('t')");

# ---- records ----

unless (heap_only())
{
	like(run('EXPLAIN DELETE FROM t'), qr/Foreign Delete on t/, 'the scan deletes');
	my $since = run('SELECT pg_current_wal_lsn()');
	run('BEGIN; DELETE FROM t WHERE k % 2 = 0; ROLLBACK; SELECT pg_switch_wal()');
	my %n = map { split / / } split /\n/, run("SELECT record_type || ' ' || count(*) FROM pg_get_wal_records_info('$since', pg_current_wal_flush_lsn()) WHERE resource_manager = 'kvfdw' GROUP BY record_type");
	cmp_ok($n{VERSIONS} // 0, '>=', 3200 / 64, 'rows share records');
	cmp_ok(($n{VERSIONS} // 0) + ($n{PUT} // 0), '<=', 300, '... which are few');
}

# ---- crashes, standby ----

run(both('DELETE FROM %s WHERE k % 3 = 0;') . 'BEGIN;' . both('DELETE FROM %s WHERE k % 5 = 0;') . 'ROLLBACK;');
run('CHECKPOINT');
run(both(q{DELETE FROM %s WHERE k > 100 AND length(v) % 5 = 0;}) . join('', map { "DELETE FROM t_$_ WHERE k % 2 = 0;" } @levels));
run('BEGIN;' . both('DELETE FROM %s WHERE k BETWEEN 1000 AND 2000;') . "PREPARE TRANSACTION 'p'");
kill_all($node);
restart_killed($node);
is(tables_differ($node, 't', 'heap', 'k'), '', 'after a kill: rows of heap');
is(answer($node, "SELECT count(*) FROM t_$_"), 1000, "$_: rows that were left") for @levels;
run("COMMIT PREPARED 'p'");
is(tables_differ($node, 't', 'heap', 'k'), '', 'without those whose removal was prepared');
unless (heap_only())
{
	caught_up($node, $standby);
	is(rows_of($standby, 't', 'k, v'), rows_of($node, 't', 'k, v'), 'the standby has the same');
	power_loss($node);
	is(tables_differ($node, 't', 'heap', 'k'), '', 'after power loss: rows of heap');
	is(kv_check_clean($node, 't'), '', '... and sound');
}

# ---- between rows and record ----

SKIP:
{
	skip 'needs fault injection', 1 unless has_faults($node);
	my $rows = answer($node, 'SELECT count(*) FROM t');
	my ($rc, $out, $err) = $node->psql('postgres', q{SET kvfdw.stop_points = 'many_unlogged=error'; DELETE FROM t;});
	like($err, qr/ERROR/, 'an error before the record');
	is(answer($node, 'SELECT count(*) FROM t'), $rows, '... removes no row');
	my $times = times_ready($node);
	my $w = psql_writer($node, q{SET kvfdw.stop_points = 'many_unlogged=kill'; DELETE FROM t;}, 'killed');
	outcome($w);
	ready_again($node, $times);
	is(answer($node, 'SELECT count(*) FROM t'), $rows, 'nor does a kill');
}

# ---- a wait in the middle ----

for my $t ((map { "t_$_" } @levels), 'heap')
{
	my $rows = answer($node, "SELECT count(*) FROM $t");
	my $holder = psql_writer($node, "BEGIN; SELECT k FROM $t WHERE k = 503 FOR UPDATE; SELECT pg_sleep(600);", "holder_$t");
	wait_for('the holder', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) == 1 });
	my $deleter = psql_writer($node, "DELETE FROM $t;", "deleter_$t");
	wait_for('the wait', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'}) == 1 });
	is(answer($node, "SELECT count(*) FROM $t"), $rows, "$t: unseen while it waits");
	run(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DELETE FROM%' AND pid <> pg_backend_pid()});
	outcome($deleter);
	like(slurp_file($deleter->{err}), qr/canceling statement due to user request/, '... and can be canceled');
	run(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()});
	outcome($holder);
	is(answer($node, "SELECT count(*) FROM $t"), $rows, '... which leaves all rows');
	run("DELETE FROM $t WHERE k <= 503");
}

# ---- what is done for each row ----

for my $t (map { "t_$_" } @levels)
{
	my $rows = answer($node, "SELECT count(*) FROM $t");
	is(run("WITH d AS (DELETE FROM $t WHERE k > 1800) SELECT 1; SELECT count(*) FROM $t WHERE k > 1800"), "1\n0", "$t: DELETE in WITH");
	is(run("DELETE FROM $t WHERE k BETWEEN 1700 AND 1703 RETURNING k") =~ s/\n/ /gr, '1701 1703', '... RETURNING');
	run("CREATE FUNCTION left_$t() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT count(*) FROM $t'");
	run("CREATE TABLE log_$t (k int); CREATE FUNCTION log_$t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log_$t VALUES (old.k); RETURN NULL; END'");
	# each row is removed before the condition of the next one is evaluated
	my $before = answer($node, "SELECT count(*) FROM $t");
	run("DELETE FROM $t WHERE left_$t() > $before - 3");
	is(answer($node, "SELECT count(*) FROM $t"), $before - 3, '... a volatile condition sees rows go');
	run("CREATE TRIGGER log AFTER DELETE ON $t FOR EACH ROW EXECUTE FUNCTION log_$t()");
	run("DELETE FROM $t WHERE k > 1600");
	is(answer($node, "SELECT count(*) FROM log_$t"), 98, '... a row trigger');
}
done_testing();
