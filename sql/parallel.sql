-- Promise: parallel scans read every row once, see what their transaction has
-- written, and are planned where they pay.
CREATE FOREIGN TABLE p (k bigint, n int, v text) SERVER kvfdw;
INSERT INTO p SELECT g * 3, g % 10, repeat('x', g % 50) FROM generate_series(1, 60000) g;
SELECT kvfdw_freeze('p');
INSERT INTO p SELECT g * 3 + 1, g % 10, repeat('y', g % 50) FROM generate_series(1, 3000) g;
DELETE FROM p WHERE k % 30 = 0;
ANALYZE p;
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT count(*), sum(k), sum(length(v)) FROM p;
SELECT count(*), sum(k), sum(length(v)) FROM p;
EXPLAIN (COSTS OFF) SELECT count(*), sum(k) FROM p WHERE k BETWEEN 30000 AND 90000 AND n > 2;
SELECT count(*), sum(k) FROM p WHERE k BETWEEN 30000 AND 90000 AND n > 2;
-- the same without
SET max_parallel_workers_per_gather = 0;
SELECT count(*), sum(k), sum(length(v)) FROM p;
SELECT count(*), sum(k) FROM p WHERE k BETWEEN 30000 AND 90000 AND n > 2;
SET max_parallel_workers_per_gather = 2;
-- a transaction's own writes, savepoints, and a cursor opened before a write
BEGIN;
DELETE FROM p WHERE k BETWEEN 3000 AND 6000;
SAVEPOINT s;
INSERT INTO p SELECT -g, 0, 'mine' FROM generate_series(1, 500) g;
SELECT count(*), sum(k), sum(length(v)) FROM p;
ROLLBACK TO s;
SELECT count(*), sum(k), sum(length(v)) FROM p;
DECLARE c CURSOR FOR SELECT count(*), sum(k) FROM p;
INSERT INTO p SELECT -g, 0, 'mine' FROM generate_series(1, 500) g;
FETCH c;
CLOSE c;
TRUNCATE p;
SELECT count(*) FROM p;
INSERT INTO p SELECT g, g, 'new' FROM generate_series(1, 5000) g;
SELECT count(*), sum(k) FROM p;
ROLLBACK;
SELECT count(*), sum(k), sum(length(v)) FROM p;
-- a join whose inner side is a point read in the workers
CREATE TABLE h AS SELECT g * 3 AS k FROM generate_series(1, 2000) g;
ANALYZE h;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT count(*), sum(length(p.v)) FROM h JOIN p USING (k);
SELECT count(*), sum(length(p.v)) FROM h JOIN p USING (k);
RESET enable_hashjoin;
RESET enable_mergejoin;
-- rescans
SET enable_material = off;
SELECT x, (SELECT count(*) FROM p WHERE n = x) FROM generate_series(0, 3) x;
EXPLAIN (COSTS OFF) SELECT * FROM generate_series(1, 3) x, LATERAL (SELECT count(*) FROM p WHERE n > 4) q;
SELECT * FROM generate_series(1, 3) x, LATERAL (SELECT count(*) FROM p WHERE n > 4) q;
RESET enable_material;
-- not parallel: what locks or writes rows
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE n = 1 FOR UPDATE;
-- many shards, longer keys, and a table without rows
CREATE FOREIGN TABLE ps (a text COLLATE "C", b numeric, v text) SERVER kvfdw OPTIONS (key 'a, b', shards '700');
SELECT count(*) FROM ps;
INSERT INTO ps SELECT 'key number ' || g % 100, g / 7.0, g FROM generate_series(1, 20000) g;
SELECT kvfdw_freeze('ps');
ANALYZE ps;
EXPLAIN (COSTS OFF) SELECT count(*), sum(b)::int, sum(v::int) FROM ps;
SELECT count(*), sum(b)::int, sum(v::int) FROM ps;
SELECT count(*), sum(v::int) FROM ps WHERE a >= 'key number 3' AND a < 'key number 5';
DROP FOREIGN TABLE p, ps;
DROP TABLE h;
