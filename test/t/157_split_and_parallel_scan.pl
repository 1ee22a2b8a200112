# Promise: a parallel scan of which processes stand still while the shards are split, cut and compacted has heap's rows, each
# once and in order; and of two SERIALIZABLE transactions that read what the other writes exactly one fails, as on
# heap, if between their reads and their writes, or between the writes of one and the reads of the
# other, shards are split, cut, joined or compacted (I 18).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('split_sessions', heap_only() ? () : ('kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.value_cache' => 0, 'kvfdw.compact_workers' => 0), max_worker_processes => 20);
plan skip_all => 'needs fault injection' unless heap_only() || has_faults($node);
my $data = $node->data_dir;
sub query { return $node->safe_psql('postgres', @_); }
sub shards { my ($table) = @_; return query("SELECT shards FROM kvfdw_stat_tables WHERE relid = '$table'::regclass"); }
sub change { my ($sql) = @_; return heap_only() ? 0 : query($sql); }

# ---- parallel scans ----
my $settings = 'SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off;';
my %scan = (
	'in any order' => [ 'SELECT count(*), sum(k), sum(hashtext(v)) FROM T', 'Gather' ],
	'upwards' => [ q{SELECT md5(string_agg(k || v, ',')) FROM (SELECT k, v FROM T WHERE length(v) > 150 ORDER BY k) s}, 'Gather Merge' ],
	'downwards' => [ q{SELECT md5(string_agg(k || v, ',')) FROM (SELECT k, v FROM T WHERE length(v) > 150 ORDER BY k DESC) s}, 'Gather Merge' ],
	'of a range' => [ 'SELECT count(*), sum(k), sum(hashtext(v)) FROM T WHERE k BETWEEN 700 AND 2500', 'Gather' ]);
