# Promise: a scan in key order of values that are in many stretches of the value files, each in the order of keys, reads
# these in large requests, and each byte about once: upwards and downwards, with eight scans at once, beside values that
# are scattered, and however large values are. It shows the right rows when files are removed in the middle of it, when
# values are still in write buffers, when blocks cannot be read, and whatever ends it. What has been scattered is read
# as before.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no windows' if heap_only();
my $node = kv_cluster('stretches', 'kvfdw.range_cache' => "'16MB'", 'kvfdw.flush_after' => '1h', 'kvfdw.value_cache' => 0, 'kvfdw.recent_ring' => 0, 'kvfdw.compact_workers' => 0,
	max_parallel_workers_per_gather => 0, jit => 'off', synchronize_seqscans => 'off', 'kvfdw.test_value_file_kb' => 1024, 'kvfdw.test_compactions' => 'off', 'kvfdw.test_splits' => 'off');
my $faults = has_faults($node);
my $options = '-c kvfdw.stop_points=';
$ENV{PGOPTIONS} = $options if $faults;
$node->safe_psql('postgres', q{CREATE FUNCTION range_problem() RETURNS text AS 'kvfdw', 'kvfdw_range_problem' LANGUAGE C}) if $faults;

# Loads of their own, each in the order of keys; their keys alternate.
my ($loads, $each) = (24, 600);
my $rows = $loads * $each;
sub loads_of
{
	my ($t, $size, $n, $per) = @_;
	return join ';', map { "INSERT INTO $t SELECT g * $n + $_, rpad('$t' || g * $n + $_, $size, md5((g * $n + $_)::text)) FROM generate_series(1, $per) g" } 0 .. $n - 1;
}
sub make
{
	my ($t, $level, $size, $n, $per) = @_;
	$node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k', "wal '$level'") . "CREATE TABLE ${t}_heap (k int PRIMARY KEY, v text);" . loads_of($t, $size, $n, $per) . ";INSERT INTO ${t}_heap TABLE $t");
	return;
}
sub sum_of { my ($t, $order) = @_; return "SELECT count(*), sum(k), md5(string_agg(k || md5(v), '')) FROM (SELECT k, v FROM $t ORDER BY k " . ($order // '') . ') s'; }
sub scan { my ($t, $order) = @_; return 'SET enable_sort = off; ' . sum_of($t, $order); }
sub right { my ($t, $order) = @_; return answer($node, sum_of("${t}_heap", $order)); }
sub io { return answer($node, "SELECT coalesce(sum($_[0]), 0) FROM kvfdw_stat_io WHERE kind = 'value read'"); }
# f takes all windows
$node->safe_psql('postgres', kv_table('f', 'k int, v text', 'k', q{wal 'none'}) . q{INSERT INTO f SELECT g, rpad('x' || g, 4096, md5(g::text)) FROM generate_series(1, 4500) g});
sub others { return $node->safe_psql('postgres', 'SET enable_sort = off; SELECT count(*), sum(length(v)) FROM (SELECT * FROM f ORDER BY k) s'); }
# What code reads: bytes, and bytes of a request.
sub read_by { my ($code) = @_; others(); my ($bytes, $calls) = (io('bytes'), io('calls')); $code->(); ($bytes, $calls) = (io('bytes') - $bytes, io('calls') - $calls); return ($bytes, $bytes / ($calls || 1)); }
sub sound_cache
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eval { wait_for('scans to end', sub { answer($node, 'SELECT scans FROM kvfdw_stat_range_cache') eq '0' }) };
	is(answer($node, 'SELECT scans, ' . ($faults ? 'range_problem()' : q{''}) . ' FROM kvfdw_stat_range_cache'), '0|', "$what: no scan is left in the registry, and no window is lost");
	return;
}
# A scan in an order: right, and reads so.
sub reads_well
{
	my ($what, $t, $bytes, $least) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $order ('ASC', 'DESC')
	{
		my ($all, $mean) = read_by(sub { is(answer($node, scan($t, $order)), right($t, $order), "$what, $order: the rows are right") });
		cmp_ok($all, '<=', 1.15 * $bytes, "$what, $order: reads a value about once");
		cmp_ok($mean, '>=', $least, "$what, $order: in large requests");
		note("$what, $order: $all bytes of $bytes, $mean each");
	}
	return;
}

make('t', 'none', 4096, $loads, $each);
my $size = $rows * 4096;
reads_well('not flushed', 't', $size, 65536);
$node->safe_psql('postgres', "SELECT kvfdw_flush('t')");
reads_well('flushed', 't', $size, 65536);
sound_cache('at first');
my $plan = answer($node, 'SET enable_sort = off; EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) SELECT k, v FROM t ORDER BY k');
my ($reads) = $plan =~ /Device Reads: (\d+)/i;
cmp_ok($reads // 0, '<=', $size / 65536, 'EXPLAIN counts requests') or diag($plan);

# one that ends early has loaded little more than it has read
my ($early) = read_by(sub { $node->safe_psql('postgres', 'SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM t ORDER BY k; MOVE 1500 FROM c; COMMIT') });
cmp_ok($early, '<=', 3 * 1500 * 4096, 'a scan that ends early has loaded about as much as it has read');

# ---- eight at once ----

my $times = 0;
sub eight
{
	my ($what, $order) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$times++;
	my ($one) = read_by(sub { answer($node, scan('t', $order)) });
	my $holder = in_steps($node, "holder$times", 'SELECT pg_advisory_lock(8);', 'SELECT pg_advisory_unlock(8);');
	step_done($holder);
	my ($all, $mean) = read_by(sub {
		my @w = map { psql_writer($node, "SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, md5(v) FROM t ORDER BY k $order; MOVE 800 FROM c; SELECT pg_advisory_lock_shared(8); \\o /dev/null\nMOVE ALL FROM c; COMMIT; \\o\n SELECT 'done';", "eight${times}_$_") } 1 .. 8;
		wait_for('eight scans', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 8 });
		step_go($holder);
		is(join('', map { outcome($_) } @w), "\ndone\n" x 8, "$what: all end");
	});
	cmp_ok($all, '<=', 1.3 * $one, "$what: eight read about as much as one");
	note("$what: $all bytes by eight, $one by one, $mean each");
	step_go($holder);
	return;
}
eight('upwards', 'ASC');
eight('downwards', 'DESC');
sound_cache('eight at once');

# ---- sizes, levels, and what is scattered ----

make('small', 'none', 500, 16, 6000);
reads_well('small values', 'small', 16 * 6000 * 512, 32768);
make('large', 'full', 9000, 12, 500);
reads_well('values of several blocks at level full', 'large', 12 * 500 * 12288, 32768);
# a fifth is written again, in no order: the rest is in stretches
$node->safe_psql('postgres', "UPDATE $_ SET v = rpad('new' || k, 4096, md5(k::text)) FROM (SELECT k AS u FROM t_heap WHERE k % 5 = 0 ORDER BY md5(k::text)) s WHERE k = u") for 't', 't_heap';
my ($mixed) = read_by(sub { is(answer($node, scan('t')), right('t'), 'values that were written again: the rows are right') });
cmp_ok($mixed, '<=', 1.6 * $size, 'and read about once');
$node->safe_psql('postgres', kv_table('scattered', 'k int, v text', 'k', q{wal 'none'}) . q{INSERT INTO scattered SELECT * FROM t_heap ORDER BY md5(k::text)});
my ($all, $mean) = read_by(sub { is(answer($node, scan('scattered')), right('t'), 'scattered values: the rows are right') });
cmp_ok($all, '<=', 1.1 * $size, 'are read about once, in single blocks') or diag("$mean each");

# ---- what changes in the middle ----

if ($faults)
{
	# what stands still holds nobody up for long
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.scan_share_wait = '1s'");
	$node->reload;
	# files are rewritten and removed while a scan stands still
	my $held = in_steps($node, 'held', 'SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, md5(v) FROM small ORDER BY k; MOVE 30000 FROM c;', 'MOVE ALL FROM c; COMMIT;');
	step_done($held);
	my $scan = psql_writer($node, "SET kvfdw.stop_points = 'ahead_look=wait'; " . scan('small') . ';', 'moved');
	stopped($node, 'ahead_look');
	$node->safe_psql('postgres', q{SELECT kvfdw_compact('small', true); CHECKPOINT});
	is(go_on($node, 'ahead_look', $scan), right('small') . "\n", 'a scan whose files are removed has all rows');
	step_go($held) for 1, 2;
	unlike(outcome($held->{w}), qr/ERROR/, 'and so has one that began before');
	sound_cache('after files were removed');

	# a worker that ends with windows claimed, and a scan that is cancelled while it waits for them
	worker_stop_points($node, 'block_window_claimed=wait');
	others();
	my $cancelled = psql_writer($node, scan('t') . ';', 'cancelled');
	stopped($node, 'block_window_claimed');
	$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%FROM t ORDER%' AND pid <> pg_backend_pid()});
	like(outcome($cancelled), qr/user request/, 'a scan is cancelled while parts are on their way');
	my $waiting = psql_writer($node, "SET kvfdw.stop_points = 'block_window_waiting=wait'; " . scan('t') . ';', 'waiting');
	stopped($node, 'block_window_waiting');
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'kvfdw prefetch'});
	worker_stop_points($node, '');
	my $dir = $node->data_dir . '/kvfdw';
	append_to_file("$dir/continue.block_window_claimed", '');
	is(go_on($node, 'block_window_waiting', $waiting), right('t') . "\n", 'a scan whose worker has ended has all rows');
	unlink "$dir/continue.block_window_claimed";
	sound_cache('after a worker has ended');

	# reads that fail are done again by the scan
	$ENV{PGOPTIONS} = $options . ' -c kvfdw.fault=';
	for my $fault ('value_read:2+:EIO', 'value_read:40:EIO', 'value_read:60+:short')
	{
		others();
		$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = '$fault'");
		$node->reload;
		is(answer($node, scan('t')), right('t'), "$fault in the workers");
	}
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	$node->reload;
	$ENV{PGOPTIONS} = $options;
	sound_cache('after reads that failed');
}

# a scan beside writers and flushes, whose values come into parts that it has loaded before they were written
my $writer = psql_writer($node, join(';', map { "INSERT INTO large SELECT 100000 + g * 40 + $_, repeat(md5((g * 40 + $_)::text), 200) FROM generate_series(1, 100) g" } 0 .. 39) . ';', 'writer');
my $odd = 0;
do { $odd += answer($node, 'SET enable_sort = off; SELECT count(*) FROM (SELECT k, v FROM large ORDER BY k) s WHERE k >= 100000 AND v <> repeat(md5((k - 100000)::text), 200)') } until ended($writer);
is(outcome($writer), '', 'writers beside scans');
is($odd, 0, 'which show the right values');
sound_cache('at last');
is(kv_check_clean($node, $_), '', "$_ is sound") for 't', 'small', 'large';
$node->stop;
done_testing();
