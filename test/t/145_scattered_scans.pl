# Promise: a scan in key order, of a table whose values are scattered and are more than the range
# cache holds, reads each of them about once: with eight scans at once, too, and however much of
# it is frozen. After a sorting compaction it reads in segments, and the planner knows that.
# Reading ahead continues across the end of a shard. What is in the value cache is not read from
# the device.
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
my $node = kv_cluster('scattered', 'kvfdw.range_cache' => "'16MB'", 'kvfdw.flush_after' => '1h', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.value_cache' => 0,
	'kvfdw.scan_share_wait' => "'10min'", 'kvfdw.compact_workers' => 0, 'kvfdw.recent_ring' => 0, max_parallel_workers_per_gather => 0, jit => 'off', synchronize_seqscans => 'off', 'kvfdw.test_value_file_kb' => 0);
my $faults = has_faults($node);
# what the workers are told is not for the sessions
my $options = '-c kvfdw.stop_points=';
$ENV{PGOPTIONS} = $options . 'range_stuck=error' if $faults;

# Twelve thousand values of a block, written in no order: one shard, and 64 that fit into the cache one by one; f pushes others out of it.
my $rows = 12000;
my $size = $rows * 4096;
$node->safe_psql('postgres', kv_table('one', 'k int, v text', 'k', q{wal 'none'}) . kv_table('many', 'k int, v text', 'k', q{wal 'none', shards '64'}) . kv_table('f', 'k int, v text', 'k', q{wal 'none'}) . qq{
	CREATE TABLE h (k int PRIMARY KEY, v text);
	INSERT INTO h SELECT mod(g * 7919::bigint, 1000003) * 4200 - 2100000000, rpad('x' || g, 4096, md5(g::text)) FROM generate_series(1, $rows) g;
	INSERT INTO one TABLE h; INSERT INTO many TABLE h; INSERT INTO f SELECT g, rpad('x' || g, 4096, md5(g::text)) FROM generate_series(1, 4500) g});
sub sum_of { my ($t, $order) = @_; return "SELECT count(*), sum(k), md5(string_agg(k || md5(v), '')) FROM (SELECT k, v FROM $t ORDER BY k " . ($order // '') . ') s'; }
my %right = map { $_ => answer($node, sum_of('h', $_)) } 'ASC', 'DESC';
sub flush_windows { return $node->safe_psql('postgres', 'SET enable_sort = off; SELECT count(*), sum(length(v)) FROM (SELECT * FROM f ORDER BY k) s'); }
sub device { return answer($node, q{SELECT coalesce(sum(bytes), 0) FROM kvfdw_stat_io WHERE kind = 'value read'}); }
# What a statement reads from the device, with nothing of the table in windows before.
sub read_by { my ($code) = @_; flush_windows(); my $before = device(); $code->(); return device() - $before; }
sub plan_of { my ($sql) = @_; return answer($node, "SET enable_sort = off; EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) $sql"); }
sub number { my ($plan, $what) = @_; return $plan =~ /$what[:=] ?(\d+)/ ? $1 : 0; }
sub sound_cache
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	eval { wait_for('scans to end', sub { answer($node, 'SELECT scans FROM kvfdw_stat_range_cache') eq '0' }) };
	is(answer($node, 'SELECT scans, ' . ($faults ? 'range_problem()' : q{''}) . ' FROM kvfdw_stat_range_cache'), '0|', "$what: no scan is left in the registry, and no window is lost");
	return;
}
$node->safe_psql('postgres', q{CREATE FUNCTION range_problem() RETURNS text AS 'kvfdw', 'kvfdw_range_problem' LANGUAGE C}) if $faults;

# ---- before a flush as after ----

my @scans = ('SELECT k, v FROM one ORDER BY k', 'SELECT k, v FROM one ORDER BY k DESC', 'SELECT k, v FROM many', 'SELECT k, v FROM many ORDER BY k', 'SELECT k, v FROM many ORDER BY k DESC');
my %bytes;
is(answer($node, "SELECT sum(runs) FROM kvfdw_stat_tables"), 0, 'nothing is in runs');
for my $sql (@scans)
{
	$bytes{$sql} = read_by(sub { like(plan_of($sql), qr/rows=$rows/, "$sql: all rows") });
	cmp_ok($bytes{$sql}, '<=', 1.1 * $size, "$sql: reads a value about once");
}
sub right { my ($what) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; for my $t ('one', 'many') { is(answer($node, "SET enable_sort = off; " . sum_of($t, $_)), $right{$_}, "$what: $t $_") for sort keys %right } return; }
right('not frozen');
my $unfrozen = plan_of($scans[0]);
cmp_ok(number($unfrozen, 'loaded'), '>=', $rows / 64 * 0.9, 'blocks of scattered values are gathered in windows') or diag($unfrozen);

# a short range, and a LIMIT, have nothing loaded; one that ends early no more than it has read
is(number(plan_of('SELECT k, v FROM one WHERE k > 0 ORDER BY k LIMIT 300'), 'loaded'), 0, 'a LIMIT of some rows has nothing loaded');
my $early = read_by(sub { $node->safe_psql('postgres', 'SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM one ORDER BY k; MOVE 1000 FROM c; COMMIT') });
cmp_ok($early, '<=', 3 * 1000 * 4096, 'a scan that ends early has loaded about as much as it has read');

# ---- eight at once ----

# They wait for each other once each has blocks loaded for it, and then run all the way.
my $times = 0;
sub eight
{
	my ($what, $t, $order) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$times++;
	my $holder = in_steps($node, "holder$times", 'SELECT pg_advisory_lock(8);', 'SELECT pg_advisory_unlock(8);');
	step_done($holder);
	my $all = read_by(sub {
		my @w = map { psql_writer($node, "SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, md5(v) FROM $t ORDER BY k $order; MOVE 800 FROM c; SELECT pg_advisory_lock_shared(8); \\o /dev/null\nMOVE ALL FROM c; COMMIT; \\o\n SELECT 'done';", "eight${times}_$_") } 1 .. 8;
		wait_for('eight scans', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 8 });
		step_go($holder);
		is(join('', map { outcome($_) } @w), "\ndone\n" x 8, "$what: all end");
	});
	my $one = read_by(sub { $node->safe_psql('postgres', "SET enable_sort = off; " . sum_of($t, $order)) });
	cmp_ok($all, '<=', 1.3 * $one, "$what: eight read about as much as one");
	note("$all bytes by eight, $one by one");
	step_go($holder);
	return;
}
eight('not frozen', 'one', 'ASC');
eight('not frozen, downwards', 'one', 'DESC');
sound_cache('eight at once');

