# What the tests of standbys, backups and recovery to a point share: a primary,
# writers that change a kvfdw table and its heap twin in the same transactions,
# and comparisons within a server and between servers.
package KvReplica;
use strict;
use warnings;
use Exporter 'import';
use IO::Select;
use IO::Socket::UNIX;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

our @EXPORT = qw(kv_primary kv_standby promote_blind twin_tables start_load stop_load load_goes_on caught_up rows_of same_rows sound rewind_during
  in_steps step_done step_go power_loss unusable);

sub kv_primary
{
	my ($name, %conf) = @_;
	return kv_cluster($name, wal_level => 'replica', max_wal_senders => 10, max_replication_slots => 10, hot_standby => 'on',
		wal_log_hints => 'on', max_wal_size => '2GB', checkpoint_timeout => '1h', wal_keep_size => '2GB', max_prepared_transactions => 5, %conf);
}

# A standby of $from, made of a backup that is taken now, and running.  That backup becomes its
# data directory; one that is there already is copied.
sub kv_standby
{
	my ($from, $name, %conf) = @_;
	my $copy = \&PostgreSQL::Test::RecursiveCopy::copypath;
	unless (-d $from->backup_dir . "/$name")
	{
		$from->backup($name);
		$copy = sub { my ($backup, $to) = @_; return rename($backup, $to) || die "rename: $!"; };
	}
	my $node = PostgreSQL::Test::Cluster->new($name);
	{
		no warnings 'redefine';
		local *PostgreSQL::Test::RecursiveCopy::copypath = $copy;
		$node->init_from_backup($from, $name, has_streaming => 1);
	}
	$node->append_conf('postgresql.conf', join('', map { "$_ = $conf{$_}\n" } sort keys %conf));
	$node->start;
	return $node;
}

# Promote a standby that takes no queries: pg_ctl does not wait until it does.
sub promote_blind
{
	my ($node) = @_;
	$node->promote;
	return wait_for('queries', sub { answer($node, 'SELECT true') eq 't' });
}

my $boots = 0;

# The machine of a running or stopped node restarts: for kvfdw its kernel is another one.
sub power_loss
{
	my ($node) = @_;
	kill_all($node) if postmaster_runs($node);
	$boots++;
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'boot $boots'\n") if !heap_only();
	return $node->start;
}

# ---- sessions ----

my ($main, @bases) = ($$);

