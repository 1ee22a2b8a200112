# Promise: a shard's values are in value files whose size rises with it. Whatever ends the server
# while one is made or closed, each address is used once (I 13), no value file that something
# names is removed, and no other stays (I 14).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no chunks' if heap_only();
my $node = kv_cluster('chunks', 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600);
my $data = $node->data_dir;
plan skip_all => 'needs fault injection' unless has_faults($node);
my @levels = qw(full keys none);
my @class_bytes = map { $_ << 10 } 64, 256, 1024, 4096, 1 << 20;
my $value = 'SELECT g, rpad(md5(g::text), 1000 + g * 37 % 7000, md5(g::text)) FROM generate_series';

sub run_all { return $node->safe_psql('postgres', join ';', map { (my $s = $_[0]) =~ s/\bTABLE_\b/$_/g; $s } 'heap', map { "t_$_" } @levels); }

sub directory
{
	my ($table) = @_;
	my $oid = $node->safe_psql('postgres', "SELECT '$table'::regclass::oid");
	my ($dir) = glob "$data/kvfdw/5/$oid/0*";
	return $dir;
}

# A table's value files: name => size.
sub chunks
{
	my ($table) = @_;
	return map { m{([^/]+)$} => -s $_ } glob directory($table) . '/*.c*.val';
}

sub class_of { my ($name) = @_; return int((hex(substr $name, 0, 5) - 0x10000) / 0x30000); }

