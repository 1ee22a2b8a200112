# Promise: a compaction that cannot end leaves everything as it was: after a full disk, a cancel,
# the end of its session, or a value that cannot be read (I 17). Older snapshots and cursors see
# what they saw. After a sorting compaction a scan in key order reads from end to end.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('compact_between', 'kvfdw.test_carried' => 0, 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.range_cache' => '8MB', 'kvfdw.value_cache' => 0, max_prepared_transactions => 4);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;

sub query { return $node->safe_psql('postgres', @_); }
sub both { return query(join ';', map { (my $s = $_[0]) =~ s/\bTABLE_\b/$_/g; $s } 'heap', 't'); }
sub directory { my $oid = query("SELECT 't'::regclass::oid"); my ($dir) = reverse sort glob "$data/kvfdw/5/$oid/0*"; return $dir; }
sub value_files { return join ' ', map { m{([^/]+)$} } sort glob directory() . '/*.val'; }
sub stat_of { my ($column) = @_; return query("SELECT $column FROM kvfdw_stat_tables WHERE relid = 't'::regclass ORDER BY generation DESC LIMIT 1"); }

sub same
{
	my ($when) = @_;
	is(tables_differ($node, 't', 'heap', 'k'), '', "$when: heap's rows");
	return is(kv_check_clean($node, 't'), '', "$when: sound");
}

# A session at a stop point.
my $sessions = 0;
sub session_at
{
	my ($point, $sql) = @_;
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $session = psql_writer($node, "SET kvfdw.stop_points = '$point=wait'; SET kvfdw.compact_memory = '4MB';\n$sql", 'session' . ++$sessions);
	stopped($node, $point);
	return $session;
}

query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k'));
my $rows = 'SELECT g, rpad(md5((g * 3)::text), 100 + g * 37 % 6000, md5(g::text)) FROM (SELECT i * 7919 % 2003 g FROM generate_series(1, 2002) i) s';
both("INSERT INTO TABLE_ $rows; UPDATE TABLE_ SET v = reverse(v) WHERE k % 3 = 0");
query('CHECKPOINT');

# ---- a full disk ----
my ($files, $bytes) = (value_files(), stat_of('value_file_bytes'));
for my $fault ('value_extend:1+:ENOSPC', 'value_extend:4+:ENOSPC', 'compact_write:1:ENOSPC', 'compact_write:5+:EIO', 'compact_read:1:EIO', 'compact_read:3:ENOMEM', 'run_write:1+:ENOSPC', 'run_write:3+:ENOSPC', 'compact_write:2:short', 'meta_write:1+:ENOSPC')
{
	my ($rc, undef, $err) = $node->psql('postgres', "SET kvfdw.fault = '$fault'; SELECT kvfdw_compact('t', true)");
	isnt($rc, 0, "$fault ends it") if $fault !~ /short/;
	is(query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}), '0', "$fault: nobody compacts");
	same($fault);
	my %before = map { $_ => 1 } split / /, $files;
	is(join(' ', grep { !$before{$_} } split / /, value_files()), '', "$fault: it leaves no file") if $fault !~ /short/;
	$files = value_files();
}
unlike(slurp_file($node->logfile), qr/could not compact value file/, 'what may be read the next time is no damage');
query("SELECT kvfdw_compact('t')");
same('with room again');

# ---- cancelled, ended, killed ----
for my $point (qw(compact_chosen compact_slice compact_written))
{
	for my $how (qw(pg_cancel_backend pg_terminate_backend))
	{
		both("UPDATE TABLE_ SET v = v || 'c' WHERE k % 7 = 2");
		$files = value_files();
		my $session = session_at($point, "SELECT kvfdw_compact('t', true)");
		is(query("SELECT $how(pid) FROM kvfdw_stat_progress WHERE command = 'compact'"), 't', "$how at $point");
		like(outcome($session), qr/canceling statement|terminating connection/, 'it ends');
		wait_for('the role', sub { query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}) == 0 });
		same("$how at $point");
		my %before = map { $_ => 1 } split / /, $files;
		is(join(' ', grep { !$before{$_} } split / /, value_files()), '', 'and leaves no file');
		wait_for('the maintainer to free what it has written', sub { !(() = glob "$data/kvfdw/dropped.*") });
	}
}

