# Promise: whoever has found a version and reads its value later gets it, though the value has
# been moved meanwhile and its value file is gone (I 16): by key, several at a time, through a held
# cursor, in storage order, through a window that is being loaded, after waiting for a row lock, and
# kvfdw_check() finds nothing wrong.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap moves nothing' if heap_only();
my $node = kv_cluster('moved', 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_compact' => 'on', 'kvfdw.range_cache' => "'8MB'",
	'kvfdw.value_cache' => 0, 'kvfdw.prefetch_workers' => 1, max_parallel_workers_per_gather => 0, jit => 'off', 'kvfdw.write_buffer_size' => "'64kB'");
my $data = $node->data_dir;
plan skip_all => 'needs fault injection' unless has_faults($node);
# Keys come in no order, so values lie scattered; o has them in order.
my $value = 'rpad(md5(g::text), 2000 + g * 37 % 3000, md5(g::text))';
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . kv_table('o', 'k int, v text', 'k') . 'CREATE TABLE h_t (k int PRIMARY KEY, v text); CREATE TABLE h_o (k int PRIMARY KEY, v text);'
	. join ';', map { ("INSERT INTO ${_}t SELECT (g::bigint * g * g % 3011)::int, $value FROM generate_series(1, 3010) g", "INSERT INTO ${_}o SELECT g, $value FROM generate_series(1, 1500) g") } '', 'h_');
$node->safe_psql('postgres', "SET kvfdw.test_compact = off; SELECT kvfdw_flush('$_'); ANALYZE $_; ANALYZE h_$_") for qw(t o);

