# Promise: kvfdw compactor keeps the value files of a table within its bound (I 19) while rows are overwritten
# many times, at every level, however slow it is: who comes to the bound waits, not for ever, and can be ended; who deletes or locks does not wait; it gives back the bytes of
# a load that was rolled back; it does not spin, nor do writers wait, where it does not run, or a snapshot, their own or an old one, a base backup,
# a full disk or files that do not go are in its way, and it goes on when that has ended; a DROP and the end of its process do no harm.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('space_limit', 'kvfdw.compact_sort' => 'off', checkpoint_timeout => '1h', checkpoint_completion_target => 0, max_wal_size => '16GB', 'kvfdw.flush_after' => 1, 'kvfdw.test_value_file_kb' => 64,
	'kvfdw.compact_memory' => '4MB', 'kvfdw.test_compact' => 'off', 'kvfdw.test_compactions' => 'off', wal_level => 'replica', max_prepared_transactions => 2);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
my @levels = qw(full keys none);
my $rows = 1500;

sub query { return $node->safe_psql('postgres', @_); }
sub stat_of { my ($table, $columns) = @_; return query("SELECT $columns FROM kvfdw_stat_tables WHERE relid = '$table'::regclass ORDER BY generation DESC LIMIT 1"); }
# It looks at all tables, and tries again what has failed.
sub look_again { kill 'HUP', postmaster_runs($node) or die; return; }
sub compactor { return query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw compactor'}); }
# A session that waits for room in the table.  Before PostgreSQL 17 all that wait in an extension look alike, but do not for long.
sub waiting
{
	my ($table) = @_;
	my ($pid, $last, $same) = ('', '', 0);
	wait_for("a writer to wait for room in $table", sub {
		$pid = query("SELECT min(pid) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE '%UPDATE $table%'");
		$same = $pid ne '' && $pid eq $last ? $same + 1 : 0;
		$last = $pid;
		return $same == 4;
	});
	return $pid;
}
sub until_bound
{
	my ($table, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { wait_for("$table to keep to its bound", sub { look_again(); stat_of($table, 'value_file_bytes <= space_limit AND value_file_bytes < 1.6 * live_bytes + 400000') eq 't' }) }, "$when: $table is back within its bound") ||
	  diag(stat_of($table, '*') =~ s/\|/ | /gr);
}
sub settle_passes
{
	my ($table) = @_;
	my ($passes, $same) = (-1, 0);
	wait_for('passes to end', sub { look_again(); my $now = stat_of($table, 'compactions') . query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}); $same = $now eq $passes ? $same + 1 : 0; $passes = $now; $same == 4 });
	return stat_of($table, 'compactions');
}

