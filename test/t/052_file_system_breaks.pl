# Promise: a file system that an I/O error has shut down, and that is mounted
# again under the same kernel, costs tables with wal level full and keys no row
# that was committed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip loop_types);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

my $base = $PostgreSQL::Test::Utils::tmp_check;
my $why_not = loop_skip($base);
plan skip_all => $why_not if $why_not;

for my $type (loop_types())
{
	my $disk;
	my $node = trust_cluster($type, before_init => sub { $disk = KvLoop->new($_[0]->basedir, megabytes => 512, type => $type) });
	trust_tables($node);
	# nobody syncs the files of initdb
	system('sync', '-f', $disk->{where}) == 0 or die;
	for my $what ('after a checkpoint', 'again, in one life', 'after a clean stop')
	{
		change($node);
		if ($what =~ /clean/) { $node->restart; change($node) }
		$disk->break_down;
		kill_all($node);
		$disk->remount;
		ok(start_again($node), "$type, $what: the server starts") or last;
		nothing_lost($node, "$type, $what") or last;
	}
	next unless postmaster_runs($node);

	# what this start makes anew is nowhere else
	$node->stop;
	$disk->remount;
	another_kernel($node);
	system('sync', '-f', $disk->{where}) == 0 or die;
	$node->start;
	change($node);
	$disk->break_down;
	kill_all($node);
	$disk->remount;
	if (ok(start_again($node), "$type, right after a start: the server starts"))
	{
		nothing_lost($node, "$type, right after a start");
		$node->stop;
	}
}
done_testing();
