# What the tests of failing file system calls share: one cluster, in which each call of
# some kinds fails, is cut short or is the last one of its process, in a session, in
# every process, and in a recovery.
#
# Needs a test build (make FAULTS=1).  KV_FAULTS_FULL=1: more values of N.
package KvFaults;
use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

our @EXPORT = qw(faults_of);

# which call fails: of those that are cut short, or find no room, the first only
sub numbers { my ($action) = @_; return $ENV{KV_FAULTS_FULL} ? (1 .. 8, 12, 20, 40) : $action =~ /EIO|kill/ ? (1, 3) : (1); }
my @actions = $ENV{KV_FAULTS_FULL} ? ('EIO', 'ENOSPC', 'short', 'delay', 'kill') : ('EIO', 'ENOSPC', 'short', 'kill');
my $node;

sub fresh_tables
{
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE IF EXISTS kv; DROP TABLE IF EXISTS heap; CREATE TABLE heap (k int PRIMARY KEY, v text);'
		  . kv_table('kv', 'k int, v text', 'k', "shards '2'")
		  . "INSERT INTO heap SELECT g, rpad('base ' || g, CASE WHEN g % 100 = 0 THEN 300000 ELSE g * 13 % 5000 END, 'b') FROM generate_series(1, 200) g; INSERT INTO kv TABLE heap;");
	return;
}

# Work in small transactions that write heap and kvfdw together, and queries
# that may fail but may not be wrong.
my $work = '';
for my $i (1 .. 6)
{
	my $from = 1000 * $i;
	$work .= join('', map { "$_;\n" } 'BEGIN',
		map({ my $t = $_; ("INSERT INTO $t SELECT g, rpad('new $i', CASE WHEN g % 60 = 0 THEN 270000 ELSE g % 5000 END, 'n') FROM generate_series($from, $from + 60) g",
					"UPDATE $t SET v = 'updated $i' WHERE k BETWEEN $i * 10 AND $i * 10 + 5", "DELETE FROM $t WHERE k BETWEEN $i * 10 + 6 AND $i * 10 + 8", "UPDATE $t SET k = -k WHERE k = $i") } 'heap', 'kv'), 'COMMIT');
	$work .= "SELECT 'WRONG' FROM (SELECT * FROM kv EXCEPT SELECT * FROM heap) s LIMIT 1;\n";
	$work .= "SELECT 'WRONG POINT' FROM heap WHERE k % 7 = 0 AND v IS DISTINCT FROM (SELECT v FROM kv WHERE kv.k = heap.k) LIMIT 1;\n";
	$work .= "SELECT kvfdw_flush('kv');\n" if $i % 2 == 0;
	$work .= "BEGIN; TRUNCATE heap, kv; INSERT INTO heap SELECT g, 'after truncate' FROM generate_series(1, 100) g; INSERT INTO kv TABLE heap; COMMIT;\n" if $i == 5;
}

# After the faults: everything is as the heap twin says, checked twice.
sub settle
{
	my ($what, $restart) = @_;
	my @problems;
	for my $pass (0 .. ($restart ? 1 : 0))
	{
		if ($pass) { kill_all($node); restart_killed($node); }
		push @problems, map { "$_ (pass $pass)" } undisturbed(sub {
			my ($rows, $check) = (tables_differ($node, 'kv', 'heap', 'k'), kv_check_clean($node, 'kv'));
			return ($rows eq '' ? () : "rows: $rows", $check eq '' ? () : "check: $check"); });
	}
	push @problems, undisturbed(sub {
		my $on = answer($node, 'BEGIN;' . join('', map { "DELETE FROM $_ WHERE k = 500000; INSERT INTO $_ VALUES (500000, 'goes on');" } 'heap', 'kv') . 'COMMIT; SELECT v FROM kv WHERE k = 500000');
		return $on eq 'goes on' ? () : "no writes: $on"; });
	is(join('; ', @problems), '', $what);
	return !@problems;
}

# What $code finds while no process crashes.
sub undisturbed
{
	my ($code) = @_;
	my @problems;
	for (1 .. 5)
	{
		wait_for('the server', sub { answer($node, 'SELECT 1') eq '1' });
		my $crashes = crashes();
		@problems = $code->();
		last if !@problems || $crashes == crashes() && "@problems" !~ /server closed|terminating connection/;
	}
	return @problems;
}

sub crashes { my @crashes = slurp_file($node->logfile) =~ /terminating any other active server processes/g; return scalar @crashes; }

