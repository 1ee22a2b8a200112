# Promise: a value file that shards of one split list stays as long as one of them lists it, or a
# mark, a base backup or redo may need it, and goes then, once; its bytes count once all the time
# (I 14).  A shard may be split while its obsolete value files wait.
# Needs a test build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('several', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.compact_workers' => 0, 'kvfdw.test_splits' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.test_compact' => 'off', wal_level => 'replica');
plan skip_all => 'needs fault injection' unless has_faults($node);
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
my $boots = 0;
sub query { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sub stat_of { my ($column) = @_; return query("SELECT $column FROM kvfdw_stat_tables WHERE relid = 't'::regclass") }
sub value_files { return map { s/.*\///r } sort grep { !/dropped/ } glob $node->data_dir . '/kvfdw/5/*/0*/*.val' }
sub files_of { my ($file) = @_; return scalar grep { $_ eq $file } value_files() }
# Both tables, anew, and t split once, with its map durable: all of its value files have several shards.
sub begin
{
	my ($level) = @_;
	query('DROP TABLE IF EXISTS heap; DROP FOREIGN TABLE IF EXISTS t');
	query(kv_table('t', 'k int, v text', 'k', "shards '1', wal '$level'") . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
	query("INSERT INTO $_ SELECT g, rpad(md5((g * 7919 % 1000)::text), 1900, 'v') FROM (SELECT g * 7919 % 1000 AS g FROM generate_series(1, 900) g) g") for qw(t heap);
	query(q{SELECT kvfdw_split('t'); CHECKPOINT});
	return;
}
sub change { my ($sql) = @_; query($sql =~ s/TABLE_/$_/r) for qw(heap t); return }
sub compacting { my ($name) = @_; return psql_writer($node, "SELECT kvfdw_compact('t', true);", $name) }
# The checkpointer is about to make marks of other shards; or it has made all in one batch.
sub others_wait { return wait_for('marks of others', sub { -e $node->data_dir . '/kvfdw/waiting.mark_wanted' || stat_of('obsolete_value_files') == 0 }) }
# Nothing is obsolete, and the directory has what shards list.
sub tidy
{
	my ($when) = @_;
	ok(eval { wait_for('removal', sub { stat_of('obsolete_value_files') == 0 }) }, "$when: nothing stays obsolete") or diag stat_of('obsolete_waiting_for');
	is(scalar(value_files()), stat_of('value_files'), "$when: the directory has the value files that shards list");
	return same_as_heap($node, $when);
}
sub killed
{
	my ($when, $power) = @_;
	worker_stop_points($node, '');
	kill_all($node);
	unlink glob $node->data_dir . '/kvfdw/waiting.*';
	$boots++;
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot $boots'\n") if $power;
	restart_killed($node);
	return same_as_heap($node, $when);
}

for my $level (qw(full keys none))
{
	begin($level);
	cmp_ok(stat_of('shards'), '>', 2, "$level: several shards");

	# ---- one shard empties the files ----
	my @before = value_files();
	my $bytes = stat_of('value_file_bytes');
	change('DELETE FROM TABLE_ WHERE k < 100');
	my $done = query(q{SELECT kvfdw_compact('t')});
	query('CHECKPOINT') if $level eq 'keys';
	ok(eval { wait_for('removal', sub { stat_of('obsolete_value_files') == 0 }) }, "$level: what one shard has emptied does not wait");
	cmp_ok(scalar(grep { files_of($_) } @before), '>', 0, "$level: what others list stays");
	cmp_ok(stat_of('value_file_bytes'), '>', $bytes / 2, "$level: and counts");
	same_as_heap($node, "$level: one has emptied files");

	# ---- all empty them, at the same time ----
	change("UPDATE TABLE_ SET v = reverse(v) WHERE k % 3 = 0");
	worker_stop_points($node, 'mark_wanted=wait');
	my $w = compacting("compact_$level");
	stopped($node, 'mark_wanted');
	ok(eval { wait_for('compactions', sub { query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}) == 0 && stat_of('obsolete_value_files') > 3 }) }, "$level: value files are obsolete in several shards");
	my $there = scalar value_files();
	cmp_ok(stat_of('value_files') + stat_of('obsolete_value_files'), '>=', $there, "$level: all of them are known");
	is(kv_check_clean($node, 't'), '', "$level: none is unknown");

	worker_stop_points($node, '');
	go_on($node, 'mark_wanted');
	unlike(outcome($w), qr/ERROR/, "$level: the compaction has ended");
	query('CHECKPOINT') if $level eq 'keys';
	tidy("$level: all have emptied files");

	# ---- a base backup in between ----
	my $backup = $node->background_psql('postgres');
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_start('b', true)");
	change("UPDATE TABLE_ SET v = reverse(v) WHERE k % 3 = 1");
	$w = compacting("backup_$level");
	unlike(outcome($w), qr/ERROR/, "$level: the compaction ends beside a backup");
	query('CHECKPOINT');
	is(stat_of('obsolete_waiting_for'), 'backup', "$level: what it has emptied waits for the backup");
	$there = scalar value_files();
	query('CHECKPOINT');
	is(scalar(value_files()), $there, "$level: and stays");
	same_as_heap($node, "$level: beside a backup");
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_stop(false)");
	$backup->quit;
	tidy("$level: after the backup");

	# ---- killed in the middle of removal ----
	change("UPDATE TABLE_ SET v = md5(v) || v WHERE k % 4 = 0");
	worker_stop_points($node, 'value_file_released=wait');
	$w = compacting("killed_$level");
	if ($level eq 'keys') { wait_for('the checkpoint', sub { (stat_of('obsolete_waiting_for') // '') eq 'checkpoint' }); psql_writer($node, 'CHECKPOINT;', 'checkpoint'); }
	stopped($node, 'value_file_released');
	killed("$level: killed when the first was about to go");
	outcome($w);
	tidy("$level: killed, and opened");

	# ---- one shard has its mark, and others do not ----
	change("UPDATE TABLE_ SET v = reverse(v) WHERE k % 7 = 0");
	query('CHECKPOINT');
	worker_stop_points($node, 'mark_captured=wait');
	$w = compacting("first_$level");
	stopped($node, 'mark_captured');
	ok(eval { wait_for('compactions', sub { query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}) == 0 && stat_of('obsolete_value_files') > 3 }) }, "$level: value files are obsolete in others, too");
	worker_stop_points($node, 'mark_wanted=wait');
	go_on($node, 'mark_captured');
	others_wait();
	killed("$level: power is lost when the first has a mark", 1);
	outcome($w);
	query('CHECKPOINT');
	tidy("$level: power is back after the first mark");

	change("UPDATE TABLE_ SET v = md5(v) || substr(v, 33) WHERE k % 4 = 1");
	query('CHECKPOINT');
	worker_stop_points($node, 'edits_appended=wait');
	$w = compacting("power_$level");
	stopped($node, 'edits_appended');
	killed("$level: power is lost between a mark and removal", 1);
	outcome($w);
	query('CHECKPOINT');
	tidy("$level: power is back");
}

# ---- a split while files wait for a mark ----
for my $level (qw(full keys none))
{
	begin($level);
	change("UPDATE TABLE_ SET v = reverse(v) WHERE k % 3 = 0");
	worker_stop_points($node, 'mark_wanted=wait');
	my $open = $node->background_psql('postgres');
	# level keys: values of an open transaction that are moved, and not synced before it commits
	$open->query_safe(q{BEGIN; INSERT INTO t SELECT g, rpad(md5(g::text), 1900, 'o') FROM generate_series(2000, 2100) g});
	my $w = compacting("waits_$level");
	stopped($node, 'mark_wanted');
	wait_for('files that wait', sub { stat_of('obsolete_value_files') > 3 });
	my $split = psql_writer($node, q{SELECT kvfdw_split('t');}, 'split');
	my $shards = stat_of('shards');
	ok(eval { wait_for('the split', sub { stat_of('shards') > $shards }) }, "$level: a shard whose value files wait is split");
	$open->query_safe('COMMIT');
	$open->quit;
	query(q{INSERT INTO heap SELECT g, rpad(md5(g::text), 1900, 'o') FROM generate_series(2000, 2100) g});
	if ($level eq 'none')
	{
		killed("$level: killed before the map is durable");
		outcome($_) for $w, $split;
	}
	else
	{
		worker_stop_points($node, '');
		go_on($node, 'mark_wanted');
		unlike(outcome($_), qr/ERROR/, "$level: it ends") for $w, $split;
	}
	query('CHECKPOINT; CHECKPOINT');
	tidy("$level: split");
	killed("$level: split, and killed", $level ne 'none');
	tidy("$level: split, and opened again");
}

# ---- other shards empty files while the checkpointer is about to remove what the first has emptied ----
begin('full');
query('CHECKPOINT');
change('DELETE FROM TABLE_ WHERE k < 100');
worker_stop_points($node, 'obsolete_found=wait');
my @others = (psql_writer($node, q{SELECT kvfdw_compact('t');}, 'found'));
stopped($node, 'obsolete_found');
my $found = stat_of('obsolete_value_files');
change('UPDATE TABLE_ SET v = reverse(v)');
push @others, compacting('beside');
ok(eval { wait_for('compactions', sub { query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}) == 0 && stat_of('obsolete_value_files') > $found }) }, 'value files become obsolete in others, too');
worker_stop_points($node, 'mark_wanted=wait');
go_on($node, 'obsolete_found');
others_wait();
killed('power is lost before the marks of these', 1);
outcome($_) for @others;
query('CHECKPOINT');
tidy('emptied by others in the middle of removal');

# ---- ids of shards are given again while files wait for a checkpoint ----
begin('keys');
for my $round (1 .. 4)
{
	change("UPDATE TABLE_ SET v = reverse(v) WHERE k % 10 = $round");
	query('CHECKPOINT');
}
change('UPDATE TABLE_ SET v = reverse(v) WHERE k % 3 = 0');
query(q{SELECT kvfdw_compact('t')});
ok(eval { wait_for('files that wait', sub { (stat_of('obsolete_waiting_for') // '') eq 'checkpoint' }) }, 'value files wait for a checkpoint');
query(q{SELECT kvfdw_split('t')});
# the next shards get the ids of those with such files, and have few marks
query(q{SELECT pg_current_xact_id()}) for 1 .. 2;
change("INSERT INTO TABLE_ SELECT 10000 + g, 'end' FROM generate_series(1, 100) g");
query(q{SELECT kvfdw_cut('t')});
change("INSERT INTO TABLE_ SELECT 100000 + g, 'after it' FROM generate_series(1, 100) g");
query('CHECKPOINT');
tidy('ids were given again');
$node->stop;
done_testing();
