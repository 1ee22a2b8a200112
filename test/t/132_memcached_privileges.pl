# Promise: clients have the privileges of a role, be it the processes' or the one whose password they know; a superuser is
# refused without a password; prefixes lead to tables; other types of columns are served or refused.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use KvTest;
use KvMemcached;

my $node = mc_cluster('privileges', 'kvfdw.memcached_flush_all' => 'on', 'kvfdw.memcached_reap_interval' => 1);
my $c = mc_connect($node);
sub ask { return mc_ask($c, $_[0]); }
sub set { my ($key, $value, $command) = @_; return ask(($command // 'set') . " $key 0 0 " . length($value) . "\r\n$value\r\n"); }
sub sql { return answer($node, $_[0]); }
my $denied = 'SERVER_ERROR 42501 permission denied for table cache';

# ---- privileges of tables ----
set('a', 1);
sql('REVOKE ALL ON cache FROM web; GRANT SELECT ON cache TO web');
is(scalar(mc_get($c, 'a')), 1, 'SELECT allows get');
is(join('|', map { set('a', 2, $_) } qw(set add replace append)) . ask("delete a\r\n") . ask("incr a 1\r\n") . ask("touch a 1\r\n"), "$denied|$denied|$denied|$denied" . $denied x 3, '... and nothing else');
sql('REVOKE ALL ON cache FROM web; GRANT INSERT ON cache TO web');
is(ask("get a\r\n"), $denied, 'INSERT does not allow get');
is(set('b', 1, 'add'), 'STORED', '... but add');
is(set('b', 1), $denied, '... nor set');
sql('REVOKE ALL ON cache FROM web; GRANT UPDATE ON cache TO web');
is(set('b', 1, 'replace') . set('b', 1), "STORED$denied", 'UPDATE allows replace');
sql('REVOKE ALL ON cache FROM web; GRANT DELETE ON cache TO web');
is(ask("delete b\r\n"), 'DELETED', 'DELETE allows delete');
is(ask("flush_all\r\n"), 'SERVER_ERROR 42501 permission denied to truncate any served table', 'flush_all is refused to who may truncate nothing');
sql("CREATE FOREIGN TABLE mine ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached 'mine:'); GRANT ALL ON mine TO web");
is(set('mine:1', 1) . ask("flush_all\r\n"), 'STOREDOK', '... and allowed for some table');
is(sql('SELECT count(*) FROM cache; SELECT count(*) FROM mine'), "1\n0", '... leaves those alone that may not be truncated');
sql('DROP FOREIGN TABLE mine; GRANT SELECT, INSERT, UPDATE ON cache TO web; REVOKE DELETE ON cache FROM web');
is(set('gone', 1), 'STORED', 'a row');
my @removals = ("touch gone -1\r\n", "gat -1 gone\r\n", "mg gone T-1\r\n", "set gone 0 -1 1\r\n2\r\n", "set gone 0 1000000000 1\r\n2\r\n", "replace gone 0 -1 1\r\n2\r\n",
	'set gone 0 0 ' . 2 * 1024 * 1024 . "\r\n" . 'x' x (2 * 1024 * 1024) . "\r\n", "ma gone T-1\r\n", "md gone I T-1\r\n", "delete gone\r\n");
is(join('|', map { ask($_) } @removals), join('|', ($denied) x @removals), 'who lacks DELETE removes no row by a time that has passed, or a value too large');
is(sql(q{SELECT count(*) FROM cache WHERE key = 'gone'}), 1, '... and it is there');
sql('GRANT DELETE ON cache TO web');
is(ask($removals[0]) . sql(q{SELECT count(*) FROM cache WHERE key = 'gone'}), 'TOUCHED0', 'who has DELETE does');
is(set('gone', 1) . ask($removals[6]) . sql(q{SELECT count(*) FROM cache WHERE key = 'gone'}), 'STOREDSERVER_ERROR object too large for cache0', '... by each');
sql(q{REVOKE ALL ON cache FROM web; GRANT INSERT ON cache TO web; INSERT INTO cache VALUES ('expired', 0, '2020-01-01', 'x')});
is(set('expired', 1, 'add') . set('unexpired', 1, 'add'), "${denied}STORED", 'INSERT allows no add over a row that has expired');
sql('GRANT UPDATE ON cache TO web');
is(set('expired', 1, 'add') . sql(q{SELECT expires IS NULL FROM cache WHERE key = 'expired'}), 'STOREDt', '... with UPDATE it does');
sql('GRANT SELECT, INSERT, UPDATE, DELETE ON cache TO web; REVOKE USAGE ON SCHEMA public FROM PUBLIC');
is(ask("get a\r\n") . set('a', 1), $denied x 2, 'without USAGE on the schema nothing is allowed');
sql('GRANT USAGE ON SCHEMA public TO PUBLIC');
is(set('a', 1), 'STORED', '... and with it all that the table allows');

# ---- statistics ----
my $no_reset = 'SERVER_ERROR 42501 permission denied for function kvfdw_stat_reset';
my $before = mc_stats($c, '')->{cmd_set};
cmp_ok($before, '>', 0, 'clients may see statistics');
is(ask("stats reset\r\n"), $no_reset, '... and reset them only with the privilege that SQL asks for');
cmp_ok(mc_stats($c, '')->{cmd_set}, '>=', $before, '... nothing was reset');
my $packets = mc_connect($node);
is(join(' ', mc_packet($packets, 0x10, 'reset')), '132 42501 permission denied for function kvfdw_stat_reset', '... in the binary protocol, too');
sql('GRANT EXECUTE ON FUNCTION kvfdw_stat_reset TO web; CREATE SCHEMA closed; ALTER EXTENSION kvfdw SET SCHEMA closed');
is(ask("stats reset\r\n"), $no_reset, '... nor without USAGE on its schema');
sql('ALTER EXTENSION kvfdw SET SCHEMA public');
is(ask("stats reset\r\n") . mc_stats($c, '')->{cmd_set}, 'RESET0', 'with both they may');
is(join(' ', mc_packet($packets, 0x10, 'reset')), '0 ', '... in the binary protocol, too');
sql('CREATE FUNCTION closed.kvfdw_stat_reset() RETURNS void LANGUAGE sql AS $$$$; REVOKE EXECUTE ON FUNCTION public.kvfdw_stat_reset FROM web');
is(ask("stats reset\r\n"), $no_reset, 'a function of the same name allows nothing');
sql('DROP SCHEMA closed CASCADE');

# ---- prefixes and types ----
sql(q{CREATE FOREIGN TABLE users (k bytea, v text) SERVER kvfdw OPTIONS (key 'k', memcached 'user:', memcached_columns 'v');
	CREATE FOREIGN TABLE vips (k varchar COLLATE "C", v bytea, f bigint) SERVER kvfdw OPTIONS (key 'k', memcached 'user:vip:', memcached_columns 'v, f');
	GRANT ALL ON users, vips TO web});
is(set('user:1', 'one') . set('user:vip:1', 'two') . set('other', 'three'), 'STORED' x 3, 'keys of three tables');
is(sql(q{SELECT convert_from(k, 'UTF8'), v FROM users}), 'user:1|one', 'one by its prefix, a bytea key and a value of type text');
is(sql(q{SELECT k, convert_from(v, 'UTF8') FROM vips}), 'user:vip:1|two', 'one by the longer prefix');
is(ask("get user:1 user:vip:1 other\r\n") . join('', map { mc_line($c) } 1 .. 6), 'VALUE user:1 0 3oneVALUE user:vip:1 0 3twoVALUE other 0 5threeEND', 'all in one get');
is(ask("set user:1 5 0 1\r\nx\r\n"), 'SERVER_ERROR 0A000 table has no column for flags', 'flags that a table does not keep');
is(ask("set user:vip:1 5 10 1\r\nx\r\n"), 'SERVER_ERROR 0A000 table has no column for expiry times', '... nor times of expiry');
is(ask("set user:vip:1 5 0 1\r\nx\r\n") . ask("get user:vip:1\r\n"), 'STOREDVALUE user:vip:1 5 1', 'flags that it keeps');
mc_line($c) for 1 .. 2;
is(ask("set user:1 0 0 2\r\n\xff\xfe\r\n"), "CLIENT_ERROR value is not text in the database's encoding", 'a text that is none');
is(ask('set user:1 0 0 ' . length($_) . "\r\n$_\r\n"), "CLIENT_ERROR value is not text in the database's encoding", '... a long one, with ' . unpack('H*', $_))
	for "abcd\0efgh", "abcdefgh\0", "abcdefg\xfe", "abcdefgh\xfe", "abc\x80defghijk";
is(ask("set user:1 0 0 10\r\nabc\xc3\xa4defgh\r\n"), 'STORED', 'one that has other letters, too');
is(ask("set abc\xffdefghi 0 0 1\r\nx\r\n"), "CLIENT_ERROR key is not text in the database's encoding", 'a long key that is none');
is(ask("set \xff\xfe 0 0 1\r\nx\r\n"), "CLIENT_ERROR key is not text in the database's encoding", 'a key that is none');
is(set('user:1', ''), 'STORED', 'an empty value');
is(scalar(mc_get($c, 'user:1')), '', '... can be had');
sql(q{INSERT INTO users VALUES ('user:null', NULL)});
is(scalar(mc_get($c, 'user:null')), '', 'NULL is an empty value');
my $long = 'x' x 3_000;
sql(qq{INSERT INTO users VALUES ('user:long', repeat('x', 3000))});
is(scalar(mc_get($c, 'user:long')), $long, 'a long value of SQL');
like(sql(q{CREATE FOREIGN TABLE bad (k text, v text) SERVER kvfdw OPTIONS (key 'k', memcached 'a b')}), qr/invalid value for option "memcached"/, 'no prefix has a space');
like(sql(q{CREATE FOREIGN TABLE bad (k text, v text) SERVER kvfdw OPTIONS (key 'k', memcached_columns 'a, b, c, d')}), qr/invalid value for option "memcached_columns"/, 'no table four columns for this');
sql(q{CREATE FOREIGN TABLE bad (k int, v text) SERVER kvfdw OPTIONS (key 'k', memcached 'bad', memcached_columns 'v'); GRANT ALL ON bad TO web});
is(set('bad', 1), 'SERVER_ERROR 0A000 table "bad" has a key that is not of type text, varchar or bytea', 'a key of another type');
is(sql(q{SELECT relname, prefix, served FROM kvfdw_memcached_tables() ORDER BY 2}), "cache||t\nbad|bad|f\nusers|user:|t\nvips|user:vip:|t", 'the view');
is(sql(q{SET ROLE web; SELECT count(*) FROM kvfdw_memcached_tables(); SELECT count(*) FROM kvfdw_stat_memcached}), "4\n3", '... is for everybody');

is(sql(q{BEGIN; SELECT count(*) FROM kvfdw_memcached_tables(); SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'cache'::regclass; COMMIT}), "4\n0", '... and leaves nothing locked');
sub reason { return sql("SELECT reason FROM kvfdw_memcached_tables() WHERE relid = '$_[0]'::regclass"); }
sql(q{CREATE DOMAIN filled AS text; CREATE FOREIGN TABLE domains (key text COLLATE "C", value bytea, more filled) SERVER kvfdw OPTIONS (key 'key', memcached 'dom:', memcached_columns 'value'); GRANT ALL ON domains TO web});
is(set('dom:1', 1), 'STORED', 'a column of a domain');
sql('ALTER DOMAIN filled ADD CHECK (VALUE IS NOT NULL) NOT VALID');
is(set('dom:2', 1), 'SERVER_ERROR 0A000 table "domains" has column "more" of a domain with constraints', '... is served without constraints only');
sql('DROP FOREIGN TABLE domains');
# (a column that is dropped leaves the option as it is; a renamed one does not)
sql(q{ALTER FOREIGN TABLE users RENAME COLUMN k TO id});
is(set('user:1', 'one'), 'STORED', 'a key column that has another name');
is(sql(q{SELECT option_value FROM pg_options_to_table((SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'users'::regclass)) WHERE option_name = 'key'}), 'id', '... which the option has, too');
sql(q{ALTER FOREIGN TABLE users RENAME COLUMN id TO k});
my $gone = '42703 table "short" has no column that its option "key" names';
sql(q{CREATE FOREIGN TABLE short (k text COLLATE "C", value bytea) SERVER kvfdw OPTIONS (key 'k', memcached 'short:', memcached_columns 'value'); GRANT ALL ON short TO web; ALTER FOREIGN TABLE short DROP COLUMN k});
is(ask("get short:1\r\n") . set('other', 'three'), "SERVER_ERROR ${gone}STORED", 'a key column that was dropped');
is(reason('short'), $gone, '... says the view, which has the other tables, too');
is(sql(q{SELECT count(*) FROM kvfdw_memcached_tables()}), '5', '... all of them');
sql(q{DROP FOREIGN TABLE short});

# ---- whose tables are served ----
sql(q{CREATE ROLE maker LOGIN; GRANT CREATE ON SCHEMA public TO maker; GRANT USAGE ON FOREIGN SERVER kvfdw TO maker});
for my $table ("taker ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached 'user')", "same ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached '')")
{
	is(sql("SET ROLE maker; CREATE FOREIGN TABLE $table"), '', 'somebody makes a table');
}
sql('SET ROLE maker; GRANT ALL ON taker, same TO web');
is(set('users', 1) . set('plain', 1) . sql(q{SELECT count(*) FROM cache WHERE key IN ('users', 'plain')}), 'STOREDSTORED2', '... and takes no keys by its prefix');
sql(q{INSERT INTO taker VALUES ('user_old', 0, '2000-01-01', 'x')});
for my $pass (1, 2)
{
	sql(qq{INSERT INTO cache VALUES ('old$pass', 0, '2000-01-01', 'x')});
	wait_for('a row to go', sub { sql(q{SELECT count(*) FROM cache WHERE key ~ '^old'}) == 0 });
}
is(sql(q{SELECT count(*) FROM taker}), 1, '... nor are its rows deleted that have expired');
is(sql(q{SET ROLE maker; ALTER FOREIGN TABLE taker RENAME COLUMN key TO id; RESET ROLE; SELECT reason ~ '^42501' FROM kvfdw_memcached_tables() WHERE relid = 'taker'::regclass}), 't', '... nor is the view in error for its sake');
sql(q{SET ROLE maker; ALTER FOREIGN TABLE taker RENAME COLUMN id TO key});
is(reason('taker') . reason('same') . reason('cache'), '42501 table "taker" has an owner who may not serve keys42501 table "same" has an owner who may not serve keys', '... as the view says');
sql('DROP FOREIGN TABLE same; GRANT maker TO web');
wait_for('its row to go', sub { sql(q{SELECT count(*) FROM taker}) == 0 });
is(set('users', 2) . sql(q{SELECT count(*) FROM taker}), 'STORED1', 'one whose role the processes have does');
sql('REVOKE maker FROM web');
is(scalar(mc_get($c, 'users')), 1, '... as long as they have it');
sql('ALTER FOREIGN TABLE taker OWNER TO CURRENT_USER');
is(scalar(mc_get($c, 'users')), 2, 'and so does a table given to a superuser');
sql('DROP FOREIGN TABLE taker');

# ---- one of many requests fails ----
sql('REVOKE SELECT ON users FROM web');
is(ask("set x 0 0 1\r\n1\r\nget user:1\r\nset y 0 0 1\r\n2\r\nset user:2 5 0 1\r\n2\r\nget x y\r\n"), 'STORED', 'where one request has an error');
is(join('|', map { mc_line($c) } 1 .. 8), 'SERVER_ERROR 42501 permission denied for table users|STORED|SERVER_ERROR 0A000 table has no column for flags|VALUE x 0 1|1|VALUE y 0 1|2|END', '... others have theirs');

# ---- a role becomes a superuser ----
sql('ALTER ROLE web SUPERUSER');
mc_send($c, "get a\r\n");
ok(mc_closed($c) && $c->{in} eq '', 'a role that has become a superuser serves nobody any more');
sql('ALTER ROLE web NOSUPERUSER');
mc_wait($node);

# ---- a role is dropped ----
my $had = sql(q{SELECT string_agg(format('GRANT %s ON %s TO web', privilege_type, table_name), ';') FROM information_schema.role_table_grants WHERE grantee = 'web'});
$c = mc_connect($node);
sql('ALTER ROLE web RENAME TO web_renamed');
ok(mc_closed($c), 'a role that has another name than the setting serves nobody, be he idle');
sql(q{ALTER ROLE web_renamed RENAME TO web; ALTER ROLE web PASSWORD 'secret'});
mc_wait($node);
$c = mc_connect($node);
is(set('a', 4) . scalar(mc_get($c, 'a')), 'STORED4', '... until it has that again');
sql("BEGIN; DROP OWNED BY web; DROP ROLE web; CREATE ROLE web LOGIN PASSWORD 'secret'; $had; COMMIT");
mc_send($c, "get a\r\n");
ok(mc_closed($c) && $c->{in} eq '', 'a role that was dropped serves nobody any more');
# a process without clients notices when one comes
ok(eval { wait_for('all processes', sub { $c = mc_connect($node); my $said = eval { set('a', 1) . scalar(mc_get($c, 'a')) } // ''; return $said eq 'STORED1' }) }, '... but the one that has its name then does');
mc_wait($node);
wait_for('the reaper', sub { sql('SELECT count(pid) FROM kvfdw_stat_memcached WHERE worker_id IS NULL') == 1 });
sql(q{INSERT INTO cache VALUES ('overdue', 0, '2000-01-01', 'x')});
wait_for('it to go', sub { sql(q{SELECT count(*) FROM cache WHERE key = 'overdue'}) == 0 });
pass('... and deletes what has expired');

sql(q{INSERT INTO cache VALUES ('overdue', 0, '2000-01-01', 'x'); REVOKE DELETE ON cache FROM web; ALTER ROLE web SUPERUSER});
my $from = -s $node->logfile;
$node->restart;
wait_for('refusals', sub { (() = slurp_file($node->logfile, $from) =~ /FATAL:  cannot serve memcached clients as superuser/g) >= 4 });
is(sql(q{SELECT count(pid) FROM kvfdw_stat_memcached; SELECT count(*) FROM cache WHERE key = 'overdue'}), "0\n1", '... nor does it delete what has expired');
sql(q{ALTER ROLE web NOSUPERUSER; GRANT DELETE ON cache TO web; DELETE FROM cache WHERE key = 'overdue'});
mc_wait($node);

# ---- passwords ----
my $log = -s $node->logfile;
$node->append_conf('postgresql.conf', "kvfdw.memcached_role = '" . $node->safe_psql('postgres', 'SELECT current_user') . "'\n");
$node->restart;
wait_for('a refusal', sub { slurp_file($node->logfile, $log) =~ /FATAL:  cannot serve memcached clients as superuser/ });
pass('a superuser is refused without authentication');
$node->append_conf('postgresql.conf', "kvfdw.memcached_auth = password\n");
$node->restart;
mc_wait($node);
$c = mc_connect($node);
like(ask("get a\r\n"), qr/^CLIENT_ERROR unauthenticated/, 'nothing without a password');
sub login { my ($user, $password) = @_; $c = mc_connect($node); return ask("set auth 0 0 " . length("$user $password") . "\r\n$user $password\r\n"); }
sql(q{CREATE ROLE reader LOGIN PASSWORD 'read'; GRANT SELECT ON cache TO reader; CREATE ROLE nologin PASSWORD 'x'; CREATE ROLE nobody LOGIN;
	CREATE ROLE late LOGIN PASSWORD 'late' VALID UNTIL '2020-01-01'; SET password_encryption = md5; CREATE ROLE old LOGIN PASSWORD 'md5'; GRANT SELECT ON cache TO old});
is(login('web', 'wrong'), 'CLIENT_ERROR authentication failure', 'a wrong password');
like(ask("get a\r\n"), qr/^CLIENT_ERROR unauthenticated/, '... allows nothing');
is(login('nologin', 'x') . login('nobody', 'x') . login('late', 'late') . login('nothere', 'x'), 'CLIENT_ERROR authentication failure' x 4, 'roles that cannot log in');
is(login('nobody', 'mock') . login('nothere', 'mock') . login('web', "secret\0x") . login("web\0x", 'secret'), 'CLIENT_ERROR authentication failure' x 4, '... whatever is said');
my $failed = time();
is(login('web', 'wrong') . ask("get a\r\n") =~ s/unauthenticated.*/unauthenticated/r, 'CLIENT_ERROR authentication failureCLIENT_ERROR unauthenticated', 'after a wrong password');
cmp_ok(time() - $failed, '>=', 1, '... nothing happens for a second');
my $refusal = qr/^\S+ (\d+):(\d+):([\d.]+) \S+ \[(\d+)\].*memcached authentication failed for role "(.*)"$/m;
wait_for('a refusal in the log', sub { login("no\x01\x1b[31m\x7f", 'x'); slurp_file($node->logfile, $log) =~ /for role "no\?\?\[31m\?"$/m });
pass('the log has no bytes of a name that would do something to who reads it');
is(login('web', 'secret'), 'STORED', 'the right one');
is(set('a', 5), 'STORED', '... allows what its role may');
is(login('reader', 'read') . scalar(mc_get($c, 'a')) . set('a', 6), "STORED5$denied", 'another role has its own privileges');
is(ask("stats reset\r\n"), $no_reset, '... to reset statistics, too');
sql('GRANT EXECUTE ON FUNCTION kvfdw_stat_reset TO reader');
is(ask("stats reset\r\n"), 'RESET', '... which may be granted');
is(login('old', 'md5') . scalar(mc_get($c, 'a')), 'STORED5', 'a password that is stored as md5');

# ---- likewise in the binary protocol, by SASL PLAIN ----
my ($get, $set, $version, $mechanisms, $auth, $step) = (0x00, 0x01, 0x0b, 0x20, 0x21, 0x22);
my $p;
sub packet { return join ' ', mc_packet($p, @_); }
sub sasl { my ($user, $password, $for) = (@_, ''); $p = mc_connect($node); return packet($auth, 'PLAIN', "$for\0$user\0$password"); }
sub value { return packet($get, 'a'); }
my $refused = '32 Auth failure.';
$p = mc_connect($node);
is(join('|', packet($mechanisms) =~ s/^0 .*\bPLAIN\b.*/PLAIN/r, packet($version) =~ s/^0 .*/version/r), 'PLAIN|version', 'SASL PLAIN is offered, and the version told');
is(value(), $refused, '... and nothing else done without a password');
ok(mc_closed($p), '... but the connection ended');
is(sasl('web', 'wrong'), $refused, 'a wrong password');
is(value(), $refused, '... allows nothing');
ok(mc_closed($p), '... and who goes on as if it did is disconnected');
is(join('|', sasl('nologin', 'x'), sasl('nobody', 'x'), sasl('nobody', ''), sasl('late', 'late'), sasl('nothere', 'x'), sasl('', '')), join('|', ($refused) x 6), 'roles that cannot log in');
is(packet($auth, 'PLAIN', "\0web\0secret") . ' ' . packet($set, 'a', 7, pack 'NN', 0, 0), '0 Authenticated 0 ', 'after a failure the right one, on the same connection');
is(value(), '0 7', '... allows what its role may');
is(packet($auth, 'PLAIN', "\0web\0wrong") . ' ' . value(), "$refused $refused", '... and a wrong one after it nothing more');
$p = mc_connect($node);
is(join('|', packet($auth, 'PLAIN'), packet($step, 'PLAIN', "\0reader\0read"), value()), '33 |0 Authenticated|0 7', 'in two steps');
is(packet($set, 'a', 8, pack 'NN', 0, 0), '132 42501 permission denied for table cache', '... with the privileges of the role alone');
$p = mc_connect($node);
is(packet($step, 'PLAIN', "\0reader\0read"), $refused, '... but not the second alone');
is(sasl('web', 'secret', 'reader') . '|' . sasl('web', 'secret', 'web'), "$refused|0 Authenticated", 'nobody acts for another');
is(packet($auth, 'CRAM-MD5', 'x') . ' ' . value(), "$refused $refused", 'who begins anew in a way that there is not has no role any more');

# ---- what is taken away later ----
is(sasl('reader', 'read') . login('reader', 'read'), '0 AuthenticatedSTORED', 'a role that two clients have');
is(value() . scalar(mc_get($c, 'a')), '0 77', '... who may read');
sql('REVOKE SELECT ON cache FROM reader');
is(value() . ask("get a\r\n"), "132 42501 permission denied for table cache$denied", '... until that is revoked');
sql('GRANT SELECT ON cache TO reader');
is(value() . scalar(mc_get($c, 'a')), '0 77', '... and again when it is granted');
sql(q{CREATE ROLE short LOGIN PASSWORD 'short'; GRANT SELECT ON cache TO short});
is(sasl('short', 'short') . login('short', 'short') . value() . scalar(mc_get($c, 'a')), '0 AuthenticatedSTORED0 77', 'another role');
sql('DROP OWNED BY short; DROP ROLE short');
is(value() . ask("get a\r\n"), "132 42501 permission denied for table cache$denied", '... may do nothing when it is dropped');
is(sasl('short', 'short') . login('short', 'short'), "${refused}CLIENT_ERROR authentication failure", '... nor log in');

# ---- many at once ----
my @guesses = map { mc_connect($node) } 1 .. 20;
for my $i (0 .. $#guesses) { my $auth = $i % 2 ? 'nothere x' : $i % 4 ? 'web secret' : 'web wrong'; mc_send($guesses[$i], 'set auth 0 0 ' . length($auth) . "\r\n$auth\r\nmn\r\n"); }
is(join('|', map { mc_line($guesses[$_]) } 0 .. 3), 'CLIENT_ERROR authentication failure|CLIENT_ERROR authentication failure|STORED|CLIENT_ERROR authentication failure', 'of many at once each has its answer');
is(mc_line($guesses[2]), 'MN', '... and goes on');
is(scalar(grep { mc_line($guesses[$_]) =~ /^(STORED|CLIENT_ERROR authentication failure)$/ } 4 .. $#guesses), $#guesses - 3, '... to the last');
@guesses = ();
my (%logged, @soon);
my $told = slurp_file($node->logfile, $log);
while ($told =~ /$refusal/g)
{
	my ($pid, $at) = ($4, 3600 * $1 + 60 * $2 + $3);
	push @soon, $at - $logged{$pid} if exists $logged{$pid} && $at - $logged{$pid} < 0.99 && $at >= $logged{$pid};
	$logged{$pid} = $at;
}
is(join(' ', scalar(keys %logged) > 0, @soon), '1', '... and the log one line in a second from each process');
sql('REVOKE CONNECT ON DATABASE postgres FROM PUBLIC');
is(login('reader', 'read'), 'CLIENT_ERROR authentication failure', 'a role that may not connect to the database');
cmp_ok(mc_stat($node, 'auth_failures'), '>=', 6, 'failures are counted');
sql('GRANT CONNECT ON DATABASE postgres TO PUBLIC');
login('web', 'secret');
my $known = $c;
$node->safe_psql('postgres', q{ALTER SYSTEM SET authentication_timeout = '1s'});
$node->reload;
$c = mc_connect($node);
ok(mc_closed($c), 'who does not authenticate does not stay');
is(scalar(mc_get($known, 'a')), 7, '... who has, does');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET authentication_timeout');
$node->reload;

# ---- one port, two servers ----
my $second = kv_cluster('second', mc_conf(mc_port($node)), before_start => sub { $_[0]->append_conf('postgresql.conf', "kvfdw.memcached_auth = password\n") });
$second->safe_psql('postgres', 'CREATE ROLE web LOGIN');
wait_for('a refusal', sub { slurp_file($second->logfile) =~ /could not listen for memcached clients at address "127.0.0.1", port \d+: Address already in use/ });
is($second->safe_psql('postgres', 'SELECT count(pid) FROM kvfdw_stat_memcached WHERE connections > 0'), 0, 'a second server does not share the port');
$second->stop;

# ---- where nothing can be served ----
$log = -s $node->logfile;
$node->append_conf('postgresql.conf', "kvfdw.memcached_database = ''\n");
$node->restart;
like(slurp_file($node->logfile, $log), qr/WARNING:  cannot serve memcached clients without a database and a role/, 'without a database there is a warning');
is(sql('SELECT count(pid) FROM kvfdw_stat_memcached'), 0, '... and no process');
$node->stop;
done_testing();
