# Promise: what was written last is read from memory, by key and by short ranges, until as much as
# the recent ring holds was written after it. Values that were read there continue to the value
# cache. No read gets another's value.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no recent ring' if heap_only();
my $node = kv_cluster('recent', 'kvfdw.value_cache' => '16MB', 'kvfdw.recent_ring' => '4MB', 'kvfdw.flush_after' => '1h', log_min_messages => 'info');
$node->safe_psql('postgres', kv_table('r', 'k int, v text', 'k') . kv_table('s', 'k int, v text', 'k', q{shards '4'}) . 'CREATE TABLE heap (k int PRIMARY KEY, v text)');

# All values are in files then, and counters at zero.
sub written { return $node->safe_psql('postgres', q{SELECT kvfdw_flush('r'); SELECT kvfdw_flush('s'); SELECT kvfdw_stat_reset()}); }
sub counts { my ($columns) = @_; return answer($node, "SELECT $columns FROM kvfdw_stat_tables WHERE relid = 'r'::regclass"); }
sub insert { my ($t, $from, $to, $size, $word) = @_; return $node->safe_psql('postgres', "INSERT INTO $t SELECT g, left(repeat(md5('$word' || g), $size / 32 + 1), $size) FROM generate_series($from, $to) g ORDER BY md5(g::text)"); }
sub by_key { my ($from, $to) = @_; return answer($node, "SELECT count(v), sum(hashtext(v)) FROM generate_series($from, $to) g, LATERAL (SELECT v FROM r WHERE k = g OFFSET 0) l"); }
my $reads = 'device_reads, recent_ring_hits, value_cache_hits';

for my $size (300, 4096, 8192, 20000)
{
	my $n = int(1_500_000 / $size);
	$node->safe_psql('postgres', 'TRUNCATE r, heap');
	insert($_, 1, $n, $size, 'a') for 'heap', 'r';
	written();
	is(by_key(1, $n), answer($node, 'SELECT count(v), sum(hashtext(v)) FROM heap'), "what was written, $size bytes each: right by key");
	is(counts($reads), "0|$n|0", '... from memory');
	is(answer($node, 'SELECT k, hashtext(v) FROM r WHERE k >= 7 ORDER BY k LIMIT 20'), answer($node, 'SELECT k, hashtext(v) FROM heap WHERE k >= 7 ORDER BY k LIMIT 20'), 'right by range');
	is(counts($reads), '0|' . ($n + 20) . '|0', '... from memory');
}

# one that no write buffer can hold
$node->safe_psql('postgres', q{INSERT INTO r SELECT 1000000, repeat(md5('large'), 20000)});
written();
is(answer($node, q{SELECT v = repeat(md5('large'), 20000) FROM r WHERE k = 1000000}) . counts($reads), 't0|1|0', 'a value larger than a slot, too');

sub ring { my ($columns) = @_; return answer($node, "SELECT $columns FROM kvfdw_stat_cache WHERE cache = 'recent ring'"); }
is(ring('hits > 0, block_size, size_bytes, used_bytes <= size_bytes, errors'), 't|65536|4194304|t|0', 'kvfdw_stat_cache has the ring');
cmp_ok(answer($node, q{SELECT size_bytes FROM kvfdw_stat_cache WHERE cache = 'write buffers'}), '>', 0, '... and write buffers');

# the window slides on: what was read meanwhile is in the value cache, the rest in files alone
$node->safe_psql('postgres', 'TRUNCATE r');
insert('r', 1, 200, 4096, 'a');
written();
by_key(1, 100);
insert('s', 500 * $_ - 499, 500 * $_, 4096, 'b') for 1 .. 4;    # no bulk load
$node->safe_psql('postgres', q{SELECT kvfdw_flush('s')});    # no slot is to be written still
is(ring('inserted >= 8000000 / 65536 AND inserted >= evictions AND evictions >= 4000000 / 65536'), 't', 'frames come and go') or diag(ring('*'));
is(answer($node, q{SELECT inserted >= 8000000 / block_size AND evictions <= inserted + size_bytes / block_size FROM kvfdw_stat_cache WHERE cache = 'write buffers'}), 't', '... after slots');
written();
is(ring('inserted + evictions'), 0, '... until that is reset');
is(by_key(1, 200), answer($node, q{SELECT 200, sum(hashtext(repeat(md5('a' || g), 128))) FROM generate_series(1, 200) g}), 'what was written long ago is right');
is(counts('recent_ring_hits'), 0, '... and not in the ring any more');
cmp_ok(counts('value_cache_hits'), '>=', 90, '... but what was read there is in the value cache');

# so is a new version of what was read there
$node->safe_psql('postgres', q{TRUNCATE r, s});
insert('r', 1, 100, 4096, 'a');
written();
by_key(1, 100);
$node->safe_psql('postgres', q{UPDATE r SET v = repeat(md5('b' || k), 128)});
written();
insert('s', 1, 2000, 4096, 'b');
written();
is(by_key(1, 100), answer($node, q{SELECT 100, sum(hashtext(repeat(md5('b' || g), 128))) FROM generate_series(1, 100) g}), 'what has replaced such a value is right');
cmp_ok(counts('value_cache_hits'), '>=', 90, '... and in the value cache, too');

