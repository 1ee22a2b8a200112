# Promise: what a key log had that could not be written back gets into no mark, although the kernel has
# forgotten the file, which nobody had open, and the failure with it: the checkpoint ends the server, and
# after its start no row is missing.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip start_write_back group_make group_run group_reclaim);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;

my $why_not = heap_only() ? 'heap has no directory of its own' : loop_skip($PostgreSQL::Test::Utils::tmp_check) // group_make(1 << 30);
plan skip_all => $why_not if $why_not;

my ($disk, $node);
group_run(sub { $node = trust_cluster('lost', before_start => sub { $disk = KvLoop->new($_[0]->data_dir . '/kvfdw', megabytes => 120, room => 90) }) });
$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '1'"));

# the same in both tables
sub both { my ($sql) = @_; return $node->safe_psql('postgres', join ';', map { $sql =~ s/%s/$_/r } qw(heap t)) }

both("INSERT INTO %s SELECT g, rpad('first ' || g, g % 700, 'x') FROM generate_series(1, 4000) g");
$node->safe_psql('postgres', 'CHECKPOINT');
system('sync', '-f', $disk->{where}) == 0 or die;

# deletes need no new place for values, so nothing but the log cannot be written back
$disk->exhaust;
both('DELETE FROM %s WHERE k % 5 = 1');
both('DELETE FROM %s WHERE k % 5 = 2');
isnt(system('sync', '-f', $disk->{where}), 0, 'some pages cannot be written back');
$disk->relieve;
for (1 .. 60) { group_reclaim(); select undef, undef, undef, 0.03 }

isnt(answer($node, 'CHECKPOINT'), '', 'no checkpoint completes');
like(slurp_file($node->logfile), qr/PANIC:  .*"kvfdw\/.*\.log"/, '... and the log says why');
if (postmaster_runs($node)) { kill_all($node) }
ok(start_again($node), 'the server starts');
is(tables_differ($node, 't', 'heap', 'k'), '', 'all rows are there, and no others');
is(answer($node, 'CHECKPOINT'), '', 'a checkpoint completes');
kill_all($node);
$disk->remount;
ok(start_again($node), 'the server starts without its page cache');
is(tables_differ($node, 't', 'heap', 'k'), '', '... and all rows are there');
$node->stop;
done_testing();
