# Promise: ids and memory of shards that have left the map are given again when no process knows
# those shards any more, and not before. Files that could not be removed keep their ids, and
# kvfdw_check tells of them. A table that runs short of ids says so, and continues. Volumes of
# shards that are gone are given again, too, after a start of the server at the latest (I 13,
# I 18). Many shards, with KV_ALL=1 ten thousand, work as one does, and all helpers recover what
# is recent in them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('shard_numbers', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, 'kvfdw.test_volumes' => 6, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.max_space_amplification' => 0, 'kvfdw.compact_sort' => 'off', map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;

sub query { return $node->safe_psql('postgres', @_); }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }
sub shards { my ($table) = @_; return query("SELECT shards FROM kvfdw_stat_tables WHERE relid = '$table'::regclass"); }
sub files { my ($table, $like) = @_; my $oid = query("SELECT '$table'::regclass::oid"); return glob "$data/kvfdw/5/$oid/0*/$like"; }
sub numbers { my ($table) = @_; my %n = map { m{/([0-9a-f]{5})\.[^/]*(?:log|run)$} ? (hex $1 => 1) : () } files($table, '*'); return sort { $a <=> $b } keys %n; }
sub volumes { my ($table) = @_; my %n = map { m{/([0-9a-f]{5})\.c[^/]*val$} ? ($1 => 1) : () } files($table, '*.val'); return sort keys %n; }
sub set { my ($name, $value) = @_; query(defined $value ? "ALTER SYSTEM SET kvfdw.$name = '$value'" : "ALTER SYSTEM RESET kvfdw.$name"); $node->reload; return; }
sub same { my ($when) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return same_as_heap($node, $when); }
my $round = 0;
sub fill { my ($rows) = @_; $round++; both("INSERT INTO T SELECT g * 7 % 1009, rpad(md5((g * $round)::text), 20 + g * 37 % 900, 'v') FROM generate_series(1, $rows) g"); return; }

# All rows go, and the shards are joined to one.
sub empty
{
	both('DELETE FROM T');
	query(q{SELECT kvfdw_flush('t'); SELECT pg_current_xact_id()});
	set('test_shard_kb', 1000000);
	ok(eval { wait_for('shards to be joined', sub { shards('t') == 1 }) }, 'emptied shards are joined') or diag shards('t');
	set('test_shard_kb');
	return;
}

# ---- split and joined for ever ----
query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '1'"));
fill(3);
cmp_ok(query(q{SELECT kvfdw_split('t')}), '==', 3, 'a shard becomes three');
is(join(' ', numbers('t')), '1 2 3', 'with numbers of their own');
empty();
my $session = $node->background_psql('postgres');
fill(3);
$session->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT k, md5(v) FROM t ORDER BY k; FETCH 1 FROM c');
my $seen = query('SELECT k, md5(v) FROM heap ORDER BY k OFFSET 1');
my ($known) = numbers('t');
query(q{SELECT kvfdw_split('t')});
cmp_ok((numbers('t'))[-1], '<=', 3, 'numbers of shards that have left are given again');
both(q{INSERT INTO T SELECT 10000 + g, 'end' FROM generate_series(1, 100) g});
query(q{SELECT kvfdw_cut('t')});
both(q{INSERT INTO T SELECT g * g, 'behind' FROM generate_series(1, 150) g ON CONFLICT DO NOTHING});
query(q{SELECT kvfdw_flush('t')});
is(scalar(grep { $_ == $known } numbers('t')), 0, 'but not that of one which somebody may know');
ok($session->query_safe('FETCH ALL FROM c') eq $seen, 'who began before sees what was there then');
$session->quit;
same('split again');
for (1 .. 3)
{
	empty();
	fill(3);
	query(q{SELECT kvfdw_split('t')});
	$node->restart;
	same("round $_") if $_ == 3;
}
cmp_ok((numbers('t'))[-1], '<', 8, 'and again and again');
is(join(' ', grep { !/^1000/ } volumes('t')), '', 'so are volumes');
kill_all($node);
restart_killed($node);
same('killed');
query(q{SELECT kvfdw_split('t')});
same('killed, and split');
$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'another'\nkvfdw.test_volumes = 0");
kill_all($node);
restart_killed($node);
same('after a power cut');