# ---- one that is ahead waits ----

if ($faults)
{
	# If the loader gets no processor for a moment, scans read for themselves: so there are three attempts.
	my $both;
	for my $try (1 .. 3)
	{
		# it begins with what the last scan has left in windows: nothing is kept for one that has met nothing of others
		my $behind = in_steps($node, "behind$try", 'SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM one ORDER BY k; MOVE 800 FROM c;', 'MOVE ALL FROM c; COMMIT;');
		step_done($behind);
		$both = read_by(sub {
			my $ahead = psql_writer($node, "SET kvfdw.stop_points = 'block_window_held=wait'; SET enable_sort = off; " . sum_of('one') . ';', "ahead$try");
			stopped($node, 'block_window_held');
			# both from now on, or the one behind would go by the other
			append_to_file("$behind->{base}.$_.go", '') for 0, 1;
			is(go_on($node, 'block_window_held', $ahead), "$right{ASC}\n", 'the scan that was held back has all rows');
			unlike(outcome($behind->{w}), qr/ERROR/, 'and the other ends');
		});
		last if $both <= 1.2 * $size;
		note("$both bytes in attempt $try");
		flush_windows();
	}
	cmp_ok($both, '<=', 1.2 * $size, 'together they read the table once');

	# one behind that does nothing holds nobody back for long
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.scan_share_wait = '200ms'");
	$node->reload;
	$ENV{PGOPTIONS} = $options;
	my $idle = in_steps($node, 'idle', 'SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM one ORDER BY k; MOVE 800 FROM c;', 'MOVE ALL FROM c; COMMIT;');
	step_done($idle);
	is(answer($node, 'SET enable_sort = off; ' . sum_of('one')), $right{ASC}, 'a scan ahead of one that rests');
	step_go($idle);
	step_go($idle);
	unlike(outcome($idle->{w}), qr/ERROR/, 'which reads on in the end');

	# workers that stand still for a moment: each scan reads for itself, but not to the end of its shard
	worker_stop_points($node, 'block_window_claimed=wait');
	flush_windows();
	my $alone = psql_writer($node, "SET kvfdw.stop_points = 'range_stuck=wait'; SET enable_sort = off; " . sum_of('one') . ';', 'alone');
	stopped($node, 'range_stuck');
	my $loads = 'SELECT loads FROM kvfdw_stat_range_cache';
	my $before = answer($node, $loads);
	worker_stop_points($node, '');
	append_to_file($node->data_dir . '/kvfdw/continue.block_window_claimed', '');
	is(go_on($node, 'range_stuck', $alone), "$right{ASC}\n", 'a scan that does without what is loaded has all rows');
	cmp_ok(answer($node, $loads) - $before, '>', 10, 'and has it loaded again');
	unlink $node->data_dir . '/kvfdw/continue.block_window_claimed';

	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.scan_share_wait');
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.scan_share_wait = '10min'");
	$node->reload;

	# nor one in the same process, which cannot go on
	{
		local $ENV{PGOPTIONS} = $options . 'block_window_held=error';
		is(answer($node, 'SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM one ORDER BY k; MOVE 800 FROM c; ' . sum_of('one') . '; MOVE ALL FROM c; COMMIT'), $right{ASC}, 'a scan beside a cursor of its own session');
	}

	# ---- what goes wrong ----

	# a worker that ends with windows claimed, and a scan that is cancelled while it waits for them
	worker_stop_points($node, 'block_window_claimed=wait');
	$ENV{PGOPTIONS} = $options;
	flush_windows();
	my $cancelled = psql_writer($node, 'SET enable_sort = off; ' . sum_of('one') . ';', 'cancelled');
	stopped($node, 'block_window_claimed');
	$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%FROM one ORDER%' AND pid <> pg_backend_pid()});
	like(outcome($cancelled), qr/user request/, 'a scan is cancelled while blocks are on their way');
	my $waiting = psql_writer($node, "SET kvfdw.stop_points = 'block_window_waiting=wait'; SET enable_sort = off; " . sum_of('one') . ';', 'waiting');
	stopped($node, 'block_window_waiting');
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'kvfdw prefetch'});
	worker_stop_points($node, '');
	my $dir = $node->data_dir . '/kvfdw';
	append_to_file("$dir/continue.block_window_claimed", '');
	is(go_on($node, 'block_window_waiting', $waiting), "$right{ASC}\n", 'a scan shows all rows whose worker has ended');
	unlink "$dir/continue.block_window_claimed";
	sound_cache('after that');

	# a table that is dropped while its blocks are on their way
	$node->safe_psql('postgres', kv_table('gone', 'k int, v text', 'k', q{wal 'none'}) . q{INSERT INTO gone SELECT * FROM h ORDER BY md5(k::text) LIMIT 5000});
	worker_stop_points($node, 'block_window_claimed=wait');
	my $reader = psql_writer($node, 'SET enable_sort = off; ' . sum_of('gone') . ';', 'reader');
	stopped($node, 'block_window_claimed');
	$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%FROM gone ORDER%' AND pid <> pg_backend_pid()});
	like(outcome($reader), qr/user request/, 'its scan is cancelled');
	worker_stop_points($node, '');
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE gone');
	append_to_file("$dir/continue.block_window_claimed", '');
	is(answer($node, 'SET enable_sort = off; ' . sum_of('one')), $right{ASC}, 'a scan after a table was dropped whose blocks were asked for');
	unlink "$dir/continue.block_window_claimed";
	sound_cache('after a table was dropped');

	# reads that fail are done again by the scan
	for my $fault ('value_read:2+:EIO', 'value_read:7:EIO', 'value_read:3+:short')
	{
		$ENV{PGOPTIONS} = $options . ' -c kvfdw.fault=';
		flush_windows();
		$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = '$fault'");
		$node->reload;
		is(answer($node, 'SET enable_sort = off; ' . sum_of('one')), $right{ASC}, "$fault in the workers");
	}
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	$node->reload;
	sound_cache('after reads that failed');

	# one that looks ahead comes by there; for a while nobody does, where reads have failed
	my $looks = sub {
		my $look = sub { local $ENV{PGOPTIONS} = $options . 'ahead_look=error'; return answer($node, 'SET enable_sort = off; ' . sum_of('one')) =~ /ahead_look/; };
		my $wait = sub { $node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.scan_share_wait = '$_[0]'"); $node->reload; };
		$wait->('200ms');
		my $found = eval { wait_for('a look', sub { flush_windows(); $look->() }) };
		$wait->('10min');
		return $found;
	};

	# of a window with a block that cannot be read the others are there; now and then a scan reads some blocks twice without that
	$ENV{PGOPTIONS} = $options . ' -c kvfdw.fault=';
	my $io = sub { return answer($node, "SELECT coalesce(sum($_[0]), 0) FROM kvfdw_stat_io WHERE kind = 'value read'"); };
	my $more;
	for my $try (1 .. 5)
	{
		ok($looks->(), 'a scan of values on the device looks ahead');
		flush_windows();
		$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'value_read:50:EIO'");
		$node->reload;
		my ($before, $failed) = (device(), $io->('errors'));
		is(answer($node, 'SET enable_sort = off; ' . sum_of('one')), $right{ASC}, 'a block that cannot be read');
		$more = (device() - $before - $size) / 4096;
		cmp_ok($io->('errors'), '>', $failed, 'is met by a worker');
		$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
		$node->reload;
		last if $more <= 20;
		note "try $try: $more blocks more";
	}
	cmp_ok($more, '<=', 20, 'others of its window are not read again');

	# nor are those that a scan itself reads at once with a bad one damaged
	flush_windows();
	$node->safe_psql('postgres', 'SELECT sum(length(v)) FROM (SELECT k, v FROM one ORDER BY k) s');
	is(answer($node, q{SET kvfdw.fault = 'value_read:2:EIO'; SELECT count(*), min(length(v)) FROM f WHERE k IN (10, 11, 12)}), '3|4096', 'neighbours of a block that cannot be read');
	like(answer($node, q{SET kvfdw.fault = 'value_read:2+:EIO'; SELECT count(*), min(length(v)) FROM f WHERE k IN (10, 11, 12)}), qr/could not (?:open|read) .*Input\/output error/, 'which is an error itself');

	# of a device that fails for good little is tried again, and a statement that reads what is left can be cancelled
	my $many = 'SELECT count(v) FROM f WHERE k = ANY(ARRAY(SELECT generate_series(1000, 1100)))';
	my ($errors, $calls) = map { $io->($_) } 'errors', 'calls';
	is(answer($node, $many), 101, 'values that lie together');
	cmp_ok($io->('calls') - $calls, '<=', 10, 'are read together');
	like(answer($node, "$many; SET kvfdw.fault = 'value_read:1+:EIO'; $many"), qr/could not (?:open|read) .*Input\/output error/, 'a device that fails for good');
	my $failed = $io->('errors') - $errors;
	ok($failed > 1 && $failed <= 20, 'is not read for each of them') or diag("$failed reads");
	$calls = $io->('calls');
	like(answer($node, "$many; SET kvfdw.fault = 'value_read:1:EIO,value_read:2+:delay'; SET statement_timeout = 300; $many"), qr/statement timeout/, 'a cancel while blocks are read one by one');
	cmp_ok($io->('calls') - $calls, '<=', 80, 'leaves those that are left');
}

