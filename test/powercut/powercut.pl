#!/usr/bin/perl
# Promise: after a power cut at any moment, also in the recovery from another
# one, the server starts; tables with wal full and keys and heap tables hold
# every acknowledged transaction whole and nothing of any other, but of sessions
# with synchronous_commit off the last may be missing, in the order of commits;
# tables with wal none hold no row that was never committed; all can be written again.
# A table that clients of memcached write in mode "on" has what was acknowledged to them.
#
#   powercut.pl [--cuts N] [--seconds N] [--seed N] [--level LEVEL,…] [--clients N] [--async N]
#               [--registers N] [--disk MEGABYTES] [--control fsync|checkpointer|data_sync|tier_check] [--dir DIRECTORY]
#
# Started by run.sh, as root in a mount namespace of its own.  A server on a
# recorded disk is written by concurrent sessions for --seconds; then the disk is
# rebuilt as cuts at many moments would have left it (KvDisk.pm), and a server is
# started on each and compared with what had been acknowledged (KvWorkload.pm).
# After some cuts the server lives on on a recorded disk and is cut again, in its
# recovery or while it is written.  The seed repeats transactions and the choice
# of cuts; what is written when is a matter of time.
#
# With MOVES=on tables are sent from tablespace to tablespace of that disk all the time.
#
# With TIER=1 there is a second tier that the power cuts do not meet: after each the server
# finds what was there when the recorded life ended, as it would after a clean stop, though
# the disk is set back to before, and places are then written again with other values.
#
# A control breaks durability while the disk is recorded, and fails unless
# acknowledged transactions are seen to be lost.  The control tier_check has the second
# tier's bytes trusted after the cuts, and fails unless wrong values are seen.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl", $FindBin::RealBin;
use File::Path qw(make_path remove_tree);
use KvCampaign;
use IO::Socket::INET;
use KvDisk;
use KvRegisters;
use KvWorkload;
use List::Util qw(max min sum0);
use Time::HiRes qw(sleep time);

my $option = options('powercut', 'cuts=i' => 100, 'seconds=f' => 20, 'level=s' => 'full,keys,none', 'clients=i' => 8, 'async=i' => 2, 'registers=i' => 3, 'disk=i' => 2048,
	'control=s' => '');
my $blind = $option->{control} eq 'tier_check';    # what else than transactions is to be lost …
die "tier_check needs TIER=1\n" if $blind && !$ENV{TIER};
my $again = 20;        # one of so many cuts is followed by others
my $more_cuts = 4;     # by so many

# What breaks durability: settings of the recorded server, and the level that must suffer.
my %controls = (
	fsync     => [ 'heap', fsync          => 'off' ],
	checkpointer   => [ 'full', 'kvfdw.skip'   => 'checkpointer' ],
	data_sync => [ 'keys', 'kvfdw.skip'   => 'data_sync' ],
	tier_check => [ 'full' ]);
