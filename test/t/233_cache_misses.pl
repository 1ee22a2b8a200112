# Promise: kvfdw_stat_cache and EXPLAIN tell why values were read from the device: each reason is counted when it is one,
# for each cache that can have it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no caches' if heap_only();
my $dir = PostgreSQL::Test::Utils::tempdir();
chmod 0777, $dir;
my $file = "$dir/kv.tier";
my $node = kv_cluster('misses', 'kvfdw.recent_ring' => '1MB', 'kvfdw.value_cache' => '1MB', 'kvfdw.write_buffer_size' => "'64kB'",
	'kvfdw.flush_after' => '1h', 'kvfdw.range_cache' => 0, 'kvfdw.read_around' => 0, max_worker_processes => 4);
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', q{compression 'none'}));

my @reasons = qw(off oversized absent probation evicted partial busy damaged);
sub fill { my ($from, $to, $len, $table) = @_; $table //= 't'; return $node->safe_psql('postgres', "INSERT INTO $table SELECT k, repeat(chr(97 + k % 26), $len) FROM generate_series($from, $to) k; SELECT kvfdw_flush('$table')"); }
# Reads the keys one by one; what the view tells of a cache then: the reasons and their numbers.
sub read_keys { my ($from, $to) = @_; return $node->safe_psql('postgres', "SELECT kvfdw_stat_reset(); DO \$\$ DECLARE s text; BEGIN FOR i IN $from .. $to LOOP SELECT v INTO s FROM t WHERE k = i; END LOOP; END \$\$"); }
sub why
{
	my ($cache) = @_;
	my @counts = split /\|/, answer($node, 'SELECT ' . join(', ', map { "coalesce(misses_$_, 0)" } @reasons) . " FROM kvfdw_stat_cache WHERE cache = '$cache'");
	return join ' ', map { "$reasons[$_]=$counts[$_]" } grep { $counts[$_] > 0 } 0 .. $#reasons;
}
sub count_of { my ($cache, $reason) = @_; return why($cache) =~ /\b$reason=(\d+)/ ? $1 : 0; }
sub explained { my ($query) = @_; return answer($node, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) $query"); }

is(answer($node, q{SELECT count(*) FROM kvfdw_stat_cache WHERE cache IN ('write buffers', 'device') AND num_nulls(misses_off, misses_oversized, misses_absent, misses_probation, misses_evicted, misses_partial, misses_busy, misses_damaged) = 8}), 2, 'write buffers and the device have no reasons');
is(answer($node, q{SELECT string_agg(cache, ',') FROM kvfdw_stat_cache WHERE misses_probation IS NOT NULL}), 'value cache', '... only the value cache has a probation');

# ---- the recent ring and the value cache ----

# 600 blocks of 4 kB: the ring has about the last 256 of them (of one transaction it would have the first)
fill(1 + 200 * $_, 200 + 200 * $_, 4096) for 0 .. 2;
my ($left) = grep { explained("SELECT * FROM t WHERE k = $_") =~ /Recent Ring Misses: evicted=1\n\s+Value Cache Hits: 0\n\s+Value Cache Misses: absent=1$/m } reverse 250 .. 345;
ok($left, 'what was written first has left the ring, and was never read') or diag(explained('SELECT * FROM t WHERE k = 300'));
read_keys($left, $left);
is(join(',', map { why($_) } 'recent ring', 'value cache', 'tier'), ',,', 'what is found in a cache is no miss of the view');
like(explained("SELECT * FROM t WHERE k = $left"), qr/Recent Ring Misses: evicted=1\n\s+Value Cache Hits: 1$/m, '... but one of EXPLAIN');
is(why('tier'), '', '... which reads no more');
read_keys(1, 100);
is(count_of('recent ring', 'absent') + count_of('recent ring', 'evicted') . ' ' . why('value cache') . ' ' . why('tier'), '100 absent=100 off=100', 'values that are read the first time are absent, and there is no second tier');
read_keys(1, 300) for 1 .. 2;
cmp_ok(count_of('value cache', 'probation'), '>', 20, 'values that were read once only were on probation');
read_keys(1, 40) for 1 .. 4;
read_keys(100, 300) for 1 .. 4;
read_keys(1, 40);
cmp_ok(count_of('value cache', 'evicted'), '>', 0, 'values that were read often were evicted by others') or diag(why('value cache'));
my $query = 'SELECT count(v) FROM t WHERE k = ANY (ARRAY(SELECT generate_series(1, 300)))';
my $misses = explained($query);
$node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()');
like($misses, qr/Value Cache Misses: (?:\w+=\d+ ?)+$/m, 'EXPLAIN has the reasons of many values');

# values of several blocks, some of which are evicted
fill(1001, 1100, 30000);
read_keys(1001, 1100);
read_keys(1001, 1100);
cmp_ok(count_of('value cache', 'partial'), '>', 0, 'of some values there are only some blocks') or diag(why('value cache'));
fill(2001, 2001, 100000);
fill(2002, 2040, 60000);
read_keys(2001, 2001);
is(why('value cache'), 'oversized=1', 'a value of more than 64 kB is in no value cache');

# after a crash nothing is known of before
my $times = times_ready($node);
kill_process(answer($node, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw maintainer'}));
ready_again($node, $times);
read_keys(5, 5);
is(why('recent ring') . ' ' . why('value cache'), 'absent=1 absent=1', 'after a crash there are no traces');

# ---- the second tier; no cache in memory but a small ring ----

$node->append_conf('postgresql.conf', "kvfdw.value_cache = 0\nkvfdw.tier_path = '$file'\nkvfdw.tier_size = '4MB'");
$node->restart;
wait_for('the tier', sub { answer($node, q{SELECT enabled FROM kvfdw_stat_cache WHERE cache = 'tier'}) eq 't' });
read_keys(1, 1);
is(join(' ', map { why($_) } 'recent ring', 'value cache', 'tier'), 'absent=1 off=1 absent=1', 'a value cache of no size is off');
like(explained('SELECT * FROM t WHERE k = 1'), qr/Recent Ring Misses: absent=1\n\s+Value Cache Hits: 0\n\s+Value Cache Misses: off=1\n\s+Tier Misses: absent=1$/m, '... as EXPLAIN says');
read_keys(2001, 2001);
is(why('tier'), 'oversized=1', 'a value in more than two frames is in no tier');

# other bytes in the tier's file
my $tier_has = sub { return answer($node, q{SELECT used_bytes >= 8 * block_size FROM kvfdw_stat_cache WHERE cache = 'tier'}) eq 't' };
my $next = 3001;
wait_for('frames in the tier', sub { return 1 if $tier_has->(); fill($next, $next + 49, 4096); $next += 50; return 0 });
open(my $f, '+<', $file) or die "$file: $!";
syswrite($f, 'x' x (3 << 20));
close $f;
read_keys(3001, $next - 1);
cmp_ok(count_of('tier', 'damaged'), '>', 0, 'values that the tier has wrong are read from the device') or diag(why('tier'));
is(answer($node, "SELECT bool_and(v = repeat(chr(97 + k % 26), 4096)) FROM t WHERE k BETWEEN 3001 AND $next - 1"), 't', '... and right');

SKIP:
{
	skip 'not a test build (make FAULTS=1)', 2 unless has_faults($node);

	# a frame gets other bytes while it is read
	my $found = sub {
		my ($key) = @_;
		return explained("SELECT * FROM t WHERE k = $key") =~ /Tier Hits: 1/;
	};
	my $key;
	wait_for('a value in the tier', sub {
		fill($next, $next + 49, 4096);
		$next += 50;
		($key) = grep { $found->($_) } map { $next - 200 - 5 * $_ } 1 .. 40;
		return defined $key;
	});
	$node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()');
	my $reader = psql_writer($node, "SET kvfdw.stop_points = 'fetch_planned=wait'; SELECT length(v) FROM t WHERE k = $key;", 'reader');
	stopped($node, 'fetch_planned');
	my $inserted = sub { return answer($node, q{SELECT inserted * block_size > size_bytes + 1048576 FROM kvfdw_stat_cache WHERE cache = 'tier'}) eq 't' };
	wait_for('the tier to come round', sub { return 1 if $inserted->(); fill($next, $next + 99, 4096); $next += 100; return 0 });
	$node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()');
	go_on($node, 'fetch_planned', $reader);
	is(why('tier'), 'busy=1', 'a frame that others took during the read was busy');

	# its file fails
	$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'tier_read:1+:EIO'});
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	wait_for('the tier to fail', sub { read_keys($next - 400, $next - 1); return answer($node, q{SELECT enabled FROM kvfdw_stat_cache WHERE cache = 'tier'}) eq 'f' });
	cmp_ok(count_of('tier', 'off'), '>', 0, 'a file that fails is off') or diag(why('tier'));
}

# ---- all are reset ----
is(answer($node, q{SELECT kvfdw_stat_reset(); SELECT sum(misses_off + misses_absent + misses_evicted + misses_partial + misses_busy + misses_damaged + coalesce(misses_oversized, 0) + coalesce(misses_probation, 0)) FROM kvfdw_stat_cache}), "\n0", 'kvfdw_stat_reset sets all to 0');
done_testing();
