# Promise: a paused session can be cancelled, ended and notified, sees reloads, blocks nobody,
# and is there only while there are more sessions that want to work than the limit allows.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvGate;

my $node = gate_cluster('gate', wal_level => 'replica', max_wal_senders => 4);
my $boss = boss();
my ($holder, $s, @s);
$boss->ask('CREATE TABLE counted (k int); GRANT ALL ON counted TO web');

# A session whose slot was lent while it was idle makes one more request without; then it stands in the gate.
sub go_to_gate { my ($session) = @_; $session->ask('SELECT 1'); return; }

# ---- the pause ----
shut_door();
$holder = hold();
$s = session();
$s->send('SELECT 42');
waiting(1);
ok(pauses($s), 'a session over the limit is idle and waits for the extension');
is(join(',', $boss->ask('SELECT 1')), 1, 'a superuser is not paused');
ok(!answered($s), 'the paused one has no answer yet');
is(admission("active || ' ' || waiting"), '1 1', 'the view counts both');
open_door();
is(lines($s), 'row 42; tag SELECT 1', 'it goes on when the slot is free');
is(lines($holder), 'row ; tag SELECT 1', '... and the holder has its answer');

# ---- cancel ----
shut_door();
$holder = hold();
$s = session();
my $cancelled = 'ERROR 57014: canceling statement due to user request';

sub cancel_paused
{
	my ($session) = @_;
	waiting(1);
	$boss->ask("SELECT pg_cancel_backend($session->{pid})");
	return lines($session);
}
$boss->ask("SELECT pg_cancel_backend($s->{pid})");
$s->send('SELECT 1');
is(cancel_paused($s), $cancelled, 'a paused SELECT can be cancelled while the slot is held');
$s->send('INSERT INTO t VALUES (1, 1)');
is(cancel_paused($s), $cancelled, '... an INSERT');
$s->send('CREATE TABLE never ()');
is(cancel_paused($s), $cancelled, '... a statement that changes definitions');
my ($parse, $bind, $execute, $sync) = (sub { my $b = "$_[0]\0$_[1]\0" . pack('n', 0); 'P' . pack('N', 4 + length $b) . $b },
	sub { my $b = "\0$_[0]\0" . pack('nnn', 0, 0, 0); 'B' . pack('N', 4 + length $b) . $b },
	sub { my $b = "\0" . pack('N', 0); 'E' . pack('N', 4 + length $b) . $b }, 'S' . pack('N', 4));
$s->put($parse->('', 'SELECT 7') . $bind->('') . $execute->() . $sync);
is(cancel_paused($s), $cancelled, '... one of the extended protocol');
$s->put($parse->('', 'SELECT 7') . $sync);
is(cancel_paused($s), $cancelled, '... one that is only parsed');
$s->put($sync);
is(cancel_paused($s), '', '... where there is no statement, nothing fails');
$s->send('SELECT 7');
waiting(1);
open_door();
lines($holder);
is(lines($s), 'row 7; tag SELECT 1', '... nor does the next one');
$s->put($parse->('create', 'CREATE TABLE never ()') . $sync);
lines($s);
$s->put($parse->('select', 'SELECT 8') . $sync);
lines($s);
$s->put($parse->('insert', 'INSERT INTO t VALUES (1, 1)') . $sync);
lines($s);
shut_door();
$holder = hold();
go_to_gate($s);
$s->put($bind->('select') . $execute->() . $sync);
is(cancel_paused($s), $cancelled, '... a prepared SELECT');
$s->put($bind->('insert') . $execute->() . $sync);
is(cancel_paused($s), $cancelled, '... a prepared INSERT');
$s->put($bind->('create') . $execute->() . $sync);
is(cancel_paused($s), $cancelled, '... a prepared statement that changes definitions');
my $call = pack('Nnnn', 1598, 0, 0, 0);    # random()
$s->put('F' . pack('N', 4 + length $call) . $call);
is(cancel_paused($s), $cancelled, '... a function call');
$s->send('SELECT 9');
waiting(1);
open_door();
is(lines($s), 'row 9; tag SELECT 1', 'the session goes on after that');
lines($holder);
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'and nothing cancelled was done');
$boss->ask("SELECT pg_cancel_backend($s->{pid})");
$s->send('SELECT 10');
is(lines($s), 'row 10; tag SELECT 1', 'a cancel that comes while the client is idle cancels nothing');

