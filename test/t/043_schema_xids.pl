# Promise: a transaction that a crash has undone added a column, and its xid was given to another
# one that committed: the column is not taken for one of the stored rows.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $node = kv_primary('p');
my $alter = heap_only() ? 'ALTER TABLE t' : 'ALTER FOREIGN TABLE t';
$node->safe_psql('postgres', kv_table('t', 'k int, a text', 'k') . "INSERT INTO t SELECT g, 'a' FROM generate_series(1, 10) g; CHECKPOINT");
my $n = 0;
for my $how ('killed', 'killed', 'power loss')
{
	$n++;
	# nothing of it reaches the WAL's file
	hold_wal($node);
	my $s = in_steps($node, "s$n", "BEGIN; $alter ADD COLUMN b int; INSERT INTO t VALUES (11, 'b', 7); SELECT 'xid ' || pg_current_xact_id();", 'ROLLBACK;');
	step_done($s);
	my ($lost) = slurp_file($s->{w}{out}) =~ /^xid (\d+)/m;
	kill_all($node);
	$how eq 'killed' ? $node->start : power_loss($node);

	# others get the id, and commit
	my $xid = 0;
	$xid = answer($node, 'BEGIN; SELECT pg_current_xact_id(); CREATE TEMP TABLE x (i int); COMMIT') while $xid < $lost;
	$node->safe_psql('postgres', "$alter ADD COLUMN b text");
	is(answer($node, q{INSERT INTO t VALUES (12, 'c', 'text') RETURNING b}), 'text', "$how: the column can be added with another type");
	is(answer($node, q{SELECT string_agg(k || coalesce(b, '-'), ' ' ORDER BY k) FROM t WHERE k > 9}), '10- 12text', 'and the rows are right');
	$node->safe_psql('postgres', "DELETE FROM t WHERE k > 10; $alter DROP COLUMN b");
}
done_testing();
