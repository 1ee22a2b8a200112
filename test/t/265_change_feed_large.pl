# Promise: a transaction of a million rows, and a value of 256 MB, pass through the change feed within
# logical_decoding_work_mem, a constant, and a few times the largest value.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvFeed;

plan skip_all => 'of kvfdw only' if heap_only();

my $rows = $ENV{KV_ROWS} // 1_000_000;
my $node = feed_cluster('large', logical_decoding_work_mem => '1MB', shared_buffers => '16MB', max_wal_size => '4GB', 'kvfdw.memory' => "'64MB'");
sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sql(q{CREATE FOREIGN TABLE many (k bigint, v text) SERVER kvfdw OPTIONS (changes 'on');
	CREATE FOREIGN TABLE large (k int, v bytea) SERVER kvfdw OPTIONS (changes 'on');
	SELECT pg_create_logical_replication_slot('feed', 'kvfdw')});

# Megabytes that the sender has had at most, and its lines by what they are, when it has sent a commit.
sub receive
{
	my ($name) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/$name.jsonl";
	my $err = "$PostgreSQL::Test::Utils::tmp_check/$name.err";
	my $reader = IPC::Run::start([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '-S', 'feed', '--start', '--no-loop', '-f', $file, '-F', '1', '-s', '1' ], '2>', $err);
	my $status = '';
	wait_for('the commit', sub {
		my $pid = answer($node, 'SELECT pid FROM pg_stat_replication') =~ /^(\d+)$/ ? $1 : return 0;
		$status = eval { slurp_file("/proc/$pid/status") } // $status;
		return `tail -c 200 $file 2>/dev/null` =~ /"op":"commit".*\}\n\z/; });
	my ($peak) = $status =~ /^VmHWM:\s+(\d+) kB/m;
	my ($shared) = $status =~ /^RssShmem:\s+(\d+) kB/m;
	$reader->kill_kill;
	my %lines;
	open my $f, '<', $file or die $!;
	while (<$f>) { $lines{$1}++ if /^\{"op":"(\w+)"/ }
	close $f;
	wait_for('the slot', sub { answer($node, 'SELECT count(*) FROM pg_replication_slots WHERE active') eq '0' });
	return (int(($peak - $shared) / 1024), $file, \%lines);
}

sql("INSERT INTO many SELECT g, 'value ' || g || repeat('x', 100) FROM generate_series(1, $rows) g");
my ($mb, $file, $lines) = receive('many');
note "$mb MB for $rows rows";
is($lines->{put}, $rows, 'all rows of a large transaction arrive');
cmp_ok($mb, '<', 120, 'while the sender takes little memory');
unlink $file;
sql("SELECT pg_replication_slot_advance('feed', pg_current_wal_lsn())");

# two values in one transaction, and a savepoint with a third that is rolled back
my $size = ($ENV{KV_VALUE_MB} // 256) * 1024 * 1024 - 64;
sql("BEGIN; INSERT INTO large SELECT 1, convert_to(repeat('a', $size), 'UTF8'); SAVEPOINT s; INSERT INTO large SELECT 2, '\\x00'; ROLLBACK TO s; INSERT INTO large SELECT 3, convert_to(repeat('b', $size / 8), 'UTF8'); COMMIT");
($mb, $file, $lines) = receive('large');
note "$mb MB for a value of " . int($size / 1024 / 1024) . ' MB';
is($lines->{put}, 2, 'large values arrive');
is(-s $file > 2 * $size && -s $file < 2.3 * $size, 1, 'whole');
cmp_ok($mb, '<', 120 + 9 * $size / 1024 / 1024, 'within a few times their size');
unlink $file;
done_testing();
