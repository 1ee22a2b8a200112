#!/usr/bin/perl
# Promise: while clients overwrite, insert, delete and roll back, the value files of their tables stay within
# their bound (I 19), as sampled five times a second, at every wal level; beside an old snapshot and
# a base backup they grow, and come back when these have ended; a SIGKILL changes nothing.
#
#   space.pl [--rounds N | --seconds N] [--round-seconds N] [--seed N]
#            [--clients N] [--rows N] [--kills N] [--beyond PERCENT] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .).  The same tables go
# through all rounds; each has another pattern: uniform, skewed, a window that moves, values that
# grow and shrink, rows that come and go.  A sample is beyond the bound if what value files have, those too that
# were emptied and have not gone, is more than that percentage above it and above all those of the second before.  For when who has
# kept dead values ends, the bound falls at once, and the files follow: for up to ten seconds they may have what they had then, and what
# compactions copy in that time, for at level keys what these empty goes with a checkpoint.
# Files have what is allocated ahead and being written besides, which is told.  Prints TAP, one test per round.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(max);
use KvCampaign;

my $option = options('space', %contest, 'clients=i' => 4, 'rows=i' => 20000, 'kills=i' => 0, 'beyond=i' => 5, 'round-seconds=f' => 30);
my $rows = $option->{rows};
my @tables = map { "t_$_" } qw(full keys none);
my $most = 1 + $option->{beyond} / 100;
my $rate = 5;	# samples in a second
my $falls = 10 * $rate;	# so many above a bound that has fallen
my @patterns = qw(uniform skewed window sizes churn snapshot backup rollback);

my $value = "CREATE FUNCTION value(k int, size int) RETURNS text LANGUAGE sql AS 'SELECT left(repeat(md5(k::text || random()), 1 + size / 32), size)'";

sub make_tables
{
	query(join '; ', $value, map { my $t = $_; ("CREATE FOREIGN TABLE $t (k int NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k', shards '2', wal '" . s/^t_//r . "')",
		"INSERT INTO $t SELECT k, value(k, 3000 + k % 2000) FROM generate_series(1, $rows) k") } @tables) // die "the tables cannot be made\n";
}

# ---- a client ----

sub keys_of
{
	my ($pattern, $left) = @_;
	my $n = 20;
	my $from = $pattern eq 'window' ? int((1 - $left) * $rows) : 0;
	return map { 1 + ($pattern eq 'skewed' ? int($rows * rand() ** 5) : $pattern eq 'window' ? ($from + int rand($rows / 20)) % $rows : int rand $rows) } 1 .. $n;
}

sub client
{
	my ($c, $pattern, $end) = @_;
	my ($session, $begin, $done) = (undef, now(), 0);
	while (now() < $end)
	{
		$session //= KvSession->connect("client$c", 'read committed') // next;
		my $t = $tables[ $c % @tables ];
		my %k = map { ($_ => 1) } keys_of($pattern, ($end - now()) / ($end - $begin));
		my $k = join ',', sort { $a <=> $b } keys %k;
		my $size = $pattern eq 'sizes' ? '(random() * random() * 40000)::int' : '3000 + k % 2000';
		my @sql = "UPDATE $t SET v = value(k, $size) WHERE k IN ($k)";
		if ($pattern eq 'churn') { @sql = rand() < 0.5 ? "DELETE FROM $t WHERE k IN ($k)" : "INSERT INTO $t SELECT k, value(k, 4000) FROM unnest(ARRAY[$k]) k ON CONFLICT (k) DO NOTHING" }
		if ($pattern eq 'rollback') { @sql = ('BEGIN', "INSERT INTO $t SELECT k + 1000000 + $c * 1000000, value(k, 4000) FROM generate_series(1, 500) k", 'ROLLBACK') }
		my $state = '00000';
		for (@sql) { ($state) = $session->run($_) if defined $state && $state eq '00000' }
		if (!defined $state) { $session->close; undef $session; next }
		return { error => "client $c: $state, see client$c.err" } if $state !~ /^(00000|40001|40P01)$/;
		$done++;
	}
	$session->close if $session;
	return { done => $done };
}

# ---- a round ----

