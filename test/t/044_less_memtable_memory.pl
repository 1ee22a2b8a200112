# Promise: a server whose kvfdw.memtable_memory was lowered recovers what needed more, after a
# crash, a power loss and on a standby. What cannot fit is an error that says how much is needed
# (I 12).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $rows = 100_000;
my $node = kv_primary('p', 'kvfdw.flush_after' => 86400, 'kvfdw.memtable_memory' => heap_only() ? 1 : "'512MB'", checkpoint_timeout => '1h');
my %options = (one => "wal 'full', shards '1'", many => "wal 'full', shards '7'", none => "wal 'none', shards '2'", keys => "wal 'keys', shards '3'");
for my $t (sort keys %options)
{
	$node->safe_psql('postgres', kv_table("${t}_kv", 'k bigint, v text', 'k', $options{$t}) . "CREATE TABLE ${t}_heap (k bigint PRIMARY KEY, v text);");
	$node->safe_psql('postgres', "INSERT INTO ${t}_$_ SELECT hashint8(g)::bigint * 1000000 + g, 'v' || g FROM generate_series(1, $rows) g") for 'kv', 'heap';
	$node->safe_psql('postgres', "UPDATE ${t}_$_ SET v = 'u' WHERE k % 5 = 0; DELETE FROM ${t}_$_ WHERE k % 11 = 0") for 'kv', 'heap';
}
sub same
{
	my ($node, $what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($node, "${_}_kv", "${_}_heap", 'k'), '', "$what: $_") for @tables;
	return;
}
my $standby = kv_standby($node, 's', 'kvfdw.memtable_memory' => heap_only() ? 1 : "'16MB'");
caught_up($node, $standby);
same($standby, 'standby with little memory', 'one', 'many');
$node->append_conf('postgresql.conf', "kvfdw.memtable_memory = '16MB'\n") if !heap_only();
kill_all($node);
$node->start;
same($node, 'after a crash', sort keys %options);

# ---- again, with more since the marks, and killed while it recovers ----

for my $n (1 .. 2)
{
	$node->append_conf('postgresql.conf', "kvfdw.memtable_memory = '512MB'\n") if !heap_only();
	$node->restart;
	$node->safe_psql('postgres', join(';', map { my $t = $_; map { "UPDATE ${t}_$_ SET v = 'n$n' WHERE k % 2 = $n % 2" } 'kv', 'heap' } sort keys %options));
	$node->append_conf('postgresql.conf', "kvfdw.memtable_memory = '16MB'\n") if !heap_only();
	if ($n == 1)
	{
		kill_all($node);
		$node->start;
		kill_all($node);
		$node->start;
		same($node, 'killed again while it recovered', sort keys %options);
	}
	else
	{
		power_loss($node);
		same($node, 'after a power loss', 'keys', 'many', 'one');
	}
}

# ---- the maintainer is busy for long, and no shard has a fair share ----

SKIP:
{
	skip 'no test build', 13 unless has_faults($node);
	$node->safe_psql('postgres', kv_table($_, 'k bytea, v int', 'k', q{shards '64'})) for 'even', 'other';
	worker_stop_points($node, 'maintainer_idle=wait');
	stopped($node, 'maintainer_idle');
	my $from = 1;
	my $insert = sub { my ($table, $rows) = @_; my $to = $from + ($rows // 80_000); my $sql = "INSERT INTO $table SELECT decode(md5(g::text) || repeat('ab', 200), 'hex'), g FROM generate_series($from, $to - 1) g"; $from = $to; return $sql; };
	my $own = q{SET kvfdw.stop_points = '';};
	is(answer($node, "$own BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM even; " . $insert->('even') . '; SAVEPOINT s; ' . $insert->('other') . '; ROLLBACK TO s; FETCH c; SELECT count(*) FROM even; COMMIT'), "0\n80000", 'writers make room themselves');
	my $log = -s $node->logfile;
	is(answer($node, "SET kvfdw.fault = 'run_write:1:ENOSPC'; $own " . $insert->('even') . '; SELECT count(*) FROM even'), '160000', "what fails in another one's shard is no error of theirs");
	like(slurp_file($node->logfile, $log), qr/LOG:  could not .*No space left on device/, 'but in the log');

	# on a full disk nobody can; what that has left sealed is the first to go when there is room again
	$log = -s $node->logfile;
	my $full = psql_writer($node, "SET kvfdw.fault = 'run_write:1+:ENOSPC'; $own " . $insert->('even'), 'full');
	wait_for('freezes to fail', sub { (() = slurp_file($node->logfile, $log) =~ /LOG:  could not .*No space left on device/g) > 40 });
	is(answer($node, q{SET kvfdw.stop_points = ''; SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%INSERT INTO even%' AND pid <> pg_backend_pid()}), 1, 'a full disk');
	like(outcome($full), qr/canceling statement due to user request/, 'who waits for room on it can be told to stop');
	is(answer($node, "$own " . $insert->('even', 30_000) . '; SELECT count(*) FROM even'), '190000', 'and when there is room again the next one makes some');

	# told to stop they do, and hold nothing any more
	for my $how ([ cancel => qr/canceling statement due to user request/ ], [ terminate => qr/terminating connection/ ])
	{
		my $writer = psql_writer($node, q{SET kvfdw.stop_points = 'flush_before_merge=wait'; } . $insert->('even'), $how->[0]);
		stopped($node, 'flush_before_merge');
		is(answer($node, "SELECT count(pg_$how->[0]_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%INSERT INTO even%' AND pid <> pg_backend_pid()"), 1, "$how->[0]");
		like(outcome($writer), $how->[1], 'ends who makes room');
		unlink $node->data_dir . '/kvfdw/waiting.flush_before_merge';
	}
	worker_stop_points($node, '');
	is(answer($node, 'SELECT count(*) FROM even'), '190000', 'what was there is there');
	go_on($node, 'maintainer_idle');
	is(kv_check_clean($node, 'even', 'other'), '', 'sound');
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE even, other');
	ok(eval { wait_for('dropped tables to go', sub { !(() = glob $node->data_dir . '/kvfdw/dropped.*') }) }, 'and a dropped table goes, for nobody holds it');
}

# ---- shards that do not fit ----

SKIP:
{
	skip 'no shards', 3 if heap_only();
	$standby->stop;
	$node->safe_psql('postgres', kv_table('wide', 'k int, v text', 'k', q{shards '65536'}));
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nINSERT INTO wide VALUES (1, 'a')");
	like($err, qr/53200.*65536 shards.*need (\d+) MB.*Set "kvfdw.memtable_memory" to (\d+) MB or more/s, 'the error says how much is needed');
	my ($mb) = $err =~ /Set "kvfdw.memtable_memory" to (\d+) MB/;
	$node->append_conf('postgresql.conf', "kvfdw.memtable_memory = '${mb}MB'\n");
	$node->restart;
	is(answer($node, q{INSERT INTO wide SELECT g, 'a' FROM generate_series(-100, 100) g; SELECT count(*) FROM wide}), '201', 'and with so much it works');
	same($node, 'and so do the others', 'many');
}
done_testing();
