# Promise: no count(*) is pushed down on servers whose EvalPlanQual loses rows of upper foreign
# scans; it is on others. On both, an UPDATE that has waited for a row writes the number, not
# NULL. Needs a test build (make FAULTS=1), which can take a server for an older one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('count_pushdown');
plan skip_all => 'needs fault injection' unless has_faults($node);
$node->safe_psql('postgres', kv_table('t', 'k int, n bigint', 'k') . 'INSERT INTO t SELECT g, -1 FROM generate_series(1, 100) g');

for my $version (150000, 150014, 160000, 160010, 170006, 180000, 150015, 160011, 170007, 180001, 190000)
{
	my $mended = $version % 10000 >= ({ 15 => 15, 16 => 11, 17 => 7, 18 => 1 }->{ int($version / 10000) } // 0);
	my $plan = $node->safe_psql('postgres', "SET kvfdw.server_version = $version; EXPLAIN SELECT count(*) FROM t WHERE k > 50");
	is($plan =~ /Access: count/ ? 1 : 0, $mended ? 1 : 0, "$version: " . ($mended ? 'counted in the index' : 'not pushed down'));
}

# the running server, and one that is taken for an older one
my $own = $node->safe_psql('postgres', 'SHOW server_version_num');
for my $version (0, 150014)
{
	for my $update ('UPDATE t SET n = c.n FROM (SELECT count(*) AS n FROM t WHERE k > 50) c WHERE k = 1', 'UPDATE t SET n = (SELECT count(*) FROM t x WHERE x.k > t.k + 49) WHERE k = 1')
	{
		my $first = $node->background_psql('postgres');
		$first->query_safe('BEGIN; UPDATE t SET n = -2 WHERE k = 1;');
		my $second = psql_writer($node, "SET kvfdw.server_version = $version; SET application_name = 'second'; $update;", 'second');
		wait_for('the second to wait', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'second' AND wait_event_type = 'Lock'") == 1 });
		$first->query_safe('COMMIT;');
		$first->quit;
		wait_for('the second', sub { ended($second) });
		is($node->safe_psql('postgres', 'SELECT n FROM t WHERE k = 1'), 50, "as version " . ($version || $own) . ": $update");
	}
}
$node->stop;
done_testing();
