# Promise: a flush that SIGKILL or an ERROR meets between two of its steps has happened
# or has not: no row is missing or there twice, what was written meanwhile is there, no
# file is left over, and the next flush succeeds.  Readers see nothing of it (I 7, I 14).
#
# Needs a test build (make FAULTS=1).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap does not freeze' if heap_only();
my $node = kv_cluster('frozen', 'kvfdw.flush_after' => '1h', checkpoint_timeout => '1h', restart_after_crash => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
my @levels = qw(full keys none);
my @tables = map { "kv_$_" } @levels;
$node->safe_psql('postgres', join('', 'CREATE TABLE heap (k int PRIMARY KEY, v text);', map { kv_table("kv_$_", 'k int, v text', 'k', "wal '$_'") } @levels));
my $freeze_all = 'SELECT ' . join(', ', map { "kvfdw_flush('$_')" } @tables);

# The same changes in every table: new rows, some updated, some deleted.
my $n = 0;
sub change
{
	$n++;
	for my $t ('heap', @tables)
	{
		$node->safe_psql('postgres', "INSERT INTO $t SELECT g, rpad('$n of ' || g, g % 3000, 'x') FROM generate_series($n * 1000, $n * 1000 + 99) g;
			UPDATE $t SET v = 'updated by $n' WHERE k % 7 = 1; DELETE FROM $t WHERE k % 31 = $n");
	}
	return;
}

sub as_heap
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join('', map { tables_differ($node, $_, 'heap', 'k') } @tables), '', $what);
}

# The next flush succeeds, and nothing is there but what it has made.
sub tidy
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->safe_psql('postgres', $freeze_all);
	$node->safe_psql('postgres', 'CHECKPOINT') for 1 .. 2;    # the second: files that the first one's marks named
	is(scalar(grep { /\.run$/ } kv_files($node)), scalar(@tables), "$what: a run for each table, and no other");
	is(join(' ', grep { /tmp/ } kv_files($node)), '', "$what: no temporary file");
	is(kv_check_clean($node, @tables), '', "$what: kvfdw_check is clean");
	return;
}

my @points = qw(flush_before_merge flush_before_finish run_written run_renamed flush_before_files flush_after_files flush_done);
change();
$node->safe_psql('postgres', "$freeze_all; CHECKPOINT");

# SIGKILL, when rows were written and read while the flushes of all tables stood there.
for my $point (@points)
{
	change();
	my @freezes = map { psql_writer($node, "SET kvfdw.stop_points = '$point=wait'; SELECT kvfdw_flush('$_');", "$point-$_") } @tables;
	stopped($node, $point);
	wait_for('all freezes to stand there', 180, sub {
		answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE query ~ '^SELECT kvfdw_flush' AND wait_event IN ('Extension', 'KvfdwStopPoint')}) eq @tables });
	as_heap("beside a freeze at $point: readers see every row");
	change();
	as_heap("beside a freeze at $point: and those written meanwhile");
	kill_all($node);
	outcome($_) for @freezes;
	unlink glob($node->data_dir . '/kvfdw/waiting.*');
	$node->start;
	as_heap("killed at $point: no row is missing or there twice");
	tidy("killed at $point");
}

# An ERROR before anything is published, and a snapshot from before.  The maintainer, who
# would try again at once, waits.
worker_stop_points($node, 'maintainer_idle=wait');
stopped($node, 'maintainer_idle');
for my $point (@points[ 0 .. 4 ])
{
	change();
	my $reader = $node->background_psql('postgres');
	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TEMP TABLE seen AS TABLE heap;');
	my $unchanged = join(' + ', map { "(SELECT count(*) FROM ((TABLE $_ EXCEPT TABLE seen) UNION ALL (TABLE seen EXCEPT TABLE $_)) s)" } @tables);
	change();
	my %before = map { $_ => 1 } kv_files($node);
	for my $t (@tables)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET kvfdw.stop_points = '$point=error'; SELECT kvfdw_flush('$t')");
		like($err, qr/stopped at "$point"/, "$t: an ERROR at $point");
	}
	is(join(' ', grep { /\.run/ && !$before{$_} } kv_files($node)), '', "an ERROR at $point leaves no run");
	as_heap("an ERROR at $point costs no row");
	is($reader->query_safe("SELECT $unchanged;"), '0', 'an older snapshot sees what it saw');
	$node->safe_psql('postgres', $freeze_all);
	is($reader->query_safe("SELECT $unchanged;"), '0', 'also after the next freeze');
	$reader->query_safe('COMMIT;');
	$reader->quit;
	as_heap("after an ERROR at $point and the next freeze");
	tidy("an ERROR at $point");
}

# The end of a session, likewise.
for my $point (qw(flush_before_finish run_renamed))
{
	change();
	my %before = map { $_ => 1 } kv_files($node);
	my $freeze = psql_writer($node, "SET kvfdw.stop_points = '$point=wait'; SELECT kvfdw_flush('$tables[0]');", "ended-$point");
	stopped($node, $point);
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^SELECT kvfdw_flush'});
	like(outcome($freeze), qr/terminating connection/, "a session ends at $point");
	unlink glob($node->data_dir . '/kvfdw/waiting.run* ' . $node->data_dir . '/kvfdw/waiting.flush*');
	wait_for('its end', sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE query ~ '^SELECT kvfdw_flush'}) == 0 });
	is(join(' ', grep { /\.run/ && !$before{$_} } kv_files($node)), '', "a session that ends at $point leaves no run");
	tidy("a session ended at $point");
}
worker_stop_points($node, '');
go_on($node, 'maintainer_idle');
$node->stop;
done_testing();
