# Promise: a table at rest whose values do not lie in the order of keys is put in order by itself, once, and scans in
# that order read from end to end, and so is one whose shards were split; one that lies in order, or has its own
# max_space_amplification of 0, is left alone. Order comes beside others, too. It is given up for a table that comes near its bound, for no other, and
# made up for. It is left until there is room for it, however large the shard is, and gives way to a split.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('space_order', 'kvfdw.flush_after' => 1, 'kvfdw.test_value_file_kb' => 1024, 'kvfdw.test_compact' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.test_space_look' => 3000, 'kvfdw.range_cache' => '8MB', 'kvfdw.value_cache' => 0, 'kvfdw.recent_ring' => 0, 'kvfdw.compact_memory' => '4MB');
plan skip_all => 'needs fault injection' unless has_faults($node);

sub query { return $node->safe_psql('postgres', @_); }
sub stat_of { my ($table, $columns) = @_; return query("SELECT $columns FROM kvfdw_stat_tables WHERE relid = '$table'::regclass ORDER BY generation DESC LIMIT 1"); }
sub reads
{
	query('SELECT kvfdw_stat_reset()');
	query('SET enable_sort = off; SELECT sum(length(v)) FROM (SELECT * FROM mixed ORDER BY k) s');
	return stat_of('mixed', 'device_reads');
}

my $value = "convert_to(repeat(md5(g::text), 64), 'UTF8')";
# nothing is put in order before it was looked at
worker_stop_points($node, 'compact_chosen=wait');
query(join ';', map { my ($t, $options) = @$_; kv_table($t, 'k int, v bytea', 'k', $options) . "ALTER FOREIGN TABLE $t ALTER v SET STORAGE EXTERNAL" }
	[ 'mixed', "wal 'none'" ], [ 'sorted', "wal 'none'" ], [ 'never', "wal 'none', max_space_amplification '0'" ]);
