# Promise: prefetch workers read into huge pages where the kernel can make any and
# huge_pages allows it, of the windows that are used and of nothing else; what scans
# show is the same with them as without.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no range cache' if heap_only();
my ($major, $minor) = `uname -r` =~ /^(\d+)\.(\d+)/;
my ($shmem) = do { local (@ARGV, $/) = glob '/sys/kernel/mm/transparent_hugepage/shmem_enabled'; @ARGV ? <> : '[deny]' };
plan skip_all => 'this kernel makes no huge pages of shared memory on demand'
  if $major < 6 || ($major == 6 && $minor < 1) || $shmem =~ /\[deny\]/;

my $node = kv_cluster("huge", 'kvfdw.range_cache' => "'64MB'", 'kvfdw.prefetch_workers' => 2);
plan skip_all => 'PostgreSQL has huge pages itself' if answer($node, 'SHOW huge_pages') eq 'on' || `cat /proc/sys/vm/nr_hugepages` > 0;

sub workers { return split ' ', answer($node, q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type = 'kvfdw prefetch'}); }
# MB of huge pages in the workers' shared memory, for each worker
sub huge
{
	return map { my ($pid, $kb) = ($_, 0); open my $smaps, '<', "/proc/$pid/smaps" or die "smaps: $!"; /^ShmemPmdMapped:\s+(\d+)/ and $kb += $1 while <$smaps>; $kb / 1024 } workers();
}
my $digest = q{SELECT count(*), sum(k), md5(string_agg(md5(v), ' ' ORDER BY k)) FROM (SELECT * FROM %s ORDER BY k) s};
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', q{shards '8'}) . q{
	CREATE TABLE h (k int PRIMARY KEY, v text);
	INSERT INTO h SELECT (g * 200000::bigint - 2000000000)::int, rpad('v' || g, 4096, md5(g::text)) FROM generate_series(1, 20000) g ORDER BY md5(g::text);
	INSERT INTO t SELECT * FROM h ORDER BY md5(v); SELECT kvfdw_flush('t'); ANALYZE t});
my $right = answer($node, sprintf $digest, 'h');

is((grep { $_ > 0 } huge()), 0, 'before a scan, no memory is in use');
is(answer($node, sprintf $digest, 't'), $right, 'the first scan shows the right rows');
cmp_ok(answer($node, 'SELECT loads FROM kvfdw_stat_range_cache'), '>', 100, 'through windows');
my @huge = huge();
cmp_ok((grep { $_ >= 2 } @huge), '>=', 1, "a worker reads into huge pages (MB: @huge)");
is((grep { $_ > 64 } @huge), 0, 'of the range cache alone');
is(answer($node, sprintf $digest, 't'), $right, 'another scan shows the right rows');

# a crash makes shared memory anew; scans go through windows for what is in runs
$node->safe_psql('postgres', 'CHECKPOINT');
my $times = times_ready($node);
kill 'KILL', (workers())[0];
ready_again($node, $times);
is(answer($node, sprintf $digest, 't'), $right, 'after a crash the rows are right');
# scans start workers, and go on without those that come late
ok(wait_for('a worker', sub { answer($node, sprintf $digest, 't'); grep { $_ >= 2 } huge() }), 'and a worker has huge pages again');

$node->append_conf('postgresql.conf', 'huge_pages = off');
$node->restart;
is(answer($node, sprintf $digest, 't'), $right, 'without huge pages the rows are right');
cmp_ok(answer($node, 'SELECT loads FROM kvfdw_stat_range_cache'), '>', 100, 'through windows');
is((grep { $_ > 0 } huge()), 0, 'huge_pages = off: there are none');

$node->stop;
done_testing();
