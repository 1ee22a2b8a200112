# Promise: after pg_upgrade, which leaves the directory kvfdw behind, using a kvfdw table
# is an error (55000) that says so, never an empty table; definitions are as they were,
# and TRUNCATE is the way out.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is upgraded' if heap_only();
my $old = kv_cluster('old');
$old->safe_psql('postgres', kv_table('written', 'k int, c bigint, v text', 'k') . kv_table('dropped', 'a text, k int, v text, w uuid', 'k')
	  . "CREATE TABLE parent (x text, k int, v text) PARTITION BY RANGE (k); ALTER TABLE parent DROP COLUMN x;
	CREATE FOREIGN TABLE part PARTITION OF parent FOR VALUES FROM (1) TO (10) SERVER kvfdw OPTIONS (key 'k');
	CREATE TABLE heap (k int); INSERT INTO heap VALUES (1);
	INSERT INTO written VALUES (1, 2, 'three'); INSERT INTO dropped VALUES ('a', 1, 'v', NULL); INSERT INTO part VALUES (5, 'five');
	ALTER FOREIGN TABLE written ALTER c TYPE int; ALTER FOREIGN TABLE written DROP COLUMN c; ALTER FOREIGN TABLE dropped DROP COLUMN a;");
# a table whose first column, its key, was dropped while it was empty
$old->safe_psql('postgres', 'CREATE FOREIGN TABLE first (j int, k int, v text) SERVER kvfdw; ALTER FOREIGN TABLE first DROP COLUMN j');
# definitions that are refused now, made when the library was not there to look
$old->safe_psql('postgres', "CREATE FOREIGN TABLE renamed (k int, v text) SERVER kvfdw OPTIONS (key 'k'); ALTER FOREIGN TABLE renamed RENAME k TO key");
is($old->safe_psql('postgres', 'TABLE written; TABLE dropped; TABLE parent'), "1|three\n1|v|\n5|five", 'the old server has the rows');
my $definitions = q{SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod), ftoptions FROM pg_attribute JOIN pg_foreign_table ON ftrelid = attrelid WHERE attnum > 0 AND NOT attisdropped ORDER BY attrelid::regclass::text, attnum};
my $before = $old->safe_psql('postgres', $definitions);
$old->stop;

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\nfsync = off\n");
my $bin = $old->config_data('--bindir');
chdir $PostgreSQL::Test::Utils::tmp_check;
delete $ENV{PGAPPNAME};		# by which pg_dump would go
command_ok([ 'pg_upgrade', '--no-sync', '--retain', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin, '-s', $new->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
unlike(join('', map { slurp_file($_) } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*')), qr/^WARNING/m, 'its dumps, which take no rows, warn of none');
$new->start;
is($new->safe_psql('postgres', $definitions), $before, 'the definitions are the same');
is($new->safe_psql('postgres', 'TABLE heap'), '1', 'heap tables have their rows');
for my $t (qw(written dropped parent part))
{
	for my $sql ("SELECT * FROM $t", "SELECT count(*) FROM $t", "INSERT INTO $t (k) VALUES (7)")
	{
		my ($rc, $out, $err) = $new->psql('postgres', "\\set VERBOSITY verbose\n$sql");
		like($err, qr/ERROR:  55000: data of foreign table "\w+" is missing\n.*HINT:  .*pg_upgrade/s, $sql);
	}
}
is($new->safe_psql('postgres', "TRUNCATE written, part; INSERT INTO written VALUES (1, 'again'); INSERT INTO parent VALUES (6, 'six'); TABLE written; TABLE parent"), "1|again\n6|six", 'TRUNCATE makes them usable');
is($new->safe_psql('postgres', q{DROP FOREIGN TABLE dropped; CREATE FOREIGN TABLE fresh (k int) SERVER kvfdw; SELECT count(*) FROM fresh}), '0', 'DROP works, new tables are empty');
$new->stop;
done_testing();
