-- Promise: a bad option is refused with the closest valid name, a bad key when the table is first used; good ones do what they say.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
\set SHOW_CONTEXT never
\set VERBOSITY default
-- Unknown names.
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (keys 'k');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shard '4');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (on_duplicates 'error');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (kye 'k');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (x '1');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (something_else '1');
CREATE FOREIGN TABLE bad (k int OPTIONS (key 'k')) SERVER kvfdw;
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (shards '4');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (host 'localhost');
ALTER FOREIGN DATA WRAPPER kvfdw OPTIONS (ADD debug 'on');
CREATE USER MAPPING FOR CURRENT_USER SERVER kvfdw OPTIONS (user 'x');
-- Invalid values.
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shards '0');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shards '65537');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shards 'four');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shards '-1');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shards '4.5');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shards '99999999999999999999');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (shards '');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (on_duplicate 'overwrite');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (wal 'some');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (compression 'zstd');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (compression '');
CREATE FOREIGN TABLE bad (k int OPTIONS (compression 'lz4')) SERVER kvfdw;
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (key '');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (key 'k,');
CREATE FOREIGN TABLE bad (k int, l int) SERVER kvfdw OPTIONS (key 'k l');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (key 'k, k');
CREATE FOREIGN TABLE bad (k int) SERVER kvfdw OPTIONS (key 'k', key 'k');
SELECT count(*) FROM pg_foreign_table;
-- Keys that the columns do not allow.
CREATE FOREIGN TABLE bad1 (k int) SERVER kvfdw OPTIONS (key 'l');
CREATE FOREIGN TABLE bad2 (k jsonb, v int) SERVER kvfdw;
CREATE FOREIGN TABLE bad3 (k int, d interval) SERVER kvfdw OPTIONS (key 'k, d');
CREATE FOREIGN TABLE bad4 (k int GENERATED ALWAYS AS (v * 2) STORED, v int) SERVER kvfdw;
CREATE FOREIGN TABLE bad5 () SERVER kvfdw;
CREATE FOREIGN TABLE bad6 (k timetz, v int) SERVER kvfdw;
-- Names in the key follow SQL's rules.
CREATE FOREIGN TABLE quoted ("My Key" int, "a,b" text COLLATE "C", v int) SERVER kvfdw OPTIONS (key '"My Key", "a,b"');
INSERT INTO quoted VALUES (1, 'x', 1);
INSERT INTO quoted VALUES (1, 'x', 2);
SELECT * FROM quoted;
CREATE FOREIGN TABLE folded (kk int, v int) SERVER kvfdw OPTIONS (key ' KK ');
INSERT INTO folded VALUES (1, 1);
INSERT INTO folded VALUES (1, 1);
DROP FOREIGN TABLE quoted, folded;
-- The default key is the first column.
CREATE FOREIGN TABLE d (a int, b int) SERVER kvfdw;
INSERT INTO d VALUES (1, 1), (2, 1);
INSERT INTO d VALUES (1, 2);
-- on_duplicate 'ignore': the old row stays, nothing is reported.
CREATE FOREIGN TABLE ign (k int, v text) SERVER kvfdw OPTIONS (on_duplicate 'ignore');
INSERT INTO ign VALUES (1, 'first'), (2, 'second');
INSERT INTO ign VALUES (1, 'again'), (3, 'third') RETURNING *;
INSERT INTO ign VALUES (4, 'x'), (4, 'y');
COPY ign FROM stdin;
1	copied
5	copied
\.
SELECT * FROM ign ORDER BY k;
EXPLAIN (COSTS OFF) INSERT INTO ign VALUES (1, 'x');
UPDATE ign SET k = 2 WHERE k = 1;
SELECT k FROM ign ORDER BY k;
-- on_duplicate 'replace': the key-value put.
CREATE FOREIGN TABLE rep (k int, v text, n int) SERVER kvfdw OPTIONS (on_duplicate 'replace');
INSERT INTO rep VALUES (1, 'first', 1), (2, 'second', 2);
INSERT INTO rep VALUES (1, 'again', NULL), (3, 'third', 3) RETURNING *;
INSERT INTO rep VALUES (4, 'x', 1), (4, 'y', 2);
COPY rep FROM stdin;
2	copied	20
5	copied	50
5	copied twice	51
\.
SELECT * FROM rep ORDER BY k;
BEGIN;
INSERT INTO rep VALUES (1, 'rolled back', 0);
SELECT v FROM rep WHERE k = 1;
ROLLBACK;
SELECT v FROM rep WHERE k = 1;
INSERT INTO rep VALUES (1, 'conflict', 0) ON CONFLICT DO NOTHING;
SELECT v FROM rep WHERE k = 1;
INSERT INTO rep SELECT k, 'from itself', n FROM rep;
SELECT count(*), count(DISTINCT v) FROM rep;
UPDATE rep SET k = 2 WHERE k = 1;
SELECT kvfdw_flush('rep');
INSERT INTO rep VALUES (1, 'over the frozen', 9);
SELECT * FROM rep ORDER BY k;
-- Options change with ALTER.
ALTER FOREIGN TABLE d OPTIONS (ADD on_duplicate 'replace');
INSERT INTO d VALUES (1, 99);
SELECT * FROM d ORDER BY a;
ALTER FOREIGN TABLE d OPTIONS (SET on_duplicate 'error');
INSERT INTO d VALUES (1, 100);
ALTER FOREIGN TABLE d OPTIONS (DROP on_duplicate, ADD shards '8');
SELECT * FROM d ORDER BY a;
-- A key that the rows do not have is refused; another change that the stored bytes do not survive at the next use.
ALTER FOREIGN TABLE d OPTIONS (ADD key 'b');
ALTER FOREIGN TABLE d ALTER COLUMN a TYPE bigint;
ALTER FOREIGN TABLE d ALTER COLUMN a TYPE bigint, ADD COLUMN n serial;
SELECT * FROM d ORDER BY a;
BEGIN;
DELETE FROM d;
ALTER FOREIGN TABLE d OPTIONS (ADD key 'b');
INSERT INTO d VALUES (3, 3), (3, 4);
SELECT * FROM d ORDER BY b;
ALTER FOREIGN TABLE d OPTIONS (SET key 'a');
ROLLBACK;
ALTER FOREIGN TABLE d ALTER COLUMN b TYPE text;
SELECT * FROM d;
UPDATE d SET b = 'x';
DELETE FROM d;
TRUNCATE d;
INSERT INTO d VALUES (1, 'text now');
SELECT * FROM d;
ALTER FOREIGN TABLE d DROP COLUMN a;
SELECT * FROM d;
ALTER FOREIGN TABLE rep RENAME COLUMN k TO key;
SELECT count(*) FROM rep;
-- Limits: the longest key and one over it.
CREATE FOREIGN TABLE lk (k text COLLATE "C", v int) SERVER kvfdw;
INSERT INTO lk VALUES (repeat('x', 2600), 1);
INSERT INTO lk VALUES (repeat('x', 3000), 2);
SELECT length(k), v FROM lk;
SELECT count(*) FROM lk WHERE k = repeat('x', 3000);
SELECT count(*) FROM lk WHERE k < repeat('x', 3000);
SELECT count(*) FROM lk WHERE k > repeat('x', 3000);
-- What core refuses on every foreign table.
CREATE FOREIGN TABLE no (k int UNIQUE) SERVER kvfdw;
CREATE INDEX ON d (b);
INSERT INTO rep VALUES (1, 'x', 1) ON CONFLICT ON CONSTRAINT rep_pkey DO UPDATE SET v = 'y';
-- Shards from 1 to many give one table.
CREATE FOREIGN TABLE s1 (k int8, v int) SERVER kvfdw OPTIONS (shards '1');
CREATE FOREIGN TABLE s1000 (k int8, v int) SERVER kvfdw OPTIONS (shards '1000');
INSERT INTO s1 SELECT hashint8extended(g, 1), g FROM generate_series(1, 3000) g;
INSERT INTO s1000 SELECT * FROM s1;
SELECT count(*) FROM (SELECT row_number() OVER () AS n, * FROM (SELECT * FROM s1 ORDER BY k) s EXCEPT SELECT row_number() OVER () AS n, * FROM (SELECT * FROM s1000 ORDER BY k) s) x;
SELECT count(*), sum(v) FROM s1000;
SELECT kvfdw_flush('s1000');
SELECT count(*), sum(v), count(*) FILTER (WHERE k < 0) = (SELECT count(*) FROM s1 WHERE k < 0) AS half FROM s1000;
-- by key, in no order, from more shards than a session remembers
SELECT count(v), sum(v) FROM (SELECT (SELECT v FROM s1000 WHERE k = s.k) AS v FROM (SELECT k FROM s1 ORDER BY v OFFSET 0) s) x;
DROP FOREIGN TABLE d, ign, rep, lk, s1, s1000;
-- Tablespaces.
SET allow_in_place_tablespaces = true;
CREATE TABLESPACE kv_space LOCATION '';
CREATE ROLE kv_space_user;
GRANT USAGE ON FOREIGN SERVER kvfdw TO kv_space_user;
CREATE SCHEMA kv_space_schema AUTHORIZATION kv_space_user;
\set VERBOSITY sqlstate
CREATE FOREIGN TABLE spaced (k int, v text) SERVER kvfdw OPTIONS (tablespace 'no_such_space');
CREATE FOREIGN TABLE spaced (k int, v text) SERVER kvfdw OPTIONS (tablespace 'pg_global');
CREATE FOREIGN TABLE spaced (k int, v text) SERVER kvfdw OPTIONS (tablespace '');
CREATE FOREIGN TABLE spaced (k int, v text) SERVER kvfdw OPTIONS (tablespace 'kv_space', wal 'none');
\set VERBOSITY default
SET ROLE kv_space_user;
CREATE FOREIGN TABLE kv_space_schema.spaced (k int, v text) SERVER kvfdw OPTIONS (tablespace 'kv_space');
CREATE FOREIGN TABLE kv_space_schema.spaced (k int, v text) SERVER kvfdw OPTIONS (tablespace 'pg_default');
ALTER FOREIGN TABLE kv_space_schema.spaced OPTIONS (SET tablespace 'kv_space');
RESET ROLE;
-- Who may create there sets it once; after that other options can be changed.
GRANT CREATE ON TABLESPACE kv_space TO kv_space_user;
SET ROLE kv_space_user;
INSERT INTO kv_space_schema.spaced SELECT g, g::text FROM generate_series(1, 3) g;
ALTER FOREIGN TABLE kv_space_schema.spaced OPTIONS (SET tablespace 'kv_space');
RESET ROLE;
REVOKE CREATE ON TABLESPACE kv_space FROM kv_space_user;
ALTER FOREIGN TABLE kv_space_schema.spaced OPTIONS (ADD wal 'none');
SET ROLE kv_space_user;
ALTER FOREIGN TABLE kv_space_schema.spaced OPTIONS (ADD wal 'keys');
SELECT * FROM kv_space_schema.spaced ORDER BY k;
RESET ROLE;
-- A tablespace in use is not dropped; its name may change.
DROP TABLESPACE kv_space;
ALTER TABLESPACE kv_space RENAME TO kv_space2;
INSERT INTO kv_space_schema.spaced VALUES (4, 'four');
TRUNCATE kv_space_schema.spaced;
SELECT count(*) FROM kv_space_schema.spaced;
SELECT spcname FROM pg_shdepend JOIN pg_tablespace t ON t.oid = refobjid WHERE refclassid = 'pg_tablespace'::regclass AND objid = 'kv_space_schema.spaced'::regclass;
-- Values leave one beside who reads and writes.
INSERT INTO kv_space_schema.spaced VALUES (5, 'five');
ALTER FOREIGN TABLE kv_space_schema.spaced OPTIONS (DROP tablespace);
INSERT INTO kv_space_schema.spaced VALUES (6, 'six');
SELECT kvfdw_compact('kv_space_schema.spaced') IS NOT NULL AS moved;
SELECT * FROM kv_space_schema.spaced ORDER BY k;
SELECT count(*) FROM pg_shdepend WHERE refclassid = 'pg_tablespace'::regclass AND objid = 'kv_space_schema.spaced'::regclass;
DROP SCHEMA kv_space_schema CASCADE;
REVOKE USAGE ON FOREIGN SERVER kvfdw FROM kv_space_user;
DROP ROLE kv_space_user;