my $value = sub { my ($n) = @_; return "rpad(md5(($n)::text), 2500 + ($n) * 37 % 3000, md5(k::text))"; };
my $fill = sub { my ($table) = @_; return "INSERT INTO $table SELECT k, " . $value->('k') . " FROM generate_series(1, $rows) k;"; };
query(join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") . $fill->("t_$_") } @levels));

# ---- overwritten eight times, half of it uniformly ----
{
	# 30 rows at a time; in the skewed half most of them are among a tenth of all
	my $script = sub { my ($table) = @_; return "DO \$\$ BEGIN FOR i IN 1 .. 8 * $rows / 30 LOOP
		UPDATE $table SET v = " . $value->('k * 7 + i') . " WHERE k = ANY (ARRAY(SELECT 1 + floor(power(random(), CASE WHEN i % 100 < 50 THEN 1 ELSE 4 END) * $rows)::int FROM generate_series(1, 30)));
		COMMIT; END LOOP; END \$\$;"; };
	# one at a time: what the snapshot of a writer who waits keeps of another table is live until it goes on, and no more
	# then.  So is what a sample keeps, if it takes long, and the bound falls when it ends: one may be beyond.
	for my $level (@levels)
	{
		my $writer = psql_writer($node, $script->("t_$level"), "writer_$level");
		my @over;
		wait_for('a writer to end', sub { push @over, stat_of("t_$level", '(value_file_bytes + obsolete_bytes - space_limit)::numeric / live_bytes'); ended($writer) });
		is(outcome($writer), '', "$level: a writer beside compaction");
		@over = sort { $b <=> $a } @over;
		note "$level: " . grep({ $_ > 0 } @over) . ' of ' . @over . " samples beyond the bound, at most by $over[0]; " . stat_of("t_$level", 'compactions, moved_bytes, device_write_bytes, value_file_bytes, live_bytes, obsolete_bytes, space_waits');
		cmp_ok($over[1], '<', 0.1, "$level: near its bound all the time, or below it");
		cmp_ok(stat_of("t_$level", 'compactions'), '>', 3, "$level: it was compacted by itself");
		until_bound("t_$level", 'overwritten');
		is(query("SELECT count(*), sum((length(v) >= 2500)::int) FROM t_$level"), "$rows|$rows", "$level: all rows are there");
		is(kv_check_clean($node, "t_$level"), '', "$level: it is sound");
	}
	ok(eval { wait_for('retired chunks to go', sub { stat_of('t_keys', 'obsolete_bytes') < 20_000_000 }) }, 'keys: much that is retired has a checkpoint asked for');
}

# ---- a compactor that does not come on: who comes to the bound waits there, and does not go beyond it ----
{
	query(kv_table('b', 'k int, v text', 'k', "shards '2'") . $fill->('b'));
	until_bound('b', 'filled');
	# in short transactions, for who replaces in one what he has written there keeps it himself
	my $over = 'value_file_bytes + obsolete_bytes > space_limit + live_bytes / 8';
	my $update = sub { my ($i) = @_; return "DO \$\$ BEGIN FOR i IN 1 .. 300 LOOP UPDATE b SET v = " . $value->('k + i') . " WHERE k % 75 = 3 * (i % 25) + $i; COMMIT; END LOOP; END \$\$;" };
	worker_stop_points($node, 'compact_chosen=wait');
	my @writers = map { psql_writer($node, $update->($_), "beyond_$_") } 0 .. 2;
	stopped($node, 'compact_chosen');
	wait_for('writers to wait', sub { stat_of('b', 'space_waits') >= 3 });
	query('SELECT pg_sleep(1)');
	is(stat_of('b', $over), 'f', 'a compactor that does not come on: nobody goes beyond the bound');
	ok(!(grep { ended($_) } @writers), 'and writers wait');
	step_on($node, 'compact_chosen') for 1 .. 3;
	is(stat_of('b', $over), 'f', 'nor while it comes on slowly');
	my $waiting = waiting('b');
	is(query("SELECT pg_cancel_backend($waiting)"), 't', 'one that waits is cancelled');
	wait_for('it to end', sub { grep { ended($_) } @writers });
	# a session outlives its psql for a moment
	ok(eval { wait_for('its session to end', sub { query("SELECT count(*) FROM pg_stat_activity WHERE pid = $waiting") == 0 }) }, 'and ends');
	worker_stop_points($node, '');
	go_on($node, 'compact_chosen');
	is(join('', map { outcome($_) =~ s/^.*(canceling statement).*$/$1;/sr } @writers), 'canceling statement;', 'the others go on with it');

	# what writers take while it counts is not forgotten
	worker_stop_points($node, 'space_counted=wait');
	stopped($node, 'space_counted');
	my $waits = stat_of('b', 'space_waits');
	my $writer = psql_writer($node, "SET kvfdw.stop_points = '';" . $update->(1), 'counted');
	wait_for('a writer to wait', sub { stat_of('b', 'space_waits') > $waits });
	worker_stop_points($node, 'compact_chosen=wait');
	go_on($node, 'space_counted');
	stopped($node, 'compact_chosen');
	query('SELECT pg_sleep(0.5)');
	is(stat_of('b', $over), 'f', 'what is written while it counts is not forgotten');
	worker_stop_points($node, '');
	go_on($node, 'compact_chosen');
	is(outcome($writer), '', 'and the writer goes on');
	until_bound('b', 'slow');

	# what is done by hand comes on top, until what was emptied has gone
	settle_passes('b');
	my ($bound, $live) = split /\|/, stat_of('b', 'space_limit, live_bytes');
	my $by_hand = psql_writer($node, "SET kvfdw.stop_points = 'compact_written=wait'; SELECT count(*) FROM kvfdw_compact('b', sorted => true)", 'by_hand');
	stopped($node, 'compact_written');
	cmp_ok(stat_of('b', 'space_limit'), '>', $bound + $live / 4, 'by hand: it is set aside');
	is(go_on($node, 'compact_written', $by_hand), "1\n", 'it goes through');
	ok(eval { wait_for('the bound of before', sub { stat_of('b', 'space_limit') < $bound + $live / 4 }) }, 'and then it is not any more');

	# DROP waits for who waits, as for any writer, and nothing waits for that
	worker_stop_points($node, 'compact_chosen=wait');
	$writer = psql_writer($node, "SET kvfdw.stop_points = '';" . $update->(2), 'dropped');
	stopped($node, 'compact_chosen');
	my $pid = waiting('b');
	like(($node->psql('postgres', 'VACUUM b'))[2], qr/skipping "b"/, 'VACUUM beside one that waits leaves the table out, as it does any foreign table');
	my $log = -s $node->logfile;
	my $drop = psql_writer($node, 'DROP FOREIGN TABLE b', 'drop');
	wait_for('DROP to wait', sub { query("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = 'DROP FOREIGN TABLE b'") });
	query("SELECT pg_cancel_backend($pid)");
	like(outcome($writer), qr/canceling statement/, 'DROP beside one that waits');
	is(outcome($drop), '', 'it goes through when that ends, beside a compaction');
	worker_stop_points($node, '');
	go_on($node, 'compact_chosen');
	ok(eval { wait_for('its files to go', sub { !(() = glob "$data/kvfdw/dropped.*") }) }, 'and the files go');
	unlike(slurp_file($node->logfile, $log), qr/could not compact value file/, 'nothing is called damaged');
}

# ---- who does not wait, how long one waits at most, and what ends it ----
{
	query(kv_table('w', 'k int, v text', 'k', "shards '1', max_space_amplification '0'") . $fill->('w'));
	# each file keeps some that are live, or it would go with any flush once it is chosen
	query("UPDATE w SET v = reverse(v) WHERE k % 8 >= $_") for 1 .. 3;
	wait_for('what was replaced to be dead for all', sub { stat_of('w', 'live_bytes * 2 < value_file_bytes') eq 't' });
	query("SELECT kvfdw_flush('w')");	# afterwards it has no open slot
	worker_stop_points($node, 'compact_chosen=wait');
	query("ALTER FOREIGN TABLE w OPTIONS (SET max_space_amplification '1.5'); SELECT count(*) FROM w");
	stopped($node, 'compact_chosen');
	step_on($node, 'compact_chosen') until query(q{SELECT relid::regclass FROM kvfdw_stat_progress WHERE command = 'compact'}) eq 'w';
	my $waits = 0;
	my $waited = sub { my $before = $waits; $waits = stat_of('w', 'space_waits'); return $waits - $before; };
	my $update = "UPDATE w SET v = v || 'y' WHERE k <= 500";
	is(query('DELETE FROM w WHERE k < 3 RETURNING 1'), "1\n1", 'rows can be deleted');
	is(query('SELECT k FROM w WHERE k = 3 FOR UPDATE'), 3, 'and locked');
	is($waited->(), 0, 'who does that does not wait');
	query("SET kvfdw.test_space_most = 20; $update");
	cmp_ok($waited->(), '>', 2, 'for each slot one waits, but not for ever');
	like(($node->psql('postgres', "SET statement_timeout = 500; $update"))[2], qr/statement timeout/, 'a statement that waits ends in time');
	my $writer = psql_writer($node, $update, 'terminated');
	query('SELECT pg_terminate_backend(' . waiting('w') . ')');
	like(outcome($writer), qr/terminating connection/, 'and so does a session');
	$waited->();
	query("SET kvfdw.test_space_beat = 100; SET kvfdw.test_space_most = 5000; $update");
	like($waited->(), qr/^[12]$/, 'a compactor that does not come on: after a while nobody waits for it');

	# DDL waits for who waits, as for any writer, and nothing waits for that
	my $log = -s $node->logfile;
	step_on($node, 'compact_chosen');
	$writer = psql_writer($node, $update, 'truncated');
	my $pid = waiting('w');
	query('ANALYZE w');
	my $truncate = psql_writer($node, 'TRUNCATE w', 'truncate');
	wait_for('TRUNCATE to wait', sub { query("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = 'TRUNCATE w'") });
	query("SELECT pg_cancel_backend($pid)");
	like(outcome($writer), qr/canceling statement/, 'TRUNCATE beside one that waits');
	is(outcome($truncate), '', 'it goes through when that ends, beside a compaction');
	worker_stop_points($node, '');
	go_on($node, 'compact_chosen');
	query('INSERT INTO w VALUES (1, 1)');
	is(query('SELECT count(*) FROM w'), 1, 'and the table is empty');
	query('DROP FOREIGN TABLE w');
	unlike(slurp_file($node->logfile, $log), qr/could not compact value file/, 'nothing is called damaged');
}

# ---- a split is in the way of compaction, and stands: who comes to the bound waits for it once, not for each write buffer ----
{
	query("ALTER SYSTEM SET kvfdw.max_space_amplification = 0; SELECT pg_reload_conf()");
	query(kv_table('s', 'k int, v text', 'k', "shards '1'") . $fill->('s'));
	wait_for('no bound', sub { stat_of('s', 'space_limit IS NULL') eq 't' });
	query("UPDATE s SET v = reverse(v) WHERE k % 8 >= $_") for 1 .. 3;
	wait_for('what was replaced to be dead for all', sub { stat_of('s', 'live_bytes * 2 < value_file_bytes') eq 't' });
	query("SELECT kvfdw_flush('s')");
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'split_copying=wait'; SELECT kvfdw_split('s')}, 'split');
	stopped($node, 'split_copying');
	query("ALTER SYSTEM RESET kvfdw.max_space_amplification; SELECT pg_reload_conf()");
	wait_for('a bound', sub { stat_of('s', 'space_limit < value_file_bytes') eq 't' });
	query("SET kvfdw.test_space_beat = 100; UPDATE s SET v = v || 'y'");
	my $waits = stat_of('s', 'space_waits');
	cmp_ok($waits, '>', 0, 'a split that stands: writers wait for it');
	cmp_ok($waits, '<', 4, 'and after a while nobody does, until something comes on');
	unlike(go_on($node, 'split_copying', $split), qr/ERROR|hangs/, 'the split goes on');
	until_bound('s', 'split');
	query('DROP FOREIGN TABLE s');
}

