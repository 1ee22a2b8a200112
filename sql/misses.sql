-- Promise: EXPLAIN (ANALYZE, BUFFERS) tells for each cache how many values it had, and why it did not have others.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SET jit = off; SET max_parallel_workers_per_gather = 0;
CREATE FOREIGN TABLE m (k int, v text) SERVER kvfdw OPTIONS (compression 'none');
CREATE FUNCTION why(query text, options text DEFAULT '') RETURNS SETOF text LANGUAGE plpgsql AS $$ DECLARE line text; BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF' || options || ') ' || query LOOP
    IF line ~ '(Device Reads|Hits|Misses):' THEN RETURN NEXT line; END IF;
  END LOOP; END $$;
INSERT INTO m SELECT k, repeat(chr(64 + k), 1000) FROM generate_series(1, 20) k;
INSERT INTO m VALUES (21, repeat('x', 2000000));
SELECT kvfdw_flush('m');
-- What was written last is in the recent ring, which is asked first.
SELECT why('SELECT * FROM m WHERE k IN (1, 2, 3)');
-- A value of several megabytes goes to no cache.
SELECT why('SELECT * FROM m WHERE k = 21');
SELECT why('SELECT * FROM m WHERE k = 21');
-- A key alone reads nothing.
SELECT why('SELECT k FROM m WHERE k = 21');
-- Values that a compaction has moved are no longer in the recent ring, and in the value cache if one of their block was read.
DELETE FROM m WHERE k % 2 = 0 OR k = 21;
SELECT count(*) FROM kvfdw_compact('m');
SELECT why('SELECT * FROM m WHERE k = 5');
SELECT why('SELECT * FROM m WHERE k = 5');
SELECT why('SELECT * FROM m WHERE k IN (1, 3, 5)');
-- Other formats have all reasons.
CREATE FUNCTION plan_of(query text) RETURNS json LANGUAGE plpgsql AS $$ DECLARE j json; BEGIN EXECUTE 'EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS) ' || query INTO j; RETURN j -> 0 -> 'Plan'; END $$;
SELECT key, value::jsonb::text FROM plan_of('SELECT * FROM m WHERE k = 5') p, json_each(p) WHERE key ~ 'Hits|Misses' AND key !~ 'Tier';
SELECT p ->> 'Tier Hits' AS "Tier Hits", p -> 'Tier Misses' ->> 'Absent' AS "Absent" FROM plan_of('SELECT * FROM m WHERE k = 5') p;
-- Without BUFFERS there are none.
SELECT count(*) FROM why('SELECT * FROM m WHERE k = 5', ', BUFFERS OFF');
DROP FUNCTION why, plan_of;
DROP FOREIGN TABLE m;
