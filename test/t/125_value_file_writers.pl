# Promise: no value file leaves its list that something may still name (I 14): one in which a
# large value is reserved stays while its writer runs, and so does one that entries newer than the
# merge name.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no chunks' if heap_only();
my $node = kv_cluster('writers', 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_compact' => 'on', 'kvfdw.write_buffer_size' => "'64kB'");
my $data = $node->data_dir;
plan skip_all => 'needs fault injection' unless has_faults($node);
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . 'CREATE TABLE heap (k int PRIMARY KEY, v text)');
my $to = 0;
sub fill
{
	my ($n) = @_;
	my $from = $to + 1;
	$to += $n;
	return $node->safe_psql('postgres', join ';', map { "INSERT INTO $_ SELECT g, rpad(md5(g::text), 3000, md5(g::text)) FROM generate_series($from, $to) g" } qw(t heap));
}
# Flush, until nothing is retired and the rest is freed.
sub settle
{
	$node->safe_psql('postgres', q{SELECT kvfdw_flush('t')});
	wait_for('release', sub { $node->safe_psql('postgres', q{SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 't'::regclass}) == 0 });
	wait_for('the maintainer', sub { !(() = glob "$data/kvfdw/dropped.*") });
	return;
}
sub same
{
	my ($when) = @_;
	is(tables_differ($node, 't', 'heap', 'k'), '', "$when: heap's rows");
	is($node->safe_psql('postgres', q{SELECT file, problem FROM kvfdw_check('t')}), '', "$when: sound");
	return;
}
fill(100);
settle();
same('filled');

# ---- a large value is reserved, and its value file closed ----
my $large = q{INSERT INTO T VALUES (-1, repeat('extent', 20000))};
my $w = psql_writer($node, "SET kvfdw.stop_points = 'large_value_reserved=wait'; " . ($large =~ s/\bT\b/t/r) . ';', 'extent');
stopped($node, 'large_value_reserved');
for (1 .. 2)
{
	fill(200);
	settle();
}
is(go_on($node, 'large_value_reserved', $w), '', 'the writer of an extent goes on when its chunk has long been closed');
$node->safe_psql('postgres', $large =~ s/\bT\b/heap/r);
same('extent');
fill(200);
settle();
same('extent moved');

# ---- entries behind the merge name a value file that is closed before it ends ----
fill(5);
$w = psql_writer($node, q{SET kvfdw.stop_points = 'flush_before_merge=wait'; SELECT kvfdw_flush('t');}, 'freeze');
stopped($node, 'flush_before_merge');
fill(300);
is(go_on($node, 'flush_before_merge', $w), "\n", 'a merge goes on when others have closed chunks');
wait_for('release', sub { $node->safe_psql('postgres', q{SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 't'::regclass}) == 0 });
same('merged');
kill_all($node);
restart_killed($node);
same('killed');
settle();
same('gone on with');
ok(-s $node->logfile, 'the server has a log');
$node->stop;
done_testing();
