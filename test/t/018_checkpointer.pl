# Promise: what was acknowledged at wal level full or keys survives a restart of the
# operating system, whatever the checkpointer, redo or a commit had just
# done: a checkpoint does not complete before the marks are made, and no step in between
# leaves a state that cannot be set back.  At level none what is damaged is
# dropped and counted, the rest is right.
#
# The restart is told by another boot id; nothing is really lost but what tests
# damage themselves (test/powercut loses writes).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no checkpointer of kvfdw' if heap_only();
my $node = kv_cluster('checkpointer', 'kvfdw.test_carried' => 0, 'kvfdw.flush_after' => 3600, max_prepared_transactions => 2, log_min_messages => 'info');
plan skip_all => 'needs fault injection' unless has_faults($node);
my $boots = 0;

# The machine stops; when it is back, %conf is set and what ALTER SYSTEM had set is
# not.  Returns whether the server started.
sub reboot
{
	my (%conf) = @_;
	kill_all($node) if postmaster_runs($node);
	$boots++;
	truncate($node->data_dir . '/postgresql.auto.conf', 0) or die;
	$node->append_conf('postgresql.conf', join('', "kvfdw.boot_id = 'boot $boots'\n", map { "$_ = '$conf{$_}'\n" } sort keys %conf));
	return $node->start(fail_ok => 1);
}

my %options = map { ("t_$_" => "shards '3', wal '$_'") } qw(full keys none);
$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table($_, 'k int, v text', 'k', $options{$_}) } sort keys %options));
my $next = 0;

# A transaction of every kind on each table and on heap.
sub change
{
	my (@tables) = @_;
	my $from = 1 + 1000 * $next++;
	my $sql = '';
	for my $t (@tables, 'heap')
	{
		$sql .= "INSERT INTO $t SELECT g * (g % 3 - 1) * 30000 + g, rpad('v' || g, 1 + (g * 37) % 6000, 'v') FROM generate_series($from - 150, $from) g ON CONFLICT DO NOTHING;
			INSERT INTO $t VALUES ($from, repeat('$from', 100000)), ($from + 1, '') ON CONFLICT DO NOTHING;
			UPDATE $t SET v = 'new $from' WHERE k % 7 = $next % 7; DELETE FROM $t WHERE k % 31 = $next % 31;
			BEGIN; UPDATE $t SET v = 'lost'; ROLLBACK;
			BEGIN; INSERT INTO $t VALUES ($from + 2, 'kept') ON CONFLICT DO NOTHING; SAVEPOINT s; DELETE FROM $t; ROLLBACK TO s; INSERT INTO $t VALUES ($from + 3, 'too') ON CONFLICT DO NOTHING; COMMIT;\n";
	}
	$node->safe_psql('postgres', $sql);
	return;
}
sub same { return join('', map { tables_differ($node, $_, 'heap', 'k') } @_) . kv_check_clean($node, @_); }

# ---- restarts, with and without a checkpoint between ----

change('t_full', 't_keys', 't_none');
is(same('t_full', 't_keys', 't_none'), '', 'before');
ok(reboot(), 'the server starts');
is(same('t_full', 't_keys'), '', 'after a restart');
$node->safe_psql('postgres', 'CHECKPOINT');
change('t_full', 't_keys');
$node->safe_psql('postgres', "SELECT kvfdw_flush('t_full'), kvfdw_flush('t_keys')");
change('t_full', 't_keys');
ok(reboot(), 'the server starts after a freeze that no checkpoint has seen');
is(same('t_full', 't_keys'), '', 'a freeze since the checkpoint does no harm');
reboot();
is(same('t_full', 't_keys'), '', 'nor do two restarts in a row');
$node->stop;
$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'after a stop'\n");
$node->start;
is(same('t_full', 't_keys'), '', 'nor does a clean stop before one');

# ---- a checkpoint and its marks ----

