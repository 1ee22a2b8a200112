# Promise: wherever a compaction is when the server is killed or the power goes, and at
# every level, all rows are there, kvfdw_check finds nothing, and no file is left that
# nothing names (I 13, I 14, I 17).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('compact_crash', 'kvfdw.test_carried' => 0, 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
my @levels = qw(full keys none);
my $round = 0;

sub query { return $node->safe_psql('postgres', @_); }
sub directory { my ($level) = @_; my $oid = query("SELECT 't_$level'::regclass::oid"); my ($dir) = glob "$data/kvfdw/5/$oid/0*"; return $dir; }
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") } @levels));
my %dir;

# The table and heap change alike; a third of the values dies.
sub change
{
	my ($level) = @_;
	$round++;
	query(join ';', map { "INSERT INTO $_ SELECT g * 37 % 701, rpad(md5((g * $round)::text), 50 + g * 53 % 4500, 'v') FROM generate_series(1, 700) g WHERE g % 3 = $round % 3 OR $round < 4 ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v; DELETE FROM $_ WHERE k % 23 = $round % 23" } 'heap', "t_$level");
	return;
}

sub sound
{
	my ($level, $when) = @_;
	is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$when: all rows");
	is(kv_check_clean($node, "t_$level"), '', "$when: sound");

	# what nothing names goes when a store has been recovered, at keys when redo has ended; what is released meanwhile leaves
	# the directory before it leaves the list
	my ($known, @files);
	my $agree = eval { wait_for('files and lists to agree', sub {
		$known = query("SELECT value_files + obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 't_$level'::regclass");
		@files = glob "$dir{$level}/*.val";
		return @files == $known;
	}) };
	ok($agree, "$when: the value files are those that are known") or diag scalar(@files) . " of $known";
	return;
}

# A session that compacts, until it waits at a point; the last of those that it comes to.
sub compact_until
{
	my ($level, $point) = @_;
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $session = psql_writer($node, "SET kvfdw.stop_points = '$point=wait'; SET kvfdw.compact_memory = '4MB'; SELECT kvfdw_compact('t_$level', true)", "compact$round");
	stopped($node, $point);
	until (query(q{SELECT phase FROM kvfdw_stat_progress WHERE command = 'compact'}) eq ($point =~ /^flush/ ? 'switching' : $point eq 'compact_chosen' ? 'choosing' : 'moving'))
	{
		step_on($node, $point);
	}
	return $session;
}

# Each point is met by both, at one level or another; with KV_ALL=1 at each.
my $turn = 0;
for my $level (@levels)
{
	query('DELETE FROM heap');
	$round = 0;
	change($level) for 1 .. 4;
	$dir{$level} = directory($level);
	for my $point (qw(compact_chosen compact_slice compact_written flush_before_files flush_after_files))
	{
		for my $how ($ENV{KV_ALL} ? qw(killed power) : $turn++ % 2 ? 'killed' : 'power')
		{
			my $when = "$level, $how at $point";
			query('CHECKPOINT') if $how eq 'power' || $round % 2;
			my %durable = map { $_ => 1 } glob "$dir{$level}/*";
			my $heap_at_none = $level eq 'none' && $how eq 'power';
			change($level) unless $heap_at_none;
			my $session = compact_until($level, $point);
			kill_all($node);
			eval { $session->{handle}->finish };
			if ($how eq 'power')
			{
				# what no mark names may be missing; its value files are synced, so they may be there
				unlink grep { !$durable{$_} && /\.(run|log|tmp)$/ } glob "$dir{$level}/*";
				unlink grep { !$durable{$_} && /\.val$/ && $level ne 'keys' && $round % 2 } glob "$dir{$level}/*";
				$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot$round'");
			}
			restart_killed($node);
			sound($level, $when);
			change($level);
			query("SELECT kvfdw_compact('t_$level')");
			sound($level, "$when, gone on with");
		}
	}
}

# ---- while the mark is made, and where what it does without goes ----
for my $level (@levels)
{
	query('DELETE FROM heap');
	query("DELETE FROM t_$level");
	change($level) for 1 .. 3;
	for my $point (qw(mark_captured mark_synced mark_written value_file_released))
	{
		change($level);
		query("SELECT kvfdw_compact('t_$level')") if $level eq 'keys';
		unlink glob "$data/kvfdw/{waiting,step,continue}.*";
		worker_stop_points($node, "$point=wait");
		my $session = psql_writer($node, "SET kvfdw.stop_points = ''; SELECT kvfdw_compact('t_$level', true);" . ($level eq 'keys' ? 'CHECKPOINT' : ''), "mark$round");
		stopped($node, $point);
		kill_all($node);
		eval { $session->{handle}->finish };
		$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
		$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'mark$round$point'") if $round % 2;
		restart_killed($node);
		sound($level, "$level, killed at $point") unless $level eq 'none' && $round % 2;
		is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$level, at $point: all rows");
	}
}

# ---- a shard that nobody writes, whose flush is given up twice: its key logs have no gap ----
for my $level (@levels)
{
	my $table = "idle_$level";
	query(kv_table($table, 'k int, v text', 'k', "wal '$level', shards '1'") . "INSERT INTO $table SELECT g, repeat(md5(g::text), 100) FROM generate_series(1, 200) g");
	query("SELECT kvfdw_flush('$table'); CHECKPOINT");
	for my $time (1 .. 2)
	{
		unlink glob "$data/kvfdw/{waiting,step,continue}.*";
		my $session = psql_writer($node, "SET kvfdw.stop_points = 'flush_before_merge=wait'; SELECT kvfdw_compact('$table', true)", "idle_$level$time");
		stopped($node, 'flush_before_merge');
		query(q{SELECT pg_cancel_backend(pid) FROM kvfdw_stat_progress WHERE command = 'compact'});
		like(outcome($session), qr/canceling statement/, "$table: cancelled before the merge");
	}
	is(outcome(psql_writer($node, 'CHECKPOINT', "checkpoint_$level")), '', 'a checkpoint completes');
	query("INSERT INTO $table VALUES (1000, 'behind')");
	kill_all($node);
	restart_killed($node);
	is(query("SELECT count(*), max(k) FROM $table"), '201|1000', 'all rows are there after a crash');
	is(kv_check_clean($node, $table), '', 'and sound');
	query("SELECT kvfdw_compact('$table', true)");
	is(query("SELECT count(*), max(k) FROM $table"), '201|1000', 'and when it is compacted');
	is(kv_check_clean($node, $table), '', 'and sound');
}
$node->stop;
done_testing();
