# Promise: tables that have changed are analyzed as autovacuum would, by its settings: after loads
# and changes that committed, as the table's owner. The analysis holds up no lock of others, no
# DROP DATABASE and no stop.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'needs a build with FAULTS=1, and kvfdw tables' if heap_only();
my $node = kv_cluster('n', autovacuum => 'on', autovacuum_naptime => 1, deadlock_timeout => '50ms', log_autovacuum_min_duration => 0);
sub run { return $node->safe_psql('postgres', join(';', @_)); }
sub create { run(map { kv_table($_, 'k int, v text', 'k') } @_); return; }
sub tuples { my ($name, $db) = @_; return $node->safe_psql($db // 'postgres', "SELECT reltuples FROM pg_class WHERE oid = '$name'::regclass"); }
sub analyzed_at { my ($name) = @_; return run("SELECT pg_stat_get_last_analyze_time('$name'::regclass)"); }
# ANALYZE writes reltuples in place, which others see before it commits; it has the lock until then.
sub analyzed { my ($name, $n, $db) = @_; return $node->safe_psql($db // 'postgres', "SELECT reltuples = $n AND NOT EXISTS (SELECT FROM pg_locks WHERE relation = c.oid AND mode = 'ShareUpdateExclusiveLock') FROM pg_class c WHERE oid = '$name'::regclass") eq 't'; }
sub becomes { my ($name, $n, $what, $db) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return ok(wait_for("reltuples = $n", 180, sub { analyzed($name, $n, $db) }), $what); }

# Every table has been looked at once more: two tables were analyzed that were loaded one after the other.
my $n = 0;
sub rounds
{
	for (1 .. 2)
	{
		$n++;
		create("round$n");
		run("INSERT INTO round$n SELECT g FROM generate_series(1, 100) g");
		wait_for("round $n", 180, sub { analyzed("round$n", 100) });
	}
	return;
}

create(qw(t small));
run("INSERT INTO small SELECT g FROM generate_series(1, 50) g");
run("INSERT INTO t SELECT g, 'v' || g % 10 FROM generate_series(1, 10000) g");
becomes('t', 10000, 'a load');
is(run("SELECT n_distinct FROM pg_stats WHERE tablename = 't' AND attname = 'v'"), '10', 'its columns too');
cmp_ok(run("SELECT relpages FROM pg_class WHERE relname = 't'"), '>', 1, 'and its pages');
my $at = analyzed_at('t');
run("DELETE FROM t WHERE k <= 500", "UPDATE t SET v = 'x' WHERE k <= 1000");
run("BEGIN", "DELETE FROM t", "ROLLBACK", "BEGIN", "SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s", "COMMIT");
rounds();
is(analyzed_at('t'), $at, 'changes below the threshold, and more that were rolled back');
is(analyzed_at('small'), '', 'a small table');
run("INSERT INTO t SELECT g FROM generate_series(1, 51) g");
becomes('t', 9551, 'the change that was missing');

# a transaction that stays open while others have the table analyzed
my $s = in_steps($node, 'open', "BEGIN; INSERT INTO t SELECT g FROM generate_series(20001, 40000) g;", 'COMMIT;');
step_done($s);
run('ANALYZE t');
rounds();
is(tuples('t'), 9551, 'what is not committed does not count');
step_go($s);
becomes('t', 29551, 'but does after COMMIT');
step_go($s);
run('TRUNCATE t');
run('INSERT INTO t SELECT g FROM generate_series(1, 60) g');
becomes('t', 60, 'after TRUNCATE');
run("SET kvfdw.stop_points = ''") if has_faults($node);

# its owner, and nothing more
run('CREATE ROLE owner LOGIN', 'GRANT ALL ON SCHEMA public TO owner', 'GRANT USAGE ON FOREIGN SERVER kvfdw TO owner');
run('SET ROLE owner', kv_table('owned', 'k int, v text', 'k'),
	q{CREATE FUNCTION who(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE LOG 'user % path (%)', current_user, current_setting('search_path'); PERFORM set_config('role', 'postgres', false); RETURN ''; EXCEPTION WHEN insufficient_privilege THEN RAISE LOG 'restricted'; RETURN ''; END $$},
	'CREATE STATISTICS s ON (public.who(v)) FROM owned', "INSERT INTO owned SELECT g, 'x' FROM generate_series(1, 100) g");
becomes('owned', 100, 'a table of somebody else');
my $log = slurp_file($node->logfile);
like($log, qr/LOG:  user owner path \((pg_catalog, pg_temp)?\)/, 'was analyzed as its owner');	# the path: since 17
like($log, qr/LOG:  restricted/, 'who cannot become another');
like($log, qr/LOG:  automatic analyze of foreign table "postgres.public.owned"/, 'log_autovacuum_min_duration');
run('DROP FOREIGN TABLE owned');

# an error is told once, and others are analyzed
run(kv_table('broken', 'k int, v text', 'k'), q{CREATE FUNCTION broken(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'broken statistics'; END $$},
	'CREATE STATISTICS b ON (public.broken(v)) FROM broken', "INSERT INTO broken SELECT g, 'x' FROM generate_series(1, 100) g");
wait_for('the error', 180, sub { slurp_file($node->logfile) =~ /ERROR:  broken statistics/ });
rounds();
is(scalar(() = slurp_file($node->logfile) =~ /ERROR:  broken statistics/g), 1, 'an error is told once');
run('DROP FOREIGN TABLE broken');

# autovacuum off; a start with tables that nobody has analyzed
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->restart;
create('later');
run('INSERT INTO later SELECT g FROM generate_series(1, 2000) g');
run('SELECT kvfdw_flush($$later$$)');
kill_all($node);
$node->start;
collected($node);
is(tuples('later'), -1, 'not with autovacuum = off');
is(run("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'kvfdw analyze'"), '0', 'no worker is there');
$node->append_conf('postgresql.conf', "autovacuum = on\n");
$node->reload;
becomes('later', 2000, 'what was loaded before a crash, when it is on again');

SKIP:
{
	skip 'needs a build with FAULTS=1', 8 unless has_faults($node);

	# others come first
	my $rows = 0;
	my $stands = sub { return -e $node->data_dir . '/kvfdw/waiting.analyze' };
	my $wait = sub {
		worker_stop_points($node, 'analyze=wait');
		# who was started before that does not stop, the next one does
		until ($stands->())
		{
			run("INSERT INTO locked SELECT $rows + g FROM generate_series(1, 300) g");
			$rows += 300;
			wait_for('a worker', 180, sub { $stands->() || tuples('locked') == $rows });
		}
		worker_stop_points($node, '');
		return;
	};
	create('locked');
	local $ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
	$wait->();
	run('ALTER FOREIGN TABLE locked ADD COLUMN w int DEFAULT 1');
	pass('who wants the lock of a table that is being analyzed gets it');
	becomes('locked', $rows, 'and it is analyzed later');
	like(slurp_file($node->logfile), qr/canceling automatic analyze of foreign table/, 'as the log says');

	# a cancel between two tables ends the analyze of neither
	create('first', 'second');
	worker_stop_points($node, 'next_analyze=wait');
	run('INSERT INTO first SELECT g FROM generate_series(1, 300) g', 'INSERT INTO second SELECT g FROM generate_series(1, 300) g');
	stopped($node, 'next_analyze');
	my $canceled = sub { scalar(() = slurp_file($node->logfile) =~ /canceling automatic analyze of foreign table/g) };
	my $before = $canceled->();
	my $pid = run("SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw analyze'");
	run("SELECT pg_cancel_backend($pid)");
	wait_for('the cancel', 180, sub { $canceled->() > $before });
	is(run("SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw analyze'"), $pid, 'a cancel between two tables does not end the worker');
	worker_stop_points($node, '');
	go_on($node, 'next_analyze');
	becomes($_, 300, "$_, after the cancel") for qw(first second);

	# time-outs are for sessions
	create('slow');
	local $ENV{PGOPTIONS} = join(' ', '-c kvfdw.stop_points=', map { "-c $_=0" } my @timeouts = split /\n/,
		run("SELECT name FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')"));
	worker_stop_points($node, 'analyze=wait');
	run(map { "ALTER DATABASE postgres SET $_ = '50ms'" } @timeouts);
	run('INSERT INTO slow SELECT g FROM generate_series(1, 300) g');
	stopped($node, 'analyze');
	run(map { "ALTER DATABASE postgres RESET $_" } @timeouts);
	worker_stop_points($node, '');
	run('SELECT pg_sleep(0.2)');
	go_on($node, 'analyze');
	becomes('slow', 300, 'an analyze that takes longer than the time-outs of the database');
	unlike(slurp_file($node->logfile), qr/due to \w+ timeout/, 'was not ended by one');

	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION kvfdw;' . kv_table('t', 'k int', 'k'));
	worker_stop_points($node, 'analyze=wait');
	$node->safe_psql('other', 'INSERT INTO t SELECT g FROM generate_series(1, 300) g');
	stopped($node, 'analyze');
	worker_stop_points($node, '');
	run('DROP DATABASE other');
	pass('DROP DATABASE');
	$wait->();
	$node->stop('fast');
	pass('a stop');
	$node->start;
	becomes('locked', $rows, 'after which it is analyzed');
}
done_testing();
