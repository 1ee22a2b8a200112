# Promise: seven rounds of test/campaign/torture.pl: SIGKILL of any process, at random
# moments and at stop points, under concurrent writers (KV_ROUNDS=n: n rounds).
use strict;
use warnings;
use FindBin;

exec $^X, "$FindBin::RealBin/../campaign/torture.pl", '--rounds', $ENV{KV_ROUNDS} // 7
  or die "torture.pl: $!";
