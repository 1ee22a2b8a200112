# Promise: pg_dump has primary keys of kvfdw tables as it has heap's, after the rows and in the order of dependencies,
# and a database restored from it is the same, with psql or pg_restore, also over the old one.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is dumped' if heap_only();
my $node = kv_cluster('dump');
my $dir = $PostgreSQL::Test::Utils::tmp_check;
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;

sub said
{
	my (@command) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([@command], '>', \$out, '2>', \$err) or fail("@command: $err");
	return $out;
}
sub dump_of { my ($db, @options) = @_; return said('pg_dump', @options, $db); }

my $rows = 'SELECT * FROM "Odd Name" ORDER BY 1; SELECT * FROM s.two ORDER BY b, a; SELECT * FROM parted ORDER BY k; SELECT * FROM view ORDER BY 1; SELECT * FROM never';
my $keys = q{SELECT conrelid::regclass, conname, pg_get_constraintdef(o.oid), pg_get_indexdef(conindid), obj_description(o.oid, 'pg_constraint'), obj_description(conindid, 'pg_class'),
	c.relowner::regrole, i.relowner::regrole, (SELECT string_agg(x, ' ' ORDER BY x) FROM unnest(ftoptions) x), attnotnull FROM pg_constraint o JOIN pg_class c ON c.oid = conrelid JOIN pg_class i ON i.oid = conindid JOIN pg_foreign_table ON ftrelid = c.oid
	JOIN pg_attribute a ON attrelid = c.oid AND attnum = conkey[1] WHERE contype = 'p' ORDER BY conname};
$node->safe_psql('postgres', 'CREATE ROLE owner; CREATE DATABASE d');
$node->safe_psql('d', q{CREATE EXTENSION kvfdw; CREATE SCHEMA s AUTHORIZATION owner;
	CREATE FOREIGN TABLE "Odd Name" ("the Id" int CONSTRAINT "the Key" PRIMARY KEY, v text) SERVER kvfdw OPTIONS (wal 'keys');
	CREATE FOREIGN TABLE s.two (a int, b text COLLATE "C", v text, PRIMARY KEY (b, a)) SERVER kvfdw;
	CREATE FOREIGN TABLE never (id bigserial PRIMARY KEY, v int DEFAULT 7 CHECK (v > 0)) SERVER kvfdw;
	CREATE FOREIGN TABLE none (k int NOT NULL, v int) SERVER kvfdw;
	CREATE TABLE parted (k int, v text) PARTITION BY RANGE (k);
	CREATE FOREIGN TABLE part PARTITION OF parted (PRIMARY KEY (k)) FOR VALUES FROM (0) TO (10) SERVER kvfdw;
	CREATE TABLE heap_part PARTITION OF parted (PRIMARY KEY (k)) FOR VALUES FROM (10) TO (20);
	CREATE VIEW view AS SELECT "the Id", v FROM "Odd Name" GROUP BY "the Id";
	COMMENT ON CONSTRAINT "the Key" ON "Odd Name" IS 'a comment'; COMMENT ON INDEX "the Key" IS 'another';
	ALTER FOREIGN TABLE s.two OWNER TO owner;
	INSERT INTO "Odd Name" SELECT g, 'v' || g FROM generate_series(1, 100) g; INSERT INTO s.two VALUES (1, 'x', 'y'), (2, 'x', 'z');
	INSERT INTO parted VALUES (1, 'one'), (11, 'eleven')});
my ($had, $described) = map { $node->safe_psql('d', $_) } $rows, $keys;

# ---- the text ----

my $text = dump_of('d', '--schema-only');
my @added = $text =~ /^(ALTER (?:FOREIGN )?TABLE ONLY \S+(?: Name")?\n    ADD CONSTRAINT .*)$/mg;
is(join("\n", map { s/\n +/ /r } @added), <<'EOT' =~ s/\n\z//r, 'the dump adds each constraint to its table');
ALTER TABLE ONLY public.heap_part ADD CONSTRAINT heap_part_pkey PRIMARY KEY (k);
ALTER FOREIGN TABLE ONLY public.never ADD CONSTRAINT never_pkey PRIMARY KEY (id);
ALTER FOREIGN TABLE ONLY public.part ADD CONSTRAINT part_pkey PRIMARY KEY (k);
ALTER FOREIGN TABLE ONLY public."Odd Name" ADD CONSTRAINT "the Key" PRIMARY KEY ("the Id");
ALTER FOREIGN TABLE ONLY s.two ADD CONSTRAINT two_pkey PRIMARY KEY (b, a);
EOT
unlike($text, qr/ACCESS METHOD|OPERATOR CLASS|kvfdw_ops/, '... and nothing that the extension has');
my $whole = dump_of('d', '--include-foreign-data=kvfdw');
ok(index($whole, 'COPY public."Odd Name"') < index($whole, 'ADD CONSTRAINT "the Key"'), '... after the rows');

# ---- restored ----

sub compare
{
	my ($db, $how) = @_;
	is($node->safe_psql($db, $keys), $described, "$how: primary keys");
	is($node->safe_psql($db, $rows), $had, "$how: rows");
	my (undef, undef, $error) = $node->psql($db, 'INSERT INTO "Odd Name" VALUES (7, NULL)');
	like($error, qr/violates unique constraint "the Key"/, "$how: conflicts");
	is($node->safe_psql($db, q{INSERT INTO "Odd Name" VALUES (7, 'up') ON CONFLICT ON CONSTRAINT "the Key" DO UPDATE SET v = 'v7' RETURNING v}), 'v7', "$how: ON CONFLICT");
	is(dump_of($db, '--schema-only') =~ s/^\\(un)?restrict.*$//mgr, $text =~ s/^\\(un)?restrict.*$//mgr, "$how: the same dump");
	return;
}
append_to_file("$dir/d.sql", $whole);
$node->safe_psql('postgres', 'CREATE DATABASE by_psql; CREATE DATABASE by_restore; CREATE DATABASE by_jobs');
said('psql', '-X', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/d.sql", 'by_psql');
compare('by_psql', 'psql');
said('pg_dump', '-Fc', '--include-foreign-data=kvfdw', '-f', "$dir/d.dump", 'd');
said('pg_restore', '--exit-on-error', '-d', 'by_restore', "$dir/d.dump");
compare('by_restore', 'pg_restore');
said('pg_restore', '--exit-on-error', '--clean', '--if-exists', '-d', 'by_restore', "$dir/d.dump");
compare('by_restore', 'pg_restore --clean');
said('pg_restore', '--exit-on-error', '-j', '3', '-d', 'by_jobs', "$dir/d.dump");
compare('by_jobs', 'pg_restore -j');
is($node->safe_psql('by_psql', 'ANALYZE; SELECT count(*) FROM none'), 0, 'a table without a primary key has none');
$node->stop;
done_testing();
