# Promise: a wall clock that is set back holds up no process: what is done after a while, or again
# after an error, is done when that time has passed. Rows expire by it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();
use KvTest;
use KvMemcached;

plan skip_all => 'heap has no clock of its own' if heap_only();
my $dir = PostgreSQL::Test::Utils::tempdir();
my $clock = "$dir/seconds";
plan skip_all => 'no compiler' if system($ENV{CC} // 'cc', '-shared', '-fPIC', '-O1', '-o', "$dir/wallclock.so", "$FindBin::RealBin/../lib/wallclock.c") != 0;
my $off = 0;
append_to_file($clock, pack('q', 0));
sub set_clock { my ($seconds) = @_; $off = $seconds; open(my $f, '+<', $clock) or die "$clock: $!"; binmode $f; syswrite $f, pack('q', $seconds); close $f; return; }
$ENV{KV_WALLCLOCK} = $clock;

my $node = mc_cluster('clock', 'kvfdw.flush_after' => 1, 'kvfdw.memcached_workers' => 1, 'kvfdw.memcached_client_timeout' => 2, 'kvfdw.memcached_idle_timeout' => 3, 'kvfdw.memcached_reap_interval' => 1,
	'kvfdw.write_buffers' => "'4MB'", 'kvfdw.test_value_file_kb' => 64, 'kvfdw.test_space_look' => 1000, 'kvfdw.compact_sort' => 'off');
$node->stop;
{
	local $ENV{LD_PRELOAD} = "$dir/wallclock.so";
	$node->start;
}
mc_wait($node);
my $faults = has_faults($node);
sub wall { return $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())::bigint'); }
sub set { my ($key, $value, $expires) = @_; return mc_ask(mc_connect($node), "set $key 0 " . ($expires // 0) . ' ' . length($value) . "\r\n$value\r\n"); }
sub fault { my ($fault) = @_; $node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = '$fault'"); return $node->reload; }
sub rewrite { my ($t, $word) = @_; return answer($node, "INSERT INTO $t SELECT g, repeat('$word', 1000) FROM generate_series(1, 1000) g ON CONFLICT (k) DO UPDATE SET v = excluded.v"); }
sub ratio { my ($t) = @_; return $node->safe_psql('postgres', "SELECT value_file_bytes::numeric / nullif(live_bytes, 0) FROM kvfdw_stat_tables WHERE relid = '$t'::regclass"); }

for my $step ('as it is', 'an hour back', 'a day back')
{
	my %seconds = ('as it is' => 0, 'an hour back' => -3600, 'a day back' => -86400 - 3600);
	(my $t = $step) =~ tr/ /_/;
	my $idle = mc_connect($node);
	my $half = mc_connect($node);
	mc_send($half, "set half 0 0 1000\r\nxxx");
	$node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k'));
	is(set('expires', 'x', 1), 'STORED', "the clock $step: a row that expires");
	is(set('stays', 'x', 100_000), 'STORED', '... and one that does not');
	if ($faults)
	{
		# the buffer writer, the compactor
		fault('value_write:1+:ENOSPC');
		my ($rc) = $node->psql('postgres', "INSERT INTO $t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g");
		isnt($rc, 0, '... a full disk');
	}
	my $before = wall() - $off;
	set_clock($seconds{$step});
	cmp_ok(abs(wall() - $before - $off), '<', 100, '... the server has it');
	fault('');
	ok(wait_for('room', sub { rewrite($t, 'a') eq '' }), '... a disk that was full has room again');
	# of the write buffers that could not be written some may be tried again later than others
	for my $word ('b' .. 'f') { wait_for('room again', sub { rewrite($t, $word) eq '' }) }
	is($node->safe_psql('postgres', "SELECT count(*), min(v) = repeat('f', 1000) FROM $t"), '1000|t', '... and has what is written then');
	ok(wait_for('space', sub { ratio($t) < 3 }), '... space comes back');
	ok(wait_for('a freeze', sub { $node->safe_psql('postgres', "SELECT memtable_bytes FROM kvfdw_stat_tables WHERE relid = '$t'::regclass") == 0 }), '... what is recent is frozen');
	for ([ $half, 'half a request is given up' ], [ $idle, 'an idle client is disconnected' ])
	{
		my ($conn, $what) = @$_;
		ok(wait_for($what, sub { my $n = sysread $conn->{s}, my $byte, 1; return defined $n && $n == 0 || !defined $n && !$!{EAGAIN} && !$!{EWOULDBLOCK} }), "... $what");
	}
	is(scalar(mc_get(mc_connect($node), 'stays')), 'x', '... a row that is to stay is there');
	$node->safe_psql('postgres', "DROP FOREIGN TABLE $t");
	ok(wait_for('files to go', sub { !(() = glob $node->data_dir . '/kvfdw/dropped.*') }), '... the files of a dropped table go');
}
set_clock(10);
ok(wait_for('rows to expire', sub { $node->safe_psql('postgres', q{SELECT count(*) FROM cache WHERE key = 'expires'}) eq '0' }), 'what has expired is deleted');
is(kv_check_clean($node, 'cache'), '', 'the table is sound');
done_testing();
