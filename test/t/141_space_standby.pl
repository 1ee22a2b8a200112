# Promise: a standby keeps its own value files within the limit (I 19), whatever its primary does.
# What redo replaces is compacted there automatically, with the primary's checkpoints. Queries see
# what heap has, also after promotion.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no chunks' if heap_only();
my $primary = kv_primary('primary', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 1, 'kvfdw.test_compact' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.max_space_amplification' => 0);
plan skip_all => 'needs fault injection' unless has_faults($primary);
$primary->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
sub both { my ($sql) = @_; return $primary->safe_psql('postgres', join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
both('INSERT INTO T SELECT g, rpad(md5(g::text), 1500 + g * 37 % 3000, md5(g::text)) FROM generate_series(1, 500) g');
my $standby = kv_standby($primary, 'standby', 'kvfdw.max_space_amplification' => 1.5);

sub stat_of { my ($node, $column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM kvfdw_stat_tables WHERE relid = 't'::regclass"); }
sub within
{
	my ($node, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { wait_for("$when: the bound", sub { kill 'HUP', postmaster_runs($node); stat_of($node, 'value_file_bytes <= space_limit AND value_file_bytes < 2500000') eq 't' }) }, "$when: within the bound") || diag(stat_of($node, 't.*'));
}

for my $round (1 .. 12)
{
	both("UPDATE T SET v = rpad(md5((k * $round)::text), 1500 + k * 37 % 3000, md5(k::text)) WHERE k % 3 < 2");
	$primary->safe_psql('postgres', 'CHECKPOINT') if $round % 4 == 0;
}
$primary->wait_for_catchup('standby', 'replay', $primary->lsn('flush'));
cmp_ok(stat_of($primary, 'value_file_bytes'), '>', 8_000_000, 'the primary does not compact');
within($standby, 'standby');
cmp_ok(stat_of($standby, 'compactions'), '>', 0, 'it has compacted by itself');
same_as_heap($standby, 'standby');
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_catchup('standby', 'replay', $primary->lsn('flush'));
ok(eval { wait_for('release', sub { stat_of($standby, 'obsolete_value_files') == 0 || ($primary->safe_psql('postgres', 'CHECKPOINT') && 0) }) }, 'what it has emptied goes with a checkpoint of the primary');

# files that it has not come to free are under the names that it gives to others once it is started again
$standby->stop;
{
	my $dir = $standby->data_dir . '/kvfdw';
	for my $incarnation (0 .. 9) { for my $store (0 .. 4) { append_to_file("$dir/dropped.$incarnation.0.$store.val", 'x' x 100_000) } }
	$standby->append_conf('postgresql.conf', "kvfdw.stop_points = 'maintainer_idle=wait'\n");
	$standby->start;
	stopped($standby, 'maintainer_idle');
	$standby->safe_psql('postgres', 'SELECT count(*) FROM t');
	worker_stop_points($standby, '');
	go_on($standby, 'maintainer_idle');
	wait_for('them to be freed', sub { !(() = glob "$dir/dropped.*.val") });
}
cmp_ok(stat_of($standby, 'obsolete_bytes'), '>=', 0, 'what was not counted is not counted off');
cmp_ok(stat_of($standby, 'obsolete_bytes'), '<', 10_000_000, 'nor more than there is');
same_as_heap($standby, 'started again');
$primary->stop;
$standby->promote;
$standby->safe_psql('postgres', "UPDATE $_ SET v = reverse(v) WHERE k % 2 = 0") for qw(t heap), qw(t heap), qw(t heap);
within($standby, 'promoted');
same_as_heap($standby, 'promoted');
$standby->stop;
done_testing();