# ---- frozen ----

$node->safe_psql('postgres', "SELECT kvfdw_flush('$_')") for 'one', 'many';
for my $sql (@scans)
{
	my $plan;
	my $after = read_by(sub { $plan = plan_of($sql) });
	ok($bytes{$sql} <= 1.05 * $after && $after <= 1.1 * $size, "$sql: before the freeze it reads no more than after it") or diag("before $bytes{$sql}, after $after of $size");
	is($plan =~ /Order: storage/ ? 1 : 0, $unfrozen =~ /Order: storage/ ? 1 : 0, "$sql: and in the same way");
}
right('frozen');
eight('frozen', 'one', 'ASC');

sub cost { return answer($node, 'SET enable_sort = off; EXPLAIN (FORMAT json) SELECT k, v FROM one ORDER BY k') =~ /"Total Cost": ([\d.]+)/ ? $1 : 0; }
$node->safe_psql('postgres', 'ANALYZE one');
my $costly = cost();
like(answer($node, 'EXPLAIN SELECT sum(length(v)) FROM one'), qr/Order: storage/, 'what lies in no order is read by place');

# writers beside it: other rows than those that were looked ahead for
my $writer = in_steps($node, 'writer', 'SET enable_sort = off; BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR SELECT k, md5(v) FROM one ORDER BY k; MOVE 2000 FROM c;', 'MOVE ALL FROM c; COMMIT; ' . sum_of('one') . ';');
step_done($writer);
$node->safe_psql('postgres', "UPDATE $_ SET v = 'new' || v WHERE k / 4200 % 3 = 0; DELETE FROM $_ WHERE k / 4200 % 7 = 0") for 'one', 'h';
step_go($writer);
step_go($writer);
is(outcome($writer->{w}), answer($node, sum_of('h')) . "\n", 'rows that were changed meanwhile');
$node->safe_psql('postgres', 'SELECT NULL FROM kvfdw_compact($$one$$) OFFSET 1');
is(answer($node, 'SET enable_sort = off; ' . sum_of('one', 'DESC')), answer($node, sum_of('h', 'DESC')), 'and moved');

