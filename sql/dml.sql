-- Promise: INSERT, COPY, UPDATE, DELETE, TRUNCATE and RETURNING do what they do on a heap table with a primary key.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FOREIGN TABLE t (a int, b text COLLATE "C", v text, n int) SERVER kvfdw OPTIONS (key 'a, b');
-- INSERT: one row, several, none, from a query, with RETURNING.
INSERT INTO t VALUES (1, 'x', 'one', 1);
INSERT INTO t VALUES (1, 'y', 'two', 2), (2, 'x', 'three', 3), (0, '', 'zero', 0) RETURNING *;
INSERT INTO t (b, a) VALUES ('z', 9) RETURNING a, b, v IS NULL AS no_v, tableoid::regclass;
INSERT INTO t SELECT * FROM t WHERE false;
INSERT INTO t SELECT a + 10, b, v, n FROM t;
SELECT * FROM t ORDER BY a, b;
-- Duplicates: against the table, within one statement, and nothing of the statement stays.
INSERT INTO t VALUES (1, 'x', 'again', 1);
INSERT INTO t VALUES (5, 'new', 'a', 1), (5, 'new', 'b', 2);
INSERT INTO t VALUES (6, 'six', 'a', 1), (1, 'y', 'b', 2);
SELECT count(*) FROM t WHERE a IN (5, 6);
INSERT INTO t VALUES (5, 'new', 'third time', 3);
SELECT count(*) FROM t;
-- ON CONFLICT DO NOTHING.
INSERT INTO t VALUES (1, 'x', 'again', 1) ON CONFLICT DO NOTHING;
INSERT INTO t VALUES (7, 'p', 'first', 1), (1, 'y', 'no', 2), (7, 'p', 'second', 3), (7, 'q', 'q', 4) ON CONFLICT DO NOTHING RETURNING *;
INSERT INTO t SELECT g % 5 + 100, 'same', 'row ' || g, g FROM generate_series(1, 20) g ON CONFLICT DO NOTHING;
SELECT * FROM t WHERE a >= 100 ORDER BY a;
-- UPDATE: values, by key, by range, by other columns, with RETURNING, from a join.
UPDATE t SET v = 'ONE' WHERE a = 1 AND b = 'x';
UPDATE t SET n = n + 100 WHERE a = 1 RETURNING a, b, n;
UPDATE t SET v = v || '!' WHERE n > 100;
UPDATE t SET v = 'nobody' WHERE a = 12345;
UPDATE t SET v = NULL, n = NULL WHERE a = 2;
UPDATE t SET v = s.w FROM (VALUES (11, 'joined 11'), (12, 'joined 12')) AS s (a, w) WHERE t.a = s.a;
UPDATE t SET (v, n) = (SELECT 'sub', 77) WHERE a = 0;
SELECT * FROM t WHERE a < 20 ORDER BY a, b;
-- UPDATE of the key: moves, clashes, swaps, and moves of many.
UPDATE t SET a = 50 WHERE a = 0 RETURNING *;
UPDATE t SET b = 'yy' WHERE a = 1 AND b = 'y';
UPDATE t SET b = 'x' WHERE a = 1 AND b = 'yy';
UPDATE t SET a = a WHERE a = 1;
UPDATE t SET a = a + 1000;
SELECT a, b FROM t ORDER BY a, b;
UPDATE t SET a = a - 1000;
\set VERBOSITY terse
UPDATE t SET a = NULL WHERE a = 1 AND b = 'x';
\set VERBOSITY default
CREATE FOREIGN TABLE swap (k int, v text) SERVER kvfdw;
INSERT INTO swap VALUES (1, 'one'), (2, 'two');
UPDATE swap SET k = 3 - k;
SELECT * FROM swap ORDER BY k;
UPDATE swap SET k = 3 WHERE k = 1;
UPDATE swap SET k = 1 WHERE k = 2;
UPDATE swap SET k = 2 WHERE k = 3;
SELECT * FROM swap ORDER BY k;
-- a key that is left can be taken in the next command, also in the same transaction
BEGIN;
UPDATE swap SET k = 9 WHERE k = 1;
INSERT INTO swap VALUES (1, 'new one');
UPDATE swap SET k = 10 WHERE k = 1;
DELETE FROM swap WHERE k = 9;
INSERT INTO swap VALUES (9, 'nine'), (1, 'first');
SELECT * FROM swap ORDER BY k;
COMMIT;
SELECT * FROM swap ORDER BY k DESC;
-- a row that moves forward in the scan's direction is updated once
INSERT INTO swap SELECT g, 'g' FROM generate_series(100, 200) g;
UPDATE swap SET k = k + 1000, v = v || '+' WHERE k >= 100;
SELECT count(*), min(k), max(k), min(v), max(v) FROM swap WHERE k >= 100;
-- DELETE: by key, range, other columns, RETURNING, USING, all.
DELETE FROM t WHERE a = 1 AND b = 'x' RETURNING *;
DELETE FROM t WHERE a BETWEEN 100 AND 102;
DELETE FROM t WHERE v LIKE 'joined%' RETURNING a, b;
WITH d AS (DELETE FROM t USING swap WHERE t.a = swap.k RETURNING t.a, t.b, swap.v) SELECT * FROM d ORDER BY a, b;
DELETE FROM t WHERE a = 1 AND b = 'x';
SELECT * FROM t ORDER BY a, b;
INSERT INTO t VALUES (1, 'x', 'back', 1);
DELETE FROM t;
SELECT count(*) FROM t;
INSERT INTO t VALUES (1, 'x', 'back again', 1) RETURNING v;
-- System columns and whole rows.
SELECT t, tableoid::regclass FROM t;
SELECT (t).v FROM t;
UPDATE t SET v = t::text RETURNING t;
-- WITH queries that write.
WITH ins AS (INSERT INTO t SELECT g, 'w', 'cte', g FROM generate_series(20, 24) g RETURNING a), del AS (DELETE FROM t WHERE a = 1 RETURNING a) SELECT (SELECT sum(a) FROM ins) AS ins, (SELECT sum(a) FROM del) AS del, (SELECT count(*) FROM t) AS before;
WITH moved AS (DELETE FROM t WHERE a > 22 RETURNING *) INSERT INTO t SELECT a + 100, b, 'moved', n FROM moved;
SELECT * FROM t ORDER BY a;
-- the same row twice in one statement
UPDATE t SET n = n + 1 FROM (VALUES (20), (20), (20)) AS x (k) WHERE a = k;
SELECT n FROM t WHERE a = 20;
DELETE FROM t USING (VALUES (20), (20)) AS x (k) WHERE a = k;
-- COPY FROM: text, csv, columns, WHERE, duplicates, errors.
COPY t FROM stdin;
200	copy	text	1
201	copy	\N	\N
202		tab\tin	3
\.
COPY t (b, a, v) FROM stdin WITH (FORMAT csv, HEADER);
b,a,v
csv,203,"a, ""quoted"" one"
csv,204,
csv,205,""
\.
COPY t (a, b, n) FROM stdin WHERE n % 2 = 0;
300	w	1
301	w	2
302	w	3
303	w	4
\.
SELECT * FROM t WHERE a >= 200 ORDER BY a;
\set SHOW_CONTEXT never
COPY t FROM stdin;
400	first	x	1
200	copy	duplicate	1
401	third	x	1
\.
COPY t FROM stdin;
400	first	x	1
400	first	y	1
\.
COPY t FROM stdin;
402	first	x	not a number
\.
\set VERBOSITY terse
COPY t FROM stdin;
403	\N	x	1
\.
\set VERBOSITY default
\unset SHOW_CONTEXT
SELECT count(*) FROM t WHERE a >= 400;
COPY (SELECT a, b, v FROM t WHERE a BETWEEN 200 AND 210 ORDER BY a) TO stdout;
-- a COPY large enough to leave any buffer, and read back inside its transaction
CREATE TABLE source (k int, v text);
INSERT INTO source SELECT g, repeat(md5(g::text), 1 + g % 8) FROM generate_series(1, 20000) g;
CREATE FOREIGN TABLE target (k int, v text) SERVER kvfdw OPTIONS (key 'k', shards '8');
BEGIN;
INSERT INTO target SELECT * FROM source ORDER BY (k::bigint * 7919) % 20011;
SELECT count(*), sum(length(v)), count(*) FILTER (WHERE v = repeat(md5(k::text), 1 + k % 8)) AS right FROM target;
UPDATE target SET v = 'u' || v WHERE k % 10 = 0;
DELETE FROM target WHERE k % 10 = 1;
SELECT count(*), sum(length(v)) FROM target;
COMMIT;
SELECT count(*), sum(length(v)), count(*) FILTER (WHERE v = CASE WHEN k % 10 = 0 THEN 'u' ELSE '' END || repeat(md5(k::text), 1 + k % 8)) AS right FROM target;
-- TRUNCATE: empties, can be used at once, rolls back, several tables, keeps its options.
TRUNCATE target;
SELECT count(*) FROM target;
INSERT INTO target VALUES (1, 'after truncate');
INSERT INTO target VALUES (1, 'twice');
BEGIN;
TRUNCATE target, swap;
INSERT INTO target VALUES (2, 'in truncated');
SELECT * FROM target;
SELECT count(*) FROM swap;
ROLLBACK;
SELECT * FROM target;
SELECT count(*) FROM swap;
BEGIN;
INSERT INTO target VALUES (3, 'before truncate');
SAVEPOINT s;
TRUNCATE target;
INSERT INTO target VALUES (4, 'after');
ROLLBACK TO s;
SELECT * FROM target ORDER BY k;
TRUNCATE target;
TRUNCATE target;
INSERT INTO target VALUES (5, 'last');
COMMIT;
SELECT * FROM target ORDER BY k;
-- Prepared statements: generic plans, and DDL between executions.
SET plan_cache_mode = force_generic_plan;
PREPARE get (int) AS SELECT * FROM swap WHERE k = $1;
PREPARE put (int, text) AS INSERT INTO swap VALUES ($1, $2) ON CONFLICT DO NOTHING;
PREPARE span (int, int) AS SELECT count(*) FROM swap WHERE k >= $1 AND k < $2;
PREPARE many (int[]) AS SELECT k FROM swap WHERE k = ANY ($1) ORDER BY k;
EXECUTE put (5, 'five');
EXECUTE put (5, 'six');
EXECUTE get (5);
EXECUTE get (NULL);
EXECUTE span (1100, 1150);
EXECUTE span (1150, 1100);
EXECUTE span (NULL, 5);
EXECUTE many ('{1,5,9,1100,4}');
EXECUTE many (NULL);
EXECUTE many ('{NULL,5}');
PREPARE wide (bigint) AS SELECT k FROM swap WHERE k = $1;
EXECUTE wide (5);
EXECUTE wide (5000000000);
CREATE FUNCTION of_sql(int) RETURNS SETOF text LANGUAGE sql AS 'SELECT v FROM swap WHERE k = $1';
CREATE FUNCTION of_plpgsql(n int, OUT opened text, OUT later text) LANGUAGE plpgsql AS $$
DECLARE c CURSOR FOR SELECT v FROM swap WHERE k = n;
BEGIN
	OPEN c;
	n := 5;
	FETCH c INTO opened;
	CLOSE c;
	SELECT v INTO later FROM swap WHERE k = n;
