# Promise: where wal_level is minimal, rows of a table that their transaction has created or truncated
# are not logged. They are there after a kill or power loss behind COMMIT, and gone before it, also
# with savepoints, splits, flushes and checkpoints in the middle (I 10). Later rows are logged.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

plan skip_all => 'heap has no stores of kvfdw' if heap_only();
my $node = kv_cluster('minimal', wal_level => 'minimal', max_wal_senders => 0, max_prepared_transactions => 5, 'kvfdw.flush_after' => 3600);
plan skip_all => 'needs fault injection' unless has_faults($node);

sub rows { my ($t, $from, $to, $word) = @_; return "INSERT INTO $t SELECT g, repeat('$word' || g, 1 + g % 300) FROM generate_series($from, $to) g;"; }
sub has { my ($t) = @_; return answer($node, "SELECT count(*), coalesce(sum(hashtext(v)::bigint), 0) FROM $t"); }
sub wants { my ($rows) = @_; return answer($node, "SELECT count(*), coalesce(sum(hashtext(repeat(w || g, 1 + g % 300))::bigint), 0) FROM ($rows) r(g, w)"); }
sub series { my ($from, $to, $word) = @_; return "SELECT g, '$word' FROM generate_series($from, $to) g"; }

# ---- what is logged ----

sub lsn { return answer($node, 'SELECT pg_current_wal_insert_lsn()'); }
sub logged { my ($sql) = @_; my $from = lsn(); $node->safe_psql('postgres', $sql); return answer($node, "SELECT pg_current_wal_insert_lsn() - '$from'::pg_lsn"); }
my $bytes = 600 * 300;
cmp_ok(logged('BEGIN;' . kv_table('made', 'k int, v text', 'k') . rows('made', 1, 1000, 'a') . 'COMMIT'), '<', $bytes / 4, 'a table made in the transaction: rows are not logged');
cmp_ok(logged(rows('made', 1001, 2000, 'b')), '>', $bytes, 'later rows are');
cmp_ok(logged('BEGIN; TRUNCATE made;' . rows('made', 1, 1000, 'c') . 'COMMIT'), '<', $bytes / 4, 'nor are those of a truncated table');
cmp_ok(logged(rows('made', 1001, 2000, 'd')), '>', $bytes, 'later rows are');
my $all = series(1, 1000, 'c') . ' UNION ALL ' . series(1001, 2000, 'd');
is(has('made'), wants($all), 'rows are right');
power_loss($node);
is(has('made'), wants($all), 'and after power loss');
$node->safe_psql('postgres', kv_table('unused', 'k int, v text', 'k'));
cmp_ok(logged(rows('unused', 1, 1000, 'a')), '>', $bytes, 'rows of a table that was made before are logged');

# ---- before and after COMMIT ----

my $n = 0;
for my $case (
	[ 'nothing', '' ], [ 'flush', q{SELECT kvfdw_flush('%s');} ], [ 'split', q{SELECT kvfdw_flush('%s'); SELECT kvfdw_split('%s');} ], [ 'checkpoint', 'CHECKPOINT;' ])
{
	my ($what, $sql) = @$case;
	for my $kind ('create', 'truncate')
	{
		my $t = "t$n";
		$n++;
		my $middle = $sql =~ s/%s/$t/gr;
		my $old = wants(series(1, 10, 'old'));
		if ($kind eq 'truncate')
		{
			$node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k', "shards '3'") . rows($t, 1, 10, 'old'));
		}
		my $begin = 'BEGIN;' . ($kind eq 'create' ? kv_table($t, 'k int, v text', 'k', "shards '3'") : "TRUNCATE $t;");
		my $script = $begin . rows($t, 1, 600, 'x') . $middle . "UPDATE $t SET v = repeat('y' || k, 1 + k % 300) WHERE k <= 100; DELETE FROM $t WHERE k > 500;" .
			"SAVEPOINT s;" . rows($t, 601, 700, 'undone') . "ROLLBACK TO s;" . rows($t, 601, 700, 'z') . "INSERT INTO $t VALUES (1000, repeat('large', 200000));DELETE FROM $t WHERE k = 1000;";
		my $rows = wants(series(1, 100, 'y') . ' UNION ALL ' . series(101, 500, 'x') . ' UNION ALL ' . series(601, 700, 'z'));
		# killed before the commit record, when marks are made
		my $w = psql_writer($node, "SET kvfdw.stop_points = 'unlogged_marked=wait'; $script COMMIT;", "w$n");
		stopped($node, 'unlogged_marked');
		power_loss($node);
		outcome($w);
		if ($kind eq 'create')
		{
			is(answer($node, "SELECT count(*) FROM pg_class WHERE relname = '$t'"), 0, "$what, $kind: no table after power loss before COMMIT");
		}
		else { is(has($t), $old, "$what, $kind: old rows after power loss before COMMIT"); }
		# rolled back
		$node->safe_psql('postgres', "$script ROLLBACK;");
		is(has($t), $old, "$what, $kind: old rows after ROLLBACK") if $kind eq 'truncate';
		# committed
		$node->safe_psql('postgres', "$script COMMIT;");
		power_loss($node);
		is(has($t), $rows, "$what, $kind: all rows after power loss behind COMMIT");
		$node->safe_psql('postgres', "UPDATE $t SET v = repeat('w' || k, 1 + k % 300) WHERE k <= 50;" . rows($t, 2001, 2010, 'later'));
		kill_all($node);
		$node->start;
		is(has($t), wants(series(1, 50, 'w') . ' UNION ALL ' . series(51, 100, 'y') . ' UNION ALL ' . series(101, 500, 'x') . ' UNION ALL ' . series(601, 700, 'z') . ' UNION ALL ' . series(2001, 2010, 'later')),
			"$what, $kind: with later changes after a kill");
		is(kv_check_clean($node, $t), '', "$what, $kind: sound");
	}
}

