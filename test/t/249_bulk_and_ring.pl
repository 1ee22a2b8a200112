# Promise: a bulk load leaves the recent ring alone once it has written as much as the ring holds.
# What small transactions write beside it is read from memory after it. What the load overwrites
# stays in memory if it was read there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no recent ring' if heap_only();
my $node = kv_cluster('bulk', 'kvfdw.value_cache' => '16MB', 'kvfdw.recent_ring' => '4MB', 'kvfdw.flush_after' => '1h');
$node->safe_psql('postgres', kv_table('small', 'k int, v text', 'k') . kv_table('load', 'k int, v text', 'k') . kv_table('other', 'k int, v text', 'k'));
sub written { return $node->safe_psql('postgres', join('; ', map { "SELECT kvfdw_flush('$_')" } qw(small load other)) . '; SELECT kvfdw_stat_reset()'); }
sub counts { my ($t, $columns) = @_; return answer($node, "SELECT $columns FROM kvfdw_stat_tables WHERE relid = '$t'::regclass"); }
sub rows { my ($t, $from, $to) = @_; return "INSERT INTO $t SELECT g, repeat(md5(g::text), 128) FROM generate_series($from, $to) g;"; }
sub by_key { my ($t, $from, $to) = @_; return answer($node, "SELECT count(*), bool_and(v = repeat(md5(g::text), 128)) FROM generate_series($from, $to) g, LATERAL (SELECT v FROM $t WHERE k = g OFFSET 0) l"); }
sub inserted { return answer($node, q{SELECT inserted FROM kvfdw_stat_cache WHERE cache = 'recent ring'}); }

# one statement writes 20 MB, five times what the ring holds
written();
$node->safe_psql('postgres', rows('load', 1, 5000));
$node->safe_psql('postgres', q{SELECT kvfdw_flush('load')});
cmp_ok(inserted(), '<=', 1.3 * 4_194_304 / 65536, 'a load enters the ring with as much as that holds');
cmp_ok(inserted(), '>', 0, '... first');
is(by_key('load', 1, 5000), '5000|t', 'its rows are right');

# small transactions in the middle of a load, whose first part has left the ring to others
$node->safe_psql('postgres', rows('small', 1, 100));
written();
my $gate = psql_writer($node, 'SELECT pg_advisory_lock(1); SELECT pg_sleep(600);', 'gate');
wait_for('the gate', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted}) == 1 });
my $load = psql_writer($node, 'BEGIN;' . rows('load', 10001, 12000) . 'SELECT pg_advisory_lock(1);' . rows('load', 20001, 24000) . 'COMMIT', 'load');
wait_for('the load', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 1 });
$node->safe_psql('postgres', join('', map { rows('small', $_, $_) } 101 .. 300));
$node->safe_psql('postgres', q{SELECT kvfdw_flush('small'); SELECT kvfdw_stat_reset()});
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted});
outcome($gate);
is(outcome($load), "\n", 'a load of 24 MB');
written();
is(by_key('small', 101, 300), '200|t', 'what small transactions have written beside it is right');
is(counts('small', 'device_reads, recent_ring_hits'), '0|200', '... from memory');

# a buffer with rows of others is kept whole
$load = 'BEGIN;' . rows('load', 30001, 33000) . 'SAVEPOINT s;' . rows('load', 33001, 33010) . 'COMMIT;';
$node->safe_psql('postgres', $load);
written();
is(by_key('load', 33001, 33010), '10|t', 'rows of another transaction in a buffer of the load');
is(counts('load', 'device_reads, recent_ring_hits'), '0|10', '... are in the ring');

# a bulk update of rows that are read: they stay in memory
$node->safe_psql('postgres', rows('other', 1, 200));
written();
by_key('other', 1, 200) for 1 .. 2;
$node->safe_psql('postgres', "BEGIN; " . rows('load', 40001, 43000) . "UPDATE other SET v = v || ''; COMMIT");
written();
is(by_key('other', 1, 200), '200|t', 'what a bulk update has replaced is right');
cmp_ok(counts('other', 'device_reads'), '<', 60, '... and most of it in memory');
is(kv_check_clean($node, qw(small load other)), '', 'tables are sound');
done_testing();
