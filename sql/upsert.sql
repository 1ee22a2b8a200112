-- Promise: INSERT … ON CONFLICT with a target inserts, updates, refuses, returns and fires what it does on a heap table with a primary key.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FOREIGN TABLE t (k int, v text, n int DEFAULT 5) SERVER kvfdw;
-- DO UPDATE: inserts, updates, both in one statement, with RETURNING.
INSERT INTO t VALUES (1, 'one', 1) ON CONFLICT (k) DO UPDATE SET v = 'no';
INSERT INTO t VALUES (1, 'uno', 10) ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO t VALUES (1, 'eins', 10), (2, 'two', 2) ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n RETURNING *;
INSERT INTO t (k, v) VALUES (3, 'three'), (2, 'deux') ON CONFLICT (k) DO UPDATE SET (v, n) = (excluded.v, excluded.n) RETURNING k, v, n, tableoid::regclass;
INSERT INTO t (k) VALUES (3) ON CONFLICT (k) DO UPDATE SET v = DEFAULT, n = DEFAULT RETURNING *;
INSERT INTO t AS x VALUES (1, 'alias', 0) ON CONFLICT (k) DO UPDATE SET v = x.v || '+' || excluded.v RETURNING x.*;
INSERT INTO t VALUES (1, 'sub', 0) ON CONFLICT (k) DO UPDATE SET v = (SELECT max(v) FROM t WHERE k > excluded.k) RETURNING *;
INSERT INTO t VALUES (2, 'rows', 7) ON CONFLICT (k) DO UPDATE SET (v, n) = (SELECT t.v || excluded.v, count(*) FROM generate_series(1, excluded.n)) RETURNING *;
INSERT INTO t VALUES (2, 'whole', 7) ON CONFLICT (k) DO UPDATE SET v = excluded::text || t::text RETURNING t;
INSERT INTO t SELECT g, 'from select ' || g, g FROM generate_series(2, 5) g ON CONFLICT (k) DO UPDATE SET v = excluded.v, n = t.n * 100 RETURNING *;
INSERT INTO t SELECT k, v, n FROM t WHERE k > 3 ON CONFLICT (k) DO UPDATE SET n = t.n + 1;
INSERT INTO t SELECT * FROM t WHERE false ON CONFLICT (k) DO UPDATE SET n = 0;
SELECT * FROM t ORDER BY k;
-- WHERE decides for each row; what it leaves out is neither returned nor counted.
INSERT INTO t VALUES (1, 'w', 1), (2, 'w', 2), (9, 'w', 9) ON CONFLICT (k) DO UPDATE SET v = 'was ' || t.v WHERE t.n > 20 RETURNING *;
\echo :ROW_COUNT
INSERT INTO t VALUES (1, 'w', 1) ON CONFLICT (k) DO UPDATE SET v = 'no' WHERE excluded.n > 1 RETURNING *;
\echo :ROW_COUNT
INSERT INTO t VALUES (1, 'w', 1) ON CONFLICT (k) DO UPDATE SET v = 'no' WHERE NULL;
INSERT INTO t VALUES (4, 'w', 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE t.* IS DISTINCT FROM excluded.* RETURNING *;
INSERT INTO t VALUES (4, 'w', 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE EXISTS (SELECT FROM t o WHERE o.k = excluded.k + 1 AND o.n > t.n) RETURNING *;
SELECT * FROM t ORDER BY k;
-- DO NOTHING with a target.
INSERT INTO t VALUES (1, 'dn', 0), (10, 'dn', 0), (10, 'again', 0) ON CONFLICT (k) DO NOTHING RETURNING *;
INSERT INTO t VALUES (1, 'dn', 0) ON CONFLICT (k) DO NOTHING;
\echo :ROW_COUNT
-- EXPLAIN, in whatever order it has its lines.
CREATE FUNCTION explained(text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF, ANALYZE) ' || $1 LOOP RETURN NEXT regexp_replace(ltrim(line), '\(actual rows=.*\)', ''); END LOOP;
END $$;
SELECT explained($$INSERT INTO t VALUES (1, 'e', 1), (2, 'e', 1), (11, 'e', 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE t.n > 10 OR excluded.n = 2$$) COLLATE "C" ORDER BY 1;
SELECT explained($$INSERT INTO t VALUES (1, 'e', 1), (12, 'e', 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v$$) COLLATE "C" ORDER BY 1;
SELECT explained($$INSERT INTO t VALUES (1, 'e', 1), (13, 'e', 1) ON CONFLICT (k) DO NOTHING$$) COLLATE "C" ORDER BY 1;
SELECT explained($$INSERT INTO t VALUES (1, 'e', 1), (14, 'e', 1) ON CONFLICT DO NOTHING$$) COLLATE "C" ORDER BY 1;
-- The target: the key's columns in any order and number, as such an index has them.
CREATE FOREIGN TABLE two (b text COLLATE "C", v int, a int) SERVER kvfdw OPTIONS (key 'a, b');
INSERT INTO two VALUES ('x', 1, 1) ON CONFLICT (a, b) DO UPDATE SET v = 100;
INSERT INTO two VALUES ('x', 2, 1) ON CONFLICT (b, a) DO UPDATE SET v = two.v + excluded.v RETURNING *;
INSERT INTO two VALUES ('x', 3, 1) ON CONFLICT (b, a, b, a, a) DO UPDATE SET v = two.v + excluded.v RETURNING *;
INSERT INTO two VALUES ('x', 4, 1) ON CONFLICT (b COLLATE "C", a) DO UPDATE SET v = two.v + excluded.v RETURNING *;
INSERT INTO two VALUES ('x', 5, 1) ON CONFLICT (b text_ops, a int4_ops) DO UPDATE SET v = two.v + excluded.v RETURNING *;
INSERT INTO two VALUES ('x', 6, 1) ON CONFLICT (b COLLATE "C" text_ops, b, a) DO UPDATE SET v = two.v + excluded.v RETURNING *;
INSERT INTO two VALUES ('x', 7, 1) ON CONFLICT (a, b) WHERE v > 1000 DO UPDATE SET v = two.v + excluded.v RETURNING *;
INSERT INTO two VALUES ('x', 8, 1) ON CONFLICT (a, b) WHERE true DO NOTHING RETURNING *;
INSERT INTO two VALUES ('x', 8, 2) ON CONFLICT (a, b) WHERE false DO NOTHING RETURNING *;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a) DO UPDATE SET v = 0;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (b) DO NOTHING;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, b, v) DO UPDATE SET v = 0;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, v) DO NOTHING;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, lower(b)) DO UPDATE SET v = 0;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, b, (a + 1)) DO NOTHING;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, b COLLATE "POSIX") DO UPDATE SET v = 0;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, b text_pattern_ops) DO UPDATE SET v = 0;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, b COLLATE "C" text_pattern_ops) DO NOTHING;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT ((two.*)) DO NOTHING;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, c) DO NOTHING;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT DO UPDATE SET v = 0;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT ON CONSTRAINT nosuch DO UPDATE SET v = 0;
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, b) DO UPDATE SET v = excluded.ctid::text;
\set VERBOSITY terse
INSERT INTO two VALUES ('x', 9, 1) ON CONFLICT (a, b) DO UPDATE SET v = 0 RETURNING excluded.v;
\set VERBOSITY default
SELECT * FROM two ORDER BY a, b;
-- One command changes a row once.
INSERT INTO t VALUES (20, 'a', 1), (20, 'b', 2) ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (1, 'c', 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO t VALUES (1, 'a', 1), (1, 'c', 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE t.n = -1;
INSERT INTO t VALUES (1, 'a', 1), (1, 'c', 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE excluded.v = 'c' RETURNING *;
INSERT INTO t VALUES (1, 'a', 1), (30, 'b', 1) ON CONFLICT (k) DO UPDATE SET k = 30;
INSERT INTO t VALUES (30, 'a', 1), (30, 'b', 1) ON CONFLICT (k) DO UPDATE SET k = 31;
INSERT INTO t VALUES (1, 'a', 1), (1, 'b', 2) ON CONFLICT (k) DO UPDATE SET k = 32 RETURNING *;
WITH w AS (UPDATE t SET n = -5 WHERE k = 1) INSERT INTO t VALUES (1, 'a', 1) ON CONFLICT (k) DO UPDATE SET v = 'both';
WITH w AS (INSERT INTO t VALUES (33, 'w', 1) ON CONFLICT (k) DO UPDATE SET v = 'one' RETURNING k) INSERT INTO t SELECT k, 'second', 1 FROM w ON CONFLICT (k) DO UPDATE SET v = 'both';
WITH w AS (DELETE FROM t WHERE k = 1 RETURNING *) INSERT INTO t SELECT k, 'after delete', n FROM w ON CONFLICT (k) DO UPDATE SET v = 'both' RETURNING *;
SELECT * FROM t ORDER BY k;
-- SET of the key: the row moves, unless there is one.
INSERT INTO t VALUES (1, 'move', 1) ON CONFLICT (k) DO UPDATE SET k = 100, v = excluded.v RETURNING *;
INSERT INTO t VALUES (100, 'stay', 1) ON CONFLICT (k) DO UPDATE SET k = excluded.k, v = excluded.v RETURNING *;
INSERT INTO t VALUES (100, 'clash', 1) ON CONFLICT (k) DO UPDATE SET k = 2;
\set VERBOSITY terse
INSERT INTO t VALUES (100, 'null', 1) ON CONFLICT (k) DO UPDATE SET k = NULL;
INSERT INTO t VALUES (NULL, 'null', 1) ON CONFLICT (k) DO UPDATE SET n = 0;
\set VERBOSITY default
INSERT INTO t VALUES (1, 'back', 1), (100, 'moves', 1) ON CONFLICT (k) DO UPDATE SET k = t.k + 1 RETURNING *;
SELECT * FROM t ORDER BY k;
-- Other keys: text, numeric that is equal and looks different, timestamps, bytea; values of all sizes.
CREATE FOREIGN TABLE txt (k text COLLATE "C", v text) SERVER kvfdw;
INSERT INTO txt VALUES ('', 'empty'), ('a', 'a'), ('a ', 'a blank') ON CONFLICT (k) DO UPDATE SET v = 'never';
INSERT INTO txt VALUES ('', ''), ('a', NULL), ('a ', repeat('long', 20000)) ON CONFLICT (k) DO UPDATE SET v = excluded.v || coalesce(txt.v, 'x') RETURNING k, length(v), left(v, 10);
INSERT INTO txt VALUES ('a ', 'short') ON CONFLICT (k) DO UPDATE SET v = excluded.v || length(txt.v);
SELECT * FROM txt ORDER BY k;
CREATE FOREIGN TABLE num (k numeric, n int) SERVER kvfdw;
INSERT INTO num VALUES (1.0, 1) ON CONFLICT (k) DO UPDATE SET n = 0;
INSERT INTO num VALUES (1.000, 2) ON CONFLICT (k) DO UPDATE SET n = num.n + excluded.n RETURNING *;
INSERT INTO num VALUES (1.00, 2) ON CONFLICT (k) DO UPDATE SET k = excluded.k RETURNING *;
INSERT INTO num VALUES ('NaN', 1), ('nan', 2) ON CONFLICT (k) DO NOTHING RETURNING *;
SELECT * FROM num ORDER BY k;
CREATE FOREIGN TABLE keyonly (a date, b bytea) SERVER kvfdw OPTIONS (key 'a, b');
INSERT INTO keyonly VALUES ('2020-01-01', '\x00'), ('2020-01-01', '\x0000') ON CONFLICT (a, b) DO UPDATE SET a = excluded.a RETURNING *;
INSERT INTO keyonly VALUES ('2020-01-01', '\x00') ON CONFLICT (a, b) DO UPDATE SET b = excluded.b RETURNING *;
INSERT INTO keyonly VALUES ('2020-01-01', '\x00') ON CONFLICT (a, b) DO UPDATE SET b = '\x01' RETURNING *;
SELECT * FROM keyonly ORDER BY a, b;
CREATE FOREIGN TABLE mid (v1 text, k int, gone int, v2 text) SERVER kvfdw OPTIONS (key 'k');
INSERT INTO mid VALUES ('a', 1, 1, 'b');
ALTER FOREIGN TABLE mid DROP COLUMN gone;
ALTER FOREIGN TABLE mid ADD COLUMN late int;
INSERT INTO mid VALUES ('c', 1, 'd', 5), ('e', 2, 'f', 6) ON CONFLICT (k) DO UPDATE SET v1 = excluded.v1 || mid.v1, late = excluded.late RETURNING *;
INSERT INTO mid VALUES ('c', 1, 'd', 5) ON CONFLICT (k) DO UPDATE SET v1 = excluded::text || mid::text RETURNING mid;
-- SET of all columns, of all but one, from what is there, from keys, from nothing.
CREATE FOREIGN TABLE al (a int, b int, x text, y int DEFAULT 7) SERVER kvfdw OPTIONS (key 'a, b');
INSERT INTO al SELECT g % 3, g, 'x' || g, g FROM generate_series(1, 9) g;
SELECT kvfdw_flush('al');
INSERT INTO al VALUES (1, 1, 'all', 100), (0, 10, 'new', 100) ON CONFLICT (a, b) DO UPDATE SET x = excluded.x, y = excluded.y RETURNING *;
INSERT INTO al VALUES (2, 2, 'one', 100) ON CONFLICT (a, b) DO UPDATE SET x = excluded.x RETURNING *;
INSERT INTO al VALUES (0, 3, 'own', 100) ON CONFLICT (a, b) DO UPDATE SET x = excluded.x, y = al.y + 1 RETURNING *;
INSERT INTO al VALUES (1, 4, 'key', 100) ON CONFLICT (a, b) DO UPDATE SET x = excluded.x || al.b, y = al.a RETURNING *;
INSERT INTO al VALUES (2, 5, 'con', 100) ON CONFLICT (a, b) DO UPDATE SET x = 'constant', y = DEFAULT RETURNING *;
INSERT INTO al VALUES (0, 6, 'sub', 100) ON CONFLICT (a, b) DO UPDATE SET x = excluded.x, y = (SELECT al.y + count(*) FROM al o) RETURNING *;
INSERT INTO al VALUES (1, 7, 'row', 100) ON CONFLICT (a, b) DO UPDATE SET (y, x) = (SELECT excluded.y, al.x || excluded.x) RETURNING *;
INSERT INTO al VALUES (1, 7, 'row', 100) ON CONFLICT (a, b) DO UPDATE SET (y, x) = (SELECT excluded.y, excluded.x) RETURNING *;
INSERT INTO al VALUES (2, 8, 'whole', 100) ON CONFLICT (a, b) DO UPDATE SET x = al::text, y = 0 RETURNING *;
INSERT INTO al VALUES (2, 8, 'oid', 100) ON CONFLICT (a, b) DO UPDATE SET x = al.tableoid::regclass, y = 0 RETURNING *;
INSERT INTO al VALUES (0, 9, 'moves', 100) ON CONFLICT (a, b) DO UPDATE SET b = 90, x = excluded.x, y = excluded.y RETURNING *;
ALTER FOREIGN TABLE al ADD COLUMN z int;
INSERT INTO al VALUES (1, 1, 'later', 1, 1), (2, 2, 'later', 2, 2) ON CONFLICT (a, b) DO UPDATE SET x = excluded.x, y = excluded.y RETURNING *;
INSERT INTO al VALUES (1, 1, 'all three', 3, 3) ON CONFLICT (a, b) DO UPDATE SET x = excluded.x, y = excluded.y, z = excluded.z RETURNING *;
SELECT * FROM al ORDER BY a, b;
DROP FOREIGN TABLE al;
-- Constraints are of the proposed row, conflict or not, and of the updated one.
CREATE FOREIGN TABLE con (k int, n int NOT NULL CHECK (n > 0), g int GENERATED ALWAYS AS (n * 2) STORED, v text DEFAULT 'def') SERVER kvfdw;
INSERT INTO con (k, n) VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET n = 7;
INSERT INTO con (k, n) VALUES (1, 3) ON CONFLICT (k) DO UPDATE SET n = con.n + excluded.n, v = con.g || ' ' || excluded.g RETURNING *;
INSERT INTO con (k, n) VALUES (1, 0) ON CONFLICT (k) DO UPDATE SET n = 8;
INSERT INTO con (k, n) VALUES (1, NULL) ON CONFLICT (k) DO UPDATE SET n = 8;
INSERT INTO con (k, n) VALUES (1, 0) ON CONFLICT (k) DO NOTHING;
INSERT INTO con (k, n) VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET n = -1;
INSERT INTO con (k, n) VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET n = NULL;
INSERT INTO con (k, n) VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET g = 1;
INSERT INTO con (k, n) VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET g = DEFAULT, n = 50 RETURNING *;
SELECT * FROM con ORDER BY k;
-- Transactions: rolled back, savepoints, own rows of earlier commands, deleted ones.
BEGIN;
INSERT INTO t VALUES (2, 'x', 0), (200, 'x', 0) ON CONFLICT (k) DO UPDATE SET v = 'rolled back';
ROLLBACK;
BEGIN;
INSERT INTO t VALUES (300, 'mine', 0);
INSERT INTO t VALUES (300, 'mine', 0) ON CONFLICT (k) DO UPDATE SET n = t.n + 1;
INSERT INTO t VALUES (300, 'mine', 0) ON CONFLICT (k) DO UPDATE SET n = t.n + 1;
SAVEPOINT s;
INSERT INTO t VALUES (300, 'mine', 0), (301, 'gone', 0) ON CONFLICT (k) DO UPDATE SET n = t.n + 100;
ROLLBACK TO s;
INSERT INTO t VALUES (300, 'mine', 0), (301, 'kept', 0) ON CONFLICT (k) DO UPDATE SET n = t.n + 1;
DELETE FROM t WHERE k = 301;
INSERT INTO t VALUES (301, 'again', 0) ON CONFLICT (k) DO UPDATE SET v = 'not deleted' RETURNING *;
SELECT * FROM t WHERE k = 300 FOR UPDATE;
INSERT INTO t VALUES (300, 'mine', 0) ON CONFLICT (k) DO UPDATE SET v = 'locked before' RETURNING *;
COMMIT;
SELECT * FROM t WHERE k >= 200 ORDER BY k;
CREATE FOREIGN TABLE self (f1 int, f2 int) SERVER kvfdw;
BEGIN ISOLATION LEVEL READ COMMITTED;
INSERT INTO self VALUES (1, 1), (1, 2) ON CONFLICT (f1) DO NOTHING;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO self VALUES (2, 1), (2, 2) ON CONFLICT (f1) DO NOTHING;
INSERT INTO self VALUES (2, 3), (1, 3) ON CONFLICT (f1) DO UPDATE SET f2 = excluded.f2 RETURNING *;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO self VALUES (3, 1), (3, 2) ON CONFLICT (f1) DO NOTHING;
INSERT INTO self VALUES (3, 3), (1, 4) ON CONFLICT (f1) DO UPDATE SET f2 = excluded.f2 RETURNING *;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO self VALUES (5, 1), (5, 2) ON CONFLICT (f1) DO UPDATE SET f2 = 0;
COMMIT;
SELECT * FROM self ORDER BY f1;
-- frozen rows
SELECT kvfdw_flush('t');
INSERT INTO t VALUES (2, 'x', 0), (300, 'x', 0), (400, 'new', 0) ON CONFLICT (k) DO UPDATE SET v = 'thawed', n = t.n + 1 RETURNING *;
-- Statements that are kept: prepared, in functions, in a cursor's loop.
PREPARE up (int, text) AS INSERT INTO t VALUES ($1, $2, 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v || '.' || t.n, n = t.n + 1 RETURNING *;
SET plan_cache_mode = force_generic_plan;
EXECUTE up (500, 'p');
EXECUTE up (500, 'p');
ALTER FOREIGN TABLE t ADD COLUMN w int;
ALTER FOREIGN TABLE t DROP COLUMN w;
EXECUTE up (500, 'q');
RESET plan_cache_mode;
DEALLOCATE up;
CREATE FUNCTION sqlup(int) RETURNS TABLE (k int, n int) LANGUAGE sql AS $$ INSERT INTO t VALUES ($1, 'sql', 1) ON CONFLICT (k) DO UPDATE SET n = t.n + 1 RETURNING t.k, t.n $$;
SELECT g, (sqlup(600 + g % 2)).* FROM generate_series(1, 5) g ORDER BY g;
CREATE FUNCTION plup(int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE r int;
BEGIN
  FOR i IN 1..8 LOOP
    INSERT INTO t AS x VALUES ($1, 'pl', 1) ON CONFLICT (k) DO UPDATE SET n = x.n + i RETURNING n INTO r;
  END LOOP;
  RETURN r;
END $$;
SELECT plup(700), plup(700);
DO $$ BEGIN
  BEGIN INSERT INTO t VALUES (800, 'a', 1), (800, 'b', 1) ON CONFLICT (k) DO UPDATE SET n = 0; EXCEPTION WHEN cardinality_violation THEN RAISE WARNING 'caught %', SQLSTATE; END;
  BEGIN INSERT INTO t VALUES (801, 'a', 1) ON CONFLICT (n) DO UPDATE SET n = 0; EXCEPTION WHEN invalid_column_reference THEN RAISE WARNING 'caught %', SQLSTATE; END;
END $$;
WITH w AS (INSERT INTO t VALUES (700, 'w', 0), (900, 'w', 0) ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *), x AS (INSERT INTO two VALUES ('x', 0, 1) ON CONFLICT (b, a) DO UPDATE SET v = 0 RETURNING *) SELECT w.*, x.* FROM w, x ORDER BY w.k;
WITH w AS (INSERT INTO t VALUES (700, 'w', 0), (901, 'w', 0) ON CONFLICT (k) DO NOTHING RETURNING *) INSERT INTO two SELECT 'x', k, 1 FROM w ON CONFLICT (b, a) DO UPDATE SET v = excluded.v RETURNING *;
WITH w AS (INSERT INTO t VALUES (700, 'w', 0) ON CONFLICT (v) DO NOTHING RETURNING *) SELECT * FROM w;
SELECT * FROM t WHERE k >= 500 ORDER BY k;
-- Views and rules.
CREATE VIEW view AS SELECT v AS name, k AS id FROM t WHERE k < 1000 WITH CASCADED CHECK OPTION;
INSERT INTO view VALUES ('view', 900), ('view', 902) ON CONFLICT (id) DO UPDATE SET name = excluded.name || '+' || view.name RETURNING *;
INSERT INTO view VALUES ('view', 900) ON CONFLICT (id) DO UPDATE SET id = 1001;
INSERT INTO view VALUES ('view', 1001) ON CONFLICT (id) DO UPDATE SET name = 'x';
INSERT INTO view VALUES ('view', 900) ON CONFLICT (name) DO UPDATE SET name = 'x';
INSERT INTO view VALUES ('view', 900) ON CONFLICT (id) DO NOTHING RETURNING *;
CREATE TABLE orders (id int, what text);
CREATE RULE also AS ON INSERT TO orders DO ALSO INSERT INTO t VALUES (NEW.id, NEW.what, 1) ON CONFLICT (k) DO UPDATE SET n = t.n + 1;
INSERT INTO orders VALUES (902, 'rule'), (903, 'rule');
INSERT INTO orders VALUES (902, 'rule'), (903, 'rule');
SELECT * FROM t WHERE k >= 900 ORDER BY k;
DROP TABLE orders;
-- Privileges.
CREATE ROLE regress_kv_upsert;
GRANT INSERT ON t TO regress_kv_upsert;
\set VERBOSITY sqlstate
SET ROLE regress_kv_upsert;
INSERT INTO t VALUES (1, 'role', 1) ON CONFLICT DO NOTHING;
INSERT INTO t VALUES (1, 'role', 1) ON CONFLICT (k) DO NOTHING;
INSERT INTO t VALUES (1, 'role', 1) ON CONFLICT (k) DO UPDATE SET v = 'role';
RESET ROLE;
GRANT SELECT (k, v), UPDATE (v) ON t TO regress_kv_upsert;
SET ROLE regress_kv_upsert;
INSERT INTO t VALUES (1, 'role', 1) ON CONFLICT (k) DO UPDATE SET v = 'role';
INSERT INTO t VALUES (1, 'role', 1) ON CONFLICT (k) DO UPDATE SET n = 1;
INSERT INTO t VALUES (1, 'role', 1) ON CONFLICT (k) DO UPDATE SET v = t.n;
RESET ROLE;
DROP OWNED BY regress_kv_upsert;
DROP ROLE regress_kv_upsert;
\set VERBOSITY default
DROP VIEW view;
DROP FOREIGN TABLE t, two, txt, num, keyonly, mid, con, self;
