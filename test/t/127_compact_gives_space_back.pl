# Promise: kvfdw_compact returns the space of dead values without an effect on readers and
# writers: rows are heap's, kvfdw_check finds nothing, and what was moved once is not moved again
# without need.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('compact_model', 'kvfdw.compact_workers' => 0, 'kvfdw.flush_after' => 3600, checkpoint_timeout => '1h');
my $data = $node->data_dir;
my $faults = has_faults($node);
if ($faults) { $node->append_conf('postgresql.conf', 'kvfdw.test_value_file_kb = 64'); $node->restart; }
my @levels = qw(full keys none);
my $tables = join ', ', map { "t_$_" } @levels;

sub run_all { return $node->safe_psql('postgres', join ';', map { (my $s = $_[0]) =~ s/\bTABLE_\b/$_/g; $s } 'heap', map { "t_$_" } @levels); }
sub query { return $node->safe_psql('postgres', @_); }

# Files of a table's values that are in its directory.
sub files
{
	my ($table) = @_;
	my $oid = query("SELECT '$table'::regclass::oid");
	my @chunks = glob "$data/kvfdw/5/$oid/0*/*.val";
	return scalar @chunks;
}

sub same
{
	my ($when) = @_;
	for my $level (@levels)
	{
		is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$when: $level has heap's rows");
		is(kv_check_clean($node, "t_$level"), '', "$when: $level is sound");
	}
	return;
}

