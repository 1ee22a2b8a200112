#!/usr/bin/perl
# Promise: SIGKILL of any process at any moment loses no acknowledged
# transaction, shows no part of another one, and the tables can be written again.
#
#   torture.pl [--rounds N] [--seed N] [--writers N] [--kind remount|syncfail|full] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .) from the
# first initdb and pg_ctl in PATH, as a user other than root.  Each round starts
# writers, kills a backend, a worker, another process or the postmaster at a
# random moment or at a stop point, brings the server back, compares every table
# with what the writers were told, and goes on with the same tables.  Prints TAP,
# one test per round, with the seed that repeats the round's choices.
#
# With a kind, started as root, each round ends with the disk: killed and mounted
# again, often without what was not synced (remount); with write-back that fails, and
# later without the page cache (syncfail); stopped while it is full (full).  A heap
# table is written in each transaction too, and a standby follows.
#
# With MOVES=on a session sends tables from tablespace to tablespace all the time; in the end these can be dropped.
# With TIER=1 a small second tier follows the recent ring; some rounds end with the sessions
# alone, or with a clean stop, after which it is found again.
use strict;
use warnings;
no warnings qw(portable);    # 64-bit hex
use Digest::MD5 qw(md5_hex);
use File::Find;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use if scalar(grep { $_ eq '--kind' } @ARGV), 'KvLoop';
use KvCampaign;
use List::Util qw(sum0);
use Time::HiRes qw(sleep time);

my $option = options('torture', 'rounds=i' => 10, 'writers=i' => 4, 'kind=s' => '');
my ($writers, $kind, $dir) = @$option{qw(writers kind)};
die "there is no kind '$kind'\n" if $kind !~ /^(?:remount|syncfail|full)?$/;
die "tables do not move with a kind: the standby has its tablespaces where the server has them\n" if $kind && $ENV{MOVES};

# With half of the seeds a restart may be one of the operating system, as far as kvfdw
# can tell (test builds); tables with wal level none do not live through that.
my $reboots = int($option->{seed} / 2) % 2 || $kind;
my @levels = $reboots ? qw(full keys) : qw(full keys none);

# The tables.  own is one table per writer, which alone may truncate it.
my @tables = ('a', 'b', map { "own$_" } 0 .. $writers - 1);
my %create = (
	a   => "(k bigint NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k', shards '16')",
	b   => "(tenant int NOT NULL, name text COLLATE \"C\" NOT NULL, n int, v text) SERVER kvfdw OPTIONS (key 'tenant, name')",
	own => "(k text COLLATE \"C\" NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k')");
my $counters = 8;
my @kvfdw = (@tables, 'markers', $kind ? () : 'twins', 'counters');

my $faults;    # injected in this round

# What the writers were told: table → key → [id, length]; length -1 is NULL.
my (%rows, %marker, %counter);

my %level;

