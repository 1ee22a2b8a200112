# Promise: a checkpoint does not complete before the tables are durable, even if "kvfdw
# checkpointer" is told to end, the disk is full, or a table is dropped at that moment.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvTrust;
use KvVersions;

my $base = $PostgreSQL::Test::Utils::tmp_check;
my $why_not = heap_only() ? 'heap has no checkpointer' : loop_skip($base);
plan skip_all => $why_not if $why_not;

sub checkpointer_pid { my ($node) = @_; return answer($node, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'}) }

# Until the process that was told has gone, or the server; or it insists on staying.
sub checkpointer_gone
{
	my ($node, $pid) = @_;
	return eval { wait_for('the checkpointer to end', 5, sub { !kill(0, $pid) }) };
}

# A full disk.
{
	my $disk = KvLoop->new("$base/disk", megabytes => 96);
	mkdir "$disk->{where}/kvfdw", 0700 or die "mkdir: $!";
	my $node = trust_cluster('full', 'kvfdw.test_carried' => 0, before_start => sub { symlink "$disk->{where}/kvfdw", $_[0]->data_dir . '/kvfdw' or die "symlink: $!" });
	trust_tables($node);
	change($node);
	$disk->fill;
	my $checkpoint = psql_writer($node, 'CHECKPOINT;', 'full');
	wait_for('a checkpoint that cannot complete', 180, sub { slurp_file($node->logfile) =~ /No space left on device/ });
	my $pid = checkpointer_pid($node);
	answer($node, "SELECT pg_terminate_backend($pid)");
	note 'the checkpointer stays' unless checkpointer_gone($node, $pid);
	eval { wait_for('the checkpoint', 5, sub { ended($checkpoint) }) };
	note 'the checkpoint: ' . (ended($checkpoint) ? outcome($checkpoint) : 'goes on waiting');
	kill_all($node) if postmaster_runs($node);
	$disk->free;
	another_kernel($node);
	if (ok(start_again($node), 'the server starts on the disk that was full'))
	{
		nothing_lost($node, 'full disk');
		$node->stop('immediate');
	}
}

# A table that is dropped in the middle of its marks, before those of others are made.
SKIP:
{
	my $node = trust_cluster('dropped', 'kvfdw.test_carried' => 0);
	skip 'needs a test build', 1 unless has_faults($node);
	$node->safe_psql('postgres', join('', map { kv_table("t$_", 'k int, v text', 'k', "shards '1'") . "INSERT INTO t$_ VALUES (1, 'x');" } 1 .. 20));
	trust_tables($node);

	# The victim is the table whose marks are made first; it stays the first as long as
	# none is changed that has not been changed now.
	my $marks = sub { return { map { m{/(\d+)/\d+\z} ? ($1 => scalar(() = KvVersions->read($_)->edits('MARK'))) : () } glob $node->data_dir . '/kvfdw/[0-9]*/*/*' } };
	my %name = map { split /\|/ } split /\n/, $node->safe_psql('postgres', "SELECT oid, relname FROM pg_class WHERE relkind = 'f'");
	my $victim;
	for my $round (2 .. 5)
	{
		change($node);
		$node->safe_psql('postgres', join('', map { "INSERT INTO t$_ VALUES ($round, 'x');" } 1 .. 20));
		my $before = $marks->();
		worker_stop_points($node, 'mark_written=wait');
		my $checkpoint = psql_writer($node, 'CHECKPOINT;', "round$round");
		stopped($node, 'mark_written');
		my $now = $marks->();
		my ($new) = grep { $now->{$_} > ($before->{$_} // 0) } keys %$now;
		$victim = $name{$new};
		append_to_file($node->data_dir . '/kvfdw/continue.mark_written', '');
		is(outcome($checkpoint), '', "the first marks are those of $victim");
		worker_stop_points($node, '');
		unlink $node->data_dir . '/kvfdw/continue.mark_written';
		last if $victim !~ /^kv_(.*)/;
		my $other = $1;
		@levels = grep { $_ ne $other } @levels;
	}
	cmp_ok(scalar(@levels), '>', 0, "and those of these levels come after it: @levels");
	change($node);
	$node->safe_psql('postgres', "INSERT INTO $victim VALUES (0, 'y')");
	worker_stop_points($node, 'mark_synced=wait');
	my $pid = checkpointer_pid($node);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	stopped($node, 'mark_synced');
	my $checkpoint = psql_writer($node, 'CHECKPOINT;', 'dropped');
	wait_for('the checkpoint to wait for it', 180, sub { answer($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'checkpointer' AND wait_event IS DISTINCT FROM 'CheckpointerMain'}) eq '1' });
	$node->safe_psql('postgres', "DROP FOREIGN TABLE $victim");
	# the process that is started in its place does not make marks of its own
	worker_stop_points($node, 'mark_captured=wait');
	append_to_file($node->data_dir . '/kvfdw/continue.mark_synced', '');
	note 'the checkpointer stays' unless checkpointer_gone($node, $pid);
	# the next process holds it up if it has not come far enough
	eval { wait_for('the checkpoint', 30, sub { ended($checkpoint) || -e $node->data_dir . '/kvfdw/waiting.mark_captured' }) };
	eval { wait_for('the checkpoint', 2, sub { ended($checkpoint) }) };
	note 'the checkpoint: ' . (ended($checkpoint) ? outcome($checkpoint) : 'goes on waiting');
	kill_all($node) if postmaster_runs($node);
	unlink map { $node->data_dir . "/kvfdw/$_" } 'continue.mark_synced', 'waiting.mark_captured';
	$node->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
	another_kernel($node);
	if (ok(start_again($node), 'the server starts without the dropped table'))
	{
		nothing_lost($node, 'table dropped');
		is(answer($node, "SELECT to_regclass('$victim') IS NULL"), 't', 'the dropped table is gone');
		$node->stop;
	}
}
done_testing();
