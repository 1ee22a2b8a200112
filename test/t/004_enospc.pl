# Promise: a full disk is a clean error (53100), loses nothing that was committed,
# does not take the server down, and work goes on once there is room; so is a tablespace that cannot hold a table.
#
# KV_SMALL_FS names an empty directory on a small file system (16 MB to 1 GB)
# that the server's user may write; without it a private tmpfs is tried.
use strict;
use warnings;
use FindBin;
use File::Temp;

# A mount namespace of our own, where the user permits one; before the test
# modules take the standard output over.
BEGIN
{
	my @private = ('unshare', '--user', '--map-current-user', '--keep-caps', '--mount', 'sh', '-c');
	if (!$ENV{KV_SMALL_FS} && !$ENV{KV_UNSHARED})
	{
		my $dir = File::Temp::tempdir('kvsmall.XXXXXX', $ENV{TESTDIR} ? (DIR => $ENV{TESTDIR}) : (TMPDIR => 1));
		my $mount = "mount -t tmpfs -o size=128m kvsmall '$dir'";
		if (system(@private, "$mount 2>/dev/null", 'sh') == 0)
		{
			$ENV{KV_UNSHARED} = $dir;
			exec @private, "$mount && exec \"\$@\"", 'sh', $^X, (map { ('-I', $_) } grep { !ref } @INC), $0;
		}
		rmdir $dir;
	}
}
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $small = $ENV{KV_SMALL_FS};
$small //= $ENV{KV_UNSHARED};
plan skip_all => 'no small file system: set KV_SMALL_FS, mounting is not permitted here' unless $small;

sub free_bytes { my ($b) = `df --output=avail -B1 $small | tail -1` =~ /(\d+)/; return $b; }
my $capacity = free_bytes();
plan skip_all => "$small is too large to fill (" . int($capacity / 1048576) . " MB)" if $capacity > 1.5e9;
plan skip_all => "$small is too small" if $capacity < 50e6;

# only kvfdw's own files live there
my $node = PostgreSQL::Test::Cluster->new('enospc');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\nfsync = off\nrestart_after_crash = on\nlog_statement = none\n");
mkdir "$small/kvfdw.$$" or die "mkdir: $!";
chmod 0700, "$small/kvfdw.$$";
symlink "$small/kvfdw.$$", $node->data_dir . '/kvfdw' or die "symlink: $!";
unless ($node->start(fail_ok => 1))
{
	like(slurp_file($node->logfile), qr/No space left/, 'too small to start: a clear message');
	done_testing();
	exit;
}
$node->safe_psql('postgres', 'CREATE EXTENSION kvfdw; CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('kv', 'k int, v text', 'k', "shards '4'"));
note 'free after start: ' . int(free_bytes() / 1048576) . ' MB';
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
$node->safe_psql('postgres', "INSERT INTO heap SELECT g, rpad(g::text, g % 3000, 'x') FROM generate_series(1, 500) g; INSERT INTO kv TABLE heap");

for my $size (300, 4096, 300_000)
{
	# what an administrator would delete first
	system('dd', 'if=/dev/zero', "of=$small/reserve.$$", 'bs=1M', 'count=2', 'status=none') == 0 or die;
	# fill it up, a transaction at a time, heap and kvfdw together
	my ($state, $k, $steps) = ('', 10_000_000 + $size * 100, 0);
	my $batch = 1 + int(4_000_000 / $size);
	while ($steps++ < 500)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nBEGIN; INSERT INTO heap SELECT g, rpad(g::text, $size, 'f') FROM generate_series($k, $k + $batch - 1) g; INSERT INTO kv SELECT * FROM heap WHERE k BETWEEN $k AND $k + $batch - 1; COMMIT;", on_error_stop => 1);
		if ($rc != 0) { ($state) = $err =~ /ERROR:  (\w{5})/; note $err =~ /(ERROR:[^\n]*)/; last; }
		$k += $batch;
	}
	is($state, '53100', "values of $size bytes: a full disk is 53100");
	is(tables_differ($node, 'kv', 'heap', 'k'), '', "$size: every committed row is there, nothing else");
	is($node->safe_psql('postgres', "SELECT count(*) FROM kv WHERE k = 77"), 1, "$size: reads go on while it is full");
	my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; DELETE FROM heap WHERE k < 10; DELETE FROM kv WHERE k < 10; COMMIT", on_error_stop => 1);
	is(tables_differ($node, 'kv', 'heap', 'k'), '', "$size: a delete on the full disk happens whole or not at all");
	($rc, $out, $err) = $node->psql('postgres', "SELECT kvfdw_flush('kv')");
	is(tables_differ($node, 'kv', 'heap', 'k'), '', "$size: a freeze on the full disk changes nothing");
	if ($size == 4096)
	{
		kill_all($node);
		ok($node->start(fail_ok => 1), 'killed and started on the full disk');
		($rc, $out, $err) = $node->psql('postgres', "SELECT count(*) FROM (SELECT * FROM kv EXCEPT SELECT * FROM heap) s");
		ok($rc != 0 ? $err =~ /No space left|disk full/ : $out eq '0', 'recovery on the full disk: right rows or a clean error') or diag "$out $err";
		$started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	}
	# room again
	unlink "$small/reserve.$$";
	$node->safe_psql('postgres', "TRUNCATE kv; TRUNCATE heap; INSERT INTO heap SELECT g, rpad(g::text, g % 3000, 'x') FROM generate_series(1, 500) g; INSERT INTO kv TABLE heap");
	is(tables_differ($node, 'kv', 'heap', 'k'), '', "$size: work goes on after space is freed");
	is(kv_check_clean($node, 'kv'), '', "$size: kvfdw_check is clean");
	# the maintainer frees it, behind whatever it is at
	wait_for('space of the truncated table', sub { free_bytes() > $capacity / 10 });
	pass("$size: TRUNCATE gave the space back");
}
# space taken by somebody else
open(my $hog, '>', "$small/hog.$$") or die;
my $chunk = "\0" x 65536;
1 while defined syswrite($hog, $chunk);
my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nINSERT INTO kv SELECT g, rpad('hog', 4096, 'h') FROM generate_series(5000, 60000) g", on_error_stop => 1);
like($err, qr/ERROR:  53100/, 'a disk filled by another program is 53100');
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'and loses nothing');
close $hog;
unlink "$small/hog.$$";
$node->safe_psql('postgres', "INSERT INTO kv SELECT g, rpad('hog', 4096, 'h') FROM generate_series(5000, 6000) g; INSERT INTO heap SELECT g, rpad('hog', 4096, 'h') FROM generate_series(5000, 6000) g");
is(tables_differ($node, 'kv', 'heap', 'k'), '', 'once it is gone, work goes on');

