# Promise: a base backup whose checkpoint is made while there is no process "kvfdw checkpointer" is whole, whatever marks the next one
# makes while files are copied; so is one of a standby that replays the records of a checkpointer that ends and of the next (I 14).
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
use KvReplica;

plan skip_all => 'heap has no version log' if heap_only();
my $primary = kv_primary('primary', 'kvfdw.flush_after' => 3600);
unless (has_faults($primary))
{
	$primary->stop;
	plan skip_all => 'needs a build with fault injection';
}
$ENV{PGOPTIONS} = '-c kvfdw.stop_points=';
$primary->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '2'") . 'CREATE TABLE heap (k int PRIMARY KEY, v text)');
my $round = 0;

sub change
{
	$round++;
	$primary->safe_psql('postgres', join(';', map { "INSERT INTO $_ SELECT g * 37 % 2001, rpad('$round', g * 53 % 900, 'v') FROM generate_series(1, 600) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v" } 't', 'heap'));
	return;
}

sub checkpointer { return answer($primary, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'kvfdw checkpointer'}) }
sub end_checkpointer { return $primary->safe_psql('postgres', 'SELECT pg_terminate_backend(' . checkpointer() . ')'); }

# The next checkpointer has let writers go on.
sub checkpointer_again
{
	my ($before) = @_;
	wait_for('the next checkpointer', sub { my $now = checkpointer(); $now =~ /^\d+$/ && $now ne $before });
	return change();
}

# ---- a copy by hand: first all that marks name, then the version logs, but no runs and key logs that have been made since ----

sub begin_copy
{
	my ($from, $name, $logs_too) = @_;
	my $label = "$PostgreSQL::Test::Utils::tmp_check/$name.label";
	my $session = in_steps($from, $name, "SELECT pg_backup_start('$name', true);", "SELECT rtrim(labelfile, E'\\n') FROM pg_backup_stop(false) \\g $label");
	step_done($session);
	my $copy = PostgreSQL::Test::Cluster->new($name);
	$copy->init;
	my $to = $copy->data_dir;
	my $data = $from->data_dir;
	my $but = $logs_too ? '' : "! -name '*.versions'";
	system("rm -rf '$to' && mkdir -m 700 '$to' && cd '$data' && find . -type d -exec mkdir -p -m 700 '$to/{}' ';' && find kvfdw -type f $but ! -name control ! -name 'waiting.*' -exec cp --parents -p '{}' '$to' ';'") == 0 or die;
	return { from => $from, copy => $copy, session => $session, label => $label, but => $logs_too ? "! -name '*.versions'" : '' };
}

sub end_copy
{
	my ($c) = @_;
	my ($from, $to) = map { $_->data_dir } @$c{qw(from copy)};
	system("cd '$from' && find . -type f ! -path './pg_wal/*' ! -path ./global/pg_control ! -name '*.run' ! -name '*.log' $c->{but} ! -name 'postmaster*' ! -name 'waiting.*' ! -name standby.signal -exec cp --parents -n -p '{}' '$to' ';' && cp -p global/pg_control '$to/global/'") == 0 or die;
	step_go($c->{session});
	append_to_file("$c->{session}{base}.1.go", '');
	outcome($c->{session}{w});
	system("rm -rf '$to'/pg_wal/* && cp -a '$from'/pg_wal/0* '$to/pg_wal/' && mkdir -p '$to/pg_wal/archive_status'") == 0 or die;
	append_to_file("$to/backup_label", slurp_file($c->{label}));
	my $copy = $c->{copy};
	$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\nunix_socket_directories = '" . $copy->host . "'\nkvfdw.stop_points = ''\n");
	$copy->append_conf('postgresql.auto.conf', "kvfdw.stop_points = ''\n");
	$copy->enable_streaming($primary);
	$copy->start;
	caught_up($primary, $copy);
	return $copy;
}

# ---- of a primary ----

