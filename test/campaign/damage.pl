#!/usr/bin/perl
# Promise: damage to any file, whatever it is and whenever it happens, is an error
# that says so, or harmless.  It is never a row missing or wrong in silence, a crash
# or a hang; it hurts no other table; kvfdw_check finds it where rows are hurt.
#
#   damage.pl [--cases N] [--seed N] [--case N] [--kind KIND] [--fault FAULT] [--state STATE]
#             [--level LEVEL] [--dir DIRECTORY]
#
# One server with a table of each wal level and a heap table is brought
# into three states: killed (crash), stopped (stop), killed and started under another
# kernel (reboot).  Each case damages one file of such a state, starts the server and
# compares.  A table with level none may lose rows after a reboot, or with the buffer
# file that has its last ones, but show none that
# was never committed.  kinds, faults and states are drawn, or those that the command
# line names; --case N plays that case alone.  Prints what each kind of file led to,
# and what was wrong, with what repeats it.
use strict;
use warnings;
use Digest::MD5 qw(md5);
use Fcntl ':mode';
use File::Basename qw(basename dirname);
use File::Find;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvCampaign;
use KvVersions;
use Time::HiRes qw(time lstat utime);

my @kinds = qw(control buffers table versions log run val unusable);
my @faults = (('flip') x 8, qw(empty header half short garbage zeros hole old_block old_file missing swapped other_shard));
my @states = qw(crash stop reboot);
my @levels = qw(full keys none);

my $option = options('damage', 'cases=i' => 600, 'case=i' => undef, 'kind=s' => undef, 'fault=s' => undef, 'state=s' => undef, 'level=s' => undef);
my %header = (control => 16592, buffers => 4096, table => 152, versions => 64, log => 64, run => 4096, val => 4096, unusable => 16);
# what tells of damage: XX001, and that a file is missing, cannot be read, is of another version or table, or that the table is unusable
my $telling = qr/^(?:XX001|58P01|58030|0A000|55000)$/;

# ---- files ----

sub files_below
{
	my ($root) = @_;
	my %found;
	find({ no_chdir => 1, wanted => sub {
		my (undef, undef, $mode, undef, undef, undef, undef, $size, undef, $time) = lstat($_);
		$found{ substr $_, length $root } = S_ISDIR($mode) ? 'd' : "$size $time" if length $_ > length $root;
	} }, $root);
	return \%found;
}

sub read_file
{
	my ($path) = @_;
	open my $file, '<:raw', $path or die "$path: $!";
	local $/;
	return scalar(<$file>) // '';
}

sub write_file
{
	my ($path, $bytes) = @_;
	open my $file, '>:raw', $path or die "$path: $!";
	print $file $bytes or die "$path: $!";
	close $file or die "$path: $!";
}

# Make $to what $from is, directories in place: a copy of kvfdw would not be
# trusted.  What has the same size and time is the same.
sub restore
{
	my ($from, $to) = @_;
	my ($is, $was) = (files_below($to), files_below($from));
	for my $path (sort { $b cmp $a } grep { !defined $was->{$_} } keys %$is)
	{
		if ($is->{$path} eq 'd') { rmdir "$to$path" or die "$to$path: $!" }
		else { unlink "$to$path" or die "$to$path: $!" }
	}
	for my $path (sort keys %$was)
	{
		next if defined $is->{$path} && $is->{$path} eq $was->{$path};
		if ($was->{$path} eq 'd') { mkdir "$to$path", 0700 or die "$to$path: $!"; next }
		write_file("$to$path", read_file("$from$path"));
		chmod 0600, "$to$path";
		my $time = (lstat("$from$path"))[9];
		utime $time, $time, "$to$path";
	}
}

# ---- the states ----

server_make('kvfdw.flush_after' => '1h', fsync => 'off', autovacuum => 'off', min_wal_size => '32MB', max_wal_size => '1GB', checkpoint_timeout => '1h',
	statement_timeout => '120s', shared_buffers => '16MB', 'kvfdw.range_cache' => '2MB', include_if_exists => 'damage.conf');
