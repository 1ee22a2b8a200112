# Promise: a request for a row that SQL has locked waits, without others waiting for it, and has an error after a while; so
# with a table that is being changed; and DDL waits for no client.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMemcached;

my $node = mc_cluster('beside', 'kvfdw.memcached_flush_all' => 'on', wal_level => 'replica', max_wal_senders => 4);
my ($c, $d) = (mc_connect($node), mc_connect($node));
sub set { my ($conn, $key, $value) = @_; return mc_ask($conn, "set $key 0 0 " . length($value) . "\r\n$value\r\n"); }
sub sql { return answer($node, $_[0]); }
sub parked { return mc_stat($node, 'parked'); }
sub when_parked { my ($before) = @_; return wait_for('a parked request', sub { parked() > $before }); }

# Set it, and wait until the processes of these connections have read it.
sub timeout_is
{
	my ($ms, @conns) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.memcached_lock_timeout = $ms");
	$node->reload;
	for my $conn (@conns) { wait_for('a setting', sub { mc_settings($conn)->{kvfdw_lock_timeout} == $ms }); }
	return;
}

set($c, $_, 1) for qw(a b counter);

# ---- between the look at a row and its write ----
SKIP:
{
	skip 'stop points need a test build', 5 unless has_faults($node);
	my $between = sub {
		my ($sql, $request) = @_;
		my $repeated = mc_stat($node, 'repeated_batches');
		worker_stop_points($node, 'put_if=wait');
		mc_send($c, $request // "incr a 1\r\n");
		stopped($node, 'put_if');
		sql($sql);
		worker_stop_points($node, '');
		go_on($node, 'put_if');
		my $answer = mc_line($c);
		mc_ask($c, "get none\r\n");
		return "$answer " . (mc_stat($node, 'repeated_batches') - $repeated);
	};
	is($between->("SELECT kvfdw_flush('cache')"), '2 0', 'a freeze between look and write does not matter');
	is($between->("UPDATE cache SET value = '41' WHERE key = 'a'"), '42 1', 'after a change between them the request is done again');
	is($between->("DELETE FROM cache WHERE key = 'a'"), 'NOT_FOUND 1', '... so after a deletion');
	is($between->("INSERT INTO cache VALUES ('a', 0, NULL, 'x')", "set a 0 0 1\r\n2\r\n"), 'STORED 0', 'a set has looked at nothing, so an insertion before it does not matter');
	is($between->("DELETE FROM cache WHERE key = 'a'", "set a 0 0 1\r\n3\r\n") . mc_get($c, 'a'), 'STORED 03', '... nor does a deletion');
	set($c, 'a', 1);
}

# ---- locked rows ----
my $s = $node->background_psql('postgres');
my $before = parked();
$s->query_safe("BEGIN; SELECT key FROM cache WHERE key = 'a' FOR UPDATE");
mc_send($c, "get a\r\nincr a 1\r\nincr counter 1\r\nget a counter\r\n");
when_parked($before);
is(mc_line($c) . mc_line($c) . mc_line($c), 'VALUE a 0 11END', 'a locked row can be read');
ok(!mc_answered($c), '... but not written');
is(set($d, 'b', 2) . mc_ask($d, "incr counter 1\r\n"), 'STORED2', 'other connections go on');
is(mc_ask($d, "get a\r\n") . mc_line($d) . mc_line($d), 'VALUE a 0 11END', '... and read the row');
ok(!mc_answered($c), 'what stands behind the parked request waits');
$s->query_safe('COMMIT');
is(join('|', map { mc_line($c) } 1 .. 7), '2|3|VALUE a 0 1|2|VALUE counter 0 1|3|END', 'when the row is free all is done, in order, and once');

$before = parked();
$s->query_safe("BEGIN; UPDATE cache SET value = '10' WHERE key = 'a'");
mc_send($c, "incr a 1\r\n");
when_parked($before);
$s->query_safe('COMMIT');
is(mc_line($c), '11', 'a request that was parked sees what the other one has written');
$s->query_safe("BEGIN; DELETE FROM cache WHERE key = 'a'");
is(mc_ask($c, "add a 0 0 1\r\nn\r\n"), 'NOT_STORED', 'a row whose deletion is not committed is there');
$s->query_safe('ROLLBACK');
$before = parked();
$s->query_safe("BEGIN; INSERT INTO cache VALUES ('fresh', 0, NULL, 'x')");
mc_send($c, "add fresh 0 0 1\r\nn\r\n");
when_parked($before);
$s->query_safe('COMMIT');
is(mc_line($c), 'NOT_STORED', 'nor is an unfinished row overtaken');
$s->query_safe("BEGIN; SELECT key FROM cache WHERE key = 'a' FOR KEY SHARE");
is(mc_ask($c, "incr a 1\r\n"), '12', 'a KEY SHARE lock is in the way of no write');
$before = parked();
mc_send($c, "delete a\r\n");
when_parked($before);
$s->query_safe('COMMIT');
is(mc_line($c), 'DELETED', '... but of a delete');

$before = parked();
$s->query_safe("BEGIN; SELECT count(*) FROM (SELECT key FROM cache FOR UPDATE) s");
mc_send($c, "set b 0 0 1\r\n5\r\nget b\r\n");
when_parked($before);
timeout_is(100);
is(mc_line($c), 'SERVER_ERROR 55P03 row is locked by another transaction', 'after a while there is an error');
is(mc_line($c) . mc_line($c) . mc_line($c), 'VALUE b 0 12END', '... and the connection goes on');
timeout_is(0, $c);
is(set($c, 'b', 6), 'SERVER_ERROR 55P03 row is locked by another transaction', 'with a timeout of 0 at once');
timeout_is(100_000, $c, $d);
$s->query_safe('ROLLBACK');

# the other order: SQL waits for nobody but as long as a batch
is(sql("SET lock_timeout = '100s'; UPDATE cache SET value = '3' WHERE key = 'b'"), '', 'SQL writes what clients have written');

# ---- one row, and everybody ----
set($c, 'sum', 0);
my @all = map { mc_connect($node) } 1 .. 8;
my $writer = psql_writer($node, "UPDATE cache SET value = (convert_from(value, 'UTF8')::int + 1)::text::bytea WHERE key = 'sum';\n" x 100, 'sum');
mc_send($_, "incr sum 1\r\n" x 200) for @all;
my %seen;
for my $conn (@all) { $seen{ mc_line($conn) }++ for 1 .. 200; }
is(outcome($writer), '', 'SQL and clients change one row at the same time');
is(scalar(grep { /^\d+$/ } keys %seen), 1600, '... each client has an answer of its own');
is(scalar(mc_get($c, 'sum')), 1700, '... and nothing is done twice or not at all');
@all = ();

# ---- tables ----
$before = parked();
$s->query_safe("BEGIN; ALTER FOREIGN TABLE cache ADD COLUMN note text");
mc_send($c, "get b\r\n");
when_parked($before);
like(mc_ask($d, "version\r\n"), qr/^VERSION/, 'while a table is locked others are served');
$s->query_safe('COMMIT');
is(mc_line($c) . mc_line($c) . mc_line($c), 'VALUE b 0 13END', 'a request waits for ALTER TABLE');
sql("UPDATE cache SET note = 'kept' WHERE key = 'b'");
is(mc_ask($c, "incr b 1\r\n"), '4', 'a table with more columns is served');
is(sql("SELECT note FROM cache WHERE key = 'b'"), 'kept', '... and they keep what they have');
set($c, 'new', 1);
is(sql("SELECT note IS NULL FROM cache WHERE key = 'new'"), 't', '... and are NULL in new rows');

my %error = (
	"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON cache FOR EACH ROW EXECUTE FUNCTION f()"
	  => ['has triggers', 'DROP TRIGGER t ON cache'],
	"ALTER FOREIGN TABLE cache ADD CONSTRAINT c CHECK (key <> 'x')" => ['has CHECK constraints', 'ALTER FOREIGN TABLE cache DROP CONSTRAINT c'],
	"ALTER FOREIGN TABLE cache ADD COLUMN g int GENERATED ALWAYS AS (1) STORED" => ['has a generated column', 'ALTER FOREIGN TABLE cache DROP COLUMN g'],
	"ALTER FOREIGN TABLE cache ADD COLUMN m int NOT NULL DEFAULT 1" => ['has NOT NULL column "m"', 'ALTER FOREIGN TABLE cache DROP COLUMN m'],
	"CREATE FOREIGN TABLE cache2 (key text COLLATE \"C\", value bytea) SERVER kvfdw OPTIONS (key 'key', memcached '')" => ['has the same prefix as another table', 'DROP FOREIGN TABLE cache2'],
	"ALTER FOREIGN TABLE cache OPTIONS (ADD memcached_columns 'value, flags, note')" => ['has times of expiry that are not of type timestamptz', 'ALTER FOREIGN TABLE cache OPTIONS (DROP memcached_columns)'],
	"ALTER FOREIGN TABLE cache OPTIONS (ADD memcached_columns 'nothing')" => ['has no column "nothing"', 'ALTER FOREIGN TABLE cache OPTIONS (DROP memcached_columns)']);
for my $ddl (sort keys %error)
{
	my ($reason, $undo) = @{ $error{$ddl} };
	sql($ddl);
	like(set($c, 'b', 9), qr/^SERVER_ERROR \w{5} table "cache" \Q$reason\E$/, $reason);
	is(sql('SELECT served, reason FROM kvfdw_memcached_tables() WHERE relid = \'cache\'::regclass') =~ s/\w{5} table "cache" //r, "f|$reason", '... says the view');
	sql($undo);
	is(set($c, 'b', 9), 'STORED', '... and without it is served again');
}

# ---- DDL under load ----
SKIP:
{
	skip 'stop points need a test build', 3 unless has_faults($node);
	# as many requests as 150 batches have, of which the first is under way when DDL begins to wait
	my $busy = mc_connect($node);
	set($c, 'n', 0);
	worker_stop_points($node, 'put_if=wait');
	mc_send($busy, "incr n 1\r\n" x 4800);
	stopped($node, 'put_if');
	worker_stop_points($node, '');
	my $ddl = psql_writer($node, "SET lock_timeout = '100s'; BEGIN; ALTER FOREIGN TABLE cache ADD COLUMN early int;
		SELECT convert_from(value, 'UTF8') FROM cache WHERE key = 'n'; COMMIT;", 'early');
	wait_for('DDL to wait', sub { sql("SELECT count(*) FROM pg_locks WHERE relation = 'cache'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted") == 1 });
	my $done = go_on($node, 'put_if', $ddl);
	like($done, qr/^\d+$/, 'DDL waits for the turn that is under way');
	cmp_ok($done, '<=', 32, '... and has the table before the next one, however many requests are there');
	my @counted = map { mc_line($busy) } 1 .. 4800;
	is($counted[-1], 4800, '... which are done afterwards');
}
my $load = mc_connect($node);
mc_send($load, join '', map { "set l" . ($_ % 100) . " 0 0 10\r\n0123456789\r\n" } 1 .. 20000) for 1 .. 1;
for my $i (1 .. 20)
{
	is(sql("SET lock_timeout = '100s'; ALTER FOREIGN TABLE cache ADD COLUMN c$i int"), '', "ALTER TABLE $i under load") if $i % 10 == 0;
	sql("SET lock_timeout = '100s'; ALTER FOREIGN TABLE cache ADD COLUMN c$i int") if $i % 10;
}
is(sql("SET lock_timeout = '100s'; TRUNCATE cache"), '', 'TRUNCATE under load');
my %answers;
$answers{ mc_line($load) }++ for 1 .. 20000;
is(join(' ', %answers), 'STORED 20000', 'all requests were done');
is(set($c, 'b', 9) . scalar(mc_get($c, 'b')), 'STORED9', 'the table is served');
is(sql('DROP FOREIGN TABLE cache'), '', 'DROP');
is(mc_ask($c, "get b\r\n"), 'SERVER_ERROR 42P01 no table serves this key', 'a key of no table');
sql("CREATE FOREIGN TABLE cache ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached ''); GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON cache TO web");
is(mc_ask($c, "get b\r\n"), 'END', 'a table made anew is served');
is(set($c, 'b', 9) . sql('SELECT count(*) FROM cache'), 'STORED1', '... and written');

# ---- flush_all waits for its tables, and others for it ----
$before = parked();
$s->query_safe("BEGIN; SELECT count(*) FROM cache");
mc_send($c, "flush_all\r\n");
when_parked($before);
$s->query_safe('COMMIT');
is(mc_line($c), 'OK', 'flush_all waits for who reads a table');
is(mc_ask($d, "get b\r\n"), 'END', '... and all are served again');
timeout_is(100, $c);
$s->query_safe("BEGIN; SELECT count(*) FROM cache");
set($d, 'b', 9);
is(mc_ask($c, "flush_all\r\n"), 'SERVER_ERROR 57P03 table is being changed', '... but not for ever');
is(scalar(mc_get($d, 'b')), '9', '... and has emptied nothing then');
$s->query_safe('COMMIT');
timeout_is(100_000, $c, $d);

# ---- told to end while it waits for a synchronous standby ----
for my $request ("flush_all\r\n", "set b 0 0 1\r\n9\r\n")
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	$node->reload;
	my $pid = mc_stats($c, '')->{pid};
	mc_send($c, $request);
	my $waits = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'kvfdw memcached%' AND wait_event = 'SyncRep'";
	wait_for('a wait', sub { if (mc_answered($c)) { mc_line($c); mc_send($c, $request); } return $node->safe_psql('postgres', $waits); });
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	ok(mc_closed($c) && $c->{in} eq '', 'a process that is told to end while it waits for a standby does not acknowledge ' . substr $request, 0, 5);
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
	$node->reload;
	mc_wait($node);
	($c, $d) = (mc_connect($node), mc_connect($node));
}

# ---- a snapshot of SQL is not disturbed ----
set($d, 'snap', 1);
$s->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM cache");
set($d, 'snap', $_) for 2 .. 50;
is($s->query_safe("SELECT convert_from(value, 'UTF8') FROM cache WHERE key = 'snap'"), '1', 'REPEATABLE READ sees one state');
$s->query_safe('COMMIT');
is($s->query_safe("SELECT convert_from(value, 'UTF8') FROM cache WHERE key = 'snap'"), '50', '... and then the newest');
$s->quit;
sql("CREATE FOREIGN TABLE noted ($mc_table, note text) SERVER kvfdw OPTIONS (key 'key', memcached 'noted:');
	GRANT ALL ON noted TO web; INSERT INTO noted (key, note) VALUES ('noted:1', 'old'), ('noted:2', 'old')");
is(mc_ask($d, "delete noted:1\r\nadd noted:1 0 0 1\r\nx\r\nset noted:2 0 0 1\r\nx\r\n") . mc_line($d) . mc_line($d), 'DELETEDSTOREDSTORED', 'an item is deleted and made again');
is(sql('SELECT key, note FROM noted ORDER BY key'), "noted:1|\nnoted:2|old", '... in one turn, and other columns are lost as in two');
is(kv_check_clean($node, 'cache'), '', 'kvfdw_check finds nothing');

# ---- without the processes that help ----
# all but the two that are registered last
for (my ($most, $left) = (8, 0); $left != 2; $most += $left - 2)
{
	my $log = -s $node->logfile;
	$node->append_conf('postgresql.conf', "max_worker_processes = $most");
	$node->restart;
	$left = () = slurp_file($node->logfile, $log) =~ /too many background workers/g;
}
wait_for('the processes', sub { sql('SELECT count(pid) FROM kvfdw_stat_memcached') == 2 });
is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('kvfdw memcached flusher', 'kvfdw memcached reaper')}), 0, 'nobody helps');
$c = mc_connect($node);
is(set($c, 'b', 1) . scalar(mc_get($c, 'b')), 'STORED1', 'a process alone writes');
like(mc_ask($c, "flush_all 10\r\n"), qr/^SERVER_ERROR 55000 background worker "kvfdw memcached reaper" is not running$/, '... and says what it cannot do');
for my $request ("flush_all\r\n", "set b 0 0 1\r\n9\r\n")
{
	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	$node->reload;
	$c = mc_connect($node);
	my $pid = mc_stats($c, '')->{pid};
	wait_for('a wait', sub {
		if ($c->{asked}) { mc_answered($c) or return sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'SyncRep'"); mc_line($c); }
		$c->{asked} = 1;
		mc_send($c, $request);
		return 0;
	});
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	ok(mc_closed($c) && $c->{in} eq '', 'told to end while it waits for a standby itself, it does not acknowledge ' . substr $request, 0, 5);
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
	$node->reload;
}
$node->stop;
done_testing();
