# Promise: a write-back that has failed is not forgotten: what was not written
# then is not trusted later, when a sync succeeds that has nothing left to
# write.  When the page cache goes the rows are still there.
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

my $base = $PostgreSQL::Test::Utils::tmp_check;
my $why_not = heap_only() ? 'heap has no directory of its own' : loop_skip($base);
plan skip_all => $why_not if $why_not;

# what files give free gives its room back: new ones need some
my $disk = KvLoop->new("$base/disk", megabytes => 120, room => 90, options => 'discard');
mkdir "$disk->{where}/kvfdw", 0700 or die "mkdir: $!";
my $node = trust_cluster('syncs', before_start => sub { symlink "$disk->{where}/kvfdw", $_[0]->data_dir . '/kvfdw' or die "symlink: $!" });
trust_tables($node);

for my $round (1, 2)
{
	# many files are synced by io_uring, and where it is not used one after the other
	$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.io_method = ' . ($round == 1 ? 'auto' : 'sync'));
	$node->reload;
	change($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	system('sync', '-f', $disk->{where}) == 0 or die;

	# deletes need no new place for values, so nothing but logs cannot be written back, and runs, which the flushes
	# wait for; they begin new logs, which need room
	change($node, "DELETE FROM %s WHERE k % 5 = $round");
	$disk->exhaust;
	answer($node, "SELECT kvfdw_flush('kv_$_')") for @levels;
	change($node, "DELETE FROM %s WHERE k % 5 = $round + 2");
	my $log = -s $node->logfile;
	my $checkpoint = psql_writer($node, 'CHECKPOINT;', "round$round");
	wait_for('the checkpoint to end', 180, sub { ended($checkpoint) });
	my $outcome = outcome($checkpoint);
	like(substr(slurp_file($node->logfile), $log), qr/PANIC:  could not fsync file/, "round $round: the sync fails") or diag $outcome;
	wait_for('the server to end', 180, sub { !postmaster_runs($node) });
	$disk->relieve;

	# the first start after the failure, and a checkpoint of which all syncs succeed
	ok(start_again($node), "round $round: the server starts") or last;
	nothing_lost($node, "round $round, started again") or last;
	my $said = answer($node, 'CHECKPOINT');

	# a file that nobody has synced since it could not be written back tells so now
	for (1 .. 5)
	{
		last if $said eq '';
		wait_for('the server to end', 180, sub { !postmaster_runs($node) });
		ok(start_again($node), "round $round: the server starts after another sync has failed") or last;
		nothing_lost($node, "round $round, started once more") or last;
		$said = answer($node, 'CHECKPOINT');
	}
	is($said, '', "round $round: a checkpoint completes");
	kill_all($node);
	$disk->remount;
	ok(start_again($node), "round $round: the server starts without its page cache") or last;
	nothing_lost($node, "round $round, without the page cache") or last;
}
$node->stop if postmaster_runs($node);
done_testing();
