# Promise: a small file has its name when the device has it.  What the kernel could not write back of it
# before it was synced is known to the sync, for the file was open all the time: the change of the table
# file fails.  Nothing is lost.
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

# a point before the write, one between it and the sync, what has the file written, and who says what
my @files = (
	[ 'table', undef, 'small_file_written', 'ALTER FOREIGN TABLE t ADD COLUMN w int; INSERT INTO t VALUES (2, $$b$$, 1)', qr/ERROR:  could not fsync file ".*table\.tmp"/ ]);
for my $file (@files)
{
	my ($what, $before, $written, $sql, $says) = @$file;
	my ($disk, $node);
	group_run(sub { $node = trust_cluster($what, before_start => sub { $disk = KvLoop->new($_[0]->data_dir . '/kvfdw', megabytes => 120, room => 90) }) });
	plan skip_all => 'needs fault injection' unless has_faults($node);
	trust_tables($node);
	$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '1'") . "INSERT INTO t VALUES (1, 'a')");
	change($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	system('sync', '-f', $disk->{where}) == 0 or die;

	my $points = join ',', map { "$_=wait" } $before // (), $written;
	if (!defined $before) { $disk->exhaust }
	my $session = psql_writer($node, "SET kvfdw.stop_points = '$points'; $sql", $what);
	if (defined $before)
	{
		stopped($node, $before);
		$disk->exhaust;
		append_to_file($node->data_dir . "/kvfdw/continue.$before", '');
	}
	stopped($node, $written);
	isnt(system('sync', '-f', $disk->{where}), 0, "$what: some pages cannot be written back");
	$disk->relieve;
	for (1 .. 60) { group_reclaim(); select undef, undef, undef, 0.03 }
	isnt(go_on($node, $written, $session), '', "$what: what needs the file does not come about");
	like(slurp_file($node->logfile), $says, "$what: the log says why");

	if (postmaster_runs($node)) { kill_all($node) }
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
	$disk->remount;
	ok(start_again($node), "$what: the server starts without its page cache");
	nothing_lost($node, "without the page cache, $what");
	is(answer($node, 'SELECT k, v FROM t'), '1|a', "$what: nor of a table that was to be changed");
	is(answer($node, 'CHECKPOINT'), '', "$what: a checkpoint completes");
	$node->stop;
}
done_testing();