my $dir = $option->{dir};
my ($data, $log) = ("$dir/data", "$dir/server.log");
my $kernel = 0;

# Settings of test builds: the kernel that kvfdw takes for the running one, and where processes wait.
# A case is a copy, of which level none would not trust anything.
sub configure { my ($stop_points) = @_; write_file("$data/damage.conf", "kvfdw.boot_id = 'kernel $kernel'\nkvfdw.skip = 'witness'\nkvfdw.stop_points = '" . ($stop_points // '') . "'\n") }
sub another_kernel { $kernel++; configure() }

sub must { my ($sql) = @_; return query($sql) // die "a statement failed, see $log: " . substr($sql, 0, 100) . "\n" }

my $changes = 0;

# The same in all tables.  Each statement commits, and past has every row that ever was.
sub change
{
	my (@sql) = @_;
	my $n = ++$changes;
	for my $sql (@sql)
	{
		must(join ';', 'BEGIN', (map { $sql =~ s/%s/$_/r =~ s/%n/$n/gr } 'heap', map { "kv_$_" } @levels),
			'INSERT INTO past (TABLE heap UNION TABLE kv_none) EXCEPT TABLE past', 'COMMIT');
	}
}

sub stop_server { my ($how) = @_; return system("pg_ctl -D '$data' -m $how -t 180 -w stop >/dev/null 2>&1") == 0 || server_kill('all') }

# An index entry of each sort in each place that may hold one: a base run, runs that are
# not frozen, logs that a mark covers and others, write buffers that were written and not.
sub prepare
{
	must(join ';', 'CREATE TABLE heap (k int PRIMARY KEY, v text)', 'CREATE TABLE past (k int, v text)',
		'CREATE TABLE heap_lost AS SELECT g AS k, g::text AS v FROM generate_series(1, 50) g',
		(map { table_of_kind('kvfdw', "kv_$_", 'k int, v text', 'k', 3) =~ s/\)$/, wal '$_')/r } @levels),
		table_of_kind('kvfdw', 'kv_lost', 'k int, v text', 'k') =~ s/\)$/, wal 'keys')/r, 'INSERT INTO kv_lost TABLE heap_lost', 'CHECKPOINT');
	query(join '', <DATA>) // die "the judge cannot be made, see $log\n";

	# its newest mark is damaged, so it cannot be set back
	my $oid = must("SELECT 'kv_lost'::regclass::oid")->[0];
	server_kill('all');
	my $lost = KvVersions->read(glob "$data/kvfdw/*/$oid/*");
	$lost->flip(($lost->edits('MARK'))[-1]);
	another_kernel();
	server_start() or die "the server does not start, see $log\n";

	# keys of every shard
	change("INSERT INTO %s SELECT 1500007 * g * 3, rpad(g::text, g % 60, 'a') FROM generate_series(-200, 400) g", "INSERT INTO %s SELECT 1500007 * (g * 3 + 1), repeat(md5(g::text), g % 5 * 40) FROM generate_series(-50, 100) g");
	must("SELECT kvfdw_flush('kv_$_')") for @levels;
	change("UPDATE %s SET v = 'n%n ' || k WHERE k % 5 = 0");
	must('CHECKPOINT');
	my $old = KvSession->new('snapshot');
	$old->run('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM heap');
	for my $i (2, 7)
	{
		change("UPDATE %s SET v = rpad('n%n ' || k, k % 50 + 60, 'b') WHERE k % 11 = $i", "DELETE FROM %s WHERE k % 17 = $i", "INSERT INTO %s SELECT 1500007 * (g * 3 + 2), md5(g::text) FROM generate_series($i * 20, $i * 20 + 60) g");
		must("SELECT kvfdw_flush('kv_$_')") for @levels;
	}
	change("UPDATE %s SET v = rpad('n%n ' || k, 120, 'c') WHERE k % 13 = 0");
	must('CHECKPOINT');
	system('cp', '-a', "$data/kvfdw", "$dir/past") == 0 or die;
	# from here on full write buffers are sealed, but none is written
	configure('buffer_before_write=wait');
	must('SELECT pg_reload_conf()');
	change("UPDATE %s SET v = repeat('n%n ' || k, 60) WHERE k % 2 = 0", "DELETE FROM %s WHERE k % 19 = 3", "INSERT INTO %s SELECT 1500007 * (g * 3 + 2), md5(g::text) FROM generate_series(-150, -90) g");
	change("UPDATE %s SET v = 'n%n ' || k WHERE k % 7 = 0", "DELETE FROM %s WHERE k % 23 = 3", "INSERT INTO %s SELECT 1500007 * (g * 3 + 2), g FROM generate_series(-80, -60) g");
	server_kill('all');
	$old->close;
	configure();
	unlink glob "$data/kvfdw/waiting.*";
	system('cp', '-a', $data, "$dir/crash") == 0 or die;
	server_start() or die "the server does not start, see $log\n";
	change("UPDATE %s SET v = 'n%n ' || k WHERE k % 29 = 0", "DELETE FROM %s WHERE k % 31 = 4", "INSERT INTO %s SELECT 1500007 * (g * 3 + 2), g FROM generate_series(-55, -40) g");
	stop_server('fast');
	system('cp', '-a', $data, "$dir/stop") == 0 or die;
}