change('t_full', 't_keys');
my $before = $node->safe_psql('postgres', 'SELECT redo_lsn FROM pg_control_checkpoint()');
worker_stop_points($node, 'checkpoint_before_record=wait');
my $w = psql_writer($node, 'CHECKPOINT;', 'checkpoint');
stopped($node, 'checkpoint_before_record');
change('t_full', 't_keys');
is($node->safe_psql('postgres', 'SELECT redo_lsn FROM pg_control_checkpoint()'), $before, 'a checkpoint waits for its marks');
ok(!ended($w), 'and so does who asked for it');
reboot();
is(same('t_full', 't_keys'), '', 'a restart before the checkpointer has let it go');
outcome($w);
my $barriers = $node->safe_psql('postgres', 'SELECT num_done FROM kvfdw_stat_checkpointer');
change('t_full');
$node->safe_psql('postgres', 'CHECKPOINT');
is($node->safe_psql('postgres', "SELECT num_done > $barriers AND last_shards > 0 AND last_lsn > '$before' FROM kvfdw_stat_checkpointer"), 't', 'the view tells of the checkpointer');
$node->safe_psql('postgres', q{DELETE FROM t_keys; INSERT INTO t_keys TABLE heap});

for my $step (qw(checkpoint_before_flush mark_captured mark_synced mark_named edits_appended mark_written checkpoint_before_record checkpoint_before_release))
{
	change('t_full', 't_keys');
	$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = off');
	worker_stop_points($node, "$step=kill");
	answer($node, 'CHECKPOINT');
	wait_for('the end', sub { !postmaster_runs($node) });
	reboot();
	is(same('t_full', 't_keys'), '', "SIGKILL at $step, and a restart");
}
for my $step (qw(map_set_back mark_captured mark_synced mark_named edits_appended mark_written redo_before_flush redo_flushed))
{
	change('t_full', 't_keys');
	ok(!reboot('kvfdw.stop_points' => "$step=kill"), "recovery is killed at $step") or next;
	ok(reboot('kvfdw.stop_points' => ''), 'the server starts');
	is(same('t_full', 't_keys'), '', 'and everything is there');
}

# ---- the checkpointer ----

my $pid = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'};
change('t_full', 't_keys');
my $old = $node->safe_psql('postgres', $pid);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
change('t_full', 't_keys');
ok(eval { wait_for('another process', sub { answer($node, $pid) =~ /^(?!$old$)\d+$/ }) }, 'terminated, it is started again, and writers wait for it');
reboot();
is(same('t_full', 't_keys'), '', 'nothing is lost');
change('t_full', 't_keys');
my $times = times_ready($node);
kill_process($node->safe_psql('postgres', $pid));
ready_again($node, $times);
is(same('t_full', 't_keys'), '', 'nor when it is killed');

# ---- when the disk does not do what it should ----

change('t_full', 't_keys');
my $log = -s $node->logfile;
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'meta_write:1+:ENOSPC'});
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
$w = psql_writer($node, 'CHECKPOINT;', 'full_disk');
wait_for('the error', sub { slurp_file($node->logfile, $log) =~ /checkpointer ERROR|No space left/ });
ok(!ended($w), 'on a full disk a checkpoint waits');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET kvfdw.fault});
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
is(outcome($w), '', 'and goes on when there is room');
reboot();
is(same('t_full', 't_keys'), '', 'nothing is lost');
change('t_full', 't_keys');
$log = -s $node->logfile;
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'sync:1:EIO'});
$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = off');
$node->reload;		# whoever syncs next may be the checkpointer, and end the server at once
$node->psql('postgres', 'CHECKPOINT');
wait_for('the end', sub { !postmaster_runs($node) });
like(slurp_file($node->logfile, $log), qr/PANIC:  could not fsync/, 'a failed sync is a PANIC');
reboot();
is(same('t_full', 't_keys'), '', 'and what was acknowledged is there');

# ---- wal level keys at COMMIT ----

