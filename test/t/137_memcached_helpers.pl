# Promise: the flusher, the reaper or the buffer writer may be told to end during its work:
# nothing is lost, and nothing is acknowledged too early. It comes back, and other processes do
# what they can in between.
use strict;
use warnings;
use FindBin;
use IO::Select;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMemcached;

my $node = mc_cluster('helpers', 'kvfdw.memcached_workers' => 1, 'kvfdw.memcached_flush_all' => 'on', 'kvfdw.memcached_reap_interval' => 0, 'kvfdw.memcached_reap_rate' => 1,
	'kvfdw.memcached_listen' => "'*, localhost'", wal_level => 'replica', max_wal_senders => 4);
sub sql { return answer($node, $_[0]); }
sub set_to { my ($setting, $value) = @_; $node->safe_psql('postgres', "ALTER SYSTEM SET $setting = $value"); $node->reload; return; }
sub process { my ($name) = @_; return `ps -o pid=,args= --ppid ${\ postmaster_runs($node)}` =~ /^ *(\d+) .*\Q$name\E/m ? $1 : 0; }
sub terminate
{
	my ($name, $then) = @_;
	my $pid = process($name) or die "no $name";
	kill TERM => $pid;	# as pg_terminate_backend() does; that does not know processes without a database
	$then->() if $then;
	wait_for("the end of $name", sub { process($name) != $pid });
	return;
}
sub is_back { my ($name) = @_; wait_for($name, sub { process($name) }); return; }
my $c = mc_connect($node);
my $beside = mc_connect($node);	# as long as there is one that asks nothing the flusher is needed

