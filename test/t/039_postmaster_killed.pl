# Promise: where the postmaster alone is killed, no checkpoint completes for which the tables
# were not made durable.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('orphans', checkpoint_timeout => '1h', 'kvfdw.flush_after' => '1h');
plan skip_all => 'needs fault injection' unless has_faults($node);
$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k'));
$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, 'old ' || g FROM generate_series(1, 500) g") for qw(t heap);
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', "UPDATE $_ SET v = 'new' WHERE k % 2 = 0; DELETE FROM $_ WHERE k % 5 = 0") for qw(t heap);

worker_stop_points($node, 'checkpoint_before_flush=wait');
my $w = psql_writer($node, 'CHECKPOINT;', 'checkpoint');
stopped($node, 'checkpoint_before_flush');
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
my @children = split ' ', `ps -o pid= --ppid $postmaster`;
cmp_ok(scalar @children, '>', 3, 'the server has processes');
kill 'KILL', $postmaster;
wait_for('the others to end', sub { !grep { my $state = `ps -o stat= -p $_`; $state ne '' && $state !~ /^Z/ } @children });
outcome($w);
$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
KvTest::bury($node, $postmaster);
restart_killed($node);
is(tables_differ($node, 't', 'heap', 'k'), '', 'what was committed before the checkpoint is there');
is(kv_check_clean($node, 't'), '', 'the check finds nothing');
$node->stop;
done_testing();
