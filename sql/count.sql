-- Promise: count(*) under key conditions is what heap counts, whoever counts (count_plan.sql).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE heap (a int, b text COLLATE "C", v text, PRIMARY KEY (a, b));
CREATE FOREIGN TABLE kv (a int, b text COLLATE "C", v text) SERVER kvfdw OPTIONS (key 'a, b', shards '4');
-- wrong: numbers that differ from heap's, under all kinds of conditions
CREATE FUNCTION wrong() RETURNS TABLE (condition text, kv bigint, heap bigint) LANGUAGE plpgsql AS $$
BEGIN
  FOREACH condition IN ARRAY ARRAY['true', 'a = 7', 'a < 0', 'a > 5000', 'a < -3000', 'a BETWEEN -10 AND 10', 'a = -5 OR false', 'a BETWEEN 30 AND 3000', 'a BETWEEN 700 AND 707', 'a > 10 AND a < 5', 'a = NULL', 'a IN (1, 7, 14, 700, 99999)', 'a = 7 AND b >= ''k1''', 'a IN (7, 8, 9, 11) AND b < ''k5''', '(a, b) > (1500, ''k3'')', '(a, b) <= (11, ''k4'')', 'a > 2147483647', 'a < 1e10::bigint', 'a > -10000000000', 'a <= 1499 OR a > 1499'] LOOP
    EXECUTE 'SELECT count(*) FROM kv WHERE ' || condition INTO kv;
    EXECUTE 'SELECT count(*) FROM heap WHERE ' || condition INTO heap;
    IF kv <> heap THEN RETURN NEXT; END IF;
  END LOOP;
  FOR condition, kv, heap IN SELECT 'after ' || x, (SELECT count(*) FROM kv WHERE a > x), (SELECT count(*) FROM heap WHERE a > x) FROM generate_series(-1100, 20100, 599) x LOOP
    IF kv <> heap THEN RETURN NEXT; END IF;
  END LOOP;
