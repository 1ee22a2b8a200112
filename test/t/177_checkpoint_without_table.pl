# Promise: a standby that cannot make a table's marks when it replays a DURABLE record, and goes on
# without the table, still says so after a SIGKILL and when it is promoted: no row is missing in silence.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no marks' if heap_only();
my $node = kv_primary('primary', 'kvfdw.test_carried' => 0);
unless (has_faults($node))
{
	$node->stop;
	plan skip_all => 'needs a build with fault injection';
}
my $standby = kv_standby($node, 'standby');
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . 'INSERT INTO t SELECT g FROM generate_series(1, 100) g; CHECKPOINT');
caught_up($node, $standby);
is(answer($standby, 'SELECT count(*) FROM t'), 100, 'the standby has the rows');

$standby->append_conf('postgresql.conf', "kvfdw.stop_points = 'mark_captured=error'\n");
$standby->restart;
$node->safe_psql('postgres', 'INSERT INTO t SELECT g FROM generate_series(101, 200) g; CHECKPOINT');
caught_up($node, $standby);
like(slurp_file($standby->logfile), qr/is now unusable/, 'it goes on without the table');
answer($standby, 'CHECKPOINT');
my $unusable = qr/ERROR:  .* is unusable on this server/;
kill_all($standby);
$standby->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n");
$standby->start;
caught_up($node, $standby);
like(answer($standby, 'SELECT count(*) FROM t'), $unusable, 'after a SIGKILL the table is not usable');
$standby->promote;
wait_for('the end of recovery', sub { answer($standby, 'SELECT pg_is_in_recovery()') eq 'f' });
like(answer($standby, 'SELECT count(*) FROM t'), $unusable, '... nor promoted');
$standby->stop;
$node->stop;
done_testing();
