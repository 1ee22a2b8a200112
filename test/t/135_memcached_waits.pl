# Promise: what one client, one table or one device has to wait for holds up no other: the recovery of a table, a table that
# cannot be used, flush_all of another's tables, slow clients, the flush of writes, a maintainer that is busy; and who waits for a row gets it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use KvTest;
use KvMemcached;

my $node = mc_cluster('waits', 'kvfdw.memcached_flush_all' => 'on', 'kvfdw.memcached_buffer_memory' => '4MB', 'kvfdw.memcached_client_timeout' => '1h',
	'kvfdw.memtable_memory' => heap_only() ? 1 : "'16MB'", wal_level => 'replica', max_wal_senders => 4);
my $faults = has_faults($node);
sub sql { return answer($node, $_[0]); }
sub set { my ($conn, $key, $value) = @_; return mc_ask($conn, "set $key 0 0 " . length($value) . "\r\n$value\r\n"); }
sub settings { my ($command) = @_; $node->safe_psql('postgres', "ALTER SYSTEM $command"); return $node->reload; }
sub process { return mc_stats($_[0], '')->{pid}; }
sub when_parked { my ($before) = @_; return wait_for('a parked request', sub { mc_stat($node, 'parked') > $before }); }
sub make_table
{
	my ($name) = @_;
	sql("CREATE FOREIGN TABLE $name ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached '$name:'); GRANT SELECT, INSERT, UPDATE, DELETE ON $name TO web");
}

# Two connections of one process, and one of another.
sub connections
{
	my (%of, @both);
	wait_for('connections of two processes', sub {
		my $conn = mc_connect($node);
		push @{ $of{ process($conn) } }, $conn;
		@both = sort { @{ $of{$b} } <=> @{ $of{$a} } } keys %of;
		return @both == 2 && @{ $of{ $both[0] } } > 1;
	});
	return ($of{ $both[0] }[0], $of{ $both[0] }[1], $of{ $both[1] }[0]);
}
my ($c, $beside, $other) = connections();

# ---- flush_all ----
make_table('mine');
sql('GRANT TRUNCATE ON mine TO web');
set($c, 'a', 1);
my $s = $node->background_psql('postgres');
my $before = mc_stat($node, 'parked');
$s->query_safe('BEGIN; SELECT count(*) FROM mine');
mc_send($c, "flush_all\r\n");
when_parked($before);
is(scalar(mc_get($_, 'a')), '1', 'while flush_all waits for its table, others are served') for $beside, $other;
$s->query_safe('COMMIT');
is(mc_line($c), 'OK', '... and it gets it');
$before = mc_stat($node, 'parked');
$s->query_safe('BEGIN; SELECT count(*) FROM mine');
mc_send($c, "flush_all\r\n");
when_parked($before);
$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.memcached_flush_all = off');
$node->reload;
is(mc_line($c), 'CLIENT_ERROR flush_all not allowed', 'one that is forbidden while it waits, is refused');
$s->query_safe('COMMIT');
is(scalar(mc_get($other, 'mine:none')), undef, '... and leaves its tables to the other processes');
$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.memcached_flush_all = on');
$node->reload;
wait_for('a setting', sub { mc_settings($c)->{flush_enabled} eq 'yes' });

# one that waits for its table is gone, or its process is
for my $end ('its client has gone', 'its process has ended')
{
	my $pid = process($c);
	$before = mc_stat($node, 'parked');
	$s->query_safe('BEGIN; SELECT count(*) FROM mine');
	mc_send($c, "flush_all\r\n");
	when_parked($before);
	mc_send($other, "get mine:none\r\n");
	# a reset: one that has only closed may still want its answer
	if ($end =~ /client/) { setsockopt($c->{s}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)); close $c->{s} }
	else { sql("SELECT pg_terminate_backend($pid)") }
	is(mc_line($other), 'END', "a flush_all leaves its tables to others when $end");
	$s->query_safe('COMMIT');
	($c, $beside, $other) = connections();
}