# psql in the background; after each step it waits until the test lets it go on, or has ended.
sub in_steps
{
	my ($node, $name, @steps) = @_;
	my $base = "$PostgreSQL::Test::Utils::tmp_check/$name";
	my $wait = q{perl -e 'my $f = shift; open(F, q(>), "$f.done"); select(undef, undef, undef, 0.01) until -e "$f.go" || !-e "$f.done"'};
	my $script = join('', map { "$steps[$_]\n\\! $wait $base.$_\n" } 0 .. $#steps);
	push @bases, $base;
	return { base => $base, w => psql_writer($node, $script, $name), n => 0 };
}

END { unlink map { glob "'$_'.*.done" } @bases if $$ == $main; }

# Wait until the present step is done.
sub step_done
{
	my ($s) = @_;
	return wait_for("$s->{base}.$s->{n}", sub { -e "$s->{base}.$s->{n}.done" || (ended($s->{w}) && die "$s->{base}: " . outcome($s->{w})) });
}

# Let the session do the next step, and wait until it is done.
sub step_go
{
	my ($s) = @_;
	my $n = $s->{n}++;
	append_to_file("$s->{base}.$n.go", '');
	return -s "$s->{base}.sql" && slurp_file("$s->{base}.sql") =~ /\Q$s->{base}.$s->{n}\E$/m ? step_done($s) : 1;
}

# ---- pg_rewind ----

# Bytes between pg_rewind and the server.  When it has the list of files and asks for the first parts of them, or has got so
# many bytes of these, it stands still, until there is a file "go".
sub proxy
{
	my ($node, $after) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $name = '/.s.PGSQL.' . $node->port;
	my $listen = IO::Socket::UNIX->new(Local => $dir . $name, Listen => 1) or die "listen: $!";
	my $pid = fork() // die "fork: $!";
	return { dir => $dir, pid => $pid } if $pid;
	my ($listed, $asks, $got, $stood) = (0, 0, 0, 0);
	my $client = $listen->accept;
	my $server = IO::Socket::UNIX->new(Peer => $node->host . $name) or POSIX::_exit(1);
	my $select = IO::Select->new($client, $server);
	while (1)
	{
		for my $from ($select->can_read)
		{
			sysread($from, my $bytes, 65536) or POSIX::_exit(0);
			$asks ||= $from == $client && $listed && $bytes =~ /fetch_chunks_stmt/;
			$got += length $bytes if $asks && $from == $server;
			if ($asks && $got >= $after && !$stood++)
			{
				append_to_file("$dir/waiting", '');
				select(undef, undef, undef, 0.01) until -e "$dir/go" || getppid() == 1;
			}
			$listed ||= $from == $client && $bytes =~ /WITH RECURSIVE files/;
			my $to = $from == $client ? $server : $client;
			for (my $at = 0; $at < length $bytes;) { $at += syswrite($to, $bytes, length($bytes) - $at, $at) // POSIX::_exit(1); }
		}
	}
}

# pg_rewind of one server that was stopped, and $meanwhile when it has got so many bytes of files.  Then it follows the source.
sub rewind_during
{
	my ($target, $source, $after, $meanwhile) = @_;
	my $conf = slurp_file($target->data_dir . '/postgresql.conf');
	$source->safe_psql('postgres', 'CHECKPOINT');
	my $proxy = proxy($source, $after);
	my $server = sprintf("port=%s host=%s dbname='postgres'", $source->port, $proxy->{dir});
	my $run = IPC::Run::start([ 'pg_rewind', '--target-pgdata', $target->data_dir, '--source-server', $server, '--no-sync' ], '>', \my $out, '2>', \my $err);
	eval { wait_for('pg_rewind to ask', sub { $run->pump_nb; -e "$proxy->{dir}/waiting" || !$run->pumpable }) };
	my $came = ok(-e "$proxy->{dir}/waiting", "pg_rewind gets $after bytes");
	$meanwhile->() if $came;
	append_to_file("$proxy->{dir}/go", '');
	my $done = $came && $run->finish;
	kill 'KILL', $proxy->{pid} unless $done;
	waitpid($proxy->{pid}, 0);
	ok($done, 'pg_rewind') or die $err;
	open(my $file, '>', $target->data_dir . '/postgresql.conf') or die;
	print $file $conf;
	close $file;
	$target->enable_streaming($source);
	$target->append_conf('postgresql.conf', "recovery_target_timeline = latest\n");
	$target->start;
	return caught_up($source, $target);
}

# ---- load ----

# 'twin_kv' (w, i, v) and 'twin_heap' always hold the same rows.
sub twin_tables
{
	my ($node) = @_;
	$node->safe_psql('postgres', kv_table('twin_kv', 'w int, i int, v text', 'w, i', "shards '3'") .
		'CREATE TABLE twin_heap (w int, i int, v text, PRIMARY KEY (w, i)); CREATE TABLE acked (w int PRIMARY KEY, n int);' .
		'CREATE TABLE made (name text PRIMARY KEY);');
	return;
}

my $made = 0;

# One transaction of writer $w: random work on both tables.
sub transaction
{
	my ($w, $n) = @_;
	my $r = rand();
	return "BEGIN; TRUNCATE twin_kv; TRUNCATE twin_heap; " . both("INSERT INTO %s SELECT w, i, 'after truncate $w.$n' FROM generate_series(1, 3) w, generate_series(1, 50) i") .
		($r < 0.005 ? "ROLLBACK;\n" : "COMMIT;\n") if $r < 0.01;
	return create_drop($n) if $r < 0.03;
	my $s = "BEGIN;\n";
	for (1 .. 1 + int(rand(4)))
	{
		my $k = int(rand(150));
		my $size = rand();
		$size = $size < 0.02 ? 300_000 : $size < 0.1 ? 5000 : $size < 0.15 ? 0 : int(rand(600));
		my $op = rand();
		my $sp = rand() < 0.2;
		$s .= "SAVEPOINT s;\n" if $sp;
		$s .= both($op < 0.5 ? "INSERT INTO %s VALUES ($w, $k, rpad('$n', $size, 'x')) ON CONFLICT DO NOTHING"
			: $op < 0.8 ? "UPDATE %s SET v = rpad('u$n', $size, 'y') WHERE w = $w AND i BETWEEN $k AND @{[ $k + 3 ]}"
			: $op < 0.93 ? "DELETE FROM %s WHERE w = $w AND i BETWEEN $k AND @{[ $k + 5 ]}"
			: "UPDATE %s t SET i = i + 1000 WHERE w = $w AND i = $k AND NOT EXISTS (SELECT FROM %s x WHERE x.w = $w AND x.i = $k + 1000)");
		$s .= (rand() < 0.5 ? "ROLLBACK TO s;\n" : "RELEASE s;\n") if $sp;
	}
	$s .= "INSERT INTO acked VALUES ($w, $n) ON CONFLICT (w) DO UPDATE SET n = $n;\n";
	return $s . (rand() < 0.15 ? "ROLLBACK;\n" : "COMMIT;\n\\echo ack $n\n");
}

sub both { my ($sql) = @_; return join('', map { my $t = $_; $sql =~ s/%s/$t/gr . ";\n" } 'twin_kv', 'twin_heap'); }

# A table of its own, with rows; half of them are dropped again.
sub create_drop
{
	my ($n) = @_;
	my $t = 'made_' . ++$made;
	my $s = "BEGIN;\n" . kv_table("${t}_kv", 'k int, v text', 'k') . " CREATE TABLE ${t}_heap (k int PRIMARY KEY, v text);\n" .
		"INSERT INTO made VALUES ('$t');\n" . join('', map { "INSERT INTO ${t}_$_ SELECT g, repeat(g::text, 100) FROM generate_series(1, 30) g;\n" } 'kv', 'heap') .
		(rand() < 0.2 ? "ROLLBACK;\n" : "COMMIT;\n");
	return $s if $s =~ /ROLLBACK/;
	$s .= 'BEGIN; ' . join('', map { "UPDATE ${t}_$_ SET v = '$n' WHERE k % 3 = 0; " } 'kv', 'heap') . "COMMIT;\n";
	$s .= "BEGIN; DROP " . (heap_only() ? '' : 'FOREIGN ') . "TABLE ${t}_kv; DROP TABLE ${t}_heap; DELETE FROM made WHERE name = '$t'; " . (rand() < 0.3 ? "ROLLBACK;\n" : "COMMIT;\n") if rand() < 0.6;
	return $s;
}

my $loads = 0;

# Writers on a node, one per number, and one that checkpoints and flushes.
sub start_load
{
	my ($node, @writers) = @_;
	my $load = ++$loads;
	my %of = (node => $node);
	local $ENV{PGAPPNAME} = 'load';
	for my $w (@writers)
	{
		$of{$w} = psql_writer($node, join('', map { transaction($w, $load * 100_000 + $_) } 1 .. 4000), "load$load.$w");
	}
	$of{freezer} = psql_writer($node, join('', ("SELECT kvfdw_flush('twin_kv'); SELECT pg_sleep(0.05);\n" x 3 . "CHECKPOINT;\n") x 500), "load$load.freezer");
	return \%of;
}

# Wait until every writer has had $n transactions acknowledged since it started.
sub load_goes_on
{
	my ($load, $n) = @_;
	for my $w (grep { /^\d+$/ } keys %$load)
	{
		wait_for("writer $w", sub {
			return 1 if ended($load->{$w});
			my @acks = slurp_file($load->{$w}{out}) =~ /^ack/mg;
			return @acks >= $n; });
	}
	return;
}

# End the writers; what they had acknowledged last, by number.
sub stop_load
{
	my ($load) = @_;
	my %last;
	for my $w (grep { $_ ne 'node' } keys %$load)
	{
		$load->{$w}{handle}->signal('TERM') unless ended($load->{$w});
		$last{$w} = reap_writer($load->{$w});
		my $err = slurp_file($load->{$w}{err});
		$err =~ s/^.*(terminat|closed the connection|connection to server was lost|server process|before or while|shutting down|could not send).*\n//mg;
		diag("writer $w: $err") if $err =~ /ERROR|FATAL/;
	}
	# a session outlives its psql for a moment, and may commit in it
	wait_for('sessions to end', sub { answer($load->{node}, q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'load'}) =~ /^(0|error.*)$/s });
	delete $last{freezer};
	return %last;
}

# ---- comparison ----

sub caught_up
{
	my ($from, $standby) = @_;
	my $replaying = $from->safe_psql("postgres", "SELECT pg_is_in_recovery()") eq "t";
	$from->safe_psql("postgres", "SELECT pg_create_restore_point('caught up')") unless $replaying;
	$from->wait_for_catchup($standby->name, "replay", $from->lsn($replaying ? "replay" : "flush"));
	return;
}

# Number and checksum of a table's rows in order of its key.
sub rows_of
{
	my ($node, $table, $key) = @_;
	return answer($node, "SELECT count(*), md5(string_agg(s::text, ';' ORDER BY $key)) FROM $table s");
}

# All tables of the load are the same on both nodes; and the twins on each.
sub same_rows
{
	my ($a, $b, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(tables_differ($_, 'twin_kv', 'twin_heap', 'w, i'), '', "$what: kvfdw and heap agree on " . $_->name) for $a, $b;
	is(rows_of($a, 'twin_kv', 'w, i'), rows_of($b, 'twin_kv', 'w, i'), "$what: both have the same rows");
	my @made = made_tables($a);
	my $differ = join(';', map { "SELECT '$_', * FROM ((TABLE ${_}_kv EXCEPT ALL TABLE ${_}_heap) UNION ALL (TABLE ${_}_heap EXCEPT ALL TABLE ${_}_kv)) d" } @made);
	is(join('', map { answer($_, $differ) } $a, $b), '', "$what: so do " . @made . ' tables made meanwhile');
	return;
}

sub made_tables { my ($node) = @_; return split /\n/, answer($node, 'SELECT name FROM made ORDER BY 1'); }

# Each use of these tables is the error of tables whose values did not come along.
sub unusable
{
	my ($node, $what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return if heap_only();
	for my $t (@tables)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT count(*) FROM $t");
		like($err, qr/55000: (?:cannot access foreign table "$t" on a standby server|rows of foreign table "$t" are not on this server)/, "$what: $t is unusable");
	}
	return;
}

# kvfdw_check finds nothing (it does not run on a standby).
sub sound
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(answer($node, join(';', map { "SELECT '$_', c FROM kvfdw_check('$_') c LIMIT 3" } 'twin_kv', map { "${_}_kv" } made_tables($node))), '', "$what: kvfdw_check is clean");
}

1;
