# Promise: with PostgreSQL's default max_worker_processes all that needs background workers goes on as without kvfdw, while kvfdw
# is at rest and while it is busy: subscriptions, REPACK (CONCURRENTLY) of two tables, and parallel queries, at rest with four
# workers, else with the two that PostgreSQL's default asks for.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my %default = (max_worker_processes => 8, autovacuum => 'on', wal_level => 'logical', max_wal_senders => 10, max_replication_slots => 10, max_wal_size => '4GB');
my $publisher = kv_cluster('publisher', %default);
my $node = kv_cluster('worker_slots', %default, has_test_settings() ? ('kvfdw.test_space_look' => '100ms') : ());

# before the first node there is nothing to ask
sub has_test_settings { return has_faults($publisher); }

# Which of kvfdw's processes run, the buffer writer included.
sub processes
{
	my ($server) = @_;
	return sort map { /kvfdw (.*?) *$/ ? $1 : () } split /\n/, `ps -o args= --ppid @{[postmaster_runs($server)]}`;
}

sub is_free_for_others
{
	my ($what, $workers) = @_;
	my $query = 'SELECT sum(length(md5(v))) FROM h';
	my @launched = map { answer($node, "SET max_parallel_workers_per_gather = $workers; EXPLAIN (ANALYZE, COSTS off, TIMING off) $query") =~ /Workers Launched: (\d+)/ ? $1 : 'none' } 1 .. 40;
	is(join(' ', sort @launched), join(' ', ($workers) x 40), "$what: each parallel query has its $workers workers");

	$node->safe_psql('postgres', 'CREATE TABLE p (k int PRIMARY KEY, v text)');
	$node->safe_psql('postgres', sprintf('CREATE SUBSCRIPTION s CONNECTION $$%s$$ PUBLICATION p', $publisher->connstr('postgres')));
	ok(eval { wait_for('the first sync', 60, sub { answer($node, 'SELECT count(*) FROM p') eq '100' }) }, "$what: a subscription gets the rows of its table");
	$publisher->safe_psql('postgres', q{UPDATE p SET v = 'new' WHERE k = 1});
	ok(eval { wait_for('a change', 60, sub { answer($node, 'SELECT v FROM p WHERE k = 1') eq 'new' }) }, '... and what is changed later');
	$node->safe_psql('postgres', 'DROP SUBSCRIPTION s; DROP TABLE p');
	$publisher->safe_psql('postgres', q{UPDATE p SET v = 'old' WHERE k = 1});
	return repack($what);
}

# Two at once: the first has done its work, and waits for a reader of its table; the second has its worker.
sub repack
{
	my ($what) = @_;
	return if $node->safe_psql('postgres', 'SHOW server_version_num') < 190000;
	$node->safe_psql('postgres', 'CREATE TABLE r1 (k int PRIMARY KEY, v text); CREATE TABLE r2 (k int PRIMARY KEY, v text)');
	$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, 'x' || g FROM generate_series(1, 1000) g") for qw(r1 r2);
	my $reader = psql_writer($node, "BEGIN; SELECT count(*) FROM r1; SELECT pg_sleep(600);", 'reader');
	wait_for('the reader', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'r1'::regclass AND granted}) eq '1' });
	my $first = psql_writer($node, 'REPACK (CONCURRENTLY) r1;', 'first');
	ok(eval { wait_for('the first one', 60, sub { ended($first) || answer($node, q{SELECT count(*) FROM pg_locks WHERE relation = 'r1'::regclass AND NOT granted}) eq '1' }) } && !ended($first),
		"$what: one REPACK (CONCURRENTLY) goes on");
	# its worker waits for the first one's transaction, as it does without kvfdw
	my $second = psql_writer($node, 'REPACK (CONCURRENTLY) r2;', 'second');
	ok(eval { wait_for('the second one', 60, sub { ended($second) || answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'REPACK%'}) eq '2' }) } && !ended($second),
		'... and another one beside it');
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()});
	reap_writer($_) for $reader, $first, $second;
	is(slurp_file($first->{err}) . slurp_file($second->{err}), '', '... which end well');
	$node->safe_psql('postgres', 'DROP TABLE r1, r2');
	return;
}

$publisher->safe_psql('postgres', q{CREATE TABLE p (k int PRIMARY KEY, v text); INSERT INTO p SELECT g, 'old' FROM generate_series(1, 100) g; CREATE PUBLICATION p FOR TABLE p});
$node->safe_psql('postgres', q{CREATE TABLE h (k int, v text) WITH (parallel_workers = 4, autovacuum_enabled = off);
	INSERT INTO h SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g;
	ALTER SYSTEM SET min_parallel_table_scan_size = 0; ALTER SYSTEM SET parallel_setup_cost = 0; ALTER SYSTEM SET parallel_tuple_cost = 0; ALTER SYSTEM SET max_parallel_workers_per_gather = 4;
	CREATE TABLE stop (); SELECT pg_reload_conf()});
$node->safe_psql('postgres', kv_table("t$_", 'k int, v text', 'k', "shards '4'")) for 1, 2;
$node->safe_psql('postgres', "INSERT INTO t$_ SELECT g, repeat(md5(g::text), 60) FROM generate_series(1, 20000) g") for 1, 2;

is(() = slurp_file($node->logfile) =~ /WARNING/g, 0, 'the start has no warning');
ok(eval { wait_for('rest', 90, sub { join(' ', processes($node)) eq 'checkpointer maintainer' }) }, 'at rest two processes run');
is_free_for_others('at rest', 4);

# ---- it loads, scans and compacts ----
my $work = q{SET max_parallel_workers_per_gather = 0; SET enable_seqscan = on; DO $$ BEGIN LOOP EXIT WHEN to_regclass('stop') IS NULL; %s; COMMIT; END LOOP; END $$;};
my @busy = map { psql_writer($node, sprintf($work, $_->[1]), $_->[0]) }
	['load', q{UPDATE t1 SET v = repeat(md5(v), 60) WHERE k % 3 = (random() * 2)::int}],
	['overwrite', q{UPDATE t2 SET v = repeat(md5(v), 60) WHERE k % 5 = (random() * 4)::int}],
	['scan', 'PERFORM sum(length(md5(v))) FROM t2'], ['scan_too', 'PERFORM sum(length(md5(v))) FROM t1'];
my %seen;
my $most = 0;
wait_for('all kinds of processes', 180, sub {
	my @now = processes($node);
	$seen{$_} = 1 for @now;
	$most = @now if @now > $most;
	return 3 == grep { $seen{$_} } 'buffer writer', 'compactor', 'prefetch';
});
pass('each kind of process on demand gets its turn');
cmp_ok($most, '<=', 5, '... and no more than five run at a time');
is(join(' ', map { ended($_) ? $_->{err} : () } @busy), '', '... beside which work goes on');
is_free_for_others('busy', 2);
is(join(' ', map { ended($_) ? slurp_file($_->{err}) : () } @busy), '', 'all that work goes on');
$node->safe_psql('postgres', 'DROP TABLE stop');
reap_writer($_) for @busy;
is(join('', map { slurp_file($_->{err}) } @busy), '', '... and ends well');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT k) FROM t$_"), '20000|20000', "all rows of t$_ are there") for 1, 2;
is(kv_check_clean($node, qw(t1 t2)), '', 'the tables are sound');
$node->stop;
$publisher->stop;
done_testing();