# a tablespace to which the table's values are to move, and which cannot hold them
SKIP:
{
	skip 'refused with data checksums before PostgreSQL 17', 1 if $node->pg_version < 17 && setting($node, 'data_checksums') eq 'on';
	my $many = int(free_bytes() * 0.6 / 4096);
	mkdir "$small/target.$$" or die "mkdir: $!";
	$node->safe_psql('postgres', "CREATE TABLESPACE target LOCATION '$small/target.$$'");
	$node->safe_psql('postgres', "INSERT INTO $_ SELECT g, rpad(g::text, 4096, 'm') FROM generate_series(100001, 100000 + $many) g") for qw(heap kv);
	open($hog, '>', "$small/hog.$$") or die;
	1 while syswrite($hog, "\0" x 65536);
	($rc, $out, $err) = $node->psql('postgres', "ALTER FOREIGN TABLE kv OPTIONS (ADD tablespace 'target');\n\\set VERBOSITY verbose\nSELECT kvfdw_compact('kv')", on_error_stop => 1);
	like($err, qr/ERROR:  53100/, 'a tablespace that cannot hold the table is 53100');
	is(tables_differ($node, 'kv', 'heap', 'k'), '', 'all rows are there');
	close $hog;
	unlink "$small/hog.$$";
	$node->safe_psql('postgres', "DELETE FROM $_ WHERE k > 100000 + $many / 2") for qw(heap kv);
	ok(eval { wait_for('a move', sub { answer($node, q{SELECT kvfdw_compact('kv')}); my @home = grep { /\.c[0-9a-f]+\.val$/ } glob $node->data_dir . '/kvfdw/5/*/*/*.val'; !@home }) }, 'what fits is moved');
	is(tables_differ($node, 'kv', 'heap', 'k'), '', 'with all rows');
	is(kv_check_clean($node, 'kv'), '', 'and it is sound');
}
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server was never restarted');
$node->stop;
system('rm', '-rf', "$small/kvfdw.$$", "$small/target.$$");
done_testing();
