# A connection that does not wait: PostgreSQL's simple query protocol over the
# server's Unix socket (PGHOST, PGPORT), without a password.
#
# An answer is a list of lines in the order they came: "row 1|x", "tag UPDATE 1",
# "ERROR 23505: message", "NOTICE 00000: message".
package KvWire;
use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;

# %startup: the startup packet's parameters: user, database, options …
sub connect
{
	my ($class, %startup) = @_;
	my $path = "$ENV{PGHOST}/.s.PGSQL.$ENV{PGPORT}";
	my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!\n";
	my $self = $class->start($socket, %startup);
	$self->wait;
	return $self;
}

# What the server says to the startup packet is not waited for.
sub start
{
	my ($class, $socket, %startup) = @_;
	my $self = bless { socket => $socket, buffer => '', lines => [], status => 'I' }, $class;
	my $body = pack('N', 3 << 16) . join('', map { "$_\0$startup{$_}\0" } sort keys %startup) . "\0";
	$self->put(pack('N', 4 + length $body) . $body);
	return $self;
}

# A server that is gone is noticed where its answer is read: it may have said why.
sub put
{
	my ($self, $bytes) = @_;
	local $SIG{PIPE} = 'IGNORE';
	$self->{busy} = 1;
	my $put = 0;
	while ($put < length $bytes) { $put += syswrite($self->{socket}, $bytes, length($bytes) - $put, $put) // ($!{EINTR} ? 0 : last); }
	return;
}

# Send one statement; {busy} until receive has seen its whole answer.
sub send
{
	my ($self, $sql) = @_;
	die "a statement is under way\n" if $self->{busy};
	$self->{lines} = [];
	$self->put('Q' . pack('N', 5 + length $sql) . "$sql\0");
	return;
}

# Take what has arrived; waits if nothing has.
sub receive
{
	my ($self) = @_;
	my $n = sysread($self->{socket}, $self->{buffer}, 65536, length $self->{buffer});
	return if !defined $n && $!{EINTR};
	$n or die "the server closed the connection: @{ $self->{lines} }\n";
	while (length $self->{buffer} >= 5)
	{
		my ($type, $length) = unpack('aN', $self->{buffer});
		last if length $self->{buffer} <= $length;
		my $message = substr($self->{buffer}, 0, 1 + $length, '');
		$self->message($type, substr($message, 5));
	}
	return;
}

sub message
{
	my ($self, $type, $body) = @_;
	if ($type eq 'D') { push @{ $self->{lines} }, 'row ' . join('|', map { $_ // '~' } row($body)); }
	elsif ($type eq 'C') { push @{ $self->{lines} }, 'tag ' . unpack('Z*', $body); }
	elsif ($type eq 'E' or $type eq 'N')
	{
		my %field = map { substr($_, 0, 1) => substr($_, 1) } split /\0/, $body;
		push @{ $self->{lines} }, "$field{V} $field{C}: $field{M}" . ($field{C} eq '23505' && $field{D} ? ": $field{D}" : '');
	}
	elsif ($type eq 'Z') { ($self->{status}, $self->{busy}) = ($body, 0); $self->{answers}++; }
	elsif ($type eq 'A') { push @{ $self->{lines} }, 'notify ' . join(' ', unpack('x4Z*Z*', $body)); }
	elsif ($type eq 'K') { $self->{pid} = unpack('N', $body); }
	elsif ($type eq 'R' && unpack('N', $body) != 0) { die "the server wants a password\n"; }
	return;
}

# The values of a row.
sub row
{
	my ($body) = @_;
	my @row;
	for (1 .. unpack('n', substr($body, 0, 2, '')))
	{
		my $length = unpack('l>', substr($body, 0, 4, ''));
		push @row, $length < 0 ? undef : substr($body, 0, $length, '');
	}
	return @row;
}

sub wait
{
	my ($self) = @_;
	$self->receive while $self->{busy};
	return;
}

# A statement that must succeed; returns its rows.
sub ask
{
	my ($self, $sql) = @_;
	$self->send($sql);
	$self->wait;
	my @lines = splice(@{ $self->{lines} });
	if (my ($error) = grep { /^(ERROR|FATAL)/ } @lines) { die "$sql: $error\n"; }
	return map { /^row (.*)/s ? $1 : () } @lines;
}

# Those of the connections whose server has something to say within so many seconds.
sub ready
{
	my ($seconds, @connections) = @_;
	my %by = map { $_->{socket} => $_ } @connections;
	return map { $by{$_} } IO::Select->new(map { $_->{socket} } @connections)->can_read($seconds);
}

1;