# ---- damage ----

sub flip
{
	my ($path, $at, $bit) = @_;
	my $bytes = read_file($path);
	substr($bytes, $at, 1) = chr(ord(substr $bytes, $at, 1) ^ 1 << $bit);
	write_file($path, $bytes);
}

sub garbage { return join '', map { chr int rand 256 } 1 .. $_[0] }

# A place in a file: its header, its last bytes that are not zero, what it has not had
# for long, or somewhere else where it is not zero, if that is to be found.
sub place
{
	my ($bytes, $kind, $old) = @_;
	my $x = rand;
	(my $trimmed = $bytes) =~ s/\0+\z//;
	my $end = length $trimmed || length $bytes;
	return int rand($end < $header{$kind} ? $end : $header{$kind}) if $x < 0.2;
	return $end - 1 - int rand($end < 200 ? $end : 200) if $x < 0.4;
	if ($x < 0.7 && defined $old && $old ne $bytes)
	{
		my $change = $bytes ^ substr($old, 0, length $bytes);
		my @new = grep { substr($change, $_ * 32, 32) =~ /[^\0]/ } 0 .. (length($change) - 1) / 32;
		# of write buffers: the headers and entries, which are after all values
		my $values = $kind eq 'buffers' ? 4096 + 16384 * unpack 'x24 L<', $bytes : 0;
		@new = grep { $_ * 32 >= $values } @new if rand() < 0.8;
		my $at = 32 * $new[ rand @new ] + int rand 32;
		return $at if @new && $at < length $bytes;
	}
	for (1 .. 200)
	{
		my $at = int rand $end;
		return $at if substr($bytes, $at - $at % 16, 16) =~ /[^\0]/;
	}
	return int rand $end;
}

