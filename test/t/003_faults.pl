# Promise: whichever file system call fails, is cut short, or is the last one of
# its process, the transaction it belongs to happens whole or not at all, and
# everything works again once calls succeed (I 3, I 6, I 11).  Here: calls on
# key logs, on the buffer file and on small files.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvFaults;
use KvTest;

my $node = faults_of('faults', sub { $_[0] =~ /^(key_log|buffer|meta)/ });
$node->stop;
unlike(slurp_file($node->logfile), qr/signal 11|TRAP/, 'no process has crashed by itself');
done_testing();
