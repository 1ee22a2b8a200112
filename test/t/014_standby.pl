# Promise: a standby of tables with wal level full has what heap has there, however
# it is stopped and started again, also one that takes no queries and one that
# follows another standby; promoted, it goes on.
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
my $load = start_load($node, 1 .. 2);
load_goes_on($load, 5);
my $s = kv_standby($node, 's');
load_goes_on($load, 20);
my $below = kv_standby($s, 'below');
my $blind = kv_standby($node, 'blind', hot_standby => 'off');
stop_load($load);
caught_up($node, $s);
same_rows($node, $s, 'backup under load');

# each time the cascading standby is stopped in another way than the one above
my @ways = qw(restartpoint kill fast immediate);
for my $round (1 .. $ENV{KV_ROUNDS} // 2)
{
	for my $half (0, 1)
	{
		$load = start_load($node, 1 .. 2);
		load_goes_on($load, 3);
		usleep(int(rand(200_000)));
		for my $one ([ $s, $ways[ (2 * $round + $half) % 4 ] ], [ $below, $ways[ (2 * $round + $half + 1) % 4 ] ])
		{
			my ($n, $how) = @$one;
			$n->safe_psql('postgres', 'CHECKPOINT') if $how eq 'restartpoint';
			if ($how =~ /fast|immediate/) { $n->stop($how); }
			else { kill_all($n); }
			$n->start;
		}
		load_goes_on($load, 8);
		stop_load($load);
		caught_up($node, $s);
		same_rows($node, $s, "round $round.$half");
		caught_up($s, $below);
		same_rows($s, $below, "round $round.$half, cascading");
	}
	kill_all($blind);
	restart_killed($blind);
}
sound($node, 'the primary');

# ---- promotion ----

# what this one has is seen when it is promoted
$node->wait_for_catchup('blind', 'replay', $node->lsn('flush'));
promote_blind($blind);
is(tables_differ($blind, 'twin_kv', 'twin_heap', 'w, i'), '', 'a standby without queries');
is(rows_of($blind, 'twin_kv', 'w, i'), rows_of($node, 'twin_kv', 'w, i'), 'has the rows of its primary');
sound($blind, 'promoted, without queries');
$blind->stop('immediate');

$load = start_load($node, 1 .. 2);
load_goes_on($load, 5);

# a record that was cut off by the promotion can stop a standby that had more of it
$below->stop;
$s->promote;
stop_load($load);
$node->stop('immediate');
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'promoted under load');
sound($s, 'promoted');
$load = start_load($s, 1 .. 2);
load_goes_on($load, 10);
kill_all($s);
stop_load($load);
restart_killed($s);
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'written, and killed');
sound($s, 'written, and killed');
$below->start;
caught_up($s, $below);
same_rows($s, $below, 'the standby below has followed');
power_loss($s);
is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', 'after power loss');
sound($s, 'after power loss');
done_testing();
