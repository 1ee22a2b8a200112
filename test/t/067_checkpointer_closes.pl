# Promise: from the moment that "kvfdw checkpointer" stops the writers until the next one is up,
# writers wait and readers do not, and SIGKILL or a shutdown in between costs no row. Needs a test
# build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no checkpointer' if heap_only();
my $node = kv_cluster('closes', checkpoint_timeout => '1h', restart_after_crash => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
my @tables = map { "kv_$_" } qw(full keys none);
$node->safe_psql('postgres', join('', map { kv_table("kv_$_", 'k int, v text', 'k', "wal '$_'") } qw(full keys none)));
sub checkpointer { return answer($node, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'}) }
sub rows { return answer($node, join(' UNION ALL ', map { "SELECT count(v) FROM $_" } @tables)) =~ s/\n/ /gr }
sub insert { my ($k) = @_; return map { "INSERT INTO $_ VALUES ($k, repeat('x', 5000));" } @tables }

# A checkpointer that was told to go and stands there, and a session that writes meanwhile.
sub closing
{
	my ($k) = @_;
	worker_stop_points($node, 'checkpoint_closing=wait');
	my $pid = checkpointer();
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	stopped($node, 'checkpoint_closing');
	my $writer = psql_writer($node, join('', insert($k)), "writer$k");
	wait_for('the writer to wait', 180, sub {
		answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE query ~ '^INSERT' AND wait_event IN ('Extension', 'KvfdwCheckpointer')}) eq '1' });
	return ($pid, $writer);
}

$node->safe_psql('postgres', join('', insert($_))) for 1 .. 3;
my ($pid, $writer) = closing(4);
is(rows(), '3 3 3', 'readers go on, and see nothing of a writer that waits');
ok(!ended($writer), 'the writer waits');
worker_stop_points($node, '');
go_on($node, 'checkpoint_closing');
is(outcome($writer), '', 'and goes on when the next checkpointer is up');
isnt(checkpointer(), $pid, 'which is another one');
is(rows(), '4 4 4', 'its rows are there');

# nothing was logged between the last record of the old one and the first of the new
($pid, $writer) = closing(5);
kill_all($node);
unlink glob($node->data_dir . '/kvfdw/waiting.*');
isnt(outcome($writer), '', 'SIGKILL while it closes: the writer has failed');
$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
$node->start;
is(rows(), '4 4 4', 'all acknowledged rows are there, and no others');

# a shutdown comes the same way
worker_stop_points($node, 'checkpoint_closing=wait');
system_or_bail('pg_ctl', '-D', $node->data_dir, '-m', 'fast', '-W', 'stop');
stopped($node, 'checkpoint_closing');
kill_all($node);
unlink glob($node->data_dir . '/kvfdw/waiting.*');
$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
$node->start;
is(rows(), '4 4 4', 'SIGKILL in a shutdown: all rows are there');
is(answer($node, join('', insert(6))), '', 'and more are taken');
is(kv_check_clean($node, @tables), '', 'kvfdw_check is clean');
$node->stop;
done_testing();