$times = times_ready($node);
$node->psql('postgres', "SET kvfdw.stop_points = 'keys_logged=kill'; INSERT INTO t_keys SELECT -g, repeat('n', 5000) FROM generate_series(1, 500) g");
ready_again($node, $times);
reboot();
is(same('t_keys'), '', 'logged, but not committed');
$w = psql_writer($node, "SET kvfdw.stop_points = 'keys_logged=wait'; BEGIN; INSERT INTO t_keys VALUES (-10, 'top'); SAVEPOINT a; INSERT INTO t_keys VALUES (-11, 'child'); SAVEPOINT b; INSERT INTO t_keys VALUES (-12, 'child'); COMMIT;", 'dead');
stopped($node, 'keys_logged');
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
reboot();
outcome($w);
$node->safe_psql('postgres', 'SELECT txid_current()') for 1 .. 8;
is(same('t_keys'), '', 'nor does it come alive when its xids are handed out again');
$node->safe_psql('postgres', join(' ', 'BEGIN;', (map { "INSERT INTO $_ SELECT -g, repeat('n', 5000) FROM generate_series(1, 500) g;" } 't_keys', 'heap'), "PREPARE TRANSACTION 'p'"));
reboot();
$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
is(same('t_keys'), '', 'prepared, restarted, committed');
for my $rows (1, 100, 10000)
{
	$node->safe_psql('postgres', "BEGIN; INSERT INTO t_keys SELECT 100000000 + $rows * 1000 + g, repeat('b', g % 4097) FROM generate_series(1, $rows) g; UPDATE t_keys SET v = 'second' WHERE k BETWEEN 100000000 + $rows * 1000 AND 100000000 + $rows * 1000 + 20; INSERT INTO heap SELECT k, v FROM t_keys WHERE k BETWEEN 100000000 + $rows * 1000 AND 100000000 + $rows * 1000 + $rows ON CONFLICT DO NOTHING; COMMIT");
	reboot();
	is(same('t_keys'), '', "a transaction of $rows rows");
}

# ---- wal level none: what is left is right ----

$node->safe_psql('postgres', q{DELETE FROM t_none; INSERT INTO t_none SELECT g * 3000000, rpad('n' || g, 4096, 'n') FROM generate_series(-200, 200) g; CHECKPOINT; INSERT INTO t_none SELECT g * 3000000 + 1, rpad('n' || g, 4096, 'n') FROM generate_series(-200, 200) g; SELECT kvfdw_flush('t_none'); INSERT INTO t_none SELECT g * 3000000 + 2, rpad('n' || g, 4096, 'n') FROM generate_series(-700, 700) g});
my $relid = $node->safe_psql('postgres', q{SELECT 't_none'::regclass::oid});
kill_all($node);
my ($values) = sort { -s "@{[ $node->data_dir ]}/kvfdw/$b" <=> -s "@{[ $node->data_dir ]}/kvfdw/$a" }
  grep { m{/$relid/.*\.val$} } kv_files($node);
hole($node->data_dir . "/kvfdw/$values");
$log = -s $node->logfile;
ok(reboot(), 'the server starts');
is(answer($node, q{SELECT count(*) FROM t_none WHERE k % 3000000 = 0 AND v = rpad('n' || k / 3000000, 4096, 'n')}), 401, 'what a checkpoint has seen is there');
is(answer($node, q{SELECT count(*) FROM t_none WHERE v <> rpad('n' || floor(k / 3000000.0), 4096, 'n')}), 0, 'no row is wrong');
like(slurp_file($node->logfile, $log), qr/WARNING:  foreign table .* has lost [1-9]\d* row versions/, 'a WARNING counts what is lost');
is(answer($node, q{SELECT lost_entries > 0 FROM kvfdw_stat_tables WHERE relid = 't_none'::regclass}), 't', 'and so does the view');
$node->safe_psql('postgres', q{INSERT INTO t_none SELECT g, 'again' FROM generate_series(7, 9) g});
is(kv_check_clean($node, 't_none'), '', 'and the table is sound');

