# Promise: values of a table lie in the tablespace that it names, and nothing else of it does. They are there after
# SIGKILL, on a standby and in a backup with another place for it, and while they move to another beside readers and
# writers, also where that is killed or finds the target full. A tablespace in use is
# not dropped, one that is not mounted is an error that names it, and what nothing names there goes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

plan skip_all => 'heap has tablespaces' if heap_only();
my $node = kv_primary('primary', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 1, 'kvfdw.test_compact' => 'off', 'kvfdw.test_compactions' => 'off', 'kvfdw.compact_workers' => 0);
plan skip_all => 'needs fault injection' unless has_faults($node);
plan skip_all => 'refused with data checksums before PostgreSQL 17' if $node->pg_version < 17 && setting($node, 'data_checksums') eq 'on';
my %place = map { $_ => PostgreSQL::Test::Utils::tempdir($_) } qw(disk far disk2 far2);

sub query { return $node->safe_psql('postgres', @_); }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
sub in_space { my ($place) = @_; return glob "$place{$place}/PG_*/kvfdw.*/*"; }
# All value files of the store, and nothing else, are in the place; '': in the data directory.
sub lies_in
{
	my ($on, $place, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $oid = query("SELECT 't'::regclass::oid");
	my ($chunks, @home, @there);
	# one that is released meanwhile leaves its place before it leaves the list
	my $agree = eval { wait_for('places and lists to agree', sub {
		$chunks = $on->safe_psql('postgres', q{SELECT value_files + obsolete_value_files FROM kvfdw_stat_tables WHERE relid = 't'::regclass ORDER BY generation DESC LIMIT 1});
		@home = map { glob } map { "$_/*" } glob $on->data_dir . "/kvfdw/5/$oid/0*";
		@there = $place ? in_space($place) : grep { /\.val$/ } @home;
		return $chunks == grep { /\.c[0-9a-f]{5}\.val$/ } @there;
	}) };
	ok($agree, "$when: chunks lie where they are to") or diag "$chunks chunks, there: @there";
	is(scalar(grep { !/\.val$/ } @there), 0, "$when: and nothing else") if $place;
	is(scalar(grep { /\.val$/ } @home), 0, "$when: none is in the data directory") if $place;
	return;
}
sub empty_of
{
	my ($place, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { wait_for($when, sub { my @left = glob "$place{$place}/PG_*/kvfdw*"; !@left }) }, "$when: nothing is left in $place") || diag(join "\n", in_space($place));
}

# In one snapshot, for others write to both.
sub same_as_heap_at_once
{
	my ($when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(query('SELECT count(*) FROM (SELECT * FROM t EXCEPT SELECT * FROM heap UNION ALL (SELECT * FROM heap EXCEPT SELECT * FROM t)) s'), 0, "$when: heap's rows");
}

query("CREATE TABLESPACE $_ LOCATION '$place{$_}'") for qw(disk far);
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '2', tablespace 'disk'"));
both('INSERT INTO T SELECT g, rpad(md5(g::text), 1000 + g * 37 % 5000, md5(g::text)) FROM generate_series(-250, 250) g');
query('CHECKPOINT');
both('UPDATE T SET v = reverse(v) WHERE k % 3 = 0');
lies_in($node, 'disk', 'written');
kill_all($node);
restart_killed($node);
same_as_heap($node, 'killed');
lies_in($node, 'disk', 'killed');

# a table whose link was forgotten is not passed over in redo
my $link = $node->data_dir . '/pg_tblspc/' . query(q{SELECT oid FROM pg_tablespace WHERE spcname = 'disk'});
both('UPDATE T SET v = md5(v) || v WHERE k % 7 = 0');
kill_all($node);
rename $link, $node->data_dir . '/away' or die "rename: $!";
ok(!$node->start(fail_ok => 1), 'without its link the server does not start');
rename $node->data_dir . '/away', $link or die "rename: $!";
$node->start;
same_as_heap($node, 'with its link again');

# what is compacted moves within the tablespace
query("SELECT kvfdw_compact('t')");
ok(eval { wait_for('freed', sub { !grep { /dropped/ } in_space('disk') }) }, 'released chunks are freed there');
lies_in($node, 'disk', 'compacted');
same_as_heap($node, 'compacted');

# a backup with another place for it, and a standby of that
$node->backup('standby', backup_options => [ map { ('-T', "$place{$_}=$place{$_ . 2}") } qw(disk far) ]);
my %link = map { $_ => readlink } glob $node->backup_dir . '/standby/pg_tblspc/*';
unlink keys %link;
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'standby', has_streaming => 1);
symlink $link{$_}, $standby->data_dir . '/pg_tblspc/' . ($_ =~ s/.*\///r) for keys %link;
$standby->start;
both('UPDATE T SET v = md5(v) || v WHERE k % 5 = 0');
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));
same_as_heap($standby, 'standby');
lies_in($standby, 'disk2', 'standby');

