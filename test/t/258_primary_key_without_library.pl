# Promise: in a server that does not preload the library, a primary key of a kvfdw table harms no session: statements fail by
# name, also those that PostgreSQL would crash in, and what a statement there left behind is made good by the next ALTER.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap needs no library' if heap_only();
my $node = kv_cluster('bare');
$node->safe_psql('postgres', q{CREATE ROLE owner; CREATE ROLE other; CREATE TABLE h (id int PRIMARY KEY);
	CREATE FOREIGN TABLE t (id int PRIMARY KEY, v text) SERVER kvfdw; INSERT INTO t VALUES (1, 'a');
	CREATE TABLE p (id int, v text) PARTITION BY RANGE (id); CREATE FOREIGN TABLE p1 PARTITION OF p (id PRIMARY KEY) FOR VALUES FROM (0) TO (10) SERVER kvfdw});
$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->start;

# each in a session of its own, in which the library is loaded by nothing before
my $needs = qr/kvfdw must be loaded via "shared_preload_libraries"/;
my $none = qr/primary key constraints are not supported on foreign tables/;
my $rebuild = qr/cannot rebuild index "t_pkey\w*" of access method "kvfdw"/;
for my $case (
	[ 'EXPLAIN SELECT * FROM t WHERE id = 1', $needs ],
	[ 'SELECT h.id FROM h LEFT JOIN t USING (id)', qr/^$/ ], # t is not read
	[ 'INSERT INTO t VALUES (2)', $needs ],
	[ 'INSERT INTO t VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING', qr/./ ],
	[ 'INSERT INTO p VALUES (1) ON CONFLICT DO NOTHING', qr/./ ],
	[ 'COPY t FROM stdin', $needs ],
	[ 'DELETE FROM t', $needs ],
	[ 'ANALYZE t', $needs ],
	[ 'REINDEX INDEX t_pkey', $rebuild ],
	[ 'REINDEX INDEX CONCURRENTLY t_pkey', $rebuild ],
	[ 'CREATE INDEX ON h USING kvfdw (id)', qr/access method "kvfdw" is for kvfdw tables only/ ],
	[ 'ALTER INDEX t_pkey SET (fillfactor = 70)', qr/no storage parameters/ ],
	[ 'CREATE FOREIGN TABLE t2 (id int PRIMARY KEY) SERVER kvfdw', $none ],
	[ 'ALTER FOREIGN TABLE p1 DROP CONSTRAINT p1_pkey, ADD PRIMARY KEY (id)', $none ],
	[ 'ALTER FOREIGN TABLE t ALTER COLUMN id TYPE bigint', $none ],
	[ 'ALTER TABLE t ALTER COLUMN id DROP NOT NULL', qr/column "id" is in a primary key/ ])
{
	my ($sql, $error) = @$case;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	like($err, $error, $sql);
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname LIKE 't\_pkey\_ccnew%'}), 1, 'an index is left that CONCURRENTLY could not build, as on heap');
is($node->safe_psql('postgres', q{SELECT pg_get_indexdef('t_pkey'::regclass), pg_relation_size('t_pkey')}), 'CREATE UNIQUE INDEX t_pkey ON public.t USING kvfdw (id)|0', 'the catalog can be read');
$node->safe_psql('postgres', 'DROP INDEX t_pkey_ccnew');
$node->safe_psql('postgres', 'CREATE TABLE like_t (LIKE t INCLUDING ALL)');
is($node->safe_psql('postgres', q{SELECT pg_get_indexdef('like_t_pkey'::regclass)}), 'CREATE UNIQUE INDEX like_t_pkey ON public.like_t USING btree (id)', 'LIKE makes an index of heap');
$node->safe_psql('postgres', $_) for 'ALTER FOREIGN TABLE t OWNER TO owner', 'ALTER FOREIGN TABLE t RENAME COLUMN id TO k', 'DROP FOREIGN TABLE p1';
my $owners = q{SELECT relname, relowner::regrole FROM pg_class WHERE relname IN ('t', 't_pkey') ORDER BY 1};
is($node->safe_psql('postgres', $owners), "t|owner\nt_pkey|postgres", 'the owner of the index does not follow without the library');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process crashed');

$node->stop;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\n");
$node->start;
my (undef, undef, $error) = $node->psql('postgres', 'TABLE t');
like($error, qr/key column "id" of foreign table "t" does not exist/, 'nor does the option key');
$node->safe_psql('postgres', q{ALTER FOREIGN TABLE t OPTIONS (SET key 'k')});
is($node->safe_psql('postgres', $owners), "t|owner\nt_pkey|owner", 'with it, the next ALTER gives the index to the owner');
(undef, undef, $error) = $node->psql('postgres', 'INSERT INTO t VALUES (1)');
like($error, qr/violates unique constraint "t_pkey"/, 'the table is used as before');
is($node->safe_psql('postgres', 'TABLE t'), '1|a', '... with its row');

# an extension that was created by an older script
$node->safe_psql('postgres', q{CREATE DATABASE old});
$node->safe_psql('old', q{CREATE EXTENSION kvfdw; ALTER EXTENSION kvfdw DROP ACCESS METHOD kvfdw; ALTER EXTENSION kvfdw DROP OPERATOR CLASS kvfdw_ops USING kvfdw;
	ALTER EXTENSION kvfdw DROP OPERATOR FAMILY kvfdw_ops USING kvfdw; DROP ACCESS METHOD kvfdw CASCADE; CREATE FOREIGN TABLE t (id int) SERVER kvfdw});
for my $sql ('CREATE FOREIGN TABLE no (id int PRIMARY KEY) SERVER kvfdw', 'ALTER FOREIGN TABLE t ADD PRIMARY KEY (id)')
{
	(undef, undef, $error) = $node->psql('old', $sql);
	like($error, qr/extension "kvfdw" of this database has another version than the loaded library/, "$sql, with an older script");
}
is($node->safe_psql('old', 'INSERT INTO t VALUES (1); TABLE t'), 1, '... whose tables are used as before');
$node->stop;
done_testing();
