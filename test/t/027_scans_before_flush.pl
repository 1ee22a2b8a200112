# Promise: right after rows were written they are in memtables or unfrozen runs, and their values
# in write buffers or files. Scans read them as after a flush: through windows, by segments if
# keys are in order, by address if not. They show what a heap table shows, whatever is written in
# between.
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
my $node = kv_cluster('fresh', 'kvfdw.range_cache' => "'16MB'", 'kvfdw.flush_after' => '1h', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.value_cache' => 0, 'kvfdw.compact_workers' => 0,
	'kvfdw.scan_share_wait' => "'10min'", checkpoint_timeout => '1h', max_parallel_workers_per_gather => 0, jit => 'off', synchronize_seqscans => 'off');
$node->safe_psql('postgres', q{CREATE FUNCTION value(int, int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT rpad($1::text || 'x' || $2, 4096, md5($1::text)) $$});

# s: in any order, in four shards that fit into the range cache; o: in key order, larger than it; p: in any order, larger than it.
my %rows = (s => 2400, o => 7000, p => 6000);
my @tables = sort keys %rows;
sub of_both { my ($t, $sql) = @_; return $node->safe_psql('postgres', join ';', map { (my $s = $sql) =~ s/\bT\b/$_/gr } $t, "h_$t"); }
my $key = 'mod(g * 7919::bigint, 1000003) * 2000 - 1000000000';	# scattered over int
$node->safe_psql('postgres', kv_table($_, 'k int, v text', 'k', $_ eq 's' ? q{shards '4'} : '') . "CREATE TABLE h_$_ (k int PRIMARY KEY, v text)") for @tables;
sub insert { my ($t, $from, $to, $n) = @_; return of_both($t, "INSERT INTO T SELECT " . ($t eq 'o' ? 'g' : $key) . ", value(g::int, $n) FROM generate_series($from, $to) g"); }

sub digest { my ($t, $order) = @_; return "SELECT count(*), md5(string_agg(k || md5(v), '')) FROM (SELECT k, v FROM $t $order) s"; }
sub same
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $t (@tables)
	{
		is(answer($node, digest($t, "ORDER BY k $_")), answer($node, digest("h_$t", "ORDER BY k $_")), "$what: $t in order $_") for 'ASC', 'DESC';
		is(answer($node, "SELECT count(*), sum(k), sum(hashtext(v)) FROM $t"), answer($node, "SELECT count(*), sum(k), sum(hashtext(v)) FROM h_$t"), "$what: $t in any order");
		is(answer($node, "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SELECT count(*), sum(k), sum(hashtext(v)) FROM $t"),
			answer($node, "SELECT count(*), sum(k), sum(hashtext(v)) FROM h_$t"), "$what: $t in parallel");
	}
	return;
}
sub plan_of { my ($sql) = @_; return answer($node, "SET enable_sort = on; EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) $sql"); }
sub device_reads { my ($plan) = @_; return $plan =~ /Device Reads: (\d+)/ ? $1 : 0; }
sub loaded { my ($plan) = @_; return $plan =~ /Windows: .*loaded=(\d+)/ ? $1 : 0; }
sub windows { my ($plan) = @_; return $plan =~ /Windows: hit=(\d+) loaded=(\d+)/ ? $1 + $2 : 0; }

# Most values come through windows, and what is read by itself are few; by place where nothing has an order.
sub through_windows
{
	my ($what, $t, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $n = answer($node, "SELECT count(*) FROM $t");
	my $plan = plan_of($sql);
	ok(windows($plan) >= $n * 4096 / 262144 / 2 && device_reads($plan) - windows($plan) < $n / 8, "$what: $sql goes through windows") or diag($plan);
	return $plan;
}
sub steered
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	through_windows($what, 's', "SELECT k, v FROM s $_") for '', 'ORDER BY k', 'ORDER BY k DESC';
	through_windows($what, 'o', "SELECT k, v FROM o $_") for '', 'ORDER BY k', 'ORDER BY k DESC';
	unlike(answer($node, 'EXPLAIN SELECT sum(length(v)) FROM o'), qr/Order: storage/, "$what: o is in order, for the planner too");
	my $plan = through_windows($what, 'p', 'SELECT k, v FROM p');
	like($plan, qr/Order: storage/, "$what: p by place");
	return;
}
sub state_of { my ($t) = @_; return answer($node, "SELECT runs, memtable_bytes > 0 FROM kvfdw_stat_tables WHERE relid = '$t'::regclass"); }

# ---- in memtables; the last values in write buffers ----

insert($_, 1, $rows{$_}, 0) for @tables;
is(state_of($_), '0|t', "$_ is in no run") for @tables;
steered('just written');
same('just written');

