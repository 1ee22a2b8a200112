#!/usr/bin/perl
# Promise: whatever a store goes through, its version log says what the server has: the map, and the runs, key logs
# and value files of each shard.  After each kill, restart and power cut the server is what the log then said, every
# file that counts was there, no other file stays, and the rows are those of a model.
#
#   versions.pl [--sequences N] [--tables N] [--steps N] [--jobs N] [--seed N] [--no-control] [--dir DIRECTORY]
#
# Each job has a server in DIRECTORY (default: below $TESTDIR or .) with so many small tables of all wal levels.  In a
# round each table goes through a sequence of steps: changes, rolled back or not, flushes, compactions, splits,
# cuts, absorptions and checkpoints, interleaved with those of other tables.  Then the server ends: by SIGKILL, of all or
# of one process, at rest or at a stop point; by a power cut, after which nothing is there that was not synced; or politely.
# perl/KvVersions.pm reads the logs, and shares no code with the server.  The first round of the first job is the
# control: a log that has lost a mark must be noticed.  At level none a power cut may take what was not marked: a row
# then has any state that it had since the last checkpoint.
#
# The last line says how many sequences passed and failed.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use File::Path qw(make_path);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvCampaign;
use KvVersions;
use POSIX ();
use Time::HiRes qw(sleep time);

my $option = options('versions', 'sequences=i' => 1000, 'tables=i' => 40, 'steps=i' => 8, 'jobs=i' => 2, 'control!' => 1, 'most-failures=i' => 10);
my @levels = qw(full keys none);
use constant { VALUE_FILE_KB => 64, PATIENCE => 60, FEW_SHARDS => 4, MOST_SHARDS => 24 };

my ($dir, $data, $log, $session, $said_last, $boot) = (undef, undef, undef, undef, '', 0);
my (%table, %met, %tried, %took, @points, $serial, $made, $passed, $failed);
my $job;

# ---- the server ----

