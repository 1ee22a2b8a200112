# Promise: a run has its name when its pages are on the device.  Where they cannot be written back the
# flush fails, sessions go on to read what was there before, and no key comes twice.
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
group_run(sub { $node = trust_cluster('lost', 'kvfdw.recovery_workers' => 0, before_start => sub { $disk = KvLoop->new($_[0]->data_dir . '/kvfdw', megabytes => 120, room => 90) }) });
trust_tables($node);
change($node);
$node->safe_psql('postgres', 'CHECKPOINT');
system('sync', '-f', $disk->{where}) == 0 or die;

# the answer of a session, or its error
sub said { my ($session, $sql) = @_; return eval { scalar $session->query($sql) } // "error $@" }

$disk->exhaust;
like(answer($node, "SELECT kvfdw_flush('kv_full')"), qr/could not write back file ".*\.run\.tmp"/, 'a freeze fails whose run cannot be written back');
my $count = 'SELECT count(*), sum(k) FROM kv_full';
my $by_key = 'SELECT count(*) FROM heap h, LATERAL (SELECT * FROM kv_full f WHERE f.k = h.k OFFSET 0) s';
my $session = $node->background_psql('postgres');
my @before = map { said($session, $_) } $count, $by_key;
system('sync', '-f', $disk->{where});
group_reclaim() for 1 .. 2;
like("@before", qr/^\d+\|\d+ \d+$/, 'a session reads rows');
is(said($session, $count), $before[0], 'the same session reads the same rows');
is(said($session, $by_key), $before[1], '... by key');
my $k = $node->safe_psql('postgres', 'SELECT k FROM heap WHERE k > 100 ORDER BY k LIMIT 1');
like(answer($node, "INSERT INTO kv_full VALUES ($k, 'again')"), qr/duplicate key/, 'no key is inserted twice');
eval { $session->quit };

$disk->relieve;
is(answer($node, "SELECT kvfdw_flush('kv_full')"), '', 'when there is room it is frozen');
is(answer($node, $count), $before[0], 'with all rows');
kill_all($node);
ok(start_again($node), 'the server starts');
nothing_lost($node, 'started again');
$node->stop;
done_testing();
