# Promise: a session whose client is quick queues before its next request is there; if none comes the
# turn goes to the next at once, and it does not do so again soon; all that holds for a paused session holds.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvGate;

my $node = gate_cluster('advance');
my $boss = boss();
my ($s, $holder);

sub missed { return admission('missed_turns') }
sub end_of { my ($session) = @_; eval { $session->receive while 1 }; return $@; }

# What has been sent to it before has been served.
sub notified
{
	my ($session, @words) = @_;
	for (@words) { $boss->ask("NOTIFY news, '$_'"); $session->receive; }
	return join(';', splice @{ $session->{lines} });
}

# A session with a time-out for idle ones: longer, if it has ended before what is then done.
sub patient
{
	my ($do) = @_;
	local $SIG{PIPE} = 'IGNORE';
	for (my $ms = 1000; $ms < 20_000; $ms *= 4)
	{
		($s, $holder) = eval { after_turn(undef, options => "-c idle_session_timeout=$ms") } or next;
		return if $do->($ms);
	}
	die "it is always ended before\n";
}

# ---- the request comes in time ----
($s, $holder) = after_turn();
is(admission("active || ' ' || waiting"), '1 1', 'it is in the queue');
my $pauses = admission('pauses');
$boss->ask("SELECT pg_cancel_backend($s->{pid})");
is(notified($s, 'one', 'two'), 'notify news one;notify news two', 'it is notified');
ok(is_waiting($s), 'a cancel that comes before the request is for nothing');
$s->send('SELECT 1');
is(notified($s, 'three'), 'notify news three', '... nor for the one that follows');
let_in($holder);
is(lines($s), 'row 1; tag SELECT 1', 'a request that is there when its turn comes is executed');
is(admission("pauses - $pauses || ' ' || missed_turns"), '1 0', '... after a pause, and no turn was missed');
($s, $holder) = after_turn();
$s->put('Q' . pack('N', 4 + 11) . 'SELECT');
let_in($holder);
wait_for('its turn', 180, sub { !is_waiting($s) });
$s->put(" 21;\0");
is(lines($s), 'row 21; tag SELECT 1', 'a part of a request is one that is there');

# ---- a cancel, the time-out of idle sessions ----
($s, $holder) = after_turn();
$s->send('SELECT 2');
$boss->ask("SELECT pg_cancel_backend($s->{pid})");
is(lines($s), 'ERROR 57014: canceling statement due to user request', 'a cancel that comes after the request ends the pause');
let_in($holder);
{
	patient(sub { my ($ms) = @_; return if !eval { $s->send('SELECT 3'); 1 }; $boss->ask("SELECT pg_sleep(0.0015 * $ms)"); return !answered($s) });
	ok(pauses($s), 'idle_session_timeout ends none whose request is there');
	let_in($holder);
	is(lines($s), 'row 3; tag SELECT 1', '... which has its answer');
	patient(sub { return 1 });
	like(end_of($s), qr/FATAL 57P05/, '... but one whose client is idle');
	waiting(0);
	let_in($holder);
}

# ---- the end of a session ----
($s, $holder) = after_turn();
$boss->ask("SELECT pg_terminate_backend($s->{pid})");
like(end_of($s), qr/FATAL 57P01/, 'it can be ended');
waiting(0);
let_in($holder);
($s, $holder) = after_turn();
close $s->{socket};
waiting(0);
pass('it leaves the queue when its client goes');
let_in($holder);
is(missed(), 0, 'none of them has missed a turn');

# ---- a missed turn ----
($s, $holder) = after_turn();
my $t = session();
$t->send('SELECT 4');
waiting(2);
let_in($holder);
is(lines($t), 'row 4; tag SELECT 1', 'a turn that finds no request goes to the next');
is(missed(), 1, '... and is counted');
undef $t;
($s, $holder) = after_turn($s);
ok(is_waiting($s), 'after a quick request it queues in advance again');
let_in($holder);
wait_for('a missed turn', 180, sub { missed() == 2 });
($s, $holder) = after_turn($s);
ok(!is_waiting($s), '... not so after the second turn that was missed');
let_in($holder);
undef $s;

($s, $holder) = after_turn();
reload('admission_max_wait', "'50ms'");
wait_for('a missed turn', 180, sub { missed() == 3 });
waiting(0);
is(admission('overdue'), 0, 'admission_max_wait ends no pause where there is no request');
reload('admission_max_wait', "'10min'");
let_in($holder);

# ---- who may not ----
($s, $holder) = after_turn();
$s->send('SELECT pg_advisory_lock(1)');
$t = session();
$t->send(KvGate::holding());
waiting(2);
let_in($holder);
lines($s);
KvGate::holds($t);
is(is_waiting($s) ? 'it waits' : join(',', map { $s->ask("SELECT $_") } 6 .. 8), '6,7,8', 'one that holds an advisory lock neither queues nor pauses');
let_in($t);
undef $_ for $s, $t;

# ---- switched off ----
($s, $holder) = after_turn();
reload('admission_limit', -1, 'session_limit', '');
waiting(0);
is(join(',', map { $s->ask("SELECT $_") } 9 .. 11), '9,10,11', 'switched off, it works as before');
let_in($holder);
is(missed(), 3, '... and has missed no turn');

undef $_ for $s, $holder;
wait_for('sessions to end', 180, sub { admission("active || ' ' || waiting || ' ' || lent") eq '0 0 0' });
pass('no slot is taken when no session is left');
$node->stop;
done_testing();
