# Promise: every snapshot on a hot standby shows a kvfdw table and a heap table that
# are changed together as of one moment, an old snapshot keeps seeing its moment
# while the primary changes and flushes, and remote_apply shows what was committed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";
my $node = kv_primary('p', 'kvfdw.flush_after' => 1);
twin_tables($node);

# pruning of heap tables would wait for snapshots on the standby; kvfdw's flushes do not
my $s = kv_standby($node, 's', max_standby_streaming_delay => -1, hot_standby_feedback => heap_only() ? 'on' : 'off');

# ---- an old snapshot ----

sub fill { my ($from, $to) = @_; return join('', map { "INSERT INTO $_ SELECT w, i, repeat('f' || i, 1 + i % 500) FROM generate_series(1, 3) w, generate_series($from, $to) i;" } 'twin_kv', 'twin_heap'); }
sub on_both { my ($sql) = @_; return "BEGIN;" . join('', map { my $t = $_; $sql =~ s/%s/$t/gr . ';' } 'twin_kv', 'twin_heap') . "COMMIT;"; }
my $state = q{SELECT count(*), md5(string_agg(s::text, ';' ORDER BY w, i)) FROM twin_kv s};
my $reads = "$state;\n" . q{SELECT count(*), md5(string_agg(s::text, ';')) FROM (SELECT * FROM twin_kv ORDER BY w DESC, i DESC) s;
	SELECT count(*), sum(length(v)) FROM twin_kv WHERE w = 2 AND i BETWEEN 100 AND 200;
	SELECT length(v) FROM twin_kv WHERE (w, i) = (1, 7); SELECT length(v) FROM twin_kv WHERE (w, i) = (1, 8); SELECT count(*) FROM twin_kv WHERE (w, i) = (1, 100000);};
$node->safe_psql('postgres', fill(1, 1000) . q{SELECT kvfdw_flush('twin_kv')});
caught_up($node, $s);
my $old = in_steps($s, 'old', map { ($_ ? '' : 'BEGIN ISOLATION LEVEL REPEATABLE READ;') . "\\echo step\n$reads" } 0 .. 6);
step_done($old);
my @changes = (
	q{UPDATE twin_kv SET v = 'new' WHERE i % 3 = 0},
	q{DELETE FROM twin_kv WHERE i % 7 = 0; INSERT INTO twin_kv VALUES (1, 100000, 'young'); SELECT kvfdw_flush('twin_kv')},
	q{INSERT INTO twin_kv VALUES (1, 7, 'back'); CHECKPOINT; SELECT kvfdw_flush('twin_kv')},
	q{UPDATE twin_kv SET v = v || 'again'; CHECKPOINT},
	q{DELETE FROM twin_kv WHERE w = 2; SELECT kvfdw_flush('twin_kv'); CHECKPOINT},
	q{UPDATE twin_kv SET i = i + 5000 WHERE w = 3});
