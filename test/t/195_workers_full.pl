# Promise: if no slot of max_worker_processes is free for workers on demand, everything works,
# only slower: loads, scans, standbys, restarts after a crash, kvfdw_compact. The log says so
# once, and workers start when there is a slot.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no such processes' if heap_only();

# one slot each for the launcher of logical replication, the checkpointer and the maintainer
my $node = kv_primary('full', max_worker_processes => 3, max_wal_senders => 10, wal_level => 'logical', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.range_cache' => "'8MB'", 'kvfdw.value_cache' => 0,
	'kvfdw.admission_limit' => -1);
my $faults = has_faults($node);
sub processes { my ($server) = @_; return join ' ', sort map { /kvfdw (.*?) *$/ ? $1 : () } split /\n/, `ps -o args= --ppid @{[postmaster_runs($server)]}`; }
sub warnings_of { my ($server) = @_; return join("\n", slurp_file($server->logfile) =~ /WARNING:  (.*)/g); }

is(warnings_of($node), 'kvfdw cannot start background workers on demand: "max_worker_processes" is 3', 'one warning tells of it');
like(slurp_file($node->logfile), qr/HINT:  Set "max_worker_processes" to at least 4, plus/, '... and of what it takes');
$node->safe_psql('postgres', kv_table($_, 'k int, v text', 'k', "wal '" . s{t_}{}r . "', shards '4'") . "CREATE TABLE h_$_ (k int PRIMARY KEY, v text)") for qw(t_full t_keys t_none);
my $standby = kv_standby($node, 'standby');

sub work
{
	my ($what, $server) = @_;
	my @tables = map { ($_, "h_$_") } qw(t_full t_keys t_none);
	my @w = map { psql_writer($server, "INSERT INTO $_ SELECT (g * 200000::bigint - 2000000000)::int, rpad('v' || g, 3000, md5(g::text)) FROM generate_series(1, 3000) g ORDER BY md5(g::text) ON CONFLICT (k) DO UPDATE SET v = md5(excluded.v) || excluded.v;
		UPDATE $_ SET v = v || 'x' WHERE k % 3 = 0; DELETE FROM $_ WHERE k % 7 = 0;", $_) } @tables;
	is(join('', map { outcome($_) } @w), '', "$what: loads go on");
	for my $t (qw(t_full t_keys t_none))
	{
		is(tables_differ($server, $t, "h_$t", 'k'), '', "$what: scans of $t show its rows");
		is($server->safe_psql('postgres', "SELECT sum(length(md5(v))) FROM (SELECT v FROM $t ORDER BY k) s"), $server->safe_psql('postgres', "SELECT sum(length(md5(v))) FROM h_$t"), '... and so in the order of keys');
	}
	return;
}

work('without a slot', $node);
is(processes($node), 'checkpointer maintainer', 'no other process runs');
my @sizes = map { $node->safe_psql('postgres', "SELECT value_file_bytes FROM kvfdw_stat_tables WHERE relid = 't_full'::regclass") } 1;
$node->safe_psql('postgres', q{SELECT kvfdw_compact('t_full')});
cmp_ok($node->safe_psql('postgres', q{SELECT value_file_bytes FROM kvfdw_stat_tables WHERE relid = 't_full'::regclass}), '<', $sizes[0], 'a compaction by hand gives space back');
caught_up($node, $standby);
is(tables_differ($standby, 't_full', 'h_t_full', 'k'), '', 'a standby replays it');
kill_all($node);
$node->start;
is(tables_differ($node, $_, "h_$_", 'k'), '', "$_ is there after a crash") for qw(t_full t_keys t_none);
is(processes($node), 'checkpointer maintainer', 'no other process runs then');
is(kv_check_clean($node, qw(t_full t_keys t_none)), '', 'the tables are sound');

# ---- there is a place, and another's worker has the slot ----
my $publisher = kv_cluster('publisher', wal_level => 'logical', max_wal_senders => 5, max_replication_slots => 5);
$publisher->safe_psql('postgres', 'CREATE TABLE p (k int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE p');
$standby->stop;
$node->append_conf('postgresql.conf', 'max_worker_processes = 4');
$node->restart;
$node->safe_psql('postgres', 'CREATE TABLE p (k int PRIMARY KEY)');
$node->safe_psql('postgres', sprintf('CREATE SUBSCRIPTION s CONNECTION $$%s$$ PUBLICATION p WITH (copy_data = off)', $publisher->connstr('postgres')));
my $applies = q{SELECT count(pid) FROM pg_stat_subscription WHERE subname = 's'};
wait_for('the subscription', 120, sub { answer($node, $applies) eq '1' });
my $log = -s $node->logfile;
work('beside a subscription', $node);
is(processes($node), 'checkpointer maintainer', 'no other process runs');
unlike(slurp_file($node->logfile, $log), qr/WARNING|ERROR|PANIC/, 'and the log says nothing more');
$node->safe_psql('postgres', 'DROP SUBSCRIPTION s');
ok(eval { wait_for('the buffer writer', 120, sub { $node->safe_psql('postgres', q{UPDATE t_keys SET v = v}); processes($node) =~ /buffer writer/ }) }, 'when the slot is free the buffer writer comes');
$node->safe_psql('postgres', 'UPDATE h_t_keys SET v = v');
is(tables_differ($node, 't_keys', 'h_t_keys', 'k'), '', '... and the rows are right');
$node->stop;
$publisher->stop;
done_testing();
