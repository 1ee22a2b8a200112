# Promise: the change feed, applied to an empty table, has the rows of its table after each transaction: with savepoints,
# prepared transactions, upserts, moved keys, TRUNCATE and ALTER, and across SIGKILL of the server and of the consumer.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use KvTest;
use KvFeed;

plan skip_all => 'of kvfdw only' if heap_only();

my $seed = $ENV{KV_SEED} // int(rand(1_000_000));
srand($seed);
note "seed $seed";
my $node = feed_cluster('feed', logical_decoding_work_mem => '64kB', 'kvfdw.memtable_memory' => "'16MB'");
$node->safe_psql('postgres', q{
	CREATE FOREIGN TABLE src (w int, i int, v text, d numeric, j jsonb, t timestamptz) SERVER kvfdw OPTIONS (key 'w, i', shards '3', changes 'on');
	CREATE FOREIGN TABLE silent (k int, v text) SERVER kvfdw;
	CREATE TABLE digests (n bigint PRIMARY KEY, digest text);
	SELECT pg_create_logical_replication_slot('feed', 'kvfdw')});
feed_consumer($node);

my $columns = 0;
my $rows = 'rpad($n::text, (random() * $size)::int, $c), random()::numeric(9,3), jsonb_build_object($c, i), now()' =~ s/\$c/'x'/gr;

# One statement on the table.
sub statement
{
	my ($n) = @_;
	my $k = int(rand(150));
	my $size = rand() < 0.05 ? 60_000 : 400;
	my $op = rand();
	my $new = $rows =~ s/\$n/$n/gr =~ s/\$size/$size/gr;
	return "INSERT INTO src (w, i, v, d, j, t) SELECT 1, i, $new FROM generate_series($k, $k + 3) i ON CONFLICT DO NOTHING" if $op < 0.2;
	return "INSERT INTO src (w, i, v, d, j, t) SELECT 1, i, $new FROM generate_series($k, $k + 3) i ON CONFLICT (w, i) DO UPDATE SET v = excluded.v, d = NULL" if $op < 0.45;
	return "UPDATE src SET v = 'u$n', j = NULL WHERE i BETWEEN $k AND $k + 4" if $op < 0.65;
	return "DELETE FROM src WHERE i BETWEEN $k AND $k + 5" if $op < 0.8;
	return "SELECT 1 FROM (SELECT FROM src WHERE i > $k FOR UPDATE) s LIMIT 1" if $op < 0.85;
	return "INSERT INTO silent VALUES ($k) ON CONFLICT DO NOTHING" if $op < 0.9;
	return "UPDATE src s SET i = i + 1000 WHERE i = $k AND NOT EXISTS (SELECT FROM src x WHERE x.w = s.w AND x.i = $k + 1000)";
}

my $digest = q{(SELECT md5(string_agg(jsonb_strip_nulls(to_jsonb(s))::text, ';' ORDER BY w, i)) FROM src s)};

# One transaction.  What adds a column writes all rows, as no consumer sees the rows written again.
sub transaction
{
	my ($n) = @_;
	my $r = rand();
	my $s = "BEGIN;\n";
	$s .= "TRUNCATE src;\n" if $r < 0.02;
	if ($r > 0.98)
	{
		my $c = 'added' . $n;
		$s .= 'ALTER FOREIGN TABLE src ADD COLUMN ' . (rand() < 0.5 ? "$c int; UPDATE src SET $c = $n;\n" : "$c float8 DEFAULT random(); UPDATE src SET $c = $c;\n");
	}
	for (1 .. 1 + int(rand(4)))
	{
		my $sp = rand() < 0.3;
		$s .= "SAVEPOINT s;\n" if $sp;
		$s .= statement($n) . ";\n";
		if ($sp && rand() < 0.3) { $s .= "SAVEPOINT t; " . statement($n) . "; ROLLBACK TO t;\n" }
		$s .= (rand() < 0.5 ? "ROLLBACK TO s;\n" : "RELEASE s;\n") if $sp;
	}
	return "$s ROLLBACK;\n" if rand() < 0.1;
	$s .= "INSERT INTO digests VALUES ($n, $digest);\n";
	return "$s PREPARE TRANSACTION 'p$n'; COMMIT PREPARED 'p$n';\n\\echo ack $n\n" if rand() < 0.2 && $r >= 0.02 && $r <= 0.98;
	return "$s COMMIT;\n\\echo ack $n\n";
}

my $n = 0;
my $consumer = feed_start($node);
for my $round (1 .. $ENV{KV_ROUNDS} // 6)
{
	my $count = 60;
	my $w = psql_writer($node, join('', map { transaction($n + $_) } 1 .. $count), "writer$round");
	my $strike = $round % 3;
	if ($strike == 0)
	{
		wait_for('the writer', sub { ended($w) || slurp_file($w->{out}) =~ /^ack/m });
		usleep(int(rand(500_000)));
		kill_all($node);
		feed_stop($consumer);
		restart_killed($node);
		# a transaction that was prepared may be there
		for my $p (split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts')) { $node->safe_psql('postgres', "COMMIT PREPARED '$p'") }
		$node->safe_psql('postgres', 'CHECKPOINT') if rand() < 0.5;
		$consumer = feed_start($node);
		reap_writer($w);
	}
	elsif ($strike == 1)
	{
		for (1 .. 3)
		{
			usleep(int(rand(300_000)));
			feed_stop($consumer);
			wait_for('the slot', sub { answer($node, q{SELECT active FROM pg_replication_slots WHERE slot_name = 'feed'}) eq 'f' });
			$consumer = feed_start($node);
		}
		my $err = reap_writer($w) >= 0 ? slurp_file($w->{err}) : 'no acknowledgement';
		is($err, '', "round $round: the writer has no error");
	}
	else
	{
		wait_for('the writer', sub { ended($w) || slurp_file($w->{out}) =~ /^ack/m });
		$node->safe_psql('postgres', "SELECT kvfdw_flush('src'); SELECT kvfdw_compact('src'); SELECT kvfdw_split('src')");
		reap_writer($w);
		is(slurp_file($w->{err}), '', "round $round: the writer has no error");
	}
	$n += $count;
	my $last = $node->safe_psql('postgres', 'SELECT coalesce(max(n), 0) FROM digests');
	feed_applied($node, $last);
	is(feed_problems($node), '', "round $round: the copy is as the source after each transaction");
	is($node->safe_psql('other', 'SELECT count(*) FROM applied'), $node->safe_psql('postgres', 'SELECT count(*) FROM digests'), "round $round: each transaction was applied once");
	is($node->safe_psql('other', 'SELECT digest()'), $node->safe_psql('postgres', "SELECT $digest"), "round $round: the same rows in the end");
}
feed_stop($consumer);
is($node->safe_psql('other', q{SELECT count(*) FROM copy WHERE tab <> 'public.src'}), 0, 'a table without the option is not in the feed');
is(kv_check_clean($node, 'src'), '', 'the table is sound');
done_testing();