# Compact all tables; what of each was moved and freed, and what it waits for.
sub compact
{
	my ($options) = @_;
	return map { $_ => [ split /\|/, query("SELECT moved_bytes, freed_bytes, coalesce(waiting_for, '') FROM kvfdw_compact('t_$_'" . ($options // '') . ')'), -1 ] } @levels;
}

# Bytes that the value files of a table have for each byte of its rows.
sub share { my ($level) = @_; return query("SELECT round(value_file_bytes::numeric / (SELECT sum(length(v)) FROM t_$level), 2) FROM kvfdw_stat_tables WHERE relid = 't_$level'::regclass"); }

# Of every length: none, NULL, a block, more than a write buffer, more than is held at once.
my $value = "CASE g % 11 WHEN 0 THEN '' WHEN 1 THEN NULL WHEN 2 THEN rpad(md5(g::text), 4096, 'x') WHEN 3 THEN rpad(md5(g::text), 20, 'y')
	WHEN 4 THEN rpad(md5(g::text), 30000, 'z') ELSE rpad(md5((g * 7)::text), 100 + g * 37 % 5000, md5(g::text)) END";
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") } @levels));
is(join('|', map { "@$_" } values %{ { compact() } }), '0 0 |0 0 |0 0 ', 'a table without rows has nothing to compact');
run_all("INSERT INTO TABLE_ SELECT g, $value FROM (SELECT i, i * 7919 % 3001 g FROM generate_series(1, 3000) i) s");
run_all("INSERT INTO TABLE_ VALUES (10001, repeat('large', 300000)), (10002, repeat('larger', 800000)), (-5, repeat('first', 250000))");
run_all("UPDATE TABLE_ SET v = v || 'u' WHERE k % 3 = 0");
run_all("UPDATE TABLE_ SET v = reverse(v) WHERE k % 3 = 1");
run_all("DELETE FROM TABLE_ WHERE k % 10 = 5");
same('written');
my %before = map { $_ => share($_) } @levels;

# ---- dead values go ----
my %done = compact();
for my $level (@levels)
{
	my ($moved, $freed, $waiting) = @{ $done{$level} };
	cmp_ok($moved, '>', 0, "$level: values were moved");
	is($waiting, $level eq 'keys' ? 'checkpoint' : '', "$level: waits for what it must");
	cmp_ok($freed, '>', $moved, "$level: more was freed than moved") if $level ne 'keys';
	cmp_ok(share($level), '<', 1.2, "$level: the chunks have little more than the rows");
	cmp_ok($before{$level}, '>', 1.5, "$level: they had");
}
same('compacted');
query('CHECKPOINT');
wait_for('retired chunks to go', sub { query("SELECT sum(obsolete_value_files) FROM kvfdw_stat_tables") == 0 });
is(query("SELECT count(waiting_for) FROM kvfdw_compact('t_keys')"), '0', 'after a checkpoint nothing waits');
for my $level (@levels)
{
	is(files("t_$level"), query("SELECT value_files FROM kvfdw_stat_tables WHERE relid = 't_$level'::regclass"), "$level: has the files that it lists");
}
%done = compact();
is($done{$_}[0], 0, "$_: nothing is moved again for nothing") for @levels;
is(query("SELECT compactions > 0 AND moved_bytes > 0 FROM kvfdw_stat_tables WHERE relid = 't_full'::regclass"), 't', 'passes are counted');
is(query("SELECT count(*) FROM kvfdw_stat_io WHERE kind IN ('compact read', 'compact write') AND calls > 0 AND bytes > 0 AND errors = 0"), '2', 'so is what they read and write');
is(query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}), '0', 'none runs now');

# ---- and values get into the order of keys ----
run_all("UPDATE TABLE_ SET v = v || 'w' WHERE k % 17 = 3");
%done = compact(', true');
cmp_ok($done{$_}[0], '>=', query('SELECT sum(length(v)) FROM heap'), "$_: all is moved for order") for @levels;
same('sorted');
$node->restart;
same('sorted and started again');

# ---- all rows go ----
run_all('DELETE FROM TABLE_ WHERE k > 1');
compact();
query('CHECKPOINT');
same('few rows');
run_all('DELETE FROM TABLE_');
%done = compact();
is($done{$_}[0], 0, "$_: without rows nothing is moved") for @levels;
query('CHECKPOINT');
wait_for('retired chunks to go', sub { query("SELECT sum(obsolete_value_files) FROM kvfdw_stat_tables") == 0 });
cmp_ok(files("t_$_"), '<=', 1, "$_: without rows there are no value files but an open one") for @levels;
is(query('SELECT sum(value_file_bytes) FROM kvfdw_stat_tables'), '0', 'which is empty');
same('no rows');
kill_all($node);
restart_killed($node);
same('no rows after a crash');

# ---- beside writers and readers ----
sub writer
{
	my ($n) = @_;
	my $script = '';
	for my $round (1 .. 12)
	{
		my $from = $n * 1000;
		my $what = $round % 4 == 0 ? "DELETE FROM TABLE_ WHERE k BETWEEN $from AND $from + 999 AND k % 5 = $round % 5"
		  : "INSERT INTO TABLE_ SELECT $from + g, $value FROM (SELECT i * 31 % 400 g FROM generate_series(1, 400) i) s WHERE (g + $round) % 3 > 0 ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v || '$round'";
		$script .= 'BEGIN;' . join(';', map { (my $s = $what) =~ s/\bTABLE_\b/$_/g; $s } 'heap', map { "t_$_" } @levels) . ($round % 5 == 0 ? ";ROLLBACK;\n" : ";COMMIT;\n");
	}
	return psql_writer($node, $script, "writer$n");
}
my @writers = map { writer($_) } 1 .. 4;
my $reader = psql_writer($node, join("\n", map { my $t = "t_$_"; map { "SELECT 'wrong' FROM (SELECT count(*) n, sum(length(v)) FROM $t) s WHERE n < 0; SELECT 'wrong' FROM $t WHERE k IN (SELECT generate_series(1000, 5000, 7)) AND k < 0;" } 1 .. 10 } @levels), 'reader');
my $rounds = 0;
until (!grep { !ended($_) } @writers)
{
	compact($rounds++ % 3 == 0 ? ', true' : '');
	query('CHECKPOINT') if $rounds % 4 == 0;
}
is(outcome($_), '', 'a writer beside compaction') for @writers;
is(outcome($reader), '', 'a reader beside compaction');
same("beside writers, compacted $rounds times");
kill_all($node);
restart_killed($node);
same('beside writers, killed then');
compact();
same('and compacted again');

# ---- who may ----
query('CREATE ROLE other; CREATE TABLE plain (i int)');
like(answer($node, "SET ROLE other; SELECT kvfdw_compact('t_full')"), qr/must be owner/, 'only the owner compacts');
like(answer($node, "SELECT kvfdw_compact('plain')"), qr/not a kvfdw table/, 'and only a kvfdw table');
$node->stop;
done_testing();