# Do one to a file; what was done, or undef if there is nothing to do it with.
sub damage
{
	my ($fault, $kind, $file, @alike) = @_;
	my $path = "$data/kvfdw$file";
	my $bytes = read_file($path);
	my $size = length $bytes;
	my $old = -f "$dir/past$file" ? read_file("$dir/past$file") : undef;
	my @others = grep { $_ ne $file && read_file("$data/kvfdw$_") ne $bytes } @alike;
	my @of_table = grep { dirname($_) eq dirname($file) } @others;
	return undef if $size == 0 && $fault ne 'garbage';
	if ($fault eq 'flip')
	{
		my ($at, $bit) = (place($bytes, $kind, $old), int rand 8);
		flip($path, $at, $bit);
		return "bit $bit of byte $at of $size flipped";
	}
	my %cut = (empty => 0, header => ($header{$kind} < $size ? $header{$kind} : $size) - 1, half => int($size / 2), short => $size - 1);
	if (defined $cut{$fault}) { truncate $path, $cut{$fault}; return "cut from $size to $cut{$fault} bytes" }
	if ($fault eq 'garbage' || $fault eq 'zeros')
	{
		my $more = (1, 8, 100, 4096)[ rand 4 ];
		write_file($path, $bytes . ($fault eq 'zeros' ? "\0" x $more : garbage($more)));
		return "$more bytes of $fault behind its $size";
	}
	if ($fault eq 'hole' || $fault eq 'old_block')
	{
		my $from = place($bytes, $kind, $old);
		$from -= $from % 512;
		my $length = $size - $from < 4096 ? $size - $from : 4096;
		return undef if $fault eq 'old_block' && !defined $old;
		my $block = $fault eq 'hole' ? "\0" x $length : substr($old . "\0" x $size, $from, $length);
		return undef if $block eq substr($bytes, $from, $length);
		substr($bytes, $from, $length) = $block;
		write_file($path, $bytes);
		return "bytes $from to " . ($from + $length) . " of $size " . ($fault eq 'hole' ? 'zeroed' : 'as they once were');
	}
	if ($fault eq 'old_file')
	{
		return undef if !defined $old || $old eq $bytes;
		write_file($path, $old);
		return "an older version of it, of " . length($old) . " bytes, for its $size";
	}
	if ($fault eq 'missing') { unlink $path; return "removed, of $size bytes" }
	if ($fault eq 'swapped')
	{
		return undef unless @others;
		my $other = $others[ rand @others ];
		write_file($path, read_file("$data/kvfdw$other"));
		write_file("$data/kvfdw$other", $bytes);
		return "exchanged with $other";
	}
	return undef unless @of_table;
	my $other = $of_table[ rand @of_table ];
	write_file($path, read_file("$data/kvfdw$other"));
	return "$other in its place";
}

# ---- one case ----

my (%table_of, %of_table);    # a table's directory, and back
my ($only_table, @outcomes);

# What kind of file a path below kvfdw is, or ''.
sub kind_of
{
	my ($path) = @_;
	my $name = basename($path);
	return $name if $path =~ m{^/(?:control|buffers)$} || $name =~ /^(?:table|unusable)$/;
	return $name =~ /\.(versions|log|run|val)$/ ? $1 : '';
}

