# What the tests of admission share: a cluster with few slots, sessions that do not
# wait for their answers, and holders.
#
# A holder must work: a slot whose holder waits for its client, a lock or a timer is
# lent.  Ours waits for its parallel worker, which counts as work and costs none: the worker
# waits for a lock, the door, until open_door, or somebody ends the holder.
package KvGate;
use strict;
use warnings;
use Exporter 'import';
use KvTest;
use KvWire;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(after_turn let_in gate_cluster session boss shut_door open_door hold waiting is_waiting pauses admission reload answered lines);

my ($node, $door);
my $doors = 0;

# Sessions of the role web may be paused; those of the superuser may not.
sub gate_cluster
{
	my ($name, %conf) = @_;
	$node = kv_cluster($name, 'kvfdw.admission_limit' => 1, 'kvfdw.admission_quota' => 1, 'kvfdw.admission_max_wait' => "'10min'",
		'kvfdw.admission_exempt_superusers' => 'on', 'kvfdw.admission_exempt_monitor' => 'on',
		max_prepared_transactions => 10, max_worker_processes => 24, max_parallel_workers => 8, %conf);
	$node->safe_psql('postgres', 'CREATE ROLE web LOGIN; CREATE TABLE t (k int PRIMARY KEY, v int); GRANT ALL ON t TO web; GRANT ALL ON SCHEMA public TO web');
	$node->safe_psql('postgres', q{
		CREATE TABLE hall (k int) WITH (parallel_workers = 2);
		INSERT INTO hall VALUES (0);
		GRANT SELECT ON hall TO PUBLIC;
		CREATE FUNCTION wait_at(door int) RETURNS bool LANGUAGE plpgsql PARALLEL SAFE COST 1000000
			AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(0, door); RETURN true; END';
		CREATE FUNCTION hold(door int) RETURNS void LANGUAGE plpgsql
			SET parallel_setup_cost = 0 SET parallel_tuple_cost = 0 SET parallel_leader_participation = off
			AS 'BEGIN PERFORM FROM hall WHERE wait_at(door + k); END'});
	# what the sessions before it have begun is over
	wait_for('the process', 180, sub { admission('pid') ne '' });
	return $node;
}

sub session
{
	my (%startup) = @_;
	local @ENV{qw(PGHOST PGPORT)} = ($node->host, $node->port);
	return KvWire->connect(user => 'web', database => 'postgres', %startup);
}

sub boss { return session(user => $node->safe_psql('postgres', 'SELECT current_user'), @_) }

sub shut_door
{
	$door = boss();
	$door->ask('BEGIN; SELECT pg_advisory_xact_lock(0, ' . ++$doors . ')');
	return $door;
}

# The last, or this one.
sub open_door { ($_[0] // $door)->ask('ROLLBACK'); return; }

# What a holder does; its door is the last one that was shut.
sub holding { return "SELECT hold($doors)" }

# Until it waits for its worker.
sub holds
{
	my ($session) = @_;
	return wait_for('a holder', 180, sub { $node->safe_psql('postgres', "SELECT wait_event FROM pg_stat_activity WHERE pid = $session->{pid}") eq 'ExecuteGather' });
}

# A session that has a slot until the door is open.
sub hold
{
	my $session = session(@_);
	$session->send(holding());
	holds($session);
	return $session;
}

# A session has had a turn after a pause that was much longer than its client's thought, and others want to
# work; returns it and who has the slot since then, until let_in.
sub after_turn
{
	my ($session, %startup) = @_;
	my $first = shut_door();
	my $before = hold();
	shut_door();
	my $begun = $session ? $session->{begun} : time;
	$session //= session(%startup);
	$session->send('LISTEN news; SELECT 0');
	waiting(1);
	sleep 3 * (time - $begun);
	my $holder = session();
	$holder->send(holding());
	waiting(2);
	$session->{begun} = time;
	open_door($first);
	lines($before);
	my $answer = lines($session);
	$answer eq 'tag LISTEN; row 0; tag SELECT 1' or die "the session that is to have a turn has the answer: $answer\n";
	my $gone = $before->{pid};
	undef $before;
	wait_for('its end', 180, sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $gone") == 0 });
	holds($holder);
	wait_for('the gate', 180, sub { answered($session) || $node->safe_psql('postgres', "SELECT wait_event_type IN ('Extension', 'Client') FROM pg_stat_activity WHERE pid = $session->{pid}") eq 't' });
	return ($session, $holder);
}

# The slot goes to the next.
sub let_in
{
	my ($holder) = @_;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($holder->{pid})");
	return;
}

sub admission { my ($column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM kvfdw_stat_admission"); }

# What a session that stands still in the gate shows: it is in the queue a moment before.
my $paused = q{state = 'idle' AND wait_event_type = 'Extension'};

sub waiting
{
	my ($n) = @_;
	return wait_for("$n paused sessions", 180, sub { admission("waiting = $n AND $n = (SELECT count(*) FROM pg_stat_activity WHERE $paused)") eq 't' });
}

# Does it stand there?
sub is_waiting
{
	my ($session) = @_;
	return $node->safe_psql('postgres', "SELECT $paused FROM pg_stat_activity WHERE pid = $session->{pid}") eq 't';
}

# The same, in a moment: what wakes it without ending its pause lets it wait again.
sub pauses
{
	my ($session) = @_;
	return eval { wait_for('a pause', 180, sub { is_waiting($session) }) };
}

# Change a setting, and wait until the process goes by it; undef: in another way.
sub reload
{
	my ($name, $value, $column, $expected) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.$name = $value");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	wait_for("$name = $value", 180, sub { admission($column) eq $expected }) if $column;
	return;
}

# The lines of the answer, which must come.
sub lines
{
	my ($session) = @_;
	$session->wait;
	return join('; ', splice(@{ $session->{lines} }));
}

# Is there an answer, or a part of it?
sub answered { my ($session) = @_; return KvWire::ready(0, $session) ? 1 : 0; }

1;
