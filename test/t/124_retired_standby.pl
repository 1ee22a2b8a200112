# Promise: a standby retires value files independently of its primary, and releases them with the
# primary's next checkpoint (I 14). Its queries see what heap has there, also in an older
# snapshot, after a crash, in a copy that was made while value files were retired, and after
# promotion.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no chunks' if heap_only();
my $primary = kv_primary('primary', 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_compact' => 'off', 'kvfdw.test_compactions' => 'off');
plan skip_all => 'needs fault injection' unless has_faults($primary);
$primary->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
sub both { my ($sql) = @_; return $primary->safe_psql('postgres', join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
my $round = 0;
sub change { $round++; return both("UPDATE T SET v = rpad(md5((k * $round)::text), 1500 + k * 37 % 3000, md5(k::text)) WHERE k % 2 = $round % 2"); }
both('INSERT INTO T SELECT g, rpad(md5(g::text), 1500 + g * 37 % 3000, md5(g::text)) FROM generate_series(1, 500) g');
my $standby = kv_standby($primary, 'standby', 'kvfdw.flush_after' => 1, 'kvfdw.test_compact' => 'on');

sub stat_of { my ($node, $column) = @_; return $node->safe_psql('postgres', "SELECT $column FROM kvfdw_stat_tables WHERE relid = 't'::regclass"); }
# Changes are replayed, and the standby has retired value files for them.
sub retires
{
	for (1 .. 50)
	{
		change();
		$primary->wait_for_catchup('standby', 'replay', $primary->lsn('flush'));
		last if eval { wait_for('the standby to retire chunks', 6, sub { stat_of($standby, 'obsolete_value_files') > 0 }) };
	}
	return cmp_ok(stat_of($standby, 'obsolete_value_files'), '>', 0, 'the standby retires chunks');
}

retires();
is(stat_of($standby, 'obsolete_waiting_for'), 'mark', 'they wait for a mark, which comes with a DURABLE');
is(stat_of($primary, 'obsolete_value_files'), '0', 'the primary has retired none');
same_as_heap($standby, 'standby');

# ---- a snapshot that is older than all that ----
{
	my $session = $standby->background_psql('postgres');
	my $expected = $standby->safe_psql('postgres', q{SELECT md5(string_agg(md5(v), '' ORDER BY k)) FROM heap});
	$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR SELECT md5(v) FROM t ORDER BY k');
	my $rows = $session->query_safe('FETCH 5 FROM c') . "\n";
	retires();
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_catchup('standby', 'replay', $primary->lsn('flush'));
	wait_for('release', sub { !(() = glob $standby->data_dir . "/kvfdw/dropped.*") });
	$rows .= $session->query_safe('FETCH ALL FROM c');
	$session->quit;
	is($standby->safe_psql('postgres', "SELECT md5('" . join('', split /\n/, $rows) . "')"), $expected, 'a cursor of before shows what its snapshot sees');
}

# ---- released with the primary's checkpoint ----
$primary->safe_psql('postgres', 'CHECKPOINT');
ok(eval { wait_for('release on the standby', sub { stat_of($standby, 'obsolete_value_files') == 0 || ($primary->safe_psql('postgres', 'CHECKPOINT') && 0) }) }, 'a checkpoint of the primary releases them');
ok(eval { wait_for('the maintainer to free them', sub { !(() = glob $standby->data_dir . "/kvfdw/dropped.*") }) }, 'they are freed');
same_as_heap($standby, 'released');

# ---- killed with retired value files, and copied ----
retires();
kill_all($standby);
restart_killed($standby);
$primary->wait_for_catchup('standby', 'replay', $primary->lsn('flush'));
same_as_heap($standby, 'killed');
retires();
my $copy = kv_standby($standby, 'copy');
change();
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_catchup('standby', 'replay', $primary->lsn('flush'));
my $lsn = $primary->lsn('flush');
wait_for('the copy', sub { $copy->safe_psql('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' });
same_as_heap($standby, 'copied');
same_as_heap($copy, 'the copy');
$copy->stop;

# ---- promoted ----
retires();
$primary->stop;
$standby->promote;
wait_for('promotion', sub { $standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f' });
same_as_heap($standby, 'promoted');
$standby->safe_psql('postgres', "UPDATE $_ SET v = 'after' WHERE k % 3 = 0") for qw(t heap);
$standby->safe_psql('postgres', q{SELECT kvfdw_flush('t')});
ok(eval { wait_for('release', sub { stat_of($standby, 'obsolete_value_files') == 0 }) }, 'what is retired then goes without a checkpoint');
same_as_heap($standby, 'gone on with');
$standby->stop;
done_testing();
