# Promise: writers of a shard that is split or cut do not wait for a commit that syncs its values, nor for a map to be
# made, however fast keys grow: that is given up.  A split that meets a compaction and fails there leaves the table as it was.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('split_halts', 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.shard_size' => 0, 'kvfdw.max_space_amplification' => 0, 'kvfdw.compact_sort' => 'off', map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
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

# ---- a commit syncs values of the shard, at level keys ----
{
	points_again();
	query(kv_table('synced', 'k int, v text', 'k', "shards '1', wal 'keys'") . q{INSERT INTO synced SELECT g, repeat('s', 300) FROM generate_series(1, 1000) g});
	my $log = -s $node->logfile;
	my $commit = psql_writer($node, q{SET kvfdw.stop_points = 'values_syncing=wait'; INSERT INTO synced VALUES (5000, repeat('e', 3000000))}, 'commit');
	stopped($node, 'values_syncing');
	my $split = psql_writer($node, q{SELECT kvfdw_split('synced')}, 'split_beside');
	wait_for('the split to wait for the commit', sub { query(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%kvfdw_split(%' AND pid <> pg_backend_pid() AND wait_event_type = 'LWLock'}) > 0 });
	is(answer($node, q{SET statement_timeout = '30s'; INSERT INTO synced VALUES (2000, 'written')}), '', 'writers go on while a split waits for a commit to sync');
	is(go_on($node, 'values_syncing', $commit), '', 'the commit is done');
	like(outcome($split), qr/^[2-9]$/m, 'and the split');
	is(query('SELECT count(*), sum(length(v)) FROM synced'), '1002|3300007', 'all rows are there');
	is(kv_check_clean($node, 'synced'), '', 'and sound');
	like(slurp_file($node->logfile, $log), qr/writers waited for at most [0-9.]+ ms at level keys/, 'the log says for how long writers waited, and at which level');
}

# ---- keys grow beyond each end that is made ----
{
	points_again();
	query(kv_table('grows', 'k bigint, v text', 'k', "shards '1'") . "INSERT INTO grows SELECT g, 'first' FROM generate_series(1, 1000) g");
	my $cut = psql_writer($node, q{SET kvfdw.stop_points = 'cut_made=wait'; SELECT kvfdw_cut('grows')}, 'cut');
	stopped($node, 'cut_made');
	my @keys = (10_000, 10_000_000, 10_000_000_000, 10_000_000_000_000);
	while (defined(my $key = shift @keys))
	{
		# nor is one that writes halted while the map is made
		is(answer($node, "SET statement_timeout = '30s'; INSERT INTO grows VALUES ($key, 'grown')"), '', "writers go on beside a cut: $key");
		step_on($node, 'cut_made', sub { ended($cut) });
	}
	like(go_on($node, 'cut_made', $cut), qr/NOTICE:  could not add a shard after shard 0 of foreign table "/, 'it is given up');
	is(shards('grows'), 1, 'nothing is done');
	like(answer($node, q{SELECT kvfdw_cut('grows')}), qr/^2$/m, 'and the next one goes through');
	is(query('SELECT count(*) FROM grows'), 1004, 'with all rows');
	is(kv_check_clean($node, 'grows'), '', 'sound');
}
$node->stop;
done_testing();
