# Promise: a standby that pg_createsubscriber makes a server of its own, with another system identifier,
# starts, has the tables, and goes on with them; its directory does not come back to a server that it is not of.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no directory' if heap_only();
my $program = `pg_config --bindir`;
chomp $program;
plan skip_all => 'pg_createsubscriber comes with PostgreSQL 17' unless -x "$program/pg_createsubscriber";
my $primary = kv_cluster('primary', wal_level => 'logical', max_wal_senders => 5, max_replication_slots => 5, max_worker_processes => 16);
$primary->safe_psql('postgres', kv_table('t', 'k int, v text', 'k', "shards '2'") . kv_table('keys', 'k int, v text', 'k', "wal 'keys'")
	  . "CREATE TABLE heap (k int PRIMARY KEY, v text); INSERT INTO heap SELECT g, 'v' || g FROM generate_series(1, 2000) g; INSERT INTO t TABLE heap; INSERT INTO keys TABLE heap; UPDATE t SET v = 'w' WHERE k % 3 = 0; UPDATE heap SET v = 'w' WHERE k % 3 = 0");
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', q{INSERT INTO t VALUES (3001, 'after the backup'); INSERT INTO heap VALUES (3001, 'after the backup')});
$primary->wait_for_catchup($standby);
$standby->stop;
my $token = slurp_file($standby->data_dir . '/kvfdw.id');
my ($out, $err) = ('', '');
ok(IPC::Run::run([ 'pg_createsubscriber', '-D', $standby->data_dir, '-P', $primary->connstr('postgres'), '-d', 'postgres', '-p', $standby->port, '-s', $standby->host ], '>', \$out, '2>', \$err), 'pg_createsubscriber') or diag($out . $err);
$standby->start;
like(slurp_file($standby->logfile), qr/taking over directory "kvfdw" of the cluster with system identifier \d+/, 'it takes its directory over');
is(tables_differ($standby, 't', 'heap', 'k'), '', 'it has the rows');
is(kv_check_clean($standby, 't'), '', 'sound');
like(answer($standby, 'SELECT count(*) FROM keys'), qr/error/, 'what a standby cannot have is an error here, too');
$standby->safe_psql('postgres', q{INSERT INTO t VALUES (4001, 'its own'); INSERT INTO heap VALUES (4001, 'its own')});
kill_all($standby);
$standby->start;
is(tables_differ($standby, 't', 'heap', 'k'), '', 'and goes on, also after SIGKILL');
isnt(slurp_file($standby->data_dir . '/kvfdw.id'), $token, 'it is noted that another server has it');
$standby->stop;
$primary->safe_psql('postgres', 'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active');
$primary->stop;
rename($primary->data_dir . '/kvfdw', $primary->data_dir . '/kvfdw.own') or die;
system('cp', '-a', $standby->data_dir . '/kvfdw', $primary->data_dir . '/kvfdw') == 0 or die;
my $started = $primary->start(fail_ok => 1);
ok(!$started, 'the primary does not start with its directory');
like(slurp_file($primary->logfile), qr/FATAL:  directory "kvfdw" belongs to another database cluster/, 'and says why');
done_testing();
