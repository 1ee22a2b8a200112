# Promise: a checkpoint appends what little is new in a shard to the version log, and syncs no file
# of that shard.  What was acknowledged survives a restart of the operating system all the same,
# wherever the checkpointer, a flush or a recovery is when the server is killed; on standbys, in backups,
# with prepared transactions, subtransactions and row locks.  A damaged value is an error.
#
# The restart is told by another boot id; nothing is really lost (test/powercut loses writes).
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
my $node = kv_primary('carried', 'kvfdw.flush_after' => 3600);
my $faults = has_faults($node);

$node->safe_psql('postgres', 'CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '4'"));
my $dir = $node->data_dir . '/kvfdw/' . $node->safe_psql('postgres', q{SELECT oid || '/' || 't'::regclass::oid || '/00000001' FROM pg_database WHERE datname = 'postgres'});
my $next = 0;

sub query { return $node->safe_psql('postgres', @_); }

# A little of everything, spread over the shards.
sub change
{
	my $n = ++$next;
	query(join '', map {
		"INSERT INTO $_ SELECT (g * 1003) % 4001 - 2000 + $n, rpad('v' || g, g * 17 % 200, 'v') FROM generate_series($n * 20, $n * 20 + 20) g ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v;
		UPDATE $_ SET v = 'new $n' WHERE k % 37 = $n % 37; DELETE FROM $_ WHERE k % 41 = $n % 41;
		BEGIN; UPDATE $_ SET v = 'lost' WHERE k % 5 = 0; ROLLBACK;
		BEGIN; INSERT INTO $_ VALUES ($n * 10000, 'kept') ON CONFLICT DO NOTHING; SAVEPOINT s; DELETE FROM $_; ROLLBACK TO s; SELECT count(*) FROM (SELECT FROM $_ WHERE k % 3 = 0 FOR UPDATE) s; COMMIT;\n" } 't', 'heap');
	return;
}
sub good
{
	my ($what, $server) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(tables_differ($server // $node, 't', 'heap', 'k') . ($server ? '' : kv_check_clean($node, 't')), '', $what);
}
sub lost { power_loss($node); return; }

# The sizes of all files of shards.
sub sizes { return join ' ', map { -s . ' ' . s{.*/}{}r } sort grep { !/versions$/ } glob "$dir/*.*"; }

# ---- no file of a shard is written for little ----

query('CHECKPOINT');
change();
query('CHECKPOINT');
my $before = sizes();
change();
query('CHECKPOINT');
is(sizes(), $before, 'no file of a shard has changed by a checkpoint');
my ($shards, $bytes) = split /\|/, query('SELECT last_shards, last_bytes FROM kvfdw_stat_checkpointer');
cmp_ok($shards, '>', 0, 'though shards had changed');
cmp_ok($bytes, '>', 0, 'and what they had was written');
query('CHECKPOINT');
is(query('SELECT last_shards FROM kvfdw_stat_checkpointer'), 0, 'once');
lost();
good('after a power loss');
lost();
good('after another one, with nothing between');
change();
lost();
good('with changes that only the WAL has on top');
change();
query('CHECKPOINT');
change();
query(q{SELECT kvfdw_flush('t')});
lost();
good('after a flush that no checkpoint has seen');
change();
query('CHECKPOINT');
$node->stop;
$node->start;
good('after a clean stop');
query("INSERT INTO t SELECT g, repeat('x', 3000) FROM generate_series(5000, 5100) g; INSERT INTO heap SELECT g, repeat('x', 3000) FROM generate_series(5000, 5100) g; CHECKPOINT");
lost();
good('what is much has files');

# ---- prepared transactions, and open ones ----

for my $t (qw(t heap)) { query("BEGIN; INSERT INTO $t VALUES (700001, 'prepared'); PREPARE TRANSACTION 'p_$t'"); }
my $w = psql_writer($node, "BEGIN; INSERT INTO t VALUES (700002, 'open'); DELETE FROM t WHERE k = 5000", 'open');
query('CHECKPOINT');
lost();
reap_writer($w);
good('prepared ones are there, open ones are not');
query("COMMIT PREPARED 'p_t'; COMMIT PREPARED 'p_heap'");
good('and can be committed');
lost();
good('for good');

# ---- many checkpoints: the log is written anew ----

for (1 .. 60) { change(); query('CHECKPOINT') if $next % 3 == 0; }
lost();
good('after many checkpoints');
my @logs = glob "$dir/*.versions";
cmp_ok(scalar @logs, '<=', 2, 'there are at most two version logs');

# ---- killed anywhere ----

SKIP:
{
	skip 'needs fault injection', 1 unless $faults;
	for my $step (qw(edits_appended mark_carried checkpoint_before_record))
	{
		change();
		query('ALTER SYSTEM SET restart_after_crash = off');
		worker_stop_points($node, "$step=kill");
		answer($node, 'CHECKPOINT');
		wait_for('the end', sub { !postmaster_runs($node) });
		truncate($node->data_dir . '/postgresql.auto.conf', 0) or die;
		lost();
		good("killed at $step");
	}
	change();
	query('CHECKPOINT');
	change();
	kill_all($node);
	$node->append_conf('postgresql.conf', "kvfdw.stop_points = 'recover_after_logs=kill'\n");
	$node->start(fail_ok => 1);
	answer($node, 'SELECT count(*) FROM t');
	kill_all($node) if postmaster_runs($node);
	$node->append_conf('postgresql.conf', "kvfdw.stop_points = ''\n");
	$node->start;
	good('recovery is repeated');

	# the device refuses
	for my $fault ('meta_write:1+:ENOSPC', 'meta_write:1:short')
	{
		change();
		query("ALTER SYSTEM SET kvfdw.fault = '$fault'");
		query('SELECT pg_reload_conf()');
		my $c = psql_writer($node, 'CHECKPOINT', 'checkpoint');
		eval { wait_for('a failure', 20, sub { slurp_file($node->logfile) =~ /could not write/ }) };
		query('ALTER SYSTEM RESET kvfdw.fault');
		query('SELECT pg_reload_conf()');
		reap_writer($c);
		change();
		query('CHECKPOINT');
		lost();
		good("after $fault");
	}
}

# ---- splits use ids and numbers of marks again ----

change();
query('CHECKPOINT');
query(q{SELECT kvfdw_split('t')});
change();
query('CHECKPOINT');
change();
query('CHECKPOINT');
lost();
good('after a split');

# ---- backups and standbys ----

change();
my $s = kv_standby($node, 'standby');
change();
query('CHECKPOINT');
caught_up($node, $s);
answer($s, 'CHECKPOINT');
good('a standby', $s);
power_loss($s);
caught_up($node, $s);
good('a standby after a power loss', $s);
change();
query('CHECKPOINT');
caught_up($node, $s);
$s->promote;
answer($s, 'CHECKPOINT');
power_loss($s);
good('a promoted one', $s);
$s->stop('immediate');

change();
my $late = kv_standby($node, 'late');
caught_up($node, $late);
good('a backup of what is carried', $late);
$late->stop('immediate');

# ---- damage ----

change();
query('CHECKPOINT');
kill_all($node);
my ($log) = sort { $b cmp $a } glob "$dir/*.versions";
open my $f, '+<:raw', $log or die "$log: $!";
my $data = do { local $/; <$f> };
my $at = rindex $data, "new $next";
cmp_ok($at, '>', 0, 'the log has the values');
seek $f, $at, 0;
print $f 'NEW';
close $f;
$node->start;
my (undef, undef, $err) = $node->psql('postgres', 'SELECT count(*) FROM t');
like($err, qr/ERROR:  .*(?:damaged|unusable)/, 'a damaged edit is an error');

done_testing();
