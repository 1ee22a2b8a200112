# Clients of memcached that know what must be there: the writers of the campaigns registers and powercut, and their judge.
#
# Each client has keys of its own, on which it does set, add, append, incr, cas and delete, several at once.  Requests of one
# connection are done in their order, so what is there is what its first m requests leave, with m at least how many were
# acknowledged and at most how many were sent: of all its keys at once.  And all raise shared counters, some by incr, some by
# gets and cas: each acknowledged one counts once, and no number is given to two.
package KvRegisters;
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Socket qw(TCP_NODELAY IPPROTO_TCP);
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

use constant KEYS => 6;
use constant SHARED => 3;
use constant OPEN => 8;
use constant LIMIT => 120;

# The statement that makes the table; level: of its WAL.
sub table
{
	my ($name, $level) = @_;
	return "CREATE FOREIGN TABLE $name (key text COLLATE \"C\" NOT NULL, flags bigint NOT NULL DEFAULT 0, expires timestamptz, value bytea) "
	  . "SERVER kvfdw OPTIONS (key 'key', memcached '', wal '$level', shards '2'); GRANT SELECT, INSERT, UPDATE, DELETE ON $name TO web";
}

# A client; known: what its keys have, nothing at first.
sub new
{
	my ($class, $number, $port, $known) = @_;
	return bless { number => $number, port => $port, known => { %{ $known // {} } }, ops => [], done => 0, sent => 0,
		shared_done => {}, shared_open => {}, numbers => [], acked => 0 }, $class;
}

# The campaigns' clock.
sub now { return clock_gettime(CLOCK_MONOTONIC) }

# ---- a connection ----

sub connected
{
	my ($self, $end) = @_;
	while (now() < $end)
	{
		my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Proto => 'tcp', Timeout => 5);
		if ($s)
		{
			setsockopt($s, IPPROTO_TCP, TCP_NODELAY, 1);
			@$self{qw(s in)} = ($s, '');
			return 1;
		}
		sleep 0.05;
	}
	return 0;
}

sub say_to { my ($self, $bytes) = @_; local $SIG{PIPE} = 'IGNORE'; return defined(syswrite $self->{s}, $bytes) }

# More bytes until done says so; false: the connection is gone.
sub need
{
	my ($self, $done) = @_;
	until ($done->())
	{
		return 0 unless IO::Select->new($self->{s})->can_read(LIMIT);
		my $n = sysread $self->{s}, $self->{in}, 65536, length $self->{in};
		return 0 unless $n;
	}
	return 1;
}

sub line
{
	my ($self) = @_;
	$self->need(sub { $self->{in} =~ /\r\n/ }) or return undef;
	$self->{in} =~ s/^(.*?)\r\n//s;
	return $1;
}

# The value of a key and its cas number: (): the connection is gone; (undef): there is none.
sub gets
{
	my ($self, $key) = @_;
	$self->say_to("gets $key\r\n") or return ();
	my $line = $self->line // return ();
	return (undef) if $line eq 'END';
	my ($length, $cas) = $line =~ /^VALUE \S+ \d+ (\d+) (\d+)$/ or die "gets $key: $line\n";
	$self->need(sub { length $self->{in} >= $length + 7 }) or return ();
	my $value = substr $self->{in}, 0, $length;
	substr $self->{in}, 0, $length + 7, '';
	return ($value, $cas);
}

# ---- its own keys ----

sub key { my ($self, $i) = @_; return "own$self->{number}.$i" }

# A request for one of its keys, in the state that all before leave: what is sent, the reply, what the key has then.
sub draw
{
	my ($self, $state) = @_;
	my $key = $self->key(int rand KEYS);
	my ($has, $x) = ($state->{$key}, rand);
	my $value = ++$self->{count} . '.' . ('v' x ($x < 0.02 ? 70_000 : $x < 0.2 ? 4000 : int rand 200));
	my $store = sub { my ($command, $v) = @_; return "$command $key 7 0 " . length($v) . "\r\n$v\r\n" };
	if (rand() < 0.35) { return [ $key, $store->('set', $value), 'STORED', $value ] }
	if (rand() < 0.1) { return [ $key, "delete $key\r\n", defined $has ? 'DELETED' : 'NOT_FOUND', undef ] }
	if (rand() < 0.15) { return [ $key, $store->('add', $value), defined $has ? 'NOT_STORED' : 'STORED', $has // $value ] }
	if (rand() < 0.2 && length($has // '') < 1000) { return [ $key, $store->('append', ".$self->{count}"), defined $has ? 'STORED' : 'NOT_STORED', defined $has ? "$has.$self->{count}" : undef ] }
	if (defined $has && $has =~ /^\d{1,15}$/) { my $n = $has + 3; return [ $key, "incr $key 3\r\n", $n, $n ] }
	my $n = ++$self->{count};
	return [ $key, $store->('set', $n), 'STORED', $n ];
}

# How many of its requests are done, by what its keys have (a sub); 'wrong' says that it is no such number.
sub place
{
	my ($self, $at_least, $has) = @_;
	my %state = %{ $self->{known} };
	for my $m (0 .. @{ $self->{ops} })
	{
		if ($m > 0) { my $op = $self->{ops}[ $m - 1 ]; $state{ $op->[0] } = $op->[3] }
		next if $m < $at_least;
		return $m unless grep { ($has->($_) // "\0") ne ($state{$_} // "\0") } map { $self->key($_) } 0 .. KEYS - 1;
	}
	return undef;
}

# Forget the requests before number m: their state is known.
sub settle
{
	my ($self, $m) = @_;
	for my $op (splice @{ $self->{ops} }, 0, $m) { $self->{known}{ $op->[0] } = $op->[3] }
	@{ $self->{ops} } = ();
	$self->{done} = 0;
	delete $self->{state};
}

sub reconnect
{
	my ($self, $end) = @_;
	close $self->{s} if $self->{s};
	delete $self->{s};
	while ($self->connected($end))
	{
		my %has;
		my $whole = 1;
		for my $i (0 .. KEYS - 1)
		{
			my @got = $self->gets($self->key($i));
			$whole &&= @got > 0;
			last unless $whole;
			$has{ $self->key($i) } = $got[0];
		}
		next unless $whole;
		my $m = $self->place($self->{done}, sub { $has{ $_[0] } });
		die "what client $self->{number} finds is not what $self->{done} to " . @{ $self->{ops} } . " of its requests leave: "
		  . join(', ', map { "$_ " . substr($has{$_} // 'none', 0, 30) } sort keys %has) . "; known "
		  . join(', ', map { "$_ " . substr($self->{known}{$_} // 'none', 0, 30) } sort keys %has) . "; requests "
		  . join(', ', map { "$_->[0] " . substr($_->[3] // 'none', 0, 30) } @{ $self->{ops} }) . "\n" if !defined $m;
		$self->settle($m);
		return 1;
	}
	return 0;
}

# Some requests at once, and their replies.  False: the connection is gone.
sub own_requests
{
	my ($self, $noted) = @_;
	my $state = $self->{state} //= { %{ $self->{known} } };
	my ($bytes, @new) = ('');
	for (1 .. 1 + int rand OPEN)
	{
		my $op = $self->draw($state);
		$state->{ $op->[0] } = $op->[3];
		push @new, $op;
		$bytes .= $op->[1];
	}
	push @{ $self->{ops} }, @new;
	$self->say_to($bytes) or return 0;
	for my $op (@new)
	{
		my $line = $self->line // return 0;
		die "client $self->{number}: $op->[0] has $line, not $op->[2]\n" if $line ne $op->[2];
		$self->{done}++;
		$self->{acked}++;
		$noted->($self->{done}) if $noted;
	}
	$self->settle($self->{done}) unless $noted;
	return 1;
}

# ---- shared counters ----

sub raise_incr
{
	my ($self) = @_;
	my $key = 'incr' . int rand SHARED;
	$self->{shared_open}{$key}++;
	my $line = $self->say_to("incr $key 1\r\n") ? $self->line : undef;
	return 0 if !defined $line;
	$self->{shared_open}{$key}--;
	die "incr $key: $line\n" if $line !~ /^\d+$/;
	$self->{shared_done}{ $self->{last} = $key }++;
	push @{ $self->{numbers} }, "$key $line";
	return 1;
}

sub raise_cas
{
	my ($self) = @_;
	my $key = 'cas' . int rand SHARED;
	my ($value, $cas) = $self->gets($key) or return 0;
	die "there is no $key\n" if !defined $value;
	my $next = $value + 1;
	$self->{shared_open}{$key}++;
	my $line = $self->say_to("cas $key 0 0 " . length($next) . " $cas\r\n$next\r\n") ? $self->line : undef;
	return 0 if !defined $line;
	$self->{shared_open}{$key}--;
	die "cas $key: $line\n" if $line ne 'STORED' && $line ne 'EXISTS';
	return 1 if $line eq 'EXISTS';
	$self->{shared_done}{ $self->{last} = $key }++;
	push @{ $self->{numbers} }, "$key $next";
	return 1;
}

# ---- all of it ----

# Write until the time; what the judge needs, and known for the next round.
sub run
{
	my ($self, $end) = @_;
	my $there = $self->reconnect($end);
	while ($there && now() < $end)
	{
		my $x = rand;
		my $goes_on = $x < 0.6 ? $self->own_requests : $x < 0.85 ? $self->raise_incr : $self->raise_cas;
		$there = $self->reconnect($end + LIMIT) if !$goes_on;
	}
	return { map { ($_ => $self->{$_}) } qw(number known ops done acked shared_done shared_open numbers) };
}

# Write until the connection is gone.  What the judge needs, and when all that was acknowledged, by $when->().
sub run_once
{
	my ($self, $when) = @_;
	my (@own, @shared);
	my $there = $self->connected(now() + LIMIT);
	while ($there)
	{
		my $x = rand;
		delete $self->{last};
		$there = $x < 0.6 ? $self->own_requests(sub { push @own, [ $_[0], $when->() ] }) : $x < 0.85 ? $self->raise_incr : $self->raise_cas;
		push @shared, [ $self->{last}, $when->() ] if $self->{last};
	}
	return { own => \@own, shared => \@shared, map { ($_ => $self->{$_}) } qw(number known ops acked shared_done shared_open numbers) };
}

# Such a result as it would be if the client had heard of nothing since then.
sub as_of
{
	my ($r, $then) = @_;
	my %is = (%$r, done => 0, numbers => [], shared_done => {}, shared_open => { %{ $r->{shared_open} } });
	for (@{ $r->{own} }) { $is{done} = $_->[0] if $_->[1] <= $then }
	for (@{ $r->{shared} }) { $is{ $_->[1] <= $then ? 'shared_done' : 'shared_open' }{ $_->[0] }++ }
	return \%is;
}

# Wrong things about what a table has (key → value), and the results of the last runs.  $total is kept from round to round.
sub judge
{
	my ($is, $total, @results) = @_;
	my (@wrong, %given);
	for my $r (@results)
	{
		my $client = bless {%$r}, 'KvRegisters';
		push @wrong, "the keys of client $r->{number} are not what $r->{done} to " . @{ $r->{ops} } . ' more of its requests leave'
		  if !defined $client->place($r->{done}, sub { $is->{ $_[0] } });
		$total->{done}{$_} += $r->{shared_done}{$_} for keys %{ $r->{shared_done} };
		$total->{open}{$_} += $r->{shared_open}{$_} for keys %{ $r->{shared_open} };
		for (@{ $r->{numbers} }) { push @wrong, "the number '$_' was given to two" if $given{$_}++ }
	}
	for my $key (map { ("incr$_", "cas$_") } 0 .. SHARED - 1)
	{
		my ($n, $least) = ($is->{$key} // 'none', $total->{done}{$key} // 0);
		my $most = $least + ($total->{open}{$key} // 0);
		push @wrong, "$key is $n, not $least to $most" if $n !~ /^\d+$/ || $n < $least || $n > $most;
	}
	return @wrong;
}

# What makes the shared counters, as values of an INSERT.
sub counters { return join ', ', map { ("('incr$_', 0, NULL, '0')", "('cas$_', 0, NULL, '0')") } 0 .. SHARED - 1 }

1;
