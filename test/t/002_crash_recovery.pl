# Promise: kill -9 of the postmaster and all its processes, at any moment and any
# number of times, loses no acknowledged commit, shows no unacknowledged
# transaction, and the table takes writes again.  A transaction in flight at the
# kill stays dead when its xid is handed out again (I 10).
#
# KV_ROUNDS=n: how many rounds of kills (10).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use KvTest;

my $rounds = $ENV{KV_ROUNDS} // 10;
my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed, $rounds rounds";

my $node = kv_cluster('crash');
$node->safe_psql('postgres', join("\n",
	kv_table('twin_kv', 'w int, i int, v text', 'w, i', "shards '4'"), 'CREATE TABLE twin_heap (w int, i int, v text, PRIMARY KEY (w, i));',
	kv_table('acked', 'w int, i int, j int, v text', 'w, i, j', "shards '2'")));

# Writer of kind 'twin': random work on both tables in one transaction.
sub twin_script
{
	my ($w, $first) = @_;
	my $s = '';
	for my $i ($first .. $first + 3000)
	{
		my $n = 1 + int(rand(4));
		$s .= "BEGIN;\n";
		for (1 .. $n)
		{
			my $k = int(rand(200));
			my $r = rand();
			my $size = $r < 0.02 ? 300_000 : $r < 0.1 ? 5000 : int(rand(600));
			my $op = rand();
			my $sp = rand() < 0.15;
			$s .= "SAVEPOINT s;\n" if $sp;
			for my $t ('twin_kv', 'twin_heap')
			{
				$s .= $op < 0.5 ? "INSERT INTO $t VALUES ($w, $k, rpad('$i', $size, 'x')) ON CONFLICT DO NOTHING;\n"
				  : $op < 0.8 ? "UPDATE $t SET v = rpad('u$i', $size, 'y') WHERE w = $w AND i BETWEEN $k AND @{[ $k + 3 ]};\n"
				  : $op < 0.95 ? "DELETE FROM $t WHERE w = $w AND i BETWEEN $k AND @{[ $k + 5 ]};\n"
				  : "UPDATE $t SET i = i + 1000 WHERE w = $w AND i = $k AND NOT EXISTS (SELECT FROM $t x WHERE x.w = $w AND x.i = $k + 1000);\n";
			}
			$s .= (rand() < 0.5 ? "ROLLBACK TO s;\n" : "RELEASE s;\n") if $sp;
		}
		$s .= rand() < 0.2 ? "ROLLBACK;\n" : "COMMIT;\n\\echo ack $i\n";
	}
	return $s;
}

# Writer of kind 'acked': kvfdw only, so that nothing but kvfdw writes WAL.
# Transaction i inserts rows j = 0 .. i % 5, marks those of i - 3, deletes those
# of i - 10 and sets the counter (i = -1).  Every seventh is rolled back.
sub acked_script
{
	my ($w, $first) = @_;
	my $s = '';
	for my $i ($first .. $first + 4000)
	{
		my $rows = $i % 5;
		my $back = $i % 7 == 3;
		$s .= "BEGIN;\n";
		$s .= "INSERT INTO acked SELECT $w, $i, j, repeat(md5('$w.$i.' || j), 1 + ($i * 31 + j * 17) % 150) FROM generate_series(0, $rows) j;\n";
		$s .= "SAVEPOINT s; DELETE FROM acked WHERE w = $w; INSERT INTO acked VALUES ($w, $i, 99, 'garbage'); ROLLBACK TO s;\n" if $i % 4 == 1;
		$s .= "UPDATE acked SET v = 'm' || v WHERE w = $w AND i = $i - 3 AND i >= 0;\n";
		$s .= "DELETE FROM acked WHERE w = $w AND i = $i - 10 AND i >= 0;\n";
		$s .= "UPDATE acked SET v = '$i' WHERE w = $w AND i = -1;\n";
		$s .= $back ? "ROLLBACK;\n" : "COMMIT;\n\\echo ack $i\n";
	}
	return $s;
}

# What 'acked' must hold when transaction $n of writer $w was the last.
sub acked_expected
{
	my ($w, $n) = @_;
	return qq{
SELECT $w AS w, -1 AS i, 0 AS j, '$n' AS v
UNION ALL
SELECT $w, i, j, CASE WHEN i + 3 <= $n AND (i + 3) % 7 <> 3 THEN 'm' ELSE '' END || repeat(md5('$w.' || i || '.' || j), 1 + (i * 31 + j * 17) % 150)
FROM generate_series(0, $n) i, generate_series(0, 4) j
WHERE j <= i % 5 AND i % 7 <> 3 AND NOT (i + 10 <= $n AND (i + 10) % 7 <> 3)};
}

