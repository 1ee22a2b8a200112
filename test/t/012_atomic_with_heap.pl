# Promise: a transaction over heap and kvfdw tables is all there or not at all, in
# every snapshot, while it stands still at any step between its first write and the
# end of COMMIT, and after SIGKILL there (I 1).
#
# Needs a test build (make FAULTS=1) for the first step.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

my $node = kv_cluster('atomic', max_prepared_transactions => 5, wal_level => 'replica', max_wal_senders => 2);
unless (heap_only() || has_faults($node))
{
	$node->stop;
	plan skip_all => 'not a test build (make FAULTS=1)';
}
$ENV{PGOPTIONS} = '-c synchronous_commit=local';
$node->safe_psql('postgres', kv_table('a', 'k int, v text', 'k') . kv_table('b', 'k int, v text', 'k', "shards '4'") . <<'SQL');
CREATE TABLE h (k int PRIMARY KEY, v text);
CREATE FUNCTION wait_deferred() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM pg_advisory_xact_lock(1) FROM (SELECT current_setting('my.deferred', true) AS x) s WHERE x = 'on'; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait_deferred AFTER INSERT ON h DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_deferred();
SQL

# How many rows of a step each table shows, in one snapshot.
sub seen
{
	my ($step) = @_;
	return answer($node, "SELECT (SELECT count(*) FROM a WHERE v = '$step') || ' ' || (SELECT count(*) FROM h WHERE v = '$step') || ' ' || (SELECT count(*) FROM b WHERE v = '$step')");
}

# One more row each in front, savepoints and a flush between.
sub writes
{
	my ($step, $from, $before_last) = @_;
	my $rows = "SELECT g, '$step' FROM generate_series($from, $from + 99) g";
	return "INSERT INTO a $rows; SAVEPOINT s; INSERT INTO h $rows; DELETE FROM b WHERE k < 0; RELEASE s; $before_last INSERT INTO b $rows;";
}
my $from = 1;
my $backend = q{SELECT pid FROM pg_stat_activity WHERE application_name = 'writer'};
my %ways = (
	backend => sub { my $times = times_ready($node); kill_process($node->safe_psql('postgres', $backend)); ready_again($node, $times); },
	all => sub { kill_all($node); restart_killed($node); });

# [step, what the session does, is it there, what goes with it, is it committed]
for my $way (sort keys %ways)
{
	my @steps = (
		[ 'writing', sub { "SET kvfdw.stop_points = 'write_done=wait'; BEGIN; " . writes(@_, '') . 'COMMIT;' },
			sub { stopped($node, 'write_done') }, 0 ],
		[ 'deferred', sub { "SET my.deferred = on; BEGIN; " . writes(@_, '') . 'COMMIT;' },
			sub { wait_for('COMMIT', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'}) eq '1' }) }, 0 ],
		[ 'flushed', sub { "SET synchronous_commit = on; BEGIN; " . writes(@_, '') . 'COMMIT;' },
			sub { wait_for('COMMIT', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) eq '1' }) }, 1 ],
		[ 'prepared', sub { 'BEGIN; ' . writes(@_, '') . "PREPARE TRANSACTION 'p'; SELECT pg_advisory_lock(1);" },
			sub { wait_for('PREPARE', sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'}) eq '1' }) }, 0 ]);
	for my $s (@steps)
	{
		my ($step, $script, $reached, $committed) = @$s;
		next if $step eq 'writing' && heap_only();
		my $name = "$step-$way";
		$node->safe_psql('postgres', 'ALTER SYSTEM SET synchronous_standby_names = ' . ($step eq 'flushed' ? "'nobody'" : 'DEFAULT'));
		$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
		wait_for('a reload', sub { (setting($node, 'synchronous_standby_names') eq 'nobody') == ($step eq 'flushed') });
		my $holder = psql_writer($node, 'SELECT pg_advisory_lock(1); SELECT pg_sleep(600);', "$name-holder");
		wait_for('the lock', sub { answer($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}) eq '1' });
		my $writer = psql_writer($node, "SET application_name = 'writer'; " . $script->($name, $from), $name);
		$reached->();
		is(seen($name), '0 0 0', "$name: nothing is seen while it stands still");
		$ways{$way}->();
		outcome($_) for $holder, $writer;
		unlink glob $node->data_dir . '/kvfdw/{waiting,continue}.*';
		is(seen($name), $committed ? '100 100 100' : '0 0 0', "$name: after SIGKILL " . ($committed ? 'all' : 'nothing') . ' is there');
		if ($step eq 'prepared')
		{
			$node->safe_psql('postgres', $way eq 'all' ? "COMMIT PREPARED 'p'" : "ROLLBACK PREPARED 'p'");
			is(seen($name), $way eq 'all' ? '100 100 100' : '0 0 0', "$name: and ended as it is told");
		}
		# the same keys can be written, or not, in all of them
		is(answer($node, "INSERT INTO $_ SELECT $from, 'again' RETURNING k") =~ /^error: .*duplicate/ ? 1 : 0,
			seen($name) =~ /^100/ ? 1 : 0, "$name: the first key of $_ is " . (seen($name) =~ /^100/ ? 'taken' : 'free')) for qw(a h b);
		is(heap_only() ? '' : kv_check_clean($node, 'a', 'b'), '', "$name: kvfdw_check finds nothing");
		$from += 1000;
	}
}
done_testing();
