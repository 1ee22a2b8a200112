# Promise: recovery removes no values that a table which was put aside may have, and none at level
# none without a message. A key log that is missing is an error. Addresses that a failed start had
# taken come back, and so does space of closed value files (I 13, I 14). Needs a test build (make
# FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use File::Copy qw(copy);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvVersions;

plan skip_all => 'heap has no chunks' if heap_only();
my $node = kv_cluster('chunk_recovery', 'kvfdw.compact_workers' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, restart_after_crash => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
my $value = 'SELECT g, rpad(md5(g::text), 4000, md5(g::text)) FROM generate_series';

# A table, with rows, and one of heap that has them, too.
sub create
{
	my ($t, $level, $shards, @ranges) = @_;
	$node->safe_psql('postgres', "CREATE TABLE h_$t (k int PRIMARY KEY, v text);" . kv_table($t, 'k int, v text', 'k', "wal '$level', shards '$shards'"));
	both($t, $_) for @ranges;
	return $node->data_dir . '/kvfdw/5/' . $node->safe_psql('postgres', "SELECT '$t'::regclass::oid") . '/00000001';
}
sub both { my ($t, $range) = @_; return is(answer($node, join ';', map { "INSERT INTO $_ $value($range) g" } $t, "h_$t"), '', "$t: $range"); }
sub same { my ($t, $when) = @_; return is(tables_differ($node, $t, "h_$t", 'k'), '', "$t, $when: heap's rows"); }
sub touch { my ($file) = @_; append_to_file($file, ''); return $file; }

# From now on the server, the startup process too, stops where this says.
sub stop_points { my ($what) = @_; $node->append_conf('postgresql.conf', "kvfdw.stop_points = '$what'\n"); return; }

# Make all that starts, and say what the log has got.
sub started
{
	my ($what) = @_;
	my $end = -s $node->logfile;
	ok($node->start(fail_ok => 1), "$what: the server starts");
	return slurp_file($node->logfile, $end);
}

# ---- level none: a key log of a shard that was never frozen is missing ----

{
	my $gap = create('gap', 'none', 1, '1, 100');
	kill_all($node);
	copy("$gap/00000.00000001.log", "$gap/log1") or die "log 1: $!";
	started('gap');
	for (1 .. 2) { $node->safe_psql('postgres', "SELECT kvfdw_flush('gap')"); both('gap', "$_ * 1000, $_ * 1000 + 100"); }
	my $lone = create('lone', 'none', 1, '1, 300');
	kill_all($node);
	ok(-e "$gap/00000.00000003.log", 'gap: the third key log');
	my $log = KvVersions->read($gap);
	$log->drop($log->edits('FILES'));
	unlink "$gap/00000.00000002.log", glob("$gap/*.run"), glob("$lone/*.log");
	rename "$gap/log1", "$gap/00000.00000001.log" or die "log 1: $!";
	my $end = -s $node->logfile;
	started('lone');
	like(answer($node, 'SELECT count(*) FROM gap'), qr{error: .*00000002\.log.*missing}s, 'gap: a key log that is missing between others is an error');
	$node->safe_psql('postgres', 'SELECT count(*) FROM lone');
	my @told = slurp_file($node->logfile, $end) =~ /LOG:  removing value file "[^"]*\.val": no shard lists it\n[^\n]*DETAIL:  The file has [1-9]\d* bytes/g;
	cmp_ok(scalar @told, '>=', 3, 'lone: value files that no key log names are removed, and the log has them');
}

# ---- level none: power goes, and of the last key log a part of the header is there ----

for my $marked (0, 1)
{
	my $t = "torn_$marked";
	my $dir = create($t, 'none', 1, '1, 100');
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$t')");
	$node->safe_psql('postgres', 'CHECKPOINT') if $marked;
	both($t, '1000, 1100');
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$t')");
	kill_all($node);
	my ($last) = reverse sort glob "$dir/*.log";
	is(-s $last, 64, "$t: the last key log has nothing but a header");
	truncate $last, 34 or die "truncate: $!";
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot $t'\n");
	for my $when ('after a power loss', 'killed')
	{
		started($t);
		same($t, $when);
		kill_all($node);
	}
	started($t);
	both($t, '2000, 2100');
	same($t, 'written to');
}

# ---- a start that failed has taken the volumes in the middle ----

for my $level (qw(none full))
{
	my $dir = create("last_$level", $level, 2, '1, 1');
	kill_all($node);
	touch("$dir/$_.c00000.val") for qw(27fff 3ffff);
	started("last_$level");
	same("last_$level", 'started');
	both("last_$level", '-100, -1');
	same("last_$level", 'the other shard has values');
	is(join(' ', grep { !m{/1000[0-9a-f]\.} } glob "$dir/*.val"), '', "last_$level: in volumes between those that had files");
}

