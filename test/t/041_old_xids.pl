# Promise: rows of kvfdw tables stay what they are, on a primary, when PostgreSQL removes from
# pg_xact what no heap table needs: at once, whatever kvfdw.flush_after and the clock say, after a
# crash and a power loss, and while the server runs without the library. VACUUM is not held back
# longer than resolving takes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;
use KvXid;

my $node = kv_primary('p', 'kvfdw.flush_after' => 86400, autovacuum_freeze_max_age => 100_000_000);
my $faults = has_faults($node);
$node->stop;
jump_to($node, 3 * SEGMENT - 32768);
$node->start;

sub on_both { my ($sql) = @_; return join('', map { my $t = $_; $sql =~ s/%s/$t/gr . ';' } 'twin_kv', 'twin_heap'); }

# Rows of many transactions: inserted, changed, deleted, rolled back, locked, prepared.
my $round = 0;
sub change
{
	my ($node) = @_;
	$round++;
	$node->safe_psql('postgres', on_both("INSERT INTO %s SELECT $round, i, repeat('a', i) FROM generate_series(1, 300) i"));
	$node->safe_psql('postgres', on_both("UPDATE %s SET v = 'u$round' WHERE i % 3 = 0"));
	$node->safe_psql('postgres', on_both("DELETE FROM %s WHERE i % 7 = 0"));
	$node->safe_psql('postgres', 'BEGIN;' . on_both("UPDATE %s SET v = 'rolled back'") . on_both("INSERT INTO %s VALUES (100 + $round, 1, 'rolled back')") . 'ROLLBACK');
	$node->safe_psql('postgres', 'BEGIN;' . on_both("UPDATE %s SET v = 's$round' WHERE i = 1") . 'SAVEPOINT a;' . on_both('DELETE FROM %s') . 'ROLLBACK TO a;' . on_both("INSERT INTO %s VALUES ($round, 1000, 'sub')") . 'COMMIT');
	$node->safe_psql('postgres', on_both('SELECT count(*) FROM (SELECT FROM %s FOR UPDATE) s'));
	return;
}
sub twins
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($node, 'twin_kv', 'twin_heap', 'w, i'), '', $what);
	return sound($node, $what);
}
sub settled
{
	my ($node, $boundary) = @_;
	return heap_only() || ok(eval { wait_for('old outcomes to be noted', sub { settled_below($node) >= $boundary }) }, 'what is before ' . $boundary / SEGMENT . ' segments is settled');
}

twin_tables($node);
settled($node, 2 * SEGMENT);
change($node);
freeze_all($node);
twins($node, 'before the next segment has begun');

# ---- the last moment: VACUUM, while nothing has been resolved yet ----

SKIP:
{
	skip 'no test build', 3 unless $faults;
	worker_stop_points($node, 'maintainer_idle=wait');
	stopped($node, 'maintainer_idle');
	change($node);
	burn_to($node, 3 * SEGMENT - 3);
	change($node);
	burn($node, 1000);
	freeze_all($node);
	is((segments($node))[0], 2, 'clog is not truncated before its outcomes are noted');
	twins($node, 'which are read from it');
	$node->safe_psql('postgres', q{ALTER SYSTEM RESET kvfdw.stop_points});
	$node->safe_psql('postgres', q{SELECT pg_reload_conf()});
	go_on($node, 'maintainer_idle');
}
burn_to($node, 3 * SEGMENT + 1000);
settled($node, 3 * SEGMENT);
ok(eval { wait_for('VACUUM to remove a segment', sub { freeze_all($node); (segments($node))[0] == 3 }) }, 'then it is');
twins($node, 'after the outcomes were removed');
$node->restart;
twins($node, 'and a restart');
change($node);
power_loss($node);
twins($node, 'and a power loss');

# ---- by age alone ----

change($node);
my $before = heap_only() ? 0 : answer($node, q{SELECT sum(flushes) FROM kvfdw_stat_tables});
burn($node, 250_000);
ok(heap_only() || eval { wait_for('old versions to be frozen', sub { answer($node, q{SELECT sum(flushes) FROM kvfdw_stat_tables}) > $before }) }, 'versions are frozen when they are old by xids, whatever the delay');

# ---- a transaction and a prepared one that last ----

my $long = in_steps($node, 'long', 'BEGIN;' . on_both("INSERT INTO %s VALUES (50, 1, 'long')"), 'COMMIT;');
step_done($long);
$node->safe_psql('postgres', 'BEGIN;' . on_both("INSERT INTO %s VALUES (51, 1, 'prepared')") . on_both("DELETE FROM %s WHERE i = 5") . "PREPARE TRANSACTION 'p'");
$node->safe_psql('postgres', on_both("INSERT INTO %s SELECT 60, i, 'x' FROM generate_series(1, 50) i"));
burn($node, 250_000);
step_go($long);
step_go($long);
burn($node, 100);
$node->safe_psql('postgres', 'CHECKPOINT');
freeze_all($node);
twins($node, 'a long transaction has ended');
kill_all($node);
$node->start;

# ---- without the library ----

$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
$node->safe_psql('postgres', 'CREATE TABLE other (i int)');
$node->safe_psql('postgres', "BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'older'");
change($node);
if ($faults)
{
	# a flush that fails leaves what it has sealed, and more comes behind it
	worker_stop_points($node, 'flush_before_merge=error');
	isnt($node->psql('postgres', q{SELECT kvfdw_flush('twin_kv')}), 0, 'a freeze fails');
	change($node);
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.stop_points');
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
}
$node->stop;
my $preload = heap_only() ? '' : "shared_preload_libraries = 'kvfdw'\n";
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->start;
$node->safe_psql('postgres', "COMMIT PREPARED 'older'");
$node->stop;
jump_to($node, 5 * SEGMENT);
$node->start;
burn($node, 100);
freeze_all($node);
is((segments($node))[0], 5, 'without the library clog is truncated');
$node->stop;
$node->append_conf('postgresql.conf', $preload);
$node->start;
twins($node, 'the library is back');
$node->safe_psql('postgres', on_both('UPDATE %s SET v = v || 1 WHERE i < 50'));
twins($node, 'and rows can be changed');
settled($node, 5 * SEGMENT);
done_testing();
