# Promise: a compaction at a pace rests while it flushes the index, too, and has no CPU for itself
# for long. It does not rest if another process waits for that flush, or if so much was written in
# between that the next flush is due.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('compact_pace', 'kvfdw.compact_sort' => 'off', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_compactions' => 'off', 'kvfdw.test_compact' => 'off', 'kvfdw.memtable_memory' => 16, 'kvfdw.test_space_look' => 200);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $rows = 30_000;
my $point = 'compact_flush_rests';

sub query { return $node->safe_psql('postgres', @_); }
sub passes { return query(q{SELECT compactions FROM kvfdw_stat_tables WHERE relid = 't'::regclass}); }

query(kv_table('t', 'k int, v text', 'k') . "INSERT INTO t SELECT k, rpad(md5(k::text), 300, 'v') FROM generate_series(1, $rows) k; SELECT kvfdw_flush('t')");

# Overwrite little by little, up to somewhere between the mark from which it is compacted and the bound, where nobody waits for it.
my $round = 0;
sub until_rest
{
	return wait_for('a rest', sub {
		return 1 if -e $node->data_dir . "/kvfdw/waiting.$point";
		$round++;
		query("SET kvfdw.stop_points = ''; UPDATE t SET v = rpad(md5((k + $round)::text), 300, 'v') WHERE k % 25 = $round % 25; SELECT pg_sleep(0.2)");
		return 0;
	});
}

worker_stop_points($node, "$point=wait");
ok(eval { until_rest() }, 'a compaction rests while it freezes') or diag $@;
ok(eval { step_on($node, $point) }, 'and again') or diag $@;

# Somebody waits for the shard that a compaction flushes: it rests no more.
sub does_not_rest_for
{
	my ($function, $does) = @_;
	my $w = psql_writer($node, "SET kvfdw.stop_points = ''; UPDATE t SET v = v WHERE k = 1; SELECT FROM $function", $function =~ s/\W//gr);
	my $seen = 0;
	wait_for('it to wait', sub { $seen = query("SELECT count(*) FROM pg_stat_activity WHERE strpos(query, \$\$$function\$\$) > 0 AND wait_event_type = 'Extension' AND pid <> pg_backend_pid()") ? $seen + 1 : 0; $seen == 3 });
	step_on($node, $point, sub { ended($w) });
	ok(eval { wait_for($does, sub { ended($w) }) }, "not where $does waits for it");
	return is(outcome($w), '', 'which goes on then');
}
does_not_rest_for(q{kvfdw_flush('t')}, 'a freeze');
ok(eval { until_rest() }, 'the next rests') or diag $@;
does_not_rest_for(q{kvfdw_compact('t')}, 'a compaction by hand');

# in the last flush of a compaction job: one that comes before it would leave nothing for the next
sub until_rest_at_end
{
	until_rest();
	return 1 if query(q{SELECT phase FROM kvfdw_stat_progress WHERE command = 'compact'}) eq 'switching';
	step_on($node, $point, sub { !query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}) });
	return 0;
}
ok(eval { wait_for('a rest', \&until_rest_at_end) }, 'one rests at the end of a pass') or diag $@;
my $passes = passes();
# who locks rows does not wait for room
query("SET kvfdw.stop_points = ''; SELECT count(*) FROM (SELECT FROM t FOR UPDATE) s");
step_on($node, $point, sub { passes() > $passes });
cmp_ok(passes(), '>', $passes, 'nor where the next freeze is due');
ok(eval { until_rest() }, 'the next rests') or diag $@;
does_not_rest_for(q{kvfdw_split('t')}, 'a split by hand');
worker_stop_points($node, '');
go_on($node, $point);
is(kv_check_clean($node, 't'), '', 'it is sound');
is(query('SELECT count(*), sum((length(v) = 300)::int) FROM t'), "$rows|$rows", 'and has all rows');
done_testing();
