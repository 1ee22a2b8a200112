# Promise: what was acknowledged with a synchronous standby is on it when it is
# promoted; a server that was the primary follows the new one, cleanly stopped or by
# pg_rewind; tables of wal level keys and none say that they are not there.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";

# $standby follows $node from now on.
sub follow
{
	my ($standby, $node) = @_;
	$standby->enable_streaming($node);
	$standby->append_conf('postgresql.conf', "recovery_target_timeline = latest\n");
	return $standby->start;
}
sub synchronous
{
	my ($node, $commit) = @_;
	$node->append_conf('postgresql.conf', "synchronous_standby_names = '*'\nsynchronous_commit = $commit\n");
	$node->reload;
	return wait_for('synchronous replication', sub { answer($node, q{SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'}) eq '1' && setting($node, 'synchronous_commit') eq $commit });
}
sub twins
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($node, 'twin_kv', 'twin_heap', 'w, i'), '', $what);
	return sound($node, $what);
}

# ---- a synchronous standby, and the primary is lost; the old one is rewound ----

my $first = kv_primary('one');
twin_tables($first);
my $second = kv_standby($first, 'two');
for my $commit ('on', 'remote_apply', ('on') x (($ENV{KV_ROUNDS} // 0) > 2))
{
	my $busy = $commit eq 'on';
	synchronous($first, $commit);
	my $load = start_load($first, 1 .. 2);
	load_goes_on($load, 8);
	kill_all($first);
	my %acked = stop_load($load);
	$second->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
	$second->reload;
	$second->promote;
	is(join('', map { answer($second, "SELECT 'lost $_' WHERE coalesce((SELECT n FROM acked WHERE w = $_), 0) < $acked{$_}") } grep { $acked{$_} > 0 } keys %acked), '', "$commit: what was acknowledged is on the promoted standby");
	twins($second, 'which is sound');

	# the old one has more than the new one ever had
	$first->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
	$first->start;
	$first->safe_psql('postgres', "INSERT INTO twin_kv SELECT 8, g, repeat('old', g) FROM generate_series(1, 2000) g; INSERT INTO twin_heap SELECT * FROM twin_kv WHERE w = 8; SELECT kvfdw_flush('twin_kv');" . kv_table("old_$commit", 'k int, v text', 'k') . "INSERT INTO old_$commit SELECT g, 'old' FROM generate_series(1, 100) g; CHECKPOINT");
	$first->stop;

	# pg_rewind reads the timeline from the control file
	$second->safe_psql('postgres', 'CHECKPOINT');
	# so that no file is removed while pg_rewind copies
	my $holder = in_steps($second, "holder$commit$load->{1}{out}" =~ s/\W/_/gr, q{SELECT pg_backup_start('rewind', true);}, 'SELECT 1;');
	step_done($holder);
	if ($busy)
	{
		$load = start_load($second, 1 .. 2);
		load_goes_on($load, 3);
	}
	my $saved = slurp_file($first->data_dir . '/postgresql.conf');
	command_ok([ 'pg_rewind', '--target-pgdata', $first->data_dir, '--source-server', $second->connstr('postgres'), '--no-sync' ], 'pg_rewind');
	open(my $conf, '>', $first->data_dir . '/postgresql.conf') or die;
	print $conf $saved;
	close $conf;
	if ($busy)
	{
		load_goes_on($load, 6);
		stop_load($load);
	}
	step_go($holder);
	append_to_file("$holder->{base}.1.go", '');
	outcome($holder->{w});
	follow($first, $second);
	caught_up($second, $first);
	same_rows($second, $first, $busy ? 'rewound while the source is written to' : 'rewound');
	is(answer($first, "SELECT count(*) FROM pg_class WHERE relname = 'old_$commit'"), '0', 'without what only the old one had');
	$second->safe_psql('postgres', "INSERT INTO twin_kv VALUES (6, 1, 'x'); INSERT INTO twin_heap VALUES (6, 1, 'x'); CHECKPOINT; DELETE FROM twin_kv WHERE w = 6; DELETE FROM twin_heap WHERE w = 6");
	caught_up($second, $first);
	same_rows($second, $first, 'and follows');
	power_loss($first);
	caught_up($second, $first);
	same_rows($second, $first, 'also after power loss');
	($first, $second) = ($second, $first);
}

# ---- switchover: the primary is stopped cleanly and becomes the standby ----

for my $round (1 .. $ENV{KV_ROUNDS} // 2)
{
	my $load = start_load($first, 1 .. 2);
	load_goes_on($load, 5);
	$first->stop('fast');
	stop_load($load);
	$second->promote;
	twins($second, "switchover $round: the promoted standby is sound");
	$load = start_load($second, 1 .. 2);
	load_goes_on($load, 5);
	follow($first, $second);
	power_loss($first) if $round % 2 == 0;
	load_goes_on($load, 8);
	stop_load($load);
	caught_up($second, $first);
	same_rows($second, $first, "switchover $round: the old primary follows");
	($first, $second) = ($second, $first);
}

# ---- wal levels keys and none ----

my @lower = map { my $l = $_; map { "${l}_$_" } qw(before after truncated) } qw(keys none);
sub level { my ($t) = @_; return kv_table($t, 'k int, v text', 'k', q{wal '} . ($t =~ /keys/ ? 'keys' : 'none') . q{'}) . fill($t, 500); }
sub fill { my ($t, $n) = @_; return "INSERT INTO $t SELECT g, repeat(g::text, 50) FROM generate_series(1, $n) g;"; }
sub counts { my ($node, @t) = @_; return join(' ', map { answer($node, "SELECT count(*) || ':' || sum(length(v)) FROM $_") } @t); }

SKIP:
{
	skip 'heap has no wal levels', 1 if heap_only();
	$first->safe_psql('postgres', join('', map { level($_) } grep { /before|truncated/ } @lower, 'keys_before_full', 'none_before_full'));
	my $third = kv_standby($first, 'three');
	$first->safe_psql('postgres', join('', map { level($_) } grep { /after/ } @lower) .
		join('', map { "TRUNCATE $_; " . fill($_, 100) } grep { /truncated/ } @lower) .
		join('', map { "ALTER FOREIGN TABLE ${_}_before_full OPTIONS (SET wal 'full');" . fill("${_}_before_full", 0) } 'keys', 'none') . 'CHECKPOINT;' .
		join('', map { "UPDATE $_ SET v = v || 'x' WHERE k % 2 = 0;" } @lower, 'keys_before_full', 'none_before_full'));
	caught_up($first, $_) for $third, $second;
	my @raised = map { "${_}_before_full" } 'keys', 'none';
	is(counts($third, @raised), counts($first, @raised), 'a table that was raised to level full is on the standby');
	is(counts($second, @raised), counts($first, @raised), 'also on one that saw its beginning');
	unusable($_, 'standby ' . $_->name, @lower) for $third, $second;
	my ($rc, $out, $err) = $third->psql('postgres', "SELECT count(*) FROM kvfdw_stat_tables WHERE NOT usable");
	is($out, scalar(@lower), 'the view tells so');
	$third->restart;
	caught_up($first, $third);
	unusable($third, 'restarted', @lower);
	power_loss($third);
	caught_up($first, $third);
	is(counts($third, @raised), counts($first, @raised), 'after power loss too');
	unusable($third, 'after power loss', @lower);
	$third->promote;
	unusable($third, 'promoted', @lower);
	is(counts($third, @raised), counts($first, @raised), 'promoted');
	my ($truncated) = map { counts($_, 'keys_after') } ($third);
	$third->safe_psql('postgres', join('', map { "TRUNCATE $_; " . fill($_, 30) } @lower[ 0 .. 3 ]) . "DROP FOREIGN TABLE $lower[4]; CHECKPOINT; " . join('', map { fill($_, 30) =~ s/SELECT g/SELECT g + 30/r } @lower[ 0 .. 2 ]));
	is(counts($third, @lower[ 0 .. 3 ]), '60:5100 60:5100 60:5100 30:2550', 'truncated, they are usable');
	unusable($third, 'the one that was not', $lower[5]);
	kill_all($third);
	restart_killed($third);
	is(counts($third, @lower[ 0 .. 3 ]), '60:5100 60:5100 60:5100 30:2550', 'after SIGKILL');
	power_loss($third);
	is(counts($third, @lower[ 0 .. 2 ]), '60:5100 60:5100 60:5100', 'after power loss');
	is(kv_check_clean($third, @lower[ 0 .. 3 ]), '', 'and sound');
	is(counts($first, 'keys_before', 'none_before'), counts($first, 'keys_before', 'none_before') =~ s/error//r, 'the primary has them');
	$third->stop;

	# ---- another cluster's directory ----

	my $other = PostgreSQL::Test::Cluster->new('other');
	delete local $ENV{INITDB_TEMPLATE};
	$other->init;
	system('cp', '-a', $third->data_dir . '/kvfdw', $other->data_dir . '/kvfdw') == 0 or die;
	$other->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\n");
	ok(!$other->start(fail_ok => 1), 'a directory of another cluster is refused');
	like(slurp_file($other->logfile), qr/FATAL:  directory "kvfdw" belongs to another database cluster/, 'with the reason');
}
done_testing();