# ---- after a compaction for order ----

$node->safe_psql('postgres', 'SELECT NULL FROM kvfdw_compact($$one$$, true) OFFSET 1; ANALYZE one');
my $sorted;
my $once = read_by(sub { $sorted = plan_of('SELECT k, v FROM one ORDER BY k') });
my $live = answer($node, 'SELECT live_bytes FROM kvfdw_stat_tables WHERE relid = $$one$$::regclass');
ok(number($sorted, 'loaded') >= $live / 262144 * 0.9 && number($sorted, 'Device Reads') - number($sorted, 'loaded') <= 200 && $once <= 1.1 * $live, 'after a sorting compaction it is read in segments') or diag("$sorted\n$once of $live");
unlike(answer($node, 'EXPLAIN SELECT sum(length(v)) FROM one'), qr/Order: storage/, 'in the order of keys, whoever asks');
cmp_ok(cost(), '<', 0.8 * $costly, 'which costs less, says the planner');
is(answer($node, sum_of('one')), answer($node, sum_of('h')), 'sorted: the rows are right');

# ---- across the end of a shard ----

$node->safe_psql('postgres', kv_table('two', 'k int, v text', 'k', q{wal 'none', shards '2'}) . q{INSERT INTO two SELECT g * 1000 + CASE WHEN g > 4500 THEN 0 ELSE -2000000000 END, rpad('x' || g, 4096, md5(g::text)) FROM generate_series(1, 9000) g; SELECT kvfdw_flush('two'); CHECKPOINT});
for my $order ('ASC', 'DESC')
{
	flush_windows();
	my $before = answer($node, 'SELECT reads FROM kvfdw_stat_range_cache');
	my $near = in_steps($node, "near$order", "SET enable_sort = off; BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM two ORDER BY k $order; MOVE 4490 FROM c;", 'COMMIT;');
	step_done($near);
	my $read;
	ok(eval { wait_for('the next shard', sub { ($read = answer($node, 'SELECT reads FROM kvfdw_stat_range_cache') - $before) >= 4500 / 64 + 16 }) }, "$order: the next shard is loaded before the scan comes to it") or diag("$read windows");
	step_go($near);
}

