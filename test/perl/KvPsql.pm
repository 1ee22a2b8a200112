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
use parent -norequire, 'KvWire';
use KvWire;

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
	my $s = __PACKAGE__->start($socket, %startup);
	@$s{qw(out err rows locus sql)} = ('') x 5;
	return if !$s->answered && $s->{end} =~ /password/;
	return $failed->($s->{err} || "server closed the connection unexpectedly\n") if $s->{end};
	my $rc = 0;
	for my $statement (@statements)
	{
		@$s{qw(sql locus error rows)} = ($statement->[0], "psql:<stdin>:$statement->[1]: ", 0, '');
		$s->send($s->{sql});
		unless ($s->answered)
		{
			$s->{err} .= "$s->{locus}server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally\n\tbefore or while processing the request.\n$s->{locus}error: connection to server was lost\n";
			return [ 2, $s->{out}, $s->{err} ];
		}
		if ($s->{error} && $stop) { $rc = 3; last; }
	}
	$s->put('X' . pack('N', 4));
	IO::Select->new($socket)->can_read(PATIENCE);
	return [ $rc, @$s{qw(out err)} ];
}

# Has all of an answer come?  {end}: why not.
sub answered
{
	my ($s) = @_;
	return 1 if eval { $s->wait; 1 };
	$s->{end} = $@ =~ /^the server / ? $@ : die $@;
	return 0;
}

# Rows are put out when all of them have come.
sub message
{
	my ($s, $type, $body) = @_;
	if ($type eq 'D') { $s->{rows} .= join('|', map { $_ // '' } KvWire::row($body)) . "\n" if unpack('n', $body); }
	elsif ($type eq 'C') { $s->{out} .= $s->{rows}; $s->{rows} = ''; }
	elsif ($type =~ /[EN]/) { said($s, $type, { map { /^(.)(.*)/s ? ($1 => $2) : () } split /\0/, $body }); }
	else { $s->SUPER::message($type, $body); }
	return;
}

# As libpq words it.
sub said
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
