# Promise: while a server reads what was cached, the write buffers of a table that was emptied come back: writers of others need not wait for its end, and a
# standby replays on.
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
my $node = kv_primary('warm_pins', 'kvfdw.buffer_units' => 8, 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.flush_after' => '1h', 'kvfdw.recent_ring' => 0, checkpoint_timeout => '1h', max_worker_processes => 16,
	map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
plan skip_all => 'needs fault injection' unless has_faults($node);
my @others = qw(a b c);

sub query { return $node->safe_psql('postgres', "SET kvfdw.stop_points = ''; $_[0]"); }
sub prewarm { return join '', map { "SELECT kvfdw_prewarm('$_');" } @others, 'large' }
my $rows = q{SELECT (SELECT count(*) FROM large), (SELECT count(*) FROM a WHERE v = 'z'), (SELECT count(*) FROM c WHERE v = 'z')};

query(join '', map { kv_table($_, 'k bigint, v text', 'k', $_ eq 'large' ? "shards '100'" : ()) . "INSERT INTO $_ SELECT hashint8extended(g, 1), repeat('x', 4000) FROM generate_series(1, 10) g;" } @others, 'large');
query("SELECT kvfdw_flush('$_')") for @others, 'large';
my $standby = kv_standby($node, 'standby', 'kvfdw.stop_points' => "''");
caught_up($node, $standby);
query('CHECKPOINT');
caught_up($node, $standby);

# the server itself
query(prewarm());
worker_stop_points($node, 'warm_read=wait');
$node->restart;
stopped($node, 'warm_read');
# it has all write buffers
query("INSERT INTO large SELECT hashint8extended(g, 2), 'x' FROM generate_series(1, 1000) g");
query('TRUNCATE large');
step_on($node, 'warm_read');
my $w = psql_writer($node, "SET kvfdw.stop_points = '';" . join('', map { "UPDATE $_ SET v = 'z';" } @others), 'writer');
ok(eval { wait_for('writers', 50, sub { ended($w) }) }, 'writers of others go on while what was cached is read') or diag $@;
worker_stop_points($node, '');
go_on($node, 'warm_read');
is(outcome($w), '', 'without an error');
is(query($rows), '0|10|10', 'the rows are as they should be');
is(kv_check_clean($node, @others, 'large'), '', 'and sound');

# a standby
query(join '', map { "UPDATE $_ SET v = repeat('y', 4000);" } @others);
query(q{INSERT INTO large SELECT hashint8extended(g, 1), repeat('x', 4000) FROM generate_series(1, 10) g});
query("SELECT kvfdw_flush('$_')") for @others, 'large';
query('CHECKPOINT');
caught_up($node, $standby);
$standby->safe_psql('postgres', join('', map { "SELECT sum(length(v)) FROM $_ WHERE k IN (SELECT hashint8extended(g, 1) FROM generate_series(1, 10) g);" } @others, 'large') . prewarm());
worker_stop_points($standby, 'warm_read=wait');
$standby->restart;
stopped($standby, 'warm_read');
query("INSERT INTO large SELECT hashint8extended(g, 2), 'x' FROM generate_series(1, 1000) g");
query('TRUNCATE large');
wait_for('the truncation', sub { answer($standby, 'SELECT count(*) FROM large') eq '0' });
step_on($standby, 'warm_read');
query(join '', map { "UPDATE $_ SET v = 'z';" } @others);
my $lsn = query('SELECT pg_current_wal_insert_lsn()');
ok(eval { wait_for('replay', 50, sub { answer($standby, "SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' }) }, 'a standby replays on while it reads what was cached') or diag $@;
is(answer($standby, $rows), '0|10|10', 'its rows are as they should be');
worker_stop_points($standby, '');
go_on($standby, 'warm_read');
$standby->stop;
$node->stop;
done_testing();
