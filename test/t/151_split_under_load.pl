# Promise: shards are split and cut while others read and write, and nobody notices: cursors
# that are held, parallel scans, counts, lists of keys, rows that are locked and waited for,
# SERIALIZABLE, prepared transactions and values too large for a write buffer see and do what they
# do on heap, and so it is in a copy that a base backup has made.  Large shards are split and empty ones
# absorbed without being told (I 18).  A split that writers outrun says so.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('split_between', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.range_cache' => '1MB', 'kvfdw.memtable_memory' => '16MB', wal_level => 'replica', max_wal_senders => 4, max_prepared_transactions => 4);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
sub query { return $node->safe_psql('postgres', @_); }
sub files_of { my ($table) = @_; my $oid = query("SELECT '$table'::regclass::oid"); my @files = glob "$data/kvfdw/5/$oid/0*/*.val"; return @files; }
sub shards { return query("SELECT shards FROM kvfdw_stat_tables WHERE relid = 't'::regclass"); }
sub both { my ($sql) = @_; return query(join ';', map { (my $s = $sql) =~ s/\bT\b/$_/g; $s } 'heap', 't'); }
sub same { my ($when) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return same_as_heap($node, $when); }
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '1'"));
both('INSERT INTO T SELECT g * 7 % 3001, rpad(md5(g::text), 20 + g * 37 % 900, md5(g::text)) FROM generate_series(1, 3000) g');