# ---- files that stay ----
{
	query(kv_table('s', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO s SELECT g, repeat('s', 700) FROM generate_series(1, 1000) g});
	set('fault', 'unlink:1+:EIO');
	my ($rc, $out, $err) = $node->psql('postgres', q{SET kvfdw.fault = ''; SELECT kvfdw_split('s')});
	like($err, qr/ERROR:  could not complete the previous split of/, 'a split whose old files stay is not done with');
	like(slurp_file($node->logfile), qr/WARNING:  could not remove .*Input\/output error/, 'the server log tells why');
	set('fault');
	ok(eval { wait_for('files to go', sub { !grep { $_ == 0 } numbers('s') }) }, 'they go when that is possible');
	is(kv_check_clean($node, 's'), '', 'and nothing stays');

	# what a split that fails has made
	query(q{SELECT pg_current_xact_id()});
	($rc, $out, $err) = $node->psql('postgres', q{SET kvfdw.stop_points = 'split_completed=error'; SET kvfdw.fault = 'unlink:1+:EIO'; SELECT kvfdw_split('s')});
	like($err, qr/ERROR/, 'a split fails, and its files stay');
	ok(eval { wait_for('files to go', sub { join(' ', numbers('s')) eq '1 2 3 4 5 6 7 8' }) }, 'they go before their numbers are given again') or diag join ' ', numbers('s');
	cmp_ok(query(q{SELECT kvfdw_split('s')}), '>', 8, 'the next one goes through');
	is(query('SELECT count(*), sum(length(v)) FROM s'), '1000|700000', 'with all rows');
}

# ---- what nobody needs ----
{
	query(kv_table('l', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO l SELECT g, repeat('l', 700) FROM generate_series(1, 1000) g});
	my ($chunk) = files('l', '*.val');
	link $chunk, "$data/kept" or die;
	query(q{SELECT kvfdw_split('l')});
	my $size = 0;
	$size += -s $_ for files('l', '*.val');
	my $freed = query(q{SELECT freed_bytes FROM kvfdw_compact('l', true)});
	cmp_ok($freed, '<=', $size, 'a value file in common counts once');
	cmp_ok($freed, '>', 0, 'and it counts');
	ok(eval { wait_for('the chunk to go', sub { !-e $chunk }) }, 'a chunk of before a split goes');
	is(kv_check_clean($node, 'l'), '', 'then all is sound');
	rename "$data/kept", $chunk or die;
	like(answer($node, q{SELECT file, problem FROM kvfdw_check('l')}), qr/\.val\|file belongs to no shard/, 'one that has not gone is told of');
	unlink $chunk;
	my ($run) = files('l', '*.run');
	my $other = $run =~ s{/[0-9a-f]{5}\.}{/00000.}r;
	link $run, $other or die;
	like(answer($node, q{SELECT file, problem FROM kvfdw_check('l')}), qr/00000\.[0-9a-f]{8}\.run\|file belongs to no shard/, 'so is a file of a shard that has left');
	unlink $other;
	is(kv_check_clean($node, 'l'), '', 'and that is all');
}

# ---- no more numbers ----
{
	set('test_shard_ids', 20);
	query(kv_table('n', 'k int, v text', 'k', "shards '1', wal 'none'") . q{INSERT INTO n SELECT g, repeat('n', 700) FROM generate_series(1, 1000) g});
	is(query(q{SELECT kvfdw_split('n')}), 8, 'there are numbers for eight shards');
	my ($rc, $out, $err) = $node->psql('postgres', q{SELECT kvfdw_split('n')});
	like($err, qr/WARNING:  foreign table .* is running out of shard ids \(20 of 20 used\)/, 'a table that runs short of them says so');
	like($err, qr/WARNING:  foreign table .* has used up its shard ids/, 'and when there are none');
	is($out, 17, 'it has those that it could get');
	($rc, $out, $err) = $node->psql('postgres', q{SELECT kvfdw_cut('n')});
	like($err, qr/has used up its shard ids/, 'nor is one cut');
	is(query('SELECT count(*), sum(length(v)) FROM n'), '1000|700000', 'all rows are there');
	is(kv_check_clean($node, 'n'), '', 'and sound');
}

