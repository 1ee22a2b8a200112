# Promise: a session that needs a write buffer takes those of tables that were emptied or dropped,
# whatever the maintainer does. Replay waits for a write buffer as long as it takes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_primary('others', 'kvfdw.buffer_units' => 8, 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.flush_after' => '1h', checkpoint_timeout => '1h', map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
plan skip_all => 'needs fault injection' unless has_faults($node);
my @others = qw(a b c);

sub query { return $node->safe_psql('postgres', "SET kvfdw.stop_points = ''; $_[0]"); }
sub make_large { return query(kv_table('large', 'k bigint, v text', 'k', "shards '100'")); }
sub fill_large { return query(q{INSERT INTO large SELECT hashint8extended(g, 2), 'x' FROM generate_series(1, 1000) g}); }

query(join '', map { kv_table($_, 'k bigint, v text', 'k') . "INSERT INTO $_ SELECT hashint8extended(g, 1), 'x' FROM generate_series(1, 10) g;" } @others);
make_large();
query("SELECT kvfdw_flush('$_')") for qw(b c);
my $standby = kv_standby($node, 'standby', 'kvfdw.stop_points' => "''");
query('CHECKPOINT');

# the maintainer merges a shard, and has all stores pinned
worker_stop_points($node, 'flush_before_merge=wait');
$node->append_conf('postgresql.conf', 'kvfdw.flush_after = 1');
$node->reload;
stopped($node, 'flush_before_merge');
my %sum = (a => 0);
for my $end ('TRUNCATE large', 'DROP FOREIGN TABLE large')
{
	fill_large();
	query($end);
	$sum{a}++;
	my $w = psql_writer($node, "SET kvfdw.stop_points = '';" . join('', map { "UPDATE $_ SET v = '$sum{a}';" } @others), "writer$sum{a}");
	ok(eval { wait_for('writers', 50, sub { ended($w) }) }, "$end: writers of others go on while the maintainer is busy") or diag $@;
	is(outcome($w), '', "$end: without an error");
}
ok(-e $node->data_dir . '/kvfdw/waiting.flush_before_merge', 'which it is');
worker_stop_points($node, '');
go_on($node, 'flush_before_merge');
is(query(join ' UNION ALL ', map { "SELECT count(*) FROM $_ WHERE v = '2'" } @others), "10\n10\n10", 'the rows are as they should be');
is(kv_check_clean($node, @others), '', 'and sound');

# no write buffer becomes free for long
make_large();
caught_up($node, $standby);
$standby->append_conf('postgresql.conf', "kvfdw.skip = 'buffer_patience'");
$standby->reload;
worker_stop_points($standby, 'buffer_before_log=wait');
my $log = -s $standby->logfile;
fill_large();
my $lsn = query('SELECT pg_current_wal_insert_lsn()');
stopped($standby, 'buffer_before_log');
wait_for('replay to say that it waits', sub { substr(slurp_file($standby->logfile), $log) =~ /no write buffer has become free/ });
like(substr(slurp_file($standby->logfile), $log), qr/LOG:  no write buffer has become free for 2 s/, 'replay says so');
worker_stop_points($standby, '');
go_on($standby, 'buffer_before_log');
ok(eval { wait_for('replay', 50, sub { answer($standby, "SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' }) }, 'and goes on when there is one') or diag $@;
is(answer($standby, 'SELECT count(*) FROM large'), '1000', 'its rows are as they should be');
$standby->stop;
$node->stop;
done_testing();
