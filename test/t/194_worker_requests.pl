# Promise: a process that needs a worker gets one, also if the last one was about to end. A worker
# that could not be forked is not trusted to run, and not requested in a tight loop. A busy one of
# another kind makes place for it.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no such processes' if heap_only();
my $dir = PostgreSQL::Test::Utils::tempdir();
my $fails = system($ENV{CC} // 'cc', '-shared', '-fPIC', '-O1', '-o', "$dir/nofork.so", "$FindBin::RealBin/../lib/nofork.c") == 0;
my $node = kv_cluster('requests', 'kvfdw.flush_after' => '1h', 'kvfdw.write_buffer_size' => "'64kB'", 'kvfdw.test_value_file_kb' => 64, 'kvfdw.compact_sort' => 'off', 'kvfdw.range_cache' => "'8MB'", 'kvfdw.value_cache' => 0,
	'kvfdw.scan_share_wait' => "'10min'", max_parallel_workers_per_gather => 0, 'kvfdw.compact_memory' => '4MB', 'kvfdw.test_space_look' => '100ms');
$node->append_conf('postgresql.conf', 'kvfdw.test_space_release = 1s') if has_faults($node);
plan skip_all => 'needs fault injection' unless has_faults($node);

sub query { return $node->safe_psql('postgres', @_); }
sub processes { return join ' ', sort map { /kvfdw (.*?) *$/ ? $1 : () } split /\n/, `ps -o args= --ppid @{[postmaster_runs($node)]}`; }
sub stat_of { my ($column, $table) = @_; return query("SELECT sum($column) FROM kvfdw_stat_tables WHERE relid = '$table'::regclass"); }
sub idle_after { query("ALTER SYSTEM SET kvfdw.test_worker_idle = '$_[0]'"); $node->reload; return; }

# A worker has found that there is nothing to do, and the maintainer, which looks for what was forgotten, stands.
sub leaving
{
	my ($point) = @_;
	worker_stop_points($node, "$point=wait,maintainer_idle=wait");
	idle_after('0');
	stopped($node, $_) for $point, 'maintainer_idle';
	idle_after('1h');
	return;
}

sub leave
{
	my ($point) = @_;
	worker_stop_points($node, 'maintainer_idle=wait');
	return go_on($node, $point);
}

sub again
{
	worker_stop_points($node, '');
	return go_on($node, 'maintainer_idle');
}

my $ends = q{SELECT sum(length(md5(v))) FROM (SELECT v FROM %s ORDER BY k) s};
query(kv_table('t', 'k int, v text', 'k', q{wal 'none'}) . kv_table('s', 'k int, v text', 'k', q{shards '4', max_space_amplification '0'}) . q{
	INSERT INTO s SELECT (g * 200000::bigint - 2000000000)::int, rpad('v' || g, 4096, md5(g::text)) FROM generate_series(1, 5000) g ORDER BY md5(g::text); SELECT kvfdw_flush('s'); ANALYZE s});

# ---- the buffer writer ----
query(q{INSERT INTO t SELECT g, repeat('x', 4000) FROM generate_series(1, 100) g});
wait_for('the buffer writer', sub { processes() =~ /buffer writer/ });
leaving('writer_leaves');
my $written = stat_of('device_write_bytes', 't');
query(q{INSERT INTO t SELECT g, repeat('y', 4000) FROM generate_series(101, 200) g});
is(stat_of('device_write_bytes', 't'), $written, 'values come while the buffer writer is about to end');
leave('writer_leaves');
ok(eval { wait_for('their write', 60, sub { stat_of('device_write_bytes', 't') > $written }) }, '... and are written');
again();

# ---- prefetch ----
is(query(sprintf $ends, 's'), 160000, 'a scan');
wait_for('a prefetch worker', sub { processes() =~ /prefetch/ });
leaving('prefetch_leaves');
my $loads = query('SELECT reads FROM kvfdw_stat_range_cache');
my $waits = query('SELECT waits FROM kvfdw_stat_range_cache');
my $scan = psql_writer($node, sprintf("$ends;", 's'), 'scan');
wait_for('the scan to wait', sub { ended($scan) || query('SELECT waits FROM kvfdw_stat_range_cache') > $waits });
leave('prefetch_leaves');
is(outcome($scan), "160000\n", 'a scan begins while prefetch workers are about to end, and has its rows');
cmp_ok(query('SELECT reads FROM kvfdw_stat_range_cache') - $loads, '>', 10, '... by windows');
again();

# ---- the compactor ----
my $overwrite = q{UPDATE t SET v = repeat('z', 3000 + (random() * 900)::int)};
query($overwrite) for 1 .. 4;
wait_for('the compactor', sub { query($overwrite); stat_of('compactions', 't') > 0 });
leaving('compactor_leaves');
my $passes = stat_of('compactions', 't');
my $writers = psql_writer($node, "$overwrite;\n" x 8, 'overwrite');
wait_for('a writer that waits, or is done', sub { ended($writers) || stat_of('space_waits', 't') > 0 });
leave('compactor_leaves');
ok(eval { wait_for('a pass', 60, sub { stat_of('compactions', 't') > $passes }) }, 'a table grows while the compactor is about to end, and is compacted');
again();
is(outcome($writers), '', '... and its writers go on');

# ---- one after the other, where there is one place ----
idle_after('1h');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
my $fill = psql_writer($node, qq{DO \$\$ BEGIN FOR i IN 1 .. 100000 LOOP $overwrite; COMMIT; EXIT WHEN to_regclass('stop') IS NOT NULL; END LOOP; END \$\$;}, 'fill');
my %seen;
ok(eval { wait_for('both', 120, sub { $seen{$_} = 1 for split ' ', processes(); return $seen{writer} && $seen{compactor} }) }, 'beside a buffer writer that is always busy the compactor gets its turn, and it again');
query('CREATE TABLE stop ()');
is(outcome($fill), '', '... and the load goes on');
query('DROP TABLE stop');

# ---- one that cannot be forked ----
SKIP:
{
	skip 'no compiler', 5 unless $fails;
	$node->stop;
	{
		local $ENV{LD_PRELOAD} = "$dir/nofork.so";
		local $ENV{KV_NOFORK} = "$dir/nofork";
		$node->start;
	}
	my $log = -s $node->logfile;
	my $session = in_steps($node, 'unforked', 'SELECT count(*) FROM t;', qq{INSERT INTO t SELECT g, repeat('w', 4000) FROM generate_series(1001, 3000) g; @{[ sprintf $ends, 's' ]}; SELECT count(*) FROM t;});
	step_done($session);
	idle_after('0');
	wait_for('rest', sub { processes() eq 'checkpointer maintainer' });
	append_to_file("$dir/nofork", '');
	step_go($session) for 1, 2;
	is(outcome($session->{w}) =~ s/\s+/ /gr, '200 160000 2200 ', 'where no worker can be forked sessions write and read themselves');
	unlink "$dir/nofork";
	idle_after('1h');
	my $tried = () = slurp_file($node->logfile, $log) =~ /could not fork (?:background )?worker/g;
	cmp_ok($tried, '>', 0, 'the server has tried to');
	cmp_ok($tried, '<', 40, '... and not all the time');
	ok(eval { wait_for('a worker', 60, sub { query($overwrite); processes() =~ /buffer writer|compactor/ }) }, 'when it can again, workers come');
	is(kv_check_clean($node, qw(t s)), '', 'the tables are sound');
}
$node->stop;
is(join('', grep { /PANIC|TRAP|signal 11/ } split /^/, slurp_file($node->logfile)), '', 'no process has crashed');
done_testing();
