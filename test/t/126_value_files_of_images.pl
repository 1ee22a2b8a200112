# Promise: a value file stays as long as the mark lists it that a power loss would lead back to
# (I 14): one that was captured before the value file left its list and is made behind that, and
# one that is older than an edit which a crash has left.  So do its logs, also those of a mark
# that failed behind its rename, as long as that is there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no chunks' if heap_only();
my $node = kv_cluster('marks', 'kvfdw.test_carried' => 0, 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.test_compact' => 'on');
my $data = $node->data_dir;
plan skip_all => 'needs fault injection' unless has_faults($node);
my @levels = qw(full keys none);
my $round = 0;
sub run_all { return $node->safe_psql('postgres', join ';', map { (my $s = $_[0]) =~ s/\bTABLE_\b/$_/g; $s } 'heap', map { "t_$_" } @levels); }
sub change { $round++; return run_all("UPDATE TABLE_ SET v = rpad(md5((k * $round)::text), 1500 + k * 37 % 3000, md5(k::text)) WHERE k % 2 = $round % 2"); }
sub retired { my ($level) = @_; return $node->safe_psql('postgres', "SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 't_$level'::regclass"); }
# The server is killed, and its machine, with whatever waits at these points.
my $boots = 0;
sub power
{
	worker_stop_points($node, '');
	kill_all($node);
	unlink glob "$data/kvfdw/waiting.*";
	$boots++;
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot $boots'\n");
	restart_killed($node);
	return;
}
sub same
{
	my ($when) = @_;
	for my $level (@levels)
	{
		is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$when: $level has heap's rows");
		is(answer($node, "SELECT file, problem FROM kvfdw_check('t_$level')"), '', "$when: $level is sound");
	}
	return;
}
$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") } @levels));
run_all('INSERT INTO TABLE_ SELECT g, rpad(md5(g::text), 1500 + g * 37 % 3000, md5(g::text)) FROM generate_series(1, 300) g');
$node->safe_psql('postgres', 'CHECKPOINT');

# ---- a mark is captured, value files leave the list, it is made ----
for my $level (@levels)
{
	change();
	$node->safe_psql('postgres', 'CHECKPOINT');
	# only this one needs another mark
	$node->safe_psql('postgres', "UPDATE t_$level SET v = v WHERE k = 1");
	worker_stop_points($node, 'mark_captured=wait,mark_wanted=wait');
	my $w = psql_writer($node, 'CHECKPOINT;', 'checkpoint');
	stopped($node, 'mark_captured');
	$node->safe_psql('postgres', "SET kvfdw.stop_points = ''; SELECT kvfdw_flush('t_$level')");
	cmp_ok(retired($level), '>', 5, "$level: chunks leave the list while a mark is made that lists them");
	is(go_on($node, 'mark_captured', $w), '', 'it is made');
	stopped($node, 'mark_wanted');
	power();
	same("power goes behind a mark of before ($level)");
	$node->safe_psql('postgres', 'CHECKPOINT');
}

# ---- a crash behind the edit, and power goes before the next mark ----
for my $level (@levels)
{
	change();
	$node->safe_psql('postgres', 'CHECKPOINT');
	worker_stop_points($node, 'mark_wanted=wait');
	my $times = times_ready($node);
	$node->psql('postgres', "SET kvfdw.stop_points = 'flush_after_files=kill'; SELECT kvfdw_flush('t_$level')");
	ready_again($node, $times);
	$node->safe_psql('postgres', "SELECT count(*) FROM t_$_") for @levels;
	if ($level eq 'none') { stopped($node, 'mark_wanted'); cmp_ok(retired('none'), '>', 5, 'what only the mark lists is retired'); }
	power();
	same("power goes behind a crash of $level");
}

# ---- a mark fails behind its rename, and then others before theirs, while what it names is replaced ----
{
	# nothing but this table needs marks
	my $keys = sub { my ($sql) = @_; return $node->safe_psql('postgres', join ';', map { $sql =~ s/TABLE_/$_/r } qw(heap t_keys)) };
	my $freeze = "SET kvfdw.stop_points = ''; SET kvfdw.test_compact = off; SELECT kvfdw_flush('t_keys')";
	$node->safe_psql('postgres', 'CHECKPOINT');
	$keys->('UPDATE TABLE_ SET v = reverse(v) WHERE k % 2 = 0');
	$node->safe_psql('postgres', "SELECT kvfdw_flush('t_keys')");
	wait_for('chunks that wait for a checkpoint', sub { $node->safe_psql('postgres', "SELECT obsolete_waiting_for FROM kvfdw_stat_tables WHERE relid = 't_keys'::regclass") eq 'checkpoint' });
	$keys->("UPDATE TABLE_ SET v = 'in the log that the mark before ends in' WHERE k < 4");
	$node->safe_psql('postgres', $freeze);
	my $at = -s $node->logfile;
	my $errors = sub { my ($point, $n) = @_; wait_for("errors at $point", sub { my @all = slurp_file($node->logfile, $at) =~ /stopped at "$point"/g; @all >= $n }); $at = -s $node->logfile; return };
	worker_stop_points($node, 'edits_appended=error');
	# a mark without an error would take this along
	$keys->("UPDATE TABLE_ SET v = 'in the log behind it' WHERE k < 6");
	my $w = psql_writer($node, 'CHECKPOINT;', 'checkpoint_fails');
	$errors->('edits_appended', 1);
	worker_stop_points($node, 'mark_captured=error');
	$errors->('mark_captured', 1);
	$node->safe_psql('postgres', $freeze);
	$errors->('mark_captured', 3);
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
	kill_all($node);
	outcome($w);
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot of a failed mark'\n");
	restart_killed($node);
	is(tables_differ($node, 't_keys', 'heap', 'k'), '', "power goes behind a mark that failed: heap's rows");
	is(answer($node, "SELECT file, problem FROM kvfdw_check('t_keys')"), '', 'power goes behind a mark that failed: sound');
	$node->safe_psql('postgres', "UPDATE t_$_ t SET v = heap.v FROM heap WHERE heap.k = t.k AND heap.v <> t.v") for qw(full none);
}
$node->safe_psql('postgres', "SELECT kvfdw_flush('t_$_')") for @levels;
$node->safe_psql('postgres', 'CHECKPOINT');
ok(eval { wait_for('release', sub { !grep { retired($_) > 0 } @levels }) }, 'in the end nothing stays retired');
same('in the end');
ok(-s $node->logfile, 'the server has a log');
$node->stop;
done_testing();
