# Promise: a scan of a scattered table without ORDER BY reads values in the order of their
# addresses. It shows what a heap table shows, under one snapshot, with any range cache, and
# whatever is written, flushed, damaged or canceled in between.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no other order' if heap_only();
my $node = kv_cluster('place', 'kvfdw.range_cache' => "'8MB'", 'kvfdw.flush_after' => '1h', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.value_cache' => 0, 'kvfdw.compact_workers' => 0,
	max_parallel_workers_per_gather => 0, work_mem => "'64kB'", jit => 'off');
# In its files and in memory, t is in one shard and u in three.
my @tables = qw(t u);
my %key = (t => q{CASE WHEN g % 50 = 0 THEN repeat(md5('k' || g), 1 + g % 60) ELSE md5('k' || g) END}, u => q{md5('k' || g)::uuid});
my $value = q{CASE g % 7 WHEN 0 THEN '' WHEN 1 THEN 'x' || g WHEN 2 THEN repeat(md5(g::text), 600) ELSE repeat(md5(g::text), 3 * (g % 31)) END};
sub insert { my ($t, $from, $to) = @_; return "SELECT $key{$t}, g, $value FROM generate_series($from, $to) g"; }
$node->safe_psql('postgres', kv_table('t', 'k text COLLATE "C", n int, v text', 'k') . kv_table('u', 'k uuid, n int, v text', 'k', q{shards '3'})
	. 'CREATE TABLE h_t (k text COLLATE "C" PRIMARY KEY, n int, v text); CREATE TABLE h_u (k uuid PRIMARY KEY, n int, v text);'
	. join ';', map { my $t = $_; map { "INSERT INTO $_ " . insert($t, 1, 9000) } $t, "h_$t" } @tables);
$node->safe_psql('postgres', "SELECT kvfdw_flush('$_'); ANALYZE $_; ANALYZE h_$_") for @tables;

