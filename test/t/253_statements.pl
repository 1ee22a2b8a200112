# Promise: statements on all rows, or on every few, have the results of heap, in whatever order they meet keys, whether
# these are in runs, in memtables, or in both, and whoever has changed them before.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

use constant ROWS => 3000;

my $node = kv_cluster('p');
sub run { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

# Keys of one column of 8 bytes; of 4 bytes; of text of which the first 8 bytes, or 20, say nothing; of two columns.
my %keys = (
	wide => [ 'k bigint NOT NULL, v text', 'k', 'i::bigint * 1000' ],
	narrow => [ 'k int NOT NULL, v text', 'k', 'i - 1500' ],
	text => [ 'k text NOT NULL, v text', 'k', q{CASE i % 3 WHEN 0 THEN repeat('a', i / 100) || i ELSE 'samebegin' || i END} ],
	long => [ 'k text NOT NULL, v text', 'k', q{'a common beginning of ' || lpad(i::text, 5, '0')} ],
	pair => [ 'a int NOT NULL, b text NOT NULL, v text', 'a, b', q{i / 10, 'b' || i % 10} ]);

# One statement on both tables; the same rows must be touched.
sub both
{
	my ($what, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($kv, $heap) = map { my $t = $_; answer($node, $sql =~ s/%t/$t/gr) } 'kv', 'heap';
	return is($kv, $heap, "$what: $sql");
}
sub twins
{
	my ($what, $key) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(tables_differ($node, 'kv', 'heap', $key), '', $what);
}

for my $kind (sort keys %keys)
{
	my ($columns, $key, $value) = @{ $keys{$kind} };
	for my $flushed (0, 1, 2)
	{
		my $what = "$kind, " . ('in memtables', 'in a run', 'in runs')[$flushed];
		my $insert = sub { "INSERT INTO %t SELECT $value, repeat('v', i % 50) FROM generate_series(1, @{[ROWS]}) i WHERE $_[0];" };
		run("DROP TABLE IF EXISTS heap; CREATE TABLE heap ($columns, PRIMARY KEY ($key));");
		run(heap_only() ? 'DROP TABLE IF EXISTS kv' : 'DROP FOREIGN TABLE IF EXISTS kv');
		run(kv_table('kv', $columns, $key));
		both($what, $insert->('i % 2 = 0'));
		run("SELECT kvfdw_flush('kv')") if $flushed;
		both($what, $insert->('i % 2 = 1'));
		run("SELECT kvfdw_flush('kv')") if $flushed == 2;
		twins("$what: inserted", $key);
		both($what, 'BEGIN; UPDATE %t SET v = v || 1; DELETE FROM %t WHERE length(v) % 4 = 0; ROLLBACK; SELECT count(*), sum(length(v)) FROM %t');
		both($what, 'BEGIN; SELECT count(*) FROM (SELECT FROM %t FOR UPDATE) s; UPDATE %t SET v = v || 2 WHERE length(v) % 3 = 0; COMMIT; SELECT sum(length(v)) FROM %t');
		both($what, 'SELECT count(*) FROM (SELECT FROM %t FOR UPDATE) s; SELECT count(*) FROM (SELECT FROM %t FOR NO KEY UPDATE) s');
		twins("$what: changed", $key);
		both($what, q{WITH d AS (DELETE FROM %t WHERE length(v) % 7 = 0 RETURNING *) SELECT count(*), sum(length(v)) FROM d});
		both($what, 'BEGIN; DELETE FROM %t; SAVEPOINT a; ' . $insert->('i % 5 = 0') . ' ROLLBACK TO a; SELECT count(*) FROM %t; ROLLBACK');
		both($what, 'DELETE FROM %t WHERE length(v) % 5 = 0; SELECT count(*) FROM %t');
		twins("$what: deleted", $key);
		both($what, $insert->('i % 70 = 0') =~ s/;$/ ON CONFLICT DO NOTHING;/r);
		both($what, 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM %t; DELETE FROM %t; SELECT count(*) FROM %t; MOVE ALL FROM c; COMMIT; SELECT count(*) FROM %t');
		both($what, $insert->('i % 3 = 0') . 'DELETE FROM %t; ' . $insert->('i % 2 = 0'));
		run("SELECT kvfdw_flush('kv')");
		twins("$what: and inserted again", $key);
		heap_only() || is(kv_check_clean($node, 'kv'), '', "$what: kvfdw_check");
	}
}
done_testing();
