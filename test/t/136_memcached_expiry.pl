# Promise: rows that have expired go, and others do not, be they searched for or met by a client or a compaction, and their space
# comes back; a flush_all with a delay is done when it is due, and not before; clients who all wait for the WAL need no other process; what
# a client sends in datagrams is done; SQL sees the connections, and idle ones take little memory.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMemcached;

my $udp = PostgreSQL::Test::Cluster::get_free_port();
my $node = mc_cluster('later', 'kvfdw.memcached_flush_all' => 'on', 'kvfdw.memcached_workers' => 1, 'kvfdw.memcached_reap_interval' => 0,
	'kvfdw.memcached_listen' => "'localhost, 127.0.0.1'", 'kvfdw.memcached_udp_port' => $udp, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.compact_sort' => 'off', 'kvfdw.compact_workers' => 0, 'kvfdw.memcached_max_connections' => 2000);
my $c = mc_connect($node);
sub sql { return answer($node, $_[0]); }
sub set { my ($key, $value, $exptime) = @_; return mc_ask($c, "set $key 0 " . ($exptime // 0) . ' ' . length($value) . "\r\n$value\r\n"); }
sub keys_left { return sql("SELECT string_agg(key, ' ' ORDER BY key) FROM cache"); }
sub passes
{
	my ($seconds) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_reap_interval = $seconds");
	$node->reload;
}

# ---- the flush of writes ----
my ($flusher, $second) = (sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw memcached flusher'"), mc_connect($node));
kill STOP => $flusher;
mc_send($c, "set a 0 0 1\r\n1\r\n");
wait_for('a reply to be held', sub { sql("SELECT count(*) FROM kvfdw_memcached_connections() WHERE state = 'flushing'") == 1 });
is(mc_ask($second, "set a 0 0 1\r\n2\r\n") . mc_line($c), 'STOREDSTORED', 'when all clients wait for the WAL their process flushes it, and nobody else is needed');
kill CONT => $flusher;
is(join(' ', map { mc_ask($_, "incr a 1\r\n") } $c, $second, $c), '3 4 5', '... and they go on');
sql("DELETE FROM cache WHERE key = 'a'");
undef $second;

# ---- rows that have expired ----
sql("CREATE FOREIGN TABLE kept ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached 'kept:'); GRANT SELECT, INSERT, UPDATE ON kept TO web;
	CREATE FOREIGN TABLE bare (key text COLLATE \"C\", value bytea) SERVER kvfdw OPTIONS (key 'key', memcached 'bare:'); GRANT SELECT, INSERT, UPDATE, DELETE ON bare TO web;
	INSERT INTO cache SELECT 'old' || i, 0, now() - '1 hour'::interval, 'x' FROM generate_series(1, 3000) i;
	INSERT INTO cache VALUES ('never', 0, NULL, 'x'), ('infinite', 0, 'infinity', 'x'), ('later', 0, now() + '1 hour'::interval, 'x'), ('old', 0, '-infinity', 'x'), ('old_locked', 0, '2000-01-01', 'x');
	INSERT INTO kept VALUES ('kept:old', 0, '2000-01-01', 'x')");
set('bare:x', 1);
set('anew', 'x', -1);
sql("INSERT INTO cache VALUES ('anew', 0, '2000-01-01', 'x')");
is(set('anew', 'y', 0), 'STORED', 'an item is stored where one has expired');
my $s = $node->background_psql('postgres');
$s->query_safe("BEGIN; SELECT key FROM cache WHERE key = 'old_locked' FOR UPDATE");
is(set('soon', 'x', 2), 'STORED', 'an item that expires while the processes run');
passes(1);
wait_for('rows to go', sub { keys_left() eq 'anew infinite later never old_locked' });
pass('rows that have expired go, and no others');
cmp_ok(mc_stat($node, 'reaped'), '>=', 3001, '... and are counted');
$s->query_safe('COMMIT');
wait_for('the last row to go', sub { keys_left() eq 'anew infinite later never' });
pass('one that was locked goes in a later pass');
is(sql('SELECT count(*) FROM kept'), '1', 'without the privilege to delete them they stay');
is(sql('SELECT count(*) FROM bare'), '1', '... and so do rows that do not expire');
my $reader = $node->background_psql('postgres');
is($reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM cache"), '4', 'a session that sees what was');
passes(0);

SKIP:
{
	skip 'faults need a test build', 2 unless has_faults($node);

	# between the look and the deletion the item is stored anew
	sql("INSERT INTO cache VALUES ('between', 0, '2000-01-01', 'x')");
	worker_stop_points($node, 'put_if=wait');
	passes(1);
	stopped($node, 'put_if');
	sql("UPDATE cache SET expires = NULL, value = 'new' WHERE key = 'between'");
	passes(0);
	worker_stop_points($node, '');
	go_on($node, 'put_if');
	my $reaped = mc_stat($node, 'reaped');
	is(scalar(mc_get($c, 'between')), 'new', 'an item that is stored while its old row is about to go, stays');
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'value_read:1+:EIO'");
	$node->reload;
	sql("INSERT INTO cache VALUES ('old', 0, '2000-01-01', 'x')");
	passes(1);
	wait_for('a row to go', sub { keys_left() !~ /old/ });
	pass('values that cannot be read keep no others');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
	$node->reload;
	passes(0);
}
$reader->query_safe('COMMIT');

# ---- … that a client meets ----
sql("INSERT INTO cache VALUES ('met', 0, '2000-01-01', 'x')");
is(mc_ask($c, "get kept:old\r\n") . mc_ask($c, "get met\r\n"), 'ENDEND', 'rows that have expired are read');
wait_for('a row to go', sub { keys_left() !~ /met/ });
pass('... and go for that');
is(set('met_soon', 'x', 1), 'STORED', 'one that will have expired');
wait_for('that', sub { mc_get($c, 'met_soon'); keys_left() !~ /met/ });
pass('... likewise');
is(sql('SELECT count(*) FROM kept'), '1', '... but for one that may not be deleted');
sql("INSERT INTO cache VALUES ('met_again', 0, '2000-01-01', 'x')");
# of the reaper's transactions, each of which deletes one row here
sub in_vain { return sql('SELECT batches - reaped FROM kvfdw_stat_memcached WHERE worker_id IS NULL'); }
my ($vain, $gone) = (in_vain(), mc_stat($node, 'reaped'));
is(mc_ask($c, "get kept:old\r\n"), 'END', '... which is read again');
mc_ask($c, "get met_again\r\n");
wait_for('what is told to be noticed', sub { mc_stat($node, 'reaped') > $gone });
is(in_vain(), $vain, '... for which nobody is woken');

SKIP:
{
	skip 'faults need a test build', 6 unless has_faults($node);

	# between the look and the deletion it becomes another one that has expired, too, and nobody meets that
	sql("INSERT INTO cache VALUES ('twice', 0, '2000-01-01', 'x')");
	worker_stop_points($node, 'put_if=wait');
	is(mc_ask($c, "get twice\r\n"), 'END', 'a row that has expired');
	stopped($node, 'put_if');
	sql("UPDATE cache SET expires = '2000-01-02' WHERE key = 'twice'");
	worker_stop_points($node, '');
	go_on($node, 'put_if');
	wait_for('the row to go', sub { keys_left() !~ /twice/ });
	pass('... goes, though it is changed meanwhile');

	# an ERROR for a row takes the notes of others not away, and is not raised again at once
	my $log = -s $node->logfile;
	my $errors = sub { return scalar(() = slurp_file($node->logfile, $log) =~ /ERROR:  stopped at "put_if"/g); };
	sql("INSERT INTO cache SELECT 'bad' || i, 0, '2000-01-01', 'x' FROM generate_series(1, 50) i");
	worker_stop_points($node, 'put_if=error');
	is(mc_ask($c, 'get ' . join(' ', map { "bad$_" } 1 .. 50) . "\r\n"), 'END', 'rows that have expired, of which one makes an error');
	wait_for('an error', sub { $errors->() > 0 });
	worker_stop_points($node, '');
	wait_for('rows to go', sub { sql("SELECT count(*) FROM cache WHERE key ~ 'bad'") <= 15 });
	cmp_ok($errors->(), '<=', 12, '... take no others with them');
	sql("DELETE FROM cache WHERE key ~ 'bad'");

	# how long it rests between so many of them
	my $rests = sub {
		my ($n) = @_;
		my ($from, @at) = (-s $node->logfile);
		sql("INSERT INTO cache SELECT 'bad' || i, 0, '2000-01-01', 'x' FROM generate_series(0, $n) i");
		worker_stop_points($node, 'put_if=error');
		mc_ask($c, 'get ' . join(' ', map { "bad$_" } 0 .. $n) . "\r\n");
		wait_for('errors', sub {
			my $log = slurp_file($node->logfile, $from);
			@at = ();
			push @at, 3600 * $1 + 60 * $2 + $3 while $log =~ /^\S+ (\d+):(\d+):([\d.]+) .*ERROR:  stopped at "put_if"/mg;
			return @at > $n;
		});
		worker_stop_points($node, '');
		sql("DELETE FROM cache WHERE key ~ 'bad'; INSERT INTO cache VALUES ('met', 0, '2000-01-01', 'x')");
		mc_ask($c, "get met\r\n");
		wait_for('a row to go', sub { keys_left() !~ /met/ });
		return map { $at[$_] - $at[ $_ - 1 ] + ($at[$_] < $at[ $_ - 1 ] ? 86400 : 0) } 1 .. $n;
	};
	my @rests = $rests->(3);
	is(join(' ', map { $rests[$_] >= 0.99 * 2**$_ ? 'enough' : $rests[$_] } 0 .. 2), 'enough enough enough', 'after each error the reaper rests twice as long');
	ok((grep { $_ < 8 } map { $rests->(1) } 1 .. 2), '... until something succeeds');
}

# ---- … or a compaction, which has to move what lies beside rows that are gone ----
sub bytes { my ($table) = @_; return sql("SELECT value_file_bytes FROM kvfdw_stat_tables WHERE relid = '$table'::regclass ORDER BY generation DESC LIMIT 1"); }
sub space_back { my ($table, $most) = @_; return wait_for('space', sub { sql("SELECT kvfdw_compact('$table')"); return bytes($table) < $most }); }
for my $table ('cache', 'packed')
{
	sql("CREATE FOREIGN TABLE packed (note text, key text COLLATE \"C\", expires timestamptz, value bytea) SERVER kvfdw OPTIONS (key 'key', memcached 'packed:', compression 'lz4'); GRANT SELECT, INSERT, UPDATE, DELETE ON packed TO web") if $table eq 'packed';
	my $prefix = $table eq 'packed' ? 'packed:' : '';
	set("${prefix}known", 'x');
	sql("INSERT INTO $table (key, expires, value) SELECT '${prefix}go' || i, CASE i % 3 WHEN 0 THEN now() WHEN 2 THEN now() + '1 hour'::interval END,
		(SELECT string_agg(md5(i::text || j), '') || repeat('x', 1000) FROM generate_series(1, 70) j)::bytea FROM generate_series(1, 600) i;
		DELETE FROM $table WHERE key ~ 'go' AND substr(key, length('${prefix}go') + 1)::int % 3 = 1");
	my $full = bytes($table);
	sql('SELECT pg_sleep(1.1)');	# a compaction leaves what has just expired alone
	$reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM $table");
	cmp_ok(sql("SELECT moved_bytes FROM kvfdw_compact('$table')"), '>', 400_000, "$table: a compaction moves values");
	wait_for('most rows to go', sub { sql("SELECT count(*) FROM $table WHERE expires < now()") < 100 });
	is(sql("SELECT count(*) FROM $table WHERE key ~ 'go' AND expires > now()"), '200', "$table: rows that have expired go when a compaction meets them, and no others");
	is($reader->query_safe("SELECT count(*) FROM $table WHERE key ~ 'go'"), '400', '... not for an older snapshot');
	is($reader->query_safe("SELECT count(*) FROM $table WHERE key ~ 'go' AND length(value) > 3000"), '400', '... which has their values');
	$reader->query_safe('COMMIT');
	passes(1);
	wait_for('the others to go', sub { sql("SELECT count(*) FROM $table WHERE expires < now()") == 0 });
	passes(0);
	ok(space_back($table, 0.45 * $full), '... and their space comes back');
	is(kv_check_clean($node, $table), '', '... soundly');
}
sql("DELETE FROM cache WHERE key ~ 'go' OR key = 'known'");
sql('DROP FOREIGN TABLE packed');

# ---- a flush_all with a delay ----
is(mc_ask($c, "flush_all 1\r\n"), 'SERVER_ERROR 42501 permission denied to truncate any served table', 'without the privilege');
sql('GRANT TRUNCATE ON cache TO web');
is(mc_ask($c, "flush_all 1000\r\n"), 'OK', 'flush_all with a delay');
is(scalar(mc_get($c, 'never')), 'x', '... does nothing now');
$s->query_safe('BEGIN; SELECT count(*) FROM cache');
is(mc_ask($c, "flush_all 1\r\n"), 'OK', 'a later one takes its place');
$s->query_safe("SELECT pg_sleep_until('" . sql("SELECT now() + '3 s'") . "')");
my $asked = time;
is(scalar(mc_get($c, 'never')), 'x', '... and while a session is in its way, the table is served');
cmp_ok(time - $asked, '<', 30, '... without having to wait for it');
$s->query_safe('COMMIT');
wait_for('it to be done', 40, sub { keys_left() eq '' });
pass('... and is done when it is due, and the table is to be had');
is(set('a', 'x'), 'STORED', 'then items are stored again');
for my $key ('met', 'met_again')
{
	sql("INSERT INTO cache VALUES ('$key', 0, '2000-01-01', 'x')");
	mc_get($c, $key);
	wait_for('a row to go', sub { keys_left() !~ /$key/ });
}
is(scalar(mc_get($c, 'a')), 'x', '... and stay');
my $from = -s $node->logfile;
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'meta_write:1:ENOSPC'; SELECT pg_reload_conf()");
is(mc_ask($c, "flush_all 1\r\n"), 'OK', 'one that fails when it is due');
wait_for('it to be done', sub { keys_left() eq '' });
like(slurp_file($node->logfile, $from), qr/No space left on device/, '... is done a little later');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault; ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()');
ok(eval { wait_for('the setting', sub { mc_ask($c, "flush_all 1000\r\n") eq 'SERVER_ERROR 25006 server is read-only' }) }, 'none is taken where nothing may be written');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()');
wait_for('the setting', sub { set('a', 'x') eq 'STORED' });
is(mc_ask($c, "flush_all 1\r\n"), 'OK', 'one whose role may not empty the table any more when it is due');
$from = -s $node->logfile;
sql('REVOKE TRUNCATE ON cache FROM web');
wait_for('it to be tried', sub { slurp_file($node->logfile, $from) =~ /ERROR:  permission denied to truncate any served table/ });
sql('GRANT TRUNCATE ON cache TO web');
is(set('b', 'x'), 'STORED', 'an item is stored');
my $late = time + 6;		# longer than it rests between attempts
while (time < $late) { select undef, undef, undef, 0.1 }
is(scalar(mc_get($c, 'b')), 'x', '... which it does not take along when the role may again');
$from = -s $node->logfile;
sql('REVOKE TRUNCATE ON cache FROM web');
mc_send($c, "flush_all\r\n" x 1000);
is(scalar(grep { mc_line($c) =~ /^SERVER_ERROR 42501/ } 1 .. 1000), 1000, 'a thousand that are refused');
cmp_ok(scalar(() = slurp_file($node->logfile, $from) =~ /ERROR:  permission denied to truncate/g), '<', 100, '... do not fill the log');
sql('GRANT TRUNCATE ON cache TO web');
is(mc_ask($c, "flush_all 1000\r\n") . mc_ask($c, "flush_all\r\n"), 'OKOK', 'flush_all without a delay');
is(set('a', 'x') . mc_ask($c, "flush_all 946684800\r\n"), 'STOREDOK', 'flush_all at the beginning of the year 2000');
ok(eval { wait_for('it to be done', 60, sub { keys_left() eq '' }) }, '... which has passed, so it is done') or diag $@;

# ---- datagrams ----
my $d = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $udp, Proto => 'udp') or die;
sub datagram
{
	my ($id, $request, $head) = @_;
	my %piece;
	wait_for('a reply', sub {
		send $d, pack($head // 'nnnn', $id, 0, 1, 0) . $request, 0;
		my $until = time + 5;
		while (time <= $until && IO::Select->new($d)->can_read(1))
		{
			recv $d, my $got, 65536, 0;
			my ($of, $number, $total) = unpack 'nnn', $got;
			next if $of != $id;
			$piece{$number} = substr $got, 8;
			return 1 if keys %piece == $total;
		}
		return 0;
	});
	return join '', map { $piece{$_} } sort { $a <=> $b } keys %piece;
}
is(datagram(1, "set u 3 0 5\r\nhello\r\n"), "STORED\r\n", 'a request in a datagram');
is(datagram(2, "get u\r\nget none\r\nversion\r\n") =~ s/VERSION.*//sr, "VALUE u 3 5\r\nhello\r\nEND\r\nEND\r\n", '... and several');
is(sql("SELECT convert_from(value, 'UTF8') FROM cache WHERE key = 'u'"), 'hello', '... is done');
my $value = join '', map { chr(97 + $_ % 26) } 1 .. 20000;
set('long', $value);
is(datagram(3, "get long\r\n"), "VALUE long 0 20000\r\n$value\r\nEND\r\n", 'a reply of several datagrams');
is(datagram(4, 'get ' . 'long ' x 10 . "\r\n"), "SERVER_ERROR reply is too large for datagrams\r\n", '... but not of too many');
sub memory { my ($value) = @_; $node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_buffer_memory = '${value}kB'"); $node->reload; return wait_for('a setting', sub { mc_settings($c)->{maxbytes} == 1024 * $value }); }
memory(1024);
is(datagram(7, 'get ' . 'long ' x 100 . "\r\n"), "SERVER_ERROR reply is too large for datagrams\r\n", '... nor of more than all memory holds');
memory(65536);
send $d, $_, 0 for '', 'x', 'x' x 8, pack('nnnn', 5, 1, 2, 0) . "get u\r\n", pack('nnnn', 5, 0, 1, 0) . 'get', "\0" x 60000, map { my $n = $_; join '', map { chr int rand 256 } 1 .. $n } 1 .. 100;
is(datagram(6, "\x80\x0a" . "\0" x 22), "\x81\x0a" . "\0" x 22, 'garbage disturbs nobody, and the binary protocol is there');
is(sql('SELECT connections FROM kvfdw_stat_memcached WHERE worker_id = 0'), '1', 'nothing of them is left');

$_->quit for $s, $reader;

# datagrams whose requests have to wait leave room for connections, and for each other
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_max_connections = 40; ALTER SYSTEM SET kvfdw.memcached_lock_timeout = '100s'");
$node->restart;
mc_wait($node);
$c = mc_connect($node);
set('counter', 0);
$s = $node->background_psql('postgres');
$s->query_safe("BEGIN; SELECT key FROM cache WHERE key = 'counter' FOR UPDATE");
my $parked = mc_stat($node, 'parked');
for my $i (1 .. 100) { send $d, pack('nnnn', 1000 + $i, 0, 1, 0) . "incr counter 1\r\n", 0; }
wait_for('them to be parked', sub { mc_stat($node, 'parked') >= $parked + 64 });
is(mc_ask(mc_connect($node), "mn\r\n"), 'MN', 'datagrams whose requests have to wait leave room for connections');
is(sql('SELECT connections FROM kvfdw_stat_memcached WHERE worker_id = 0') <= 2, 1, '... and are none');
$s->quit;
wait_for('them to be done', sub { scalar(mc_get($c, 'counter')) == 64 });
is(mc_stat($node, 'parked') - $parked, 64, '... and are not too many themselves');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.memcached_max_connections; ALTER SYSTEM RESET kvfdw.memcached_lock_timeout');
$node->restart;
mc_wait($node);
$c = mc_connect($node);
1 while IO::Select->new($d)->can_read(0) && defined recv $d, my $late, 65536, 0;

# ---- connections ----
my @idle = map { mc_connect($node) } 1 .. 500;
like(mc_ask($idle[-1], "version\r\n"), qr/^VERSION/, 'many connections');
is(sql("SELECT count(*), count(DISTINCT address), min(requests), sum(received_bytes + unsent_bytes) FROM kvfdw_memcached_connections() WHERE state = 'idle'") =~ s/\|.*\|/|/r, '501|0', 'SQL sees them');
is(sql("SELECT count(*) FROM kvfdw_memcached_connections() WHERE address LIKE '127.0.0.1:%' AND worker_id = 0"), '501', '... and where they come from');
my ($shown, undef, $err) = ($node->psql('postgres', 'SET ROLE web; SELECT * FROM kvfdw_memcached_connections()'))[1, 0, 2];
like($err, qr/permission denied/, '... but not everybody does');
cmp_ok(sql('SELECT buffer_memory FROM kvfdw_stat_memcached WHERE worker_id = 0'), '<', 100_000, '... and they have no buffers');
@idle = ();
wait_for('them to go', sub { sql('SELECT count(*) FROM kvfdw_memcached_connections()') == 1 });
pass('what is closed is seen no more');

# ---- libmemcached's own test of a server ----
SKIP:
{
	skip "there is no memccapable", 2 unless grep { -x "$_/memccapable" } split /:/, $ENV{PATH};
	for my $protocol ('-a', '-b')
	{
		my $said = `memccapable -h 127.0.0.1 -p @{[ mc_port($node) ]} $protocol 2>&1`;
		ok($? == 0 && $said =~ /All tests passed/, "memccapable $protocol") or diag $said;
	}
}
is(kv_check_clean($node, 'cache'), '', 'kvfdw_check finds nothing');

# ---- the end of the server ----
my ($end, $answer) = (time + 60, 1);
kill KILL => postmaster_runs($node);
$answer = eval { local $SIG{PIPE} = 'IGNORE'; mc_ask($c, "get none\r\n") } while $answer && time < $end;
is($answer, undef, 'a process that is never idle for long ends with its server');
wait_for('the postmaster to be gone', sub { !postmaster_runs($node) });
restart_killed($node);
mc_wait($node);
is(mc_ask(mc_connect($node), "get none\r\n"), 'END', '... and there is another one');
$node->stop;
done_testing();