# ---- what a rolled back load has written goes by itself, and as soon as it is frozen ----
{
	my $load = sub { query("BEGIN; INSERT INTO t_full SELECT 10000 + k, v FROM t_full; INSERT INTO t_full SELECT 20000 + k, v FROM t_full; ROLLBACK"); cmp_ok(stat_of('t_full', 'value_file_bytes'), '>', 20_000_000, 'a load has written much') };
	$load->();
	until_bound('t_full', 'rolled back');
	query("ALTER SYSTEM SET kvfdw.test_space_look = '1h'");
	settle_passes('t_full');
	$load->();
	query("SELECT kvfdw_flush('t_full')");
	ok(eval { wait_for('t_full to keep to its bound', sub { stat_of('t_full', 'value_file_bytes < 1.6 * live_bytes + 400000') eq 't' }) }, 'rolled back: a freeze has it looked at');
	query('ALTER SYSTEM RESET kvfdw.test_space_look; SELECT pg_reload_conf()');
}

# ---- small values and blocks in turn: the padding between them is not dead ----
query(kv_table('a', 'k int, v text', 'k') . "INSERT INTO a SELECT k, CASE k % 2 WHEN 0 THEN rpad(k::text, 4096) ELSE k::text END FROM generate_series(1, 2000) k; UPDATE a SET v = v WHERE k < 1800");
until_bound('a', 'alternating');
my $passes_then = settle_passes('a');
cmp_ok(settle_passes('a') - $passes_then, '<=', 2, 'padding: it does not spin');
query('DROP FOREIGN TABLE a');