# It moves after COMMIT.  What ends the server before the table file names the place leaves all where it was, or redo does it.
my $move = sub { my ($place) = @_; return $place ? "ALTER FOREIGN TABLE t OPTIONS (SET tablespace '$place');" : 'ALTER FOREIGN TABLE t OPTIONS (SET tablespace $$pg_default$$);' };
my $compact = q{SELECT kvfdw_compact('t')};
my $killed_at = sub
{
	my ($where, $sql) = @_;
	my $times = times_ready($node);
	$node->psql('postgres', "SET kvfdw.stop_points = '$where=kill'; $sql");
	ready_again($node, $times);
	return same_as_heap($node, "killed at $where");
};
my $in = sub { my ($place) = @_; return scalar grep { /\.c[0-9a-f]{5}\.val$/ } in_space($place) };
for my $where (qw(move_before_record move_before_file))
{
	query($move->('far'));
	lies_in($node, 'disk', 'nobody has used it since');
	$killed_at->($where, $compact);
	lies_in($node, 'disk', "killed at $where");
	query($_) for $move->('disk'), $compact;
	lies_in($node, 'disk', "back after $where");
	empty_of('far', "back after $where");
}

# in the middle of values, and where these find no room
for my $case ([ 'SET kvfdw.fault', 'value_extend:5:kill', 0 ], [ 'SET kvfdw.fault', 'compact_write:2+:ENOSPC', 1 ], map { [ 'SET kvfdw.stop_points', "$_=kill", 0 ] } qw(value_make compact_slice compact_written flush_after_files))
{
	my ($setting, $where, $lives) = @$case;
	query($move->('far'));
	my $times = times_ready($node);
	my ($rc, $out, $err) = $node->psql('postgres', "$setting = '$where'; $compact");
	like($err, qr/pg_tblspc.*No space left/, 'a full target is an error') if $lives;
	ready_again($node, $times) if !$lives;
	same_as_heap($node, $where);
	both('UPDATE T SET v = md5(v) || v WHERE k % 50 = 0');
	cmp_ok($in->('disk'), '>', 0, "$where: some are where they were");
	cmp_ok($in->('far'), '>', 0, "$where: what is new is in the new place");
	like(answer($node, 'DROP TABLESPACE disk'), qr/is not empty.*Values of foreign table .* are being moved out of it/s, "$where: the old place is not dropped, and says why");
	query($_) for $move->('disk'), $compact;
	same_as_heap($node, "back after $where");
	lies_in($node, 'disk', "back after $where");
	empty_of('far', "back after $where");
}
for my $undone ([ 'BEGIN', 'ROLLBACK' ], [ 'BEGIN; SAVEPOINT s', 'ROLLBACK TO s; COMMIT' ])
{
	query($undone->[0] . ';' . $move->('far') . $undone->[1]);
	query($compact);
	lies_in($node, 'disk', 'rolled back');
}

# in three places at once, and the first is dropped as soon as it has been left
query($move->('far'));
both('UPDATE T SET v = md5(v) || v WHERE k % 7 = 0');
query($move->(''));
both('UPDATE T SET v = md5(v) || v WHERE k % 11 = 0');
ok($in->('disk') && $in->('far'), 'chunks lie in three places');
kill_all($node);
restart_killed($node);
same_as_heap($node, 'killed with three places');
query($compact);
lies_in($node, '', 'back in the data directory');
empty_of($_, 'back in the data directory') for qw(disk far);
query($_) for $move->('disk'), $compact;

# killed when the directory has gone, and the table file still names it
my $leaves = sub { my ($file) = glob $node->data_dir . "/kvfdw/5/" . query("SELECT 't'::regclass::oid") . '/0*/table'; return unpack 'x88 V', slurp_file($file) };
my $times = times_ready($node);
worker_stop_points($node, 'move_left=kill');
query($_) for $move->('far'), $compact;
ready_again($node, $times);
worker_stop_points($node, '');
same_as_heap($node, 'killed when it was left');
is($leaves->(), 0, 'the table file names it no more');
query($_) for $move->('disk'), $compact;
empty_of('far', 'back again');

# beside writers, and a snapshot of before, which reads what it saw
my $old = $node->background_psql('postgres', on_error_stop => 0);
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $all = 'SELECT count(*), md5(string_agg(k || v, chr(10) ORDER BY k)) FROM t';
my $saw = query($all);
my @writers = map { my $w = $_; psql_writer($node, join('', map { my $i = $_; my $k = 1000 + 2 * $i + $w;
	"BEGIN; INSERT INTO heap VALUES ($k, repeat('x', $k)); INSERT INTO t VALUES ($k, repeat('x', $k)); UPDATE heap SET v = v || $i WHERE k = $w; UPDATE t SET v = v || $i WHERE k = $w; COMMIT;\n\\echo ack $i\n" } 1 .. 150), "moved_$w") } 0, 1;
