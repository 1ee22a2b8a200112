# Promise: a value file that nothing names any more leaves its shard's list, and its file goes when
# no mark, no base backup and, at level keys, no redo can need it any more: seconds later at
# full and none, with the next checkpoint at keys (I 14).  Whatever ends the server in
# between, each row is there, each value file that something names too, and in the end no other.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no chunks' if heap_only();
my $node = kv_cluster('retired', 'kvfdw.test_carried' => 0, 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.test_compact' => 'on', max_wal_size => '16GB', wal_level => 'replica');
my $data = $node->data_dir;
plan skip_all => 'needs fault injection' unless has_faults($node);
my @levels = qw(full keys none);

sub run_all { return $node->safe_psql('postgres', join ';', map { (my $s = $_[0]) =~ s/\bTABLE_\b/$_/g; $s } 'heap', map { "t_$_" } @levels); }
sub freeze { my (@which) = @_; return $node->safe_psql('postgres', join ';', map { "SELECT kvfdw_flush('t_$_')" } @which ? @which : @levels); }
sub stat_of { my ($level, $columns) = @_; return $node->safe_psql('postgres', "SELECT $columns FROM kvfdw_stat_tables WHERE relid = 't_$level'::regclass"); }

sub files
{
	my ($level) = @_;
	my $oid = $node->safe_psql('postgres', "SELECT 't_$level'::regclass::oid");
	return scalar(() = glob "$data/kvfdw/5/$oid/0*/*.c*.val");
}

# Rows are heap's, and lists and files agree.
sub sound
{
	my ($when, @which) = @_;
	for my $level (@which ? @which : @levels)
	{
		is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$when: $level has heap's rows");
		is($node->safe_psql('postgres', "SELECT file, problem FROM kvfdw_check('t_$level')"), '', "$when: $level is sound");
		# one that is released meanwhile leaves the directory before it leaves the list
		my $counts;
		my $agree = eval { wait_for('files and lists to agree', sub { $counts = join ' ', files($level), stat_of($level, 'value_files + obsolete_value_files'); return $counts =~ /^(\d+) \1$/ }) };
		ok($agree, "$when: $level has the chunks that it lists, and those that are retired") or diag $counts;
	}
	return;
}

# Until nothing is retired, and the maintainer has freed what was.
sub released
{
	my ($when, @which) = @_;
	for my $level (@which ? @which : @levels)
	{
		ok(eval { wait_for("release of what $level has retired", sub { stat_of($level, 'obsolete_value_files') == 0 }) }, "$when: nothing of $level stays retired");
	}
	ok(eval { wait_for('the maintainer to free it', sub { !(() = glob "$data/kvfdw/dropped.*") }) }, "$when: it is freed");
	return;
}

$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") } @levels));
my $round = 0;
sub fill { my ($n) = @_; $round++; return run_all("INSERT INTO TABLE_ SELECT $round * 10000 + g, rpad(md5((g * $round)::text), 1500 + g * 37 % 3000, md5(g::text)) FROM generate_series(1, $n) g"); }
# Every second row gets a new value, so each value file is half dead.
sub change { $round++; return run_all("UPDATE TABLE_ SET v = rpad(md5((k * $round)::text), 1500 + k * 37 % 3000, md5(k::text)) WHERE k % 2 = $round % 2"); }

# ---- what is counted ----
fill(400);
freeze();
$node->safe_psql('postgres', 'CHECKPOINT');
released('filled');
for my $level (@levels)
{
	my $bytes = $node->safe_psql('postgres', 'SELECT sum(length(v)) FROM heap');
	my ($live, $used) = split /\|/, stat_of($level, 'live_bytes, value_file_bytes');
	cmp_ok($live, '>=', $bytes, "$level: what is live is counted");
	cmp_ok($live, '<=', $used, "$level: and no more than there is");
}

# ---- it goes ----
change();
for my $level (@levels)
{
	my ($live, $used) = split /\|/, stat_of($level, 'live_bytes, value_file_bytes');
	cmp_ok($live, '<', 0.85 * $used, "$level: what was replaced does not count as live");
}
my %before = map { $_ => files($_) } @levels;
freeze();
released('changed', qw(full none));
sound('changed');
cmp_ok(stat_of('keys', 'obsolete_value_files'), '>', 5, 'keys: chunks wait');
is(stat_of('keys', 'obsolete_waiting_for'), 'checkpoint', 'for a checkpoint');
$node->safe_psql('postgres', 'CHECKPOINT');
released('checkpoint', 'keys');
sound('checkpoint');
for my $level (@levels)
{
	wait_for("chunks of $level to be freed", sub { stat_of($level, 'obsolete_bytes, obsolete_waiting_for IS NULL') eq '0|t' });
	pass("$level: nothing is retired");
}

# ---- who looks while it is released counts it once ----
{
	$node->safe_psql('postgres', 'CREATE DATABASE one');
	my $one = sub { return $node->safe_psql('one', "SET kvfdw.stop_points = ''; $_[0]") };
	my $values = "rpad(md5(g::text), 4000, 'x') FROM generate_series(1, 300) g";
	$one->('CREATE EXTENSION kvfdw; ' . kv_table('t', 'k int, v text', 'k') . "INSERT INTO t SELECT g, $values; SELECT kvfdw_flush('t'); UPDATE t SET v = reverse(v) WHERE k > 50");
	worker_stop_points($node, 'value_file_released=wait,free_step=wait');
	$one->("SELECT kvfdw_flush('t')");
	stopped($node, 'value_file_released');
	my $bytes = $one->('SELECT value_file_bytes + obsolete_bytes FROM kvfdw_stat_tables WHERE obsolete_value_files > 5');
	my $look = psql_writer($node, "\\connect one\nSET kvfdw.stop_points = 'stat_freeing=wait';\nSELECT value_file_bytes + obsolete_bytes FROM kvfdw_stat_tables", 'look');
	stopped($node, 'stat_freeing');
	worker_stop_points($node, 'free_step=wait');
	go_on($node, 'value_file_released');
	wait_for('chunks to be released', sub { $one->('SELECT obsolete_value_files FROM kvfdw_stat_tables') == 0 });
	cmp_ok(go_on($node, 'stat_freeing', $look), '<=', $bytes, 'what is released meanwhile is not counted twice');
	worker_stop_points($node, '');
	go_on($node, 'free_step');
	$node->safe_psql('postgres', 'DROP DATABASE one');
}

# ---- a base backup holds it ----
{
	my $backup = $node->background_psql('postgres');
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_start('b', true)");
	change();
	freeze();
	$node->safe_psql('postgres', 'CHECKPOINT');
	wait_for('a mark', sub { stat_of($_, 'obsolete_waiting_for') eq 'backup' }) for @levels;
	cmp_ok(stat_of($_, 'obsolete_value_files'), '>', 5, "$_: chunks wait while a base backup runs") for @levels;
	sound('while a backup runs');
	$backup->query_safe("SELECT 1 FROM pg_backup_stop()");
	$backup->quit;
	released('after the backup');
	sound('after the backup');
}

# ---- killed wherever that may be ----
for my $point (qw(flush_before_files flush_after_files))
{
	for my $level (@levels)
	{
		change();
		my $ready = times_ready($node);
		$node->psql('postgres', "SET kvfdw.stop_points = '$point=kill'; SELECT kvfdw_flush('t_$level')");
		ready_again($node, $ready);
		sound("killed at $point of $level", $level);
	}
}
# Make a process wait at a point, where the server is killed.
sub kill_at
{
	my ($point, $act) = @_;
	worker_stop_points($node, "$point=wait");
	$act->();
	stopped($node, $point);
	worker_stop_points($node, '');
	kill_all($node);
	unlink "$data/kvfdw/waiting.$point";
	restart_killed($node);
	return;
}
for my $point (qw(mark_wanted mark_captured mark_synced edits_appended mark_written value_file_released free_step))
{
	for my $level ($point eq 'free_step' ? 'full' : @levels)
	{
		change();
		kill_at($point, sub {
			$node->safe_psql('postgres', "SET kvfdw.stop_points = ''; SELECT kvfdw_flush('t_$level')");
			$node->safe_psql('postgres', 'CHECKPOINT') if $level eq 'keys' && $point eq 'value_file_released';
		});
		sound("killed at $point of $level", $level);
	}
}
sound('killed for the last time');
freeze();
$node->safe_psql('postgres', 'CHECKPOINT');
released('in the end');
sound('in the end');

# ---- power goes: the mark that counts has its value files ----
for my $with_mark (0, 1)
{
	fill(60);
	$node->safe_psql('postgres', 'CHECKPOINT');
	change();
	if ($with_mark) { freeze(); released('before the power goes', qw(full none)); kill_all($node); }
	else { worker_stop_points($node, 'mark_wanted=wait'); freeze(); stopped($node, 'mark_wanted'); worker_stop_points($node, ''); kill_all($node); }
	unlink "$data/kvfdw/waiting.mark_wanted";
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'another $with_mark'\n");
	restart_killed($node);
	is(tables_differ($node, "t_$_", 'heap', 'k'), '', "power, mark $with_mark: $_ has all rows") for qw(full keys);
	is($node->safe_psql('postgres', "SELECT file, problem FROM kvfdw_check('t_$_')"), '', "power, mark $with_mark: $_ is sound") for @levels;
	is(tables_differ($node, 't_none', 'heap', 'k'), '', "power, mark $with_mark: none has what was in files");
}
ok(-s $node->logfile, 'the server has a log');
$node->stop;
done_testing();
