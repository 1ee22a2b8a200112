# Promise: make -f elsewhere/Makefile compiles and links every source file, in the
# directory where it is called, and would install what belongs to the extension; so
# does Debian's pg_buildext, with a library that is whole.  It compiles with clang and
# for aarch64 where those compilers are.  META.json is what PGXN asks for.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Find;
use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = abs_path("$FindBin::RealBin/../..");
my $dir = abs_path(PostgreSQL::Test::Utils::tempdir());
delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS FAULTS WERROR)};
my @sources;
find({ no_chdir => 1, wanted => sub { push @sources, $_ if /\.c$/ } }, "$root/src");

# ---- what make would do ----

my $out = `cd '$dir' && make -n -f '$root/Makefile' all install DESTDIR='$dir/there' PG_CONFIG=pg_config 2>&1`;
is($?, 0, 'make knows what to do') or diag($out);
my @objects = $out =~ /-c -o (build\S+\.o) /g;
is(scalar(@objects), scalar(@sources), 'an object here for each source file');
my ($link) = $out =~ /^(.* -shared -o kvfdw\.so .*)$/m;
is(scalar(grep { index($link // '', $_) >= 0 } @objects), scalar(@sources), 'all of which are linked');
like($out, qr/\Q$root\E\/+kvfdw\.control/, 'the control file is found');
like($out, qr/\Q$root\E\/+sql\/kvfdw--/, 'and the script');
unlike($out, qr/-Werror(?!=)/, 'a warning ends no build of somebody else');
like(`cd '$dir' && make -n -f '$root/Makefile' FAULTS=1 PG_CONFIG=pg_config 2>&1`, qr/-Werror(?!=)/, 'but ours');

# ---- as pg_buildext does it ----

# Without optimisation, which takes most of the time.  The private tree has no headers.
my $pg_config = $ENV{KV_PG_CONFIG} // 'pg_config';
sub make_in { my ($name, @arguments) = @_; mkdir "$dir/$name"; return `make -s -C '$dir/$name' -f '$root/Makefile' PG_CONFIG='$pg_config' COPT=-O0 WERROR=1 @arguments 2>&1` }

my $elsewhere = "VPATH='$root' USE_PGXS=1";
$out = make_in('pg_buildext', '-j2', $elsewhere);
is($?, 0, 'pg_buildext can build') or diag($out);
$out = make_in('pg_buildext', 'install', $elsewhere, "DESTDIR='$dir/package'");
is($?, 0, 'and install') or diag($out);
my @installed;
find({ no_chdir => 1, wanted => sub { push @installed, $_ if -f } }, "$dir/package");
is(scalar(grep { m{/extension/kvfdw(?:\.control|--[\d.]+(?:--[\d.]+)?\.sql)$} } @installed), glob_count("$root/sql/kvfdw--*.sql") + 1,
	'the control file and each script') or diag("@installed");
is(scalar(grep { m{/bin/kvfdw_upgrade$} && -x } @installed), 1, 'and the program for pg_upgrade');
my ($library) = grep { m{/kvfdw\.so$} } @installed;
like(`nm -D --defined-only '$library'`, qr/ T _PG_init$/m, 'the library is not empty');

sub glob_count { my @found = glob($_[0]); return scalar @found }

# ---- other compilers ----

sub compiled
{
	my ($name) = @_;
	my $n = 0;
	find({ no_chdir => 1, wanted => sub { $n++ if /\.o$/ } }, "$dir/$name");
	return $n;
}

sub have { my ($program) = @_; return grep { -x "$_/$program" } split /:/, $ENV{PATH} }

my ($clang) = grep { have($_) } 'clang', map { "clang-$_" } reverse 11 .. 30;
SKIP:
{
	skip 'clang is not installed', 1 unless $clang;
	$out = make_in('clang', '-j2', "CC=$clang", 'objects');
	is($? == 0 ? compiled('clang') : 'failed', scalar(@sources), "compiles with $clang, whatever the server was compiled with") or diag($out);
}

my $cross = 'aarch64-linux-gnu-gcc';
SKIP:
{
	skip "$cross is not installed", 1 unless have($cross);

	# Of this machine's headers those that are not about it; OpenSSL's are, but do no harm.
	my $multiarch = `gcc -print-multiarch`;
	chomp $multiarch;
	mkdir "$dir/include";
	for my $header (map { ("/usr/include/$_", "/usr/include/$multiarch/$_") } qw(liburing liburing.h lz4.h openssl))
	{
		next unless -e $header;
		system('cp', '-rL', $header, "$dir/include/") == 0 or die "could not copy $header";
	}
	$out = make_in('aarch64', '-j2', "CC='$cross -isystem $dir/include'", 'objects');
	is($? == 0 ? compiled('aarch64') : 'failed', scalar(@sources), 'compiles for aarch64') or diag($out);
}

# ---- META.json ----

my $meta = decode_json(slurp_file("$root/META.json"));
is(join(' ', grep { !defined $meta->{$_} } qw(name version abstract maintainer license provides meta-spec)), '', 'META.json has what PGXN requires');
is($meta->{'meta-spec'}{version}, '1.0.0', 'its version of the specification');
my $semantic = qr/^\d+\.\d+\.\d+(?:-[A-Za-z][\w-]*)?$/;
is(join(' ', grep { $_ !~ $semantic } $meta->{version}, map { $_->{version} // '' } values %{ $meta->{provides} }), '', 'its versions are semantic');
my ($version) = slurp_file("$root/kvfdw.control") =~ /^default_version = '(.*)'$/m;
like($meta->{version}, qr/^\Q$version\E\.\d/, 'and the control file\'s');
is(join(' ', grep { !-f "$root/$_" } map { grep { defined } @$_{qw(file docfile)} } values %{ $meta->{provides} }), '', 'the files that it names are there');
like($meta->{provides}{kvfdw}{file}, qr/^sql\/kvfdw--\Q$version\E\.sql$/, 'with the script of this version');
like($meta->{release_status} // 'stable', qr/^(?:stable|testing|unstable)$/, 'its status is one of three');
done_testing();
