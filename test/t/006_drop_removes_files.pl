# Promise: DROP by every road removes the files after COMMIT and not before,
# ROLLBACK of DROP and TRUNCATE brings every row back, a crash at once after
# either leaves no orphan and takes no live data (I 9).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no files of kvfdw' if heap_only();
my $node = kv_cluster('drop');
my $fill = "SELECT g, repeat('x', 1000) FROM generate_series(1, 500) g";

# Directories of stores: <dboid>/<storage id>.
sub stores { return grep { m{^\d+/[^/]+$} && -d $node->data_dir . "/kvfdw/$_" } kv_files($node); }
sub bytes
{
	my $sum = 0;
	$sum += -s $node->data_dir . "/kvfdw/$_" for grep { m{/} && -f $node->data_dir . "/kvfdw/$_" } kv_files($node);
	return $sum;
}
# Nothing of ours is left but what $n live tables need; workers may take a moment.
sub stores_left
{
	my ($n, $what) = @_;
	my $ok = eval { wait_for("$n stores", sub { stores() == $n }) };
	ok($ok, $what) or diag join(', ', kv_files($node));
	return;
}
sub create { my ($name, $db) = @_; $node->safe_psql($db // 'postgres', kv_table($name, 'k int, v text', 'k', "shards '4'") . "INSERT INTO $name $fill"); return; }

stores_left(0, 'a new cluster has no store');
create('a');
stores_left(1, 'a table with rows has one');

# every road
$node->safe_psql('postgres', 'DROP FOREIGN TABLE a');
stores_left(0, 'DROP FOREIGN TABLE');
create('a');
$node->safe_psql('postgres', "SELECT kvfdw_flush('a')");
$node->safe_psql('postgres', 'DROP FOREIGN TABLE a');
stores_left(0, 'DROP FOREIGN TABLE of a frozen table');
$node->safe_psql('postgres', 'CREATE SCHEMA s');
create('s.a');
create('s.b');
$node->safe_psql('postgres', 'DROP SCHEMA s CASCADE');
stores_left(0, 'DROP SCHEMA CASCADE');
create('a');
create('b');
$node->safe_psql('postgres', 'DROP EXTENSION kvfdw CASCADE');
stores_left(0, 'DROP EXTENSION CASCADE');
$node->safe_psql('postgres', 'CREATE EXTENSION kvfdw; CREATE SERVER s2 FOREIGN DATA WRAPPER kvfdw; CREATE FOREIGN TABLE a (k int, v text) SERVER s2; ' . "INSERT INTO a $fill; DROP SERVER s2 CASCADE");
stores_left(0, 'DROP SERVER CASCADE');
$node->safe_psql('postgres', 'CREATE ROLE owner; GRANT ALL ON SCHEMA public TO owner; GRANT USAGE ON FOREIGN SERVER kvfdw TO owner; SET ROLE owner; ' . kv_table('a', 'k int, v text', 'k') . "INSERT INTO a $fill; RESET ROLE; DROP OWNED BY owner");
stores_left(0, 'DROP OWNED');
$node->safe_psql('postgres', 'CREATE DATABASE d');
$node->safe_psql('d', 'CREATE EXTENSION kvfdw');
create('a', 'd');
create('b', 'd');
create('keep');
stores_left(3, 'two databases have stores');
$node->safe_psql('postgres', 'DROP DATABASE d');
stores_left(1, 'DROP DATABASE removes its own and no other');
is($node->safe_psql('postgres', 'SELECT count(*) FROM keep'), 500, 'the other database is untouched');

# by a partitioned parent, in a transaction with a create, a savepoint, a subtransaction that fails
$node->safe_psql('postgres', "CREATE TABLE p (k int, v text) PARTITION BY RANGE (k); CREATE FOREIGN TABLE p1 PARTITION OF p DEFAULT SERVER kvfdw; INSERT INTO p $fill; DROP TABLE p");
stores_left(1, 'DROP of a partitioned parent');
$node->safe_psql('postgres', 'BEGIN; ' . kv_table('a', 'k int, v text', 'k') . "INSERT INTO a $fill; DROP FOREIGN TABLE a; COMMIT");
stores_left(1, 'created and dropped in one transaction');
$node->safe_psql('postgres', 'BEGIN; ' . kv_table('a', 'k int, v text', 'k') . "INSERT INTO a $fill; ROLLBACK");
stores_left(1, 'a table whose creation rolled back');
$node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; ' . kv_table('a', 'k int, v text', 'k') . "INSERT INTO a $fill; ROLLBACK TO s; COMMIT");
stores_left(1, 'a table whose creation was rolled back to a savepoint');
$node->safe_psql('postgres', "BEGIN; DELETE FROM keep; DROP FOREIGN TABLE keep; ROLLBACK");
is($node->safe_psql('postgres', 'SELECT count(*), sum(length(v)) FROM keep'), '500|500000', 'ROLLBACK of DROP');
$node->safe_psql('postgres', "BEGIN; SAVEPOINT s; DROP FOREIGN TABLE keep; ROLLBACK TO s; INSERT INTO keep VALUES (501, repeat('x', 1000)); COMMIT");
is($node->safe_psql('postgres', 'SELECT count(*), sum(length(v)) FROM keep'), '501|501000', 'ROLLBACK TO a savepoint before DROP');
is($node->safe_psql('postgres', 'DELETE FROM keep WHERE k = 501; SELECT count(*) FROM keep'), '500', 'and it takes writes');

# TRUNCATE
my $full = bytes();
$node->safe_psql('postgres', "BEGIN; TRUNCATE keep; INSERT INTO keep VALUES (1, 'new'); ROLLBACK");
is($node->safe_psql('postgres', 'SELECT count(*), sum(length(v)) FROM keep'), '500|500000', 'ROLLBACK of TRUNCATE');
stores_left(1, 'leaves one store');
$node->safe_psql('postgres', "BEGIN; TRUNCATE keep; INSERT INTO keep VALUES (1, 'new'); SAVEPOINT s; TRUNCATE keep; INSERT INTO keep VALUES (2, 'newer'); ROLLBACK TO s; COMMIT");
is($node->safe_psql('postgres', 'SELECT k, v FROM keep'), '1|new', 'TRUNCATE twice, the second rolled back');
stores_left(1, 'TRUNCATE leaves one store');
ok(eval { wait_for('space', sub { bytes() <= $full }) }, 'and gives the space back');
$node->restart;
is($node->safe_psql('postgres', 'SELECT k, v FROM keep'), '1|new', 'the same after a restart');
is($node->safe_psql('postgres', "SELECT string_agg(c::text, ',') FROM kvfdw_check('keep') c"), '', 'kvfdw_check is clean');

# crash right after, and right before
create('gone');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE gone');
kill_all($node);
restart_killed($node);
$node->safe_psql('postgres', 'SELECT count(*) FROM keep');
stores_left(1, 'crash right after DROP: no orphan');
create('stay');
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; DROP FOREIGN TABLE stay; TRUNCATE keep; INSERT INTO keep VALUES (7, $$never$$);');
kill_all($node);
eval { $session->quit; };
restart_killed($node);
is($node->safe_psql('postgres', 'SELECT count(*), sum(length(v)) FROM stay'), '500|500000', 'crash before the COMMIT of DROP: all rows are there');
is($node->safe_psql('postgres', 'SELECT k, v FROM keep'), '1|new', 'crash before the COMMIT of TRUNCATE: all rows are there');
stores_left(2, 'and no orphan of the new generation');
$node->safe_psql('postgres', 'TRUNCATE stay');
kill_all($node);
restart_killed($node);
is($node->safe_psql('postgres', 'SELECT count(*) FROM stay'), '0', 'crash right after TRUNCATE: empty');
$node->safe_psql('postgres', "INSERT INTO stay $fill");
is($node->safe_psql('postgres', 'SELECT count(*), sum(length(v)) FROM stay'), '500|500000', 'and it takes writes');
$session = $node->background_psql('postgres');
$session->query_safe('BEGIN; ' . kv_table('never', 'k int, v text', 'k') . "INSERT INTO never $fill;");
kill_all($node);
eval { $session->quit; };
restart_killed($node);
$node->safe_psql('postgres', 'SELECT count(*) FROM stay');
stores_left(2, 'crash before the COMMIT of CREATE: no orphan');
for my $i (1 .. 3)
{
	create("x$i") for 1;
	$node->safe_psql('postgres', "DROP FOREIGN TABLE x$i; TRUNCATE stay; INSERT INTO stay $fill");
	kill_all($node);
	restart_killed($node);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM stay'), 500, "round $i: live data is never swept");
}
stores_left(2, 'no orphan after rounds of DROP, TRUNCATE and kill');

# a database dropped and a crash; a template copy does not look empty
$node->safe_psql('postgres', 'CREATE DATABASE d');
$node->safe_psql('d', 'CREATE EXTENSION kvfdw');
create('a', 'd');
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE d');
my ($rc, $out, $err) = $node->psql('copy', 'SELECT count(*) FROM a');
like($err, qr/ERROR/, 'a table in a database copied from a template is an error, not empty');
($rc, $out, $err) = $node->psql('copy', "TRUNCATE a; INSERT INTO a VALUES (1, 'own'); SELECT v FROM a");
is($out, 'own', 'TRUNCATE makes it usable') or diag $err;
is($node->safe_psql('d', 'SELECT count(*) FROM a'), 500, 'the template keeps its rows');
$node->safe_psql('postgres', 'DROP DATABASE copy');
$node->safe_psql('postgres', 'DROP DATABASE d');
kill_all($node);
restart_killed($node);
$node->safe_psql('postgres', 'SELECT count(*) FROM stay');
stores_left(2, 'DROP DATABASE and a crash: no orphan');

# dropped while scanned: the scan holds it off, as on heap
$session = $node->background_psql('postgres');
$session->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT k FROM stay ORDER BY k; FETCH 1 FROM c;');
($rc, $out, $err) = $node->psql('postgres', "SET lock_timeout = '200ms'; DROP FOREIGN TABLE stay");
like($err, qr/lock timeout/, 'DROP waits for a scan');
is($session->query_safe('SELECT count(*) FROM stay'), 500, 'the scan goes on');
$session->quit;
# the oid's next owner does not inherit anything
$node->safe_psql('postgres', 'DROP FOREIGN TABLE stay; DROP FOREIGN TABLE keep');
stores_left(0, 'nothing is left at the end');

# a maintainer that is told to go comes back and does its work
my $maintainer = "FROM pg_stat_activity WHERE backend_type = 'kvfdw maintainer'";
my $before = $node->safe_psql('postgres', "SELECT pid $maintainer");
$node->safe_psql('postgres', "CREATE FOREIGN TABLE late (k int, v text) SERVER kvfdw; INSERT INTO late VALUES (1, 'x'); SELECT pg_terminate_backend(pid) $maintainer");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $maintainer AND pid <> $before"), 'a terminated maintainer is started again');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE late');
stores_left(0, 'and removes what is dropped');
$node->stop;
done_testing();
