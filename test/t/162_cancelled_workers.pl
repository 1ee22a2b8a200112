# Promise: canceling a process of kvfdw as if it were a session stops nothing: the server stays
# up, and the work of the process is done.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no such processes' if heap_only();
my $node = kv_cluster('cancelled', 'kvfdw.flush_after' => 1, 'kvfdw.test_value_file_kb' => 64);
plan skip_all => 'needs fault injection' unless has_faults($node);
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . 'CREATE TABLE heap (k int PRIMARY KEY, v text)');
$node->safe_psql('postgres', kv_table('scanned', 'k int, v text', 'k') . q{INSERT INTO scanned SELECT g, rpad('v' || g, 4096, md5(g::text)) FROM generate_series(1, 5000) g ORDER BY md5(g::text); SELECT kvfdw_flush('scanned'); ANALYZE scanned});
my $log = -s $node->logfile;
my $times = times_ready($node);
my @cancelled;
for my $round (1 .. 40)
{
	$node->safe_psql('postgres', "INSERT INTO $_ SELECT k, repeat(md5((k + $round)::text), 60) FROM generate_series(1, 300) k ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v") for qw(heap t);
	$node->safe_psql('postgres', 'SELECT sum(length(md5(v))) FROM (SELECT v FROM scanned ORDER BY k) s') if $round % 8 == 1;
	push @cancelled, split /\n/, $node->safe_psql('postgres', q{SELECT backend_type FROM pg_stat_activity WHERE backend_type LIKE 'kvfdw%' AND pg_cancel_backend(pid)});
	$node->safe_psql('postgres', 'CHECKPOINT') if $round % 5 == 0;
}
my %types = map { $_ => 1 } @cancelled;
ok($types{$_}, "$_ was cancelled") for 'kvfdw checkpointer', 'kvfdw maintainer', 'kvfdw compactor', 'kvfdw prefetch';
is(times_ready($node), $times, 'the server stays up');
unlike(slurp_file($node->logfile, $log), qr/PANIC|was terminated/, 'and nobody ends badly');
$node->safe_psql('postgres', "CHECKPOINT; SELECT kvfdw_compact('t')");
is(tables_differ($node, 't', 'heap', 'k'), '', 'the rows are the same');
is(kv_check_clean($node, 't'), '', 'and sound');
# what is not in pg_stat_activity
for my $pid (map { /^(\d+) / ? $1 : () } grep { /kvfdw buffer writer/ } split /\n/, `ps -eo pid=,args= --ppid @{[postmaster_runs($node)]} | sed 's/^ *//'`)
{
	kill 'INT', $pid;
}
$node->safe_psql('postgres', 'UPDATE t SET v = v; CHECKPOINT');
is(times_ready($node), $times, 'nor does it end where the buffer writer is told so');
$node->stop;
done_testing();
