# Promise: a standby, too, passes deleted keys once. Old snapshots there still see their rows. New
# rows that are replayed into a dead range are seen, and so are those that come after a promotion.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has other means' if heap_only();
my $node = kv_primary('p', 'kvfdw.flush_after' => 3600, 'kvfdw.test_compactions' => 'off', 'kvfdw.test_splits' => 'off');
my $rows = 10_000;
my $few = 300;
$node->safe_psql('postgres', kv_table('t', 'k bigint NOT NULL, v text', 'k', "wal 'full'") . "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, $rows) g; SELECT kvfdw_flush('t')");
my $s = kv_standby($node, 's', max_standby_streaming_delay => -1, hot_standby_feedback => 'off');
caught_up($node, $s);

my $state = 'SELECT count(*), min(k), max(k), sum(k) FROM t; SELECT k FROM t ORDER BY k LIMIT 3; SELECT k FROM t ORDER BY k DESC LIMIT 3';
sub primary { $node->safe_psql('postgres', @_); return caught_up($node, $s); }
sub passes
{
	my ($query) = @_;
	my $plan = $s->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $query");
	return $plan =~ /Dead Keys: (\d+)/ ? $1 : 0;
}
my ($up, $down) = ('SELECT k FROM t ORDER BY k LIMIT 1', 'SELECT k FROM t ORDER BY k DESC LIMIT 1');
sub same { my ($what) = @_; return is($s->safe_psql('postgres', $state), $node->safe_psql('postgres', $state), "$what: as on the primary"); }
sub steps_over
{
	my ($what, $least) = @_;
	my ($first, $again) = (passes($up), passes($up));
	cmp_ok($first, '>=', $least, "$what: keys are passed at first");
	cmp_ok($again, '<=', $few, "and $again afterwards");
	return same($what);
}

my $old = in_steps($s, 'old', map { ($_ ? '' : 'BEGIN ISOLATION LEVEL REPEATABLE READ;') . "\\echo step\n$state;" } 0 .. 3);
step_done($old);
primary('DELETE FROM t WHERE k <= 5000');
steps_over('deleted at the head', 5000);
step_go($old);
primary("INSERT INTO t VALUES (2500, 'back'), (1, 'back')");
same('new rows');
is($s->safe_psql('postgres', $up), 1, 'the first of them is seen');
primary("BEGIN; INSERT INTO t SELECT g, 'x' FROM generate_series(3000, 3100) g; ROLLBACK; DELETE FROM t WHERE k < 3000");
passes($up) for 1 .. 3;
cmp_ok(passes($up), '<=', $few, 'deleted again, few are passed');
same('rows that were rolled back');

# work that is open or prepared, when the standby sees it
$node->safe_psql('postgres', "BEGIN; DELETE FROM t WHERE k < 8000; INSERT INTO t VALUES (100, 'prepared'); PREPARE TRANSACTION 'two'");
primary("INSERT INTO t VALUES (20000, '')");
is($s->safe_psql('postgres', $up), 5001, 'a prepared deletion is not seen');
same('prepared');
step_go($old);
primary("COMMIT PREPARED 'two'");
is($s->safe_psql('postgres', $up), 100, 'when it is committed, it is');
passes('SELECT k FROM t WHERE k > 100 ORDER BY k LIMIT 1');
cmp_ok(passes('SELECT k FROM t WHERE k > 100 ORDER BY k LIMIT 1'), '<=', $few, 'and then few keys are passed');
same('committed');

# subtransactions, more than a snapshot of a standby has room for
primary("DO \$\$ BEGIN FOR i IN 8000 .. 8500 LOOP BEGIN DELETE FROM t WHERE k = i; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END \$\$; DELETE FROM t WHERE k = 100");
same('by many subtransactions');
passes($up) for 1 .. 2;
cmp_ok(passes($up), '<=', $few, 'few keys are passed');

primary(q{SELECT kvfdw_flush('t'); CHECKPOINT});
$s->safe_psql('postgres', 'CHECKPOINT');
same('after a freeze');
step_go($old);
step_go($old);
my (undef, @seen) = split /^step\n/m, outcome($old->{w});
is(scalar(grep { $_ eq $seen[0] } @seen), 4, 'the old snapshot sees the same rows all the time') or diag "@seen";
like($seen[0], qr/^$rows\|1\|$rows\|/, 'those of its beginning');

my $last = $node->safe_psql('postgres', $state);
kill_all($node);
$s->promote;
wait_for('the promotion', sub { answer($s, 'SELECT pg_is_in_recovery()') eq 'f' });
is($s->safe_psql('postgres', $state), $last, 'promoted: as the primary was');
$s->safe_psql('postgres', "INSERT INTO t VALUES (7000, 'after')");
is($s->safe_psql('postgres', $up), 7000, 'a row that comes then is seen');
$s->safe_psql('postgres', 'DELETE FROM t WHERE k < 9000');
passes($up);
cmp_ok(passes($up), '<=', $few, 'and few keys are passed');
is(kv_check_clean($s, 't'), '', 'the table is sound');

done_testing();
