# Promise: a server that restarts because one of its processes was killed has no buffer writer
# during replay. It replays what more shards have written than there are write buffers, also if
# the write buffers were those of tables that have gone.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_cluster('redo_slots', 'kvfdw.buffer_units' => 8, 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.flush_after' => '1h', checkpoint_timeout => '1h');
plan skip_all => 'needs fault injection' unless has_faults($node);
my @levels = qw(full keys none);
# each write buffer that was to be waited for took a second
my $shards = 500;

$node->safe_psql('postgres', 'CREATE TABLE heap (k bigint PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k bigint, v text', 'k', "wal '$_', shards '$shards'") } @levels) . 'CHECKPOINT');
$node->safe_psql('postgres', join ';', map { "INSERT INTO $_ SELECT hashint8extended(g, 1), md5(g::text) FROM generate_series(1, 3000) g" } 'heap', map { "t_$_" } @levels);
my $times = times_ready($node);
kill_process($node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'}));
ok(eval { ready_again($node, $times) }, 'the server is there again') or diag $@;
for my $level (@levels)
{
	is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$level: the rows are the same");
	is(kv_check_clean($node, "t_$level"), '', "$level: it is sound");
}

# Tables that were emptied or dropped have all write buffers when the server dies, and their directories have gone.
for my $end ('TRUNCATE t_full', 'DROP FOREIGN TABLE t_keys')
{
	my ($table) = $end =~ /(t_\w+)/;
	$node->safe_psql('postgres', kv_table('other', 'k bigint, v text', 'k') . "CHECKPOINT; INSERT INTO other VALUES (1, 'x'); INSERT INTO $table SELECT hashint8extended(g, 2), 'x' FROM generate_series(1, 1000) g");
	$times = times_ready($node);
	worker_stop_points($node, 'drop_before_discard=kill');
	$node->psql('postgres', $end);
	ok(eval { ready_again($node, $times) }, "$end: the server is there again") or diag $@;
	worker_stop_points($node, '');
	is(answer($node, 'SELECT * FROM other'), '1|x', "$end: and has the rows of others");
	is(kv_check_clean($node, 'other', 't_full', 't_none'), '', "$end: they are sound");
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE other');
}
$node->stop;
done_testing();