sub stat_of { my ($table, $column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM kvfdw_stat_tables WHERE relid = '$table'::regclass"); }

# Move all that lies in closed value files, and wait until these have gone.
my $n = 10000000;
sub move
{
	my ($table) = @_;
	$n++;
	# what has closed the value file that was open
	$node->safe_psql('postgres', "INSERT INTO $table SELECT $n * 100 + g, repeat(md5(g::text), 1900) FROM generate_series(1, 80) g");
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$table')");
	$node->safe_psql('postgres', "DELETE FROM $table WHERE k > 10000000");
	wait_for("release of what $table has retired", sub { stat_of($table, 'obsolete_value_files') == 0 });
	wait_for('the maintainer to free it', sub { !(() = glob "$data/kvfdw/dropped.*") });
	return;
}

# A statement stops behind its look-up, values move, it goes on.
sub moved
{
	my ($what, $sql, $table, $stays) = @_;
	my $reads = stat_of($table, 'relocated_reads');
	(my $heap = $sql) =~ s/\bT\b/h_$table/g;
	$sql =~ s/\bT\b/$table/g;
	my $expected = $node->safe_psql('postgres', "BEGIN; $heap; ROLLBACK");

	# to places that no window of the range cache has, unless they must stay as they are
	move($table) unless $stays;
	my $w = psql_writer($node, "SET kvfdw.stop_points = 'fetch_planned=wait'; BEGIN; $sql; ROLLBACK", 'reader');
	stopped($node, 'fetch_planned');
	move($table);
	is(go_on($node, 'fetch_planned', $w), "$expected\n", "$what has heap's rows");
	cmp_ok(stat_of($table, 'relocated_reads'), '>', $reads, "$what: values were looked up again");
	return;
}
my $digest = q{SELECT count(*), md5(string_agg(md5(v), '' ORDER BY k)) FROM T WHERE k < 10000000};

# before anything has moved, which puts it in order
like($node->safe_psql('postgres', 'EXPLAIN (COSTS off) SELECT sum(length(v)) FROM t'), qr/Order: storage/, 'an aggregate reads by place');
moved('a scan by place', 'SELECT count(*), sum(hashtext(v)), sum(length(v)) FROM T WHERE k < 10000000', 't', 1);
moved('a row by key', 'SELECT md5(v) FROM T WHERE k = 1234', 't');
moved('rows by key', 'SELECT k, md5(v) FROM T WHERE k IN (3, 700, 1234, 2500, 2999) ORDER BY k', 't');
moved('a range', 'SELECT k, md5(v) FROM T WHERE k BETWEEN 100 AND 400 ORDER BY k', 't');
moved('a range backwards', 'SELECT k, md5(v) FROM T WHERE k BETWEEN 100 AND 400 ORDER BY k DESC', 't');
moved('a repeatable read', 'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT k, md5(v) FROM T WHERE k BETWEEN 500 AND 600 ORDER BY k', 't');
moved('a serializable transaction', 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT md5(v) FROM T WHERE k = 1234', 't');

# ---- a window that is being loaded ----
{
	my $expected = $node->safe_psql('postgres', $digest =~ s/\bT\b/h_o/r);
	worker_stop_points($node, 'prefetch_claimed=wait');
	my $w = psql_writer($node, ($digest =~ s/\bT\b/o/r) . ';', 'window');
	stopped($node, 'prefetch_claimed');
	move('o');
	worker_stop_points($node, '');
	go_on($node, 'prefetch_claimed');
	is(outcome($w), "$expected\n", 'a scan whose windows were being loaded has heap\'s rows');
	is($node->safe_psql('postgres', $digest =~ s/\bT\b/o/r), $expected, 'and the next one');
}

# ---- a cursor that is held ----
for my $table (qw(t o))
{
	my $expected = $node->safe_psql('postgres', "SELECT md5(string_agg(md5(v), '' ORDER BY k)) FROM (SELECT * FROM h_$table WHERE k < 10000000) s");
	my $session = $node->background_psql('postgres');
	$session->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR SELECT md5(v) FROM $table WHERE k < 10000000 ORDER BY k");
	my $rows = $session->query_safe('FETCH 7 FROM c') . "\n";
	$node->safe_psql('postgres', "UPDATE $_ SET v = 'changed' WHERE k % 3 = 0 AND k < 10000000; DELETE FROM $_ WHERE k % 7 = 0 AND k < 10000000") for $table, "h_$table";
	move($table);
	$rows .= $session->query_safe('FETCH 100 FROM c') . "\n";
	move($table);
	$rows .= $session->query_safe('FETCH ALL FROM c') . "\n";
	$session->quit;
	is($node->safe_psql('postgres', "SELECT md5('" . join('', split /\n/, $rows) . "')"), $expected, "$table: a cursor shows what its snapshot sees");
	is(tables_differ($node, $table, "h_$table", 'k'), '', "$table: others see what was changed");
}

# ---- rows that others had locked ----
# What is waited for is in a value file before it is committed; it moves between look-up and read.
sub waited
{
	my ($what, $change, $sql, $expected, $stops) = @_;
	my $holder = $node->background_psql('postgres');
	my $reads = stat_of('t', 'relocated_reads');
	$holder->query_safe("BEGIN; $change");
	move('t');
	my $w = psql_writer($node, "SET kvfdw.stop_points = 'fetch_planned=wait'; $sql;", 'waiter');
	stopped($node, 'fetch_planned');
	for (2 .. $stops)
	{
		step_on($node, 'fetch_planned', sub { 1 });
		if ($_ == 2)
		{
			wait_for('the session to wait', sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'}) > 0 });
			$holder->query_safe('COMMIT');
			$holder->quit;
		}
		stopped($node, 'fetch_planned');
	}
	move('t');
	is(go_on($node, 'fetch_planned', $w), $expected, $what);
	cmp_ok(stat_of('t', 'relocated_reads'), '>', $reads, "$what: values were looked up again");
	return;
}
my $long = "repeat('waited for', 400)";
my $md5 = $node->safe_psql('postgres', "SELECT md5($long)");
waited('a row that was changed meanwhile is locked', "UPDATE t SET v = $long WHERE k = 1000", 'SELECT md5(v) FROM t WHERE k = 1000 FOR UPDATE', "$md5\n", 2);
waited('a row that moved to another key is followed', 'UPDATE t SET k = 5000001 WHERE k = 1000', "UPDATE t SET v = v || 'x' WHERE k IN (1000, 5000001) RETURNING k, length(v)", "5000001|4001\n", 2);
$node->safe_psql('postgres', "DELETE FROM h_t WHERE k = 1000; INSERT INTO h_t SELECT 5000001, $long || 'x'");

# ---- a row that an INSERT meets ----
{
	move('t');
	my $reads = stat_of('t', 'relocated_reads');
	my $upsert = "INSERT INTO t VALUES (5000001, 'new') ON CONFLICT (k) DO UPDATE SET v = t.v || EXCLUDED.v WHERE random() >= 0 RETURNING length(t.v)";
	my $w = psql_writer($node, "SET kvfdw.stop_points = 'fetch_planned=wait'; $upsert;", 'upsert');
	stopped($node, 'fetch_planned');
	move('t');
	is(go_on($node, 'fetch_planned', $w), "4004\n", 'what ON CONFLICT has locked is read');
	cmp_ok(stat_of('t', 'relocated_reads'), '>', $reads, 'it was looked up again');
	$node->safe_psql('postgres', "UPDATE h_t SET v = v || 'new' WHERE k = 5000001");
}
is(tables_differ($node, $_, "h_$_", 'k'), '', "$_: all rows are heap's") for qw(t o);

# ---- a check ----
for my $table (qw(t o))
{
	my $w = psql_writer($node, "SET kvfdw.stop_points = 'check_run_pinned=wait'; SELECT file, problem FROM kvfdw_check('$table');", 'check');
	stopped($node, 'check_run_pinned');
	move($table);
	is(go_on($node, 'check_run_pinned', $w), '', "$table: a check finds nothing wrong with what moves meanwhile");
	is($node->safe_psql('postgres', "SELECT file, problem FROM kvfdw_check('$table')"), '', "$table: nor afterwards");
}
ok(-s $node->logfile, 'the server has a log');
$node->stop;
done_testing();