# ---- a copy of the directory ----

my $data = $node->data_dir;
sub replace_by_copy { system('mv', "$data/kvfdw", "$data/original") == 0 && system('cp', '-a', "$data/original", "$data/kvfdw") == 0 && system('rm', '-rf', "$data/original") == 0 or die; return; }
my @all = qw(t_full t_keys t_none);
$node->safe_psql('postgres', join(';', map { "TRUNCATE $_; INSERT INTO $_ TABLE heap" } @all));
$node->stop;
replace_by_copy();
$node->start;
is(same(@all), '', 'a copy of a server that was stopped has everything');
kill_all($node);
replace_by_copy();
$node->start;
is(same('t_full', 't_keys'), '', 'a copy of one that crashed has all of levels full and keys');
is(answer($node, q{SELECT count(*) FROM t_none t LEFT JOIN heap h USING (k) WHERE h.v IS DISTINCT FROM t.v}), 0, 'and no wrong row at level none');

# ---- prepared transactions ----

$node->restart;
$node->safe_psql('postgres', q{BEGIN; DELETE FROM t_full; DELETE FROM heap; PREPARE TRANSACTION 'stays'});
my $from = -s $node->logfile;
$node->stop;
unlike(slurp_file($node->logfile, $from), qr/shutting down although transactions are still open/, 'a stop does not wait for prepared transactions');
$node->start;
$node->safe_psql('postgres', q{COMMIT PREPARED 'stays'});
is(answer($node, 'SELECT count(*) FROM t_full'), 0, '... which are there afterwards');

# told to end while the server goes on
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN; SELECT count(*) FROM t_full');
my $log_then = -s $node->logfile;
my $ended = answer($node, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'});
answer($node, "SELECT pg_terminate_backend($ended)");
is(answer($node, q{INSERT INTO t_full VALUES (1, 'w') RETURNING v}), 'w', 'where the checkpointer alone is told to end writers go on with the next one');
unlike(substr(slurp_file($node->logfile), $log_then), qr/the server stops/, '... and transactions that are open are not waited for');
$reader->quit;

# it cannot read what a log has got, for want of descriptors: that says nothing of the log.  The calls before the third open it.
$node->safe_psql('postgres', kv_table('one', 'k int, v text', 'k', "shards '1'"));
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', q{INSERT INTO one SELECT g, 'x' FROM generate_series(1, 100) g});
$log_then = -s $node->logfile;
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'key_log_read:3:EMFILE'});
$node->reload;
is(answer($node, 'CHECKPOINT'), '', 'a checkpoint during which a log cannot be read once, for want of descriptors, completes');
# the checkpointer may have read the setting too late
my $next_key = 1000;
ok(eval { wait_for('the error', sub {
	return 1 if slurp_file($node->logfile, $log_then) =~ /ERROR: .*could not read file ".*\.log": Too many open files/;
	# so it is set again, and read before the next call
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	$node->safe_psql('postgres', 'SELECT pg_reload_conf(), pg_sleep(0.2)');
	my $call = 1 + ($next_key / 100) % 4;
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'key_log_read:$call:EMFILE'");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf(), pg_sleep(0.2)');
	$next_key += 100;
	$node->safe_psql('postgres', qq{INSERT INTO one SELECT g, 'x' FROM generate_series($next_key, $next_key + 99) g});
	answer($node, 'CHECKPOINT');
	return 0;
}) }, '... and the log has it');
unlike(slurp_file($node->logfile, $log_then), qr/PANIC/, '... as an error');
$node->stop;
done_testing();

# Zeros instead of a fifth of a file.
sub hole
{
	my ($path) = @_;
	my $blocks = (-s $path) / 4096;
	open(my $f, '+<:raw', $path) or die "$path: $!";
	seek($f, int($blocks * 0.4) * 4096, 0);
	print $f "\0" x (int($blocks * 0.2) * 4096);
	close $f;
	return;
}