for my $place (qw(far disk far))
{
	query($move->($place));
	query($compact);
	same_as_heap_at_once("moved to $place beside writers");
}
is(outcome($_) =~ s/^ack \d+\n//mgr, '', 'writers go on beside moves') for @writers;
is($old->query_safe($all), $saw, 'a snapshot of before reads what it saw');
$old->query_safe('COMMIT');
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));
same_as_heap($standby, 'the standby, which has moved nothing');
cmp_ok(scalar(grep { /\.c[0-9a-f]{5}\.val$/ } in_space('disk2')), '>', 0, 'and has chunks where they were');

$old->quit;

# by itself, on both
for my $server ($standby, $node)
{
	$server->append_conf('postgresql.conf', 'kvfdw.compact_workers = 1');
	$server->restart;
}
query('SELECT count(v) FROM t');
$standby->safe_psql('postgres', 'SELECT count(v) FROM t');

# so it is with every ALTER that writes rows anew
query(kv_table('grown', 'k int, v text', 'k') . q{INSERT INTO grown VALUES (1, 'a')});
$old = $node->background_psql('postgres', on_error_stop => 0);
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
query('ALTER FOREIGN TABLE grown ADD COLUMN u uuid DEFAULT gen_random_uuid()');
$old->query('SELECT count(*) FROM grown');
like($old->{stderr}, qr/could not serialize access due to concurrent ALTER of foreign table "grown"/, 'nor after a column was added');
$old->{stderr} = '';
$old->query_safe('ROLLBACK');
is($old->query_safe('SELECT count(u) FROM grown'), '1', 'and the next one sees that');
query('DROP FOREIGN TABLE grown');
$old->quit;
same_as_heap($node, 'moved');
# it was there before, and what that has left goes in its time
my $alone = sub { my ($place) = @_; return ok(eval { wait_for('that to go', sub { (() = glob "$place{$place}/PG_*/kvfdw.*") == 1 }) }, "nothing else is in $place") };
$alone->('far');
lies_in($node, 'far', 'moved');
empty_of('disk', 'moved');
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));
same_as_heap($standby, 'moved on the standby');
$alone->('far2');
lies_in($standby, 'far2', 'moved on the standby');
empty_of('disk2', 'moved on the standby');
ok(eval { wait_for('drop', sub { ($node->psql('postgres', 'DROP TABLESPACE disk'))[0] == 0 }) }, 'the place that it has left can be dropped');

# a file that nothing names is found, and a directory without its store goes
my ($dir) = glob "$place{far}/PG_*/kvfdw.*";
append_to_file("$dir/10000.cfffff.val", 'x');
like(answer($node, q{SELECT file || problem FROM kvfdw_check('t')}), qr/10000\.cfffff\.val.*file belongs to no shard/, 'a stray chunk is found');
unlink "$dir/10000.cfffff.val";
(my $gone = $dir) =~ s/kvfdw\.\d+\.\d+/kvfdw.5.99999/;
mkdir $gone;
append_to_file("$gone/10000.c00000.val", 'x');
ok(eval { wait_for('sweep', sub { !-e $gone }) }, 'a directory without its store goes');

# in use
like(answer($node, 'DROP TABLESPACE far'), qr/cannot be dropped because some objects depend on it/, 'a tablespace in use is not dropped');

# not mounted: at a start after a clean stop, and with WAL to replay
for my $mode (qw(fast immediate))
{
	both("UPDATE T SET v = md5(v) || v WHERE k % 7 = 0") if $mode eq 'immediate';
	$node->stop($mode);
	rename "$place{far}", "$place{far}.away";
	mkdir $place{far};
	my $started = $node->start(fail_ok => 1);
	if ($mode eq 'fast')
	{
		ok($started, 'the server starts without the file system');
		like(answer($node, 'SELECT count(v) FROM t'), qr/could not access directory "pg_tblspc.*No such file.*/, 'its table is an error that names it');
		like(answer($node, "INSERT INTO t VALUES (1000, 'x')"), qr/could not access directory "pg_tblspc/, 'also for who writes');
		$node->stop;
	}
	else
	{
		ok(!$started, 'nothing is replayed without the file system');
		like(slurp_file($node->logfile), qr/could not access directory "pg_tblspc.*No such file/, 'the log names it');
	}
	ok(rmdir($place{far}), 'nothing was made in its place');
	rename "$place{far}.away", $place{far};
	$node->start;
	same_as_heap($node, "mounted again ($mode)");
	lies_in($node, 'far', "mounted again ($mode)");
}

query('DROP FOREIGN TABLE t; CHECKPOINT');
ok(eval { wait_for('drop', sub { ($node->psql('postgres', 'DROP TABLESPACE far'))[0] == 0 }) }, 'after DROP TABLE it can be dropped');
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));
$standby->stop;
$node->stop;
done_testing();