END $$;
SELECT n, of_sql(n) FROM generate_series(4, 6) n;
SELECT n, f.* FROM generate_series(4, 5) n, of_plpgsql(n) f;
DROP FUNCTION of_sql, of_plpgsql;
ALTER FOREIGN TABLE swap ADD COLUMN w int;
TRUNCATE swap;
EXECUTE put (5, 'after ddl');
SELECT * FROM swap;
RESET plan_cache_mode;
DEALLOCATE ALL;
-- Joins, subqueries and aggregates with kvfdw tables on either side.
CREATE TABLE h (k int PRIMARY KEY, name text);
INSERT INTO h SELECT g, 'name ' || g FROM generate_series(1, 50) g;
CREATE FOREIGN TABLE o (id int, k int, qty int) SERVER kvfdw OPTIONS (key 'k, id');
INSERT INTO o SELECT g, g % 60, g FROM generate_series(1, 300) g;
SELECT h.k, name, sum(qty) FROM h JOIN o USING (k) WHERE h.k < 4 GROUP BY h.k, name ORDER BY h.k;
SELECT count(*) FROM o LEFT JOIN h USING (k) WHERE h.k IS NULL;
SELECT count(*) FROM o a JOIN o b ON a.k = b.k AND a.id < b.id;
SELECT h.k, x.id FROM h, LATERAL (SELECT id FROM o WHERE o.k = h.k ORDER BY id DESC LIMIT 1) x WHERE h.k IN (7, 8) ORDER BY h.k;
SELECT k FROM h WHERE EXISTS (SELECT FROM o WHERE o.k = h.k AND qty > 290) ORDER BY k;
SELECT k FROM h WHERE k NOT IN (SELECT k FROM o WHERE id < 45) AND k > 40 ORDER BY k;
SELECT count(DISTINCT k), min(k), max(k), min(id), max(id) FROM o;
SELECT DISTINCT k FROM o WHERE k > 56 ORDER BY k DESC;
SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) AS n, id FROM o WHERE k = 3 ORDER BY id LIMIT 2;
SELECT k, id FROM o ORDER BY k, id OFFSET 297;
SELECT k, id FROM o ORDER BY k DESC, id DESC LIMIT 3;
(SELECT k FROM o WHERE id = 1 UNION ALL SELECT k FROM h WHERE k = 2) ORDER BY k;
SET enable_hashjoin = off; SET enable_nestloop = off;
SELECT count(*), sum(qty) FROM h JOIN o USING (k);
RESET enable_hashjoin; RESET enable_nestloop;
SET enable_hashjoin = off; SET enable_mergejoin = off;
SELECT count(*), sum(qty) FROM h JOIN o USING (k);
RESET enable_hashjoin; RESET enable_mergejoin;
DROP FOREIGN TABLE t, swap, target, o;
DROP TABLE source, h;
-- An UPDATE of all value columns does not read the old values; one of some, or
-- one that looks at them, does.
CREATE FOREIGN TABLE upd (k int, a text, b int) SERVER kvfdw;
INSERT INTO upd SELECT g, 'a' || g, g FROM generate_series(1, 5) g;
EXPLAIN (COSTS OFF) UPDATE upd SET a = 'new', b = k WHERE k = 1;
UPDATE upd SET a = 'new', b = k WHERE k = 1 RETURNING *;
EXPLAIN (COSTS OFF) UPDATE upd SET a = 'new' WHERE k = 2;
UPDATE upd SET a = 'new' WHERE k = 2 RETURNING *;
UPDATE upd SET a = b::text, b = length(a) WHERE k = 3 RETURNING *;
UPDATE upd SET a = upd::text, b = 0 WHERE k = 4 RETURNING *;
UPDATE upd SET a = 'new', b = 0 WHERE upd = (5, 'a5', 5)::upd RETURNING *;
UPDATE upd SET k = k + 10, a = 'moved', b = 0 WHERE k = 1 RETURNING *;
UPDATE upd SET a = 'joined', b = g FROM generate_series(2, 3) g WHERE k = g AND upd.a <> '' RETURNING upd.*;
SELECT * FROM upd ORDER BY k;
DROP FOREIGN TABLE upd;
-- a generated column SET to DEFAULT keeps its value unless what it depends on changes
CREATE FOREIGN TABLE gen (k int, v int, gk int GENERATED ALWAYS AS (k * 2) STORED, gv int GENERATED ALWAYS AS (v * 3) STORED) SERVER kvfdw;
INSERT INTO gen VALUES (1, 1), (2, 2), (3, 3);
UPDATE gen SET v = 10, gv = DEFAULT, gk = DEFAULT WHERE k = 1 RETURNING *;
UPDATE gen SET k = 20, v = 20, gk = DEFAULT WHERE k = 2 RETURNING *;
UPDATE gen SET gv = DEFAULT, gk = DEFAULT WHERE k = 3 RETURNING *;
SELECT * FROM gen ORDER BY k;
DROP FOREIGN TABLE gen;
