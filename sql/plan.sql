-- Promise: key conditions become points and ranges, the key's order comes without a sort, joins on the key ask for one row at a time.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SET timezone = 'UTC'; SET datestyle = 'ISO'; SET jit = off; SET max_parallel_workers_per_gather = 0;
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw;
CREATE FOREIGN TABLE m (a int, b text COLLATE "C", c timestamptz, v text, n int) SERVER kvfdw OPTIONS (key 'a, b, c');
CREATE TABLE h (id int PRIMARY KEY, k int);
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 10000) g;
INSERT INTO m SELECT g / 100, 'b' || g % 10, timestamptz '2026-01-01' + g * interval '1 minute', 'v', g FROM generate_series(1, 10000) g;
INSERT INTO h SELECT g, g * 500 FROM generate_series(1, 20) g;
ANALYZE t; ANALYZE m; ANALYZE h;
-- Points.
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = 5;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE 5 = k;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = 5 AND v = 'x';
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k IN (5, 3, 9);
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a = 1 AND b = 'b1' AND c = '2026-01-01 00:00+00';
-- Ranges.
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k > 5;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k >= 5 AND k < 50;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k BETWEEN 5 AND 50 AND v LIKE 'a%';
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a = 1;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a = 1 AND b >= 'b2' AND b < 'b4';
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a = 1 AND b = 'b3' AND c > '2026-01-01 00:00+00';
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a > 1 AND b = 'b3';
-- Full: no condition on the key's first column, or one that is no range.
EXPLAIN (COSTS OFF) SELECT * FROM t;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE v = 'x';
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE b = 'b3';
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k % 2 = 0;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = 5 OR k = 6;
-- Order from the key, both ways, with and without LIMIT.
EXPLAIN (COSTS OFF) SELECT * FROM t ORDER BY k;
EXPLAIN (COSTS OFF) SELECT * FROM t ORDER BY k DESC;
EXPLAIN (COSTS OFF) SELECT * FROM t ORDER BY k LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k > 100 ORDER BY k DESC LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM m ORDER BY a, b, c LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM m ORDER BY a, b LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM m ORDER BY a DESC, b DESC, c DESC LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a = 5 ORDER BY b LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a = 5 ORDER BY b DESC LIMIT 10;
-- A key is never NULL, so it does not matter where NULLs would go.
EXPLAIN (COSTS OFF) SELECT * FROM t ORDER BY k NULLS FIRST;
EXPLAIN (COSTS OFF) SELECT * FROM t ORDER BY k DESC NULLS LAST;
-- Orders that are not the key's need a sort.
EXPLAIN (COSTS OFF) SELECT * FROM t ORDER BY v;
EXPLAIN (COSTS OFF) SELECT * FROM m ORDER BY b LIMIT 10;
EXPLAIN (COSTS OFF) SELECT * FROM m WHERE a = 5 ORDER BY b COLLATE "POSIX" LIMIT 10;
-- What else wants the key's order gets it without a sort, or sorts only what has the
-- same beginning of the key: joins, groups, DISTINCT, windows, MIN and MAX, partitions.
CREATE FUNCTION nodes_of(query text) RETURNS text LANGUAGE plpgsql AS $$ DECLARE j jsonb; BEGIN EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO j; RETURN jsonb_path_query_array(j, 'strict $.** ? (@.type() == "object" && exists (@."Node Type")) ? (@."Node Type" != "Result")')::jsonb; END $$;
SET enable_hashjoin = off; SET enable_hashagg = off; SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT * FROM t a JOIN t b USING (k);
EXPLAIN (COSTS OFF) SELECT * FROM t a JOIN t b USING (k) ORDER BY k DESC;
EXPLAIN (COSTS OFF) SELECT * FROM t FULL JOIN h USING (k);
SELECT count(*), count(x.v), sum(h.id) FROM (SELECT * FROM t WHERE k > 4000 ORDER BY k) x FULL JOIN h USING (k);
RESET enable_nestloop; RESET enable_hashjoin;
SELECT query, array_to_string(ARRAY(SELECT coalesce(n ->> 'Direction' || ' ', '') || (n ->> 'Node Type') FROM jsonb_path_query(nodes_of(query)::jsonb, '$[*]') n), ' < ') AS nodes FROM unnest(ARRAY[
  'SELECT a, count(*), max(n) FROM m GROUP BY a', 'SELECT a, b, max(n) FROM m WHERE a < 50 GROUP BY a, b ORDER BY a DESC, b DESC', 'SELECT DISTINCT a, b FROM m', 'SELECT DISTINCT ON (a) a, b, n FROM m ORDER BY a DESC, b DESC',
  'SELECT * FROM m ORDER BY a, n LIMIT 5', 'SELECT a, n, rank() OVER (PARTITION BY a ORDER BY b) FROM m', 'SELECT min(k), max(k) FROM t WHERE k > 50', 'SELECT max(b) FROM m WHERE a = 7', 'SELECT * FROM t UNION ALL SELECT * FROM t ORDER BY k']) WITH ORDINALITY q (query, n) ORDER BY n;
