# Promise: statements that lock tables, indexes and databases wait for no paused session, and what
# those had asked for is answered by the definitions that they find then.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvGate;

my $many = $ENV{PAUSED} // 24;
my $node = gate_cluster('ddl', max_connections => $many + 40);
my $boss = boss();

# The holder works until there is a row in done, and has no snapshot for longer than a moment.
$boss->ask($_) for q{CREATE PROCEDURE work() LANGUAGE plpgsql AS $$ BEGIN WHILE NOT EXISTS (SELECT FROM done) LOOP COMMIT; END LOOP; END $$},
  'CREATE TABLE done (); GRANT ALL ON done TO web', 'CREATE TABLE away (k int)', kv_table('kv', 'k int NOT NULL, v text', 'k'), 'GRANT ALL ON kv TO web',
  'CREATE DATABASE left_behind';

my @sent = ('EXECUTE p', 'SELECT count(*) FROM t', 'EXECUTE q', 'INSERT INTO kv (k) VALUES (pg_backend_pid()) RETURNING v', 'SELECT sum(v) FROM t', 'LOCK t');
my @expected = ('row 7; tag SELECT 1', 'row 7; tag SELECT 1', 'row \d+; tag SELECT 1', 'row new; tag INSERT 0 1', 'row 70; tag SELECT 1', 'ERROR 25P01: .*');
my @s = map { session() } 1 .. $many;
for my $session (@s)
{
	$session->ask('PREPARE p AS SELECT count(*) FROM t; PREPARE q AS SELECT count(*) FROM kv');
	$session->ask("EXECUTE $_") for qw(p q);
}
my $holder = session();
$holder->send('CALL work()');
wait_for('the holder', 180, sub { $node->safe_psql('postgres', "SELECT state FROM pg_stat_activity WHERE pid = $holder->{pid}") eq 'active' });
# one whose slot was lent while it was idle makes a request without
for my $i (0 .. $#s)
{
	do { lines($s[$i]); $s[$i]->send($sent[ $i % @sent ]); wait_for('a pause', 180, sub { answered($s[$i]) || is_waiting($s[$i]) }) } while answered($s[$i]);
}
waiting($many);

my @ddl = ('CREATE INDEX i ON t (v)', 'CREATE INDEX CONCURRENTLY j ON t (v)', 'ALTER INDEX i RENAME TO l', 'REINDEX INDEX l', 'REINDEX TABLE CONCURRENTLY t', 'REINDEX TABLE t',
	'ALTER TABLE t ADD COLUMN w int DEFAULT 5', 'ALTER TABLE t ALTER COLUMN v TYPE bigint', 'VACUUM FULL t', 'CLUSTER t USING l', 'TRUNCATE t', 'INSERT INTO t SELECT g, 10 FROM generate_series(1, 7) g',
	'DROP INDEX CONCURRENTLY j', 'DROP INDEX l', 'CREATE TABLE fresh (k int)', 'DROP TABLE fresh', 'DROP TABLE away', 'CREATE DATABASE other', 'ALTER DATABASE other RENAME TO another', 'DROP DATABASE another');
push @ddl, 'ALTER FOREIGN TABLE kv ALTER COLUMN v SET DEFAULT $$new$$', 'ALTER FOREIGN TABLE kv ADD COLUMN w int DEFAULT 5', 'TRUNCATE kv', q{ALTER FOREIGN TABLE kv OPTIONS (ADD wal 'keys')},
  'ALTER FOREIGN TABLE kv DROP COLUMN w', 'SELECT kvfdw_flush($$kv$$)' unless heap_only();
for (@ddl)
{
	note $_;
	$boss->ask($_);
}
is(admission('waiting'), $many, 'no statement has waited for a paused session');

my @behind = map { session(database => 'left_behind') } 1 .. 3;
$_->send('SELECT 1') for @behind;
waiting($many + 3);
$boss->ask('DROP DATABASE left_behind WITH (FORCE)');
waiting($many);
pass('nor does DROP DATABASE WITH (FORCE) for those that are paused in it');

$boss->ask('INSERT INTO done DEFAULT VALUES');
is(lines($holder), 'tag CALL', 'the holder is done');
my @wrong = grep { defined } map { my $got = lines($s[$_]); $got =~ /^$expected[ $_ % @sent ]$/ ? undef : "$sent[ $_ % @sent ]: $got" } 0 .. $#s;
is("@wrong", '', 'all others get their answers, by the new definitions');
undef $_ for @s, @behind, $holder;
@s = @behind = ();
wait_for('sessions to end', 180, sub { admission("active || ' ' || waiting || ' ' || lent") eq '0 0 0' });
pass('no slot is taken when no session is left');
$node->stop;
done_testing();