my @samples;
sub sample
{
	my ($mark) = @_;
	my $rows = query("SELECT relname, value_file_bytes + obsolete_bytes, live_bytes, space_limit, coalesce(space_blocked_by, ''),
		(SELECT sum((pg_stat_file(d || f, true)).size) FROM format('kvfdw/%s/%s/%s/', (SELECT oid FROM pg_database WHERE datname = current_database()), relid, lpad(to_hex(generation), 8, '0')) d, pg_ls_dir(d) f WHERE f LIKE '%.val'),
		(SELECT format('%s since %s s (%s)', substring(query, '\\mt_\\w+'), round(extract(epoch FROM clock_timestamp() - xact_start), 1), wait_event) FROM pg_stat_activity
			WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1)
		FROM kvfdw_stat_tables WHERE relname LIKE 't\\_%'") // return;
	push @samples, map { [ $mark, split /\|/, $_, -1 ] } @$rows;
	return;
}

# In a process; who has a session holds a snapshot or a backup for the first half.
sub sampler
{
	my ($pattern, $end) = @_;
	my ($begin, $session) = (now());
	@samples = ();
	if ($pattern =~ /^(snapshot|backup)$/)
	{
		$session = KvSession->connect('holder', 'repeatable read');
		$session->run($_) for $pattern eq 'snapshot' ? ('BEGIN', "SELECT count(*) FROM $tables[0]") : "SELECT pg_backup_start('b', true)";
	}
	while (now() < $end)
	{
		my $held = $session && now() < $begin + ($end - $begin) / 2;
		if ($session && !$held) { $session->run($pattern eq 'snapshot' ? 'COMMIT' : 'SELECT 1 FROM pg_backup_stop()'); $session->close; undef $session }
		sample($held ? 'held' : '');
		select undef, undef, undef, 1 / $rate;
	}
	if ($session) { $session->close }
	return { samples => [@samples] };
}

sub play
{
	my ($round) = @_;
	my $pattern = $round->{pattern};
	my ($results, $story, $wrong) = contest($round->{kills}, sub { query('CHECKPOINT') if rand() < 0.05 },
		sub { sampler($pattern, @_) }, map { my $c = $_; sub { client($c, $pattern, @_) } } 0 .. $option->{clients} - 1);
	my (@wrong, %worst, %files, %beyond, %last, %before, %above, @seen, $n, $done) = @$wrong;
	for my $result (@$results)
	{
		$done += $result->{done} // 0;
		for (@{ $result->{samples} // [] })
		{
			my ($held, $t, $taken, $live, $bound, $waits, $files, $oldest) = @$_;
			my $told = "$t: $taken bytes, $live live, bound $bound, waits for \"$waits\", oldest snapshot: $oldest";
			my $allowed = $bound eq '' ? 0 : max($bound, @{ $before{$t} // [] }, $above{$t} && $above{$t}{n} < $falls ? $above{$t}{first} * $most : 0);
			push @{ $before{$t} }, $bound eq '' ? 0 : $bound;
			shift @{ $before{$t} } if @{ $before{$t} } > $rate;
			if ($bound eq '' || $taken <= $bound * $most) { delete $above{$t} } else { $above{$t} //= { first => $taken }; $above{$t}{n}++ }
			push @seen, $last{$t} // (), $told if !$held && $bound ne '' && $taken > $allowed * $most;
			$last{$t} = $told;
			next if $held || $waits =~ /backup/ || $bound eq '';
			$bound = $allowed;
			$n++;
			my $over = $taken / $bound;
			$worst{$t} = $over if $over > ($worst{$t} // 0);
			$files{$t} = $files / $bound if $files / $bound > ($files{$t} // 0);
			$beyond{$t}++ if $over > $most;
		}
	}

	# what was held back is made up for after it has ended
	my $late = $pattern =~ /^(snapshot|backup)$/;
	for my $t (sort keys %beyond) { push @wrong, "$t is beyond its bound in $beyond{$t} samples" if !$late }
	my $end = now() + 60;
	while (now() < $end)
	{
		@samples = ();
		sample('');
		last if @samples == @tables && !grep { $_->[2] > $_->[4] } @samples;
		select undef, undef, undef, 0.5;
	}
	for (@samples) { push @wrong, "$_->[1] stays beyond its bound: $_->[2] of $_->[4], waits for \"$_->[5]\"" if $_->[2] > $_->[4] }
	push @wrong, @seen if @wrong;
	push @wrong, kvfdw_problems(@tables);
	splice @wrong, 20;
	return (join('; ', "$pattern: " . ($done // 0) . ' transactions, ' . ($n // 0) . ' samples, at most ' . join(', ', map { sprintf "%s %.2f (files %.2f)", $_, $worst{$_}, $files{$_} } sort keys %worst) . ' of the bound', @$story), @wrong);
}

# What a SIGKILL leaves in the page cache need not be on the device.
server_make(fsync => 'off', 'kvfdw.flush_after' => 5, max_wal_size => '8GB');
make_tables();
exit campaign(rounds => scalar @patterns, choose => sub { return { pattern => $patterns[ $_[0] % @patterns ] } }, play => \&play);
