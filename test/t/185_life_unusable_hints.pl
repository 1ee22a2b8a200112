# Promise: where a table cannot be used the hint is an action that loses no rows: on a standby of a table at wal
# level keys or none the command that it names, done on the primary, makes the rows appear; a promoted standby
# is not asked to empty what another server has; damage on a standby is mended there, and on a primary from a backup.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvReplica;
use KvTest;

plan skip_all => 'heap is on all servers' if heap_only();
my $node = kv_primary('primary', 'kvfdw.test_carried' => 0);

# The message, detail and hint of a query.
sub said
{
	my ($server, $sql) = @_;
	my ($rc, $out, $err) = $server->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	return join "\n", $err =~ /(?:ERROR|DETAIL|HINT): +(.*)/g;
}

my $rows = '(SELECT g, md5(g::text) FROM generate_series(1, 100) g)';
$node->safe_psql('postgres', 'CREATE SCHEMA "My app";' . join('', map {
	my ($name, $level) = @$_;
	kv_table($name, 'k int, v text', 'k', $level) . "INSERT INTO $name $rows;" }
	[ '"My app"."orders"', "wal 'keys'" ], [ 'cache', "wal 'none'" ], [ 'kept', "wal 'keys'" ], [ 'fine', "wal 'full'" ], [ 'away', "wal 'full'" ]));
my $sum = 'SELECT count(*), sum(k), md5(string_agg(v, \'\' ORDER BY k)) FROM';
my $right = answer($node, "$sum fine");
my $standby = kv_standby($node, 'standby');
my $other = kv_standby($node, 'other');

# ---- a standby; the level does not let rows get there ----

is(said($standby, 'SELECT * FROM kept'), join("\n",
	'55000: cannot access foreign table "kept" on a standby server',
	'The table has the option wal \'keys\', so its rows are not replicated.',
	'Query the primary server. To replicate the table, run there: ALTER FOREIGN TABLE public.kept OPTIONS (SET wal \'full\').'),
	'on a standby the hint tells how to replicate the table');
for my $table ('"My app".orders', 'cache')
{
	my ($command) = said($standby, "SELECT * FROM $table") =~ /run there: (ALTER FOREIGN TABLE .*)\.$/;
	ok($command, "$table: the hint has a command");
	$node->safe_psql('postgres', $command // 'SELECT');
	is(answer($node, "$sum $table"), $right, "$table: done on the primary the table has its rows there");
	caught_up($node, $standby);
	is(answer($standby, "$sum $table"), $right, "$table: and on the standby");
}

# ---- a promoted standby ----

$other->promote;
is(said($other, 'SELECT * FROM kept'), join("\n",
	'55000: rows of foreign table "kept" are not on this server',
	'The table has the option wal \'keys\'; this server was promoted from a standby, or started from a backup.',
	'If another server still has the rows, copy them from there. TRUNCATE makes the table usable here, and empty.'),
	'on a promoted standby it does not ask for what others have');
is(answer($other, "TRUNCATE kept; INSERT INTO kept $rows; $sum kept"), $right, 'and TRUNCATE does that');
$other->stop('immediate');

# ---- damage ----

SKIP:
{
	skip 'needs a build with fault injection', 4 unless has_faults($node);
	$standby->append_conf('postgresql.conf', "kvfdw.stop_points = 'mark_captured=error'\n");
	$standby->restart;
	$node->safe_psql('postgres', q{INSERT INTO away VALUES (0, 'more'); CHECKPOINT});
	caught_up($node, $standby);
	my $damaged = qr/\AXX001: foreign table "away" is unusable on this server\nRecovery failed for it: .*\.\n/;
	like(said($standby, 'SELECT * FROM away'),
		qr/$damaged\QIf the primary server can read the table, re-create this standby server from a new base backup.\E\z/,
		'damage on a standby is mended there');
	is(answer($node, 'SELECT count(*) FROM away'), 101, 'for the primary has the rows');
	$standby->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n");
	$standby->reload;
	$standby->promote;
	like(said($standby, 'SELECT * FROM away'),
		qr/$damaged\QRestore this server from a base backup, or copy the rows from another server. TRUNCATE the table only if its rows are stored elsewhere.\E\z/,
		'damage on a primary is mended from a backup');
	is(answer($standby, "$sum fine"), $right, 'other tables are not affected');
}
$standby->stop('immediate');
$node->stop;
done_testing();
