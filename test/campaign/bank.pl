#!/usr/bin/perl
# Promise: transfers between a heap table and two kvfdw tables keep the sum of
# all balances in every snapshot, and exactly the acknowledged ones have taken
# place, in all tables, whoever is killed.
#
#   bank.pl [--rounds N | --seconds N] [--round-seconds N] [--seed N] [--clients N]
#           [--level LEVEL] [--kills N] [--no-control] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .).  Each
# round has fresh tables.  Each transfer is noted in a heap and in a kvfdw
# ledger; readers compare the tables in one snapshot, and after the round every
# balance is computed again from the ledger.  The levels take turns, unless
# --level names one.  The first round is the control: at READ COMMITTED, with
# balances read without a lock, the sums must be found wrong.  Prints TAP, one
# test per round, with the seed that repeats the round's choices.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvCampaign;
use List::Util qw(shuffle);
use Time::HiRes qw(sleep);

my $option = options('bank', %contest, 'clients=i' => 6, 'kills=i' => 2, 'level=s' => '', 'control!' => 1);
my ($clients, $readers, $accounts, $opening) = ($option->{clients}, 2, 8, 1000);

# The tables of accounts: heap, kvfdw, and kvfdw with text keys and large rows.
my %key = (h => sub { $_[0] }, a => sub { $_[0] }, b => sub { "'account-$_[0]'" });
my @tables = sort keys %key;
my $total = @tables * $accounts * $opening;

sub make_tables
{
	my ($drop) = @_;
	my @sql = $drop ? ('DROP TABLE h, ledger_heap', 'DROP FOREIGN TABLE a, b, ledger') : ();
	my $ledger = 'client int, number int, source text, target text, amount int';
	push @sql, table_of_kind('heap', 'h', 'k bigint, n bigint, pad text', 'k'),
	  table_of_kind('kvfdw', 'a', 'k bigint NOT NULL, n bigint, pad text', 'k', 1 + int rand 3),
	  table_of_kind('kvfdw', 'b', 'k text COLLATE "C" NOT NULL, n bigint, pad text', 'k', 1),
	  table_of_kind('heap', 'ledger_heap', $ledger, 'client, number'), table_of_kind('kvfdw', 'ledger', $ledger, 'client, number', 1);
	for my $t (@tables)
	{
		my $pad = $t eq 'b' ? "repeat('b', 3000)" : "''";
		push @sql, "INSERT INTO $t VALUES " . join(', ', map { '(' . $key{$t}->($_) . ", $opening, $pad)" } 1 .. $accounts);
	}
	query(join '; ', @sql) // die "the tables cannot be made\n";
}

# ---- a client: transfers until the time is over ----

