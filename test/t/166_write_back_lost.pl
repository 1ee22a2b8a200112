# Promise: pages that the kernel could not write back, when nobody was syncing, are not
# trusted after a crash, though PostgreSQL syncs the data directory before it replays the WAL and goes
# on when that fails.  What was there at the next checkpoint is there when the page cache goes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip start_write_back group_make group_run group_reclaim);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

my $why_not = heap_only() ? 'heap has no directory of its own' : loop_skip($PostgreSQL::Test::Utils::tmp_check);
plan skip_all => $why_not if $why_not;

# A start that fails, in which PostgreSQL has synced the data directory.
sub start_without_library
{
	my ($node) = @_;
	my $path = $node->data_dir . '/postgresql.conf';
	my $conf = slurp_file($path);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	ok(!start_again($node), 'a server without the library does not start');
	open my $file, '>', $path or die "$path: $!";
	print $file $conf;
	return close $file;
}

my $no_group = group_make(1 << 30);
my %before_start = (
	'' => sub { },
	', after a start without the library' => \&start_without_library,
	$no_group ? () : (', and the kernel has forgotten the files' => sub { for (1 .. 60) { group_reclaim(); select undef, undef, undef, 0.03 } }));
my $clusters = 0;
for my $how (sort keys %before_start)
{
	# a mount point, not a link: PostgreSQL follows no link there
	my ($disk, $node);
	my $start = sub { $node = trust_cluster("lost" . ++$clusters, before_start => sub { $disk = KvLoop->new($_[0]->data_dir . '/kvfdw', megabytes => 120, room => 90) }) };
	if ($no_group) { $start->() } else { group_run($start) }
	trust_tables($node);
	change($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	system('sync', '-f', $disk->{where}) == 0 or die;

	# deletes need no new place for values, so nothing but runs and logs cannot be written back
	$disk->exhaust;
	change($node, map { "DELETE FROM %s WHERE k % 5 = $_" } 1, 2);
	start_write_back($disk->{where});
	kill_all($node);
	$disk->relieve;
	$before_start{$how}->($node);

	ok(start_again($node), "the server starts$how");
	like(slurp_file($node->logfile), qr/resetting \d+ kvfdw tables/, "it does not believe the page cache$how");
	nothing_lost($node, "started again$how");
	is(answer($node, 'CHECKPOINT'), '', "a checkpoint completes$how");
	my $rows = answer($node, 'SELECT k, md5(v) FROM kv_none ORDER BY k');
	kill_all($node);
	$disk->remount;
	ok(start_again($node), "the server starts without its page cache$how");
	is(answer($node, 'SELECT k, md5(v) FROM kv_none ORDER BY k'), $rows, "what was checkpointed is there$how");
	nothing_lost($node, "without the page cache$how");
	$node->stop;
}
done_testing();
