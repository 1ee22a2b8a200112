# Promise: DROP and TRUNCATE, whatever another process is doing to the table's
# write buffers at that moment, fail nobody, and touch no write buffer that is another
# table's by then (I 6, I 9); kvfdw_check beside a flush raises no false alarm (I 14).
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

# eight write buffers of one unit
my $node = kv_cluster('races', 'kvfdw.buffer_units' => 8, 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.flush_after' => '1h');
plan skip_all => 'needs fault injection' unless has_faults($node);
# what the workers are told to stop at is not for the sessions
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';

sub create { $node->safe_psql('postgres', join('', map { kv_table($_, 'k int, v text', 'k') } @_)); return; }
sub insert { my @t = @_; $node->safe_psql('postgres', "INSERT INTO $_ VALUES (1, '$_')") for @t; return; }
sub drop { $node->safe_psql('postgres', join('', map { "DROP FOREIGN TABLE $_;" } @_)); return; }
sub rows { return answer($node, join(' UNION ALL ', map { "SELECT v FROM $_ WHERE k = 1" } @_)); }

# Write buffers in use, and the OID of a write buffer's table, as the buffer file says: docs/internals/format.md.
sub slot_headers
{
	my $file = slurp_file($node->data_dir . '/kvfdw/buffers');
	my ($values, $entries, $nunits) = unpack 'x16 L<3', $file;
	return map { substr($file, 4096 + $values * $nunits + 128 * $_, 128) } 0 .. $nunits - 1;
}
sub slots_in_use { return grep { unpack 'x4 L<', $_ } slot_headers(); }
sub owner { my ($slot) = @_; return unpack 'x20 L<', (slot_headers())[$slot]; }
sub all_free { my ($what) = @_; return ok(eval { wait_for('free slots', sub { slots_in_use() == 0 }) }, "$what: no slot is left in use"); }

# A write buffer that has just been taken still has the header of its former life, whose
# table goes meanwhile.
for my $end ('DROP FOREIGN TABLE former', 'TRUNCATE former')
{
	create('former', 'taker', 'third');
	insert('former');
	# its write buffer is the first that will be taken again
	$node->safe_psql('postgres', "SELECT kvfdw_flush('former')");
	my $taker = psql_writer($node, "SET kvfdw.stop_points = 'buffer_taken=wait'; INSERT INTO taker VALUES (1, 'taker');", 'taker');
	stopped($node, 'buffer_taken');
	$node->safe_psql('postgres', $end);
	collected($node);
	insert('third');
	must_be($node, go_on($node, 'buffer_taken', $taker), '', "$end beside a slot that was its own: the INSERT goes on");
	must_be($node, rows('taker', 'third'), "taker\nthird", "$end: each table has a slot of its own");
	$node->safe_psql('postgres', "SELECT kvfdw_flush('taker'), kvfdw_flush('third')");
	is(rows('taker', 'third'), "taker\nthird", "$end: and its values in its file");
	is(kv_check_clean($node, 'taker', 'third'), '', "$end: kvfdw_check is clean");
	drop('taker', 'third', $end =~ /DROP/ ? () : 'former');
	all_free($end);
}

# DROP while the buffer writer has written the values and not yet the key log: no
# failure, so no session fails that waits for a write buffer.
{
	my $log_from = -s $node->logfile;
	create('gone', map { "t$_" } 0 .. 9);
	worker_stop_points($node, 'buffer_before_log=wait');
	$node->safe_psql('postgres', "INSERT INTO gone SELECT g, repeat('x', 1000) FROM generate_series(1, 20) g");
	stopped($node, 'buffer_before_log');
	drop('gone');
	worker_stop_points($node, 'buffer_before_write=wait');
	go_on($node, 'buffer_before_log');
	all_free('DROP beside the buffer writer');
	unlike(substr(slurp_file($node->logfile), $log_from), qr/ERROR|could not/, 'which reports no error');

	# every write buffer is taken, and the one that can be emptied takes its time
	insert(map { "t$_" } 0 .. 7);
	my @waiting = psql_writer($node, "INSERT INTO t8 VALUES (1, 't8');", 'waits8');
	stopped($node, 'buffer_before_write');
	push @waiting, psql_writer($node, "INSERT INTO t9 VALUES (1, 't9');", 'waits9');
	wait_for('a second session to wait', sub { ended($waiting[1])
		|| $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE query ~ '^INSERT INTO t[89]' AND wait_event IN ('Extension', 'KvfdwWriteBuffer')") == 2 });
	worker_stop_points($node, '');
	go_on($node, 'buffer_before_write');
	is(outcome($_), '', 'a session that waits for a slot does not fail') for @waiting;
	is(rows('t8', 't9'), "t8\nt9", 'and has written its row');
	drop(map { "t$_" } 0 .. 9);
	all_free('DROP of them all');
}

# DROP of a table that the maintainer flushes, when it waits for a write buffer in the
# buffer writer's hands: nobody will ever write that one.
{
	my $log_from = -s $node->logfile;
	create('gone');
	worker_stop_points($node, 'buffer_before_log=wait');
	$node->safe_psql('postgres', "INSERT INTO gone SELECT g, repeat('x', 1000) FROM generate_series(1, 20) g");
	stopped($node, 'buffer_before_log');
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.flush_after = '1s'");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	wait_for('the maintainer to seal the other slot', sub { !grep { my ($in_use, $sealed) = unpack 'x4 L< x52 L<', $_; $in_use && !$sealed } slot_headers() });
	drop('gone');
	worker_stop_points($node, '');
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.flush_after');
	go_on($node, 'buffer_before_log');
	all_free('DROP beside a freeze');
	unlike(substr(slurp_file($node->logfile), $log_from), qr/ERROR/, 'which reports no error either');
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
}

# DROP of a table whose marks are in its version log, and durable, before the checkpointer has
# read the log again.
{
	my $log_from = -s $node->logfile;
	create('gone');
	$node->safe_psql('postgres', "INSERT INTO gone SELECT g, repeat('x', 1000) FROM generate_series(1, 20) g");
	worker_stop_points($node, 'edits_synced=wait');
	my $checkpoint = psql_writer($node, 'CHECKPOINT;', 'checkpoint');
	stopped($node, 'edits_synced');
	drop('gone');
	wait_for('the directory to have another name', sub { () = glob $node->data_dir . '/kvfdw/dropped.*' });
	worker_stop_points($node, '');
	is(go_on($node, 'edits_synced', $checkpoint), '', 'a checkpoint beside DROP completes');
	unlike(substr(slurp_file($node->logfile), $log_from), qr/PANIC|ERROR/, '... without an error');
	all_free('DROP beside a checkpoint');
}

# The maintainer, which removes dropped tables, is busy: a session that needs a write buffer
# does not wait for it.
{
	my @tables = map { "t$_" } 0 .. 6;
	create('gone', @tables);
	worker_stop_points($node, 'maintainer_idle=wait,buffer_before_log=wait');
	stopped($node, 'maintainer_idle');
	$node->safe_psql('postgres', "INSERT INTO gone SELECT g, repeat('x', 1000) FROM generate_series(1, 20) g");
	stopped($node, 'buffer_before_log');
	drop('gone');
	worker_stop_points($node, 'maintainer_idle=wait');
	go_on($node, 'buffer_before_log');
	insert(@tables[ 0 .. 5 ]);
	is(scalar(slots_in_use()), 8, 'no slot is free, two are a dropped table\'s');
	is(outcome(psql_writer($node, "INSERT INTO t6 VALUES (1, 't6');", 'needs_slot')), '', 'and a session that needs one gets one');
	worker_stop_points($node, '');
	go_on($node, 'maintainer_idle');
	is(rows(@tables), join("\n", @tables), 'every row is there');
	drop(@tables);
	all_free('DROP beside a busy maintainer');
}

# DROP of tables one of whose open write buffers a session that needs one is about to seal.
{
	my @old = map { "t$_" } 0 .. 7;
	my @new = map { "u$_" } 0 .. 7;
	create(@old, @new, 't8');
	insert(@old);
	my $evictor = psql_writer($node, "SET kvfdw.stop_points = 'evict_pinned=wait'; INSERT INTO t8 VALUES (1, 't8');", 'evictor');
	stopped($node, 'evict_pinned');
	drop(@old);
	collected($node);
	insert(@new);
	must_be($node, go_on($node, 'evict_pinned', $evictor), '', 'DROP beside an eviction: the INSERT goes on');
	my $after = psql_writer($node, join('', map { "INSERT INTO $_ VALUES (2, '$_'); SELECT kvfdw_flush('$_');\n" } @new, 't8'), 'after');
	must_be($node, outcome($after) =~ s/\n//gr, '', 'the tables that came after take rows and are frozen');
	is(answer($node, join(' UNION ALL ', map { "SELECT count(*) FROM $_ WHERE v = '$_'" } @new, 't8')), join("\n", (2) x 8, 2), 'and have theirs');
	is(kv_check_clean($node, @new, 't8'), '', 'kvfdw_check is clean');
	drop(@new, 't8');
	all_free('DROP beside an eviction');
}

# The same, when the maintainer is about to remove the store and a session comes
# upon its write buffers only then, and frees them.  The maintainer stops there with a lock
# that opening a table needs, so the session waits behind that.
{
	my @tables = map { "t$_" } 0 .. 7;
	$node->safe_psql('postgres', join('', map { kv_table($_, 'k int, v text', 'k', "shards '2'") . "INSERT INTO $_ VALUES (-1, '$_');" } @tables));
	is(scalar(slots_in_use()), 8, 'no slot is free');
	my $goes = $node->safe_psql('postgres', 'SELECT ' . owner(1) . '::regclass');
	my ($frees, $takes) = @tables = grep { $_ ne $goes } @tables;
	my $holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	my $evictor = psql_writer($node, "SET kvfdw.stop_points = 'dropped_pinned=wait'; INSERT INTO $frees SELECT k, '$frees' FROM (VALUES (-2), (1)) v (k) WHERE k < 0 OR pg_advisory_lock(1)::text IS NOT NULL;", 'evictor2');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), 'a session has a row more to write');
	collected($node);
	worker_stop_points($node, 'drop_before_discard=wait');
	drop($goes);
	stopped($node, 'drop_before_discard');
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	stopped($node, 'dropped_pinned');
	worker_stop_points($node, '');
	go_on($node, 'drop_before_discard');
	collected($node);
	$node->safe_psql('postgres', "INSERT INTO $takes VALUES (1, '$takes')");
	must_be($node, go_on($node, 'dropped_pinned', $evictor), '', 'a session that frees slots beside the removal of a store: the INSERT goes on');
	my $after = psql_writer($node, "INSERT INTO $takes VALUES (2, '$takes'); SELECT kvfdw_flush('$takes'), kvfdw_flush('$frees');", 'after2');
	must_be($node, outcome($after), "|\n", 'the other tables take rows and are frozen');
	is(answer($node, "SELECT count(*) FROM $_ WHERE v = '$_'"), 3, 'and have theirs') for $takes, $frees;
	$holder->quit;
	drop(@tables);
	all_free('a session that frees slots beside the removal of a store');
}

# kvfdw_check has made sure that a log belongs to the shard, a flush removes it.
create('checked');
insert('checked');
my $freeze = psql_writer($node, "SET kvfdw.stop_points = 'flush_before_merge=wait'; SELECT kvfdw_flush('checked');", 'freeze');
stopped($node, 'flush_before_merge');
my $check = psql_writer($node, "SET kvfdw.stop_points = 'check_before_log=wait'; SELECT * FROM kvfdw_check('checked');", 'check_log');
stopped($node, 'check_before_log');
is(go_on($node, 'flush_before_merge', $freeze), "\n", 'a freeze goes on beside kvfdw_check');
is(go_on($node, 'check_before_log', $check), '', 'and the log that it removed is no problem');

# The same for a run that has been mapped.
$check = psql_writer($node, "SET kvfdw.stop_points = 'check_run_pinned=wait'; SELECT * FROM kvfdw_check('checked');", 'check_run');
stopped($node, 'check_run_pinned');
$node->safe_psql('postgres', "UPDATE checked SET v = 'new'; SELECT kvfdw_flush('checked')");
is(go_on($node, 'check_run_pinned', $check), '', 'nor is a run that it replaced');
is(rows('checked'), 'new', 'whose rows are right');
$node->stop;
done_testing();
