# Promise: a merge slot that cannot be written is tried again from time to time, and those
# of other tables are written meanwhile.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no merge slots' if heap_only();
plan skip_all => 'root may open every file' if $> == 0;
my $node = kv_cluster('unwritable', 'kvfdw.merge_buffers' => "'8MB'", 'kvfdw.freeze_delay' => '1h', checkpoint_timeout => '1h');
$node->safe_psql('postgres', kv_table($_, 'k int, v text', 'k', "wal 'none'") . "INSERT INTO $_ SELECT g, 'x' FROM generate_series(1, 1000) g; SELECT kvfdw_freeze('$_')")
  for qw(stuck other);
my $oid = $node->safe_psql('postgres', q{SELECT 'stuck'::regclass::oid});
my @logs = grep { m{/$oid/} } split /\n/, `find '${\ $node->data_dir}/kvfdw' -name '*.log'`;
cmp_ok(scalar @logs, '>', 0, 'a table has a key log');

sub device_writes { return $node->safe_psql('postgres', q{SELECT device_write_bytes FROM kvfdw_stat_tables WHERE relid = 'other'::regclass}) }
# A slot is full of deletes, and has no value that could be written first.
chmod 0, @logs;
my $from = -s $node->logfile;
$node->safe_psql('postgres', 'DELETE FROM stuck WHERE k <= 400');
wait_for('a failure', sub { slurp_file($node->logfile, $from) =~ /Permission denied/ });
pass('its log cannot be written');
my $before = device_writes();
$node->safe_psql('postgres', q{INSERT INTO other SELECT g, repeat('y', 4096) FROM generate_series(2001, 2500) g});
ok(wait_for('values of another table', sub { device_writes() - $before > 1000 * 1024 }), 'slots of other tables are written');
$from = -s $node->logfile;
wait_for('another failure', sub { slurp_file($node->logfile, $from) =~ /Permission denied/ });
pass('it is tried again');
chmod 0600, @logs;
$node->safe_psql('postgres', q{SELECT kvfdw_freeze('stuck')});
is($node->safe_psql('postgres', 'SELECT count(*), min(k) FROM stuck'), '600|401', 'and written when that is possible');
is(kv_check_clean($node, 'stuck', 'other'), '', 'the check finds nothing');
done_testing();
