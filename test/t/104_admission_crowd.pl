# Promise: short rounds of test/campaign/crowd.pl: no session pauses too long, every request is
# answered, and no slot is lost, with a kill each.
use strict;
use warnings;
use FindBin;

exec $^X, "$FindBin::RealBin/../campaign/crowd.pl", '--round-seconds', 4, '--clients', 10
  or die "crowd.pl: $!";
