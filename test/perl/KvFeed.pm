# What the tests of the change feed share: a server with a slot, and a consumer that applies the
# lines of pg_recvlogical to a table of another database, each transaction at once.
package KvFeed;
use strict;
use warnings;
use Exporter 'import';
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use KvTest;

our @EXPORT = qw(feed_cluster feed_lines feed_consumer feed_start feed_stop feed_applied feed_problems);

# Where output plugins are listed, kvfdw must be, for roles that are no superusers.
sub feed_cluster
{
	my ($name, %conf) = @_;
	my $node = kv_cluster($name, wal_level => 'logical', max_wal_senders => 10, max_replication_slots => 10, max_prepared_transactions => 10, %conf);
	if (answer($node, q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'}) eq '1')
	{
		$node->append_conf('postgresql.conf', "output_plugin_libraries = 'pgoutput, test_decoding, kvfdw'\n");
		$node->reload;
	}
	return $node;
}

# What SQL shows of a slot, and confirms; without positions, xids and times.
sub feed_lines
{
	my ($node, $slot, @options) = @_;
	my $options = join('', map { ", '$_'" } @options);
	my $lines = answer($node, "SELECT data FROM pg_logical_slot_get_changes('$slot', NULL, NULL$options)");
	$lines =~ s/,"(?:time|lsn)":"[^"]*"//g;
	$lines =~ s/,"xid":\d+//g;
	return $lines;
}

# ---- the consumer ----

# Its database.  Each transaction of the source ends with a row of "digests", which is heap: the
# digest that its table src has then, which the copy must have, too.
sub feed_consumer
{
	my ($node) = @_;
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', q{
		CREATE TABLE copy (tab text, key jsonb, item jsonb, PRIMARY KEY (tab, key));
		CREATE TABLE confirmed (lsn pg_lsn);
		INSERT INTO confirmed VALUES ('0/0');
		CREATE TABLE applied (n bigint PRIMARY KEY, same boolean);
		CREATE FUNCTION digest() RETURNS text LANGUAGE sql AS $$
			SELECT md5(string_agg(jsonb_strip_nulls(item)::text, ';' ORDER BY (key->>'w')::int, (key->>'i')::int)) FROM copy WHERE tab = 'public.src' $$;
		CREATE FUNCTION apply(c jsonb) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			CASE c->>'op'
			WHEN 'put' THEN
				INSERT INTO copy VALUES (c->>'table', c->'key', c->'row') ON CONFLICT (tab, key) DO UPDATE SET item = excluded.item;
			WHEN 'delete' THEN
				DELETE FROM copy WHERE tab = c->>'table' AND key = c->'key';
			WHEN 'truncate' THEN
				DELETE FROM copy WHERE tab = c->>'table';
			WHEN 'insert' THEN
				IF c->>'table' = 'public.digests' THEN
					INSERT INTO applied VALUES ((c->'row'->>'n')::bigint, (c->'row'->>'digest') IS NOT DISTINCT FROM digest());
				END IF;
			WHEN 'commit' THEN
				UPDATE confirmed SET lsn = (c->>'lsn')::pg_lsn;
			ELSE
			END CASE;
		END $$; });
	return;
}

# Start it, from where it has confirmed.
sub feed_start
{
	my ($node) = @_;
	my $from = $node->safe_psql('other', 'SELECT lsn FROM confirmed');
	my $connection = $node->connstr('postgres');
	my $other = $node->connstr('other');
	my $log = "$PostgreSQL::Test::Utils::tmp_check/consumer.log";
	my $pid = fork // die "fork: $!";
	return $pid if $pid;

	# the child's own end is nobody's business
	setpgrp(0, 0);
	open STDERR, '>>', $log;
	open my $lines, '-|', 'pg_recvlogical', '-d', $connection, '-S', 'feed', '--start', '--no-loop', '-f', '-', '-I', $from, '-s', '1' or POSIX::_exit(1);
	open my $psql, '|-', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $other or POSIX::_exit(1);
	$psql->autoflush(1);
	$SIG{PIPE} = sub { POSIX::_exit(0) };
	while (my $line = <$lines>)
	{
		next unless $line =~ /^\{.*\}$/;
		print $psql "BEGIN;\n" if $line =~ /^\{"op":"begin"/;
		print $psql "SELECT apply(\$feed\$$line\$feed\$);\n";
		print $psql "COMMIT;\n" if $line =~ /^\{"op":"commit"/;
	}
	close $psql;
	POSIX::_exit(0);
}

# Kill it with all that it has started, at whatever it does.
sub feed_stop
{
	my ($pid) = @_;
	kill 'KILL', -$pid;
	return waitpid $pid, 0;
}

# Wait until it has applied transaction n.
sub feed_applied
{
	my ($node, $n) = @_;
	return wait_for("transaction $n to be applied", sub {
		my $is = eval { $node->safe_psql('other', 'SELECT coalesce(max(n), 0) FROM applied') } // 0;
		return $is >= $n; });
}

# Transactions after which the copy was not as the source, or that are missing.
sub feed_problems
{
	my ($node) = @_;
	return $node->safe_psql('other', q{SELECT string_agg(n::text, ' ' ORDER BY n) FROM applied WHERE NOT same});
}

1;
