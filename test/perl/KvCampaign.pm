# What the long campaigns share: rounds of concurrent clients, and one private
# server that is killed under them and comes back.  Programs: the first initdb,
# pg_ctl and psql in PATH; the user is not root.
package KvCampaign;
use strict;
use warnings;
use Cwd qw(abs_path getcwd);
use Exporter 'import';
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Getopt::Long;
use POSIX ();
use Storable qw(store retrieve);
use Time::HiRes qw(sleep time clock_gettime CLOCK_MONOTONIC);

our @EXPORT = qw(options %contest campaign contest launch collect now server_make server_start server_kill server_return
	server_process postmaster alive query tier_settings tier_story table_of_kind kvfdw_problems places_make places_leave keep_moving);

# What contest and --seconds need of the command line.
our %contest = ('seconds=i' => undef, 'round-seconds=f' => 10, 'clients=i' => 8, 'kills=i' => 1);

my ($data, $log, $commands, $main, %option, @launched);

# ---- rounds ----

# One clock for all processes.
sub now { return clock_gettime(CLOCK_MONOTONIC) }

# The command line: --rounds, --seed, --dir and %more, which Getopt::Long is told, each with its default.
sub options
{
	my ($name, %more) = @_;
	my %known = ('rounds=i' => undef, 'seed=i' => time ^ $$, 'dir=s' => ($ENV{TESTDIR} // getcwd()) . "/$name-$$", %more);
	%option = map { s/[=!].*//r => $known{$_} } keys %known;
	GetOptions(\%option, keys %known) or die "usage: see the head of $name.pl\n";
	$option{seed} = int $option{seed};
	$| = 1;
	return \%option;
}

# Plays the rounds of control, then for --seconds or --rounds (default: rounds), or while
# more says so, what choose gives for the numbers 0, 1, …, until a round fails.  play returns a
# story and what is wrong.  A control that does not show what it must, for lack of
# transactions on a slow machine, has more time.  Prints TAP, first with what it is
# about.  Returns the exit status.
sub campaign
{
	my %is = (control => [], choose => sub { return {} }, @_);
	my @control = @{ $is{control} };
	my $end = defined $option{seconds} ? time + $option{seconds} : undef;
	my ($rounds, $tests, $n, $failed) = ($option{rounds} // $is{rounds}, 0, 0, 0);
	my $more = $is{more} // (defined $end ? sub { $n == 0 || time < $end } : undef);
	printf "1..%d\n", @control + $rounds if !$more;
	print "# seed $option{seed}, ", $is{about} // "$option{clients} clients", "\n";
	while (!$failed && (@control || ($more ? $more->() : $n < $rounds)))
	{
		my $is_control = @control > 0;
		my $round = shift @control // { %{ $is{choose}->($n) }, n => $n++ };
		$round = { kills => $option{kills}, %$round, seed => $option{seed} + 1000 * ($round->{n} // 0) };
		srand $round->{seed};
		my ($story, @wrong) = $is{play}->($round);
		local $option{'round-seconds'} = $option{'round-seconds'};
		for (1 .. 4)
		{
			last if !$is_control || !@wrong || grep { !/^(?:the control shows|the history|repeat) / } @wrong;
			$option{'round-seconds'} *= 2;
			($story, @wrong) = $is{play}->($round);
		}
		printf "%s %d - seed %d: %s\n", @wrong ? 'not ok' : 'ok', ++$tests, $round->{seed}, $story;
		print "# $_\n" for @wrong;
		$failed = @wrong ? 1 : 0;
	}
	print "1..$tests\n" if $more;
	return $failed;
}

# Starts a process that draws from $seed and runs $body; its pid.
sub launch
{
	my ($kind, $i, $seed, $body) = @_;
	my $file = "$option{dir}/$kind$i.result";
	unlink $file;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		srand $seed;
		my $result = eval { $body->() } // { error => "$kind $i: $@" };
		store $result, $file;
		POSIX::_exit(0);
	}
	push @launched, [ $pid, "$kind $i", $file ];
	return $pid;
}

# Waits for those launched, and kills those that $seconds do not suffice for.
# Returns whether there were such, and the results in the order of launch.
sub collect
{
	my ($seconds) = @_;
	my @ended = splice @launched;
	my @pids = map { $_->[0] } @ended;
	my $hang = !wait_gone($seconds, @pids);
	kill KILL => grep { alive($_) } @pids if $hang;
	waitpid $_, 0 for @pids;
	return ($hang, map { -e $_->[2] ? retrieve($_->[2]) : { error => "$_->[1] left no result" } } @ended);
}

# Runs @bodies, each in a process and with the time when to end, while the
# server is struck $kills times and $meanwhile is called now and then.  Returns
# their results, what happened, and what is wrong.
sub contest
{
	my ($kills, $meanwhile, @bodies) = @_;
	my ($begin, @story, @wrong) = (now());
	my $end = $begin + $option{'round-seconds'};
	my @blows = sort { $a <=> $b } map { $begin + (0.1 + rand 0.8) * $option{'round-seconds'} } 1 .. $kills;
	my $seed = int rand 2**31;
	for my $i (0 .. $#bodies) { launch('process', $i, $seed + $i, sub { $bodies[$i]->($end) }) }
	while (now() < $end)
	{
		if (@blows && now() > $blows[0])
		{
			shift @blows;
			push @story, strike((qw(postmaster all all backend worker session))[ rand 6 ]);
			if (!server_return()) { push @wrong, 'the server does not come back'; last }
		}
		elsif (rand() < 0.1) { $meanwhile->() }
		sleep 0.1;
	}
	my ($hang, @results) = collect(200);
	push @wrong, 'clients hang' if $hang;
	push @wrong, map { $_->{error} || () } @results;
	return (\@results, \@story, \@wrong);
}

# ---- the server ----

sub quietly { return system("@_ >>'$commands' 2>&1 </dev/null") == 0 }

# Makes a server in --dir, with these settings too, and starts it.  It is stopped at exit.
sub server_make
{
	my (%settings) = @_;
	die "PostgreSQL does not run as root\n" if $> == 0;
	make_path($option{dir});
	my $dir = $option{dir} = abs_path($option{dir});
	($data, $log, $commands, $main) = ("$dir/data", "$dir/server.log", "$dir/commands.log", $$);
	my $sockets = tempdir('/tmp/kvfdw.XXXXXX', CLEANUP => 1);
	delete @ENV{qw(PGPASSWORD PGOPTIONS PGSERVICE PGDATA PGSSLMODE)};
	@ENV{qw(PGHOST PGPORT PGUSER PGDATABASE)} = ($sockets, 6141, 'postgres', 'postgres');
	quietly("initdb -D '$data' -U postgres -A trust -E UTF8 --locale=C -N") or die "initdb failed, see $commands\n";
	%settings = (listen_addresses => '', port => $ENV{PGPORT}, unix_socket_directories => $sockets,
		shared_preload_libraries => 'kvfdw', log_line_prefix => '%m [%p] %b ', commit_siblings => 1, max_connections => 50,
		max_prepared_transactions => 40, deadlock_timeout => '50ms', statement_timeout => '60s', 'kvfdw.flush_after' => '1s',
		'kvfdw.memtable_memory' => '16MB', 'kvfdw.value_cache' => '1MB', 'kvfdw.recent_ring' => '1MB', 'kvfdw.write_buffers' => '4MB', 'kvfdw.write_buffer_size' => '64kB',
		($ENV{VALUE_FILE_KB} ? ('kvfdw.test_value_file_kb' => $ENV{VALUE_FILE_KB}) : ()), ($ENV{SPLITS} ? ('kvfdw.test_splits' => 'on') : ()),
		($ENV{COMPACTIONS} ? ('kvfdw.test_compactions' => 'on', 'kvfdw.compact_memory' => '4MB') : ()),
		($ENV{DEAD} ? ('kvfdw.test_dead_keys' => $ENV{DEAD}) : ()),
		($ENV{MOVES} ? ('kvfdw.test_space_look' => '200ms') : ()), tier_settings($dir), %settings);
	open my $conf, '>>', "$data/postgresql.conf" or die $!;
	print $conf "$_ = '$settings{$_}'\n" for sort keys %settings;
	close $conf;
	$SIG{INT} = $SIG{TERM} = sub { exit 1 };
	server_start() or die "the server did not start, see $log\n";
	query('CREATE EXTENSION kvfdw') // die "the extension cannot be created, see $log\n";
}

# With TIER=1 what leaves a small recent ring goes to a small second tier in $where, and is found again after a clean stop.
sub tier_settings
{
	my ($where, $size) = @_;
	return if !$ENV{TIER};
	return ('kvfdw.recent_ring' => '1MB', 'kvfdw.tier_path' => "$where/kv.tier", 'kvfdw.tier_size' => $size // '2MB', max_worker_processes => 32);
}

# What the tier has done since the server started.
sub tier_story
{
	return '' if !$ENV{TIER};
	my $is = query(q{SELECT format('tier: %s of %s blocks, %s inserted, %s dropped, %s values read', used_bytes / block_size, size_bytes / block_size, inserted, dropped, hits) FROM kvfdw_stat_cache WHERE cache = 'tier'}) // ['no tier'];
	return "; $is->[0]";
}

END
{
	my $code = $?;
	if (defined $main && $$ == $main && -e "$data/postmaster.pid")
	{
		quietly("pg_ctl -D '$data' -m immediate -t 30 -w stop") or server_kill();
	}
	$? = $code;
}

# Starts the server, and waits until it accepts connections unless $wait is '-W'.
sub server_start
{
	my ($wait) = @_;
	return quietly("pg_ctl -D '$data' -l '$log' -t 240 " . ($wait // '-w') . ' start');
}

sub postmaster
{
	open my $file, '<', "$data/postmaster.pid" or return undef;
	my $pid = <$file>;
	return defined $pid && $pid =~ /^(\d+)/ ? $1 : undef;
}

sub alive
{
	my ($pid) = @_;
	open my $file, '<', "/proc/$pid/stat" or return 0;
	return (<$file> // '') !~ /\) Z/;
}

sub wait_gone
{
	my ($seconds, @pids) = @_;
	my $end = time + $seconds;
	while (grep { alive($_) } @pids)
	{
		return 0 if time > $end;
		sleep 0.01;
	}
	return 1;
}

# SIGKILL to the postmaster, whose children must notice by themselves, or to all at once.
sub server_kill
{
	my ($all) = @_;
	my $pid = postmaster() // return;
	kill STOP => $pid;
	my @children = grep { /^\d+$/ } split ' ', `ps -o pid= --ppid $pid`;
	kill KILL => $pid, $all ? @children : ();
	if (!wait_gone(20, $pid, @children))
	{
		my @left = grep { alive($_) } @children;
		print "# processes outlived the postmaster by 20 s: @left\n";
		kill KILL => @left;
		wait_gone(20, @left) or die "processes cannot be killed: @left";
	}
	for (1 .. 250) { last unless -d "/proc/$pid"; sleep 0.02 }
	# killed while it wrote them, it leaves empty ones, with which PostgreSQL does not start
	unlink "$data/postmaster.pid", glob("$ENV{PGHOST}/.s.PGSQL.*.lock");
}

# The stopped or crashing server again, accepting connections; false if it does not come back.
sub server_return
{
	my $end = time + 240;
	my $failures = 0;
	while (time < $end)
	{
		my $pid = postmaster();
		if (!defined $pid || !alive($pid)) { server_start() or ++$failures > 2 and return 0 }
		return 1 if quietly('psql -X -q -c "SELECT 1"');
		sleep 0.05;
	}
	return 0;
}

# One of the server's processes of a kind: backend, worker or other.  Its pid and type; none: nothing.
sub server_process
{
	my ($kind) = @_;
	my $where = $kind eq 'backend' ? "backend_type = 'client backend' AND pid <> pg_backend_pid()"
	  : $kind eq 'worker' ? "backend_type LIKE 'kvfdw%'"
	  : "backend_type NOT LIKE 'kvfdw%' AND backend_type <> 'client backend'";
	my $found = query("SELECT pid, backend_type FROM pg_stat_activity WHERE $where ORDER BY pid") // [];
	return @$found ? split /\|/, $found->[ rand @$found ] : ();
}

# One blow; returns what it was.  'backend' and 'worker' are SIGKILL to one
# process, after which the postmaster restarts all; 'session' ends one politely.
sub strike
{
	my ($victim) = @_;
	if ($victim eq 'postmaster' || $victim eq 'all') { server_kill($victim eq 'all') }
	else
	{
		my ($pid) = server_process($victim eq 'worker' ? $victim : 'backend') or return "no $victim";
		if ($victim eq 'session') { query("SELECT pg_terminate_backend($pid)") }
		else
		{
			# once it is reaped, no client can connect before the restart
			kill KILL => $pid;
			for (1 .. 1000) { last unless -d "/proc/$pid"; sleep 0.02 }
		}
	}
	return $victim eq 'session' ? 'session terminated' : "SIGKILL to $victim";
}

# One statement in a session of its own: its rows; undef if there is no answer.
sub query
{
	my ($sql) = @_;
	open my $psql, '-|', 'psql', '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-c', $sql or die $!;
	my @lines = <$psql>;
	close $psql or return undef;
	chomp @lines;
	return \@lines;
}

# The statement that creates a table of a kind, heap or kvfdw; key: its columns.
sub table_of_kind
{
	my ($kind, $name, $columns, $key, $shards) = @_;
	return "CREATE TABLE $name ($columns, PRIMARY KEY ($key))" if $kind eq 'heap';
	return "CREATE FOREIGN TABLE $name ($columns) SERVER kvfdw OPTIONS (key '$key', shards '" . ($shards // 1) . "')";
}

# What kvfdw_check finds in kvfdw tables.
sub kvfdw_problems
{
	return map {
		my $table = $_;
		my $problems = query("SELECT * FROM kvfdw_check('$table')");
		map { "kvfdw_check('$table'): $_" } defined $problems ? @$problems : 'failed';
	} @_;
}

# ---- tables that move from tablespace to tablespace ----

# Makes the two, in directories of $where that are there.
sub places_make
{
	my ($where) = @_;
	for (qw(near far)) { query("CREATE TABLESPACE $_ LOCATION '$where/$_'") // die "the tablespace $_ cannot be made\n" }
}

# Where a table's values are to lie; '': in none of the two.
sub place_of
{
	return "SELECT coalesce((SELECT substr(o, 12) FROM pg_foreign_table, unnest(ftoptions) o WHERE ftrelid = to_regclass('$_[0]') AND o LIKE 'tablespace=%'), '')";
}

# The ALTER after which a table is to be in $to when it is in $from.
sub move_table
{
	my ($t, $from, $to) = @_;
	return "ALTER FOREIGN TABLE $t OPTIONS (" . ($to eq '' ? 'DROP tablespace' : ($from eq '' ? 'ADD' : 'SET') . " tablespace '$to'") . ')';
}

# Sends the tables from any of the three places to any other until the connection is
# lost.  It gives way to others' locks; errors that $harmless matches are no matter.
# Returns how often tables were sent.
sub keep_moving
{
	my ($harmless, @tables) = @_;
	my %result = (sent => 0);
	my $session = KvSession->new('mover');
	my $do = sub {
		my ($sql, $may_fail) = @_;
		my ($state, $rows) = $session->run($sql);
		die "lost\n" if !defined $state;
		return $rows if $state eq '00000';
		die "$sql: SQLSTATE $state, see mover.err\n" if $state !~ $may_fail && $state !~ $harmless;
		return undef;
	};
	my $busy = qr/^(?:55P03|40P01)$/;
	eval {
		$do->("SET statement_timeout = '60s'", qr/^$/);
		while (1)
		{
			my $t = $tables[ rand @tables ];
			my $from = ($do->(place_of($t), qr/^$/) // next)->[0];
			my $to = (grep { $_ ne $from } '', 'near', 'far')[ rand 2 ];
			$do->("SET lock_timeout = '" . int(50 + rand 500) . "ms'", qr/^$/);
			if ($do->(move_table($t, $from, $to), $busy)) { $result{sent}++ }
			if (rand() < 0.5) { $do->("SET lock_timeout = 0; SELECT kvfdw_compact('$t')", $busy) }
			sleep rand 0.2;
		}
	};
	chomp($result{error} = "mover: $@") if $@ && $@ ne "lost\n";
	$session->close;
	return \%result;
}

# Sends the tables back and drops the tablespaces.  Returns what is wrong.
sub places_leave
{
	my @wrong;
	my $session = KvSession->new('leave');

	# compactions and splits all the time leave the maintainer none to free what is dropped
	$session->run("ALTER SYSTEM SET kvfdw.test_$_ = off") for qw(compactions splits);
	$session->run('SELECT pg_reload_conf()');
	for my $t (@_)
	{
		my ($from) = @{ ($session->run(place_of($t)))[1] };
		next if $from eq '';
		my ($state) = $session->run(move_table($t, $from, ''));
		push @wrong, "$t cannot be sent back, see leave.err" if ($state // '') ne '00000';
	}
	for my $place (qw(near far))
	{
		my $end = time + 300;
		while ((($session->run("DROP TABLESPACE $place"))[0] // '') ne '00000')
		{
			if (time > $end) { push @wrong, "$place cannot be dropped, see leave.err"; last }
			$session->run('CHECKPOINT');
			sleep 0.2;
		}
	}
	$session->close;
	return @wrong;
}

# ---- one session, through psql ----

package KvSession;
use IO::Handle;
use IPC::Open3;
use Time::HiRes qw(sleep);

# A session whose messages go to a file in --dir.
sub new
{
	my ($class, $name) = @_;
	open my $err, '>>', "$option{dir}/$name.err" or die "$name.err: $!";
	my $pid = open3(my $in, my $out, '>&' . fileno($err), 'psql', '-X', '-q', '-A', '-t', '-v', 'VERBOSITY=verbose');
	$in->autoflush(1);
	return bless { in => $in, out => $out, pid => $pid }, $class;
}

# Returns (sqlstate, rows, count of rows returned or changed); sqlstate undef: the connection is gone.
sub run
{
	my ($self, $sql) = @_;
	my @rows;
	local $SIG{PIPE} = 'IGNORE';
	$sql .= ';' if $sql !~ /\\\.$/;    # the data of COPY end without
	print { $self->{in} } "$sql\n\\echo :ERROR :SQLSTATE :ROW_COUNT -- done\n" or return (undef);
	while (defined(my $line = readline $self->{out}))
	{
		chomp $line;
		if ($line =~ /^(?:true|false) (\w*) (\d*) -- done$/)
		{
			return (length $1 && $1 !~ /^(?:57P|08)/ ? $1 : undef, \@rows, $2);    # libpq's own errors have none
		}
		push @rows, $line;
	}
	return (undef, \@rows, 0);
}

# A session at an isolation level; undef while the server cannot be had.  In
# some, COMMIT takes long enough to be killed in it.
sub connect
{
	my ($class, $name, $level) = @_;
	my $self = $class->new($name);
	my ($state) = $self->run("SET default_transaction_isolation = '$level'; SET commit_delay = " . (0, 3000)[ rand 2 ]);
	return $self if defined $state && $state eq '00000';
	$self->close;
	sleep 0.05;
	return undef;
}

# Rows and their count.  An error is an exception: the SQLSTATE, or "lost" with the connection.
sub do
{
	my ($self, $sql) = @_;
	my ($state, $rows, $count) = $self->run($sql);
	die +($state // 'lost') . "\n" if !defined $state || $state ne '00000';
	return ($rows, $count);
}

sub close
{
	my ($self) = @_;
	close $self->{in};
	close $self->{out};
	waitpid $self->{pid}, 0;
}

# What a psql that is gone has not read is of no interest.
sub DESTROY
{
	my ($self) = @_;
	local ($?, $!);
	local $SIG{PIPE} = 'IGNORE';
	CORE::close $self->{in};
}

1;