# ---- the table goes, or all its rows do: they wait, and a rollback is one ----
{
	my $session = session_at('compact_slice', "SELECT kvfdw_compact('t', true)");
	my $truncate = psql_writer($node, "BEGIN; TRUNCATE t; INSERT INTO t SELECT 1, 'other'; SELECT kvfdw_compact('t', true); ROLLBACK", 'truncate');
	wait_for('TRUNCATE to wait', sub { query("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == 1 });
	like(go_on($node, 'compact_slice', $session), qr/^\(\d+,\d+,\w*\)$/, 'a compaction for which TRUNCATE waits');
	like(outcome($truncate), qr/^\(\d+,\d+,\w*\)$/, 'one of a generation that is rolled back');
	same('TRUNCATE was rolled back');
}
query('BEGIN; TRUNCATE t, heap; INSERT INTO t SELECT g, g FROM generate_series(1, 100) g; INSERT INTO heap TABLE t; COMMIT');
query("SELECT kvfdw_compact('t', true)");
same('truncated');
both("TRUNCATE TABLE_; INSERT INTO TABLE_ $rows; UPDATE TABLE_ SET v = reverse(v) WHERE k % 3 = 0");
{
	query(kv_table('d', 'k int, v text', 'k') . 'INSERT INTO d TABLE heap');
	my $session = session_at('compact_slice', "SELECT kvfdw_compact('d', true)");
	my $drop = psql_writer($node, 'DROP FOREIGN TABLE d', 'drop');
	wait_for('DROP to wait', sub { query("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == 1 });
	query(q{SELECT pg_cancel_backend(pid) FROM kvfdw_stat_progress WHERE command = 'compact'});
	like(outcome($session), qr/canceling statement/, 'cancelled for a DROP');
	is(outcome($drop), '', 'which goes on');
}

# ---- one shard has one at a time ----
{
	my $first = session_at('compact_slice', "SELECT kvfdw_compact('t', true)");
	my $second = psql_writer($node, "SET kvfdw.stop_points = ''; SELECT kvfdw_compact('t', true)", 'second');
	wait_for('the second to wait', sub { query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'KvfdwCompaction'") == 1 || query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%kvfdw_compact(%true)' AND wait_event = 'Extension'") >= 2 });
	both('DELETE FROM TABLE_ WHERE k % 11 = 3');
	query("SELECT kvfdw_flush('t')");
	is(answer($node, 'SELECT count(*) FROM t'), query('SELECT count(*) FROM heap'), 'others read, write and freeze beside them');
	same('while they run');
	like(go_on($node, 'compact_slice', $first), qr/^\(\d+,\d+,\w*\)$/, 'the first');
	like(outcome($second), qr/^\(\d+,\d+,\w*\)$/, 'and the second behind it');
	same('compacted by two');
}

# ---- whoever compacts waits for what is retired by then, not for what others retire meanwhile ----
{
	both("UPDATE TABLE_ SET v = v || 'w' WHERE k % 5 = 2");
	worker_stop_points($node, 'value_file_released=wait');
	my $first = psql_writer($node, "SET kvfdw.stop_points = ''; SELECT kvfdw_compact('t', true)", 'waits_first');
	stopped($node, 'value_file_released');
	my $retired = stat_of('obsolete_value_files');
	my $second = psql_writer($node, "SET kvfdw.stop_points = ''; SELECT kvfdw_compact('t', true)", 'waits_second');
	wait_for('the second to wait', sub { stat_of('obsolete_value_files') > $retired && query(q{SELECT count(*) FROM kvfdw_stat_progress WHERE command = 'compact'}) == 0 });
	worker_stop_points($node, 'mark_wanted=wait');
	go_on($node, 'value_file_released');
	stopped($node, 'mark_wanted');
	like(outcome($first), qr/^\(\d+,\d+,\w*\)$/, 'it does not wait for what others have retired since');
	worker_stop_points($node, '');
	like(go_on($node, 'mark_wanted', $second), qr/^\(\d+,\d+,\w*\)$/, 'whoever has waits for that');
	same('compacted while another is');
}

# ---- a compaction job takes the number of its file while a flush is about to say which are taken ----
{
	both("UPDATE TABLE_ SET v = v || 'n' WHERE k % 13 = 5");
	my $pass = session_at('compact_chosen', "SET kvfdw.stop_points = 'compact_written=wait,compact_chosen=wait'; SELECT kvfdw_compact('t', true)");
	both("UPDATE TABLE_ SET v = v || 'm' WHERE k % 13 = 6");
	my $freeze = psql_writer($node, "SET kvfdw.stop_points = 'flush_before_files=wait'; SELECT kvfdw_flush('t')", 'freeze');
	stopped($node, 'flush_before_files');
	go_on($node, 'compact_chosen');
	stopped($node, 'compact_written');
	is(go_on($node, 'flush_before_files', $freeze) =~ s/\s+//gr, '', 'a freeze ends beside a pass that began meanwhile');
	like(go_on($node, 'compact_written', $pass), qr/^\(\d+,\d+,\w*\)$/, 'and so does the pass');
	same('each run has a number of its own');
}

# ---- old snapshots, cursors, prepared transactions ----
both("INSERT INTO TABLE_ SELECT 5000 + g, 'of a prepared transaction ' || g FROM generate_series(1, 50) g");
query("BEGIN; UPDATE t SET v = 'prepared' WHERE k BETWEEN 5001 AND 5050; PREPARE TRANSACTION 'p'");
my $sum = 'SELECT count(*), sum(hashtext(s::text)) FROM t s';
my $right = query($sum);
{
	my $quiet = ' \\g /dev/null';
	my $script = "BEGIN ISOLATION LEVEL REPEATABLE READ;\n$sum;\nDECLARE c CURSOR FOR SELECT * FROM t ORDER BY k;\nFETCH 5 FROM c$quiet\nDECLARE p CURSOR FOR SELECT v FROM t WHERE k IN (1, 300, 700, 1500, 2000);\nSELECT pg_advisory_xact_lock(7)$quiet\n"
	  . "$sum;\nFETCH ALL FROM c \\g $data/fetched\nFETCH ALL FROM p$quiet\n$sum;\nCOMMIT;\n";
	my $expected = query('SELECT * FROM t ORDER BY k OFFSET 5');
	my $holder = psql_writer($node, 'SELECT pg_advisory_lock(7); SELECT pg_sleep(100000)', 'holder');
	wait_for('the lock', sub { query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") >= 1 });
	my $old = psql_writer($node, $script, 'old');
	wait_for('the old snapshot', sub { query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1 });
	both("UPDATE TABLE_ SET v = 'new ' || v WHERE k % 2 = 0 AND k < 5000; DELETE FROM TABLE_ WHERE k % 5 = 1 AND k < 5000");
	is(query("SELECT waiting_for FROM kvfdw_compact('t', true)"), 'snapshot', 'versions for an old snapshot stay');
	query('CHECKPOINT');
	wait_for('the old chunks to go', sub { stat_of('obsolete_value_files') == 0 });
	query("SELECT kvfdw_compact('t', true)");
	query("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
	like(outcome($holder), qr/terminating connection/, 'the old snapshot is looked through again');
	is(outcome($old) =~ s/\n+\z//r, join("\n", ($right) x 3), 'an old snapshot sees what it saw');
	is(slurp_file("$data/fetched") =~ s/\n+\z//r, $expected, 'and so does its cursor');
}
query("COMMIT PREPARED 'p'; UPDATE heap SET v = 'prepared' WHERE k BETWEEN 5001 AND 5050");
same('after an old snapshot');
is(query("SELECT waiting_for FROM kvfdw_compact('t')"), '', 'now nothing waits');
same('without it');

# ---- a value that cannot be read stays, and its value file ----
{
	query("UPDATE t SET v = 'damaged ' || repeat('d', 3000) WHERE k = 777; UPDATE heap SET v = 'damaged ' || repeat('d', 3000) WHERE k = 777");
	query("SELECT kvfdw_flush('t'); CHECKPOINT");
	my ($file, $at);
	for my $chunk (glob directory() . '/*.val')
	{
		my $i = index slurp_file($chunk), 'damaged ddd';
		($file, $at) = ($chunk, $i) if $i >= 0;
	}
	$node->stop;
	open(my $f, '+<:raw', $file) or die;
	seek $f, $at + 100, 0;
	print $f 'X';
	close $f;
	$node->start;
	my $log = -s $node->logfile;
	query("SELECT kvfdw_compact('t', true)");
	query("SELECT kvfdw_compact('t', true)");
	my @said = slurp_file($node->logfile, $log) =~ /could not compact value file/g;
	is(scalar @said, 1, 'a value that does not match its checksum is logged once');
	query("SELECT kvfdw_compact('t')");
	my $passes = stat_of('compactions');
	query("SELECT kvfdw_compact('t')");
	is(stat_of('compactions'), $passes, 'its chunk is left alone');
	is(query("SELECT problem FROM kvfdw_check('t')"), 'value does not match its checksum', 'it is damaged as before');
	like(answer($node, 'SELECT * FROM t WHERE k = 777'), qr/does not match its checksum/, 'and never returned');
	both("DELETE FROM TABLE_ WHERE k = 777");
	query("SELECT kvfdw_compact('t')");
	query('CHECKPOINT');
	same('the damaged row was deleted');
	wait_for('its chunk to go', sub { !-e $file });
}

# ---- one table's marks cannot be made: the other's are, and it is said what is waited for ----
query(kv_table('u', 'k int, v text', 'k', "shards '2'") . 'INSERT INTO u TABLE heap');
for my $bad (qw(t u))
{
	my ($good) = grep { $_ ne $bad } qw(t u);
	my $oid = query("SELECT '$bad'::regclass::oid");
	my ($dir) = reverse sort glob "$data/kvfdw/5/$oid/0*";
	query("UPDATE $_ SET v = v || 'i'") for qw(t u);
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	worker_stop_points($node, 'mark_wanted=wait');
	my %session = map { $_ => psql_writer($node, "SET kvfdw.stop_points = ''; SELECT waiting_for FROM kvfdw_compact('$_')", "mark_$bad$_") } qw(t u);
	stopped($node, 'mark_wanted');

	# a session waits for other things too, but not for so long
	my $looks = 0;
	my $both = q{SELECT count(*) = 2 AND NOT EXISTS (SELECT FROM kvfdw_stat_progress WHERE command = 'compact') FROM pg_stat_activity WHERE wait_event IN ('KvfdwCompaction', 'Extension') AND query LIKE 'SELECT waiting_for%'};
	wait_for('both to wait for marks', sub { $looks = query($both) eq 't' ? $looks + 1 : 0; $looks == 5 });
	my @logs = glob "$dir/*.versions";
	chmod 0400, @logs or die;
	worker_stop_points($node, '');
	go_on($node, 'mark_wanted');
	is(outcome($session{$good}), "\n", "$good: compacted while marks of $bad fail");
	is(outcome($session{$bad}), "mark\n", "$bad: waits for its marks");
	chmod 0600, @logs or die;
	wait_for('its chunks to go', sub { query("SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = '$bad'::regclass ORDER BY generation DESC LIMIT 1") == 0 });
	is(kv_check_clean($node, $_), '', "$_: sound") for qw(t u);
}
query('DROP FOREIGN TABLE u');

# ---- large values ----
query('TRUNCATE t, heap');
query("INSERT INTO t SELECT g, repeat(chr(64 + g), 200000000) FROM generate_series(1, 2) g; INSERT INTO t SELECT 10 + g, repeat(md5(g::text), 40000) FROM generate_series(1, 5) g; UPDATE t SET v = v || 'x' WHERE k = 2; DELETE FROM t WHERE k = 13");
my $large = query('SELECT string_agg(k || md5(v), \';\' ORDER BY k) FROM t');
query("SELECT kvfdw_compact('t')");
is(query('SELECT string_agg(k || md5(v), \';\' ORDER BY k) FROM t'), $large, 'values of 200 MB');
is(kv_check_clean($node, 't'), '', 'are sound');
cmp_ok(stat_of('value_file_bytes'), '<', 420_000_000, 'and once there');
query('TRUNCATE t');

# ---- order ----
$node->append_conf('postgresql.conf', 'kvfdw.test_value_file_kb = 0');
$node->restart;
query(kv_table('o', 'k int, v bytea', 'k', "shards '1'"));
query("INSERT INTO o SELECT g, decode(rpad('', 8192, md5(g::text)), 'hex') FROM (SELECT i * 7919 % 6007 g FROM generate_series(1, 6006) i) s; SELECT kvfdw_flush('o'); ANALYZE o");

# Device reads and bytes of a scan in the order of keys, through windows and without.
sub scan
{
	query("SELECT kvfdw_stat_reset()");
	query('SET enable_sort = off; SELECT sum(length(v)) FROM (SELECT * FROM o ORDER BY k) s');
	return split /\|/, query("SELECT device_reads, device_read_bytes, loads FROM kvfdw_stat_tables, kvfdw_stat_range_cache WHERE relid = 'o'::regclass");
}
my ($reads, $read_bytes, $loads) = scan();
cmp_ok($reads, '>', 2000, 'values in another order than the keys are read singly');
query("SELECT kvfdw_compact('o', true)");
($reads, $read_bytes, $loads) = scan();
cmp_ok($reads, '<', 600, "in the order of keys they are read together: $reads");
cmp_ok($read_bytes, '<', 6006 * 4096 * 1.2, "once: $read_bytes");
cmp_ok($loads, '>', 50, "by windows: $loads");
query("UPDATE o SET v = v WHERE k % 25 = 0");
($reads, $read_bytes) = scan();
cmp_ok($reads, '<', 1200, "with a few that were written since: $reads");
query("SELECT kvfdw_compact('o', true)");
($reads) = scan();
cmp_ok($reads, '<', 600, "and none after the next: $reads");
is(kv_check_clean($node, 'o'), '', 'all is sound');
$node->stop;
done_testing();