sub plan_of { return answer($node, "EXPLAIN (COSTS off) $_[0]"); }
sub digest { my ($t) = @_; return "SELECT count(*), sum(n), md5(string_agg(md5(k::text || v), '' ORDER BY k::text COLLATE \"C\")) FROM $t"; }
sub same
{
	my ($what, $also) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(answer($node, ($also // '') . digest($_)), answer($node, ($also // '') . digest("h_$_")), "$what: $_ has the rows of heap") for @tables;
	return;
}
# Both of a table and its twin, in one statement after another.
sub both { my ($sql) = @_; return join ';', map { my $t = $_; map { (my $s = $sql) =~ s/\bT\b/$_/gr } $t, "h_$t" } @tables; }
sub by_place { my ($what, $sql) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return like(plan_of($sql), qr/Order: storage/, "by place: $what"); }
sub by_key { my ($what, $sql) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return unlike(plan_of($sql), qr/Order: storage/, "by key: $what"); }

# ---- plans ----

by_place('an aggregate', "SELECT sum(length(v)) FROM $_") for @tables;
by_place('a filter on values', q{SELECT * FROM t WHERE n = 5});
by_place('an UPDATE', q{UPDATE t SET n = n + 1});
by_place('a hash join', q{SELECT count(*) FROM t JOIN h_t ON t.v = h_t.v});
by_key('a LIMIT', q{SELECT * FROM t LIMIT 10});
by_key('a range', q{SELECT v FROM t WHERE k > 'f'});
by_key('a key', q{SELECT v FROM t WHERE k = 'f'});
by_key('keys only', q{SELECT max(k), min(k), count(k) FROM t});
unlike(answer($node, 'SET enable_sort = off; EXPLAIN SELECT sum(length(v)) FROM t'), qr/Order: storage|error/, 'by key: enable_sort = off');
$node->safe_psql('postgres', kv_table('o', 'k int, v text', 'k') . kv_table('small', 'k uuid, v text', 'k') . q{
	INSERT INTO o SELECT g, repeat(md5(g::text), 120) FROM generate_series(1, 5000) g; SELECT kvfdw_flush('o'); ANALYZE o;
	INSERT INTO small SELECT md5(g::text)::uuid, repeat(md5(g::text), 120) FROM generate_series(1, 1000) g; SELECT kvfdw_flush('small'); ANALYZE small});
by_key('a table in key order', q{SELECT sum(length(v)) FROM o});
by_key('one that fits into the range cache', q{SELECT sum(length(v)) FROM small});
$node->safe_psql('postgres', kv_table('sorted', 'k uuid, v text', 'k') . q{INSERT INTO sorted SELECT md5(g::text)::uuid, repeat(md5(g::text), 120) FROM generate_series(1, 5000) g; SELECT kvfdw_flush('sorted'); ANALYZE sorted});
my $asked = 'EXPLAIN (COSTS off) SELECT sum(length(v)) FROM sorted';
my $before_and_after = answer($node, "$asked; $asked; SELECT NULL FROM kvfdw_compact('sorted', true) OFFSET 1; SELECT 'compacted'; $asked");
like($before_and_after, qr/Order: storage.*Order: storage.*\ncompacted\n/s, 'by place: whoever has asked before');
unlike($before_and_after, qr/\ncompacted\n.*Order: storage|error/s, 'by key: as soon as the values lie in that order');

# ---- rows ----

same('frozen');
like(answer($node, 'EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) SELECT sum(length(v)) FROM t'), qr/Order: storage.*Windows: hit=\d+ loaded=\d{2,}/s, 'it reads through windows');
$node->safe_psql('postgres', both('DELETE FROM T WHERE n % 11 = 0') . ';' . both(q{UPDATE T SET v = v || 'new', n = n + 100000 WHERE n % 13 = 0}) . ';' . join ';', map { my $t = $_; map { "INSERT INTO $_ " . insert($t, 9001, 9500) } $t, "h_$t" } @tables);
same('with changes that are not frozen');
same('with changes of its own', 'BEGIN; ' . both('DELETE FROM T WHERE n % 17 = 0') . ';' . both(q{UPDATE T SET v = 'own' WHERE n % 19 = 0}) . ';' . both('SAVEPOINT s') . ';' . both('DELETE FROM T') . '; ROLLBACK TO s; ');
same('rolled back');
$node->safe_psql('postgres', "SELECT kvfdw_flush('$_')") for @tables;
same('frozen again');
is(answer($node, "SELECT string_agg(s::text, ' ' ORDER BY x) FROM generate_series(1, 3) x, LATERAL (SELECT sum(length(v) * x) s FROM $_ OFFSET 0) l"),
	answer($node, "SELECT string_agg(s::text, ' ' ORDER BY x) FROM generate_series(1, 3) x, LATERAL (SELECT sum(length(v) * x) s FROM h_$_ OFFSET 0) l"), "$_: rescans") for @tables;
is(answer($node, "WITH u AS (UPDATE $_ SET n = n + 1 RETURNING n, v) SELECT count(*), sum(n), sum(length(v)) FROM u"),
	answer($node, "WITH u AS (UPDATE h_$_ SET n = n + 1 RETURNING n, v) SELECT count(*), sum(n), sum(length(v)) FROM u"), "$_: an UPDATE of all rows") for @tables;
same('after that');
is(answer($node, "SELECT count(*), sum(n) FROM (SELECT n, v FROM $_ WHERE length(v) > 100 FOR UPDATE) s"),
	answer($node, "SELECT count(*), sum(n) FROM (SELECT n, v FROM h_$_ WHERE length(v) > 100 FOR UPDATE) s"), "$_: FOR UPDATE") for @tables;

# a plan that was made when there were few rows
$node->safe_psql('postgres', kv_table('grown', 'k uuid, v text', 'k'));
my ($plan, $count, $bytes, $reads) = split /\n/, answer($node, q{SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT count(*), sum(length(v)) FROM grown;
	CREATE FUNCTION plan_of(statement text, what text) RETURNS text LANGUAGE plpgsql AS $$ DECLARE line text; found text := 'none'; BEGIN FOR line IN EXECUTE statement LOOP IF line ~ what THEN found := trim(line); END IF; END LOOP; RETURN found; END $$;
	SELECT plan_of('EXPLAIN EXECUTE p', 'Order: storage');
	INSERT INTO grown SELECT md5(g::text)::uuid, repeat(md5(g::text), 120) FROM generate_series(1, 9000) g; SELECT NULL FROM kvfdw_flush('grown') OFFSET 1; EXECUTE p;
	SELECT plan_of('EXPLAIN EXECUTE p', 'Order: storage'); SELECT plan_of('EXPLAIN (ANALYZE, BUFFERS, TIMING off) EXECUTE p', 'Device Reads')});
is($count, '9000|34560000', 'a plan made before there were rows shows them');
is("$plan $bytes", 'none none', 'it is for key order');
ok($reads =~ /Device Reads: (\d+)/ && $1 < 3000, "the scan goes over when it has read a sixteenth ($reads)");

# ---- one snapshot ----

for my $t (@tables)
{
	my $before = answer($node, "SELECT count(*), sum(n), sum(length(v)) FROM h_$t");
	my $reader = in_steps($node, "reader$t", "BEGIN; SET LOCAL cursor_tuple_fraction = 1; DECLARE c CURSOR FOR SELECT n, v FROM $t; CREATE TEMP TABLE got (n int, v text);
		DO \$\$ DECLARE r record; c refcursor := 'c'; BEGIN FOR i IN 1..500 LOOP FETCH c INTO r; INSERT INTO got VALUES (r.n, r.v); END LOOP; END \$\$;",
		"DO \$\$ DECLARE r record; c refcursor := 'c'; BEGIN LOOP FETCH c INTO r; EXIT WHEN NOT FOUND; INSERT INTO got VALUES (r.n, r.v); END LOOP; END \$\$; SELECT count(*), sum(n), sum(length(v)) FROM got; COMMIT;");
	step_done($reader);
	$node->safe_psql('postgres', join ';', map { "UPDATE $_ SET v = 'changed', n = n - 7 WHERE n % 3 = 0; DELETE FROM $_ WHERE n % 5 = 0; INSERT INTO $_ " . insert($t, 10000, 10300) } $t, "h_$t");
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$t'); CHECKPOINT");
	is(answer($node, digest($t)), answer($node, digest("h_$t")), "$t: another scan sees what was changed meanwhile");
	step_go($reader);
	step_go($reader);
	like(outcome($reader->{w}), qr/^\Q$before\E$/m, "$t: a cursor sees what was there when it was opened");
}
# rows that lie in write buffers when they are sorted, and in the file when they are read
$node->safe_psql('postgres', join ';', map { my $t = $_; map { "INSERT INTO $_ " . insert($t, 20000, 20400) } $t, "h_$t" } @tables);
for my $t (@tables)
{
	my $before = answer($node, "SELECT count(*), sum(n), sum(length(v)) FROM h_$t");
	my $reader = in_steps($node, "slots$t", "BEGIN; SET LOCAL cursor_tuple_fraction = 1; DECLARE c CURSOR FOR SELECT n, v FROM $t; FETCH 1 FROM c;", "MOVE 3000 FROM c;", "MOVE ALL FROM c; COMMIT;");
	step_done($reader);
	$node->safe_psql('postgres', "CHECKPOINT; INSERT INTO $_ " . insert($t, 21000, 21100)) for $t, "h_$t";
	step_go($reader);
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$t')");
	step_go($reader);
	step_go($reader);
	unlike(outcome($reader->{w}), qr/ERROR/, "$t: values are found when their slot was written meanwhile");
}
same('in the end');

# ---- in company ----

# one that stops after 4000 rows, until a lock is let go
$node->safe_psql('postgres', 'CREATE SEQUENCE met; SELECT kvfdw_stat_reset()');
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.scan_share_wait = '1min'});
$node->reload;
my $holder = in_steps($node, 'holder', 'SELECT pg_advisory_lock(1);', 'SELECT pg_advisory_unlock(1);');
step_done($holder);
my $first = psql_writer($node, q{SELECT count(*) FROM t WHERE CASE WHEN nextval('met') = 4000 THEN pg_advisory_lock(1) IS NOT NULL ELSE length(v) >= 0 END;}, 'first');
wait_for('the first to be half way', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 1 });
is(outcome(psql_writer($node, digest('t') . ';', 'late')), answer($node, digest('h_t')) . "\n", 'a scan that begins where another is shows all rows, and does not wait for locks of the other');
step_go($holder);
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.scan_share_wait');
$node->reload;
cmp_ok(answer($node, 'SELECT hits + shared FROM kvfdw_stat_range_cache'), '>', 0, 'and finds windows of the other');
step_go($holder);
is(outcome($first), answer($node, 'SELECT count(*) FROM h_t') . "\n", 'which shows all, too');
my @many = map { psql_writer($node, digest('t') . ';', "many$_") } 1 .. 6;
my $right = answer($node, digest('h_t'));
is(join('', map { outcome($_) } @many), "$right\n" x 6, 'six scans at once show all rows');
is(answer($node, 'SET synchronize_seqscans = off; SELECT md5(string_agg(n::text, $$ $$)) FROM (SELECT n, v FROM t) s'),
	answer($node, 'SET synchronize_seqscans = off; SELECT md5(string_agg(n::text, $$ $$)) FROM (SELECT n, v FROM t) s'), 'synchronize_seqscans = off: always the same order');

