# Promise: a table whose values are in stretches of key order is not written again to be put in order, and has nothing
# left to sort; one whose values are scattered is, and so is the former when enough of it was written again.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('stretches_at_rest', 'kvfdw.flush_after' => 1, 'kvfdw.test_value_file_kb' => 1024, 'kvfdw.test_compact' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.test_splits' => 'off', 'kvfdw.test_space_look' => 3000, 'kvfdw.range_cache' => '8MB', 'kvfdw.value_cache' => 0, 'kvfdw.recent_ring' => 0, 'kvfdw.compact_memory' => '4MB',
	# values of a buffer are a stretch: larger ones would make few of the updates
	'kvfdw.write_buffer_size' => '64kB');
plan skip_all => 'needs fault injection' unless has_faults($node);

sub query { return $node->safe_psql('postgres', @_); }
sub stat_of { my ($table, $columns) = @_; return query("SELECT $columns FROM kvfdw_stat_tables WHERE relid = '$table'::regclass ORDER BY generation DESC LIMIT 1"); }
my $value = "convert_to(repeat(md5(g::text), 64), 'UTF8')";
sub make { my ($t, $load) = @_; return query(kv_table($t, 'k int, v bytea', 'k', "wal 'none', shards '1'") . "ALTER FOREIGN TABLE $t ALTER v SET STORAGE EXTERNAL; $load"); }

worker_stop_points($node, 'compact_chosen=wait');
make('stretches', join(';', map { "INSERT INTO stretches SELECT g, $value FROM (SELECT i * 8 + $_ g FROM generate_series(1, 2000) i) s" } 0 .. 7));
make('scattered', "INSERT INTO scattered SELECT g, $value FROM (SELECT i * 7919 % 16007 g FROM generate_series(1, 16006) i) s");
worker_stop_points($node, '');
append_to_file($node->data_dir . '/kvfdw/continue.compact_chosen', '');
ok(eval { wait_for('order', sub { stat_of('scattered', 'compactions > 0 AND unsorted_bytes < 100000') eq 't' }) }, 'scattered values are put in order') or diag stat_of('scattered', 'compactions, unsorted_bytes, live_bytes');
ok(eval { wait_for('a look', sub { stat_of('stretches', 'unsorted_bytes < live_bytes / 8') eq 't' }) }, 'values in stretches have nothing left to sort') or diag stat_of('stretches', 'compactions, unsorted_bytes, live_bytes');
is(stat_of('stretches', 'compactions, moved_bytes'), '0|0', 'and were not moved');

# a third of the rows, in no order, four times: no stretch goes on far without one of them, and those of the updates are
# too many; nothing is sorted in between, after which less would be written than a second time pays for
sub compact_sort { query("ALTER SYSTEM SET kvfdw.compact_sort = '$_[0]'"); query('SELECT pg_reload_conf()'); return; }
compact_sort('off');
query('CREATE TABLE twin AS SELECT * FROM stretches');
for my $t ('stretches', 'twin')
{
	query("UPDATE $t SET v = convert_to(repeat(md5((k + $_)::text), 64), 'UTF8') FROM (SELECT g FROM generate_series(1, 16007) g WHERE g % 3 = 0 ORDER BY md5((g * $_)::text)) s WHERE k = g") for 1 .. 4;
}
compact_sort('idle');
ok(eval { wait_for('order', sub { stat_of('stretches', 'moved_bytes > live_bytes / 2 AND unsorted_bytes < live_bytes / 8') eq 't' }) }, 'what was scattered by updates is put in order');
note stat_of('stretches', 'compactions, moved_bytes, unsorted_bytes, live_bytes');
is(tables_differ($node, 'stretches', 'twin', 'k'), '', 'the rows are the same');
is(kv_check_clean($node, 'stretches'), '', 'and sound');
$node->stop;
done_testing();