# ---- an index larger than a tenth of its shard, or than 64 files: one compaction, which rewrites it, may move as much ----
query(kv_table('small', 'k int, v text', 'k', "shards '1'") . "INSERT INTO small SELECT k, repeat(md5(k::text), 6) FROM generate_series(1, 150000) k; SELECT kvfdw_flush('small')");
cmp_ok(stat_of('small', 'space_limit - 1.5 * live_bytes'), '>', 150_000 * 48, 'small values: a compaction pays for rewriting the index');
cmp_ok(stat_of('small', 'space_limit'), '<', stat_of('small', '2.1 * live_bytes'), 'and the bound is there all the same');
query('DROP FOREIGN TABLE small');

# ---- an old snapshot: what it sees is live; nobody waits for it, and nothing spins ----
my $change = sub { my ($n) = @_; return query("UPDATE t_full SET v = " . $value->("k + $n")); };
{
	my $old = $node->background_psql('postgres');
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t_full');
	$change->($_) for 1 .. 3;
	wait_for('it to say what it waits for', sub { look_again(); stat_of('t_full', 'space_blocked_by') eq 'snapshot' });
	cmp_ok(stat_of('t_full', 'value_file_bytes'), '>', 15_000_000, 'a snapshot: versions stay');
	my ($passes, $waits) = split /\|/, stat_of('t_full', 'compactions, space_waits') =~ s/^\d+/settle_passes('t_full')/er;
	look_again(), query('SELECT pg_sleep(0.2)') for 1 .. 5;
	is(stat_of('t_full', 'compactions'), $passes, 'a snapshot: it does not spin');
	query("UPDATE t_full SET v = v || 'x' WHERE k % 50 = 1");
	is(stat_of('t_full', 'space_waits'), $waits, 'a snapshot: writers do not wait');
	$old->query_safe('COMMIT');
	$old->quit;
	until_bound('t_full', 'after the snapshot');
	is(stat_of('t_full', 'space_blocked_by'), '', 'and nothing is waited for');
}

