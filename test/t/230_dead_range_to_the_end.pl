# Promise: a snapshot that cannot use a dead range up to the highest key, and notes a part of it, takes no other key along,
# at either end and beside other ranges; all snapshots go on to see what heap shows.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has other means' if heap_only();
my $node = kv_cluster('dead_end', 'kvfdw.flush_after' => 3600, 'kvfdw.test_compactions' => 'off', 'kvfdw.test_splits' => 'off');
my $state = 'SELECT count(*), min(k), max(k) FROM %s; SELECT count(v), sum(k) FROM (SELECT * FROM %s ORDER BY k) x; SELECT count(v), sum(k) FROM (SELECT * FROM %s ORDER BY k DESC) x;';

sub query { return $node->safe_psql('postgres', @_); }
sub both { my ($sql) = @_; return join '', map { my $t = $_; $sql =~ s/%s/$t/gr . ';' } 't', 'heap'; }
sub states { return map { my $t = $_; $state =~ s/%s/$t/gr } 't', 'heap'; }

for my $frozen (1, 0)
{
	for my $case (['the tail', 'k > 11000', 'k BETWEEN 9000 AND 11000', 'DESC'], ['the head', 'k <= 1000', 'k BETWEEN 1001 AND 3000', 'ASC'],
		['all but the middle', 'k > 11000 OR k <= 1000', 'k BETWEEN 9000 AND 11000 OR k BETWEEN 1001 AND 3000', 'DESC'], ['each second row', 'k % 2 = 0 OR k > 11000', 'k % 2 = 1 AND k > 3000', 'DESC'])
	{
		my ($what, $before, $after, $direction) = @$case;
		$what .= $frozen ? ', in runs' : ', in a memtable';
		query('SET client_min_messages = warning; DROP FOREIGN TABLE IF EXISTS t; DROP TABLE IF EXISTS heap; CREATE TABLE heap (k bigint PRIMARY KEY, v text);' . kv_table('t', 'k bigint NOT NULL, v text', 'k'));
		query(both("INSERT INTO %s SELECT g, 'v' || g FROM generate_series(1, 12000) g"));
		query(q{SELECT kvfdw_flush('t')}) if $frozen;
		query(both("DELETE FROM %s WHERE $before"));
		my $old = in_steps($node, "old$frozen$direction" . length $what, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;\\echo step\n", map { my ($t, $heap) = states(); "$t\\echo and\n$heap\\echo step\n" } 1 .. 2);
		step_done($old);
		query(both("DELETE FROM %s WHERE $after"));
		query("SELECT k FROM t ORDER BY k $direction LIMIT 1") for 1 .. 3;
		# it sees those rows, and what was deleted before it was taken is dead to it
		step_go($old) for 1 .. 2;
		my ($t, $heap) = map { query($_) } states();
		is($t, $heap, "$what: a new snapshot sees what it sees of heap");
		step_go($old);
		my (undef, @seen) = split /^step\n/m, outcome($old->{w});
		for my $n (0, 1)
		{
			my ($kv, $of_heap) = split /^and\n/m, $seen[$n];
			is($kv, $of_heap, "$what: so does an old one, $n");
		}
	}
}
done_testing();