SELECT count(*), sum(a), sum(n) FROM (SELECT DISTINCT ON (a) a, b, n FROM m ORDER BY a DESC, b DESC, c DESC) s;
RESET enable_hashagg;
SELECT min(k), max(k) FROM t WHERE k > 50;
SELECT max(b), min(c) FROM m WHERE a = 7;
CREATE TABLE pt (k int, v text) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE pt1 PARTITION OF pt FOR VALUES FROM (0) TO (100) SERVER kvfdw;
CREATE FOREIGN TABLE pt2 PARTITION OF pt FOR VALUES FROM (100) TO (200) SERVER kvfdw;
CREATE FOREIGN TABLE pt3 PARTITION OF pt FOR VALUES FROM (200) TO (300) SERVER kvfdw;
INSERT INTO pt SELECT g * 7 % 300, g FROM generate_series(0, 299) g;
ANALYZE pt;
EXPLAIN (COSTS OFF) SELECT * FROM pt ORDER BY k;
EXPLAIN (COSTS OFF) SELECT * FROM pt WHERE k >= 150 ORDER BY k DESC LIMIT 3;
SELECT count(*), md5(string_agg(k::text, ',')) = (SELECT md5(string_agg(g::text, ',')) FROM generate_series(0, 299) g) AS ordered FROM (SELECT k FROM pt ORDER BY k) s;
SELECT k FROM pt WHERE k >= 150 AND k < 250 ORDER BY k DESC LIMIT 3;
SELECT min(k), max(k) FROM pt;
DROP TABLE pt;
DROP FUNCTION nodes_of;
-- Joins on the key: one point per outer row.
EXPLAIN (COSTS OFF) SELECT * FROM h JOIN t ON t.k = h.k;
EXPLAIN (COSTS OFF) SELECT * FROM h LEFT JOIN t ON t.k = h.k WHERE h.id < 5;
EXPLAIN (COSTS OFF) SELECT * FROM h LEFT JOIN m ON m.a = h.id AND m.b = 'b3' WHERE h.id < 5;
EXPLAIN (COSTS OFF) SELECT * FROM h, LATERAL (SELECT * FROM m WHERE m.a = h.k ORDER BY b, c LIMIT 1) x WHERE h.id = 1;
SELECT count(*), min(t.k), max(t.k) FROM h JOIN t ON t.k = h.k;
-- Keys only: no value is read for these.
EXPLAIN (COSTS OFF, VERBOSE) SELECT count(*) FROM t WHERE k % 2 = 0;
EXPLAIN (COSTS OFF, VERBOSE) SELECT k FROM t WHERE k > 9990 ORDER BY k;
-- Parameters: custom and generic plans.
PREPARE p (int) AS SELECT * FROM t WHERE k = $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE p (7);
SELECT v = md5('7') FROM (SELECT 1) s, LATERAL (SELECT v FROM t WHERE k = 7) t;
RESET plan_cache_mode;
DEALLOCATE p;
-- What reads cost is set: where single reads are dear, a join reads the table once.
BEGIN;
EXPLAIN (COSTS OFF) SELECT * FROM h JOIN t USING (k);
SET LOCAL kvfdw.point_read_cost = 1000;
EXPLAIN (COSTS OFF) SELECT * FROM h JOIN t USING (k);
SET LOCAL kvfdw.range_read_cost = 1000;
SET LOCAL kvfdw.batched_read_cost = 1000;
EXPLAIN (COSTS OFF) SELECT * FROM h JOIN t USING (k);
RESET kvfdw.range_read_cost;
RESET kvfdw.point_read_cost;
SET LOCAL kvfdw.seek_cost = 1e9;
EXPLAIN (COSTS OFF) SELECT h.k, t.k FROM h JOIN t USING (k);
ROLLBACK;
SELECT name, setting, unit, context, min_val FROM pg_settings WHERE name LIKE 'kvfdw.%cost' ORDER BY name;
SET kvfdw.seek_cost = -1;
-- DML.
EXPLAIN (COSTS OFF) INSERT INTO t VALUES (0, 'x');
EXPLAIN (COSTS OFF) UPDATE t SET v = 'x' WHERE k = 5;
EXPLAIN (COSTS OFF) DELETE FROM t WHERE k BETWEEN 5 AND 7;
-- Other formats name the same things.
CREATE FUNCTION scan_of(query text, options text DEFAULT '') RETURNS json LANGUAGE plpgsql AS $$ DECLARE j json; BEGIN EXECUTE 'EXPLAIN (FORMAT JSON' || options || ') ' || query INTO j; RETURN j -> 0 -> 'Plan'; END $$;
SELECT p ->> 'Key Cond' AS "Key Cond", p ->> 'Access' AS "Access" FROM scan_of('SELECT * FROM t WHERE k = 5') p;
SELECT p ->> 'Key Cond' AS "Key Cond", p ->> 'Access' AS "Access", p ->> 'Direction' AS "Direction", p ->> 'Keys Only' AS "Keys Only" FROM scan_of('SELECT k FROM t WHERE k < 5 ORDER BY k DESC') p;
-- Text and other formats have the same names.  Counters of I/O come with BUFFERS only.
CREATE FUNCTION names_of(options text) RETURNS text LANGUAGE plpgsql AS $$ DECLARE line text; names text := ''; BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF, TIMING OFF, SUMMARY OFF, ' || options || ') SELECT * FROM t' LOOP
    names := names || ', ' || coalesce((SELECT string_agg(m[1], ', ') FROM regexp_matches(line, '((?:Access|Key Cond|Order|Keys Only|Shards(?: Read)?|Dead Keys|Device \w+|[\w -]+ (?:Hits|Misses)|Windows[ \w]*))"?:', 'g') m), '');
  END LOOP; RETURN trim(regexp_replace(regexp_replace(names, ' +', ' ', 'g'), '(, )+', ', ', 'g'), ', '); END $$;
