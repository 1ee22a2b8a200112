# Promise: recovery to a point in time gives tables with wal level full the rows that
# heap has at that point, from any base backup and again after power loss, also when
# it is stopped while it recovers; then the server goes on.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";
my $node = kv_primary('p', archive_mode => 'on', archive_command => "'cp \"%p\" \"" . "$PostgreSQL::Test::Utils::tmp_check/archive/%f\"'");
my $archive = "$PostgreSQL::Test::Utils::tmp_check/archive";
mkdir $archive;
twin_tables($node);
$node->safe_psql('postgres', kv_table('lone_kv', 'k int, v text', 'k') . 'CREATE TABLE lone_heap (k int PRIMARY KEY, v text);');
$node->safe_psql('postgres', kv_table('lower_keys', 'k int, v text', 'k', q{wal 'keys'}) . kv_table('lower_none', 'k int, v text', 'k', q{wal 'none'}) . join('', map { "INSERT INTO lower_$_ SELECT g, repeat('l', g) FROM generate_series(1, 100) g;" } 'keys', 'none'));

my $load = start_load($node, 1 .. 2);
load_goes_on($load, 4);
$node->backup('early');
load_goes_on($load, 10);
# who has a table locked against readers at a point has it locked for as long as recovery pauses there
sub point
{
	my ($name) = @_;
	$node->safe_psql('postgres', "BEGIN; SELECT FROM twin_kv, twin_heap LIMIT 0; SELECT pg_switch_wal(); SELECT pg_create_restore_point('$name'); COMMIT");
	return;
}
point('busy');
load_goes_on($load, 20);
stop_load($load);
my $prepared = "BEGIN; INSERT INTO lone_kv VALUES (9, 'prepared'); INSERT INTO lone_heap VALUES (9, 'prepared'); PREPARE TRANSACTION 'p';";
$node->safe_psql('postgres', "CHECKPOINT; $prepared");
point('prepared');
my $rows = rows_of($node, 'twin_kv', 'w, i');

# no checkpoint between, nor one that the load had begun
$node->safe_psql('postgres', join('', map { "INSERT INTO $_ SELECT 7, g, repeat('far', g) FROM generate_series(1, 300) g; UPDATE $_ SET v = 'far' WHERE i % 3 = 0; DELETE FROM $_ WHERE i % 5 = 0;" } 'twin_kv', 'twin_heap'));
point('far');
$load = start_load($node, 1 .. 2);
load_goes_on($load, 4);
$node->backup('late');
load_goes_on($load, 8);
point('after');
stop_load($load);
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'; TRUNCATE twin_kv; TRUNCATE twin_heap; CHECKPOINT; SELECT pg_switch_wal()});
my $last = $node->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_lsn())');
$node->safe_psql('postgres', 'INSERT INTO twin_heap SELECT 1, 1; DELETE FROM twin_heap; SELECT pg_switch_wal()');
$node->poll_query_until('postgres', "SELECT last_archived_wal >= '$last' FROM pg_stat_archiver") or die;
$node->stop;

# A server made of a backup, to recover to a point; what it does there.
sub recover
{
	my ($backup, $target, $action, $name) = @_;
	my $r = PostgreSQL::Test::Cluster->new($name // "${backup}_$target");
	$r->init_from_backup($node, $backup);
	$r->append_conf('postgresql.conf', "restore_command = 'cp \"$archive/%f\" \"%p\"'\nrecovery_target_name = '$target'\nrecovery_target_action = $action\narchive_mode = off\n");
	$r->set_recovery_mode;
	return $r;
}
sub ready { my ($r) = @_; wait_for('recovery to end', sub { answer($r, 'SELECT NOT pg_is_in_recovery()') eq 't' }); return; }
sub twins
{
	my ($r, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(tables_differ($r, 'twin_kv', 'twin_heap', 'w, i'), '', $what);
}

for my $from ([ 'early', 'busy' ], [ 'early', 'prepared' ], [ 'early', 'after' ], [ 'late', 'after' ])
{
	my ($backup, $target) = @$from;
	my $r = recover($backup, $target, 'promote');
	$r->start;
	ready($r);
	twins($r, "$backup to $target");
	sound($r, "$backup to $target");
	isnt(answer($r, 'SELECT count(*) FROM twin_kv'), '0', 'there are rows');
	unusable($r, "$backup to $target", 'lower_keys', 'lower_none');
	if ($target eq 'prepared')
	{
		is(rows_of($r, 'twin_kv', 'w, i'), $rows, 'the rows of that time');
		power_loss($r);
		is(answer($r, q{SELECT count(*) FROM lone_kv}), '0', 'the prepared transaction is still open');
		$r->safe_psql('postgres', q{COMMIT PREPARED 'p'});
		is(answer($r, q{SELECT count(*) FROM lone_kv}), '1', 'and can be committed');
		is(tables_differ($r, 'lone_kv', 'lone_heap', 'k'), '', 'which both tables see');
	}
	$load = start_load($r, 1 .. 2);
	load_goes_on($load, 3);
	if ($target eq 'busy') { kill_all($r); }
	stop_load($load);
	$r->start if $target eq 'busy';
	twins($r, 'written to');
	power_loss($r);
	twins($r, 'after power loss');
	sound($r, 'after power loss');
	$r->stop('immediate');
}

# ---- a pause on the way, a stop, power loss, and on to a later point ----

my $r = recover('early', 'busy', 'pause', 'pausing');
$r->start;
$r->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die;
twins($r, 'paused at the first point');
my $busy = rows_of($r, 'twin_kv', 'w, i');
$r->stop;
power_loss($r);
$r->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die;
is(rows_of($r, 'twin_kv', 'w, i'), $busy, 'stopped and after power loss it is there again');
kill_all($r);
$r->append_conf('postgresql.conf', "recovery_target_name = 'prepared'\n");
power_loss($r);
$r->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die;
is(rows_of($r, 'twin_kv', 'w, i'), $rows, 'and goes on to the second');
$r->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
ready($r);
twins($r, 'and ends there');
sound($r, 'and ends there');
$r->stop('immediate');

# ---- killed at a later point, recovered to an earlier one ----

# pages of heap are written only when the server knows that it must not go back
# behind them, and so it is with kvfdw's files; here it writes none.  What was replayed
# into kvfdw tables must not stay either
$r = recover('early', 'far', 'pause', 'back');
$r->append_conf('postgresql.conf', "bgwriter_lru_maxpages = 0\nshared_buffers = 256MB\nkvfdw.compact_workers = 0\nkvfdw.flush_after = 1d\n");
$r->start;
$r->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die;
twins($r, 'the later point');
is(answer($r, 'SELECT count(*) > 0 FROM twin_kv WHERE w = 7'), 't', 'with its rows');
kill_all($r);
$r->append_conf('postgresql.conf', "recovery_target_name = 'prepared'\nrecovery_target_action = promote\n");
$r->start;
ready($r);
is(rows_of($r, 'twin_kv', 'w, i'), $rows, 'the earlier point');
$r->safe_psql('postgres', 'DO $$ BEGIN FOR i IN 1 .. 500 LOOP INSERT INTO made VALUES (i); DELETE FROM made WHERE name = i::text; COMMIT; END LOOP; END $$');
is(rows_of($r, 'twin_kv', 'w, i'), $rows, 'what came later does not come back with its transaction numbers');
twins($r, 'nor is anything lost');
$r->stop('immediate');
done_testing();