# ---- more scans than there is room for ----

# a scan that waits for windows in vain would do so for half a minute, and fail then
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.scan_share_wait = '10min'});
$node->reload;
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=range_stuck=error' if has_faults($node);
$node->safe_psql('postgres', kv_table('w', 'k uuid, n int, v text', 'k') . kv_table('s', 'k uuid, n int, v text', 'k', q{shards '2'}) . 'INSERT INTO w SELECT * FROM u;' . q{
	CREATE VIEW wide AS SELECT md5('k' || g)::uuid k, g n, repeat(md5(g::text), 110) v FROM generate_series(1, 9000) g;
	INSERT INTO s SELECT * FROM wide WHERE k >= '80000000-0000-0000-0000-000000000000' ORDER BY n; INSERT INTO s SELECT * FROM wide WHERE k < '30000000-0000-0000-0000-000000000000' ORDER BY n;
	DELETE FROM s WHERE k >= '80000000-0000-0000-0000-000000000000' AND n % 5 <> 0;
	SELECT kvfdw_flush('w'); ANALYZE w; SELECT kvfdw_flush('s'); ANALYZE s; ANALYZE o});
for my $names ([qw(t u)], [qw(t w u o)], [qw(u u o o)])
{
	my @scans = map { psql_writer($node, 'SELECT count(*), sum(length(v)) FROM (SELECT * FROM ' . ($names->[$_] eq 'o' ? 'o ORDER BY k' : $names->[$_]) . ') s;', "room$_") } 0 .. $#$names;
	my $twins = join '', map { my $t = { t => 'h_t', u => 'h_u', w => 'h_u', o => 'o' }->{$_}; answer($node, "SELECT count(*), sum(length(v)) FROM $t") . "\n" } @$names;
	is(join('', map { outcome($_) } @scans), $twins, "@$names at once");
}
is(outcome(psql_writer($node, q{SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off;
	SELECT count(*) FROM (SELECT v, n FROM u WHERE n % 900 = 0) a JOIN w ON a.v = w.v AND a.n = w.n;}, 'nested')),
	answer($node, q{SELECT count(*) FROM (SELECT v, n FROM h_u WHERE n % 900 = 0) a JOIN h_u w ON a.v = w.v AND a.n = w.n}) . "\n", 'scans by place within one by place');
