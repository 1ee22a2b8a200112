-- Promise: parallel scans read every row once, see what their transaction has
-- written, and are planned where they pay.
CREATE FOREIGN TABLE p (k bigint, n int, v text) SERVER kvfdw;
INSERT INTO p SELECT g * 3, g % 10, repeat('x', g % 50) FROM generate_series(1, 60000) g;
SELECT kvfdw_flush('p');
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
-- in key order: each process returns its part in order, forward and backward
CREATE FUNCTION ordered(query text) RETURNS TABLE (rows bigint, hash text) LANGUAGE plpgsql AS $$
BEGIN RETURN QUERY EXECUTE 'SELECT count(*), md5(string_agg(s::text, '';'')) FROM (' || query || ') s'; END $$;
PREPARE in_order AS SELECT n, o.* FROM unnest(ARRAY['SELECT k, v FROM p WHERE n % 3 > 0 ORDER BY k', 'SELECT k, v FROM p WHERE n % 3 > 0 ORDER BY k DESC', 'SELECT k FROM p WHERE k BETWEEN 5000 AND 100000 AND n % 3 > 0 ORDER BY k', 'SELECT k FROM p WHERE k BETWEEN 5000 AND 100000 AND n % 3 > 0 ORDER BY k DESC OFFSET 100']) WITH ORDINALITY q (q, n), LATERAL ordered(q) o ORDER BY n;
EXPLAIN (COSTS OFF) SELECT k, v FROM p WHERE n % 3 > 0 ORDER BY k;
EXPLAIN (COSTS OFF) SELECT k, v FROM p WHERE n % 3 > 0 ORDER BY k DESC;
EXPLAIN (COSTS OFF) SELECT k FROM p WHERE k BETWEEN 5000 AND 100000 AND n % 3 > 0 ORDER BY k DESC;
EXECUTE in_order;
BEGIN;
UPDATE p SET v = 'changed' WHERE k % 7 = 0;
DELETE FROM p WHERE k % 11 = 0;
INSERT INTO p SELECT g * 3 + 2, g % 10, 'own' FROM generate_series(1, 30000) g;
EXECUTE in_order;
SET LOCAL max_parallel_workers_per_gather = 0;
EXECUTE in_order;
ROLLBACK;
SET max_parallel_workers_per_gather = 0;
EXECUTE in_order;
SET max_parallel_workers_per_gather = 2;
-- without a worker the leader takes all pieces
SET max_parallel_workers = 0;
EXECUTE in_order;
RESET max_parallel_workers;
-- sorted groups of what the workers return in order
SET enable_hashagg = off;
EXPLAIN (COSTS OFF) SELECT k, count(length(v) + n) FROM p WHERE n % 3 > 0 GROUP BY k ORDER BY k;
SELECT * FROM ordered('SELECT k, count(length(v) + n) FROM p WHERE n % 3 > 0 GROUP BY k ORDER BY k');
RESET enable_hashagg;
DROP FUNCTION ordered;
DEALLOCATE in_order;
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
-- of changed rows whose keys begin with zero bytes: the first piece has no lower end, after others that had one
CREATE FOREIGN TABLE pl (k int, v text) SERVER kvfdw OPTIONS (key 'k');
INSERT INTO pl SELECT -2147483648 + g * 1000, 'row ' || g FROM generate_series(1, 7000) g;
SELECT kvfdw_flush('pl');
ANALYZE pl;
INSERT INTO pl VALUES (-2147483648, 'new');
UPDATE pl SET v = 'changed' WHERE k = -2147483648 + 1000;
EXPLAIN (COSTS OFF) SELECT x, count(*), count(*) FILTER (WHERE v = 'new'), count(*) FILTER (WHERE v = 'changed') FROM generate_series(1, 5) x LEFT JOIN (SELECT v FROM pl OFFSET 0) s ON length(v) > x - 30 GROUP BY x ORDER BY x;
SELECT x, count(*), count(*) FILTER (WHERE v = 'new'), count(*) FILTER (WHERE v = 'changed') FROM generate_series(1, 5) x LEFT JOIN (SELECT v FROM pl OFFSET 0) s ON length(v) > x - 30 GROUP BY x ORDER BY x;
DROP FOREIGN TABLE pl;
RESET enable_material;
-- not parallel: what locks or writes rows
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE n = 1 FOR UPDATE;
-- many shards, longer keys, and a table without rows
CREATE FOREIGN TABLE ps (a text COLLATE "C", b numeric, v text) SERVER kvfdw OPTIONS (key 'a, b', shards '700');
SELECT count(*) FROM ps;
INSERT INTO ps SELECT 'key number ' || g % 100, g / 7.0, g FROM generate_series(1, 20000) g;
SELECT kvfdw_flush('ps');
ANALYZE ps;
EXPLAIN (COSTS OFF) SELECT count(*), sum(b)::int, sum(v::int) FROM ps;
SELECT count(*), sum(b)::int, sum(v::int) FROM ps;
SELECT count(*), sum(v::int) FROM ps WHERE a >= 'key number 3' AND a < 'key number 5';
DROP FOREIGN TABLE p, ps;
DROP TABLE h;
