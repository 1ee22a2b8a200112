# Promise: a server that is stopped while kvfdw's disk is full does not count as
# shut down before its tables are durable: the next start, and a copy on a larger
# disk, have every row.
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

for my $mode (qw(fast immediate))
{
	my $disk = KvLoop->new("$base/$mode", megabytes => 96);
	mkdir "$disk->{where}/kvfdw", 0700 or die "mkdir: $!";
	my $node = trust_cluster($mode, before_start => sub { symlink "$disk->{where}/kvfdw", $_[0]->data_dir . '/kvfdw' or die "symlink: $!" });
	trust_tables($node);
	change($node);
	$disk->fill;
	# a checkpoint that is under way has not completed
	my $checkpoint = $mode eq 'immediate' ? psql_writer($node, 'CHECKPOINT;', 'checkpoint') : undef;
	wait_for('a checkpoint that cannot complete', 180, sub { slurp_file($node->logfile) =~ /No space left on device/ }) if $checkpoint;
	$node->stop($mode, fail_ok => 1);
	kill_all($node) if postmaster_runs($node);
	note "$mode: pg_control says " . cluster_state($node);
	$disk->free;

	# the larger disk first: a copy of what there is
	my $large = KvLoop->new("$base/$mode.large", megabytes => 128);
	system('cp', '-a', "$disk->{where}/kvfdw", "$large->{where}/kvfdw") == 0 or die;
	system('cp', '-a', $node->data_dir, "$base/$mode.data") == 0 or die;
	my $link = $node->data_dir . '/kvfdw';
	unlink $link;
	symlink "$large->{where}/kvfdw", $link or die "symlink: $!";
	if (ok(start_again($node), "$mode: the copy on a larger disk starts"))
	{
		nothing_lost($node, "$mode stop, larger disk", moved => 1);
		$node->stop('immediate');
	}

	system('find', $node->data_dir, '-mindepth', 1, '-delete') == 0 or die;
	system('cp', '-a', "$base/$mode.data/.", $node->data_dir) == 0 or die;
	another_kernel($node);
	if (ok(start_again($node), "$mode: the next boot's start succeeds"))
	{
		nothing_lost($node, "$mode stop, next boot");
		$node->stop('immediate');
	}
}
done_testing();
