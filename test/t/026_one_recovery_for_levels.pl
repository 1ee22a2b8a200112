# Promise: after anything but a clean stop tables at wal levels full and keys are what
# was synced and what the WAL adds; nothing else in their directories is looked at.
# Tables at level none keep what the page cache has where it is proven to be the same
# cache, and are salvaged elsewhere.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvVersions;

plan skip_all => 'heap has no version log' if heap_only();
my $node = kv_cluster('one_recovery', 'kvfdw.flush_after' => 3600, autovacuum => 'off', checkpoint_timeout => '1h', restart_after_crash => 'off');
my $data = $node->data_dir;
my @levels = qw(full keys none);
my $salvaged = qr/resetting \d+ kvfdw tables with wal level "none"/;
my $fill = 'SELECT g, rpad(md5(g::text), 200 + g % 3000, md5(g::text)) FROM generate_series';

# What the log has got since the last call.
my $log_end = 0;
sub logged
{
	my $log = slurp_file($node->logfile, $log_end);
	$log_end += length $log;
	return $log;
}

sub same_rows
{
	my ($when, @tables) = @_;
	is(tables_differ($node, "t_$_", 'heap', 'k'), '', "$when: $_ has heap's rows") for @tables;
	return;
}

# The same change to the heap table and its twins.
sub everywhere
{
	my ($sql) = @_;
	$node->safe_psql('postgres', join(';', map { (my $s = $sql) =~ s/\bTABLE_\b/$_/g; $s } 'heap', map { "t_$_" } @levels));
	return;
}

# Change the tables, with a checkpoint and a flush in between.
my $round = 0;
sub change
{
	$round++;
	everywhere("UPDATE TABLE_ SET v = 'round $round' WHERE k % 7 = $round % 7");
	$node->safe_psql('postgres', 'CHECKPOINT');
	everywhere("DELETE FROM TABLE_ WHERE k % 11 = $round % 11");
	$node->safe_psql('postgres', join(';', map { "SELECT kvfdw_flush('t_$_')" } @levels));
	everywhere("INSERT INTO TABLE_ $fill($round * 10000, $round * 10000 + 700) g");
	return;
}

# Put garbage into everything that a store has and that no mark names.
sub spoil
{
	my ($level) = @_;
	my $oid = $node->safe_psql('postgres', "SELECT 't_$level'::regclass::oid");
	my $db = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = current_database()");
	kill_all($node);
	my $n = 0;
	my ($dir) = glob "$data/kvfdw/$db/$oid/*";
	my $log = KvVersions->read($dir);
	for my $id (sort { $a <=> $b } keys %{ $log->marks })
	{
		my $mark = $log->mark($id);
		my ($last_log, $tail) = @$mark{qw(last_log log_tail)};
		my %named = map { $_ => 1 } KvVersions::runs($mark->{files});
		for my $file (glob sprintf '%s/%05x.*', $dir, $id)
		{
			if ($file =~ /\.([0-9a-f]{8})\.run$/) { next if $named{ hex $1 }; }
			elsif ($file =~ /\.([0-9a-f]{8})\.log$/)
			{
				next if hex $1 < $last_log;
				if (hex $1 == $last_log)
				{
					next if -s $file <= $tail;
					garbage($file, $tail, 'after the mark');
					$n++;
					next;
				}
			}
			else { next; }
			garbage($file, 0, 'nobody synced this');
			$n++;
		}
	}
	return $n;
}

sub garbage
{
	my ($file, $at, $text) = @_;
	open(my $fh, '+<', $file) or die "$file: $!";
	seek $fh, $at, 0;
	print $fh $text x 50;
	close $fh;
	return;
}

$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "shards '3', wal '$_'") } @levels));
everywhere("INSERT INTO TABLE_ $fill(1, 2000) g");

# ---- what was not synced is not looked at ----

for my $level (qw(full keys))
{
	change();
	cmp_ok(spoil($level), '>=', 3, "$level: files that no mark names are there, and spoiled");
	garbage("$data/kvfdw/buffers", 4096 + 262144, 'no slot of it counts');
	$node->start;
	same_rows("after a SIGKILL and garbage", $level);
	is(kv_check_clean($node, "t_$level"), '', "$level: check is clean");
	$node->safe_psql('postgres', "TRUNCATE t_none; INSERT INTO t_none TABLE heap");
}

# ---- level none: trusted, or not ----

change();
kill_all($node);
logged();
$node->start;
same_rows('after a SIGKILL', @levels);
unlike(logged(), $salvaged, 'the page cache is believed after a SIGKILL');