# ---- a transaction that is prepared keeps what was replaced since, and nobody waits for it ----
{
	query("BEGIN; UPDATE t_full SET v = v || 'y' WHERE k = 1; PREPARE TRANSACTION 'p'");
	query("UPDATE t_full SET v = " . $value->("k + $_") . " WHERE k > 1") for 21 .. 23;
	wait_for('it to say what it waits for', sub { look_again(); stat_of('t_full', 'space_blocked_by') eq 'snapshot' });
	cmp_ok(stat_of('t_full', 'value_file_bytes'), '>', 15_000_000, 'a prepared transaction: versions stay');
	query("COMMIT PREPARED 'p'");
	until_bound('t_full', 'after the prepared transaction');
}

# ---- one transaction that replaces all rows again and again keeps them itself: it does not wait ----
{
	# else it waits for what others have left
	query("SELECT kvfdw_compact('t_full')");
	wait_for('files that were emptied to go', sub { stat_of('t_full', 'obsolete_bytes') == 0 });
	my ($passes, $waits) = split /\|/, stat_of('t_full', 'compactions, space_waits') =~ s/^\d+/settle_passes('t_full')/er;
	query('BEGIN; ' . join('', map { "UPDATE t_full SET v = " . $value->("k + $_") . ';' } 24 .. 30) . ' COMMIT');
	is(stat_of('t_full', 'space_waits'), $waits, 'one transaction: it does not wait for itself');
	until_bound('t_full', 'after it');
}

