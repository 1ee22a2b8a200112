# Promise: kvfdw compactor keeps the value files of a table within its bound (I 19) while rows are overwritten
# many times, at every level, and nobody notices; it gives back the bytes of a load that was rolled
# back; it does not spin, nor do writers wait, where an old snapshot, a base backup or a full disk is in its way,
# and goes on when that has ended; a DROP and the end of its process do no harm.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is not compacted' if heap_only();
my $node = kv_cluster('space_bound', 'kvfdw.compact_order' => 'off', checkpoint_timeout => '1h', checkpoint_completion_target => 0, max_wal_size => '16GB', 'kvfdw.freeze_delay' => 1, 'kvfdw.test_chunk_kb' => 64,
	'kvfdw.compact_memory' => '4MB', 'kvfdw.test_compact' => 'off', 'kvfdw.test_passes' => 'off', wal_level => 'replica');
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
my @levels = qw(full keys none);
my $rows = 1500;

sub query { return $node->safe_psql('postgres', @_); }
sub stat_of { my ($table, $columns) = @_; return query("SELECT $columns FROM kvfdw_stat_tables WHERE relid = '$table'::regclass ORDER BY generation DESC LIMIT 1"); }
# It looks at all tables, and tries again what has failed.
sub look_again { kill 'HUP', postmaster_runs($node) or die; return; }
sub compactor { return query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw compactor'}); }
sub until_bound
{
	my ($table, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { wait_for("$table to keep to its bound", sub { look_again(); stat_of($table, 'value_file_bytes <= space_bound AND value_file_bytes < 1.6 * live_bytes + 400000') eq 't' }) }, "$when: $table is back within its bound") ||
	  diag(stat_of($table, 't.*') =~ s/\|/ | /gr);
}
sub settle_passes
{
	my ($table) = @_;
	my ($passes, $same) = (-1, 0);
	wait_for('passes to end', sub { look_again(); my $now = stat_of($table, 'passes') . query('SELECT count(*) FROM kvfdw_stat_compact'); $same = $now eq $passes ? $same + 1 : 0; $passes = $now; $same == 4 });
	return stat_of($table, 'passes');
}

my $value = sub { my ($n) = @_; return "rpad(md5(($n)::text), 2500 + ($n) * 37 % 3000, md5(k::text))"; };
my $fill = sub { my ($table) = @_; return "INSERT INTO $table SELECT k, " . $value->('k') . " FROM generate_series(1, $rows) k;"; };
query('CREATE TABLE stop (); CREATE TABLE samples (relid regclass, taken bigint, bound bigint, live bigint);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") . $fill->("t_$_") } @levels));

# ---- overwritten twenty times, half of it uniformly ----
{
	# 30 rows at a time; in the skewed half most of them are among a tenth of all
	my $script = sub { my ($table) = @_; return "DO \$\$ BEGIN FOR i IN 1 .. 20 * $rows / 30 LOOP
		UPDATE $table SET v = " . $value->('k * 7 + i') . " WHERE k = ANY (ARRAY(SELECT 1 + floor(power(random(), CASE WHEN i % 400 < 200 THEN 1 ELSE 4 END) * $rows)::int FROM generate_series(1, 30)));
		COMMIT; END LOOP; END \$\$;"; };
	my $sampler = psql_writer($node, "SET client_min_messages = error; DO \$\$ BEGIN WHILE (SELECT count(*) FROM pg_class WHERE relname = 'stop') > 0 LOOP
		INSERT INTO samples SELECT relid, value_file_bytes, space_bound, live_bytes FROM kvfdw_stat_tables;
		COMMIT; PERFORM pg_sleep(0.05); END LOOP; END \$\$;", 'sampler');
	my @writers = map { psql_writer($node, $script->("t_$_"), "writer_$_") } @levels;
	is(outcome($_), '', 'a writer beside compaction') for @writers;
	query('DROP TABLE stop');
	is(outcome($sampler), '', 'the sampler');
	for my $level (@levels)
	{
		# how far it gets beyond the bound depends on when the compactor gets a CPU, and what the sampler's snapshots and
		# writers keep; test/campaign/space.pl has tables that are large enough to ask for more
		my ($n, $beyond, $worst) = split /\|/, query("SELECT count(*), count(*) FILTER (WHERE taken > bound), max((taken - bound)::numeric / live) FROM samples WHERE relid = 't_$level'::regclass");
		note "$level: $beyond of $n samples beyond the bound, at most by $worst; " . stat_of("t_$level", 'passes, moved_bytes, device_write_bytes, value_file_bytes, live_bytes, retired_bytes, space_waits');
		cmp_ok($worst, '<', 3, "$level: near its bound all the time, or below it");
		cmp_ok(stat_of("t_$level", 'passes'), '>', 3, "$level: it was compacted by itself");
		until_bound("t_$level", 'overwritten');
		is(query("SELECT count(*), sum((length(v) >= 2500)::int) FROM t_$level"), "$rows|$rows", "$level: all rows are there");
		is(kv_check_clean($node, "t_$level"), '', "$level: it is sound");
	}
	ok(eval { wait_for('retired chunks to go', sub { stat_of('t_keys', 'retired_bytes') < 20_000_000 }) }, 'keys: much that is retired has a checkpoint asked for');
}

# ---- what a rolled back load has written goes by itself ----
query("BEGIN; INSERT INTO t_full SELECT 10000 + k, v FROM t_full; INSERT INTO t_full SELECT 20000 + k, v FROM t_full; ROLLBACK");
cmp_ok(stat_of('t_full', 'value_file_bytes'), '>', 20_000_000, 'a load has written much');
until_bound('t_full', 'rolled back');

# ---- small values and blocks in turn: the padding between them is not dead ----
query(kv_table('a', 'k int, v text', 'k') . "INSERT INTO a SELECT k, CASE k % 2 WHEN 0 THEN rpad(k::text, 4096) ELSE k::text END FROM generate_series(1, 2000) k; UPDATE a SET v = v WHERE k < 1800");
until_bound('a', 'alternating');
my $passes_then = settle_passes('a');
cmp_ok(settle_passes('a') - $passes_then, '<=', 2, 'padding: it does not spin');
query('DROP FOREIGN TABLE a');

# ---- an index larger than a tenth of its shard, or than 64 files: one compaction, which rewrites it, may move as much ----
query(kv_table('small', 'k int, v text', 'k', "shards '1'") . "INSERT INTO small SELECT k, repeat(md5(k::text), 6) FROM generate_series(1, 150000) k; SELECT kvfdw_freeze('small')");
cmp_ok(stat_of('small', 'space_bound - 1.5 * live_bytes'), '>', 150_000 * 48, 'small values: a compaction pays for rewriting the index');
cmp_ok(stat_of('small', 'space_bound'), '<', stat_of('small', '2.1 * live_bytes'), 'and the bound is there all the same');
query('DROP FOREIGN TABLE small');

# ---- an old snapshot: what it sees is live; nobody waits for it, and nothing spins ----
my $change = sub { my ($n) = @_; return query("UPDATE t_full SET v = " . $value->("k + $n")); };
{
	my $old = $node->background_psql('postgres');
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t_full');
	$change->($_) for 1 .. 3;
	wait_for('it to say what it waits for', sub { look_again(); stat_of('t_full', 'space_waits_for') eq 'snapshot' });
	cmp_ok(stat_of('t_full', 'value_file_bytes'), '>', 15_000_000, 'a snapshot: versions stay');
	my ($passes, $waits) = split /\|/, stat_of('t_full', 'passes, space_waits') =~ s/^\d+/settle_passes('t_full')/er;
	look_again(), query('SELECT pg_sleep(0.2)') for 1 .. 5;
	is(stat_of('t_full', 'passes'), $passes, 'a snapshot: it does not spin');
	query("UPDATE t_full SET v = v || 'x' WHERE k % 50 = 1");
	is(stat_of('t_full', 'space_waits'), $waits, 'a snapshot: writers do not wait');
	$old->query_safe('COMMIT');
	$old->quit;
	until_bound('t_full', 'after the snapshot');
	is(stat_of('t_full', 'space_waits_for'), '', 'and nothing is waited for');
}

# ---- a base backup ----
{
	my $backup = $node->background_psql('postgres');
	$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_start('b', true)");
	my $passes = settle_passes('t_full');
	$change->($_) for 4 .. 6;
	wait_for('it to say what it waits for', sub { look_again(); stat_of('t_full', 'space_waits_for') eq 'backup' });
	is(stat_of('t_full', 'passes'), $passes, 'a backup: nothing is compacted meanwhile');
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
	wait_for('it to say what it waits for', sub { stat_of('t_full', 'space_waits_for') eq 'disk' });
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
	wait_for('it to say what it waits for', sub { stat_of('t_full', 'space_waits_for') eq 'disk' });
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
	query("UPDATE d SET v = reverse(v) WHERE k % 3 > 0") for 1 .. 2;
	stopped($node, 'compact_slice');
	query("SET kvfdw.stop_points = ''; DROP FOREIGN TABLE d");
	worker_stop_points($node, '');
	go_on($node, 'compact_slice');
	wait_for('its files to go', sub { !(() = glob "$data/kvfdw/dropped.*") });
	is(compactor(), $pid, 'a table is dropped while it is compacted: its process goes on');
	unlike(slurp_file($node->logfile, $log), qr/cannot be emptied|ERROR/, 'and calls nothing damaged');

	worker_stop_points($node, 'compact_written=wait');
	# of chunks in which nothing is live nothing would be written
	query("UPDATE t_full SET v = " . $value->("k + $_") . " WHERE k % 3 > 0") for 11, 12;
	stopped($node, 'compact_written');
	worker_stop_points($node, '');
	my $ready = times_ready($node);
	kill_process(compactor());
	ready_again($node, $ready);
	unlink "$data/kvfdw/waiting.compact_written";
	is(query("SELECT count(*) FROM t_full WHERE v = " . $value->('k + CASE k % 3 WHEN 0 THEN 10 ELSE 12 END')), $rows, 'it was killed: all rows are there');
	until_bound('t_full', 'killed');
	is(kv_check_clean($node, 't_full'), '', 'killed: sound');
}

# ---- two tables come to their bounds at once: they are served in turn ----
{
	query("ALTER SYSTEM SET kvfdw.space_amp = 0; SELECT pg_reload_conf()");
	wait_for('no bound', sub { stat_of('t_full', 'space_bound IS NULL') eq 't' });
	# keys so far apart that several shards have some
	query(kv_table($_, 'k int, v text', 'k', "shards '16'") . "INSERT INTO $_ SELECT k * 1400000, " . $value->('k') . " FROM generate_series(1, $rows) k") for qw(large less);
	query('UPDATE large SET v = reverse(v)') for 1 .. 4;
	query('UPDATE less SET v = reverse(v) WHERE k / 1400000 % 4 > 0') for 1 .. 2;
	settle_passes('t_full');
	worker_stop_points($node, 'compact_chosen=wait');
	query("ALTER SYSTEM RESET kvfdw.space_amp; SELECT pg_reload_conf()");
	my @served;
	for my $pass (1 .. 6)
	{
		stopped($node, 'compact_chosen');
		push @served, query('SELECT relid::regclass FROM kvfdw_stat_compact');
		step_on($node, 'compact_chosen') if $pass < 6;
	}
	like(join(' ', @served), qr/large less large less/, 'two: each has its turn');
	worker_stop_points($node, '');
	go_on($node, 'compact_chosen');
	until_bound($_, 'two') for qw(large less);
	query("DROP FOREIGN TABLE $_") for qw(large less);
}

# ---- off ----
query("ALTER SYSTEM SET kvfdw.space_amp = 0; SELECT pg_reload_conf()");
wait_for('no bound', sub { stat_of('t_full', 'space_bound IS NULL') eq 't' });
my $passes = settle_passes('t_full');
$change->($_) for 13 .. 15;
is(settle_passes('t_full'), $passes, 'without a bound nothing is compacted');
cmp_ok(stat_of('t_full', 'value_file_bytes'), '>', 20_000_000, 'and nothing goes');
query("ALTER SYSTEM RESET kvfdw.space_amp");
$node->restart;
until_bound('t_full', 'with a bound again, started again');
$node->stop;
done_testing();
