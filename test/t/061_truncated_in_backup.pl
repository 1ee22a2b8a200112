# Promise: a standby that was made of a base backup shows a table that was truncated
# while the backup was taken as the primary does.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;

my $node = kv_primary('p');
twin_tables($node);
my $copy = $node->backup_dir . '/copy';
mkdir $node->backup_dir;
mkdir $copy, 0700 or die "mkdir: $!";
$node->safe_psql('postgres', join('', map { "INSERT INTO $_ SELECT 1, i, 'before' FROM generate_series(1, 100) i;" } 'twin_kv', 'twin_heap'));
# while an older transaction is there, no TRUNCATE is tidied up on the primary
$node->safe_psql('postgres', "BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'old'");
my $data = $node->data_dir;
$node->safe_psql('postgres', "SELECT pg_backup_start('copy', true);\n"
	  . join('', map { "BEGIN; TRUNCATE $_; INSERT INTO $_ SELECT 1, i, 'after' FROM generate_series(1, 50) i; COMMIT;\n" } 'twin_kv', 'twin_heap')
	  . "\\! tar -C $data --exclude=./postmaster.pid --exclude=./postmaster.opts --exclude=./pg_wal/0\\* -cf - . | tar -C $copy -xf -\n"
	  . "\\pset format unaligned\n\\pset tuples_only on\n\\o $copy/backup_label\nSELECT rtrim(labelfile, E'\\n') FROM pg_backup_stop(false);\n");
my $standby = kv_standby($node, 'copy');
caught_up($node, $standby);
is(tables_differ($standby, 'twin_kv', 'twin_heap', 'w, i'), '', 'the standby has the rows of the primary');
is(answer($standby, 'SELECT min(v), count(*) FROM twin_kv'), 'after|50', 'which are those after TRUNCATE');
$standby->stop('immediate');
$standby->start;
caught_up($node, $standby);
is(tables_differ($standby, 'twin_kv', 'twin_heap', 'w, i'), '', '... also after a restart');
$standby->stop('immediate');
$node->stop('immediate');
done_testing();
