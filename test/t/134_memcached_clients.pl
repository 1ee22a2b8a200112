# Promise: no client can take memory without bound, hold up others or end the process: one that sends garbage, half a
# request, too much, or takes no replies; large values, many connections, and a full disk.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Digest::MD5 qw(md5_hex);
use IO::Select;
use Socket qw(SOL_SOCKET SO_RCVBUF);
use Test::More;
use KvTest;
use KvMemcached;

my $seed = $ENV{SEED} // int rand 1e6;
srand $seed;
note "SEED=$seed";

my $node = mc_cluster('clients', 'kvfdw.value_cache' => 0, 'kvfdw.memcached_workers' => 1, 'kvfdw.memcached_buffer_memory' => '4MB', 'kvfdw.memcached_max_connections' => 300, 'kvfdw.memcached_client_timeout' => '1h',
	wal_level => 'replica', max_wal_senders => 4);
my $faults = has_faults($node);
my $c = mc_connect($node);
sub ask { return mc_ask($c, $_[0]); }
sub set { my ($key, $value, $conn) = @_; return mc_ask($conn // $c, "set $key 0 0 " . length($value) . "\r\n$value\r\n"); }
sub memory { return mc_stat($node, 'buffer_memory'); }
my $pid = $node->safe_psql('postgres', 'SELECT pid FROM kvfdw_stat_memcached WHERE worker_id = 0');

# ---- large values ----
my $large = join '', map { chr(97 + $_ % 26) } 1 .. 1024 * 1024;
is(set('large', $large), 'STORED', 'a value of 1 MB');
is(scalar(mc_get($c, 'large')), $large, '... comes back');
is($node->safe_psql('postgres', q{SELECT md5(value) FROM cache WHERE key = 'large'}), md5_hex($large), '... and is a row');
is(set('larger', $large . 'x'), 'SERVER_ERROR object too large for cache', 'one byte more is too much');
is(ask("get larger\r\n"), 'END', '... and the connection goes on');
is(set('small', 'x'), 'STORED', '... with its next request');
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_max_item_size = '20MB'");
$node->reload;
wait_for('a setting', sub { mc_settings($c)->{item_size_max} == 20 * 1024 * 1024 });
is(set('huge', 'x' x 10_000_000), 'SERVER_ERROR out of memory storing object', 'what all of the memory could not hold is refused');
is(mc_ask($c, "ms huge 10000000\r\n" . 'x' x 10_000_000 . "\r\n"), 'SERVER_ERROR out of memory storing object', '... by meta commands, too');
is(join(' ', @{ mc_stats($c, '') }{qw(store_too_large store_no_memory)}), '1 2', '... and both are counted');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.memcached_max_item_size');
$node->reload;
wait_for('a setting', sub { mc_settings($c)->{item_size_max} == 1024 * 1024 });

# ---- more values than a batch reads ----
$node->safe_psql('postgres', "CREATE FOREIGN TABLE big ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached 'big:'); GRANT SELECT, INSERT, UPDATE ON big TO web");
my @big = map { "big:$_" } 1 .. 9;
is(join('', map { set($_, $large) } @big), 'STORED' x 9, 'more values than a turn reads');
sub big_values
{
	my ($conn, @keys) = @_;
	my $n = 0;
	for my $key (@keys) { $n++ if (mc_line($conn) // '') eq "VALUE $key 0 1048576" && (mc_bytes($conn, 1048578) // '') eq "$large\r\n"; }
	return $n;
}
my $many_values = mc_connect($node);
mc_send($many_values, "get @big\r\n");
is(set('beside', 'x'), 'STORED', '... hold up nobody');
is(big_values($many_values, @big), 9, '... and come, in their order');
is(mc_line($many_values), 'END', '... to the last');
mc_send($many_values, "get @big beside\r\n");
is(big_values($many_values, @big), 9, 'with a key of another table, too');
is(join('|', map { mc_line($many_values) } 1 .. 3), 'VALUE beside 0 1|x|END', '... they come, and the other');
is($node->safe_psql('postgres', 'SELECT pid FROM kvfdw_stat_memcached WHERE worker_id = 0'), $pid, '... from the same process');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE big');
undef $many_values;

# ---- a value that is stored and asked for again and again, in one batch ----
sub settings { my ($command) = @_; $node->safe_psql('postgres', "ALTER SYSTEM $command"); return $node->reload; }
sub flushing { return $node->safe_psql('postgres', "SELECT count(*) FROM kvfdw_memcached_connections() WHERE state = 'flushing'"); }

my $part = substr $large, 0, 14_000;
my $asks = "set k 0 0 14000\r\n$part\r\nget" . ' k' x 990 . "\r\n";
sub asked_again
{
	my ($conn) = @_;
	my $first = mc_line($conn) // 'gone';
	my $n = 0;
	for (1 .. 990) { $n++ if (mc_line($conn) // '') eq 'VALUE k 0 14000' && (mc_bytes($conn, 14_002) // '') eq "$part\r\n"; }
	return "$first $n " . (mc_line($conn) // 'gone');
}
settings('SET kvfdw.memcached_commit = off');
wait_for('a setting', sub { mc_settings($c)->{kvfdw_commit} eq 'off' });
my $again = mc_connect($node);
setsockopt $again->{s}, SOL_SOCKET, SO_RCVBUF, 65536;
mc_send($again, $asks);
wait_for('its first reply', sub { mc_answered($again) });
cmp_ok(memory(), '<', 4 * 1024 * 1024, 'a value that is stored and asked for many times takes no more memory than there is');
setsockopt $again->{s}, SOL_SOCKET, SO_RCVBUF, 4 * 1024 * 1024;
is(asked_again($again), 'STORED 990 END', '... and comes each time');
is(mc_stat($node, 'dropped'), 0, '... to a client that nobody disconnects for it');
settings('RESET kvfdw.memcached_commit');
wait_for('a setting', sub { mc_settings($c)->{kvfdw_commit} eq 'on' });

# replies that wait for the WAL go into memory, whatever their clients would take
my @held = map { mc_connect($node) } 1 .. 13;
settings("SET synchronous_standby_names = 'nobody'");
wait_for('a write that waits', sub { return 1 if flushing() > 0; mc_answered($c) && mc_line($c); mc_send($c, "set small 0 0 1\r\nx\r\n"); return 0; });
mc_send($held[0], $asks);
wait_for('another', sub { flushing() > 1 });
cmp_ok(memory(), '<', 4 * 1024 * 1024, 'where the replies wait for the WAL, it takes no more either');
for my $i (1 .. 12)
{
	mc_send($held[$i], "set small 0 0 1\r\nx\r\nget large\r\n");
	wait_for('one more', sub { flushing() == $i + 2 });
}
cmp_ok(memory(), '<', 4 * 1024 * 1024, '... nor do large values that others ask for');
settings('RESET synchronous_standby_names');
is(asked_again($held[0]), 'STORED 990 END', '... and all come when that is over');
is(join('', map { my $conn = $_; mc_line($conn) . ' ' . mc_line($conn) . ' ' . (mc_bytes($conn, 1048578) eq "$large\r\n") . ' ' . mc_line($conn) . '|' } @held[1 .. 12]),
	'STORED VALUE large 0 1048576 1 END|' x 12, '... to all');
is(mc_stat($node, 'dropped'), 0, '... and nobody was disconnected');
@held = ();
undef $again;
$c = mc_connect($node);

# ---- requests that are announced ----
my @announced = map { mc_connect($node) } 1 .. 64;
mc_send($_, "set announced 0 0 1000000\r\n") for @announced;
wait_for('them to be received', sub { $node->safe_psql('postgres', "SELECT count(*) FROM kvfdw_memcached_connections() WHERE state = 'receiving'") >= 64 });
# with a little of it room is made for the rest
mc_send($_, 'x' x 10) for @announced;
wait_for('memory for some', sub { memory() > 1_900_000 });
is(set('half', substr $large, 0, 500_000), 'STORED', 'clients that only announce large values leave memory for others');
@announced = ();
wait_for('them to go', sub { mc_stat($node, 'connections') < 10 });

# ---- half requests ----
my @half = map { mc_connect($node) } 1 .. 30;
for my $i (0 .. $#half) { mc_send($half[$i], "set half$i 0 0 1000000\r\n" . substr $large, 0, 150_000 + 1000 * $i); }
wait_for('the halves', sub { memory() > 3.5e6 });
cmp_ok(memory(), '<=', 4 * 1024 * 1024 + 1_100_000 + 31 * 16384, 'halves of large values take no more memory than there is');
is(set('b', 'x'), 'STORED', '... and others go on, who need little');

# the rest of all at once, as each can take it
my @rest = map { substr($large, 150_000 + 1000 * $_, 850_000 - 1000 * $_) . "\r\n" } 0 .. $#half;
wait_for('the rest to be taken', sub {
	for my $i (0 .. $#half)
	{
		my $n = length $rest[$i] ? syswrite($half[$i]{s}, $rest[$i]) : 0;
		substr($rest[$i], 0, $n // 0, '');
	}
	return !grep { length } @rest;
});
is(scalar(grep { mc_line($_) eq 'STORED' } @half), 30, 'each is stored when it is whole');
is($node->safe_psql('postgres', "SELECT count(*) FROM cache WHERE key ~ '^half' AND length(value) = 1000000"), 30, 'all are rows');
@half = ();

# who sends nothing of the rest has others wait for a while only
settings("SET kvfdw.memcached_client_timeout = '20s'");
my $dropped = mc_stat($node, 'dropped');
@half = map { mc_connect($node) } 1 .. 30;
for my $i (0 .. $#half) { mc_send($half[$i], "set half$i 0 0 1000000\r\n" . substr $large, 0, 150_000); }
wait_for('the halves', sub { memory() > 3.5e6 });
is(set('half', $large), 'STORED', 'those who send no rest hold up others for a while only');
cmp_ok(mc_stat($node, 'dropped'), '>', $dropped, '... as they are disconnected');
@half = ();
wait_for('memory to be given back', sub { memory() < 100_000 });

# ---- who takes nothing ----
settings("SET kvfdw.memcached_client_timeout = '10s'");
$dropped = mc_stat($node, 'dropped');
my @slow = map { mc_connect($node) } 1 .. 20;
mc_send($_, "get large\r\n" x 100) for @slow;
is(set('c', 'x'), 'STORED', 'while clients take no replies others go on');
wait_for('the longest stalled to go', sub { mc_stat($node, 'dropped') > $dropped });
pass('... and who has not taken any for the longest time is disconnected');
wait_for('memory', sub { memory() <= 4 * 1024 * 1024 + 21 * 16384 });
pass('... so that no more is kept than there is memory for');
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_client_timeout = '1s'");
$node->reload;
wait_for('them to go', sub { mc_stat($node, 'connections') <= 2 });
pass('those who take nothing for too long are disconnected');
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_client_timeout = '1h'");
$node->reload;
@slow = ();
wait_for('memory to be given back', sub { memory() < 100_000 });
my $reader = mc_connect($node);
mc_send($reader, 'get ' . join(' ', ('large') x 200) . "\r\n");
my $whole = 1;
for (1 .. 200) { $whole &&= (mc_line($reader) // '') =~ /^VALUE large 0 1048576$/ && mc_bytes($reader, 1048578) eq "$large\r\n"; }
ok($whole && mc_line($reader) eq 'END', 'one that takes them gets 200 MB in one get');

# ---- values that SQL has made larger than the memory for replies, or than what others leave of it ----
$node->safe_psql('postgres', "INSERT INTO cache SELECT 'giant' || n, 0, NULL, convert_to(repeat('g', n << 20), 'UTF8') FROM unnest('{3,6}'::int[]) n");
$dropped = mc_stat($node, 'dropped');
sub take_nothing
{
	return wait_for('replies that nobody takes', sub {
		return 1 if memory() > 1.3e6;
		push @slow, mc_connect($node);
		setsockopt $slow[-1]{s}, SOL_SOCKET, SO_RCVBUF, 65536;
		mc_send($slow[-1], "get large\r\n" x 10);
		return 0;
	});
}
take_nothing();
my $too_large = 'SERVER_ERROR 53200 value is larger than kvfdw.memcached_buffer_memory';
is(join('|', map { ask($_) } "get giant6\r\n", "mg giant6 s v\r\n", "mg giant6 s\r\n"), "$too_large|$too_large|HD s6291456", 'a value larger than the memory is an error for who asks for it');
my $giant = mc_connect($node);
mc_send($giant, "get giant3\r\n");
wait_for('who asks for it', sub { $node->safe_psql('postgres', "SELECT count(*) FROM kvfdw_memcached_connections() WHERE state = 'working'") > 0 });
is(set('c', 'x') . (mc_answered($giant) ? ' with a reply' : ''), 'STORED', 'one that has no room beside replies that others do not take waits, and holds up nobody');
my $theirs = 0;
for my $conn (@slow) { for (1 .. 10) { $theirs++ if (mc_line($conn) // '') eq 'VALUE large 0 1048576' && (mc_bytes($conn, 1048578) // '') eq "$large\r\n" && mc_line($conn) eq 'END'; } }
is($theirs, 10 * @slow, '... who have all of theirs');
@slow = ();
is(join('|', mc_line($giant), mc_bytes($giant, 3 << 20) eq 'g' x (3 << 20), mc_line($giant), mc_line($giant)), 'VALUE giant3 0 3145728|1||END', '... and comes then');
take_nothing();
mc_send($giant, "get giant3\r\n");
settings("SET kvfdw.memcached_client_timeout = '10s'");
ok(mc_line($giant) eq 'VALUE giant3 0 3145728', '... or when those have been disconnected');
cmp_ok(mc_stat($node, 'dropped'), '>', $dropped, '... as they take nothing for a tenth of the time that they may');
settings("SET kvfdw.memcached_client_timeout = '1h'");
@slow = ();
undef $giant;
wait_for('memory to be given back', sub { memory() < 100_000 });

# ---- who takes little, but always something ----
settings("SET kvfdw.memcached_client_timeout = '2s'");
my $steady = mc_connect($node);
mc_send($steady, "get large\r\n" x 20);
for (1 .. 60)
{
	sysread $steady->{s}, $steady->{in}, 10_000, length $steady->{in};
	select undef, undef, undef, 0.1;
}
is(scalar(grep { (mc_line($steady) // '') eq 'VALUE large 0 1048576' && (mc_bytes($steady, 1048578) // '') eq "$large\r\n" && mc_line($steady) eq 'END' } 1 .. 20), 20,
	'a client that takes little at a time gets all, though its socket has room for long only when much of it has gone');
undef $steady;

# ---- who waits for room that others take again and again ----

settings("SET kvfdw.memcached_client_timeout = '10s'");
# Six clients that have always asked for more than they have got.  Slow ones take some bytes now and then.
sub busy_clients
{
	my ($slow) = @_;
	my @busy = map { mc_connect($node) } 1 .. 6;
	for my $conn (@busy)
	{
		setsockopt $conn->{s}, SOL_SOCKET, SO_RCVBUF, 65536 if $slow;
		@$conn{ 'slow', 'asked', 'taken' } = ($slow, 10, 0);
		mc_send($conn, "get large\r\n" x 10);
	}
	return @busy;
}
sub all_take
{
	my %busy = map { fileno $_->{s} => $_ } @_;
	for my $socket (IO::Select->new(map { $_->{s} } @_)->can_read(0.05))
	{
		my $conn = $busy{ fileno $socket };
		sysread $socket, my $taken, $conn->{slow} ? 30_000 + int rand 60_000 : 200_000 or next;
		$conn->{taken} += length $taken;
		for (; $conn->{asked} * 1_048_612 < $conn->{taken} + 10_000_000; $conn->{asked}++) { mc_send($conn, "get large\r\n"); }
	}
	select undef, undef, undef, 0.01 if $_[0]{slow};
	return;
}
my @busy = busy_clients(0);
my @taken = (0);
wait_for('much to be taken', sub { all_take(@busy) for 1 .. 100; @taken = sort { $a <=> $b } map { $_->{taken} } @busy; return $taken[-1] > 60_000_000 });
cmp_ok($taken[0], '>', $taken[-1] / 4, "clients for all of whom a turn has no room come to theirs alike (@taken)");

# more values than a batch has room for are needed all the time: others are served beside them
my @needed = map { "needed$_" } 1 .. 8;
set($_, $large) for @needed;
my @appends = map { { %{ mc_connect($node) }, asks => "append $needed[$_ % @needed] 0 0 0\r\n\r\n", unanswered => 0 } } 1 .. 2 * @needed;
sub all_append
{
	for my $conn (@appends)
	{
		sysread $conn->{s}, my $replies, 65536;
		$conn->{unanswered} -= ($replies // '') =~ tr/\n//;
		# so few that the socket takes them all, and that they are soon done when nobody asks any more
		my $more = 200 - $conn->{unanswered};
		next if $more <= 0;
		mc_send($conn, $conn->{asks} x $more);
		$conn->{unanswered} += $more;
	}
	return;
}
my $since = time;
all_append() while time - $since < 1;
my $beside = mc_connect($node);
mc_send($beside, "get nothing\r\n");
ok(eval { wait_for('an answer', sub { for (1 .. 100) { return 1 if mc_answered($beside); all_append(); } return 0; }) }, 'a client is served beside others who need more large values than a turn has room for');
@appends = ();
undef $beside;
wait_for('memory to be given back', sub { memory() < 100_000 });

# nearly all of the memory
$node->safe_psql('postgres', "INSERT INTO cache SELECT 'giant', 0, NULL, convert_to(repeat('g', 4100000), 'UTF8')");
@busy = busy_clients(1);
all_take(@busy) for 1 .. 50;
$giant = mc_connect($node);
mc_send($giant, "get giant\r\n");
ok(eval { wait_for('an answer', sub { for (1 .. 100) { return 1 if mc_answered($giant); all_take(@busy); } return 0; }) }, 'a value that needs the room gets it though others take theirs all the time: they leave it to who has waited for a tenth of the time');
undef $giant;
@busy = ();
settings("SET kvfdw.memcached_client_timeout = '1h'");

# ---- garbage ----
my @garbage = ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n\r\n\r\n", "set\r\n", "set a b c d\r\n", "get " . 'k' x 300 . "\r\n", 'x' x 100_000, "\x00" x 5000,
	"\x80" . "\xff" x 500, "\x80\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff" . "\x00" x 100, "set a 0 0 -1\r\n", "set a 0 0 99999999999\r\nx\r\n", "set a 0 0 3\r\nlonger\r\n",
	"incr a 18446744073709551616\r\n", "mg\r\n", "ms a\r\n", "ms a S\r\n", "get " . "a " x 2000 . "\r\n", "\r", "cas a 0 0 1 x\r\n1\r\n", "verbosity\r\n", "flush_all\r\n", "delete\r\n");
for my $bytes (@garbage, map { my $n = 1 + int rand 3000; join '', map { chr int rand 256 } 1 .. $n } 1 .. 100)
{
	my $g = mc_connect($node);
	mc_send($g, $bytes);
	mc_send($g, "\r\nversion\r\n") if rand() < 0.5;
	mc_answered($g) if rand() < 0.5;
}
like(ask("version\r\n"), qr/^VERSION/, 'garbage disturbs nobody');
my $piecewise = mc_connect($node);
for my $byte (split //, "set pieces 0 0 5\r\nhello\r\nget pieces\r\n") { mc_send($piecewise, $byte); select undef, undef, undef, 0.001; }
is(join('|', map { mc_line($piecewise) } 1 .. 4), 'STORED|VALUE pieces 0 5|hello|END', 'a request may come byte by byte');

# ---- who has sent all and listens still ----
my $last = mc_connect($node);
mc_send($last, "set last 0 0 1\r\nx\r\nget last\r\n");
shutdown $last->{s}, 1;
is(join('|', map { mc_line($last) } 1 .. 4), 'STORED|VALUE last 0 1|x|END', 'requests before the end of what a client sends are answered');
ok(mc_closed($last), '... and then the connection ends');

# ---- many connections ----
my @many;
while (@many < 400)
{
	my $conn = mc_connect($node);
	push @many, $conn;
	last if mc_answered($conn);
	last if @many > 299 && (mc_line($conn) // '') ne '';
}
is(mc_line($many[-1]) // 'ERROR Too many open connections', 'ERROR Too many open connections', 'one connection too many is told so');
cmp_ok(mc_stat($node, 'connections'), '<=', 300, '... and not counted');
cmp_ok(memory(), '<', 100_000, 'connections that do nothing take no buffers');
is(set('m', 'x', $many[$_ * 20]), 'STORED', 'one of many') for 1 .. 3;
@many = ();
wait_for('connections to be gone', sub { mc_stat($node, 'connections') < 20 });

# ---- no descriptors ----
SKIP:
{
	skip 'prlimit is not there', 3 if system("prlimit --version >/dev/null 2>&1") != 0 || system("prlimit --pid $pid --nofile=3: 2>/dev/null") != 0;
	my $waiting = mc_connect($node);
	mc_send($waiting, "mn\r\n");
	is(join('|', map { ask("mn\r\n") } 1 .. 50), join('|', ('MN') x 50), 'without descriptors for more, those who are there are served');
	ok(wait_for('it to sleep', sub { $node->safe_psql('postgres', "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid") eq 'Extension' }), '... and it does not spin');
	my ($hard) = slurp_file("/proc/$pid/limits") =~ /^Max open files\s+\d+\s+(\d+)/m;
	system("prlimit --pid $pid --nofile=$hard:");
	is(mc_line($waiting), 'MN', '... and the others when there are some');
}

# ---- who does nothing ----
my $idle = mc_connect($node);
ask("version\r\n");
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_idle_timeout = '1s'");
$node->reload;
ok(mc_closed($idle), 'a client that does nothing for too long is disconnected');
$node->safe_psql('postgres', "ALTER SYSTEM RESET kvfdw.memcached_idle_timeout");
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_client_timeout = '1s'");
$node->reload;
my $trickle = mc_connect($node);
mc_send($trickle, "set trickle 0 0 100000\r\n");
{
	local $SIG{PIPE} = 'IGNORE';
	wait_for('it to be disconnected', sub { mc_send($trickle, 'x'); return IO::Select->new($trickle->{s})->can_read(0.1) });
}
pass('... and so is one that sends a byte now and then');
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_client_timeout = '1h'");
$node->reload;
$c = mc_connect($node);

# ---- a disk that is full ----
SKIP:
{
	skip 'faults need a test build', 5 unless $faults;
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'value_extend:1+:ENOSPC'");
	$node->reload;
	my $answer;
	my $i = 0;
	wait_for('an error', sub { $answer = set('full' . $i++, 'x' x 500_000); $answer ne 'STORED' });
	like($answer, qr/^SERVER_ERROR 53100 /, 'a full disk is an error');
	is(scalar(mc_get($c, 'c')), 'x', '... and reads go on');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	$node->reload;
	wait_for('room', sub { set('full', 'x' x 500_000) eq 'STORED' });
	pass('when there is room, writes do, too');

	# a damaged value is its key's problem
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'value_read:1+:EIO'");
	$node->reload;
	wait_for('an error', sub { mc_ask($c, "get large\r\n") =~ /^SERVER_ERROR 58030 / or do { mc_bytes($c, 1048578); mc_line($c); 0 } });
	is(join('|', map { $_ // 'undef' } ask("mn\r\n")), 'MN', 'a value that cannot be read is an error');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	$node->reload;
	wait_for('a value', sub { my $line = mc_ask($c, "get large\r\n"); return 0 unless $line =~ /^VALUE/; mc_bytes($c, 1048578); mc_line($c); 1 });
	pass('... and comes back');
}
is($node->safe_psql('postgres', 'SELECT pid FROM kvfdw_stat_memcached WHERE worker_id = 0'), $pid, 'the process is the one that it was');
is(kv_check_clean($node, 'cache'), '', 'kvfdw_check finds nothing');
$node->stop;
done_testing();
