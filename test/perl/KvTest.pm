# What the TAP tests share: clusters that preload kvfdw, real SIGKILL, and the
# comparison of a kvfdw table with its heap twin.
#
# KV_TEST_HEAP=1 replaces every kvfdw table by a heap table, which proves that
# the expectation of a test is heap's own.
package KvTest;
use strict;
use warnings;
use Carp ();
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use List::Util qw(max min);
use Time::HiRes qw(usleep time);
use IPC::Run ();
use KvPsql;
use KvVersions qw(crc32c);

our @EXPORT = qw(kv_cluster kv_table kill_all kill_process postmaster_runs restart_killed psql_writer
  reap_writer ended outcome stopped go_on worker_stop_points collected kv_check_clean tables_differ same_as_heap answer
  kv_files wait_for heap_only has_faults setting times_ready ready_again step_on
  hold_wal crc32c must_be);

# A limit is for what would never come, on any machine.
use constant LIMIT => 300;
$ENV{PGCTLTIMEOUT} //= LIMIT;

# A file has so long (run.sh); one that hangs says where.
$SIG{ALRM} = sub { alarm(0); Carp::confess('hangs') };
alarm($ENV{KV_ALL} ? 3850 : 850);

sub heap_only { return $ENV{KV_TEST_HEAP} ? 1 : 0; }

# A running cluster named $name; %conf goes to postgresql.conf, but for before_init
# and before_start, which are called with the node.
sub kv_cluster
{
	my ($name, %conf) = @_;
	my ($before_init, $before_start) = delete @conf{qw(before_init before_start)};
	my $node = PostgreSQL::Test::Cluster->new($name);
	$before_init->($node) if $before_init;
	$node->init;
	my %settings = (
		fsync => 'off', autovacuum => 'off', checkpoint_timeout => '1h', max_connections => 40, max_worker_processes => 16, restart_after_crash => 'on', log_statement => 'none',
		# room for all processes on demand at once; the default of 8 has tests of its own
		(heap_only() ? () : (shared_preload_libraries => "'kvfdw'", 'kvfdw.write_buffers' => "'4MB'", 'kvfdw.write_buffer_size' => "'256kB'")), %conf);
	if ($ENV{ADMISSION} && !heap_only())
	{
		%settings = ('kvfdw.admission_limit' => $ENV{ADMISSION}, 'kvfdw.admission_exempt_superusers' => 'off', 'kvfdw.admission_exempt_monitor' => 'off', %settings);
	}
	if ($ENV{VALUE_FILE_KB} && !heap_only()) { %settings = ('kvfdw.test_value_file_kb' => $ENV{VALUE_FILE_KB}, %settings); }
	if ($ENV{COMPACT} && !heap_only()) { %settings = ('kvfdw.test_compact' => 'on', %settings); }
	if ($ENV{COMPACTIONS} && !heap_only()) { %settings = ('kvfdw.test_compactions' => 'on', 'kvfdw.compact_memory' => '4MB', %settings); }
	if ($ENV{DEAD} && !heap_only()) { %settings = ('kvfdw.test_dead_keys' => $ENV{DEAD}, %settings); }
	if ($ENV{SPLITS} && !heap_only()) { %settings = ('kvfdw.test_splits' => 'on', %settings); }
	# who counts reads, or has them fail, says that nothing is cached
	if (!heap_only() && ($settings{'kvfdw.value_cache'} // '') eq '0') { $settings{'kvfdw.recent_ring'} //= 0; }
	if ($ENV{KV_IO_METHOD} && !heap_only()) { $settings{'kvfdw.io_method'} = $ENV{KV_IO_METHOD}; }
	$node->append_conf('postgresql.conf', join('', map { "$_ = $settings{$_}\n" } sort keys %settings));
	$before_start->($node) if $before_start;
	$node->start;
	kv_install($node, 'postgres');
	return $node;
}

sub kv_install
{
	my ($node, $db) = @_;
	$node->safe_psql($db, heap_only()
		? q{CREATE FUNCTION kvfdw_flush(regclass) RETURNS void LANGUAGE sql AS '';
			CREATE FUNCTION kvfdw_check(regclass) RETURNS TABLE (file text, "position" bigint, problem text) LANGUAGE sql AS 'SELECT NULL::text, 0::bigint, NULL::text WHERE false'}
		: 'CREATE EXTENSION kvfdw');
	return;
}

# The statement that creates a kvfdw table; key: its columns.
sub kv_table
{
	my ($name, $columns, $key, $options) = @_;
	return "CREATE TABLE $name ($columns, PRIMARY KEY ($key));" if heap_only();
	return "CREATE FOREIGN TABLE $name ($columns) SERVER kvfdw OPTIONS (key '$key'" . ($options ? ", $options" : '') . ");";
}

# Is this a test build (make FAULTS=1)?
sub has_faults
{
	my ($node) = @_;
	return 0 if heap_only();
	my ($rc) = $node->psql('postgres', q{SET kvfdw.fault = ''});
	return $rc == 0 && $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'kvfdw.fault'}) == 1;
}

