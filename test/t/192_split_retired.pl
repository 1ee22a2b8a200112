# Promise: an obsolete value file may be removed while its shard is split, before the new shards
# count: their marks are made, and checkpoints continue (I 14).
# Needs a test build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('retired', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.compact_workers' => 0, 'kvfdw.test_splits' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.test_compact' => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '1'") . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, rpad(md5(g::text), 2000, 'v') FROM generate_series(1, 300) g") for qw(t heap);
$node->safe_psql('postgres', 'DELETE FROM t WHERE k % 3 = 0; DELETE FROM heap WHERE k % 3 = 0');
sub chunks { return join ' ', sort map { s/.*\///r } glob $node->data_dir . '/kvfdw/5/*/0*/*.val' }

# The shard has retired value files, and the checkpointer is about to make the mark after which they go.
worker_stop_points($node, 'mark_wanted=wait');
my $compact = psql_writer($node, "SELECT kvfdw_compact('t', true);", 'compact');
stopped($node, 'mark_wanted');
my $before = chunks();
my $split = psql_writer($node, "SET kvfdw.stop_points = 'split_completed=wait'; SELECT kvfdw_split('t');", 'split');
stopped($node, 'split_completed');

# They go, and then the new shards count.
worker_stop_points($node, '');
go_on($node, 'mark_wanted');
unlike(outcome($compact), qr/ERROR/, 'the compaction has ended');
isnt(chunks(), $before, 'chunks have gone');
my $log = -s $node->logfile;
unlike(go_on($node, 'split_completed', $split), qr/ERROR/, 'the split has ended');
my $checkpoint = psql_writer($node, "SET statement_timeout = '60s'; CHECKPOINT;", 'checkpoint');
is(outcome($checkpoint), '', 'a checkpoint is complete');
unlike(substr(slurp_file($node->logfile), $log), qr/could not open file/, 'and nothing was missed for it');
same_as_heap($node, 'split');
kill_all($node);
$node->start;
same_as_heap($node, 'killed');
$node->stop;
done_testing();
