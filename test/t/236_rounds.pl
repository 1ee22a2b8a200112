# Promise: what a checkpoint may skip because it was carried is of that checkpoint: not of one by another
# process, which has ended, or by the startup process before a promotion. A version log that could not
# be written anew is not used, and appends to the present one count. Tables with carried versions can be
# read without a checkpointer, and in single-user mode.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no version log' if heap_only();
my $bin = $ENV{PG_BINDIR} // do { my $dir = `pg_config --bindir`; chomp $dir; $dir };
my @few = map { "t$_" } 1 .. 6;
my $fill = '(SELECT g, md5(g::text) FROM generate_series(2, 301) g)';

# Each table is carried by a checkpoint of its own, so by another round.
sub carry_each
{
	my ($node, $standby) = @_;
	for my $t (@few)
	{
		$node->safe_psql('postgres', "INSERT INTO $t VALUES (1, 'one'); CHECKPOINT");
		next unless $standby;
		caught_up($node, $standby);
		answer($standby, 'CHECKPOINT');
	}
	return;
}
sub all_there
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(answer($node, 'SELECT ' . join(', ', map { "(SELECT count(*) FROM $_)" } @few)), join('|', (301) x @few), $what);
}

my $node = kv_primary('rounds', 'kvfdw.flush_after' => 3600);
my $faults = has_faults($node);
$node->safe_psql('postgres', join '', map { kv_table($_, 'k int, v text', 'k', "shards '1'") } @few, 'u');

# ---- another checkpointer ----

carry_each($node);
my $pid = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'};
my $old = $node->safe_psql('postgres', $pid);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
wait_for('another process', sub { answer($node, $pid) =~ /^(?!$old$)\d+$/ });
for my $t (@few) { $node->safe_psql('postgres', "INSERT INTO $t $fill; CHECKPOINT"); }
power_loss($node);
all_there($node, 'another checkpointer skips nothing that the one before has carried');

# ---- a promoted standby ----

$node->safe_psql('postgres', join ';', map { "TRUNCATE $_" } @few);
my $standby = kv_standby($node, 'standby');
carry_each($node, $standby);
$standby->promote;
for my $t (@few) { $standby->safe_psql('postgres', "INSERT INTO $t $fill; CHECKPOINT"); }
power_loss($standby);
all_there($standby, 'nor does one that follows the startup process');
$standby->stop('immediate');

# ---- without a checkpointer ----

$node->safe_psql('postgres', "TRUNCATE t1; INSERT INTO t1 VALUES (1, 'small'); CHECKPOINT; INSERT INTO u VALUES (1, 'small')");
kill_all($node);
for my $t (qw(t1 u))
{
	my $said = `echo 'SELECT count(*) FROM $t' | $bin/postgres --single -D @{[ $node->data_dir ]} postgres 2>&1`;
	like($said, qr/= "1"/, "$t can be read in single-user mode") or diag $said;
}
SKIP:
{
	skip 'needs fault injection', 3 unless $faults;
	$node->append_conf('postgresql.conf', "kvfdw.stop_points = 'checkpointer_before_raise=wait'\n");
	$node->start;
	for my $t (qw(u t1)) { is(answer($node, "SET statement_timeout = '20s'; SELECT count(*) FROM $t"), 1, "$t can be read without a checkpointer"); }
	kill_all($node);
	$node->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n");
	$node->append_conf('postgresql.conf', "data_sync_retry = on\nrestart_after_crash = off\n");
	$node->start;

	# ---- the log cannot be written anew: its name is not durable ----

	$node->safe_psql('postgres', kv_table('f', 'k int, v text', 'k', "shards '64'"));
	my $dir = $node->data_dir . '/kvfdw/' . $node->safe_psql('postgres', q{SELECT oid || '/' || 'f'::regclass::oid || '/00000001' FROM pg_database WHERE datname = 'postgres'});
	my $backup = psql_writer($node, "SELECT pg_backup_start('x', true); SELECT pg_sleep(600)", 'backup');
	wait_for('the backup', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND wait_event = 'PgSleep'}) == 1 });
	my $n = 0;
	for (1 .. 20)
	{
		last if -s (glob "$dir/*.versions")[0] > 400_000;
		$n++;
		$node->safe_psql('postgres', "INSERT INTO f SELECT g * 4000000 + $n, repeat('v', 40) FROM generate_series(-500, 499) g; CHECKPOINT");
	}
	$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'sync:2:EIO'});
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	answer($node, q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()});
	reap_writer($backup);
	my $checkpoint = psql_writer($node, 'CHECKPOINT', 'checkpoint');
	wait_for('a failure, or none', sub { slurp_file($node->logfile) =~ /Input\/output error/ || -e "$dir/00000002.versions" });
	$node->safe_psql('postgres', q{INSERT INTO f SELECT g * 4000000 + 200, repeat('w', 20000) FROM generate_series(-500, 499) g});
	reap_writer($checkpoint);
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	$node->safe_psql('postgres', 'SELECT pg_reload_conf(); CHECKPOINT');
	my $right = $node->safe_psql('postgres', 'SELECT count(*) FROM f');
	power_loss($node);
	is(answer($node, 'SELECT count(*) FROM f'), $right, 'what was appended after the log could not be written anew is there');
}
$node->stop('immediate') if postmaster_runs($node);
done_testing();
