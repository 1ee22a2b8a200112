-- Promise: scans of large ranges read through windows of the range cache and show what
-- they would show without; short ranges, keys alone and points use none; EXPLAIN and
-- the view tell.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SET max_parallel_workers_per_gather = 0;
SET synchronize_seqscans = off;
-- keys in all shards; values of n bytes, written in another order than the keys'
CREATE FUNCTION key(g int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT (g * bigint ''1000000'' - 2000000000)::int';
CREATE FUNCTION bytes(g int, n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT decode(rpad('', 2 * n, md5(g::text)), 'hex')
$$;
CREATE FOREIGN TABLE kv (k int, v bytea) SERVER kvfdw OPTIONS (shards '4');
CREATE TABLE heap (k int PRIMARY KEY, v bytea);
INSERT INTO heap SELECT key(g), bytes(g, 4096) FROM generate_series(1, 4000) g;
INSERT INTO kv SELECT * FROM heap ORDER BY md5(k::text);
SELECT kvfdw_flush('kv');
ANALYZE kv;
-- 'same' if both tables hold the same rows, in either order
CREATE FUNCTION compare() RETURNS text LANGUAGE plpgsql AS $$
DECLARE d bigint; k text; h text;
BEGIN
  SELECT count(*) INTO d FROM ((TABLE kv EXCEPT ALL TABLE heap) UNION ALL (TABLE heap EXCEPT ALL TABLE kv)) s;
  IF d > 0 THEN RETURN d || ' rows differ'; END IF;
  SELECT md5(string_agg(s.k || md5(v), ';')) INTO k FROM (SELECT * FROM kv ORDER BY k) s;
  SELECT md5(string_agg(s.k || md5(v), ';')) INTO h FROM (SELECT * FROM heap ORDER BY k) s;
  IF k IS DISTINCT FROM h THEN RETURN 'order differs'; END IF;
  SELECT md5(string_agg(s.k || md5(v), ';')) INTO k FROM (SELECT * FROM kv ORDER BY k DESC) s;
  SELECT md5(string_agg(s.k || md5(v), ';')) INTO h FROM (SELECT * FROM heap ORDER BY k DESC) s;
  IF k IS DISTINCT FROM h THEN RETURN 'descending order differs'; END IF;
  RETURN 'same';
END $$;
-- what a statement does with windows
CREATE FUNCTION windows(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE j jsonb; loaded bigint; hit bigint;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) ' || query INTO j;
  loaded = jsonb_path_query_first(j, '$.**."Windows Loaded"')::bigint + jsonb_path_query_first(j, '$.**."Windows Shared"')::bigint;
  hit = jsonb_path_query_first(j, '$.**."Windows Hit"');
  RETURN CASE WHEN loaded > 0 THEN 'loads' WHEN hit > 0 THEN 'finds' ELSE 'none' END;
END $$;
-- the view
SELECT windows > 0 AS windows, window_size, scans FROM kvfdw_stat_range_cache;
SELECT kvfdw_stat_reset();
SELECT hits, loads, shared, waits, reads, read_bytes, evictions FROM kvfdw_stat_range_cache;
-- first what needs none
SELECT reads AS read_before FROM kvfdw_stat_range_cache \gset
SELECT windows('SELECT k FROM kv'), windows('SELECT count(*) FROM kv WHERE k > 0') AS keys;
SELECT windows('SELECT * FROM kv ORDER BY k LIMIT 1'), windows('SELECT * FROM kv ORDER BY k DESC LIMIT 1'), windows('SELECT * FROM kv WHERE k = key(77)') AS point, windows('SELECT * FROM kv WHERE k BETWEEN key(70) AND key(79)') AS short;
SELECT reads - :read_before AS read FROM kvfdw_stat_range_cache;
SELECT device_reads + recent_ring_hits + value_cache_hits + write_buffer_hits >= 8 AS singly FROM kvfdw_stat_tables WHERE relid = 'kv'::regclass;
SELECT length(v) FROM (SELECT * FROM kv ORDER BY k LIMIT 1) s;
SELECT device_reads + recent_ring_hits + value_cache_hits + write_buffer_hits >= 8 AS singly FROM kvfdw_stat_tables WHERE relid = 'kv'::regclass;
-- then what does; of the shards that a LIMIT reaches
SELECT windows('SELECT * FROM kv ORDER BY k LIMIT 1500');
SELECT reads - :read_before BETWEEN 32 AND 36 AS two_shards FROM kvfdw_stat_range_cache;
SELECT windows('SELECT * FROM kv');
SELECT windows('SELECT * FROM kv'), windows('SELECT * FROM kv ORDER BY k'), windows('SELECT * FROM kv ORDER BY k DESC'), windows('SELECT * FROM kv WHERE k > key(1500)');
SELECT loads BETWEEN 1 AND reads AS for_scans, hits > loads AS found, read_bytes >= 4000 * 4096 AS all_read, used >= reads AS kept FROM kvfdw_stat_range_cache;
SELECT reads BETWEEN 4000 * 4096 / 262144 AND 4000 * 4096 / 262144 + 20 AS read_once FROM kvfdw_stat_range_cache;
CREATE FUNCTION explain(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE l text;
BEGIN
  FOR l IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
    -- how much of the catalog PostgreSQL reads is its own affair
    CONTINUE WHEN l ~ 'Shards Read:|Planning:|Buffers:';
    -- rows have two decimals since 18
    RETURN NEXT regexp_replace(regexp_replace(replace(l, '.00 loops', ' loops'), 'hit=[1-9]\d*', 'hit=N'), '((Reads|Bytes|Hits): )\d+', '\1N');
  END LOOP;
END $$;
SELECT explain('SELECT * FROM kv ORDER BY k');
SELECT explain('SELECT * FROM kv WHERE k = key(1)');
-- a reset leaves what is in windows
SELECT kvfdw_stat_reset();
SELECT used > 0 AS used, hits, loads, shared, waits, reads, read_bytes, evictions FROM kvfdw_stat_range_cache;
SELECT compare();
SELECT loads FROM kvfdw_stat_range_cache;
-- what is written after its shard was loaded; own writes, rolled-back ones, savepoints
CREATE FUNCTION on_both(VARIADIC sql text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE s text; t text;
BEGIN
  FOREACH s IN ARRAY sql LOOP
    FOREACH t IN ARRAY '{kv,heap}'::text[] LOOP EXECUTE replace(s, '%s', t); END LOOP;
  END LOOP;
END $$;
SELECT on_both('UPDATE %s SET v = bytes(k, 100) WHERE k % 7 = 0', 'DELETE FROM %s WHERE k % 11 = 0', 'INSERT INTO %s SELECT key(g) + 1, bytes(-g, 5000) FROM generate_series(1, 300) g');
SELECT compare();
SELECT kvfdw_flush('kv');
SELECT compare();
BEGIN;
SELECT on_both('UPDATE %s SET v = bytes(k, 4096) WHERE k % 5 = 0', 'INSERT INTO %s SELECT key(g) + 2, bytes(g, 64) FROM generate_series(1, 300) g');
SELECT compare();
SAVEPOINT s;
SELECT on_both('DELETE FROM %s', 'INSERT INTO %s SELECT key(g), bytes(g, 4096) FROM generate_series(1, 3000) g ORDER BY md5(g::text)');
SELECT compare();
ROLLBACK TO s;
SELECT compare();
RELEASE s;
SELECT compare();
ROLLBACK;
SELECT compare();
BEGIN;
SELECT on_both('UPDATE %s SET v = bytes(k, 4096) WHERE k % 5 = 0');
COMMIT;
SELECT compare();
SELECT kvfdw_flush('kv');
SELECT compare();
-- cursors: one sees what was there when it was opened
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT s.k, md5(s.v) = md5(h.v) AS same FROM kv s JOIN heap h USING (k) ORDER BY k;
DECLARE up NO SCROLL CURSOR FOR SELECT k, length(v) FROM kv ORDER BY k;
DECLARE scrolls SCROLL CURSOR FOR SELECT k, length(v) FROM kv ORDER BY k;
DECLARE held CURSOR WITH HOLD FOR SELECT k, md5(v) FROM kv ORDER BY k DESC;
CREATE TEMP TABLE old AS TABLE heap;
FETCH 3 FROM up;
MOVE 2000 FROM up;
MOVE 3000 FROM scrolls;
UPDATE kv SET v = bytes(k, 50);
DELETE FROM kv WHERE k > key(1000);
SELECT count(*), sum(length(v)) FROM kv;
FETCH 3 FROM up;
MOVE ALL FROM up;
FETCH BACKWARD 3 FROM scrolls;
FETCH LAST FROM scrolls;
MOVE BACKWARD ALL FROM scrolls;
FETCH 2 FROM scrolls;
COMMIT;
FETCH 2 FROM held;
CREATE FUNCTION rest(c refcursor) RETURNS TABLE (k int, v text) LANGUAGE plpgsql AS $$
BEGIN
  LOOP FETCH c INTO k, v; EXIT WHEN NOT FOUND; RETURN NEXT; END LOOP;
END $$;
SELECT count(*), count(o.k) AS old, bool_and(md5(o.v) = h.v) AS same FROM rest('held') h LEFT JOIN old o USING (k);
CLOSE held;
SELECT on_both('TRUNCATE %s', 'INSERT INTO %s SELECT key(g), bytes(g, 4096) FROM generate_series(1, 1000) g ORDER BY md5(g::text)');
SELECT kvfdw_flush('kv');
SELECT compare();
SELECT windows('SELECT * FROM kv');
-- TRUNCATE and DROP between scans: the same places in files with the same names
TRUNCATE heap, kv;
SELECT compare(), windows('SELECT * FROM kv');
INSERT INTO heap SELECT key(g), bytes(g + 7, 4096) FROM generate_series(1, 1000) g;
INSERT INTO kv SELECT * FROM heap ORDER BY md5(k::text);
SELECT kvfdw_flush('kv');
SELECT compare();
BEGIN;
TRUNCATE kv;
SELECT count(*), sum(length(v)) FROM kv;
INSERT INTO kv SELECT key(g), 'x' FROM generate_series(1, 1000) g;
SELECT count(*), sum(length(v)) FROM kv;
ROLLBACK;
SELECT compare();
DROP FOREIGN TABLE kv;
CREATE FOREIGN TABLE kv (k int, v bytea) SERVER kvfdw OPTIONS (shards '4');
INSERT INTO kv SELECT k, v FROM heap ORDER BY md5(k::text);
SELECT kvfdw_flush('kv');
SELECT compare();
BEGIN;
DROP FOREIGN TABLE kv;
ROLLBACK;
SELECT compare();
-- values of all sizes: small ones, across borders of windows, empty, large; one shard
TRUNCATE heap;
DROP FOREIGN TABLE kv;
CREATE FOREIGN TABLE kv (k int, v bytea) SERVER kvfdw;
INSERT INTO heap SELECT g, CASE g % 10 WHEN 0 THEN '' WHEN 1 THEN NULL WHEN 2 THEN bytes(g, 4096) WHEN 3 THEN bytes(g, 5000) ELSE bytes(g, 64) END FROM generate_series(1, 5000) g;
INSERT INTO heap SELECT 1000000 + g, bytes(g, g) FROM unnest('{262143,262144,262145,524288,1048576,1500000,100000,200000}'::int[]) g;
INSERT INTO kv SELECT * FROM heap ORDER BY md5(k::text);
SELECT kvfdw_flush('kv');
SELECT windows('SELECT * FROM kv');
SELECT compare();
SELECT windows('SELECT * FROM kv ORDER BY k DESC');
-- in the order of the keys, and against it
TRUNCATE kv;
INSERT INTO kv SELECT * FROM heap ORDER BY k;
SELECT kvfdw_flush('kv');
SELECT compare();
TRUNCATE kv;
INSERT INTO kv SELECT * FROM heap ORDER BY k DESC;
SELECT kvfdw_flush('kv');
SELECT compare();
-- segments of a file in order: longer than a segment
TRUNCATE heap, kv;
INSERT INTO heap SELECT g, bytes(g, 4096) FROM generate_series(1, 6000) g;
INSERT INTO kv TABLE heap;
SELECT kvfdw_flush('kv');
-- a LIMIT is a range as short as that
SELECT reads AS read_before FROM kvfdw_stat_range_cache \gset
SELECT windows('SELECT * FROM kv WHERE k > 10 ORDER BY k LIMIT 50') AS short, windows('SELECT * FROM kv ORDER BY k LIMIT 3000') AS long;
SELECT reads - :read_before AS read FROM kvfdw_stat_range_cache;
SELECT count(*), sum(k), sum(length(v)), bool_and(v = bytes(k, 4096)) FROM (SELECT * FROM kv ORDER BY k LIMIT 3000) s;
SELECT windows('SELECT * FROM kv WHERE k > 1000 AND k < 5000'), windows('SELECT * FROM kv WHERE k > 2000 AND k < 4000 ORDER BY k DESC');
SELECT compare();
SELECT on_both('UPDATE %s SET v = bytes(-k, 3000) WHERE k BETWEEN 2000 AND 2300', 'DELETE FROM %s WHERE k BETWEEN 3000 AND 3100');
SELECT compare();
SELECT kvfdw_flush('kv');
SELECT compare();
-- a join that scans again and again, and one that ends early
SELECT count(*), sum(length(v)) FROM generate_series(1, 5) x, LATERAL (SELECT v FROM kv WHERE k > x * 500 AND k < x * 500 + 3000 OFFSET 0) s;
SELECT count(*) FROM generate_series(1, 5) x WHERE EXISTS (SELECT FROM kv WHERE k > x * 100 AND length(v) > 3999 OFFSET 0);
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT count(*), bool_and(kv.v = heap.v) FROM kv JOIN heap USING (k);
RESET enable_hashjoin;
RESET enable_nestloop;
-- parallel
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*), sum(k), sum(length(v)), bool_and(v = bytes(CASE WHEN length(v) = 3000 THEN -k ELSE k END, length(v))) FROM kv;
SELECT count(*), sum(k), sum(length(v)) FROM kv WHERE k BETWEEN 100 AND 5000;
SET max_parallel_workers_per_gather = 0;
SELECT count(*), sum(k), sum(length(v)), bool_and(v = bytes(CASE WHEN length(v) = 3000 THEN -k ELSE k END, length(v))) FROM kv;
SELECT count(*), sum(k), sum(length(v)) FROM kv WHERE k BETWEEN 100 AND 5000;
-- partitions
CREATE TABLE parts (k int, v bytea) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE part_1 PARTITION OF parts FOR VALUES FROM (1) TO (2000) SERVER kvfdw;
CREATE FOREIGN TABLE part_2 PARTITION OF parts FOR VALUES FROM (2000) TO (4000) SERVER kvfdw OPTIONS (shards '3');
CREATE TABLE part_3 PARTITION OF parts FOR VALUES FROM (4000) TO (10000);
INSERT INTO parts SELECT * FROM heap ORDER BY md5(k::text);
SELECT kvfdw_flush('part_1'), kvfdw_flush('part_2');
SELECT count(*), bool_and(parts.v = heap.v) FROM parts JOIN heap USING (k);
SELECT count(*), bool_and(s.v = heap.v), min(n) FROM (SELECT *, row_number() OVER () AS n FROM (SELECT * FROM parts ORDER BY k DESC) s) s JOIN heap USING (k);
TRUNCATE part_1;
SELECT count(*), bool_and(parts.v = heap.v) FROM parts JOIN heap USING (k);
DROP TABLE parts;
-- all scans have ended
SELECT scans FROM kvfdw_stat_range_cache;
SELECT * FROM kvfdw_check('kv');
DROP FOREIGN TABLE kv;
DROP TABLE heap, old;
DROP FUNCTION key, bytes, compare, windows, explain, on_both, rest;
