# Promise: what pages of the buffer file had that could not be written back, and that the kernel has
# dropped, gets into no mark: the checkpoint ends the server, and after its start no row is missing.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip group_make group_run group_reclaim);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

my $why_not = heap_only() ? 'heap has no directory of its own' : loop_skip($PostgreSQL::Test::Utils::tmp_check) // group_make(1 << 30);
plan skip_all => $why_not if $why_not;

# what a unit of the buffer file has of values, in the file's beginning, and of all
my ($values, $all) = (16384, 16384 + 128 + 4096);

# which part of it there is no room for any more, changes that write it, and what the log says
my @lost = (
	[ 'entries', [ $values / $all, 1 ], 'DELETE FROM %s WHERE k % 80 = 1', qr/PANIC:  file "kvfdw\/buffers" does not have what was written to it/ ],
	[ 'values', [ 0, $values / $all ], "UPDATE %s SET v = 'short ' || k WHERE k % 80 = 1", qr/PANIC:  could not write back file "kvfdw\/buffers"/ ]);
for my $lost (@lost)
{
	my ($what, $part, $change, $says) = @$lost;
	my ($disk, $node);
	group_run(sub { $node = trust_cluster($what, before_start => sub { $disk = KvLoop->new($_[0]->data_dir . '/kvfdw', megabytes => 120, room => 90) }) });
	trust_tables($node);
	my $merge = $node->data_dir . '/kvfdw/buffers';
	system('sync', '-f', $disk->{where}) == 0 or die;
	$disk->punch($merge, map { int((-s $merge) / 4096 * $_) } @$part);
	$disk->exhaust;
	change($node, $change);
	isnt(system('sync', '-f', $disk->{where}), 0, "$what: some pages cannot be written back");
	$disk->relieve;
	group_reclaim();

	isnt(answer($node, 'CHECKPOINT'), '', "$what: no checkpoint completes");
	like(slurp_file($node->logfile), $says, "$what: the log says why");
	if (postmaster_runs($node)) { kill_all($node) }
	ok(start_again($node), "$what: the server starts");
	nothing_lost($node, "started again, $what");
	$node->stop;
}
done_testing();
