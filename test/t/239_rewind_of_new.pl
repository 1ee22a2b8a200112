# Promise: a shard of the source of pg_rewind that gets its first mark between the list of files and the
# copies has all rows on the rewound server, if a backup holds the files (I 11, I 14).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has no marks' if heap_only();
my $old = kv_primary('old', 'kvfdw.flush_after' => 3600, 'kvfdw.compact_workers' => 0, 'kvfdw.test_splits' => 'off');
plan skip_all => 'needs fault injection' unless has_faults($old);
my @tables = qw(fresh carried one);
sub change { my ($node, $sql) = @_; return $node->safe_psql('postgres', join ';', map { $sql =~ s/TABLE_/$_/gr } 'heap', @tables) }
sub same
{
	my ($node, $when) = @_;
	for my $table (@tables)
	{
		is(tables_differ($node, $table, 'heap', 'k'), '', "$when: $table has heap's rows");
		is(kv_check_clean($node, $table), '', "$when: $table is sound");
	}
	return;
}

$old->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . join '', map { kv_table($_, 'k int, v text', 'k', q{shards '1'}) } @tables);
my $new = kv_standby($old, 'new');
caught_up($old, $new);
$new->promote;
change($old, q{INSERT INTO TABLE_ VALUES (0, 'old')});
$old->stop;

# 'fresh' and 'carried' have no mark, and 'one' has one
change($new, q{INSERT INTO TABLE_ SELECT g, 'a' FROM generate_series(1, 20) g});
$new->safe_psql('postgres', q{SELECT kvfdw_flush('one'); CHECKPOINT; BEGIN; CREATE TEMPORARY TABLE rows AS TABLE fresh; TRUNCATE fresh; INSERT INTO fresh TABLE rows; COMMIT});
my $holder = in_steps($new, 'holder', q{SELECT pg_backup_start('rewind', true);}, 'SELECT 1;');
step_done($holder);
rewind_during($old, $new, 0, sub {
	for my $round (1 .. 3)
	{
		change($new, qq{INSERT INTO TABLE_ SELECT g, repeat('$round', 200) FROM generate_series(10 * $round, 300) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v});
		$new->safe_psql('postgres', join ';', (map { "SELECT kvfdw_flush('$_')" } @tables), 'CHECKPOINT');
	}
	change($new, q{DELETE FROM TABLE_ WHERE k % 7 = 0});
});
step_go($holder);
append_to_file("$holder->{base}.1.go", '');
outcome($holder->{w});
same($old, 'rewound');
change($new, q{INSERT INTO TABLE_ SELECT -g, 'b' FROM generate_series(1, 20) g});
$new->safe_psql('postgres', 'CHECKPOINT');
caught_up($new, $old);
power_loss($old);
caught_up($new, $old);
same($old, 'after power loss');
same($new, 'the source');
$_->stop for $old, $new;
done_testing();
