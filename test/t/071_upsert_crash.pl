# Promise: upserts that were acknowledged before kill -9 count after it, once, at every
# wal level, and those of transactions that were not do not count: the tables are what a
# heap table is that has had the same upserts in the same transactions.
#
# KV_ROUNDS=n: how many kills (6).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use IPC::Run ();
use Time::HiRes qw(usleep);
use KvTest;

my $rounds = $ENV{KV_ROUNDS} // 6;
my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed, $rounds rounds";
my $node = kv_cluster('upcrash', 'restart_after_crash' => 'on');
my @tables = ('t_full', 't_keys', 't_none', 'twin');
my ($clients, $keys) = (8, 50);
$node->safe_psql('postgres', join('', map { kv_table("t_$_", 'k int, n bigint, v text', 'k', "shards '2', wal '$_'") } qw(full keys none))
	. 'CREATE TABLE twin (k int PRIMARY KEY, n bigint, v text);');
my $dir = $node->basedir . '/pgbench';
mkdir $dir or die;

# Every seventh transaction rolls one of its upserts back.  Keys in order, lest they deadlock.
my $up = sub { my ($row) = @_; return join('', map { "INSERT INTO $_ VALUES ($row) ON CONFLICT (k) DO UPDATE SET n = $_.n + 1, v = excluded.v;\n" } @tables); };
PostgreSQL::Test::Utils::append_to_file("$dir/up.sql", "\\set k random(1, $keys)\n\\set s random(1, 2000)\n\\set back random(1, 7)\nBEGIN;\n" . $up->(":k, 1, repeat('x', :s)")
	. "\\if :back = 1\nSAVEPOINT s;\n" . $up->(":k, 1000000, 'gone'") . "ROLLBACK TO s;\n\\endif\n\\if :back = 2\n" . $up->(":k + 1, 1, 'next'") . "\\endif\nCOMMIT;\n");

for my $round (1 .. $rounds)
{
	my ($out, $err) = ('', '');
	my $before = $node->safe_psql('postgres', 'SELECT coalesce(sum(n), 0) FROM twin');
	my $run = IPC::Run::start([ 'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-T', 600, '-f', "$dir/up.sql", '--log', "--log-prefix=$dir/r$round",
		'-h', $node->host, '-p', $node->port, 'postgres' ], '>', \$out, '2>', \$err);
	$node->poll_query_until('postgres', "SELECT sum(n) > $before + 100 FROM twin") or die 'pgbench does not run';
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$_')") for $round % 3 == 0 ? grep { /^t_/ } @tables : ();
	usleep(int(rand(500_000)));
	kill_all($node);
	eval { $run->finish; };
	restart_killed($node);
	my $log = 0;
	for my $file (glob "$dir/r$round.*") { $log += () = PostgreSQL::Test::Utils::slurp_file($file) =~ /\n/g; }
	my $rows = sub { my ($t) = @_; return answer($node, "SELECT k, n, length(v) FROM $t ORDER BY k"); };
	my $twin = $rows->('twin');
	is($rows->($_), $twin, "round $round: $_ is what heap is") for grep { /^t_/ } @tables;
	my $after = $node->safe_psql('postgres', 'SELECT sum(n) FROM twin');
	cmp_ok($after - $before, '>=', $log, "round $round: the $log transactions acknowledged count");
	is(kv_check_clean($node, grep { /^t_/ } @tables), '', "round $round: kvfdw_check finds nothing");
}
done_testing();
