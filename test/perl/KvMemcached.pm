# A small client of memcached's text protocol, and servers that serve one.
package KvMemcached;
use strict;
use warnings;
use Exporter 'import';
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Socket qw(TCP_NODELAY IPPROTO_TCP);
use Time::HiRes qw(time);
use KvTest;

our @EXPORT = qw(mc_cluster mc_conf mc_port mc_connect mc_unix mc_send mc_line mc_ask mc_bytes mc_get mc_closed mc_wait
  mc_answered mc_packet mc_stat mc_stats mc_settings $mc_table);

our $mc_table = "key text COLLATE \"C\" NOT NULL, flags bigint NOT NULL DEFAULT 0, expires timestamptz, value bytea";
use constant LIMIT => 180;

my %port_of;

# Settings of a server that serves clients of memcached as role web.
sub mc_conf
{
	my ($port, %conf) = @_;
	return ('kvfdw.memcached_workers' => 2, 'kvfdw.memcached_database' => "'postgres'", 'kvfdw.memcached_role' => "'web'",
		'kvfdw.memcached_listen' => "'127.0.0.1'", 'kvfdw.memcached_port' => $port, 'kvfdw.memcached_lock_timeout' => "'100s'", max_worker_processes => 32, %conf);
}

# A cluster with a table cache, that serves it.  %conf as for kv_cluster.
sub mc_cluster
{
	my ($name, %conf) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $options = delete $conf{options} // '';
	my $node = kv_cluster($name, mc_conf($port, %conf));
	$port_of{$node} = $port;
	$node->safe_psql('postgres', "CREATE ROLE web LOGIN PASSWORD 'secret';
		CREATE FOREIGN TABLE cache ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached ''$options);
		GRANT SELECT, INSERT, UPDATE, DELETE ON cache TO web");
	mc_wait($node);
	return $node;
}

sub mc_port { my ($node, $port) = @_; $port_of{$node} = $port if $port; return $port_of{$node}; }

sub try_connect
{
	my ($node) = @_;
	return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port_of{$node}, Proto => 'tcp', Timeout => 10);
}

# The answer to a binary packet: its status and its value.
sub mc_packet
{
	my ($conn, $opcode, $key, $value, $extras) = (@_, '', '', '');
	mc_send($conn, pack('CCnCCnNNx8', 0x80, $opcode, length $key, length $extras, 0, 0, length($extras) + length($key) + length $value, 0) . $extras . $key . $value);
	my $head = mc_bytes($conn, 24) // return;
	my ($skip, $status, $body) = unpack 'x2nxxnN', $head;
	return ($status, '') if !$body;
	my $extra = ord substr $head, 4, 1;
	return ($status, substr mc_bytes($conn, $body), $extra + $skip);
}

# A connection; waits until there can be one.
sub mc_connect
{
	my ($node) = @_;
	my $s;
	wait_for('a connection', sub { $s = try_connect($node) });
	setsockopt($s, IPPROTO_TCP, TCP_NODELAY, 1);
	return wrap($s);
}

sub mc_unix
{
	my ($path) = @_;
	my $s;
	wait_for('a connection', sub { $s = IO::Socket::UNIX->new(Peer => $path) });
	return wrap($s);
}

sub wrap { my ($s) = @_; binmode $s; $s->blocking(0); return { s => $s, in => '' }; }

# Wait until all processes answer.
sub mc_wait
{
	my ($node) = @_;
	wait_for('the processes', sub { $node->safe_psql('postgres', 'SELECT count(*) = count(pid) FROM kvfdw_stat_memcached') eq 't' });
	wait_for('an answer', sub { my $c = mc_connect($node); (eval { mc_ask($c, "version\r\n") } // '') =~ /^(VERSION|CLIENT_ERROR)/ });
	return;
}

sub mc_send
{
	my ($c, $bytes) = @_;
	my $done = 0;
	my $begin = time();
	while ($done < length $bytes)
	{
		my $n = syswrite $c->{s}, $bytes, length($bytes) - $done, $done;
		if (defined $n) { $done += $n; next; }
		return 0 unless $!{EAGAIN} || $!{EWOULDBLOCK};
		die 'nothing is taken' if time() - $begin > LIMIT;
		IO::Select->new($c->{s})->can_write(1);
	}
	return 1;
}

# More input; 0: the connection has ended.
sub more
{
	my ($c, $seconds) = @_;
	return -1 unless IO::Select->new($c->{s})->can_read($seconds);
	my $n = sysread $c->{s}, $c->{in}, 262144, length $c->{in};
	return -1 if !defined $n && ($!{EAGAIN} || $!{EWOULDBLOCK});
	return $n ? 1 : 0;
}

sub need
{
	my ($c, $done) = @_;
	my $begin = time();
	until ($done->())
	{
		die 'no answer' if time() - $begin > LIMIT;
		more($c, 1) or return 0;
	}
	return 1;
}

# The next line, without its end; undef: the connection has ended.
sub mc_line
{
	my ($c) = @_;
	need($c, sub { $c->{in} =~ /\n/ }) or return undef;
	$c->{in} =~ s/^(.*?)\r?\n//s;
	return $1;
}

sub mc_bytes
{
	my ($c, $n) = @_;
	need($c, sub { length $c->{in} >= $n }) or return undef;
	return substr $c->{in}, 0, $n, '';
}

# Send, and the answer's first line.
sub mc_ask { my ($c, $bytes) = @_; mc_send($c, $bytes); return mc_line($c); }

# The answer to a get: value, flags, cas; () for a miss, an error as it is.
sub mc_get
{
	my ($c, $key, $command) = @_;
	my $line = mc_ask($c, ($command // 'get') . " $key\r\n");
	return () if $line eq 'END';
	my ($flags, $length, $cas) = $line =~ /^VALUE \S+ (\d+) (\d+)(?: (\d+))?$/ or return ("error: $line");
	my $value = mc_bytes($c, $length + 2);
	mc_line($c) eq 'END' or die 'no END';
	return wantarray ? (substr($value, 0, -2), $flags, $cas) : substr($value, 0, -2);
}

sub mc_closed { my ($c) = @_; return !need($c, sub { 0 }); }

# Is there an answer by now?
sub mc_answered { my ($c) = @_; more($c, 0); return $c->{in} ne ''; }

# What stats has, or stats settings.
sub mc_stats
{
	my ($c, $of) = @_;
	my %stat;
	mc_send($c, "stats $of\r\n");
	while ((my $line = mc_line($c)) ne 'END') { $stat{$1} = $2 if $line =~ /^STAT (\S+) (.*)$/; }
	return \%stat;
}
sub mc_settings { my ($c) = @_; return mc_stats($c, 'settings'); }

sub mc_stat { my ($node, $what) = @_; return $node->safe_psql('postgres', "SELECT sum($what) FROM kvfdw_stat_memcached"); }

1;
