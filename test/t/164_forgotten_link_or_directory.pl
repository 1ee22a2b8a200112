# Promise: after a crash a server does not start while the link of a tablespace that has values, or the directory kvfdw, is not
# there, and has all rows when it is back; a tablespace that was dropped is not missed.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no directory of its own' if heap_only();
my $node = kv_cluster('forgotten', 'kvfdw.test_value_file_kb' => 64, 'kvfdw.flush_after' => 1, 'kvfdw.compact_workers' => 0, checkpoint_timeout => '1h');
plan skip_all => 'needs fault injection' unless has_faults($node);
plan skip_all => 'tablespaces are refused with data checksums before PostgreSQL 17' if $node->pg_version < 17 && setting($node, 'data_checksums') eq 'on';
my $data = $node->data_dir;
my %place = map { $_ => PostgreSQL::Test::Utils::tempdir($_) } qw(disk far gone);
my @levels = qw(full keys);
sub query { return $node->safe_psql('postgres', @_) }
sub each_table { my ($sql) = @_; return query(join ';', map { $sql =~ s/\bT\b/$_/gr } 'heap', map { "t_$_" } @levels) }
sub oid { return query("SELECT oid FROM pg_tablespace WHERE spcname = '$_[0]'") }

# While something of the stopped server is away, it does not start, and says this; back again, it has everything.
sub does_not_start_without
{
	my ($what, $path, $says, @tables) = @_;
	rename "$data/$path", "$data/../away" or die "$path: $!";
	mkdir "$data/$path" or die if $what =~ /mount/;
	my $from = -s $node->logfile;
	ok(!$node->start(fail_ok => 1), "$what: the server does not start");
	like(slurp_file($node->logfile, $from), $says, "$what: it says why");
	ok(!$node->start(fail_ok => 1), "$what: nor does it when that is tried again");
	rmdir "$data/$path";
	rename "$data/../away", "$data/$path" or die "$path: $!";
	$node->start;
	is(tables_differ($node, $_, 'heap', 'k'), '', "$what: back again, $_ has all rows") for @tables;
	is(kv_check_clean($node, @tables), '', "$what: and is sound");
	return;
}

query("CREATE TABLESPACE $_ LOCATION '$place{$_}'") for qw(disk far gone);
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . join '', map { kv_table("t_$_", 'k int, v text', 'k', "shards '2', wal '$_'") } @levels);
each_table('INSERT INTO T SELECT g, repeat(md5(g::text), 90) FROM generate_series(1, 1000) g');
query('CHECKPOINT');

# ---- since the checkpoint they go to another tablespace ----
query("ALTER FOREIGN TABLE t_$_ OPTIONS (ADD tablespace 'disk')") for @levels;
each_table('INSERT INTO T SELECT g, repeat(md5(g::text), 90) FROM generate_series(3001, 5000) g');
my $link = 'pg_tblspc/' . oid('disk');
kill_all($node);
my $missing = qr/tablespace with OID \d+ does not exist/;
does_not_start_without('a link, of a table that has moved', $link, $missing, map { "t_$_" } @levels);

# ---- since the checkpoint they are made there ----
query('CHECKPOINT');
query('DROP TABLE heap; CREATE TABLE heap (k int PRIMARY KEY, v text);' . join '', map { "DROP FOREIGN TABLE t_$_;" . kv_table("t_$_", 'k int, v text', 'k', "shards '2', wal '$_', tablespace 'far'") } @levels);
each_table('INSERT INTO T SELECT g, repeat(md5(g::text), 90) FROM generate_series(1, 2000) g');
$link = 'pg_tblspc/' . oid('far');
kill_all($node);
does_not_start_without('a link, of a new table', $link, $missing, map { "t_$_" } @levels);

# ---- the tablespaces have gone, and the WAL that is replayed has tables in them ----
query('CHECKPOINT');
query(kv_table('short', 'k int, v text', 'k', "tablespace 'gone'") . "INSERT INTO short VALUES (1, 'x')");
query('DROP FOREIGN TABLE short');
query('BEGIN;' . kv_table('undone', 'k int, v text', 'k', "tablespace 'gone'") . "INSERT INTO undone VALUES (1, 'x'); ROLLBACK");
query("ALTER FOREIGN TABLE t_$_ OPTIONS (SET tablespace 'gone')") for @levels;
each_table('UPDATE T SET v = reverse(v) WHERE k % 3 = 0');
query("ALTER FOREIGN TABLE t_$_ OPTIONS (SET tablespace 'far')") for @levels;
each_table('UPDATE T SET v = reverse(v) WHERE k % 5 = 0');
wait_for('the tablespace to be empty', sub { query("SELECT kvfdw_compact('t_$_')") for @levels; return $node->psql('postgres', 'DROP TABLESPACE gone') == 0 });
kill_all($node);
$node->start;
is(tables_differ($node, "t_$_", 'heap', 'k'), '', "tablespaces that were dropped are not missed by t_$_") for @levels;

# ---- the directory is not mounted ----
each_table('UPDATE T SET v = reverse(v) WHERE k % 7 = 0');
kill_all($node);
does_not_start_without('no mount', 'kvfdw', qr/directory "kvfdw" is empty, but had data before the server crashed/, map { "t_$_" } @levels);
each_table('UPDATE T SET v = reverse(v) WHERE k % 11 = 0');
kill_all($node);
does_not_start_without('no directory', 'kvfdw', qr/directory "kvfdw" is empty, but had data before the server crashed/, map { "t_$_" } @levels);
kill_all($node);
rename "$data/kvfdw", "$data/../away" or die;
unlink "$data/kvfdw.id" or die;
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM heap'), 't', 'who gives up its data removes the file that names it');
$node->stop;
done_testing();
