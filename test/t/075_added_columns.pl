# Promise: what old rows show in a column that was added with a default is the same after
# crashes, on standbys and to snapshots from before; an ALTER that a crash or anything else
# has undone leaves nothing of it; and where the rows cannot be had ALTER says so.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $node = kv_primary('p', wal_writer_delay => '10s');
my $alter = heap_only() ? 'ALTER TABLE' : 'ALTER FOREIGN TABLE';
sub run { return $node->safe_psql('postgres', join(';', @_)); }
sub create { my ($name, $wal) = @_; return run(kv_table($name, 'k int, v text', 'k', $wal && "wal '$wal'"), "INSERT INTO $name VALUES (1, 'one'), (2, 'two'), (3, 'three')"); }
my @tables = qw(at_full at_keys at_none);
create($_, s{at_}{}r) for @tables;
create('rewritten');
run('CHECKPOINT');
my $standby = kv_standby($node, 's');

# ---- a crash after COMMIT, one before it ----

my $want = "1|one|5|x\n2|two|5|x\n3|three|5|x";
run(map { ("$alter $_ ADD COLUMN a int NOT NULL DEFAULT 5, ADD COLUMN b text DEFAULT 'x'", "$alter $_ ALTER b SET DEFAULT 'y'") } @tables);
run("$alter rewritten ADD COLUMN id serial");
kill_all($node);
$node->start;
is(answer($node, "SELECT * FROM $_ ORDER BY k"), $want, "$_: after SIGKILL") for @tables;
my $serial = "1|one|1\n2|two|2\n3|three|3";
is(answer($node, 'SELECT * FROM rewritten ORDER BY k'), $serial, 'written anew: after SIGKILL');
caught_up($node, $standby);
is(answer($standby, 'SELECT * FROM at_full ORDER BY k'), $want, 'on the standby');
is(answer($standby, 'SELECT * FROM rewritten ORDER BY k'), $serial, 'written anew: on the standby');
if (!heap_only())
{
	power_loss($node);
	is(answer($node, "SELECT * FROM $_ ORDER BY k"), $want, "$_: after a power loss") for @tables;
	is(answer($node, 'SELECT * FROM rewritten ORDER BY k'), $serial, 'written anew: after a power loss');
}

for my $sql ('c int NOT NULL DEFAULT 7', 'c serial')
{
	my $s = in_steps($node, 's' . length $sql, "BEGIN; $alter at_full ADD COLUMN $sql; INSERT INTO at_full VALUES (4);", 'ROLLBACK;');
	step_done($s);
	kill_all($node);
	$node->start;
	is(answer($node, 'SELECT * FROM at_full ORDER BY k'), $want, "$sql: the ALTER that a crash has undone");
	is(answer($node, "$alter at_full ADD COLUMN c text; SELECT * FROM at_full WHERE k = 1"), '1|one|5|x|', 'and the column can be another one');
	run("$alter at_full DROP COLUMN c");
}

# ---- prepared transactions; snapshots from before; a reader that comes later ----

run("BEGIN", "$alter at_full ADD COLUMN d int DEFAULT 9", "INSERT INTO at_full (k) VALUES (4)", "PREPARE TRANSACTION 'commit'");
run("BEGIN", "$alter at_none ADD COLUMN d int DEFAULT 9", "INSERT INTO at_none (k, a) VALUES (4, 4)", "PREPARE TRANSACTION 'rollback'");
kill_all($node);
$node->start;
run("COMMIT PREPARED 'commit'");
run("ROLLBACK PREPARED 'rollback'");
is(answer($node, 'SELECT k, d FROM at_full ORDER BY k'), "1|9\n2|9\n3|9\n4|9", 'COMMIT PREPARED after a crash');
is(answer($node, 'SELECT * FROM at_none ORDER BY k'), $want, 'ROLLBACK PREPARED after a crash');
caught_up($node, $standby);
is(answer($standby, 'SELECT k, d FROM at_full ORDER BY k'), "1|9\n2|9\n3|9\n4|9", 'the same on the standby');

