#!/usr/bin/perl
# Promise: whatever clients do, wait for, break off or are killed in, under admission no session
# pauses longer than kvfdw.admission_max_wait, every request is answered, and no slot is lost.
#
#   crowd.pl [--rounds N | --seconds N] [--round-seconds N] [--seed N] [--clients N]
#            [--kills N] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .).  Clients change a few hot
# rows of a heap and a kvfdw table in transactions of several statements, with pauses in them,
# some on two connections, take advisory locks, prepare transactions, send several requests at
# once, notify, cancel and end each other, and go away in the middle of a request.  Limit and
# quota change all the time, and are switched off; the server is killed.  After each round, when
# all have gone, the view must have no slot taken and no session waiting.  Prints TAP, one test per
# round, with the seed that repeats the round's choices.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvCampaign;
use KvWire;
use Time::HiRes qw(sleep);

my $option = options('crowd', %contest, 'clients=i' => 16, 'kills=i' => 1);

# A pause may be longer than the setting by what the machine needs to run who has waited:
# a sleeper tells how long that takes.
my ($max_wait, $slack, $patience) = (2, 3, 180);
my $rows = 4;

# ---- a client ----

# The answer, or die: gone if the connection is, and else because there is none.
sub answer
{
	my ($session) = @_;
	my $until = now() + $patience;
	while ($session->{busy})
	{
		die "no answer after $patience s: $session->{last}\n" if now() > $until;
		$session->receive if KvWire::ready(1, $session);
	}
	return splice @{ $session->{lines} };
}

sub ask
{
	my ($session, $sql) = @_;
	$session->{last} = $sql;
	$session->send($sql);
	return answer($session);
}

sub hot { return 'k = ' . int rand $rows }
sub table { return rand() < 0.5 ? 'h' : 'a' }

# Several statements, with or without a thought between them; in a random end.
sub transaction
{
	my ($session) = @_;
	ask($session, 'BEGIN');
	for (0 .. rand 3)
	{
		my @lines = ask($session, 'UPDATE ' . table() . ' SET n = n + 1 WHERE ' . hot());
		last if grep { /^ERROR/ } @lines;
		sleep rand 0.1 if rand() < 0.2;
	}
	my $name = "crowd-$$-" . int rand 1e9;
	my $end = rand();
	if ($end < 0.1 && !grep { /^ERROR/ } ask($session, "PREPARE TRANSACTION '$name'")) { ask($session, rand() < 0.5 ? "COMMIT PREPARED '$name'" : "ROLLBACK PREPARED '$name'") }
	else { ask($session, $end < 0.8 ? 'COMMIT' : 'ROLLBACK') }
	return;
}

# The first has a lock while the second works: only a lent slot lets both go on.
sub two_connections
{
	my ($one, $connect) = @_;
	my $two = $connect->();
	ask($one, 'BEGIN; UPDATE h SET n = n + 1 WHERE ' . hot());
	ask($two, 'SELECT count(*) FROM a');
	ask($two, 'INSERT INTO notes VALUES (1)');
	ask($one, 'COMMIT');
	return;
}

# Several requests, and then their answers.
sub at_once
{
	my ($session) = @_;
	my $number = 1 + int rand 6;
	my ($want, $until) = ($session->{answers} + $number, now() + $patience);
	for (1 .. $number)
	{
		my $sql = 'UPDATE ' . table() . ' SET n = n + 1 WHERE ' . hot();
		$session->put('Q' . pack('N', 5 + length $sql) . "$sql\0");
	}
	while ($session->{answers} < $want)
	{
		die "no answer after $patience s: one of $number requests\n" if now() > $until;
		$session->receive if KvWire::ready(1, $session);
	}
	@{ $session->{lines} } = ();
	return;
}

sub client
{
	my ($end) = @_;
	my ($session, %did, $error);
	local $SIG{PIPE} = 'IGNORE';
	my $connect = sub { return KvWire->connect(user => (qw(web web gold))[ rand 3 ], database => 'postgres') };
	my @deeds = (
		[ select => 20, sub { ask($session, 'SELECT sum(n) FROM ' . table()) } ],
		[ update => 20, sub { ask($session, 'UPDATE ' . table() . ' SET n = n + 1 WHERE ' . hot()) } ],
		[ transaction => 30, sub { transaction($session) } ],
		[ 'two connections' => 6, sub { two_connections($session, $connect) } ],
		[ 'at once' => 6, sub { at_once($session) } ],
		[ 'advisory lock' => 5, sub { ask($session, 'SELECT pg_advisory_lock(1)'); ask($session, 'UPDATE h SET n = n + 1 WHERE ' . hot()); ask($session, 'SELECT pg_advisory_unlock_all()') } ],
		[ notify => 4, sub { ask($session, 'LISTEN crowd'); ask($session, 'NOTIFY crowd') } ],
		[ sleep => 3, sub { ask($session, 'SELECT pg_sleep(0.1)') } ],
		[ think => 5, sub { sleep rand 0.2 } ],
		[ DDL => 1, sub { ask($session, 'ALTER TABLE notes ALTER COLUMN n SET DEFAULT 0') } ],
		[ leave => 3, sub { $session->send('UPDATE h SET n = n + 1 WHERE ' . hot()); undef $session } ],
		[ 'leave a transaction' => 2, sub { ask($session, 'BEGIN; UPDATE h SET n = n + 1 WHERE ' . hot()); undef $session } ]);
	while (now() < $end)
	{
		my $number = rand 105;
		my ($deed) = grep { ($number -= $_->[1]) < 0 } @deeds;
		eval {
			$session //= $connect->();
			$deed->[2]->();
			$did{ $deed->[0] }++;
			1;
		} and next;
		undef $session;

		# only a connection that is gone is no wonder
		if ($@ =~ /no answer/) { $error = "$deed->[0]: $@"; last }
		sleep 0.05;
	}
	return { did => \%did, $error ? (error => $error) : () };
}

