# Promise: wherever a split, or a cut of a shard behind its greatest key, is when the server is
# killed or the power goes, with or without its map reaching the disk, and at every level, all rows are there, kvfdw_check
# finds nothing, and no file stays of a shard that the map does not have (I 14, I 18).
# The points behind which a map is there are met in all ways, each way at one level; with KV_ALL=1 all are, at all levels.
# What is lost at level none, where nothing else has it, is
# counted and said; and a map that is damaged is an error, never an empty table.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMaps;
use KvVersions;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('split_crash', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.max_space_amplification' => 0);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
my @levels = qw(full keys none);
my $round = 0;
my %dir;

sub query { return $node->safe_psql('postgres', @_); }
sub directory { my ($level) = @_; my $oid = query("SELECT 't_$level'::regclass::oid"); my ($dir) = glob "$data/kvfdw/5/$oid/0*"; return $dir; }
sub shards { my ($level) = @_; return query("SELECT shards FROM kvfdw_stat_tables WHERE relid = 't_$level'::regclass"); }
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . join('', map { kv_table("t_$_", 'k int, v text', 'k', "wal '$_', shards '1'") } @levels));

# The table and heap change alike, and grow at the end.
sub change
{
	my ($level) = @_;
	$round++;
	query(join ';', map { "INSERT INTO $_ SELECT g * 37 % 701 + $round, rpad(md5((g * $round)::text), 50 + g * 53 % 3000, 'v') FROM generate_series(1, 300) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v; INSERT INTO $_ SELECT 10000 + $round * 20 + g, 'new' FROM generate_series(1, 20) g; DELETE FROM $_ WHERE k % 23 = $round % 23" } 'heap', "t_$level");
	return;
}

sub sound
{
	my ($level, $when) = @_;
	is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$when: all rows");
	is(query("SELECT count(*) FROM t_$level"), query('SELECT count(*) FROM heap'), "$when: as many as are counted");
	is(kv_check_clean($node, "t_$level"), '', "$when: sound");
	map_settles($node, "t_$level", $dir{$level}, $when);
	return;
}

# A session that splits or cuts, or a worker that it waits for, stopped at a point.
sub split_until
{
	my ($level, $point, $kind) = @_;
	my $function = $kind eq 'cut' ? 'kvfdw_cut' : 'kvfdw_split';
	my $worker = $point =~ /^(?:mark|map_marked|map_done)/;
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	worker_stop_points($node, "$point=wait") if $worker;
	my $set = $worker ? '' : "$point=wait";
	my $session = psql_writer($node, "SET kvfdw.stop_points = '$set'; SELECT $function('t_$level')", "split$round");
	stopped($node, $point);
	return $session;
}

# Cuts copy nothing: they come to fewer points.  A map that is there while its shards have no marks is lost, or it is not.
my %points = (
	split => [qw(split_copying split_copied split_prepared split_halted split_completed map_appended mark_captured mark_written map_marked map_done)],
	cut => [qw(cut_made map_appended mark_captured mark_written map_marked map_done)]);
sub ways { my ($point) = @_; return ('killed', 'power', $point =~ /^(?:map_appended|mark_captured)$/ ? 'power but for the map' : ()); }

# By default most points are met in one way, and by one kind.
my @cases;
for my $kind (qw(split cut))
{
	for my $point (@{ $points{$kind} })
	{
		my @ways = ways($point);
		unless ($ENV{KV_ALL} || $point =~ /^(?:map_appended|split_completed|mark_written)$/)
		{
			next if $kind eq 'cut' && $point ne 'cut_made';
			@ways = $ways[ @cases % @ways ];
		}
		push @cases, map { [ $kind, $point, $_ ] } @ways;
	}
}

sub meet
{
	my ($level, $kind, $point, $how) = @_;
	my $when = "$level, $kind, $how at $point";
	my $lost = $how ne 'killed';
	query('CHECKPOINT') if $lost || $round % 2;
	my %durable = map { $_ => 1 } glob "$dir{$level}/*";
	change($level) unless $level eq 'none' && $lost;
	my $session = split_until($level, $point, $kind);
	kill_all($node);
	eval { $session->{handle}->finish };
	lose_unsynced($node, $dir{$level}, \%durable, $point, $how, "boot$level$round") if $lost;
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
	restart_killed($node);
	sound($level, $when);
	change($level);
	query("SELECT kvfdw_split('t_$level')") if $ENV{KV_ALL} && shards($level) < 100;
	sound($level, "$when, gone on with");
	return if shards($level) <= ($ENV{KV_ALL} ? 300 : 16);
	query("TRUNCATE t_$level; TRUNCATE heap");
	change($level) for 1 .. 2;
	$dir{$level} = directory($level);
	return;
}