# a scan with an end does not have loaded what lies behind it
my $before = answer($node, 'SELECT reads FROM kvfdw_stat_range_cache');
is(answer($node, 'SELECT count(*), sum(length(v)) FROM (SELECT k, v FROM o WHERE k BETWEEN 1500 AND 3000 ORDER BY k) s'), '1501|' . 1501 * 4096, 'a range');
cmp_ok(answer($node, 'SELECT reads FROM kvfdw_stat_range_cache') - $before, '<=', 1501 / 64 + 3 * 16, 'has about its own segments loaded');
# nor does a short one load anything
is(loaded(plan_of('SELECT k, v FROM o WHERE k BETWEEN 1500 AND 1550 ORDER BY k')), 0, 'a short range has nothing loaded');
is(loaded(plan_of('SELECT k, v FROM s ORDER BY k LIMIT 10')), 0, 'so does a LIMIT');

# ---- in company ----

SKIP:
{
	my $holder = in_steps($node, 'holder', 'CREATE SEQUENCE met; SELECT pg_advisory_lock(1);', 'SELECT pg_advisory_unlock(1);');
	step_done($holder);
	my $first = psql_writer($node, q{SET synchronize_seqscans = on; SELECT count(*) FROM o WHERE CASE WHEN nextval('met') = 6000 THEN pg_advisory_lock(1) IS NOT NULL ELSE length(v) >= 0 END;}, 'first');
	wait_for('the first to be half way', 180, sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 1 });
	my $late = answer($node, 'SET synchronize_seqscans = on; SELECT k > 100 AND length(v) > 0 FROM (SELECT k, v FROM o OFFSET 0) s OFFSET 0 FETCH FIRST ROW ONLY');
	my $live = answer($node, q{SELECT now() - query_start < '20s' FROM pg_stat_activity WHERE query LIKE '%nextval%' AND pid <> pg_backend_pid()});
	is(answer($node, 'SET synchronize_seqscans = on; SELECT count(*), sum(k), sum(hashtext(v)) FROM o'), answer($node, 'SELECT count(*), sum(k), sum(hashtext(v)) FROM h_o'), 'a scan beside another shows all rows');
	step_go($holder);
	is(outcome($first), answer($node, 'SELECT count(*) FROM h_o') . "\n", 'and so does the other');
	skip 'the first scan has rested too long', 1 if $live ne 't';
	is($late, 't', 'a scan in no order begins where another is');
}

# ---- beside writers ----

# what is written while there are windows of the file's end
for my $i (1 .. 3)
{
	insert($_, $rows{$_} + 1, $rows{$_} + 150, $i) for @tables;
	$rows{$_} += 150 for @tables;
	same("grown, $i");
}
of_both($_, "UPDATE T SET v = 'new' || v WHERE hashtext(v) % 3 = 0; DELETE FROM T WHERE hashtext(v) % 7 = 0") for @tables;
same('changed');

# ---- in a memtable that is being flushed, and in runs that are not frozen ----

if (has_faults($node))
{
	for my $t (@tables)
	{
		my $freeze = psql_writer($node, "SET kvfdw.stop_points = 'flush_before_files=wait'; SELECT kvfdw_flush('$t');", "freeze_$t");
		stopped($node, 'flush_before_files');
		my $sql = $t eq 's' ? 'SELECT k, v FROM s ORDER BY k' : "SELECT k, v FROM $t";
		through_windows('sealed', $t, $sql);
		insert($t, $rows{$t} + 1, $rows{$t} + 20, 9);
		$rows{$t} += 20;
		is(answer($node, digest($t, 'ORDER BY k')), answer($node, digest("h_$t", 'ORDER BY k')), "$t, being frozen: the rows are right");
		unlike(go_on($node, 'flush_before_files', $freeze), qr/ERROR/, "$t is frozen");
	}
	# values in a sealed write buffer that is not written yet
	$node->safe_psql('postgres', 'CHECKPOINT');
	worker_stop_points($node, 'buffer_before_write=wait');
	local $ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
	insert('s', $rows{s} + 1, $rows{s} + 200, 10);
	$rows{s} += 200;
	stopped($node, 'buffer_before_write');
	is(answer($node, digest('s', 'ORDER BY k')), answer($node, digest('h_s', 'ORDER BY k')), 'values whose slot is not written come from it');
	through_windows('with slots not written', 's', 'SELECT k, v FROM s ORDER BY k');
	worker_stop_points($node, '');
	go_on($node, 'buffer_before_write');
	same('and from the file when it is');
}
$node->safe_psql('postgres', "SELECT kvfdw_flush('$_'); TRUNCATE $_, h_$_") for @tables;
my $old = in_steps($node, 'old', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;', 'COMMIT;');
step_done($old);
for my $part (0 .. 2)
{
	insert($_, 1 + $part * 2000, 2000 + $part * 2000, $part) for @tables;
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$_')") for $part < 2 ? @tables : ();
}
steered('in runs that are not frozen, and in memtables');
same('in runs that are not frozen');
step_go($old);

# ---- after a crash ----

kill_all($node);
$node->start;
$node->safe_psql('postgres', "SELECT count(*) FROM $_") for @tables;
steered('recovered');
same('recovered');
is(answer($node, 'SELECT scans FROM kvfdw_stat_range_cache'), 0, 'no scan is left in the registry');
is(kv_check_clean($node, @tables), '', 'kvfdw_check finds nothing');
$node->stop;
done_testing();