my @acked_writers = (1, 2);
my %next = map { $_ => 0 } @acked_writers;
$node->safe_psql('postgres', "INSERT INTO acked VALUES ($_, -1, 0, '-1')") for @acked_writers;
my %twin_next = (1 => 0, 2 => 0);

my $freezer = "SELECT kvfdw_flush('twin_kv'); SELECT kvfdw_flush('acked'); SELECT pg_sleep(0.02);\n" x 2000;

for my $round (1 .. $rounds)
{
	my %writers;
	$writers{"a$_"} = psql_writer($node, acked_script($_, $next{$_}), "acked$_.$round") for @acked_writers;
	$writers{"t$_"} = psql_writer($node, twin_script($_, $twin_next{$_}), "twin$_.$round") for keys %twin_next;
	$writers{f} = psql_writer($node, $freezer, "freezer.$round") if $round % 2 == 0;

	usleep(100_000 + int(rand(1_500_000)));
	my $how = 'postmaster and all its processes';
	if ($round % 5 == 3)
	{
		# one backend, or one of kvfdw's workers: the postmaster restarts the rest
		my $victim = $node->safe_psql('postgres', $round % 2
			? "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND query ~ '(INSERT|UPDATE|COMMIT)' LIMIT 1"
			: "SELECT pid FROM pg_stat_activity WHERE backend_type ~ 'kvfdw' ORDER BY random() LIMIT 1");
		if ($victim)
		{
			$how = $round % 2 ? 'one backend' : 'one worker';
			kill_process($victim);
		}
	}
	kill_all($node) if $how =~ /all/;
	my %ack = map { $_ => reap_writer($writers{$_}) } keys %writers;
	$how =~ /all/ ? restart_killed($node) : wait_for('the server', sub { answer($node, 'SELECT true') eq 't' });

	is(tables_differ($node, 'twin_kv', 'twin_heap', 'w, i'), '', "round $round ($how): kvfdw and heap agree on every transaction");
	for my $w (@acked_writers)
	{
		my $n = answer($node, "SELECT v FROM acked WHERE w = $w AND i = -1");
		my $a = $ack{"a$w"};
		$a = $next{$w} - 1 if $a < 0;
		$a-- while $a >= 0 && $a % 7 == 3;
		# the transaction after the last acknowledged one may have committed
		my $after = $a + 1;
		$after++ if $after % 7 == 3;
		ok($n eq $a || $n eq $after, "round $round: writer $w acknowledged $a, found $n");
		last if $n !~ /^-?\d+$/;
		my $expected = acked_expected($w, $n);
		my $d = answer($node, "SELECT string_agg(w || '.' || i || '.' || j || ' ' || what || ' ' || left(v, 40), '; ') FROM (SELECT 'too much' AS what, * FROM (SELECT * FROM acked WHERE w = $w EXCEPT ALL ($expected)) a UNION ALL SELECT 'missing', * FROM ($expected EXCEPT ALL SELECT * FROM acked WHERE w = $w) b) s");
		is($d, '', "round $round: writer $w has exactly the rows of transaction $n and before");
		$next{$w} = $n + 1;
	}
	$twin_next{$_} += 3001 for keys %twin_next;
	is(kv_check_clean($node, 'twin_kv', 'acked'), '', "round $round: kvfdw_check is clean");
	is(answer($node, "BEGIN; INSERT INTO twin_heap VALUES (99, $round, 'after'); INSERT INTO twin_kv VALUES (99, $round, 'after'); COMMIT"), '', "round $round: and it takes writes");
}

# Little work between kills: what is in a write buffer or a log that nobody wrote out yet.
$node->safe_psql('postgres', kv_table('little', 'k int, v text', 'k'));
for my $i (1 .. 6)
{
	is(answer($node, "INSERT INTO little VALUES ($i, 'row $i')"), '', "little work $i");
	kill_all($node);
	restart_killed($node);
	is(answer($node, 'SELECT count(*), sum(k) FROM little'), "$i|" . $i * ($i + 1) / 2, "row $i survives the kill") if $i != 3;
}
$node->restart;
is(answer($node, 'SELECT count(*), sum(k) FROM little'), '6|21', 'and a clean restart');

