# Promise: values on their way to another tablespace are never lost: in a copy that is made then,
# by pg_basebackup or manually, and on a standby that is promoted then; when the table is
# truncated, dropped, sent back, or sent on faster than it can move; and when the target is full,
# which the log says, and which is tried again.
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
my %place = map { $_ => PostgreSQL::Test::Utils::tempdir($_) } qw(disk far);

sub query { return $node->safe_psql('postgres', @_); }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
sub to { my ($place, $table) = @_; return query('ALTER FOREIGN TABLE ' . ($table // 't') . " OPTIONS (SET tablespace '$place')"); }
sub compact { my ($table) = @_; return query("SELECT kvfdw_compact('" . ($table // 't') . "')"); }
# Value files, and with 'all' directories and whatever is in them, that a table has in a place.
sub files
{
	my ($place, $all, $table) = @_;
	my $oid = query("SELECT to_regclass('" . ($table // 't') . "')::oid");
	return grep { $all || /\.c[0-9a-f]{5}\.val$/ } map { glob } "$place/PG_*/kvfdw.*.$oid.*/*", $all ? "$place/PG_*/kvfdw.*.$oid.*" : ();
}
sub left_by
{
	my ($place, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(eval { wait_for($when, sub { !files($place, 1) }) }, "$when: nothing is left behind") || diag(join "\n", files($place, 1));
}

# It is to go there, and some of it has.
sub half_moved
{
	my ($place, $table) = @_;
	$table //= 't';
	to($place, $table);
	like(answer($node, "SET kvfdw.fault = 'compact_write:2+:ENOSPC'; SELECT kvfdw_compact('$table')"), qr/No space left/, "$table: a move to $place ends early") if $table eq 't';
	answer($node, "SET kvfdw.fault = 'compact_write:1+:ENOSPC'; SELECT kvfdw_compact('$table')") if $table ne 't';
	return;
}

# A server of a backup.
sub server_of
{
	my ($name) = @_;
	my %link = map { $_ => readlink } glob $node->backup_dir . "/$name/pg_tblspc/*";
	unlink keys %link;
	my $copy = PostgreSQL::Test::Cluster->new($name);
	$copy->init_from_backup($node, $name, has_streaming => 1);
	symlink $link{$_}, $copy->data_dir . '/pg_tblspc/' . ($_ =~ s/.*\///r) or die "symlink: $!" for keys %link;
	$copy->start;
	$node->wait_for_catchup($name, 'replay', $node->lsn('flush'));
	return $copy;
}

query("CREATE TABLESPACE $_ LOCATION '$place{$_}'") for qw(disk far);
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '2', tablespace 'disk'"));
both('INSERT INTO T SELECT g, rpad(md5(g::text), 1000 + g * 37 % 5000, md5(g::text)) FROM generate_series(-150, 150) g');

# where nothing can be made ALTER is an error, and all is as it was
like(answer($node, q{SET kvfdw.fault = 'meta_write:1+:EROFS'; ALTER FOREIGN TABLE t OPTIONS (SET tablespace 'far')}), qr/could not create directory "pg_tblspc.*Read-only file system/, 'a target that cannot be written: an error for who moves it');
is(answer($node, q{INSERT INTO t VALUES (900, 'after'); DELETE FROM t WHERE k = 900}), '', 'and for nobody else');
is(scalar(files($place{far}, 1)), 0, 'and nothing is made there');

# nothing is made in place of what is not mounted, nor is it taken for gone
to('far');
both(q{INSERT INTO T VALUES (1000, 'open')});
rename $place{disk}, "$place{disk}.away";
mkdir $place{disk};
like(answer($node, q{INSERT INTO t SELECT g, repeat(md5(g::text), 150) FROM generate_series(2000, 2100) g}), qr/could not create file "pg_tblspc/, 'not mounted: an error for who writes');
like(answer($node, 'SELECT count(v) FROM t'), qr/^error: .*pg_tblspc/s, 'and for who reads');
like(answer($node, q{ALTER FOREIGN TABLE t OPTIONS (SET tablespace 'disk')}), qr/could not access directory "pg_tblspc/, 'and for who moves it');
ok(rmdir($place{disk}), 'nothing was made there');
rename "$place{disk}.away", $place{disk};
same_as_heap($node, 'mounted again');

# nor is one whose link was forgotten taken for one that was dropped
half_moved('far');
my $link = $node->data_dir . '/pg_tblspc/' . query(q{SELECT oid FROM pg_tablespace WHERE spcname = 'disk'});
my $away = $node->data_dir . '/away';
$node->stop;
rename $link, $away or die "rename: $!";
$node->start;
like(answer($node, 'SELECT count(v) FROM t'), qr/^error: .*tablespace with OID \d+ does not exist.*may have the missing file .* of foreign table/s, 'without its link: an error');
$node->stop;
rename $away, $link or die "rename: $!";
$node->start;
same_as_heap($node, 'with its link again');
rename $link, $away or die "rename: $!";
to($_) for qw(pg_default far);
rename $away, $link or die "rename: $!";
same_as_heap($node, 'nor by ALTER');
both('UPDATE T SET v = md5(v) || v WHERE k % 50 = 0');
$node->stop('immediate');
rename $link, $away or die "rename: $!";
ok(!$node->start(fail_ok => 1), 'nor does redo go on without its table: the server does not start');
rename $away, $link or die "rename: $!";
$node->start;
same_as_heap($node, 'with its link again after a crash');

# a backup in the middle, and its server is promoted in the middle
both('UPDATE T SET v = md5(v) || v WHERE k % 5 = 0');
my %copied = map { $_ => PostgreSQL::Test::Utils::tempdir("copy_$_") } qw(disk far);
$node->backup('middle', backup_options => [ map { ('-T', "$place{$_}=$copied{$_}") } qw(disk far) ]);
both('UPDATE T SET v = md5(v) || v WHERE k % 7 = 0');
my $copy = server_of('middle');
same_as_heap($copy, 'a copy of the middle');
ok(files($copied{disk}) && files($copied{far}), 'its values are in both places');
compact();
both('UPDATE T SET v = md5(v) || v WHERE k % 11 = 0');
left_by($place{disk}, 'moved');
$node->wait_for_catchup('middle', 'replay', $node->lsn('flush'));
same_as_heap($copy, 'which has moved nothing itself');
cmp_ok(scalar(files($copied{disk})), '>', 0, 'and has values where they were');
$copy->promote;
same_as_heap($copy, 'promoted in the middle');
$copy->safe_psql('postgres', q{UPDATE t SET v = md5(v) WHERE k % 2 = 0; UPDATE heap SET v = md5(v) WHERE k % 2 = 0; SELECT kvfdw_compact('t')});
same_as_heap($copy, 'moved once it was promoted');
left_by($copied{disk}, 'moved once it was promoted');
is(kv_check_clean($copy, 't'), '', 'and is sound');
$copy->stop;

# a copy by hand that has the table's other files from before the move, and what is in the tablespaces from after it
my $backup = $node->background_psql('postgres', on_error_stop => 0);
$backup->query_safe("SET client_min_messages = 'warning'; SELECT pg_backup_start('hand', true)");
both('UPDATE T SET v = md5(v) || v WHERE k % 2 = 0');
my $hand = $node->backup_dir . '/hand';
system('cp', '-a', $node->data_dir, $hand) == 0 or die;
unlink glob("$hand/postmaster.*"), grep { -f } glob "$hand/pg_wal/*";
both('UPDATE T SET v = md5(v) || v WHERE k % 3 = 0');
to('disk');
compact();
both('UPDATE T SET v = md5(v) || v WHERE k % 4 = 0');
for my $link (glob "$hand/pg_tblspc/*")
{
	my $to = PostgreSQL::Test::Utils::tempdir('hand');
	system('cp', '-a', readlink($link) . '/.', $to) == 0 or die;
	unlink $link;
	symlink $to, $link or die "symlink: $!";
}
append_to_file("$hand/backup_label", $backup->query_safe('SELECT labelfile FROM pg_backup_stop(false)') . "\n");
$backup->quit;
$copy = server_of('hand');
same_as_heap($copy, 'a copy by hand');
$copy->promote;
same_as_heap($copy, 'a copy by hand, promoted');
is(kv_check_clean($copy, 't'), '', 'and is sound');
$copy->stop;
left_by($place{far}, 'moved back');

# truncated, and dropped
half_moved('far');
query('BEGIN; TRUNCATE t; ROLLBACK');
same_as_heap($node, 'TRUNCATE was rolled back');
both('TRUNCATE T');
left_by($place{disk}, 'truncated');
both(q{INSERT INTO T SELECT g, repeat(md5(g::text), 100) FROM generate_series(1, 200) g});
cmp_ok(scalar(files($place{far})), '>', 0, 'what came after it is in the new place');
half_moved('disk');
both('UPDATE T SET v = md5(v) || v WHERE k % 2 = 0');
my @dirs = grep { -d } map { files($place{$_}, 1) } qw(disk far);
is(scalar @dirs, 2, 'in two places');
query('DROP FOREIGN TABLE t');
ok(eval { wait_for('DROP', sub { !grep { -e } @dirs }) }, 'DROP leaves nothing in either');
query(kv_table('t', 'k int, v text', 'k', "shards '2', tablespace 'disk'") . 'INSERT INTO t TABLE heap');

# sent on more often than it can
my @many = map { "p$_" } 0 .. 16;
$place{$_} = PostgreSQL::Test::Utils::tempdir($_) for @many;
query("CREATE TABLESPACE $_ LOCATION '$place{$_}'") for @many;
query(kv_table('much', 'k int, v text', 'k', "tablespace 'p0'") . q{INSERT INTO much VALUES (0, 'p0')});
for my $place (@many[1 .. 15])
{
	half_moved($place, 'much');
	query("INSERT INTO much SELECT count(*), '$place' FROM much");
}
is(scalar(grep { files($place{$_}, 0, 'much') } @many), 16, 'values are in sixteen places');
like(answer($node, q{ALTER FOREIGN TABLE much OPTIONS (SET tablespace 'p16')}), qr/cannot move foreign table "much" to another tablespace yet.*Run kvfdw_compact/s, 'the seventeenth is an error');
kill_all($node);
restart_killed($node);
is(query('SELECT count(*), count(DISTINCT v) FROM much'), '16|16', 'all its rows are there');
compact('much');
ok(eval { wait_for('places', sub { answer($node, q{ALTER FOREIGN TABLE much OPTIONS (SET tablespace 'p16')}) eq '' }) }, 'once some have been left it goes on');
compact('much');
is(query('SELECT count(*), count(DISTINCT v) FROM much'), '16|16', 'with all its rows');
query('DROP FOREIGN TABLE much');

# what a failed attempt has left in a place that is full is no reason to stay there
query(kv_table('tight', 'k int, v text', 'k', "tablespace 'far'"));
for my $from (qw(far disk))
{
	my $to = $from eq 'far' ? 'disk' : 'far';
	like(answer($node, q{SET kvfdw.fault = 'value_extend:1+:ENOSPC'; INSERT INTO tight VALUES (1, repeat('tight', 20000))}), qr/could not extend file "pg_tblspc.*No space left/, "$from is full");
	cmp_ok(scalar(files($place{$from}, 0, 'tight')), '>', 0, 'and a file is left there');
	to($to, 'tight');
	$from eq 'far' ? compact('tight') : query(q{INSERT INTO tight SELECT g, repeat('room', 25000) FROM generate_series(1, 2) g});
	ok(eval { wait_for($from, sub { !files($place{$from}, 1, 'tight') }) }, "nothing is in $from any more") || diag join "\n", files($place{$from}, 1, 'tight');
}
is(query('SELECT count(*), max(length(v)) FROM tight'), '2|100000', 'and what is written goes to the other');
query('DROP FOREIGN TABLE tight');

# a tablespace that has nothing any more, of a table that has only been told to leave it
query(kv_table('still', 'k int, v text', 'k', "tablespace 'p0'") . q{INSERT INTO still VALUES (1, 'v'); TRUNCATE still});
ok(eval { wait_for('p0', sub { !grep { -f } files($place{p0}, 1, 'still') }) }, 'a table is empty') || diag join "\n", files($place{p0}, 1, 'still');
to('disk', 'still');
like(answer($node, 'DROP TABLESPACE p0'), qr/tablespace "p0" is not empty.*have yet to be moved out of it.*Run kvfdw_compact/s, 'its tablespace is not dropped while it could not be opened without it');
$node->restart;
is(query(q{INSERT INTO still VALUES (2, 'v'); SELECT * FROM still}), '2|v', 'it is used');
ok(eval { wait_for('p0', sub { ($node->psql('postgres', 'DROP TABLESPACE p0'))[0] == 0 }) }, '... and then it is');
query("CREATE TABLESPACE p0 LOCATION '$place{p0}'");
query('DROP FOREIGN TABLE still');

# by itself, and the target is full
$node->append_conf('postgresql.conf', "kvfdw.compact_workers = 1\nkvfdw.fault = 'compact_write:1+:ENOSPC'");
$node->restart;
to('far');
ok(eval { wait_for('an attempt', sub { slurp_file($node->logfile) =~ /pg_tblspc[^\n]*No space left on device/ }) }, 'the log says that the target is full');
same_as_heap($node, 'a full target');
both('UPDATE T SET v = md5(v) || v WHERE k % 3 = 0');
same_as_heap($node, 'changed meanwhile');
$node->append_conf('postgresql.conf', "kvfdw.fault = ''");
$node->reload;
left_by($place{disk}, 'tried again');

# a move that could not even begin is not forgotten
my $log_before = -s $node->logfile;
$node->safe_psql('postgres', "ALTER SYSTEM SET kvfdw.fault = 'meta_write:1+:EROFS'");
$node->reload;
query("SET kvfdw.fault = ''; ALTER FOREIGN TABLE t OPTIONS (SET tablespace 'disk')");
ok(eval { wait_for('an attempt', sub { slurp_file($node->logfile, $log_before) =~ /could not create directory "pg_tblspc[^\n]*Read-only/ }) }, 'the log says that it cannot begin');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET kvfdw.fault');
$node->reload;
left_by($place{far}, 'begun again without a write');
to('far');
left_by($place{disk}, 'and back');

# What is written goes there though the values of before cannot move yet, for an older transaction is at work.
my $older = $node->background_psql('postgres', on_error_stop => 0);
$older->query_safe('CREATE TABLE others (k int); BEGIN; INSERT INTO others VALUES (1)');
query(kv_table('busy', 'k int, v text', 'k', "tablespace 'far'") . q{INSERT INTO busy SELECT g, repeat(md5(g::text), 20000) FROM generate_series(1, 2) g});
to('disk', 'busy');
my $k = 2;
ok(eval { wait_for('values', sub { $k++; query("INSERT INTO busy VALUES ($k, 'new')"); files($place{disk}, 0, 'busy') }) }, 'what is new is in the new place');
is(scalar(files($place{far}, 0, 'busy')), 1, 'and what was there still in the other');
$older->query_safe('COMMIT');
$older->quit;
ok(eval { wait_for('busy', sub { !files($place{far}, 1, 'busy') }) }, 'which it leaves when nothing older is at work');
is(query('SELECT count(*), max(length(v)) FROM busy'), "$k|640000", 'with all rows');
query('DROP FOREIGN TABLE busy');

# sent back while it is moved, also before anything has been made there
for my $where (qw(value_make compact_slice))
{
	my $log_from = -s $node->logfile;
	worker_stop_points($node, "$where=wait");
	to('disk');
	stopped($node, $where);
	query("SET kvfdw.stop_points = ''; UPDATE t SET v = md5(v) || v WHERE k % 2 = 0") if $where eq 'compact_slice';
	query('UPDATE heap SET v = md5(v) || v WHERE k % 2 = 0') if $where eq 'compact_slice';
	to('far');
	query("SET kvfdw.stop_points = ''; UPDATE t SET v = md5(v) || v WHERE k % 5 = 0");
	query('UPDATE heap SET v = md5(v) || v WHERE k % 5 = 0');
	left_by($place{disk}, 'nothing was made yet') if $where eq 'value_make';
	worker_stop_points($node, '');
	go_on($node, $where);
	left_by($place{disk}, "sent back at $where");
	same_as_heap($node, "sent back at $where");
	is(kv_check_clean($node, 't'), '', 'and it is sound');
	unlike(substr(slurp_file($node->logfile), $log_from), qr/could not create/, "nobody fails on what was removed, $where");
}

# redo follows no MOVE of before
kill_all($node);
$node->append_conf('postgresql.conf', 'kvfdw.compact_workers = 0');
restart_killed($node);
same_as_heap($node, 'killed where it had been sent back');
is(scalar(files($place{disk}, 1)), 0, 'and redo puts nothing where it has been before');
for my $place ('disk', @many)
{
	ok(eval { wait_for($place, sub { ($node->psql('postgres', "DROP TABLESPACE $place"))[0] == 0 }) }, "$place can be dropped");
}
$node->stop;
done_testing();
