# Promise: short rounds of test/campaign/counters.pl: each acknowledged upsert counts once, at
# every wal level, with two kills each; counters that are written back are found wrong.
use strict;
use warnings;
use FindBin;

exec $^X, "$FindBin::RealBin/../campaign/counters.pl", '--round-seconds', 3, '--kills', 2
  or die "counters.pl: $!";
