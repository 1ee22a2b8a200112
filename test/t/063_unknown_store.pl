# Promise: a table that was first written just before a crash, which took the record of
# that, is on the standby when it is written again.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

plan skip_all => 'heap has no stores' if heap_only();
my $node = kv_primary('p', wal_writer_delay => '10s');
plan skip_all => 'needs fault injection' unless has_faults($node);
$node->safe_psql('postgres', join(';', map { "CREATE TABLE h_$_ (k int PRIMARY KEY, v text); " . kv_table("t_$_", 'k int, v text', 'k', "shards '2'") } 1 .. 3));
my $standby = kv_standby($node, 's');
caught_up($node, $standby);
my $i = 0;
for my $point ('create_before_rename', 'create_before_record', 'write_done')
{
	$i++;
	my $w = psql_writer($node, "SET kvfdw.stop_points = '$point=wait'; INSERT INTO t_$i VALUES (1, 'lost');", "writer$i");
	stopped($node, $point);
	kill_all($node);
	unlink glob($node->data_dir . '/kvfdw/waiting.*');
	$node->start;
	outcome($w);
	$node->safe_psql('postgres', "INSERT INTO $_ VALUES (2, 'kept')") for "t_$i", "h_$i";
	caught_up($node, $standby);
	is(tables_differ($node, "t_$i", "h_$i", 'k'), '', "$point: the primary has heap's rows");
	is(tables_differ($standby, "t_$i", "h_$i", 'k'), '', "$point: and so has the standby");
}
$standby->stop('immediate');
$node->stop('immediate');
done_testing();
