# Promise: whatever ends a prefetch worker or a scan, wherever it is, and whatever a
# read gives, scans go on and show the right rows or the right error, and each window
# of the range cache stays free or in one list; scans of a table share windows, and no
# scan keeps another from going on (I 7).
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
use KvReplica;

plan skip_all => 'heap has no range cache' if heap_only();
# one worker, so that it is known who is stopped; 8 windows are too few for segments
my $node = kv_primary('range', 'kvfdw.range_cache' => "'2MB'", 'kvfdw.prefetch_workers' => 1, 'kvfdw.scan_share_wait' => "'10min'",
	'kvfdw.flush_after' => '1h', 'kvfdw.value_cache' => 0, 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.test_value_file_kb' => 0, 'kvfdw.test_worker_idle' => '1h');
plan skip_all => 'needs fault injection' unless has_faults($node);
# what the workers are told is not for the sessions; an error for a scan that waits in vain, for half a minute
my $options = '-c kvfdw.fault= -c kvfdw.stop_points=';
$ENV{PGOPTIONS} = $options . 'range_stuck=error';
my $problem = q{CREATE FUNCTION range_problem() RETURNS text AS 'kvfdw', 'kvfdw_range_problem' LANGUAGE C;};
$node->safe_psql('postgres', $problem);

# A table and its twin; rows of 4 kB in all shards, written in another order than the keys'; in runs, after a crash, too.
sub rows { my ($n, $seed) = @_; return "SELECT g * @{[ int(4294967295 / ($n + 1)) ]} - 2147483648, rpad('$seed' || g, 4096, md5(g::text)) FROM generate_series(1::bigint, $n) g ORDER BY md5('$seed' || g)"; }
sub make
{
	my ($name, $n, $shards) = @_;
	$node->safe_psql('postgres', kv_table($name, 'k int, v text', 'k', "shards '$shards'") . "CREATE TABLE ${name}_heap (k int PRIMARY KEY, v text);
		INSERT INTO ${name}_heap @{[ rows($n, $name) ]}; INSERT INTO $name @{[ rows($n, $name) ]}; SELECT kvfdw_flush('$name'); CHECKPOINT; ANALYZE $name; ANALYZE ${name}_heap");
	return;
}
my $digest = q{count(*), sum(k), md5(string_agg(md5(v), ' ' ORDER BY k))};
sub query { my ($t, $order) = @_; return "SELECT $digest FROM (SELECT * FROM $t @{[ $order // 'ORDER BY k' ]}) s"; }
sub right { my ($t) = @_; return answer($node, query("${t}_heap")); }
sub scans_right
{
	my ($what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @orders = ('ORDER BY k', 'ORDER BY k DESC', '');
	is(answer($node, join(';', map { my $t = $_; map { query($t, $_) } @orders } @tables)), join("\n", map { (right($_)) x @orders } @tables), "$what: the rows are right");
	return;
}
sub cache { my ($column, $from) = @_; return answer($from // $node, "SELECT $column FROM kvfdw_stat_range_cache"); }
sub reset_stat { return $node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()'); }
# Nothing is left in use but windows in their lists.
sub sound_cache
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# a session may outlive its psql for a moment
	my $state;
	eval { wait_for('scans to end', sub { ($state = answer($node, 'SELECT scans, range_problem() FROM kvfdw_stat_range_cache')) =~ /^0\|/ }) };
	is($state, '0|', "$what: no scan is left in the registry, and no window is lost");
	return;
}
sub worker { return answer($node, q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type = 'kvfdw prefetch'}); }
# a scan has one started, but not at once behind one that has ended by an error
sub worker_back { my ($old) = @_; return wait_for('a prefetch worker', sub { answer($node, query('big')); worker() =~ /^\d+$/ && worker() ne $old }); }
sub restarted { my ($times) = @_; ready_again($node, $times); return worker_back(''); }
sub reload { $node->safe_psql('postgres', "ALTER SYSTEM SET $_[0]"); $node->safe_psql('postgres', 'SELECT pg_reload_conf()'); return; }
# It may be in vain where scans do not wait long.
sub scan_share_wait { my ($wait) = @_; $ENV{PGOPTIONS} = $options . ($wait eq '10min' ? 'range_stuck=error' : ''); return reload("kvfdw.scan_share_wait = '$wait'"); }
sub waits { my ($n) = @_; return wait_for("$n waiting scans", sub { cache('waits') >= $n }); }
# Windows are loaded for this scan: the cache is empty of the table, and workers work.
sub loads_again
{
	my ($what, $t) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	reset_stat();
	answer($node, query('big'));
	answer($node, query($t));
	is(cache('loads > 0 AND used = windows'), 't', "$what: windows are loaded again");
	return;
}
# Let sessions do all their steps.
sub finish { my @s = @_; for my $s (@s) { append_to_file("$s->{base}.$_.go", '') for 0 .. 1; } return join('', map { outcome($_->{w}) } @s); }
# The processes of sessions that run a scan.
my $scanning = q{pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%md5%'};
my %conf;

# t: 4 shards of 2 windows; big: 8 of 3, which are not in windows all at once
make('t', 480, 4);
make('big', 1500, 8);

# ---- a scan, and another ----

reset_stat();
is(answer($node, query('t')), right('t'), 'a scan gives the right rows');
is(cache('reads > 0 AND loads = reads AND hits = 0 AND shared = 0 AND scans = 0 AND evictions = 0'), 't', 'through windows that are loaded for it');
my $reads = cache('reads');
is(answer($node, query('t', 'ORDER BY k DESC')), right('t'), 'a second one, backwards, too');
is(cache("reads = $reads AND loads = reads AND hits = $reads"), 't', 'finds these');
answer($node, query('big'));
cmp_ok(cache('evictions'), '>', 0, 'what does not fit is evicted');
scans_right('after evictions', 't', 'big');
sound_cache('at first');

# two rows are no reason to load a shard, but one that is there is used
for my $there (0, 1)
{
	answer($node, query($_)) for $there ? 't' : 'big';
	my $two = in_steps($node, "two$there", 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM t ORDER BY k; MOVE 2 c;', 'COMMIT;');
	step_done($two);
	is(cache('scans'), $there, 'a scan that has just begun reads ' . ($there ? 'through windows that are there' : 'singly'));
	finish($two);
}

# of a LIMIT's last shard a few rows only: those are read singly, and nothing behind them
answer($node, query('big'));
reset_stat();
my $limited = in_steps($node, 'limited', 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM big ORDER BY k LIMIT 400; MOVE 200 c;', 'MOVE ALL c; COMMIT;');
step_done($limited);
wait_for('three loads', sub { cache('reads') >= 3 });
answer($node, query('t'));
is(cache('reads'), 3 + $reads, 'of the shards that a LIMIT reaches one is worth windows');
is(finish($limited), '', 'the scan goes on');

# ---- the end of a worker ----

for my $point (qw(prefetch_claimed prefetch_read prefetch_published))
{
	# claims of one worker end; the scan goes on by itself
	answer($node, query('big'));
	my $old = worker();
	worker_stop_points($node, "$point=error");
	is(answer($node, query('t')), right('t'), "an ERROR of the worker at $point does not hurt the scan");
	worker_stop_points($node, '');
	worker_back($old);
	sound_cache("ERROR at $point");
	loads_again("ERROR at $point", 't');

	for my $how ('terminated', 'killed')
	{
		answer($node, query('big'));
		worker_stop_points($node, "$point=wait");
		my $scan = psql_writer($node, query('t') . ';', 'scan');
		stopped($node, $point);
		worker_stop_points($node, '');
		$old = worker();
		if ($how eq 'killed')
		{
			my $times = times_ready($node);
			kill_process($old);
			like(outcome($scan), qr/terminat|crash|closed/, "SIGKILL of the worker at $point ends all sessions");
			restarted($times);
			unlink $node->data_dir . "/kvfdw/waiting.$point";
		}
		else
		{
			$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
			is(go_on($node, $point, $scan), right('t') . "\n", "the worker's termination at $point does not hurt the scan");
			worker_back($old);
		}
		scans_right("$how at $point", 't');
		sound_cache("$how at $point");
		loads_again("$how at $point", 't');
	}
}

# ---- the end of a scan, while it is about to wait, while it waits, and before ----

for my $point ('range_entered', 'range_waiting', 'the worker')
{
	for my $how ('cancelled', 'terminated', 'timed out', 'killed')
	{
		answer($node, query('big'));
		reset_stat();
		worker_stop_points($node, 'prefetch_claimed=wait');
		my $times = times_ready($node);
		my $timeout = $how eq 'timed out' ? "SET statement_timeout = '300ms';" : '';
		my $scan = psql_writer($node, ($point =~ /range/ ? "SET kvfdw.stop_points = '$point=wait';" : '') . $timeout . query('t') . ';', 'scan');
		# once a session that does not stop has asked for it, the piece is on its way
		if ($point =~ /range/) { stopped($node, $point) if $how ne 'timed out'; } else { stopped($node, 'prefetch_claimed'); waits(1) if $how ne 'timed out'; }
		if ($how ne 'timed out')
		{
			my $pid = answer($node, "SELECT $scanning");
			like($pid, qr/^\d+$/, 'the scan runs');
			if ($how eq 'killed') { kill_process($pid); }
			else { $node->safe_psql('postgres', 'SELECT ' . ($how eq 'cancelled' ? 'pg_cancel_backend' : 'pg_terminate_backend') . "($pid)"); }
		}
		like(outcome($scan), $how eq 'killed' ? qr/closed|terminat/ : $how eq 'terminated' ? qr/terminating connection/ : qr/canceling statement due to @{[ $how eq 'cancelled' ? 'user request' : 'statement timeout' ]}/,
			"a scan is $how at $point");
		if ($how eq 'killed') { ready_again($node, $times); unlink glob($node->data_dir . '/kvfdw/waiting.*'); }
		ok(eval { wait_for('no scan', sub { cache('scans') eq '0' }) }, 'and leaves the registry');
		worker_stop_points($node, '');
		go_on($node, 'prefetch_claimed') if -e $node->data_dir . '/kvfdw/waiting.prefetch_claimed';
		scans_right("$how at $point", 't');
		sound_cache("$how at $point");
	}
}
loads_again('after all these', 't');

# in a subtransaction, in a cursor, in a function that goes on
answer($node, query('big'));
is(answer($node, "BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM t ORDER BY k; MOVE 300 c; SAVEPOINT s; DECLARE d CURSOR FOR SELECT k, v FROM t ORDER BY k; MOVE 200 d; SELECT scans FROM kvfdw_stat_range_cache; ROLLBACK TO s; SELECT scans FROM kvfdw_stat_range_cache; MOVE ALL c; CLOSE c; SELECT scans FROM kvfdw_stat_range_cache; COMMIT"),
	"2\n1\n0", 'a rolled back cursor leaves the registry, and so does one that is closed');
is(answer($node, "SET kvfdw.stop_points = 'range_entered=error'; CREATE FUNCTION pg_temp.f() RETURNS text LANGUAGE plpgsql AS \$\$ BEGIN PERFORM count(v) FROM t; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLERRM || (SELECT scans FROM kvfdw_stat_range_cache); END \$\$; SELECT pg_temp.f()"),
	'stopped at "range_entered" by "kvfdw.stop_points"0', 'and one that fails in a function');
is(answer($node, 'BEGIN; DECLARE c CURSOR FOR SELECT k, length(v) FROM t ORDER BY k; MOVE 400 c; MOVE ALL c; SELECT scans FROM kvfdw_stat_range_cache; COMMIT'), 0, 'a scan at its end holds nothing, though its cursor is open');
worker_stop_points($node, 'prefetch_claimed=wait');
reset_stat();
my $left = psql_writer($node, q{CREATE FUNCTION pg_temp.g() RETURNS text LANGUAGE plpgsql AS $$ DECLARE c refcursor; BEGIN OPEN c FOR SELECT k, v FROM big ORDER BY k; BEGIN MOVE FORWARD ALL IN c; EXCEPTION WHEN query_canceled THEN RETURN (SELECT waits > 0 FROM kvfdw_stat_range_cache) || ' ' || (SELECT scans FROM kvfdw_stat_range_cache); END; RETURN 'none'; END $$; SELECT pg_temp.g();}, 'left');
waits(1);
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_temp.g();' AND state = 'active'});
is(outcome($left), "true 0\n", 'nor does a cursor that is left after its wait was cancelled in a subtransaction');
worker_stop_points($node, '');
go_on($node, 'prefetch_claimed');
sound_cache('cursors');

# ---- DROP and TRUNCATE while a worker loads ----

for my $point (qw(prefetch_claimed prefetch_read))
{
	for my $what ('TRUNCATE', 'DROP')
	{
		make('gone', 480, 2);
		answer($node, query('big'));
		worker_stop_points($node, "$point=wait");
		my $scan = psql_writer($node, query('gone') . ';', 'scan');
		stopped($node, $point);
		worker_stop_points($node, '');
		$node->safe_psql('postgres', "SELECT pg_cancel_backend($_)") for answer($node, "SELECT $scanning");
		outcome($scan);
		$node->safe_psql('postgres', $what eq 'DROP' ? 'DROP FOREIGN TABLE gone;' . kv_table('gone', 'k int, v text', 'k') : 'TRUNCATE gone');
		$node->safe_psql('postgres', "TRUNCATE gone_heap; INSERT INTO gone_heap @{[ rows(300, 'new') ]}; INSERT INTO gone @{[ rows(300, 'new') ]}; SELECT kvfdw_flush('gone')");
		collected($node);
		go_on($node, $point);
		scans_right("$what while a worker is at $point", 'gone', 't');
		sound_cache("$what while a worker is at $point");
		$node->safe_psql('postgres', 'DROP FOREIGN TABLE gone; DROP TABLE gone_heap');
	}
}

# ---- reads that fail ----

for my $fault ('value_read:1+:EIO', 'value_read:2:EIO', 'value_read:1+:short', 'value_read:2:short')
{
	answer($node, query('big'));
	reload("kvfdw.fault = '$fault'");
	scans_right("$fault in the worker", 't', 'big');
	sound_cache("$fault in the worker");
	{
		local $ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n" . query('t'));
		like($err, qr/58030: could not (?:open|read) file "kvfdw\/.*Input\/output error/, "$fault for the scan too: the error names the file") if $fault =~ /\+:EIO/;
		is($out, right('t'), "$fault for the scan too: the rows are right") if $fault =~ /short/;
	}
	sound_cache("$fault for all");
	reload("kvfdw.fault = ''");
}
scan_share_wait('1s');
ok(eval { wait_for('windows', sub { reset_stat(); answer($node, query('t')); cache('loads') > 0 }) }, 'what has failed is tried again, reads that failed at once');
scan_share_wait('10min');
# of a window with one block that cannot be read all others are there
{
	my $all = do { answer($node, query('big')); reset_stat(); answer($node, query('t')); cache('reads') };
	answer($node, query('big'));
	reload("kvfdw.fault = 'value_read:3:EIO'");
	reset_stat();
	is(answer($node, query('t')), right('t'), 'a window that is read block by block');
	is(cache('reads'), $all, 'is there as others are');
	reload("kvfdw.fault = ''");
	# nor is the window loaded again for the values of a block that is bad
	answer($node, query('big'));
	reload("kvfdw.fault = 'value_read:1:EIO,value_read:20:EIO'");
	reset_stat();
	is(answer($node, query('t')), right('t'), 'a window with a block that cannot be read');
	is(cache('reads'), $all, 'is loaded once');
	# from a device that fails for good a worker reads little
	answer($node, query('big'));
	my $errors = q{SELECT coalesce(sum(errors), 0) FROM kvfdw_stat_io WHERE kind = 'value read'};
	reload("kvfdw.fault = 'value_read:1+:EIO'");
	my $before = answer($node, $errors);
	is(answer($node, query('t')), right('t'), 'a device that fails a worker for good');
	my $failed = answer($node, $errors) - $before;
	ok($failed > 0 && $failed <= 4 * $all, 'is not read block by block') or diag("$failed reads, $all windows");
	reload("kvfdw.fault = ''");
}
# a failed shard is tried again after kvfdw.scan_share_wait
scan_share_wait('1s');
ok(eval { wait_for('windows', sub { reset_stat(); answer($node, query('t')); cache('loads') > 0 }) }, 'what has failed is tried again');
scan_share_wait('10min');

# ---- damage ----

make('hurt', 480, 2);
my $path = answer($node, "SELECT (SELECT oid FROM pg_database WHERE datname = 'postgres') || '/' || 'hurt'::regclass::oid");
$node->stop;
my ($file) = sort { -s $node->data_dir . "/kvfdw/$b" <=> -s $node->data_dir . "/kvfdw/$a" } grep { m{^\Q$path\E/.*\.val$} } kv_files($node);
{
	open(my $f, '+<:raw', $node->data_dir . "/kvfdw/$file") or die "$file: $!";
	seek($f, 100 * 4096 + 2000, 0);
	print $f 'damage';
	close $f;
}
$node->start;
for my $order ('ORDER BY k', 'ORDER BY k DESC', '', 'ORDER BY k')
{
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n" . query('hurt', $order));
	like($err, qr/XX001: value does not match its checksum in file "kvfdw\/\Q$file\E".*at offset \d+/s, 'a damaged value is an error') or diag $file;
	sound_cache('damage');
}
# all other rows of both shards come out of windows
my $damaged = answer($node, q{DO $$ DECLARE r record; n int; BEGIN FOR r IN SELECT k FROM hurt_heap LOOP BEGIN SELECT length(v) INTO n FROM hurt WHERE k = r.k; EXCEPTION WHEN data_corrupted THEN DELETE FROM hurt WHERE k = r.k; DELETE FROM hurt_heap WHERE k = r.k; END; END LOOP; END $$; SELECT 480 - count(*) FROM hurt_heap});
is($damaged, 1, 'one value is damaged');
scans_right('the others', 'hurt');
loads_again('the others', 'hurt');

# ---- company ----

answer($node, query('big'));
reset_stat();
worker_stop_points($node, 'prefetch_claimed=wait');
my @scans = map { psql_writer($node, query('t') . ';', "scan$_") } 1 .. 3;
stopped($node, 'prefetch_claimed');
waits(3);
is(cache('scans'), 3, 'three scans wait');
worker_stop_points($node, '');
go_on($node, 'prefetch_claimed');
is(join('', map { outcome($_) } @scans), (right('t') . "\n") x 3, 'and have right rows');
is(cache("reads BETWEEN 1 AND $reads + 2 AND shared > 0 AND hits + shared >= reads"), 't', 'of what was read about once') or diag answer($node, 'TABLE kvfdw_stat_range_cache');

# a scan in any order joins one that is ahead; what was there before comes last
answer($node, query('t'));
my $stuck = in_steps($node, 'stuck', 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM big ORDER BY k; MOVE 1000 c;', "SET kvfdw.stop_points = ''; MOVE ALL c; COMMIT;");
step_done($stuck);
my $joined = answer($node, 'SELECT k FROM (SELECT k, v FROM big LIMIT 1) s WHERE length(v) > 0');
my $first = answer($node, 'SELECT min(k) FROM big_heap');
cmp_ok($joined, '>', $first, 'a scan in any order begins where another one is');
is(answer($node, 'SET synchronize_seqscans = off; SELECT k FROM (SELECT k, v FROM big LIMIT 1) s WHERE length(v) > 0'), $first, 'but not without synchronize_seqscans');
is(answer($node, 'SELECT k FROM (SELECT k, v FROM big ORDER BY k LIMIT 1) s WHERE length(v) > 0'), $first, 'nor if it is in order');
scan_share_wait('1s');
is(answer($node, "SELECT count(*), count(DISTINCT k), bool_and(v = (SELECT v FROM big_heap h WHERE h.k = s.k)) FROM (SELECT k, v FROM big OFFSET 0) s"), '1500|1500|t', 'and reads each row once');
is(finish($stuck), '', 'the other goes on');
scan_share_wait('10min');

# one that began in the middle and wraps around, and one that comes from the beginning, are behind each other
answer($node, query('t'));
my $ahead = in_steps($node, 'ahead', 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM big ORDER BY k; MOVE 1000 c;', 'COMMIT;');
step_done($ahead);
my $wraps = in_steps($node, 'wraps', 'BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM big; MOVE 100 c;', "\\echo on\nMOVE ALL c; COMMIT;");
step_done($wraps);
finish($ahead);
scan_share_wait('1s');
my $begins = in_steps($node, 'begins', "SET kvfdw.stop_points = ''; BEGIN; DECLARE c CURSOR FOR SELECT * FROM big ORDER BY k; MOVE 100 c;", "\\echo on\nSET kvfdw.stop_points = 'range_stuck=error'; MOVE ALL c; COMMIT;");
step_done($begins);
scan_share_wait('10min');
is(cache('scans'), 2, 'two scans that are behind each other') or diag answer($node, 'TABLE kvfdw_stat_range_cache');
is(finish($wraps, $begins), "on\non\n", 'do not wait for each other');
sound_cache('a circle');

# those whose client does not read hold nobody up
scan_share_wait('1s');
my @stuck = map { my $s = in_steps($node, "stuck$_", 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM big ORDER BY k; MOVE ' . 180 * $_ . ' c;', 'MOVE ALL c; COMMIT;'); step_done($s); $s } 1 .. 8;
scans_right('beside clients that do not read', 't', 'big');
is(cache('scans'), 8, 'which keep their place');
is(finish(@stuck), '', 'and go on');
sound_cache('clients that do not read');

# one that waits for ever needs the windows that another wants: that one reads by itself
make('wide', 1500, 64);
make('one', 420, 1);
my $w = psql_writer($node, "SET kvfdw.stop_points = 'range_waiting=wait'; " . query('one') . ';', 'scan');
stopped($node, 'range_waiting');
is(answer($node, "SET statement_timeout = '5min'; " . query('wide')), right('wide'), 'a scan for which there is no room goes on');
is(answer($node, "SET statement_timeout = '5min'; " . query('big')), right('big'), 'and another one');
is(go_on($node, 'range_waiting', $w), right('one') . "\n", 'as does the one that had all the room');
sound_cache('no room');
scan_share_wait('10min');

# ---- writes ----

# each time a row more, and a scan: the piece at the end is loaded again, and no window is lost by that
for my $i (1 .. 12)
{
	$node->safe_psql('postgres', join('', map { "INSERT INTO $_ VALUES (1000 + $i, repeat('$i', 4000));" } 'one', 'one_heap') . q{SELECT kvfdw_flush('one')});
	is(answer($node, "SET statement_timeout = '5min'; " . query('one')), right('one'), "a scan after growth $i");
}
reset_stat();
is(answer($node, query('one')), right('one'), 'a scan after that');
is(cache('hits > 0 AND loads = 0'), 't', 'finds all in windows') or diag answer($node, 'TABLE kvfdw_stat_range_cache');
# much more
make('grown', 40, 1);
answer($node, query('grown'));
$node->safe_psql('postgres', join('', map { "INSERT INTO $_ SELECT g, repeat(md5(g::text), 128) FROM generate_series(1001, 1400) g ORDER BY md5(g::text);" } 'grown', 'grown_heap') . q{SELECT kvfdw_flush('grown')});
reset_stat();
is(answer($node, query('grown')), right('grown'), 'a scan after much growth');
is(cache('loads > 4'), 't', 'reads what is new through windows') or diag answer($node, 'TABLE kvfdw_stat_range_cache');

# elsewhere, and less
$node->safe_psql('postgres', join('', map { "DELETE FROM $_ WHERE k % 3 <> 0;" } 'grown', 'grown_heap'));
like($node->safe_psql('postgres', q{SELECT kvfdw_compact('grown')}), qr/^\(\d{6,},/, 'values are moved');
reset_stat();
is(answer($node, query('grown')), right('grown'), 'a scan after they were moved');
is(cache('loads > 1'), 't', 'reads them through windows') or diag answer($node, 'TABLE kvfdw_stat_range_cache');
sound_cache('writes');

# a place is given to a value, and loaded, before the value is written there
for my $point ('', 'prefetch_read')
{
	answer($node, query('big'));
	my $large = "repeat(md5('$point'), 20000)";
	my $writer = psql_writer($node, "SET kvfdw.stop_points = 'large_value_reserved=wait'; INSERT INTO t VALUES (2000 + length('$point'), $large);", 'writer');
	stopped($node, 'large_value_reserved');
	worker_stop_points($node, "$point=wait") if $point;
	reset_stat();
	my $scan = psql_writer($node, query('t', 'ORDER BY k DESC') . ';', 'scan');
	if ($point) { stopped($node, $point); } else { is(outcome($scan), right('t') . "\n", 'a scan before the value is written'); }
	is(go_on($node, 'large_value_reserved', $writer), '', 'it is written');
	if ($point)
	{
		worker_stop_points($node, '');
		my $right = right('t');
		my $new = psql_writer($node, query('t', 'ORDER BY k DESC') . ';', 'new');
		waits(2);
		is(go_on($node, $point, $scan), "$right\n", 'an old snapshot does not see it');
		$node->safe_psql('postgres', "INSERT INTO t_heap VALUES (2000 + length('$point'), $large)");
		is(outcome($new), right('t') . "\n", 'a new one does, though the window is older');
	}
	else { $node->safe_psql('postgres', "INSERT INTO t_heap VALUES (2000, $large)"); }
	scans_right('a value that is younger than its window', 't');
	sound_cache('a value that is younger than its window');
}

# ---- parallel scans of several ranges, while others have windows ----

$node->safe_psql('postgres', "CREATE FOREIGN TABLE two (a int, b int, v text) SERVER kvfdw OPTIONS (key 'a, b', shards '8'); CREATE TABLE two_heap (a int, b int, v text, PRIMARY KEY (a, b));
	INSERT INTO two_heap SELECT (g % 8) * 536870000 - 2147480000, g, repeat(md5(g::text), 128) FROM generate_series(1::bigint, 1500) g; INSERT INTO two SELECT * FROM two_heap ORDER BY md5(b::text); SELECT kvfdw_flush('two'); ANALYZE two; ANALYZE two_heap");
my $parallel = 'SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;';
for my $where ('true', map { s/(\d) ?(?=[,)])/$1 * 536870000 - 2147480000/gr } 'a IN (6, 3, 1)', 'a IN (1, 3, 6) AND b < 1200', 'a IN (5)')
{
	is(answer($node, "$parallel SET statement_timeout = '5min'; SELECT count(*), sum(hashtext(v)) FROM two WHERE $where"), answer($node, "SELECT count(*), sum(hashtext(v)) FROM two_heap WHERE $where"), "a parallel scan where $where");
}
sound_cache('parallel');

# ---- a standby ----

my $s = kv_standby($node, 'standby', max_standby_streaming_delay => -1, hot_standby_feedback => 'on');
my $before = right('t');
caught_up($node, $s);
is(answer($s, query('t', $_)), $before, 'the rows of a standby are right') for 'ORDER BY k', 'ORDER BY k DESC', '';
cmp_ok(cache('loads', $s), '>', 0, 'and come through windows');
my $old = in_steps($s, 'old', "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;", (query('t') . ';') x 2, 'COMMIT;');
step_done($old);
for my $change ("UPDATE %s SET v = 'short' WHERE k % 5 = 0", "INSERT INTO %s SELECT g, repeat(md5(g::text), 128) FROM generate_series(5001, 5100) g", 'DELETE FROM %s WHERE k % 7 = 0', "UPDATE %s SET v = repeat('long', 100000) WHERE k % 50 = 1")
{
	$node->safe_psql('postgres', 'BEGIN;' . join('', map { my $t = $_; $change =~ s/%s/$t/r . ';' } 't', 't_heap') . 'COMMIT');
	my $frozen = $change =~ /short|DELETE/ && $node->safe_psql('postgres', q{SELECT kvfdw_flush('t'); CHECKPOINT});
	caught_up($node, $s);
	is(answer($s, query('t', $_)), right('t'), 'what is replayed is seen') for 'ORDER BY k', '';
	step_go($old) if $change =~ /short|DELETE/;
}
step_go($old) for 1 .. 2;
is(outcome($old->{w}), "1\n$before\n$before\n", 'but not by an old snapshot');
$s->stop;

# ---- files in the order of keys, larger than the cache ----

$node->append_conf('postgresql.conf', "kvfdw.range_cache = '8MB'");
$node->restart;
my $row = q{g, rpad(md5(g::text), 4096, 'x') FROM generate_series};
$node->safe_psql('postgres', kv_table('rising', 'k int, v text', 'k') . kv_table('halves', 'k int, v text', 'k') . kv_table('falling', 'k int, v text', 'k', q{shards '3'}) . "INSERT INTO rising SELECT $row(1, 5000) g;
	INSERT INTO halves SELECT $row(5001, 10000) g; INSERT INTO halves SELECT $row(1, 5000) g; INSERT INTO falling SELECT $row(1, 5000) g ORDER BY g DESC; SELECT kvfdw_flush(t) FROM unnest('{rising,halves,falling}'::regclass[]) t; ANALYZE rising, halves, falling");
# 20 MB are 80 windows
reset_stat();
is(answer($node, 'SELECT sum(length(v)) FROM (SELECT * FROM rising ORDER BY k) s'), 5000 * 4096, 'a file in the order of keys');
cmp_ok(cache('loads'), '>', 70, 'comes through windows');
reset_stat();
is(answer($node, 'SELECT s FROM generate_series(1, 3) x, LATERAL (SELECT sum(length(v)) * sign(x) AS s FROM rising WHERE k > x) s'), join("\n", map { (5000 - $_) * 4096 } 1 .. 3), 'one that is scanned again and again');
cmp_ok(cache('hits + loads + shared'), '>', 3 * 70, 'does so each time');
for my $order ('ASC', 'DESC')
{
	reset_stat();
	is(answer($node, "SELECT sum(length(v)) FROM (SELECT * FROM halves ORDER BY k $order) s"), 10000 * 4096, "two files' worth, one behind the other, $order");
	cmp_ok(cache('hits + loads + shared'), '>', 2 * 70 - 20, 'come through windows but for where the second begins');
}
# a scan in any order joins one in the middle of a shard, and reads what lies before that at the end
for my $t (qw(rising falling halves))
{
	my $n = $t eq 'halves' ? 10000 : 5000;
	my $ahead = in_steps($node, "in_$t", "BEGIN; DECLARE c CURSOR FOR SELECT * FROM $t ORDER BY k; MOVE 3000 c;", 'MOVE ALL c; COMMIT;');
	step_done($ahead);
	my $joined = answer($node, "SELECT k FROM (SELECT k, v FROM $t LIMIT 1) s WHERE length(v) > 0");
	ok($joined > 1 && ($joined <= 3000 || $t eq 'halves'), "a scan in any order begins where another one is: $t, $joined");
	is(answer($node, "SELECT min(k) FROM (SELECT k, v FROM $t ORDER BY k LIMIT 1) s WHERE length(v) > 0"), 1, 'but not one in order');
	$node->safe_psql('postgres', "INSERT INTO $t VALUES (0, 'first'), (10001, 'last'); DELETE FROM $t WHERE k = $joined; UPDATE $t SET v = 'new' WHERE k IN ($joined - 1, $joined + 1, 3000)");
	# ahead of the one that rests it waits, until that counts no more
	my $all = psql_writer($node, "SET kvfdw.stop_points = ''; SELECT count(*), count(DISTINCT k), sum(k), count(*) FILTER (WHERE v = rpad(md5(k::text), 4096, 'x')) FROM (SELECT k, v FROM $t OFFSET 0) s;", "all_$t");
	wait_for('another scan', sub { cache('scans') == 2 || ended($all) });
	scan_share_wait('1s');
	is(outcome($all), join('|', $n + 1, $n + 1, $n * ($n + 1) / 2 + 10001 - $joined, $n - 4) . "\n", 'and reads each row once');
	scan_share_wait('10min');
	is(answer($node, "SELECT k FROM $t WHERE k > $joined - 2 ORDER BY k LIMIT 2"), join("\n", $joined - 1, $joined + 1), 'whatever is written at its beginning');
	is(finish($ahead), '', 'the other goes on');
}
# with changes where the second part begins, under keys that begin with zero bytes
$node->safe_psql('postgres', kv_table('lowest', 'k int, v text', 'k') . "INSERT INTO lowest SELECT -2147483648 + g * 1000, rpad(md5(g::text), 4096, 'x') FROM generate_series(1, 5000) g; SELECT kvfdw_flush('lowest');
	INSERT INTO lowest VALUES (-2147483648, 'new'); UPDATE lowest SET v = 'changed' WHERE k = -2147482648");
my $before_it = in_steps($node, 'before_it', 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM lowest ORDER BY k; MOVE 3000 c;', 'COMMIT;');
step_done($before_it);
my $changed = psql_writer($node, "SET kvfdw.stop_points = ''; SELECT min(k) FILTER (WHERE n = 1) > -2147482648, count(*), count(*) FILTER (WHERE v = 'new'), count(*) FILTER (WHERE v = 'changed') FROM (SELECT k, v, row_number() OVER () AS n FROM lowest) s;", 'changed');
wait_for('another scan', sub { cache('scans') == 2 || ended($changed) });
scan_share_wait('1s');
is(outcome($changed), "t|5001|1|1\n", 'a scan that joins sees changes where its second part begins');
finish($before_it);
scan_share_wait('10min');
sound_cache('in order');
$node->append_conf('postgresql.conf', "kvfdw.range_cache = '2MB'");

# ---- settings ----

sub starts
{
	my (%conf) = @_;
	$node->stop if postmaster_runs($node);
	$node->append_conf('postgresql.conf', join('', map { "$_ = $conf{$_}\n" } sort keys %conf));
	return $node->start(fail_ok => 1);
}
for my $cpus ("'x'", "'1-'", "'-1'", "'2-1'", "'0,'", "','", "'0-9999'", "'0;1'")
{
	my $log = -s $node->logfile;
	ok(starts('kvfdw.prefetch_cpus' => $cpus), "kvfdw.prefetch_cpus = $cpus");
	is(setting($node, 'kvfdw.prefetch_cpus'), '', 'is not accepted');
	like(slurp_file($node->logfile, $log), qr/WARNING:  invalid value for parameter "kvfdw.prefetch_cpus"/, 'with a warning');
}
for my $cpus ("'0'", "'0-1'", "'0,1'", "'1000'", "''")
{
	ok(starts('kvfdw.prefetch_cpus' => $cpus), "kvfdw.prefetch_cpus = $cpus");
	loads_again('with it', 't');
}
for my $settings ({ 'kvfdw.range_cache' => 0 }, { 'kvfdw.range_cache' => "'100kB'" }, { 'kvfdw.range_cache' => "'256kB'" }, { 'kvfdw.range_cache' => "'512kB'" }, { 'kvfdw.range_cache' => "'2MB'", 'kvfdw.prefetch_workers' => 0 }, { 'kvfdw.prefetch_workers' => 4, max_worker_processes => 3 })
{
	my $what = join(' ', %$settings);
	ok(starts(%$settings), $what);
	reset_stat();
	scans_right($what, 't', 'big');
	is(cache('windows'), { "'2MB'" => 8, "'512kB'" => 2, "'256kB'" => 1 }->{ $settings->{'kvfdw.range_cache'} // "'2MB'" } // 0, 'the view tells how many windows there are');
	is(cache('reads'), 0, 'none is read') if $what =~ /workers|100kB|cache 0/;
	sound_cache($what);
}
$node->stop;
is(join('', grep { /PANIC|TRAP|signal 11/ } split /^/, slurp_file($node->logfile)), '', 'no process has crashed by itself');
done_testing();
