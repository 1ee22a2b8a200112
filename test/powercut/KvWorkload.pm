# What the sessions of the power-cut campaign do, and the judge of what is left.
#
# A session's history is a row of transactions, 1, 2, 3 …, that follows from the
# seed alone: each session has keys of its own, the values are made from their
# names, and a transaction is the same whenever it is run.  So the state that n
# transactions leave can be told without having stored a row.  Transactions that
# are rolled back have no number; they come in front of one that has.
package KvWorkload;
use strict;
use warnings;
use Digest::MD5 qw(md5 md5_hex);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

# tables: name → { level: heap, full, keys or none; side: the only session that
# writes it, and may truncate and drop it, or undef }; async: how many of the
# sessions commit without waiting.
sub new
{
	my ($class, %is) = @_;
	my $self = bless { seed => $is{seed}, tables => $is{tables}, async => $is{async} // 0, rows => {}, state => {}, sessions => [] }, $class;
	@{ $self->{$_} }{ keys %{ $is{tables} } } = map { {} } keys %{ $is{tables} } for 'rows', 'state';
	for my $s (0 .. $is{sessions} - 1)
	{
		my @side = grep { ($is{tables}{$_}{side} // -1) == $s } sort keys %{ $is{tables} };
		my @own = (grep { !defined $is{tables}{$_}{side} } sort keys %{ $is{tables} });
		push @{ $self->{sessions} }, { own => [ @own, @side ], side => \@side, done => [], at => 0, next => 0, bulk => undef, live => { map { $_ => [] } @own, @side } };
	}
	return $self;
}

# Those from number 1 on, which has a table of its own; 0 is the last.
sub is_async { my ($self, $s) = @_; return ($s || @{ $self->{sessions} }) <= $self->{async} }

sub is_strict { my ($self, $t) = @_; return $self->{tables}{$t}{level} ne 'none' }

# ---- values ----

my $many = 100;     # rows that a session keeps in a table
my $piece = 4000;
my $noise = join '', map { md5_hex("noise $_") } 1 .. 3000;

# Every piece of a value begins with the digest of its name and place, and goes
# on at a place of its own in the noise.  Length -1 is NULL.
sub value
{
	my ($name, $length) = @_;
	my $value = '';
	for (my $i = 0; length $value < $length; $i++)
	{
		my $digest = md5("$name $i");
		$value .= unpack('H*', $digest) . substr($noise, unpack('S', $digest), $piece - 32);
	}
	return substr($value, 0, $length);
}

# What fingerprint_sql gives for it.
sub fingerprint
{
	my ($name, $length) = @_;
	return $length < 0 ? 'null' : "$length " . md5_hex(value($name, $length));
}

sub fingerprint_sql { return q{coalesce(octet_length(v) || ' ' || md5(v), 'null')} }

sub random_length
{
	my $x = rand;
	return $x < 0.06 ? 0
	  : $x < 0.09 ? -1
	  : $x < 0.60 ? 1 + int rand 400
	  : $x < 0.75 ? int rand 4000
	  : $x < 0.85 ? 4095 + int rand 3
	  : $x < 0.93 ? int rand 20_000
	  : $x < 0.96 ? 65_536 - 64 + int rand 128    # a write buffer of 64 kB
	  : $x < 0.985 ? 60_000 + int rand 10_000
	  : 70_000 + int rand 230_001;
}

# Lengths of bulk rows
sub bulk_length { my ($i) = @_; return $i % 97 == 96 ? 4096 : $i * 31 % 150 }

# Spread over all bigints, and so over all shards.
sub key { my ($self, @of) = @_; return unpack 'q', md5("$self->{seed} @of") }

# ---- transactions ----

# Transaction n of a session: steps, each a verb and what it needs, and what it
# leaves: table → key → [ name, length ], or undef for a key that it takes away.
sub transaction
{
	my ($self, $s, $n) = @_;
	my $done = $self->{sessions}[$s]{done};
	$self->draw($s) while @$done < $n;
	return $done->[ $n - 1 ];
}

sub draw
{
	my ($self, $s) = @_;
	my $session = $self->{sessions}[$s];
	my $n = 1 + @{ $session->{done} };
	srand unpack 'L', md5("$self->{seed} transaction $s $n");
	my $draft = { session => $session, s => $s, prefix => "$s.$n", number => 0, steps => [], changes => {}, written => {} };

	my $x = rand;
	if ($x < 0.12)
	{
		# all of it for nothing
		$self->change($draft) for 0 .. rand 6;
		$draft->{steps} = [ ['begin'], @{ $draft->{steps} }, ['rollback'] ];
		@$draft{qw(prefix changes written)} = ("$s.$n.again", {}, {});
		$x = rand;
	}
	my $several = $x >= 0.45;
	push @{ $draft->{steps} }, ['begin'] if $several;
	if (!$several) { $self->single($draft) }
	elsif ($x < 0.46) { $self->bulk($draft) }
	elsif ($x < 0.50 && @{ $session->{side} }) { $self->renew($draft) }
	else
	{
		$self->change($draft) for 0 .. rand 8;
		if (rand() < 0.3)
		{
			my @before = map { my $of = $_; +{ map { $_ => { %{ $of->{$_} } } } keys %$of } } @$draft{qw(changes written)};
			push @{ $draft->{steps} }, [ 'savepoint', 'a' ];
			$self->change($draft) for 0 .. rand 4;
			if (rand() < 0.6)
			{
				push @{ $draft->{steps} }, [ 'rollback to', 'a' ];
				@$draft{qw(changes written)} = @before;
			}
			$self->change($draft) for 0 .. rand 3;
		}
	}
	# every state differs from the one before
	$self->insert($draft, $self->any_table($session)) if $several;
	push @{ $draft->{steps} }, ['commit'] if $several;

	push @{ $session->{done} }, { steps => $draft->{steps}, changes => $draft->{changes} };
	for my $t (sort keys %{ $draft->{changes} })
	{
		my $changes = $draft->{changes}{$t};
		my $live = $session->{live}{$t};
		@$live = grep { !exists $changes->{$_} || defined $changes->{$_} } @$live;
		for my $key (sort { $a <=> $b } keys %$changes)
		{
			my $row = $self->{rows}{$t}{$key} //= { session => $s, versions => [] };
			my $was = $row->{versions}[-1];
			push @$live, $key if defined $changes->{$key} && !$changes->{$key}[2] && !defined($was && $was->[1]);
			my @passing = $self->is_strict($t) ? () : @{ $draft->{written}{$t}{$key} // [] };
			push @{ $row->{versions} }, [ $n, @{ $changes->{$key} // [] }[ 0, 1 ], undef, map { [ $n, @$_[ 0, 1 ] ] } @passing ];
		}
	}
}

sub any_table { my ($self, $session) = @_; return $session->{own}[ rand @{ $session->{own} } ] }

sub new_name { my ($draft) = @_; return "$draft->{prefix}." . ++$draft->{number} }

# A key that has a row at this point of the transaction; often undef when there are few.
sub some_key
{
	my ($self, $draft, $t) = @_;
	my $live = $draft->{session}{live}{$t};
	my $changes = $draft->{changes}{$t} // {};
	my @new = grep { defined $changes->{$_} && !$changes->{$_}[2] } sort { $a <=> $b } keys %$changes;
	my $key = @new && rand() < 0.2 ? $new[ rand @new ] : $live->[ rand @$live ];
	return defined $key && exists $changes->{$key} && !defined $changes->{$key} ? undef : $key;
}

sub insert
{
	my ($self, $draft, $t) = @_;
	my $key = $self->key($draft->{s}, ++$draft->{session}{next});
	$self->put($draft, 'insert', $t, $key);
}

sub put
{
	my ($self, $draft, $verb, $t, $key, @more) = @_;
	my $row = [ new_name($draft), random_length() ];
	push @{ $draft->{steps} }, [ $verb, $t, @more, $key, @$row ];
	$draft->{changes}{$t}{$key} = $row;
	$draft->{written}{$t}{$key} = [ @{ $draft->{written}{$t}{$key} // [] }, $row ];
}

# A transaction of one statement: an insert, or a delete where there are many rows.
sub single
{
	my ($self, $draft) = @_;
	my $t = $self->any_table($draft->{session});
	my $key = @{ $draft->{session}{live}{$t} } > $many && rand() < 0.6 ? $self->some_key($draft, $t) : undef;
	return $self->insert($draft, $t) if !defined $key;
	push @{ $draft->{steps} }, [ 'delete', $t, $key ];
	$draft->{changes}{$t}{$key} = undef;
}

# One statement or two on one row.
sub change
{
	my ($self, $draft) = @_;
	my $t = $self->any_table($draft->{session});
	my $key = $self->some_key($draft, $t);
	my $x = @{ $draft->{session}{live}{$t} } > $many ? 0.35 + rand 0.65 : rand;
	if ($x < 0.35 || !defined $key) { return $self->insert($draft, $t) }
	if ($x < 0.70) { return $self->put($draft, 'update', $t, $key) }
	$draft->{changes}{$t}{$key} = undef;
	if ($x < 0.80) { return $self->put($draft, 'move', $t, $self->key($draft->{s}, ++$draft->{session}{next}), $key) }
	push @{ $draft->{steps} }, [ 'delete', $t, $key ];
	$self->put($draft, 'insert', $t, $key) if $x < 0.90;
}

# Some thousand rows by COPY, next to each other or everywhere; the next time they go.
sub bulk
{
	my ($self, $draft) = @_;
	my ($session, $s) = @$draft{qw(session s)};
	if (my $bulk = delete $session->{bulk})
	{
		push @{ $draft->{steps} }, [ 'delete all', @$bulk ];
		$draft->{changes}{ $bulk->[0] }{$_} = undef for @{ $bulk->[1] };
		return;
	}
	my $t = $self->any_table($session);
	$t = $session->{own}[0] if defined $self->{tables}{$t}{side};
	my $first = $self->key($s, ++$session->{next}) >> 1;
	my $apart = rand() < 0.5;
	my @keys = map { $apart ? $self->key($s, $first, $_) : $first + $_ } 0 .. 500 + rand 2500;
	push @{ $draft->{steps} }, [ 'copy', $t, \@keys, $draft->{prefix} ];
	$draft->{changes}{$t}{ $keys[$_] } = [ "$draft->{prefix}/$_", bulk_length($_), 'bulk' ] for 0 .. $#keys;
	$session->{bulk} = [ $t, \@keys ];
}

# A side table becomes empty, and gets some rows.
sub renew
{
	my ($self, $draft) = @_;
	my $session = $draft->{session};
	my $t = $session->{side}[ rand @{ $session->{side} } ];
	push @{ $draft->{steps} }, [ rand() < 0.6 ? 'truncate' : 'recreate', $t ];
	$draft->{changes}{$t} = { map { $_ => undef } @{ $session->{live}{$t} } };
	$self->insert($draft, $t) for 0 .. rand 10;
}

# ---- SQL ----

sub create
{
	my ($self, $t) = @_;
	my ($level, $side) = @{ $self->{tables}{$t} }{qw(level side)};
	return "CREATE TABLE $t (k bigint PRIMARY KEY, v text)" if $level eq 'heap';
	return "CREATE FOREIGN TABLE $t (k bigint NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k', wal '$level', shards '" . (defined $side ? 1 : 16) . "'"
	  . ($level eq 'none' ? ", on_duplicate 'replace')" : ')');
}

sub drop { my ($self, $t) = @_; return 'DROP ' . ($self->{tables}{$t}{level} eq 'heap' ? '' : 'FOREIGN ') . "TABLE $t" }

# The SQL of one step.  On a table that may have lost rows it does not fail.
sub sql
{
	my ($self, $verb, @of) = @_;
	my $literal = sub { my ($name, $length) = @_; return $length < 0 ? 'NULL' : "'" . value($name, $length) . "'" };
	return uc $verb if $verb =~ /^(begin|commit|rollback)$/;
	return uc $verb . " $of[0]" if $verb =~ /^(savepoint|rollback to|truncate)$/;
	my $t = shift @of;
	return $self->drop($t) . '; ' . $self->create($t) if $verb eq 'recreate';
	return "DELETE FROM $t WHERE k = $of[0]" if $verb eq 'delete';
	return "DELETE FROM $t WHERE k = ANY ('{" . join(',', @{ $of[0] }) . "}')" if $verb eq 'delete all';
	return "INSERT INTO $t VALUES ($of[0], " . $literal->(@of[ 1, 2 ]) . ')' if $verb eq 'insert';
	return "UPDATE $t SET v = " . $literal->(@of[ 1, 2 ]) . " WHERE k = $of[0]" if $verb eq 'update';
	if ($verb eq 'move')
	{
		my ($old, $new, @value) = @of;
		return "DELETE FROM $t WHERE k = $old; INSERT INTO $t VALUES ($new, " . $literal->(@value) . ')' if !$self->is_strict($t);
		return "UPDATE $t SET k = $new, v = " . $literal->(@value) . " WHERE k = $old";
	}
	my ($keys, $prefix) = @of;
	return "COPY $t FROM STDIN;\n" . join('', map { "$keys->[$_]\t" . value("$prefix/$_", bulk_length($_)) . "\n" } 0 .. $#$keys) . '\\.';
}

# Runs a transaction; dies with the SQLSTATE of what fails, or "lost" with the
# connection.  Returns a moment before it committed.
sub run
{
	my ($self, $session, $s, $n) = @_;
	my ($before, @steps) = (0, @{ $self->transaction($s, $n)->{steps} });
	for (@steps)
	{
		my $sql = $self->sql(@$_);
		$before = clock_gettime(CLOCK_MONOTONIC);
		$session->do($sql);
	}
	return $before;
}

# ---- the judge ----

# The fingerprint of a version of a row; it is kept in it.  A version is
# [ transaction, name, length, fingerprint, versions … ]: the last are what the
# transaction itself wrote there, kept for tables with wal none: of several the
# last may be lost.
sub version_is
{
	my ($version) = @_;
	return 'absent' if !defined $version || !defined $version->[1];
	return $version->[3] //= fingerprint(@$version[ 1, 2 ]);
}

# The versions that a row has had after $n transactions of its session, and the
# one that the next transaction gives it.
sub versions
{
	my ($self, $t, $key, $n) = @_;
	my @versions = @{ $self->{rows}{$t}{$key}{versions} };
	my $next;
	while (@versions && $versions[-1][0] > $n)
	{
		$next = pop @versions;
	}
	return (\@versions, defined $next && $next->[0] == $n + 1 ? $next : undef);
}

# Brings {state}, table → key → version, to where session $s has $n transactions.
sub stand_at
{
	my ($self, $s, $n) = @_;
	my $session = $self->{sessions}[$s];
	while ($session->{at} != $n)
	{
		my $back = $session->{at} > $n;
		my $changes = $self->transaction($s, $back ? $session->{at}-- : ++$session->{at})->{changes};
		for my $t (keys %$changes)
		{
			for my $key (keys %{ $changes->{$t} })
			{
				my $version = ($self->versions($t, $key, $session->{at}))[0][-1];
				if (defined $version && defined $version->[1]) { $self->{state}{$t}{$key} = $version }
				else { delete $self->{state}{$t}{$key} }
			}
		}
	}
}

# After how many of its transactions what was found of an async session in strict
# tables is what it is: from and to, for not all transactions write to those.  At
# most $n; nothing if there is no such number.
sub prefix
{
	my ($self, $s, $n, $found) = @_;
	my (%differ, $to);
	my $look = sub {
		my ($t, $key) = @_;
		if (($found->{$t}{$key} // 'absent') eq version_is($self->{state}{$t}{$key})) { delete $differ{"$t $key"} } else { $differ{"$t $key"} = 1 }
	};
	my @tables = grep { $self->is_strict($_) } keys %$found;
	$self->stand_at($s, $n);
	for my $t (@tables)
	{
		$look->($t, $_) for grep { ($self->{rows}{$t}{$_} // { session => -1 })->{session} == $s } keys %{ $found->{$t} }, keys %{ $self->{state}{$t} };
	}
	for (; $n >= 0; $n--)
	{
		$to //= $n if !%differ;
		return ($n + 1, $to) if %differ && defined $to;
		last if $n == 0;
		my $changes = $self->transaction($s, $n)->{changes};
		$self->stand_at($s, $n - 1);
		for my $t (@tables) { $look->($t, $_) for keys %{ $changes->{$t} // {} } }
	}
	return defined $to ? (0, $to) : ();
}

# What of async sessions is not there though something else is that was committed
# after it had been acknowledged.  $known: for each session [ transaction, …, a
# moment before it committed, one when it was acknowledged ]; $from and $to: how
# many transactions there are of each.
sub out_of_order
{
	my ($self, $known, $from, $to) = @_;
	my @wrong;
	my ($latest, $of) = (0);
	for my $s (0 .. $#$known)
	{
		for (grep { $_->[0] <= $from->[$s] && $_->[2] > $latest } @{ $known->[$s] }) { ($latest, $of) = ($_->[2], "$_->[0] of session $s") }
	}
	for my $s (grep { $self->is_async($_) } 0 .. $#$known)
	{
		my ($first) = grep { $_->[0] > $to->[$s] && $_->[3] < $latest } @{ $known->[$s] };
		push @wrong, "transaction $first->[0] of session $s is not there, but number $of, which was committed later, is" if $first;
	}
	return @wrong;
}

# $acknowledged: how many transactions of each session were; one more may be
# there, and of async sessions any number of the last may be lost, in the order in
# which all were committed (out_of_order).  $found: table → key → fingerprint, or
# 'damaged'; tables that could not be read are not in it.  Returns how many
# transactions there are of each session, how many acknowledged ones are missing,
# how many rows of each table with wal none are not as they were last, and what is wrong.
sub judge
{
	my ($self, $acknowledged, $found, $known) = @_;
	my (@wrong, %lost, %missing);    # lost: table → "session.transaction" → one of the rows
	my (@with, @without);            # rows that have, and have not, what the session's transaction in flight did
	my @sessions = 0 .. $#$acknowledged;
	my (@from, @to);                 # of async sessions
	for my $s (grep { $self->is_async($_) } @sessions)
	{
		($from[$s], $to[$s]) = $self->prefix($s, $acknowledged->[$s] + 1, $found);
		push @wrong, "what is there of session $s is not what the first so many of its transactions leave" if !defined $to[$s];
	}
	my @stand = map { $to[$_] // $acknowledged->[$_] } @sessions;
	$self->stand_at($_, $stand[$_]) for @sessions;
	my @flights = map { defined $to[$_] ? {} : $self->transaction($_, $stand[$_] + 1)->{changes} } @sessions;

	for my $t (sort keys %$found)
	{
		my ($state, $is) = ($self->{state}{$t}, $found->{$t});
		my %look = map { $_ => 1 } (grep { ($is->{$_} // '') ne version_is($state->{$_}) } keys %$state), (grep { !exists $state->{$_} } keys %$is),
		  map { keys %{ $_->{$t} } } @flights;
		for my $key (sort keys %look)
		{
			my $is = $is->{$key} // 'absent';
			my $s = ($self->{rows}{$t}{$key} // {})->{session};
			if (!defined $s) { push @wrong, "$t, key $key: $is was never written"; next }
			my ($versions, $next) = $self->versions($t, $key, $stand[$s]);
			$next = undef if defined $to[$s];
			my $expected = version_is($versions->[-1]);
			my $follows = defined $next && version_is($next) eq $is;
			if ($is eq $expected) { $without[$s] //= "$t, key $key" if defined $next && !$follows && $self->is_strict($t) }
			elsif ($follows) { $with[$s] //= "$t, key $key" if $self->is_strict($t) }
			elsif ($is eq 'damaged' && @$versions && $self->is_strict($t)) { $lost{$t}{"$s.$versions->[-1][0]"} //= $key }
			elsif (!grep { version_is($_) eq $is } undef, map { ($_, @$_[ 4 .. $#$_ ]) } @$versions, $next // ())
			{
				push @wrong, "$t, key $key: is $is, which was never committed; expected $expected";
			}
			elsif (!$self->is_strict($t)) { $missing{$t}++ }
			else { $lost{$t}{"$s.$versions->[-1][0]"} //= $key }
		}
	}
	for my $t (sort keys %lost)
	{
		my ($first) = sort keys %{ $lost{$t} };
		my ($s, $n) = split /\./, $first;
		unshift @wrong, "$t: lost are " . keys(%{ $lost{$t} }) . " acknowledged transactions, among them number $n of session $s: key $lost{$t}{$first}";
	}
	push @wrong, map { "transaction @{[ $acknowledged->[$_] + 1 ]} of session $_ is there in part: $with[$_] has it, $without[$_] has not" }
	  grep { defined $with[$_] && defined $without[$_] } @sessions;
	my %all = map { %$_ } values %lost;
	my $there = [ map { $stand[$_] + (defined $with[$_] ? 1 : 0) } @sessions ];
	push @wrong, $self->out_of_order($known, [ map { $from[$_] // $there->[$_] } @sessions ], $there) if $known && !@wrong;
	return ($there, scalar(keys %all), \%missing, @wrong);
}

1;
