# Promise: what an ERROR or SIGKILL leaves half done counts as not done: a run set
# that was not loaded whole is loaded again, a key log is made whole or not at all
# (I 11), and the files of a DROP or TRUNCATE go only if its commit record is on
# disk, synchronous_commit = off or not (I 9).
#
# Needs a test build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('half_done', checkpoint_timeout => '1h', 'kvfdw.flush_after' => '1h');
plan skip_all => 'needs fault injection' unless has_faults($node);
sub create { my ($name) = @_; $node->safe_psql('postgres', kv_table($name, 'k int, v text', 'k')); return; }

# One run of two cannot be mapped: a base run and, because a snapshot is held, a newer one.
create('runs');
$node->safe_psql('postgres', "INSERT INTO runs SELECT g, 'v' FROM generate_series(1, 100) g; SELECT kvfdw_flush('runs')");
$node->safe_psql('postgres', 'ANALYZE runs');	# or the planner meets the error, asks the store no more, and goes on
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;');
$node->safe_psql('postgres', "INSERT INTO runs SELECT g, 'v' FROM generate_series(101, 200) g; SELECT kvfdw_flush('runs')");
my @runs = grep { /\.run$/ } kv_files($node);
is(scalar(@runs), 2, 'runs to load: ' . join(', ', @runs));
for my $error ('EIO', 'ENOMEM')
{
	for my $nth (1 .. @runs)
	{
		my ($rc, $out, $err) = $node->psql('postgres', qq{SET kvfdw.fault = 'run_map:$nth:$error';
SELECT count(*) FROM runs;
SELECT count(*) FROM runs;
INSERT INTO runs VALUES (5, 'duplicate');
SELECT count(*) FROM runs WHERE k = 5 OR k = 105;
}, on_error_stop => 0);
		like($err, qr/ERROR:  could not .*\n.*ERROR:  .*duplicate key/s, "$error at run $nth: one error, and the key is known as a duplicate");
		is($out, "200\n2", "$error at run $nth: the next query sees every row");
	}
}
$holder->query_safe('ROLLBACK;');
$holder->quit;

# SIGKILL while a key log is made, of a new table and in a flush: at each call
# that writes to one, and before it gets its name.
my $killed = 0;
for my $where ("kvfdw.fault = 'key_log_write:1:kill'", "kvfdw.fault = 'key_log_write:2:kill'", "kvfdw.stop_points = 'create_before_link=kill'")
{
	for my $moment ('first row', 'freeze')
	{
		my $t = 'log_' . ++$killed;
		create($t);
		my $sql = "INSERT INTO $t VALUES (1, 'killed')";
		if ($moment eq 'freeze')
		{
			$node->safe_psql('postgres', "INSERT INTO $t SELECT g, 'kept' FROM generate_series(1, 10) g");
			$sql = "SELECT kvfdw_flush('$t')";
		}
		my $times = times_ready($node);
		my ($rc, $out, $err) = $node->psql('postgres', "SET $where; $sql");
		if ($rc != 0) { ready_again($node, $times); }
		else { note "$moment, $where: not reached"; }
		my $expected = $moment eq 'freeze' ? 10 : $rc == 0 ? 1 : 0;
		is(answer($node, "SELECT count(*) FROM $t"), $expected, "$moment, killed at $where: the table is readable");
		is(answer($node, "INSERT INTO $t VALUES (100, 'after'); SELECT kvfdw_flush('$t'); SELECT count(*) FROM $t"), "\n" . ($expected + 1), "$moment: and takes rows");
	}
}
cmp_ok(times_ready($node) - 1, '>=', 4, 'processes were killed (else this test proves nothing)');
is(join(', ', grep { /tmp/ } kv_files($node)), '', 'no temporary file is left');

# DROP and TRUNCATE with an asynchronous commit, and SIGKILL before anybody else
# flushes the WAL: all of the transaction or nothing.
create($_) for 'truncated', 'dropped', 'kept';
$node->safe_psql('postgres', 'CREATE TABLE witness (what text)');
$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, 'v' FROM generate_series(1, 1000) g") for 'truncated', 'dropped', 'kept';
$node->safe_psql('postgres', 'CHECKPOINT');
hold_wal($node);
$node->safe_psql('postgres', q{SET synchronous_commit = off; BEGIN; TRUNCATE truncated; INSERT INTO witness VALUES ('truncated'); COMMIT});
kill_all($node);
restart_killed($node);
is(answer($node, "SELECT count(*), (SELECT count(*) FROM truncated) FROM witness WHERE what = 'truncated'"), '1|0', 'TRUNCATE with synchronous_commit = off is durable once the rows are gone');
hold_wal($node);
$node->safe_psql('postgres', q{SET synchronous_commit = off; BEGIN; DROP FOREIGN TABLE dropped; INSERT INTO witness VALUES ('dropped'); COMMIT});
kill_all($node);
restart_killed($node);
is(answer($node, "SELECT count(*), to_regclass('dropped') FROM witness WHERE what = 'dropped'"), '1|', 'and so is DROP');
# without it the commit would have been lost, or this test proves nothing
hold_wal($node);
$node->safe_psql('postgres', q{SET synchronous_commit = off; BEGIN; DELETE FROM kept; INSERT INTO witness VALUES ('deleted'); COMMIT});
kill_all($node);
restart_killed($node);
is(answer($node, "SELECT count(*), (SELECT count(*) FROM kept) FROM witness WHERE what = 'deleted'"), '0|1000', 'a DELETE is lost as on heap, and no row is missing');
$node->stop;
done_testing();
