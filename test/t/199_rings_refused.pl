# Promise: a process that the kernel refused an io_uring ring, as at the limit of locked memory, asks again; the log and the error of
# kvfdw.io_method = io_uring say what limit that is; a ring of fewer requests is taken where a larger one is refused.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no rings of kvfdw' if heap_only();
my $dir = PostgreSQL::Test::Utils::tempdir();
my $noring = "$dir/noring";
plan skip_all => 'no compiler' if system($ENV{CC} // 'cc', '-shared', '-fPIC', '-O1', '-o', "$noring.so", "$FindBin::RealBin/../lib/noring.c", '-ldl') != 0;
$ENV{KV_NORING} = $noring;

my $node = kv_cluster('rings', 'kvfdw.value_cache' => 0, 'kvfdw.recent_ring' => 0, 'kvfdw.page_cache' => 'off', 'kvfdw.io_method' => 'auto');
plan skip_all => 'the kernel has no io_uring' if $node->safe_psql('postgres', 'SELECT kvfdw_io_method()') ne 'io_uring';
$node->stop;
{
	local $ENV{LD_PRELOAD} = "$noring.so";
	$node->start;
}
sub limit { my ($most) = @_; unlink $noring; append_to_file($noring, "$most\n") if defined $most; return; }
my ($in, $out, $err) = ('', '', '');
my $session = IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
sub ask
{
	my ($sql) = @_;
	$out = '';
	$in .= "$sql\n\\echo :SQLSTATE end\n";
	$session->pump until $out =~ / end\n/;
	return $out =~ s/(?:00000)? end\n//r =~ s/\n\z//r;
}
my $method = 'SELECT kvfdw_io_method();';
my $rows = 'SELECT count(*), sum(length(v)) FROM t WHERE k IN (1, 500, 1000, 1999);';
my $all = '4|' . 4 * 60 * 32;
sub told { return scalar(() = slurp_file($node->logfile) =~ /kvfdw reads and writes without io_uring/g); }

$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k') . "INSERT INTO t SELECT g, repeat(md5(g::text), 60) FROM generate_series(1, 2000) g; SELECT kvfdw_flush('t')");
limit(0);
is(ask($method), 'sync', 'a session is refused a ring');
is(ask($rows), $all, '... and reads without');
ok(wait_for('the log', sub { told() }), '... and that is logged');
like(slurp_file($node->logfile), qr/HINT:  [^\n]*ulimit -l[^\n]*LimitMEMLOCK=/, '... with what raises the limit');
is($node->safe_psql('postgres', "$method$rows"), "sync\n$all", 'another is, too');
is(told(), 1, '... which is not logged once more');

# who insists on one
is(ask("SET kvfdw.io_method = 'io_uring'; $rows"), '53000', 'without a ring kvfdw.io_method = io_uring is an error');
ok(wait_for('the message', sub { $session->pump_nb; $err =~ /HINT/ }), '... which has a hint');
like($err, qr/could not create an io_uring ring: Cannot allocate memory.*HINT:  .*ulimit -l/s, '... that names the limit');
$err = '';
limit();
is(ask($rows), $all, '... until there is one: it is asked for each time');
limit(0);
is(ask("$method SET kvfdw.io_depth = 32; $rows"), "io_uring\n53000", 'another depth needs another ring');
limit();
is(ask("RESET kvfdw.io_depth; $rows RESET kvfdw.io_method;"), $all, '... that can be had');
$err = '';

# it asks again
limit(0);
is(ask("SET kvfdw.io_depth = 16; $method"), 'sync', 'a session is refused once more');
limit();
ok(eval { wait_for('a ring', 60, sub { ask($method) eq 'io_uring' }) }, '... asks again after a while, and has one then');
is(ask($rows), $all, '... with which it reads');

# a smaller one
limit(64);
is(ask("SET kvfdw.io_depth = 512; $method"), 'io_uring', 'a ring of fewer requests is better than none');
is(ask($rows), $all, '... and reads as well');
is(ask("SET kvfdw.io_depth = 64; $method"), 'io_uring', 'one of the default depth is no larger');
limit();
$in .= "\\q\n";
$session->finish;
is($err, '', 'no other error');
$node->stop;
done_testing();