# Returns the outcomes: number → done, not done, or open (no answer to COMMIT).
sub client
{
	my ($c, $round, $end) = @_;
	my ($session, $number, %outcome, $prepared) = (undef, 0);
	my $level = $round->{level};
	my $isolated = $level ne 'read committed';
	my $do = sub { return $session->do(@_) };
	my $change = sub { die "gone\n" if ($do->($_[0]))[1] != 1 };    # one row

	# Add to an account, in one of the ways that the level makes safe.
	my $add = sub {
		my ($account, $amount) = @_;
		my ($t, $i) = split m{/}, $account;
		my ($where, $how) = ('k = ' . $key{$t}->($i), rand);
		if ($how < 0.4) { $change->("UPDATE $t SET n = n + $amount WHERE $where") }
		elsif ($how < 0.9)
		{
			my $lock = $isolated ? rand() < 0.3 : !$round->{naive};
			my ($rows) = $do->("SELECT n FROM $t WHERE $where" . ($lock ? ' FOR UPDATE' : ''));
			die "gone\n" if !@$rows;
			sleep rand 0.005 if rand() < 0.2;
			$change->("UPDATE $t SET n = " . ($rows->[0] + $amount) . " WHERE $where");
		}
		else
		{
			my ($rows) = $do->("DELETE FROM $t WHERE $where RETURNING n, pad");
			die "gone\n" if !@$rows;
			my ($n, $pad) = split /\|/, $rows->[0], -1;
			$change->("INSERT INTO $t VALUES (" . $key{$t}->($i) . ', ' . ($n + $amount) . ", '$pad')");
		}
	};
	my $account = sub { return $tables[ rand @tables ] . '/' . (1 + int rand $accounts) };

	# End a prepared transaction; it may have ended before its answer was lost.
	my $resolve = sub {
		my $gid = "$c." . $number;
		$prepared->{wanted} //= rand() < 0.8 ? 'done' : 'not done';
		my ($state) = $session->run(($prepared->{wanted} eq 'done' ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
		die "lost\n" if !defined $state;
		my $unknown = $state eq '42704';
		die "$state\n" if $state ne '00000' && !$unknown;
		die "prepared transaction $gid is lost\n" if $unknown && $prepared->{sure} && !$prepared->{tried};
		$outcome{$number} = $unknown && !$prepared->{tried} ? 'not done' : $prepared->{wanted};
		undef $prepared;
	};

	while (now() < $end || $prepared)
	{
		$session //= KvSession->connect("client$c", $level) // next;
		eval {
			if ($prepared)
			{
				$resolve->();
				return 1;
			}
			$outcome{ ++$number } = 'not done';
			my ($source, $target, $amount) = ($account->(), $account->(), 1 + int rand 50);
			my @parts = ([ $source, -$amount ], [ $target, $amount ]);
			@parts = reverse @parts if rand() < 0.5;
			$do->('BEGIN');
			if (rand() < 0.25)
			{
				$do->('SAVEPOINT wrong');
				$add->($account->(), $amount) for 1 .. 1 + rand 2;
				$do->('ROLLBACK TO wrong');
			}
			for my $part (@parts)
			{
				my $below = rand() < 0.3;
				$do->('SAVEPOINT part') if $below;
				$add->(@$part);
				$do->('RELEASE part') if $below && rand() < 0.5;
			}
			$do->("INSERT INTO $_ VALUES ($c, $number, '$source', '$target', $amount)") for 'ledger', 'ledger_heap';
			if (rand() < 0.1) { $do->('ROLLBACK') }
			elsif (rand() < 0.2)
			{
				$prepared = {};
				$do->("PREPARE TRANSACTION '$c.$number'");
				$prepared->{sure} = 1;
				sleep rand 0.02 if rand() < 0.2;
				$resolve->();
			}
			else
			{
				$outcome{$number} = 'open';
				$do->('COMMIT');
				$outcome{$number} = 'done';
			}
			1;
		} or do
		{
			chomp(my $error = $@);
			if ($error eq 'lost')
			{
				$prepared->{tried} = 1 if $prepared && $prepared->{wanted};
				$session->close;
				undef $session;
				next;
			}
			# A row that another has deleted and inserted again; serialization failure, deadlock, duplicate;
			# a prepared transaction that its dying backend still holds.
			return { error => "client $c, transfer $number: $error, see client$c.err" }
			  if $error !~ /^(gone|40001|40P01|23505)$/ && !($prepared && $error eq '55000');
			next if $prepared && $prepared->{sure};
			undef $prepared;
			$outcome{$number} = 'not done';
			$session->run('ROLLBACK');
		};
	}
	$session->close if $session;
	return { outcome => \%outcome };
}

# ---- a reader: what must be equal in every snapshot ----

my $net = q{(SELECT coalesce(sum(amount) FILTER (WHERE target LIKE '%1$s/%%'), 0)
	- coalesce(sum(amount) FILTER (WHERE source LIKE '%1$s/%%'), 0) FROM %2$s)};

sub reader
{
	my ($r, $level, $end) = @_;
	my ($session, $looks) = (undef, 0);
	while (now() < $end)
	{
		$session //= KvSession->connect("reader$r", $level) // next;
		my @wrong;
		my $is = sub {
			my ($what, $expected, $sql) = @_;
			my ($rows) = $session->do("SELECT $sql");
			push @wrong, "$what is $rows->[0], not $expected" if $rows->[0] ne $expected;
			return $rows->[0];
		};
		eval {
			if (rand() < 0.3) { $is->('the sum in one statement', $total, join ' + ', map { "(SELECT sum(n) FROM $_)" } @tables) }
			else
			{
				$session->do('BEGIN ISOLATION LEVEL ' . ($level eq 'serializable' ? $level : 'repeatable read'));
				my ($ledger) = rand() < 0.5 ? 'ledger' : 'ledger_heap';
				my $sum = 0;
				for my $t (shuffle @tables)
				{
					my @keys = map { $key{$t}->($_) } 1 .. $accounts;
					my $from = ("FROM $t", "FROM (SELECT n FROM $t ORDER BY k DESC) s", "FROM $t WHERE k IN (" . join(', ', @keys) . ')')[ rand 3 ];
					my ($rows) = $session->do("SELECT sum(n), count(*), sum(n) - " . sprintf($net, $t, $ledger) . " $from");
					my ($n, $count, $before) = split /\|/, $rows->[0];
					push @wrong, "$count accounts $from" if $count != $accounts;
					push @wrong, "the sum of $t without its transfers in $ledger is $before" if $before != $accounts * $opening;
					$sum += $n;
					sleep rand 0.02;
				}
				push @wrong, "the sum of three statements in a snapshot is $sum, not $total" if $sum != $total;
				$is->('the count of transfers in one ledger only', 0,
					'count(*) FROM (SELECT * FROM ledger) l FULL JOIN ledger_heap h USING (client, number, source, target, amount) '
					  . 'WHERE l IS NULL OR h IS NULL');
				$session->do('COMMIT');
			}
			$looks++;
			1;
		} or do
		{
			chomp(my $error = $@);
			return { error => "reader $r: $error, see reader$r.err" } if $error !~ /^(lost|40001)$/;
			if ($error eq 'lost') { $session->close; undef $session }
			else { $session->run('ROLLBACK') }
		};
		return { error => "reader $r, look $looks: " . join('; ', @wrong) } if @wrong;
	}
	$session->close if $session;
	return { looks => $looks };
}

# ---- a round ----

my $made = 0;

sub play
{
	my ($round) = @_;
	my $level = $round->{level};
	make_tables($made++);
	my ($results, $story, $wrong) = contest($round->{kills}, sub { query("SELECT kvfdw_flush('" . ('a', 'b', 'ledger')[ rand 3 ] . "')") },
		(map { my $c = $_; sub { client($c, $round, @_) } } 0 .. $clients - 1), map { my $r = $_; sub { reader($r, $level, @_) } } 1 .. $readers);
	my @wrong = @$wrong;

	# The ledger has what was acknowledged, and the balances are what it says.
	my %balance = map { my $t = $_; map { ("$t/$_" => $opening) } 1 .. $accounts } @tables;
	my (%noted, %count);
	my $ledger = query('SELECT client, number, source, target, amount FROM ledger ORDER BY client, number') // ['the ledger cannot be read'];
	my $copy = query('SELECT client, number, source, target, amount FROM ledger_heap ORDER BY client, number') // [];
	push @wrong, 'the ledgers differ' if "@$ledger" ne "@$copy";
	for (@$ledger)
	{
		my ($c, $number, $source, $target, $amount) = split /\|/;
		$noted{$c}{$number} = 1;
		$balance{$source} -= $amount;
		$balance{$target} += $amount;
	}
	for my $c (grep { $results->[$_]{outcome} } 0 .. $clients - 1)
	{
		my $outcome = $results->[$c]{outcome};
		$count{$_}++ for values %$outcome;
		push @wrong, map { "client $c: transfer $_ is $outcome->{$_}, and " . ($noted{$c}{$_} ? '' : 'not ') . 'in the ledger' }
		  grep { $outcome->{$_} ne 'open' && ($outcome->{$_} eq 'done') != ($noted{$c}{$_} // 0) } sort { $a <=> $b } keys %$outcome;
		push @wrong, map { "client $c: transfer $_ is in the ledger and was not made" } grep { !$outcome->{$_} } keys %{ $noted{$c} };
	}
	for my $t (@tables)
	{
		my %is = map { split /\|/ } @{ query("SELECT '$t/' || trim(LEADING 'account-' FROM k::text), n FROM $t") // [] };
		push @wrong, map { "account $_ has " . ($is{$_} // 'gone') . ", the ledger says $balance{$_}" }
		  grep { ($is{$_} // 'gone') ne $balance{$_} } map { "$t/$_" } 1 .. $accounts;
	}
	my $left = query('SELECT gid FROM pg_prepared_xacts') // ['?'];
	push @wrong, "prepared transactions are left: @$left" if @$left && !@$wrong;
	push @wrong, kvfdw_problems('a', 'b', 'ledger');
	if ($round->{naive})
	{
		push @$story, @wrong ? "the control: $wrong[0]" : ();
		@wrong = @wrong ? () : 'the control shows nothing wrong';
	}
	push @wrong, "repeat its choices: bank.pl --rounds 1 --no-control --level '$level' --seed $round->{seed}" if @wrong;

	my $looks = 0;
	$looks += $_->{looks} // 0 for @$results;
	return (join('; ', $level, sprintf('%d transfers, %d given up, %d without an answer, %d looks', (map { $count{$_} // 0 } 'done', 'not done', 'open'), $looks), @$story), @wrong);
}

my @levels = $option->{level} ? lc $option->{level} : ('read committed', 'repeatable read', 'serializable');
server_make();
my @control = $option->{control} ? { level => 'read committed', naive => 1, kills => 0 } : ();
exit campaign(control => \@control, rounds => scalar @levels, play => \&play, choose => sub { return { level => $levels[ $_[0] % @levels ] } });
