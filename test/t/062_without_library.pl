# Promise: a server that was killed just after its start either does not start without
# kvfdw, or its tables can be used when it is started with kvfdw again.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

plan skip_all => 'heap needs no library' if heap_only();
my $node = trust_cluster('p', wal_writer_delay => '10s');
trust_tables($node);
$node->stop;
$node->start;

# the control file says that marks are not complete from the moment when writers may come
wait_for('the checkpointer', 180, sub { answer($node, 'SELECT num_done > 0 FROM kvfdw_stat_checkpointer') eq 't' });
kill_all($node);
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
if ($node->start(fail_ok => 1))
{
	$node->stop;
}
else
{
	like(slurp_file($node->logfile), qr/resource manager with ID \d+ not registered/, 'the server insists on the library');
}
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\n");
ok(start_again($node), 'it starts with the library');
nothing_lost($node, 'start without the library');
$node->stop('immediate');
done_testing();
