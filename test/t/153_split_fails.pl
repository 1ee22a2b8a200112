# Promise: a split that fails has done nothing: wherever the file system has no space, wherever it is cancelled, timed out
# or terminated, and beside DROP, TRUNCATE and a move to another tablespace.  The error is clear, all rows are there,
# nothing is left of it, and the next one goes through.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no shards' if heap_only();
my $node = kv_cluster('split_fails', 'kvfdw.test_carried' => 0, 'kvfdw.test_value_file_kb' => 64, checkpoint_timeout => '1h', 'kvfdw.flush_after' => 3600, 'kvfdw.max_space_amplification' => 0, 'kvfdw.compact_sort' => 'off', map { ("kvfdw.test_$_" => 'off') } qw(splits compactions compact));
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;
my $place = PostgreSQL::Test::Utils::tempdir();
my $writer = 0;

sub query { return $node->safe_psql('postgres', @_); }
sub shards { my ($table) = @_; return query("SELECT shards FROM kvfdw_stat_tables WHERE relid = '$table'::regclass"); }
sub directory { my ($table) = @_; my $oid = query("SELECT '$table'::regclass::oid"); my ($dir) = glob "$data/kvfdw/5/$oid/0*"; return $dir; }
sub both { my ($sql) = @_; return query(join ';', map { my $t = $_; $sql =~ s/\bT\b/$t/gr } 'heap', 't'); }

# What a store has beside its value files, without the numbers of what flushes replace.
sub kinds
{
	my ($table) = @_;
	my $dir = directory($table);
	my %n;
	for (map { s{.*/}{}r } glob "$dir/*")
	{
		next if /\.(?:val|versions)$/;
		$n{/^([0-9a-f]{5})\.[0-9a-f]+\.(run|log)$/ ? "$1.$2" : $_}++;
	}
	return join ' ', map { "$_ $n{$_}" } sort keys %n;
}

# The table is as heap and has these files.
sub as_before
{
	my ($kinds, $when) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(kinds('t'), $kinds, "$when: nothing is left of it");
	is(tables_differ($node, 't', 'heap', 'k'), '', "$when: heap's rows");
	is(kv_check_clean($node, 't'), '', "$when: sound");
	return;
}

# A session that splits the table, stopped at a point; with a time-out: longer, if that has ended it before.
sub split_until
{
	my ($point, $table, $timeout) = @_;
	for (my $ms = $timeout // 0;; $ms *= 4)
	{
		unlink glob "$data/kvfdw/{waiting,step,continue}.*";
		my $session = psql_writer($node, "SET statement_timeout = $ms; SET kvfdw.stop_points = '$point=wait'; SELECT kvfdw_split('$table')", 'split' . ++$writer);
		my $came = 0;
		wait_for("a process at stop point $point", sub { my $ended = ended($session); $came = -e "$data/kvfdw/waiting.$point"; return $came || $ended; });
		return $session if $came || !$ms;
	}
}

sub hit { my ($function) = @_; return query("SELECT $function(pid) FROM pg_stat_activity WHERE query LIKE '%kvfdw_split%' AND pid <> pg_backend_pid()"); }

query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . kv_table('t', 'k int, v text', 'k', "shards '1'"));
both(q{INSERT INTO T SELECT g * 7 % 1009, rpad(md5(g::text), 20 + g * 37 % 900, md5(g::text)) FROM generate_series(1, 1000) g});
query(q{SELECT kvfdw_flush('t'); CHECKPOINT});
my $kinds = kinds('t');

# ---- no space ----
for my $kind (qw(run_write meta_write key_log_write))
{
	my $failed = 0;
	for my $nth (grep { $ENV{KV_ALL} || $_ < 4 || $_ % 3 == 0 } 1 .. 42)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET kvfdw.fault = '$kind:$nth:ENOSPC'; SELECT kvfdw_split('t')");
		if ($rc == 0)
		{
			cmp_ok($out, '>', 4, "$kind: the next one goes through");
			last;
		}
		$failed++;
		like($err, qr/ERROR:  could not .*: No space left on device/, "$kind $nth: a clear error");
		is(kinds('t'), $kinds, "$kind $nth: nothing is left of it");
		as_before($kinds, "$kind $nth") if $nth == 1 || $nth % 12 == 0;
	}
	cmp_ok($failed, '>', 0, "$kind: it was met") if $kind ne 'key_log_write';
	is(tables_differ($node, 't', 'heap', 'k'), '', "$kind: heap's rows");
	# of one shard again
	query('TRUNCATE t; INSERT INTO t TABLE heap');
	query(q{SELECT kvfdw_flush('t'); CHECKPOINT});
	$kinds = kinds('t');
}

# ---- no space for the marks that come then ----
{
	query(q{ALTER SYSTEM SET kvfdw.fault = 'meta_write:1+:ENOSPC'});
	worker_stop_points($node, '');
	my ($rc, $out, $err) = $node->psql('postgres', q{SET kvfdw.fault = ''; SELECT kvfdw_split('t')});
	like($err, qr/ERROR:  could not complete the previous split of/, 'a split that is not made durable is an error');
	is(tables_differ($node, 't', 'heap', 'k'), '', 'with all rows');
	query(q{SET kvfdw.fault = ''; INSERT INTO t VALUES (5000, 'full'); INSERT INTO heap VALUES (5000, 'full')});
	query('ALTER SYSTEM RESET kvfdw.fault');
	$node->reload;
	cmp_ok(query(q{SELECT kvfdw_split('t')}), '>', 8, 'when there is space again the next one goes through');
	is(tables_differ($node, 't', 'heap', 'k'), '', 'with all rows');
	query('TRUNCATE t; INSERT INTO t TABLE heap');
	query(q{SELECT kvfdw_flush('t'); CHECKPOINT});
	$kinds = kinds('t');
}

