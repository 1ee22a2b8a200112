# Promise: whichever file system call fails, is cut short, or is the last one of
# its process, the transaction it belongs to happens whole or not at all, and
# everything works again once calls succeed (I 3, I 6, I 11).
#
# Needs a test build (make FAULTS=1).  KV_FAULTS_FULL=1: more values of N.
# KV_FAULTS_KINDS: a pattern, only these kinds of calls.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use KvTest;

my $node = kv_cluster('faults');
unless (has_faults($node))
{
	$node->stop;
	plan skip_all => 'not a test build (make FAULTS=1)';
}

my @kinds = map { s/ /_/gr } split /\n/, $node->safe_psql('postgres', 'SELECT kind FROM kvfdw_stat_io ORDER BY kind');
cmp_ok(scalar(@kinds), '>=', 11, 'kinds: ' . join(', ', @kinds));
my $only = $ENV{KV_FAULTS_KINDS} // '.';
@kinds = grep { /$only/ } @kinds;
my @n = $ENV{KV_FAULTS_FULL} ? (1 .. 8, 12, 20, 40) : (1, 3);
my @actions = $ENV{KV_FAULTS_FULL} ? ('EIO', 'ENOSPC', 'short', 'delay', 'kill') : ('EIO', 'ENOSPC', 'short', 'kill');
my $round = 0;

sub fresh_tables
{
	$round++;
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE IF EXISTS kv; DROP TABLE IF EXISTS heap; CREATE TABLE heap (k int PRIMARY KEY, v text);'
		  . kv_table('kv', 'k int, v text', 'k', "shards '2'")
		  . "INSERT INTO heap SELECT g, rpad('base ' || g, CASE WHEN g % 50 = 0 THEN 300000 ELSE g * 13 % 5000 END, 'b') FROM generate_series(1, 200) g; INSERT INTO kv TABLE heap;");
	return;
}

# Work in small transactions that write heap and kvfdw together, and queries
# that may fail but may not be wrong.
my $work = '';
for my $i (1 .. 6)
{
	my $from = 1000 * $i;
	$work .= join('', map { "$_;\n" } 'BEGIN',
		map({ my $t = $_; ("INSERT INTO $t SELECT g, rpad('new $i', CASE WHEN g % 20 = 0 THEN 270000 ELSE g % 5000 END, 'n') FROM generate_series($from, $from + 60) g",
					"UPDATE $t SET v = 'updated $i' WHERE k BETWEEN $i * 10 AND $i * 10 + 5", "DELETE FROM $t WHERE k BETWEEN $i * 10 + 6 AND $i * 10 + 8", "UPDATE $t SET k = -k WHERE k = $i") } 'heap', 'kv'), 'COMMIT');
	$work .= "SELECT 'WRONG' FROM (SELECT * FROM kv EXCEPT SELECT * FROM heap) s LIMIT 1;\n";
	$work .= "SELECT 'WRONG POINT' FROM heap WHERE k % 7 = 0 AND v IS DISTINCT FROM (SELECT v FROM kv WHERE kv.k = heap.k) LIMIT 1;\n";
	$work .= "SELECT kvfdw_freeze('kv');\n" if $i % 2 == 0;
	$work .= "BEGIN; TRUNCATE heap, kv; INSERT INTO heap SELECT g, 'after truncate' FROM generate_series(1, 100) g; INSERT INTO kv TABLE heap; COMMIT;\n" if $i == 5;
}

# After the faults: everything is as the heap twin says, checked twice.
sub settle
{
	my ($what, $restart) = @_;
	$node->poll_query_until('postgres', 'SELECT true') or die;
	my @problems;
	for my $pass (0 .. ($restart ? 1 : 0))
	{
		if ($pass) { kill_all($node); restart_killed($node); }
		my $d;
		for my $try (1 .. 5)
		{
			# the postmaster may not have noticed the kill when it was last asked
			$node->poll_query_until('postgres', 'SELECT true') or die;
			$d = eval { tables_differ($node, 'kv', 'heap', 'k') } // "error: $@";
			last if $d !~ /recovery mode|not yet accepting|starting up|closed the connection|terminat/;
		}
		push @problems, "rows (pass $pass): $d" if $d ne '';
		my $c = eval { kv_check_clean($node, 'kv') } // "error: $@";
		push @problems, "check (pass $pass): $c" if $c ne '';
	}
	my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; INSERT INTO heap VALUES (500000, 'goes on'); INSERT INTO kv VALUES (500000, 'goes on'); COMMIT; SELECT v FROM kv WHERE k = 500000");
	push @problems, "no writes: $err" if $out ne 'goes on';
	is(join('; ', @problems), '', $what);
	return !@problems;
}