# ---- sessions that began before ----
{
	my %session = map { $_ => $node->background_psql('postgres') } qw(up down values held lock serializable extent);
	my $up = $session{up}->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT k FROM t ORDER BY k; FETCH 1000 FROM c');
	my $down = $session{down}->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR SELECT k FROM t ORDER BY k DESC; FETCH 1000 FROM c');
	# the table is larger than the range cache, and each of the new shards lists its value files
	my $values = $session{values}->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT k, md5(v) FROM t ORDER BY k; FETCH 1000 FROM c');
	my $all = query('SELECT k, md5(v) FROM heap ORDER BY k');
	$session{held}->query_safe('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT sum(length(v)) FROM t; COMMIT');
	$session{lock}->query_safe('BEGIN; SELECT k FROM t WHERE k IN (5, 1500, 2990) FOR UPDATE; UPDATE t SET v = v || $$x$$ WHERE k = 700');
	$session{serializable}->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM t WHERE k < 100');
	$session{extent}->query_safe(q{BEGIN; INSERT INTO t VALUES (5000, repeat('e', 3000000))});
	query(q{BEGIN; INSERT INTO t VALUES (6000, 'prepared'); UPDATE t SET v = 'prepared' WHERE k = 800; PREPARE TRANSACTION 'p'});
	my $waiting = psql_writer($node, q{UPDATE t SET v = 'waited' WHERE k = 1500}, 'waits');
	wait_for('a session to wait for the row', sub { query(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'}) > 0 });
	my $before = query('SELECT sum(length(v)) FROM heap');

	cmp_ok(query(q{SELECT kvfdw_split('t')}), '>', 4, 'the table has several shards');
	cmp_ok(query(q{SELECT kvfdw_cut('t')}), '>', 8, 'and more');

	query(q{INSERT INTO t VALUES (9000, 'new'); DELETE FROM t WHERE k = 2000});
	query(q{INSERT INTO heap VALUES (9000, 'new'); DELETE FROM heap WHERE k = 2000});
	$up .= "\n" . $session{up}->query_safe('FETCH ALL FROM c');
	$down .= "\n" . $session{down}->query_safe('FETCH ALL FROM c');
	is(join(',', split /\n/, $up), query(q{SELECT string_agg(k::text, ',' ORDER BY k) FROM (SELECT k FROM heap WHERE k <> 9000 UNION SELECT 2000) s}), 'a cursor upwards goes on where it was');
	is(join(',', split /\n/, $down), query(q{SELECT string_agg(k::text, ',' ORDER BY k DESC) FROM (SELECT k FROM heap WHERE k <> 9000 UNION SELECT 2000) s}), 'and one downwards, with its snapshot');
	$values .= "\n" . $session{values}->query_safe('FETCH ALL FROM c');
	ok($values eq $all, 'and one that reads values through the range cache');
	is($session{held}->query_safe('FETCH ALL FROM c'), $before, 'and one that is held');
	$session{lock}->query_safe('UPDATE t SET v = $$locked$$ WHERE k = 5; COMMIT');
	is(outcome($waiting), '', 'who waited for a row in the old shard changes it in the new one');
	query(q{UPDATE heap SET v = v || 'x' WHERE k = 700; UPDATE heap SET v = 'locked' WHERE k = 5; UPDATE heap SET v = 'waited' WHERE k = 1500});
	$session{serializable}->query_safe(q{INSERT INTO t VALUES (10001, 's'); COMMIT});
	$session{extent}->query_safe('COMMIT');
	query(q{INSERT INTO heap VALUES (10001, 's'), (5000, repeat('e', 3000000))});
	query(q{COMMIT PREPARED 'p'; INSERT INTO heap VALUES (6000, 'prepared'); UPDATE heap SET v = 'prepared' WHERE k = 800});
	$_->quit for values %session;
	same('sessions of before');
}

# ---- stopped in the middle of the switch: readers go on, and writers wait ----
{
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'split_halted=wait'; SELECT kvfdw_split('t')}, 'halted');
	stopped($node, 'split_halted');
	is(query('SELECT count(*) FROM t'), query('SELECT count(*) FROM heap'), 'readers do not wait');
	my @writers = map { psql_writer($node, "UPDATE t SET v = 'while' WHERE k % 100 = $_", "while$_") } 1 .. 4;
	wait_for('writers to wait', sub { query(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event IN ('KvfdwSplit', 'Extension') AND query LIKE 'UPDATE%'}) > 0 });
	query(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%kvfdw_split%' AND pid <> pg_backend_pid()});
	like(outcome($split), qr/canceling statement/, 'the split is cancelled');
	is(outcome($_), '', 'who has waited goes on') for @writers;
	query(q{UPDATE heap SET v = 'while' WHERE k % 100 BETWEEN 1 AND 4});
	same('a split that was cancelled');
}

# ---- a write buffer that is long on its way to the device: writers do not wait for it ----
{
	query(kv_table('slow', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO slow SELECT g, repeat('s', 500) FROM generate_series(1, 1000) g});
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'split_prepared=wait'; SELECT kvfdw_split('slow')}, 'prepared');
	stopped($node, 'split_prepared');
	worker_stop_points($node, 'buffer_before_write=wait');
	query(q{SET kvfdw.stop_points = ''; UPDATE slow SET v = repeat('u', 600) WHERE k <= 500});
	stopped($node, 'buffer_before_write');
	go_on($node, 'split_prepared');
	wait_for('the split to wait for it', sub { query(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event IN ('KvfdwWriteBuffer', 'Extension') AND query LIKE '%kvfdw_split%' AND pid <> pg_backend_pid()}) > 0 });
	is(outcome(psql_writer($node, q{SET kvfdw.stop_points = ''; UPDATE slow SET v = 'beside' WHERE k > 900}, 'beside')), '', 'nobody waits for what was written before');
	worker_stop_points($node, '');
	go_on($node, 'buffer_before_write');
	cmp_ok(outcome($split), '>', 4, 'then the shard is split');
	is(query('SELECT count(*), sum(length(v)) FROM slow'), '1000|' . (500 * 600 + 400 * 500 + 100 * 6), 'with all rows');
	is(kv_check_clean($node, 'slow'), '', 'and sound');
	query('DROP FOREIGN TABLE slow');
}

# ---- writers do not wait for what was written since all was prepared ----
{
	query(kv_table('late', 'k int, v int', 'k', "shards '1'") . q{INSERT INTO late SELECT g, g FROM generate_series(1, 1000) g});
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'split_prepared=wait,split_halted=wait'; SELECT kvfdw_split('late')}, 'late');
	my $memtable = q{SELECT memtable_bytes FROM kvfdw_stat_tables WHERE relid = 'late'::regclass};
	stopped($node, 'split_prepared');
	query(q{INSERT INTO late SELECT g, g FROM generate_series(2001, 32000) g});
	my $much = query($memtable);
	go_on($node, 'split_prepared');
	stopped($node, 'split_halted');
	cmp_ok(query($memtable), '<', $much / 2, 'what has become much since is copied before writers are halted');
	cmp_ok(go_on($node, 'split_halted', $split), '>', 1, 'then the shard is split');
	is(query('SELECT count(*), sum(v) FROM late'), '31000|' . (1000 * 1001 / 2 + 30000 * 17000.5), 'with all rows');
	is(kv_check_clean($node, 'late'), '', 'and sound');
	query('DROP FOREIGN TABLE late');
}

