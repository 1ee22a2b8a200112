# Promise: when the WAL is replayed after a restart of the operating system, or by a standby, what
# had gone just before stays gone: stores that were dropped or rolled back, and transactions of
# forgotten incarnations. Tables whose rows cannot be had do not look complete.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

plan skip_all => 'heap has no stores of kvfdw' if heap_only();
my $node = kv_primary('redo', 'kvfdw.flush_after' => 3600);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $standby = kv_standby($node, 'standby', 'kvfdw.stop_points' => "'maintainer_idle=wait'");
stopped($standby, 'maintainer_idle');

# ---- the directory of a store that was taken back is still to be removed ----

$node->safe_psql('postgres', join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") . "INSERT INTO t_$_ VALUES (1, 'kept');" } qw(full keys)) .
	kv_table('dropped', 'k int, v text', 'k'));
worker_stop_points($node, 'maintainer_idle=wait');
stopped($node, 'maintainer_idle');
my @tables = qw(t_full t_keys dropped);
my $s = in_steps($node, 'truncate', join('', 'BEGIN;', map { "TRUNCATE $_; INSERT INTO $_ VALUES (2, 'before the checkpoint');" } @tables[ 0, 1 ]),
	join('', (map { "INSERT INTO $_ VALUES (3, 'after it');" } @tables[ 0, 1 ]), 'ROLLBACK;'), "SELECT 'the last step';");
step_done($s);
$node->safe_psql('postgres', 'CHECKPOINT');
step_go($s);
$node->safe_psql('postgres', q{INSERT INTO dropped VALUES (1, 'gone'); DROP FOREIGN TABLE dropped});
my @out_of_sight = grep { /^dropped[.][^\/]*$/ } kv_files($node);
cmp_ok(scalar @out_of_sight, '>=', 3, 'three stores are out of sight');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.stop_points');
my $log = -s $node->logfile;
power_loss($node);
is(answer($node, "SELECT v FROM $_"), 'kept', "$_: a store that was taken back is not missed") for @tables[ 0, 1 ];
unlike(slurp_file($node->logfile, $log), qr/WARNING/, 'nor is one that was dropped');
collected($node);
is(scalar(grep { m{^\d+/[^/]+$} && -d $node->data_dir . "/kvfdw/$_" } kv_files($node)), 2, 'and nothing is left of them');

# ---- a standby meets a store with the number of one that it has in memory still ----

$node->safe_psql('postgres', q{BEGIN; TRUNCATE t_full; INSERT INTO t_full VALUES (1, 'never'); ROLLBACK});
collected($node);
caught_up($node, $standby);
is(answer($standby, 'SELECT v FROM t_full'), 'kept', 'the standby has seen a TRUNCATE taken back');
$node->restart;    # which forgets the number
$node->safe_psql('postgres', q{TRUNCATE t_full; INSERT INTO t_full VALUES (2, 'new')});
caught_up($node, $standby);
is(answer($standby, 'SELECT k, v FROM t_full'), '2|new', 'and another one with the same number');

# ---- a standby's restartpoint that is ahead of its marks, for the primary logged no DURABLE record ----

$standby->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n");
$standby->stop('immediate');
$standby->start;
$node->safe_psql('postgres', q{INSERT INTO t_full VALUES (3, 'in no mark')});
caught_up($node, $standby);
my $restartpoint = 'SELECT redo_lsn FROM pg_control_checkpoint()';
my $before = answer($standby, $restartpoint);
kill_all($node);
$node->append_conf('postgresql.conf', "max_worker_processes = 0\n");    # no process for barriers
$node->start;
caught_up($node, $standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
isnt(answer($standby, $restartpoint), $before, 'a restartpoint at the end of the recovery of the primary');
my $copy = kv_standby($standby, 'copy');
my $ahead = qr/the last restartpoint is later than the last durable state/i;
for ([ $copy, "a backup of the standby" ], [ $standby, 'the standby after power loss' ])
{
	my ($server, $what) = @$_;
	power_loss($server) if $server == $standby;
	my ($rc, $out, $err) = $server->psql('postgres', "\\set VERBOSITY verbose\nSELECT * FROM t_full");
	like($err, qr/XX001.*$ahead/s, "$what does not look complete");
	$server->stop('immediate');
}
$node->stop;

# ---- marks that name runs of the server that are to be forgotten ----

$node = kv_cluster('forget', 'kvfdw.flush_after' => 3600);
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . q{INSERT INTO t VALUES (1, 'first'); CHECKPOINT});
hold_wal($node);
my $w = psql_writer($node, q{SET kvfdw.stop_points = 'write_done=wait'; INSERT INTO t VALUES (2, 'never committed');}, 'lost');
stopped($node, 'write_done');
my $xid = $node->safe_psql('postgres', 'SELECT backend_xid FROM pg_stat_activity WHERE backend_xid IS NOT NULL');
kill_all($node);
outcome($w);
$node->start;
is(answer($node, q{INSERT INTO t VALUES (3, 'same xid') RETURNING pg_current_xact_id()}), $xid, 'an xid that the WAL has not seen is handed out again');
is(answer($node, 'SELECT k FROM t'), "1\n3", 'its first use has aborted');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop;

# as if it had been started many times since
my $file = $node->data_dir . '/kvfdw/control';
my $control = slurp_file($file);
my ($number, $dead) = unpack 'x16 LL', $control;
is($dead, 1, 'one run of the server was killed');
my $more = 512;
substr($control, 16, 8) = pack 'LL', $number + $more, $dead + $more;
substr($control, 32 + 16 * $dead, 16 * $more) = join '', map { pack 'LLQ', $number + $_, 0, $xid + 1000 } 0 .. $more - 1;
substr($control, -4) = pack 'L', crc32c(substr $control, 0, -4);
open(my $out, '>:raw', $file) or die "$file: $!";
print $out $control;
close $out;
$node->start;
wait_for('runs of the server to be forgotten', sub { (unpack 'x16 LL', slurp_file($file))[1] == 0 });
power_loss($node);
is(answer($node, 'SELECT k FROM t'), "1\n3", 'and has after they are forgotten, and a power loss');
$node->stop;
done_testing();
