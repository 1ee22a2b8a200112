# Promise: a standby survives the loss of its machine's power at any time, with and
# without restartpoints; it starts from checkpoints of a primary that had crashed
# or was stopped; a server whose WAL began without the library can be a primary.
#
# The loss of power is told by another boot id: tables are set back to their marks.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Cwd qw(abs_path);
use Test::More;
use Time::HiRes qw(usleep);
use KvTest;
use KvReplica;

my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";

# with an archive, WAL goes on after the last DURABLE record of a server that stops
my $node = kv_primary('p', 'kvfdw.test_carried' => 0, archive_mode => 'on', archive_command => "'true'");
my $faults = has_faults($node);
twin_tables($node);
my $s = kv_standby($node, 's');
my $blind = kv_standby($node, 'blind', hot_standby => 'off');
my $next = 0;

# Some of everything, in one session.
sub change
{
	my ($n) = @_;
	$next++;
	my $from = 1000 * $next;
	my $sql = '';
	for my $t ('twin_kv', 'twin_heap')
	{
		$sql .= "INSERT INTO $t SELECT w, $from + i, repeat('r' || i, 1 + i % 300) FROM generate_series(1, 3) w, generate_series(1, 60) i;
			UPDATE $t SET v = 'new $next' WHERE i % 5 = $next % 5; DELETE FROM $t WHERE i % 31 = $next % 31;
			INSERT INTO $t VALUES (4, $from, repeat('$next', 150000));
			BEGIN; INSERT INTO $t VALUES (5, $from, 'lost'); ROLLBACK;\n";
	}
	$node->safe_psql('postgres', $sql);
	return;
}
sub check
{
	my ($what) = @_;
	caught_up($node, $s);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', $what);
	return is(rows_of($s, 'twin_kv', 'w, i'), rows_of($node, 'twin_kv', 'w, i'), 'with the rows of the primary');
}

# ---- power loss ----

change();
caught_up($node, $s);
power_loss($s);
check('power loss before any restartpoint');
for my $round (1 .. $ENV{KV_ROUNDS} // 1)
{
	for my $stop ('kill', 'fast', 'immediate')
	{
		for my $restartpoint (0, 1)
		{
			change();
			$node->safe_psql('postgres', q{CHECKPOINT; SELECT kvfdw_flush('twin_kv')});
			change();
			caught_up($node, $s);
			$s->safe_psql('postgres', "SELECT kvfdw_flush('twin_kv')") if $round % 2 == 0 && heap_only();
			$s->safe_psql('postgres', 'CHECKPOINT') if $restartpoint;
			change();
			$s->stop($stop) if $stop ne 'kill';
			power_loss($s);
			check("$stop and power loss " . ($restartpoint ? 'after a restartpoint' : 'without restartpoint'));
		}
	}
	power_loss($s);
	check('power loss at once again');
	kill_all($s);
	$s->start;
	check('and SIGKILL');
	power_loss($blind);
}
my $load = start_load($node, 1 .. 2);
for my $round (1 .. $ENV{KV_ROUNDS} // 2)
{
	load_goes_on($load, 4 * $round);
	usleep(int(rand(300_000)));
	$s->safe_psql('postgres', 'CHECKPOINT') if $round % 2;
	power_loss($s);
	power_loss($blind);
}
stop_load($load);
check('power loss under load');

# ---- checkpoints of a primary that was restarted ----

$node->restart;
check('the primary is restarted');
$s->safe_psql('postgres', 'CHECKPOINT');
$s->restart;
check('a restartpoint at its shutdown checkpoint');
power_loss($s);
check('and power loss');
change();
caught_up($node, $s);
$node->stop;
$s->safe_psql('postgres', 'CHECKPOINT');
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'the primary is stopped');
$s->stop;
power_loss($s);
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'power loss, while the primary is not back');
$node->start;
check('the primary is back');
change();
kill_all($node);
restart_killed($node);
check('the primary has recovered from a crash');
$s->safe_psql('postgres', 'CHECKPOINT');
$s->restart;
check('a restartpoint at its end-of-recovery checkpoint');
power_loss($s);
check('and power loss');
change();
power_loss($node);
check('the primary has recovered from power loss');
$s->safe_psql('postgres', 'CHECKPOINT');
power_loss($s);
check('and so has the standby');

# ---- the standby is killed while it replays ----

