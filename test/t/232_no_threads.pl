# Promise: a process for which the kernel can make no thread, as at a limit of processes or tasks, does itself what it has
# asked of io_uring: checkpoints, flushes and reads go on, and no sync counts as failed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no rings of kvfdw' if heap_only();
plan skip_all => 'limits are none for root' if $> == 0;
plan skip_all => 'needs prlimit' if system('prlimit --nproc >/dev/null 2>&1') != 0;
my $node = kv_cluster('threads', 'kvfdw.io_method' => 'auto', 'kvfdw.page_cache' => 'off', fsync => 'on', checkpoint_timeout => '1h', autovacuum => 'off');
plan skip_all => 'the kernel has no io_uring' if answer($node, 'SELECT kvfdw_io_method()') ne 'io_uring';
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];

# Let the workers of this name have no more threads; returns how many threads they have.
sub forbid_threads
{
	my ($name) = @_;
	my @pids = map { /^ *(\d+) .*\Q$name\E/ ? $1 : () } split /\n/, `ps -o pid=,args= --ppid $postmaster`;
	system('prlimit', '--pid', $_, '--nproc=1:') == 0 or die "prlimit: $?" for @pids;
	return scalar map { glob "/proc/$_/task/*" } @pids;
}
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '16'"));
wait_for('the checkpointer', 180, sub { answer($node, 'SELECT num_done > 0 FROM kvfdw_stat_checkpointer') eq 't' });
is(forbid_threads('kvfdw checkpointer'), 1, 'the checkpointer has had no thread, and gets none');
my $log = -s $node->logfile;
for my $round (1 .. 3)
{
	is(answer($node, "INSERT INTO t SELECT hashint4(g), repeat(md5(g::text), 60) FROM generate_series($round * 1000, $round * 1000 + 999) g"), '', "round $round: rows are written");
	cmp_ok(forbid_threads('kvfdw buffer writer'), '>=', 1, 'the buffer writer gets none, either') if $round == 1;
	is(answer($node, 'CHECKPOINT'), '', '... a checkpoint completes');
	is(answer($node, q{SELECT kvfdw_flush('t')}), '', '... and a flush') if $round == 2;
}
unlike(substr(slurp_file($node->logfile), $log), qr/could not|Operation canceled/, 'nothing has failed');
is(answer($node, 'SELECT count(*), sum(length(v)) FROM t'), '3000|' . 3000 * 60 * 32, 'all rows are there');
kill_all($node);
$node->start;
is(answer($node, 'SELECT count(*), sum(length(v)) FROM t'), '3000|' . 3000 * 60 * 32, '... after a crash, too');
$node->stop;
done_testing();
