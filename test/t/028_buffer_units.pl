# Promise: each shard that is written has a write buffer of a fair size, as long as there are
# units. So several values at a time go to their files, however many shards there are. Shards that
# are no longer written return theirs. After a kill, the values of all write buffers are there
# again. A buffer file of another format version is refused by name.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_cluster('units', 'kvfdw.buffer_units' => 400, 'kvfdw.flush_after' => '1h', 'kvfdw.value_cache' => 0,
	'kvfdw.recovery_workers' => 0, checkpoint_timeout => '1h', restart_after_crash => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
my $merge = $node->data_dir . '/kvfdw/buffers';

# The buffer file: docs/internals/format.md.  Its write buffers in use: number, header, values, batch head and entries.
sub file_header { my ($magic, $version, $system, $values, $entries, $units) = unpack 'L<L<Q<L<3', substr(slurp_file($merge), 0, 32); return ($version, $values, $entries, $units, $system); }
sub slots
{
	my $file = slurp_file($merge);
	my ($version, $values, $entries, $units) = file_header();
	my $headers = 4096 + $values * $units;
	my $batches = ($headers + 128 * $units + 4095) & ~4095;
	return map {
		my $header = substr($file, $headers + 128 * $_, 128);
		my $n = int((unpack('x48 L<', $header) + $values - 1) / $values);
		unpack('x4 L<', $header) ? { n => $_, units => $n, relid => unpack('x20 L<', $header), header => $header,
			values => substr($file, 4096 + $values * $_, $values * $n), entries => substr($file, $batches + $entries * $_, $entries * $n) } : ()
	} 0 .. $units - 1;
}
sub slots_of { my ($t) = @_; my $oid = answer($node, "SELECT '$t'::regclass::oid"); return grep { $_->{relid} == $oid } slots(); }

