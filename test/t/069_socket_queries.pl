# Promise: queries that the tests send over the server's socket say what psql says: rows,
# messages, the number of a failed statement's line and the exit code (KvPsql.pm).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('queries');
my @sql = (
	'', ';;', "SELECT 1;\nSELECT 2, NULL, 'a|b';\n\n", 'SELECT; SELECT FROM generate_series(1, 3); SELECT $1',
	'SELECT 1; SELEC 2; SELECT 3', "SELECT 1;\n\nSELECT none\nFROM nowhere; SELECT 4", "SELECT 1 AS x;\nSELECT\n  2\n  ;\n SELECT 1 / 0;  ",
	'CREATE TEMP TABLE a (k int PRIMARY KEY); INSERT INTO a VALUES (1); INSERT INTO a VALUES (1)', 'DROP TABLE IF EXISTS none; DROP TABLE none',
	q{DO $$ BEGIN RAISE NOTICE 'hi; %', 1; END $$; SELECT $a$ ; $$ x $a$}, q{DO $x$ BEGIN RAISE EXCEPTION 'bad' USING DETAIL = 'd', HINT = 'h'; END $x$},
	qq{SELECT '; ' -- ; \n, "oid" /* ; ' */ FROM pg_class LIMIT 0; SELECT 'it''s', 'käse\nof two'}, 'BEGIN; SELECT 1; ROLLBACK; VACUUM pg_class; CHECKPOINT',
	'CREATE TEMP TABLE b (k int); CREATE RULE r AS ON INSERT TO b DO ALSO (SELECT 1; SELECT 2); INSERT INTO b VALUES (1)', 'SELECT (1;2); SELECT 3',
	'SELECT 1 / (g - 5) FROM generate_series(1, 10) g; SELECT count(*) FROM generate_series(1, 10000)', "SET none = 1; SELECT repeat('x', 100000)\n",
	'SELECT pg_terminate_backend(pg_backend_pid()); SELECT 2');
sub both
{
	my ($db, $sql, $what, @more) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @wire = $node->psql($db, $sql, @more);
	local $ENV{KV_PSQL} = 1;
	return is_deeply(\@wire, [ $node->psql($db, $sql, @more) ], $what // $sql =~ s/\s+/ /gr);
}
for my $sql (@sql) { both('postgres', $sql, undef, on_error_stop => $_) for 0, 1; }
# psql ends before it reads what it is to ask
both('none', '', 'no such database');
{
	local @ENV{qw(PGOPTIONS PGAPPNAME)} = ('-c work_mem=123kB', 'me');
	is($node->safe_psql('postgres', 'SHOW work_mem; SHOW application_name'), "123kB\nme", 'settings for the session');
}
is(eval { $node->safe_psql('postgres', 'SELECT 1 / 0'); 1 }, undef, 'an error of a query that must not fail');
like($@, qr/^error running SQL: 'psql:<stdin>:1: ERROR:  division by zero'/, 'is told');
# a session outlives its client for a moment
ok(eval { wait_for('sessions to end', sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name = '069_socket_queries.pl'}) == 1 }) }, 'no session is left');
$node->stop;
both('postgres', '', 'no server');
done_testing();
