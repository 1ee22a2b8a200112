# Promise: logs and runs that a base backup has kept are removed after it, and files that are being
# written then are not: those of a split, of a flush and of a compaction job (I 14).
# Needs a test build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no files of shards' if heap_only();
my $node = kv_cluster('tidy', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.compact_workers' => 0, 'kvfdw.test_splits' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.test_compact' => 'off', wal_level => 'replica');
plan skip_all => 'needs fault injection' unless has_faults($node);
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
my @tables = qw(splits flushes moves);
sub query { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sub change { my ($sql) = @_; query($sql =~ s/TABLE_/$_/r) for 'heap', @tables; return }
sub files
{
	my ($table) = @_;
	my $relid = query("SELECT '$table'::regclass::oid");
	return map { s/.*\///r } sort grep { /[.](?:log|run)$/ } glob $node->data_dir . "/kvfdw/5/$relid/0*/*";
}
sub same
{
	my ($when) = @_;
	for my $table (@tables)
	{
		is(tables_differ($node, $table, 'heap', 'k'), '', "$when: $table has heap's rows");
		is(kv_check_clean($node, $table), '', "$when: $table is sound");
	}
	return;
}

for my $level (qw(full keys none))
{
	query('DROP TABLE IF EXISTS heap; CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { "DROP FOREIGN TABLE IF EXISTS $_;" . kv_table($_, 'k int, v text', 'k', "shards '1', wal '$level'") } @tables));
	change("INSERT INTO TABLE_ SELECT g, rpad(md5(g::text), 1500, 'v') FROM generate_series(1, 300) g");
	query('CHECKPOINT');

	# ---- what a backup keeps ----
	my $backup = $node->background_psql('postgres');
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_start('b', true)");
	my %kept = map { $_ => {} } @tables;
	for my $round (1 .. 3)
	{
		# the second flush replaces what no mark names
		for my $part (0 .. 1)
		{
			change("UPDATE TABLE_ SET v = md5(v) || substr(v, 33) WHERE k % 3 = $round % 3 AND k % 2 = $part");
			query("SELECT kvfdw_flush('$_')") for @tables;
			for my $table (@tables) { $kept{$table}{$_} = 1 for files($table) }
		}
		query('CHECKPOINT');
	}
	for my $table (@tables) { is(join(' ', grep { my $f = $_; !grep { $_ eq $f } files($table) } sort keys %{ $kept{$table} }), '', "$level: a backup keeps the files of $table") }
	worker_stop_points($node, 'checkpoint_before_flush=wait,mark_wanted=wait');
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_stop(false)");
	$backup->quit;

	# ---- it has ended, and others write files while what it has kept is removed ----
	change("DELETE FROM TABLE_ WHERE k % 2 = 0");
	my $checkpoint = psql_writer($node, 'CHECKPOINT;', "checkpoint_$level");
	stopped($node, 'checkpoint_before_flush');
	my %w = (
		split_completed => psql_writer($node, q{SET kvfdw.stop_points = 'split_completed=wait'; SELECT kvfdw_split('splits');}, "split_$level"),
		flush_before_files => psql_writer($node, q{SET kvfdw.stop_points = 'flush_before_files=wait'; SELECT kvfdw_flush('flushes');}, "flush_$level"),
		compact_written => psql_writer($node, q{SET kvfdw.stop_points = 'compact_written=wait'; SELECT kvfdw_compact('moves', true);}, "compact_$level"));
	stopped($node, $_) for sort keys %w;
	worker_stop_points($node, '');
	is(go_on($node, 'checkpoint_before_flush', $checkpoint), '', "$level: a checkpoint is complete");
	unlike(go_on($node, $_, $w{$_}), qr/ERROR/, "$level: what waited at $_ ends well") for sort keys %w;
	same("$level: files were written while others were removed");
	change("UPDATE TABLE_ SET v = reverse(v) WHERE k % 5 = 0");
	query("SELECT kvfdw_flush('$_')") for @tables;
	query('CHECKPOINT') for 1 .. 2;
	for my $table (@tables)
	{
		my %now = map { $_ => 1 } files($table);
		ok(eval { wait_for('removal', sub { %now = map { $_ => 1 } files($table); !grep { $now{$_} } keys %{ $kept{$table} } }) }, "$level: what the backup has kept of $table is removed") or diag join ' ', grep { $now{$_} } sort keys %{ $kept{$table} };
	}
	kill_all($node);
	restart_killed($node);
	same("$level: killed");
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'after $level'\n");
	if ($level ne 'none')
	{
		kill_all($node);
		restart_killed($node);
		same("$level: power is lost");
	}
}
$node->stop;
done_testing();