# ---- no more volumes ----
{
	my $fill = sub { my ($table, $shards) = @_; return kv_table($table, 'k int, v text', 'k', "shards '$shards'") . "INSERT INTO $table SELECT (4294967296 * g / $shards - 2147483643)::int, repeat('v', 100) FROM generate_series(0, $shards - 1) g" };
	$node->append_conf('postgresql.conf', 'kvfdw.test_volumes = 2');
	$node->restart;
	query($fill->('v', 10));
	is(scalar(my @has = volumes('v')), 10, 'where the smallest chunks have no volume left shards make larger ones');
	my ($rc, $out, $err) = $node->psql('postgres', $fill->('w', 11));
	like($err, qr/ERROR:  foreign table .* has used up its value address space/, 'if the largest have none, either, that is an error');
	$node->restart;
	is(query('SELECT count(*), sum(length(v)) FROM v'), '10|1000', 'all rows are there');
	is(kv_check_clean($node, 'v'), '', 'and sound');
}
# ---- many shards, recovered by all helpers ----
{
	my $many = $ENV{KV_ALL} ? 10_000 : 100;
	my $rows = 2 * $many - 1;
	my $spread = '(g * ' . int(2**31 / $many) . '::bigint - 2147483648)::int';
	$node->append_conf('postgresql.conf', "kvfdw.test_volumes = 0\nkvfdw.recovery_workers = 8\nmax_worker_processes = 32");
	set('test_shard_ids');
	$node->restart;
	query('DROP FOREIGN TABLE t, s, l, n, v; TRUNCATE heap;' . kv_table('t', 'k int, v text', 'k', "shards '$many'"));
	both("INSERT INTO T SELECT $spread, md5(g::text) FROM generate_series(0, $rows) g");
	is(shards('t'), $many, 'a table has many shards');
	both("UPDATE T SET v = v || 'u' WHERE k % 3 = 0; DELETE FROM T WHERE k % 7 = 0");
	same('many shards');
	my $some = "k = ANY (ARRAY(SELECT $spread FROM generate_series(0, $rows, 5) g))";
	is(query("SELECT count(*) FROM t WHERE $some"), query("SELECT count(*) FROM heap WHERE $some"), 'and are looked up in');
	both("INSERT INTO T SELECT g, repeat('l', 900) FROM generate_series(1, 300) g ON CONFLICT DO NOTHING");
	set('test_shard_kb', 100);
	ok(eval { wait_for('one more', sub { shards('t') > $many }) }, 'one of them that is large is split');
	set('test_shard_kb');

	# what is recent was not frozen, and nobody opens the table before the session or the maintainer
	worker_stop_points($node, 'recover_after_logs=wait');
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	$node->restart;
	my $opens = psql_writer($node, q{SET kvfdw.stop_points = 'recover_after_logs=wait'; SELECT count(*) FROM t}, 'opens');
	ok(eval { wait_for('helpers', sub { (() = glob "$data/kvfdw/waiting.recover_after_logs.*") >= 9 }) }, 'who opens it has eight helpers') or diag join ' ', glob "$data/kvfdw/waiting.*";
	worker_stop_points($node, '');
	is(go_on($node, 'recover_after_logs', $opens), query('SELECT count(*) FROM heap') . "\n", 'it is opened');
	same('opened by many');
}
unlike(slurp_file($node->logfile), qr/TRAP|PANIC|terminated by signal/, 'no process has crashed');
$node->stop;
done_testing();
