# Promise: a base backup holds all rows, also those written since the last checkpoint,
# and when nothing was written since the last backup; so does a cold copy.
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
$node->safe_psql('postgres', kv_table('a', 'k int, v text', 'k'));
$node->safe_psql('postgres', "INSERT INTO a SELECT g, 'x' || g FROM generate_series(1, 1000) g");
my $s1 = kv_standby($node, 's1');
caught_up($node, $s1);
is(rows_of($s1, 'a', 'k'), rows_of($node, 'a', 'k'), 'first backup');
$node->safe_psql('postgres', "CHECKPOINT; INSERT INTO a SELECT g, 'x' || g FROM generate_series(1001, 2000) g");
my $s2 = kv_standby($node, 's2');
caught_up($node, $s2);
is(rows_of($s2, 'a', 'k'), rows_of($node, 'a', 'k'), 'second backup, written since the last checkpoint');
# clean since
my $s3 = kv_standby($node, 's3');
caught_up($node, $s3);
is(rows_of($s3, 'a', 'k'), rows_of($node, 'a', 'k'), 'third backup, nothing written');
is(kv_check_clean($s3, 'a'), '', 'check on standby');
$node->stop;
my $c = PostgreSQL::Test::Cluster->new('cold');
$c->init;
system('rm', '-rf', $c->data_dir) == 0 or die;
system('cp', '-a', $node->data_dir, $c->data_dir) == 0 or die;
$c->append_conf('postgresql.conf', "port = " . $c->port . "\nunix_socket_directories = '" . $c->host . "'\n");
$c->start;
is(answer($c, 'SELECT count(*) FROM a'), '2000', 'cold copy');
done_testing();
