#!/usr/bin/perl
# Promise: many clients of memcached that do nothing take little memory, all of them are answered still, also beside those that
# send garbage or half a request; one too many is told so; and when they have gone, nothing of them is left.
#
#   idle.pl [--connections N] [--rounds N] [--seed N] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .) with two processes for clients, and as many connections to
# them.  Memory is what these two have for themselves (Pss_Anon); shared memory, 128 bytes for each connection that there may be, and what the
# kernel has for sockets are not in it.  Prints TAP, one test per round, each with the memory that a connection takes.  The limit of open
# files must allow N and 1200 more.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IO::Select;
use IO::Socket::INET;
use KvCampaign;
# for this program and the server
BEGIN { exec 'sh', '-c', 'ulimit -n "$(ulimit -Hn)"; exec "$@"', 'sh', $^X, $0, '--raised', @ARGV if !grep { $_ eq '--raised' } @ARGV }
use Socket qw(inet_aton pack_sockaddr_in PF_INET SOCK_STREAM SOL_SOCKET SO_RCVTIMEO);

my $option = options('idle', 'connections=i' => 10000, 'raised!' => 0, 'clients=i' => 1, 'kills=i' => 0);
my $n = $option->{connections};
my $beyond = 10;				# connections that there is room for besides
my $port = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')->sockport;
my $address = pack_sockaddr_in($port, inet_aton('127.0.0.1'));
use constant MOST_BYTES => 4096;	# that a connection may take, idle
use constant LEAK_BYTES => 1 << 20;	# by which all that is left may grow after the first round

my ($files) = do { open my $f, '<', '/proc/self/limits' or die $!; join('', <$f>) =~ /^Max open files\s+(\d+)/m };
die "the limit of open files, $files, does not allow $n connections\n" if $files < $n + 1200;

sub connection
{
	socket my $s, PF_INET, SOCK_STREAM, 0 or die "socket: $!\n";
	connect $s, $address or die "connect: $!\n";
	setsockopt $s, SOL_SOCKET, SO_RCVTIMEO, pack('l!l!', 200, 0);
	return $s;
}

