# Promise: a table at level 'none' leaves some units to others. Sessions that find no write buffer
# free while none is being written seal a few open ones together. A value that needs adjacent
# units does not wait for them if they are apart, and is there after a crash like any other.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $units = 512;
my $node = kv_cluster('apart', 'kvfdw.test_worker_idle' => '1h', 'kvfdw.buffer_units' => $units, 'kvfdw.flush_after' => '1h', checkpoint_timeout => '1h', restart_after_crash => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);

# Of the buffer file's write buffers in use (docs/internals/format.md): the first unit, how many, and are they sealed?
sub slots
{
	my $file = slurp_file($node->data_dir . '/kvfdw/buffers');
	my $headers = 4096 + 16384 * $units;
	return map {
		my $header = substr($file, $headers + 128 * $_, 128);
		unpack('x4 L<', $header) ? { unit => $_, units => int((unpack('x48 L<', $header) + 16383) / 16384), sealed => unpack('x60 L<', $header) } : ()
	} 0 .. $units - 1;
}
sub free { my $n = $units; $n -= $_->{units} for slots(); return $n }
sub sealed { return scalar grep { $_->{sealed} } slots() }
sub writer_pid { return `ps -o pid=,args= --ppid ${\ postmaster_runs($node)}` =~ /^ *(\d+) .*kvfdw buffer writer/m ? $1 : 0; }
# It runs on demand.
sub start_writer
{
	create('starter', 1, 'full');
	wait_for('the buffer writer', sub { $node->safe_psql('postgres', q{INSERT INTO starter VALUES (1, 'x') ON CONFLICT (k) DO UPDATE SET v = 'x'; SELECT kvfdw_flush('starter')}); writer_pid() });
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE starter');
	return wait_for('free units', sub { slots() == 0 });
}
sub writer { my ($signal) = @_; kill $signal, writer_pid() || die 'no buffer writer'; return; }
sub create { my ($t, $shards, $level) = @_; $node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k', "shards '$shards', wal '$level'")); return; }
# A row in each of so many shards of so many.
sub rows { my ($n, $of) = @_; return "SELECT (-2147483648 + (g - 0.5) * 4294967296 / $of)::int, 'x' FROM generate_series(1, $n) g"; }

# ---- what is kept ----

create('not_logged', 600, 'none');
$node->safe_psql('postgres', 'INSERT INTO not_logged ' . rows($units, 600));
cmp_ok(free(), '>=', $units / 16, "level 'none' leaves a unit in sixteen to others");
$node->safe_psql('postgres', 'DROP FOREIGN TABLE not_logged');
wait_for('free units', sub { slots() == 0 });

# ---- several wait ----

start_writer();
create("evictor$_", 1, 'full') for 1 .. 4;
create('wide', 600, 'full');
writer('STOP');
$node->safe_psql('postgres', 'INSERT INTO wide ' . rows($units, 600));
is_deeply([ scalar(slots()), sealed() ], [ $units, 0 ], 'each unit is a slot that is open');
my @evictors = map { psql_writer($node, "SET kvfdw.stop_points = 'evict_pinned=wait'; INSERT INTO evictor$_ VALUES (1, 'x');", "evictor$_") } 1 .. 4;
sub waiting { return $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE 'INSERT INTO evictor%'}) }
wait_for('four sessions that seal slots', sub { waiting() == 4 });
append_to_file($node->data_dir . '/kvfdw/continue.evict_pinned', '');
wait_for('sealed slots', sub { sealed() >= 8 });
my $seen = 0;
wait_for('sessions that wait for slots', sub { $seen = waiting() == 4 && !-e $node->data_dir . '/kvfdw/waiting.evict_pinned' ? $seen + 1 : 0; return $seen == 10 });
# one more each, which it had chosen when others had not sealed theirs yet
cmp_ok(sealed(), '<=', 8 + 4, 'four that wait have sealed eight slots together');
writer('CONT');
is(join('', map { outcome($_) } @evictors), '', 'and go on when they are written');
unlink $node->data_dir . '/kvfdw/continue.evict_pinned';
is($node->safe_psql('postgres', 'SELECT count(*) FROM wide'), $units, 'every row is there');

# ---- units apart ----