sub log_since { my ($from) = @_; open my $file, '<', $log or return ''; seek $file, $from, 0; local $/; return <$file> // '' }

# Returns the outcome, the story and what is wrong.
sub play
{
	my ($n) = @_;
	srand unpack 'L', md5("$option->{seed} $n");
	# every kind of file comes with every fault, in time
	my $kind = $option->{kind} // $kinds[ $n % @kinds ];
	my $fault = $option->{fault} // $faults[ ($n / @kinds) % @faults ];
	my $state = $option->{state} // $states[ rand @states ];
	my $level = $option->{level} // $levels[ rand @levels ];
	$level = 'lost' if $kind eq 'unusable';
	restore($state eq 'stop' ? "$dir/stop" : "$dir/crash", $data);
	unlink "$data/postmaster.pid";
	another_kernel() if $state eq 'reboot';

	my $all = files_below("$data/kvfdw");
	my @alike = sort grep { $all->{$_} ne 'd' && kind_of($_) eq $kind } keys %$all;
	my @candidates = grep { m{^/(?:control|buffers)$} || m{^/\d+/$of_table{"kv_$level"}/} } @alike;
	return ('nothing to damage', "$kind of $level in state $state") unless @candidates;
	my $file = $candidates[ rand @candidates ];
	my $what = damage($fault, $kind, $file, @alike) // return ('nothing to damage', "$fault on $kind of $level in state $state");
	my $is_shared = $file !~ m{/.*/};
	my $story = "$state, " . ($is_shared ? 'all' : $level) . ": kvfdw$file: $what";

	my $from = -s $log;
	my @wrong;
	my $up = server_start();
	my ($mark, %verdict) = ('right');
	if (!$up)
	{
		my $said = log_since($from);
		my $name = basename($file);
		push @wrong, 'the server does not start, and the log does not name the file' unless $said =~ /FATAL:.*\Q$name\E/;
		push @wrong, 'the server does not come up within its time' if $said !~ /FATAL/;
		push @wrong, "damage to one table's file keeps the server down" unless $is_shared;
		$mark = 'no start';
	}
	else
	{
		my $lines = query(join ' UNION ALL ', map { "SELECT '$_|' || judge('kv_$_', '" . ($_ eq 'lost' ? 'heap_lost' : 'heap') . "')" } @levels, 'lost');
		if (!defined $lines) { push @wrong, 'the judge gets no answer'; $mark = 'crash' }
		for my $line (@{ $lines // [] })
		{
			my ($of, $states, $missing, $extra, $never, $check, $message) = split /\|/, $line, 7;
			my $hit = $is_shared || $of eq $level || $what =~ m{/\d+/$of_table{"kv_$of"}/};
			my $may_lose = $of eq 'none' && ($state eq 'reboot' || $kind eq 'buffers');
			my @alien = grep { $_ !~ $telling } split /,/, $states;
			push @wrong, "$of: SQLSTATE @alien: $message" if @alien;
			push @wrong, "$of: another table suffers: $states $message" if $states ne '' && !$hit && $of ne 'lost';
			push @wrong, "$of: $missing rows missing, $extra rows wrong in silence" if $may_lose ? $never : $missing || $extra;
			push @wrong, "$of: rows cannot be read ($states), but kvfdw_check finds nothing" if $states ne '' && $check eq '0' && $of ne 'lost';
			$mark = 'error' if $states ne '' && $of ne 'lost' && $mark eq 'right';
			$mark = 'error' if $of eq $level && $kind eq 'unusable' && $states ne '';
			$mark = 'loss allowed' if $may_lose && ($missing || $extra) && $mark eq 'right' && $hit;
		}
	}
	my $said = log_since($from);
	push @wrong, "a process crashed: $1" if $said =~ /(.*(?:terminated by signal (?!9\b)|PANIC:|TRAP:).*)/;
	push @wrong, 'a statement hangs' if $said =~ /canceling statement due to statement timeout/;
	stop_server('immediate') if -e "$data/postmaster.pid";
	$mark = $wrong[0] =~ /in silence/ ? 'SILENT' : $wrong[0] =~ /crash|no answer/ ? 'CRASH' : $wrong[0] =~ /hang|within/ ? 'HANG' : 'WRONG' if @wrong;
	$mark = 'CRASH' if grep { /a process crashed/ } @wrong;
	return ($mark, $story, @wrong);
}

# ---- all of them ----

my $began = time;
prepare();
%of_table = map { split /\|/ } do { server_start() or die "the server does not start, see $log\n"; @{ must("SELECT relname, oid FROM pg_class WHERE relkind = 'f'") } };
server_kill('all');
# what was written last there counts as what is saved in it
restore("$dir/stop", $data);
printf "# seed %d, prepared in %.0f s\n", $option->{seed}, time - $began;

my (%count, %seen, @violations);
my @marks = ('right', 'error', 'no start', 'loss allowed', 'nothing to damage', 'SILENT', 'CRASH', 'HANG', 'WRONG');
for my $n (defined $option->{case} ? $option->{case} : 0 .. $option->{cases} - 1)
{
	my ($mark, $story, @wrong) = play($n);
	my $kind = $option->{kind} // $kinds[ $n % @kinds ];
	$count{$kind}{$mark}++;
	printf "%s %d - %s: %s\n", @wrong ? 'not ok' : 'ok', $n + 1, $story, $mark;
	print "# $_\n" for @wrong;
	my $chosen = join '', map { defined $option->{$_} ? " $_=$option->{$_}" =~ s/(\w+)=/\U$1=/r : '' } qw(kind fault state level);
	push @violations, "$story\n    " . join("\n    ", map { s/\s+/ /gr } @wrong) . "\n    again: make damage SEED=$option->{seed} CASE=$n$chosen" if @wrong;
}
printf "1..%d\n# %.0f s\n#\n", defined $option->{case} ? 1 : $option->{cases}, time - $began;
my @columns = grep { my $mark = $_; grep { $_->{$mark} } values %count } @marks;
printf "# %-10s" . ' %18s' x @columns . "\n", 'file', @columns;
printf "# %-10s" . ' %18s' x @columns . "\n", $_, map { $_ // '' } @{ $count{$_} }{@columns} for grep { $count{$_} } @kinds;
print "#\n# ", scalar(@violations), " violations\n", map { "# $_\n" =~ s/\n(?=.)/\n# /gr } @violations;
exit(@violations ? 1 : 0);

__DATA__
-- Compare a table with a heap table, in every way to read it.  Returns, separated by
-- bars: the SQLSTATEs of errors, rows missing and rows wrong or too many in what was read,
-- rows that never were, what kvfdw_check finds or its SQLSTATE, the first message.
CREATE FUNCTION judge(t text, h text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	states text[] := '{}'; message text := ''; said text;
	missing bigint := 0; extra bigint := 0; never bigint := 0; found text; m bigint; e bigint; n bigint; q text; r record; x text;
BEGIN
	FOREACH q IN ARRAY ARRAY[
		'SELECT count(*) FILTER (WHERE t.k IS NULL), count(*) FILTER (WHERE h.k IS NULL OR (t.k IS NOT NULL AND t.v IS DISTINCT FROM h.v)) FROM %2$I h FULL JOIN (SELECT k, v FROM %1$I ORDER BY k OFFSET 0) t USING (k)',
		'SELECT count(*) FILTER (WHERE t.k IS NULL), count(*) FILTER (WHERE h.k IS NULL OR (t.k IS NOT NULL AND t.v IS DISTINCT FROM h.v)) FROM %2$I h FULL JOIN (SELECT k, v FROM %1$I ORDER BY k DESC OFFSET 0) t USING (k)',
		'SELECT greatest(a - b, 0), greatest(b - a, 0) FROM (SELECT count(*) FROM %2$I) x (a), (SELECT count(*) FROM %1$I) y (b)']
	LOOP
		BEGIN
			EXECUTE format(q, t, h) INTO m, e;
			missing := greatest(missing, m); extra := greatest(extra, e);
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS said = MESSAGE_TEXT;
			IF NOT SQLSTATE = ANY (states) THEN states := states || SQLSTATE::text; END IF;
			IF message = '' THEN message := said; END IF;
		END;
	END LOOP;
	m := 0; e := 0;
	FOR r IN EXECUTE format('SELECT k, v FROM %I WHERE random() < 0.25 UNION ALL SELECT g, NULL FROM generate_series(-650, 1350) g (i), LATERAL (SELECT i * 1500007) x (g) WHERE g NOT IN (SELECT k FROM %1$I) AND random() < 0.1', h) LOOP
		BEGIN
			EXECUTE format('SELECT v FROM %I WHERE k = $1', t) INTO x USING r.k;
			GET DIAGNOSTICS n = ROW_COUNT;
			IF n = 0 AND r.v IS NOT NULL THEN m := m + 1; END IF;
			IF n > 0 AND x IS DISTINCT FROM r.v THEN e := e + 1; END IF;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS said = MESSAGE_TEXT;
			IF NOT SQLSTATE = ANY (states) THEN states := states || SQLSTATE::text; END IF;
			IF message = '' THEN message := said; END IF;
		END;
	END LOOP;
	missing := greatest(missing, m); extra := greatest(extra, e);
	IF missing + extra > 0 THEN
		BEGIN
			EXECUTE format('SELECT count(*) FROM (TABLE %I EXCEPT ALL TABLE past) s', t) INTO never;
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END IF;
	BEGIN
		EXECUTE format('SELECT count(*) FROM kvfdw_check(%L)', t) INTO found;
	EXCEPTION WHEN OTHERS THEN found := SQLSTATE;
	END;
	RETURN concat_ws('|', array_to_string(states, ','), missing, extra, never, found, message);
END $$;
