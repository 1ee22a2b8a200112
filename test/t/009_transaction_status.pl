# Promise: the outcomes of transactions are noted in the runs before PostgreSQL forgets them:
# before dead incarnations are forgotten (I 10), and before clog is truncated, also in tables that
# no session uses after the start.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvXid;

plan skip_all => 'heap has no files of kvfdw' if heap_only();
my $node = kv_cluster('outcomes', checkpoint_timeout => '1h', max_prepared_transactions => 5,
	autovacuum_freeze_max_age => 10_000_000, 'kvfdw.flush_after' => '1h');
my $kvfdw = $node->data_dir . '/kvfdw';
sub create { my ($name, $rows) = @_; $node->safe_psql('postgres', kv_table($name, 'k int, v text', 'k') . ($rows ? "INSERT INTO $name SELECT g, 'v' FROM generate_series(1, $rows) g" : '')); return; }
sub bytes_at { my ($path, $format, $offset) = @_; return unpack("x$offset $format", slurp_file($path)); }

# ---- incarnations ----

# As if the stopped server had been started and stopped $n times: docs/internals/format.md.
sub pretend_starts
{
	my ($n, $xid) = @_;
	my $control = slurp_file("$kvfdw/control");
	my ($incarnation, $dead) = unpack 'x16 L<2', $control;
	substr($control, 16, 8) = pack 'L<2', $incarnation + $n, $dead + $n;
	substr($control, 32 + 16 * $dead, 16 * $n) = join '', map { pack 'L<2 Q<', $incarnation + $_, 0, $xid } 0 .. $n - 1;
	substr($control, -4) = pack 'L<', crc32c(substr($control, 0, -4));
	open(my $f, '>:raw', "$kvfdw/control") or die "control: $!";
	print $f $control;
	close $f;
	return;
}

# A transaction dies with the server, and another one gets its xid and commits.
create('t', 10);
$node->safe_psql('postgres', "SELECT kvfdw_flush('t'); CREATE TABLE burn (i int)");
$node->safe_psql('postgres', 'CHECKPOINT');
hold_wal($node);
my $session = $node->background_psql('postgres');
$session->query_safe("BEGIN; INSERT INTO t VALUES (100, 'never committed');");
my $xid = $session->query_safe('SELECT pg_current_xact_id()');
kill_all($node);
eval { $session->quit; };
restart_killed($node);
my $now = $node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
cmp_ok($now, '<=', $xid, 'the xid is handed out again (else this test proves nothing)');
$node->safe_psql('postgres', "INSERT INTO burn VALUES (1);\n" x ($xid - $now + 5));
is($node->safe_psql('postgres', "SELECT pg_xact_status('$xid')"), 'committed', 'and commits');
is(answer($node, 'SELECT count(*) FROM t'), 10, 'the boundary of its incarnation keeps the dead row out');

# So many starts that the incarnations are forgotten.
$node->stop;
pretend_starts(600, $xid + 1000);
$node->start;
ok(eval { wait_for('dead incarnations to be forgotten', sub { bytes_at("$kvfdw/control", 'L<', 20) == 0 }) }, 'the dead incarnations are forgotten');
is(answer($node, 'SELECT count(*) FROM t'), 10, 'the row is still not there');
$node->restart;
is(answer($node, 'SELECT count(*), max(v) FROM t'), '10|v', 'nor when nobody knows the boundary any more');
is(answer($node, "INSERT INTO t VALUES (100, 'new'); SELECT v FROM t WHERE k = 100"), 'new', 'and its key is free');

# ---- clog ----

# Outcomes that only clog knows: in a key log, in a run, of rolled back rows alone, of a TRUNCATE.
create('logged', 5);
$node->psql('postgres', "BEGIN; INSERT INTO logged VALUES (11, 'aborted'); UPDATE logged SET v = 'aborted' WHERE k = 1; DELETE FROM logged WHERE k = 2; ROLLBACK");
$node->safe_psql('postgres', "BEGIN; UPDATE logged SET v = 'new' WHERE k = 3; SAVEPOINT s; DELETE FROM logged WHERE k = 4; ROLLBACK TO s; SAVEPOINT s2; DELETE FROM logged WHERE k = 5; COMMIT");
create('unfrozen', 1000);
$node->safe_psql('postgres', "SELECT kvfdw_flush('unfrozen')");
$node->safe_psql('postgres', "BEGIN; UPDATE unfrozen SET v = '$_' WHERE k = $_; INSERT INTO unfrozen VALUES (2000 + $_, '$_'); PREPARE TRANSACTION 'p$_'") for 1, 2;
$node->safe_psql('postgres', "SELECT kvfdw_flush('unfrozen')");
$node->safe_psql('postgres', "COMMIT PREPARED 'p1'");
$node->safe_psql('postgres', "ROLLBACK PREPARED 'p2'");
create('aborted', 0);
$node->psql('postgres', "BEGIN; INSERT INTO aborted VALUES (1, 'aborted'); ROLLBACK");
create('emptied', 10);
$node->safe_psql('postgres', "TRUNCATE emptied; INSERT INTO emptied VALUES (1, 'after'); SELECT kvfdw_flush('emptied')");
my $emptied = $node->safe_psql('postgres', q{SELECT format('%s/%s', d.oid, 'emptied'::regclass::oid) FROM pg_database d WHERE datname = current_database()});

my %rows = (
	logged => "1|v\n2|v\n3|new\n4|v",
	unfrozen => "1|1\n2|v\n2001|1",
	aborted => '',
	emptied => '1|after');
sub right_rows
{
	my ($when) = @_;
	is(answer($node, "SELECT k, v FROM $_ WHERE k < 3 OR k > 1000 OR v <> 'v' OR k < 6 AND '$_' = 'logged' ORDER BY k"), $rows{$_}, "$when: $_") for sort keys %rows;
	return;
}

# The server goes on two segments of clog later, and all of heap is frozen.
$node->stop;
jump_to($node, 3 * SEGMENT);
$node->append_conf('postgresql.conf', "kvfdw.flush_after = 1s\n");
$node->start;
ok(eval { wait_for('the maintainer', sub {
	settled_below($node) >= 3 * SEGMENT && bytes_at("$kvfdw/$emptied/00000002/table", 'Q<', 32) == 0
		&& $node->safe_psql('postgres', 'SELECT bool_and(runs <= 1 AND memtable_bytes = 0) AND count(*) = 5 FROM kvfdw_stat_tables') eq 't' }) },
	'the maintainer settles what no session has touched')
  or diag $node->safe_psql('postgres', 'SELECT relname, generation, runs, memtable_bytes FROM kvfdw_stat_tables');
ok(eval { wait_for('VACUUM to remove segments', sub { freeze_all($node); (segments($node))[0] == 3 }) }, 'clog is truncated (else this test proves nothing)');
right_rows('first use after clog was truncated');
$node->restart;
right_rows('and after a start without it');
is(kv_check_clean($node, sort keys %rows), '', 'kvfdw_check is clean');
$node->stop;
done_testing();
