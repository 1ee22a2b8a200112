# Promise: row locks need no WAL where no transaction can be prepared; they hold over a flush, and end with the server.
# Where transactions can be prepared, the locks of a prepared one outlast a kill and a clean stop.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

use constant ROWS => 5000;

sub lsn { my ($node) = @_; return $node->safe_psql('postgres', "SELECT pg_current_wal_insert_lsn() - '0/0'"); }

# Is a row locked, for another session?
sub is_locked
{
	my ($node, $k) = @_;
	my ($code, $out, $error) = $node->psql('postgres', "SELECT k FROM t WHERE k = $k FOR UPDATE NOWAIT");
	return $code != 0 && $error =~ /could not obtain lock on row/ ? 1 : 0;
}

# Bytes of WAL for locking all rows in a session that stays; the session.
sub lock_all
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres');
	my $before = lsn($node);
	$session->query_safe('BEGIN');
	$session->query_safe('SELECT count(*) FROM (SELECT k FROM t FOR UPDATE) s');
	return ($session, lsn($node) - $before);
}

sub rows_are_there
{
	my ($node, $what) = @_;
	is($node->safe_psql('postgres', 'SELECT count(*), sum(k), sum(length(v)) FROM t'), join('|', ROWS, ROWS * (ROWS + 1) / 2, 10 * ROWS), "$what: the rows");
	return heap_only() || is(kv_check_clean($node, 't'), '', "$what: kvfdw_check");
}

my $node = kv_cluster('p');
$node->safe_psql('postgres', kv_table('t', 'k bigint NOT NULL, v text', 'k'));
$node->safe_psql('postgres', "INSERT INTO t SELECT i, repeat('v', 10) FROM generate_series(1, @{[ROWS]}) i; SELECT kvfdw_flush('t')");

for my $flushed (0, 1)
{
	my ($session, $bytes) = lock_all($node);
	cmp_ok($bytes, '<', ROWS * 10, 'locks are not logged') unless heap_only();
	$node->safe_psql('postgres', "SELECT kvfdw_flush('t')") if $flushed;
	ok(is_locked($node, 17) && is_locked($node, ROWS), 'the rows are locked' . ($flushed ? ' after a flush' : ''));
	$session->query_safe('DELETE FROM t WHERE k = 17; SAVEPOINT a; ROLLBACK TO a');
	$session->query_safe('ROLLBACK');
	$session->quit;
	ok(!is_locked($node, 17), '... and no longer');
}
rows_are_there($node, 'after two rounds');

# ---- the server is killed ----

my ($session) = lock_all($node);
$node->safe_psql('postgres', 'CHECKPOINT');
kill_all($node);
eval { $session->quit };
restart_killed($node);
ok(!is_locked($node, 1), 'locks end with the server');
rows_are_there($node, 'after a kill');

# ---- transactions can be prepared ----

$node->append_conf('postgresql.conf', 'max_prepared_transactions = 5');
$node->restart;
my $bytes;
($session, $bytes) = lock_all($node);
cmp_ok($bytes, '>', ROWS * 20, 'locks are logged') unless heap_only();
$session->query_safe("PREPARE TRANSACTION 'locks'");
$session->quit;
kill_all($node);
restart_killed($node);
ok(is_locked($node, 1) && is_locked($node, ROWS), 'locks of a prepared transaction outlast a kill');
$node->safe_psql('postgres', "SELECT kvfdw_flush('t')");
$node->restart;
ok(is_locked($node, 1) && is_locked($node, ROWS), '... and a clean stop');
$node->safe_psql('postgres', "COMMIT PREPARED 'locks'");
ok(!is_locked($node, 1), '... until it ends');
rows_are_there($node, 'at the end');
done_testing();
