# Promise: a standby that is stopped while the primary, after a crash, has no process
# "kvfdw checkpointer" keeps its tables; the log says which processes found no room, and what that means.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $node = kv_primary('p', 'kvfdw.admission_limit' => -1);
$node->safe_psql('postgres', 'CREATE TABLE h (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '2'"));

# Which of our workers the last start had no room for, how many of how many, and what the one message advises.
sub without_room
{
	# the library says so before the server says that it starts
	my ($log) = slurp_file($node->logfile) =~ /^(?:.*database system is shut down)?(.*)/s;
	my @warnings = $log =~ /WARNING:  (.*)/g;
	return scalar(@warnings) . ' warnings' if @warnings > 1;
	my ($missing, $of) = $log =~ /could not start (\d+) of (\d+) kvfdw background workers/;
	my @names = map { /"kvfdw ([^"]+)"/g } $log =~ /DETAIL:  There is no slot for (.*?\.)/;
	my ($advice) = $log =~ /.*Set "max_worker_processes" to at least (\d+)/s;
	return join(', ', @names, defined $missing ? "$missing of $of" : (), $log =~ /cannot start background workers on demand/ ? 'none on demand' : (), defined $advice ? "needs $advice" : ());
}

my $standby = kv_standby($node, 's', max_worker_processes => 16);
$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, 'x' || g FROM generate_series(1, 1000) g") for qw(h t);
caught_up($node, $standby);
kill_all($node);
truncate $node->logfile, 0;
$node->append_conf('postgresql.conf', "max_worker_processes = 0\n");
$node->start;
is(without_room(), 'checkpointer, maintainer, 2 of 2, needs 3', 'one warning names the processes for which there is no room');
like(slurp_file($node->logfile), qr/DETAIL:  There is no slot for .*\. Writes to kvfdw tables fail\. Sessions flush memtables/, '... and says what that means');
$node->safe_psql('postgres', 'INSERT INTO h VALUES (0, 0); DELETE FROM h WHERE k = 0');
$node->safe_psql('postgres', 'CHECKPOINT');
caught_up($node, $standby);
$standby->stop('fast');
$standby->start;
is(tables_differ($standby, 't', 'h', 'k'), '', 'the standby has the rows of the primary');
$node->append_conf('postgresql.conf', "max_worker_processes = 8\n");
$node->restart;
$node->safe_psql('postgres', "INSERT INTO $_ VALUES (-1, 'and on')") for qw(h t);
caught_up($node, $standby);
is(tables_differ($standby, 't', 'h', 'k'), '', '... also when it is written again');
$standby->stop('immediate');

# ---- as many as there are without admission, which is switched on later ----
$node->safe_psql('postgres', 'CREATE ROLE web LOGIN; GRANT ALL ON t TO web');
$node->append_conf('postgresql.conf', "max_worker_processes = 3\n");
$node->restart;
is(without_room(), 'none on demand, needs 4', 'those that stay have room, the others have none');
$node->append_conf('postgresql.conf', "kvfdw.admission_limit = 1\n");
$node->reload;
wait_for('the message', sub { $node->safe_psql('postgres', 'SELECT 1'); slurp_file($node->logfile) =~ /could not start background worker "kvfdw admission"/ });
is($node->safe_psql('postgres', 'SELECT count(*) FROM t', extra_params => [ '-U', 'web' ]), 1001, 'nobody is paused where there is no room for the process of admission, and the log says so');
$node->append_conf('postgresql.conf', "kvfdw.admission_limit = -1\nmax_worker_processes = 4\n");
$node->restart;
is(without_room(), '', 'with as many as the log has advised nothing is said');

# ---- PostgreSQL's default, and all that is not on by default ----
my %on = ('kvfdw.admission_limit' => 2, 'kvfdw.memcached_workers' => 2, 'kvfdw.memcached_database' => 'postgres', 'kvfdw.memcached_role' => 'web', 'kvfdw.memcached_listen' => q{''},
	autovacuum => 'on', autovacuum_naptime => '1s', max_worker_processes => 8);
$node->append_conf('postgresql.conf', join('', map { "$_ = $on{$_}\n" } sort keys %on));
$node->restart;
is(without_room(), 'none on demand, needs 9', 'of the default of 8 nothing is left beside clients of memcached and admission');
wait_for('admission', sub { $node->safe_psql('postgres', 'SELECT session_limit FROM kvfdw_stat_admission') eq '2' });
is($node->safe_psql('postgres', 'SET ROLE web; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; UPDATE t SET v = v; SELECT count(*) FROM t'), 1001, 'all else works, without parallel workers');
wait_for('the message', sub { slurp_file($node->logfile) =~ /could not start background worker "kvfdw analyze"/ });
pass('... but tables are not analyzed, and the log says so');
$node->append_conf('postgresql.conf', "kvfdw.memcached_workers = 4\n");
$node->restart;
is(without_room(), 'memcached flusher, memcached reaper, 2 of 9, needs 11', 'nor is it enough for more of them');
$node->append_conf('postgresql.conf', "max_worker_processes = 11\n");
$node->restart;
is(without_room(), '', 'with as many as the log has advised all have room');
$node->stop('immediate');
done_testing();