# versions, rollbacks, generations
insert('r', 201, 210, 4096, 'c');
written();
is(answer($node, q{BEGIN; UPDATE r SET v = 'no' WHERE k = 201; SELECT v FROM r WHERE k = 201; ROLLBACK; SELECT v = repeat(md5('c201'), 128) FROM r WHERE k = 201;
	UPDATE r SET v = 'new' WHERE k = 202; DELETE FROM r WHERE k = 203; SELECT kvfdw_flush('r'); SELECT v FROM r WHERE k IN (202, 203)}), "no\nt\n\nnew", 'versions are told apart');
$node->safe_psql('postgres', 'TRUNCATE r');
insert('r', 1, 10, 4096, 'd');
written();
is(answer($node, q{SELECT bool_and(v = repeat(md5('d' || k), 128)) FROM r WHERE k IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)}), 't', 'and generations');

# what is moved while it is in the ring, and is read often
insert('r', 11, 110, 4096, 'd');
written();
by_key(11, 110);
$node->safe_psql('postgres', q{DELETE FROM r WHERE k % 2 = 0; SELECT kvfdw_compact('r', true); SELECT kvfdw_stat_reset()});
is(by_key(11, 110), answer($node, q{SELECT 50, sum(hashtext(repeat(md5('d' || g), 128))) FROM generate_series(11, 109, 2) g}), 'values that were moved are right');
is(counts('device_reads'), 0, '... and in memory');

# many at once: writers, whose values leave the ring while others read them
my @sessions = map { my $s = $_; psql_writer($node, join('', map { "INSERT INTO s SELECT 10000 * ($s * 10 + $_) + g, repeat(md5('e' || g), 128) FROM generate_series(1, 300) g;
	SELECT bool_and(v = repeat(md5('e' || (k % 10000)), 128)) FROM s WHERE k BETWEEN 10000 * ($s * 10 + $_) + 1 AND 10000 * ($s * 10 + $_) + 200;\n" } 1 .. 9), "writer$s") } 1 .. 4;
is(join('', map { outcome($_) } @sessions), "t\n" x 36, 'sessions read what they have written');

# a clean restart
my $warm = $node->data_dir . '/kvfdw/warm';
sub restart_warm { $node->restart; return wait_for('what was noted to be read', sub { !-e $warm }); }
insert('r', 1001, 1200, 4096, 'f');
written();
restart_warm();
$node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()');
my $right = q{SELECT 200, sum(hashtext(repeat(md5('f' || g), 128))) FROM generate_series(1001, 1200) g};
is(by_key(1001, 1200), answer($node, $right), 'what was written before a clean restart is right');
is(counts($reads), '0|200|0', '... and in the ring');
SKIP:
{
	skip 'not a test build (make FAULTS=1)', 3 unless has_faults($node);
	worker_stop_points($node, 'warm_frames=wait');
	$node->restart;
	stopped($node, 'warm_frames');
	worker_stop_points($node, '');
	insert('s', 400001, 401500, 4096, 'g');
	insert('r', 2001, 2200, 4096, 'f');
	written();
	go_on($node, 'warm_frames');
	wait_for('what was noted to be read', sub { !-e $warm });
	is(by_key(2001, 2200), answer($node, q{SELECT 200, sum(hashtext(repeat(md5('f' || g), 128))) FROM generate_series(2001, 2200) g}), 'what is written before that was read is right');
	is(counts('recent_ring_hits'), 200, '... and does not leave the ring for it');
	is(by_key(1001, 1200), answer($node, $right), '... which is right, too');
}

my $times = times_ready($node);
$node->safe_psql('postgres', 'CHECKPOINT');
kill_process(answer($node, 'SELECT pid FROM pg_stat_activity WHERE backend_type = \'kvfdw maintainer\''));
ready_again($node, $times);
is(answer($node, q{SELECT bool_and(v = repeat(md5('d' || k), 128)) FROM r WHERE k < 1000}), 't', 'a crash leaves nothing wrong');

# what replaces values of the value cache stays there, though the cache has no room for old and new ones
$node->safe_psql('postgres', q{TRUNCATE r, s});
insert('r', 1, 3000, 4096, 'a');
written();
by_key(1, 3000) for 1 .. 2;
$node->safe_psql('postgres', "UPDATE r SET v = repeat(md5('$_' || k), 128); SELECT kvfdw_flush('r')") for 'b' .. 'd';
insert('s', 1, 1500, 4096, 'b');
written();
is(by_key(1, 3000), answer($node, q{SELECT 3000, sum(hashtext(repeat(md5('d' || g), 128))) FROM generate_series(1, 3000) g}), 'what was updated again and again is right');
cmp_ok(counts('device_reads'), '<', 700, '... and most of it is in memory');

is(kv_check_clean($node, 'r', 's'), '', 'tables are sound');

# nothing is read for what is off after the restart
insert('r', 4001, 4200, 4096, 'f');
written();
$node->append_conf('postgresql.conf', "kvfdw.value_cache = 0\nkvfdw.recent_ring = 0");
restart_warm();
is(answer($node, q{SELECT calls FROM kvfdw_stat_io WHERE kind = 'value read'}), 0, 'what was noted of caches that are off now is not read');
done_testing();
