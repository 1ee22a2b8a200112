# Promise: whichever file system call fails, is cut short, or is the last one of
# its process, the transaction it belongs to happens whole or not at all, and
# everything works again once calls succeed (I 3, I 6, I 11).  Here: all
# calls that 003 leaves out.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvFaults;
use KvTest;

my $node = faults_of('faults', sub { $_[0] !~ /^(key_log|buffer|meta)/ });

# A process may open fewer files than fd.c trusts, which logs that, and a message serves interrupts: not while
# reads are under way.
SKIP:
{
	skip 'no prlimit', 2 if system('prlimit --version >/dev/null 2>&1') != 0;
	$node->safe_psql('postgres', kv_table('wide', 'k int, v text', 'k', "shards '64'") . "INSERT INTO wide SELECT g * 2000000 - 2000000000, rpad(g::text, 4096, 'w') FROM generate_series(1::bigint, 2000) g; SELECT kvfdw_flush('wide')");
	$node->restart;
	my $some = sub { return 'SELECT count(*), count(*) FILTER (WHERE v = rpad(((k + 2000000000::bigint) / 2000000)::text, 4096, \'w\')) FROM wide WHERE k = ANY(ARRAY(SELECT (g * ' . $_[0] . ' % 2000 + 1) * 2000000 - 2000000000 FROM generate_series(1::bigint, 500) g)::int[])'; };
	my ($rc, $out, $err) = $node->psql('postgres', join("\n", 'SELECT pg_backend_pid() AS pid \gset', '\setenv PID :pid', 'SELECT count(v) FROM wide WHERE k IN (-1998000000, 0);', '\! prlimit --nofile=40:1024 --pid $PID', $some->(1) . ';',
			"SET kvfdw.fault = 'value_read:100:delay'; BEGIN; SET LOCAL statement_timeout = 60;", $some->(3) . ';', "ROLLBACK; SET kvfdw.fault = '';", map { $some->($_) . ';' } 3, 7), on_error_stop => 0);
	like($err, qr/^psql:<stdin>:\d+: ERROR:  canceling statement due to statement timeout$/, 'a cancel among reads');
	is($out, "2\n500|500\n500|500\n500|500", 'comes when they have ended');
}
$node->stop;
unlike(slurp_file($node->logfile), qr/signal 11|TRAP/, 'no process has crashed by itself');
done_testing();