my $old = in_steps($node, 'old', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;', 'SELECT k, e FROM at_none ORDER BY k; COMMIT;');
step_done($old);
run('DELETE FROM at_none', "$alter at_none ADD COLUMN e int DEFAULT 8");
step_go($old);
step_go($old);
reap_writer($old->{w});
like(slurp_file($old->{w}{out}), qr/^1\n1\|8\n2\|8\n3\|8$/m, 'a snapshot from before sees the default in rows that are gone');

# ---- a function that looks into the table while its rows are written anew ----

create('counted');
run("CREATE FUNCTION counted_rows() RETURNS bigint VOLATILE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM counted); END'",
	"$alter counted ADD COLUMN n bigint DEFAULT counted_rows()");
is(answer($node, 'SELECT k, n FROM counted ORDER BY k'), "1|3\n2|3\n3|3", 'a default that reads the table sees all its rows');
if (!heap_only())
{
	run("CREATE FUNCTION delete_one() RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN DELETE FROM counted WHERE k = 2; RETURN 1; END'");
	my (undef, undef, $busy) = $node->psql('postgres', "\\set VERBOSITY verbose\n$alter counted ADD COLUMN m int DEFAULT delete_one()");
	like($busy, qr/ERROR:  55006: cannot change foreign table "counted" while its rows are being rewritten/, 'one that writes to it is refused');
	is(answer($node, 'SELECT k, n FROM counted ORDER BY k'), "1|3\n2|3\n3|3", 'and the table is as it was');
}

# ---- a primary key of a parent declares NOT NULL of the tables that inherit from it ----

run('CREATE TABLE parent (k int, v int)', heap_only() ? 'CREATE TABLE child () INHERITS (parent)' :
	"CREATE FOREIGN TABLE child () INHERITS (parent) SERVER kvfdw OPTIONS (key 'k')", 'INSERT INTO child VALUES (1, NULL)');
my (undef, undef, $refused) = $node->psql('postgres', "\\set VERBOSITY verbose\nALTER TABLE parent ADD PRIMARY KEY (v)");
like($refused, qr/ERROR:  23502: column "v" of relation "child" contains null values/, 'a primary key of the parent, and NULLs in a child');

if (!heap_only())
{
	# ---- the standby is promoted, and goes on from there ----
	$standby->promote;
	is(answer($standby, "INSERT INTO at_full (k, a) VALUES (5, 5); SELECT k, a, b, d FROM at_full WHERE k IN (1, 5) ORDER BY k"), "1|5|x|9\n5|5|y|9", 'a promoted standby');

	# ---- where the rows cannot be had ----
	run('CREATE DATABASE copy TEMPLATE postgres');
	my ($rc, $out, $err) = $node->psql('copy', "\\set VERBOSITY verbose\n$alter at_full ADD COLUMN f int DEFAULT 1");
	like($err, qr/ERROR:  55000: data of foreign table "at_full" is missing/, 'a copy of the database');
	is($node->safe_psql('copy', "$alter at_full ADD COLUMN g int; TRUNCATE at_full; $alter at_full ADD COLUMN f int DEFAULT 1; INSERT INTO at_full (k, a) VALUES (1, 2); SELECT * FROM at_full"), '1||2|y|9||1', 'its table can be emptied, and used');
	run(kv_table('never', 'k int', 'k'));
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$node->restart;
	($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nLOAD 'kvfdw';\n$alter at_full ADD COLUMN f int DEFAULT 1");
	like($err, qr/ERROR:  55000: .*HINT:[^\n]*shared_preload_libraries/s, 'loaded too late: an error');
	is(run("$alter at_full ADD COLUMN f int", "$alter never ADD COLUMN f int NOT NULL DEFAULT 1", 'SELECT 1'), '1', 'but where no rows would show it');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\n");
	$node->restart;
	is(answer($node, 'SELECT * FROM at_full WHERE k < 3 ORDER BY k'), "1|one|5|x|9|\n2|two|5|x|9|", 'with it again: the rows are right');
}
done_testing();
