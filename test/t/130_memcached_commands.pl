# Promise: clients of memcached read and write rows over TCP and a Unix socket, with the replies that memcached gives; SQL
# sees and writes the same rows, and each of its writes changes the cas number.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMemcached;

my $dir = PostgreSQL::Test::Utils::tempdir_short();
chmod 0777, $dir;
my $node = mc_cluster('commands', 'kvfdw.memcached_socket' => "'$dir'", 'kvfdw.memcached_flush_all' => 'on', timezone => "'UTC'");
my $c = mc_connect($node);
sub ask { my ($bytes) = @_; return mc_ask($c, $bytes); }
sub set { my ($command, $key, $value, $flags, $exptime, $more) = @_; return ask("$command $key " . ($flags // 0) . ' ' . ($exptime // 0) . ' ' . length($value) . ($more // '') . "\r\n$value\r\n"); }
sub sql { return answer($node, $_[0]); }

sub commands
{
	my ($how) = @_;
	is(set('set', 'a', 'hello', 7), 'STORED', "$how: set");
	is(join('|', (mc_get($c, 'a'))[0, 1]), 'hello|7', "$how: get");
	is(set('add', 'a', 'x'), 'NOT_STORED', "$how: add of what is there");
	is(set('add', 'b', 'x'), 'STORED', "$how: add");
	is(set('replace', 'c', 'x'), 'NOT_STORED', "$how: replace of what is not there");
	is(set('replace', 'b', 'y'), 'STORED', "$how: replace");
	is(set('append', 'b', 'z'), 'STORED', "$how: append");
	is(set('prepend', 'b', 'x'), 'STORED', "$how: prepend");
	is(scalar(mc_get($c, 'b')), 'xyz', "$how: ... and what it makes");
	is(set('append', 'nil', 'z'), 'NOT_STORED', "$how: append to nothing");
	my $cas = (mc_get($c, 'b', 'gets'))[2];
	is(set('cas', 'b', 'new', 0, 0, " $cas"), 'STORED', "$how: cas");
	is(set('cas', 'b', 'newer', 0, 0, " $cas"), 'EXISTS', "$how: cas with an old number");
	is(set('cas', 'nil', 'newer', 0, 0, " $cas"), 'NOT_FOUND', "$how: cas of nothing");
	is(set('set', 'n', '41'), 'STORED', "$how: a number");
	is(ask("incr n 2\r\n"), '43', "$how: incr");
	is(ask("decr n 50\r\n"), '0', "$how: decr");
	is(ask("incr a 1\r\n"), 'CLIENT_ERROR cannot increment or decrement non-numeric value', "$how: incr of what is no number");
	is(ask("incr nil 1\r\n"), 'NOT_FOUND', "$how: incr of nothing");
	is(ask("touch a 1000\r\n"), 'TOUCHED', "$how: touch");
	is(ask("touch nil 1000\r\n"), 'NOT_FOUND', "$how: touch of nothing");
	is(join('|', map { $_ // '' } (mc_get($c, '0 a', 'gat'))[0, 1]), 'hello|7', "$how: gat");
	is(ask("get a b nil n\r\n"), 'VALUE a 7 5', "$how: many keys");
	is(join('|', map { mc_line($c) } 1 .. 6), 'hello|VALUE b 0 3|new|VALUE n 0 1|0|END', "$how: ... in their order");
	is(ask("delete a\r\n"), 'DELETED', "$how: delete");
	is(ask("delete a\r\n"), 'NOT_FOUND', "$how: delete of nothing");
	is(ask("get a\r\n"), 'END', "$how: it is gone");
	is(ask("set q 0 0 1 noreply\r\n1\r\nget q\r\n"), 'VALUE q 0 1', "$how: noreply");
	is(mc_line($c) . mc_line($c), '1END', "$how: ...");
	is(ask("bogus\r\n"), 'ERROR', "$how: an unknown command");
	is(ask("verbosity 1\r\n"), 'OK', "$how: verbosity");
	like(ask("version\r\n"), qr/^VERSION \d+\.\d+/, "$how: version");
	is(ask("mg n v\r\n") . mc_line($c), 'VA 10', "$how: meta get");
	is(ask("ms m 2\r\nhi\r\n") . ask("mg m v k\r\n") . mc_line($c), 'HDVA 2 kmhi', "$how: meta set");
	is(ask("md m\r\n") . ask("mg m\r\n") . ask("ma n\r\n"), 'HDENHD', "$how: meta delete, meta arithmetic");
	is(ask("mn\r\n"), 'MN', "$how: meta noop");
	is(ask("quit\r\n"), undef, "$how: quit");
	return;
}

commands('TCP');
sql('DELETE FROM cache');
$c = mc_unix("$dir/.s.kvfdw." . mc_port($node));
commands('Unix socket');
$c = mc_connect($node);

# ---- SQL ----
sql('DELETE FROM cache');
set('set', 's', "from \0 memcached", 5, 3600);
is(sql("SELECT key, convert_from(replace(value::text, '00', '')::bytea, 'UTF8') <> '', flags, expires > now() + '50 min' AND expires < now() + '70 min', length(value) FROM cache"),
	's|t|5|t|16', 'SQL sees the row');
sql("INSERT INTO cache VALUES ('t', 9, NULL, 'from SQL')");
is(join('|', (mc_get($c, 't'))[0, 1]), 'from SQL|9', 'a client sees what SQL inserts');
my $cas = (mc_get($c, 't', 'gets'))[2];
is((mc_get($c, 't', 'gets'))[2], $cas, 'reading changes no cas number');
sql("UPDATE cache SET value = value WHERE key = 't'");
isnt((mc_get($c, 't', 'gets'))[2], $cas, 'an UPDATE does, be it to the same');
is(set('cas', 't', 'x', 0, 0, " $cas"), 'EXISTS', '... so cas fails');
$cas = (mc_get($c, 't', 'gets'))[2];
sql("SELECT kvfdw_flush('cache')");
is((mc_get($c, 't', 'gets'))[2], $cas, 'a freeze changes none');
is(set('cas', 't', 'x', 0, 0, " $cas"), 'STORED', '... so cas succeeds');
sql("BEGIN; DELETE FROM cache WHERE key = 't'; ROLLBACK");
is(scalar(mc_get($c, 't')), 'x', 'what is rolled back was never there');
sql("DELETE FROM cache WHERE key = 't'");
is(ask("get t\r\n"), 'END', 'what SQL deletes is gone');

# ---- expiry ----
is(set('set', 'e', 'x', 0, -1), 'STORED', 'an item that expires at once');
is(ask("get e\r\n"), 'END', '... is not there');
sql("INSERT INTO cache VALUES ('old', 0, now() - interval '1 second', 'x'), ('young', 0, now() + interval '1 hour', 'y'), ('ever', 0, 'infinity', 'z')");
is(ask("get old\r\n"), 'END', 'an expired row is no item');
is(set('add', 'old', 'new'), 'STORED', '... and can be added');
is(scalar(mc_get($c, 'young')) . scalar(mc_get($c, 'ever')), 'yz', 'others are');
is(sql("SELECT expires IS NULL FROM cache WHERE key = 'old'"), 't', 'what is added anew does not expire');
ask("touch young 0\r\n");
is(sql("SELECT expires IS NULL FROM cache WHERE key = 'young'"), 't', 'touch 0: never');

# ---- many at once ----
mc_send($c, join '', map { "set p$_ 0 0 " . length($_) . "\r\n$_\r\n" } 1 .. 1000);
is(scalar(grep { mc_line($c) eq 'STORED' } 1 .. 1000), 1000, 'a thousand sets at once');
is(sql("SELECT count(*) FROM cache WHERE key ~ '^p' AND convert_from(value, 'UTF8') = substr(key, 2)"), 1000, '... are rows');
mc_send($c, 'get ' . join(' ', map { "p$_" } 1 .. 1000) . "\r\n");
is(scalar(grep { mc_line($c) eq "VALUE p$_ 0 " . length $_ and mc_line($c) eq $_ } 1 .. 1000), 1000, 'a get of a thousand keys');
is(mc_line($c), 'END', '... ends');
mc_send($c, join '', map { "set v$_ 0 0 20000\r\n" . chr(65 + $_) x 20000 . "\r\n" } 1 .. 40);
is(scalar(grep { mc_line($c) eq 'STORED' } 1 .. 40), 40, 'values that are long');
mc_send($c, 'get ' . join(' ', map { "v$_ p$_" } 1 .. 40) . "\r\n");
is(scalar(grep { mc_line($c) eq "VALUE v$_ 0 20000" and mc_line($c) eq chr(65 + $_) x 20000 and mc_line($c) eq "VALUE p$_ 0 " . length $_ and mc_line($c) eq $_ } 1 .. 40), 40, '... in one get');
is(mc_line($c), 'END', '... ends');
sql("SELECT kvfdw_flush('cache')");
cmp_ok(sql("SELECT kvfdw_split('cache')"), '>', 1, 'a table of several shards');
sql("DELETE FROM cache WHERE key ~ '^p.*3'; UPDATE cache SET value = value || ' too' WHERE key ~ '^p.*4\$'");
mc_send($c, 'get ' . join(' ', map { 'p' . $_ * 7919 % 1009 } 1 .. 1008) . "\r\n");
my @wanted = map { /4$/ ? "$_ too" : $_ } grep { $_ >= 1 && $_ <= 1000 && !/3/ } map { $_ * 7919 % 1009 } 1 .. 1008;
is(scalar(grep { mc_line($c) eq 'VALUE p' . $_ =~ s/ too//r . ' 0 ' . length $_ and mc_line($c) eq $_ } @wanted), scalar(@wanted), '... has a thousand keys, or has them no more');
is(mc_line($c), 'END', '... no others');
mc_send($c, "set i 0 0 1\r\n0\r\n" . "incr i 1\r\n" x 500);
is(join(' ', map { mc_line($c) } 0 .. 500), join(' ', 'STORED', 1 .. 500), 'each incr has its own answer');
cmp_ok(mc_stat($node, 'merged_writes'), '>', 0, '... though they were written together');

# ---- flush_all, stats ----
$node->safe_psql('postgres', 'GRANT TRUNCATE ON cache TO web');
is(ask("flush_all\r\n"), 'OK', 'flush_all');
is(sql('SELECT count(*) FROM cache'), 0, '... empties the table');
is(set('set', 'a', 'x'), 'STORED', '... which serves on');
mc_send($c, "stats\r\n");
my %stat;
while ((my $line = mc_line($c)) ne 'END') { $stat{$1} = $2 if $line =~ /^STAT (\S+) (.*)$/; }
# those of memcached 1.6.18, in its order
my @names = qw(pid uptime time version libevent pointer_size rusage_user rusage_system max_connections curr_connections total_connections rejected_connections
	connection_structures response_obj_oom response_obj_count response_obj_bytes read_buf_count read_buf_bytes read_buf_bytes_free read_buf_oom reserved_fds
	cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits
	cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory auth_cmds auth_errors bytes_read bytes_written limit_maxbytes
	accepting_conns listen_disabled_num time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes hash_is_expanding slab_reassign_rescues
	slab_reassign_chunk_rescues slab_reassign_evictions_nomem slab_reassign_inline_reclaim slab_reassign_busy_items slab_reassign_busy_deletes
	slab_reassign_running slabs_moved lru_crawler_running lru_crawler_starts lru_maintainer_juggles malloc_fails log_worker_dropped log_worker_written
	log_watcher_skipped log_watcher_sent log_watchers unexpected_napi_ids round_robin_fallback bytes curr_items total_items slab_global_page_pool
	expired_unfetched evicted_unfetched evicted_active evictions reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold
	moves_to_warm moves_within_lru direct_reclaims lru_bumps_dropped);
is(join(' ', grep { !defined $stat{$_} } @names), 'libevent response_obj_count response_obj_bytes read_buf_count read_buf_bytes read_buf_bytes_free reserved_fds',
	"stats has what memcached's has, but for what is not counted");
cmp_ok($stat{bytes}, '>', 0, '... the bytes of what is there');
cmp_ok($stat{cmd_get}, '>', 1000, '... and counts');
# programs take it apart: npm's memcached takes the three numbers at its end
is(ask("version\r\n"), 'VERSION 1.6.18', 'the version is one of memcached');
is($stat{version}, '1.6.18', '... in stats, too');
is($stat{kvfdw_version}, sql("SELECT extversion FROM pg_extension WHERE extname = 'kvfdw'"), "... where kvfdw's own is");
mc_send($c, "stats settings\r\n");
my $settings = '';
while ((my $line = mc_line($c)) ne 'END') { $settings .= "$line\n"; }
like($settings, qr/^STAT item_size_max 1048576$/m, 'stats settings');
sql('GRANT EXECUTE ON FUNCTION kvfdw_stat_reset TO web');
# when it was: memcached's own counters begin again, not those of the engine
my $when = 'SELECT count(DISTINCT stats_reset), min(stats_reset) > (SELECT stats_reset FROM kvfdw_stat_checkpointer), min(stats_reset) FROM kvfdw_stat_memcached';
my ($one, undef, $before) = split /\|/, sql($when);
is($one, 1, 'all processes have one stats_reset');
is(ask("stats reset\r\n"), 'RESET', 'stats reset');
like(sql($when), qr/^1\|t\|(?!\Q$before\E)/, '... which views tell');
is(ask("stats nonsense\r\n"), 'ERROR', 'stats of nothing');
sql('SELECT kvfdw_stat_reset()');
is(sql('SELECT count(DISTINCT stats_reset) FROM (SELECT stats_reset FROM kvfdw_stat_memcached UNION ALL SELECT stats_reset FROM kvfdw_stat_io UNION ALL SELECT stats_reset FROM kvfdw_stat_admission) s'), 1, 'kvfdw_stat_reset() is one time for all');
ask("get nothing\r\n");
ask("me nothing\r\n");
is(join(' ', @{ mc_stats($c, '') }{qw(cmd_get cmd_meta)}), '1 1', 'after a reset what follows is counted');
is(join('|', map { ask("stats detail$_\r\n") } '', ' on', ' dump', ' off'), 'CLIENT_ERROR usage: stats detail on|off|dump|OK|END|OK', 'stats detail');
my $b = mc_connect($node);
is(join('|', map { join ' ', mc_packet($b, 0x10, "detail$_") } '', ' on', ' dump', ' off'), '1 Not found|0 |0 |0 ', '... and in the binary protocol');
is(sql('SELECT relname, prefix, served, reason FROM kvfdw_memcached_tables()'), 'cache||t|', 'the view of tables');
is($node->safe_psql('postgres', "SELECT count(*), min(backend_type) FROM pg_stat_activity WHERE backend_type = 'kvfdw memcached'"), '2|kvfdw memcached', 'pg_stat_activity has the processes');
is(kv_check_clean($node, 'cache'), '', 'kvfdw_check finds nothing');
$node->stop;
ok(!-e "$dir/.s.kvfdw." . mc_port($node), 'the socket is gone when the server has stopped');
done_testing();