my ($victim, %broken) = $option->{control} ? @{ $controls{ $option->{control} } // die "there is no control '$option->{control}'\n" } : '';

my $dir = $option->{dir};
my $disk = "$dir/disk";
my $data = "$disk/data";
my $log = "$dir/server.log";

my %tables;
my @levels = grep { $_ ne 'heap' } split /,/, $option->{level};
for my $level ('heap', @levels)
{
	$tables{"t_$level"} = { level => $level };
	$tables{"side${_}_$level"} = { level => $level, side => $_ } for 0, 1;
}
my $mc_port = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')->sockport;
my @registers;              # what clients of memcached have written in the first life …
our $registers_at;          # … and the size of its log at the cut
my @kvfdw = grep { $tables{$_}{level} ne 'heap' } sort keys %tables;
my @moving = $ENV{MOVES} ? ('cache', grep { $tables{$_}{level} =~ /full|keys/ } @kvfdw) : ();
my %total = (cuts => 0, lost => 0, late => 0, failed => 0, missing => 0, warnings => 0, sent => 0, frames => 0, hits => 0, other => 0);
my $work = KvWorkload->new(seed => $option->{seed}, tables => \%tables, sessions => $option->{clients}, async => $option->{async});

# ---- the server ----

sub server
{
	my (@command) = @_;
	return system("cd / && runuser -u '$ENV{KV_SERVER_USER}' -- @command >>'$dir/commands.log' 2>&1 </dev/null") == 0;
}

# Each start is the first after a boot.
sub start
{
	my (%settings) = @_;
	open my $uuid, '<', '/proc/sys/kernel/random/uuid' or die $!;
	chomp($settings{'kvfdw.boot_id'} = <$uuid>) if $ENV{KV_BOOT_ID};
	unlink "$data/postmaster.pid";    # its process may seem to live, where pids are few
	my $tier = tier_again();
	$settings{'kvfdw.skip'} = 'tier_check' if $tier && $blind;
	return (!$tier || tier_found()) if server("pg_ctl -D '$data' -l '$log' -t 120 -w -o '@{[ map { qq(-c $_=$settings{$_}) } sort keys %settings ]}' start");
	return 0;
}

sub stop { return server("pg_ctl -D '$data' -m " . ($_[0] // 'immediate') . ' -t 60 -w stop') }

# ---- the second tier, with TIER=1 ----

my ($tier, $note) = ("$dir/kv.tier", "$data/kvfdw/warm");

# Keeps it as a clean stop has left it, with the note of what is in it.
sub tier_keep
{
	system('cp', '-p', $_->[0], $_->[1]) == 0 or die "the second tier cannot be kept\n" for [ $tier, "$dir/kept.tier" ], [ $note, "$dir/kept.warm" ];
}

# Has a server that is about to start find it so; false: none was kept.
sub tier_again
{
	return 0 if !-e "$dir/kept.tier";
	system('cp', '-p', $_->[0], $_->[1]) == 0 or die "the second tier cannot be put back\n" for [ "$dir/kept.tier", $tier ], [ "$dir/kept.warm", $note ];
	return 1;
}

# The note goes when it was used.
sub tier_found
{
	for (1 .. 600) { last if !-e $note; sleep 0.1 }
	my $frames = (query(q{SELECT used_bytes / block_size FROM kvfdw_stat_cache WHERE cache = 'tier'}) // return 0)->[0];
	$total{frames} += $frames;
	return !-e $note;
}

# The disk as the recorded life finds it.
sub prepare
{
	my ($image) = @_;
	disk_make($image, $option->{disk});
	disk_mount($image, $disk);
	chmod 0777, $disk;
	server("initdb -N -D '$data' -U postgres -A trust -E UTF8 --locale=C") or die "initdb failed, see $dir/commands.log\n";
	my %settings = (listen_addresses => '', port => $ENV{PGPORT}, unix_socket_directories => $ENV{PGHOST},
		shared_preload_libraries => 'kvfdw', log_line_prefix => '%m [%p] %b ', max_connections => 40, statement_timeout => '120s',
		shared_buffers => '16MB', min_wal_size => '32MB', max_wal_size => '64MB', 'kvfdw.flush_after' => '1s',
		'kvfdw.memtable_memory' => '16MB', 'kvfdw.value_cache' => '1MB', 'kvfdw.write_buffers' => '4MB', 'kvfdw.write_buffer_size' => '64kB',
		tier_settings($dir, '16MB'), max_worker_processes => 32, 'kvfdw.memcached_workers' => $option->{registers} ? 2 : 0, 'kvfdw.memcached_database' => 'postgres',
		'kvfdw.memcached_role' => 'web', 'kvfdw.memcached_listen' => '127.0.0.1', 'kvfdw.memcached_port' => $mc_port, 'kvfdw.memcached_lock_timeout' => '100s',
		($ENV{VALUE_FILE_KB} ? ('kvfdw.test_value_file_kb' => $ENV{VALUE_FILE_KB}) : ()), ($ENV{SPLITS} ? ('kvfdw.test_splits' => 'on') : ()),
		($ENV{COMPACTIONS} ? ('kvfdw.test_compactions' => 'on', 'kvfdw.compact_memory' => '4MB') : ()),
		(@moving ? ('kvfdw.test_space_look' => '200ms') : ()));
	open my $conf, '>>', "$data/postgresql.conf" or die $!;
	print $conf "$_ = '$settings{$_}'\n" for sort keys %settings;
	close $conf;
	start() or die "the server does not start, see $log\n";
	query(join '; ', 'CREATE EXTENSION kvfdw', 'CREATE ROLE web LOGIN', KvRegisters::table('cache', 'full'), 'INSERT INTO cache VALUES ' . KvRegisters::counters(), map { $work->create($_) } sort keys %tables) // die "the tables cannot be made\n";
	if (@moving)
	{
		server('mkdir', "$disk/near", "$disk/far") or die "no directories for tablespaces\n";
		places_make($disk);
	}
	server("pg_ctl -D '$data' -m fast -w stop") or die "the server does not stop, see $log\n";
	disk_umount($disk);
}

# ---- one life on a recorded disk ----

# A session runs its transactions after number $n until the power goes.  Returns
# how many were acknowledged when the log had which size, when each committed at
# the earliest, and when it was acknowledged.
sub client
{
	my ($s, $n, $records) = @_;
	my @acknowledged;
	my $session = KvSession->new("client$s");
	$session->run('SET synchronous_commit = off') if $work->is_async($s);
	while (1)
	{
		my $before = eval { $work->run($session, $s, ++$n) } // do
		{
			chomp(my $error = $@);
			return { acknowledged => \@acknowledged, $error eq 'lost' ? () : (error => "session $s, transaction $n: $error, see client$s.err") };
		};
		push @acknowledged, [ $n, -s $records, $before, now() ];
	}
}

# Checkpoints and flushes until the power goes.  Returns how many checkpoints there were.
sub housekeeper
{
	my ($checkpoints, $session) = (0, KvSession->new('housekeeper'));
	$session->run("SET statement_timeout = '10s'");
	while (1)
	{
		my $checkpoint = !@kvfdw || rand() < 0.5;
		my $sql = $checkpoint ? 'CHECKPOINT' : "SELECT kvfdw_flush('$kvfdw[ rand @kvfdw ]')";
		my ($state) = $session->run($sql);
		return { checkpoints => $checkpoints } if !defined $state;
		next if $state =~ /^(XX000|42P01)$/ && $sql =~ /side/;    # just dropped by its session
		return { error => "$sql: $state, see housekeeper.err" } if $state ne '00000';
		$checkpoints++ if $checkpoint;
		sleep rand 0.5;
	}
}

# The server on $image, whose disk is recorded in $records; $before is called
# when it has started, and returns how many transactions of each session there
# are, or nothing to give up.  Then they go on for some seconds.  Returns for each
# session [ transactions, size of the log when they were acknowledged, and when the
# last of them was committed at the earliest and was acknowledged ] in ascending
# order, the first with size 0; the sizes of the log when the sessions began and
# when they ended; and the number of checkpoints.  Or nothing.
sub life
{
	my ($image, $records, $seconds, $before, $acknowledged) = @_;
	disk_mount_recorded($image, $disk, $records);
	my $there = start(%broken) ? $before->() : undef;
	my $up = -s $records;
	my @known = map { [ [ $_, 0, 0, 'inf' ] ] } @$acknowledged;
	my @errors;
	if (defined $there)
	{
		push @{ $known[$_] }, [ $there->[$_], $up, 0, now() ] for 0 .. $#known;
		my $seed = int rand 2**31;
		for my $s (0 .. $#known) { launch('client', $s, $seed + $s, sub { client($s, $there->[$s], $records) }) }
		launch('housekeeper', '', $seed + 1000, \&housekeeper);
		# what its session drops and creates may be gone, or have other options
		if (@moving) { launch('mover', '', $seed + 1500, sub { keep_moving(qr/^(?:42P01|42704|42710)$/, @moving) }) }
		# not in a second life, which does not write the table
		for my $i (1 .. (@registers ? 0 : $option->{registers})) { launch('register', $i, $seed + 2000 + $i, sub { KvRegisters->new($i, $mc_port)->run_once(sub { -s $records }) }) }
		sleep $seconds;
	}
	my $off = -s $records;
	my $first = $ENV{TIER} && !-e "$dir/kept.tier";
	stop($first ? 'fast' : 'immediate');
	tier_keep() if $first;
	my (undef, @results) = collect(60);
	push @{ $known[$_] }, @{ $results[$_]{acknowledged} // [] } for 0 .. $#known;
	push @errors, map { $_->{error} // () } @results;
	disk_umount($disk);
	die "$_\n" for @errors;
	my ($checkpoints) = map { $_->{checkpoints} // () } @results;
	push @registers, grep { $_->{own} } @results;
	$total{sent} += sum0(map { $_->{sent} // 0 } @results);
	return defined $there ? (\@known, $up, $off, $checkpoints) : ();
}

# How many of each session's transactions were acknowledged when the log had this size.
sub acknowledged_at
{
	my ($known, $position) = @_;
	return [ map {
		my ($low, $high) = (0, $#$_);    # the last one at or before it
		while ($low < $high)
		{
			my $middle = int(($low + $high + 1) / 2);
			if ($_->[$middle][1] <= $position) { $low = $middle } else { $high = $middle - 1 }
		}
		$_->[$low][0];
	} @$known ];
}

# ---- what a cut has left ----

# What a session answers; undef, with the message in @$wrong, if that is an error.
sub answer
{
	my ($session, $wrong, $sql) = @_;
	my ($state, $rows) = $session->run($sql);
	return $rows if defined $state && $state eq '00000';
	open my $messages, '<', "$dir/verify.err";
	my $last = (grep { /(ERROR|FATAL|PANIC):/ } <$messages>)[-1] // 'the connection is lost';
	chomp $last;
	push @$wrong, "$sql: $last";
	return undef;
}

# A table's rows, as lines; undef if it cannot be read.  If the whole cannot be,
# row by row: those that fail are 'damaged'.
sub rows
{
	my ($session, $wrong, $t, $columns) = @_;
	my $rows = answer($session, $wrong, "SELECT $columns FROM $t ORDER BY k");
	return $rows if defined $rows;
	my $keys = answer($session, $wrong, "SELECT k FROM $t") // return undef;
	return [ map { (answer($session, [], "SELECT $columns FROM $t WHERE k = $_") // ["$_|damaged"])->[0] // () } @$keys ];
}

# Compares the running server with what was acknowledged, and with the order that
# $known tells of.  Returns how many transactions of each session there are, then
# what is wrong.
sub verify
{
	my ($acknowledged, $known) = @_;
	my (%found, @wrong);
	my $session = KvSession->new('verify');
	my $columns = 'k, ' . KvWorkload::fingerprint_sql();
	for my $t (sort keys %tables)
	{
		my $problems = @wrong;
		my $rows = rows($session, \@wrong, $t, $columns) // next;
		my %is = map { split /\|/ } @$rows;
		push @wrong, "$t: a key is there twice" if keys %is != @$rows;
		$found{$t} = \%is;
		next if @wrong > $problems;
		my @some = (keys %is)[ 0 .. min($ENV{TIER} ? 3000 : 20, scalar keys %is) - 1 ];
		my $some = answer($session, \@wrong, "SELECT $columns FROM $t WHERE k = ANY ('{" . join(',', @some) . "}')") // next;
		my $differ = @$some != @some || grep { my ($k, $v) = split /\|/; $is{$k} ne $v } @$some;
		push @wrong, "$t: the scan and the look-up differ" if $differ;
		$total{other} += $differ ? 1 : 0;
	}
	$total{hits} += (answer($session, \@wrong, q{SELECT hits FROM kvfdw_stat_cache WHERE cache = 'tier'}) // [0])->[0] if $ENV{TIER};
	for my $t (@kvfdw)
	{
		my $problems = answer($session, \@wrong, "SELECT * FROM kvfdw_check('$t')") // next;
		push @wrong, map { "kvfdw_check('$t'): $_" } @$problems;
	}
	if (@registers && !$option->{control})
	{
		my $rows = answer($session, \@wrong, "SELECT key, convert_from(value, 'UTF8') FROM cache");
		push @wrong, KvRegisters::judge({ map { split /\|/, $_, 2 } @$rows }, {}, map { KvRegisters::as_of($_, $registers_at) } @registers) if $rows;
		push @wrong, map { "kvfdw_check('cache'): $_" } @{ answer($session, \@wrong, "SELECT * FROM kvfdw_check('cache')") // [] };
	}
	$session->close;
	my ($there, $lost, $missing, @judged) = $work->judge($acknowledged, \%found, $known);
	$total{lost} += $lost;
	$total{late} += sum0(map { max(0, $acknowledged->[$_] - $there->[$_]) } 0 .. $#$there);
	$total{missing} += sum0(values %$missing);
	return ($there, @judged, @wrong);
}

# Lets each session of a verified server run its next transaction, and compares
# again.  Returns what is wrong.
sub go_on
{
	my ($there) = @_;
	my @wrong;
	my $session = KvSession->new('verify');
	for my $s (0 .. $#$there)
	{
		eval { $work->run($session, $s, ++$there->[$s]); 1 } or push @wrong, "session $s, transaction $there->[$s]: $@";
	}
	for my $t (@kvfdw)    # those that may have lost rows, too, keep a new one
	{
		my $read = answer($session, \@wrong, "INSERT INTO $t VALUES (0, 'new'); SELECT v FROM $t WHERE k = 0; DELETE FROM $t WHERE k = 0") // next;
		push @wrong, "$t: a new row reads @$read" if "@$read" ne 'new';
	}
	$session->close;
	if (!@wrong)
	{
		(my $now, @wrong) = verify($there);
		push @wrong, map { "of session $_ there are $now->[$_] transactions of $there->[$_]" } grep { $now->[$_] < $there->[$_] } 0 .. $#$there;
	}
	return map { "written after the cut: $_" } @wrong;
}

# Says what is wrong after a cut, and keeps what is needed to look at it.
sub report
{
	my ($story, $make_image, @wrong) = @_;
	$total{cuts}++;
	open my $in, '<', $log;
	$total{warnings} += grep { /WARNING:.*kvfdw/ } <$in>;
	return if !@wrong;
	my $lines = $option->{control} ? 2 : 10;
	splice @wrong, $lines, @wrong, '… ' . (@wrong - $lines) . ' more' if @wrong > $lines;
	print "cut $total{cuts}: $story\n", map { "    $_\n" } @wrong;
	if (!$total{failed}++ && !$option->{control})
	{
		make_path("$dir/kept");
		rename $log, "$dir/kept/server.log";
		$make_image->("$dir/kept/cut.img");
	}
}

# One cut.  $last: no other follows it.
sub cut
{
	my ($recording, $known, $n, $seed, $last, $name) = @_;
	my $acknowledged = acknowledged_at($known, $recording->position($n));
	local $registers_at = $registers_at // $recording->position($n);
	my $image = "$dir/cut.img";
	my @unflushed;
	my $make = sub { srand $seed; @unflushed = $recording->cut($n, $_[0]) };
	$make->($image);
	my $story = sprintf '%s %d records, %d of them unflushed writes (%d lost, %d torn), %d transactions acknowledged', $name, $n, @unflushed, sum0(@$acknowledged);
	unlink $log;
	if ($last)
	{
		disk_mount($image, $disk);
		my ($there, @wrong) = start(fsync => 'off') ? verify($acknowledged, $known) : (undef, 'the server does not start');
		@wrong = go_on($there) if !@wrong;
		stop();
		disk_umount($disk);
		report($story, $make, @wrong);
		return $story;
	}

	# The server recovers and goes on, on a recorded disk.
	my ($base, $records) = ("$dir/again.img", "$dir/again.records");
	disk_copy($image, $base);
	my @wrong = 'the server does not start';
	my ($known_then, $up, $off) = life($image, $records, 1 + rand 1, sub { (my $there, @wrong) = verify($acknowledged, $known); return @wrong ? undef : $there }, $acknowledged);
	report($story, $make, @wrong);
	return $story if !defined $known_then;
	my $second = KvDisk->new($records, $base);
	srand $seed;
	my $end = $second->cut_at($off);
	my @cuts = map { $_ % 2 ? $second->choose($second->cut_at($up), $end) : $second->choose(1, $second->cut_at($up)) } 1 .. $more_cuts;
	for my $i (0 .. $#cuts) { cut($second, $known_then, (sort { $a <=> $b } @cuts)[$i], $seed + 1 + $i, 1, "$n, then") }
	return $story;
}

# ---- the campaign ----

print "seed $option->{seed}, level $option->{level}, $option->{clients} sessions, $option->{async} of them with synchronous_commit off",
  $blind ? ', control: wrong values of the second tier must be seen' : $option->{control} ? ", control: @{[ %broken ]} must lose transactions" : '', "\n";
make_path($disk);
my ($base, $image, $records) = ("$dir/base.img", "$dir/first.img", "$dir/first.records");
prepare($base);
disk_copy($base, $image);
my $begin = time;
my ($known, $up, $off, $checkpoints) = life($image, $records, $option->{seconds}, sub { [ (0) x $option->{clients} ] }, [ (0) x $option->{clients} ]);
defined $known or die "the server does not start, see $log\n";
$checkpoints or die "no checkpoint was completed, see $log\n";
!@moving || $total{sent} or die "no table was sent to another tablespace, see $dir/mover.err\n";
unlink $image;
my $recording = KvDisk->new($records, $base);
my $end = $recording->cut_at($off);
printf "recorded in %.0f s: %d transactions, %d checkpoints, %d writes and flushes, %d MB\n", time - $begin,
  sum0(map { $_->[-1][0] } @$known), $checkpoints, $end, (-s $records) / 2**20;

srand $option->{seed};
my $from = $recording->cut_at($up);
my @cuts = sort { $a <=> $b } map { $recording->choose($from, $end) } 1 .. max(1, int($option->{cuts} * $again / ($again + $more_cuts)));
$begin = time;
for my $i (0 .. $#cuts)
{
	my $story = cut($recording, $known, $cuts[$i], $option->{seed} + 100 * $i, $option->{control} || $i % $again != $again / 2, 'after');
	printf "%4d cuts, %.0f s, the last one %s\n", $total{cuts}, time - $begin, $story if $i % 10 == 9;
}

my $summary = "$total{cuts} cuts, $total{lost} lost transactions, $total{failed} cuts with violations";
$summary .= "; $total{late} transactions of sessions with synchronous_commit off missing" if $option->{async};
$summary .= "; $total{missing} rows of tables with wal none missing, $total{warnings} warnings" if grep { $_ eq 'none' } @levels;
$summary .= "; tables sent to another tablespace $total{sent} times" if @moving;
$summary .= "; $total{frames} frames of the second tier found again, $total{hits} values read there, other ones in $total{other} tables" if $ENV{TIER};
print "$summary\n";
die "the second tier was not read\n" if $ENV{TIER} && !$total{hits};
exit($total{other} == 0) if $blind;
exit($option->{control} ? $total{lost} == 0 : $total{failed} > 0);
