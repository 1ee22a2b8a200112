# Promise: a standby that restarts from a checkpoint of a restarted primary has lost
# nothing; nor one whose server had not loaded the library when it was made.
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
# B: primary restarts cleanly; the standby makes a restartpoint at the shutdown checkpoint
my $s1 = kv_standby($node, 's1');
$node->safe_psql('postgres', kv_table('a', 'k int, v text', 'k') . "INSERT INTO a SELECT g, 'x' || g FROM generate_series(1, 1000) g");
caught_up($node, $s1);
is(rows_of($s1, 'a', 'k'), rows_of($node, 'a', 'k'), 'before');
$node->restart;
caught_up($node, $s1);
$s1->safe_psql('postgres', 'CHECKPOINT');
$s1->restart;
caught_up($node, $s1);
is(rows_of($s1, 'a', 'k'), rows_of($node, 'a', 'k'), 'B: standby after restartpoint at the primary\'s shutdown checkpoint');
$node->safe_psql('postgres', kv_table('b', 'k int, v text', 'k') . "INSERT INTO b SELECT g, 'x' || g FROM generate_series(1, 1000) g");
caught_up($node, $s1);
kill_all($node);
restart_killed($node);
caught_up($node, $s1);
$s1->safe_psql('postgres', 'CHECKPOINT');
$s1->restart;
caught_up($node, $s1);
is(rows_of($s1, 'b', 'k'), rows_of($node, 'b', 'k'), 'C: standby after restartpoint at the primary\'s end-of-recovery checkpoint');
note $s1->safe_psql('postgres', "select * from pg_control_checkpoint()");
# no control file: made when the library was not loaded
my $q = PostgreSQL::Test::Cluster->new('q');
$q->init(allows_streaming => 1);
$q->start;
my $s2 = kv_standby($q, 's2', shared_preload_libraries => "'kvfdw'");
$q->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\n");
$q->restart;
$q->safe_psql('postgres', 'CREATE EXTENSION kvfdw;' .  kv_table('a', 'k int, v text', 'k') . "INSERT INTO a SELECT g, 'x' || g FROM generate_series(1, 1000) g");
caught_up($q, $s2);
is(rows_of($s2, 'a', 'k'), rows_of($q, 'a', 'k'), 'E: library preloaded later');
done_testing();