# ---- what was emptied does not go: after a while nobody waits for it, and the rest is compacted all the same ----
{
	query("ALTER SYSTEM SET kvfdw.test_space_release = '1h'");
	worker_stop_points($node, 'free_step=wait');
	my $updates = sub { return join('', "SET kvfdw.stop_points = '';", map { "UPDATE t_full SET v = " . $value->("k + $_") . ';' } @_) };
	my $writer = psql_writer($node, "SET kvfdw.test_space_beat = '1h'; SET kvfdw.test_space_most = '1h';" . $updates->(31 .. 36), 'unbound');
	waiting('t_full');
	query("ALTER SYSTEM SET kvfdw.max_space_amplification = 0; SELECT pg_reload_conf()");
	is(outcome($writer), '', 'who waits goes on when there is no bound any more');
	query("ALTER SYSTEM SET kvfdw.test_space_release = '1s'; ALTER SYSTEM RESET kvfdw.max_space_amplification; SELECT pg_reload_conf()");
	$writer = psql_writer($node, $updates->(37 .. 42), 'release');
	ok(eval { wait_for('it to say what it waits for', sub { stat_of('t_full', 'space_blocked_by') eq 'release' }) }, 'files do not go: it says so');
	my $passes = stat_of('t_full', 'compactions');
	is(outcome($writer), '', 'and writers go on');
	ok(eval { wait_for('passes', sub { stat_of('t_full', 'compactions') > $passes }) }, 'and so do compactions');
	query('ALTER SYSTEM RESET kvfdw.test_space_release');
	worker_stop_points($node, '');
	go_on($node, 'free_step');
	until_bound('t_full', 'when they go again');
	ok(eval { wait_for('that to be seen', sub { look_again(); stat_of('t_full', 'space_blocked_by') eq '' }) }, 'and nothing is waited for');
}

# ---- a base backup ----
{
	my $backup = $node->background_psql('postgres');
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_start('b', true)");
	my $passes = settle_passes('t_full');
	$change->($_) for 4 .. 6;
	wait_for('it to say what it waits for', sub { look_again(); stat_of('t_full', 'space_blocked_by') eq 'backup' });
	is(stat_of('t_full', 'compactions'), $passes, 'a backup: nothing is compacted meanwhile');
	$backup->query_safe('SELECT 1 FROM pg_backup_stop()');
	$backup->quit;
	until_bound('t_full', 'after the backup');
}

# ---- little space: what it would take is left to others ----
{
	my $written = sub { query("SELECT bytes FROM kvfdw_stat_io WHERE kind = 'compact write'") };
	settle_passes('t_full');
	query("ALTER SYSTEM SET kvfdw.test_space_kb = 10; SELECT pg_reload_conf()");
	my $before = $written->();
	$change->($_) for 17 .. 19;
	wait_for('it to say what it waits for', sub { stat_of('t_full', 'space_blocked_by') eq 'disk' });
	is($written->(), $before, 'little space: nothing is written');
	query("ALTER SYSTEM RESET kvfdw.test_space_kb; SELECT pg_reload_conf()");
	until_bound('t_full', 'with enough of it again');
}

# ---- a full disk ----
{
	query("ALTER SYSTEM SET kvfdw.fault = 'compact_write:1+:ENOSPC'; SELECT pg_reload_conf()");
	my $log = -s $node->logfile;
	$change->($_) for 7 .. 8;
	query("UPDATE t_full SET v = " . $value->("k + 9") . " WHERE k % 3 > 0");
	wait_for('it to say what it waits for', sub { stat_of('t_full', 'space_blocked_by') eq 'disk' });
	$change->(10);
	cmp_ok(scalar(() = slurp_file($node->logfile, $log) =~ /No space left on device/g), '<', 10, 'a full disk: it tries now and then');
	query("ALTER SYSTEM RESET kvfdw.fault; SELECT pg_reload_conf()");
	until_bound('t_full', 'with room again');
}

