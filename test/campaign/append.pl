#!/usr/bin/perl
# Promise: concurrent transactions on a table show only what their isolation
# level allows, and SIGKILL at any moment takes back no acknowledged one and
# leaves no part of another (test/perl/KvHistory.pm is the judge).
#
#   append.pl [--rounds N | --seconds N] [--round-seconds N] [--seed N] [--clients N]
#             [--kind heap|kvfdw] [--level LEVEL] [--kills N] [--no-control] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .).  Each
# round has a fresh table; clients append integers to lists and read lists, in
# transactions, while the server is killed; then the round's history is judged.
# The levels take turns, unless --level names one.  The first rounds are the
# control: on heap, with appends made of a read and a write by the client, the
# judge must find what READ COMMITTED and REPEATABLE READ allow.  Prints TAP,
# one test per round, with the seed that repeats the round's choices.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvCampaign;
use KvHistory qw(check forbidden);
use Storable qw(store);
use Time::HiRes qw(sleep);

my $option = options('append', %contest, 'kind=s' => 'kvfdw', 'level=s' => '', 'control!' => 1);
my $clients = $option->{clients};
my $width = 6;    # lists that are written at a time

# An integer as it stands in a list, sometimes with much after it; and back.
sub token { my ($x) = @_; return $x . 'x' x ($x % 331 == 0 ? 5000 : $x % 41 == 0 ? 700 : 0) }

sub list
{
	my ($text) = @_;
	my @x = map { /^(\d+)/ ? $1 : -1 } split /,/, $text;
	die "damaged list: $text\n" if join(',', map { token($_) } @x) ne $text;
	return \@x;
}

# ---- a client: transactions until the time is over ----