SELECT o, names_of(o) FROM (SELECT format('FORMAT %s, ANALYZE %s, BUFFERS %s', f, a, b) FROM unnest('{text,json}'::text[]) f, unnest('{off,on}'::text[]) a, unnest('{off,on}'::text[]) b) x (o);
DROP FUNCTION names_of;
-- ANALYZE of the statement adds what the scan did: one device read of one block
-- for a value that is no longer in its write buffer, none for a key alone.
CREATE FUNCTION work(query text) RETURNS TABLE (reads int, blocks int, hits int, rows int) LANGUAGE sql AS $$
  SELECT (p ->> 'Device Reads')::int, (p ->> 'Device Bytes')::int / 4096, (p ->> 'Write Buffer Hits')::int + (p ->> 'Recent Ring Hits')::int + (p ->> 'Value Cache Hits')::int, (p ->> 'Actual Rows')::numeric::int FROM scan_of(query, ', ANALYZE, BUFFERS') p
$$;
SELECT reads + hits AS values, blocks = reads AS one_block, rows FROM work('SELECT * FROM t WHERE k = 5');
SELECT reads + hits AS values, blocks BETWEEN reads AND 2 * reads AS blocks, rows FROM work('SELECT * FROM t WHERE k IN (5, 9000)');
SELECT reads, blocks, hits, rows FROM work('SELECT k FROM t WHERE k = 5');
SELECT reads, blocks, hits, rows FROM work('SELECT * FROM t WHERE k = -5');
SELECT reads + hits > 0 AS reads, blocks >= reads AS whole_blocks, rows FROM work('SELECT * FROM t');
INSERT INTO t VALUES (-1, repeat('new', 1000));
SELECT reads + hits AS values, rows FROM work('SELECT * FROM t WHERE k = -1');
DELETE FROM t WHERE k = -1;
-- A range of up to 256 rows is read at once.  Of others nobody knows how much will be
-- taken: they are read ever faster, or as far as the LIMIT says.  (No two values of
-- w's rows that lie near each other are neighbours on the device.)
CREATE FOREIGN TABLE w (k int, v text) SERVER kvfdw;
INSERT INTO w SELECT k, repeat(chr(65 + k % 26), 4096) FROM generate_series(1, 1008) k ORDER BY k * 383 % 1009;
-- How wide rows are is known without ANALYZE, and of values that were overwritten, too.
CREATE FOREIGN TABLE over (k int, v text) SERVER kvfdw;
DO $$ BEGIN FOR i IN 1 .. 60 LOOP INSERT INTO over VALUES (1, repeat(chr(65 + i % 26), 4096)) ON CONFLICT (k) DO UPDATE SET v = excluded.v; END LOOP; END $$;
SELECT kvfdw_flush('over');
SELECT t, (scan_of('SELECT * FROM ' || t) ->> 'Plan Width')::int BETWEEN 4100 AND 4300 AS wide, (scan_of('SELECT k FROM ' || t) ->> 'Plan Width')::int = 4 AS narrow FROM unnest('{w,over}'::text[]) t;
DROP FOREIGN TABLE over;
CREATE FUNCTION values_of(VARIADIC queries text[]) RETURNS TABLE (query text, "values" int, rows int) LANGUAGE sql AS $$
  SELECT q, (p ->> 'Device Reads')::int + (p ->> 'Write Buffer Hits')::int + (p ->> 'Recent Ring Hits')::int + (p ->> 'Value Cache Hits')::int, (p ->> 'Actual Rows')::numeric::int
  FROM unnest(queries) q, scan_of('SELECT * FROM w WHERE ' || q, ', ANALYZE, BUFFERS') s, LATERAL (SELECT coalesce(s -> 'Plans' -> 0, s)) l (p)
$$;
PREPARE values_of_all AS SELECT * FROM values_of('k BETWEEN 101 AND 200', 'k BETWEEN 101 AND 200 AND v IS NOT NULL LIMIT 1', 'k BETWEEN 101 AND 356 AND v IS NOT NULL LIMIT 1', 'k BETWEEN 101 AND 357 AND v IS NOT NULL LIMIT 1', 'k BETWEEN 101 AND 357 AND v IS NOT NULL LIMIT 11', 'k > 100 AND v IS NOT NULL LIMIT 1', 'k BETWEEN 101 AND 200 LIMIT 1', 'k BETWEEN 101 AND 200 ORDER BY k DESC LIMIT 10', 'k >= 100 LIMIT 1', 'k >= 100 ORDER BY k LIMIT 10', 'k < 100 ORDER BY k DESC LIMIT 10', 'k BETWEEN 5000 AND 5100', 'k BETWEEN 950 AND 5100 AND v IS NOT NULL LIMIT 1');
EXECUTE values_of_all;
SELECT kvfdw_flush('w');
EXECUTE values_of_all;
-- A LIMIT that a generic plan does not know is known when it runs.
SET plan_cache_mode = force_generic_plan;
PREPARE first_rows (int, int) AS SELECT * FROM w WHERE k >= 100 ORDER BY k LIMIT $1 OFFSET $2;
CREATE FUNCTION values_of_some(query text) RETURNS TABLE ("values" int, rows int) LANGUAGE sql AS $$
  SELECT (p ->> 'Device Reads')::int + (p ->> 'Write Buffer Hits')::int + (p ->> 'Recent Ring Hits')::int + (p ->> 'Value Cache Hits')::int, (p ->> 'Actual Rows')::numeric::int
  FROM scan_of(query, ', ANALYZE, BUFFERS') s, LATERAL (SELECT coalesce(s -> 'Plans' -> 0, s)) l (p)
$$;
SELECT * FROM values_of_some('EXECUTE first_rows (50, 0)');
SELECT * FROM values_of_some('EXECUTE first_rows (20, 30)');
EXPLAIN (COSTS OFF) EXECUTE first_rows (50, NULL);
EXECUTE first_rows (-1, 0);
DEALLOCATE first_rows;
RESET plan_cache_mode;
UPDATE w SET v = 'x' || k WHERE k BETWEEN 150 AND 160;
DELETE FROM w WHERE k BETWEEN 161 AND 170;
SELECT * FROM values_of('k BETWEEN 101 AND 200 AND v IS NOT NULL LIMIT 1');
DEALLOCATE values_of_all;
-- Estimates follow ANALYZE: a point is one row, the whole table is all of it.
CREATE FUNCTION rows_of(query text) RETURNS numeric LANGUAGE plpgsql AS $$ DECLARE j json; BEGIN EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO j; RETURN (j -> 0 -> 'Plan' ->> 'Plan Rows')::numeric; END $$;
SELECT rows_of('SELECT * FROM t WHERE k = 5') = 1 AS point, rows_of('SELECT * FROM t') BETWEEN 9000 AND 11000 AS "full", rows_of('SELECT * FROM t WHERE k BETWEEN 101 AND 200') BETWEEN 50 AND 200 AS range, rows_of('SELECT * FROM m WHERE a = 5') BETWEEN 30 AND 300 AS prefix;
SELECT attname, n_distinct <> 0 AS known FROM pg_stats WHERE tablename = 't' ORDER BY 1;
SELECT reltuples FROM pg_class WHERE oid = 't'::regclass;
-- EXPLAIN ANALYZE tells in how many shards of a table that has several a scan has looked, and other formats always do.
CREATE FUNCTION shards_of(query text, format text DEFAULT 'text') RETURNS text LANGUAGE plpgsql AS $$ DECLARE line text; met text; lines text := ''; BEGIN FOR line IN EXECUTE format('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT %s) %s', format, query) LOOP lines := lines || line; END LOOP;
  met := substring(lines FROM 'Shards Read: (\d+ of \d+)');
  RETURN CASE WHEN lines ~ '"Shards Read": \d+,\s*"Shards": \d+' THEN 'told' WHEN met IS NULL THEN 'not told' WHEN met ~ '^0 of' THEN 'none' WHEN met ~ '^1 of' THEN 'one' WHEN met ~ '^(\d+) of \1$' THEN 'all' ELSE 'some' END; END $$;
CREATE FOREIGN TABLE s (k int, v text) SERVER kvfdw OPTIONS (shards '8');
SELECT shards_of('SELECT * FROM s');
INSERT INTO s SELECT g * 2000000, 'v' FROM generate_series(-1000, 1000) g;
SELECT shards_of('SELECT * FROM s');
SELECT shards_of('SELECT * FROM s WHERE k = 0');
SELECT shards_of('SELECT * FROM s WHERE k IN (0, 2, 1500000000)');
SELECT shards_of('SELECT * FROM s WHERE k BETWEEN -1000 AND 1000000');
SELECT shards_of('SELECT * FROM s WHERE k > 0 ORDER BY k');
SELECT shards_of('SELECT * FROM s ORDER BY k DESC LIMIT 3');
SELECT shards_of('SELECT * FROM s WHERE k > 5 AND k < 3');
SELECT shards_of('SELECT * FROM (VALUES (0), (2000000), (-1500000000)) j (k) JOIN LATERAL (SELECT * FROM s WHERE s.k = j.k OFFSET 0) l USING (k)');
SELECT shards_of('SELECT * FROM s', 'json');
EXPLAIN (COSTS OFF) SELECT * FROM s;
-- the shards of a table, in the order of keys
SELECT min(position) = 0 AND max(position) = count(*) - 1 AND count(DISTINCT position) = count(*) AS dense, count(DISTINCT shard_id) = count(*) AS once, count(*) >= 8 AS many, sum(entries), sum(live_bytes) > 0 AS live, bool_and(unsorted_bytes <= live_bytes AND live_bytes <= value_file_bytes) AS bytes FROM kvfdw_stat_shards WHERE relid = 's'::regclass;
SELECT count(*) FROM kvfdw_stat_shards x JOIN kvfdw_stat_tables y USING (relid, generation) WHERE relid = 's'::regclass AND position >= shards;
SELECT kvfdw_split('s') > 8 AS split;
SELECT min(position) = 0 AND max(position) = count(*) - 1 AND count(DISTINCT position) = count(*) AS dense, count(DISTINCT shard_id) = count(*) AS once, count(*) > 8 AS many, sum(entries) FROM kvfdw_stat_shards WHERE relid = 's'::regclass;
SELECT shards_of('SELECT * FROM s'), shards_of('SELECT * FROM s WHERE k = 0');
DROP FOREIGN TABLE t, m, w, s;
DROP TABLE h;
DROP FUNCTION shards_of, values_of, values_of_some, work, rows_of, scan_of;