END $$;
SELECT * FROM wrong();
CREATE PROCEDURE both_do(statement text) LANGUAGE plpgsql AS $$ BEGIN EXECUTE format(statement, 'kv'); EXECUTE format(statement, 'heap'); END $$;
CALL both_do('INSERT INTO %I SELECT g, ''k'' || abs(g) %% 7, repeat(''x'', g %% 40) FROM generate_series(-1000, 3000) g');
SELECT count(*) FROM kv;
SELECT * FROM wrong();
SELECT kvfdw_flush('kv');
SELECT count(*) FROM kv;
SELECT * FROM wrong();
-- recent versions over a base run: new, changed, deleted, moved, and rolled back ones
CALL both_do('UPDATE %I SET v = ''new'' WHERE a %% 5 = 0');
CALL both_do('DELETE FROM %I WHERE a %% 7 = 0');
CALL both_do('UPDATE %I SET a = a + 10000 WHERE a %% 11 = 0');
CALL both_do('INSERT INTO %I SELECT g, ''again'' FROM generate_series(7, 700, 7) g');
BEGIN;
DELETE FROM kv WHERE a < 1000;
INSERT INTO kv SELECT g, 'x' FROM generate_series(20000, 20100) g;
ROLLBACK;
SELECT count(*) FROM kv;
SELECT * FROM wrong();
-- more of them than are taken at once, and a transaction's own
BEGIN;
SAVEPOINT a;
CALL both_do('DELETE FROM %I WHERE a > 100 AND a %% 3 > 0');
SELECT count(*) FROM kv;
SELECT * FROM wrong();
SAVEPOINT b;
CALL both_do('INSERT INTO %I SELECT g, ''mine'' FROM generate_series(4000, 9000) g');
SELECT count(*) FROM kv;
SELECT * FROM wrong();
ROLLBACK TO b;
SELECT * FROM wrong();
-- in unfrozen runs
SELECT kvfdw_flush('kv');
SELECT runs > 2 AS unfrozen FROM kvfdw_stat_tables WHERE relid = 'kv'::regclass;
SELECT * FROM wrong();
CALL both_do('INSERT INTO %I SELECT g, ''mine'' FROM generate_series(101, 3000) g');
CALL both_do('DELETE FROM %I WHERE a BETWEEN 2500 AND 2600');
SELECT count(*) FROM kv;
SELECT * FROM wrong();
SELECT kvfdw_flush('kv');
CALL both_do('DELETE FROM %I WHERE a BETWEEN 2400 AND 2500');
SELECT * FROM wrong();
ROLLBACK TO a;
SELECT * FROM wrong();
CALL both_do('DELETE FROM %I WHERE a BETWEEN 2300 AND 2400');
SELECT kvfdw_flush('kv');
COMMIT;
SELECT * FROM wrong();
SELECT kvfdw_flush('kv');
SELECT count(*) FROM kv;
SELECT * FROM wrong();
-- cursors keep their snapshot; a statement sees what came before it
BEGIN;
DECLARE c CURSOR FOR SELECT count(*) FROM kv;
DELETE FROM kv;
FETCH c;
FETCH c;
SELECT count(*) FROM kv;
WITH i AS (INSERT INTO kv VALUES (1, 'with') RETURNING a) SELECT (SELECT count(*) FROM kv) AS before, count(*) FROM i;
SELECT count(*) FROM kv;
CLOSE c;
TRUNCATE kv;
SELECT count(*) FROM kv;
INSERT INTO kv SELECT g, 'new' FROM generate_series(1, 10) g;
SELECT count(*) FROM kv;
ROLLBACK;
SELECT * FROM wrong();
-- parameters, generic plans, rescans
PREPARE n (int, int) AS SELECT count(*) FROM kv WHERE a BETWEEN $1 AND $2;
SET plan_cache_mode = force_generic_plan;
EXECUTE n (1, 2);
EXECUTE n (100, 1000);
EXECUTE n (NULL, 1000);
EXECUTE n (5, 4);
RESET plan_cache_mode;
DEALLOCATE n;
SELECT x.a, c.count, (SELECT count(*) FROM kv WHERE a = x.a AND b > 'a') FROM (VALUES (7), (8), (10011), (NULL), (700)) x (a), LATERAL (SELECT count(*) FROM kv WHERE a <= x.a) c;
SELECT count(*) FROM kv WHERE a > (SELECT min(a) + 10 FROM heap);
SELECT (SELECT count(*) FROM kv) - (SELECT count(*) FROM heap) AS difference, count(*) AS n FROM kv WHERE a < 10;
UPDATE heap SET v = (SELECT count(*) FROM kv WHERE kv.a < heap.a) WHERE a BETWEEN 1 AND 4 RETURNING a, v;
-- not NULL by another name: conditions that are the same after simplification
SELECT count(*) FROM kv WHERE a = 7 AND true;
SELECT count(*) FROM kv WHERE false;
SELECT count(*) FROM kv WHERE a = 8 AND 1 = (SELECT 2);
-- one key column of fixed length, the edges of its type
CREATE FOREIGN TABLE f (k bigint) SERVER kvfdw;
INSERT INTO f SELECT g FROM generate_series(-1000, 3000) g;
INSERT INTO f VALUES (-9223372036854775808), (9223372036854775807);
SELECT kvfdw_flush('f');
SELECT (SELECT count(*) FROM f), (SELECT count(*) FROM f WHERE k < 0) AS negative, (SELECT count(*) FROM f WHERE k > 0) AS positive, (SELECT count(*) FROM f WHERE k >= 9223372036854775807) AS last, (SELECT count(*) FROM f WHERE k > 9223372036854775807) AS behind, (SELECT count(*) FROM f WHERE k <= -9223372036854775808) AS first, (SELECT count(*) FROM f WHERE k > 203 AND k <= 1223) AS page;
SELECT bool_and(n = 1000) FROM generate_series(-1000, 2000, 7) x, LATERAL (SELECT count(*) AS n FROM f WHERE k >= x AND k < x + 1000) c;
-- long keys with a common beginning
CREATE FOREIGN TABLE l (k text COLLATE "C") SERVER kvfdw;
INSERT INTO l SELECT 'the same beginning ' || lpad(g::text, 5, '0') FROM generate_series(1, 5000) g;
SELECT kvfdw_flush('l');
SELECT bool_and(n = 500) FROM generate_series(1, 4500, 13) x, LATERAL (SELECT count(*) AS n FROM l WHERE k >= 'the same beginning ' || lpad(x::text, 5, '0') AND k < 'the same beginning ' || lpad((x + 500)::text, 5, '0')) c;
SELECT count(*) FROM l WHERE k > 'the same';
SELECT count(*) FROM l WHERE k < 'the same';
-- partitions, inheritance, views, privileges
CREATE TABLE parts (k int, v text) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (100) SERVER kvfdw;
CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (100) TO (200);
INSERT INTO parts SELECT g, g FROM generate_series(0, 199) g;
SELECT count(*) FROM parts;
SELECT count(*) FROM part1;
SELECT count(*) FROM parts WHERE k < 50;
SET enable_partitionwise_aggregate = on;
SELECT count(*) FROM parts;
SELECT count(*) FROM parts WHERE k < 50;
RESET enable_partitionwise_aggregate;
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM part1 WHERE k < 40;
CREATE FUNCTION leak(int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE WARNING 'saw %', $1; RETURN true; END $$;
SELECT count(*) FROM barrier;
SELECT count(*) FROM barrier WHERE leak(k) AND k > 38;
CREATE ROLE kvfdw_count_user;
GRANT SELECT ON barrier TO kvfdw_count_user;
GRANT SELECT (k) ON f TO kvfdw_count_user;
SET ROLE kvfdw_count_user;
SELECT count(*) FROM barrier;
SELECT count(*) FROM f;
SELECT count(*) FROM part1;
RESET ROLE;
DROP VIEW barrier;
DROP TABLE parts;
DROP FOREIGN TABLE kv, f, l;
DROP TABLE heap;
DROP ROLE kvfdw_count_user;
DROP FUNCTION wrong, leak;
DROP PROCEDURE both_do;