# Rows are heap's, and lists and files agree, but for so many files that could not be allocated; of these levels, or all.
sub sound
{
	my ($when, $spare, @which) = @_;
	for my $level (@which ? @which : @levels)
	{
		is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$when: $level has heap's rows");
		is($node->safe_psql('postgres', "SELECT file, problem FROM kvfdw_check('t_$level')"), '', "$when: $level is sound");
		my $files = keys %{ { chunks("t_$level") } };
		is($node->safe_psql('postgres', "SELECT value_files FROM kvfdw_stat_tables WHERE relid = 't_$level'::regclass"), $files - ($spare // 0), "$when: $level has the chunks that it lists");
	}
	return;
}

$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_'") } @levels));

# ---- they grow with the shard ----
my $k = 0;
sub grow
{
	my ($n, $ahead) = @_;
	my ($from, $to) = ($k + 1, $k += $n);
	return run_all(($ahead // '') . "INSERT INTO TABLE_ $value($from, $to) g");
}
grow(1200);
{
	my %chunks = chunks('t_none');
	my %of_class;
	$of_class{ class_of($_) }++ for keys %chunks;
	is(join(' ', sort keys %of_class), '0 1', 'a growing shard goes over to larger chunks');
	cmp_ok($of_class{0}, '>=', 20, 'when it has two dozen');
	is(scalar(grep { $chunks{$_} > $class_bytes[ class_of($_) ] } keys %chunks), 0, 'none is larger than its class');
	my %volumes = map { substr($_, 0, 5) => 1 } keys %chunks;
	is(scalar keys %volumes, 2, 'a volume for each class');
}
# values of whole value files, and what does not fit into what is left of one
run_all("INSERT INTO TABLE_ SELECT 100000 + g, repeat(chr(65 + g % 26), 65536 - 40 + g) FROM generate_series(1, 80) g");
run_all("INSERT INTO TABLE_ SELECT 200000 + g, repeat(chr(65 + g % 26), g * 4096) FROM generate_series(1, 70, 3) g");
run_all("INSERT INTO TABLE_ SELECT 300000 + g, repeat(chr(65 + g), g * 700000) FROM generate_series(1, 3) g");
grow(300);
my %of_class = map { class_of($_) => 1 } keys %{ { chunks('t_full') } };
ok($of_class{4}, 'a value of more than a quarter of a chunk has one of a larger class');
sound('grown');
run_all("DELETE FROM TABLE_ WHERE k > 100000");
$node->safe_psql('postgres', join ';', map { "SELECT kvfdw_flush('t_$_')" } @levels);
sound('frozen');
$node->restart;
sound('started again');

# ---- many at a time write to one shard ----
run_all('TRUNCATE TABLE_');
{
	my @writers = map { my $from = $_ * 10000; psql_writer($node, join('', map { my $t = $_; map { "INSERT INTO $t $value($from + $_ * 40, $from + $_ * 40 + 39) g;\n" } 0 .. 9 } 'heap', map { "t_$_" } @levels), "writer$_") } 1 .. 4;
	is(outcome($_), '', 'a writer among others') for @writers;
}
sound('written by many');

# ---- a full disk ----
for my $table (map { "t_$_" } @levels)
{
	my ($rc, undef, $err) = $node->psql('postgres', "SET kvfdw.fault = 'value_extend:2+:ENOSPC'; INSERT INTO $table $value(500000, 501000) g");
	isnt($rc, 0, "$table: no room for a chunk is an error");
	like($err, qr/No space left/, 'that says so');
}
sound('after a full disk', 1);
$k = 510000;
grow(300);
sound('with room again');

# ---- killed where one is made and closed ----
for my $point (qw(value_file_created value_file_closed large_value_reserved))
{
	for my $level (@levels)
	{
		my $n = $point eq 'large_value_reserved' ? 'SELECT 600000, repeat($$y$$, 400000)' : "$value(600000, 600900) g";
		my $ready = times_ready($node);
		$node->psql('postgres', "SET kvfdw.stop_points = '$point=kill'; INSERT INTO t_$level $n");
		ready_again($node, $ready);
		sound("killed at $point of $level", 0, $level);
		grow(100);
	}
	sound("gone on with after $point");
}

# ---- killed while a flush has just listed an open value file, and others came behind ----
grow(200);
$node->safe_psql('postgres', join ';', map { "SELECT kvfdw_flush('t_$_')" } @levels);
grow(400);
kill_all($node);
restart_killed($node);
sound('killed behind a freeze');

# ---- power goes: what no mark names may be missing ----
grow(100);
$node->safe_psql('postgres', 'CHECKPOINT');
my %synced = map { $_ => { chunks("t_$_") } } @levels;
my %rows_synced = map { $_ => $node->safe_psql('postgres', "SELECT count(*) FROM t_$_") } @levels;
grow(700);
my %dir = map { $_ => directory("t_$_") } @levels;
kill_all($node);
for my $level (qw(full none))
{
	my @lost = grep { !$synced{$level}{ ($_ =~ m{([^/]+)$})[0] } } glob "$dir{$level}/*.c*.val";
	cmp_ok(scalar @lost, '>', 0, "$level: chunks are lost");
	unlink @lost;
}
$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'another'");
restart_killed($node);
is(tables_differ($node, "t_$_", 'heap', 'k'), '', "after power has gone $_ has all rows") for qw(full keys);
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM t_none'), '>=', $rows_synced{none}, 'and none what was synced');
is($node->safe_psql('postgres', "SELECT count(*) FROM t_none n JOIN heap h USING (k) WHERE n.v IS DISTINCT FROM h.v"), '0', 'and nothing else');
is($node->safe_psql('postgres', "SELECT file, problem FROM kvfdw_check('t_$_')"), '', "$_ is sound") for @levels;
$node->safe_psql('postgres', 'TRUNCATE t_none; INSERT INTO t_none SELECT * FROM heap');
grow(200);
sound('gone on with');
for my $level (@levels)
{
	my $before = join ' ', sort keys %{ { chunks("t_$level") } };
	$node->restart;
	$node->safe_psql('postgres', "SELECT count(*) FROM t_$level");
	is(join(' ', sort keys %{ { chunks("t_$level") } }), $before, "$level: a restart makes and loses none");
}

# ---- a table without value files takes no volume when it is recovered ----

$node->safe_psql('postgres', join '', map { kv_table("e_$_", 'k int, v text', 'k', "wal '$_'") } @levels);
$node->restart;
$node->safe_psql('postgres', join ';', map { ("INSERT INTO e_$_ VALUES (1, repeat('v', 5000))", "SELECT kvfdw_flush('e_$_')") } @levels);
is(join(' ', keys %{ { chunks("e_$_") } }), '10000.c00000.val', "$_: the first value file is in the first volume") for @levels;
ok(-s $node->logfile, 'the server has a log');
$node->stop;
done_testing();