# ---- a value file in common counts once ----
{
	query(kv_table('l', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO l SELECT g * 7 % 1009, repeat('l', 700) FROM generate_series(1, 1000) g; SELECT kvfdw_split('l')});
	my $size = 0;
	$size += -s $_ for files_of('l');
	my $freed = query(q{SELECT freed_bytes FROM kvfdw_compact('l', true)});
	cmp_ok($freed, '<=', $size, 'compaction frees no more than the files that there were');
	cmp_ok($freed, '>', 0, 'and it frees some');
	query('DROP FOREIGN TABLE l');
}

# ---- outrun: a flush needs the runs that are being copied ----
{
	query(kv_table('long', 'k text COLLATE "C", v int', 'k', "shards '1'"));
	my $old = $node->background_psql('postgres');
	$old->query_safe('BEGIN; SELECT count(*) FROM heap; SELECT pg_current_xact_id()');
	query(q{INSERT INTO long SELECT 'a' || g, g FROM generate_series(1, 3000) g});
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'split_copying=wait'; SELECT kvfdw_split('long')}, 'outrun');
	stopped($node, 'split_copying');
	worker_stop_points($node, 'maintainer_idle=wait');
	query(q{SELECT pg_reload_conf()});
	stopped($node, 'maintainer_idle');
	# none can make room here, so it is not waited for long
	query(q{SET kvfdw.stop_points = ''; SET kvfdw.test_space_beat = 100; INSERT INTO long SELECT rpad('b' || g, 2400, md5(g::text)), g FROM generate_series(1, 22000) g});
	worker_stop_points($node, '');
	go_on($node, 'maintainer_idle');
	my $said = go_on($node, 'split_copying', $split);
	like($said, qr/NOTICE:  could not split shard \d+ of foreign table ".*"\nDETAIL:  The shard was written faster/, 'a split that is outrun says so, and nothing else');
	unlike($said, qr/ERROR/, 'nor is anything said to be damaged');
	$old->quit;
	is(query('SELECT count(*), sum(v) FROM long'), '25000|' . (3000 * 3001 / 2 + 22000 * 22001 / 2), 'all rows are there');
	is(kv_check_clean($node, 'long'), '', 'and sound');
	cmp_ok(query(q{SELECT kvfdw_split('long')}), '>', 4, 'and later it is split');
	is(query('SELECT count(*), sum(v) FROM long'), '25000|' . (3000 * 3001 / 2 + 22000 * 22001 / 2), 'with all rows');
	query('DROP FOREIGN TABLE long');
}

# ---- while a shard is copied, what others have emptied goes ----
{
	query(kv_table('w', 'k int, v text', 'k', "shards '2', max_space_amplification '1.1'") . q{INSERT INTO w SELECT g, repeat('w', 900) FROM generate_series(-1000, 999) g; SELECT kvfdw_flush('w')});
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'split_copied=wait'; SELECT kvfdw_split('w')}, 'copying');
	stopped($node, 'split_copied');
	my @there = files_of('w');
	query(q{SET kvfdw.test_compact = on; DELETE FROM w WHERE k % 10 = 0; SELECT kvfdw_flush('w')}) for 1 .. 2;
	ok(eval { wait_for('files to go', sub { (grep { !-e } @there) > @there / 4 }) }, 'while a shard is copied files go that a freeze of another one has emptied');
	is(kv_check_clean($node, 'w'), '', 'and all is sound');
	unlike(go_on($node, 'split_copied', $split), qr/ERROR/, 'the split goes on');
	is(kv_check_clean($node, 'w'), '', 'and afterwards');
	query('DROP FOREIGN TABLE w');
}