my @levels = qw(none keys full);
$node->safe_psql('postgres', join(';', 'DROP FOREIGN TABLE wide', map { "DROP FOREIGN TABLE evictor$_" } 1 .. 4));
$node->restart;		# the first units are taken first
create("big_$_", 1, $_) for @levels;
create($_, 300, 'full') for qw(stays goes);
# a write buffer each in turn, until all units are in use
my @turns = map { my $k = int(-2147483648 + ($_ - 0.5) * 4294967296 / 300); "INSERT INTO stays VALUES ($k, 'x'); INSERT INTO goes VALUES ($k, 'x');" } 1 .. $units / 2;
start_writer();
writer('STOP');
$node->safe_psql('postgres', join '', @turns);
is(scalar(slots()), $units, 'each unit is a slot');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE goes');
wait_for('free units', sub { slots() == $units / 2 });
my %used = map { $_->{unit} => 1 } slots();
is(scalar(grep { my $first = $_; !grep { $used{ $first + $_ } } 0 .. 3 } 0 .. $units - 4), 0, 'nowhere are four free units side by side');
for my $level (@levels)
{
	is(answer($node, qq{SET statement_timeout = '50s'; INSERT INTO big_$level SELECT g, repeat(md5(g::text), 1800) FROM generate_series(1, 5) g}), '', "values of four units are written, at level '$level'");
}
my $right = '5|' . $node->safe_psql('postgres', q{SELECT md5(string_agg(repeat(md5(g::text), 1800), '' ORDER BY g)) FROM generate_series(1, 5) g});
sub read_all { return join ' ', map { answer($node, "SELECT count(*), md5(string_agg(v, '' ORDER BY k)) FROM big_$_") } @levels }
is(read_all(), "$right $right $right", 'and are read');
is(sealed(), 0, 'no other slot was sealed for them');
kill_all($node);
$node->start;
is(read_all(), "$right $right $right", 'and are there after a crash');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stays'), $units / 2, 'with the others');
is(kv_check_clean($node, 'stays', map { "big_$_" } @levels), '', 'the check finds nothing');

# ---- and where others take what becomes free ----

# A write buffer is on its way to its file, the buffer writer at it, and no unit is free.
create('wide', 600, 'full');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE stays');
$node->safe_psql('postgres', "SELECT kvfdw_flush('big_$_')") for @levels;
wait_for('free units', sub { slots() == 0 });
$node->safe_psql('postgres', q{INSERT INTO big_full VALUES (100, 'x')});
worker_stop_points($node, 'buffer_before_free=wait');
$node->safe_psql('postgres', q{INSERT INTO big_none SELECT g, repeat('y', 4096) FROM generate_series(101, 600) g});
stopped($node, 'buffer_before_free');
$node->safe_psql('postgres', 'INSERT INTO wide ' . rows(free(), 600));
is(answer($node, qq{INSERT INTO big_full SELECT g, repeat(md5(g::text), 6000) FROM generate_series(6, 8) g}), '', 'nor is it waited for that units become free');
worker_stop_points($node, '');
go_on($node, 'buffer_before_free');
is(answer($node, q{SELECT count(*), count(*) FILTER (WHERE v = repeat(md5(k::text), 6000)) FROM big_full}), '9|3', 'every value is there');
is(kv_check_clean($node, 'wide', map { "big_$_" } @levels), '', 'the check finds nothing');

# ---- whose table is dropped by redo ----

# The DROP has committed, and waits for a standby before it takes anything out of sight, when the server dies.
$node->safe_psql('postgres', join ';', 'DROP FOREIGN TABLE wide', map { "DROP FOREIGN TABLE big_$_" } @levels);
wait_for('free units', sub { slots() == 0 });
create('dropped', 20, 'none');
$node->safe_psql('postgres', "ALTER SYSTEM SET max_wal_senders = 2; ALTER SYSTEM SET wal_level = 'replica'");
$node->restart;
$node->safe_psql('postgres', 'INSERT INTO dropped ' . rows(20, 20));
$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
$node->reload;
my $drop = psql_writer($node, 'DROP FOREIGN TABLE dropped', 'drop');
wait_for('the DROP to wait', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) eq '1' });
is(scalar(slots()), 20, 'a table that is about to be dropped has slots');
kill_all($node);
outcome($drop);
$node->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''\n");
$node->start;
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname = 'dropped'}), 0, 'which is done when the server is there again');
ok(wait_for('free units', sub { slots() == 0 }), 'and they come back');
$node->stop;
done_testing();
