# Promise: what was acknowledged to clients of memcached in mode "on" is there after any SIGKILL, and nothing that no client
# has sent; the processes come back, and a standby serves reads, and writes when it is promoted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMemcached;
use List::Util qw(shuffle);
use POSIX ();
use Time::HiRes qw(usleep);

use constant KEYS => 40;
use constant CLIENTS => 8;
my $rounds = $ENV{ROUNDS} // 6;
my $seed = $ENV{SEED} // int rand 1e6;
srand $seed;
note "SEED=$seed";

my $node = mc_cluster('crash', restart_after_crash => 'on', fsync => 'on', 'kvfdw.memcached_commit' => 'on', wal_level => 'replica', max_wal_senders => 4, hot_standby => 'on', options => ", shards '4'");

# Each key has one client, which increments it, or sets it to the next number: a register.  What was
# acknowledged last, and what was sent last.
my (@acknowledged, @sent);
@acknowledged = @sent = (0) x KEYS;
my $setup = mc_connect($node);
mc_ask($setup, "set r$_ 0 0 1\r\n0\r\n") for 0 .. KEYS - 1;

# The answer to what a client has sent first of what is open; false if its connection is gone.
sub take_answer
{
	my ($client) = @_;
	my $line = eval { mc_line($client->{conn}) } // return 0;
	my ($key, $value) = @{ shift @{ $client->{open} } };
	$line eq 'STORED' || $line eq $value or die "r$key $value: $line";
	$acknowledged[$key] = $value;
	return 1;
}

