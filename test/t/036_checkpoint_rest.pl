# Promise: the checkpointer rests between shards for the sake of others, but never while a process
# waits for a checkpoint, and not for long in all. The shards of a table share their directory's
# syncs.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use KvTest;

plan skip_all => 'heap has no checkpointer' if heap_only();
my $node = PostgreSQL::Test::Cluster->new('rest');
$node->init(extra => ['--wal-segsize=1']);
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\nfsync = off\nautovacuum = off\nmax_wal_size = '100MB'\nmin_wal_size = '2MB'\ncheckpoint_timeout = '1h'\nlog_statement = 'none'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION kvfdw');
plan skip_all => 'stop points need FAULTS=1' unless has_faults($node);

$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v int); CREATE TABLE wal (v text);' . kv_table('kv', 'k int, v int', 'k', "shards '300', wal 'none'")
	  . 'INSERT INTO heap SELECT (g::bigint * 143165 - 2147483648)::int, 0 FROM generate_series(0, 29999) g; INSERT INTO kv TABLE heap; CHECKPOINT');

sub syncs { return $node->safe_psql('postgres', q{SELECT calls FROM kvfdw_stat_io WHERE kind = 'sync'}); }
sub change { $node->safe_psql('postgres', "UPDATE $_ SET v = v + 1 WHERE abs(k % 7) = 3") for 'heap', 'kv'; return; }

change();
my $syncs = syncs();
$node->safe_psql('postgres', 'CHECKPOINT');
my $calls = syncs() - $syncs;
my ($shards, $synced) = split /\|/, $node->safe_psql('postgres', 'SELECT last_shards, last_files FROM kvfdw_stat_checkpointer');
cmp_ok($shards, '>', 250, 'a checkpoint makes marks of many shards');
cmp_ok($calls, '<=', $synced + $shards + 20, '… with one sync for each file, and few more');

change();
# so that there is something to rest from
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'sync:10:delay,sync:50:delay,sync:100:delay,sync:200:delay,sync:400:delay,sync:600:delay'});
worker_stop_points($node, 'checkpoint_rest=wait');
my $w = psql_writer($node, 'CHECKPOINT;', 'waits');
is(outcome($w), '', 'no rest while a session waits for its checkpoint');

# One that nobody waits for, because of the WAL.
$node->safe_psql('postgres', q{ALTER SYSTEM SET max_wal_size = '2MB'});
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
# A checkpoint that comes before the changes has nothing to rest from: then another one does.
my $rests = $node->data_dir . '/kvfdw/waiting.checkpoint_rest';
for (my $n = 0; $n < 20 && !-e $rests; $n++)
{
	change();
	$node->safe_psql('postgres', q{INSERT INTO wal SELECT repeat('x', 1000) FROM generate_series(1, 6000)});
	for (my $looks = 0; $looks < 100 && !-e $rests; $looks++) { usleep(20_000); }
}
stopped($node, 'checkpoint_rest');
pass('a rest in a checkpoint that nobody waits for');
is($node->safe_psql('postgres', 'SELECT count(*) FROM kv'), '30000', '… in which reads and writes go on');
$w = psql_writer($node, 'CHECKPOINT;', 'waits2');
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event IN ('CheckpointStart', 'CheckpointDone')}) or die;
is(go_on($node, 'checkpoint_rest', $w), '', '… and no more as soon as somebody waits');
worker_stop_points($node, '');

# What was made so is right.
change();
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'the table is right');
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.boot_id = 'another'});
$node->safe_psql('postgres', 'CHECKPOINT');
kill_all($node);
$node->start;
is(tables_differ($node, 'kv', 'heap', 'k'), '', '… and set back to its marks as well');
is(kv_check_clean($node, 'kv'), '', '… and clean');
done_testing();