# ---- many at once ----
{
	my @writers = map { my $n = $_; psql_writer($node, join('', map { "INSERT INTO t SELECT 20000 + $n + g * 10, repeat('w', 300) FROM generate_series(" . ($_ * 100) . ', ' . ($_ * 100 + 99) . ") g;\nUPDATE t SET v = v || 'y' WHERE k BETWEEN 20000 AND 20999 AND k % 10 = $n;\n" } 0 .. 9), "many$n") } 0 .. 3;
	my @readers = map { psql_writer($node, 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;' . q{SELECT count(*) = count(DISTINCT k) FROM t WHERE k < 3001; SELECT count(v) FROM t WHERE k = ANY (ARRAY[1, 500, 2500]); SELECT count(*) FROM (SELECT k, lag(k) OVER () AS l FROM (SELECT k FROM t ORDER BY k DESC) s) r WHERE l <= k;} x 3, "read$_") } 1 .. 3;
	query(q{SELECT kvfdw_split('t')});
	is(outcome($_), '', 'a writer beside splits') for @writers;
	is(outcome($_), "t\n3\n0\n" x 3, 'a reader beside splits') for @readers;
	query(join ';', (map { "INSERT INTO heap SELECT 20000 + $_ + g * 10, repeat('w', 300) FROM generate_series(0, 999) g" } 0 .. 3), 'UPDATE heap SET v = rpad(v, 310, $$y$$) WHERE k BETWEEN 20000 AND 20999');
	same('many at once');
}

# ---- keys grow while a shard is cut behind them: they come behind each bound, or stay before it ----
query(kv_table('grows', 'k int, v text', 'k', "shards '1'") . "INSERT INTO grows SELECT g, 'first' FROM generate_series(1, 1000) g");
for my $keys ([ 1001, 2000, 10_000, 50_000 ], [ 55_000, 60_000, 60_100 ])
{
	query('INSERT INTO grows VALUES (' . shift(@$keys) . ", 'last')");
	my $cut = psql_writer($node, q{SET kvfdw.stop_points = 'cut_made=wait'; SELECT kvfdw_cut('grows')}, 'cut');
	stopped($node, 'cut_made');
	while (defined(my $key = shift @$keys))
	{
		query("INSERT INTO grows VALUES ($key, 'grown')");
		step_on($node, 'cut_made') if @$keys;
	}
	unlike(go_on($node, 'cut_made', $cut), qr/ERROR|hangs/, 'a shard is cut');
}
is(query(q{SELECT shards FROM kvfdw_stat_tables WHERE relid = 'grows'::regclass}), 3, 'twice');
query(q{INSERT INTO grows VALUES (70000, 'new'), (1002, 'new')});
is(query(q{SELECT string_agg(k::text, ' ') FROM (SELECT k FROM grows WHERE k > 999 ORDER BY k) s}), '1000 1001 1002 2000 10000 50000 55000 60000 60100 70000', 'all keys are found in order');
is(query(q{SELECT count(*) FROM generate_series(1, 70000) g WHERE EXISTS (SELECT FROM grows WHERE k = g)}), 1009, 'and singly');
is(kv_check_clean($node, 'grows'), '', 'sound');

# ---- compacted, and a base backup across a split ----
query(q{SELECT kvfdw_compact('t', true)});
same('compacted');
{
	my $backup = $node->background_psql('postgres');
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_start('b', true)");
	my ($rc, $out, $err) = $node->psql('postgres', q{SELECT kvfdw_split('t')});
	like($err, qr/cannot split foreign table "[^"]+" while a base backup is running/, 'while a base backup runs nothing is split');
	$backup->query_safe('SELECT 1 FROM pg_backup_stop()');
	$backup->quit;

	# one that begins while a session has looked, and not noted yet that there was none
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $split = psql_writer($node, q{SET kvfdw.stop_points = 'backups_looked=wait'; SELECT kvfdw_split('t')}, 'looked');
	stopped($node, 'backups_looked');
	worker_stop_points($node, 'mark_captured=wait');
	query(q{UPDATE t SET v = v WHERE k = 1});
	my $copying = IPC::Run::start([ 'pg_basebackup', '-D', $node->backup_dir . '/other', '-d', $node->connstr('postgres'), '--checkpoint=fast', '--no-sync' ], '>', \my $ignored, '2>', \my $said);
	stopped($node, 'mark_captured');
	like(go_on($node, 'backups_looked', $split), qr/cannot split .* while a base backup/, 'nor when the backup began while somebody looked for one');
	worker_stop_points($node, '');
	go_on($node, 'mark_captured');
	$copying->finish;
	$node->backup('copy');
	my $copy = PostgreSQL::Test::Cluster->new('copy');
	$copy->init_from_backup($node, 'copy');
	$copy->start;
	is(tables_differ($copy, 't', 'heap', 'k'), '', "a copy has heap's rows");
	is(kv_check_clean($copy, 't'), '', 'and is sound');
	$copy->stop;
}
$node->restart;
same('restarted');

# ---- a check that has begun with a shard's run: other shards have its keys now, and move the values to files of theirs ----
query(kv_table('c', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO c SELECT g, repeat('c', 700) FROM generate_series(1, 1000) g});
query(q{SELECT kvfdw_flush('c'); SELECT kvfdw_compact('c', true)});
my $check = psql_writer($node, q{SET kvfdw.stop_points = 'check_run_read=wait'; SELECT * FROM kvfdw_check('c')}, 'check');
stopped($node, 'check_run_read');
cmp_ok(query(q{SELECT kvfdw_split('c')}), '>', 4, 'a shard is split while it is checked');
query($_) for q{SELECT kvfdw_compact('c', true)}, 'CHECKPOINT';
wait_for('the files before to go', sub { query(q{SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 'c'::regclass}) == 0 });
is(go_on($node, 'check_run_read', $check), '', '... and nothing is found');
query('DROP FOREIGN TABLE c');

# ---- by themselves: empty shards are absorbed, others split and cut ----
both('DELETE FROM T WHERE k > 400');
query(q{SELECT kvfdw_flush('t')});
my $many = shards();
cmp_ok($many, '>', 30, 'there are many shards');
query('ALTER SYSTEM SET kvfdw.test_splits = on');
$node->reload;
ok(eval { wait_for('shards to be absorbed', sub { shards() < $many - 4 }) }, 'shards that were cut off, and never written to, go');
query('ALTER SYSTEM RESET kvfdw.test_splits');

# shards of a table that was emptied, the values of which nobody has compacted; a value that is on its way keeps its shard
query(kv_table('e', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO e SELECT g, repeat('e', 700) FROM generate_series(1, 1000) g});
my $emptied = query(q{SELECT kvfdw_split('e')});
query(q{DELETE FROM e; SELECT kvfdw_flush('e')});
sub chunks_of { my ($table) = @_; return query("SELECT value_files + obsolete_value_files FROM kvfdw_stat_tables WHERE relid = '$table'::regclass"); }
cmp_ok(chunks_of('e'), '>=', $emptied, 'an emptied table has value files');
unlink glob "$data/kvfdw/{waiting,step,continue}.*";
my $reserved = psql_writer($node, q{SET kvfdw.stop_points = 'large_value_reserved=wait'; INSERT INTO e VALUES (1001, repeat('l', 3000000))}, 'reserved');
stopped($node, 'large_value_reserved');
query('ALTER SYSTEM SET kvfdw.test_shard_kb = 8');
$node->reload;
same('absorbed');
my $splits = query(q{SELECT splits FROM kvfdw_stat_tables WHERE relid = 't'::regclass});
both(q{INSERT INTO T SELECT 100000 + g * 37 % 1001, rpad(md5(g::text), 300, 'z') FROM generate_series(1, 1000) g});
query(q{SELECT kvfdw_flush('t')});
ok(eval { wait_for('a shard to be split', sub { query(q{SELECT splits FROM kvfdw_stat_tables WHERE relid = 't'::regclass}) > $splits }) }, 'a shard that is large is split');
same('by themselves');
ok(eval { wait_for('emptied shards to be joined', sub { query(q{SELECT shards FROM kvfdw_stat_tables WHERE relid = 'e'::regclass}) < $emptied - 1 }) }, 'shards that were emptied go, too');
is(go_on($node, 'large_value_reserved', $reserved), '', 'a value that was on its way is written');
ok(eval { wait_for('value files to go', sub { files_of('e') == chunks_of('e') && files_of('e') < $emptied }) }, 'with their value files') or diag scalar(files_of('e')) . ' files, ' . chunks_of('e') . ' known';
is(query(q{SELECT count(*), sum(length(v)) FROM e}), '1|3000000', 'and what was written since is there');
is(kv_check_clean($node, 'e'), '', 'and sound');

# by the setting that users have
query('ALTER SYSTEM RESET kvfdw.test_shard_kb');
$node->reload;
is(query('SHOW kvfdw.shard_size'), '1GB', 'shards are split at a size unless it is set otherwise');
query(kv_table('d', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO d SELECT g * 7 % 3001, repeat('d', 900) FROM generate_series(1, 3000) g});
is(query(q{SELECT shards FROM kvfdw_stat_tables WHERE relid = 'd'::regclass}), 1, 'a small table has one');
query('ALTER SYSTEM SET kvfdw.shard_size = 1');
$node->reload;
ok(eval { wait_for('a table to be split', sub { query(q{SELECT shards FROM kvfdw_stat_tables WHERE relid = 'd'::regclass}) > 4 }) }, 'one that is larger than the size is split');
is(kv_check_clean($node, 'd'), '', 'and sound');

# ---- a compaction job that a split meets is the last one before it, though the next is due ----
{
	my $told = sub { my ($what) = @_; return query("SELECT $what FROM kvfdw_stat_tables WHERE relid = 'p'::regclass"); };
	query("ALTER SYSTEM SET kvfdw.$_") for 'shard_size = 1000', 'test_compactions = off', 'test_splits = off';
	$node->reload;
	query(kv_table('p', 'k int, v text', 'k', "shards '1', max_space_amplification '1.1'") . q{INSERT INTO p SELECT g * 7 % 3001, repeat('p', 900) FROM generate_series(1, 3000) g; SELECT kvfdw_flush('p')});
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	worker_stop_points($node, 'compact_written=wait');
	query(q{DELETE FROM p WHERE k % 3 > 0; SELECT kvfdw_flush('p')});
	stopped($node, 'compact_written');
	query('ALTER SYSTEM SET kvfdw.shard_size = 1');
	worker_stop_points($node, 'split_met=wait,compact_written=wait');
	stopped($node, 'split_met');

	# there is much more to win, and room for it as soon as what that compaction job has emptied is gone
	append_to_file("$data/kvfdw/step.compact_written", '');
	wait_for('the pass to end', sub { !-e "$data/kvfdw/step.compact_written" && $told->('compactions') > 0 });
	wait_for('chunks to go', sub { $told->('obsolete_value_files') == 0 });
	append_to_file("$data/kvfdw/continue.split_met", '');
	ok(eval { wait_for('the shard to be split', sub { $told->('shards') > 1 }) }, 'a split that has met a pass comes before the next one');
	worker_stop_points($node, '');
	go_on($node, 'compact_written');
	unlink "$data/kvfdw/continue.split_met";
	is(kv_check_clean($node, 'p'), '', 'and all is sound');
}

$node->stop;

# ---- a split beside the marks that are being asked for has none made twice at once ----
{
	$node = kv_cluster('marks', 'kvfdw.test_carried' => 0, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.test_value_file_kb' => 64);
	query(kv_table('i', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO i SELECT g, repeat('x', 300) FROM generate_series(1, 3000) g; SELECT kvfdw_split('i')});
	query('CHECKPOINT');
	my $shards = query(q{SELECT shards FROM kvfdw_stat_tables WHERE relid = 'i'::regclass});
	worker_stop_points($node, 'mark_wanted=wait');
	my $compact = psql_writer($node, q{UPDATE i SET v = v || 'y'; SELECT moved_bytes > 0 FROM kvfdw_compact('i', true)}, 'asks');
	stopped($node, 'mark_wanted');
	my $split = psql_writer($node, q{SELECT kvfdw_split('i') > 8}, 'splits');
	wait_for('a split', sub { query(q{SELECT shards FROM kvfdw_stat_tables WHERE relid = 'i'::regclass}) > $shards });
	worker_stop_points($node, '');
	go_on($node, 'mark_wanted');
	is(outcome($compact) . outcome($split), "t\nt\n", 'a split beside the marks that are asked for');
	unlike(slurp_file($node->logfile), qr/ERROR/, '... has none made twice at once');
	is(kv_check_clean($node, 'i'), '', '... and all is sound');
	$node->stop;
}
done_testing();
