# Promise: a split that meets a compaction and fails there leaves the table as it was.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('split_halts', 'kvfdw.test_chunk_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.freeze_delay' => 3600, 'kvfdw.shard_size' => 0, 'kvfdw.space_amp' => 0, 'kvfdw.compact_order' => 'off', map { ("kvfdw.test_$_" => 'off') } qw(splits passes compact));
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;

sub query { return $node->safe_psql('postgres', @_); }
sub shards { my ($table) = @_; return query("SELECT shards FROM kvfdw_stat_tables WHERE relid = '$table'::regclass"); }
sub points_again { unlink glob "$data/kvfdw/{waiting,step,continue}.*"; return; }

# ---- a compaction is met ----
{
	query(kv_table('met', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO met SELECT g, repeat('m', 900) FROM generate_series(1, 1000) g; DELETE FROM met WHERE k % 3 = 0});
	# it asks whether somebody compacts the shard, and then somebody does
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'backups_looked=wait,split_met=error'; SELECT kvfdw_split('met')}, 'split');
	stopped($node, 'backups_looked');
	my $pass = psql_writer($node, q{SET kvfdw.stop_points = 'compact_chosen=wait'; SELECT kvfdw_compact('met')}, 'pass');
	stopped($node, 'compact_chosen');
	like(go_on($node, 'backups_looked', $split), qr/ERROR:.*split_met/, 'a split that has met a compaction fails');
	is(go_on($node, 'compact_chosen', $pass) =~ /ERROR/ ? 'failed' : '', '', 'that goes on');
	my ($rc, $out, $err) = $node->psql('postgres', q{SET statement_timeout = '60s'; SELECT kvfdw_split('met')}, timed_out => \my $late, timeout => 120);
	cmp_ok($out || 0, '>', 1, 'and the next split goes through') or diag $err;
	is(kv_check_clean($node, 'met'), '', 'all is sound');
}
$node->stop;
done_testing();
