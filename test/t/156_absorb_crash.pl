# Promise: wherever the server is killed, or the power goes, while a shard that has no rows any more is joined to its
# neighbour, which then gets its keys, and at every level: all rows are there and found by
# their keys, kvfdw_check finds nothing, and no file stays of a shard that the map does not have (I 14, I 18).
# Each point is met at one level and in one way, with KV_ALL=1 at all of them in both.  What is lost at level none is counted.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMaps;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('absorb_crash', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.max_space_amplification' => 0);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
my @levels = qw(full keys none);
my $round = 0;

sub query { return $node->safe_psql('postgres', @_); }
sub told { my ($what) = @_; return query("SELECT $what FROM kvfdw_stat_tables WHERE relid = 't'::regclass"); }
sub directory { my $oid = query(q{SELECT 't'::regclass::oid}); my ($dir) = glob "$data/kvfdw/5/$oid/0*"; return $dir; }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }

# A worker that joins the shards, or makes that last, stopped at a point.
sub absorb_until
{
	my ($point) = @_;
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	worker_stop_points($node, "$point=wait");
	query('ALTER SYSTEM SET kvfdw.test_shard_kb = 1000000');
	$node->reload;
	stopped($node, $point);
	return;
}

sub killed
{
	my ($how, $dir, $durable, $point) = @_;
	kill_all($node);
	lose_unsynced($node, $dir, $durable, $point, $how, "boot$round") if $how ne 'killed';
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\nkvfdw.test_shard_kb = 0");
	restart_killed($node);
	return;
}

# The table has two shards, and one of them nothing but value files: the second, or the first.
sub meet
{
	my ($level, $point, $how) = @_;
	my $when = "$level, $how at $point";
	my $emptied = $round++ % 2 ? 'k <= 300' : 'k > 1000';
	query('DROP FOREIGN TABLE IF EXISTS t; TRUNCATE heap;' . kv_table('t', 'k int, v text', 'k', "wal '$level', shards '1'"));
	both(q{INSERT INTO T SELECT g, rpad(md5(g::text), 500, 'q') FROM generate_series(1, 300) g});
	is(query(q{SELECT kvfdw_cut('t')}), 2, "$when: a table is cut");
	both(q{INSERT INTO T SELECT g, rpad(md5(g::text), 500, 'q') FROM generate_series(1001, 1300) g});
	query('CHECKPOINT');
	both("DELETE FROM T WHERE $emptied");
	query(q{SELECT kvfdw_flush('t'), pg_current_xact_id()});
	wait_for('chunks to go', sub { told('obsolete_value_files') == 0 });
	query('CHECKPOINT') if $how ne 'killed';
	my $dir = directory();
	my %durable = map { $_ => 1 } glob "$dir/*";
	absorb_until($point);
	is(told('shards'), 1, "$when: and joined again") if $point ne 'map_appended';

	# the neighbour gets rows of both; what a power cut takes of that at level none is another test's
	both(q{INSERT INTO T SELECT g, rpad(md5(g::text), 900, 'n') FROM generate_series(1, 1400, 7) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v; DELETE FROM T WHERE k % 11 = 0})
	  if $point ne 'map_appended' && ($level ne 'none' || $how eq 'killed');
	killed($how, $dir, \%durable, $point);
	same_as_heap($node, $when);
	is(query('SELECT count(*) FROM generate_series(1, 1400) g WHERE EXISTS (SELECT FROM t WHERE k = g)'), query('SELECT count(*) FROM heap'), "$when: each is found by its key");
	# where there is a WAL the map before counts until all shards have marks
	is(told('shards'), $point =~ /^(?:mark_written|map_marked|map_done)$/ || $level eq 'none' && $how eq 'killed' ? 1 : 2, "$when: the map");
	map_settles($node, 't', $dir, $when);
	both(q{INSERT INTO T SELECT g, 'again' FROM generate_series(1, 1400) g ON CONFLICT (k) DO UPDATE SET v = 'again'});
	query(q{SELECT kvfdw_split('t')}) if $ENV{KV_ALL};
	same_as_heap($node, "$when, gone on with");
	return;
}

query('CREATE TABLE heap (k int PRIMARY KEY, v text)');
my @cases;
for my $point (qw(map_appended mark_captured mark_written map_marked map_done))
{
	my @ways = ('killed', 'power', $point =~ /^(?:map_appended|mark_captured)$/ ? 'power but for the map' : ());
	push @cases, map { [ $point, $_ ] } $ENV{KV_ALL} || $point eq 'map_appended' ? @ways : $ways[ @cases % 2 ];
}
for my $at (0 .. $#levels)
{
	for (grep { $ENV{KV_ALL} || $_ % @levels == $at } 0 .. $#cases) { meet($levels[$at], @{ $cases[$_] }); }
}

# ---- level none: a shard that is empty is joined to the one behind it, and what that gets is lost ----
for my $how (qw(killed power))
{
	my $q = sub { my ($what) = @_; return query("SELECT $what FROM kvfdw_stat_tables WHERE relid = 'q'::regclass"); };
	query(kv_table('q', 'k int, v text', 'k', "wal 'none', shards '1'") . q{INSERT INTO q SELECT g, repeat('q', 500) FROM generate_series(1, 300) g});
	is(query(q{SELECT kvfdw_cut('q')}), 2, 'a table is cut');
	query($_) for q{INSERT INTO q SELECT g, repeat('q', 500) FROM generate_series(1001, 1300) g}, 'CHECKPOINT', 'DELETE FROM q WHERE k <= 300', q{SELECT kvfdw_flush('q'), pg_current_xact_id()};
	wait_for('chunks to go', sub { $q->('obsolete_value_files') == 0 });
	absorb_until('mark_captured');
	is($q->('shards'), 1, 'and joined again');
	query(q{SET kvfdw.stop_points = ''; INSERT INTO q SELECT g, repeat('n', 2000) FROM generate_series(1, 1000) g; INSERT INTO q SELECT g, repeat('n', 2000) FROM generate_series(1301, 1400) g});
	kill_all($node);
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'joined'") if $how eq 'power';
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\nkvfdw.test_shard_kb = 0");
	restart_killed($node);
	my $rows = query('SELECT count(*) FROM q');
	is($rows, 1400, "$how: all rows") if $how eq 'killed';
	is($q->('shards'), $how eq 'killed' ? 1 : 2, "$how: the map");
	is(query('SELECT count(*) FROM q WHERE k BETWEEN 1001 AND 1300'), 300, "$how: rows of before");
	is(query('SELECT count(*) FROM generate_series(1, 1400) g WHERE EXISTS (SELECT FROM q WHERE k = g)'), $rows, "$how: each is found by its key");
	cmp_ok($q->('lost_entries'), '>=', 1400 - $rows, 'what is lost is counted') if $how eq 'power';
	query(q{INSERT INTO q SELECT g, 'again' FROM generate_series(1, 1400) g ON CONFLICT (k) DO UPDATE SET v = 'again'});
	is(query(q{SELECT count(*) FROM q WHERE v = 'again'}), 1400, "$how: and can be written");
	is(kv_check_clean($node, 'q'), '', "$how: sound");
	query('DROP FOREIGN TABLE q');
}

$node->stop;
done_testing();
