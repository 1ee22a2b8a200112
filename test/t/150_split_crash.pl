# Promise: wherever a split is when the server is killed or the power goes, and at every
# level, all rows are there, kvfdw_check finds nothing, and no file stays of a shard that the
# map does not have.  Likewise where a shard is cut behind its greatest key (I 14, I 18).
# Each point is met at one level, with KV_ALL=1 at all of them.  What is lost at level none, where nothing else has it, is
# counted and said; and a map that is damaged is an error, never an empty table.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('split_crash', 'kvfdw.test_chunk_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.freeze_delay' => 3600, 'kvfdw.space_amp' => 0);
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
my @levels = qw(full keys none);
my $round = 0;
my $rounds = 0;
my $turn = 0;
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

# Whose files are there, chunks apart?
sub owners
{
	my ($level) = @_;
	my %owner = map { m{/([0-9a-f]{5})\.[^/]*(?:log|run|image|manifest)$} ? ($1 => 1) : () } glob "$dir{$level}/*";
	return scalar keys %owner;
}

sub sound
{
	my ($level, $when) = @_;
	is(tables_differ($node, "t_$level", 'heap', 'k'), '', "$when: all rows");
	is(query("SELECT count(*) FROM t_$level"), query('SELECT count(*) FROM heap'), "$when: as many as are counted");
	is(kv_check_clean($node, "t_$level"), '', "$when: sound");
	ok(eval { wait_for('the map to be settled', sub { owners($level) <= shards($level) && (() = glob "$dir{$level}/*.map") <= 1 }) }, "$when: nothing is left of other shards") or diag join ' ', map { s{.*/}{}r } glob "$dir{$level}/*";
	return;
}

# A session that splits, or a worker that it waits for, stopped at a point.
sub split_until
{
	my ($level, $point, $at_end) = @_;
	my $worker = $point =~ /^(?:image|map_imaged|map_settled)/;
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	worker_stop_points($node, "$point=wait") if $worker;
	my $set = $worker ? '' : "$point=wait";
	my $session = psql_writer($node, "SET kvfdw.stop_points = '$set'; SELECT kvfdw_split('t_$level', $at_end)", "split$round");
	stopped($node, $point);
	return $session;
}

