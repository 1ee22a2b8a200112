# Promise: a table that has data and whose directory is not there, whatever lost it, is
# an error (55000) for every use, on standbys too, and never looks empty; TRUNCATE and
# DROP are the ways out, and putting the directory back. A table without data, and one
# that a dump restores, is empty and no error.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has its files elsewhere' if heap_only();
my $node = kv_primary('p');
my $data = $node->data_dir;

sub create { my ($name, $db) = @_; $node->safe_psql($db // 'postgres', kv_table($name, 'k int, v text', 'k')); return; }
sub marked { my ($name, $db) = @_; return $node->safe_psql($db // 'postgres', "SELECT count(*) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = '$name'::regclass AND refclassid = 'pg_proc'::regclass AND refobjid = 'kvfdw_handler'::regproc"); }

sub missing
{
	my ($server, $sql, $db) = @_;
	my ($rc, $out, $err) = $server->psql($db // 'postgres', "\\set VERBOSITY verbose\n$sql");
	return like($err, qr/ERROR:  55000: data of foreign table "\w+" is missing\nDETAIL:  The catalog says .*"kvfdw\/\d+\/\d+" has none\.\nHINT:  /, "missing: $sql") || diag "$out $err";
}

# ---- who is marked ----

my @unmarked = qw(never rolled_back rolled_back_to truncated dropped_rows_of_savepoint);
my @marked = qw(written same_xact again in_one_command beside prepared twice emptied exception);
create($_) for grep { $_ ne 'same_xact' } @unmarked, @marked;
$node->safe_psql('postgres', 'SELECT * FROM never; UPDATE never SET v = k; DELETE FROM never; INSERT INTO never SELECT 1 WHERE false; SELECT kvfdw_flush($$never$$)');
$node->safe_psql('postgres', "INSERT INTO written VALUES (1, 'one')");
$node->safe_psql('postgres', 'BEGIN;' . kv_table('same_xact', 'k int, v text', 'k') . 'INSERT INTO same_xact VALUES (1); COMMIT');
$node->safe_psql('postgres', 'BEGIN; INSERT INTO rolled_back VALUES (1); ROLLBACK');
$node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; INSERT INTO rolled_back_to VALUES (1); ROLLBACK TO s; COMMIT');
$node->safe_psql('postgres', 'BEGIN; TRUNCATE truncated; INSERT INTO truncated VALUES (1); ROLLBACK');
$node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; INSERT INTO again VALUES (1); ROLLBACK TO s; INSERT INTO again VALUES (2); COMMIT');
# the rollback comes in the command that has made the mark
$node->psql('postgres', "BEGIN;\nSAVEPOINT s;\nINSERT INTO in_one_command SELECT 10 / (2 - g) FROM generate_series(1, 3) g;\nROLLBACK TO s;\nINSERT INTO in_one_command VALUES (2);\nCOMMIT;", on_error_stop => 0);
$node->safe_psql('postgres', q{DO $$ BEGIN BEGIN INSERT INTO exception VALUES (1); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN INSERT INTO exception VALUES (2); END; END $$});
$node->safe_psql('postgres', q{DO $$ BEGIN BEGIN INSERT INTO dropped_rows_of_savepoint VALUES (1); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END; END $$});
$node->safe_psql('postgres', "INSERT INTO emptied VALUES (1); DELETE FROM emptied");

# two first writers, of whom the one that made the store rolls back, and the second has not seen its mark
my $first = $node->background_psql('postgres');
$first->query_safe('BEGIN; INSERT INTO beside VALUES (1);');
$node->safe_psql('postgres', 'INSERT INTO beside VALUES (2)');
$first->query_safe('ROLLBACK;');

# a session that prepares its mark away, and goes on to write
$first->query_safe("BEGIN; INSERT INTO prepared VALUES (1); PREPARE TRANSACTION 'p';");
$first->query_safe("INSERT INTO prepared VALUES (2);");
$first->query_safe("ROLLBACK PREPARED 'p';");
$first->query_safe('INSERT INTO twice VALUES (1); INSERT INTO twice VALUES (2); BEGIN; INSERT INTO twice VALUES (3); SAVEPOINT s; INSERT INTO twice VALUES (4); ROLLBACK TO s; INSERT INTO twice VALUES (5); COMMIT;');
$first->quit;
is(marked('twice'), 1, 'one mark a table');
for my $t (@marked) { cmp_ok(marked($t), '>', 0, "$t is marked"); }
for my $t (@unmarked) { is(marked($t), 0, "$t is not"); }
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM prepared), (SELECT count(*) FROM again), (SELECT count(*) FROM beside)'), '1|1|1', 'rows are there');

# ---- a dump, a copy of the database, a standby ----

$node->safe_psql('postgres', 'CREATE DATABASE restored');
my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump.sql";
$node->run_log([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ]);
$node->psql('restored', slurp_file($dump));
is($node->safe_psql('restored', 'SELECT count(*) FROM written'), 0, 'a table that a plain dump restores is empty');
is($node->safe_psql('restored', "INSERT INTO written VALUES (5, 'five'); SELECT v FROM written"), 'five', 'and can be written');
$node->safe_psql('postgres', 'CREATE DATABASE full_dump');
$node->run_log([ 'pg_dump', '--include-foreign-data=kvfdw', '-f', $dump, $node->connstr('postgres') ]);
$node->psql('full_dump', slurp_file($dump));
is($node->safe_psql('full_dump', 'TABLE written'), '1|one', 'a dump with the rows restores them');

$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE restored');
missing($node, 'SELECT * FROM written', 'copy');
is($node->safe_psql('copy', 'SELECT count(*) FROM never'), 0, 'a table that was never written is empty in a copy of its database');
is($node->safe_psql('copy', 'INSERT INTO never VALUES (1); SELECT count(*) FROM never'), 1, 'and can be filled there');
is($node->safe_psql('restored', 'SELECT count(*) FROM never'), 0, 'which the template does not mind');
$node->safe_psql('restored', 'DROP FOREIGN TABLE written');
missing($node, 'SELECT * FROM written', 'copy');
is($node->safe_psql('copy', "TRUNCATE written; INSERT INTO written VALUES (1, 'own'); SELECT v FROM written"), 'own', 'TRUNCATE makes it usable');

my $standby = kv_standby($node, 's');
is($standby->safe_psql('postgres', 'TABLE written'), '1|one', 'a standby has the rows');
$standby->stop;
rename($standby->data_dir . '/kvfdw', $standby->data_dir . '/kvfdw_elsewhere') or die;
$standby->start;
missing($standby, 'SELECT * FROM written');
missing($standby, 'SELECT count(*) FROM same_xact');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM never'), 0, 'standby: a table without data is empty');
$standby->stop;

# ---- the whole directory ----

$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop;
rename("$data/kvfdw", "$data/kvfdw_elsewhere") or die;
$node->start;
for my $t (@marked) { missing($node, "SELECT * FROM $t"); }
for my $t (@unmarked) { is($node->safe_psql('postgres', "SELECT count(*) FROM $t"), 0, "$t is empty"); }
missing($node, $_) for 'SELECT count(*) FROM written', 'SELECT * FROM written WHERE k = 1', 'EXPLAIN SELECT * FROM written', 'SELECT * FROM written ORDER BY k DESC FOR UPDATE',
  "INSERT INTO written VALUES (2, 'two')", "INSERT INTO written VALUES (2, 'two') ON CONFLICT DO NOTHING", q{COPY written (k) FROM PROGRAM 'echo 7'}, 'UPDATE written SET v = k', 'DELETE FROM written WHERE k = 1',
  'ANALYZE written', q{SELECT kvfdw_relation_size('written')}, q{SELECT kvfdw_check('written')}, q{SELECT kvfdw_flush('written')}, 'BEGIN; TRUNCATE written; ROLLBACK; SELECT * FROM written';
is($node->safe_psql('postgres', q{ALTER FOREIGN TABLE written OPTIONS (ADD wal 'keys'); ALTER FOREIGN TABLE written OPTIONS (DROP wal); ALTER FOREIGN TABLE written RENAME TO renamed; ALTER FOREIGN TABLE renamed RENAME TO written; SELECT 1}), 1, 'it can be altered');
is($node->safe_psql('postgres', "BEGIN; TRUNCATE again; INSERT INTO again VALUES (7, 'new'); COMMIT; SELECT * FROM again"), '7|new', 'TRUNCATE is a way out');
is($node->safe_psql('postgres', "DROP FOREIGN TABLE beside; SELECT count(*) FROM pg_class WHERE relname = 'beside'"), 0, 'DROP is another');
create('beside');
is($node->safe_psql('postgres', 'SELECT count(*) FROM beside'), 0, 'a new table of that name is empty');
$node->stop;
rename("$data/kvfdw", "$data/kvfdw_new") or die;
rename("$data/kvfdw_elsewhere", "$data/kvfdw") or die;
$node->start;
is($node->safe_psql('postgres', 'TABLE written'), '1|one', 'the directory put back brings the rows back');

# ---- one table's ----

my $oid = $node->safe_psql('postgres', "SELECT 'written'::regclass::oid");
my $db = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'postgres'");
for my $part ("kvfdw/$db/$oid", "kvfdw/$db/$oid/00000001", "kvfdw/$db")
{
	$node->stop;
	rename("$data/$part", "$data/aside") or die "$part: $!";
	$node->start;
	missing($node, 'SELECT * FROM written');
	missing($node, "INSERT INTO written VALUES (2, 'two')");
	$node->stop;
	system('rm', '-rf', "$data/$part");
	rename("$data/aside", "$data/$part") or die;
	$node->start;
	is($node->safe_psql('postgres', 'TABLE written'), '1|one', "$part put back");
}

# ---- after a crash ----

create('killed');
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN; INSERT INTO killed VALUES (1);');
kill_all($node);
eval { $open->quit; };
restart_killed($node);
is($node->safe_psql('postgres', 'SELECT count(*) FROM killed'), 0, 'a first row that was not committed leaves an empty table');
is(marked('killed'), 0, 'without a mark');
is($node->safe_psql('postgres', "INSERT INTO killed VALUES (2, 'two'); TABLE killed"), '2|two', 'the next writer makes one');
cmp_ok(marked('killed'), '>', 0, 'which is there');
$node->stop;
done_testing();