sub slurp { my ($path) = @_; open my $file, '<:raw', $path or return undef; local $/; return scalar(<$file>) // '' }

# Settings of test builds; another boot id: what was not synced is not believed.
sub configure
{
	my (%is) = @_;
	open my $file, '>', "$data/versions.conf" or die "versions.conf: $!";
	print $file "kvfdw.boot_id = 'boot $boot'\nkvfdw.stop_points = '" . ($is{points} // '') . "'\nkvfdw.test_shard_kb = " . ($is{absorb} ? 1000000 : 0) . "\n";
	close $file or die "versions.conf: $!";
	my $pid = postmaster();
	kill HUP => $pid if defined $pid;
	return;
}

# A session that meets no stop point.
sub session
{
	return $session if $session;
	$session = KvSession->new("job$job");
	$session->run("SET kvfdw.stop_points = ''");
	return $session;
}

sub hang_up { if ($session) { $session->close; undef $session } return }

# The rows of a statement; undef, and the SQLSTATE in $@, if it fails.
sub ask
{
	my ($sql) = @_;
	my ($state, $rows) = session()->run($sql);
	if (($state // 'lost') eq '00000') { $@ = ''; return $rows }
	hang_up() if !defined $state;
	my ($said) = reverse grep { /(?:ERROR|FATAL|PANIC):/ } split /\n/, substr(slurp("$dir/job$job.err") // '', -4000);
	$@ = $state // 'lost';
	$said_last = defined $state ? ($said // '') =~ s/.*?(?=ERROR|FATAL|PANIC)//r : 'the connection was lost';
	return undef;
}

sub must { my ($sql) = @_; return ask($sql) // die "$said_last: " . substr($sql, 0, 300) . "\n" }

# ---- tables ----

sub make_table
{
	my $name = 't' . ++$made;
	my $t = { name => $name, level => $levels[ rand @levels ], shards => (1, 1, 2, 5)[ rand 4 ], rows => {}, base => {}, past => {}, story => [] };

	# keys of one shard, or of all
	$t->{scale} = $t->{shards} == 1 ? 1 : (1, 2_000_003)[ rand 2 ];
	must("CREATE FOREIGN TABLE $name (k int NOT NULL, n int, v text) SERVER kvfdw OPTIONS (key 'k', shards '$t->{shards}', wal '$t->{level}')");
	$t->{oid} = must("SELECT '$name'::regclass::oid")->[0];
	$table{$name} = $t;
	return $t;
}

sub drop_table
{
	my ($t) = @_;
	must("DROP FOREIGN TABLE $t->{name}");
	delete $table{ $t->{name} };
	return;
}

# The directory of a table's store: that of its newest generation.
sub store_of
{
	my ($t) = @_;
	my ($newest) = reverse sort glob "$data/kvfdw/*/$t->{oid}/[0-9a-f]*[0-9a-f]";
	return $newest;
}

sub read_log
{
	my ($t) = @_;
	my $store = store_of($t) // return undef;
	my $before = $t->{log};
	my ($newest) = KvVersions::log_paths($store);
	$t->{log} = $before && defined $newest && $before->{path} eq $newest ? $before->again : KvVersions->read($store, value_file_kb => VALUE_FILE_KB);
	return $t->{log};
}

# Committed states of a row since the last checkpoint: what a power cut may leave at level none.
sub committed
{
	my ($t, $now) = @_;
	for my $k (keys %{ { %{ $t->{rows} }, %$now } })
	{
		my $state = $now->{$k} // 'none';
		push @{ $t->{past}{$k} }, $state if $state ne ($t->{rows}{$k} // 'none');
	}
	$t->{rows} = $now;
	return;
}

sub checkpoint
{
	my @all = values %table;
	my @rows = map { $_->{rows} } @all;
	must('CHECKPOINT');
	for (@all) { $_->{base} = { %{ shift @rows } }; $_->{past} = {} }
	return;
}

# ---- steps ----

# Keys are numbers times the table's scale, on both sides of 0.
sub key { my ($t, $i) = @_; return ($i - 200) * $t->{scale} }

# What a row written by statement $n has, in Perl and in SQL.
sub length_of { my ($k, $n, $size) = @_; return (abs($k) * 7919 + $n * 104729) % $size }
sub values_in_sql { my ($n, $size) = @_; return ("$n", "repeat(chr(97 + (abs(k) + $n) % 26), ((abs(k::bigint) * 7919 + $n * 104729::bigint) % $size)::int)") }

# One statement that changes rows, and what they are then.
sub change
{
	my ($t, $rows) = @_;
	my $n = ++$serial;
	my $size = (40, 40, 700, 700, 3000)[ rand 5 ];
	my ($n_sql, $v_sql) = values_in_sql($n, $size);
	my %now = %$rows;
	my $what = rand;
	my @there = sort { $a <=> $b } keys %now;
	if ($what < 0.45 || !@there)
	{
		my $count = 1 + int rand 60;
		my $step = 1 + int rand 5;
		my $first = rand() < 0.3 && @there ? int($there[-1] / $t->{scale}) + 201 : int rand 300;
		$first = 300 if $first > 900;
		if ($what < 0.02) { ($size, $count) = (200_000, 2); ($n_sql, $v_sql) = values_in_sql($n, $size) }
		my @keys = map { key($t, $first + $_ * $step) } 0 .. $count - 1;
		$now{$_} = "$n:" . length_of($_, $n, $size) for @keys;
		return (sprintf('INSERT INTO %s SELECT k, %s, %s FROM unnest(ARRAY[%s]) k ON CONFLICT (k) DO UPDATE SET n = excluded.n, v = excluded.v', $t->{name}, $n_sql, $v_sql, join ',', @keys), \%now);
	}
	my ($where, $is);
	if (rand() < 0.5)
	{
		my ($a, $b) = (2 + int rand 6, 0);
		$b = int rand $a;
		($where, $is) = ("abs(k) % $a = $b", sub { abs($_[0]) % $a == $b });
	}
	else
	{
		my ($from, $to) = sort { $a <=> $b } @there[ rand @there, rand @there ];
		($from, $to) = ($there[0], $there[-1]) if rand() < 0.1;
		($where, $is) = ("k BETWEEN $from AND $to", sub { $_[0] >= $from && $_[0] <= $to });
	}
	my @keys = grep { $is->($_) } @there;
	if ($what < 0.75)
	{
		$now{$_} = "$n:" . length_of($_, $n, $size) for @keys;
		return ("UPDATE $t->{name} SET n = $n_sql, v = $v_sql WHERE $where", \%now);
	}
	delete @now{@keys};
	return ("DELETE FROM $t->{name} WHERE $where", \%now);
}

# A table that was never written has no store.
sub shards_of { my ($t) = @_; my $log = read_log($t); return $log ? scalar @{ $log->newest_map->{shards} } : $t->{shards} }

# One step of a table: its statements, and the rows after them.  told: for the story.
sub draw_step
{
	my ($t) = @_;
	my $what = rand;
	my $name = $t->{name};
	if ($what < 0.42) { my ($sql, $now) = change($t, $t->{rows}); return { sql => $sql, now => $now } }
	if ($what < 0.47) { my ($sql) = change($t, $t->{rows}); return { sql => "BEGIN; $sql; ROLLBACK", now => $t->{rows} } }
	if ($what < 0.54)
	{
		my ($first, $then) = change($t, $t->{rows});
		my ($lost) = change($t, $then);
		my ($last, $now) = change($t, $then);
		return { sql => "BEGIN; $first; SAVEPOINT s; $lost; ROLLBACK TO s; $last; COMMIT", then => $then, now => $now };
	}
	if ($what < 0.74) { return { sql => "SELECT kvfdw_flush('$name')", now => $t->{rows} } }
	if ($what < 0.84) { return { sql => "SELECT kvfdw_compact('$name'" . (rand() < 0.4 ? ', true' : '') . ')', now => $t->{rows}, busy => 1 } }
	if ($what < 0.985)
	{
		my $shards = shards_of($t);
		return { sql => "SELECT kvfdw_split('$name')", now => $t->{rows}, busy => 1 } if $what < 0.90 && $shards <= FEW_SHARDS;
		return { sql => "SELECT kvfdw_cut('$name')", now => $t->{rows}, busy => 1 } if $what < 0.965 && $shards <= MOST_SHARDS;
		return { sql => 'CHECKPOINT', checkpoint => 1, now => $t->{rows} } if $what > 0.97;
		return draw_step($t);
	}
	return { sql => "TRUNCATE $name", now => {}, truncate => 1 };
}

# A table's step; what is wrong.
sub take
{
	my ($t, $step) = @_;
	push @{ $t->{story} }, $step->{sql} =~ s/(ARRAY\[\S{60})[^\]]*/$1 .../r;
	if ($step->{checkpoint}) { eval { checkpoint(); 1 } or return "CHECKPOINT: $@"; return }
	if (!defined ask($step->{sql}))
	{
		my $state = $@;
		ask('ROLLBACK') if $session;
		return if $step->{busy} && $state =~ /^(?:55006|55P03)$/;
		return "$step->{sql}: $said_last";
	}
	committed($t, $step->{then}) if $step->{then};    # of a transaction, a power cut may leave a part at level none
	committed($t, $step->{now});
	($t->{base}, $t->{past}) = ({}, {}) if $step->{truncate};
	return;
}

# ---- what the server says of a table, and what the log does ----

sub server_view
{
	my %view;
	for (@{ must('SELECT relname, position, shard_id, entries, runs FROM kvfdw_stat_shards ORDER BY relname, generation, position') })
	{
		my ($name, $position, @is) = split /\|/;
		$view{$name}{shards} = [] if $position == 0;
		push @{ $view{$name}{shards} }, \@is;
	}
	for (@{ must("SELECT relname, shards, value_files, obsolete_value_files, usable, lost_entries FROM kvfdw_stat_tables WHERE relname IS NOT NULL ORDER BY generation") })
	{
		my ($name, @is) = split /\|/;
		@{ $view{$name} }{qw(nshards value_files obsolete usable lost)} = @is;
	}
	return \%view;
}

# What a log says that a start, or a mark, makes of a store: the map, and for each of its shards its files.
sub state_of
{
	my ($t, $log, $trusted) = @_;
	my $by_files = $t->{level} eq 'none' && $trusted;
	my $map = $by_files ? $log->newest_map : $log->durable_map;
	my @shards;
	for my $i (0 .. $#{ $map->{shards} })
	{
		my $id = $map->{shards}[$i];
		my $mark = $log->mark($id, $map->{since}[$i]);
		my $files = $by_files ? $log->files($id) : $mark && $mark->{files};
		push @shards, { id => $id, bound => $map->{bounds}[$i], mark => $mark, carried => $by_files ? undef : $log->carried($id), files => $files, runs => [ $files ? KvVersions::runs($files) : () ] };
	}
	return { map => $map, shards => \@shards };
}

# As engine/table has them: signed integers in order.
sub key_bytes { my ($k) = @_; return pack 'N', ($k + 2**31) & 0xFFFFFFFF }

# How many rows of the model each shard has.
sub rows_by_shard
{
	my ($t, $state) = @_;
	my @n = (0) x @{ $state->{shards} };
	for my $k (keys %{ $t->{rows} })
	{
		my $key = key_bytes($k);
		my ($low, $high) = (0, $#n);
		while ($low < $high)
		{
			my $middle = int(($low + $high + 1) / 2);
			if ($state->{shards}[$middle]{bound} le $key) { $low = $middle } else { $high = $middle - 1 }
		}
		$n[$low]++;
	}
	return @n;
}

sub told { my ($state) = @_; return "map $state->{map}{number}: " . join ' ', map { "$_->{id}(" . join(',', @{ $_->{runs} }) . ')' } @{ $state->{shards} } }

# Where the server's view of a table is not this state.
sub differs
{
	my ($t, $state, $view) = @_;
	my $is = $view->{ $t->{name} }{shards} // return 'the server has not opened it';
	my @ids = map { $_->{id} } @{ $state->{shards} };
	return "the server has the shards @{[map { $_->[0] } @$is]}, the log has @{[told($state)]}" if "@ids" ne join ' ', map { $_->[0] } @$is;
	my @rows = rows_by_shard($t, $state);
	my @wrong;
	for my $i (0 .. $#ids)
	{
		my ($id, $entries, $runs) = @{ $is->[$i] };
		my $named = @{ $state->{shards}[$i]{runs} };
		push @wrong, "shard $id has $runs runs, the log says $named: @{ $state->{shards}[$i]{runs} }" if $state->{salvaged} ? $runs < $named : $runs != $named;
		push @wrong, "shard $id has $entries entries, and by its bounds $rows[$i] rows" if $entries < $rows[$i];
	}
	return @wrong;
}

# What the log itself must be, and that all files are there which its state needs, as long as it says.
sub log_problems
{
	my ($t, $log, $killed) = @_;
	my $store = store_of($t);
	my @wrong;
	push @wrong, 'the log is damaged' if $log->{damaged};
	push @wrong, 'bytes follow the last edit' if $log->{torn} && !$killed;
	my (%number, $map);
	for my $edit ($log->edits)
	{
		my $is = $edit->{kind} =~ /^(?:MAP|FILES|MARK|CARRIED)$/ ? KvVersions::fields($edit) : undef;
		push @wrong, "the edit at $edit->{offset} was durable up to $edit->{synced}" if $edit->{synced} > $log->{end};
		if ($edit->{kind} eq 'MAP')
		{
			push @wrong, "map $is->{number} follows map $map" if defined $map && $is->{number} <= $map;
			$map = $is->{number};
		}
		if ($edit->{kind} eq 'MARK')
		{
			my $before = $number{ $edit->{shard} };
			push @wrong, "mark $is->{number} of shard $edit->{shard} follows mark $before" if defined $before && $is->{number} != 1 && $is->{number} != $before + 1;
			$number{ $edit->{shard} } = $is->{number};
			push @wrong, "mark $is->{number} of shard $edit->{shard} has logs $is->{files}{first_log} to $is->{last_log}" if $is->{last_log} < $is->{files}{first_log} || $is->{log_tail} < 64;
		}
		if ($edit->{kind} eq 'CARRIED')
		{
			my $of = $number{ $edit->{shard} } // 0;
			push @wrong, "what is carried of shard $edit->{shard} is added to mark $is->{number}, the newest is $of" if $is->{number} != $of;
			push @wrong, "something is carried at level $t->{level}" if $t->{level} ne 'full';
		}
		my $files = $edit->{kind} eq 'MARK' ? $is->{files} : $edit->{kind} eq 'FILES' ? $is : next;
		push @wrong, "$edit->{kind} of shard $edit->{shard} has runs " . join(' ', KvVersions::runs($files)) . ", the next is $files->{next_run}" if grep { $_ >= $files->{next_run} } KvVersions::runs($files);
	}

	# the durable state, and at level none the newest
	for my $state (state_of($t, $log, 0), $t->{level} eq 'none' ? state_of($t, $log, 1) : ())
	{
		for my $shard (@{ $state->{shards} })
		{
			my ($files, $mark, $id) = @$shard{qw(files mark id)};
			next unless $files;
			my %needed = map { $_ => 1 } $log->names($files, $id);
			$needed{ $log->value_name($_->{address}) } = $_->{used} for @{ $files->{value_files} };
			if ($mark && $files == $mark->{files})
			{
				$needed{ KvVersions::key_log_name($id, $_) } = 1 for $files->{first_log} .. $mark->{last_log} - 1;
				$needed{ KvVersions::key_log_name($id, $mark->{last_log}) } = $mark->{log_tail} if $mark->{log_tail} > 64;
			}
			for my $name (sort keys %needed)
			{
				my $size = -s "$store/$name";
				push @wrong, "shard $id needs $name with $needed{$name} bytes, " . (defined $size ? "which has $size" : 'which is not there') if !defined $size && !-e "$store/$name" || ($size // 0) < $needed{$name};
			}
		}
	}
	return @wrong;
}

sub listed { my ($path) = @_; opendir my $handle, $path or return; return sort grep { !/^\./ } readdir $handle }

# Files that are there without need, or missing, when all is marked and at rest.
sub directory_differs
{
	my ($t, $log, $state) = @_;
	my (%needed, %may);
	$may{$_} = 1 for 'table', sprintf('%08x.versions', $log->{number} - 1);
	$needed{ sprintf '%08x.versions', $log->{number} } = 1;
	for my $shard (@{ $state->{shards} })
	{
		my ($id, $mark) = @$shard{qw(id mark)};
		$may{ $log->value_name($shard->{carried}{base}) } = 1 if $shard->{carried};
		if (!$mark) { $may{ KvVersions::key_log_name($id, 1) } = 1; next }
		$needed{$_} = 1 for $log->names($mark->{files}, $id, $mark->{last_log} - 1);
		$may{ KvVersions::key_log_name($id, $mark->{last_log}) } = 1;
		$may{ $log->value_name($mark->{files}{next_address}) } = 1 if $mark->{files}{next_address};
	}
	my %is = map { $_ => 1 } listed(store_of($t));
	my @extra = grep { !$needed{$_} && !$may{$_} } sort keys %is;
	my @missing = grep { !$is{$_} } sort keys %needed;
	return ((@extra ? "files stay that nothing needs: @extra" : ()), (@missing ? "files are missing: @missing" : ()));
}

# Where rows differ from the model's.
sub rows_differ
{
	my ($t) = @_;
	my $right = q{v = repeat(chr(97 + (abs(k) + n) % 26), length(v))};
	my $rows = ask("SELECT md5(coalesce(string_agg(k || ':' || n || ':' || length(v), ',' ORDER BY k), '')), bool_and($right) FROM $t->{name}") // return "rows cannot be read: $said_last";
	my ($sum, $whole) = split /\|/, $rows->[0];
	my @wrong = ($whole // '') eq 'f' ? 'values are wrong' : ();
	return @wrong if $sum eq md5_hex(join ',', map { "$_:$t->{rows}{$_}" } sort { $a <=> $b } keys %{ $t->{rows} });
	my %is = %{ rows_of($t) // return (@wrong, "rows cannot be read: $said_last") };
	my @keys = grep { ($is{$_} // 'none') ne ($t->{rows}{$_} // 'none') } sort { $a <=> $b } keys %{ { %is, %{ $t->{rows} } } };
	return (@wrong, @keys . " rows differ: " . join ', ', map { "$_ is " . ($is{$_} // 'none') . ', not ' . ($t->{rows}{$_} // 'none') } @keys > 4 ? @keys[ 0 .. 3 ] : @keys) if @keys;
	return (@wrong, 'rows in another order, or twice');
}

sub rows_of
{
	my ($t) = @_;
	my $rows = ask("SELECT k || '|' || n || ':' || length(v) FROM $t->{name} ORDER BY k") // return undef;
	return { map { split /\|/ } @$rows };
}

# At level none after a power cut: rows that were never so since the last checkpoint.  Others are taken over.
sub take_over
{
	my ($t) = @_;
	my $is = rows_of($t) // return "rows cannot be read: $said_last";
	my @wrong;
	for my $k (sort { $a <=> $b } keys %{ { %$is, %{ $t->{base} }, %{ $t->{past} } } })
	{
		my $state = $is->{$k} // 'none';
		push @wrong, "$k is $state, which it was not since the last checkpoint" unless grep { $_ eq $state } $t->{base}{$k} // 'none', @{ $t->{past}{$k} // [] };
	}
	splice @wrong, 4;
	($t->{rows}, $t->{base}, $t->{past}) = ($is, {%$is}, {});

	# what was salvaged is durable with the next mark only
	$t->{past}{$_} = ['none'] for keys %$is;
	return @wrong;
}

sub found_by_key
{
	my ($t) = @_;
	my @keys = sort { $a <=> $b } keys %{ $t->{rows} };
	return unless @keys;
	my $n = ask("SELECT count(*) FROM unnest(ARRAY[" . join(',', @keys) . "]) g WHERE EXISTS (SELECT FROM $t->{name} WHERE k = g)") // return "keys cannot be read: $said_last";
	return $n->[0] == @keys ? () : "$n->[0] of @{[scalar @keys]} rows are found by their keys";
}

sub check
{
	my ($t) = @_;
	my $found = ask("SELECT file, position, problem FROM kvfdw_check('$t->{name}') LIMIT 3") // return "kvfdw_check: $said_last";
	return map { "kvfdw_check: $_" } @$found;
}

# ---- all tables, at rest ----

# Marks are made until each table's log, its directory and the server say the same.  What is wrong, by table.
sub settle
{
	my ($wrong) = @_;
	my $end = time + PATIENCE;
	my %open = map { $_ => 1 } grep { !$wrong->{$_} } keys %table;
	for (my $look = 0;; $look++)
	{
		if ($look % 10 == 0) { eval { checkpoint(); 1 } or do { $wrong->{$_} //= ["CHECKPOINT: $@"] for keys %open; return } }
		my $view = eval { server_view() } or do { $wrong->{$_} //= ["views: $@"] for keys %open; return };
		my $late = time > $end;
		for my $name (sort keys %open)
		{
			my $t = $table{$name};
			my @problems;
			if (!eval {
				my $log = read_log($t);
				return !%{ $t->{rows} } || die "it has no store\n" unless $log;
				my $state = state_of($t, $log, 0);
				if (!$view->{$name}) { ask("SELECT count(*) FROM $name"); push @problems, 'the server has not opened it'; return 1 }
				@problems = (differs($t, $state, $view), directory_differs($t, $log, $state));
				push @problems, "map $state->{map}{number} is the durable one, the newest is " . $log->newest_map->{number} if $state->{map}{number} != $log->newest_map->{number};
				my %value_files = map { map { $log->value_name($_->{address}) => 1 } @{ $_->{files} ? $_->{files}{value_files} : [] } } @{ $state->{shards} };
				my $is = $view->{$name};

				# what is carried may have a file of its own
				my ($least, $most) = (scalar keys %value_files, scalar(keys %value_files) + grep { $_->{carried} } @{ $state->{shards} });
				push @problems, "the server has $is->{value_files} value files and $is->{obsolete} obsolete ones, the log has $least to $most" if $is->{value_files} < $least || $is->{value_files} > $most || $is->{obsolete} != 0;
				if ($t->{level} eq 'none')
				{
					for (@{ $state->{shards} })
					{
						my $files = $log->files($_->{id}) // next;
						push @problems, "FILES of shard $_->{id} has the runs " . join(' ', KvVersions::runs($files)) . ", its mark @{ $_->{runs} }" if join(' ', KvVersions::runs($files)) ne "@{ $_->{runs} }";
					}
				}
				push @problems, log_problems($t, $log, 0) if !@problems;
				1;
			}) { push @problems, "the log cannot be read: $@" }
			if (!@problems) { delete $open{$name} }
			elsif ($late) { $wrong->{$name} = [ map { "at rest: $_" } @problems ]; delete $open{$name} }
		}
		last unless %open;
		sleep 0.03;
	}
	return;
}

# ---- ends of the server ----

# SQL in a session of its own, which may stop; its process.
sub beside
{
	my ($sql) = @_;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>', '/dev/null';
		open STDERR, '>>', "$dir/beside.err";
		exec('psql', '-X', '-q', '-c', $sql) or POSIX::_exit(1);
	}
	return $pid;
}

# The stop points of what makes and replaces files.
sub find_points
{
	for my $path (glob "$FindBin::RealBin/../../src/engine/{version,durable,flush,split,compact,checkpoint,shard,value,buffer,index}/*.c")
	{
		my $text = slurp($path) // next;
		push @points, $text =~ /\bKV_STOP_POINT\s*\(\s*"(\w+)"/g;
	}
	my %is = map { $_ => 1 } @points;
	@points = sort keys %is;
	return;
}

# One that was met before, or not tried often.
sub draw_point
{
	my @some = grep { $met{$_} || ($tried{$_} // 0) < 5 } @points;
	return $some[ rand @some ];
}

# Something is under way at a stop point, or ends the server there.  Its story.
sub strike_at
{
	my ($point, $action) = @_;
	my @names = sort keys %table;
	my $t = $table{ $names[ rand @names ] };
	my $does = sub { my ($what) = @_; return $what eq 'CHECKPOINT' ? $what : "SELECT kvfdw_$what('$t->{name}')" };
	my @actions = $point =~ /^(?:flush|run|split|cut|compact)_/ ? $& =~ s/run/flush/r =~ s/_//r : ('CHECKPOINT', 'flush', 'compact', 'split', 'cut');
	my @meet = grep { $met{$point}{$_} } @actions;
	$tried{$point}++;
	my $what = @meet && rand() < 0.8 ? $meet[ rand @meet ] : $point =~ /^(?:mark|checkpoint)/ ? 'CHECKPOINT' : $actions[ rand @actions ];
	$what = 'CHECKPOINT' if shards_of($t) > ($what eq 'split' ? FEW_SHARDS : MOST_SHARDS);
	unlink glob "$data/kvfdw/{waiting,continue,step}.*";
	for ($t, map { $table{ $names[ rand @names ] } } 1 .. 5) { my ($sql, $now) = change($_, $_->{rows}); take($_, { sql => $sql, now => $now }) }
	configure(points => "$point=$action");
	my $from = -s $log;
	my @beside = (beside($does->($what)), rand() < 0.5 && $what ne 'CHECKPOINT' ? beside('CHECKPOINT') : ());
	my $met = sub { return $action eq 'wait' ? -e "$data/kvfdw/waiting.$point" : since($from) =~ /terminating any other active server processes/ };
	my $end = time + 1.5;
	my $ended = 0;
	until ($met->() || time > $end || $ended)
	{
		sleep 0.005;
		$ended = !grep { waitpid($_, POSIX::WNOHANG()) == 0 } @beside;
	}
	if ($ended) { sleep 0.05 }
	my $is = $met->() ? 1 : 0;
	$met{$point}{$what}++ if $is;
	push @{ $t->{story} }, "-- $what, $action at $point" . ($is ? '' : ', which was not met');

	# others go on meanwhile, if they can
	if ($is && $action eq 'wait')
	{
		must('SET statement_timeout = 1000');
		for (1 .. int rand 6)
		{
			my $other = $table{ $names[ rand @names ] };
			my ($sql, $now) = change($other, $other->{rows});
			push @{ $other->{story} }, "$sql -- while $what stops at $point";
			if (defined ask($sql)) { committed($other, $now) }
			elsif ($@ eq 'lost') { last }
		}
	}
	return { story => "$what, $action at $point" . ($is ? '' : ' (not met)'), met => $is, beside => \@beside };
}

sub since { my ($from) = @_; open my $file, '<', $log or return ''; seek $file, $from, 0; local $/; return <$file> // '' }

# The log of a table loses what was not durable, all of it or a part; so do files that no mark names.
sub lose_power
{
	my ($t) = @_;
	my $log = read_log($t) // return;
	my $store = store_of($t);
	my %whole = map { $_ => 1 } 'table';
	my %tail;
	for my $edit ($log->edits('MARK'))
	{
		my $mark = KvVersions::fields($edit);
		my $id = $edit->{shard};
		$whole{$_} = 1 for $log->names($mark->{files}, $id, $mark->{last_log} - 1);
		my $last = KvVersions::key_log_name($id, $mark->{last_log});
		$tail{$last} = $mark->{log_tail} if $mark->{log_tail} > ($tail{$last} // 0);
	}
	my $least = $log->durable_end;
	my $size = length $log->{bytes};
	if ($size > $least && rand() < 0.8)
	{
		my $to = $least + int rand($size - $least + 1);
		if (rand() < 0.3) { $log->changed(substr($log->{bytes}, 0, $to) . "\0" x ($size - $to)) }
		else { $log->changed(substr($log->{bytes}, 0, $to)) }
		push @{ $t->{story} }, "-- its log loses what follows byte $to of $size, $least were durable";
	}
	for my $name (listed($store))
	{
		next if $whole{$name} || $name =~ /\.versions$/ || rand() < 0.4;
		my $least = $tail{$name} // 0;
		next if $name =~ /\.val$/ && $t->{level} eq 'keys';    # synced at each COMMIT
		if (!$least && rand() < 0.5) { unlink "$store/$name" or die "$name: $!"; next }
		my $size = -s "$store/$name";
		next if $size <= $least;
		truncate "$store/$name", $least + int rand($size - $least + 1) or die "$name: $!";
	}
	delete $t->{log};
	return;
}

# The control: the newest of what a shard depends on goes; its kind.
sub lose_edit
{
	my ($t, $log) = @_;
	my ($shard) = grep { $log->carried($_) } @{ $log->durable_map->{shards} };
	my $kind = defined $shard && rand() < 0.5 ? 'CARRIED' : 'MARK';
	return undef unless $kind eq 'CARRIED' || $log->edits('MARK');
	$log->drop_last($kind, $kind eq 'CARRIED' ? $shard : undef);
	delete $t->{log};
	return $kind;
}

# The server ends and begins again.  Returns the story; %$expected has the state of each table that it must have
# then, and %$wrong what is wrong before it begins.
sub end_and_begin
{
	my ($expected, $wrong, $control) = @_;
	my $how = $control ? 0 : rand;
	my ($story, $power, $strike) = ('', $how >= 0.6 && $how < 0.85);
	if ($how < 0.2) { $story = 'SIGKILL' }
	elsif ($how < 0.45) { $strike = strike_at(draw_point(), 'wait') if @points; $story = 'SIGKILL, ' . ($strike ? $strike->{story} : 'no point') }
	elsif ($how < 0.6) { $strike = strike_at(draw_point(), 'kill') if @points; $story = $strike ? $strike->{story} : 'no point' }
	elsif ($how < 0.7) { $story = 'power cut' }
	elsif ($how < 0.85) { $strike = strike_at(draw_point(), 'wait') if @points; $story = 'power cut, ' . ($strike ? $strike->{story} : 'no point') }
	elsif ($how < 0.92) { $story = 'stop' }
	else { $story = 'immediate stop' }
	my $self = $strike && $strike->{met} && $story =~ /kill at/;
	hang_up();
	if ($self)
	{
		# the postmaster restarts all; the stop point is not to be met again
		configure();
	}
	elsif ($story =~ /stop$/)
	{
		my $mode = $story eq 'stop' ? 'fast' : 'immediate';
		system("pg_ctl -D '$data' -m $mode -t 120 -w stop >>'$dir/commands.log' 2>&1") == 0 or push @{ $wrong->{''} }, "the server does not stop ($mode)";
	}
	else { server_kill('all') }
	for (@{ $strike ? $strike->{beside} : [] }) { waitpid $_, 0 if waitpid($_, POSIX::WNOHANG()) == 0 }
	unlink glob "$data/kvfdw/{waiting,continue,step}.*";
	$boot++ if $power;
	configure();
	for my $name ($self ? () : sort keys %table)
	{
		my $t = $table{$name};
		next if $wrong->{$name};
		push @{ $t->{story} }, "-- $story";
		eval {
			my $log = read_log($t);
			return 1 unless $log;
			my @problems = log_problems($t, $log, 1);
			$wrong->{$name} = [ map { "when it had ended ($story): $_" } @problems ] if @problems;
			if ($power) { lose_power($t); $log = read_log($t) }
			$expected->{$name} = state_of($t, $log, !$power);

			# what key logs have is put into one more run
			$expected->{$name}{salvaged} = $power && $t->{level} eq 'none';
			if ($control) { $expected->{$name}{lost} = lose_edit($t, $log) }
			1;
		} or $wrong->{$name} = [ "when it had ended ($story), its log cannot be read: $@" ];
	}
	server_return() or push @{ $wrong->{''} }, "the server does not come back ($story), see $log";
	return ($story, $power);
}

# ---- a round ----

# Runs $code, and adds to what the phases of a round take.
sub timed
{
	my ($phase, $code) = @_;
	my $began = time;
	my @is = $code->();
	$took{$phase} += time - $began;
	return @is;
}

# Every table goes through a sequence and the server through an end.  What is wrong, by table.
sub play
{
	my ($control) = @_;
	my (%wrong, %expected);
	for my $name (keys %table) { $table{$name}{story} = [ "-- $name, $table{$name}{level}" ]; drop_table($table{$name}) if rand() < 0.25 || keys(%{ $table{$name}{rows} }) > 1500 }
	while (keys %table < $option->{tables}) { my $t = make_table(); push @{ $t->{story} }, "-- $t->{name}, $t->{level}, $t->{shards} shards, keys times $t->{scale}" }

	my ($parts, @story) = ($control ? 1 : 1 + int rand 3);
	for my $part (1 .. $parts)
	{
		take_turns(\%wrong, 2 * $option->{steps} / $parts);
		timed('rest', sub { settle(\%wrong) }) if rand() < 0.3 || $control;
		if ($control)
		{
			# something to lose
			for (sort keys %table) { take($table{$_}, { sql => "SELECT kvfdw_flush('$_')", now => $table{$_}{rows} }) }
			checkpoint();
			for (values %table) { my ($sql, $now) = change($_, $_->{rows}); take($_, { sql => $sql, now => $now }) }
			checkpoint();
		}
		%expected = ();
		my ($story, $power) = timed('end', sub { end_and_begin(\%expected, \%wrong, $control) });
		push @story, $story;
		last if $wrong{''};
		timed('look', sub { compare(\%expected, \%wrong, $story, $power) });
		timed('rest', sub { settle(\%wrong) }) if rand() < 0.3 && !$control;
	}
	return (join('; ', @story), \%wrong, \%expected);
}

# Up to so many steps of each table, interleaved.
sub take_turns
{
	my ($wrong, $most) = @_;
	my @turns = map { my $name = $_; ($name) x (1 + int rand $most) } sort keys %table;
	for (my $i = $#turns; $i > 0; $i--) { my $j = int rand($i + 1); @turns[ $i, $j ] = @turns[ $j, $i ] }
	my $absorb = rand() < 0.5;
	configure(absorb => 1) if $absorb;
	timed('steps', sub {
		for my $name (@turns)
		{
			next if $wrong->{$name};
			my $t = $table{$name};
			my $problem = take($t, draw_step($t));
			$wrong->{$name} = [$problem] if defined $problem;
		} });
	configure() if $absorb;
	return;
}

# After a start: tables, rows and files are what they must be.  All tables are opened before they are compared.
sub compare
{
	my ($expected, $wrong, $story, $power) = @_;
	for my $name (sort keys %table)
	{
		next if $wrong->{$name};
		my $t = $table{$name};
		my @problems = $power && $t->{level} eq 'none' ? take_over($t) : rows_differ($t);
		$wrong->{$name} = [ map { "after $story: $_" } @problems ] if @problems;
	}
	my $view = eval { server_view() } // {};
	for my $name (sort keys %table)
	{
		next if $wrong->{$name};
		my $t = $table{$name};
		my @problems = ($expected->{$name} ? differs($t, $expected->{$name}, $view) : (), ($view->{$name}{usable} // '') ne 'f' ? () : 'it is unusable', found_by_key($t), check($t));
		$wrong->{$name} = [ map { "after $story: $_" } @problems ] if @problems;
	}
	return;
}

# ---- a job ----

sub say_wrong
{
	my ($round, $story, $wrong) = @_;
	for my $name (sort keys %$wrong)
	{
		my $t = $table{$name};
		my $text = "not ok - job $job, seed $option->{seed}, round $round ($story), " . ($t ? "table $name, $t->{level}" : 'the server') . "\n" . join '', map { "#   $_\n" } @{ $wrong->{$name} };
		$text .= join '', map { "#     $_\n" } @{ $t->{story} } if $t;
		print $text;
		next unless $t && defined store_of($t);
		my $kept = "$dir/failed-$round-$name";
		system('cp', '-a', store_of($t), $kept);
	}
	return;
}

# Plays rounds until so many sequences were played; the numbers of those that passed and failed.
sub run_job
{
	my ($number, $sequences) = @_;
	$job = $number;
	$option->{dir} .= "/$job";
	$option->{seed} += 1_000_003 * $job;
	srand $option->{seed};
	make_path($option->{dir});
	server_make(fsync => 'off', 'kvfdw.test_value_file_kb' => VALUE_FILE_KB, 'kvfdw.flush_after' => '1h', 'kvfdw.max_space_amplification' => 0, 'kvfdw.compact_sort' => 'off',
		checkpoint_timeout => '1h', autovacuum => 'off', max_wal_size => '2GB', shared_buffers => '32MB', include_if_exists => 'versions.conf', 'kvfdw.memtable_memory' => '64MB');
	$dir = $option->{dir};
	($data, $log) = ("$dir/data", "$dir/server.log");
	find_points();
	configure();
	($serial, $made, $passed, $failed) = (0, 0, 0, 0);
	my $began = time;
	if ($job == 0 && $option->{control})
	{
		my ($story, $wrong, $expected) = play(1);
		for my $kind (qw(MARK CARRIED))
		{
			my @lost = grep { ($expected->{$_}{lost} // '') eq $kind } sort keys %$expected;
			my @noticed = grep { $wrong->{$_} } @lost;
			$failed++ if !@noticed;
			print @noticed ? "# the control: that $kind is lost is noticed in @{[scalar @noticed]} of @{[scalar @lost]} tables, as: $wrong->{ $noticed[0] }[0]\n" : "not ok - the control: nobody notices that $kind is lost\n";
		}
		eval { drop_table($_) } or delete $table{ $_->{name} } for values %table;
	}
	for (my $round = 1; $passed + $failed < $sequences && $failed < $option->{'most-failures'}; $round++)
	{
		my ($story, $wrong) = eval { play(0) };
		if ($@) { ($story, $wrong) = ('an error of the campaign', { '' => ["$@"] }) }
		say_wrong($round, $story, $wrong);
		my $n = keys %table;
		my $bad = keys %$wrong;
		$failed += $bad;
		$passed += $n - $bad if $n > $bad;
		printf "# job %d, round %d: %d sequences, %d shards in the largest; %s; %d passed, %d failed, %.0f s\n", $job, $round, $n, (sort { $b <=> $a } map { eval { shards_of($_) } // 0 } values %table)[0] // 0, $story, $passed, $failed, time - $began;
		last if $wrong->{''};
		for (grep { $table{$_} } keys %$wrong) { eval { drop_table($table{$_}) } or delete $table{$_} }
	}
	hang_up();
	my %hits = map { my $point = $_; my $n = 0; $n += $_ for values %{ $met{$point} }; ($point => $n) } keys %met;
	print "# job $job took: ", join(', ', map { sprintf '%s %.0f s', $_, $took{$_} } sort keys %took), "\n";
	print "# job $job met: ", join(', ', map { "$_ $hits{$_}" } grep { $hits{$_} } sort keys %hits), "\n";
	my $said = slurp($log) // '';
	for ($said =~ /(.*(?:terminated by signal (?!9\b)|TRAP:|PANIC:).*)/g) { print "not ok - job $job, a process crashed: $_\n"; $failed++ }
	return;
}

make_path($option->{dir});
print "# seed $option->{seed}, $option->{jobs} jobs\n";
my @jobs;
for my $number (0 .. $option->{jobs} - 1)
{
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		my $share = int(($option->{sequences} + $option->{jobs} - 1 - $number) / $option->{jobs});
		my $where = $option->{dir};
		eval { run_job($number, $share); 1 } or do { print "not ok - job $number: $@"; $failed++ };
		open my $file, '>', "$where/$number.result" or die $!;
		print $file ($passed // 0), ' ', ($failed // 1), "\n";
		close $file;
		exit 0;
	}
	push @jobs, $pid;
}
waitpid $_, 0 for @jobs;
my ($all_passed, $all_failed) = (0, 0);
for my $number (0 .. $option->{jobs} - 1)
{
	my ($p, $f) = split ' ', slurp("$option->{dir}/$number.result") // '0 1';
	$all_passed += $p;
	$all_failed += $f;
}
print "$all_passed passed, $all_failed failed\n";
exit($all_failed ? 1 : 0);
