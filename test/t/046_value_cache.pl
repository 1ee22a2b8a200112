# Promise: a value of up to 64 kB that was read by key, or in a short range, is read from the device once; a large scan
# leaves the value cache alone; what the cache has is never shown for another row, version or table; and few values lie in
# more blocks than they need.  What the cache has no room for the page cache holds; what that has wrong is read from the device.
# While memory lies idle, and only then, it gets the piece around a value, once, but where values are being written.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use List::Util qw(sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no value cache' if heap_only();
my $node = kv_cluster('cache', 'kvfdw.value_cache' => '32MB', 'kvfdw.recent_ring' => 0, 'kvfdw.read_around' => 0, 'kvfdw.flush_after' => '1h', log_min_messages => 'info');
$node->safe_psql('postgres', kv_table('c', 'k int, v text', 'k'));

# Rows for the table, in files, and counters at zero.
sub rows
{
	my ($query, @before) = @_;
	$node->safe_psql('postgres', join(';', @before, "INSERT INTO c $query", q{SELECT kvfdw_flush('c')}, 'SELECT kvfdw_stat_reset()'));
	return;
}
sub counts { my ($columns) = @_; return answer($node, "SELECT $columns FROM kvfdw_stat_tables WHERE relid = 'c'::regclass"); }
sub reset_counts { return $node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()'); }
my $reads = 'device_reads, value_cache_hits';
sub tier { my ($tier, $columns, $from) = @_; return answer($from // $node, "SELECT $columns FROM kvfdw_stat_cache WHERE cache = '$tier'"); }
my $letters = q{SELECT g, repeat(chr(96 + g), 700) FROM generate_series(1, 20) g};

# ---- one block ----

rows($letters);
is(answer($node, 'SELECT left(v, 3) FROM c WHERE k = 3') . counts($reads), 'ccc1|0', 'a value that is read by key comes from the device');
is(answer($node, 'SELECT left(v, 3) FROM c WHERE k = 3;' x 2) . counts($reads), "ccc\nccc1|2", '... once');
is(answer($node, 'SELECT left(v, 3) FROM c WHERE k = 4') . counts($reads), 'ddd1|3', 'its neighbours come with it');
is(tier('value cache', 'hits, block_size, inserted, evictions, dropped, errors, size_bytes, used_bytes'), '3|4096|1|0||0|33554432|4096', 'kvfdw_stat_cache tells what came');
is(tier('device', 'hits, block_size, errors, size_bytes > 14000, used_bytes >= 14000'), '1||0|t|t', '... and what was read');
is(answer($node, q{SELECT kvfdw_stat_reset(); SELECT string_agg(cache, ' ') FROM kvfdw_stat_cache WHERE hits + coalesce(inserted, 0) + coalesce(evictions, 0) + coalesce(dropped, 0) + coalesce(errors, 0) > 0}), "\n", '... until it is reset')
  or diag(answer($node, 'TABLE kvfdw_stat_cache'));
is(tier('value cache', 'hits, inserted, evictions, used_bytes'), '0|0|0|4096', '... but for what there is');
$node->safe_psql('postgres', q{UPDATE c SET v = 'new' WHERE k = 3; SELECT kvfdw_flush('c'); SELECT kvfdw_stat_reset()});
is(answer($node, 'SELECT v FROM c WHERE k = 3') . counts($reads), 'new0|1', 'a new version of what is cached is cached');
is(answer($node, q{BEGIN; UPDATE c SET v = 'no' WHERE k = 3; SELECT v FROM c WHERE k = 3; ROLLBACK; SELECT v FROM c WHERE k = 3; DELETE FROM c WHERE k = 3; SELECT v FROM c WHERE k = 3}),
	"no\nnew", 'what was rolled back or deleted is not shown');
rows($letters =~ s/chr\(96/upper(chr(96/r =~ s/\+ g\), 700/+ g)), 700/r, 'TRUNCATE c');
is(answer($node, 'SELECT left(v, 3) FROM c WHERE k IN (3, 4, 5);' x 2), "CCC\nDDD\nEEE\nCCC\nDDD\nEEE", 'nor a generation of before, with the same places');

# ---- several blocks ----

my $sized = q{SELECT g, repeat(chr(96 + g::int), n) FROM unnest(ARRAY[4097, 10000, 32768, 61000, 66000]) WITH ORDINALITY l (n, g)};
my $same = q{SELECT string_agg(k || ' ' || length(v) || ' ' || (v = repeat(chr(96 + k), length(v))), ',' ORDER BY k) FROM c WHERE k IN (1, 2, 3, 4, 5)};
rows($sized, 'TRUNCATE c');
is(answer($node, "$same; $same"), join("\n", ('1 4097 true,2 10000 true,3 32768 true,4 61000 true,5 66000 true') x 2), 'values of several blocks');
is(counts('value_cache_hits'), 4, '... of up to 64 kB are cached');
$node->safe_psql('postgres', q{UPDATE c SET v = repeat('new', 5000) WHERE k = 2; SELECT kvfdw_flush('c'); SELECT kvfdw_stat_reset()});
is(answer($node, q{SELECT v = repeat('new', 5000) FROM c WHERE k = 2}) . counts($reads), 't0|1', '... with their new versions');

# ---- ranges ----

rows(q{SELECT g, repeat('x', 5000) FROM generate_series(1, 600) g}, 'TRUNCATE c');
is(answer($node, 'SELECT sum(length(v)) FROM c WHERE k BETWEEN 101 AND 150;' x 2), "250000\n250000", 'a short range');
is(counts('value_cache_hits'), 50, '... is cached');
is(answer($node, 'SELECT sum(length(v)) FROM c WHERE k BETWEEN 149 AND 150; SELECT length(v) FROM c WHERE k = 120') . counts('value_cache_hits'), "10000\n500053", '... for others, too');
reset_counts();
answer($node, 'SELECT sum(length(v)) FROM c WHERE k > 150');
answer($node, 'SELECT length(v) FROM c WHERE k IN (450, 500, 550, 599)');
is(counts('value_cache_hits'), 0, 'a large scan leaves the cache alone');

# ---- the largest values ----

for my $size (61000, 63000, 65400)
{
	rows("SELECT g, left(repeat(md5(g::text), 2100), $size) FROM generate_series(1, 40) g", 'TRUNCATE c');
	is(answer($node, "SELECT count(length(v)) FROM c WHERE k = ANY (ARRAY(SELECT generate_series(1, 40)));" x 2) . counts($reads) =~ s/^\d+//r, "40\n40|40", "values of $size bytes, wherever they begin");
}

# ---- places ----

rows(q{SELECT g, repeat('z', 1000) FROM generate_series(1, 40) g}, 'TRUNCATE c');
answer($node, 'SELECT sum(length(v)) FROM c WHERE k BETWEEN 1 AND 40');
is(counts('device_read_bytes'), 40960, 'values of 1000 bytes lie four to a block');

# ---- the page cache ----

sub value_files
{
	my $dir = answer($node, q{SELECT format('/%s/%s/', relid, lpad(to_hex(generation), 8, '0')) FROM kvfdw_stat_tables WHERE relid = 'c'::regclass});
	return map { $node->data_dir . "/kvfdw/$_" } grep { /\.val$/ && index($_, $dir) >= 0 } kv_files($node);
}
# Pages that the kernel has of the table's value files.
sub pages
{
	my @files = value_files();
	my ($out, $err) = run_command([ 'fincore', '-n', '-o', 'PAGES', @files ]);
	return @files ? sum(split ' ', $out) : 'no files';
}
# Those that there are after a query, or again, for others may empty the page cache meanwhile.
sub pages_after
{
	my ($sql, $awaited) = @_;
	my $pages = -1;
	for (1 .. 5) { answer($node, $sql); last if ($pages = pages()) eq $awaited; }
	return $pages;
}
my $large = q{SELECT k, md5(v) FROM c WHERE k};
my $off = 'SET kvfdw.page_cache = off;';
my $wrong = sub { my @all = slurp_file($node->logfile) =~ /page cache had wrong bytes of file/g; return scalar @all; };

# of more than 64 kB each, which the value cache does not take, the first at the beginning of the file
my $rows = q{SELECT g, repeat(md5(g::text), 2060) FROM generate_series(1, 40) g};
rows($rows, 'TRUNCATE c');
my $one = answer($node, q{SELECT '3|' || md5(repeat(md5('3'), 2060))});
my $some = join("\n", map { answer($node, "SELECT '$_|' || md5(repeat(md5('$_'), 2060))") } 1, 7, 30);
SKIP:
{
	skip 'the file system has no direct I/O', 5 if slurp_file($node->logfile) =~ /kvfdw uses buffered I\/O/;
	is(answer($node, "SELECT sum(length(v)) FROM c; $off $large = 1; $large BETWEEN 1 AND 3") =~ s/\n.*//sr . ' ' . pages(), (40 * 2060 * 32) . ' 0', 'writes, large scans, and other reads if so set, leave nothing in the page cache');
	is(pages_after("$large = 1", 17), 17, 'what is read by key it keeps, and no more');
	reset_counts();
	answer($node, "$large = 1");
	is(counts('device_reads'), 1, '... to be read there, which is counted as ever');
	rows($rows, 'TRUNCATE c');
	is(pages_after("$large IN (1, 20)", 34), 34, '... of many keys, too');
	answer($node, q{INSERT INTO c VALUES (41, repeat('l', 300000))});
	is(pages_after("$large IN (20, 41)", 34), 34, '... but of no value that is larger than 256 kB');
}

SKIP:
{
	skip 'not a test build', 6 if !has_faults($node);
	my $rot = q{SET kvfdw.fault = 'value_read:1+:rot';};
	my ($before, $before_pages, $reads_before) = ($wrong->(), pages(), counts('device_reads'));
	is(answer($node, "$rot $large = 3"), $one, 'a value that has rotted in the page cache is right');
	is($wrong->() - $before . ' ' . (counts('device_reads') - $reads_before), '1 2', '... for it is read from the device, and the log tells');
	cmp_ok(pages(), '<=', $before_pages, '... and the page cache forgets it');
	is(answer($node, "$rot $large IN (1, 7, 30) ORDER BY k"), $some, '... as those of many keys');
	is(answer($node, "$rot $large BETWEEN 3 AND 3"), $one, '... and of a short range');
	$before = $wrong->();
	is(answer($node, "$rot $off $large = 3") . ($wrong->() - $before), $one . '0', '... and not asked if so set');
}

# ---- pieces around values ----

# The page cache forgets the table's value files.
sub forget_pages
{
	run_log([ 'dd', "if=$_", 'iflag=nocache', 'count=0', 'status=none' ]) for value_files();
	return;
}
SKIP:
{
	skip 'not a test build', 19 if !has_faults($node);
	skip 'the file system has no direct I/O', 19 if slurp_file($node->logfile) =~ /kvfdw uses buffered I\/O/;
	my $idle = 'SET kvfdw.read_around = 64; SET kvfdw.test_idle = 1;';
	my $value = 'SELECT length(v) FROM c WHERE k';
	my $thousand = q{SELECT g, repeat('i', 1000) FROM generate_series(1, 400) g};

	# four to a block, so a piece has 64
	rows($thousand, 'TRUNCATE c');
	is(pages_after("$idle $value = 200", 1), 1, 'where values are being written nothing is read with one');
	$node->safe_psql('postgres', q{SELECT kvfdw_compact('c', sorted => true); SELECT kvfdw_stat_reset()});
	is(pages(), 0, 'what a compaction has moved is not in the page cache');
	is(pages_after("SET kvfdw.read_around = 64; SET kvfdw.test_idle = 0; $value = 250", 1), 1, 'without idle memory no more is read than is asked for');
	reset_counts();
	is(pages_after("$idle $value = 300", 17), 17, 'with idle memory a piece');
	is(counts('device_reads, device_read_bytes'), '1|4096', '... beside what is read, which alone is counted');
	is(pages_after("$idle $value = 310", 17), 17, '... which has others then');
	forget_pages();
	is(pages_after("$idle $value = 305", 1), 1, '... and is not read again at once');
	is(pages_after("$idle $value IN (10, 60, 70, 120, 195)", 49), 49, 'pieces of many keys');
	rows($thousand, 'TRUNCATE c');
	$node->safe_psql('postgres', q{SELECT kvfdw_compact('c', sorted => true)});
	is(pages_after("$idle $value = 10; $value BETWEEN 62 AND 68", 32), 32, '... and of a short range, of which one is there');
	is(pages_after("$idle SELECT count(v) FROM c", 32), 32, '... and none of a large scan');
	rows(q{SELECT g, repeat('l', 1000) FROM generate_series(1, 2000) g}, 'TRUNCATE c');
	$node->safe_psql('postgres', q{SELECT kvfdw_compact('c', sorted => true)});
	is(pages_after("$idle $value = 300", 1), 1, 'no piece of a table that is larger than memory');

	# nobody has counted what it has
	$node->stop;
	$node->append_conf('postgresql.conf', "kvfdw.stop_points = 'space_counted=wait'");
	$node->start;
	stopped($node, 'space_counted');
	forget_pages();
	is(pages_after("SET kvfdw.stop_points = ''; $idle $value = 700", 1), 1, '... nor right after a start');
	$node->append_conf('postgresql.conf', "kvfdw.stop_points = ''");
	$node->reload;
	go_on($node, 'space_counted');
	like(answer($node, "$idle SET kvfdw.fault = 'value_read:1+:EIO'; $value = 390"), qr/could not (open|read) file.*Input\/output error/, 'a device that fails is an error as ever');

	# of what moves, most was read by key lately
	my $room = 'SET kvfdw.read_around = 64; SET kvfdw.test_idle = 100;';
	my $moves = q{SELECT moved_bytes > 1000000 FROM kvfdw_compact('c', sorted => true)};
	my $rewrite = q{UPDATE c SET v = repeat('u', 1000) WHERE k % 4 = 0; SELECT kvfdw_flush('c')};
	answer($node, "$room SELECT count(v) FROM c WHERE k = ANY (ARRAY(SELECT generate_series(1, 2000)))");
	answer($node, $rewrite);
	forget_pages();
	is(answer($node, "$room $moves"), 't', 'values move');
	ok(wait_for('pages', sub { pages() > 300 }), '... and are in the page cache again, as they were read there by key');
	answer($node, $rewrite);
	forget_pages();
	is(answer($node, "$room $moves"), 't', '... which counts as read there');
	ok(wait_for('pages', sub { pages() > 300 }), '... when they move again');
	answer($node, $rewrite);
	forget_pages();
	is(answer($node, "SET kvfdw.read_around = 64; SET kvfdw.test_idle = 0; $moves") . pages(), 't0', '... but not where no memory lies idle');

	# the first files that are opened are those that it reads and writes; what it cannot have there it goes without
	my @outcomes;
	for my $nth (3 .. 5)
	{
		rows(q{SELECT g, repeat('l', 1000) FROM generate_series(1, 2000) g}, 'TRUNCATE c');
		answer($node, q{SELECT kvfdw_compact('c', sorted => true)});
		answer($node, "$room SELECT count(v) FROM c WHERE k = ANY (ARRAY(SELECT generate_series(1, 2000)))");
		answer($node, $rewrite);
		push @outcomes, answer($node, "$room SET kvfdw.fault = 'value_read:$nth:EMFILE'; $moves");
	}
	is("@outcomes", 't t t', 'a compaction does not fail for what cannot be in the page cache');
}

# ---- what cannot be had through the page cache ----

SKIP:
{
	skip 'not a test build', 4 if !has_faults($node);
	rows($rows, 'TRUNCATE c');
	my $before = $wrong->();
	my $direct = "$off $large = 3; SET kvfdw.page_cache = on;";
	is(answer($node, "$direct SET kvfdw.fault = 'value_read:1:EMFILE'; $large = 3"), "$one\n$one", 'where its file cannot be opened again it is read directly');
	is(answer($node, "$direct SET kvfdw.fault = 'value_read:2:ENOMEM'; $large = 3"), "$one\n$one", '... or where it cannot be read there');
	is(answer($node, "$direct SET kvfdw.fault = 'value_read:2:ENOMEM'; $large IN (1, 7, 30) ORDER BY k"), "$one\n$some", '... of many keys, too');
	is($wrong->(), $before, '... which is not what the page cache had wrong');
}

# ---- what reads by key besides SELECT ----

rows(q{SELECT g, repeat('y', 100) FROM generate_series(1, 20) g}, 'TRUNCATE c');
my $upsert = 'ON CONFLICT (k) DO UPDATE SET v = left(c.v, 1) || excluded.v';
is(answer($node, "INSERT INTO c VALUES (1, 'a') $upsert RETURNING v; INSERT INTO c VALUES (2, 'b') $upsert RETURNING v; INSERT INTO c SELECT g, 'c' FROM generate_series(3, 20) g $upsert"), "ya\nyb", 'upserts');
is(counts($reads), '1|19', '... read what is there by key');

is(kv_check_clean($node, 'c'), '', 'the table is sound');
$node->stop;

# ---- a hot set beside ten times the cache ----

# 160 hot rows of one block each, in a cache of 256; 10 MB of others, four to a block
$node = kv_cluster('beside', 'kvfdw.value_cache' => '1MB', 'kvfdw.recent_ring' => 0, 'kvfdw.flush_after' => '1h');
my ($hot, $others) = (160, 10240);
$node->safe_psql('postgres', kv_table('c', 'k int, v text', 'k') . kv_table('o', 'k int, v text', 'k')
	. "INSERT INTO c SELECT g, repeat(md5(g::text), 128) FROM generate_series(1, $hot) g; INSERT INTO o SELECT g, repeat('o', 1000) FROM generate_series(1, $others) g; SELECT kvfdw_flush('c'), kvfdw_flush('o')");
my $hot_reads = "SELECT sum(length(v)) FROM generate_series(1, $hot) g, LATERAL (SELECT v FROM c WHERE k = 1 + (g * 7 % $hot) OFFSET 0) l;\n";
# Hits per hot read, while steps of something else come between them.
sub hits_beside
{
	my ($between, $before, $after) = @_;
	answer($node, $hot_reads x 5);
	reset_counts();
	answer($node, ($before // '') . join('', map { $between->($_) . $hot_reads } 0 .. 63) . ($after // ''));
	return counts("round(value_cache_hits / (64.0 * $hot), 3)");
}
my $alone = hits_beside(sub { '' });
cmp_ok($alone, '>', 0.9, "hits per read of a hot set alone: $alone");
my $step = $others / 64;
my $ranges = hits_beside(sub { my ($n) = @_; join('', map { my $from = $step * $n + 20 * $_ + 1; "SELECT sum(length(v)) FROM o WHERE k BETWEEN $from AND $from + 19;\n" } 0 .. $step / 20 - 1) });
cmp_ok($ranges, '>=', 0.8 * $alone, "... beside short ranges over ten times the cache: $ranges");
my $all_read = q{SELECT rows_read >= 10240 FROM kvfdw_stat_tables WHERE relid = 'o'::regclass};
is(answer($node, $all_read), 't', '... all of which were read');
cmp_ok(tier('value cache', 'evictions'), '>', 2000, '... and went through the cache');
my $scan = hits_beside(sub { "MOVE $step FROM s;\n" }, 'BEGIN; DECLARE s CURSOR FOR SELECT * FROM o ORDER BY k;', 'COMMIT;');
cmp_ok($scan, '>=', 0.8 * $alone, "... beside a scan of ten times the cache: $scan");
is(answer($node, $all_read), 't', '... that read all');
cmp_ok(tier('value cache', 'evictions'), '<', 1000, '... and left the cache alone');

# ---- values that move ----

# Four rows to a block, as many blocks as before, in no order; what a compaction puts in order lies elsewhere.
$node->safe_psql('postgres', kv_table('m', 'k int, v text', 'k')
	. "INSERT INTO m SELECT g, repeat(md5(g::text), 31) FROM generate_series(1, 4 * $hot) g ORDER BY md5(g::text); SELECT kvfdw_flush('m')");
my $of_m = "SELECT count(v) FROM m WHERE k = ANY (ARRAY(SELECT generate_series(1, 4 * $hot)))";
my $kept = sub { reset_counts(); answer($node, $of_m); return answer($node, "SELECT round(value_cache_hits / (4.0 * $hot), 2) FROM kvfdw_stat_tables WHERE relid = 'm'::regclass") };
$kept->() for 1 .. 5;
my ($was, $used) = ($kept->(), tier('value cache', 'used_bytes / 4096'));
my $compact = q{SELECT moved_bytes > 600000 FROM kvfdw_compact('m', sorted => true)};
my $points = join(',', map { "$_=wait" } 'compact_written', 'flush_done');
my $session = has_faults($node) ? psql_writer($node, "SET kvfdw.stop_points = '$points';\n$compact", 'moves') : answer($node, $compact);
if (has_faults($node))
{
	stopped($node, 'compact_written');
	cmp_ok($kept->(), '>=', $was - 0.05, "nothing that is cached ($was) makes way for what a compaction moves, until it has");
	go_on($node, 'compact_written');
	stopped($node, 'flush_done');
	cmp_ok(tier('value cache', 'used_bytes / 4096'), '<', $used - $hot / 2, "then what it has emptied makes way, of $used blocks");
	go_on($node, 'flush_done');
	is(outcome($session), "t\n", '... and it ends');
}
my $is = $kept->();
cmp_ok($is, '>=', $was - 0.1, "... and what was cached is, in its new place: $is");

# what cannot be read then is not cached, and no more
if (has_faults($node))
{
	my $unsort = q{UPDATE m SET v = reverse(v) WHERE k % 2 = 0; SELECT kvfdw_flush('m')};
	my $passes = "SELECT sum(compactions) FROM kvfdw_stat_tables WHERE relid = 'm'::regclass";
	my ($failed_early, $failed_late) = ('', 0);
	for my $nth (1 .. 6)
	{
		# the first ones are reads of the old places
		answer($node, $unsort);
		$kept->() for 1 .. 3;
		my $errors = answer($node, q{SELECT errors FROM kvfdw_stat_io WHERE kind = 'value read'});
		my $before = answer($node, $passes);
		my $outcome = answer($node, "SET kvfdw.fault = 'value_read:$nth+:EIO'; $compact");
		$failed_early .= "$nth: $outcome " if $outcome ne 't' && answer($node, $passes) > $before;
		$failed_late++ if $outcome eq 't' && answer($node, q{SELECT errors FROM kvfdw_stat_io WHERE kind = 'value read'}) > $errors;
	}
	is($failed_early, '', 'a compaction that has done its work does not fail for what cannot be read into the cache then');
	cmp_ok($failed_late, '>', 0, '... which some could not');
	is(answer($node, 'SELECT count(*), bool_and(v IN (repeat(md5(k::text), 31), reverse(repeat(md5(k::text), 31)))) FROM m'), 4 * $hot . '|t', '... and costs no value');
}

# so it is with what nobody moves, for it is dead
$node->safe_psql('postgres', q{DELETE FROM m; SELECT kvfdw_compact('m')});
my $few = $hot / 2;
my $once = "SELECT count(v) FROM o WHERE k = ANY (ARRAY(SELECT g * 4 FROM generate_series(1, $few) g))";
answer($node, $once);
reset_counts();
answer($node, $once);
$is = answer($node, "SELECT round(value_cache_hits / $few.0, 2) FROM kvfdw_stat_tables WHERE relid = 'o'::regclass");
cmp_ok($is, '>=', 0.8, "what is read once has the room of the dead: $is");
done_testing();
