# Promise: pg_rewind that copies from a server beside a compaction job, checkpoints and a split there, between its list of files and the
# copies, or between these, makes a standby whose table has the right rows or is damaged
# (XX001), never one with wrong rows, nor after it was killed or the power was gone (I 4, I 11, I 14).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IO::Select;
use POSIX ();
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap moves and splits nothing' if heap_only();
my $old = kv_primary('old', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 3600, 'kvfdw.test_splits' => 'off', 'kvfdw.compact_workers' => 0);
plan skip_all => 'needs fault injection' unless has_faults($old);
$old->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '1'") . 'CREATE TABLE heap (k int PRIMARY KEY, v text);');
my $round = 0;
sub change
{
	my ($node) = @_;
	$round++;
	# most rows are only in files since the servers have parted
	$node->safe_psql('postgres', join ';', map { "INSERT INTO $_ SELECT g * 37 % 3001, rpad(md5((g * $round)::text), 20 + g * 53 % 1900, 'v') FROM generate_series(1, CASE WHEN $round = 1 THEN 3000 ELSE 100 END) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v; DELETE FROM $_ WHERE k % 97 = $round" } 'heap', 't');
	return;
}

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

# pg_rewind of one server that was stopped, and $meanwhile when it has got so many bytes of files.
sub rewind
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

# All rows in two orders, and each by its key; or damage.
my $damaged = 0;
sub right_or_damaged
{
	my ($node, $when) = @_;
	my $sql = 'SELECT count(*), sum(hashtextextended(v, k)) FROM T; SELECT md5(string_agg(k || v, $$,$$ ORDER BY k DESC)) FROM T; SELECT count(*) FROM generate_series(0, 3001) g CROSS JOIN LATERAL (SELECT v FROM T WHERE k = g OFFSET 0) s; SELECT count(*) FROM T';
	my $expected = answer($node, $sql =~ s/\bT\b/heap/gr);
	for my $part (0 .. 3)
	{
		my $got = answer($node, "\\set VERBOSITY verbose\n" . ((split /; /, $sql)[$part] =~ s/\bT\b/t/gr));
		next if $got eq (split /\n/, $expected)[$part];
		$damaged++;
		return like($got, qr/XX001/, "$when: rows are wrong only if the table is damaged");
	}
	return pass("$when: the right rows");
}

sub meanwhile
{
	my ($node) = @_;
	change($node);
	$node->safe_psql('postgres', $_) for q{SELECT kvfdw_compact('t', true)}, 'CHECKPOINT', q{SELECT kvfdw_split('t')}, 'CHECKPOINT';
	wait_for('files to go', sub { $node->safe_psql('postgres', q{SELECT obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 't'::regclass}) == 0 });
	change($node);
	$node->safe_psql('postgres', q{SELECT kvfdw_flush('t')});
	return;
}

change($old) for 1 .. 3;
my $new = kv_standby($old, 'new');
my @after = (0, 300_000, 2_000_000);
for my $after (@after)
{
	caught_up($old, $new);
	$new->promote;
	change($new);
	# the one that was the primary has what the new one never had
	$old->safe_psql('postgres', q{INSERT INTO t SELECT g, 'old' FROM generate_series(5000, 6000) g; INSERT INTO heap SELECT g, 'old' FROM generate_series(5000, 6000) g; SELECT kvfdw_compact('t', true)});
	$old->stop;
	rewind($old, $new, $after, sub { meanwhile($new) });
	right_or_damaged($old, "$after bytes");
	change($new);
	caught_up($new, $old);
	right_or_damaged($old, "$after bytes, it follows");
	kill_all($old);
	$old->start;
	caught_up($new, $old);
	right_or_damaged($old, "$after bytes, killed");
	power_loss($old);
	caught_up($new, $old);
	right_or_damaged($old, "$after bytes, after power loss");
	is(tables_differ($new, 't', 'heap', 'k'), '', "$after bytes: the source has all rows");
	last if $after == $after[-1];

	# the next one starts from a copy that is whole
	$old->stop('immediate');
	my $copy = kv_standby($new, "copy$after");
	($old, $new) = ($new, $copy);
}
note "damaged: $damaged";
$_->stop for $old, $new;
done_testing();
