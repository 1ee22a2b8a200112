# Promise: rows of tables with compression 'lz4' are those of heap at every level, whoever reads them: SQL from write buffers, files and
# caches, clients of memcached, a standby; after compaction, SIGKILL, changes of the option and of the level. What does
# not become shorter by a block, or to half of one, is stored as it is; a damaged value is an error and no other row's; and
# the schema image says that there may be such values (I 4, I 11).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;
use KvMemcached;

plan skip_all => 'heap compresses by itself' if heap_only();
my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
note "seed $seed";
my $file = PostgreSQL::Test::Utils::tempdir() . '/lz4.tier';
my $node = mc_cluster('lz4', options => ", compression 'lz4'", wal_level => 'replica', max_wal_senders => 5, wal_keep_size => '2GB', 'kvfdw.flush_after' => '1h',
	'kvfdw.recent_ring' => '1MB', 'kvfdw.tier_path' => "'$file'", 'kvfdw.tier_size' => '16MB', 'kvfdw.write_buffers' => '4MB', 'kvfdw.range_cache' => "'8MB'");
my @tables = ('t_full', 't_keys', 't_none', 'wide');
# Nothing, little, much, too much for a write buffer; what compresses well, by a third, by a little, and not at all.
$node->safe_psql('postgres', join('', map { kv_table("t_$_", 'k int, v text', 'k', "compression 'lz4', shards '2', wal '$_'") } 'full', 'keys', 'none')
	  . kv_table('wide', 'k int, v text, w numeric, j jsonb', 'k', q{compression 'lz4'}) . qq{
	CREATE TABLE heap (k int PRIMARY KEY, v text, w numeric, j jsonb);
	CREATE FUNCTION noise(g int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS \$\$ SELECT left(string_agg(encode(sha512(('$seed' || g || ':' || i)::bytea), 'base64'), ''), n) FROM generate_series(1, n / 80 + 1) i \$\$;
	CREATE FUNCTION made(g int) RETURNS text LANGUAGE sql IMMUTABLE AS \$\$ SELECT CASE g % 8 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN repeat('ab', g % 200) WHEN 3 THEN noise(g, g % 3000)
		WHEN 4 THEN repeat(md5(g::text), 128) WHEN 5 THEN noise(g, 2700) || repeat('x', 1396) WHEN 6 THEN noise(g, 9000) || repeat('y', 3000 + g) ELSE repeat(noise(g, 500), 3 + g % 20) END \$\$;
	INSERT INTO heap SELECT g, made(g), g / 7.0, jsonb_build_object('k', g, 'v', left(made(g), 3000)) FROM generate_series(1, 600) g;
	INSERT INTO heap VALUES (0, repeat(md5('big'), 40000)), (-1, noise(5, 1000000)), (-2, noise(6, 700000) || repeat('z', 700000))});

# A statement for each table, and for heap.
sub all_of { my ($sql) = @_; return join ';', map { $sql =~ s/\bT\b/$_/gr } @tables, 'heap'; }
sub fill { my ($where) = @_; return join ';', (map { "INSERT INTO $_ SELECT k, v FROM heap $where" } @tables[ 0 .. 2 ]), "INSERT INTO wide SELECT * FROM heap $where"; }
sub same
{
	my ($what, $where, @names) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @wrong;
	for my $name (@names ? @names : @tables)
	{
		my $columns = $name eq 'wide' ? 'v, w, j' : 'v';
		for my $which ('', 'WHERE k = ANY (ARRAY[-2, -1, 0, 4, 5, 6, 7, 77, 596])', 'WHERE k BETWEEN 3 AND 30')
		{
			my $sql = "SELECT md5(string_agg(k || ' ' || md5(ROW($columns)::text), ',' ORDER BY k)) FROM %s $which";
			push @wrong, "$name $which" if answer($where // $node, sprintf($sql, $name)) ne answer($node, sprintf($sql, 'heap'));
		}
		push @wrong, "$name in any order" if answer($where // $node, "SELECT count(*), sum(hashtext(v)::bigint) FROM $name") ne answer($node, 'SELECT count(*), sum(hashtext(v)::bigint) FROM heap');
	}
	return is(join(', ', @wrong), '', "$what: the rows are those of heap");
}
sub live { my ($t) = @_; return answer($node, "SELECT live_bytes FROM kvfdw_stat_tables WHERE relid = '$t'::regclass"); }
sub image { my ($t) = @_; my ($file) = glob($node->data_dir . "/kvfdw/*/" . answer($node, "SELECT '$t'::regclass::oid") . '/*/table'); return slurp_file($file) =~ /\nforms (\w+)\n/ ? $1 : 'none'; }

$node->safe_psql('postgres', fill('WHERE k < 400'));
my $standby = kv_standby($node, 'lz4_standby', 'kvfdw.memcached_workers' => 0, 'kvfdw.tier_path' => "''");
$node->safe_psql('postgres', fill('WHERE k >= 400'));
same('written');
same('read again');

# ---- what is stored ----

$node->safe_psql('postgres', kv_table('p', 'k int, v text', 'k') . kv_table('z', 'k int, v text', 'k', q{compression 'lz4'}) . kv_table('third', 'k int, v text', 'k', q{compression 'lz4'}) . kv_table('third_p', 'k int, v text', 'k', q{compression 'none'}));
sub wal_of { my ($sql) = @_; my $from = answer($node, 'SELECT pg_current_wal_insert_lsn()'); $node->safe_psql('postgres', $sql); return answer($node, "SELECT pg_current_wal_insert_lsn() - '$from'"); }
my %wal = map { $_ => wal_of("INSERT INTO $_ SELECT g, repeat(md5(g::text), 128) FROM generate_series(1, 500) g") } 'p', 'z';
cmp_ok($wal{z} * 4, '<', $wal{p}, 'the WAL has values as they are stored');
cmp_ok(live('z') * 4, '<', live('p'), 'and so do the files');
$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, noise(g, 2700) || repeat('x', 1396) FROM generate_series(1, 50) g") for 'third', 'third_p';
is(live('third'), live('third_p'), 'a value of one block that does not become half of one stays as it is');
is(join(' ', map { image($_) } 't_full', 'z', 'p', 'third_p'), 'lz4 lz4 none none', 'only images of tables that may have such values say so');
$node->safe_psql('postgres', q{INSERT INTO z VALUES (1000, repeat(noise(1, 1000), 200000))});
is(answer($node, q{SELECT length(v), v = repeat(noise(1, 1000), 200000) FROM z WHERE k = 1000}), '200000000|t', 'a value of 200 MB');

# ---- by place ----

# half of it is noise, it lies in no order, and is more than the range cache has room for
$node->safe_psql('postgres', kv_table('placed', 'k uuid, v text', 'k', q{compression 'lz4'}) . q{INSERT INTO placed SELECT md5(g::text)::uuid, noise(g, 1600) || repeat('p', 1600) FROM generate_series(1, 6000) g; SELECT kvfdw_flush('placed'); ANALYZE placed});
like(answer($node, 'EXPLAIN (COSTS off) SELECT sum(hashtext(v)::bigint) FROM placed'), qr/Order: storage/, 'a scan by place');
is(answer($node, 'SELECT count(*), sum(hashtext(v)::bigint) FROM placed'), answer($node, q{SELECT count(*), sum(hashtext(noise(g, 1600) || repeat('p', 1600))::bigint) FROM generate_series(1, 6000) g}), '... has the values');

# ---- changes, options, compaction ----

$node->safe_psql('postgres', all_of("UPDATE T SET v = v || 'more' WHERE k % 5 = 0; DELETE FROM T WHERE k % 11 = 10"));
$node->safe_psql('postgres', all_of("INSERT INTO T AS t (k, v) SELECT g, repeat('upsert', g) FROM generate_series(500, 700) g ON CONFLICT (k) DO UPDATE SET v = excluded.v || left(t.v, 2000)"));
same('changed');
$node->safe_psql('postgres', q{ALTER FOREIGN TABLE t_full OPTIONS (SET compression 'none'); ALTER FOREIGN TABLE wide OPTIONS (DROP compression); ALTER FOREIGN TABLE p OPTIONS (ADD compression 'lz4')});
$node->safe_psql('postgres', all_of("UPDATE T SET v = v || 'none' WHERE k % 3 = 0"));
$node->safe_psql('postgres', 'UPDATE p SET v = v || v WHERE k % 2 = 0');
same('with and without');
is(join(' ', map { image($_) } 't_full', 'p'), 'lz4 lz4', 'the image goes on saying so, and says so once it is the case');
is(answer($node, 'SELECT count(*), sum(length(v)) FROM p'), '500|' . (500 + 250) * 4096, 'rows from before the option');
$node->safe_psql('postgres', "SELECT kvfdw_compact('$_', true)") for @tables;
same('compacted');
$node->safe_psql('postgres', q{ALTER FOREIGN TABLE wide OPTIONS (ADD compression 'lz4')});
$node->safe_psql('postgres', all_of("UPDATE T SET v = left(v, 1000) || repeat('lz4', 2000) WHERE k % 7 = 0"));

# ---- clients of memcached ----

my $c = mc_connect($node);
my $long = join '', map { "line $_ of a value that compresses well\n" } 1 .. 300;
sub set { my ($command, $key, $value, $flags) = @_; return mc_ask($c, "$command $key " . ($flags // 0) . ' 0 ' . length($value) . "\r\n$value\r\n"); }
is(set('set', 'a', $long, 5), 'STORED', 'memcached: set');
is(scalar(mc_get($c, 'a')), $long, 'memcached: get');
is(set('append', 'a', 'end', 5), 'STORED', 'memcached: append');
is(answer($node, q{SELECT length(value), right(encode(value, 'escape'), 3) FROM cache WHERE key = 'a'}), (length($long) + 3) . '|end', 'SQL sees the same');
$node->safe_psql('postgres', kv_table('bare', 'key text COLLATE "C", value bytea', 'key', q{memcached 'b:', compression 'lz4'}) . 'GRANT SELECT, INSERT, UPDATE, DELETE ON bare TO web');
wait_for('the table to be served', sub { set('set', 'b:x', $long) eq 'STORED' && answer($node, 'SELECT count(*) FROM bare') eq '1' });
is(scalar(mc_get($c, 'b:x')), $long, 'memcached: a table of keys and values alone');
is(answer($node, 'SELECT length(value) FROM bare'), length($long), 'and in SQL');
# together they are more than a batch has room for, though not as they are stored
my @keys = map { "b:$_" } 1 .. 20;
$node->safe_psql('postgres', q{INSERT INTO bare SELECT 'b:' || g, repeat(g || ' of 20 ', 100000)::bytea FROM generate_series(1, 20) g});
mc_send($c, "get @keys\r\n");
my %got;
while ((my $line = mc_line($c)) =~ /^VALUE (\S+) \d+ (\d+)$/) { $got{$1} = mc_bytes($c, $2 + 2); }
is(join(' ', map { ($got{"b:$_"} // '') eq "$_ of 20 " x 100000 . "\r\n" ? () : $_ } 1 .. 20), '', 'memcached: many large values in one request');
# nor is there room for what many that are very short when stored become (I 12)
$node->safe_psql('postgres', q{DELETE FROM bare; INSERT INTO bare SELECT 'b:' || g, repeat('a', 30000000)::bytea FROM generate_series(1, 30) g});
sub most_memory { my $most = 0; for my $pid (split /\n/, answer($node, 'SELECT pid FROM kvfdw_stat_memcached')) { my ($kb) = slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m; $most = $kb if $kb > $most; } return $most; }
my $before = most_memory();
mc_send($c, join('', map { "mg b:$_ s\r\n" } 1 .. 30));
is(join(' ', map { mc_line($c) } 1 .. 30), join(' ', ('HD s30000000') x 30), 'memcached: many values that are large when decompressed');
cmp_ok(most_memory() - $before, '<', 400_000, '... of which a turn reads a few');

# ---- standby, crash, another level ----

$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
same('on a standby', $standby, 't_full', 'wide');
my $w = psql_writer($node, join('', map { my $n = $_; "BEGIN; " . all_of("INSERT INTO T (k, v) SELECT 1000 + $n * 10 + i, made($n * 3 + i) FROM generate_series(0, 2) i; UPDATE T SET v = made($n) || v WHERE k = $n") . "; COMMIT;\n\\echo ack $n\n" } 1 .. 5000), 'writer');
wait_for('some transactions', sub { slurp_file($w->{out}) =~ /^ack 30$/m });
kill_all($node);
cmp_ok(reap_writer($w), '>=', 30, 'a session is killed in the middle');
$node->start;
same('after a crash');
$node->safe_psql('postgres', q{ALTER FOREIGN TABLE t_full OPTIONS (SET wal 'none')});
same('copied into a store of another level', undef, 't_full');
is(image('t_full'), 'lz4', 'which says so, too');
is(kv_check_clean($node, @tables, 'p', 'z', 'third', 'cache', 'bare'), '', 'kvfdw_check finds nothing');

# ---- damage ----

$node->safe_psql('postgres', kv_table('d', 'k int, v text', 'k', q{compression 'lz4'}) . q{INSERT INTO d SELECT g, noise(g, 9000) || repeat('d', 9000) FROM generate_series(1, 30) g; CREATE TABLE d_heap AS TABLE d; SELECT kvfdw_flush('d')});
my $d = answer($node, q{SELECT 'd'::regclass::oid});
$standby->stop;
$node->stop;
my ($chunk) = glob($node->data_dir . "/kvfdw/*/$d/*/*.val");
open(my $f, '+<:raw', $chunk) or die "$chunk: $!";
seek($f, 20_000, 0) && read($f, my $byte, 1) && seek($f, 20_000, 0) or die;
print $f chr(ord($byte) ^ 16);
close $f;
$node->start;
is(answer($node, q{DO $$ DECLARE r record; x text; bad int := 0; BEGIN
	FOR r IN TABLE d_heap LOOP
		BEGIN SELECT v INTO STRICT x FROM d WHERE k = r.k; IF x <> r.v THEN RAISE 'a wrong value'; END IF; EXCEPTION WHEN data_corrupted THEN bad := bad + 1; END;
	END LOOP;
	IF bad <> 1 THEN RAISE '% are damaged', bad; END IF; END $$}), '', 'one flipped bit is an error for one row');
like(answer($node, 'SELECT sum(length(v)) FROM d'), qr/error: .*checksum/s, '... which a scan reports');
is(answer($node, q{SELECT count(*) FROM kvfdw_check('d')}), 1, '... and kvfdw_check');
$node->stop;
done_testing();