my $round = 0;
SKIP:
{
	skip 'heap has no shards', 1 if heap_only();
	for my $what (sort keys %scan)
	{
		my ($sql, $gather) = @{ $scan{$what} };
		(my $heap = $sql) =~ s/\bT\b/heap/;
		(my $kv = $sql) =~ s/\bT\b/t/;
		query('DROP TABLE IF EXISTS heap; DROP FOREIGN TABLE IF EXISTS t; CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '1'"));
		query("INSERT INTO heap SELECT g * 7 % 3001, rpad(md5(g::text), 100 + g * 37 % 900, md5(g::text)) FROM generate_series(1, 3000) g; INSERT INTO t SELECT * FROM heap; SELECT kvfdw_flush('t'); ANALYZE t");
		like(query("$settings EXPLAIN (COSTS OFF) $kv"), qr/\Q$gather\E$/m, "$what: the plan is parallel");
		my $expected = query($heap);
		unlink glob "$data/kvfdw/{waiting,step,continue}.*";
		my $reader = psql_writer($node, "$settings SET kvfdw.stop_points = 'fetch_planned=wait'; $kv", 'parallel' . $round++);
		stopped($node, 'fetch_planned');
		# one whose rows come later in the order soon waits for others
		if ($gather eq 'Gather') { step_on($node, 'fetch_planned') for 1 .. 3; }
		my $workers = sub { return join ',', map { /\.(\d+)$/ } glob "$data/kvfdw/waiting.fetch_planned.*" };
		is(query('SELECT count(*) > 0 AND bool_and(backend_type = $$parallel worker$$) FROM pg_stat_activity WHERE pid IN (' . $workers->() . ')'), 't', "$what: workers stand in the middle");
		cmp_ok(query(q{SET kvfdw.stop_points = ''; SELECT kvfdw_split('t')}), '>', 4, "$what: the shard is split");
		query(q{SET kvfdw.stop_points = ''; INSERT INTO t SELECT 10000 + g, 'later' FROM generate_series(1, 50) g; DELETE FROM t WHERE k % 5 = 0});
		cmp_ok(query(q{SET kvfdw.stop_points = ''; SELECT kvfdw_cut('t')}), '>', 8, "$what: its parts are cut");
		query(q{SET kvfdw.stop_points = ''; SELECT kvfdw_compact('t', true)});
		is(go_on($node, 'fetch_planned', $reader), "$expected\n", "$what: heap's rows");
		is(kv_check_clean($node, 't'), '', "$what: sound");
	}
}

# One of two that stand at a stop point goes on and ends: a test sees that the other still stands there.
unless (heap_only())
{
	my @readers = map { psql_writer($node, "SET kvfdw.stop_points = 'fetch_planned=wait'; SELECT v FROM t WHERE k = $_;", "stands$_") } 701, 702;
	wait_for('both', sub { 2 == (() = glob "$data/kvfdw/waiting.fetch_planned.*") });
	step_on($node, 'fetch_planned');
	wait_for('one to end', sub { grep { ended($_) } @readers });
	ok(eval { stopped($node, 'fetch_planned') }, 'who stands at a stop point is seen when another has left it');
	go_on($node, 'fetch_planned');
	outcome($_) for @readers;
}

# ---- SERIALIZABLE ----
my $cut = q{SELECT kvfdw_cut('s')};
my %between = (
	'nothing' => [],
	'a split' => [q{SELECT kvfdw_split('s')}],
	'a cut' => [$cut],
	'a pass' => [q{SELECT kvfdw_compact('s', true)}],
	'a freeze' => [q{SELECT kvfdw_flush('s')}],
	'all of them' => [ q{SELECT kvfdw_split('s')}, q{SELECT kvfdw_compact('s', true)}, $cut, q{SELECT kvfdw_flush('s')} ]);
my %reads = (
	keys => [ 'SELECT v FROM s WHERE k = 100', 'SELECT v FROM s WHERE k = 900' ],
	ranges => [ 'SELECT sum(v) FROM s WHERE k BETWEEN 90 AND 110', 'SELECT sum(v) FROM s WHERE k BETWEEN 890 AND 910' ],
	counts => [ 'SELECT count(*) FROM s WHERE k < 110', 'SELECT count(*) FROM s WHERE k > 890' ]);
my @writes = ('INSERT INTO s VALUES (901, 1); UPDATE s SET v = v - 1 WHERE k = 900', 'INSERT INTO s VALUES (101, 1); UPDATE s SET v = v - 1 WHERE k = 100');

# What a session says to a statement: '' or the error's code.
sub says
{
	my ($session, $sql) = @_;
	$session->{stderr} = '';
	$session->query($sql);
	return $session->{stderr} =~ /ERROR:  (\w+)/ ? $1 : '';
}

sub two_sessions
{
	my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1, 2;
	$_->query_safe('\set VERBOSITY sqlstate') for @sessions;
	query((heap_only() ? 'DROP TABLE IF EXISTS s;' : 'DROP FOREIGN TABLE IF EXISTS s;') . kv_table('s', 'k int, v int', 'k', "shards '1'") . 'INSERT INTO s SELECT g * 10, 10 FROM generate_series(1, 200) g; ANALYZE s');
	return @sessions;
}

for my $change (sort keys %between)
{
	for my $how (sort keys %reads)
	{
		# both read, then both write
		my @sessions = two_sessions();
		$sessions[$_]->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE') for 0, 1;
		$sessions[$_]->query_safe($reads{$how}[$_]) for 0, 1;
		change($_) for @{ $between{$change} };
		my @failed = map { my $s = $sessions[$_]; says($s, $writes[$_]) || says($s, 'COMMIT') } 0, 1;
		is(join(' ', grep { $_ } @failed), '40001', "$how, and $change before the writes: one fails") or diag join '/', @failed;
		is(query('SELECT count(*) FROM s WHERE k IN (101, 901)'), 1, "$how, and $change before the writes: the other is there");
		$_->quit for @sessions;

		# one has a snapshot; the other reads, writes and commits; then the first one reads what it does not see, and writes
		@sessions = two_sessions();
		$sessions[0]->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1 FROM s WHERE k = 500');
		$sessions[1]->query_safe("BEGIN ISOLATION LEVEL SERIALIZABLE; $reads{$how}[1]; $writes[1]; COMMIT");
		change($_) for @{ $between{$change} };
		my $first = says($sessions[0], $reads{$how}[0]) || says($sessions[0], $writes[0]) || says($sessions[0], 'COMMIT');
		is($first, '40001', "$how, and $change before the reads of one: it fails");
		is(query('SELECT string_agg(v::text, $$ $$ ORDER BY k) FROM s WHERE k IN (100, 101, 900, 901)'), '9 1 10', "$how, and $change before the reads of one: the other is there");
		$_->quit for @sessions;
	}
}
$node->stop;
done_testing();
