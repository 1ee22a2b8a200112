#!/usr/bin/perl
# Promise: a base backup, of a primary or a standby, that is taken while clients write, tables are split, compacted, flushed and
# checkpointed, and processes of kvfdw end and come back, holds what heap holds in it when it is restored.
#
#   backup.pl [--rounds N | --seconds N] [--seed N] [--control 0] [--pgbackrest 0] [--dir DIRECTORY]
#
# Runs a primary and a standby in DIRECTORY (default: below $TESTDIR or .). Each table has a heap twin, written by the same
# transactions; some have values in tablespaces. A round draws how the backup is taken: by pg_basebackup at some rate, or by
# pgBackRest, where that is installed, in full or what has changed; and whether "kvfdw checkpointer" ends shortly before. The
# restored server ends its recovery, or follows the primary and is promoted, is compared, written to and checked. The control has
# checkpoints that wait for no marks: rows must be missing from its backup. Prints TAP, one test per round.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use Time::HiRes qw(sleep);
use KvCampaign;

my $option = options('backup', 'seconds=i' => undef, 'kills=i' => 0, 'round-seconds=f' => 3, 'control=i' => 1, 'pgbackrest=i' => 1);
my %place_of = (t0 => '', t1 => 'near', t2 => 'far', t3 => 'near');
my @tables = sort keys %place_of;
my %port = (primary => 6141, standby => 6142, restored => 6143);
my $has_pgbackrest = $option->{pgbackrest} && system('pgbackrest version >/dev/null 2>&1') == 0;
my ($dir, $sockets);

# ---- servers ----

sub run { my ($command) = @_; return system("( $command ) >>'$dir/commands.log' 2>&1 </dev/null") == 0 }

# A query to one of them: its rows, or undef.
sub ask { my ($server, $sql) = @_; local $ENV{PGPORT} = $port{$server}; return query($sql) }

sub start
{
	my ($server, %set) = @_;
	my $set = join ' ', "-p $port{$server}", map { "-c $_=\\\"$set{$_}\\\"" } sort keys %set;
	return run("pg_ctl -D '$dir/$server' -l '$dir/$server.log' -t 240 -w -o \"$set\" start");
}

sub stop { my ($server) = @_; return !-e "$dir/$server/postmaster.pid" || run("pg_ctl -D '$dir/$server' -m immediate -t 60 -w stop") }

# pg_basebackup of a server into another's directory and places.
sub basebackup
{
	my ($of, $to, @options) = @_;
	my $prefix = $of eq 'primary' ? '' : "$of.";
	my @map = map { "-T '$dir/$prefix$_=$dir/$to.$_'" } qw(near far);
	run("rm -rf '$dir/$to' '$dir/$to.near' '$dir/$to.far' '$dir/$to.log'");
	return run("pg_basebackup -p $port{$of} -D '$dir/$to' -N -X stream @map @options");
}

sub follow
{
	my ($server) = @_;
	open my $file, '>>', "$dir/$server/postgresql.auto.conf" or die "postgresql.auto.conf: $!";
	print $file "primary_conninfo = 'host=$sockets port=$port{primary} application_name=$server'\n";
	close $file;
	return run("touch '$dir/$server/standby.signal'");
}