# Send, and take what comes, until the connections are gone or so many answers have come; then those that are open.
sub write_until
{
	my ($answers) = @_;
	my @clients = map { { conn => mc_connect($node), open => [] } } 1 .. CLIENTS;
	while ($answers > 0 && @clients)
	{
		for my $i (reverse 0 .. $#clients)
		{
			my $client = $clients[$i];
			my $keys_of = CLIENTS;
			while (@{ $client->{open} } < 5)
			{
				my $number = $client->{number} //= $i;
				my $key = ($number + $keys_of * int rand(KEYS / $keys_of)) % KEYS;
				my $value = ++$sent[$key];
				push @{ $client->{open} }, [ $key, $value ];
				my $bytes = $value % 3 ? "set r$key 0 0 " . length($value) . "\r\n$value\r\n" : "incr r$key 1\r\n";
				last unless eval { mc_send($client->{conn}, $bytes) };
			}
			if (take_answer($client)) { $answers--; }
			else { splice @clients, $i, 1; }
		}
	}
	# or they might be done after somebody has looked
	for my $client (@clients) { 1 while @{ $client->{open} } && take_answer($client); }
	return scalar @clients;
}

# Every register is at least what was acknowledged and at most what was sent.
sub judge
{
	my ($server, $what) = @_;
	my %now = map { split /\|/ } split /\n/, $server->safe_psql('postgres', q{SELECT substr(key, 2), convert_from(value, 'UTF8') FROM cache WHERE key ~ '^r'});
	my @wrong = grep { !defined $now{$_} || $now{$_} < $acknowledged[$_] || $now{$_} > $sent[$_] } 0 .. KEYS - 1;
	is(join(', ', map { "r$_: " . ($now{$_} // 'none') . " is not $acknowledged[$_] to $sent[$_]" } @wrong), '', $what);
	@acknowledged = @sent = map { $now{$_} // 0 } 0 .. KEYS - 1;
	return;
}

for my $round (1 .. $rounds)
{
	my $ready = times_ready($node);
	my $killer = fork();
	if ($killer == 0)
	{
		usleep(50_000 + int rand 400_000);
		if ($round % 2) { eval { kill_all($node) }; }
		else
		{
			my @pids = split /\n/, `ps -o pid= --ppid $node->{_pid}`;
			kill 'KILL', (shuffle @pids)[0];
		}
		require POSIX;
		POSIX::_exit(0);
	}
	write_until(1e9);
	waitpid $killer, 0;
	if ($round % 2) { postmaster_runs($node); restart_killed($node); }
	else { ready_again($node, $ready); }
	mc_wait($node);
	judge($node, "round $round: after SIGKILL of " . ($round % 2 ? 'all' : 'one process') . ' each register has what was acknowledged, or later');
}
is(kv_check_clean($node, 'cache'), '', 'kvfdw_check finds nothing');

# ---- a process alone ends and comes back ----
my $pid = $node->safe_psql('postgres', 'SELECT pid FROM kvfdw_stat_memcached WHERE worker_id = 0');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
wait_for('the process to be back', sub { $node->safe_psql('postgres', "SELECT pid <> $pid FROM kvfdw_stat_memcached WHERE worker_id = 0") eq 't' });
mc_wait($node);
is(write_until(100), CLIENTS, 'a process that was told to end is there again');
judge($node, '... and nothing is lost');

# ---- cas numbers from before a crash ----
# Each item's number, once it is set to this value.
sub numbers_of
{
	my ($conn, $value, @keys) = @_;
	mc_ask($conn, "set $_ 0 0 1\r\n$value\r\n") eq 'STORED' or die for @keys;
	return map { (mc_get($conn, $_, 'gets'))[2] } @keys;
}
sub mode
{
	my ($mode) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_commit = $mode");
	$node->reload;
	my (%is, $conn);
	wait_for('a setting', sub {
		$conn = mc_connect($node);
		$is{ mc_stats($conn, '')->{pid} } = mc_settings($conn)->{kvfdw_commit};
		return 2 == keys %is && !grep { $_ ne $mode } values %is;
	});
	return $conn;
}
sub after_a_crash { kill_all($node); restart_killed($node); mc_wait($node); return mc_connect($node); }
{
	my @keys = map { "kept$_" } 1 .. 10;
	my $conn = mc_connect($node);
	my @numbers = numbers_of($conn, 'a', @keys);
	is(join(' ', map { mc_ask($conn, "cas $keys[$_] 0 0 1 $numbers[$_]\r\na\r\n") } 0 .. 9), join(' ', ('STORED') x 10), 'cas numbers');
	@numbers = map { (mc_get($conn, $_, 'gets'))[2] } @keys;
	$node->safe_psql('postgres', q{SELECT kvfdw_flush('cache'); CHECKPOINT});
	$conn = after_a_crash();
	is(join(' ', map { mc_ask($conn, "cas $keys[$_] 0 0 1 $numbers[$_]\r\nb\r\n") } 0 .. 9), join(' ', ('EXISTS') x 10), '... fit no item any more after a crash');

	# what was lost leaves its place to others
	$conn = mode('off');
	hold_wal($node);
	@numbers = numbers_of($conn, 'c', @keys);
	$conn = after_a_crash();
	my @others = numbers_of($conn, 'd', @keys);
	is(join(' ', map { mc_ask($conn, "cas $keys[$_] 0 0 1 $numbers[$_]\r\ne\r\n") } 0 .. 9), join(' ', ('EXISTS') x 10), '... nor do those of values that were lost, and others have come in their place');
	is(join(' ', map { mc_ask($conn, "cas $keys[$_] 0 0 1 $others[$_]\r\nf\r\n") } 0 .. 9), join(' ', ('STORED') x 10), '... but those of what is there do');
	mode('on');
}

# ---- mode drain: the process flushes what it has acknowledged, soon ----
mode('drain');
# or the next session prunes pages of the catalogs, which is WAL that nobody flushes
$node->safe_psql('postgres', 'VACUUM');
$node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
hold_wal($node);
kill 'STOP', map { /^ *(\d+) .*kvfdw (?:buffer writer|maintainer|compactor|checkpointer)/ ? $1 : () } split /\n/, `ps -o pid=,args= --ppid $node->{_pid}`;
is(write_until(300), CLIENTS, 'mode drain');
my $inserted = $node->safe_psql('postgres', q{SELECT n - CASE WHEN n % 8192 <= 40 THEN n % 8192 ELSE 0 END FROM pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') n});
wait_for('a flush', sub { $node->safe_psql('postgres', "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0') >= $inserted") eq 't' });
after_a_crash();
judge($node, '... and after SIGKILL what was acknowledged before the last moments is there');

# ---- mode off: what is lost is lost from the end ----
mode('off');
for my $round (1 .. 3)
{
	my @clients = map { { conn => mc_connect($node), sent => 0, open => 0 } } 1 .. CLIENTS;
	my $killer = fork();
	if ($killer == 0)
	{
		usleep(100_000 + int rand 600_000);
		eval { kill_all($node) };
		require POSIX;
		POSIX::_exit(0);
	}
	my $running = 1;
	while ($running)
	{
		for my $i (0 .. $#clients)
		{
			my $client = $clients[$i];
			while ($client->{open} < 20)
			{
				$running &&= eval { local $SIG{PIPE} = 'IGNORE'; my $n = ++$client->{sent}; mc_send($client->{conn}, "set o$round.$i.$n 0 0 1\r\nx\r\n") };
				last unless $running;
				$client->{open}++;
			}
			$running &&= (eval { mc_line($client->{conn}) } // '') eq 'STORED' or last;
			$client->{open}--;
		}
	}
	waitpid $killer, 0;
	postmaster_runs($node);
	restart_killed($node);
	mc_wait($node);
	my %there = map { split /\|/ } split /\n/, $node->safe_psql('postgres', qq{SELECT split_part(key, '.', 2), count(*) || ' ' || max(split_part(key, '.', 3)::int) FROM cache WHERE key LIKE 'o$round.%' GROUP BY 1});
	is(join(', ', map { "$_: $there{$_}" } grep { my ($n, $last) = split ' ', $there{$_}; $n != $last || $last > $clients[$_]{sent} } sort keys %there), '',
		"mode off, round $round: after SIGKILL of all what each client has is the beginning of what it sent") or diag join ', ', map { "$_: $there{$_} of $clients[$_]{sent}" } sort keys %there;
	note join ', ', map { "$_: $there{$_} of $clients[$_]{sent}" } sort keys %there;
}
mode('on');

# ---- a standby ----
my $c = mc_connect($node);
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
my $port = PostgreSQL::Test::Cluster::get_free_port();
$standby->append_conf('postgresql.conf', "kvfdw.memcached_port = $port\n");
$standby->start;
mc_port($standby, $port);
mc_wait($standby);
is(mc_ask($c, "set stand 3 0 2\r\nby\r\n"), 'STORED', 'the primary writes');
$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
my $d = mc_connect($standby);
is(join('|', (mc_get($d, 'stand'))[0, 1]), 'by|3', 'a standby serves what it has replayed');

# replay cancels whoever is in its way, and a batch may have ended when it hears of that; batches are so long that somebody
# mostly is
my $serving = $standby->safe_psql('postgres', 'SELECT pid FROM kvfdw_stat_memcached WHERE worker_id = 0');
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 0');
$standby->reload;
my $get = join(' ', 'get', map { "k$_" } 1 .. 200) . "\r\n";
my @readers = map {
	my $pid = fork // die 'fork';
	if ($pid == 0)
	{
		my $conn = mc_connect($standby);
		while (1)
		{
			mc_send($conn, $get x 30);
			for (1 .. 30) { while (1) { my $line = mc_line($conn) // POSIX::_exit(1); last if $line eq 'END' || $line =~ /^SERVER_ERROR/ } }
		}
	}
	$pid
} 1 .. 3;
wait_for('conflicts', sub {
	$node->safe_psql('postgres', join '', map { "ALTER FOREIGN TABLE cache ALTER value SET STORAGE $_;" } 'EXTERNAL', 'EXTENDED') for 1 .. 10;
	# which may be cancelled, too
	return answer($standby, q{SELECT confl_lock >= 8 FROM pg_stat_database_conflicts WHERE datname = 'postgres'}) eq 't';
});
$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
is($standby->safe_psql('postgres', 'SELECT pid FROM kvfdw_stat_memcached WHERE worker_id = 0'), $serving, '... and goes on, whatever replay cancels');
is(scalar(grep { waitpid($_, POSIX::WNOHANG()) == 0 } @readers), 3, '... with its clients');
kill KILL => @readers;
waitpid $_, 0 for @readers;
is(mc_ask($d, "set stand 0 0 1\r\nx\r\n"), 'SERVER_ERROR 25006 server is read-only', '... and refuses to write');
is(mc_ask($d, "mg stand v\r\n") . mc_line($d), 'VA 2by', '... but not the meta protocol');
$standby->promote;
wait_for('a write', sub { mc_ask($d, "set stand 0 0 1\r\nx\r\n") eq 'STORED' });
is(scalar(mc_get($d, 'stand')), 'x', 'when it is promoted it writes, on the same connections');
is(scalar(mc_get($c, 'stand')), 'by', '... and the old primary has its own');
$_->stop for $standby, $node;
done_testing();