# A line, or what there is of it when the connection ends or says nothing more.
sub line
{
	my ($s) = @_;
	my $line = '';
	while ($line !~ /\n/) { (sysread($s, $line, 200, length $line) // 0) > 0 or last }
	return $line;
}

# How many of them answer?
sub answering
{
	my @all = @_;
	syswrite $_, "mn\r\n" for @all;
	return scalar grep { line($_) eq "MN\r\n" } @all;
}

sub processes { return @{ query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw memcached'") // [] } }

sub memory
{
	my $bytes = 0;
	for my $pid (processes())
	{
		open my $f, '<', "/proc/$pid/smaps_rollup" or die "smaps_rollup: $!\n";
		my $of = join '', <$f>;
		$bytes += 1024 * ($of =~ /^Pss_Anon:\s+(\d+)/m ? $1 : $of =~ /^Private_Dirty:\s+(\d+)/m ? $1 : 0);
	}
	return $bytes;
}

sub open_files { my $files = 0; for my $pid (processes()) { my @fds = glob "/proc/$pid/fd/*"; $files += @fds } return $files }
sub number { return query("SELECT sum($_[0]) FROM kvfdw_stat_memcached")->[0] }

sub until_true
{
	my ($code) = @_;
	for (1 .. 3000) { return 1 if $code->(); select undef, undef, undef, 0.1 }
	return 0;
}

my @garbage = (sub { join '', map { chr int rand 256 } 1 .. 1 + rand 2000 }, sub { "set half 0 0 100000\r\n" . 'x' x rand 3000 }, sub { "get " . 'k' x rand 200 }, sub { "\x80\x01" . "\0" x rand 20 },
	sub { "GET / HTTP/1.1\r\nHost: x\r\n\r\n" }, sub { "mg\r\nms x S\r\nset a b c\r\n" }, sub { "\x80" . "\xff" x 500 });
my ($first_memory, $first_files);

sub play
{
	my ($round) = @_;
	my @wrong;
	if (!defined $first_memory)
	{
		# what a process makes once
		my @warm = map { connection() } 1 .. 200;
		answering(@warm) == @warm or return ('', 'a few connections are not answered');
	}
	until_true(sub { number('connections') == 0 }) or return ('', 'connections stay');
	my ($before, $files) = (memory(), open_files());
	$first_files //= $files;
	push @wrong, "$files files are open, there were $first_files" if $files > $first_files + 20;
	my @all = map { connection() } 1 .. $n;
	until_true(sub { number('connections') == $n }) or push @wrong, number('connections') . " connections of $n";
	my $idle = memory();
	my $each = int(($idle - $before) / $n);
	my $answers = answering(@all);
	push @wrong, "$answers of $n are answered" if $answers != $n;
	my $answered = int((memory() - $before) / $n);
	push @wrong, "a connection takes $each bytes, $answered when it was answered" if $each > MOST_BYTES || $answered > MOST_BYTES;
	push @wrong, 'idle connections have ' . number('buffer_memory') . ' bytes of buffers' if number('buffer_memory') > 0;

	my @more = map { connection() } 1 .. 2 * $beyond;
	my $told = sub { return grep { IO::Select->new($_)->can_read(0) } @more };
	until_true(sub { $told->() >= $beyond });
	my %refused = map { ($_ => line($_)) } $told->();
	push @wrong, scalar(keys %refused) . " of $beyond connections too many are told so: " . join(' ', values %refused) if join('', values %refused) ne "ERROR Too many open connections\r\n" x $beyond;
	push @wrong, 'the others are not answered' if answering(grep { !exists $refused{$_} } @more) != $beyond;
	@more = ();

	my @bad = map { $all[ 10 * $_ ] } 0 .. ($n - 1) / 10;
	my @good = map { $all[$_] } grep { $_ % 10 } 0 .. $n - 1;
	local $SIG{PIPE} = 'IGNORE';
	syswrite $_, $garbage[ rand @garbage ]->() for @bad;
	$answers = answering(@good);
	push @wrong, "beside garbage $answers of " . @good . ' are answered' if $answers != @good;
	my $bad = int((memory() - $before) / $n);
	@all = @bad = @good = ();
	until_true(sub { number('connections') == 0 && number('buffer_memory') == 0 }) or push @wrong, number('connections') . ' connections and ' . number('buffer_memory') . ' bytes of buffers are left';
	sleep 3;			# within a second the processes give back what they keep for the next turns
	my $left = memory();
	push @wrong, "$left bytes are left, there were $first_memory after the first round" if defined $first_memory && $left > $first_memory + LEAK_BYTES;
	$first_memory //= $left;
	return ("$n connections take $each bytes each, $answered when all were answered, $bad when every tenth has sent garbage; the processes have $before bytes before and $left after", @wrong);
}

server_make(max_worker_processes => 32, 'kvfdw.memcached_workers' => 2, 'kvfdw.memcached_database' => 'postgres', 'kvfdw.memcached_role' => 'web',
	'kvfdw.memcached_listen' => '127.0.0.1', 'kvfdw.memcached_port' => $port, 'kvfdw.memcached_max_connections' => $n + $beyond, 'kvfdw.memcached_client_timeout' => '1h');
query('CREATE ROLE web LOGIN') // die "the role cannot be made\n";
query(q{CREATE FOREIGN TABLE cache (key text COLLATE "C" NOT NULL, flags bigint NOT NULL DEFAULT 0, expires timestamptz, value bytea) SERVER kvfdw OPTIONS (key 'key', memcached '');
	GRANT SELECT, INSERT, UPDATE, DELETE ON cache TO web}) // die "the table cannot be made\n";
until_true(sub { number('(pid IS NOT NULL)::int') == 3 }) or die "the processes do not run\n";
until_true(sub { eval { connection() } }) or die "nobody listens\n";
exit campaign(about => "$n connections", rounds => 3, play => \&play);
