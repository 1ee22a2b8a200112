# Promise: an upsert counts, on top of the other change, if its row is changed, deleted, moved,
# locked or replaced between its lookup and its write. So does one whose SET is evaluated only
# once, under the row's lock.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('between');
plan skip_all => 'needs a test build (make FAULTS=1)' unless has_faults($node);
$node->safe_psql('postgres', kv_table('t', 'k int, n int, v text', 'k') . 'CREATE SEQUENCE s');

my $upsert = q{INSERT INTO t VALUES (1, 1, 'new') ON CONFLICT (k) DO UPDATE SET n = t.n + 10 RETURNING k, n, v;};
my $put = q{INSERT INTO t VALUES (1, 1, 'put') ON CONFLICT (k) DO UPDATE SET n = excluded.n, v = excluded.v RETURNING k, n, v;};

# What a session put out, without where an error was.
sub said { my ($out) = @_; return $out =~ s/^psql:\S+ //mgr =~ s/\s+\z//r; }

# Start the upsert, stop it before its write, run something else, and let it go on.
sub between
{
	my ($sql, $meanwhile, $what, $expected, $table) = @_;
	$node->safe_psql('postgres', "DELETE FROM t; INSERT INTO t VALUES (1, 0, 'old')");
	my $w = psql_writer($node, "SET kvfdw.stop_points = 'overwrite=wait';\n$sql", $what =~ s/\W+/_/gr);
	stopped($node, 'overwrite');
	$node->safe_psql('postgres', $meanwhile);
	is(said(go_on($node, 'overwrite', $w)), $expected, $what);
	is(answer($node, 'SELECT k, n, v FROM t ORDER BY k'), $table, "$what: the table");
	return;
}

between($upsert, q{UPDATE t SET n = 5, v = 'theirs'}, 'updated meanwhile', '1|15|theirs', '1|15|theirs');
between($upsert, q{SELECT 1}, 'nothing meanwhile', '1|10|old', '1|10|old');
between($upsert, q{DELETE FROM t}, 'deleted meanwhile', '1|1|new', '1|1|new');
between($upsert, q{UPDATE t SET k = 2}, 'moved meanwhile', '1|1|new', "1|1|new\n2|0|old");
between($upsert, q{DELETE FROM t; INSERT INTO t VALUES (1, 7, 'again')}, 'replaced meanwhile', '1|17|again', '1|17|again');
between($upsert, q{INSERT INTO t VALUES (1, 0, 'x') ON CONFLICT (k) DO UPDATE SET n = t.n + 1}, 'upserted meanwhile', '1|11|old', '1|11|old');
between($upsert, q{SELECT kvfdw_flush('t')}, 'frozen meanwhile', '1|10|old', '1|10|old');
between($upsert, q{BEGIN; UPDATE t SET n = 5; SELECT kvfdw_flush('t'); COMMIT; SELECT kvfdw_flush('t')}, 'updated and frozen meanwhile', '1|15|old', '1|15|old');
between($upsert, q{BEGIN; UPDATE t SET n = 5; ROLLBACK}, 'rolled back meanwhile', '1|10|old', '1|10|old');
between($put, q{UPDATE t SET n = 5, v = 'theirs'}, 'put over an update', '1|1|put', '1|1|put');
between($put, q{DELETE FROM t}, 'put after a delete', '1|1|put', '1|1|put');
between($upsert =~ s/n = t.n \+ 10/n = t.n + 10, v = repeat('x', 300000)/r =~ s/n, v;/n, length(v);/r, q{UPDATE t SET n = 5}, 'a large value', '1|15|300000', '1|15|' . 'x' x 300000);
between("BEGIN ISOLATION LEVEL REPEATABLE READ;\n$upsert\nCOMMIT;", q{UPDATE t SET n = 5}, 'above READ COMMITTED',
	'ERROR:  could not serialize access due to concurrent update', '1|5|old');
between("BEGIN ISOLATION LEVEL REPEATABLE READ;\n$upsert\nCOMMIT;", q{DELETE FROM t}, 'deleted, above READ COMMITTED',
	'ERROR:  could not serialize access due to concurrent delete', '');
between("BEGIN ISOLATION LEVEL SERIALIZABLE;\n$upsert\nCOMMIT;", q{DELETE FROM t; SELECT kvfdw_flush('t')}, 'deleted and frozen, above READ COMMITTED',
	'ERROR:  could not serialize access due to concurrent delete', '');
between("BEGIN ISOLATION LEVEL REPEATABLE READ;\n$upsert\nCOMMIT;", q{UPDATE t SET k = 2}, 'moved, above READ COMMITTED',
	'ERROR:  could not serialize access due to concurrent update', '2|0|old');

# One that is still open is waited for.
for my $end ('COMMIT', 'ROLLBACK')
{
	$node->safe_psql('postgres', "DELETE FROM t; INSERT INTO t VALUES (1, 0, 'old')");
	my $w = psql_writer($node, "SET kvfdw.stop_points = 'overwrite=wait';\n$upsert", "open_$end");
	stopped($node, 'overwrite');
	my $other = $node->background_psql('postgres');
	$other->query_safe('BEGIN; UPDATE t SET n = 5');
	append_to_file($node->data_dir . '/kvfdw/continue.overwrite', '');
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted") or die;
	$other->query_safe($end);
	is(said(outcome($w)), $end eq 'COMMIT' ? '1|15|old' : '1|10|old', "an open transaction is waited for: $end");
	unlink $node->data_dir . '/kvfdw/continue.overwrite';
	$other->quit;
}

# What must be evaluated once never is before the row is locked.
for my $set ("n = t.n + nextval('s')", 'n = (SELECT max(x.n) + t.n FROM t x)', "n = t.n + 1 WHERE t.n < nextval('s')", 'k = 3')
{
	my $w = psql_writer($node, "SET kvfdw.stop_points = 'overwrite=wait';\nINSERT INTO t VALUES (1, 1, 'x') ON CONFLICT (k) DO UPDATE SET $set;", 'once');
	is(outcome($w), '', "SET $set does not wait for its write");
}
is(kv_check_clean($node, 't'), '', 'kvfdw_check finds nothing');
done_testing();