for my $level (@levels)
{
	query('DELETE FROM heap');
	$round = 0;
	$rounds++;
	change($level) for 1 .. 3;
	$dir{$level} = directory($level);
	for my $point (qw(split_copying split_copied split_prepared split_halted split_manifests map_renamed image_captured image_written map_imaged map_settled))
	{
		next unless $ENV{KV_ALL} || $turn++ % @levels == 0;
		# each point is met by both, at one level or another
		for my $how ($rounds++ % 2 ? 'killed' : 'power')
		{
			my $when = "$level, $how at $point";
			my $at_end = $point =~ /^(?:map_renamed|image_written)$/ && $how eq 'killed' ? 'true' : 'false';
			query('CHECKPOINT') if $how eq 'power' || $round % 2;
			my %durable = map { $_ => 1 } glob "$dir{$level}/*";
			change($level) unless $level eq 'none' && $how eq 'power';
			my $session = split_until($level, $point, $at_end);
			kill_all($node);
			eval { $session->{handle}->finish };
			if ($how eq 'power')
			{
				# what was made since and no image needs may be missing; images may be there only if they were synced
				my @lost = grep { !$durable{$_} } glob "$dir{$level}/*";
				@lost = grep { /\.(?:run|log|tmp|manifest|map)$/ } @lost if $point !~ /^(?:image_written|map_imaged|map_settled)$/;
				@lost = grep { /\.tmp$/ } @lost if $point =~ /^(?:image_written|map_imaged|map_settled)$/;
				# of a file whose bytes were not synced less may be there, or nothing; a map has its name when it is whole
				for my $at (0 .. $#lost)
				{
					if ($lost[$at] =~ /\.map$/ || ($at + $round) % 3 == 0) { unlink $lost[$at]; }
					else { truncate $lost[$at], ($at + $round) % 3 == 1 ? 0 : (-s $lost[$at]) / 2 or die "truncate: $!"; }
				}
				$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot$level$round'");
			}
			$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
			restart_killed($node);
			sound($level, $when);
			change($level);
			query("SELECT kvfdw_split('t_$level')") if shards($level) < 100;
			sound($level, "$when, gone on with");
			if (shards($level) > 300)
			{
				query("TRUNCATE t_$level; TRUNCATE heap");
				change($level);
				$dir{$level} = directory($level);
			}
		}
	}
}

# ---- level none: what the new shards got before they had images is lost with them ----
{
	my $level = 'none';
	query('TRUNCATE t_none; TRUNCATE heap');
	$dir{$level} = directory($level);
	change($level) for 1 .. 2;
	query('CHECKPOINT');
	my $rows = query('SELECT count(*) FROM t_none');
	my $session = split_until($level, 'image_captured', 'false');
	cmp_ok(shards($level), '>', 4, 'a table at level none is split');
	query(q{SET kvfdw.stop_points = ''; INSERT INTO t_none SELECT 50000 + g, repeat('l', 2000) FROM generate_series(1, 100) g; UPDATE t_none SET v = 'changed' WHERE k < 200});
	my $changed = query(q{SELECT count(*) FROM t_none WHERE v = 'changed'});
	kill_all($node);
	eval { $session->{handle}->finish };
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'bootlost'");
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''");
	my $log = -s $node->logfile;
	# starts that are cut off while they note it forget nothing
	for my $point (qw(shards_doubted map_kept))
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
	cmp_ok(query(q{SELECT value_file_bytes + retired_bytes FROM kvfdw_stat_tables WHERE relid = 't_none'::regclass}), '<=', $size, 'no value file counts twice');
	is(query(q{SELECT lost_entries FROM kvfdw_stat_tables WHERE relid = 't_none'::regclass}), 100 + $changed, 'all of it is counted as lost');
	like(substr(slurp_file($node->logfile), $log), qr/WARNING:  kvfdw table \d+ of database \d+ has lost @{[100 + $changed]} entries/, 'and the server log says so');
	sound($level, 'with losses');
}

# ---- level none: a shard that is empty is joined to the one behind it, which then gets its keys ----
for my $how (qw(killed power))
{
	my $q = sub { my ($what) = @_; return query("SELECT $what FROM kvfdw_stat_tables WHERE relid = 'q'::regclass"); };
	query(kv_table('q', 'k int, v text', 'k', "wal 'none', shards '1'") . q{INSERT INTO q SELECT g, repeat('q', 500) FROM generate_series(1, 300) g});
	is(query(q{SELECT kvfdw_split('q', true)}), 2, 'a table is cut');
	query($_) for q{INSERT INTO q SELECT g, repeat('q', 500) FROM generate_series(1001, 1300) g}, 'CHECKPOINT', 'DELETE FROM q WHERE k <= 300', q{SELECT kvfdw_freeze('q'), pg_current_xact_id()};
	wait_for('chunks to go', sub { $q->('retired_chunks') == 0 });
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	worker_stop_points($node, 'image_captured=wait');
	query('ALTER SYSTEM SET kvfdw.test_shard_kb = 1000000');
	$node->reload;
	ok(eval { wait_for('the shard to be joined', sub { $q->('shards') == 1 }) }, 'and joined again') or diag $q->('shards');
	stopped($node, 'image_captured');
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

# ---- a map that is damaged ----
{
	query('TRUNCATE heap; TRUNCATE t_full');
	$dir{full} = directory('full');
	change('full');
	query(q{SELECT kvfdw_split('t_full')});
	query('CHECKPOINT');
	$node->stop;
	my ($map) = glob "$dir{full}/*.map";
	my $whole = slurp_file($map);
	for my $bytes (0, 20, int(length($whole) / 2), length($whole) - 1)
	{
		open(my $f, '>', $map) or die;
		print $f substr($whole, 0, $bytes);
		close $f;
		$node->start;
		like(answer($node, 'SELECT count(*) FROM t_full'), qr/ERROR:  .*\.map" is damaged/, "a map of $bytes bytes is an error that names it");
		is(query('SELECT count(*) FROM t_keys') > 0, 1, 'other tables can be read') if $bytes == 0;
		$node->stop('immediate');
	}
	open(my $f, '>', $map) or die;
	print $f $whole;
	close $f;
	$node->start;
	sound('full', 'with its map again');
}
unlike(slurp_file($node->logfile), qr/counts \d+ bytes of values, its chunks have/, 'space is counted right after each start');
$node->stop;
done_testing();
