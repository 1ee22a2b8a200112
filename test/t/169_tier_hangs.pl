# Promise: no process waits for another one's write to the second tier: compactions continue while
# its device hangs, and what they have moved is read from its files.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no second tier' if heap_only();
my $dir = PostgreSQL::Test::Utils::tempdir();
chmod 0777, $dir;
my $node = kv_cluster('hangs', 'kvfdw.recent_ring' => '1MB', 'kvfdw.value_cache' => 0, 'kvfdw.tier_path' => "'$dir/kv.tier'", 'kvfdw.tier_size' => '16MB', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.flush_after' => '1h', max_worker_processes => 16,
	map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
plan skip_all => 'needs fault injection' unless has_faults($node);

sub fill
{
	my ($table, $rows) = @_;
	return $node->safe_psql('postgres', "SET kvfdw.stop_points = ''; INSERT INTO $table SELECT k, repeat(md5('$table' || k), 90) FROM ($rows) s (k); SELECT kvfdw_flush('$table')");
}
$node->safe_psql('postgres', kv_table($_, 'k int, v text', 'k')) for qw(m p);
wait_for('the tier', sub { answer($node, q{SELECT enabled FROM kvfdw_stat_cache WHERE cache = 'tier'}) eq 't' });
# what is written faster than it leaves for the tier is not there
my $next = 0;
wait_for('frames in the tier', sub { fill('m', "SELECT 1 + g * 7919 % 100000 FROM generate_series($next, $next + 49) g"); $next += 50; return answer($node, q{SELECT used_bytes >= 20 * block_size FROM kvfdw_stat_cache WHERE cache = 'tier'}) eq 't' });
my $rows = $next;
worker_stop_points($node, 'tier_before_write=wait');
$next = 0;
wait_for('frames on their way', sub { fill('p', "SELECT generate_series($next + 1, $next + 100)"); $next += 100; return -e $node->data_dir . '/kvfdw/waiting.tier_before_write' });
worker_stop_points($node, '');
my $w = psql_writer($node, "SET kvfdw.stop_points = ''; SELECT moved_bytes > 0 FROM kvfdw_compact('m', sorted => true);", 'compact');
ok(eval { wait_for('the compaction', 50, sub { ended($w) }) }, 'a compaction of values that are in the tier goes on while its device stands') or diag $@;
ok(-e $node->data_dir . '/kvfdw/waiting.tier_before_write', 'which it does');
is(answer($node, q{SELECT count(*), count(*) FILTER (WHERE v = repeat(md5('m' || k), 90)) FROM m}), "$rows|$rows", 'the values are right');
go_on($node, 'tier_before_write');
is(outcome($w), "t\n", 'it has moved them');
$node->stop;
done_testing();
