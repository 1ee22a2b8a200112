# Promise: what was acknowledged at wal levels full and keys is there after SIGKILL or a restart
# of the operating system, in cases that depend on timing: a write buffer that is written while
# its transaction commits, and what a checkpoint meets.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_cluster('acknowledged', 'kvfdw.test_carried' => 0, 'kvfdw.flush_after' => 3600, autovacuum => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
my $boots = 0;
sub reboot
{
	kill_all($node);
	$boots++;
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot $boots'\n");
	$node->start;
	return;
}
$node->safe_psql('postgres', join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") } qw(full keys)));
$node->safe_psql('postgres', q{INSERT INTO t_keys VALUES (0, 'zero')});

# ---- a commit all of whose write buffers others have written out ----

hold_wal($node);
my $w = psql_writer($node, q{SET kvfdw.stop_points = 'write_done=wait'; BEGIN; INSERT INTO t_keys VALUES (1, 'one'); COMMIT;}, 'others');
stopped($node, 'write_done');
$node->safe_psql('postgres', 'CHECKPOINT');
go_on($node, 'write_done', $w);
kill_all($node);
$node->start;
is(answer($node, 'SELECT count(*) FROM t_keys'), 2, 'a commit is flushed though its rows had been logged by others');

# ---- who writes write buffers out meets a commit between what it has found and its records ----

# the buffer writer is busy with another table
$node->safe_psql('postgres', 'TRUNCATE t_keys');
worker_stop_points($node, 'buffer_before_write=wait');
$node->safe_psql('postgres', q{INSERT INTO t_full SELECT g, repeat('f', 5000) FROM generate_series(1, 10) g});
stopped($node, 'buffer_before_write');

# one key in two write buffers: the older one has been found, the newer one not
$w = psql_writer($node, q{SET kvfdw.stop_points = 'keys_found=wait'; BEGIN; INSERT INTO t_keys VALUES (1, 'older');
	INSERT INTO t_keys SELECT g, repeat('k', 5000) FROM generate_series(2, 10) g; UPDATE t_keys SET v = 'newer' WHERE k = 1; COMMIT;}, 'commit');
stopped($node, 'keys_found');
my $f = psql_writer($node, q{SELECT kvfdw_flush('t_keys')}, 'drain');
wait_for('the freeze', sub { ended($f) || answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'LWLock' AND query ~ '^SELECT kvfdw_flush'}) eq '1' });
go_on($node, 'keys_found', $w);
outcome($f);
worker_stop_points($node, '');
go_on($node, 'buffer_before_write');
is(answer($node, 'SELECT v FROM t_keys WHERE k = 1'), 'newer', 'a key has its last version');
reboot();
is(answer($node, 'SELECT v FROM t_keys WHERE k = 1'), 'newer', 'and it is the last one in the log, too');
$node->safe_psql('postgres', 'TRUNCATE t_full');

# ---- two write buffers of a shard are being written, and the older one cannot be ----

$node->safe_psql('postgres', 'TRUNCATE t_keys');
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'value_write:1:EIO'});
worker_stop_points($node, 'buffer_before_write=wait');
my $o = in_steps($node, 'order', q{SET kvfdw.fault = ''; SET kvfdw.stop_points = ''; BEGIN; INSERT INTO t_keys VALUES (1, 'older'); INSERT INTO t_keys SELECT g, repeat('k', 5000) FROM generate_series(2, 150) g;
	UPDATE t_keys SET v = 'newer' WHERE k = 1; INSERT INTO t_keys SELECT g, repeat('k', 5000) FROM generate_series(151, 300) g;}, 'COMMIT;');
step_done($o);
stopped($node, 'buffer_before_write');
my $failed_from = -s $node->logfile;
worker_stop_points($node, '');
go_on($node, 'buffer_before_write');
wait_for('a failure', sub { slurp_file($node->logfile, $failed_from) =~ /could not write file .*: Input\/output error/ });
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
step_go($o);
is(answer($node, 'SELECT v FROM t_keys WHERE k = 1'), 'newer', 'a key whose older slot could not be written at once has its last version');
reboot();
is(answer($node, 'SELECT count(*), min(v) FILTER (WHERE k = 1) FROM t_keys'), '300|newer', '... which is the last one in the log');

# ---- a store in the place of one that a savepoint took back ----

my $s = in_steps($node, 'savepoint', q{BEGIN; SAVEPOINT a; TRUNCATE t_keys; INSERT INTO t_keys VALUES (1, 'one'); ROLLBACK TO a;},
	q{TRUNCATE t_keys; INSERT INTO t_keys VALUES (3, 'three'); COMMIT;});
step_done($s);
collected($node);
step_go($s);
reboot();
is(answer($node, 'SELECT k, v FROM t_keys'), '3|three', 'what it holds is logged');

# ---- the first mark of a shard, and a flush ----

$node->safe_psql('postgres', q{INSERT INTO t_full SELECT g, 'v' || g FROM generate_series(1, 1000) g});
$w = psql_writer($node, q{SET kvfdw.stop_points = 'flush_before_files=wait'; SELECT kvfdw_flush('t_full');}, 'freeze');
stopped($node, 'flush_before_files');
$node->safe_psql('postgres', 'CHECKPOINT');
go_on($node, 'flush_before_files');
outcome($w);
is(answer($node, 'SELECT count(*) FROM t_full'), 1000, 'a checkpoint leaves the run of a freeze alone');

# ---- ALTER and INSERT in one simple query ----

$node->safe_psql('postgres', q{ALTER FOREIGN TABLE t_full OPTIONS (SET wal 'keys'); INSERT INTO t_full VALUES (2000, 'last')});
is(answer($node, 'SELECT count(*) FROM t_full'), 1001, 'a changed wal level keeps what the last statement wrote');

# ---- a device that fails in a recovery ----

$node->safe_psql('postgres', q{CHECKPOINT; INSERT INTO t_full SELECT g, 'more' FROM generate_series(3001, 3500) g});
kill_all($node);
$node->append_conf('postgresql.conf', "kvfdw.fault = 'key_log_read:1+:EIO'\n");
ok(!$node->start(fail_ok => 1), 'a log that cannot be read stops the start');
$node->append_conf('postgresql.conf', "kvfdw.fault = ''\n");
$node->start;
is(answer($node, 'SELECT count(*) FROM t_full'), 1501, 'and the next one has all rows');
$node->safe_psql('postgres', 'TRUNCATE t_full');

# ---- the checkpointer beside drops ----

my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'});
$node->safe_psql('postgres', 'CHECKPOINT');
worker_stop_points($node, 'mark_captured=wait');
for my $round (1 .. 3)
{
	# what a checkpointer has left behind meets the next one
	$node->safe_psql('postgres', kv_table('d', 'k int, v text', 'k', "shards '100'") . "INSERT INTO d SELECT g * 20000000, 'x' FROM generate_series(-105, 105) g");
	$w = psql_writer($node, 'CHECKPOINT;', "drop$round");
	stopped($node, 'mark_captured');
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE d');
	go_on($node, 'mark_captured', $w);
}
worker_stop_points($node, '');
is($node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'}), $pid, 'tables are dropped under checkpoints');
$node->safe_psql('postgres', 'CREATE DATABASE gone');
my ($timed_out) = (0);
$node->psql('postgres', 'DROP DATABASE gone', timeout => 300, timed_out => \$timed_out);
ok(!$timed_out, 'DROP DATABASE does not wait for a checkpoint');
$node->stop;
done_testing();
