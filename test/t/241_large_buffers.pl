# Promise: kvfdw.write_buffers is a share of kvfdw.memory unless it is set. A shard that is loaded alone has buffers of up
# to a quarter of it, and is written with few calls, in key order. A commit at level keys logs what its transaction has
# written to a large buffer, and no more: what is acknowledged survives a kill, at each level.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = kv_cluster('large', 'kvfdw.memory' => '128MB', 'kvfdw.write_buffers' => -1, 'kvfdw.write_buffer_size' => "'16MB'", 'kvfdw.flush_after' => '1h', checkpoint_timeout => '1h', max_wal_size => '2GB',
	restart_after_crash => 'off');
sub query { return $node->safe_psql('postgres', @_); }
is(setting($node, 'kvfdw.write_buffers'), '32MB', 'the share of kvfdw.memory');

# ---- calls, and order ----

query('CREATE TABLE heap (k int PRIMARY KEY, v text);' . join '', map { kv_table("kv_$_", 'k int, v text', 'k', "wal '$_', shards '1'") } qw(full keys none));
my @tables = map { "kv_$_" } qw(full keys none);
sub same { my ($what) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return is(join('', map { tables_differ($node, $_, 'heap', 'k') } @tables) . kv_check_clean($node, @tables), '', $what); }
query(q{INSERT INTO heap SELECT g * 7919 % 12007, rpad('#' || g * 7919 % 12007 || '#', 4096, 'x') FROM generate_series(1, 12000) g});
for my $table (@tables)
{
	query('SELECT kvfdw_stat_reset()');
	query("INSERT INTO $table SELECT * FROM heap");
	query("SELECT kvfdw_flush('$table')");
	my ($calls, $bytes) = split /\|/, query(q{SELECT calls, bytes FROM kvfdw_stat_io WHERE kind = 'value write'});
	cmp_ok($bytes / $calls, '>', 512 * 1024, "$table: the mean write is larger than half a megabyte");
	cmp_ok($bytes, '<', 12000 * 4096 * 1.1, "$table: each value is written once");
}
same('loaded');

# ---- commits of several sessions to the same large buffer ----

my @session = map { $node->background_psql('postgres') } 0 .. 2;
my $k = 100000;
for my $round (1 .. 40)
{
	for my $s (0 .. 2)
	{
		my @keys = map { ++$k } 1 .. 1 + $round % 3;
		my $rows = join ',', map { "($_, repeat('$round', " . ($_ % 700) . '))' } @keys;
		$session[$s]->query_safe('BEGIN') if $round % 4 == 1;
		$session[$s]->query_safe("INSERT INTO $_ VALUES $rows") for 'heap', @tables;
		$session[$s]->query_safe("UPDATE $_ SET v = v || 'u' WHERE k = $keys[0]") for 'heap', @tables;
		$session[$s]->query_safe('COMMIT') if $round % 4 == 0;
	}
}
# one with a value that is no part of a buffer, and one that has written much before the buffer
$session[0]->query_safe("INSERT INTO $_ SELECT 900000 + g, repeat('large', 100000) FROM generate_series(1, 3) g") for 'heap', @tables;
$session[1]->query_safe('BEGIN');
$session[1]->query_safe("INSERT INTO $_ SELECT 910000 + g, repeat(md5(g::text), 100) FROM generate_series(1, 6000) g") for 'heap', @tables;
$session[1]->query_safe('COMMIT');
$_->quit for @session;
same('many transactions in one buffer');
kill_all($node);
$node->start;
same('and after a kill');

# ---- refusals ----

my ($code, $out, $err) = $node->psql('postgres', "ALTER SYSTEM SET kvfdw.write_buffers = '3MB'");
like($err, qr/invalid value for parameter "kvfdw.write_buffers": 3/, 'too little is refused');
$node->stop;
done_testing();
