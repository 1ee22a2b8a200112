# Promise: pg_upgrade and kvfdw_upgrade carry tables of every level, with their rows; a table that was never written
# to is empty.  Without kvfdw_upgrade, with half of it, or with the wrong directory, using a table is an error
# that says so, or the server does not start: never an empty table, in neither server; TRUNCATE is a way out.
# pg_upgrade itself is refused until somebody says that he knows, and with columns that it cannot carry.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use KvLoop qw(loop_skip loop_types);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap is upgraded' if heap_only();
my $old = kv_cluster('old');
my @levels = qw(full keys none);
$old->safe_psql('postgres', join('', map { kv_table("t_$_", 'k int, v text', 'k', "shards '3', wal '$_'") } @levels)
	  . kv_table('written', 'k text COLLATE named, c bigint, v text', 'k') =~ s/^/CREATE COLLATION named (provider = libc, locale = 'C');/r . kv_table('dropped', 'a text, k int, v text, w uuid', 'k')
	  . "CREATE TABLE parent (x text, k int, v text) PARTITION BY RANGE (k); ALTER TABLE parent DROP COLUMN x;
	CREATE FOREIGN TABLE part PARTITION OF parent FOR VALUES FROM (1) TO (10) SERVER kvfdw OPTIONS (key 'k');
	CREATE TABLE heap (k int PRIMARY KEY, v text); INSERT INTO heap SELECT (g::bigint * 715827 - 2147483640)::int, repeat('v', g % 3000) || g FROM generate_series(1, 5000) g; DELETE FROM heap WHERE k % 7 = 0; UPDATE heap SET v = 'new' || k WHERE k % 5 = 0;
	INSERT INTO written VALUES ('one', 2, 'three'); INSERT INTO dropped VALUES ('a', 1, 'v', NULL); INSERT INTO part VALUES (5, 'five');
	ALTER FOREIGN TABLE written ALTER c TYPE int; ALTER FOREIGN TABLE written DROP COLUMN c; ALTER FOREIGN TABLE dropped DROP COLUMN a;");
$old->safe_psql('postgres', "INSERT INTO t_$_ SELECT (g::bigint * 715827 - 2147483640)::int, repeat('v', g % 3000) || g FROM generate_series(1, 5000) g; DELETE FROM t_$_ WHERE k % 7 = 0; UPDATE t_$_ SET v = 'new' || k WHERE k % 5 = 0; BEGIN; INSERT INTO t_$_ VALUES (1, 'gone'); ROLLBACK") for @levels;
# a table whose first column, its key, was dropped while it was empty
$old->safe_psql('postgres', 'CREATE FOREIGN TABLE first (j int, k int, v text) SERVER kvfdw; ALTER FOREIGN TABLE first DROP COLUMN j');
# an option that names a column which is gone
$old->safe_psql('postgres', "CREATE FOREIGN TABLE renamed (k int, key int, v text) SERVER kvfdw OPTIONS (key 'k'); ALTER FOREIGN TABLE renamed DROP COLUMN k");
# primary keys: of a table with rows, of a partition, and of a table that was never written to
$old->safe_psql('postgres', 'ALTER FOREIGN TABLE t_full ADD CONSTRAINT "a Key" PRIMARY KEY (k); ALTER FOREIGN TABLE part ADD PRIMARY KEY (k); CREATE FOREIGN TABLE keyed (a int, b int, PRIMARY KEY (b, a)) SERVER kvfdw');
my $keys = q{SELECT conrelid::regclass, conname, pg_get_indexdef(conindid), conindid, pg_relation_size(conindid) FROM pg_constraint WHERE contype = 'p' AND connamespace = 'public'::regnamespace ORDER BY conname};
my $keys_before = $old->safe_psql('postgres', $keys);
my $others = 'TABLE written; TABLE dropped; TABLE parent';
my $rows = "one|three\n1|v|\n5|five";
is($old->safe_psql('postgres', $others), $rows, 'the old server has the rows');
$old->safe_psql('postgres', 'CREATE TYPE pair AS (a int, b regproc[])');
my $definitions = q{SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod), ftoptions FROM pg_attribute JOIN pg_foreign_table ON ftrelid = attrelid WHERE attnum > 0 AND NOT attisdropped ORDER BY attrelid::regclass::text, attnum};
my $before = $old->safe_psql('postgres', $definitions);
$old->safe_psql('postgres', 'CREATE FOREIGN TABLE oids (k int, v pair) SERVER kvfdw');
$old->stop;

