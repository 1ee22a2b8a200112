# Promise: rows that are inserted in batches share WAL records, and are there after kills, on a
# standby and after power loss. A batch that ends between its rows and its record leaves nothing.
# A batch waits for the writers of its keys, one after the other, and can be canceled there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

my $node = kv_primary('batches', max_prepared_transactions => 5);
my @levels = heap_only() ? ('full') : qw(full keys none);
$node->safe_psql('postgres', join('', map { kv_table("t_$_", 'k int, v text', 'k', "shards '4', wal '$_'") } @levels) .
	kv_table('t', 'k int, v text', 'k') . 'CREATE TABLE heap (k int PRIMARY KEY, v text); CREATE EXTENSION pg_walinspect');

sub both { my ($sql) = @_; return join('', map { my $t = $_; $sql =~ s/%s/$t/gr } qw(t heap)); }

# How many records of kvfdw of each type there are since a position.
sub records
{
	my ($since) = @_;
	my $sql = "SELECT record_type || ' ' || count(*) FROM pg_get_wal_records_info('$since', pg_current_wal_flush_lsn()) WHERE resource_manager = 'kvfdw' GROUP BY record_type";
	return { map { split / / } split /\n/, $node->safe_psql('postgres', $sql) };
}

sub here { return $node->safe_psql('postgres', 'SELECT pg_current_wal_lsn()'); }

