# Promise: pages that the kernel could not write back, when nobody was syncing, are not
# believed after a crash, though PostgreSQL syncs the data directory before it replays the WAL and goes
# on when that fails.  What was there at the next checkpoint is there when the page cache goes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

my $why_not = heap_only() ? 'heap has no directory of its own' : loop_skip($PostgreSQL::Test::Utils::tmp_check);
plan skip_all => $why_not if $why_not;

# a mount point, not a link: PostgreSQL follows no link there
my $disk;
my $node = trust_cluster('lost', before_start => sub { $disk = KvLoop->new($_[0]->data_dir . '/kvfdw', megabytes => 120, room => 90) });
trust_tables($node);
change($node);
$node->safe_psql('postgres', 'CHECKPOINT');
system('sync', '-f', $disk->{where}) == 0 or die;

# deletes need no new place for values, so nothing but runs and logs cannot be written back
$disk->exhaust;
change($node, map { "DELETE FROM %s WHERE k % 5 = $_" } 1, 2);
system('sync', '-f', $disk->{where}) != 0 or diag 'everything was written back';
kill_all($node);
$disk->relieve;

ok(start_again($node), 'the server starts');
like(slurp_file($node->logfile), qr/kvfdw salvages/, 'and does not believe the page cache');
nothing_lost($node, 'started again');
is(answer($node, 'CHECKPOINT'), '', 'a checkpoint completes');
my $rows = answer($node, 'SELECT k, md5(v) FROM kv_none ORDER BY k');
kill_all($node);
$disk->remount;
ok(start_again($node), 'the server starts without its page cache');
is(answer($node, 'SELECT k, md5(v) FROM kv_none ORDER BY k'), $rows, 'what was checkpointed is there');
nothing_lost($node, 'without the page cache');
$node->stop;
done_testing();