# Until it has replayed what the primary has written.
sub caught_up
{
	my ($server) = @_;
	my $lsn = (query('SELECT pg_current_wal_flush_lsn() FROM pg_create_restore_point(\'caught up\')') // return 0)->[0];
	for (1 .. 2400)
	{
		my $is = ask($server, "SELECT pg_last_wal_replay_lsn() >= '$lsn'");
		return 1 if $is && $is->[0] eq 't';
		sleep 0.05;
	}
	return 0;
}

sub pgbackrest { my (@args) = @_; return run("pgbackrest --config='$dir/pgbackrest.conf' --stanza=kv @args") }

sub make_all
{
	my $name = "$option->{dir}/pgbackrest.conf";
	server_make(fsync => 'off', autovacuum => 'off', wal_level => 'replica', max_wal_senders => 10, hot_standby => 'on', wal_keep_size => '1GB', max_wal_size => '1GB',
		checkpoint_timeout => '1h', max_connections => 30, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.shard_size' => '2MB',
		($has_pgbackrest ? (archive_mode => 'on', archive_command => "pgbackrest --config=$name --stanza=kv archive-push %p") : (archive_mode => 'off')));
	($dir, $sockets) = ($option->{dir}, $ENV{PGHOST});
	rename "$dir/pgbackrest.conf", "$dir/pgbackrest.conf.old";
	symlink 'data', "$dir/primary" or die "symlink: $!";
	mkdir "$dir/$_" for qw(near far repo run);
	if ($has_pgbackrest)
	{
		open my $file, '>', "$dir/pgbackrest.conf" or die "pgbackrest.conf: $!";
		print $file "[global]\nrepo1-path=$dir/repo\nrepo1-retention-full=1\nlock-path=$dir/run\nlog-path=$dir/run\nspool-path=$dir/run\nstart-fast=y\ncompress-type=none\nlog-level-console=warn\n[kv]\npg1-path=$dir/data\npg1-port=$port{primary}\npg1-socket-path=$sockets\npg1-user=postgres\n";
		close $file;
		pgbackrest('stanza-create') or die "pgBackRest makes no stanza, see $dir/commands.log\n";
	}
	places_make($dir);
	for my $t (@tables)
	{
		my $space = $place_of{$t} ? ", tablespace '$place_of{$t}'" : '';
		query("CREATE FOREIGN TABLE $t (w int, k int, v text) SERVER kvfdw OPTIONS (key 'w, k', shards '2'$space)") // die "no table\n";
		query("CREATE TABLE h_$t (w int, k int, v text, PRIMARY KEY (w, k))") // die "no table\n";
	}
	make_standby();
}

sub make_standby
{
	stop('standby');
	basebackup('primary', 'standby', '-c fast') && follow('standby') && start('standby', archive_mode => 'off') or die "there is no standby, see $dir/commands.log and $dir/standby.log\n";
}

# ---- what runs during a backup ----

my $ended;    # when this file is there

sub goes_on { return !-e $ended }

# One transaction on tables and twins, on keys that are this writer's.
sub transaction
{
	my ($w) = @_;
	my $t = $tables[ rand @tables ];
	my @do;
	for (1 .. 1 + rand 3)
	{
		my ($k, $n, $r) = (int rand 400, 1 + int rand 40, rand);
		my $size = $r < 0.05 ? 100_000 : $r < 0.2 ? 8000 : 1500;
		my $op = rand;
		my $what = $op < 0.75 ? "INSERT INTO T SELECT $w, g, rpad(md5('$k.$size' || g), (g * 37) % $size, 'v') FROM generate_series($k, $k + $n) g ON CONFLICT (w, k) DO UPDATE SET v = EXCLUDED.v"
		  : "DELETE FROM T WHERE w = $w AND k BETWEEN $k AND @{[ $k + $n ]}";
		my @both = map { my $to = $_; $what =~ s/\bT\b/$to/r } $t, "h_$t";
		push @do, rand() < 0.1 ? ('SAVEPOINT s', @both, 'ROLLBACK TO s') : @both;
	}
	@do = ("TRUNCATE $t", "TRUNCATE h_$t") if rand() < 0.01;
	return ('BEGIN', @do, rand() < 0.1 ? 'ROLLBACK' : 'COMMIT');
}

sub writer
{
	my ($w) = @_;
	my $session = KvSession->new("writer$w");
	my $done = 0;
	while (goes_on())
	{
		for my $sql (transaction($w))
		{
			my ($state) = $session->run($sql);
			next if defined $state && $state eq '00000';
			# a deadlock with TRUNCATE
			$session->run('ROLLBACK');
			return { error => "writer $w: " . ($state // 'lost') . " at $sql" } if ($state // '') !~ /^40/;
			last;
		}
		$done++;
	}
	$session->close;
	return { done => $done };
}

# Others ask for the same at the same time, or a backup is in the way.
sub keeper
{
	my $session = KvSession->new('keeper');
	my $done = 0;
	while (goes_on())
	{
		my $t = $tables[ rand @tables ];
		my $sql = ("SELECT kvfdw_flush('$t')", "SELECT kvfdw_compact('$t', " . (rand() < 0.5 ? 'true' : 'false') . ')', "SELECT kvfdw_split('$t')", "SELECT kvfdw_cut('$t')", 'CHECKPOINT')[ rand 5 ];
		my ($state) = $session->run($sql);
		return { error => "keeper: lost at $sql" } if !defined $state;
		return { error => "keeper: $state at $sql" } if $state !~ /^(?:00000|40P01|55P03|55006|55000)$/;
		$done++;
		sleep rand 0.3;
	}
	$session->close;
	return { done => $done };
}

# Ends a process of kvfdw's; returns its name.  The buffer writer is not in pg_stat_activity.
sub end_process
{
	my ($name) = @_;
	$name //= ('checkpointer', 'checkpointer', 'checkpointer', 'maintainer', 'compactor', 'prefetch', 'buffer writer')[ rand 7 ];
	my @pids = map { /^\s*(\d+) .*kvfdw \Q$name\E/ ? $1 : () } split /\n/, `ps -o pid=,args= --ppid @{[ postmaster() ]}`;
	kill TERM => $pids[ rand @pids ] if @pids;
	return $name;
}

sub striker
{
	my $done = 0;
	while (goes_on())
	{
		sleep 0.1 + rand 1.5;
		end_process();
		$done++;
	}
	return { done => $done };
}

# ---- a round ----

# What of a server differs.
sub differences
{
	my ($server) = @_;
	my @wrong;
	for my $t (@tables)
	{
		my $both = ask($server, join '; ', map { "SELECT count(*), coalesce(sum(hash_record_extended(s, 0)), 0) FROM $_ s" } $t, "h_$t");
		if (!$both) { push @wrong, "$server: $t cannot be read" }
		elsif ($both->[0] ne $both->[1])
		{
			my $rows = ask($server, "SELECT 'kvfdw only', count(*), min((w, k)::text) FROM (TABLE $t EXCEPT TABLE h_$t) s UNION ALL SELECT 'heap only', count(*), min((w, k)::text) FROM (TABLE h_$t EXCEPT TABLE $t) s") // [];
			push @wrong, "$server: $t differs from its twin: @$both; @$rows";
		}
	}
	return @wrong;
}

sub problems { my ($server) = @_; local $ENV{PGPORT} = $port{$server}; return map { "$server: $_" } kvfdw_problems(@tables) }

sub take
{
	my ($round) = @_;
	if ($round->{how} eq 'pgbackrest')
	{
		pgbackrest('backup', "--type=$round->{type}") or return 0;
		run("rm -rf '$dir'/restored '$dir'/restored.* && mkdir -p '$dir/restored' '$dir/restored.near' '$dir/restored.far' && chmod 700 '$dir/restored'");
		return pgbackrest('restore', '--type=immediate', '--target-action=promote', "--pg1-path='$dir/restored'", map { "--tablespace-map=$_='$dir/restored.$_'" } qw(near far));
	}
	return basebackup($round->{how}, 'restored', '-c fast', $round->{rate} ? "--max-rate=$round->{rate}" : ());
}

sub play
{
	my ($round) = @_;
	my @wrong;
	unlink $ended;
	if ($round->{control}) { query($_) for q{ALTER SYSTEM SET kvfdw.skip = 'checkpointer'}, 'SELECT pg_reload_conf()'; sleep 0.5 }
	my $seed = int rand 2**31;
	launch('writer', $_, $seed + $_, do { my $w = $_; sub { writer($w) } }) for 1 .. 2;
	launch('keeper', 0, $seed + 3, \&keeper);
	launch('striker', 0, $seed + 4, \&striker) if !$round->{control};
	sleep $round->{before};
	if ($round->{ends}) { end_process('checkpointer'); sleep $round->{gap} }
	push @wrong, "no backup, see $dir/commands.log" if !take($round);
	open my $file, '>', $ended or die "$ended: $!";
	close $file;
	my ($hang, @results) = collect(200);
	push @wrong, 'clients hang' if $hang;
	push @wrong, map { $_->{error} || () } @results;
	my $done = join ' ', map { $_->{done} // '?' } @results;
	if ($round->{control}) { query($_) for 'ALTER SYSTEM RESET kvfdw.skip', 'SELECT pg_reload_conf()', 'CHECKPOINT' }
	my $story = join ' ', "backup by $round->{how}", $round->{type} // (), $round->{rate} ? "at $round->{rate}B/s" : (), $round->{ends} ? sprintf('%.1f s after the checkpointer ended', $round->{gap}) : (), $round->{follows} ? 'that follows' : (), "beside $done";
	return ($story, @wrong) if @wrong;

	# ---- restored ----
	unlink "$dir/restored/standby.signal" if $round->{how} ne 'pgbackrest';
	follow('restored') if $round->{follows};
	my @off = (archive_mode => 'off', 'kvfdw.skip' => '');
	if (!start('restored', @off)) { return ($story, "the restored server does not start, see $dir/restored.log") }
	if ($round->{follows})
	{
		push @wrong, 'the restored server does not follow' if !caught_up('restored');
		push @wrong, differences('restored');
		run("pg_ctl -D '$dir/restored' -t 240 -w promote") or push @wrong, 'the restored server is not promoted';
	}
	for (1 .. 2400) { last if (ask('restored', 'SELECT pg_is_in_recovery()') // ['t'])->[0] eq 'f'; sleep 0.05 }
	my @found = differences('restored');
	if (!@found)
	{
		my $sql = join '; ', map { my $t = $_; map { "UPDATE $_ SET v = md5(v) WHERE k % 3 = 0" } $t, "h_$t" } @tables;
		defined ask('restored', $sql) && defined ask('restored', 'CHECKPOINT') or push @found, 'the restored server cannot be written to';
		push @found, differences('restored'), problems('restored');
	}
	stop('restored') or push @wrong, 'the restored server cannot be stopped';
	if ($round->{control})
	{
		push @wrong, 'the control shows nothing' if !@found;
		$story .= '; the control: ' . @found . ' tables lack rows';
		query('SELECT 1');
	}
	else { push @wrong, @found }

	# ---- those that go on ----
	push @wrong, differences('primary');
	if ($round->{how} eq 'standby' || $round->{restart}) { push @wrong, caught_up('standby') ? differences('standby') : 'the standby does not follow' }
	if ($round->{restart}) { stop('standby') && start('standby', archive_mode => 'off') or push @wrong, 'the standby does not come back' }
	run("rm -rf '$dir'/restored '$dir'/restored.*") if !@wrong;
	return ($story, @wrong);
}

my $pgbackrest_taken = 0;
sub choose
{
	my ($n) = @_;
	my $how = $has_pgbackrest && rand() < 0.08 ? 'pgbackrest' : rand() < 0.6 ? 'primary' : 'standby';
	return {
		how => $how, before => 0.1 + rand 0.6, ends => rand() < 0.5 ? 1 : 0, gap => rand 1.2,
		($how eq 'pgbackrest' ? (type => !$pgbackrest_taken++ || rand() < 0.3 ? 'full' : 'incr') : (follows => rand() < 0.3 ? 1 : 0)),
		rate => (0, 0, '32M', '64M')[ rand 4 ], restart => rand() < 0.15 ? 1 : 0 };
}

make_all();
$ended = "$dir/ended";
END { if (defined $dir) { my $code = $?; for (qw(restored standby)) { stop($_) if -e "$dir/$_/postmaster.pid" } $? = $code } }
exit campaign(
	about => 'pgBackRest is ' . ($has_pgbackrest ? 'there' : 'not there'),
	rounds => 20,
	control => $option->{control} ? [ { control => 1, how => 'primary', before => 2, ends => 0, rate => 0 } ] : [],
	play => \&play,
	choose => sub { srand($option->{seed} + 1000 * $_[0]); return choose($_[0]) });
