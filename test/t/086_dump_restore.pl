# Promise: the commands of "Dumps" in docs/how-to/backup.md dump databases with kvfdw tables and mixed
# partitioned tables under one snapshot, while others write, and restore every row: checksums are equal.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap rows are dumped' if heap_only();
my $node = kv_cluster('dumped');
my $dir = $PostgreSQL::Test::Utils::tmp_check;
delete $ENV{PGAPPNAME};		# by which pg_dump would go

# The section's blocks of commands: dump and restore of each.
my ($section) = slurp_file("$FindBin::RealBin/../../docs/how-to/backup.md") =~ /^## Dumps\n(.*?)^## /ms;
my @ways = map { { dump => /^# dump\n(.*?)(?=^# |\z)/ms, restore => /^# restore\n(.*)/ms } } $section =~ /^```sh\n(.*?)^```/msg;
is(@ways, 3, 'three ways are documented');

sub shell
{
	my ($node, $commands, $what) = @_;
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run([ 'bash', '-euo', 'pipefail', '-c', "cd '$dir'; $commands" ], '>', \$out, '2>', \$err);
	ok($ok, $what) or diag($err);
	return $err;
}

# Each table that has rows, with their number and a checksum that does not care for their order.
sub sums
{
	my ($node, $db) = @_;
	my @tables = split /\n/, $node->safe_psql($db, q{SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 'f', 'p') AND relnamespace IN ('public'::regnamespace, 'other'::regnamespace) AND relname NOT LIKE 'account%' ORDER BY relname});
	return join '', map { "$_ " . $node->safe_psql($db, "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM $_ t") . "\n" } @tables;
}

$node->safe_psql('postgres', 'CREATE DATABASE app; CREATE DATABASE plain; CREATE ROLE writer');
$node->safe_psql('plain', 'CREATE TABLE heap AS SELECT generate_series(1, 10) k');
$node->safe_psql('app', q{CREATE EXTENSION kvfdw; CREATE SCHEMA other; CREATE SERVER "Second" FOREIGN DATA WRAPPER kvfdw;
	CREATE DOMAIN small AS int CHECK (VALUE < 100000);
	CREATE TABLE heap (k int PRIMARY KEY, v text);
	INSERT INTO heap SELECT g, md5(g::text) FROM generate_series(1, 2000) g;
	CREATE TABLE mixed (k int, v text, w numeric, d timestamptz DEFAULT now()) PARTITION BY RANGE (k);
	CREATE TABLE mixed_heap PARTITION OF mixed FOR VALUES FROM (0) TO (1000);
	CREATE FOREIGN TABLE mixed_kv PARTITION OF mixed FOR VALUES FROM (1000) TO (2000) SERVER kvfdw OPTIONS (key 'k', shards '4');
	CREATE TABLE mixed_sub PARTITION OF mixed FOR VALUES FROM (2000) TO (3000) PARTITION BY LIST (v);
	CREATE FOREIGN TABLE other."Mixed ""kv"" 3" PARTITION OF mixed_sub FOR VALUES IN ('a', 'b') SERVER "Second" OPTIONS (key 'v, k', wal 'keys');
	CREATE TABLE mixed_default PARTITION OF mixed_sub DEFAULT;
	INSERT INTO mixed SELECT g, CASE WHEN g < 2000 THEN repeat('é', g % 50) WHEN g % 3 = 0 THEN 'a' WHEN g % 3 = 1 THEN 'b' END, g / 7.0 FROM generate_series(0, 2999) g;
	CREATE FOREIGN TABLE odd (b bytea, k small, j jsonb, gen text GENERATED ALWAYS AS (k::text || 'x') STORED, arr text[], CHECK (k >= 0)) SERVER kvfdw OPTIONS (key 'k', wal 'none', on_duplicate 'ignore');
	INSERT INTO odd (b, k, j, arr) SELECT decode(md5(g::text), 'hex'), g, jsonb_build_object('a', g, 'n', NULL), ARRAY['\\', NULL, E'\t\n', g::text] FROM generate_series(0, 999) g;
	CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'a trigger fired'; END $$;
	CREATE TRIGGER forbid BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION forbid();
	CREATE FOREIGN TABLE empty (k int) SERVER kvfdw;
	CREATE FOREIGN TABLE keys_only (k uuid, l text COLLATE "C") SERVER "Second" OPTIONS (key 'k, l');
	INSERT INTO keys_only SELECT md5(g::text)::uuid, g FROM generate_series(1, 500) g;
	CREATE TABLE account_heap (k int PRIMARY KEY, n int);
	CREATE FOREIGN TABLE account_kv (k int, n int) SERVER kvfdw OPTIONS (key 'k');
	INSERT INTO account_heap SELECT g, 100 FROM generate_series(1, 20) g; INSERT INTO account_kv TABLE account_heap});
my $sums = sums($node, 'app');

# Others move money between heap and kvfdw all the time.
my $mover = psql_writer($node, q{\c app
} . join('', map { sprintf "BEGIN; UPDATE account_heap SET n = n - 1 WHERE k = %d; UPDATE account_kv SET n = n + 1 WHERE k = %d; COMMIT;\n", $_ % 20 + 1, $_ % 17 + 1 } 1 .. 200_000), 'mover');
wait_for('money to move', 180, sub { $node->safe_psql('app', 'SELECT count(*) FROM account_kv WHERE n > 100') > 0 });

my $one = '--include-foreign-data=kvfdw';
(my $first = $ways[0]{dump}) =~ s/$one\b/$one --include-foreign-data='"Second"'/;
for my $way ([ $first . $ways[0]{restore}, 'one after another' ], [ $ways[1]{dump} . $ways[1]{restore}, 'in parallel' ])
{
	my $err = shell($node, $way->[0], $way->[1]);
	like($err, qr/^WARNING:  rows of kvfdw tables are not dumped/, '… with the warning');
	is(sums($node, 'restored'), $sums, '… has the same rows');
	is($node->safe_psql('restored', 'SELECT (SELECT sum(n) FROM account_heap) + (SELECT sum(n) FROM account_kv)'), 4000, '… of one snapshot');
	is($node->safe_psql('restored', q{SELECT string_agg(c::text, '') FROM pg_foreign_table t, kvfdw_check(t.ftrelid) c}), '', '… which kvfdw_check finds whole');
	is($node->safe_psql('restored', q{SELECT count(*) FROM pg_trigger WHERE tgrelid = 'odd'::regclass AND tgenabled = 'O'}), 1, '… and their triggers');
	$node->safe_psql('postgres', 'DROP DATABASE restored');
}

# Without the option a mixed partitioned table comes back with half of its rows.
shell($node, 'pg_dump -Fc -f half.dump app; createdb half; pg_restore -d half half.dump', 'a dump without the option');
isnt(sums($node, 'half'), $sums, '… lacks rows');
shell($node, "pg_dump -Fc --load-via-partition-root $one --include-foreign-data='\"Second\"' -f root.dump app; createdb root; pg_restore -d root root.dump", 'a dump that loads by the roots of partitions');
is(sums($node, 'root'), $sums, '… has the same rows');
$node->safe_psql('postgres', 'DROP DATABASE half; DROP DATABASE root');

# All databases, into another server.
shell($node, $ways[2]{dump}, 'all databases');
$mover->{handle}->kill_kill;
my $new = kv_cluster('restored');
shell($new, 'psql -Xq -d postgres -f globals.sql; pg_restore -d postgres --create app.dump; pg_restore -d postgres --create plain.dump', '… restored in another server');
is(sums($new, 'app'), $sums, '… have the same rows');
is($new->safe_psql('plain', 'SELECT count(*) FROM heap'), 10, '… also where there is no kvfdw');
is($new->safe_psql('postgres', q{SELECT count(*) FROM pg_roles WHERE rolname = 'writer'}), 1, '… and roles');
done_testing();