for my $marks (1, 0)
{
	my $when = $marks ? 'shards have marks' : 'shards have no mark yet';
	$primary->safe_psql('postgres', 'TRUNCATE t; TRUNCATE heap') if !$marks;
	change() if $marks;
	$primary->safe_psql('postgres', 'CHECKPOINT') if $marks;
	change();
	my $before = checkpointer();
	worker_stop_points($primary, 'checkpointer_before_raise=wait');
	end_checkpointer();
	stopped($primary, 'checkpointer_before_raise');
	my $copying = begin_copy($primary, "primary$marks");
	$primary->safe_psql('postgres', q{SELECT kvfdw_flush('t')});
	worker_stop_points($primary, '');
	go_on($primary, 'checkpointer_before_raise');
	checkpointer_again($before);
	my $copy = end_copy($copying);
	same_as_heap($copy, "of the primary, $when");
	change();
	caught_up($primary, $copy);
	$copy->promote;
	same_as_heap($copy, "of the primary, $when, promoted");
	$copy->stop;
	same_as_heap($primary, "the primary, $when");
}

# ---- of a standby ----

my $standby = kv_standby($primary, 'standby');

# Its maintainer makes a run of what its last mark has in logs.
sub freeze_standby
{
	my $runs = sub { return join(' ', sort glob($standby->data_dir . '/kvfdw/*/*/*/*.run')) };
	my $before = $runs->();
	$standby->append_conf('postgresql.conf', "kvfdw.flush_after = 1\n");
	$standby->reload;
	return wait_for('the standby to freeze', sub { $runs->() ne $before });
}

for my $case ('ends', 'begins')
{
	change();
	$primary->safe_psql('postgres', 'CHECKPOINT');
	change();
	my $before = checkpointer();
	worker_stop_points($primary, 'checkpointer_before_raise=wait');
	if ($case eq 'begins')
	{
		end_checkpointer();
		stopped($primary, 'checkpointer_before_raise');
		# no mark is made for this one
		$primary->safe_psql('postgres', 'CHECKPOINT');
	}
	caught_up($primary, $standby);
	my $copying = begin_copy($standby, "standby_$case");
	if ($case eq 'ends')
	{
		change();
		end_checkpointer();
		stopped($primary, 'checkpointer_before_raise');
	}
	else { freeze_standby(); }
	worker_stop_points($primary, '');
	go_on($primary, 'checkpointer_before_raise');
	checkpointer_again($before);
	caught_up($primary, $standby);
	my $copy = end_copy($copying);
	same_as_heap($copy, "of a standby, the checkpointer of its primary $case");
	change();
	caught_up($primary, $copy);
	$copy->promote;
	same_as_heap($copy, "of a standby, the checkpointer of its primary $case, promoted");
	$copy->stop;
	same_as_heap($standby, "the standby, $case");
}

# ---- of a standby, where the primary's checkpointer has had no time before the checkpoint that ends a recovery ----

for my $begins ('before', 'after')
{
	my $when = "$begins marks of its redo pointer are made";
	change();
	$primary->safe_psql('postgres', 'CHECKPOINT');
	change();
	caught_up($primary, $standby);
	kill_all($primary);
	$primary->append_conf('postgresql.auto.conf', "kvfdw.stop_points = 'checkpointer_before_raise=wait'\n");
	$primary->start;
	stopped($primary, 'checkpointer_before_raise');
	caught_up($primary, $standby);
	my $copying = $begins eq 'before' && begin_copy($standby, "late_$begins", 1);
	worker_stop_points($primary, '');
	go_on($primary, 'checkpointer_before_raise');
	change();
	caught_up($primary, $standby);
	$copying ||= begin_copy($standby, "late_$begins", 1);
	my $copy = end_copy($copying);
	if ($begins eq 'after') { same_as_heap($copy, $when); }
	else { like(answer($copy, 'SELECT count(v) FROM t'), qr/ERROR:  foreign table "t" is unusable.*restartpoint is later/s, "$when: the table is refused"); }
	$copy->stop;
	same_as_heap($standby, "$when: the standby");
}
$standby->stop;
$primary->stop;
done_testing();
