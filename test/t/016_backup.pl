# Promise: a base backup of tables with wal level full has what heap has in it, by any tool, in
# any order of copying, and during writes, checkpoints, flushes, TRUNCATE and DROP. So does a cold
# copy.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use File::Copy 'copy';
use Test::More;
use KvTest;
use KvReplica;

my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";
my $node = kv_primary('p');
twin_tables($node);
my $data = $node->data_dir;
my $next = 0;

sub change
{
	$next++;
	my $from = 1000 * $next;
	$node->safe_psql('postgres', join('', map { "INSERT INTO $_ SELECT w, $from + i, repeat('b' || i, 1 + i % 300) FROM generate_series(1, 3) w, generate_series(1, 60) i;
		UPDATE $_ SET v = 'new $next' WHERE i % 5 = $next % 5; DELETE FROM $_ WHERE i % 31 = $next % 31; INSERT INTO $_ VALUES (4, $from, repeat('$next', 150000));\n" } 'twin_kv', 'twin_heap'));
	return;
}
sub churn { change(); $node->safe_psql('postgres', q{CHECKPOINT; SELECT kvfdw_flush('twin_kv')}); change(); $node->safe_psql('postgres', 'CHECKPOINT'); return; }

# A standby of a backup has caught up and holds the same.
sub good
{
	my ($s, $what, $from) = @_;
	$from //= $node;
	caught_up($from, $s);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($s, 'twin_kv', 'twin_heap', 'w, i'), '', $what);
	is(rows_of($s, 'twin_kv', 'w, i'), rows_of($node, 'twin_kv', 'w, i'), 'with the rows of the primary');
	return $s;
}

# ---- pg_basebackup ----

change();
good(kv_standby($node, 'first'), 'a backup')->stop('immediate');
$node->safe_psql('postgres', 'CHECKPOINT');
change();
my $keep = good(kv_standby($node, 'written'), 'a backup of what was written since the last checkpoint');
good(kv_standby($node, 'again'), 'a backup when nothing was written since the last')->stop('immediate');
change();
caught_up($node, $keep);
my $of_standby = good(kv_standby($keep, 'of_standby'), 'a backup of a standby', $keep);
change();
caught_up($node, $keep);
$keep->safe_psql('postgres', 'CHECKPOINT');
power_loss($of_standby);
good($of_standby, 'after power loss', $keep)->stop;
for my $round (1 .. $ENV{KV_ROUNDS} // 1)
{
	my $load = start_load($node, 1 .. 2);
	load_goes_on($load, 5);
	my @taken = (kv_standby($node, "load$round"), kv_standby($keep, "standby_load$round"));
	load_goes_on($load, 15);
	stop_load($load);
	same_rows($node, good($taken[0], "a backup under load $round"), "load $round");
	caught_up($node, $keep);
	same_rows($keep, good($taken[1], "of the standby under load $round", $keep), "standby load $round");
	$_->stop('immediate') for @taken;
}
$node->append_conf('postgresql.conf', "track_activities = off\n");
$node->reload;
my $load = start_load($node, 1 .. 2);
load_goes_on($load, 5);
my $s = kv_standby($node, 'untracked');
stop_load($load);
same_rows($node, good($s, 'a backup with track_activities = off'), 'untracked');
$s->stop('immediate');
$keep->stop;

# ---- copies by hand, between pg_backup_start and pg_backup_stop ----

# A backup begins: in a transaction that stays open, or not.
sub begin_backup
{
	my ($name, $open) = @_;
	my $session = in_steps($node, $name, ($open ? 'BEGIN;' : '') . "SELECT pg_backup_start('$name', true);", "SELECT labelfile FROM pg_backup_stop(false) \\g " . "$PostgreSQL::Test::Utils::tmp_check/$name.label");
	step_done($session);
	return { session => $session, label => "$PostgreSQL::Test::Utils::tmp_check/$name.label", name => $name };
}
sub end_backup
{
	my ($backup) = @_;
	step_go($backup->{session});
	append_to_file("$backup->{session}{base}.1.go", '');
	outcome($backup->{session}{w});
	return;
}

my @orders = (
	[ 'marks_first', '[.]versions$', '[.](run|log)$', '.' ],
	[ 'marks_last', '[.]val$', 'kvfdw.*[.](run|log)$', '[.]versions$', '.' ],
	[ 'truncated', '/table$', '[.](val|run)$', '[.]versions$|[.]log$', '.' ],
	[ 'gone', '[.](val|run)$', '.' ]);
my $other;
for my $order (@orders)
{
	my ($name, @patterns) = @$order;
	change();
	my $backup = begin_backup($name, $name eq 'marks_last');
	$other = begin_backup('other', 0) if $name eq 'marks_first';
	my $copy = PostgreSQL::Test::Cluster->new($name);
	$copy->init;
	my $to = $copy->data_dir;
	system('rm', '-rf', $to) == 0 or die;
	mkdir $to, 0700;
	system(qq{cd '$data' && find . -type d -print0 | (cd '$to' && xargs -0 mkdir -p)}) == 0 or die;
	my %copied;
	for my $pattern (@patterns)
	{
		churn();
		$node->safe_psql('postgres', q{TRUNCATE twin_kv; TRUNCATE twin_heap}) if $pattern eq '.' && $name =~ /truncated|gone/;
		collected($node) if !heap_only();
		change();
		copy_new($to, $pattern, \%copied);
	}
	end_backup($backup);
	if ($name eq 'marks_last') { end_backup($other); }
	churn();
	system("rm -rf '$to/pg_wal'/* && cp -a '$data'/pg_wal/0* '$to/pg_wal/' && mkdir -p '$to/pg_wal/archive_status'") == 0 or die;
	PostgreSQL::Test::Utils::append_to_file("$to/backup_label", slurp_file($backup->{label}));
	$copy->append_conf('postgresql.conf', "port = " . $copy->port . "\nunix_socket_directories = '" . $copy->host . "'\n");
	$copy->enable_streaming($node);
	$copy->start;
	good($copy, "copied by hand: $name");
	change();
	good($copy, 'and it follows');
	$copy->promote;
	sound($copy, 'promoted');
	$copy->stop;
}

# Copy what matches and was not copied yet, of the directories that there were when the copy began.
sub copy_new
{
	my ($to, $pattern, $copied) = @_;
	my @files = grep { !$copied->{$_} && m{$pattern} && !m{postmaster|^pg_wal/|waiting[.]} } split /\n/, `cd '$data' && find . -type f -printf '%P\\n'`;
	for my $f (@files)
	{
		my ($dir) = "$to/$f" =~ m{^(.*)/};
		$copied->{$f} = 1;
		copy("$data/$f", "$to/$f") if -d $dir;
	}
	return;
}

# ---- cold copies ----

for my $how ('fast', 'kill')
{
	change();
	if ($how eq 'kill') { kill_all($node); }
	else { $node->stop($how); }
	my $copy = PostgreSQL::Test::Cluster->new("cold_$how");
	$copy->init;
	system('rm', '-rf', $copy->data_dir) == 0 or die;
	system('cp', '-a', $data, $copy->data_dir) == 0 or die;
	unlink $copy->data_dir . '/postmaster.pid';
	$copy->append_conf('postgresql.conf', "port = " . $copy->port . "\nunix_socket_directories = '" . $copy->host . "'\n");
	$copy->start;
	$node->start;
	is(tables_differ($copy, 'twin_kv', 'twin_heap', 'w, i'), '', "a cold copy, $how");
	is(rows_of($copy, 'twin_kv', 'w, i'), rows_of($node, 'twin_kv', 'w, i'), 'has the rows of the original');
	sound($copy, "cold copy, $how");
	$copy->stop;
}
done_testing();
