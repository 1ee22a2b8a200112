# Promise: a write buffer whose values and log entries are in their files and that is not free
# yet, and a recovery that SIGKILL or an ERROR ends between two of its steps, are done again,
# as often as need be: no row is missing or there twice (I 3, I 10).
#
# Needs a test build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_cluster('replayed', 'kvfdw.flush_after' => '1h', 'kvfdw.write_buffers' => '4MB', 'kvfdw.write_buffer_size' => '64kB',
	'kvfdw.recovery_workers' => 0, checkpoint_timeout => '1h', restart_after_crash => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
# what the workers are told to stop at is not for the sessions
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';

my @tables;
sub create
{
	@tables = map { "kv_$_" } @_;
	$node->safe_psql('postgres', join('', 'CREATE TABLE heap (k int PRIMARY KEY, v text);', map { kv_table("kv_$_", 'k int, v text', 'k', "wal '$_'") } @_));
	return;
}

sub drop { $node->safe_psql('postgres', join('', 'DROP TABLE heap;', map { "DROP FOREIGN TABLE $_;" } @tables)); collected($node); return }

# The same in every table: more than a write buffer takes, with rows that are updated and deleted.
my $n = 0;
sub change
{
	$n++;
	for my $t ('heap', @tables)
	{
		$node->safe_psql('postgres', "INSERT INTO $t SELECT g, rpad('$n of ' || g, 2000, 'x') FROM generate_series($n * 1000, $n * 1000 + 99) g");
		$node->safe_psql('postgres', "UPDATE $t SET v = 'updated by $n' WHERE k % 7 = 1; DELETE FROM $t WHERE k % 31 = $n");
	}
	return;
}

sub as_heap
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join('', map { tables_differ($node, $_, 'heap', 'k') } @tables), '', "$what: no row is missing or there twice");
	is(kv_check_clean($node, @tables), '', "$what: kvfdw_check is clean");
	return;
}

sub die_now { kill_all($node); unlink glob($node->data_dir . '/kvfdw/*ing.*'), glob($node->data_dir . '/kvfdw/continue.*'); return }

# How the server and its workers meet a stop point at their next start.
sub at_start { my ($points) = @_; $node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = '$points'\n"); return }

sub log_has { my ($what, $from) = @_; return wait_for(qq{"$what" in the log}, 180, sub { substr(slurp_file($node->logfile), $from) =~ /$what/ }) }

# ---- a write buffer that is not free yet ----

create('full', 'keys', 'none');
for my $end ('goes on', 'SIGKILL', 'SIGKILL, another kernel')
{
	worker_stop_points($node, 'buffer_before_free=wait');
	$node->safe_psql('postgres', q{INSERT INTO kv_none SELECT -g, repeat('first', 400) FROM generate_series(1, 60) g; INSERT INTO heap SELECT -g, repeat('first', 400) FROM generate_series(1, 60) g})
	  if $end eq 'goes on';
	change();
	stopped($node, 'buffer_before_free');
	is(answer($node, 'SELECT count(*), min(v) FROM kv_none WHERE k < 0'), '60|' . 'first' x 400, "$end: while a slot is not free its rows are read") if $end eq 'goes on';
	if ($end eq 'goes on')
	{
		$node->safe_psql('postgres', 'INSERT INTO kv_full SELECT * FROM heap WHERE k < 0; INSERT INTO kv_keys SELECT * FROM heap WHERE k < 0');
		worker_stop_points($node, '');
		go_on($node, 'buffer_before_free');
	}
	else
	{
		die_now();
		at_start('');
		$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'another'\n") if $end =~ /kernel/;
		@tables = ('kv_full', 'kv_keys') if $end =~ /kernel/;    # the other may have lost rows
		$node->start;
	}
	as_heap("a slot that is not free yet, $end");
}
@tables = map { "kv_$_" } qw(full keys none);
drop();

# ---- a recovery of a table that the WAL does not help ----

create('none');
sub leave_slots
{
	$node->safe_psql('postgres', 'CHECKPOINT');
	worker_stop_points($node, 'buffer_before_write=wait');
	change();
	stopped($node, 'buffer_before_write');
	die_now();
	return;
}
leave_slots();
for my $point ('replay_before_free', 'replay_before_free', 'recover_after_sealed', 'recover_after_logs')
{
	at_start("$point=wait");
	$node->start;
	stopped($node, $point);
	pass("a recovery stands at $point, and is killed");
	die_now();
}
at_start('');
$node->start;
as_heap('recoveries that were killed, one after the other');
change();
as_heap('and what is written after them');

for my $point ('replay_before_free', 'recover_after_sealed', 'recover_after_logs')
{
	leave_slots();
	my $log = -s $node->logfile;
	at_start("$point=error");
	$node->start;
	log_has(qq{stopped at "$point"}, $log);
	as_heap("an ERROR at $point, and a session that tries again");
	worker_stop_points($node, '');
	change();
	as_heap("an ERROR at $point, and what is written after it");
}
drop();

# ---- a recovery in which the WAL is replayed ----

create('full', 'keys');
change();
for my $point ('recover_after_sealed', 'recover_after_logs')
{
	$node->safe_psql('postgres', 'CHECKPOINT');
	change();
	die_now();
	my $log = -s $node->logfile;
	at_start("$point=kill");
	ok(!$node->start(fail_ok => 1), "the startup process is killed at $point");
	like(substr(slurp_file($node->logfile), $log), qr/startup process .* was terminated by signal 9/, 'by this');
	unlink $node->data_dir . '/postmaster.pid';
	at_start('');
	$node->start;
	as_heap("a replay that was killed at $point");
}
$node->stop;
done_testing();