sub client
{
	my ($c, $round, $end) = @_;
	my ($number, $next, @history, $session, $t) = (0, 0);
	my ($level, $isolated) = ($round->{level}, $round->{level} ne 'read committed');
	my $do = sub { return $session->do(@_) };
	my %tail;    # own integers at the ends of lists
	my $read = sub {
		my ($where, @keys) = @_;
		my $start = $isolated ? $t->{begin} : now();
		my ($rows) = $do->("SELECT k, v FROM t WHERE $where");
		my %found = map { my ($k, $v) = split /\|/; $k => list($v) } @$rows;
		push @{ $t->{ops} }, [ 'r', $_, $found{$_} // [], [ @{ $tail{$_} // [] } ], $start ] for @keys;
		return exists $found{ $keys[0] } ? $found{ $keys[0] } : undef;
	};
	my $append = sub {
		my ($key) = @_;
		my $x = $c + $clients * ++$next;
		my ($how, $list, $count) = (rand, undef, 0);
		if ($how < 0.4)
		{
			# By the client; at READ COMMITTED that is safe for a row that it has locked.
			my $lock = $isolated ? rand() < 0.3 : !$round->{naive};
			my $strength = ('UPDATE', 'NO KEY UPDATE', 'SHARE')[ 2.2 * rand ];
			$list = $read->("k = $key" . ($lock ? " FOR $strength" : ''), $key);
		}
		# The answer may be lost: what was sent counts as appended.
		push @{ $t->{ops} }, [ 'a', $key, $x ];
		my $new = defined $list ? "'" . join(',', map { token($_) } @$list, $x) . "'" : "v || '," . token($x) . "'";
		(undef, $count) = $do->("UPDATE t SET v = $new WHERE k = $key");
		$do->("INSERT INTO t VALUES ($key, '" . token($x) . "')") if !$count;
		push @{ $tail{$key} }, $x;
	};
	my $undo = sub {    # everything that was appended since the savepoint
		my ($ops) = @_;
		$t->{undone}{ $_->[2] } = 1 for grep { $_->[0] eq 'a' } @{ $t->{ops} }[ $ops .. $#{ $t->{ops} } ];
	};

	while (now() < $end)
	{
		$session //= KvSession->connect("client$c", $level) // next;
		$t = { id => "$c." . ++$number, status => 'fail', begin => now(), ops => [], undone => {} };
		push @history, $t;
		%tail = ();
		my @saved;
		eval {
			$do->('BEGIN');
			for (1 .. 1 + rand 5)
			{
				# Lists come and go, so that none grows too long.
				my $base = int((now() - $round->{begin}) * $round->{speed});
				my @keys = map { $base + int(rand $width) } 1 .. 3;
				$_ = -$_ for grep { $_ & 1 } @keys;    # on both sides of a shard's bound
				my $x = rand;
				sleep rand 0.005 if rand() < 0.2;
				if ($x < 0.45) { $append->($keys[0]) }
				elsif ($x < 0.70) { $read->("k = $keys[0]", $keys[0]) }
				elsif ($x < 0.78) { my %k = map { $_ => 1 } @keys; $read->('k IN (' . join(', ', keys %k) . ')', keys %k) }
				elsif ($x < 0.86)
				{
					my @even = grep { $_ % 2 == 0 } $base .. $base + $width - 1;
					$read->("k BETWEEN $even[0] AND $even[-1]" . (rand() < 0.5 ? ' ORDER BY k DESC' : ''), @even);
				}
				elsif ($x < 0.93 || !@saved)
				{
					$do->('SAVEPOINT s' . @saved);
					push @saved, [ scalar @{ $t->{ops} }, map { $_ => [ @{ $tail{$_} } ] } keys %tail ];
				}
				else
				{
					my $s = int rand @saved;
					$do->("ROLLBACK TO s$s");
					(my $ops, %tail) = @{ $saved[$s] };
					%tail = map { $_ => [ @{ $tail{$_} } ] } keys %tail;
					$undo->($ops);
					$#saved = $s;
				}
			}
			if (rand() < 0.1) { $do->('ROLLBACK') }
			else
			{
				$t->{status} = 'open';
				$do->('COMMIT');
				$t->{status} = 'ok';
			}
			1;
		} or do
		{
			chomp(my $error = $@);
			if ($error eq 'lost')
			{
				$session->close;
				undef $session;
			}
			else
			{
				# Serialization failure, deadlock, two who insert one key.
				$t->{status} = 'fail';
				return { history => \@history, error => "client $c, T$t->{id}: $error, see client$c.err" } if $error !~ /^(40001|40P01|23505)$/;
				$session->run('ROLLBACK');
			}
		};
		$t->{end} = $t->{status} eq 'open' ? 9**9**9 : now();
	}
	$session->close if $session;
	return { history => \@history };
}

# ---- a round ----

my $before = '';    # the kind of table that the last round left

# Returns what happened, and what is wrong.
sub play
{
	my ($round) = @_;
	query('DROP ' . ($before eq 'heap' ? '' : 'FOREIGN ') . 'TABLE t') if $before;
	$before = $round->{kind};
	query(table_of_kind($round->{kind}, 't', 'k bigint NOT NULL, v text', 'k', (1, 2, 5)[ rand 3 ])) // die "the table cannot be made\n";
	@$round{qw(begin speed)} = (now(), 3 + rand 20);
	my ($results, $story, $wrong) = contest($round->{kills}, sub { query(q{SELECT kvfdw_flush('t')}) if $round->{kind} ne 'heap' },
		map { my $c = $_; sub { client($c, $round, @_) } } 0 .. $clients - 1);
	my @history = map { @{ $_->{history} // [] } } @$results;
	my @wrong = @$wrong;
	my $rows = query('SELECT k, v FROM t ORDER BY k') // return ('', @wrong, 'the table cannot be read');
	my %final = map { my ($k, $v) = split /\|/; $k => list($v) } @$rows;
	for my $k (keys %final)
	{
		my $v = query("SELECT v FROM t WHERE k = $k") // [''];
		push @wrong, "key $k: the scan and the look-up differ" if join(',', map { token($_) } @{ $final{$k} }) ne ($v->[0] // '');
	}
	push @wrong, kvfdw_problems('t') if $round->{kind} ne 'heap';

	my $open = grep { $_->{status} eq 'open' } @history;
	my %count;
	for my $anomaly (check(\@history, \%final, $round->{level}))
	{
		my ($kind, $text) = @$anomaly;
		$count{$kind}++;
		push @wrong, "$kind: $text" if !$round->{naive} && forbidden($kind, $round->{level}) && $count{$kind} <= 3;
	}
	push @wrong, map { "the control shows no $_" } grep { !$count{$_} } @{ $round->{must} // [] };
	store { history => \@history, final => \%final }, "$option->{dir}/failed.history" if @wrong;
	push @wrong, "the history of the round is in $option->{dir}/failed.history",
	  "repeat its choices: append.pl --rounds 1 --no-control --kind $round->{kind} --level '$round->{level}' --seed $round->{seed}" if @wrong;
	my $longest = (sort { $b <=> $a } map { scalar @$_ } values %final)[0] // 0;
	my $ok = grep { $_->{status} eq 'ok' } @history;
	return (join('; ', "$round->{kind}, $round->{level}" . ($round->{naive} ? ', the control' : ''),
			@history . " transactions, $ok committed, $open without an answer, " . keys(%final) . " lists of up to $longest", @$story,
			map { "$count{$_} $_" } sort keys %count), @wrong);
}

# ---- the rounds ----

my @control = $option->{control} ? (
	{ kind => 'heap', level => 'read committed', naive => 1, kills => 0, must => [ 'lost append', 'incompatible order', 'G-single' ] },
	{ kind => 'heap', level => 'repeatable read', kills => 0, must => ['G2-item'] },
	{ kind => 'heap', level => 'serializable', kills => 0 }) : ();
my @levels = $option->{level} ? lc $option->{level} : ('read committed', 'repeatable read', 'serializable');
server_make();
exit campaign(control => \@control, rounds => scalar @levels, play => \&play,
	choose => sub { return { kind => $option->{kind}, level => $levels[ $_[0] % @levels ] } });
