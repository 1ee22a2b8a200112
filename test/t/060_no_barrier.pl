# Promise: a standby that is stopped while the primary, after a crash, has no process
# "kvfdw barrier" keeps its tables.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $node = kv_primary('p');
$node->safe_psql('postgres', 'CREATE TABLE h (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '2'"));
my $standby = kv_standby($node, 's', max_worker_processes => 8);
$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, 'x' || g FROM generate_series(1, 1000) g") for qw(h t);
caught_up($node, $standby);
kill_all($node);
$node->append_conf('postgresql.conf', "max_worker_processes = 0\n");
$node->start;
$node->safe_psql('postgres', 'INSERT INTO h VALUES (0, 0); DELETE FROM h WHERE k = 0');
$node->safe_psql('postgres', 'CHECKPOINT');
caught_up($node, $standby);
$standby->stop('fast');
$standby->start;
is(tables_differ($standby, 't', 'h', 'k'), '', 'the standby has the rows of the primary');
$node->append_conf('postgresql.conf', "max_worker_processes = 8\n");
$node->restart;
$node->safe_psql('postgres', "INSERT INTO $_ VALUES (-1, 'and on')") for qw(h t);
caught_up($node, $standby);
is(tables_differ($standby, 't', 'h', 'k'), '', '... also when it is written again');
$standby->stop('immediate');
$node->stop('immediate');
done_testing();
