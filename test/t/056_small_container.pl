# Promise: in a container of 512 MB, with shared_preload_libraries and nothing else of kvfdw's set, a server starts, takes 300 MB,
# serves 16 sessions that read all of it, is killed, starts again and has everything; the kernel kills nobody for want of memory.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(group_make group_run group_ooms);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no memory of its own' if heap_only();
my $why_not = group_make(512 << 20);
plan skip_all => $why_not if $why_not;

my $node = PostgreSQL::Test::Cluster->new('container');
$node->init;
# what the test's cluster sets apart, all is as initdb leaves it
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\nrestart_after_crash = on\nmax_connections = 100\nlog_statement = none\n");
group_run(sub { $node->start });
$node->safe_psql('postgres', 'CREATE EXTENSION kvfdw; CREATE FOREIGN TABLE t (k int NOT NULL, v text) SERVER kvfdw');
my ($memory, $buffers) = (answer($node, q{SELECT pg_size_pretty(sum(allocated_size)) || ' of ' || (sum(allocated_size) < 300 << 20) FROM pg_shmem_allocations}), setting($node, 'shared_buffers'));
like($memory, qr/ true$/, "its shared memory leaves room for more: $memory, shared_buffers $buffers");

like(slurp_file($node->logfile), qr/LOG:  the default of "kvfdw\.memory" is 128 MB on this server/, '... and the log tells what it took');

my $n = 75_000;
sub rows { my ($from, $to) = @_; return "INSERT INTO t SELECT g, repeat(md5(g::text), 128) FROM generate_series($from, $to) g;" }
$node->safe_psql('postgres', rows(1, $n));
is(answer($node, 'SELECT count(*) FROM t'), $n, '300 MB are taken in one statement');

# each by key, in another order, and a scan
my $reads = int($n / 8);
my @sessions = map { my $s = $_; psql_writer($node, "SELECT count(*), bool_and(v = repeat(md5(k::text), 128)) FROM generate_series(1, $reads) g, LATERAL (SELECT * FROM t WHERE k = 1 + (g * 7919::bigint + $s * 104729) % $n OFFSET 0) l;
	SELECT count(*), bool_and(v = repeat(md5(k::text), 128)) FROM t WHERE k > $s * 1000;\n", "reader$s") } 1 .. 16;
is(join('', map { outcome($sessions[ $_ - 1 ]) eq "$reads|t\n" . ($n - $_ * 1000) . "|t\n" ? '' : "session $_ " } 1 .. 16), '', '16 sessions read it');

kill_all($node);
group_run(sub { restart_killed($node) });
is(answer($node, 'SELECT count(*), bool_and(v = repeat(md5(k::text), 128)), sum(k) FROM t'), "$n|t|" . $n * ($n + 1) / 2, 'after SIGKILL all is there');
$node->safe_psql('postgres', rows($n + 1, $n + 1000));
is(kv_check_clean($node, 't'), '', 'the table is sound');
is(group_ooms(), 0, 'nobody was killed for want of memory');
unlike(slurp_file($node->logfile), qr/terminated by signal|out of memory/, '... nor went without');
$node->stop;
done_testing();