# One that cancels and ends the others.
sub bully
{
	my ($end) = @_;
	while (now() < $end)
	{
		my $how = rand() < 0.8 ? 'pg_cancel_backend' : 'pg_terminate_backend';
		query("SELECT $how(pid) FROM (SELECT pid FROM pg_stat_activity WHERE usename IN ('web', 'gold') ORDER BY random() LIMIT 1) s");
		sleep rand 0.2;
	}
	return {};
}

# One that only sleeps, and sees how much too late it is woken.
sub sleeper
{
	my ($end) = @_;
	my $late = 0;
	while (now() < $end)
	{
		my $until = now() + 0.02;
		sleep 0.02;
		$late = now() - $until if now() - $until > $late;
	}
	return { late => $late };
}

# ---- a round ----

my $late = 0;    # at worst, in all rounds: the server's longest pause is of all rounds, too

sub change_settings
{
	my $limit = (1, 1, 1, 2, 2, 2, 3, 4, 6, 0, -1)[ rand 11 ];
	my $quota = (0, 1, 1, 4)[ rand 4 ];
	query("ALTER SYSTEM SET kvfdw.admission_limit = $limit") && query("ALTER SYSTEM SET kvfdw.admission_quota = $quota") && query('SELECT pg_reload_conf()');
	return;
}

sub play
{
	my ($round) = @_;
	my ($results, $story, $wrong) = contest($round->{kills}, \&change_settings, \&sleeper, \&bully, (\&client) x $option->{clients});
	my @wrong = @$wrong;
	my (%did, $last);
	for my $result (@$results) { $did{$_} += $result->{did}{$_} for keys %{ $result->{did} // {} } }

	# prepared transactions that are not ended keep their locks
	query($_) for map { "ROLLBACK PREPARED '$_'" } @{ query('SELECT gid FROM pg_prepared_xacts') // [] };
	my $until = now() + 180;
	do
	{
		sleep 0.1;
		$last = (query(q{SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename IN ('web', 'gold')) || ' sessions, ' || active || ' active, ' || waiting || ' waiting, ' || lent || ' lent' FROM kvfdw_stat_admission}) // ['no answer'])->[0];
	} until $last eq '0 sessions, 0 active, 0 waiting, 0 lent' || now() > $until;
	push @wrong, "when all have gone there are $last" if $last !~ /^0 sessions, 0 active, 0 waiting, 0 lent/;
	my $row = (query('SELECT requests, pauses, overdue, max_pause_time FROM kvfdw_stat_admission') // [''])->[0];
	my ($requests, $pauses, $overdue, $longest) = split /\|/, $row;
	$late = $results->[0]{late} if ($results->[0]{late} // 0) > $late;
	push @wrong, sprintf 'a session has paused for %s ms, a sleeper %.0f ms too long', $longest // '?', 1000 * $late
	  if !defined $longest || $longest > 1000 * ($max_wait + $slack + 10 * $late);
	push @wrong, 'the counts of requests are short' if ($pauses // 0) > ($requests // 0) + 1000;
	my $deeds = 0;
	$deeds += $_ for values %did;
	return (sprintf('%d deeds, %d pauses since the last kill, %d overdue, longest %d ms%s', $deeds, $pauses // 0, $overdue // 0, $longest // 0, @$story ? ', ' . join ', ', @$story : ''), @wrong);
}

server_make('kvfdw.admission_limit' => 2, 'kvfdw.admission_quota' => 1, 'kvfdw.admission_max_wait' => "${max_wait}s", 'kvfdw.admission_sample' => '200ms',
	statement_timeout => '8s', max_connections => 100, max_worker_processes => 16, fsync => 'off');
query(join '; ', 'CREATE ROLE web LOGIN', 'CREATE ROLE gold LOGIN', 'ALTER ROLE gold SET kvfdw.admission_weight = 4', table_of_kind('heap', 'h', 'k bigint, n bigint', 'k'),
	table_of_kind('kvfdw', 'a', 'k bigint NOT NULL, n bigint', 'k', 1), 'CREATE TABLE notes (n int)',
	(map { "INSERT INTO $_ SELECT g, 0 FROM generate_series(0, $rows - 1) g" } qw(h a)), 'GRANT ALL ON h, a, notes TO web, gold', 'GRANT web TO gold', 'ALTER TABLE notes OWNER TO web')
  // die "the tables cannot be made\n";
# a killed server forgets its counters: two of three rounds are without
exit campaign(rounds => 3, play => \&play, choose => sub { return { $_[0] % 3 == 0 ? () : (kills => 0) } });