# ---- DROP in the middle; its process ends there ----
{
	query(kv_table('d', 'k int, v text', 'k') . $fill->('d'));
	my $pid = compactor();
	my $log = -s $node->logfile;
	worker_stop_points($node, 'compact_slice=wait');
	query("UPDATE d SET v = reverse(v) WHERE k % 3 > 0");	# once: who comes to the bound waits
	stopped($node, 'compact_slice');
	query("SET kvfdw.stop_points = ''; DROP FOREIGN TABLE d");
	worker_stop_points($node, '');
	go_on($node, 'compact_slice');
	wait_for('its files to go', sub { !(() = glob "$data/kvfdw/dropped.*") });
	is(compactor(), $pid, 'a table is dropped while it is compacted: its process goes on');
	unlike(slurp_file($node->logfile, $log), qr/could not compact value file|ERROR/, 'and calls nothing damaged');

	query("SELECT kvfdw_compact('t_full')");
	worker_stop_points($node, 'compact_written=wait');
	# of value files in which nothing is live nothing would be written; once, for who comes to the bound waits
	query("UPDATE t_full SET v = " . $value->('k + 12') . " WHERE k % 3 > 0");
	stopped($node, 'compact_written');
	my $sum = sub { my ($table, $n) = @_; return query("SELECT count(*), sum(hashtextextended(v, k)) FROM " . (defined $n ? "(SELECT k, " . $value->("k + $n") . " v FROM generate_series(1, $rows) k) s" : $table)) };
	my (%before, %writer, %acked);
	for (map { "t_$_" } @levels)
	{
		my $table = $_;
		$before{$table} = $sum->($table);
		$writer{$table} = psql_writer($node, "SET kvfdw.stop_points = ''; SET kvfdw.test_space_beat = '1h'; SET kvfdw.test_space_most = '1h';\n" .
			join('', map { "UPDATE $table SET v = " . $value->("k + $_") . ";\n\\echo ack $_\n" } 50 .. 56), "killed_$table");
	}
	waiting("t_$_") for @levels;
	worker_stop_points($node, '');
	my $ready = times_ready($node);
	kill_process(compactor());
	ready_again($node, $ready);
	unlink "$data/kvfdw/waiting.compact_written";
	for (sort keys %writer)
	{
		like(outcome($writer{$_}), qr/terminating connection|server closed the connection/, "it was killed: who waited for room in $_ ends");
		my $ack = reap_writer($writer{$_});
		is($sum->($_), $ack < 0 ? $before{$_} : $sum->(undef, $ack), "$_: what was acknowledged is there, and no more");
		until_bound($_, 'killed');
		is(kv_check_clean($node, $_), '', "killed: $_ is sound");
	}
}

# ---- two tables come to their bounds at once: they are served in turn ----
{
	query("ALTER SYSTEM SET kvfdw.max_space_amplification = 0; SELECT pg_reload_conf()");
	wait_for('no bound', sub { stat_of('t_full', 'space_limit IS NULL') eq 't' });
	# keys so far apart that several shards have some
	query(kv_table($_, 'k int, v text', 'k', "shards '16'") . "INSERT INTO $_ SELECT k * 1400000, " . $value->('k') . " FROM generate_series(1, $rows) k") for qw(large less);
	query('UPDATE large SET v = reverse(v)') for 1 .. 4;
	query('UPDATE less SET v = reverse(v) WHERE k / 1400000 % 4 > 0') for 1 .. 2;
	settle_passes('t_full');
	worker_stop_points($node, 'compact_chosen=wait');
	query("ALTER SYSTEM RESET kvfdw.max_space_amplification; SELECT pg_reload_conf()");
	# who waits for the files of its last compaction job to go leaves its turn to the other one
	my ($served, $turns) = ('', qr/large .*less .*large|less .*large .*less/);
	for (1 .. 40)
	{
		stopped($node, 'compact_chosen');
		$served .= query(q{SELECT relid::regclass FROM kvfdw_stat_progress WHERE command = 'compact'}) . ' ';
		last if $served =~ $turns;
		step_on($node, 'compact_chosen');
	}
	like($served, $turns, 'two: each has its turn');
	worker_stop_points($node, '');
	go_on($node, 'compact_chosen');
	until_bound($_, 'two') for qw(large less);
	query("DROP FOREIGN TABLE $_") for qw(large less);
}

# ---- off ----
query("ALTER SYSTEM SET kvfdw.max_space_amplification = 0; SELECT pg_reload_conf()");
wait_for('no bound', sub { stat_of('t_full', 'space_limit IS NULL') eq 't' });
my $passes = settle_passes('t_full');
$change->($_) for 13 .. 15;
is(settle_passes('t_full'), $passes, 'without a bound nothing is compacted');
cmp_ok(stat_of('t_full', 'value_file_bytes'), '>', 20_000_000, 'and nothing goes');
query("ALTER SYSTEM RESET kvfdw.max_space_amplification; ALTER SYSTEM SET max_worker_processes = 3");
$node->restart;
is(compactor(), '', 'there is no room for the compactor');
$change->(16);
is(stat_of('t_full', 'space_waits'), 0, 'nobody waits for it');
query("ALTER SYSTEM RESET max_worker_processes");
$node->restart;
until_bound('t_full', 'with a bound again, started again');
$node->stop;
done_testing();