my @idle = map { in_steps($node, "idle$_", "BEGIN; SET LOCAL cursor_tuple_fraction = 1; DECLARE c CURSOR FOR SELECT n, v FROM $_; MOVE 2500 FROM c;", 'COMMIT;') } qw(t w);
step_done($_) for @idle;
is(outcome(psql_writer($node, 'SELECT count(*), sum(length(v)) FROM u;', 'third')), answer($node, 'SELECT count(*), sum(length(v)) FROM h_u') . "\n", 'a scan beside two that have all windows and do nothing');
step_go($_), step_go($_) for @idle;
my $sparse = in_steps($node, 'sparse', 'BEGIN; SET LOCAL cursor_tuple_fraction = 1; SET LOCAL random_page_cost = 40; DECLARE c CURSOR FOR SELECT n, v FROM s; MOVE 2100 FROM c;', 'COMMIT;');
step_done($sparse);
like(answer($node, 'SET random_page_cost = 40; EXPLAIN SELECT n, v FROM s'), qr/Order: storage/, 'by place: with a sparse shard');
is(answer($node, q{SELECT count(*) < 2100, count(*) FILTER (WHERE k < '80000000-0000-0000-0000-000000000000') > 2100 FROM s}), 'f|f', 'the cursor is in the sparse shard');
is(answer($node, 'SELECT scans FROM kvfdw_stat_range_cache'), 0, 'a scan that has come to a sparse shard is not in the registry');
step_go($sparse);
delete $ENV{PGOPTIONS};
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.scan_share_wait');
$node->reload;

