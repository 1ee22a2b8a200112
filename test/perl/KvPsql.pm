# Queries without a process for each: what a node's psql is asked for is sent over the
# server's socket, statement by statement, in a session of its own that has ended
# afterwards.  The answer is what psql -XAtq would say.  What only psql can do, as its
# commands, variables and COPY, is left to it.
#
# KV_PSQL=1: all of it is.
package KvPsql;
use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;

my $by_psql = \&PostgreSQL::Test::Cluster::psql;
{
	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::psql = \&psql;
}

# A process takes some time to end that has said that it will.
use constant PATIENCE => 1;

sub psql
{
	my ($node, $db, $sql, %params) = @_;
	local %ENV = $node->_get_env();
	my @statements = for_psql($node, $db, $sql, %params) ? () : statements($sql);
	my $answer = @statements && session($node, $db, $params{on_error_stop} // 1, @statements) or return $by_psql->($node, $db, $sql, %params);
	my ($rc, $out, $err) = @$answer;
	chomp($out, $err);
	${ $params{stdout} } = $out if ref $params{stdout};
	${ $params{stderr} } = $err if ref $params{stderr};
	die +($rc == 2 ? 'connection error' : 'error running SQL') . ": '$err'\nwhile running '" . $node->name . "' with sql '$sql'" if $rc && $params{on_error_die};
	print STDERR "$err\n" if $err ne '' && !wantarray && !ref $params{stderr};
	return wantarray ? ($rc, $out, $err) : $rc;
}

# Is there anything in it that only psql knows?
sub for_psql
{
	my ($node, $db, $sql, %params) = @_;
	delete @params{qw(stdout stderr on_error_stop on_error_die)};
	return $ENV{KV_PSQL} || %params || ($db // '') !~ /^\w+$/ || $node->host !~ m{^/} || grep({ defined $ENV{$_} } qw(PGCLIENTENCODING PGDATESTYLE PGTZ PGGEQO PGSERVICE))
	  || $sql =~ /[\\\0]|[^\x00-\xff]|:['"{]?[A-Z]|\b(?i:copy|begin\s+atomic)\b/;
}

# Each with the number of its last line.
sub statements
{
	my ($sql) = @_;
	my ($from, $depth, $line, @statements) = (0, 0, 1);
	my $add = sub {
		my $text = substr($sql, $from, pos($sql) - $from);
		$line++ while $text =~ /\n(?=.)/sg;
		push @statements, [ $text =~ s/^\s+//r, $line ] if $text =~ /[^\s;]/;
		$line++ if $text =~ /\n\z/;
		($from, $depth) = (pos($sql), 0); };
	while ($sql =~ /\G(?:'[^']*'|"[^"]*"|--[^\n]*|\/\*.*?\*\/|(?<!\w)(\$(?:[A-Za-z_]\w*)?\$).*?\g1|([();])|[^'"();\$\/-]+|.)/sg)
	{
		my $token = $2 // next;
		$depth += { '(' => 1, ')' => -1, ';' => 0 }->{$token};
		if ($token eq ';' && $depth <= 0) { my $at = pos($sql); $add->(); pos($sql) = $at; }
	}
	pos($sql) = length $sql;
	$add->();
	return @statements;
}

# [ exit code, output, messages ]; nothing if psql is needed to connect.
sub session
{
	my ($node, $db, $stop, @statements) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $failed = sub { return [ 2, '', qq(psql: error: connection to server on socket "$path" failed: $_[0]) ]; };
	my $socket = IO::Socket::UNIX->new(Peer => $path) or return $failed->("$!\n\tIs the server running locally and accepting connections on that socket?\n");
	my %startup = (user => $ENV{PGUSER} // scalar(getpwuid($>)), database => $db, application_name => $ENV{PGAPPNAME} // 'psql', ($ENV{PGOPTIONS} // '') ne '' ? (options => $ENV{PGOPTIONS}) : ());
	my $body = pack('N', 3 << 16) . join('', map { "$_\0$startup{$_}\0" } sort keys %startup) . "\0";
	my $s = { socket => $socket, buffer => '', out => '', err => '', rows => '', locus => '', sql => '' };
	put($s, pack('N', 4 + length $body) . $body);
	my $end = answer($s);
	return if $end eq 'password';
	return $failed->($s->{err} || "server closed the connection unexpectedly\n") if $end ne 'ready';
	my $rc = 0;
	for my $statement (@statements)
	{
		@$s{qw(sql locus error rows)} = ($statement->[0], "psql:<stdin>:$statement->[1]: ", 0, '');
		put($s, 'Q' . pack('N', 5 + length $s->{sql}) . "$s->{sql}\0");
		if (answer($s) ne 'ready')
		{
			$s->{err} .= "$s->{locus}server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally\n\tbefore or while processing the request.\n$s->{locus}error: connection to server was lost\n";
			return [ 2, $s->{out}, $s->{err} ];
		}
		if ($s->{error} && $stop) { $rc = 3; last; }
	}
	put($s, 'X' . pack('N', 4));
	IO::Select->new($socket)->can_read(PATIENCE);
	return [ $rc, @$s{qw(out err)} ];
}

# A server that is gone is noticed where its answer is read.
sub put
{
	my ($s, $bytes) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $put = 0;
	while ($put < length $bytes) { $put += syswrite($s->{socket}, $bytes, length($bytes) - $put, $put) // ($!{EINTR} ? 0 : last); }
	return;
}

# Take all of an answer: ready, gone, or password.
sub answer
{
	my ($s) = @_;
	while (1)
	{
		while (length $s->{buffer} >= 5 && length $s->{buffer} > (my $length = unpack('x N', $s->{buffer})))
		{
			my ($type, $body) = (substr($s->{buffer}, 0, 1), substr($s->{buffer}, 5, $length - 4));
			substr($s->{buffer}, 0, 1 + $length, '');
			if ($type eq 'Z') { return 'ready'; }
			elsif ($type eq 'R' && unpack('N', $body)) { return 'password'; }
			elsif ($type eq 'D') { $s->{rows} .= join('|', fields($body)) . "\n" if unpack('n', $body); }
			elsif ($type eq 'C') { $s->{out} .= $s->{rows}; $s->{rows} = ''; }
			elsif ($type =~ /[EN]/) { message($s, $type, { map { /^(.)(.*)/s ? ($1 => $2) : () } split /\0/, $body }); }
		}
		my $n = sysread($s->{socket}, $s->{buffer}, 1 << 16, length $s->{buffer});
		next if !defined $n && $!{EINTR};
		return 'gone' if !$n;
	}
}

# The values of a row.
sub fields
{
	my ($body) = @_;
	my ($n, $at, @values) = (unpack('n', $body), 2);
	for (1 .. $n)
	{
		my $length = unpack('l>', substr($body, $at, 4));
		push @values, $length < 0 ? '' : substr($body, $at + 4, $length);
		$at += 4 + ($length < 0 ? 0 : $length);
	}
	return @values;
}

# As libpq words it.
sub message
{
	my ($s, $type, $field) = @_;
	my $said = "$field->{S}:  $field->{M}\n";
	my ($sql, $at) = defined $field->{P} ? ($s->{sql}, $field->{P}) : ($field->{q}, $field->{p});
	if (defined $sql && defined $at)
	{
		my @before = split /\n/, substr($sql, 0, $at - 1) . 'x', -1;
		my $head = 'LINE ' . @before . ': ';
		$said .= $head . (split /\n/, $sql, -1)[$#before] . "\n" . ' ' x (length($head) + length($before[-1]) - 1) . "^\n";
	}
	$said .= "DETAIL:  $field->{D}\n" if defined $field->{D};
	$said .= "HINT:  $field->{H}\n" if defined $field->{H};
	$said .= "QUERY:  $field->{q}\n" if defined $field->{q};
	$said .= "CONTEXT:  $field->{W}\n" if defined $field->{W} && $type eq 'E';
	$s->{err} .= "$s->{locus}$said";
	$s->{error} = 1 if $type eq 'E';
	return;
}

1;
