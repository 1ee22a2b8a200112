# Promise: clients that wait for each other never stand still, and no slot is lost when a session,
# its holder or the process ends in whatever way.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvGate;

# one slot; a pause that nothing ends makes the test time out
my $node = gate_cluster('lent', wal_level => 'replica', max_wal_senders => 4);
my $boss = boss();

sub nothing_is_left
{
	my ($what) = @_;
	wait_for("sessions to end: $what", 180, sub { admission("active || ' ' || waiting || ' ' || lent") eq '0 0 0' });
	return pass("$what: no slot is taken when no session is left");
}

# A session that has a slot and waits for what the class of wait events, a pattern, says.  It is a new one:
# one whose slot was lent while it was idle would make a request without.
sub blocked
{
	my ($sql, $class) = @_;
	my $session = session();
	$session->send($sql);
	wait_for("a wait of class $class", 60, sub { $node->safe_psql('postgres', "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $session->{pid}") =~ /^$class$/ });
	return $session;
}

sub cancel { my ($session) = @_; $boss->ask("SELECT pg_cancel_backend($session->{pid})"); return lines($session); }

# ---- one program with two connections ----
{
	my ($one, $two) = (session(), session());
	$one->ask('INSERT INTO t VALUES (1, 1)');
	$one->ask('BEGIN; UPDATE t SET v = 2 WHERE k = 1');
	is(join(',', map { $two->ask("SELECT $_") } 1 .. 3), '1,2,3', 'a second connection works while the first is idle in a transaction');
	$two->send('UPDATE t SET v = 3 WHERE k = 1; SELECT 4');
	$one->ask('COMMIT');
	is(lines($two), 'tag UPDATE 1; row 4; tag SELECT 1', '... and waits for its row lock no longer than that');
	$one->ask('BEGIN');
	$two->ask('BEGIN');
	my @first = map { $_->ask('SELECT count(*) FROM t') } $one, $two;
	is("@first", '1 1', 'both may be in a transaction');
	$_->ask('COMMIT') for $one, $two;
}
nothing_is_left('two connections');

# ---- a lock whose owner needs a slot ----
{
	my $one = session();
	$one->ask('BEGIN; UPDATE t SET v = 3 WHERE k = 1');
	$one->ask(q{PREPARE TRANSACTION 'p'});
	my $two = blocked('UPDATE t SET v = v + 1 WHERE k = 1', 'Lock');
	my $three = session();
	$three->send(q{COMMIT PREPARED 'p'});
	is(lines($three), 'tag COMMIT PREPARED', 'a holder that waits for a lock lets in who ends the wait');
	is(lines($two), 'tag UPDATE 1', '... and goes on');
	$one->ask('SELECT pg_advisory_lock(1)');
	$two = blocked('SELECT pg_advisory_lock(1)', 'Lock');
	is(join(',', session()->ask('SELECT 5')), 5, 'likewise for an advisory lock');
	$one->ask('SELECT pg_advisory_unlock(1)');
	lines($two);
}
nothing_is_left('locks');

# ---- other waits ----
{
	my $two = blocked('SELECT pg_sleep(100000)', 'Timeout');
	is(join(',', session()->ask('SELECT 5')), 5, 'one that sleeps lends');
	cancel($two);
	my $one = session();
	$boss->ask('CREATE TABLE pinned (k int); ALTER TABLE pinned OWNER TO web; INSERT INTO pinned VALUES (1), (2)');
	$one->ask('BEGIN; DECLARE c CURSOR FOR SELECT * FROM pinned; FETCH c');
	$two = blocked('VACUUM (FREEZE) pinned', 'Buffer(Pin)?');
	is(join(',', session()->ask('SELECT 5')), 5, 'one that waits for a buffer that another has pinned lends');
	$one->ask('COMMIT');
	lines($two);
	$boss->ask($_) for q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'}, 'SELECT pg_reload_conf()';
	wait_for('the setting', 180, sub { join('', $boss->ask('SHOW synchronous_standby_names')) eq 'nobody' });
	$two = blocked('INSERT INTO t VALUES (100, 1)', 'IPC');
	is(join(',', session()->ask('SELECT 5')), 5, 'one that waits for a synchronous standby lends');
	$boss->ask($_) for 'ALTER SYSTEM RESET synchronous_standby_names', 'SELECT pg_reload_conf()';
	lines($two);
	my $writer = boss();
	$writer->ask('BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO t VALUES (101, 1)');
	$two = blocked('BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1; COMMIT', 'IPC');
	is(join(',', session()->ask('SELECT 5')), 5, 'one that waits for a safe snapshot lends');
	$writer->ask('ROLLBACK');
	lines($two);
	undef $_ for $one, $two;
	SKIP:
	{
		skip 'needs a build with FAULTS=1', 1 unless has_faults($node);
		$boss->ask($_) for kv_table('kv', 'k int NOT NULL', 'k'), 'GRANT ALL ON kv TO web', q{ALTER ROLE web SET kvfdw.stop_points = 'write_done=wait'};
		$two = blocked('INSERT INTO kv VALUES (1)', 'Extension');
		stopped($node, 'write_done');    # a pause is a wait of that class, too
		$boss->ask('ALTER ROLE web RESET kvfdw.stop_points');
		is(join(',', session()->ask('SELECT 5')), 5, 'one that waits for an extension lends');
		go_on($node, 'write_done');
		lines($two);
	}
}
nothing_is_left('other waits');