# Wait until $code is true, and die if that never comes: not within LIMIT, or so many seconds.
sub wait_for
{
	my $code = pop;
	my ($what, $seconds) = @_;
	my $start = time();
	while ((my $waited = time() - $start) < ($seconds // LIMIT))
	{
		return 1 if $code->();
		# looking costs others time: the longer it takes, the more seldom
		usleep(1e6 * min(max($waited / 8, 0.01), 0.2));
	}
	die join("; ", "timed out waiting for $what", who_waits());
}

# What the processes of each server that runs wait for, each of them that is not idle.
sub who_waits
{
	my $sql = q{SELECT concat_ws(' ', pid, backend_type, 'waits for', wait_event_type, wait_event, 'in', left(query, 80)) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND wait_event_type NOT IN ('Activity', 'Client', 'Extension')};
	my @waits;
	for my $file (glob "$PostgreSQL::Test::Utils::tmp_check/*/pgdata/postmaster.pid")
	{
		my ($name, (undef, undef, undef, $port, $host)) = ($file =~ m{/([^/]*)_data/}, split(/\n/, eval { slurp_file($file) } // ''));
		next unless $host;
		push @waits, map { "$name: $_" } split /\n/, `timeout 10 psql -XAtq -h $host -p $port -d postgres -c "$sql" 2>&1`;
	}
	return @waits;
}

# SIGKILL the postmaster and every process it started, as a machine would.  Where
# the data directory cannot be read the node knows the process.
sub kill_all
{
	my ($node) = @_;
	my $postmaster = $node->{_pid};
	if (open(my $f, '<', $node->data_dir . '/postmaster.pid'))
	{
		$postmaster = <$f>;
		chomp $postmaster;
		close $f;
	}
	die "no postmaster.pid" unless $postmaster;
	# stop it first, so that it starts no other process
	kill 'STOP', $postmaster;
	wait_for('the postmaster to stand still', sub { state_of($postmaster) =~ /[TZX]/ });
	my @children = split ' ', `ps -o pid= --ppid $postmaster`;
	kill 'KILL', $postmaster, @children;
	wait_for('killed processes to end', sub { !grep { kill(0, $_) && running($_) } $postmaster, @children });
	bury($node, $postmaster);
	return;
}

# A killed postmaster may not be reaped at once.  A zombie still owns its lock files;
# where no process reaps it, they must go.
sub bury
{
	my ($node, $postmaster) = @_;
	unless (eval { wait_for('the postmaster to be reaped', 0.05, sub { !kill(0, $postmaster) }) })
	{
		unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	}
	$node->{_pid} = undef;
	return;
}

# R, S, D, T (stands still), Z (a zombie), X, as the kernel says.
sub state_of
{
	my ($pid) = @_;
	open(my $f, '<', "/proc/$pid/stat") or return 'X';
	my ($state) = (<$f> // '') =~ /^\d+ \(.*\) (\w)/;
	return $state // 'X';
}

sub running { my ($pid) = @_; return state_of($pid) !~ /[ZX]/; }

# The postmaster's pid if it is alive; else its lock files go.
sub postmaster_runs
{
	my ($node) = @_;
	my $file = $node->data_dir . '/postmaster.pid';
	if (open(my $f, '<', $file))
	{
		my $pid = <$f>;
		chomp $pid;
		close $f;
		return $pid if kill(0, $pid) && running($pid);
		bury($node, $pid);
		unlink $file;
	}
	$node->{_pid} = undef;
	return 0;
}

# SIGKILL one process: the postmaster restarts the others, when it has noticed.
sub kill_process { my ($pid) = @_; return kill 'KILL', $pid; }

# How often the server has taken connections; and wait until it does so again.  One
# that is about to restart after the crash of a process still answers for a moment.
sub times_ready { my ($node) = @_; my @ready = slurp_file($node->logfile) =~ /database system is ready to accept/g; return scalar @ready; }
sub ready_again { my ($node, $times) = @_; return wait_for('the restart', sub { times_ready($node) > $times }); }

sub restart_killed
{
	my ($node) = @_;
	$node->start;
	return;
}

# From now on nothing but a commit flushes the WAL, until the server is killed: who
# does so from time to time stands still.
sub hold_wal
{
	my ($node) = @_;
	return kill 'STOP', split /\n/, $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer')});
}

# psql in the background, reading a script file; its output is kept in a file.
# go_on: also after errors.
sub psql_writer
{
	my ($node, $script, $name, $go_on) = @_;
	my $dir = $PostgreSQL::Test::Utils::tmp_check;
	my $in = "$dir/$name.sql";
	my $out = "$dir/$name.out";
	open(my $f, '>', $in) or die;
	print $f $script;
	close $f;
	my $h = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=' . ($go_on ? 0 : 1), '-d', $node->connstr('postgres'), '-f', $in ], '>', $out, '2>', "$dir/$name.err");
	return { handle => $h, out => $out, err => "$dir/$name.err" };
}

# Wait for a writer to end; returns the number after the last "ack", or -1.
sub reap_writer
{
	my ($w) = @_;
	eval { $w->{handle}->finish; };
	open(my $f, '<', $w->{out}) or return -1;
	my $last = -1;
	while (my $line = <$f>) { $last = $1 if $line =~ /^ack (\d+)$/; }
	return $last;
}

# Has the psql ended?
sub ended { my ($w) = @_; eval { $w->{handle}->pump_nb; }; return !$w->{handle}->pumpable; }

# What a psql has put out until it ended, errors last; one that hangs is an outcome too.
sub outcome
{
	my ($w) = @_;
	eval { wait_for('a session to end', sub { ended($w) }) } or return 'hangs';
	eval { $w->{handle}->finish; };
	return slurp_file($w->{out}) . slurp_file($w->{err});
}

# ---- stop points (fault.c), test builds only ----

# Wait until a process waits at a stop point.
sub stopped
{
	my ($node, $name) = @_;
	return wait_for("a process at stop point $name", sub { -e $node->data_dir . "/kvfdw/waiting.$name" });
}

# Let all go on that are there; with a psql, until that has ended, and return its outcome.
sub go_on
{
	my ($node, $name, $w) = @_;
	my $dir = $node->data_dir . '/kvfdw';
	append_to_file("$dir/continue.$name", '');
	my $outcome = $w && outcome($w);
	my $left = wait_for("processes to leave $name", sub { !grep { /\.(\d+)$/ && running($1) } glob "$dir/waiting.$name.*" });
	unlink "$dir/continue.$name";
	return $w ? $outcome : $left;
}

# Let it go on to the next time that it comes there, or until $done is true.
sub step_on
{
	my ($node, $name, $done) = @_;
	my $dir = $node->data_dir . '/kvfdw';
	append_to_file("$dir/step.$name", '');
	wait_for("a process to go on from $name", sub { !-e "$dir/step.$name" });
	return wait_for("a process at stop point $name", sub { -e "$dir/waiting.$name" || $done && $done->() });
}

# Set the stop points of kvfdw's workers, and of sessions that do not set their
# own.  A connection that sees the setting was made after the workers were told, and
# they look at what they are told when they come to a stop point.  One that is to be killed
# there may be before that connection is made: then it has been told.
sub worker_stop_points
{
	my ($node, $points) = @_;
	local $ENV{PGOPTIONS} = '';
	$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.stop_points = '$points'");
	my $seen = $points =~ /=kill/ ? qr/^(?:t\n)?(?:\Q$points\E$|error: )/ : qr/^(?:t\n)?\Q$points\E$/;
	return if answer($node, "SELECT pg_reload_conf();\n\\connect\nSHOW kvfdw.stop_points") =~ $seen;
	wait_for('a reload', sub { answer($node, 'SHOW kvfdw.stop_points') =~ $seen });
	return;
}

# Wait until the maintainer has looked for dropped stores after this call: it
# does so before it removes directories like this one, which is made twice
# because it may be between the two.
sub collected
{
	my ($node) = @_;
	my $dir = $node->data_dir . '/kvfdw/dropped.test';
	for (1 .. 2)
	{
		mkdir $dir or die "mkdir: $!";
		kill 'HUP', postmaster_runs($node) or die 'the server does not run';
		wait_for('the maintainer', sub { !-e $dir });
	}
	return;
}

# A query's result, or its error: a test that compares it fails and goes on.
sub answer
{
	my ($node, $sql) = @_;
	# a psql that finds no server may end before it has been told the query
	my ($rc, $out, $err) = eval { $node->psql('postgres', $sql, on_error_stop => 1) };
	return "error: $@" if $@;
	return $rc == 0 ? $out : "error: $err";
}

# A test which, if it fails, may leave processes that hang with locks held: nothing more can be learned then.
sub must_be
{
	my ($node, $got, $expected, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return if Test::More::is($got, $expected, $what);
	kill_all($node);
	Test::More::done_testing();
	exit 1;
}

# '' if kvfdw_check finds nothing.
sub kv_check_clean
{
	my ($node, @tables) = @_;
	return join('; ', split /\n/, answer($node, join(';', map { "SELECT '$_: ' || c::text FROM kvfdw_check('$_') c LIMIT 3" } @tables)));
}

# '' if both tables hold the same rows, in the same order of $key.  To write rows as text is what
# takes longest: where their types have hashes, the scan in any order does without.
sub tables_differ
{
	my ($node, $kv, $heap, $key) = @_;
	my $sums;
	for my $hash ('hash_record_extended(s, 0)', 'hashtextextended(s::text, 0)')
	{
		$sums = answer($node, "SELECT count(*), sum($hash) FROM $kv s;
			SELECT coalesce(md5(string_agg(s::text, ';')), 'none') FROM (SELECT * FROM $kv ORDER BY $key) s;
			SELECT concat(count(*), '|', sum($hash), chr(10), coalesce(md5(string_agg(s::text, ';')), 'none')) FROM (SELECT * FROM $heap ORDER BY $key) s");
		last if $sums !~ /could not identify an extended hash function/;
	}
	return $sums if $sums =~ /^error: /m;
	my ($rows_kv, $order_kv, $rows_heap, $order_heap) = split /\n/, $sums;
	return '' if $rows_kv eq $rows_heap && $order_kv eq $order_heap;
	my $d = answer($node, "SELECT 'kvfdw only: ' || left(s::text, 100) FROM (TABLE $kv EXCEPT ALL TABLE $heap LIMIT 5) s") .
	  answer($node, "SELECT 'heap only: ' || left(s::text, 100) FROM (TABLE $heap EXCEPT ALL TABLE $kv LIMIT 5) s");
	return $d eq '' ? "order differs, or did when it was first looked at: $sums" : $d;
}

# Tests that table t has the rows of heap, whose key is k, as many as are counted, and is sound.
sub same_as_heap
{
	my ($node, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($node, 't', 'heap', 'k'), '', "$when: heap's rows");
	is(answer($node, 'SELECT count(*) FROM t'), answer($node, 'SELECT count(*) FROM heap'), "$when: as many as are counted");
	return is(kv_check_clean($node, 't'), '', "$when: sound");
}

# Files and directories below the cluster's kvfdw directory, relative to it.
sub kv_files
{
	my ($node) = @_;
	my $root = $node->data_dir . '/kvfdw';
	my @found;
	my @dirs = ('');
	while (defined(my $d = shift @dirs))
	{
		opendir(my $h, "$root/$d") or next;
		for my $e (sort grep { !/^\.\.?$/ } readdir $h)
		{
			my $p = length $d ? "$d/$e" : $e;
			push @found, $p;
			push @dirs, $p if -d "$root/$p";
		}
	}
	return @found;
}

sub setting { my ($node, $name) = @_; return $node->safe_psql('postgres', "SHOW $name"); }

1;
