# Promise: a streaming standby of tables with wal level full has, at every restart
# and after promotion, what heap has there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use KvTest;
use KvReplica;
my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";
my $node = kv_primary('p');
twin_tables($node);
my $load = start_load($node, 1 .. 3);
load_goes_on($load, 20);
my $s = kv_standby($node, 's');
load_goes_on($load, 100);
my %a = stop_load($load);
caught_up($node, $s);
same_rows($node, $s, 'backup under load');
for my $round (1 .. $ENV{KV_ROUNDS} // 4)
{
	$load = start_load($node, 1 .. 3);
	load_goes_on($load, 10);
	usleep(int(rand(500_000)));
	my $how = (qw(kill fast immediate restartpoint))[$round % 4];
	if ($how eq 'kill') { kill_all($s); restart_killed($s); }
	elsif ($how eq 'restartpoint') { $s->safe_psql('postgres', 'CHECKPOINT'); kill_all($s); restart_killed($s); }
	else { $s->stop($how); $s->start; }
	usleep(int(rand(500_000)));
	%a = stop_load($load);
	caught_up($node, $s);
	same_rows($node, $s, "round $round $how");
	sound($node, "round $round $how");
}
# promotion under load
$load = start_load($node, 1 .. 3);
load_goes_on($load, 10);
$s->promote;
stop_load($load);
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'promoted');
sound($s, 'promoted');
$load = start_load($s, 1 .. 3);
load_goes_on($load, 30);
kill_all($s);
stop_load($load);
restart_killed($s);
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'promoted, written, killed');
sound($s, 'promoted, written, killed');
done_testing();