# ---- while slots change hands ----
{
	reload('admission_limit', 2, 'session_limit', 2);
	$boss->ask('SELECT pg_advisory_lock(2)');
	my $two = blocked('SELECT pg_advisory_lock(2)', 'Lock');
	my @busy = map { session() } 1 .. 3;
	wait_for('the slot', 180, sub
	{
		for (1 .. 100)
		{
			for (@busy) { $_->send('SELECT 1') unless $_->{busy}; }
			$_->receive for KvWire::ready(1, @busy);
		}
		return admission('active') == 2 && admission('lent') == 1;
	});
	pass('a holder that waits for a lock lends in the end though others work');
	$_->wait for @busy;
	$boss->ask('SELECT pg_advisory_unlock(2)');
	lines($two);
	reload('admission_limit', 1, 'session_limit', 1);
}
nothing_is_left('slots that change hands');

# ---- clients that do not take their rows, or do not send theirs ----
{
	my ($one, $two) = (session(), session());
	$one->send('SELECT repeat($$x$$, 1000) FROM generate_series(1, 20000)');
	is(join(',', $two->ask('SELECT 6')), 6, 'a holder whose client does not read lends');
	like(lines($one), qr/tag SELECT 20000$/, '... and its client has all rows');
	$one->put('Q' . pack('N', 4 + 18) . "COPY t FROM STDIN\0");
	is(join(',', $two->ask('SELECT 7')), 7, 'one whose client does not send likewise');
	my $data = "10\t10\n";
	$one->put('d' . pack('N', 4 + length $data) . $data . 'c' . pack('N', 4));
	is(lines($one), 'tag COPY 1', '... and its COPY is whole');
}
nothing_is_left('slow clients');

# ---- the process ends ----
sub worker { return admission('pid') }
shut_door();
my $holder = hold();
my $s = session();
$s->send('SELECT 8');
waiting(1);
my $old = worker();
kill 'TERM', $old;
is(lines($s), 'row 8; tag SELECT 1', 'a paused session goes on when the process ends');
wait_for('another process', 180, sub { worker() !~ /^(|$old)$/ && admission('session_limit') eq '1' });
pass('... which is started again');
open_door();
lines($holder);
undef $_ for $s, $holder;
nothing_is_left('the process has ended');

for my $victim ('the process', 'a holder', 'a paused session')
{
	shut_door();
	$holder = hold();
	my @s = (session(), session());
	$_->send('SELECT 9') for @s;
	waiting(2);
	kill_process($victim eq 'the process' ? worker() : $victim eq 'a holder' ? $holder->{pid} : $s[0]{pid});
	ok(!eval { lines($s[1]); 1 }, "SIGKILL of $victim ends all sessions");
	undef $_ for @s, $holder;
	@s = ();
	wait_for('the server', 180, sub { my ($rc) = $node->psql('postgres', 'SELECT 1'); $rc == 0 });
	wait_for('the process', 180, sub { admission('session_limit') eq '1' });
	$s = session();
	is(join(',', $s->ask('SELECT 10')), 10, '... and admission is there again');
	undef $s;
	nothing_is_left("after SIGKILL of $victim");
}

# ---- the postmaster is killed ----
shut_door();
$holder = hold();
my @last = (session(), session());
$last[0]->send('SELECT 11');
waiting(1);
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
kill 'KILL', $postmaster;
wait_for('sessions to end', sub { !grep { KvTest::running($_->{pid}) } $holder, @last });
pass('without a postmaster a paused session ends, and one in the gate');
kill_all($node);
done_testing();
