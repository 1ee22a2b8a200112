-- Promise: count(*) under key conditions is counted in the index, on servers whose
-- EvalPlanQual can have that; on others (count_plan_1.out) never.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE heap (a int, b text COLLATE "C", v text, PRIMARY KEY (a, b));
CREATE FOREIGN TABLE kv (a int, b text COLLATE "C", v text) SERVER kvfdw OPTIONS (key 'a, b', shards '4');
-- what is counted so
CREATE FUNCTION access_of(query text, options text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$ DECLARE j jsonb; BEGIN EXECUTE 'EXPLAIN (FORMAT JSON' || options || ') ' || query INTO j; RETURN jsonb_path_query_first(j, '$.**.Access') ->> 0; END $$;
SELECT query, access_of(query) FROM unnest(ARRAY[
  'SELECT count(*) FROM kv', 'SELECT count(1), count(a), count(b), count(*) FROM kv', 'SELECT count(*) + 1 FROM kv LIMIT 1', 'SELECT 1 FROM kv WHERE a > 0 HAVING count(*) > 1',
  'SELECT count(*) FROM kv WHERE a = 5', 'SELECT count(*) FROM kv WHERE a IN (1, 3, 5) AND b > ''x''', 'SELECT count(*) FROM kv WHERE (a, b) > (5, ''x'')', 'SELECT count(*) FROM kv WHERE a = 5 AND b = ''x''',
  'SELECT count(*) FROM kv WHERE a IS NOT NULL', 'SELECT count(*) FROM kv WHERE a > 5 AND v <> ''x''', 'SELECT count(*) FROM kv WHERE a % 5 = 0', 'SELECT count(*) FROM kv WHERE b > ''x''', 'SELECT count(*) FROM kv WHERE a = 5 AND now() > ''2020-01-01''',
  'SELECT count(v) FROM kv', 'SELECT count(NULL) FROM kv', 'SELECT count(a + 1) FROM kv', 'SELECT count(DISTINCT a) FROM kv', 'SELECT count(*) FILTER (WHERE a > 1) FROM kv', 'SELECT count(*), max(a) FROM kv',
  'SELECT a, count(*) FROM kv GROUP BY a', 'SELECT count(*) FROM kv GROUP BY ()', 'SELECT count(*) FROM kv GROUP BY ROLLUP (a)', 'SELECT count(*) OVER () FROM kv', 'SELECT DISTINCT count(*) FROM kv', 'SELECT sum(count(*)) OVER () FROM kv',
  'SELECT count(*) FROM kv x LEFT JOIN heap h ON h.a = x.a AND h.b = x.b', 'SELECT count(*) FROM kv x JOIN kv y USING (a)', 'SELECT count(*) FROM (SELECT * FROM kv LIMIT 5) s', 'SELECT count(*) FROM (SELECT * FROM kv WHERE a > 5) s', 'SELECT count(*) FROM (SELECT * FROM kv FOR UPDATE) s',
  'SELECT x, (SELECT count(*) FROM kv WHERE a > x) FROM generate_series(1, 3) x', 'SELECT * FROM heap, LATERAL (SELECT count(*) FROM kv WHERE a = heap.a) c', 'SELECT count(*) FROM kv WHERE a > (SELECT min(a) FROM heap)'
]) WITH ORDINALITY q (query, n) ORDER BY n;
EXPLAIN (COSTS OFF) SELECT count(*) FROM kv;
EXPLAIN (COSTS OFF, VERBOSE) SELECT count(*) * 2 AS twice, count(b) FROM kv AS "K" WHERE a BETWEEN 5 AND 7;
SELECT access_of('SELECT count(*) FROM kv WHERE a < 3', ', ANALYZE');
PREPARE n (int, int) AS SELECT count(*) FROM kv WHERE a BETWEEN $1 AND $2;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE n (1, 2);
RESET plan_cache_mode;
DEALLOCATE n;
-- which servers these are: the first minor versions are 15.15, 16.11, 17.7, 18.1
SELECT CASE n / 10000 WHEN 15 THEN n >= 150015 WHEN 16 THEN n >= 160011 WHEN 17 THEN n >= 170007 WHEN 18 THEN n >= 180001 ELSE true END = (access_of('SELECT count(*) FROM kv') = 'count') AS as_promised FROM current_setting('server_version_num') v, CAST(v AS int) n;
DROP FUNCTION access_of;
DROP FOREIGN TABLE kv;
DROP TABLE heap;
