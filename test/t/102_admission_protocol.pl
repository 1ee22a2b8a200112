# Promise: whatever a client sends at once, and over TLS, is answered in whole and in order, with one slot.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Socket;
use Test::More;
use KvTest;
use KvGate;
use KvWire;

my $node = gate_cluster('protocol');
my $boss = boss();

sub message { my ($type, $body) = @_; return $type . pack('N', 4 + length $body) . $body }
sub query { return message('Q', "$_[0]\0") }
sub extended { return message('P', "\0$_[0]\0" . pack('n', 0)) . message('B', "\0\0" . pack('nnn', 0, 0, 0)) . message('E', "\0" . pack('N', 0)) . message('S', '') }
my $call = message('F', pack('Nnnn', 999_999, 0, 0, 0));    # no such function

# With another session that wants to work all the time, all that is sent at once is answered.
sub pipelined
{
	my ($session, $how) = @_;
	my $other = session();
	my $n = 0;
	$session->put(query('SELECT 1') . extended('SELECT 2') . query('BEGIN') . query('SELECT 3') . extended('SELECT 4')
		. query('COMMIT') . query('SELECT nonsense') . query('SELECT 5') . query("COPY t FROM STDIN") . message('d', "100\t1\n")
		. message('d', "101\t1\n") . message('c', '') . query('DELETE FROM t WHERE k >= 100') . query('SELECT 6'));
	my $lines = '';
	while ($lines !~ /row 6; tag SELECT 1$/)
	{
		$other->send('SELECT 1') unless $other->{busy};
		$_->receive for KvWire::ready(180, $session, $other);
		$lines = join('; ', @{ $session->{lines} });
		die "no answer: $lines" if ++$n > 100_000;
	}
	@{ $session->{lines} } = ();
	return is($lines, 'row 1; tag SELECT 1; row 2; tag SELECT 1; tag BEGIN; row 3; tag SELECT 1; row 4; tag SELECT 1; tag COMMIT; '
		  . 'ERROR 42703: column "nonsense" does not exist; row 5; tag SELECT 1; tag COPY 2; tag DELETE 2; row 6; tag SELECT 1', $how);
}

my $s = session();
pipelined($s, 'simple and extended queries and COPY, sent at once');
$s = session();
$s->put($call);
is(lines($s), 'ERROR 42883: function with OID 999999 does not exist', 'a function call');
$s->put(extended('SELECT 1') x 500);
my $n = 0;
while ($n < 500) { $s->receive; $n += grep { /^tag/ } splice @{ $s->{lines} }; }
is($n, 500, '500 statements of the extended protocol, sent at once');

SKIP:
{
	my $openssl = `sh -c 'command -v openssl'`;
	chomp $openssl;
	skip 'there is no openssl', 4 unless $openssl && $node->safe_psql('postgres', 'SHOW ssl_library') eq 'OpenSSL';
	my $dir = $node->data_dir;
	system($openssl, qw(req -new -x509 -days 2 -nodes -batch -subj /CN=localhost -out), "$dir/server.crt", '-keyout', "$dir/server.key") == 0
	  or skip 'openssl makes no certificate', 4;
	chmod 0600, "$dir/server.key";
	my $port = $node->port;
	$node->append_conf('postgresql.conf', "ssl = on\nlisten_addresses = '127.0.0.1'\n");
	$node->append_conf('pg_hba.conf', "hostssl all all 127.0.0.1/32 trust\n");
	$node->restart;
	wait_for('the process', 180, sub { admission('session_limit') eq '1' });

	my $pipe = "$dir/tlspipe";
	system("cc -O1 -o $pipe $FindBin::RealBin/../lib/tlspipe.c -lssl -lcrypto 2>/dev/null") == 0 or skip 'there is no compiler or no libssl', 4;
	my $tls = sub {
		socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, 0) or die "$!";
		my $child = fork() // die "$!";
		if ($child == 0)
		{
			open STDIN, '<&', $theirs or die;
			open STDOUT, '>&', $theirs or die;
			close $ours;
			exec $pipe, '127.0.0.1', $port;
		}
		close $theirs;
		my $session = bless { socket => $ours, buffer => '', lines => [], status => 'I', child => $child }, 'KvWire';
		my $body = pack('N', 3 << 16) . "user\0web\0database\0postgres\0\0";
		$session->put(pack('N', 4 + length $body) . $body);
		$session->wait;
		return $session;
	};
	$s = $tls->();
	is(join(',', $s->ask(q{SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()})), 't', 'a session over TLS');
	pipelined($s, 'what was sent at once over TLS');

	# the server's buffer takes half of this record, and ends with the end of a message
	my $stream = query('SELECT 1' . (' ' x 50)) x 256;
	is(length $stream, 16384, 'a record of 16384 bytes');
	my $want = 256;
	# no slot is free, so the session stands in the gate before each of them
	shut_door();
	my $holder = hold();
	reload('admission_max_wait', "'10ms'");
	my ($got, $until) = (0, time + 180);
	$s->put($stream);
	while ($got < $want && time < $until && KvWire::ready(180, $s))
	{
		$s->receive;
		$got += grep { /^tag/ } splice @{ $s->{lines} };
	}
	is($got, $want, 'a message that is left in the TLS library is answered');
	open_door();
	lines($holder);
	kill 'TERM', $s->{child};
	waitpid $s->{child}, 0;
}
$node->stop;
done_testing();