# ---- files that several shards have in common ----

$node->safe_psql('postgres', kv_table('parts', 'k uuid, v text', 'k', "shards '1', wal 'none'") . q{ALTER FOREIGN TABLE parts ALTER v SET STORAGE EXTERNAL;
	INSERT INTO parts SELECT md5(g::text)::uuid, repeat(md5(g::text), 120) FROM generate_series(1, 24000) g});
is(answer($node, q{SELECT kvfdw_split('parts'), kvfdw_stat_reset()}), '8|', 'a shard is split');
by_place('its parts', q{SELECT sum(length(v)) FROM parts});
is(answer($node, q{SELECT sum(length(v)), count(DISTINCT v) FROM parts}), 24000 * 120 * 32 . '|24000', 'all their rows are read');
my $read = answer($node, q{SELECT round((bytes + read_bytes) / 24000 / 4096, 1) FROM kvfdw_stat_io, kvfdw_stat_range_cache WHERE kind = 'value read'});
cmp_ok($read, '<', 3, "and little else: $read times the table");

# ---- what goes wrong ----

like(answer($node, q{SET temp_file_limit = 64; SELECT sum(length(v)) FROM t}), qr/temporary file size exceeds/, 'temp_file_limit goes for it');
like(answer($node, q{SET statement_timeout = '5ms'; SELECT count(*) FROM t a, t b WHERE length(a.v) > length(b.v)}), qr/statement timeout/, 'a scan is cancelled');
wait_for('scans to end', sub { answer($node, 'SELECT scans FROM kvfdw_stat_range_cache') eq '0' });
pass('no scan is left in the registry');

# ---- other range caches ----

for my $setting ("kvfdw.range_cache = '512kB'", 'kvfdw.range_cache = 0', "kvfdw.range_cache = '8MB'\nkvfdw.prefetch_workers = 0", "kvfdw.range_cache = '8MB'\nkvfdw.io_method = sync")
{
	$node->append_conf('postgresql.conf', "$setting\n");
	$node->restart;
	(my $what = $setting) =~ s/\n/, /;
	by_place($what, 'SELECT sum(length(v)) FROM t');
	same($what);
	# without windows, a session reads by itself
	next if $setting !~ /512|= 0/ || !has_faults($node);
	like(answer($node, q{SET kvfdw.fault = 'value_read:3+:EIO'; SELECT sum(length(v)) FROM t}), qr/could not read .*Input\/output error/, "$what: a read error is one");
	is(answer($node, q{BEGIN; SET LOCAL cursor_tuple_fraction = 1; DECLARE c CURSOR FOR SELECT n, v FROM t; MOVE 10 FROM c; SAVEPOINT s; MOVE 10 FROM c; ROLLBACK TO s; MOVE ALL FROM c; SELECT 1}), 1, "$what: a cursor outlives a subtransaction");
}
is(kv_check_clean($node, @tables), '', 'kvfdw_check finds nothing');
$node->stop;
done_testing();