unless (heap_only())
{
	my $lsn = here();
	$node->safe_psql('postgres', q{INSERT INTO t SELECT g, repeat('s', 50) FROM generate_series(1, 6400) g});
	my $n = records($lsn);
	cmp_ok($n->{VERSIONS} // 0, '<=', 250, '6400 small rows: few records');
	cmp_ok($n->{VERSIONS} // 0, '>=', 6400 / 64, 'of at most 64 rows');
	cmp_ok($n->{PUT} // 0, '<=', 300, 'and few rows with one of their own');
	my $size = $node->safe_psql('postgres', "SELECT max(record_length) FROM pg_get_wal_records_info('$lsn', pg_current_wal_flush_lsn()) WHERE record_type = 'VERSIONS'");
	cmp_ok($size, '<', 8192, 'a record is smaller than a page');
	$lsn = here();
	$node->safe_psql('postgres', q{INSERT INTO t SELECT g + 10000, repeat('l', 3000) FROM generate_series(1, 300) g});
	$n = records($lsn);
	is($n->{PUT}, 300, 'large rows have their own records');
	is($n->{VERSIONS}, undef, 'and no other');
	$lsn = here();
	$node->safe_psql('postgres', q{INSERT INTO t VALUES (20000, 'alone')});
	is(records($lsn)->{PUT}, 1, 'so has a single row');
	$node->safe_psql('postgres', 'DELETE FROM t');
}

# ---- crashes, standby ----

my $standby = kv_standby($node, 'standby') unless heap_only();
$node->safe_psql('postgres', both(q{INSERT INTO %s SELECT g, repeat(md5(g::text), g % 20) FROM generate_series(1, 3000) g;}));
$node->safe_psql('postgres', "INSERT INTO t_$_ SELECT g, 'row ' || g FROM generate_series(1, 1000) g") for @levels;
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', both(q{INSERT INTO %s SELECT g * 7 % 10007 + 10000, repeat(md5(g::text), g % 40) FROM generate_series(1, 3000) g;}) .
	"BEGIN;" . both(q{INSERT INTO %s SELECT g, 'undone' FROM generate_series(5000, 5500) g;}) . 'ROLLBACK;');
$node->safe_psql('postgres', both(q{INSERT INTO %s SELECT g, 'prepared' FROM generate_series(6000, 6300) g;}) =~ s/^/BEGIN;/r . "PREPARE TRANSACTION 'p'");
kill_all($node);
$node->start;
is(tables_differ($node, 't', 'heap', 'k'), '', 'after a kill: rows of heap');
is(answer($node, "SELECT count(*) FROM t_$_"), 1000, "$_: all rows") for @levels;
$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
is(tables_differ($node, 't', 'heap', 'k'), '', 'with those that were prepared');
unless (heap_only())
{
	caught_up($node, $standby);
	is(rows_of($standby, 't', 'k, v'), rows_of($node, 't', 'k, v'), 'the standby has them');
	power_loss($node);
	is(tables_differ($node, 't', 'heap', 'k'), '', 'after power loss: rows of heap');
	is(kv_check_clean($node, 't'), '', 'and sound');
}

# ---- between rows and record ----

SKIP:
{
	skip 'needs fault injection', 1 unless has_faults($node);
	my $seen = 'SELECT count(*) FROM t WHERE k BETWEEN 40000 AND 50000';
	my ($rc, $out, $err) = $node->psql('postgres', q{SET kvfdw.stop_points = 'many_unlogged=error'; INSERT INTO t SELECT g, 'x' FROM generate_series(40000, 40100) g;});
	like($err, qr/ERROR/, 'an error before the record');
	is(answer($node, $seen), 0, 'leaves no row');
	is($node->safe_psql('postgres', q{BEGIN; SAVEPOINT s;
		DO $$ BEGIN SET LOCAL kvfdw.stop_points = 'many_unlogged=error'; INSERT INTO t SELECT g, 'x' FROM generate_series(40000, 40100) g;
			EXCEPTION WHEN OTHERS THEN NULL; END $$;
		INSERT INTO t SELECT g, 'instead' FROM generate_series(40000, 40100) g; COMMIT;} . $seen), 101, 'nor in a subtransaction, whose keys are free');
	my $times = times_ready($node);
	my $w = psql_writer($node, q{SET kvfdw.stop_points = 'many_unlogged=kill'; INSERT INTO t SELECT g, 'x' FROM generate_series(41000, 41100) g;}, 'killed');
	outcome($w);
	ready_again($node, $times);
	is(answer($node, $seen), 101, 'nor does a kill');
	# a checkpoint in between has the rows, without their record
	$w = psql_writer($node, q{SET kvfdw.stop_points = 'many_unlogged=wait'; INSERT INTO t SELECT g, 'x' FROM generate_series(42000, 42100) g;}, 'waits');
	stopped($node, 'many_unlogged');
	$node->safe_psql('postgres', 'CHECKPOINT');
	is(answer($node, $seen), 101, 'unseen while it runs');
	go_on($node, 'many_unlogged', $w);
	power_loss($node);
	is(answer($node, $seen), 202, 'there after its COMMIT');
	# a mark that no checkpoint has asked for has them, too, and their transaction's id is given again
	$node->safe_psql('postgres', q{CHECKPOINT; DELETE FROM t WHERE k < 10000});
	$w = psql_writer($node, q{SET kvfdw.stop_points = 'many_unlogged=wait'; INSERT INTO t SELECT g, 'x' FROM generate_series(43000, 43100) g;}, 'nameless');
	stopped($node, 'many_unlogged');
	my $xid = answer($node, 'SELECT backend_xid FROM pg_stat_activity WHERE backend_xid IS NOT NULL');
	is(answer($node, q{SELECT waiting_for FROM kvfdw_compact('t')}), '', 'a mark without a checkpoint');
	kill_all($node);
	outcome($w);
	$node->start;
	($rc, $out, $err) = $node->psql('postgres', q{INSERT INTO t VALUES (43010, 'again') RETURNING pg_current_xact_id()::text::int % 4294967296});
	is("$out $err", "$xid ", 'another transaction has its id, and the keys are free');
	is(answer($node, $seen), 203, 'and their rows are not seen');
	my $log = -s $node->logfile;
	$node->stop('fast');
	unlike(slurp_file($node->logfile, $log), qr/although transactions are still open/, 'no process counts as one that logs');
	$node->start;
}

# ---- waits ----

my $holds = 'BEGIN; INSERT INTO %s VALUES (%d, \'held\'); SELECT pg_advisory_lock(1); %s;';
for my $t ((map { "t_$_" } @levels), 'heap')
{
	for my $case ([ 'COMMIT', qr/23505|duplicate key value.*\(k\)=\(60050\) already exists/s, 0 ], [ 'ROLLBACK', qr/^$/, 100 ], [ 'cancel', qr/canceling statement due to user request/, 0 ])
	{
		my ($end, $error, $rows) = @$case;
		my $gate = psql_writer($node, 'SELECT pg_advisory_lock(1); SELECT pg_sleep(600);', "gate_$t$end");
		wait_for('the gate', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted}) == 1 });
		my $first = psql_writer($node, sprintf($holds, $t, 60050, $end eq 'cancel' ? 'ROLLBACK' : $end), "first_$t$end");
		wait_for('the holder', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 1 });
		my $second = psql_writer($node, "INSERT INTO $t SELECT g, 'batch' FROM generate_series(60001, 60100) g;", "second_$t$end");
		wait_for('a waiting batch', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}) == 1 });
		if ($end eq 'cancel')
		{
			$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted");
			like(outcome($second), $error, "$t: canceled while it waits");
		}
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted});
		outcome($gate);
		outcome($first);
		like(outcome($second), $error, "$t: $end of the other") if $end ne 'cancel';
		is(answer($node, "SELECT count(*) FROM $t WHERE k BETWEEN 60001 AND 60100 AND v = 'batch'"), $rows, "$t, $end: rows");
		$node->safe_psql('postgres', "DELETE FROM $t WHERE k BETWEEN 60001 AND 60100");
	}
}

# ---- SERIALIZABLE ----

for my $t (heap_only() ? () : 't_full', 'heap')
{
	$node->safe_psql('postgres', "DELETE FROM $t WHERE k >= 70000");
	my $skew = sub {
		my ($from, $name) = @_;
		return psql_writer($node, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM $t WHERE k >= 70000; SELECT pg_advisory_lock_shared(2);
			INSERT INTO $t SELECT g, (SELECT count(*)::text FROM $t WHERE k >= 70000) FROM generate_series($from, $from + 99) g; COMMIT;", $name);
	};
	my $gate = psql_writer($node, 'SELECT pg_advisory_lock(2); SELECT pg_sleep(600);', "gate_$t");
	wait_for('the gate', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted}) == 1 });
	my @writers = ($skew->(70000, "one_$t"), $skew->(71000, "two_$t"));
	wait_for('both', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) == 2 });
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'});
	outcome($gate);
	my $said = join '', map { outcome($_) } @writers;
	like($said, qr/could not serialize access/, "$t: one of two that have not seen each other fails");
	is(answer($node, "SELECT count(*) FROM $t WHERE k >= 70000"), 100, "$t: the other has its rows");
}
done_testing();
