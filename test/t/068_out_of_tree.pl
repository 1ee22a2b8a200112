# Promise: make -f elsewhere/Makefile compiles and links every source file, in the
# directory where it is called, and would install what belongs to the extension.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Find;
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = abs_path("$FindBin::RealBin/../..");
my $dir = PostgreSQL::Test::Utils::tempdir();
delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
my $out = `cd '$dir' && make -n -f '$root/Makefile' all install DESTDIR='$dir/there' PG_CONFIG=pg_config 2>&1`;
is($?, 0, 'make knows what to do') or diag($out);
my @sources;
find({ no_chdir => 1, wanted => sub { push @sources, $_ if /\.c$/ } }, "$root/src");
my @objects = $out =~ /-c -o (build\S+\.o) /g;
is(scalar(@objects), scalar(@sources), 'an object here for each source file');
my ($link) = $out =~ /^(.* -shared -o kvfdw\.so .*)$/m;
is(scalar(grep { index($link // '', $_) >= 0 } @objects), scalar(@sources), 'all of which are linked');
like($out, qr/\Q$root\E\/+kvfdw\.control/, 'the control file is found');
like($out, qr/\Q$root\E\/+sql\/kvfdw--/, 'and the script');
done_testing();