my $bin = $old->config_data('--bindir');
chdir $PostgreSQL::Test::Utils::tmp_check;
delete $ENV{PGAPPNAME};		# by which pg_dump would go

sub new_cluster
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	{
		delete local $ENV{INITDB_TEMPLATE};		# or it would be the same cluster
		$node->init;
	}
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'kvfdw'\nfsync = off\nautovacuum = off\n");
	return $node;
}
my $new = new_cluster('new');

sub outcome_of { my (@command) = @_; my ($out, $err) = ('', ''); IPC::Run::run(\@command, '>', \$out, '2>', \$err); return $out . $err; }
sub upgrade { return outcome_of('kvfdw_upgrade', @_) =~ s/\n\z//r; }
sub refused { my ($why, $name, @more) = @_; like(upgrade(@more, $old->data_dir, $new->data_dir), $why, "kvfdw_upgrade is refused: $name"); return; }
sub pg_upgrade
{
	return outcome_of('pg_upgrade', '--no-sync', '--retain', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin, '-s', $new->host, '-p', $old->port, '-P', $new->port, @_);
}
sub logs { return join '', map { slurp_file($_) } glob $new->data_dir . '/pg_upgrade_output.d/*/log/*'; }

# ---- pg_upgrade, which does not know ----
refused(qr/pg_upgrade has created no kvfdw tables in the new cluster/, 'before pg_upgrade');
unlike(pg_upgrade('--check'), qr/Clusters are compatible/, 'an old server with tables does not start under pg_upgrade');
like(logs(), qr/FATAL:  pg_upgrade does not copy the rows of kvfdw tables.*HINT:  Run pg_upgrade with -o/s, 'it says why, and what to do');
my @allow = ('-o', '-c kvfdw.allow_pg_upgrade=on');
is(outcome_of('pg_ctl', '-s', '-w', '-D', $old->data_dir, '-l', $old->logfile, '-o', '-b -c kvfdw.allow_pg_upgrade=on', 'start'), '', 'if it is allowed it starts');
{
	local $ENV{PGAPPNAME} = 'pg_dump';
	like(outcome_of('psql', '-X', '-d', $old->connstr('postgres'), '-c', 'SELECT 1'), qr/pg_upgrade cannot preserve column "v" of foreign table "oids".*type pair/s, 'a column that names objects of the catalog: refused to pg_dump');
}
outcome_of('psql', '-X', '-d', $old->connstr('postgres'), '-c', 'DROP FOREIGN TABLE oids');
outcome_of('pg_ctl', '-s', '-w', '-D', $old->data_dir, 'stop');
like(pg_upgrade(@allow), qr/Upgrade Complete/, 'pg_upgrade');
unlike(logs(), qr/^WARNING/m, 'its dumps, which take no rows, warn of none');
system('cp', '-a', $new->data_dir, $new->data_dir . '.upgraded') == 0 or die;

# ---- without kvfdw_upgrade ----
$new->start;
is($new->safe_psql('postgres', $definitions), $before, 'the definitions are the same');
is($new->safe_psql('postgres', $keys) =~ s/^heap\|.*\n?//mr, $keys_before =~ s/^heap\|.*\n?//mr, '... and the primary keys, with their OIDs');
is($new->safe_psql('postgres', 'SELECT count(*) > 1000 FROM heap'), 't', 'heap tables have their rows');
for my $t (qw(t_full t_keys t_none written dropped parent part first))
{
	for my $sql ("SELECT * FROM $t", "SELECT count(*) FROM $t", "INSERT INTO $t (k) VALUES (7)")
	{
		my ($rc, $out, $err) = $new->psql('postgres', "\\set VERBOSITY verbose\n$sql");
		like($err, qr/ERROR:  55000: data of foreign table "\w+" is missing\n.*HINT:  .*kvfdw_upgrade/s, $sql);
	}
}
refused(qr/lock file .* exists/, 'while a server runs');
is($new->safe_psql('postgres', "TRUNCATE written, part; INSERT INTO written VALUES ('x', 'again'); INSERT INTO parent VALUES (6, 'six'); TABLE written; TABLE parent"), "x|again\n6|six", 'TRUNCATE makes tables usable');
is($new->safe_psql('postgres', q{DROP FOREIGN TABLE dropped; CREATE FOREIGN TABLE fresh (k int) SERVER kvfdw; SELECT count(*) FROM fresh}), '0', 'DROP works, new tables are empty');
$new->stop;
refused(qr/the new cluster already has kvfdw tables with data/, 'when the new server has rows of its own');

# ---- a copy ----
sub anew
{
	system('rm', '-rf', $new->data_dir) == 0 && system('cp', '-a', $new->data_dir . '.upgraded', $new->data_dir) == 0 or die;
	return;
}
sub same
{
	my ($how) = @_;
	is($new->safe_psql('postgres', $others), $rows, "$how: rows");
	is(tables_differ($new, "t_$_", 'heap', 'k'), '', "$how: heap's rows, level $_") for @levels;
	is(kv_check_clean($new, map({ "t_$_" } @levels), qw(written dropped part)), '', "$how: sound");
	is($new->safe_psql('postgres', 'SELECT count(*) FROM first'), '0', "$how: a table that was never written to is empty");
	return;
}
sub not_started
{
	my ($node, $why, $name) = @_;
	my $from = -s $node->logfile;
	my $started = $node->start(fail_ok => 1);
	ok(!$started, "the server does not start: $name");
	$node->stop if $started;
	return like(substr(slurp_file($node->logfile), $from // 0), $why, 'and says why');
}
anew();
my $olds = slurp_file($old->data_dir . '/kvfdw/control');
{
	my ($segment) = glob $new->data_dir . '/pg_xact/0000';
	my $clog = slurp_file($segment);
	my $wrong = $clog;
	my $known = length(slurp_file($old->data_dir . '/pg_xact/0000') =~ s/\0+\z//r) - 1;
	substr($wrong, $known, 1) = chr(ord(substr $wrong, $known, 1) ^ 0xff);
	spit($segment, $wrong);
	refused(qr/the new cluster does not have the old one's transactions/, 'another history');
	spit($segment, $clog);
}
spit($old->data_dir . '/kvfdw/control', substr($olds, 0, 16420) . pack('L', 0) . substr($olds, 16424));
refused(qr/not shut down cleanly/, 'after a crash of the old server');
spit($old->data_dir . '/kvfdw/control', substr($olds, 0, 4) . pack('L', 6) . substr($olds, 8));
refused(qr/file ".*control" has format version 6, but kvfdw_upgrade reads version 7/, 'a directory of another format version');
spit($old->data_dir . '/kvfdw/control', $olds);

# ---- a copy that shares blocks ----
sub copied { my ($from, $to) = @_; return system('cp', '-a', $from, $to) == 0 || die "cp: $?"; }
my $base = $PostgreSQL::Test::Utils::tmp_check;
SKIP: {
	skip 'this file system shares blocks', 2 if outcome_of('cp', '--reflink=always', $old->data_dir . '/PG_VERSION', "$base/shared") eq '';
	refused(qr/cannot share blocks: Operation not supported\nHINT: .*--copy/, 'where the file system shares no blocks', '--reflink');
	is(outcome_of('diff', '-rq', $new->data_dir, $new->data_dir . '.upgraded'), '', 'and nothing is changed');
}
SKIP: {
	my $why_not = loop_skip($base) // ((grep { $_ eq 'xfs' } loop_types()) ? undef : 'needs mkfs.xfs');
	skip $why_not, 1 if $why_not;
	my $disk = KvLoop->new("$base/xfs", type => 'xfs', megabytes => 1024);
	my ($there, $here) = map { "$base/xfs/$_" } qw(old new);
	copied($new->data_dir, $here);
	like(upgrade('--reflink', $old->data_dir, $here), qr/cannot share blocks: Invalid cross-device link\n/, 'kvfdw_upgrade --reflink between two file systems');
	is(outcome_of('diff', '-rq', $new->data_dir, $here), '', 'changes nothing');
	copied($old->data_dir, $there);
	like(upgrade('--reflink', $there, $here), qr/takes the tables over when it is started/, 'kvfdw_upgrade --reflink');
	my ($largest) = sort { -s $b <=> -s $a } grep { -f $_ } glob "$here/kvfdw/[1-9]*/*/*/*";
	like(outcome_of('/usr/sbin/filefrag', '-v', $largest // ''), qr/\bshared\b/, 'blocks are shared');
	system('rm', '-rf', $new->data_dir) == 0 && symlink($here, $new->data_dir) or die;
	$new->start;
	same('a copy that shares blocks');
	$new->safe_psql('postgres', "UPDATE t_$_ SET v = 'new server'; SELECT kvfdw_flush('t_$_'); SELECT kvfdw_compact('t_$_', true)") for @levels;
	$new->stop;
	is(outcome_of('diff', '-rq', $old->data_dir . '/kvfdw', "$there/kvfdw"), '', "what the new server writes does not reach the old one's files");
	unlink $new->data_dir or die;
	$disk->umount;
	anew();
}

{
	# it ends in the middle
	my $dir = "$PostgreSQL::Test::Utils::tmp_check/full";
	mkdir $dir;
	spit("$dir/cp", "#!/bin/sh\n/bin/cp \"\$@\"\nexit 1\n");
	chmod 0755, "$dir/cp";
	local $ENV{PATH} = "$dir:$ENV{PATH}";
	upgrade($old->data_dir, $new->data_dir);
}
not_started($new, qr/FATAL:  directory "kvfdw" is incomplete because kvfdw_upgrade was interrupted/, 'after half a copy');
like(upgrade($old->data_dir, $new->data_dir), qr/takes the tables over when it is started/, 'kvfdw_upgrade --copy, again');
refused(qr/the new cluster already has the tables of the old one/, 'twice');
$new->start;
same('a copy');
$new->safe_psql('postgres', "INSERT INTO t_$_ VALUES (1, 'new server'); INSERT INTO heap VALUES (1, 'new server') ON CONFLICT DO NOTHING; DELETE FROM t_$_ WHERE k % 11 = 0;") for @levels;
$new->safe_psql('postgres', "DELETE FROM heap WHERE k % 11 = 0; INSERT INTO first VALUES (1, 'first')");
kill_all($new);
$new->start;
is(tables_differ($new, "t_$_", 'heap', 'k'), '', "after SIGKILL: heap's rows, level $_") for @levels;
is($new->safe_psql('postgres', 'TABLE first'), '1|first', 'what was never written to before is there');
$new->stop;
refused(qr/the new cluster already has kvfdw tables with data/, 'when it has been taken over');

# the old server goes on with its own, and is ahead then
$old->start;
is($old->safe_psql('postgres', $others), $rows, 'the old server has its rows after a copy');
$old->stop;
anew();
refused(qr/the old server was started after pg_upgrade/, 'an old server that went on');
spit($old->data_dir . '/kvfdw/control', $olds);

# ---- a move, cut off in the middle ----
system('rm', '-rf', $new->data_dir . '/kvfdw') == 0 && rename($old->data_dir . '/kvfdw', $new->data_dir . '/kvfdw') or die;
not_started($new, qr/FATAL:  directory "kvfdw" belongs to another database cluster.*does not name it.*HINT:  .*kvfdw_upgrade/s, 'after half a move');
like(upgrade('--rename', $old->data_dir, $new->data_dir), qr/takes the tables over when it is started/, 'kvfdw_upgrade --rename, again');
refused(qr/the new cluster already has the tables of the old one/, 'twice', '--rename');
$old->start;
for my $t (qw(t_full t_keys t_none written part))
{
	my (undef, undef, $err) = $old->psql('postgres', "SELECT count(*) FROM $t");
	like($err, qr/data of foreign table "$t" is missing/, "the old server after a move: $t");
}
is($old->safe_psql('postgres', 'SELECT count(*) > 1000 FROM heap'), 't', 'and heap is there');
$old->stop;
$new->start;
same('a move');
$new->stop;
refused(qr/the new cluster already has kvfdw tables with data/, 'when it has been taken over', '--rename');

# the way back is closed, now that the new server has had it; and another's copy does not fit
system('rm', '-rf', $old->data_dir . '/kvfdw') == 0 && rename($new->data_dir . '/kvfdw', $old->data_dir . '/kvfdw') or die;
not_started($old, qr/belongs to another database cluster/, 'the old one with the new one\'s directory');
rename($old->data_dir . '/kvfdw', $new->data_dir . '/kvfdw') or die;
ok($new->start(fail_ok => 1), 'which the new one still starts with');
$new->stop;
done_testing();

sub spit
{
	my ($file, $bytes) = @_;
	open(my $f, '>:raw', $file) or die "$file: $!";
	print $f $bytes;
	close $f;
	return;
}
