# Promise: what leaves the recent ring is read from the second tier, each value right; a tier that is slow, fails, has other
# bytes, is cut, gone, another server's or in use by one costs reads of the value files, and never an error or other values.  After a clean
# stop it is warm, if it is the file that was left, and else it is empty.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use Fcntl ':flock';
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no second tier' if heap_only();
my $dir = PostgreSQL::Test::Utils::tempdir();
chmod 0777, $dir;
my $file = "$dir/kv.tier";
my $node = kv_cluster('tier', 'kvfdw.recent_ring' => '1MB', 'kvfdw.value_cache' => 0, 'kvfdw.tier_path' => "'$file'", 'kvfdw.tier_size' => '16MB',
	# no slot for kvfdw warm, which brings frames
	max_worker_processes => 4, 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.flush_after' => '1h', log_min_messages => 'info');
$node->safe_psql('postgres', kv_table('q', 'k int, v text', 'k') . kv_table('p', 'k int, v text', 'k', q{shards '4'}));

sub rows { my ($t, $from, $to, $word) = @_; return "INSERT INTO $t SELECT g, repeat(md5('$word' || g), 90) FROM generate_series($from, $to) g;"; }
sub insert { return $node->safe_psql('postgres', rows(@_)); }
# A little at a time, so that the tier mostly keeps up; all is in files then.
sub steps
{
	my ($t, $from, $to, $word) = @_;
	my @steps = map { $from + 50 * $_ } 0 .. ($to - $from) / 50;
	return join("\n", map { rows($t, $_, $_ + 49 > $to ? $to : $_ + 49, $word) . "SELECT kvfdw_flush('$t');" } @steps);
}
sub fill { return $node->safe_psql('postgres', steps(@_) . 'SELECT kvfdw_stat_reset()'); }
sub stat_of { my ($columns) = @_; return answer($node, "SELECT $columns FROM kvfdw_stat_cache WHERE cache = 'tier'"); }
sub counts { my ($t) = @_; return answer($node, "SELECT tier_hits, recent_ring_hits, device_reads FROM kvfdw_stat_tables WHERE relid = '$t'::regclass"); }
sub right_from { my ($t, $from, $to, $word) = @_; return answer($node, "SELECT count(*), bool_and(v = repeat(md5('$word' || k), 90)) FROM generate_series($from, $to) g, LATERAL (SELECT * FROM $t WHERE k = g OFFSET 0) l"); }
sub right { my ($t, $n, $word) = @_; return right_from($t, 1, $n, $word); }

wait_for('the tier', sub { stat_of('enabled') eq 't' });
is(sprintf('%o %d', (stat $file)[2] & 07777, -s $file), '600 16777216', 'the file is for nobody else');
is(answer($node, q{SET ROLE pg_monitor; SHOW kvfdw.tier_size}), '16MB', 'settings');

# 3.4 MB: more than the ring
fill('q', 1, 1200, 'a');
# how many there are depends on how fast it was written; in the end a quarter of the ring has gone there
wait_for('frames in the tier', sub { stat_of('used_bytes >= 4 * block_size') eq 't' });
is(right('q', 1200, 'a'), '1200|t', 'what has left the ring is right');
my ($tier, $recent, $device) = split /\|/, counts('q');
cmp_ok($tier, '>=', 20, 'some of it comes from the tier');
cmp_ok($recent, '>=', 50, 'the newest from memory');
is(answer($node, q{SELECT hits > 0, size_bytes = 255 * 65536, used_bytes > 0, errors FROM kvfdw_stat_cache WHERE cache = 'tier'}), 't|t|t|0', 'kvfdw_stat_cache has the tier');
is($tier + $recent + $device >= 1200 ? 'all' : "$tier + $recent + $device", 'all', 'each is counted');
is(answer($node, q{SELECT count(*), bool_and(v = repeat(md5('a' || k), 90)) FROM (SELECT * FROM q WHERE k BETWEEN 800 AND 1000 ORDER BY k LIMIT 100) s}), '100|t', 'by range, too');
like(answer($node, q{EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM q WHERE k = ANY (ARRAY(SELECT generate_series(1, 1200)))}), qr/Tier Hits: [1-9]/, 'EXPLAIN says so');
is(answer($node, q{SELECT bool_and(calls > 0) FROM kvfdw_stat_io WHERE kind = 'tier read'}), 't', 'and kvfdw_stat_io');

my $next = 100000;
sub more { $next += 100; insert('p', $next, $next + 99, 'b'); return $node->safe_psql('postgres', q{SELECT kvfdw_flush('p')}); }

# the file comes round
fill('p', 1, 6500, 'b');
SKIP:
{
	skip 'not a test build (make FAULTS=1)', 2 unless has_faults($node);
	wait_for('the file to be full, or nearly', sub { return 1 if stat_of('used_bytes >= size_bytes - 16 * block_size') eq 't'; more(); return 0 });
	worker_stop_points($node, 'tier_written=wait');
	wait_for('frames on their way', sub { more(); return -e $node->data_dir . '/kvfdw/waiting.tier_written' });
	my $used = stat_of('used_bytes / block_size');
	is(right('q', 1200, 'a') . right('p', 6500, 'b'), '1200|t6500|t', 'what was in places that have got other bytes is right');
	is(stat_of('used_bytes / block_size'), $used, '... and is not looked for there');
	worker_stop_points($node, '');
	go_on($node, 'tier_written');
}
is(right('q', 1200, 'a') . right('p', 6500, 'b'), '1200|t6500|t', 'all is right when the file has come round');
is(stat_of('used_bytes <= size_bytes AND hits > 0'), 't', 'and what is in it is bounded');
is(answer($node, q{SELECT t.inserted > 0 AND t.block_size = 65536 AND t.used_bytes % t.block_size = 0 AND r.evictions > 0 AND t.errors = 0 FROM kvfdw_stat_cache t, kvfdw_stat_cache r WHERE t.cache = 'tier' AND r.cache = 'recent ring'}),
	't', '... and what came and went') or diag(answer($node, 'TABLE kvfdw_stat_cache'));
# a clean stop, and what may happen to the file until the start
my $warm = $node->data_dir . '/kvfdw/warm';
my $foot = (16 << 20) - (64 << 10);
sub begin { my $log = -s $node->logfile; $node->start; wait_for('the tier', sub { stat_of('enabled') eq 't' && !-e $warm }); return substr(slurp_file($node->logfile), $log) =~ s/WARNING:  kvfdw cannot start background workers on demand//r; }
sub patch { my ($at, $bytes) = @_; open(my $f, '+<', $file) or die "$file: $!"; binmode $f; sysseek($f, $at, 0); syswrite($f, $bytes); close $f; return; }
sub piece { my ($at, $len) = @_; return substr(slurp_file($file), $at, $len); }
sub signed { my ($mark) = @_; return patch($foot, $mark . pack('L', crc32c($mark))); }
$node->stop;
my $older = slurp_file($file);
begin();
fill('p', 6501, 6700, 'b');
my $used = stat_of('used_bytes / block_size');
$node->stop;
my ($file_then, $warm_then) = (slurp_file($file), slurp_file($warm));
# A note, with other places of its frames; its grammar is in docs/internals/format.md.
sub note_places
{
	my ($place) = @_;
	my $head = substr(slurp_file($warm), 0, 28);
	my $note = substr(slurp_file($warm), 32);
	my $at = 0;
	for (1 .. unpack('x24 L', $head))
	{
		my ($frames, $blocks) = unpack('x12 L x8 Q', substr($note, $at, 32));
		$at += 32 + 8 * $blocks;
		for (1 .. $frames) { substr($note, $at + 8, 4) = pack('L', $place->(unpack('L', substr($note, $at + 8, 4)))); $at += 16 }
	}
	unlink $warm;
	return append_to_file($warm, $head . pack('L', crc32c($note)) . $note);
}
my %happens = (
	'nothing happens' => sub { },
	'other bytes in the frames' => sub { patch(0, 'x' x $foot) },
	'a file of an older stop' => sub { patch(0, $older) },
	'a flipped bit in the mark' => sub { patch($foot + 28, chr(ord(piece($foot + 28, 1)) ^ 1)) },
	'a mark with another stamp' => sub { my $mark = piece($foot, 36); substr($mark, 16, 8) = pack('Q', unpack('Q', substr($mark, 16, 8)) + 1); signed($mark) },
	'a mark of fewer frames' => sub { my $mark = piece($foot, 36); substr($mark, 24, 4) = pack('L', 254); signed($mark) },
	'another server\'s mark' => sub { my $mark = piece($foot, 36); substr($mark, 8, 8) = pack('Q', unpack('Q', substr($mark, 8, 8)) + 1); signed($mark) },
	'a hand that is nowhere' => sub { my $mark = piece($foot, 36); substr($mark, 28, 4) = pack('L', 255); signed($mark) },
	'a cut file' => sub { truncate $file, 1 << 20 },
	'a longer file' => sub { truncate $file, 17 << 20 },
	'a file that others can read' => sub { chmod 0644, $file },
	'a second name' => sub { link $file, "$file.2" },
	'no file' => sub { unlink $file },
	'a note of frames that are nowhere' => sub { note_places(sub { $_[0] | 1 << 31 }) },
	'no note' => sub { unlink $warm });
for my $what ('other bytes in the frames', (grep { !/^other|^nothing/ } sort keys %happens), 'nothing happens')
{
	$node->stop if postmaster_runs($node);
	patch(0, $file_then);
	truncate $file, 16 << 20;
	chmod 0600, $file;
	unlink $warm;
	append_to_file($warm, $warm_then);
	$happens{$what}->();
	my $said = begin();
	my $kept = $what =~ /^other|^nothing/ ? $used : 0;
	cmp_ok(stat_of('used_bytes / block_size'), $kept ? '>=' : '==', $kept, "$what: frames in the tier");
	$node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()');
	is(right('p', 6700, 'b'), '6700|t', '... all is right');
	unlike($said, qr/ERROR|WARNING|PANIC|signal|ignoring|cannot use second-tier/, '... and nobody is told');
	is(sprintf('%o %d', (stat $file)[2] & 07777, -s $file), '600 16777216', '... the file is for nobody else');
	unlink "$file.2";
}
cmp_ok((split /\|/, counts('p'))[0], '>=', $used, 'after a clean stop values are read in the tier');
is(piece($foot, 40), "\0" x 40, 'while the server runs the file has no mark');

# other bytes
my $log;
sub flock_is_free { open(my $f, '+<', $file) or die "$file: $!"; my $free = flock($f, LOCK_EX | LOCK_NB); close $f; return $free; }
sub overwrite { my ($what, $bytes) = @_; open(my $f, '+<', $file) or die "$file: $!"; syswrite($f, $bytes) or die "$file: $!"; close $f; return; }
overwrite('other bytes', 'x' x (16 << 20));
$used = stat_of('used_bytes / block_size');
is(right('p', 6500, 'b'), '6500|t', 'with other bytes in the file');
cmp_ok(stat_of('used_bytes / block_size'), '<', $used, '... and what is not found in a frame is looked for there once');
is(answer($node, q{SELECT errors > 0 AND evictions > 0 FROM kvfdw_stat_cache WHERE cache = 'tier'}), 't', '... which is counted') or diag(answer($node, 'TABLE kvfdw_stat_cache'));
# what was looked for in vain is not there any more
sub fill_more
{
	my ($from) = @_;
	$node->safe_psql('postgres', 'SELECT kvfdw_stat_reset();' . steps('q', $from, $from + 599, 'a'));
	return wait_for('frames in the tier', sub { stat_of('inserted >= 4') eq 't' });
}
fill_more(10001);
$used = stat_of('used_bytes / block_size');
truncate $file, 4096;
is(right_from('q', 10001, 10600, 'a'), '600|t', 'with the file cut');
cmp_ok(stat_of('used_bytes / block_size'), '<', $used, '... it was looked at');
fill_more(11001);
my $reader = $node->background_psql('postgres');
my $reads = 'SELECT sum(length(v)) FROM generate_series(11001, 11600) g, LATERAL (SELECT v FROM q WHERE k = g OFFSET 0) l';
$reader->query_safe($reads);
# processes of the server that have the file, whatever its name is now
sub holders
{
	my @server = split ' ', `ps -o pid= --ppid @{[postmaster_runs($node)]}`;
	return grep { my $pid = $_; grep { index(readlink($_) // '', $file) == 0 } glob "/proc/$pid/fd/*" } @server;
}
cmp_ok(scalar(holders()), '>=', 2, 'readers and the writer have its file');
unlink $file;
$log = -s $node->logfile;
is(right_from('q', 11001, 11600, 'a') . ' ' . stat_of('enabled'), '600|t f', 'with the file gone');
like(substr(slurp_file($node->logfile), $log), qr/LOG:  cannot use second-tier cache file ".*": No such file/, '... and the log says so');
$reader->query_safe($reads);
ok(eval { wait_for('its room', sub { !holders() }) }, '... and nobody keeps its room') or diag $@;
$reader->quit;
insert('p', 7001, 7400, 'b');
is(answer($node, q{SELECT bool_and(v = repeat(md5('b' || k), 90)) FROM p WHERE k > 7000}), 't', 'writers go on');

SKIP:
{
	skip 'not a test build (make FAULTS=1)', 10 unless has_faults($node);
	append_to_file($file, 'somebody else wrote this');
	$node->restart;
	wait_for('the tier', sub { stat_of('enabled') eq 't' });
	# a process opens the file by its first call
	my $first = 2001;
	for my $fault ('tier_read:1+:EIO', 'tier_read:2+:EIO', 'tier_write:1+:ENOSPC')
	{
		my $last = $first + 599;
		fill_more($first);
		$log = -s $node->logfile;
		$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = '$fault'");
		$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
		wait_for('the tier to fail', sub {
			$fault =~ /read/ ? answer($node, "SELECT sum(length(v)) FROM q WHERE k BETWEEN $first AND $last") : more();
			return stat_of('enabled') eq 'f';
		});
		is(answer($node, "SELECT count(*), bool_and(v = repeat(md5('a' || k), 90)) FROM q WHERE k BETWEEN $first AND $last"), '600|t', "$fault: the rows are right");
		is(scalar(() = substr(slurp_file($node->logfile), $log) =~ /LOG:  cannot use second-tier cache file/g), 1, '... and the log says it once');
		$node->safe_psql('postgres', q{ALTER SYSTEM RESET kvfdw.fault});
		$node->restart;
		wait_for('the tier', sub { stat_of('enabled') eq 't' });
		$first = $last + 1;
	}

	# a device that has no room for the file
	$node->stop;
	unlink $file;
	$log = -s $node->logfile;
	$node->append_conf('postgresql.conf', q{kvfdw.fault = 'tier_write:1+:ENOSPC'});
	$node->start;
	wait_for('the tier to fail', sub { substr(slurp_file($node->logfile), $log) =~ /LOG:  cannot use second-tier cache file ".*": No space left/ });
	is(right('p', 6500, 'b') . (-e $file ? ' and a file' : ''), '6500|t', 'without room for its file the server starts');
	$node->append_conf('postgresql.conf', q{kvfdw.fault = ''});
	$node->restart;
	wait_for('the tier', sub { stat_of('enabled') eq 't' });

	# frames that are on their way: in the file, and not found there yet
	worker_stop_points($node, 'tier_written=wait');
	my $stopped = $node->data_dir . '/kvfdw/waiting.tier_written';
	wait_for('frames on their way', sub { more(); return -e $stopped });
	is(answer($node, "SELECT count(*), bool_and(v = repeat(md5('b' || k), 90)) FROM p WHERE k BETWEEN 100100 AND $next + 99"), $next - 100000 . '|t', 'what is on its way is right');
	$node->safe_psql('postgres', 'TRUNCATE q');
	insert('q', 1, 100, 'c');
	worker_stop_points($node, '');
	go_on($node, 'tier_written');
	is(right('q', 100, 'c'), '100|t', 'and when its table was truncated meanwhile');
	worker_stop_points($node, 'tier_before_write=wait');
	wait_for('frames on their way', sub { more(); return -e $node->data_dir . '/kvfdw/waiting.tier_before_write' });
	worker_stop_points($node, '');
	my ($writer) = grep { /kvfdw tier/ } split /\n/, `ps -o pid=,args= --ppid @{[ postmaster_runs($node) ]}`;
	my $crashes = times_ready($node);
	kill_process($writer =~ /(\d+)/);
	ready_again($node, $crashes);
	is(right('q', 100, 'c'), '100|t', 'the writer is killed');
}
# a crash with frames on their way
my $times = times_ready($node);
insert('p', 200001, 200400, 'b');
kill_process(answer($node, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw maintainer'}));
ready_again($node, $times);
is(answer($node, q{SELECT count(*), bool_and(v = repeat(md5('b' || k), 90)) FROM p WHERE k > 200000}), '400|t', 'a crash leaves nothing wrong');

# two servers with the same path
wait_for('the tier', sub { stat_of('enabled') eq 't' });
$node->stop;
open(my $other, '+<', $file) or die "$file: $!";
flock($other, LOCK_EX | LOCK_NB) or die "$file: $!";
$log = -s $node->logfile;
my $inode = (stat $file)[1];
$node->start;
wait_for('the tier', sub { !-e $warm && substr(slurp_file($node->logfile), $log) =~ /second-tier/ });
is(stat_of('enabled') . ' ' . (stat $file)[1], "f $inode", 'a file that another server uses is left to it');
like(substr(slurp_file($node->logfile), $log), qr/LOG:  cannot use second-tier cache file ".*": another server uses it/, '... and the log says so');
close $other;
$node->restart;
wait_for('the tier', sub { stat_of('enabled') eq 't' });
ok(!flock_is_free(), 'a server has a lock on its file');

# two stops, one soon after the other
SKIP:
{
	skip 'not a test build (make FAULTS=1)', 7 unless has_faults($node);

	# a stop while the writer is at work
	my ($writes, $waits) = map { $node->data_dir . "/kvfdw/waiting.$_" } 'tier_before_write', 'tier_lock';
	unlink $writes;				# of the writer that was killed
	worker_stop_points($node, 'tier_before_write=wait,tier_lock=wait');
	wait_for('frames on their way', sub { more(); return -e $writes });
	my @continue = map { $node->data_dir . "/kvfdw/continue.$_" } 'tier_before_write', 'tier_lock';
	my $looker = fork() // die "fork: $!";
	if ($looker == 0)
	{
		my $marked = eval { wait_for('the maintainer to note what is cached', sub { -e $waits || -e $warm }); piece($foot, 40) ne "\0" x 40 } // 1;
		append_to_file($_, '') for @continue;
		POSIX::_exit($marked ? 1 : 0);
	}
	$node->stop;
	waitpid $looker, 0;
	is($?, 0, 'the file is not marked while its writer is at work');
	isnt(piece($foot, 4), "\0" x 4, '... but then');
	$node->start;
	worker_stop_points($node, '');
	unlink @continue;
	wait_for('the tier', sub { stat_of('enabled') eq 't' && !-e $warm });

	fill('q', 3001, 3600, 'a');
	wait_for('frames in the tier', sub { stat_of('used_bytes >= 4 * block_size') eq 't' });
	worker_stop_points($node, 'warm_read=wait');
	$used = stat_of('used_bytes / block_size');
	# a worker uses the note, and not the maintainer
	$node->append_conf('postgresql.conf', 'max_worker_processes = 12');
	$node->restart;
	stopped($node, 'warm_read');
	$node->stop;
	isnt(piece($foot, 4), "\0" x 4, 'a stop while the note is used marks the tier');
	append_to_file($node->data_dir . '/kvfdw/continue.warm_read', '');
	begin();
	cmp_ok(stat_of('used_bytes / block_size'), '>=', $used, '... and notes it again');

	# places that are written before the note is used, which names them
	worker_stop_points($node, 'warm_frames=wait');
	$node->stop;
	my $next_place = unpack('L', piece($foot + 28, 4));
	note_places(sub { $next_place++ % 255 });
	$node->start;
	stopped($node, 'warm_frames');
	wait_for('the tier', sub { stat_of('enabled') eq 't' });
	fill_more(4001);
	my $hits = sub { $node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()'); return right_from('q', 4001, 4600, 'a') . ' ' . (split /\|/, counts('q'))[0] };
	my ($right_then, $hits_then) = split / /, $hits->();
	worker_stop_points($node, '');
	go_on($node, 'warm_frames');
	wait_for('the note to be used', sub { !-e $warm });
	my ($right_now, $hits_now) = split / /, $hits->();
	is("$right_then $right_now " . right_from('q', 3001, 3600, 'a'), '600|t 600|t 600|t', 'places that were written before the note was used');
	cmp_ok($hits_now, '>=', $hits_then, '... are not what it says');
	cmp_ok($hits_then, '>', 0, '... and are in use');
}
rename $file, "$file.own";
append_to_file($file, slurp_file("$file.own"));
chmod 0600, $file;
$node->stop;
is(piece($foot, 40), "\0" x 40, 'another file of that name is not marked when the server stops');
unlink "$file.own";
$node->start;
wait_for('the tier', sub { stat_of('enabled') eq 't' });
fill_more(12001);
rename $file, "$file.own";
append_to_file($file, slurp_file("$file.own"));
$log = -s $node->logfile;
is(right_from('q', 12001, 12600, 'a'), '600|t', 'with another file of that name');
is(stat_of('enabled'), 'f', '... which is not read');
like(substr(slurp_file($node->logfile), $log), qr/LOG:  cannot use second-tier cache file ".*": Stale file handle/, '... and the log says so');

is(kv_check_clean($node, 'q', 'p'), '', 'tables are sound');
for my $path ('relative.tier', $node->data_dir . '/base/1.tier', '/tmp/file')
{
	my ($rc, $out, $err) = $node->psql('postgres', "ALTER SYSTEM SET kvfdw.tier_path = '$path'");
	like($err, qr/"kvfdw.tier_path" must be an absolute path outside of the data directory/, "the file cannot be $path");
}
$node->stop;

# ---- values that move ----

$file = "$dir/moves.tier";
$node = kv_cluster('moves', 'kvfdw.recent_ring' => '1MB', 'kvfdw.value_cache' => 0, 'kvfdw.tier_path' => "'$file'", 'kvfdw.tier_size' => '16MB', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.flush_after' => '1h');
$node->safe_psql('postgres', kv_table('m', 'k int, v text', 'k'));
wait_for('the tier', sub { stat_of('enabled') eq 't' });
my $rows = sub { my ($n) = @_; return "INSERT INTO m SELECT k, repeat(md5('m' || k), 90) FROM (SELECT 1 + g * 7919 % 1600 AS k FROM generate_series($n, $n + 49) g) s; SELECT kvfdw_flush('m'), pg_sleep(0.05);" };
for (my $n = 0; $n < 1600; $n += 50) { $node->safe_psql('postgres', $rows->($n)); }
wait_for('frames in the tier', sub { stat_of('used_bytes >= 10 * block_size') eq 't' });
# Values read in the tier and in the ring, and on the device.
my $read = sub { $node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()'); return right('m', 1600, 'm') . '|' . counts('m') };
my @then = split /\|/, $read->();
is(answer($node, q{SELECT moved_bytes > 4000000 FROM kvfdw_compact('m', sorted => true)}), 't', 'values move');
my @now = split /\|/, $read->();
is("$now[0] $now[1]", '1600 t', '... and are right');
cmp_ok($now[2], '>=', 0.9 * ($then[2] + $then[3]), "... and are read in the tier as before (@now[2 .. 4] of @then[2 .. 4])");
$node->restart;
wait_for('the tier', sub { stat_of('enabled') eq 't' && !-e $node->data_dir . '/kvfdw/warm' });
@now = split /\|/, $read->();
cmp_ok($now[2], '>=', 0.9 * ($then[2] + $then[3]), '... also after a restart');
is(kv_check_clean($node, 'm'), '', 'the table is sound');
done_testing();
