# Promise: runs that were replaced, or whose table was emptied or dropped, keep no space because
# processes have read them: sessions give them up at the end of a transaction, workers at the end
# of a round. (I 12, I 14)
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no runs' if heap_only();
my $node = kv_cluster('runs_unmapped', 'kvfdw.flush_after' => '1s', max_worker_processes => 16);
$node->safe_psql('postgres', kv_table('t', 'k int, v int', 'k') . kv_table('kept', 'k int, v int', 'k') . q{INSERT INTO kept SELECT g, g FROM generate_series(1, 1000) g});
$node->safe_psql('postgres', q{SELECT kvfdw_flush('kept')});

# a session that stays
my ($in, $out, $err) = ('', '', '');
my $session = IPC::Run::start([ 'psql', '-XAtq', '-h', $node->host, '-p', $node->port, '-d', 'postgres' ], '<', \$in, '>', \$out, '2>', \$err);

sub ask
{
	my ($sql) = @_;
	$out = '';
	$in .= "$sql\n\\echo end\n";
	$session->pump until $out =~ /^end\n/m;
	return $out =~ s/^end\n//mr =~ s/\n\z//r;
}

# How many files of runs does it have that have no name any more, of how many?
sub mapped
{
	my ($pid) = @_;
	my %runs = map { m{(kvfdw/\S+\.run)( \(deleted\))?$} ? ($1 => defined $2) : () } split /\n/, slurp_file("/proc/$pid/maps");
	return (scalar(grep { $_ } values %runs), scalar keys %runs);
}
sub gone { my ($pid) = @_; return (mapped($pid))[0]; }
sub gives_up
{
	my ($pid, $what, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { wait_for($what, 60, sub { ask($sql) if $sql; gone($pid) == 0 }) }, $what) || diag(join ' of ', mapped($pid));
}
sub pid_of { return answer($node, "SELECT pid FROM pg_stat_activity WHERE backend_type = '$_[0]'"); }
sub freezes { return answer($node, q{SELECT sum(flushes) FROM kvfdw_stat_tables}); }

my $pid = ask('SELECT pg_backend_pid();');
my $rows = 'SELECT count(*), sum(v) FROM t WHERE v > 0;';
my $kept = 'SELECT count(v) FROM kept;';
is(ask($kept), '1000', 'a session reads a table');

# replaced
for my $round (1 .. 4)
{
	my $before = freezes();
	$node->safe_psql('postgres', $round == 1 ? q{INSERT INTO t SELECT g, 1 FROM generate_series(1, 20000) g} : q{UPDATE t SET v = v + 1});
	wait_for('the maintainer to freeze', sub { freezes() > $before });
	$node->safe_psql('postgres', q{SELECT kvfdw_flush('t')});
	is(ask($rows), '20000|' . 20000 * $round, "it reads what was frozen $round times");
	$node->safe_psql('postgres', 'CHECKPOINT');
}
gives_up($pid, 'it gives up what was replaced', $rows);
cmp_ok((mapped($pid))[1], '>=', 2, '... and has what is there');

# in one that uses it no more
is(ask($rows), '20000|80000', 'it reads once more');
$node->safe_psql('postgres', q{TRUNCATE t; INSERT INTO t SELECT g, 1 FROM generate_series(1, 20000) g});
$node->safe_psql('postgres', q{SELECT kvfdw_flush('t')});
gives_up($pid, 'it gives up a table that was emptied, with transactions of any kind', 'SELECT 1;');
is(ask($rows), '20000|20000', 'it reads what came then');

ask(q{BEGIN; DECLARE c SCROLL CURSOR FOR SELECT k FROM t ORDER BY k; FETCH 3 FROM c;});
$node->safe_psql('postgres', q{UPDATE t SET v = 2; SELECT kvfdw_flush('t'); SELECT kvfdw_flush('kept'); CHECKPOINT});
is(ask('FETCH LAST FROM c; FETCH FIRST FROM c; COMMIT;'), "20000\n1", 'a cursor goes on in a table whose runs were replaced');

$node->safe_psql('postgres', 'DROP FOREIGN TABLE t');
gives_up($pid, '... and a table that was dropped', 'SELECT 1;');
is(ask($kept), '1000', 'others are as they were');
gives_up(pid_of($_), "and so does $_") for 'kvfdw maintainer', 'kvfdw compactor';

$in .= "\\q\n";
$session->finish;
is($err, '', 'without an error');
$node->stop;
done_testing();
