# Promise: many deleted keys in a row are passed once: later scans of either direction step over
# them, also before a flush, with an old snapshot and in all shards. They see what heap shows,
# whatever is written there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has other means' if heap_only();
my $node = kv_cluster('dead_keys', 'kvfdw.flush_after' => 3600, max_prepared_transactions => 5, 'kvfdw.test_compactions' => 'off', 'kvfdw.test_splits' => 'off', 'kvfdw.test_dead_keys' => 64);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $rows = 12_000;
my $few = 300;

sub query { return $node->safe_psql('postgres', @_); }

# How many dead keys a query passes, by its plan.
sub passes
{
	my ($query, $on) = @_;
	my $plan = ($on // $node)->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $query");
	my $n = 0;
	$n += $1 while $plan =~ /Dead Keys: (\d+)/g;
	return $n;
}

my %first = (up => 'SELECT k FROM t ORDER BY k LIMIT 1', down => 'SELECT k FROM t ORDER BY k DESC LIMIT 1',
	from => "SELECT k FROM t WHERE k > @{[$rows / 2]} ORDER BY k LIMIT 1", before => "SELECT k FROM t WHERE k < @{[$rows / 2]} ORDER BY k DESC LIMIT 1");
my $counts = join ', ', map { "(SELECT count(*) FROM %s WHERE k BETWEEN $_ AND $_ + 2999)" } 1, 3000, $rows / 2, $rows - 3000;
my $ends = '(SELECT min(k) FROM %s), (SELECT max(k) FROM %s), (SELECT count(*) FROM %s)';

# t and heap have the same rows, however they are read.
sub agree
{
	my ($what) = @_;
	my ($kv, $heap) = map { my $t = $_; my $s = "SELECT $ends, $counts"; query($s =~ s/%s/$t/gr) . ' ' . join ',', map { query($_ =~ s/FROM t/FROM $t/r) } @first{sort keys %first} } 't', 'heap';
	return ok($kv eq $heap && tables_differ($node, 't', 'heap', 'k') eq '', "$what: as on heap") || diag "kvfdw $kv\nheap  $heap";
}

sub both { my ($sql) = @_; return join '', map { my $t = $_; $sql =~ s/%s/$t/gr . ';' } 't', 'heap'; }

sub fill
{
	my (%how) = @_;
	query('SET client_min_messages = warning; DROP FOREIGN TABLE IF EXISTS t; DROP TABLE IF EXISTS heap; CREATE TABLE heap (k bigint PRIMARY KEY, v text);' . kv_table('t', 'k bigint NOT NULL, v text', 'k', $how{options}));
	query(both("INSERT INTO %s SELECT g, 'v' || g FROM generate_series(1, $rows) g"));
	query(q{SELECT kvfdw_flush('t')}) if $how{frozen};
}

# First each of these reads passes many keys, or some, then few, whatever has become of the shard.
sub steps_over
{
	my ($what, @reads) = @_;
	for my $read (@reads)
	{
		my $first = passes($first{$read});
		my $again = passes($first{$read});
		ok($again <= $few, "$what, $read: $first keys are passed, then $again");
	}
	return agree($what);
}

# ---- where keys are deleted, and how ----

my %where = (
	'at the head' => ['DELETE FROM %s WHERE k <= ' . ($rows - 500), 'up', 'from'],
	'at the tail' => ['DELETE FROM %s WHERE k > 500', 'down', 'from', 'before'],
	'in the middle' => ["DELETE FROM %s WHERE k BETWEEN 500 AND $rows - 500", 'from', 'before'],
	'all of them' => ['DELETE FROM %s', 'up', 'down', 'from', 'before'],
	'but for three' => ["DELETE FROM %s WHERE k NOT IN (3000, 3001, 9000)", 'up', 'down', 'from', 'before']);
for my $how (['in a run', frozen => 1], ['in a memtable'], ['of four shards', frozen => 1, options => "shards '4'"])
{
	my ($name, %how) = @$how;
	for my $where (sort keys %where)
	{
		my ($delete, @reads) = @{ $where{$where} };
		fill(%how);
		query(both($delete));
		if ($where eq 'at the head') { cmp_ok(passes($first{up}), '>=', 10_000 / 4, "$name: deleted keys are passed at first"); }
		steps_over("$name, $where", @reads);
		query(both("INSERT INTO %s VALUES (7000, 'new'), (1, 'new'), ($rows, 'new') ON CONFLICT DO NOTHING"));
		steps_over("$name, $where, new rows", @reads);
		query(both("DELETE FROM %s WHERE k IN (7000, 1, $rows)"));
		steps_over("$name, $where, deleted again", @reads);
		query(q{SELECT kvfdw_flush('t')});
		steps_over("$name, $where, frozen", @reads);
	}
}

# ---- by many transactions, and not by aborted ones ----

fill(frozen => 1);
query(both("DO \$\$ BEGIN FOR i IN 1 .. 5000 LOOP DELETE FROM %s WHERE k = i; IF i % 50 = 0 THEN COMMIT; END IF; END LOOP; END \$\$"));
steps_over('by a hundred transactions', 'up');
query(both("DO \$\$ BEGIN FOR i IN 5001 .. 6500 LOOP BEGIN DELETE FROM %s WHERE k = i; IF i = 6000 THEN RAISE division_by_zero; END IF; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END \$\$"));
steps_over('by subtransactions, one of which was rolled back', 'up', 'from');
is(query('SELECT min(k) FROM t'), 6000, 'its row is there');
query('BEGIN;' . both("INSERT INTO %s SELECT g, 'x' FROM generate_series(20000, 24000) g") . 'ROLLBACK');
steps_over('rows that were never committed', 'down');
query(both("INSERT INTO %s SELECT g, 'x' FROM generate_series(20000, 20100) g"));
agree('those rows, committed');

# a transaction's own deletions are not for others
is(query("BEGIN; DELETE FROM t WHERE k < 9000; SELECT min(k) FROM t; INSERT INTO heap VALUES (30000, ''); SELECT min(k) FROM t; ROLLBACK; SELECT min(k) FROM t"), "9000\n9000\n6000", 'a transaction that deletes, looks and is rolled back');
agree('after it');

# ---- beside older snapshots ----

fill(frozen => 1);
my $state = 'SELECT count(*), min(k), max(k), sum(k) FROM t; SELECT k FROM t ORDER BY k LIMIT 2; SELECT k FROM t ORDER BY k DESC LIMIT 2';
my $old = in_steps($node, 'old', "BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE heap SET v = v WHERE k = 1;\\echo step\n$state;", map { "\\echo step\n$state;" } 1 .. 4);
step_done($old);
for my $step (0 .. 3)
{
	my $from = 2500 * $step;
	query(both("DELETE FROM %s WHERE k BETWEEN $from + 2 AND $from + 2501"));
	query(both('DELETE FROM %s WHERE k = 3')) if $step == 0;
	query(q{SELECT kvfdw_flush('t')}) if $step == 2;
	steps_over("beside an old snapshot that holds a transaction, $step", 'from');
	cmp_ok(passes('SELECT k FROM t WHERE k > 1 ORDER BY k LIMIT 1'), '<=', 2 * $few + 2500, "a new stretch is passed once, $step");
	cmp_ok(passes('SELECT k FROM t WHERE k > 1 ORDER BY k LIMIT 1'), '<=', $few, "and then none, $step");
	step_go($old);
}
step_go($old);
my (undef, @seen) = split /^step\n/m, outcome($old->{w});
is(scalar(grep { $_ eq $seen[0] } @seen), 5, 'which sees the same rows all the time') or diag "@seen";
like($seen[0], qr/^$rows\|1\|$rows\|/, 'those of its beginning');

# ---- a queue: rows are taken at the head, one in a transaction, and put at the tail ----

for my $held (0, 1)
{
	fill(frozen => 1);
	if ($held)
	{
		$old = in_steps($node, 'held', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t;', 'SELECT count(*), min(k), max(k) FROM t;');
		step_done($old);
	}
	query(both('DELETE FROM %s WHERE k <= 11000'));
	my $passed = 0;
	for my $n (1 .. 40)
	{
		query(join ';', map { both('DELETE FROM %s WHERE k = (SELECT min(k) FROM %s)') . both("INSERT INTO %s SELECT max(k) + 1, 'tail' FROM %s") } 1 .. 5);
		$passed += passes($first{up}) if $n > 1;
	}
	cmp_ok($passed / 39, '<=', $few, 'a queue' . ($held ? ' beside an old snapshot' : '') . ": each time few keys are passed, $passed in 39 times");
	agree('a queue');
	# what is put back at the head, and taken again
	query(join ';', map { both("INSERT INTO %s VALUES ($_ * 371, 'back')") . both('DELETE FROM %s WHERE k = (SELECT min(k) FROM %s)') } 1 .. 25);
	agree('rows that were put back');
	passes($first{up}) for 1 .. 3;
	cmp_ok(passes($first{up}), '<=', 2 * $few, 'and few keys are passed after that');
	next if !$held;
	step_go($old) for 1 .. 2;
	like(outcome($old->{w}), qr/\|1\|12000$/m, 'the snapshot is as it was');
}

# ---- keys of several columns, and long ones ----

for my $len (3, 150, 400)
{
	query('SET client_min_messages = warning; DROP TABLE IF EXISTS lh; DROP FOREIGN TABLE IF EXISTS lk; CREATE TABLE lh (a text COLLATE "C", b int, PRIMARY KEY (a, b));' . kv_table('lk', 'a text COLLATE "C" NOT NULL, b int NOT NULL', 'a, b'));
	for my $t ('lh', 'lk')
	{
		query("INSERT INTO $t SELECT repeat(chr(97 + g % 5), $len), g FROM generate_series(1, 4000) g; DELETE FROM $t WHERE a < 'd' OR (a, b) > (repeat('e', $len), 2000)");
	}
	query("SELECT a FROM lk ORDER BY a, b LIMIT 1; SELECT a FROM lk ORDER BY a DESC, b DESC LIMIT 1");
	cmp_ok(passes('SELECT a, b FROM lk ORDER BY a, b LIMIT 1'), '<=', $few, "keys of $len bytes and more") if $len < 180;
	query("INSERT INTO $_ VALUES (repeat('b', $len), 7), (repeat('e', $len), 3000), (repeat('e', $len) || 'e', 1)") for 'lh', 'lk';
	is(query("SELECT count(*), md5(string_agg(a || b, ',' ORDER BY a, b)) FROM lk"), query("SELECT count(*), md5(string_agg(a || b, ',' ORDER BY a, b)) FROM lh"), 'as on heap');
	is(query('SELECT left(a, 1), b FROM lk ORDER BY a, b LIMIT 1; SELECT length(a), b FROM lk ORDER BY a DESC, b DESC LIMIT 2'), query('SELECT left(a, 1), b FROM lh ORDER BY a, b LIMIT 1; SELECT length(a), b FROM lh ORDER BY a DESC, b DESC LIMIT 2'), 'at both ends');
}

# ---- splits change what a shard has ----

fill(frozen => 1);
query(both('DELETE FROM %s WHERE k BETWEEN 2000 AND 10000'));
steps_over('before a split', 'from', 'before');
query(q{SELECT kvfdw_split('t')});
steps_over('after a split', 'from', 'before');
query(both("INSERT INTO %s SELECT g, 'again' FROM generate_series(3000, 9000, 100) g"));
agree('new rows after a split');

# ---- after a crash nothing is known ----

query(both('DELETE FROM %s WHERE k < 9500'));
passes($first{up}) for 1 .. 2;
kill_all($node);
$node->start;
steps_over('after a crash', 'up', 'from');
is(kv_check_clean($node, 't'), '', 'the table is sound');

done_testing();
