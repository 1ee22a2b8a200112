# Promise: counters that many clients raise by upserts at the same few keys are exact, at every
# wal level: one row and many in a statement, with sessions that delete and move rows, during
# flushes, and above READ COMMITTED. KV_UPSERTS=n: upserts of one row for each table (8000).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use IPC::Run ();
use KvTest;

my $upserts = $ENV{KV_UPSERTS} // 8000;
my $node = kv_cluster('sums');
my $dir = $node->basedir . '/pgbench';
mkdir $dir or die;
my $keys = 40;

# Start pgbench with a script; returns what there is to wait for.
sub start
{
	my ($name, $clients, $transactions, $isolation, $script) = @_;
	PostgreSQL::Test::Utils::append_to_file("$dir/$name.sql", $script);
	local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . ($isolation =~ s/ /\\ /r);
	my %run = (name => $name, out => '', err => '');
	$run{handle} = IPC::Run::start([ 'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-t', $transactions, '--max-tries=100000', '-f', "$dir/$name.sql",
		'-h', $node->host, '-p', $node->port, 'postgres' ], '>', \$run{out}, '2>', \$run{err});
	return \%run;
}

sub finish
{
	my ($run) = @_;
	eval { $run->{handle}->finish; };
	ok($run->{handle}->full_result(0) == 0 && $run->{out} !~ /failed: [1-9]/, "$run->{name}: none failed") or diag($run->{out}, $run->{err});
	return;
}

for my $level (heap_only() ? 'full' : ('full', 'keys', 'none'))
{
	my $t = "t_$level";
	$node->safe_psql('postgres', kv_table($t, 'k int, n bigint, v text', 'k', "shards '2', wal '$level'") . "CREATE TABLE taken_$level (n bigint)");
	my $one = "\\set k random(1, $keys)\nINSERT INTO $t VALUES (:k, 1, 'v') ON CONFLICT (k) DO UPDATE SET n = $t.n + 1, v = left($t.v || 'v', 200);\n";
	my @runs = (
		start("one_$level", 4, $upserts / 4, 'read committed', $one),
		start("many_$level", 2, $upserts / 40, 'read committed', "\\set k random(1, 4)\nINSERT INTO $t SELECT k, 1, repeat('w', k * 1000) FROM generate_series(:k, $keys, 4) k ON CONFLICT (k) DO UPDATE SET n = $t.n + excluded.n, v = excluded.v;\n"),
		start("strict_$level", 2, $upserts / 40, 'repeatable read', $one),
		start("take_$level", 2, $upserts / 40, 'read committed', "\\set k random(1, $keys)\nWITH d AS (DELETE FROM $t WHERE k = :k RETURNING n) INSERT INTO taken_$level SELECT n FROM d;\n"),
		heap_only() ? () : start("freeze_$level", 1, 20, 'read committed', "SELECT kvfdw_flush('$t');\n\\sleep 10 ms\n"));
	finish($_) for @runs;
	is($node->safe_psql('postgres', "SELECT (SELECT sum(n) FROM $t) + (SELECT coalesce(sum(n), 0) FROM taken_$level)"),
		4 * int($upserts / 4) + 2 * int($upserts / 40) * $keys / 4 + 2 * int($upserts / 40), "wal $level: every upsert counts once");
	is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT k), min(k), max(k) FROM $t") =~ s/^(\d+)\|\1\|/same|/r, "same|1|$keys", "wal $level: a key is there once");
	is(heap_only() ? '' : kv_check_clean($node, $t), '', "wal $level: kvfdw_check finds nothing");
}
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'tuple'"), 0, 'no place in a queue is left');
done_testing();
