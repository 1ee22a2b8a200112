# Promise: a standby of PostgreSQL 16 and later decodes changes as its primary does, and goes on when it is promoted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvFeed;
use KvReplica;

plan skip_all => 'of kvfdw only' if heap_only();

my $node = feed_cluster('primary', hot_standby => 'on', wal_keep_size => '1GB', hot_standby_feedback => 'on');
sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
plan skip_all => 'standbys do not decode' if sql('SHOW server_version_num') < 160000;

sql(q{CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw OPTIONS (changes 'on'); INSERT INTO t VALUES (0, 'before');
	SELECT pg_create_physical_replication_slot('phys')});
my $s = kv_standby($node, 'standby', hot_standby_feedback => 'on', primary_slot_name => "'phys'");
my $making = psql_writer($s, "SELECT 'made', pg_create_logical_replication_slot('feed', 'kvfdw')", 'making');

# the slot needs a record that tells which transactions run
wait_for('the slot', sub { answer($node, 'SELECT pg_log_standby_snapshot()'); ended($making) });
like(outcome($making), qr/^made/, 'a slot is made on the standby');
sql(q{BEGIN; INSERT INTO t VALUES (1, 'one'), (2, 'two'); SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; UPDATE t SET v = 'zero' WHERE k = 0; COMMIT;
	ALTER FOREIGN TABLE t ADD COLUMN w int; INSERT INTO t VALUES (3, NULL, 3); TRUNCATE t; INSERT INTO t VALUES (4, repeat('x', 50000), 4)});
caught_up($node, $s);
my $expected = join "\n", q({"op":"put","table":"public.t","key":{"k":1},"row":{"k":1,"v":"one"}}), q({"op":"put","table":"public.t","key":{"k":2},"row":{"k":2,"v":"two"}}),
	q({"op":"put","table":"public.t","key":{"k":0},"row":{"k":0,"v":"zero"}}), q({"op":"put","table":"public.t","key":{"k":3},"row":{"k":3,"v":null,"w":3}}),
	q({"op":"truncate","table":"public.t"}), q({"op":"put","table":"public.t","key":{"k":4},"row":{"k":4,"v":"…","w":4}});
is(feed_lines($s, 'feed', 'transactions', 'off') =~ s/x{50000}/…/r, $expected, 'it has the changes of the primary');
sql(q{INSERT INTO t VALUES (5)});
caught_up($node, $s);
$node->stop('immediate');
$s->promote;
$s->safe_psql('postgres', q{INSERT INTO t VALUES (6)});
is(join(' ', feed_lines($s, 'feed', 'transactions', 'off') =~ /"key":\{"k":(\d+)\}/g), '5 6', 'promoted, it goes on');
done_testing();