my $mixed = "SELECT g, $value FROM (SELECT i * 7919 % 6007 g FROM generate_series(1, 6006) i) s";
query("INSERT INTO mixed $mixed; SELECT kvfdw_flush('mixed')");
my $before = reads();
cmp_ok($before, '>', 1000, "values in another order than the keys are read singly: $before");
worker_stop_points($node, '');
go_on($node, 'compact_chosen');
query("INSERT INTO never $mixed; INSERT INTO sorted SELECT g, $value FROM generate_series(1, 6006) g");
query('CREATE TABLE heap AS SELECT * FROM mixed');
query(kv_table('parts', 'k int, v bytea', 'k', "wal 'none', shards '1'") . "ALTER FOREIGN TABLE parts ALTER v SET STORAGE EXTERNAL; INSERT INTO parts SELECT g, $value FROM (SELECT i * 7919 % 20011 g FROM generate_series(1, 20010) i) s; SELECT kvfdw_flush('parts'); SELECT kvfdw_split('parts')");
wait_for('order', sub { stat_of('mixed', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' });
my $after = reads();
cmp_ok($after, '<', $before / 3, "put in order by itself they are read together: $after");
is(tables_differ($node, 'mixed', 'heap', 'k'), '', 'the rows are the same');
is(kv_check_clean($node, 'mixed'), '', 'and sound');
is(stat_of('never', 'compactions, moved_bytes, space_limit'), '0|0|', 'a table that has no bound is left alone');
ok(eval { wait_for('order of all shards', sub { stat_of('parts', 'unsorted_bytes < 100000') eq 't' }) }, 'all shards that came of one that was split are put in order') or diag stat_of('parts', 'shards, compactions, unsorted_bytes, live_bytes');

# beside others, who have many values from files each second
{
	query(kv_table('read', 'k int, v bytea', 'k', "wal 'none', max_space_amplification '0'") . "ALTER FOREIGN TABLE read ALTER v SET STORAGE EXTERNAL; INSERT INTO read SELECT g, $value FROM generate_series(1, 1000) g; SELECT kvfdw_flush('read')");
	my $reader = psql_writer($node, q{DO $$ BEGIN WHILE to_regclass('enough') IS NULL LOOP PERFORM length(v) FROM read WHERE k = ANY (ARRAY(SELECT 1 + floor(random() * 1000)::int FROM generate_series(1, 10))); COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$}, 'reader');
	query(kv_table('beside', 'k int, v bytea', 'k', "wal 'none'") . "ALTER FOREIGN TABLE beside ALTER v SET STORAGE EXTERNAL; INSERT INTO beside $mixed");
	ok(eval { wait_for('order beside others', sub { stat_of('beside', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' }) }, 'a table is put in order while others read another');
	cmp_ok(stat_of('read', 'device_reads'), '>', 0, 'and they do');
	query('CREATE TABLE enough ()');
	is(outcome($reader), '', 'until the end');
}

# value files that shards share count as those of the one that leaves them last, which nobody writes to for that
{
	worker_stop_points($node, 'compact_chosen=wait');
	query(kv_table('shared', 'k int, v bytea', 'k', "wal 'none', shards '1'") . "ALTER FOREIGN TABLE shared ALTER v SET STORAGE EXTERNAL; INSERT INTO shared SELECT g, $value FROM (SELECT i * 7919 % 20011 g FROM generate_series(1, 20010) i) s; SELECT kvfdw_flush('shared'); SELECT kvfdw_split('shared')");
	stopped($node, 'compact_chosen');
	query(kv_table('later', 'k int, v bytea', 'k', "wal 'none'") . "ALTER FOREIGN TABLE later ALTER v SET STORAGE EXTERNAL; INSERT INTO later $mixed");
	worker_stop_points($node, '');
	go_on($node, 'compact_chosen');
	# which comes between those shards where their compaction jobs take long
	wait_for('order of another', sub { stat_of('later', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' });
	ok(eval { wait_for('order of all shards', sub { stat_of('shared', 'shards > 2 AND unsorted_bytes < 100000') eq 't' }) }, 'all shards that share chunks are put in order one behind the other, the last as well') or diag stat_of('shared', 'shards, compactions, unsorted_bytes, live_bytes');
}

# what there is no room for waits for that, and keeps no other from it; it does not begin in vain
{
	my $log = -s $node->logfile;
	query("ALTER SYSTEM SET kvfdw.test_space_kb = 16384; SELECT pg_reload_conf()");
	query(kv_table($_->[0], 'k int, v bytea', 'k', "wal 'none'") . "ALTER FOREIGN TABLE $_->[0] ALTER v SET STORAGE EXTERNAL; INSERT INTO $_->[0] SELECT g, $value FROM (SELECT i * 7919 % 6007 g FROM generate_series(1, 6006) i) s WHERE g < $_->[1]")
	  for [ 'large', 6007 ], [ 'little', 3000 ];
	ok(eval { wait_for('order where there is room', sub { stat_of('little', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' }) }, 'little room: what has twice as much is put in order');
	is(stat_of('large', 'compactions'), 0, 'and nothing else');
	unlike(slurp_file($node->logfile, $log), qr/not enough disk space/, 'nor does that begin');
	query("ALTER SYSTEM RESET kvfdw.test_space_kb; SELECT pg_reload_conf()");
	ok(eval { wait_for('order', sub { stat_of('large', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' }) }, 'with more room it is');
}

# another one comes after it, so what is to be done for these has been done, or been left
worker_stop_points($node, 'compact_slice=wait');
query("CREATE FOREIGN TABLE last (k int, v bytea) SERVER kvfdw OPTIONS (key 'k', wal 'none'); ALTER FOREIGN TABLE last ALTER v SET STORAGE EXTERNAL; INSERT INTO last SELECT g, $value FROM (SELECT i * 7919 % 20011 g FROM generate_series(1, 20010) i) s");
my $moved = stat_of('mixed', 'moved_bytes');
stopped($node, 'compact_slice');
is(query(q{SELECT relid::regclass FROM kvfdw_stat_progress WHERE command = 'compact'}), 'last', 'another is put in order');
query(kv_table('due', 'k int, v bytea', 'k', "wal 'none', shards '1'") . "ALTER FOREIGN TABLE due ALTER v SET STORAGE EXTERNAL; INSERT INTO due SELECT g, $value FROM generate_series(1, 3000) g");
my $given_up = sub { query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}) == 0 };
# if it gives up it does so behind the stop point
my $step = sub { step_on($node, 'compact_slice', $given_up) for 1 .. 2 };
$step->();
ok(!$given_up->(), 'it is not given up for a table that has grown');
query('UPDATE due SET v = v WHERE k <= 1670');
# when what was replaced is dead for all
ok(eval { wait_for('one to be due', sub { stat_of('due', 'value_file_bytes > 1.45 * live_bytes + 524288') eq 't' }) }, 'one is to be compacted') or diag stat_of('due', 'value_file_bytes, live_bytes');
$step->();
ok(!$given_up->(), 'nor for one that is farther from its bound than from where it is to be compacted');
# it comes to its bound, and waits there
my $writer = psql_writer($node, "SET kvfdw.stop_points = '';" . 'UPDATE due SET v = v;' x 3, 'due');
wait_for('a writer to wait', sub { stat_of('due', 'space_waits') > 0 || ended($writer) });
worker_stop_points($node, 'compact_chosen=wait');
go_on($node, 'compact_slice');
stopped($node, 'compact_chosen');
is(query("SELECT relid::regclass FROM kvfdw_stat_progress WHERE command = 'compact'"), 'due', 'but for one that has no room any more');
is(stat_of('last', 'compactions'), 0, 'it is given up');
worker_stop_points($node, '');
go_on($node, 'compact_chosen');
is(outcome($writer), '', 'and its writer goes on');
wait_for('order of another', sub { stat_of('last', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' });
is(stat_of('sorted', 'compactions, moved_bytes'), '0|0', 'values that lie in order as they are stay');
is(stat_of('mixed', 'moved_bytes'), $moved, 'and so do those that were put in order');
cmp_ok(stat_of('mixed', 'space_limit / live_bytes::numeric'), '<', 3, 'the bound is that of the setting');
my $bound = q{SELECT space_limit FROM kvfdw_stat_tables WHERE relid = 'mixed'::regclass};
my $bound_before = query($bound);
query("BEGIN; ALTER FOREIGN TABLE mixed OPTIONS (ADD max_space_amplification '8'); SELECT count(*) FROM mixed; ROLLBACK");
is(query($bound), $bound_before, 'an option that is rolled back binds nobody');
query("ALTER FOREIGN TABLE mixed OPTIONS (ADD max_space_amplification '4'); SELECT count(*) FROM mixed");
cmp_ok(stat_of('mixed', 'space_limit / live_bytes::numeric'), '>', 3.9, 'or that of the table');
like(answer($node, "ALTER FOREIGN TABLE mixed OPTIONS (SET max_space_amplification '1.05')"), qr/invalid value for option "max_space_amplification"/, 'which is 0, or 1.1 at least');

# ---- a split meets it ----
{
	worker_stop_points($node, 'compact_slice=wait');
	query(kv_table('met', 'k int, v bytea', 'k', "wal 'none', shards '1'") . "ALTER FOREIGN TABLE met ALTER v SET STORAGE EXTERNAL; INSERT INTO met $mixed; SELECT kvfdw_flush('met')");
	stopped($node, 'compact_slice');
	query('ALTER SYSTEM SET kvfdw.test_shard_kb = 4096');
	worker_stop_points($node, 'split_met=wait,compact_slice=wait');
	stopped($node, 'split_met');
	is(stat_of('met', 'shards'), 1, 'a split meets a pass for order');
	worker_stop_points($node, '');
	go_on($node, 'compact_slice');
	wait_for('the pass to end', sub { query("SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact' AND relid = 'met'::regclass") == 0 });
	is(stat_of('met', 'compactions'), 0, 'which gives way to it');
	go_on($node, 'split_met');
	ok(eval { wait_for('the shard to be split', sub { stat_of('met', 'shards') > 1 }) }, 'and comes');
	query('ALTER SYSTEM RESET kvfdw.test_shard_kb; SELECT pg_reload_conf()');
}

# ---- a shard of more than a gigabyte ----
SKIP: {
	skip 'takes long', 1 unless $ENV{KV_ALL};
	query(kv_table('huge', 'k int, v bytea', 'k', "wal 'none', shards '1'") . "ALTER FOREIGN TABLE huge ALTER v SET STORAGE EXTERNAL; INSERT INTO huge SELECT g, decode(repeat(md5(g::text), 1024), 'hex') FROM (SELECT i * 7919::bigint % 70001 g FROM generate_series(1, 70000) i) s");
	ok(eval { wait_for('order of much', sub { stat_of('huge', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' }) }, 'a shard of more than a gigabyte is put in order') or diag stat_of('huge', 'shards, live_bytes, compactions, unsorted_bytes');
}
$node->stop;
done_testing();