sub definition
{
	my ($t) = @_;
	$level{$t} //= $levels[ keys(%level) % @levels ];
	my $compression = $t =~ /^(?:b|own\d*[13579])$/ ? ", compression 'lz4'" : '';
	return ($create{ $t =~ /^own/ ? 'own' : $t } // "(k int NOT NULL, n bigint) SERVER kvfdw OPTIONS (key 'k')") =~ s/\)$/, wal '$level{$t}'$compression)/r;
}

sub value { my ($id, $len) = @_; return substr(md5_hex($id) x (int($len / 32) + 1), 0, $len) }

my %md5;
sub fingerprint
{
	my ($id, $len) = @_;
	return 'null' if $len < 0;
	return $len . ' ' . ($md5{"$id/$len"} //= md5_hex(value($id, $len)));
}

sub random_length
{
	my $x = rand;
	return -1 if $x < 0.02;
	return int(rand 10) if $x < 0.1;
	return 50 + int(rand 450) if $x < 0.7;
	return 4095 + int(rand 3) if $x < 0.9;
	return int(rand 20000) if $x < 0.99;
	return 200000 + int(rand 200000);
}

# A key as SQL.  Keys of table b are written tenant/name here.
sub key_literals
{
	my ($t, $key) = @_;
	return $key =~ s{(.*)/(.*)}{$1, '$2'}r if $t eq 'b';
	return $t eq 'a' ? $key : "'$key'";
}

sub key_condition
{
	my ($t, $key) = @_;
	return $t eq 'a' ? "k = $key" : $t eq 'b' ? '(tenant, name) = (' . key_literals($t, $key) . ')' : "k = '$key'";
}

sub row_literals
{
	my ($t, $key, $id, $len) = @_;
	return '(' . key_literals($t, $key) . ($t eq 'b' ? ", $len" : '') . ", val('$id', $len))";
}

sub writer_key
{
	my ($t, $w, $i) = @_;
	my $hex = substr(md5_hex("$t $w $i"), 0, 15);
	return $t eq 'a' ? hex($hex) * ($i % 2 ? 1 : -1) : $t eq 'b' ? ($i % 7) . "/k$w-" . substr($hex, 0, 6) : "$hex-$i";
}

# The last message that psql printed into a file.
sub last_error
{
	my ($path) = @_;
	open my $file, '<', $path or return '';
	my $message = '';
	while (<$file>) { $message = $_ if /(ERROR|FATAL|PANIC):/ }
	chomp $message;
	return $message;
}

# ---- a writer: runs until the connection is gone, then reports ----

sub writer
{
	my ($w, $round) = @_;
	open my $journal, '>>', "$dir/writer$w.journal" or die $!;
	$journal->autoflush(1);
	my %mine;
	for my $t (@tables) { $mine{$t} = { %{ $rows{$t} } } if $t eq 'a' || $t eq 'b' || $t eq "own$w" }
	my ($number, $acknowledged, %incremented) = ($marker{$w} // 0, 0);
	my %result = (number => $number, history => [], transactions => 0);
	my $session = KvSession->new("writer$w");
	# Without waiting for the WAL a crash may take the last transactions back, in order.
	my $async = rand() < 0.3;
	$session->run('SET synchronous_commit = off') if $async;
	my $fail = sub { $result{error} //= "writer $w, transaction $number: $_[0]"; };

	print $journal "round $round seed $option->{seed}\n";
	my $broken = 0;    # by an injected fault
  ATTEMPT: while (1)
	{
  TRANSACTION: while (!$result{error})
	{
		$number++;
		my $rollback = rand() < 0.15;
		my %changed;    # table → key → [id, len] or undef
		my $files;      # TRUNCATE, DROP and CREATE cannot be prepared
		my @saved;
		my $now = sub { my ($t, $k) = @_; return exists $changed{$t}{$k} ? $changed{$t}{$k} : $mine{$t}{$k} };
		my $do = sub {
			my ($sql, $expected) = @_;
			$expected //= '00000';
			print $journal substr($sql, 0, 200), "\n";
			my ($state) = $session->run($sql);
			return 1 if defined $state && $state eq $expected;
			if (defined $state && $faults && $state =~ /^(53|58|XX001|25P02)/)
			{
				print $journal "fault: $state ", last_error("$dir/writer$w.err"), "\n";
				$result{faults}++;
				$broken = 1;
				return 0;
			}
			$fail->(substr($sql =~ s/\n.*//sr, 0, 200) . ": SQLSTATE $state, expected $expected: " . last_error("$dir/writer$w.err"))
			  if defined $state;
			return 0;
		};

		if (rand() < 0.03) { $do->("SELECT kvfdw_flush('" . ('a', 'b', "own$w")[ rand 3 ] . "')") or last }
		$do->('BEGIN') or last;
		my $ops = rand() < 0.5 ? 1 + int(rand 3) : 1 + int(rand 50);
		while ($ops > 0)
		{
			my $t = ('a', 'b', "own$w")[ rand 3 ];
			my $key = writer_key($t, $w, int(rand 300));
			my ($id, $len) = ("$w.$number.$ops", random_length());
			my $x = rand;
			$ops--;

			if ($x < 0.04 && $t eq "own$w")
			{
				$files = 1;
				if (rand() < 0.5 || @saved) { $do->("TRUNCATE $t") or last TRANSACTION }
				else { $do->("DROP FOREIGN TABLE $t; CREATE FOREIGN TABLE $t " . definition($t)) or last TRANSACTION }
				$changed{$t}{$_} = undef for keys %{ $mine{$t} }, keys %{ $changed{$t} };
			}
			elsif ($x < 0.10)
			{
				my $name = 's' . @saved;
				$do->("SAVEPOINT $name") or last TRANSACTION;
				push @saved, { map { my $t = $_; $t => { %{ $changed{$t} } } } keys %changed };
			}
			elsif ($x < 0.15 && @saved)
			{
				my $level = int(rand @saved);
				$do->("ROLLBACK TO s$level") or last TRANSACTION;
				%changed = map { my $t = $_; $t => { %{ $saved[$level]{$t} } } } keys %{ $saved[$level] };
				$#saved = $level;
			}
			elsif ($x < 0.17 && defined $now->($t, $key))
			{
				$do->("SELECT 1 FROM $t WHERE " . key_condition($t, $key) . ' FOR UPDATE') or last TRANSACTION;
			}
			elsif ($x < 0.20 && defined $now->($t, $key))
			{
				# A duplicate: the error takes back its subtransaction only.
				$do->('SAVEPOINT d') && $do->("INSERT INTO $t VALUES " . row_literals($t, $key, $id, $len), '23505')
				  && $do->('ROLLBACK TO d; RELEASE d') or last TRANSACTION;
			}
			elsif ($x < 0.35)
			{
				# Several rows at once, by INSERT or COPY.
				my %new;
				for (0 .. rand($ops + 1))
				{
					my $k = writer_key($t, $w, int(rand 300));
					$new{$k} = [ "$id.$_", random_length() ] unless defined $now->($t, $k);
				}
				next unless %new;
				$ops -= keys(%new) - 1;
				if (rand() < 0.5)
				{
					$do->("INSERT INTO $t VALUES " . join(', ', map { row_literals($t, $_, @{ $new{$_} }) } sort keys %new))
					  or last TRANSACTION;
				}
				else
				{
					my @lines = map {
						my ($i, $l) = @{ $new{$_} };
						join("\t", split(m{/}, $_), $t eq 'b' ? $l : (), $l < 0 ? '\N' : value($i, $l));
					} sort keys %new;
					$do->("COPY $t FROM STDIN;\n" . join("\n", @lines) . "\n\\.") or last TRANSACTION;
				}
				$changed{$t}{$_} = $new{$_} for keys %new;
			}
			elsif (!defined $now->($t, $key))
			{
				$do->("INSERT INTO $t VALUES " . row_literals($t, $key, $id, $len)) or last TRANSACTION;
				$changed{$t}{$key} = [ $id, $len ];
			}
			elsif ($x < 0.75)
			{
				$do->("UPDATE $t SET v = val('$id', $len)" . ($t eq 'b' ? ", n = $len" : '') . ' WHERE ' . key_condition($t, $key))
				  or last TRANSACTION;
				$changed{$t}{$key} = [ $id, $len ];
			}
			else
			{
				$do->("DELETE FROM $t WHERE " . key_condition($t, $key)) or last TRANSACTION;
				$changed{$t}{$key} = undef;
			}
		}
		my $c = rand() < 0.5 ? int(rand $counters) : undef;
		$do->("UPDATE markers SET n = $number WHERE k = $w") or last;
		$do->("UPDATE twins SET n = $number WHERE k IN ($w, @{[ $w + 1000 ]})") or last;
		if (defined $c) { $do->("UPDATE counters SET n = n + 1 WHERE k = $c") or last }
		if ($rollback) { $do->('ROLLBACK') or last; next }

		# From here to the answer the outcome is open.
		$result{flight} = { number => $number, changes => \%changed, counter => $c };
		if (!$files && rand() < 0.15)
		{
			my $gid = "w$w.$number";
			$result{flight}{gid} = $gid;
			print $journal "PREPARE $number\n";
			my ($state) = $session->run("PREPARE TRANSACTION '$gid'");
			if (!defined $state || $state ne '00000')
			{
				$fail->("PREPARE: SQLSTATE $state") if defined $state;
				last;
			}
			print $journal "prepared $number\n";
			$result{flight}{prepared} = 1;
			if (rand() < 0.1) { sleep rand 0.3; $session->run('SELECT 1') }
			if (rand() < 0.2)
			{
				$result{flight}{resolving} = 'rollback';
				($state) = $session->run("ROLLBACK PREPARED '$gid'");
				if (!defined $state || $state ne '00000')
				{
					$fail->("ROLLBACK PREPARED: SQLSTATE $state") if defined $state;
					last;
				}
				delete $result{flight};
				next;
			}
			$result{flight}{resolving} = 'commit';
			($state) = $session->run("COMMIT PREPARED '$gid'");
			if (!defined $state || $state ne '00000')
			{
				$fail->("COMMIT PREPARED: SQLSTATE $state") if defined $state;
				last;
			}
		}
		else
		{
			print $journal "COMMIT $number\n";
			my ($state) = $session->run('COMMIT');
			if (!defined $state || $state ne '00000')
			{
				if (defined $state && $kind && $state =~ /^(53|58)/) { delete $result{flight}; $broken = 1 }
				elsif (defined $state) { $fail->("COMMIT: SQLSTATE $state") }
				last;
			}
		}
		print $journal "acknowledged $number\n";
		delete $result{flight};
		for my $t (keys %changed)
		{
			$mine{$t}{$_} = $changed{$t}{$_} for keys %{ $changed{$t} };
		}
		push @{ $result{history} }, { number => $number, changes => \%changed, counter => $c };
		$result{transactions}++;
		# every one before is on disk then, too: with it, or waited for
		$result{number} = $number if !$async || $files;
	}
		last ATTEMPT if !$broken || $result{error};
		$broken = 0;
		my ($state) = $session->run('ROLLBACK');
		last ATTEMPT if !defined $state;
	}
	$session->close;
	return \%result;
}

# ---- a reader: one snapshot must stay what it is, and be consistent ----

sub reader
{
	my ($r) = @_;
	my %result;
	my $session = KvSession->new("reader$r");
  SNAPSHOT: while (!$result{error})
	{
		my %first;
		my ($state) = $session->run('BEGIN ISOLATION LEVEL REPEATABLE READ');
		last unless defined $state;
		for my $n (0 .. int(rand 20))
		{
			for my $sql (
				"SELECT 'twins', count(*) FROM (SELECT k % 1000 FROM (SELECT k, n FROM twins UNION ALL SELECT k, n FROM markers) x GROUP BY k % 1000 HAVING min(n) <> max(n) OR count(*) <> 3) y",
				"SELECT 'a', count(*), md5(string_agg(k || ':' || coalesce(md5(v), ''), ',' ORDER BY k)) FROM a",
				"SELECT 'b', count(*), md5(string_agg(tenant || name || coalesce(md5(v), ''), ',' ORDER BY tenant, name)) FROM b",
				"SELECT 'counters', sum(n) FROM counters")
			{
				(my $s, my $rows) = $session->run($sql);
				last SNAPSHOT unless defined $s;
				if ($faults && $s =~ /^(53|58|XX001|25P02)/) { $session->run('ROLLBACK'); next SNAPSHOT }
				if ($s ne '00000') { $result{error} = "reader $r: SQLSTATE $s: " . last_error("$dir/reader$r.err"); last SNAPSHOT }
				my ($what, $is) = split /\|/, $rows->[0], 2;
				$first{$what} //= $what eq 'twins' ? 0 : $is;
				$result{error} = "reader $r, look $n: $what is $is, was $first{$what} in the same snapshot" if $first{$what} ne $is;
			}
			sleep rand 0.1;
		}
		($state) = $session->run('COMMIT');
		last unless defined $state;
	}
	$session->close;
	return \%result;
}

# ---- the server's settings that change ----

my %settings;

sub configure
{
	my (%new) = @_;
	%settings = (%settings, %new);
	open my $file, '>', "$dir/data/torture.conf" or die $!;
	print $file "$_ = '$settings{$_}'\n" for grep { defined $settings{$_} } sort keys %settings;
	close $file;
}

# ---- comparison ----

my %select = (
	a   => 'SELECT k, length(v), md5(v) FROM a ORDER BY k',
	b   => q{SELECT tenant || '/' || name, length(v), md5(v), n FROM b ORDER BY tenant, name},
	own => 'SELECT k, length(v), md5(v) FROM own ORDER BY k');

sub compare
{
	my ($resolved, @results) = @_;
	my @wrong;
	my $survived = 0;
	my $session = KvSession->new('compare');
	my $query = sub {
		my ($state, $lines) = $session->run($_[0]);
		return defined $state && $state eq '00000' ? $lines : undef;
	};

	# Which transactions whose COMMIT was under way took effect?
	my $found = $query->('SELECT k, n FROM markers') // return (0, 'the table markers cannot be read, see compare.err');
	my %found = map { split /\|/ } @$found;
	my %twins = map { split /\|/ } @{ $query->('SELECT k, n FROM twins') // [] };
	for my $w (0 .. $writers - 1)
	{
		my $result = $results[$w];
		my $flight = $result->{flight};
		my @parts  = @{ $result->{history} // [] };
		push @wrong, $result->{error} if $result->{error};
		if (defined $flight && ($found{$w} // -1) == $flight->{number})
		{
			$survived++;
			push @parts, $flight;
		}
		if (defined $flight && defined $flight->{gid})
		{
			my $did = $resolved->{ $flight->{gid} };
			push @wrong, "writer $w: prepared transaction $flight->{gid} is lost"
			  if $flight->{prepared} && !$flight->{resolving} && !defined $did;
			push @wrong, "writer $w: $flight->{gid} was prepared, then $did, and its marker is " . ($found{$w} // 'gone')
			  if defined $did && ($did eq 'COMMIT') != (($found{$w} // -1) == $flight->{number});
		}
		my @known = ($result->{number}, map { $_->{number} } grep { $_->{number} > $result->{number} } @parts);
		push @wrong, "writer $w: its last transaction is " . ($found{$w} // 'gone') . ", expected one of @known"
		  unless grep { $_ == ($found{$w} // -1) } @known;
		push @wrong, "writer $w: twins are " . join(',', map { $_ // 'gone' } @twins{ $w, $w + 1000 }) . ", marker $found{$w}"
		  if grep { ($_ // -1) != ($found{$w} // -2) } @twins{ $w, $w + 1000 };
		$marker{$w} = $found{$w} // $result->{number};
		for my $part (grep { $_->{number} <= $marker{$w} } @parts)
		{
			for my $t (keys %{ $part->{changes} })
			{
				while (my ($key, $value) = each %{ $part->{changes}{$t} })
				{
					if (defined $value) { $rows{$t}{$key} = $value }
					else { delete $rows{$t}{$key} }
				}
			}
			$counter{ $part->{counter} }++ if defined $part->{counter};
		}
	}

	for my $t (@tables)
	{
		my $sql = $select{ $t =~ /^own/ ? 'own' : $t } =~ s/FROM own/FROM $t/r;
		my $lines = $query->($sql);
		if (!defined $lines) { push @wrong, "table $t cannot be read"; next }
		my %left = %{ $rows{$t} };
		my $last;
		for my $line (@$lines)
		{
			my ($key, $len, $md5, $n) = split /\|/, $line, -1;
			my $is = $len eq '' ? 'null' : "$len $md5";
			my $expected = delete $left{$key};
			if (!defined $expected) { push @wrong, "table $t, key $key: should not be there" }
			elsif (fingerprint(@$expected) ne $is)
			{
				push @wrong, "table $t, key $key: value is $is, expected " . fingerprint(@$expected) . " ($expected->[0])";
			}
			elsif ($t eq 'b' && $n != $expected->[1]) { push @wrong, "table b, key $key: n is $n, expected $expected->[1]" }
			push @wrong, "table $t: key $key comes after $last" if defined $last && $t ne 'b' && ($t eq 'a' ? $last >= $key : $last ge $key);
			$last = $key;
		}
		push @wrong, "table $t, key $_: lost ($left{$_}[0])" for sort keys %left;

		# The same by single lookups, present and absent keys.
		my @keys = keys %{ $rows{$t} };
		my $some = $ENV{TIER} ? 300 : 20;
		@keys = map { $keys[ rand @keys ] } 1 .. $some if @keys > $some;
		push @keys, map { writer_key($t, int(rand $writers), int(rand 300)) } 1 .. 10;
		for my $key (@keys)
		{
			my $row = $query->("SELECT length(v), md5(v) FROM $t WHERE " . key_condition($t, $key));
			my $is = !defined $row ? 'an error' : !@$row ? 'absent' : $row->[0] eq '|' ? 'null' : $row->[0] =~ s/\|/ /r;
			my $expected = defined $rows{$t}{$key} ? fingerprint(@{ $rows{$t}{$key} }) : 'absent';
			push @wrong, "table $t, lookup of key $key: $is, expected $expected" if $is ne $expected;
		}
	}
	my $counts = $query->('SELECT k, n FROM counters') // ['the table cannot be read|'];
	my %counted = map { split /\|/ } @$counts;
	for my $c (0 .. $counters - 1)
	{
		push @wrong, "counter $c is " . ($counted{$c} // 'gone') . ", expected $counter{$c}" if ($counted{$c} // -1) ne $counter{$c};
	}
	push @wrong, kvfdw_problems(@kvfdw);
	push @wrong, standby_differs() if $kind;
	$session->close;
	return ($survived, @wrong);
}

# ---- the disk and the standby, with a kind ----

my ($disk, @standby);

# The server's files move to a file system of their own: all of them, or kvfdw's.
sub move_to_disk
{
	my $why_not = KvLoop::loop_skip($dir);
	die "$why_not\n" if $why_not;
	$disk = KvLoop->new("$dir/disk", megabytes => 1600, $kind eq 'syncfail' ? (room => 800) : ());
	my $what = $kind eq 'remount' ? 'data' : 'data/kvfdw';
	system("pg_ctl -D '$dir/data' -m fast -w stop >/dev/null && cp -a '$dir/$what' '$dir/disk/moved' && rm -r '$dir/$what' && ln -s '$dir/disk/moved' '$dir/$what' && sync -f '$dir/disk'") == 0
	  or die "cannot move the server's files\n";
	server_start() or die "the server does not start on its disk\n";
}

sub make_standby
{
	my $data = "$dir/standby";
	@standby = ('-d', "dbname=postgres user=postgres host=$ENV{PGHOST} port=6142");
	system("pg_basebackup -D '$data' -X stream -R -c fast >>'$dir/commands.log' 2>&1 && pg_ctl -D '$data' -l '$data.log' -o '-c port=6142' -w start >>'$dir/commands.log' 2>&1") == 0
	  or die "the standby does not start, see $dir/commands.log\n";
}

END { my $code = $?; system("pg_ctl -D '$dir/standby' -m immediate stop >/dev/null 2>&1") if @standby && $kind; $? = $code }

# What of the tables that it has is not the same there.
sub standby_differs
{
	my $lsn = (query("SELECT pg_current_wal_flush_lsn() FROM pg_switch_wal()") // [''])->[0];
	my $there = sub { my ($sql) = @_; open my $psql, '-|', 'psql', '-XAtq', @standby, '-c', $sql or die $!; local $/; return scalar(<$psql>) // '' };
	my $end = time + 180;
	until ($there->("SELECT pg_last_wal_replay_lsn() >= '$lsn'") =~ /t/) { return 'the standby does not follow' if time > $end; sleep 0.1 }
	return map { my $t = $_; my $sql = "SELECT count(*), md5(string_agg(s::text, ';' ORDER BY s::text)) FROM $t s";
		join("\n", @{ query($sql) // ['none'] }) . "\n" eq $there->($sql) ? () : "table $t differs on the standby" } 'twins', grep { $level{$_} eq 'full' } @kvfdw;
}

# What happens to the disk in a round; returns a story.
sub lose_disk
{
	if ($kind eq 'remount')
	{
		server_kill('all');
		my $lost = rand() < 0.7;
		$disk->break_down if $lost;
		$disk->remount;
		unlink "$dir/data/postmaster.pid";
		return 'killed and mounted again' . ($lost ? ', without what was not synced' : '');
	}
	if ($kind eq 'full')
	{
		$disk->fill;
		sleep rand 0.7;
		system("pg_ctl -D '$dir/data' -m fast -t 60 -w stop >>'$dir/commands.log' 2>&1") == 0 or server_kill('all');
		$disk->free;
		return 'stopped on a full disk';
	}
	$disk->exhaust;
	sleep 0.5 + rand 1;
	system(q{PGOPTIONS='-c statement_timeout=3s' psql -X -q -c CHECKPOINT >>}. "'$dir/commands.log' 2>&1");
	$disk->relieve;
	# which the file system may have taken for a reason to be read-only
	server_return() && query(q{SET statement_timeout = '10s'; CHECKPOINT});
	server_kill('all');
	$disk->remount;
	return 'write-back failed, then mounted again';
}

# ---- set-up ----

server_make(statement_timeout => 0, lock_timeout => '30s', deadlock_timeout => '1s',
	'kvfdw.write_buffer_size' => $option->{seed} % 2 ? '64kB' : '4MB', include_if_exists => 'torture.conf');
$dir = $option->{dir};
configure('kvfdw.io_method' => 'auto');
if ($kind) { make_standby(); move_to_disk() }

my $sql = "CREATE FUNCTION val(id text, len int) RETURNS text LANGUAGE sql IMMUTABLE AS
\$\$ SELECT CASE WHEN len >= 0 THEN substr(repeat(md5(id), len / 32 + 1), 1, len) END \$\$;\n";
$sql .= "CREATE FOREIGN TABLE $_ " . definition($_) . ";\n" for @kvfdw;
$sql .= "CREATE TABLE twins (k int PRIMARY KEY, n bigint);\n" if $kind;
$sql .= "INSERT INTO markers SELECT w, 0 FROM generate_series(0, $writers - 1) w;
INSERT INTO twins SELECT w + x, 0 FROM generate_series(0, $writers - 1) w, (VALUES (0), (1000)) AS y(x);
INSERT INTO counters SELECT c, 0 FROM generate_series(0, $counters - 1) c;\n";
query($sql) // die "the tables could not be made\n";
my @moving = $ENV{MOVES} ? grep { $level{$_} ne 'none' } @kvfdw : ();
if (@moving)
{
	mkdir "$dir/$_" for qw(near far);
	places_make($dir);
}
%rows = map { $_ => {} } @tables;
$counter{$_} = 0 for 0 .. $counters - 1;
$marker{$_} = 0 for 0 .. $writers - 1;

# The stop points that the source names; test builds know kvfdw.stop_points.
my %points;
my $answer = query("SELECT 1 FROM pg_settings WHERE name = 'kvfdw.stop_points'");
if (defined $answer && @$answer)
{
	find(
		sub {
			return unless /\.c$/;
			open my $source, '<', $_ or die "$File::Find::name: $!";
			while (<$source>) { $points{$1} = 1 if /\bKV_STOP_POINT\s*\(\s*"(\w+)"/ }
		},
		"$FindBin::RealBin/../../src");
	%points or die "the source names no stop point\n";
}
my @points = sort keys %points;

# ---- a round ----

# Returns what happened, and what is wrong.
sub play
{
	my ($round) = @_;
	my $seed = $round->{seed} + 1000;    # and + 1 … the writers', + 500 … the readers'
	srand $seed;
	my @victims = ('postmaster', 'postmaster', 'backend', 'backend', 'worker', 'worker', 'other', @points ? ('stop point') x 5 : (), $ENV{TIER} ? ('nobody', 'nobody', 'stop', 'stop', 'stop') : ());
	my $victim = $victims[ rand @victims ];
	my $point = @points ? $points[ rand @points ] : '';
	my $delay = 0.1 + rand(1.5);
	my $again = rand() < 0.3 ? 1 + int(rand 4) : 0;
	my $sly = $points[ rand @points ] // '';
	my $story;

	$faults = @points && rand() < 0.4
	  ? join(':', (qw(value_read value_write value_extend key_log_write key_log_read run_map run_write meta_write meta_read unlink))[ rand 10 ],
		1 + int(rand 15) . (rand() < 0.5 ? '+' : ''), (qw(EIO ENOSPC EMFILE ENOMEM short delay))[ rand 6 ]) : undef;

	if ($kind) { $victim = 'disk'; $again = 0; $faults = $kind eq 'remount' ? undef : $kind }

	my @pids = ((map { my $w = $_; launch('writer', $w, $seed + $w + 1, sub { writer($w, $round->{n} + 1) }) } 0 .. $writers - 1),
		(map { my $r = $_; launch('reader', $r, $seed + 500 + $r, sub { reader($r) }) } 0 .. 1),
		@moving ? launch('mover', '', $seed + 900, sub { keep_moving($faults ? qr/^(?:42P01|42704|42710|53|58|XX001)/ : qr/^(?:42P01|42704|42710)$/, @moving) }) : ());

	# The kill.
	if ($faults && !$kind)
	{
		sleep 0.2 + rand 0.5;
		configure('kvfdw.fault' => $faults);
		kill HUP => postmaster();
		sleep rand 1.5;
		configure('kvfdw.fault' => undef);
		kill HUP => postmaster();
		$victim = 'nobody' if rand() < 0.4;
	}
	sleep $delay;
	my $postmaster = postmaster();
	if ($victim eq 'stop point')
	{
		configure('kvfdw.stop_points' => "$point=kill");
		kill HUP => $postmaster;
		my $end = time + 2;
		my $running = $writers;
		while ($running && time < $end) { $running = grep { alive($_) } @pids; sleep 0.02 }
		$story = "stop point $point " . ($running ? 'not reached by writers, SIGKILL to postmaster' : 'reached');
		# Recovery may reach it too.
		if ($running) { server_kill(); server_start() && query("SELECT count(*) FROM $_") for 'a' }
	}
	elsif ($victim eq 'nobody')
	{
		$again = 0;
		query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()");
		$story = 'sessions terminated';
	}
	elsif ($victim eq 'stop')
	{
		$again = 0;
		system("pg_ctl -D '$dir/data' -m fast -t 120 -w stop >>'$dir/commands.log' 2>&1");
		$story = 'clean stop';
	}
	elsif ($victim eq 'disk') { $story = lose_disk() }
	elsif ($victim eq 'postmaster')
	{
		server_kill();
		$story = 'SIGKILL to postmaster';
	}
	else
	{
		my ($pid, $type) = server_process($victim);
		if (defined $pid) { kill KILL => $pid }
		else { server_kill() }
		$story = defined $pid ? "SIGKILL to $type" : "no $victim, SIGKILL to postmaster";
	}
	$story .= ", fault $faults" if $faults && !$kind;
	$story .= sprintf ' after %.2f s', $delay;

	# The writers end when their connections do.
	my ($hang, @results) = collect(180);
	my @readers = splice @results, $writers;
	$results[$_]{number} //= $marker{$_} for 0 .. $writers - 1;
	$story .= ', writers hang' if $hang;

	# Back again; sometimes the recovery is killed as well.
	for my $time (1 .. $again)
	{
		my $pid = postmaster();
		server_kill() if @points && defined $pid && alive($pid);
		configure('kvfdw.stop_points' => rand() < 0.5 ? "recover_after_logs=kill" : rand() < 0.5 ? "replay_before_free=kill" : "$sly=kill") if @points && rand() < 0.5;
		$pid = postmaster();
		server_start('-W') unless defined $pid && alive($pid);
		for (1 .. 100) { last if defined postmaster(); sleep 0.02 }
		sleep rand($time % 2 ? 0.3 : 1.5);
		server_kill();
		$story .= ', and again during recovery';
	}
	configure('kvfdw.stop_points' => undef);
	server_kill() if $again && defined postmaster();
	if ($reboots && @points && !defined postmaster() && rand() < 0.7 && (!$kind || $kind eq 'full'))
	{
		configure('kvfdw.boot_id' => "boot $round->{n}");
		$story .= ', reboot';
	}
	if ($victim eq 'stop point')
	{
		configure('kvfdw.stop_points' => undef);
		server_kill() if defined postmaster();
	}
	my @wrong;
	my ($acknowledged, $in_flight, $survived, $errors) = (0, 0, 0, 0);
	if (!server_return()) { @wrong = ('the server does not come back') }
	else
	{
		# Prepared transactions live through flushes and crashes, then end either way.
		my %resolved;
		my $gids = query('SELECT gid FROM pg_prepared_xacts ORDER BY gid') // [];
		if (@$gids)
		{
			$story .= ', ' . @$gids . ' prepared';
			if (rand() < 0.5) { query("SELECT kvfdw_flush('$_')") for @kvfdw }
			if (rand() < 0.5) { server_kill(); server_return() }
			if (rand() < 0.3) { query("SELECT kvfdw_flush('$_')") for @kvfdw }
			for my $gid (@$gids)
			{
				$resolved{$gid} = rand() < 0.5 ? 'COMMIT' : 'ROLLBACK';
				query("$resolved{$gid} PREPARED '$gid'") // push @wrong, "$resolved{$gid} PREPARED '$gid' failed";
			}
			if (rand() < 0.3) { server_kill(); server_return() }
		}
		($survived, my @more) = compare(\%resolved, @results);
		push @wrong, @more;
	}
	push @wrong, map { $_->{error} // () } @readers;
	$story .= sprintf ', tables sent %d times', sum0(map { $_->{sent} // 0 } @readers) if @moving;
	push @wrong, 'writers hang' if $hang;
	$acknowledged += $_->{transactions} // 0 for @results;
	$errors += $_->{faults} // 0 for @results;
	$in_flight += defined $_->{flight} for @results;
	splice @wrong, 20, @wrong, '… ' . (@wrong - 20) . ' more' if @wrong > 20;

	# The other I/O method next time, where this round ended with a restart.
	if (!@wrong) { configure('kvfdw.io_method' => rand() < 0.5 ? 'auto' : 'sync') }
	else { push @wrong, "repeat its choices on fresh tables: torture.pl --rounds 1 --seed $round->{seed}" }
	return (sprintf('%s; %d transactions acknowledged, %d failed, %d of %d with COMMIT under way survived, %d rows%s',
			$story, $acknowledged, $errors, $survived, $in_flight, sum0(map { scalar keys %{ $rows{$_} } } @tables), tier_story()), @wrong);
}

my $failed = campaign(about => "$writers writers, stop points: @points", play => \&play);
if (@moving && !$failed)
{
	my @wrong = places_leave(@moving);
	print map { "# $_\n" } @wrong;
	$failed = @wrong > 0;
}
exit $failed;
