# Promise: twenty-five cases of test/campaign/damage.pl: damage to any file is an error that says
# so, or harmless (KV_CASES=n: n cases).
use strict;
use warnings;
use FindBin;

exec $^X, "$FindBin::RealBin/../campaign/damage.pl", '--cases', $ENV{KV_CASES} // 25
  or die "damage.pl: $!";