for my $at (0 .. $#levels)
{
	my $level = $levels[$at];
	query('DELETE FROM heap');
	$round = 0;
	change($level) for 1 .. 3;
	$dir{$level} = directory($level);
	for (grep { $ENV{KV_ALL} || $_ % @levels == $at } 0 .. $#cases) { meet($level, @{ $cases[$_] }); }
}

# ---- level none: what the new shards got before they had marks is lost with them ----
{
	my $level = 'none';
	query('TRUNCATE t_none; TRUNCATE heap');
	$dir{$level} = directory($level);
	change($level) for 1 .. 2;
	query('CHECKPOINT');
	my $rows = query('SELECT count(*) FROM t_none');
	my $session = split_until($level, 'mark_captured', 'split');
	cmp_ok(shards($level), '>', 4, 'a table at level none is split');
	query(q{SET kvfdw.stop_points = ''; INSERT INTO t_none SELECT 50000 + g, repeat('l', 2000) FROM generate_series(1, 100) g; UPDATE t_none SET v = 'changed' WHERE k < 200});
	my $changed = query(q{SELECT count(*) FROM t_none WHERE v = 'changed'});
	kill_all($node);
	eval { $session->{handle}->finish };
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'bootlost'");
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
	my $log = -s $node->logfile;
	# starts that are cut off while they note it forget nothing
	for my $point (qw(shards_unverified map_kept))
	{
		$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = '$point=kill'");
		ok(!$node->start(fail_ok => 1), "a start that is cut off at $point");
		wait_for('the server to end', sub { !postmaster_runs($node) });
	}
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
	restart_killed($node);
	is(query('SELECT count(*) FROM t_none WHERE k < 50000'), $rows, 'the rows of before the split are there');
	is(query(q{SELECT count(*) FROM t_none WHERE k > 50000 OR v = 'changed'}), 0, 'what was written since is not');
	wait_for('what was released to be freed', sub { !(() = glob "$data/kvfdw/dropped.*") });
	my $size = 0;
	$size += -s $_ for glob "$dir{$level}/*.val";
	cmp_ok(query(q{SELECT value_file_bytes + obsolete_bytes FROM kvfdw_stat_tables WHERE relid = 't_none'::regclass}), '<=', $size, 'no value file counts twice');
	is(query(q{SELECT lost_entries FROM kvfdw_stat_tables WHERE relid = 't_none'::regclass}), 100 + $changed, 'all of it is counted as lost');
	like(substr(slurp_file($node->logfile), $log), qr/WARNING:  foreign table .* has lost @{[100 + $changed]} row versions/, 'and the server log says so');
	sound($level, 'with losses');
}

# ---- a map that is damaged ----
{
	query('TRUNCATE heap; TRUNCATE t_full');
	$dir{full} = directory('full');
	change('full');
	query(q{SELECT kvfdw_split('t_full')});
	query('CHECKPOINT');
	$node->stop;
	my $log = KvVersions->read($dir{full});
	my $whole = $log->{bytes};
	my ($map) = ($log->edits('MAP'))[-1];
	for my $case (
		[ 'flipped', qr/\.versions" is damaged/, sub { $log->flip($map) } ], [ 'one of no bytes', qr/\.versions" is damaged/, sub { truncate $log->{path}, 0 or die } ],
		[ 'one of 20 bytes', qr/\.versions" is damaged/, sub { truncate $log->{path}, 20 or die } ],
		[ 'missing with what follows it', qr/\.versions" is damaged/, sub { $log->cut($map) } ], [ 'half of it', qr/\.versions" is damaged/, sub { $log->cut($map, 50) } ],
		[ 'zeroed', qr/\.versions" is damaged/, sub { $log->changed(substr($whole, 0, $map->{offset}) . "\0" x (length($whole) - $map->{offset})) } ])
	{
		my ($what, $says, $damage) = @$case;
		$damage->();
		$node->start;
		like(answer($node, 'SELECT count(*) FROM t_full'), qr/ERROR:  .*$says/, "a map, $what, is an error that names a file");
		is(query('SELECT count(*) FROM t_keys') > 0, 1, 'other tables can be read') if $what eq 'flipped';
		$node->stop('immediate');
		$log->changed($whole);
	}
	$node->start;
	sound('full', 'with its map again');
}
unlike(slurp_file($node->logfile), qr/counts \d+ bytes of values, its files have/, 'space is counted right after each start');
$node->stop;
done_testing();
