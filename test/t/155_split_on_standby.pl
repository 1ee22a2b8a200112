# Promise: a standby changes its shards by itself, whatever its primary does with its own: it splits and cuts them beside redo, which
# waits while writers of a shard would, and queries, which do not. Killed or without power at any point of that it follows
# again and has heap's rows; so it does when it is promoted, and then nothing is left of shards that have gone (I 14, I 18).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use List::Util qw(max);
use Test::More;
use Time::HiRes;
use KvTest;
use KvReplica;
use KvMaps;
use KvVersions;

plan skip_all => 'heap has no shards' if heap_only();
my $primary = kv_primary('primary', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.shard_size' => 0, 'kvfdw.test_splits' => 'off');
plan skip_all => 'needs fault injection' unless has_faults($primary);
my $round = 0;
sub query { return $primary->safe_psql('postgres', @_); }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
sub change
{
	$round++;
	both("INSERT INTO T SELECT g * 37 % 2001 + $round, rpad(md5((g * $round)::text), 50 + g * 53 % 3000, 'v') FROM generate_series(1, 300) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v; DELETE FROM T WHERE k % 23 = $round % 23; INSERT INTO T SELECT 10000 * $round + g, 'new' FROM generate_series(1, 100) g");
	return;
}
sub stat_of { my ($node, $column) = @_; return answer($node, "SELECT $column FROM kvfdw_stat_tables WHERE relid = 't'::regclass"); }
# Redo makes marks, with which a change of shards is done.
sub settle { my ($node) = @_; query('CHECKPOINT'); caught_up($primary, $node); return; }
sub splits_again { my ($node, $when) = @_; my $before = stat_of($node, 'splits'); return ok(eval { wait_for('a split', sub { stat_of($node, 'splits') > $before || do { change(); settle($node); 0 } }) }, "$when: it splits") || diag(stat_of($node, 't.*')); }

query(kv_table('t', 'k int, v text', 'k', "shards '1'") . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
change() for 1 .. 3;
my $standby = kv_standby($primary, 'standby', 'kvfdw.test_shard_kb' => 48);
my $data = $standby->data_dir;
splits_again($standby, 'beside redo');
caught_up($primary, $standby);
is(stat_of($primary, 'shards'), 1, 'the primary has one shard');
same_as_heap($standby, 'split');

# ---- redo waits for what writers wait for, and nobody else ----
unlink glob "$data/kvfdw/{waiting,step,continue}.*";
worker_stop_points($standby, 'split_halted=wait');
wait_for('a split', sub { -e "$data/kvfdw/waiting.split_halted" || do { change(); settle($standby) unless -e "$data/kvfdw/waiting.split_halted"; 0 } });
my $rows = answer($standby, 'SELECT count(*) FROM t');
change();
my $lsn = $primary->lsn('flush');
ok(eval { wait_for('redo to wait', sub { answer($standby, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'startup' AND wait_event IS NOT NULL}) == 1 }) }, 'redo waits');
is(answer($standby, 'SELECT count(*) FROM t'), $rows, 'a query does not');
is(answer($standby, "SELECT pg_last_wal_replay_lsn() < '$lsn'"), 't', 'redo has not come to the end');
worker_stop_points($standby, '');
go_on($standby, 'split_halted');
caught_up($primary, $standby);
same_as_heap($standby, 'gone on');

# ---- killed, and without power ----
my $kills = 0;
sub files { return glob "$data/kvfdw/5/*/0*/*"; }
sub changed_at { return (Time::HiRes::stat($_[0]))[9]; }
for my $point (qw(split_copied split_prepared split_halted split_completed map_appended mark_captured map_marked map_done))
{
	my $how = $kills++ % 2 ? 'power' : 'killed';
	settle($standby);
	answer($standby, 'CHECKPOINT') if $how eq 'power';
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	worker_stop_points($standby, "$point=wait");
	ok(eval { wait_for("$point", sub { -e "$data/kvfdw/waiting.$point" || do { change(); query('CHECKPOINT'); 0 } }) }, "$point is met");
	kill_all($standby);
	change();
	$standby->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
	if ($how eq 'power')
	{
		# what no mark needs may be missing, and so may what the version log has got since its last sync
		my $log = KvVersions->read(glob "$data/kvfdw/5/*/0*");
		my %needed = map { $_ => 1 } map { $log->names($_->{fields}{files}, $_->{shard}) } map { KvVersions::fields($_); $_ } $log->edits('MARK');
		if ($point !~ /^map_(?:marked|done)$/)
		{
			unlink grep { /\.(?:run|tmp)$/ && !$needed{s{.*/}{}r} } files();
			my ($unsynced) = grep { $_->{offset} >= $log->durable_end } $log->edits;
			$log->cut($unsynced) if $unsynced;
		}
		power_loss($standby);
	}
	else { restart_killed($standby); }
	caught_up($primary, $standby);
	same_as_heap($standby, "$how at $point");
}
splits_again($standby, 'in the end');
change();
caught_up($primary, $standby);

# ---- and promoted ----
$primary->stop;
$standby->promote;
same_as_heap($standby, 'promoted');
cmp_ok(stat_of($standby, 'shards'), '>', 1, 'with shards of its own');
$standby->safe_psql('postgres', "UPDATE $_ SET v = reverse(v) WHERE k % 2 = 0") for qw(t heap);
$standby->safe_psql('postgres', 'CHECKPOINT');
ok(eval { wait_for('the map to be settled', sub { map_is_durable(glob "$data/kvfdw/5/*/0*") }) }, 'the map is settled');
same_as_heap($standby, 'written to');
$standby->stop;
done_testing();
