# Promise: shards are split where the data are: of keys of several columns, with beginnings of more than 2000 bytes in common
# and values of very different sizes, each part gets about the same bytes; and while
# two sessions append, shards are cut, and a third of the tenants grows, the rows are heap's,
# upwards, downwards and by key (I 18).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('split_bounds', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_splits' => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
sub query { return $node->safe_psql('postgres', @_); }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
sub shards { return query(q{SELECT shards FROM kvfdw_stat_tables WHERE relid = 't'::regclass}); }

my $columns = 'tenant text COLLATE "C", ts timestamptz, id bigint, v text';
query("CREATE TABLE heap ($columns, PRIMARY KEY (tenant, ts, id));" . kv_table('t', $columns, 'tenant, ts, id', "shards '1'"));
# half of the tenants have names with a long beginning in common; one value of fifty is large
my $tenant = q{CASE WHEN n % 2 = 0 THEN repeat('p', 2050) || n ELSE 't' || n END};
my $ts = q{timestamptz '2026-01-01 00:00+00' + make_interval(secs => g / 3)};
my $value = q{rpad(md5(g::text), CASE WHEN g % 50 = 0 THEN 4000 ELSE 30 + g * 53 % 400 END, md5(n::text))};
sub rows { my ($tenants, $from, $to) = @_; return "SELECT $tenant, $ts, g, $value FROM generate_series($from, $to) g, LATERAL (SELECT g * 7 % 12 AS n) x WHERE $tenants"; }

sub as_heap
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $order ('tenant, ts, id', 'tenant DESC, ts DESC, id DESC')
	{
		my $sql = "SELECT count(*), md5(string_agg(md5(s::text), '' ORDER BY n)) FROM (SELECT row_number() OVER () AS n, * FROM (SELECT * FROM T ORDER BY $order) o) s";
		is(query($sql =~ s/\bT\b/t/r), query($sql =~ s/\bT\b/heap/r), "$when: by $order");
	}
	is(query('SELECT count(*) FROM heap h CROSS JOIN LATERAL (SELECT v FROM t WHERE t.tenant = h.tenant AND t.ts = h.ts AND t.id = h.id OFFSET 0) x WHERE x.v = h.v'), query('SELECT count(*) FROM heap'), "$when: by key");
	is(query(q{SELECT count(*) FROM t WHERE tenant = 't3' AND ts >= '2026-01-01 00:05+00'}), query(q{SELECT count(*) FROM heap WHERE tenant = 't3' AND ts >= '2026-01-01 00:05+00'}), "$when: of a tenant");
	return is(kv_check_clean($node, 't'), '', "$when: sound");
}

# ---- equal shares ----
both('INSERT INTO T ' . rows('true', 1, 6000));
my $bytes = query('SELECT sum(octet_length(v)) FROM heap');
for my $most (8, 64)
{
	cmp_ok(query(q{SELECT kvfdw_split('t')}), '>=', $most * 3 / 4, "the table has about $most shards");
	my ($all, $largest, $mean, $empty) = split /\|/, query(q{SELECT sum(live_bytes), max(live_bytes), avg(live_bytes), count(*) FILTER (WHERE entries = 0) FROM kvfdw_stat_shards WHERE relid = 't'::regclass});
	cmp_ok(abs($all - $bytes), '<', 0.3 * $bytes, "$most: the bytes of all are those of the values, about") or diag "$all, $bytes";
	cmp_ok($largest, '<=', 1.5 * $mean, "$most: none has much more than the mean") or diag query(q{SELECT string_agg(live_bytes::text, ' ' ORDER BY position) FROM kvfdw_stat_shards WHERE relid = 't'::regclass});
	is($empty, 0, "$most: none is empty");
	as_heap("$most shards");
}

# ---- two append, each behind its last key, and one of them behind all, while shards are cut ----
{
	my @writers = map
	{
		my $n = $_;
		psql_writer($node, join('', map { my $from = 10000 + $_ * 100; "BEGIN;" . join('', map { "INSERT INTO $_ SELECT repeat('z', 2000) || $n, $ts, g, repeat('a', 300) FROM generate_series($from, $from + 99) g;" } 'heap', 't') . "COMMIT;\n" } 0 .. 29), "append$n")
	} 1, 2;
	my $before = shards();
	for (1 .. 3)
	{
		# not those that have nothing behind their greatest key, but that of the tenants' end
		my ($rc, undef, $err) = $node->psql('postgres', q{SET client_min_messages = warning; SELECT kvfdw_cut('t')}, timeout => 200);
		is($rc, 0, 'shards are cut') or diag $err;
		last unless grep { !ended($_) } @writers;
	}
	is(outcome($_), '', 'a session appends beside that') for @writers;
	cmp_ok(shards(), '>', $before, 'there are more shards');
	as_heap('appended');
}

# ---- a third of the tenants grows, and what is large is split by itself ----
{
	both('INSERT INTO T ' . rows('n % 3 = 0', 20001, 35000));
	query(q{SELECT kvfdw_flush('t')});
	my $largest = q{SELECT max(live_bytes) FROM kvfdw_stat_shards WHERE relid = 't'::regclass};
	my ($before, $splits) = (query($largest), query(q{SELECT splits FROM kvfdw_stat_tables WHERE relid = 't'::regclass}));
	query('ALTER SYSTEM SET kvfdw.test_shard_kb = ' . int($before / 1024 / 2));
	$node->reload;
	ok(eval { wait_for('large shards to be split', sub { query($largest) <= $before * 0.55 }) }, 'shards that have grown are split') or diag query($largest) . " of $before";
	cmp_ok(query(q{SELECT splits FROM kvfdw_stat_tables WHERE relid = 't'::regclass}), '>', $splits, 'some of them');
	query('ALTER SYSTEM RESET kvfdw.test_shard_kb');
	$node->reload;
	as_heap('grown');
	$node->restart;
	as_heap('restarted');
}
$node->stop;
done_testing();
