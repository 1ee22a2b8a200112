# Promise: without shared_preload_libraries the extension installs, the first
# use of a table is an error whose hint is the exact line to add, and adding
# that line is all it takes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $line = "shared_preload_libraries = 'kvfdw'";
my $node = PostgreSQL::Test::Cluster->new('preload');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\n");
$node->start;

my ($rc, $out, $err) = $node->psql('postgres', 'CREATE EXTENSION kvfdw');
is($rc, 0, 'the extension installs');
like($err, qr/WARNING:  kvfdw must be loaded via "shared_preload_libraries"\nHINT:[^\n]*\Q$line\E/, 'and warns, with the line to add');
($rc, $out, $err) = $node->psql('postgres', 'DROP EXTENSION kvfdw; LOAD \'kvfdw\'; CREATE EXTENSION kvfdw');
is(scalar(() = $err =~ /WARNING:  kvfdw must be loaded/g), 1, 'also where the library is there already, once');
$node->safe_psql('postgres', "CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw OPTIONS (key 'k')");
pass('a table can be created');
($rc, $out, $err) = $node->psql('postgres', "CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (keys 'k')");
like($err, qr/ERROR:  invalid option "keys"/, 'options are checked');
for my $sql ("SELECT * FROM t", "SELECT count(*) FROM t WHERE k = 1", "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'b'",
	"DELETE FROM t", "TRUNCATE t", "COPY t FROM PROGRAM 'echo 1'", "ANALYZE t", "SELECT kvfdw_check('t')", "SELECT kvfdw_flush('t')",
	"SELECT kvfdw_relation_size('t')", "EXPLAIN ANALYZE SELECT * FROM t")
{
	($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql", on_error_stop => 1);
	like($err, qr/ERROR:  55000: .*HINT:[^\n]*\Q$line\E/s, "first use errors with the line to add: $sql");
}
($rc, $out, $err) = $node->psql('postgres', "DROP FOREIGN TABLE t; CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw; ALTER FOREIGN TABLE t ADD COLUMN w int");
is($err, '', 'DDL works without the library preloaded');
($rc, $out, $err) = $node->psql('postgres', "LOAD 'kvfdw'; SELECT * FROM t");
like($err, qr/\Q$line\E/, 'LOAD is not enough');
$node->safe_psql('postgres', 'SELECT count(*) FROM pg_class');
pass('the rest of the server works');

$node->append_conf('postgresql.conf', "$line\n");
$node->restart;
is($node->safe_psql('postgres', "INSERT INTO t VALUES (1, 'a'); SELECT * FROM t"), '1|a|', 'with the line it works');
$node->restart;
is($node->safe_psql('postgres', "SELECT * FROM t"), '1|a|', 'and after a restart too');

# taken out again: the data waits
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
($rc, $out, $err) = $node->psql('postgres', 'SELECT * FROM t');
like($err, qr/\Q$line\E/, 'taken out again: an error, not an empty table');
$node->append_conf('postgresql.conf', "$line\n");
$node->restart;
is($node->safe_psql('postgres', "SELECT * FROM t"), '1|a|', 'put back: the row is there');
$node->stop;
done_testing();
