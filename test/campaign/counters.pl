#!/usr/bin/perl
# Promise: counters that clients raise by upserts at the same keys are exact: each acknowledged
# upsert counts once, and of the others at most those whose answer a SIGKILL took away.
#
#   counters.pl [--upserts N | --rounds N | --seconds N] [--round-seconds N] [--seed N]
#               [--clients N] [--keys N] [--kills N] [--no-control] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .).  The same tables, one
# of each wal level, go through all rounds, and after each one every counter is compared with
# what all clients have noted so far.  A statement raises one counter or many; some come in
# transactions that are rolled back in parts.  The first round is the control, with counters
# that are read and written back: they must be found wrong.  Prints TAP, one test per round.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvCampaign;

my $option = options('counters', %contest, 'upserts=i' => undef, 'clients=i' => 8, 'keys=i' => 1000, 'kills=i' => 1, 'control!' => 1);
my $keys = $option->{keys};
my @tables = map { "t_$_" } qw(full keys none);

sub make_tables
{
	my ($drop) = @_;
	query(join '; ', map { ($drop ? "DROP FOREIGN TABLE $_" : (),
		"CREATE FOREIGN TABLE $_ (k int NOT NULL, n bigint, v text) SERVER kvfdw OPTIONS (key 'k', shards '2', wal '" . s/^t_//r . "')") } @tables)
	  // die "the tables cannot be made\n";
}

# ---- a client ----

# Some keys, in their order, lest two clients wait for each other.
sub some_keys
{
	my ($many) = @_;
	my %k = map { (1 + int rand $keys => 1) } 1 .. $many;
	return sort { $a <=> $b } keys %k;
}

sub upsert
{
	my ($t, @k) = @_;
	my $rows = join ', ', map { "($_, 1, repeat('x', " . int(rand 300) . '))' } @k;
	return "INSERT INTO $t VALUES $rows ON CONFLICT (k) DO UPDATE SET n = $t.n + 1" . (rand() < 0.5 ? ', v = excluded.v' : '');
}

# Returns what was acknowledged and what has had no answer: "table/key" → how often.
sub client
{
	my ($c, $naive, $end) = @_;
	my ($session, %done, %open);
	while (now() < $end)
	{
		$session //= KvSession->connect("client$c", rand() < 0.9 ? 'read committed' : 'repeatable read') // next;
		my $t = $tables[ rand @tables ];
		my @k = some_keys(rand() < 0.6 ? 1 : 1 + int rand 60);
		my ($how, @sql) = (rand, upsert($t, @k));
		if ($naive)
		{
			@k = (1);
			my ($state, $rows) = $session->run("SELECT n FROM $t WHERE k = 1");
			@sql = ("INSERT INTO $t VALUES (1, 1, '') ON CONFLICT (k) DO UPDATE SET n = " . (1 + ($rows->[0] // 0)));
		}
		elsif ($how < 0.1) { @sql = ('BEGIN', 'SAVEPOINT s', upsert($t, @k), 'ROLLBACK TO s', @sql, 'COMMIT') }
		elsif ($how < 0.2) { @sql = ('BEGIN', @sql, 'ROLLBACK'); @k = () }
		my ($state, $last) = ('00000', '');
		for (@sql)
		{
			($state) = $session->run($last = $_) if defined $state && $state eq '00000';
		}
		if (!defined $state)
		{
			if ($last eq $sql[-1]) { $open{"$t/$_"}++ for @k }
			$session->close;
			undef $session;
			next;
		}
		return { error => "client $c: $state, see client$c.err" } if $state !~ /^(00000|40001|40P01)$/;
		if ($state eq '00000') { $done{"$t/$_"}++ for @k }
		elsif (@sql > 1) { $session->run('ROLLBACK') }
	}
	$session->close if $session;
	return { done => \%done, open => \%open };
}

# ---- a round ----

my ($made, %done, %open) = (0);
sub sum { my $n = 0; $n += $_ for values %{ $_[0] }; return $n }

sub play
{
	my ($round) = @_;
	if ($round->{naive} || !$made) { make_tables($made++); (%done, %open) = () }
	my ($before, $lost) = (sum(\%done), sum(\%open));
	my ($results, $story, $wrong) = contest($round->{kills}, sub { query(rand() < 0.3 ? 'CHECKPOINT' : "SELECT kvfdw_flush('" . $tables[ rand @tables ] . "')") },
		map { my $c = $_; sub { client($c, $round->{naive}, @_) } } 0 .. $option->{clients} - 1);
	my @wrong = @$wrong;
	for my $result (@$results)
	{
		$done{$_} += $result->{done}{$_} for keys %{ $result->{done} // {} };
		$open{$_} += $result->{open}{$_} for keys %{ $result->{open} // {} };
	}
	for my $t (@tables)
	{
		my $rows = query("SELECT k, n FROM $t ORDER BY k") // ['?|?'];
		my %n;
		for (@$rows)
		{
			my ($k, $n) = split /\|/;
			push @wrong, "$t has key $k twice" if exists $n{$k};
			$n{$k} = $n;
		}
		for my $k (sort { $a <=> $b } keys %{ { map { ($_ => 1) } 1 .. $keys, grep { /^\d+$/ } keys %n } })
		{
			my ($n, $least) = ($n{$k} // 0, $done{"$t/$k"} // 0);
			my $most = $least + ($open{"$t/$k"} // 0);
			push @wrong, "$t, key $k: the counter is $n, not " . ($least == $most ? $least : "$least to $most") if $n < $least || $n > $most;
		}
		push @wrong, "$t cannot be read" if "@$rows" eq '?|?';
	}
	push @wrong, kvfdw_problems(@tables);
	splice @wrong, 20;
	if ($round->{naive})
	{
		push @$story, @wrong ? "the control: $wrong[0]" : ();
		@wrong = @wrong ? () : 'the control shows nothing wrong';
		$made = 0 if !@wrong;
		query("DROP FOREIGN TABLE $_") for @wrong ? () : @tables;
	}
	return (join('; ', sprintf('%d upserts acknowledged and %d without an answer, %d and %d in all', sum(\%done) - $before, sum(\%open) - $lost, sum(\%done), sum(\%open)), @$story), @wrong);
}

# What a SIGKILL leaves in the page cache need not be on the device.
server_make(fsync => 'off');
exit campaign(control => [ $option->{control} ? { naive => 1, kills => 0 } : () ], rounds => 2, play => \&play,
	defined $option->{upserts} ? (more => sub { return sum(\%done) < $option->{upserts} }) : ());
