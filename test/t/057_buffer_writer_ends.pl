# Promise: a buffer writer that an ERROR ends during its writes leaves nothing undone: the next
# one takes over the write buffers that it had claimed, and no others. What was acknowledged can
# be read in between, is written, and is there after SIGKILL.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvMemcached;
use KvTest;

plan skip_all => 'heap has no write buffers' if heap_only();
my $node = mc_cluster('writer_ends', 'kvfdw.memcached_workers' => 1, 'kvfdw.write_buffer_size' => '64kB', 'kvfdw.flush_after' => '1h');
plan skip_all => 'needs fault injection' unless has_faults($node);
# what the workers are told to stop at is not for the sessions
$ENV{PGOPTIONS} = '-c kvfdw.stop_points= -c statement_timeout=60s';
my @levels = qw(full keys none);
my $ended = qr/ERROR: +stopped at "buffer_before_write"/;
sub sql { return answer($node, $_[0]); }
sub times_ended { my @ends = slurp_file($node->logfile) =~ /$ended/g; return scalar @ends; }
sub stored { my ($c, $name, $n, $byte) = @_; mc_send($c, join '', map { "set $name$_ 0 0 4000\r\n" . $byte x 4000 . "\r\n" } 1 .. $n); return scalar grep { mc_line($c) eq 'STORED' } 1 .. $n; }
sub of_cache { return sql(q{SELECT left(key, 1), count(*), count(*) FILTER (WHERE value = decode(repeat(CASE WHEN key ~ '^a' THEN '61' ELSE '62' END, 4000), 'hex')) FROM cache GROUP BY 1 ORDER BY 1}); }
sub of_tables { return sql(join ' UNION ALL ', map { "(SELECT '$_', count(*), md5(string_agg(k || v, ' ' ORDER BY k)) FROM t_$_)" } @levels); }

sql(kv_table("t_$_", 'k int, v text', 'k', "wal '$_'")) for @levels;
my $c = mc_connect($node);

# It is about to write a third write buffer, and has not looked what came of two writes; one that a session writes itself is no write buffer of its.
worker_stop_points($node, 'buffer_before_write=wait');
is(stored($c, 'a', 200, 'a'), 200, 'clients store values for a buffer writer that stands still');
stopped($node, 'buffer_before_write');
sql("INSERT INTO t_$_ SELECT g, repeat('$_', 500) FROM generate_series(1, 100) g") for @levels;
my $freeze = psql_writer($node, q{SET kvfdw.stop_points = 'buffer_before_log=wait'; SELECT kvfdw_flush('t_none');}, 'freeze');
stopped($node, 'buffer_before_log');
step_on($node, 'buffer_before_write') for 1, 2;
worker_stop_points($node, 'buffer_before_write=error');
go_on($node, 'buffer_before_write');
wait_for('the end of the buffer writer', sub { times_ended() > 0 });
my ($cache, $tables) = ("a|200|200", of_tables());
is(of_cache(), $cache, 'when it has ended by an ERROR, what was acknowledged is read');

# as often as it begins
is(stored($c, 'b', 20, 'b'), 20, '... and clients go on');
is(sql(q{INSERT INTO t_full SELECT g, repeat('more', 1000) FROM generate_series(1001, 2500) g}), '', 'a session that needs slots meanwhile writes some itself');
wait_for('another end', sub { times_ended() > 1 });
($cache, $tables) = ("a|200|200\nb|20|20", of_tables());
is(of_cache(), $cache, '... and nothing is lost after another end');

worker_stop_points($node, '');
must_be($node, sql("SELECT kvfdw_flush('$_')"), '', "the next one writes what those before it had claimed of $_") for qw(cache t_full t_keys);
must_be($node, go_on($node, 'buffer_before_log', $freeze), "\n", '... but not what a session had');
is(of_cache(), $cache, 'all values are there');
is(of_tables(), $tables, '... at each level');
is(kv_check_clean($node, 'cache', map { "t_$_" } @levels), '', 'kvfdw_check finds nothing');
kill_all($node);
restart_killed($node);
is(of_cache(), $cache, '... also after SIGKILL of all');
is(of_tables(), $tables, '... at each level');
is(kv_check_clean($node, 'cache', map { "t_$_" } @levels), '', 'kvfdw_check finds nothing then');
$node->stop;
done_testing();