# ---- ended from outside ----
my %how = (
	cancelled => [ 0, 'pg_cancel_backend', qr/canceling statement due to user request/ ],
	timed => [ 1000, undef, qr/canceling statement due to statement timeout/ ],
	terminated => [ 0, 'pg_terminate_backend', qr/terminating connection/ ]);
my $turn = 0;
for my $point (qw(split_copying split_copied split_halted split_completed map_appended))
{
	for my $how ($ENV{KV_ALL} ? sort keys %how : $turn++ % 2 ? 'cancelled' : 'terminated', $point eq 'split_completed' ? 'timed' : ())
	{
		my ($timeout, $function, $says) = @{$how{$how}};
		my $session = split_until($point, 't', $timeout);
		hit($function) if $function;
		like(outcome($session), $says, "$how at $point: it ends");
		wait_for('the session to be gone', sub { query(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%kvfdw_split%' AND pid <> pg_backend_pid()}) == 0 });
		as_before($kinds, "$how at $point");
	}
}
cmp_ok(query(q{SELECT kvfdw_split('t')}), '>', 4, 'the next one goes through');
is(tables_differ($node, 't', 'heap', 'k'), '', 'with all rows');

# ---- beside DDL, by a session and by the maintainer ----
query('DROP FOREIGN TABLE t');
query("CREATE TABLESPACE other LOCATION '$place'");
my $moves = $node->pg_version >= 17 || setting($node, 'data_checksums') eq 'off';
for my $ddl ('TRUNCATE d', $moves ? 'ALTER FOREIGN TABLE d OPTIONS (ADD tablespace $$other$$)' : (), 'DROP FOREIGN TABLE d')
{
	my ($name) = $ddl =~ /^(\w+)/;
	query(q{DROP FOREIGN TABLE IF EXISTS d;} . kv_table('d', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO d SELECT g, repeat('d', 500) FROM generate_series(1, 500) g});
	my $session = split_until('split_completed', 'd');
	my $other = psql_writer($node, $ddl, 'ddl' . ++$writer);
	wait_for("$name to wait", sub { query(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'}) > 0 });
	hit('pg_cancel_backend');
	like(outcome($session), qr/canceling statement/, "$name: the split is cancelled");
	is(outcome($other), '', "$name: who waited for it goes on");
	is(query('SELECT count(*), sum(length(v)) FROM d'), $name eq 'ALTER' ? '500|250000' : '0|', "$name: what is to be there is") if $name ne 'DROP';

	query(q{DROP FOREIGN TABLE IF EXISTS d;} . kv_table('d', 'k int, v text', 'k', "shards '1'") . q{INSERT INTO d SELECT g, repeat('d', 500) FROM generate_series(1, 500) g; SELECT kvfdw_flush('d')});
	my $oid = query(q{SELECT 'd'::regclass::oid});
	unlink glob "$data/kvfdw/{waiting,step,continue}.*";
	query(q{ALTER SYSTEM SET kvfdw.test_shard_kb = 64});
	worker_stop_points($node, 'split_completed=wait');
	stopped($node, 'split_completed');
	$other = psql_writer($node, "SET kvfdw.stop_points = ''; $ddl", 'ddl' . ++$writer);
	is(outcome($other), '', "$name beside the maintainer's split");
	query(q{ALTER SYSTEM RESET kvfdw.test_shard_kb});
	worker_stop_points($node, '');
	go_on($node, 'split_completed');
	is(query('SELECT count(*), sum(length(v)) FROM d'), $name eq 'ALTER' ? '500|250000' : '0|', "$name: what is to be there is") if $name ne 'DROP';
	collected($node);
	ok(eval { wait_for('old files to go', sub { !grep { !m{/0*(?:\d+)$} } glob "$data/kvfdw/5/$oid/*.*"; }) }, "$name: nothing is left of the store before");
	my @stores = glob "$data/kvfdw/5/$oid/*";
	is(scalar @stores, $name eq 'DROP' ? 0 : 1, "$name: there is no other store") or diag "@stores";
}
unlike(slurp_file($node->logfile), qr/TRAP|PANIC|terminated by signal/, 'no process has crashed');
# ---- what a failed attempt to make a value file has left goes with its shard ----
for my $way ('split', 'joined')
{
	query(kv_table('failed', 'k int, v text', 'k', "shards '1'") . 'INSERT INTO failed SELECT g, repeat(md5(g::text), 100) FROM generate_series(1, 1000) g');
	query(q{SELECT kvfdw_cut('failed')}) if $way eq 'joined';
	like(answer($node, "SET kvfdw.fault = 'value_extend:1+:ENOSPC'; INSERT INTO failed VALUES (100000, repeat('x', 9000000))"), qr/could not extend file/, "$way: a value has no room");
	if ($way eq 'split') { query(q{SELECT kvfdw_split('failed')}) }
	else
	{
		query("SELECT kvfdw_flush('failed'); ALTER SYSTEM SET kvfdw.test_shard_kb = 1000000; SELECT pg_reload_conf()");
		wait_for('shards to be joined', sub { shards('failed') == 1 });
		query('ALTER SYSTEM RESET kvfdw.test_shard_kb; SELECT pg_reload_conf()');
	}
	is(kv_check_clean($node, 'failed'), '', "$way: no file of it stays");
	query('DROP FOREIGN TABLE failed');
}
$node->stop;
done_testing();