# ---- TRUNCATE in a savepoint; twice; a table that is dropped; ALTER that copies ----

$node->safe_psql('postgres', kv_table('s', 'k int, v text', 'k') . rows('s', 1, 10, 'old'));
$node->safe_psql('postgres', 'BEGIN;' . rows('s', 11, 20, 'old') . 'SAVEPOINT a; TRUNCATE s;' . rows('s', 1, 100, 'no') . 'ROLLBACK TO a;' . rows('s', 21, 30, 'old') . 'COMMIT');
power_loss($node);
is(has('s'), wants(series(1, 30, 'old')), 'a TRUNCATE that was rolled back: rows are logged');
$node->safe_psql('postgres', 'BEGIN; TRUNCATE s;' . rows('s', 1, 100, 'no') . 'TRUNCATE s;' . rows('s', 1, 50, 'new') . 'COMMIT');
power_loss($node);
is(has('s'), wants(series(1, 50, 'new')), 'truncated twice');
$node->safe_psql('postgres', 'BEGIN; TRUNCATE s;' . rows('s', 1, 100, 'no') . 'DROP FOREIGN TABLE s; COMMIT');
$node->safe_psql('postgres', kv_table('a', 'k int, v text', 'k', q{wal 'none'}) . rows('a', 1, 500, 'a'));
cmp_ok(logged(q{ALTER FOREIGN TABLE a OPTIONS (SET wal 'full')}), '<', $bytes / 4, 'ALTER to full logs no rows');
power_loss($node);
is(has('a'), wants(series(1, 500, 'a')), 'and they are there');
my ($rc, $out, $err) = $node->psql('postgres', 'BEGIN; TRUNCATE a;' . rows('a', 1, 5, 'p') . q{PREPARE TRANSACTION 'p'});
like($err, qr/cannot PREPARE/, 'PREPARE is refused as ever');
is(has('a'), wants(series(1, 500, 'a')), 'and leaves the old rows');

# ---- marks that cannot be made; no process that makes them; cancel ----

my $load = 'BEGIN; TRUNCATE a;' . rows('a', 1, 50, 'f') . 'COMMIT;';
worker_stop_points($node, 'mark_synced=error');
($rc, $out, $err) = $node->psql('postgres', $load);
like($err, qr/could not make kvfdw tables durable that this transaction has created or truncated/, 'marks cannot be made: an error');
worker_stop_points($node, '');
is(has('a'), wants(series(1, 500, 'a')), 'and the old rows');
worker_stop_points($node, 'mark_captured=wait');
my $w = psql_writer($node, $load, 'canceled');
stopped($node, 'mark_captured');
wait_for('the session', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'KvfdwCheckpointer' OR (query LIKE 'COMMIT%' AND state = 'active')}) > 0 });
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND state = 'active'});
like(outcome($w), qr/canceling statement/, 'COMMIT can be canceled while it waits');
worker_stop_points($node, '');
go_on($node, 'mark_captured');
is(has('a'), wants(series(1, 500, 'a')), 'and the old rows stay');
$node->safe_psql('postgres', $load);
power_loss($node);
is(has('a'), wants(series(1, 50, 'f')), 'the next attempt succeeds');

# ---- another wal_level ----

$node->stop;
$node->append_conf('postgresql.conf', "wal_level = replica\n");
$node->start;
cmp_ok(logged('BEGIN; TRUNCATE a;' . rows('a', 1, 1000, 'r') . 'COMMIT'), '>', $bytes, 'where wal_level is replica, rows are logged');
power_loss($node);
is(has('a'), wants(series(1, 1000, 'r')), 'and there');
done_testing();