# ---- a table is put aside in redo ----

{
	my $dir = create('aside', 'keys', 1, '1, 1', '2, 300');
	my @chunks = glob "$dir/*.val";
	cmp_ok(scalar @chunks, '>=', 3, 'aside: chunks');
	kill_all($node);
	stop_points('value_file_created=error');
	like(started('aside'), qr/is now unusable/, 'aside: put aside');
	stop_points('');
	$node->reload;
	like(answer($node, 'SELECT count(*) FROM aside'), qr/^error: .*value_file_created/s, 'aside: using it is an error');
	is(join(' ', grep { !-e } @chunks), '', 'aside: its chunks stay');
	kill_all($node);
	started('aside again');
	is(join(' ', grep { !-e } @chunks), '', 'aside: also after another start');
}

# ---- value files cannot be swept at the end of redo ----

{
	my $dir = create('unswept', 'keys', 1, '1, 100');
	kill_all($node);
	touch("$dir/10fff.c00000.val");
	stop_points('redo_before_sweep=error');
	like(started('unswept'), qr/stopped at "redo_before_sweep"/, 'unswept: that fails');
	stop_points('');
	$node->reload;
	same('unswept', 'started');
	ok(-e "$dir/10fff.c00000.val", 'unswept: a chunk that nothing names');
	both('unswept', '1000, 1000');
	kill_all($node);
	started('unswept');
	same('unswept', 'started again');
	ok(!-e "$dir/10fff.c00000.val", 'unswept: it has gone');
}
# ---- what a value file has for values that never came goes back ----

# redo lists it as closed, and a salvage closes it
for my $level (qw(none keys full))
{
	my $t = "cut_$level";
	my $large = create($t, $level, 1, '1, 30') . '/a0000.c00000.val';
	$node->safe_psql('postgres', join ';', map { "INSERT INTO $_ SELECT -1, string_agg(md5(g::text), '') FROM generate_series(1, 12500) g" } $t, "h_$t");
	$node->safe_psql('postgres', 'CHECKPOINT') if $level eq 'none';
	cmp_ok(-s $large, '>', 401408, "$t: a chunk with a value of 400000 bytes and room behind it");
	kill_all($node);
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot $level'\n");
	for my $when ('after a power loss', 'started again')
	{
		started($t);
		same($t, $when);
		is(answer($node, "SELECT file, problem FROM kvfdw_check('$t')"), '', "$t, $when: sound");
		is(-s $large, 401408, "$t, $when: it has no such room any more") if $level ne 'full';
		kill_all($node);
	}
	started($t);
}

# ---- redo finds no volume ----

{
	my $dir = create('last_keys', 'keys', 1, '1, 1');
	kill_all($node);
	$node->append_conf('postgresql.conf', 'kvfdw.test_volumes = 1');
	touch("$dir/$_.c00000.val") for qw(10000 40000 70000 a0000 d0000);
	my $end = -s $node->logfile;
	ok(!$node->start(fail_ok => 1), 'last_keys: no volume is left for redo, and the server does not start');
	like(slurp_file($node->logfile, $end), qr/FATAL:  foreign table .* has used up its value address space/, 'last_keys: that is why');
	$node->append_conf('postgresql.conf', 'kvfdw.test_volumes = 0');
	touch("$dir/$_.c00000.val") for qw(28000 3ffff);
	started('last_keys');
	same('last_keys', 'with volumes between those that have files');
}

# ---- the longest ranges of free volumes are all in the half that redo leaves alone ----

{
	my $dir = create('half_keys', 'keys', 1, '1, 1');
	kill_all($node);
	$node->append_conf('postgresql.conf', 'kvfdw.test_volumes = 60');
	for my $class (map { $_ * 0x30000 } 0 .. 4)
	{
		touch(sprintf "$dir/%05x.c00000.val", 0x10000 + $class + $_) for map({ $_ * 3 } 0 .. 9), map({ $_ * 2 } 15 .. 29);
	}
	started('half_keys');
	same('half_keys', 'redo finds volumes in its own');
	cmp_ok(scalar(grep { m{/(1002[0-9a-f]|1003[0-9a-f])\.c[^/]*$} } glob "$dir/*.val"), '>', 0, 'half_keys: its chunks are there');
	$node->append_conf('postgresql.conf', 'kvfdw.test_volumes = 0');
}
$node->stop('immediate');
done_testing();
