# What the tests share that take the disk away from under a server: one kvfdw
# table of each level and a heap table, and what may be left of them.
#
# heap holds what the tables must hold.  past holds every row that was ever
# committed: a table with wal level none may go back to earlier ones.
package KvTrust;
use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

our @EXPORT = qw(@levels trust_cluster trust_tables change start_again another_kernel nothing_lost cluster_state);
our @levels = qw(full keys none);

# A cluster that syncs, and whose files are small.
sub trust_cluster
{
	my ($name, %conf) = @_;
	return kv_cluster($name, fsync => 'on', checkpoint_timeout => '1h', max_wal_size => '1GB',
		restart_after_crash => 'off', shared_buffers => '16MB', heap_only() ? () : ('kvfdw.memtable_memory' => '16MB',
		'kvfdw.value_cache' => '1MB', 'kvfdw.recent_ring' => '1MB', 'kvfdw.write_buffers' => '4MB', 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.flush_after' => '1h'), %conf);
}

# The tables with 2000 rows, and a checkpoint after them.
sub trust_tables
{
	my ($node) = @_;
	$node->safe_psql('postgres', join('', 'CREATE TABLE heap (k int PRIMARY KEY, v text); CREATE TABLE past (k int, v text);',
		map { kv_table("kv_$_", 'k int, v text', 'k', "shards '2', wal '$_'") } @levels));
	change($node, "INSERT INTO %s SELECT g, rpad('first ' || g, g % 700, 'x') FROM generate_series(1, 2000) g");
	$node->safe_psql('postgres', 'CHECKPOINT');
	return;
}

# The same changes in all tables, a transaction for each statement, so that each
# state of a row is a committed one.  Without any: inserts, updates and deletes,
# all different each time.
my $changes = 0;

sub change
{
	my ($node, @sql) = @_;
	my $n = ++$changes;
	@sql = ("INSERT INTO %s SELECT g, rpad('$n inserted ' || g, g % 700, 'y') FROM generate_series($n * 10000, $n * 10000 + 1999) g",
		"UPDATE %s SET v = rpad('$n updated ' || k, k % 900, 'z') WHERE k % 4 = 0", "DELETE FROM %s WHERE k % 31 = $n") unless @sql;
	for my $sql (@sql)
	{
		$node->safe_psql('postgres', join(';', 'BEGIN', (map { $sql =~ s/%s/$_/r } 'heap', map { "kv_$_" } @levels),
			'INSERT INTO past (TABLE heap UNION TABLE kv_none) EXCEPT TABLE past', 'COMMIT'));
	}
	return;
}

# Start a server that was killed, or whose disk was away; false if it does not.
sub start_again
{
	my ($node) = @_;
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	$node->{_pid} = undef;
	my $log = -s $node->logfile;
	return 1 if $node->start(fail_ok => 1);
	diag(substr(slurp_file($node->logfile), $log));
	return 0;
}

# From its next start on a server takes the kernel for another one (test builds).
my $kernels = 0;

sub another_kernel
{
	my ($node) = @_;
	$kernels++;
	return heap_only() ? 1 : $node->append_conf('postgresql.conf', "kvfdw.boot_id = 'kernel $kernels'\n");
}

sub cluster_state
{
	my ($node) = @_;
	my ($state) = scalar(`pg_controldata -D @{[ $node->data_dir ]}`) =~ /^Database cluster state:\s*(.*)$/m;
	return $state;
}

# The tables hold what they must, and can be written again; returns whether.
# moved: those whose values are not in the WAL may be unusable.
sub nothing_lost
{
	my ($node, $what, %is) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($fine, @usable) = (1);
	for my $level (@levels)
	{
		my $t = "kv_$level";
		if ($is{moved} && $level ne 'full' && answer($node, "SELECT count(*) FROM $t") =~ /rows of foreign table "$t" are not on this server/)
		{
			pass("$what, $level: not available, and says so");
			next;
		}
		push @usable, $t;
		if ($level eq 'none') { $fine &= is(answer($node, "SELECT count(*), min(left(s::text, 60)) FROM (TABLE $t EXCEPT ALL TABLE past) s"), '0|', "$what, $level: no row that never was") }
		else { $fine &= is(tables_differ($node, $t, 'heap', 'k'), '', "$what, $level: all rows, and no others") }
		$fine &= is(kv_check_clean($node, $t), '', "$what, $level: kvfdw_check is clean");
	}
	for my $t (@usable, 'heap')
	{
		$fine &= is(answer($node, "DELETE FROM $t WHERE k < 0; INSERT INTO $t VALUES (-1, 'after $what'); UPDATE $t SET v = v || ' and on' WHERE k = -1; SELECT v FROM $t WHERE k = -1"),
			"after $what and on", "$what, $t: it can be written again");
	}
	answer($node, 'INSERT INTO past TABLE heap EXCEPT TABLE past');
	return $fine;
}

1;