SKIP:
{
	skip 'not a test build (make FAULTS=1)', 1 if !$faults;
	for my $step (qw(mark_captured mark_synced mark_written redo_before_flush redo_flushed))
	{
		$s->append_conf('postgresql.conf', "kvfdw.stop_points = '$step=kill'\nrestart_after_crash = off\n");
		$s->restart;
		change();
		$node->safe_psql('postgres', 'CHECKPOINT');
		if ($step =~ /redo/) { system_log('pg_ctl', '-D', $s->data_dir, '-W', 'promote'); }
		wait_for("the end at $step", sub { !postmaster_runs($s) });
		unlink $s->data_dir . '/promote';
		$s->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n");
		power_loss($s);
		last if $step =~ /redo/;
		check("SIGKILL at $step and power loss");
	}
}

# ---- promotion after all this ----

$node->wait_for_catchup('blind', 'replay', $node->lsn('flush'));
power_loss($blind);
$node->wait_for_catchup('blind', 'replay', $node->lsn('flush'));
$node->stop;
promote_blind($blind);
is(tables_differ($blind, 'twin_kv', 'twin_heap', 'w, i'), '', 'a standby without queries is promoted');
sound($blind, 'promoted');
power_loss($blind);
wait_for('queries', sub { (eval { answer($blind, 'SELECT true') } // '') eq 't' });
is(tables_differ($blind, 'twin_kv', 'twin_heap', 'w, i'), '', 'power loss after promotion');
$blind->stop;
$s->stop;

# ---- a primary is stopped while it recovers: it is no standby for that ----

SKIP:
{
	skip 'heap has no wal levels', 1 if heap_only();
	my @all = qw(s_full s_keys s_none);
	$node->start;
	$node->safe_psql('postgres', join('', map { kv_table($_, 'k int, v text', 'k', q{wal '} . substr($_, 2) . q{'}) . "INSERT INTO $_ SELECT g, repeat('s', g) FROM generate_series(1, 300) g;" } @all));
	my $before;
	my $startup;
	my $data = abs_path($node->data_dir);
	# the startup process goes on in small steps, and stands still when it is told to go; one that has ended before it was seen is of no use
	for (1 .. 20)
	{
		$node->safe_psql('postgres', q{DROP TABLE IF EXISTS long; CREATE TABLE long AS SELECT g, repeat('l', 500) FROM generate_series(1, 150000) g});
		kill_all($node);
		$before = -s $node->logfile;
		system_log('pg_ctl', '-W', '-D', $node->data_dir, '-l', $node->logfile, 'start');
		wait_for('the startup process', sub {
			my ($pid) = grep { (readlink("/proc/$_/cwd") // '') eq $data } `ps -eo pid=,args=` =~ /^ *(\d+) postgres: .*startup/mg;
			$startup = $pid if $pid && kill 'STOP', $pid;
			return $startup || slurp_file($node->logfile, $before) =~ /ready to accept connections/; });
		last if $startup;
	}
	wait_for('redo', sub { slurp_file($node->logfile, $before) =~ /redo starts/ || kill('CONT', $startup) && usleep(5_000) && !kill('STOP', $startup) });
	system_log('pg_ctl', '-W', '-m', 'fast', '-D', $node->data_dir, 'stop');
	wait_for('the request', sub { slurp_file($node->logfile, $before) =~ /received fast shutdown request/ });
	kill 'CONT', $startup;
	wait_for('the end', sub { !-e $node->data_dir . '/postmaster.pid' });
	command_like([ 'pg_controldata', $node->data_dir ], qr/shut down in recovery/, 'it was stopped while it recovered');
	$node->start;
	is(join(' ', map { answer($node, "SELECT count(*) FROM $_") } @all), '300 300 300', 'every wal level is there');
	is(kv_check_clean($node, @all), '', 'and sound');
	$node->stop;
}

# ---- the library is loaded later than the WAL began ----

my $q = PostgreSQL::Test::Cluster->new('q');
$q->init(allows_streaming => 1);
$q->append_conf('postgresql.conf', "fsync = off\n");
$q->start;
my $backed = PostgreSQL::Test::Cluster->new('backed');
$q->backup('before');
$q->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\n") if !heap_only();
$q->restart;
KvTest::kv_install($q, 'postgres');
twin_tables($q);
$load = start_load($q, 1);
load_goes_on($load, 5);
stop_load($load);
my $s2 = kv_standby($q, 'before', heap_only() ? () : (shared_preload_libraries => "'kvfdw'"));
caught_up($q, $s2);
same_rows($q, $s2, 'a backup from before the library was loaded');
power_loss($s2);
same_rows($q, $s2, 'and power loss');
done_testing();
