# Promise: ANALYZE of a table with large values takes no more memory than of a heap table, and its statistics
# and the planner's widths are as right: of strings the sample has a kilobyte each, of other types fewer rows.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has TOAST' if heap_only();
my $node = kv_cluster('analyze', shared_buffers => '16MB', autovacuum => 'off', 'kvfdw.memory' => '16MB');

# The memory that a session of its own has had at most for this, in MB.
sub memory_of
{
	my ($sql) = @_;
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe($sql);
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB$/m;
	$session->quit;
	return $kb / 1024;
}

sub width { my ($t) = @_; return $node->safe_psql('postgres', "EXPLAIN SELECT * FROM $t") =~ /width=(\d+)/ ? $1 : 'none' }

my $rows = 'SELECT g, g % 10, %s FROM generate_series(1, 2000) g';
my %value = (text => "repeat('x', 100000) || g", bytea => "convert_to(repeat('x', 100000) || g, 'UTF8')", jsonb => "to_jsonb(repeat('x', 100000) || g)");
my $idle = memory_of('SELECT 1');
for my $type (sort keys %value)
{
	my $t = "of_$type";
	$node->safe_psql('postgres', kv_table($t, "k int, n int, v $type", 'k', '') . "INSERT INTO $t " . sprintf $rows, $value{$type});
	cmp_ok(memory_of("ANALYZE $t"), '<', $idle + 120, "$type: 200 MB of values take less than 120 MB");
	is($node->safe_psql('postgres', "SELECT n_distinct FROM pg_stats WHERE tablename = '$t' AND attname = 'k'"), -1, "$type: statistics of the key");
	is($node->safe_psql('postgres', "SELECT n_distinct FROM pg_stats WHERE tablename = '$t' AND attname = 'n'"), 10, "$type: statistics of a column beside");
	cmp_ok(abs(width($t) - 100012), '<', 2000, "$type: the planner knows how wide rows are: " . width($t));
}

# larger in memory than they are stored: rows that a heap had compressed, and a table that compresses
$node->safe_psql('postgres', "CREATE TABLE copied (k int, n int, v text, w text); INSERT INTO copied SELECT g, g % 10, s, s FROM generate_series(1, 400) g,
	LATERAL (SELECT string_agg(md5(i::text || g) || repeat('x', 32), '') AS s FROM generate_series(1, 10000) i) x;" .
	kv_table('of_heap', 'k int, n int, v text, w text', 'k', '') . 'INSERT INTO of_heap TABLE copied');
cmp_ok(memory_of('ANALYZE of_heap'), '<', $idle + 120, 'rows that a heap has compressed take no more');
$node->safe_psql('postgres', kv_table('of_lz4', 'k int, n int, v jsonb', 'k', "compression 'lz4'") . "INSERT INTO of_lz4 SELECT g, g % 2, to_jsonb(repeat('x', 1000000) || g) FROM generate_series(1, 400) g");
cmp_ok(memory_of('ANALYZE of_lz4'), '<', $idle + 120, 'nor do values that are stored compressed');
is($node->safe_psql('postgres', "SELECT n_distinct FROM pg_stats WHERE tablename = 'of_lz4' AND attname = 'n'"), 2, '... and their sample is one');

# expressions are evaluated on whole values
$node->safe_psql('postgres', 'CREATE STATISTICS lengths ON (length(v)) FROM of_text; ANALYZE of_text');
is($node->safe_psql('postgres', "SELECT (most_common_vals::text::int[])[1] > 100000 FROM pg_stats_ext_exprs WHERE statistics_name = 'lengths'"), 't', 'extended statistics see whole values');
cmp_ok(memory_of('ANALYZE of_text'), '<', $idle + 200, '... of fewer rows');
$node->safe_psql('postgres', "CREATE TABLE parts (k int, n int, v text) PARTITION BY RANGE (k); CREATE STATISTICS of_parts ON (length(v)) FROM parts; DROP STATISTICS lengths;
	ALTER TABLE parts ATTACH PARTITION of_text FOR VALUES FROM (MINVALUE) TO (MAXVALUE); ANALYZE parts");
is($node->safe_psql('postgres', "SELECT (most_common_vals::text::int[])[1] > 100000 FROM pg_stats_ext_exprs WHERE statistics_name = 'of_parts'"), 't', '... and those of a partitioned table');
$node->stop;
done_testing();