# Work, or only read and freeze after a start, while the setting is in the
# configuration for a second.
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
	my $w = psql_writer($node, $start ? "SELECT 'WRONG' FROM (SELECT * FROM kv EXCEPT SELECT * FROM heap) s LIMIT 1;\nSELECT kvfdw_freeze('kv');\n" : $work, 'fault', 1);
	usleep(700_000);
	unlink $file;
	# by signal: the fault may have ended the server
	if (my $pid = postmaster_runs($node)) { kill 'HUP', $pid; }
	my $ended = eval { wait_for($what, 90, sub { !eval { $w->{handle}->pump_nb; $w->{handle}->pumpable } }); 1; };
	ok($ended, "$what: no hang");
	unless ($ended) { kill_all($node); }
	reap_writer($w);
	# the fault may have killed the postmaster itself, or the startup process, with which it ends
	wait_for("$what: the server", 90, sub {
		restart_killed($node) unless postmaster_runs($node);
		my $rc = eval { $node->psql('postgres', 'SELECT 1') };
		return defined $rc && $rc == 0; });
	unlike(slurp_file($w->{out}), qr/WRONG/, "no wrong rows: $what");
	return;
}

my %hit;
for my $kind (@kinds)
{
	for my $action (@actions)
	{
		next if $action eq 'short' && $kind =~ /unlink|map|extend|sync/;
		next if $action eq 'ENOSPC' && $kind =~ /read|run_map|unlink/;
		for my $n (@n)
		{
			# in the session that works
			fresh_tables();
			note "session, $kind:$n:$action";
			my ($rc, $out, $err) = $node->psql('postgres', "SET kvfdw.fault = '$kind:$n:$action';\n$work", on_error_stop => 0);
			unlike($out, qr/WRONG/, "no wrong rows: session, $kind:$n:$action");
			$hit{$action eq 'kill' ? 'kill' : $1}++ if $err =~ /ERROR:  (.{0,40})/ || ($action eq 'kill' && $err =~ /server closed|terminat/);
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

# A process may open fewer files than fd.c believes, which logs that, and a message serves interrupts: not while
# reads are under way.
SKIP:
{
	skip 'no prlimit', 2 if system('prlimit --version >/dev/null 2>&1') != 0;
	$node->safe_psql('postgres', kv_table('wide', 'k int, v text', 'k', "shards '64'") . "INSERT INTO wide SELECT g * 2000000 - 2000000000, rpad(g::text, 4096, 'w') FROM generate_series(1::bigint, 2000) g; SELECT kvfdw_freeze('wide')");
	$node->restart;
	my $some = sub { return 'SELECT count(*), count(*) FILTER (WHERE v = rpad(((k + 2000000000::bigint) / 2000000)::text, 4096, \'w\')) FROM wide WHERE k = ANY(ARRAY(SELECT (g * ' . $_[0] . ' % 2000 + 1) * 2000000 - 2000000000 FROM generate_series(1::bigint, 500) g)::int[])'; };
	my ($rc, $out, $err) = $node->psql('postgres', join("\n", 'SELECT pg_backend_pid() AS pid \gset', '\setenv PID :pid', 'SELECT count(v) FROM wide WHERE k IN (-1998000000, 0);', '\! prlimit --nofile=40:1024 --pid $PID', $some->(1) . ';',
			"SET kvfdw.fault = 'value_read:100:delay'; SET statement_timeout = 60;", $some->(3) . ';', "RESET statement_timeout; SET kvfdw.fault = '';", map { $some->($_) . ';' } 3, 7), on_error_stop => 0);
	like($err, qr/^psql:<stdin>:\d+: ERROR:  canceling statement due to statement timeout$/, 'a cancel among reads');
	is($out, "2\n500|500\n500|500\n500|500", 'comes when they have ended');
}
$node->stop;
done_testing();
