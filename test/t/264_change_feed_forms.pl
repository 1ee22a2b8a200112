# Promise: pg_recvlogical, kvfdw_changes(), test_decoding and pgoutput show the same changes, and nothing of tables without
# the option; errors name the level and the way out; a message that a session writes is no change; a slot keeps no old versions.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvFeed;
use KvMemcached;

plan skip_all => 'of kvfdw only' if heap_only();

my $port = PostgreSQL::Test::Cluster::get_free_port();
my $node = feed_cluster('forms', mc_conf($port), 'kvfdw.memcached_flush_all' => 'on', 'kvfdw.write_buffer_size' => "'64kB'");
mc_port($node, $port);
sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sub slot { my ($name, $plugin) = @_; return sql("SELECT 1 FROM pg_create_logical_replication_slot('$name', '" . ($plugin // 'kvfdw') . "')") }

# The changes since it was last asked; and a test of them.
sub changes { my ($slot) = @_; return feed_lines($node, $slot // 'feed', 'transactions', 'off') }
sub shows { my ($what, $expected, $is) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return is("$is\n", $expected, $what) }

# ---- what is shown ----

sql(q{CREATE FOREIGN TABLE t (id bigint, v text, n numeric, b bytea, a int[], j json, f float8, d date) SERVER kvfdw OPTIONS (changes 'on');
	CREATE FOREIGN TABLE "Odd ""name" (k numeric, c char, v text) SERVER kvfdw OPTIONS (key 'c, k', changes 'on', compression 'lz4');
	CREATE FOREIGN TABLE plain (k int, v text) SERVER kvfdw;
	CREATE FOREIGN TABLE raw (k int, v text) SERVER kvfdw OPTIONS (changes 'on');
	CREATE TABLE h (id int PRIMARY KEY, v text);
	ALTER TABLE h ALTER v SET STORAGE EXTERNAL});
slot($_) for qw(feed wire);
slot('td', 'test_decoding');
sql(q{BEGIN;
	INSERT INTO t VALUES (1, E'q"\\\\\n\x01é', 1.50, '\x00ff', '{1,NULL}', E'{"a":\n1}', 'NaN', '2024-02-29');
	INSERT INTO h VALUES (1, repeat('x', 3000));
	INSERT INTO plain VALUES (1, 'p');
	SELECT FROM t FOR UPDATE;
	UPDATE h SET id = 2;
	COMMIT});
shows('values of all kinds, between changes of heap', <<'E', feed_lines($node, 'feed') =~ s/x{3000}/x…/r);
{"op":"begin"}
{"op":"put","table":"public.t","key":{"id":1},"row":{"id":1,"v":"q\"\\\n\u0001é","n":1.50,"b":"\\x00ff","a":[1,null],"j":{"a": 1},"f":"NaN","d":"2024-02-29"}}
{"op":"insert","table":"public.h","key":{"id":1},"row":{"id":1,"v":"x…"}}
{"op":"update","table":"public.h","key":{"id":1},"row":{"id":2},"unchanged":["v"]}
{"op":"commit"}
E
is(sql(q{SELECT (change->'row'->>'v') = (SELECT v FROM t) FROM kvfdw_changes('wire') WHERE change->>'table' = 'public.t'}), 't', 'kvfdw_changes() gives the value');
is(sql(q{SELECT (SELECT to_jsonb(r) FROM json_populate_record(NULL::t, change->'row') r) = (SELECT to_jsonb(t) FROM t) FROM kvfdw_changes('wire') WHERE change->>'table' = 'public.t'}), 't',
	'the row can be read back');

# arrays and rows: the same as to_json(), but no user's function is called to make them
sql(q{CREATE TYPE mood AS ENUM ('so', 'la'); CREATE DOMAIN moods AS mood[]; CREATE TYPE pair AS (a int, "m ""q" mood, b bytea, t text[]);
	CREATE FUNCTION called(mood) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a cast is called by %', current_user; END $$;
	CREATE FOREIGN TABLE parts (k int, m moods, p pair, ps pair[], n int[], f float8[], j jsonb[]) SERVER kvfdw OPTIONS (changes 'on');
	CREATE TABLE heap_parts (k int PRIMARY KEY, m moods, ps pair[]);
	INSERT INTO parts VALUES (1, '{so,NULL}', ROW(1, 'la', '\x00', ARRAY['x', E'y"\n']), ARRAY[ROW(2, NULL, NULL, '{}')::pair, NULL], '{{1,2},{3,NULL}}', '{1.5,NaN}', ARRAY['{"a": [1]}'::jsonb]); INSERT INTO parts VALUES (2);
	INSERT INTO heap_parts SELECT k, m, ps FROM parts WHERE k = 1});
is(sql(q{SELECT change->'row' FROM kvfdw_changes('wire', NULL, NULL, 'heap', 'off') WHERE change->>'table' = 'public.parts'}), sql('SELECT to_json(r) FROM parts r ORDER BY k'), 'arrays and rows are as to_json() makes them');
sql('CREATE CAST (mood AS json) WITH FUNCTION called(mood)');
sql(q{INSERT INTO parts (k, m) VALUES (3, '{so}')});
shows('a cast to json is not called', <<'E', changes());
{"op":"put","table":"public.parts","key":{"k":1},"row":{"k":1,"m":["so",null],"p":{"a":1,"m \"q":"la","b":"\\x00","t":["x","y\"\n"]},"ps":[{"a":2,"m \"q":null,"b":null,"t":[]},null],"n":[[1,2],[3,null]],"f":[1.5,"NaN"],"j":[{"a": [1]}]}}
{"op":"put","table":"public.parts","key":{"k":2},"row":{"k":2,"m":null,"p":null,"ps":null,"n":null,"f":null,"j":null}}
{"op":"insert","table":"public.heap_parts","key":{"k":1},"row":{"k":1,"m":["so",null],"ps":[{"a":2,"m \"q":null,"b":null,"t":[]},null]}}
{"op":"put","table":"public.parts","key":{"k":3},"row":{"k":3,"m":["so"],"p":null,"ps":null,"n":null,"f":null,"j":null}}
E

sql(q{INSERT INTO "Odd ""name" VALUES (1.00, 'x', repeat('a', 5000)), (-0.5, 'y', NULL);
	UPDATE "Odd ""name" SET k = 2 WHERE k = 1;
	DELETE FROM "Odd ""name" WHERE k < 0;
	TRUNCATE t, h, plain});
shows('keys without the scale of their numeric; compressed values; moved keys; TRUNCATE', <<'E', changes() =~ s/a{5000}/a…/gr);
{"op":"put","table":"public.\"Odd \"\"name\"","key":{"k":1,"c":"x"},"row":{"k":1.00,"c":"x","v":"a…"}}
{"op":"put","table":"public.\"Odd \"\"name\"","key":{"k":-0.5,"c":"y"},"row":{"k":-0.5,"c":"y","v":null}}
{"op":"delete","table":"public.\"Odd \"\"name\"","key":{"k":1,"c":"x"}}
{"op":"put","table":"public.\"Odd \"\"name\"","key":{"k":2,"c":"x"},"row":{"k":2,"c":"x","v":"a…"}}
{"op":"delete","table":"public.\"Odd \"\"name\"","key":{"k":-0.5,"c":"y"}}
{"op":"truncate","table":"public.t"}
{"op":"truncate","table":"public.h"}
E

# ---- other plugins ----

my $hex = sql(q{SELECT data FROM pg_logical_slot_get_changes('td', NULL, NULL, 'skip-empty-xacts', 'on')});
my @shown = $hex =~ /prefix: kvfdw, sz: \d+ content:([0-9a-f]+)$/mg;
is(scalar(() = $hex =~ /prefix: kvfdw/g), scalar @shown, 'test_decoding shows messages as hexadecimal text');
like($hex, qr/table public\.h: INSERT: id\[integer\]:1/, 'between the changes of heap');
sql('CREATE PUBLICATION p FOR TABLE h');
slot('pgo2', 'pgoutput');
sql(q{INSERT INTO raw VALUES (7, 'seven'); INSERT INTO h VALUES (9, 'h'); DELETE FROM raw});
my @messages = split /\n/, sql(q{SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('pgo2', NULL, NULL, 'proto_version', '1', 'publication_names', 'p', 'messages', 'on')});
my $relid = unpack 'H8', pack 'N', sql(q{SELECT 'raw'::regclass::oid});
my @bodies = map { substr($_, 2 + 2 + 16) } grep { /^4d/ } @messages;
is_deeply([ map { s/^6b7666647700//r =~ s/^[0-9a-f]{8}//r } @bodies ], [ "01500000${relid}0000000400000005" . '80000007' . unpack('H*', 'seven'), "01440000${relid}0000000400000000" . '80000007' ],
	'pgoutput sends the documented body, with key and value') or diag join "\n", @messages;
is(scalar(grep { /^49/ } @messages), 1, 'and the rows of heap');

# a large value: in parts
sql(q{SELECT pg_logical_slot_get_changes('feed', NULL, NULL), pg_logical_slot_get_binary_changes('pgo2', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')});
sql(q{INSERT INTO raw SELECT 8, string_agg(g::text, ',') FROM generate_series(1, 20000) g});
@messages = split /\n/, sql(q{SELECT encode(substr(data, 19), 'hex') FROM pg_logical_slot_get_binary_changes('pgo2', NULL, NULL, 'proto_version', '1', 'publication_names', 'p', 'messages', 'on') WHERE encode(substr(data, 1, 1), 'hex') = '4d'});
my ($whole, $flags) = ('', '');
for my $part (map { pack 'H*', $_ =~ s/^[0-9a-f]*?01(50)(0[0-3])00$relid/01${1}${2}00$relid/r } @messages)
{
	$flags .= unpack 'x2C', $part;
	$whole .= substr $part, 16;
}
like($flags, qr/^13+2$/, 'a large change is in parts');
is($whole, pack('N', 0x80000008) . join(',', 1 .. 20000), 'which give it');
is(sql(q{SELECT (change->'row'->>'v') = (SELECT v FROM raw) FROM kvfdw_changes('feed') WHERE change->>'op' = 'put'}), 't', 'and one line');

# ---- pg_recvlogical ----

my $until = sql('SELECT pg_current_wal_lsn()');
my $file = "$PostgreSQL::Test::Utils::tmp_check/wire.jsonl";
$node->run_log([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '-S', 'wire', '--start', '--no-loop', '-E', $until, '-f', $file, '-o', 'heap=off' ]);
my $lines = slurp_file($file);
is(scalar(() = $lines =~ /^\{.*\}$/mg), scalar(split /\n/, $lines), 'pg_recvlogical writes a line for each');
unlike($lines, qr/public\.h"/, 'heap off: nothing of heap');
like($lines, qr/"table":"public\.raw","key":\{"k":8\}/, 'to the end');

# ---- slots in the middle of something ----

slot('own');
my $open = $node->background_psql('postgres');
$open->query_safe("BEGIN; INSERT INTO raw VALUES (100, 'open')");
my $making = psql_writer($node, "SELECT 'made', pg_create_logical_replication_slot('late', 'kvfdw')", 'making');
wait_for('the slot to wait', sub { answer($node, q{SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'late'}) eq '1' });
sql(q{INSERT INTO raw VALUES (101, 'in between')});
$open->query_safe("INSERT INTO raw VALUES (102, 'open'); COMMIT");
$open->quit;
like(outcome($making), qr/^made/, 'a slot is made when those that run have ended');
sql(q{INSERT INTO raw VALUES (103, 'after')});
shows('it has whole transactions only', <<'E', changes('late'));
{"op":"put","table":"public.raw","key":{"k":103},"row":{"k":103,"v":"after"}}
E

# ---- definitions of their time ----

sql(q{SELECT pg_logical_slot_get_changes('feed', NULL, NULL)});
sql(q{CREATE FOREIGN TABLE gone (k int, v text, w text) SERVER kvfdw OPTIONS (changes 'on'); INSERT INTO gone VALUES (1, 'a', 'b');
	ALTER FOREIGN TABLE gone DROP COLUMN v; ALTER FOREIGN TABLE gone ADD COLUMN z int; INSERT INTO gone VALUES (2, 'c', 3);
	ALTER FOREIGN TABLE gone RENAME TO gone2; UPDATE gone2 SET z = 4 WHERE k = 1; DROP FOREIGN TABLE gone2;
	CREATE FOREIGN TABLE gone (x text) SERVER kvfdw OPTIONS (changes 'on'); INSERT INTO gone VALUES ('new');
	BEGIN; ALTER FOREIGN TABLE raw OPTIONS (SET changes 'off'); INSERT INTO raw VALUES (200); ROLLBACK; INSERT INTO raw VALUES (201);
	BEGIN; ALTER FOREIGN TABLE plain OPTIONS (ADD changes 'on'); INSERT INTO plain VALUES (1, 'seen'); SAVEPOINT s; ALTER FOREIGN TABLE plain OPTIONS (SET changes 'off'); INSERT INTO plain VALUES (2, 'not'); ROLLBACK TO s;
	INSERT INTO plain VALUES (3, 'seen'); ALTER FOREIGN TABLE plain OPTIONS (DROP changes); INSERT INTO plain VALUES (4, 'not'); COMMIT;
	ALTER FOREIGN TABLE raw ADD COLUMN r float8 DEFAULT random(); ALTER FOREIGN TABLE raw ALTER COLUMN r TYPE text});
shows('tables have the names, columns and options of their time; rows that are written again are no changes', <<'E', changes());
{"op":"put","table":"public.gone","key":{"k":1},"row":{"k":1,"v":"a","w":"b"}}
{"op":"put","table":"public.gone","key":{"k":2},"row":{"k":2,"w":"c","z":3}}
{"op":"put","table":"public.gone2","key":{"k":1},"row":{"k":1,"w":"b","z":4}}
{"op":"put","table":"public.gone","key":{"x":"new"},"row":{"x":"new"}}
{"op":"put","table":"public.raw","key":{"k":201},"row":{"k":201,"v":null}}
{"op":"put","table":"public.plain","key":{"k":1},"row":{"k":1,"v":"seen"}}
{"op":"put","table":"public.plain","key":{"k":3},"row":{"k":3,"v":"seen"}}
E

# ---- partitions, memcached ----

sql(q{CREATE TABLE parted (k int, v text) PARTITION BY RANGE (k);
	CREATE FOREIGN TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (changes 'on');
	CREATE FOREIGN TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (20) SERVER kvfdw;
	INSERT INTO parted VALUES (1, 'low'), (11, 'high'); TRUNCATE parted});
shows('partitions have options of their own', <<'E', feed_lines($node, 'feed', 'transactions', 'off', 'heap', 'off'));
{"op":"put","table":"public.low","key":{"k":1},"row":{"k":1,"v":"low"}}
{"op":"truncate","table":"public.low"}
E
sql("CREATE ROLE web LOGIN; CREATE FOREIGN TABLE cache ($mc_table) SERVER kvfdw OPTIONS (key 'key', memcached '', changes 'on'); GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON cache TO web");
mc_wait($node);
my $mc = mc_connect($node);
is(mc_ask($mc, "set a 0 0 3\r\nabc\r\n"), 'STORED', 'a memcached client writes');
is(mc_ask($mc, "delete a\r\n"), 'DELETED', 'and deletes');
is(mc_ask($mc, "flush_all\r\n"), 'OK', 'and deletes all');
shows('they are in the feed', <<'E', changes());
{"op":"put","table":"public.cache","key":{"key":"a"},"row":{"key":"a","flags":0,"expires":null,"value":"\\x616263"}}
{"op":"delete","table":"public.cache","key":{"key":"a"}}
{"op":"truncate","table":"public.cache"}
E

# ---- messages of sessions ----

sql(q{SELECT pg_logical_emit_message(true, 'kvfdw', '\x0150000000000001ffffffffffffffff'::bytea), pg_logical_emit_message(false, 'x"y', 'z')});
shows('a message that looks like a change is shown as a message', <<'E', changes());
{"op":"message","transactional":false,"prefix":"x\"y","content":"\\x7a"}
{"op":"message","transactional":true,"prefix":"kvfdw","content":"\\x0150000000000001ffffffffffffffff"}
E
sql(q{SELECT pg_replication_origin_create('there'), pg_replication_origin_session_setup('there'); INSERT INTO raw (k) VALUES (300); SELECT pg_replication_origin_session_reset(); INSERT INTO raw (k) VALUES (301)});
is(join(' ', feed_lines($node, 'feed', 'local', 'on') =~ /"key":\{"k":(\d+)\}/g), '301', 'local on: nothing that came from another server');

# ---- errors ----

sub error { my ($sql) = @_; my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql"); $err =~ s/\nLOCATION:.*//; $err =~ s/^psql:\S+ //mg; return $err }
for my $level (qw(keys none))
{
	like(error("CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (changes 'on', wal '$level')"),
		qr/ERROR:  22023: option "changes" requires option "wal" to be "full"\nDETAIL:  WAL level "$level" .*\nHINT:  Set the option "wal" to "full", or "changes" to "off"\./, "level $level: an error that says what to do");
	sql("CREATE FOREIGN TABLE at_$level (k int, v text) SERVER kvfdw OPTIONS (wal '$level'); INSERT INTO at_$level VALUES (1); ALTER FOREIGN TABLE at_$level OPTIONS (DROP wal)");
	like(error("ALTER FOREIGN TABLE at_$level OPTIONS (ADD changes 'on')"), qr/ERROR:  55000: cannot follow the changes of foreign table "at_$level"\nDETAIL:  WAL level "$level" /, 'also if the data has that level, and no option says so');
	sql("ALTER FOREIGN TABLE at_$level OPTIONS (ADD changes 'on', ADD wal 'full'); UPDATE at_$level SET v = 'now'");
	shows('with level full its changes are followed, and the rewrite is none', <<"E", changes());
{"op":"put","table":"public.at_$level","key":{"k":1},"row":{"k":1,"v":"now"}}
E
	like(error("ALTER FOREIGN TABLE at_$level OPTIONS (SET wal '$level')"), qr/22023: option "changes" requires/, 'and the level cannot be lowered');
}
like(error(q{CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (changes 'yes')}), qr/22023: invalid value for option "changes": "yes"\nHINT:  Valid values are "on" and "off"\./, 'a wrong value');
like(error(q{SELECT * FROM kvfdw_changes('td')}), qr/55000: output plugin of replication slot "td" is not "kvfdw"\nHINT:  Create a replication slot by pg_create_logical_replication_slot/, 'a slot of another plugin');
like(error(q{SELECT * FROM kvfdw_changes('nothing')}), qr/42704: replication slot "nothing" does not exist/, 'no slot');
like(error(q{SELECT * FROM kvfdw_changes('feed', NULL, NULL, 'cold', 'on')}), qr/22023: invalid option "cold"\nHINT:  Valid options are/, 'a wrong option');
like(error(q{SELECT * FROM kvfdw_changes('feed', NULL, NULL, 'heap', 'warm')}), qr/22023: invalid value for option "heap": "warm"/, 'a wrong value of one');
like(error(q{SET ROLE web; SELECT * FROM kvfdw_changes('feed')}), qr/42501/, 'a role without REPLICATION');

# ---- the slot that is not read ----

sql(q{SELECT pg_logical_slot_get_changes('feed', NULL, NULL); CREATE FOREIGN TABLE hot (k int, v text) SERVER kvfdw OPTIONS (changes 'on'); INSERT INTO hot SELECT g, 'first' FROM generate_series(1, 1000) g});
sql(q{UPDATE hot SET v = 'v' || k}) for 1 .. 5;
sql(q{CREATE TABLE catalog_change ()});
sql(q{SELECT kvfdw_flush('hot')});
is(sql(q{SELECT sum(entries) FROM kvfdw_stat_shards WHERE relname = 'hot'}), 1000, 'old versions go, although a slot has not read their changes');
is(scalar(split /\n/, changes()), 6000, 'which are in the feed nevertheless');

# ---- without wal_level = logical ----

sql(qq{SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});
$node->append_conf('postgresql.conf', "wal_level = replica\n");
$node->restart;
my $logical_on_demand = $node->safe_psql('postgres', 'SHOW server_version_num') >= 190000;
SKIP:
{
	skip 'the first slot switches it on', 3 if $logical_on_demand;
	like(error(q{CREATE FOREIGN TABLE warned (k int) SERVER kvfdw OPTIONS (changes 'on')}), qr/WARNING:  55000: "wal_level" is insufficient to follow changes\nHINT:  Set "wal_level" to "logical", and restart the server\./, 'a warning');
	like(error(q{SELECT * FROM kvfdw_changes('feed')}), qr/ERROR:  55000: "wal_level" is insufficient to follow changes\nHINT:/, 'and an error');
	my $from = sql('SELECT pg_current_wal_insert_lsn()');
	sql(q{INSERT INTO warned VALUES (1); TRUNCATE warned});
	my ($stdout) = run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $from, '-e', sql('SELECT pg_current_wal_flush_lsn()') ]);
	unlike($stdout, qr/TRUNCATE/, 'TRUNCATE logs nothing for it');
}
done_testing();
