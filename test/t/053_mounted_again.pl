# Promise: unmounting the file system of a killed server costs no committed row
# of any level but none, nor does the snapshot of a running server's disk that is put
# back under the same kernel: kvfdw tables hold what heap tables do.
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
	# the file system writes when it is told to
	my $disk;
	my $node = trust_cluster($type, before_init => sub { $disk = KvLoop->new($_[0]->basedir, megabytes => 512, type => $type, options => $type eq 'ext4' ? 'commit=600' : '') });
	trust_tables($node);

	change($node);
	kill_all($node);
	$disk->remount;
	ok(start_again($node), "$type, killed and mounted again: the server starts") or next;
	nothing_lost($node, "$type, killed and mounted again");

	$node->stop;
	$disk->remount;
	ok(start_again($node), "$type, stopped and mounted again: the server starts") or next;
	nothing_lost($node, "$type, stopped and mounted again");

	for my $end (qw(killed stopped))
	{
		change($node);
		$disk->snapshot;
		change($node);
		$node->safe_psql('postgres', 'CHECKPOINT');
		change($node);
		if ($end eq 'killed') { kill_all($node) } else { $node->stop }
		$disk->umount;
		$disk->rollback;
		$disk->mount;
		ok(start_again($node), "$type, $end and rolled back: the server starts") or last;
		nothing_lost($node, "$type, $end and rolled back") or last;
	}
	$node->stop if postmaster_runs($node);
}
done_testing();