# ---- a table that cannot be used ----
make_table('gone');
set($c, 'gone:x', 1);
my ($relid, $dboid) = split /\|/, sql("SELECT 'gone'::regclass::oid, oid FROM pg_database WHERE datname = 'postgres'");
$node->stop;
my @tables = glob $node->data_dir . "/kvfdw/$dboid/$relid/*/table";
is(scalar(@tables), 1, 'a table has its file');
append_to_file($tables[0], '');
open my $file, '+<', $tables[0] or die;
print $file 'x' x 100;
close $file;
$node->start;
mc_wait($node);
($c, $beside, $other) = connections();
like(mc_ask($c, "get gone:x\r\n"), qr/^SERVER_ERROR /, 'a table that cannot be used is an error');
$before = mc_stat($node, 'repeated_batches');
mc_send($c, "get gone:x\r\nget a\r\n" x 40);
my %answers;
$answers{ mc_line($c) =~ s/^SERVER_ERROR\K.*//r }++ for 1 .. 40 * 4;
is(join('|', map { "$_ $answers{$_}" } sort keys %answers), '1 40|END 40|SERVER_ERROR 40|VALUE a 0 1 40', 'beside it others are served') or diag explain \%answers;
mc_ask($c, "mn\r\n");
cmp_ok(mc_stat($node, 'repeated_batches') - $before, '<=', 2, '... and their turns are not done again for its sake');
$before = mc_stat($node, 'repeated_batches');
for (1 .. 5)
{
	sql('CREATE TABLE scratch (i int); DROP TABLE scratch');
	mc_ask($c, "get gone:x\r\n");
	mc_ask($c, "mn\r\n");
}
is(mc_stat($node, 'repeated_batches') - $before, 0, '... also when tables are made that are none of theirs');
sql('DROP FOREIGN TABLE gone');

# ---- a table that has to be recovered ----
SKIP:
{
	skip 'stop points need a test build', 3 unless $faults;
	worker_stop_points($node, 'recover_after_logs=wait');
	$node->stop('immediate');
	$node->start;
	($c, $beside, $other) = connections();
	stopped($node, 'recover_after_logs');
	mc_send($c, "get a\r\n");
	is(mc_ask($beside, "mn\r\n"), 'MN', 'while a table is recovered, the process goes on');
	worker_stop_points($node, '');
	# each attempt is a batch
	my $turns = mc_stat($node, 'batches');
	wait_for('attempts', sub { mc_stat($node, 'batches') > $turns + 300 });
	cmp_ok(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'kvfdw memcached open'"), '<=', 2, '... for which each process starts one other at most');
	go_on($node, 'recover_after_logs');
	is(join('|', map { mc_line($c) } 1 .. 3), 'VALUE a 0 1|1|END', '... and the request has its answer when it is there');
	mc_wait($node);

	# as many slots as the processes that are always there take
	my @always = grep { /(kvfdw|replication launcher)/ && !/kvfdw (recovery|sweep|warm|analyze|memcached open)/ } split /\n/, `ps -o args= --ppid $node->{_pid}`;
	my $slots = sql('SHOW max_worker_processes');
	settings('SET max_worker_processes = ' . @always);
	worker_stop_points($node, 'recover_after_logs=wait');
	$node->stop('immediate');
	$node->start;
	($c, $beside, $other) = connections();
	stopped($node, 'recover_after_logs');
	$before = mc_stat($node, 'parked');
	mc_send($c, "get a\r\n");
	when_parked($before);
	is(mc_ask($beside, "mn\r\n"), 'MN', 'where no other process can recover the table, the process goes on, too');
	is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'kvfdw memcached open'"), 0, '... as there is none');
	worker_stop_points($node, '');
	go_on($node, 'recover_after_logs');
	is(join('|', map { mc_line($c) } 1 .. 3), 'VALUE a 0 1|1|END', '... and the request has its answer when the maintainer has done it');
	settings("SET max_worker_processes = $slots");
	$node->restart;
	mc_wait($node);
	($c, $beside, $other) = connections();
}

# ---- the flush of writes ----
sub flushing { return sql("SELECT count(*) FROM kvfdw_memcached_connections() WHERE state = 'flushing'"); }
sub when_flushing { my ($n) = @_; return wait_for("$n connections that wait for the WAL", sub { flushing() == $n }); }

# A write of the connection waits for a standby that is not there.
sub hold_write
{
	my ($writer) = @_;
	settings("SET synchronous_standby_names = 'nobody'");
	my $asked = 0;
	return wait_for('a write that waits', sub {
		return 1 if $asked++ && !mc_answered($writer) && sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0;
		mc_line($writer) if mc_answered($writer);
		mc_send($writer, "incr b 1\r\n") if $asked == 1 || $writer->{in} eq '';
		return 0;
	});
}
my ($writer, $reader, $third) = connections();
set($writer, 'b', 1);
hold_write($writer);
is(scalar(mc_get($reader, 'a')), '1', 'while a write waits for a standby, reads of the same process have their answers');
is(flushing(), '1', '... and the other one is seen to wait');
mc_send($third, "add b 0 0 1\r\n9\r\n");
when_flushing(2);
pass('so does the reply to a write that did nothing, as what it found waits');
settings('RESET synchronous_standby_names');
like(mc_line($writer) . ' ' . mc_line($third), qr/^\d+ NOT_STORED$/, '... and both are acknowledged after that');

hold_write($writer);
mc_send($third, "incr b 1\r\n");
when_flushing(2);
pass('a process with one client does not stand still with its write');
mc_send($reader, "flush_all\r\n");
when_flushing(3);
is(sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'kvfdw memcached'"), 0, '... nor one that has done a flush_all');
my $gone = (connections())[0];
mc_send($gone, "set gone 0 0 1\r\n1\r\n" x 100);
when_flushing(4);
setsockopt($gone->{s}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
close $gone->{s};
when_flushing(3);
pass('a client that has gone waits no more');
settings('RESET synchronous_standby_names');
like(join(' ', map { mc_line($_) } $writer, $third, $reader), qr/^\d+ \d+ OK$/, '... and the others have their replies');
like(join(' ', map { mc_ask($_, "incr b 1\r\n") } $writer, $third, $reader), qr/^\d+ \d+ \d+$/, '... and write again');
($c, $beside, $other) = connections();

# ---- sessions in a row's queue ----
SKIP:
{
	skip 'stop points need a test build', 3 unless $faults;
	set($c, 'counter', 1);
	worker_stop_points($node, 'put_if=wait');
	mc_send($c, "incr counter 1\r\n");
	stopped($node, 'put_if');
	worker_stop_points($node, '');
	my $holder = $node->background_psql('postgres');
	$holder->query_safe("BEGIN; UPDATE cache SET flags = 7 WHERE key = 'other'");
	go_on($node, 'put_if');
	is(mc_line($c), '2', 'a counter');
	$holder->query_safe("UPDATE cache SET value = '10' WHERE key = 'counter'");
	my $waiter = psql_writer($node, "SET kvfdw.stop_points = 'row_waited_for=wait'; UPDATE cache SET value = (convert_from(value, 'UTF8')::int + 100)::text::bytea WHERE key = 'counter';", 'waiter');
	wait_for('a session in the queue', sub { sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'") > 0 });
	$before = mc_stat($node, 'parked');
	mc_send($c, "incr counter 1\r\n");
	when_parked($before);
	$holder->query_safe('COMMIT');
	stopped($node, 'row_waited_for');
	is(mc_ask($beside, "mn\r\n"), 'MN', 'a row that a session waits for is free');
	ok(!mc_answered($c), '... and left to it');
	go_on($node, 'row_waited_for', $waiter);
	is(mc_line($c), '111', '... by a request that was behind it');
	$holder->quit;
}

# ---- a get of many keys, while their shard is split ----
SKIP:
{
	skip 'stop points need a test build', 2 unless $faults;
	sql("INSERT INTO cache SELECT 'r' || lpad(g::text, 4, '0'), 0, NULL, g::text::bytea FROM generate_series(1, 1000) g");
	worker_stop_points($node, 'points_routed=wait');
	mc_send($c, "get r0001 r0999 r0500 r1001 r0250 r0750\r\n");
	stopped($node, 'points_routed');
	worker_stop_points($node, '');
	cmp_ok(sql("SELECT kvfdw_split('cache')"), '>', 1, 'a shard is split that a get has been led to');
	go_on($node, 'points_routed');
	is(join('|', map { mc_line($c) } 1 .. 11), 'VALUE r0001 0 1|1|VALUE r0999 0 3|999|VALUE r0500 0 3|500|VALUE r0250 0 3|250|VALUE r0750 0 3|750|END', '... which finds its keys where they are');
}

# ---- memory for recent versions, while the maintainer is busy ----
SKIP:
{
	skip 'stop points need a test build', 5 unless $faults;
	sql("CREATE FOREIGN TABLE many ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached 'many:', shards '64'); GRANT SELECT, INSERT, UPDATE, DELETE ON many TO web");
	worker_stop_points($node, 'maintainer_idle=wait');
	stopped($node, 'maintainer_idle');
	my $sets = sub {
		my ($prefix, $n) = @_;
		my $c = mc_connect($node);
		for my $part (1 .. $n / 500)
		{
			mc_send($c, join '', map { "set $prefix$_:$part" . 'x' x 200 . " 0 0 1\r\n1\r\n" } 1 .. 500);
			for (1 .. 500) { my $answer = mc_line($c); return $answer if $answer ne 'STORED'; }
		}
		return "STORED $n";
	};
	is($sets->('one:', 20_000), 'STORED 20000', 'while the maintainer is busy a shard has room for more writes than memory has');
	my $log = -s $node->logfile;
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'run_write:1:ENOSPC'");
	$node->reload;
	sql("SET kvfdw.fault = ''; SET kvfdw.stop_points = ''; INSERT INTO many SELECT 'many:' || md5(g::text) || repeat('x', 200), 0, NULL, '1' FROM generate_series(1, 30000) g");
	is($sets->('many:', 20_000), 'STORED 20000', '... and so have many shards');
	like(slurp_file($node->logfile, $log), qr/LOG:  could not .*No space left on device/, '... the log tells what failed with that');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	worker_stop_points($node, '');
	go_on($node, 'maintainer_idle');
	is(sql("SELECT count(*) FROM cache WHERE key LIKE 'one:%'") . ' ' . sql('SELECT count(*) FROM many'), '20000 50000', '... and all is there');
	is(kv_check_clean($node, 'many'), '', '... and sound');
}

# ---- clients that are slow, but not dead ----
my $large = join '', map { chr(97 + $_ % 26) } 1 .. 1024 * 1024;
set($c, 'large', $large);
my @slow = map { mc_connect($node) } 1 .. 16;
mc_send($_, "get large\r\n" x 8) for @slow;
my @left = map { 8 * (length("VALUE large 0 1048576\r\n") + 1024 * 1024 + length "\r\nEND\r\n") } @slow;
wait_for('all that slow clients have asked for', sub {
	for my $i (0 .. $#slow)
	{
		my $n = $left[$i] > 0 ? sysread($slow[$i]{s}, my $buffer, 200_000) : undef;
		return die 'disconnected' if defined $n && $n == 0;
		$left[$i] -= $n // 0;
	}
	return !grep { $_ > 0 } @left;
});
is(mc_stat($node, 'dropped'), '0', 'clients that take their replies slowly are not disconnected, and get them all');
is(join(' ', grep { $_ != 0 } @left), '', '... and no more');
@slow = ();
is(kv_check_clean($node, 'cache'), '', 'kvfdw_check finds nothing');
$s->quit;
$node->stop;
done_testing();
