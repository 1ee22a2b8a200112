# Promise: a file whose format version is not the library's is refused with an error (0A000) that names the
# file and both versions, whatever else the file says, and is left as it is.  A server does not start with
# a control file or a buffer file of another version; any other file costs its table alone.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no files of kvfdw' if heap_only();
my $node = kv_cluster('versions', checkpoint_timeout => '1h', autovacuum => 'off', 'kvfdw.flush_after' => '1h');
my $data = $node->data_dir;

sub put
{
	my ($path, $bytes) = @_;
	open my $file, '>:raw', $path or die "$path: $!";
	print $file $bytes;
	close $file;
	return;
}

# Where the checksum of a file is, and what it covers.
sub all_but { my ($at) = @_; return sub { ($at, crc32c(substr($_[0], 0, $at) . substr($_[0], $at + 4))) } }
my %crc = (
	control => sub { my $at = length($_[0]) - 4; ($at, crc32c(substr($_[0], 0, $at))) },
	buffers => sub { (28, crc32c(substr($_[0], 0, 28))) },
	table => all_but(52), versions => sub { (44, crc32c(substr($_[0], 0, 44))) },
	log => sub { (36, crc32c(substr($_[0], 0, 36))) },
	run => sub { (92, crc32c(substr($_[0], 0, 92) . substr($_[0], 96, unpack('x38 S<', $_[0])))) });

# The file with this version, and the checksum that goes with it.
sub doctored
{
	my ($kind, $bytes, $version) = @_;
	my ($at, $crc) = $crc{$kind}->($bytes);
	is(unpack('L<', substr($bytes, $at, 4)), $crc, "$kind: the checksum is where it is said to be");
	substr($bytes, 4, 4) = pack 'L<', $version;
	($at, $crc) = $crc{$kind}->($bytes);
	substr($bytes, $at, 4) = pack 'L<', $crc;
	return $bytes;
}

# table => kind of file, level, and the file's name
my %refused = (
	a_table => [ 'table', 'full', 'table' ], full_log => [ 'versions', 'full', '*.versions' ], keys_log => [ 'versions', 'keys', '*.versions' ],
	versions => [ 'versions', 'none', '*.versions' ], run => [ 'run', 'full', '00000.*.run' ], log => [ 'log', 'none', '00000.*.log' ]);
my %oid;
for my $t (sort(keys %refused), 'sound')
{
	my $level = $refused{$t} ? $refused{$t}[1] : 'full';
	$node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k', "wal '$level'") . "INSERT INTO $t SELECT g, repeat('v', 100) FROM generate_series(1, 1000) g; SELECT kvfdw_flush('$t')");
	$oid{$t} = answer($node, "SELECT '$t'::regclass::oid");
}
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop;
my %old;
for my $t (sort keys %refused)
{
	my ($kind, undef, $name) = @{ $refused{$t} };
	my ($path) = reverse sort glob("$data/kvfdw/5/$oid{$t}/00000001/$name");
	die "$t: no file $name" unless $path && -e $path;
	$old{$t} = [ $path, slurp_file($path) ];
	put($path, doctored($kind, $old{$t}[1], $t lt 'm' ? 2 : 0));
}
$node->start;
for my $t (sort keys %refused)
{
	my ($path) = @{ $old{$t} };
	my $is = slurp_file($path);
	my $file = substr $path, 1 + length $data;
	my $version = $t lt 'm' ? 2 : 0;
	for my $query ("SELECT count(*), sum(length(v)) FROM $t", "SELECT v FROM $t WHERE k = 7", "INSERT INTO $t VALUES (5000, 'new')")
	{
		my (undef, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$query");
		like("$out $err", qr{^ .*ERROR:  0A000: file "\Q$file\E" has format version $version, but this library reads version 1\n}, "$t: $query");
	}
	ok(slurp_file($path) eq $is, "$t: the file is as it was");
}
is(answer($node, 'SELECT count(*) FROM sound'), 1000, 'other tables can be used');
$node->stop;
put(@{ $old{$_} }) for keys %old;
$node->start;
is(answer($node, "SELECT count(*), sum(length(v)) FROM $_"), '1000|100000', "$_: with its own file it has all rows") for sort keys %refused;

# ---- a log that is salvaged, for power has gone ----

SKIP: {
	skip 'needs fault injection', 3 unless has_faults($node);
	kill_all($node);
	my ($path, $was) = $old{log}[0];
	$was = slurp_file($path);
	put($path, doctored('log', $was, 3));
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'another'");
	$node->start;
	my (undef, undef, $err) = $node->psql('postgres', 'TABLE log');
	like($err, qr{ERROR:  file "kvfdw/5/$oid{log}/.*log" has format version 3, but this library reads version 1}, 'it is not taken for damage');
	put($path, $was);
	$node->restart;
	is(answer($node, 'SELECT count(*) FROM log'), 1000, 'with its own it has all rows');
}

# ---- what a start reads ----

$node->stop;
for my $case ([ 'control', 6 ], [ 'control', 8 ], [ 'buffers', 2 ], [ 'buffers', 0 ])
{
	my ($name, $version) = @$case;
	my $path = "$data/kvfdw/$name";
	my $is = slurp_file($path);
	my $reads = unpack 'x4 L<', $is;
	my $from = -s $node->logfile;
	put($path, doctored($name, $is, $version));
	is($node->start(fail_ok => 1), 0, "$name of version $version: the server does not start");
	like(substr(slurp_file($node->logfile), $from), qr{FATAL:  file "kvfdw/$name" has format version $version, but this library reads version $reads\n}, '... and says why');
	put($path, $is);
}
$node->start;
is(answer($node, 'SELECT count(*) FROM sound'), 1000, 'with its own files it does');
$node->stop;
done_testing();
