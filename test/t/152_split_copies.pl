# Promise: splits are no standby's business: one follows its primary through them with bounds of its own, and
# is split by hand when it is promoted; a copy of the primary that was split has the new bounds; and a copy that a base backup
# makes while a shard is split, cut or joined to its neighbour is whole, whichever files it has got before and which after (I 14, I 18).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;
use KvMaps;

plan skip_all => 'heap has no shards' if heap_only();
my $primary = kv_primary('primary', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_splits' => 'off');
plan skip_all => 'needs fault injection' unless has_faults($primary);
my $data = $primary->data_dir;
$primary->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '1'") . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
sub query { return $primary->safe_psql('postgres', @_); }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
sub shards { my ($node) = @_; return $node->safe_psql('postgres', "SELECT shards FROM kvfdw_stat_tables WHERE relid = 't'::regclass"); }
my $round = 0;
sub change
{
	$round++;
	both("INSERT INTO T SELECT g * 37 % 2001 + $round, rpad(md5((g * $round)::text), 20 + g * 53 % 900, 'v') FROM generate_series(1, 600) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v; DELETE FROM T WHERE k % 23 = $round % 23; INSERT INTO T SELECT 10000 * $round + g, 'new' FROM generate_series(1, 100) g");
	return;
}

# ---- standbys ----
change() for 1 .. 3;
my $standby = kv_standby($primary, 'standby');
query(q{SELECT kvfdw_split('t')});
change();
my $late = kv_standby($primary, 'late');
query(q{SELECT kvfdw_cut('t')});
change();
query('CHECKPOINT');
change();
caught_up($primary, $_) for $standby, $late;
cmp_ok(shards($primary), '>', 8, 'the primary has many shards');
is(shards($standby), 1, 'a standby of before has one');
is(shards($late), 8, 'and one that was made of a copy has what that had');
same_as_heap($_, $_->name) for $standby, $late;
$_->stop('immediate') for $standby, $late;
change();
$_->start for $standby, $late;
caught_up($primary, $_) for $standby, $late;
same_as_heap($_, $_->name . ', killed') for $standby, $late;
like(($standby->psql('postgres', q{SELECT kvfdw_split('t')}))[2], qr/during recovery/, 'a standby splits nothing');
$late->stop;

# A session that changes the map, or (undef) the worker that does, stopped in the middle.
sub change_until
{
	my ($kind, $point) = @_;
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	my $function = $kind eq 'split' ? 'kvfdw_split' : 'kvfdw_cut';
	my $sql = "SELECT $function('t')";
	my $session = $kind eq 'absorb' ? query($sql) && undef : psql_writer($primary, "SET kvfdw.stop_points = '$point=wait'; $sql", "$kind$round");
	if ($kind eq 'absorb')
	{
		# what was cut off has nothing, and goes
		worker_stop_points($primary, "$point=wait");
		query('ALTER SYSTEM SET kvfdw.test_shard_kb = 1000000');
		$primary->reload;
	}
	stopped($primary, $point);
	return $session;
}

# ---- copies in the middle of a change ----
my %point = (split => 'split_copied', cut => 'cut_made', absorb => 'map_appended');
for my $case ([qw(split log)], [qw(split values)], [qw(cut log)], [qw(absorb values)], $ENV{KV_ALL} ? ([qw(cut values)], [qw(absorb log)]) : ())
{
	my ($kind, $first) = @$case;
	my $when = "$kind, $first first";
	my $name = "${kind}_$first";
	# with few shards, which are soon split
	both('TRUNCATE T');
	change() for 1 .. 2;
	query('CHECKPOINT') if $first eq 'values';
	change();
	my $session = change_until($kind, $point{$kind});
	my $label = "$PostgreSQL::Test::Utils::tmp_check/$name.label";
	my $backup = in_steps($primary, "backup_$name", "SELECT pg_backup_start('$name', true);", "SELECT labelfile FROM pg_backup_stop(false) \\g $label");
	step_done($backup);
	my $copy = PostgreSQL::Test::Cluster->new("copy_$name");
	$copy->init;
	my $to = $copy->data_dir;
	my $early = $first eq 'log' ? '-name "*.versions"' : '\( -name "*.val" -o -name "*.run" -o -name "*.log" \)';
	system("rm -rf '$to' && mkdir -m 700 '$to' && cd '$data' && find . -type d -exec mkdir -p -m 700 '$to/{}' ';' && find kvfdw -type f $early -exec cp --parents -p '{}' '$to' ';'") == 0 or die;
	my $many = shards($primary);
	if ($session) { like(go_on($primary, $point{$kind}, $session), qr/while a base backup is running/, "$when: one shard is changed beside the backup, and no more"); }
	else
	{
		worker_stop_points($primary, '');
		go_on($primary, $point{$kind});
		ok(eval { wait_for('the shard to be joined', sub { shards($primary) == $many - 1 }) }, "$when: one shard goes beside the backup") or diag shards($primary) . " of $many";
	}
	change();
	system("cd '$data' && find . -type f ! -path './pg_wal/*' ! -name 'postmaster*' ! -name 'waiting.*' -exec cp --parents -n -p '{}' '$to' ';'");
	step_go($backup);
	append_to_file("$backup->{base}.1.go", '');
	outcome($backup->{w});
	change();
	system("rm -rf '$to'/pg_wal/* && cp -a '$data'/pg_wal/0* '$to/pg_wal/' && mkdir -p '$to/pg_wal/archive_status'") == 0 or die;
	append_to_file("$to/backup_label", slurp_file($label));
	$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\nunix_socket_directories = '" . $copy->host . "'\n");
	$copy->enable_streaming($primary);
	$copy->start;
	caught_up($primary, $copy);
	same_as_heap($copy, "copied, $when");
	$copy->promote;
	$copy->safe_psql('postgres', q{SELECT kvfdw_split('t')});
	same_as_heap($copy, "$when, promoted and split");
	$copy->stop;
	same_as_heap($primary, "$when, the primary");
	ok(eval { wait_for('the map to be settled', sub { map_is_durable(glob "$data/kvfdw/5/*/0*") }) }, "$when: when the backup has ended the map before goes");
	query('ALTER SYSTEM RESET kvfdw.test_shard_kb');
	$primary->reload;
}
$primary->stop;
$standby->promote;
same_as_heap($standby, 'promoted');
cmp_ok($standby->safe_psql('postgres', q{SELECT kvfdw_split('t')}), '>', 4, 'it splits then');
same_as_heap($standby, 'promoted and split');
$standby->stop;
done_testing();