# ---- what is in memory is not read ----

$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.value_cache = 64');
$node->restart;
$node->safe_psql('postgres', kv_table('kept', 'k int, v text', 'k', q{wal 'none'}) . q{INSERT INTO kept SELECT * FROM h ORDER BY md5(k::text) LIMIT 6000;
	DO $$ DECLARE i int; BEGIN FOR times IN 1 .. 3 LOOP FOR i IN SELECT k FROM kept LOOP PERFORM v FROM kept WHERE k = i; END LOOP; END LOOP; END $$});
cmp_ok(read_by(sub { like(plan_of('SELECT k, v FROM kept ORDER BY k'), qr/rows=6000/, 'a scan of values that are in the value cache') }), '<=', 0.3 * 6000 * 4096, 'reads few of them from the device');
sound_cache('in the end');

# nor looked for, far ahead
if ($faults)
{
	$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.value_cache = 256');
	$node->restart;
	$node->safe_psql('postgres', q{SELECT kvfdw_prewarm('kept')});
	answer($node, 'SET enable_sort = off; ' . sum_of('kept'));
	local $ENV{PGOPTIONS} = $options . 'ahead_look=error';
	like(answer($node, 'SET enable_sort = off; ' . sum_of('kept')), qr/^6000\|/, 'one of values that are does not');
}
is(kv_check_clean($node, 'one', 'many', 'two', 'kept'), '', 'kvfdw_check finds nothing');
$node->stop;
done_testing();