$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = on');
$node->reload;
my $times = times_ready($node);
kill_process($node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw maintainer'}));
ready_again($node, $times);
same_rows('after the SIGKILL of one process', @levels);
$node->safe_psql('postgres', 'ALTER SYSTEM RESET restart_after_crash');
$node->reload;

for my $how ('removed', 'replaced by a copy', 'written in place')
{
	change();
	kill_all($node);
	my $witness = "$data/kvfdw/witness";
	my $content = slurp_file($witness);
	unlink $witness if $how ne 'written in place';
	if ($how ne 'removed') { open(my $fh, '>', $witness) or die; print $fh $content; close $fh; }
	chown((stat "$data/kvfdw")[ 4, 5 ], $witness) if -e $witness;
	logged();
	$node->start;
	like(logged(), $salvaged, "the witness $how: none is salvaged");
	same_rows("the witness $how", qw(full keys));
	my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM t_none EXCEPT SELECT count(*) FROM t_none WHERE v IS NOT NULL');
	is($rows, '', "the witness $how: what none has can be read");
	$node->safe_psql('postgres', "TRUNCATE t_none; INSERT INTO t_none TABLE heap");
}

# all of it copied to another place
change();
kill_all($node);
system('cp', '-a', "$data/kvfdw", "$data/kvfdw.copy") == 0 or die;
system('rm', '-rf', "$data/kvfdw");
rename "$data/kvfdw.copy", "$data/kvfdw" or die;
logged();
$node->start;
like(logged(), $salvaged, 'in a copy none is salvaged');
same_rows('in a copy of a server that crashed', qw(full keys));
$node->safe_psql('postgres', "TRUNCATE t_none; INSERT INTO t_none TABLE heap");
$node->stop;
system('cp', '-a', "$data/kvfdw", "$data/kvfdw.copy") == 0 or die;
system('rm', '-rf', "$data/kvfdw");
rename "$data/kvfdw.copy", "$data/kvfdw" or die;
$node->start;
same_rows('in a copy of a server that was stopped', @levels);

# no buffer file, or a damaged one
for my $how ('missing', 'damaged')
{
	change();
	kill_all($node);
	if ($how eq 'missing') { unlink "$data/kvfdw/buffers" or die; } else { garbage("$data/kvfdw/buffers", 0, 'x'); }
	logged();
	$node->start;
	like(logged(), $salvaged, "a $how buffer file is not believed");
	same_rows("a $how buffer file", qw(full keys));
	$node->safe_psql('postgres', "TRUNCATE t_none; INSERT INTO t_none TABLE heap");
}

# ---- a server that was shut down, but not by us ----

change();
kill_all($node);
unlink "$data/postmaster.pid";
system($node->installed_command('pg_resetwal'), '-f', '-D', $data) == 0 or die;
$node->start;
for my $level (@levels)
{
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT count(*) FROM t_$level");
	like($err, qr/ERROR:  55000: foreign table "t_$level" is unusable.*\n.*its WAL was reset/, "$level: unusable after a reset of the WAL");
}
$node->safe_psql('postgres', join(';', 'TRUNCATE heap', map { "TRUNCATE t_$_" } @levels));
everywhere("INSERT INTO TABLE_ $fill(1, 2000) g");
same_rows('after TRUNCATE', @levels);
$node->restart;
same_rows('after a clean stop', @levels);

# ---- test builds: errors in the middle ----

unless (has_faults($node))
{
	$node->stop;
	done_testing();
	exit 0;
}

# a sync that fails
change();
$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'sync:2:EIO'});
$node->reload;
logged();
everywhere("UPDATE TABLE_ SET v = 'last' WHERE k < 50");
$node->psql('postgres', 'CHECKPOINT');
wait_for('the end', sub { !postmaster_runs($node) });
like(slurp_file($node->logfile), qr/PANIC:  could not fsync/, 'a failed sync is a PANIC');
ok(!-e "$data/kvfdw/witness", 'a failed sync takes the witness with it');
logged();
$node->append_conf('postgresql.auto.conf', "kvfdw.fault = ''\n");
$node->start;
like(logged(), $salvaged, 'and what was written before it is not believed');
same_rows('after a failed sync', qw(full keys));
$node->safe_psql('postgres', "TRUNCATE t_none; INSERT INTO t_none TABLE heap");

# no room at the stop
for my $how ('stop', 'terminate')
{
	change();
	$node->safe_psql('postgres', q{ALTER SYSTEM SET kvfdw.fault = 'meta_write:1+:ENOSPC'});
	$node->reload;
	worker_stop_points($node, '');
	everywhere("UPDATE TABLE_ SET v = '$how' WHERE k < 100");
	logged();
	if ($how eq 'stop') { $node->stop('fast', fail_ok => 1); }
	else
	{
		$node->psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'});
	}
	wait_for('the end', sub { !postmaster_runs($node) });
	like(logged(), qr/PANIC:  background worker "kvfdw checkpointer" exited before kvfdw tables were durable/, "$how without room: a PANIC");
	$node->append_conf('postgresql.auto.conf', "kvfdw.fault = ''\n");
	$node->start;
	same_rows("$how without room", @levels);
}

# a recovery that fails as a whole leaves no table marked
change();
$node->safe_psql('postgres', 'CHECKPOINT');
everywhere("UPDATE TABLE_ SET v = 'marked' WHERE k < 70");
my $relid = $node->safe_psql('postgres', q{SELECT 't_full'::regclass::oid});
kill_all($node);
my $log = KvVersions->read(glob "$data/kvfdw/*/$relid/*");
my $whole = $log->{bytes};
$log->flip(($log->edits('MARK'))[-1]);
$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = 'redo_before_flush=kill'\n");
logged();
$node->start(fail_ok => 1);
like(logged(), qr/is now unusable/, 'a table is put aside in a recovery');
wait_for('the end', sub { !postmaster_runs($node) });
$log->changed($whole);
$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
$node->start;
same_rows('the next recovery is whole', @levels);

# the start is cut off after it has noted what is to be salvaged
change();
kill_all($node);
unlink "$data/kvfdw/witness";
$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = 'redo_before_flush=kill'\n");
$node->start(fail_ok => 1);
wait_for('the end', sub { !postmaster_runs($node) });
$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
$node->start;
same_rows('after a start that was cut off', qw(full keys));
is($node->safe_psql('postgres', q{SELECT count(*) FROM kvfdw_check('t_none')}), 0, 'after a start that was cut off: none was salvaged');
$node->stop;
done_testing();