# Work, or only read and flush after a start, while the setting is in the
# configuration: until that is done, or for most of a second.
sub with_fault
{
	my ($conf, $start, $what) = @_;
	my $file = $node->data_dir . '/kvfault.conf';
	$node->append_conf('postgresql.conf', "include_if_exists = 'kvfault.conf'\n") unless $node->{kv_included}++;
	append_to_file($file, $conf);
	if ($start)
	{
		unless ($node->start(fail_ok => 1))
		{
			# a start that fails is allowed, one without the fault is not
			unlink $file;
			kill_all($node) if postmaster_runs($node);
			restart_killed($node);
			return;
		}
	}
	else { $node->reload; }
	my $w = psql_writer($node, $start ? "SELECT 'WRONG' FROM (SELECT * FROM kv EXCEPT SELECT * FROM heap) s LIMIT 1;\nSELECT kvfdw_flush('kv');\n" : $work, 'fault', 1);
	eval { wait_for('the work', 0.7, sub { ended($w) }) };
	unlink $file;
	# by signal: the fault may have ended the server
	if (my $pid = postmaster_runs($node)) { kill 'HUP', $pid; }
	my $ended = eval { wait_for($what, sub { ended($w) }) };
	ok($ended, "$what: no hang");
	unless ($ended) { kill_all($node); }
	reap_writer($w);
	# the fault may have killed the postmaster itself, or the startup process, with which it ends
	wait_for("$what: the server", sub {
		restart_killed($node) unless postmaster_runs($node);
		my $rc = eval { $node->psql('postgres', 'SELECT 1') };
		return defined $rc && $rc == 0; });
	# what the checkpointer and the maintainer are still at may meet the fault: until they have come round
	undisturbed(sub { my $done = answer($node, 'CHECKPOINT') . (eval { collected($node); '' } // "error: $@"); rmdir $node->data_dir . '/kvfdw/dropped.test'; return $done eq '' ? () : $done });
	unlike(slurp_file($w->{out}), qr/WRONG/, "no wrong rows: $what");
	return;
}

# Meet all faults of the kinds of calls that $which is true of; returns the cluster.
sub faults_of
{
	my ($name, $which) = @_;
	$node = kv_cluster($name, 'kvfdw.value_cache' => 0);
	unless (has_faults($node))
	{
		$node->stop;
		plan skip_all => 'not a test build (make FAULTS=1)';
	}
	my @kinds = map { s/ /_/gr } split /\n/, $node->safe_psql('postgres', 'SELECT kind FROM kvfdw_stat_io ORDER BY kind');
	cmp_ok(scalar(@kinds), '>=', 11, 'kinds: ' . join(', ', @kinds));
	# 055_second_tier has those of the tier
	@kinds = grep { !/^tier/ && $which->($_) } @kinds;
	my %hit;
	for my $kind (@kinds)
	{
		for my $action (@actions)
		{
			next if $action eq 'short' && $kind =~ /unlink|map|extend|sync/;
			next if $action eq 'ENOSPC' && $kind =~ /read|run_map|unlink/;
			for my $n (numbers($action))
			{
				# in the session that works
				fresh_tables();
				note "session, $kind:$n:$action";
				my $times = times_ready($node);
				my ($rc, $out, $err) = $node->psql('postgres', "SET kvfdw.fault = '$kind:$n:$action';\n$work", on_error_stop => 0);
				unlike($out, qr/WRONG/, "no wrong rows: session, $kind:$n:$action");
				$hit{$action eq 'kill' ? 'kill' : $1}++ if $err =~ /ERROR:  (.{0,40})/ || ($action eq 'kill' && $err =~ /server closed|terminat/);
				ready_again($node, $times) if $err =~ /server closed/;
				settle("session, $kind:$n:$action", $ENV{KV_FAULTS_FULL} || ($action eq 'EIO' && $n == 1));
			}
			next if $action eq 'delay';
			# in every process, workers too, for a second; then work goes on
			my $n = $action eq 'kill' ? 2 : 1;
			my $conf = "kvfdw.fault = '$kind:$n:$action'\n";
			fresh_tables();
			with_fault($conf, 0, "all processes, $kind:$n:$action");
			settle("all processes, $kind:$n:$action", $ENV{KV_FAULTS_FULL});

			# in recovery: killed with work done, started with the fault set
			fresh_tables();
			$node->psql('postgres', $work, on_error_stop => 0);
			kill_all($node);
			with_fault($conf, 1, "recovery, $kind:$n:$action");
			settle("recovery, $kind:$n:$action", 1);
		}
	}
	note "errors seen: " . join(', ', map { "$_ x$hit{$_}" } sort keys %hit);
	cmp_ok(scalar(keys %hit), '>=', 2, 'the faults were felt (else this test proves nothing)');
	return $node;
}

1;
