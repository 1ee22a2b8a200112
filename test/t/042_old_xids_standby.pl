# Promise: rows on a standby stay what they are when it replays that old transaction
# outcomes are removed, with queries and without, restarted, killed and promoted; a table
# that is not usable there can be truncated after that.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;
use KvXid;

my $node = kv_primary('p', 'kvfdw.flush_after' => 86400);
$node->stop;
jump_to($node, 3 * SEGMENT - 32768);
$node->start;
twin_tables($node);
$node->safe_psql('postgres', kv_table('keys_kv', 'k int, v text', 'k', q{wal 'keys'}) . kv_table('quiet_kv', 'k int, v text', 'k') . 'CREATE TABLE quiet_heap (k int PRIMARY KEY, v text);');

sub on_both { my ($sql) = @_; return join('', map { my $t = $_; $sql =~ s/%s/$t/gr . ';' } 'twin_kv', 'twin_heap'); }
sub quiet { my ($sql) = @_; return join('', map { my $t = $_; $sql =~ s/%s/$t/gr . ';' } 'quiet_kv', 'quiet_heap'); }
my $round = 0;
sub change
{
	$round++;
	$node->safe_psql('postgres', on_both("INSERT INTO %s SELECT $round, i, repeat('a', i) FROM generate_series(1, 300) i"));
	$node->safe_psql('postgres', on_both("UPDATE %s SET v = 'u$round' WHERE i % 3 = 0"));
	$node->safe_psql('postgres', 'BEGIN;' . on_both('DELETE FROM %s') . 'ROLLBACK');
	$node->safe_psql('postgres', on_both("DELETE FROM %s WHERE i % 7 = 0"));
	$node->safe_psql('postgres', 'TRUNCATE keys_kv') if !heap_only();
	$node->safe_psql('postgres', "INSERT INTO keys_kv SELECT g, 'k$round' FROM generate_series(1, 10) g");
	return;
}
# Go on to segment $n of pg_xact; the ones before are removed.
sub go_to_segment
{
	my ($n) = @_;
	burn_to($node, $n * SEGMENT - 5);
	change();
	burn($node, 1000);
	wait_for('old outcomes to be noted', sub { settled_below($node) >= $n * SEGMENT }) if !heap_only();
	wait_for('VACUUM to remove a segment', sub { freeze_all($node); (segments($node))[0] == $n });
	return;
}
sub twins
{
	my ($s, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', $what);
	is(tables_differ($s, 'quiet_kv', 'quiet_heap', 'k'), '', "$what: and a table that was left alone");
	is(rows_of($s, 'twin_kv', 'w, i'), rows_of($node, 'twin_kv', 'w, i'), "$what: as on the primary");
	return;
}

$node->safe_psql('postgres', quiet(q{INSERT INTO %s SELECT g, 'q' FROM generate_series(1, 100) g}));
$node->safe_psql('postgres', 'BEGIN;' . quiet(q{UPDATE %s SET v = 'never'}) . 'ROLLBACK;' . quiet(q{DELETE FROM %s WHERE k = 5}));
change();
my @standbys = map { kv_standby($node, $_, hot_standby => $_ =~ /blind/ ? 'off' : 'on', ($_ =~ /idle/ && has_faults($node) ? ('kvfdw.stop_points' => q{'maintainer_idle=wait'}) : ())) } 'hot', 'idle', 'blind', 'blindkilled';
caught_up($node, $_) for @standbys;
$standbys[3]->restart;
go_to_segment(3);
caught_up($node, $_) for @standbys;
for my $s (@standbys)
{
	if ($s->name =~ /killed/) { kill_all($s); $s->start; caught_up($node, $s); }
	is((segments($s))[0] // 3, 3, $s->name . ': old outcomes are gone');
	twins($s, $s->name) if $s->name !~ /blind/;
}
change();
$node->safe_psql('postgres', 'CHECKPOINT');
caught_up($node, $_) for @standbys;
for my $s (@standbys)
{
	$s->stop($s->name =~ /hot|idle/ ? 'immediate' : 'fast');
	$s->start;
	caught_up($node, $s);
	if ($s->name =~ /idle/) { $s->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n"); $s->stop('immediate'); $s->start; caught_up($node, $s); }
	promote_blind($s);
	twins($s, $s->name . ', promoted');
	sound($s, $s->name . ', promoted');
	next if heap_only();
	unusable($s, $s->name, 'keys_kv');
	is(answer($s, q{TRUNCATE keys_kv; INSERT INTO keys_kv VALUES (1, 'new'); SELECT * FROM keys_kv}), '1|new', $s->name . ': a table that cannot be used can be truncated');
}
done_testing();
