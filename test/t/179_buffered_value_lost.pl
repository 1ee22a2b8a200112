# Promise: without direct I/O for values, a value that is written is on the device, as with it. If
# it cannot be, the writer gets an error: no row is acknowledged, and no write buffer freed, that
# the kernel may lose.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip group_make group_run group_reclaim);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

my $why_not = heap_only() ? 'heap has no directory of its own' : loop_skip($PostgreSQL::Test::Utils::tmp_check) // group_make(1 << 30);
plan skip_all => $why_not if $why_not;

my ($disk, $node);
group_run(sub { $node = trust_cluster('lost', 'kvfdw.skip' => 'direct_io', 'kvfdw.test_value_file_kb' => 64, before_start => sub { $disk = KvLoop->new($_[0]->data_dir . '/kvfdw', megabytes => 120, room => 90) }) });
plan skip_all => 'needs fault injection' unless has_faults($node);
$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '1'"));

# the same in both tables, or in neither
sub both { my ($sql) = @_; return answer($node, join ';', 'BEGIN', (map { $sql =~ s/%s/$_/r } qw(heap t)), 'COMMIT') }
sub lose
{
	isnt(system('sync', '-f', $disk->{where}), 0, 'some pages cannot be written back');
	$disk->relieve;
	for (1 .. 60) { group_reclaim(); select undef, undef, undef, 0.03 }
	return;
}

is(both("INSERT INTO %s SELECT g, rpad('first ' || g, g % 700, 'x') FROM generate_series(1, 2000) g"), '', 'a table is filled');
$node->safe_psql('postgres', 'CHECKPOINT');
like(slurp_file($node->logfile), qr/kvfdw uses buffered I\/O for file/, 'its values have no direct I/O');

# values too large for a write buffer: nobody has their files open when their session has ended
group_run(sub { $node->restart });
system('sync', '-f', $disk->{where}) == 0 or die;
$disk->exhaust;
my $said = both("INSERT INTO %s SELECT g, repeat(md5(g::text), 8192) FROM generate_series(10001, 10010) g");
lose();
is(answer($node, 'CHECKPOINT'), '', 'a checkpoint completes when there is room again');
kill_all($node);
$disk->remount;
ok(start_again($node), 'the server starts without its page cache');
is(tables_differ($node, 't', 'heap', 'k'), '', 'all rows are there, and no others');
is(kv_check_clean($node, 't'), '', '... and all files are sound');
like($said, qr/could not write file ".*\.val"/, 'who wrote what is not there was told');

# what the buffer writer writes stays in the buffer file
system('sync', '-f', $disk->{where}) == 0 or die;
$disk->exhaust;
both("INSERT INTO %s SELECT g, rpad('second ' || g, 900, 'y') FROM generate_series(20001, 21000) g");
my $log = -s $node->logfile;
my $checkpoint = psql_writer($node, 'CHECKPOINT', 'checkpoint');
wait_for('the checkpoint to find no room', sub { substr(slurp_file($node->logfile), $log) =~ /could not write file ".*\.val"/ });
ok(postmaster_runs($node), 'a checkpoint waits for what slots have');
is(tables_differ($node, 't', 'heap', 'k'), '', '... and all rows are there meanwhile');
$disk->relieve;
is(outcome($checkpoint), '', 'it completes when there is room again');
kill_all($node);
$disk->remount;
ok(start_again($node), 'the server starts without its page cache');
is(tables_differ($node, 't', 'heap', 'k'), '', 'all rows are there, and no others');
$node->stop;
done_testing();
