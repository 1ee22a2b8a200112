# Promise: the write buffers of a table that was emptied are freed while a checkpoint is being
# made, so writers of other tables need not wait for its end.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_cluster('slots_of_dropped', 'kvfdw.test_carried' => 0, 'kvfdw.buffer_units' => 8, 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.flush_after' => '1h', checkpoint_timeout => '1h', map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
plan skip_all => 'needs fault injection' unless has_faults($node);

sub query { return $node->safe_psql('postgres', "SET kvfdw.stop_points = ''; $_[0]"); }
query(join '', map { kv_table($_, 'k bigint, v text', 'k', $_ eq 'large' ? "shards '100'" : ()) . "INSERT INTO $_ SELECT hashint8extended(g, 1), 'x' FROM generate_series(1, 10) g;" } qw(a large b c));
query('CHECKPOINT');
query("UPDATE $_ SET v = 'y'") for qw(a b c);
worker_stop_points($node, 'mark_captured=wait');
my $checkpoint = psql_writer($node, 'CHECKPOINT', 'checkpoint');
stopped($node, 'mark_captured');
# it has all write buffers
query("INSERT INTO large SELECT hashint8extended(g, 2), 'x' FROM generate_series(1, 1000) g");
query('TRUNCATE large');
step_on($node, 'mark_captured');
my $w = psql_writer($node, "SET kvfdw.stop_points = ''; UPDATE a SET v = 'z'; UPDATE b SET v = 'z'; UPDATE c SET v = 'z'", 'writer');
ok(eval { wait_for('writers', 50, sub { ended($w) }) }, 'writers of others go on while the checkpoint stands') or diag $@;
ok(!ended($checkpoint), 'which it does');
worker_stop_points($node, '');
go_on($node, 'mark_captured', $checkpoint);
is(outcome($w), '', 'without an error');
is(query("SELECT (SELECT count(*) FROM large), (SELECT count(*) FROM a WHERE v = 'z'), (SELECT count(*) FROM c WHERE v = 'z')"), '0|10|10', 'the rows are as they should be');
is(kv_check_clean($node, 'a', 'b', 'c', 'large'), '', 'and sound');
$node->stop;
done_testing();