# A clean stop and start.
for my $mode ('fast', 'smart', 'immediate')
{
	$node->stop($mode);
	$node->start;
	is(tables_differ($node, 'twin_kv', 'twin_heap', 'w, i'), '', "$mode stop and start keep everything");
}
is(kv_check_clean($node, 'twin_kv', 'acked'), '', 'kvfdw_check is clean after clean stops');

# kill again and again without using the tables in between, and during recovery
for (1 .. 3) { kill_all($node); restart_killed($node); }
is(tables_differ($node, 'twin_kv', 'twin_heap', 'w, i'), '', 'killed three times in a row, unused in between');
kill_all($node);
restart_killed($node);
my $reader = psql_writer($node, "SELECT count(*) FROM twin_kv; SELECT count(*) FROM acked;\n", 'recovering');
usleep(int(rand(60_000)));
kill_all($node);
reap_writer($reader);
restart_killed($node);
is(tables_differ($node, 'twin_kv', 'twin_heap', 'w, i'), '', 'killed during the recovery on first use');

# Xid reuse.  The transaction in flight wrote only to kvfdw, so its xid
# reached no WAL that was flushed and is handed out again after the crash.
my $reused = 0;
for my $variant ('table used before reuse', 'table not touched before reuse', 'frozen before reuse', 'savepoints', 'spilled')
{
	my $t = 'reuse_' . ++$reused;
	$node->safe_psql('postgres', kv_table($t, 'k int, v text', 'k'));
	$node->safe_psql('postgres', "INSERT INTO $t SELECT g, 'committed' FROM generate_series(1, 10) g");
	$node->safe_psql('postgres', 'CHECKPOINT');
	my $session = $node->background_psql('postgres');
	my $rows = $variant eq 'spilled' ? 30_000 : 100;
	$session->query_safe("BEGIN; INSERT INTO $t SELECT g, 'in flight ' || repeat('x', 500) FROM generate_series(1001, 1000 + $rows) g; UPDATE $t SET v = 'in flight' WHERE k = 1; DELETE FROM $t WHERE k = 2; UPDATE $t SET k = 500 WHERE k = 3;");
	$session->query_safe("SAVEPOINT a; UPDATE $t SET v = 'in savepoint' WHERE k = 4; RELEASE a; SAVEPOINT b; DELETE FROM $t WHERE k = 5; ROLLBACK TO b; SAVEPOINT c; INSERT INTO $t VALUES (600, 'in c');") if $variant eq 'savepoints';
	my $xid = $session->query_safe('SELECT pg_current_xact_id()');
	chomp $xid;
	kill_all($node);
	eval { $session->quit; };
	restart_killed($node);
	my $expected = join("\n", map { "$_|committed" } 1 .. 10);
	my $rows_of = "SELECT k, left(v, 20) FROM $t ORDER BY k";
	is(answer($node, $rows_of), $expected, "$variant: in flight at the kill is not visible") if $variant ne 'table not touched before reuse';
	$node->safe_psql('postgres', "SELECT kvfdw_flush('$t')") if $variant =~ /frozen/;
	my $now = $node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
	note "$variant: in flight xid $xid, first after restart $now";
	cmp_ok($now, '<=', $xid + 5, "$variant: the xid is handed out again (else this test proves nothing)");
	# commit xids up to and beyond the dead one, on heap only
	$node->safe_psql('postgres', join('', map { "CREATE TABLE IF NOT EXISTS burn (i int); INSERT INTO burn VALUES ($_);\n" } 1 .. ($xid - $now + 10)));
	is(answer($node, $rows_of), $expected, "$variant: nor when the xid has committed");
	kill_all($node);
	restart_killed($node);
	is(answer($node, $rows_of), $expected, "$variant: nor after another crash");
	is(answer($node, "INSERT INTO $t SELECT g, 'new' FROM generate_series(1001, 1005) g; DELETE FROM $t WHERE k = 2; SELECT count(*) FROM $t"), '14', "$variant: its keys are free");
	is(kv_check_clean($node, $t), '', "$variant: kvfdw_check is clean");
}

# The last commit before the kill is kept although it wrote to kvfdw only.
for my $i (1 .. 5)
{
	$node->safe_psql('postgres', "INSERT INTO reuse_1 VALUES (2000 + $i, 'committed last')");
	kill_all($node);
	restart_killed($node);
	is(answer($node, "SELECT count(*) FROM reuse_1 WHERE k > 2000"), $i, "commit $i just before the kill is kept");
}
$node->stop;
done_testing();