for my $change (@changes)
{
	$node->safe_psql('postgres', $change);
	caught_up($node, $s);
	is(rows_of($s, 'twin_kv', 'w, i'), rows_of($node, 'twin_kv', 'w, i'), 'a new snapshot on the standby sees the change');
	$s->safe_psql('postgres', 'CHECKPOINT');
	step_go($old);
}
step_go($old);
my (undef, @seen) = split /^step\n/m, outcome($old->{w});
is(scalar(@seen), 7, 'the old snapshot was looked at seven times');
is(join('', map { $seen[$_] eq $seen[0] ? '' : "$_: $seen[$_]" } 0 .. $#seen), '', 'and never changed');
like($seen[0], qr/^3000\|/, 'from the state of its beginning');

$node->safe_psql('postgres', 'TRUNCATE twin_kv; TRUNCATE twin_heap;' . fill(1, 300));

# ---- uncommitted, rolled back and prepared work that is replayed ----

my $open = in_steps($node, 'open', "BEGIN; UPDATE twin_kv SET v = 'open'; UPDATE twin_heap SET v = 'open'; SAVEPOINT a; DELETE FROM twin_kv; DELETE FROM twin_heap; ROLLBACK TO a; INSERT INTO twin_kv VALUES (9, 1, 'sub'); INSERT INTO twin_heap VALUES (9, 1, 'sub');", "PREPARE TRANSACTION 'two';", "COMMIT PREPARED 'two';");
step_done($open);
caught_up($node, $s);
for my $what ('unfinished', 'prepared', 'committed')
{
	caught_up($node, $s);
	is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', "$what work is seen as on heap");
	is(answer($s, "SELECT count(*) > 0 FROM twin_kv WHERE v = 'open'"), $what eq 'committed' ? 't' : 'f', 'and not before it is committed');
	step_go($open) if $what ne 'committed';
}
step_go($open);
outcome($open->{w});

# ---- under load ----

# a row for each look that is not as it must be
my $differ = q{SELECT 'kvfdw only ' || left(x::text, 60) FROM (TABLE twin_kv EXCEPT ALL TABLE twin_heap LIMIT 3) x UNION ALL SELECT 'heap only ' || left(x::text, 60) FROM (TABLE twin_heap EXCEPT ALL TABLE twin_kv LIMIT 3) x;};

# replay of a TRUNCATE locks the kvfdw table first, so everybody must
my $points = q{WITH first AS (SELECT FROM twin_kv LIMIT 0) SELECT 'point ' || h.w || ',' || h.i FROM twin_heap h LEFT JOIN LATERAL (SELECT v FROM twin_kv k WHERE k.w = h.w AND k.i = h.i OFFSET 0) k ON true WHERE k.v IS DISTINCT FROM h.v;};
my $order = q{SELECT 'order' WHERE (SELECT md5(string_agg(s::text, ';')) FROM (SELECT * FROM twin_kv ORDER BY w DESC, i DESC) s) IS DISTINCT FROM (SELECT md5(string_agg(s::text, ';' ORDER BY w DESC, i DESC)) FROM twin_heap s);};
my $fixed = "SELECT coalesce(md5(string_agg(s::text, ';' ORDER BY w, i)), '') AS first FROM twin_kv s \\gset\n\\set known :ROW_COUNT\n";
my $changed = "SELECT 'changed' WHERE (SELECT coalesce(md5(string_agg(s::text, ';' ORDER BY w, i)), '') FROM twin_kv s) <> :'first';\n" x 4;
# PostgreSQL has no answer, on heap neither, when a reader with a snapshot waits for a lock that
# replay holds while replay waits for that snapshot: that look is given up.
my $given_up = qr/^psql:.*canceling statement due to lock timeout.*\n/m;
my $patience = "\\set VERBOSITY terse\nSET lock_timeout = '10s';\n";
my $load = start_load($node, 1 .. 2);
load_goes_on($load, 5);
for my $round (1 .. $ENV{KV_ROUNDS} // 2)
{
	my @readers = map { my $r = $_; psql_writer($s, join('', $patience, map { "$differ\n$points\n$order\nBEGIN ISOLATION LEVEL REPEATABLE READ;\n" . ($r == 2 ? "SELECT count(*) FROM acked \\g /dev/null\n" : '') . "$fixed\\if :known\n$changed$differ\n$points\n\\endif\nCOMMIT;\n\\echo ack $_\n" } 1 .. 40), "reader$round.$r", 1) } 1 .. 2;
	for my $r (@readers)
	{
		wait_for('a reader', sub { ended($r) });
		my $looks = reap_writer($r);
		is(slurp_file($r->{out}) =~ s/^ack \d+\n//mgr . slurp_file($r->{err}) =~ s/$given_up//gr, '', "round $round: a reader sees one moment ($looks times)");
		is($looks, 40, 'to its end');
	}
}
stop_load($load);
caught_up($node, $s);
same_rows($node, $s, 'after the load');

# ---- cancelled queries ----

$s->append_conf('postgresql.conf', "max_standby_streaming_delay = 100ms\nhot_standby_feedback = off\n");
$s->reload;
wait_for('no feedback', sub { answer($node, 'SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL') eq '0' });
my $long = in_steps($s, 'long', "BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR SELECT w, i FROM twin_kv ORDER BY w, i; FETCH 3 FROM c;", 'FETCH ALL FROM c;');
step_done($long);
$node->safe_psql('postgres', on_both('DELETE FROM %s') . 'VACUUM twin_heap;' . q{SELECT kvfdw_flush('twin_kv')});
caught_up($node, $s);
append_to_file("$long->{base}.0.go", '');
like(outcome($long->{w}), qr/conflict with recovery|terminating connection/, 'a query in the way of replay is cancelled');
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'which goes on');

# ---- remote_apply ----

$node->append_conf('postgresql.conf', "synchronous_standby_names = 's'\nsynchronous_commit = remote_apply\n");
$node->reload;
wait_for('synchronous replication', sub { answer($node, q{SELECT sync_state FROM pg_stat_replication WHERE application_name = 's'}) eq 'sync' && setting($node, 'synchronous_commit') eq 'remote_apply' });
my @missing;
for my $n (1 .. 15)
{
	$node->safe_psql('postgres', $n % 5 == 0 ? "TRUNCATE twin_kv; INSERT INTO twin_kv VALUES (7, $n, '')" : "INSERT INTO twin_kv VALUES (7, $n, repeat('x', $n * 1000))");
	push @missing, $n if answer($s, "SELECT count(*) FROM twin_kv WHERE w = 7 AND i = $n") ne '1';
}
is("@missing", '', 'with remote_apply the standby shows each row at once');
done_testing();
