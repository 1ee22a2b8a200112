# Promise: a replication connection of psycopg2 follows the change feed, with plugin kvfdw, and with pgoutput's messages by
# their documented bytes, and shows the same. Skipped without psycopg2; KV_PYTHON is a Python that has it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvFeed;

plan skip_all => 'of kvfdw only' if heap_only();
my $python = $ENV{KV_PYTHON} // 'python3';
plan skip_all => 'there is no psycopg2' if system("$python -c 'import psycopg2' 2>/dev/null") != 0;

my $node = feed_cluster('clients');
$node->safe_psql('postgres', q{CREATE FOREIGN TABLE t (k text COLLATE "C", v text) SERVER kvfdw OPTIONS (changes 'on');
	CREATE TABLE h (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE h;
	SELECT pg_create_logical_replication_slot('a', 'kvfdw'), pg_create_logical_replication_slot('b', 'pgoutput')});
$node->safe_psql('postgres', q{BEGIN; INSERT INTO t VALUES ('one', '1'), ('large', repeat('x', 100000)), ('null', NULL); INSERT INTO h VALUES (1); SAVEPOINT s;
	DELETE FROM t; ROLLBACK TO s; DELETE FROM t WHERE k = 'one'; COMMIT; TRUNCATE t; INSERT INTO t VALUES ('end', 'e')});
my $expected = "put one 1\nput large xxxxx… 100000\nput null None\ndelete one None\ntruncate  None\nput end e\n";
for my $of ([ a => 'kvfdw' ], [ b => 'pgoutput' ])
{
	my ($out, $err) = run_command([ $python, "$FindBin::RealBin/../clients/feed_client.py", $node->connstr('postgres'), @$of ]);
	is("$out\n", $expected, "plugin $of->[1]") or diag $err;
}
done_testing();
