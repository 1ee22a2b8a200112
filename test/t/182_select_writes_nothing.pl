# Promise: ON CONFLICT DO SELECT (PostgreSQL 19) of keys that exist writes nothing: no WAL and
# no xid, as on heap, at every wal level; with a lock no values, and what it inserts it writes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('select');
plan skip_all => 'PostgreSQL 19 has ON CONFLICT DO SELECT' if $node->safe_psql('postgres', 'SHOW server_version_num') < 190000;

# Bytes of WAL of one statement, that of other processes left out.
sub wal
{
	my ($statement) = @_;
	my $plan = $node->safe_psql('postgres', "EXPLAIN (ANALYZE, WAL, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT json) $statement");
	my ($bytes) = $plan =~ /"WAL Bytes": (\d+)/ or die "no WAL in $plan";
	return $bytes;
}
my $existing = "SELECT g, repeat('x', 4000) FROM generate_series(1, 1000) g";

$node->safe_psql('postgres', "CREATE TABLE heap (k int PRIMARY KEY, v text); INSERT INTO heap $existing; VACUUM (FREEZE) heap; CHECKPOINT");
my $heap_locks = wal("INSERT INTO heap $existing ON CONFLICT (k) DO SELECT FOR UPDATE RETURNING v");
for my $level (qw(full keys none))
{
	my $t = "t_$level";
	$node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k', "wal '$level'") . "INSERT INTO $t $existing");
	for my $state ('recent', 'frozen')
	{
		$node->safe_psql('postgres', "SELECT kvfdw_flush('$t')") if $state eq 'frozen';
		is(wal("INSERT INTO $t $existing ON CONFLICT (k) DO SELECT RETURNING v"), 0, "$level, $state: no WAL");
	}
	is($node->safe_psql('postgres', "BEGIN; INSERT INTO $t $existing ON CONFLICT (k) DO SELECT RETURNING length(v) \\g /dev/null\n"
		. "SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT"), 't', "$level: no xid");
	cmp_ok(wal("INSERT INTO $t $existing ON CONFLICT (k) DO SELECT FOR UPDATE RETURNING v"), '<', 3 * $heap_locks, "$level: locks, and no values");
	cmp_ok(wal("INSERT INTO $t SELECT k + 1000, v FROM ($existing) s (k, v) ON CONFLICT (k) DO SELECT RETURNING v"), '>', $level eq 'full' ? 4_000_000 : -1, "$level: what is inserted is written");
	is($node->safe_psql('postgres', "SELECT count(*), sum(length(v)), min(k), max(k) FROM $t"), '2000|8000000|1|2000', "$level: all rows are there");
}
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SELECT count(*), sum(length(v)) FROM t_full"), '2000|8000000', 'and after a crash');
done_testing();
