# Promise: DROP and TRUNCATE give space back in small steps, by the maintainer alone, which flushes between them and
# stops at any of them; what a crash or shutdown leaves is freed after the next start; a full disk hurries it.  A session
# that has a run of it mapped goes on (I 5).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no files of kvfdw' if heap_only();
my $node = kv_cluster('free', 'kvfdw.flush_after' => 3600);
plan skip_all => 'stop points need FAULTS=1' unless has_faults($node);
my $data = $node->data_dir;
my ($size, $available) = `df --output=size,avail '$data'` =~ /(\d+) +(\d+)/;
plan skip_all => 'the file system is nearly full, so space is freed in a hurry' if $available < $size / 18;

# Bytes allocated below directories renamed out of sight.
sub dropped
{
	my $blocks = 0;
	for my $f (kv_files($node)) { $blocks += (stat("$data/kvfdw/$f"))[12] // 0 if $f =~ /^dropped\..*\.(val|run|log)$/; }
	return $blocks * 512;
}

sub fill
{
	my ($name, $rows) = @_;
	$node->safe_psql('postgres', kv_table($name, 'k int, v text', 'k', "shards '1', wal 'none'")
		  . "ALTER FOREIGN TABLE $name ALTER v SET STORAGE EXTERNAL; INSERT INTO $name SELECT g, repeat(md5(g::text), 500) FROM generate_series(1, $rows) g; SELECT kvfdw_flush('$name')");
	return;
}

sub gone { return !grep { /^dropped\./ } kv_files($node); }

# A step at a time.
fill($_, 2000) for 'a', 'b', 'c';
fill('d', 700);
fill('live', 10);
worker_stop_points($node, 'free_step=wait');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE a; DROP FOREIGN TABLE b; TRUNCATE c');
my $before = 30_000_000;
stopped($node, 'free_step');
my $left = dropped();
cmp_ok($left, '>', $before, 'after the first step most is still there');
is($node->safe_psql('postgres', 'SELECT count(*) FROM c'), '0', '… which nobody sees');
for my $n (2 .. 4)
{
	step_on($node, 'free_step', \&gone);
	my $now = dropped();
	cmp_ok($left - $now, '>', 0, "step $n frees something");
	cmp_ok($left - $now, '<=', 2_200_000, '… but not much');
	$left = $now;
}

# The maintainer's other work goes on in between: it resolves, flushes, looks.
$node->safe_psql('postgres', q{INSERT INTO live SELECT g, 'x' FROM generate_series(100, 200) g});
my $freezes = $node->safe_psql('postgres', q{SELECT flushes FROM kvfdw_stat_tables WHERE relid = 'live'::regclass});
$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.flush_after = 1');
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
sleep 2;    # older than the delay
my $steps = 0;
# that have something to be freed
sub directories { my %with = map { m{^(dropped\.[^/]*)/.*\.val$} ? ($1 => 1) : () } kv_files($node); return scalar keys %with; }
my $directories = directories();
wait_for('a freeze', sub { step_on($node, 'free_step', \&gone); $steps++; $node->safe_psql('postgres', "SELECT flushes > $freezes FROM kvfdw_stat_tables WHERE relid = 'live'::regclass") eq 't' || gone() });
is(directories(), $directories, "a freeze comes before the end of a long free, after $steps steps");

# Shutdown does not wait for it, and the next start goes on.
$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = off');
worker_stop_points($node, 'free_step=kill');
append_to_file("$data/kvfdw/step.free_step", '');
wait_for('a crash', sub { !postmaster_runs($node) });
$left = dropped();
cmp_ok($left, '>', 0, 'a crash between two steps leaves the rest');
$node->append_conf('postgresql.conf', "kvfdw.stop_points = ''");
unlink "$data/postgresql.auto.conf";
$node->start;
wait_for('the rest to go', \&gone);
pass('… which goes after the next start');

# A fast shutdown in the middle.
fill('e', 3000);
$node->safe_psql('postgres', 'DROP FOREIGN TABLE e');
my $log = -s $node->logfile;
$node->stop('fast');
unlike(slurp_file($node->logfile, $log), qr/ERROR|PANIC|WARNING/, 'a shutdown in the middle says nothing');
ok(1, 'left at shutdown: ' . dropped());
$node->start;
wait_for('the rest to go', \&gone);

# Many at once, a run that is mapped by an idle session, and a full disk.
$node->safe_psql('postgres', join '', map { kv_table("many$_", 'k int, v text', 'k') . "INSERT INTO many$_ SELECT g, 'x' FROM generate_series(1, 100) g;" } 1 .. 40);
$node->safe_psql('postgres', kv_table('wide', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO wide SELECT g, 'x' FROM generate_series(1, 200000) g; SELECT kvfdw_flush('wide')});
my $idle = $node->background_psql('postgres');
is($idle->query_safe('SELECT count(*), sum(k) FROM wide'), '200000|20000100000', 'a session has a run mapped');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE wide;' . join '', map { "DROP FOREIGN TABLE many$_;" } 1 .. 40);
wait_for('all of them to go', \&gone);
is($idle->query_safe('SELECT count(*) FROM live'), '111', '… and lives on');
$idle->quit;
worker_stop_points($node, 'free_step=wait');
$node->safe_psql('postgres', 'DROP FOREIGN TABLE d');
stopped($node, 'free_step');
my $largest = 0;
# a full disk is remembered for a few seconds, which may be over when the next step begins
while ($largest <= 2_200_000 && !gone())
{
	$left = dropped();
	$node->psql('postgres', q{SET kvfdw.fault = 'value_write:1+:ENOSPC,value_extend:1+:ENOSPC,run_write:1+:ENOSPC'; INSERT INTO live SELECT g, repeat('x', 200000) FROM generate_series(1000, 1010) g});
	step_on($node, 'free_step', \&gone);
	$largest = $left - dropped() if $largest < $left - dropped();
}
cmp_ok($largest, '>', 2_200_000, 'a full disk hurries it: the steps are larger');
worker_stop_points($node, '');
append_to_file("$data/kvfdw/continue.free_step", '');
wait_for('a dropped table to go', \&gone);

# A maintainer that has many shards to flush does not let it wait for all of them.
fill('much', 700);
my @due = map { "due$_" } 1 .. 12;
$node->safe_psql('postgres', 'ALTER SYSTEM SET kvfdw.flush_after = 1');
$node->safe_psql('postgres', join '', map { kv_table($_, 'k int, v text', 'k', "wal 'none'") . "INSERT INTO $_ VALUES (1, 'x');" } @due);
worker_stop_points($node, 'flush_before_merge=wait,maintainer_idle=wait');
$node->safe_psql('postgres', "INSERT INTO $_ VALUES (2, 'x')") for @due;
stopped($node, 'maintainer_idle');
$node->safe_psql('postgres', 'SELECT pg_sleep(1.5)');    # kvfdw.flush_after
append_to_file("$data/kvfdw/step.maintainer_idle", '');
stopped($node, 'flush_before_merge');
$node->safe_psql('postgres', $_) for q{SET kvfdw.stop_points = ''; SELECT kvfdw_compact('much', true)}, 'CHECKPOINT';
ok(eval { wait_for('value files to be dropped', sub { dropped() > 5_000_000 }) }, 'value files are emptied while the maintainer freezes other tables');
$left = dropped();
for (2 .. 10)
{
	$node->safe_psql('postgres', 'SELECT pg_sleep(0.15)');
	step_on($node, 'flush_before_merge', sub { -e "$data/kvfdw/waiting.maintainer_idle" });
}
ok(!-e "$data/kvfdw/waiting.maintainer_idle", 'which goes on with the next ones');
cmp_ok(dropped(), '<', $left, '… and frees something in between');
worker_stop_points($node, '');
append_to_file("$data/kvfdw/continue.$_", '') for 'flush_before_merge', 'maintainer_idle';
wait_for('them to go', \&gone);
is(kv_check_clean($node, 'live', 'c'), '', 'what lives is clean');
done_testing();
