# Promise: pg_rewind that copies from a server beside a compaction job, checkpoints and a split there, between its list of files and the
# copies, or between these, makes a standby whose table has the right rows or is damaged
# (XX001), never one with wrong rows, nor after it was killed or the power was gone (I 4, I 11, I 14).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap moves and splits nothing' if heap_only();
my $old = kv_primary('old', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_splits' => 'off', 'kvfdw.compact_workers' => 0);
plan skip_all => 'needs fault injection' unless has_faults($old);
$old->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '1'") . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
my $round = 0;
sub change
{
	my ($node) = @_;
	$round++;
	# most rows are only in files since the servers have parted
	$node->safe_psql('postgres', join ';', map { "INSERT INTO $_ SELECT g * 37 % 3001, rpad(md5((g * $round)::text), 20 + g * 53 % 1900, 'v') FROM generate_series(1, CASE WHEN $round = 1 THEN 3000 ELSE 100 END) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v; DELETE FROM $_ WHERE k % 97 = $round" } 'heap', 't');
	return;
}

# All rows in two orders, and each by its key; or damage.
my $damaged = 0;
sub right_or_damaged
{
	my ($node, $when) = @_;
	my $sql = 'SELECT count(*), sum(hashtextextended(v, k)) FROM T; SELECT md5(string_agg(k || v, $$,$$ ORDER BY k DESC)) FROM T; SELECT count(*) FROM generate_series(0, 3001) g CROSS JOIN LATERAL (SELECT v FROM T WHERE k = g OFFSET 0) s; SELECT count(*) FROM T';
	my $expected = answer($node, $sql =~ s/\bT\b/heap/gr);
	for my $part (0 .. 3)
	{
		my $got = answer($node, "\\set VERBOSITY verbose\n" . ((split /; /, $sql)[$part] =~ s/\bT\b/t/gr));
		next if $got eq (split /\n/, $expected)[$part];
		$damaged++;
		return like($got, qr/XX001/, "$when: rows are wrong only if the table is damaged");
	}
	return pass("$when: the right rows");
}

sub meanwhile
{
	my ($node) = @_;
	change($node);
	$node->safe_psql('postgres', $_) for q{SELECT kvfdw_compact('t', true)}, 'CHECKPOINT', q{SELECT kvfdw_split('t')}, 'CHECKPOINT';
	wait_for('files to go', sub { $node->safe_psql('postgres', q{SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 't'::regclass}) == 0 });
	change($node);
	$node->safe_psql('postgres', q{SELECT kvfdw_flush('t')});
	return;
}

change($old) for 1 .. 3;
my $new = kv_standby($old, 'new');
my @after = (0, 300_000, 2_000_000);
for my $after (@after)
{
	caught_up($old, $new);
	$new->promote;
	change($new);
	# the one that was the primary has what the new one never had
	$old->safe_psql('postgres', q{INSERT INTO t SELECT g, 'old' FROM generate_series(5000, 6000) g; INSERT INTO heap SELECT g, 'old' FROM generate_series(5000, 6000) g; SELECT kvfdw_compact('t', true)});
	$old->stop;
	rewind_during($old, $new, $after, sub { meanwhile($new) });
	right_or_damaged($old, "$after bytes");
	change($new);
	caught_up($new, $old);
	right_or_damaged($old, "$after bytes, it follows");
	kill_all($old);
	$old->start;
	caught_up($new, $old);
	right_or_damaged($old, "$after bytes, killed");
	power_loss($old);
	caught_up($new, $old);
	right_or_damaged($old, "$after bytes, after power loss");
	is(tables_differ($new, 't', 'heap', 'k'), '', "$after bytes: the source has all rows");
	last if $after == $after[-1];

	# the next one starts from a copy that is whole
	$old->stop('immediate');
	my $copy = kv_standby($new, "copy$after");
	($old, $new) = ($new, $copy);
}
note "damaged: $damaged";
$_->stop for $old, $new;
done_testing();