# Keys over all of int, which is what shards cut; values of 4 kB.
sub rows { my ($from, $to) = @_; return "SELECT mod(g * 7919::bigint, 1000003) * 4000 - 2000000000, rpad(g::text, 4096, md5(g::text)) FROM generate_series($from, $to) g"; }
# Write buffers that an INSERT has had written.
sub writes
{
	my ($sql) = @_;
	$node->safe_psql('postgres', 'SELECT kvfdw_stat_reset()');
	$node->safe_psql('postgres', $sql);
	return answer($node, q{SELECT calls FROM kvfdw_stat_io WHERE kind = 'value write'});
}
sub create { my ($t, $shards, $level) = @_; $node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k', "shards '$shards', wal '" . ($level // 'none') . q{'})); return; }
sub same
{
	my ($what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join('', map { tables_differ($node, $_, "h_$_", 'k') } @tables), '', "$what: no row is missing or there twice");
	is(kv_check_clean($node, @tables), '', "$what: kvfdw_check is clean");
	return;
}

# ---- sizes ----

is_deeply([ (file_header())[0 .. 3] ], [ 1, 16384, 4096, 400 ], 'the buffer file has the units that were asked for');
create('one', 1);
cmp_ok(writes('INSERT INTO one ' . rows(1, 6000)), '<=', 6000 / 64 + 40, 'one shard: slots of 256 kB');
create('many', 150);
cmp_ok(writes('INSERT INTO many ' . rows(1, 6000)), '<=', 6000 / 3, '150 shards: slots of several values');
cmp_ok(scalar(slots_of('many')), '>=', 140, 'nearly each shard has one');
# a value file grows in few steps, and has not much more than it needs
sub files_of { my ($t) = @_; my $oid = answer($node, "SELECT '$t'::regclass::oid"); return map { -s } split /\n/, `find '${\ $node->data_dir}/kvfdw' -path '*/$oid/*' -name '*.val'`; }
sub sum { my $n = 0; $n += $_ for @_; return $n }
create('grown', 20);
writes('INSERT INTO grown ' . rows(1, 3000));
my @grown = files_of('grown');
is(scalar(@grown), 20, 'rows are in 20 shards');
cmp_ok(answer($node, q{SELECT calls FROM kvfdw_stat_io WHERE kind = 'value extend'}), '<=', 20 * 8, 'whose value files grow in a few steps each');
cmp_ok(sum(@grown), '<=', 2 * 3000 * 4096 + 20 * 65536, 'and are at most twice as large as they must be');
create('tiny', 100);
writes('INSERT INTO tiny ' . rows(1, 500));
cmp_ok(sum(files_of('tiny')), '<=', 100 * 48 * 1024, 'small ones stay small');
# 150 write buffers are open; the shard that is written gets what they do not need
cmp_ok(writes('INSERT INTO one ' . rows(6001, 12000)), '<=', 6000 / 10, 'then one shard: its slots grow again');
eval { wait_for('idle slots to be written', 180, sub { slots_of('many') < 75 }) };
cmp_ok(scalar(slots_of('many')), '<', 75, 'those that nobody fills any more were written');
create('more', 1000);
cmp_ok(writes('INSERT INTO more ' . rows(1, 5000)), '<=', 5000, 'more shards than units');
is(answer($node, 'SELECT count(*), sum(length(v)) FROM more'), '5000|' . 5000 * 4096, 'every row is there');
cmp_ok(scalar(slots()), '>=', 300, 'slots of one unit are everywhere');
is(answer($node, q{INSERT INTO one VALUES (1, repeat('large', 50000)) RETURNING length(v)}), 250000, 'a value that needs sixteen units side by side gets them');
is(answer($node, 'SELECT md5(v) FROM one WHERE k = 1'), answer($node, q{SELECT md5(repeat('large', 50000))}), 'and is there');
my @writers = map { my $n = $_; create("w$n", 40); psql_writer($node, "INSERT INTO w$n " . rows(1, 500) . "; INSERT INTO w$n SELECT g, repeat('wide', 20000) FROM generate_series(1, 20) g;", "w$n") } 1 .. 6;
is(join('', map { outcome($_) } @writers), '', 'six sessions that write 40 shards each, and large values');
is(answer($node, join ' UNION ALL ', map { "SELECT count(*), sum(length(v)) FROM w$_" } 1 .. 6), join("\n", ('520|' . (500 * 4096 + 20 * 80000)) x 6), 'have written them all');
is(kv_check_clean($node, qw(one many more), map { "w$_" } 1 .. 6), '', 'kvfdw_check is clean');
$node->safe_psql('postgres', "DROP FOREIGN TABLE $_") for qw(one many more grown tiny), map { "w$_" } 1 .. 6;
ok(eval { wait_for('free slots', 180, sub { slots() == 0 }) }, 'what was dropped leaves no slot in use');
for my $size (3, 17, 60, 250)
{
	create('whole', 1);
	cmp_ok(writes("INSERT INTO whole SELECT g, repeat('x', $size * 1000) FROM generate_series(1, 600) g"), '<=', 600, "all units are had again, for values of $size kB");
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE whole');
}
collected($node);

# ---- killed ----

# small values fill the entries first, long keys a unit's entries with one
my %kinds = (few => 2, lots => 60);
for my $level (qw(none keys full))
{
	my @tables = map { "${_}_$level" } sort keys %kinds;
	for my $t (@tables)
	{
		my ($kind) = $t =~ /^(\w+?)_/;
		create($t, $kinds{$kind}, $level);
		$node->safe_psql('postgres', "CREATE TABLE h_$t (k int PRIMARY KEY, v text)");
	}
	$node->safe_psql('postgres', kv_table("long_$level", 'k text COLLATE "C", v text', 'k', "wal '$level'") . "CREATE TABLE h_long_$level (k text COLLATE \"C\" PRIMARY KEY, v text)");
}
my @all = map { my $level = $_; map { "${_}_$level" } sort(keys %kinds), 'long' } qw(none keys full);
my $round = 0;
sub change
{
	my $n = ++$round;
	my $sql = '';
	for my $t (map { $_, "h_$_" } @all)
	{
		my $key = $t =~ /long/ ? "repeat(md5(g::text), 1 + (g % 80)::int)" : "mod((g + $n * 5000) * 7919::bigint, 1000003) * 4000 - 2000000000";
		$sql .= "INSERT INTO $t SELECT $key, CASE g % 3 WHEN 0 THEN '' WHEN 1 THEN '$n of ' || g ELSE repeat(md5(g::text), (g % 400)::int) END FROM generate_series($n * 100000 + 1, $n * 100000 + 600) g;
			UPDATE $t SET v = v || 'updated' WHERE hashtext(k::text) % 5 = 0; DELETE FROM $t WHERE hashtext(k::text) % 7 = $n;";
	}
	$node->safe_psql('postgres', $sql);
	return;
}
for my $stop ('', 'buffer_before_write=wait', 'buffer_before_log=wait', 'buffer_before_free=wait')
{
	worker_stop_points($node, $stop);
	if ($stop eq '') { change(); }
	else
	{
		# the buffer writer stands still, so the first rows that need a write buffer of their own must find units
		$node->safe_psql('postgres', "INSERT INTO $_ SELECT g * 3000000 + $round, repeat('stop', 250) FROM generate_series(-300, 300) g") for map { ("lots_$_", "h_lots_$_") } qw(none full);
		$node->safe_psql('postgres', "INSERT INTO few_none SELECT g * 7 + $round, repeat('seal', 2000) FROM generate_series(1, 40) g; INSERT INTO h_few_none SELECT g * 7 + $round, repeat('seal', 2000) FROM generate_series(1, 40) g");
		stopped($node, $stop =~ s/=.*//r);
	}
	cmp_ok(scalar(slots()), '>', 30, "slots are in use at a SIGKILL, $stop");
	kill_all($node);
	unlink glob($node->data_dir . '/kvfdw/*ing.*');
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
	$node->start;
	same("killed, '$stop'", @all);
	change() if $stop ne '';
}
same('written again', @all);

# ---- a file of another version ----

kill_all($node);
my $file = slurp_file($merge);
my $other = $file;
substr($other, 4, 4) = pack 'L<', 2;
substr($other, 28, 4) = pack 'L<', crc32c(substr($other, 0, 28));
put($merge, $other);
my $from = -s $node->logfile;
is($node->start(fail_ok => 1), 0, 'a server does not start with a buffer file of another version');
like(substr(slurp_file($node->logfile), $from), qr{FATAL:  file "kvfdw/buffers" has format version 2, but this library reads version 1}, '... and says which it has');
put($merge, $file);
$node->start;
same('with its own again', @all);
$node->stop;

sub put
{
	my ($path, $bytes) = @_;
	open my $fh, '>:raw', $path or die "$path: $!";
	print $fh $bytes;
	close $fh;
	return;
}
done_testing();