# ---- the flusher ----
my $flusher = 'kvfdw memcached flusher';
is_back($flusher);
set_to('synchronous_standby_names', "'nobody'");
wait_for('the flusher to wait for a standby', sub {
	if ($c->{asked}) { mc_answered($c) or return sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = '$flusher' AND wait_event = 'SyncRep'"); mc_line($c); }
	$c->{asked} = 1;
	mc_send($c, "set a 0 0 1\r\n1\r\n");
	return 0;
});
terminate($flusher);
wait_for('somebody else to wait', sub { mc_answered($c) || sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'kvfdw memcached%' AND wait_event = 'SyncRep'") });
ok(!mc_answered($c), 'a flusher that is told to end while it waits for a standby has nothing acknowledged');
set_to('synchronous_standby_names', "''");
is(mc_line($c), 'STORED', '... but who waits then has');
set_to('synchronous_standby_names', "'nobody'");
for my $way ('with a flusher', 'without one')
{
	if ($way eq 'without one')
	{
		sql('SET synchronous_commit = local; ALTER ROLE web NOLOGIN');	# it cannot come back
		terminate($flusher);
	}
	else { is_back($flusher); }
	$c = mc_connect($node);
	wait_for('a write to wait for a standby', sub {
		if ($c->{asked}) { mc_answered($c) or return sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'kvfdw memcached%' AND wait_event = 'SyncRep'"); mc_line($c); }
		$c->{asked} = 1;
		mc_send($c, "set a 0 0 1\r\n1\r\n");
		return 0;
	});
	if ($way eq 'with a flusher')
	{
		my $d = mc_connect($node);
		mc_send($d, "delete none\r\n");
		wait_for('a reply to be held', sub { mc_answered($d) || sql("SELECT count(*) FROM kvfdw_memcached_connections() WHERE state = 'flushing'") >= 2 });
		ok(!mc_answered($d), 'nor is it said that nothing was to be done before what that rests on is there');
	}
	terminate('kvfdw memcached 0');
	mc_closed($c);
	is($c->{in}, '', "a process that is told to end while its clients wait for a standby, $way, has nothing acknowledged");
	sql('SET synchronous_commit = local; ALTER ROLE web LOGIN');
	is_back('kvfdw memcached 0');
}
set_to('synchronous_standby_names', "''");
is_back($flusher);
$c = mc_connect($node);
$beside = mc_connect($node);

# as long as there is none
my $pid = process($flusher);
kill STOP => $pid;
mc_send($c, "set a 0 0 1\r\n1\r\n");
wait_for('a reply to be held', sub { sql("SELECT count(*) FROM kvfdw_memcached_connections() WHERE state = 'flushing'") == 1 });
sql('ALTER ROLE web NOLOGIN');
terminate($flusher, sub { kill CONT => $pid });
ok(eval { wait_for('a reply', sub { mc_answered($c) }) } && mc_line($c) eq 'STORED', 'whose flusher ends flushes by itself');
is(mc_ask($c, "set a 0 0 1\r\n2\r\n"), 'STORED', 'without a flusher a process flushes by itself');
set_to('kvfdw.memcached_commit', 'drain');
wait_for('the mode', sub { mc_settings($c)->{kvfdw_commit} eq 'drain' });
hold_wal($node);
is(mc_ask($c, "set a 0 0 1\r\n3\r\n"), 'STORED', '... also in mode drain');
my $upto = sql('SELECT pg_current_wal_insert_lsn()');
ok(eval { wait_for('the WAL', sub { mc_ask($c, "mn\r\n"); sql("SELECT pg_current_wal_flush_lsn() >= '$upto'") eq 't' }) }, '... though not at once');
kill CONT => split /\n/, sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer')});
set_to('kvfdw.memcached_commit', 'on');
sql('ALTER ROLE web LOGIN');
is_back($flusher);

# whatever their role has set
sql('ALTER ROLE web SET synchronous_commit = off');
terminate('kvfdw memcached 0');
is_back('kvfdw memcached 0');
$c = mc_connect($node);
hold_wal($node);
ok((grep { mc_ask($c, "set a 0 0 1\r\n$_\r\n") eq 'STORED' && sql('SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()') eq 't' } 1 .. 3), 'in mode on the WAL is flushed, though the role has synchronous_commit off');
kill CONT => split /\n/, sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer')});
sql('ALTER ROLE web RESET synchronous_commit');
$beside = mc_connect($node);

# nothing is behind the head of a page
my ($from, $ends) = (-s $node->logfile, 0);
for (1 .. 3)
{
	$ends += sql(q{DO $$ BEGIN FOR i IN 1 .. 10000 LOOP
			PERFORM pg_logical_emit_message(false, '', repeat('x', i % 8 * 8));
			IF (pg_current_wal_insert_lsn() - '0/0') % 8192 = 24 THEN RETURN; END IF;
		END LOOP; END $$; SELECT (pg_current_wal_insert_lsn() - '0/0') % 8192 = 24}) eq 't';
	is(mc_ask($c, "delete none\r\n"), 'NOT_FOUND', 'a reply that waits for what it rests on, where the WAL ends with a page');
}
is($ends > 0 ? slurp_file($node->logfile, $from) =~ /past end of generated WAL|is not satisfied/ : 'no end', '', '... and for no more');
my @many = map { mc_connect($node) } 1 .. 4;
my $each = 1500;
is_back($flusher);
for my $round (1, 2)
{
	for my $i (0 .. $#many) { mc_send($many[$i], join '', map { "set r$round:$i:$_ 0 0 1\r\n$round\r\n" } 1 .. $each); }
	terminate($flusher);
	is(join(' ', map { my $conn = $_; scalar grep { mc_line($conn) eq 'STORED' } 1 .. $each } @many), "$each $each $each $each", 'without it all is stored');
	is_back($flusher);
}

# ---- the reaper ----
my $reaper = 'kvfdw memcached reaper';
is_back($reaper);
sql("INSERT INTO cache SELECT 'kept' || i, 0, now() + '1 day', '1' FROM generate_series(1, 1000) i;
	INSERT INTO cache SELECT 'old' || i, 0, now() - '1 hour'::interval, decode(repeat('78', 4000), 'hex') FROM generate_series(1, 4000) i");
sub old { return sql("SELECT count(*) FROM cache WHERE expires < now()"); }
set_to('kvfdw.memcached_reap_interval', 1);
for my $least (3500, 3000)
{
	wait_for('some rows to go', sub { old() < $least });
	terminate($reaper);
	cmp_ok(old(), '>', 0, 'a reaper is told to end in the midst of its work');
	is_back($reaper);
}
set_to('kvfdw.memcached_reap_rate', 1000);
wait_for('all that have expired to go', sub { old() == 0 });
is(sql("SELECT count(*) FROM cache WHERE key LIKE 'kept%'"), 1000, '... and all that have goes, and nothing else');
is(sql('SELECT count(*) FROM cache'), 2 * 4 * $each + 1 + 1000, 'all is there that was stored');
sql('GRANT TRUNCATE ON cache TO web');
is(mc_ask($c, "flush_all 2\r\n"), 'OK', 'a flush_all with a delay');
terminate($reaper);
wait_for('the table to be emptied', sub { sql('SELECT count(*) FROM cache') == 0 });
pass('... is done by the next reaper');

# while it has a table for itself, others leave that alone: as long as it is there
is(mc_ask($c, "set a 0 0 1\r\n1\r\n"), 'STORED', 'a table that is served');
my $s = $node->background_psql('postgres');
$s->query_safe('BEGIN; SELECT count(*) FROM cache');
is_back($reaper);
is(mc_ask($c, "flush_all 1\r\n"), 'OK', '... is to be emptied when no session uses it');
my $stopped = 0;
for (1 .. 500)
{
	my $pid = process($reaper);
	kill STOP => $pid;
	mc_send($c, "get a\r\n");
	if (!IO::Select->new($c->{s})->can_read(0.3)) { $stopped = $pid; last; }
	mc_line($c) for 1 .. 3;
	kill CONT => $pid;
	select undef, undef, undef, 0.01;
}
terminate($reaper, sub { kill CONT => $stopped }) if $stopped;
is($stopped ? mc_line($c) : 'VALUE a 0 1', 'VALUE a 0 1', '... is served again when a reaper is told to end that was about to do so');
if ($stopped) { mc_line($c) for 1, 2; }
$s->query_safe('COMMIT');
wait_for('the table to be emptied', sub { sql('SELECT count(*) FROM cache') == 0 });
$s->quit;

# ---- the buffer writer ----
SKIP:
{
	skip 'stop points need a test build', 2 unless has_faults($node);
	my $writer = 'kvfdw buffer writer';
	my $value = 'v' x 2000;
	worker_stop_points($node, 'buffer_before_write=wait');
	my $load = mc_connect($node);
	mc_send($load, join '', map { "set w$_ 0 0 2000\r\n$value\r\n" } 1 .. 1000);
	stopped($node, 'buffer_before_write');
	worker_stop_points($node, '');
	# it goes on until it looks
	terminate($writer, sub { go_on($node, 'buffer_before_write') });
	is(scalar(grep { mc_line($load) eq 'STORED' } 1 .. 1000), 1000, 'when a buffer writer is told to end while it is about to write, clients go on');
	sql("SELECT kvfdw_flush('cache')");
	is(sql("SELECT count(*) FROM cache WHERE key LIKE 'w%' AND value = decode(repeat('76', 2000), 'hex')"), 1000, '... and what it has left is written');
}
is(kv_check_clean($node, 'cache'), '', 'kvfdw_check finds nothing');
my $state = sql("SELECT count(*), md5(string_agg(key || md5(value), ' ' ORDER BY key)) FROM cache");
kill_all($node);
restart_killed($node);
is(sql("SELECT count(*), md5(string_agg(key || md5(value), ' ' ORDER BY key)) FROM cache"), $state, '... also after SIGKILL of all');
$node->stop;
done_testing();
