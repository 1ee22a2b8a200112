# Promise: a mark of the version log whose files were removed before a copy was noticed is not the one
# to which the copy is set back: neither in a backup of a standby nor after pg_rewind. What the log
# carries of transactions that have aborted, and of row locks, does not outlive their status in clog.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Test::More;
use KvTest;
use KvReplica;
use KvXid;

plan skip_all => 'heap has no version log' if heap_only();
my $old = kv_primary('old', 'kvfdw.flush_after' => 3600, 'kvfdw.test_splits' => 'off', 'kvfdw.compact_workers' => 0);

sub rows { my ($node) = @_; return answer($node, 'SELECT count(*) FROM t'); }
sub upsert { my ($node, $v, $n) = @_; return $node->safe_psql('postgres', qq{INSERT INTO t SELECT g, repeat('$v', 100) FROM generate_series(1, $n) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v}); }

$old->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '1'"));
upsert($old, 'x', 3000);
$old->safe_psql('postgres', q{SELECT kvfdw_flush('t'); CHECKPOINT});
my $new = kv_standby($old, 'new', 'kvfdw.memtable_memory' => "'16MB'");
upsert($old, 'y', 6000);
$old->safe_psql('postgres', 'CHECKPOINT');
caught_up($old, $new);
$new->safe_psql('postgres', 'CHECKPOINT');

# ---- a backup of a standby that has made marks for a checkpoint whose record it has not replayed ----

SKIP:
{
	skip 'needs fault injection', 1 unless has_faults($old);

	# the standby flushes, because memory is short
	upsert($old, 'z', 300_000) for 1 .. 2;
	caught_up($old, $new);
	worker_stop_points($old, 'checkpoint_before_release=wait');
	my $checkpoint = psql_writer($old, 'CHECKPOINT', 'checkpoint');
	stopped($old, 'checkpoint_before_release');
	caught_up($old, $new);
	$new->backup('b', backup_options => [ '--checkpoint=fast', '--wal-method=fetch', '--no-verify-checksums' ]);
	my $copy = PostgreSQL::Test::Cluster->new('copy');
	$copy->init_from_backup($new, 'b', has_streaming => 1);
	$copy->start;
	is(rows($copy), 300_000, 'a backup of it has all rows');
	$copy->stop('immediate');
	worker_stop_points($old, '');
	go_on($old, 'checkpoint_before_release');
	reap_writer($checkpoint);
}
my $all = rows($old);

# ---- pg_rewind ----

caught_up($old, $new);
$new->promote;
$old->safe_psql('postgres', q{INSERT INTO t SELECT -g, 'old' FROM generate_series(1, 100) g});
$old->stop;
for my $v (qw(n m o))
{
	upsert($new, $v, 6000);
	$new->safe_psql('postgres', q{SELECT kvfdw_flush('t'); CHECKPOINT; SELECT kvfdw_compact('t'); CHECKPOINT});
}
my $conf = slurp_file($old->data_dir . '/postgresql.conf');
command_ok([ 'pg_rewind', '--target-pgdata', $old->data_dir, '--source-server', $new->connstr('postgres'), '--no-sync' ], 'pg_rewind');
open my $file, '>', $old->data_dir . '/postgresql.conf' or die;
print $file $conf;
close $file;
$old->enable_streaming($new);
$old->append_conf('postgresql.conf', "recovery_target_timeline = latest\n");
$old->start;
caught_up($new, $old);
is(rows($old), $all, 'a server that was rewound has the rows of its source');
$_->stop('immediate') for $old, $new;

# ---- clog forgets what is carried ----

my $node = kv_primary('xids', 'kvfdw.flush_after' => 86400, autovacuum_freeze_max_age => 100_000_000);
$node->stop;
jump_to($node, 3 * SEGMENT - 32768);
$node->start;
$node->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '1'"));
upsert($node, 'x', 10);
$node->safe_psql('postgres', q{SELECT kvfdw_flush('t'); CHECKPOINT; CHECKPOINT; BEGIN; INSERT INTO t VALUES (100, 'no'); ROLLBACK; CHECKPOINT});
$node->stop('immediate');
$node->start;
is(rows($node), 10, 'an aborted version that is carried is not there');
burn_to($node, 3 * SEGMENT + 1000);
burn($node, 250_000);
$node->safe_psql('postgres', 'CHECKPOINT');
ok(eval { wait_for('VACUUM to remove a segment', sub { freeze_all($node); (segments($node))[0] == 3 }) }, 'clog is truncated');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop('immediate');
$node->start;
is(rows($node), 10, 'after a crash, its status is not asked for');
$node->stop;
$node->start;
is(rows($node), 10, 'nor after a clean stop');

done_testing();