# ---- the end of a session ----
shut_door();
$holder = hold();
$s = session();
$s->send('SELECT 1');
waiting(1);
$boss->ask("SELECT pg_terminate_backend($s->{pid})");
is(eval { lines($s); 1 } // $@, "the server closed the connection: FATAL 57P01: terminating connection due to administrator command\n", 'a paused session can be ended')
  or diag $@;
waiting(0);
$s = session();
$s->send('INSERT INTO t VALUES (2, 2)');
waiting(1);
close $s->{socket};
waiting(0);
wait_for('the row', 180, sub { $node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 2') == 1 });
pass('a client that sends and goes leaves the queue; its statement is executed, as it is elsewhere');

# ---- what an idle session does ----
open_door();
lines($holder);
$boss->ask('ALTER ROLE web SET log_min_messages = debug4');
$s = session();
$boss->ask('ALTER ROLE web RESET log_min_messages');
$s->ask('LISTEN news');
shut_door();
$s->ask("INSERT INTO counted VALUES ($_)") for 1 .. 50;
$holder = hold();
$s->ask('INSERT INTO counted VALUES (51)');
wait_for('counters', 180, sub { $node->safe_psql('postgres', q{SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'counted'}) == 51 });
pass('an idle session in the gate reports what it has counted');
$boss->ask("NOTIFY news, 'one'");
$s->receive;
is(join(';', splice @{ $s->{lines} }), 'notify news one', 'an idle session in the gate is notified');
$s->send('SELECT 11');
waiting(1);
$boss->ask("NOTIFY news, 'two'");
$s->receive;
is(join(';', splice @{ $s->{lines} }), 'notify news two', '... and a paused one');
ok(pauses($s), '... which remains paused');
my $caught_up = sub { scalar(() = slurp_file($node->logfile) =~ /\[$s->{pid}\].*DEBUG:  sinval catchup complete/g) };
my $before = $caught_up->();
wait_for('the catchup', 180, sub { $boss->ask('DO $$ BEGIN FOR i IN 1 .. 200 LOOP CREATE TABLE much (); DROP TABLE much; END LOOP; END $$'); $caught_up->() > $before });
pass('... takes in changes of the catalog');
$boss->ask('CREATE DATABASE other');
$boss->ask('DROP DATABASE other');
pass('DROP DATABASE waits for no paused session');
open_door();
is(lines($s), 'row 11; tag SELECT 1', 'it goes on');
lines($holder);
$s = session(options => '-c idle_session_timeout=300');
eval { $s->receive while 1; };
like($@, qr/FATAL 57P05/, 'idle_session_timeout ends a session in the gate');
shut_door();
$holder = hold();
# a client that is slow to send is ended before it is paused: another one, with more time
for (my $ms = 300; $ms < 100_000; $ms *= 4)
{
	local $SIG{PIPE} = 'IGNORE';
	$s = eval { my $new = session(options => "-c idle_session_timeout=$ms"); $new->send('SELECT 12'); $new } or next;
	wait_for('a pause or the end', 180, sub { admission('waiting') == 1 || answered($s) });
	next if answered($s);
	$boss->ask("SELECT pg_sleep(0.002 * $ms)");
	last;
}
ok(pauses($s), '... and no paused one');
open_door();
is(lines($s), 'row 12; tag SELECT 1', '... which gets its answer');
lines($holder);

# ---- who is not paused ----
shut_door();
$holder = hold();
$boss->ask('CREATE ROLE heavy LOGIN; ALTER ROLE heavy SET kvfdw.admission_weight = 0; CREATE ROLE watch LOGIN; GRANT pg_monitor TO watch');
is(join(',', session(user => $_)->ask('SELECT 1')), 1, "a session of the role $_ is not paused") for qw(heavy watch);
$boss->ask('CREATE ROLE copy LOGIN REPLICATION');
like(join(',', session(user => 'copy', replication => 'true')->ask('IDENTIFY_SYSTEM')), qr/^\d+\|/, 'nor is a WAL sender');
open_door();
lines($holder);
$s = session();
$s->ask('SELECT pg_advisory_lock(1)');
my $t = session();
$t->ask('BEGIN');
shut_door();
$holder = hold();
is(join(',', map { $s->ask("SELECT $_") } 1 .. 3), '1,2,3', 'one that holds an advisory lock is not paused');
is(join(',', map { $t->ask("SELECT $_") } 1 .. 3), '1,2,3', 'nor one in a transaction');
$s->ask('SELECT pg_advisory_unlock(1)');
$t->ask('COMMIT');
$_->send('SELECT 5') for $s, $t;
waiting(2);
pass('both are, once that is over');

# ---- many paused sessions hold nothing ----
push @s, session() for 1 .. 20;
$_->send('SELECT count(*) FROM t') for @s;
waiting(22);
$boss->ask($_) for 'ALTER TABLE t ADD COLUMN w int', 'VACUUM FULL t', 'TRUNCATE t', 'REINDEX TABLE t';
pass('statements that lock a table wait for no paused session');

# ---- reload ----
reload('admission_limit', 5, 'session_limit', 5);
is(join(',', grep { $_ ne 'row 0; tag SELECT 1' } map { lines($_) } @s), '', 'a higher limit admits paused sessions');
lines($_) for $s, $t;
reload('admission_limit', 1, 'session_limit', 1);
$s = session();
$s->send('SELECT 6');
waiting(1);
reload('admission_limit', -1, 'session_limit', '');
is(lines($s), 'row 6; tag SELECT 1', 'switched off, a paused session goes on');
wait_for('the process to end', 180, sub { admission('pid') eq '' });
is(admission('waiting'), 0, '... and nobody waits');
reload('admission_limit', 1);
wait_for('the process to begin', 180, sub { $boss->ask('SELECT 1'); admission('session_limit') eq '1' });
go_to_gate($s);
$s->send('SELECT 7');
waiting(1);
pass('switched on again, sessions from before are paused too');
# also if the session hears of the change before the process does
my $worker = admission('pid');
kill 'STOP', $worker;
reload('admission_max_wait', "'50ms'");
kill 'CONT', $worker;
is(lines($s), 'row 7; tag SELECT 1', 'after admission_max_wait a session goes on');
cmp_ok(admission('overdue'), '>=', 1, '... and is counted');
reload('admission_max_wait', "'10min'");
open_door();
lines($holder);

# ---- a lower limit ----
reload('admission_limit', 2, 'session_limit', 2);
reload('admission_quota', 64, 'quota', 64);
undef $_ for $s, $t, $holder;
@s = ();
wait_for('sessions to end', 60, sub { admission("active || ' ' || waiting || ' ' || lent") eq '0 0 0' });
@s = (session(), session());
sub work_on { for my $s (@s) { $s->send('SELECT 1') unless $s->{busy}; } $_->receive for KvWire::ready(0.01, @s); return; }
wait_for('two holders', 180, sub { work_on(); admission('active') == 2 });
reload('admission_limit', 1, 'session_limit', 1);
# counted: where this client is slow, a session is soon let in again in place of the other, which waits for it
my $pauses = q{(SELECT sum(pauses) FROM kvfdw_stat_admission_roles)};
my $paused = admission($pauses);
wait_for('a pause', 300, sub { work_on() for 1 .. 20; admission($pauses) > $paused });
pass('two busy sessions go by a lower limit at once, though nobody waited and their turns were long');
$_->wait for @s;

# ---- nothing is left ----
undef $_ for @s, $s, $t, $holder;
@s = ();
wait_for('sessions to end', 180, sub { admission("active || ' ' || waiting || ' ' || lent") eq '0 0 0' });
pass('no slot is taken when no session is left');
is($node->safe_psql('postgres', "SELECT sessions FROM kvfdw_stat_admission_roles WHERE role = 'web'"), 0, 'the roles that were there are still shown');
$node->stop;
done_testing();
