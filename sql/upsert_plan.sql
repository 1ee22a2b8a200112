-- Promise: what an upsert is on a kvfdw table alone: its plan, the option on_duplicate beside it, and what a server has no way to do.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw;
EXPLAIN (COSTS OFF) INSERT INTO t VALUES (1, 'a') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
EXPLAIN (COSTS OFF, VERBOSE) INSERT INTO t VALUES (1, 'a') ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE t.v <> 'x' RETURNING k;
EXPLAIN (COSTS OFF) INSERT INTO t VALUES (1, 'a') ON CONFLICT (k) DO NOTHING;
EXPLAIN (COSTS OFF) INSERT INTO t VALUES (1, 'a') ON CONFLICT DO NOTHING;
EXPLAIN (COSTS OFF) INSERT INTO t VALUES (1, 'a');
EXPLAIN (COSTS OFF) WITH w AS (INSERT INTO t VALUES (1, 'a') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *) SELECT * FROM w;
-- There is no constraint to name, and no MERGE into a foreign table.
INSERT INTO t VALUES (1, 'a') ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET v = excluded.v;
ALTER FOREIGN TABLE t ADD CONSTRAINT c CHECK (k > 0);
INSERT INTO t VALUES (1, 'a') ON CONFLICT ON CONSTRAINT c DO NOTHING;
\set VERBOSITY sqlstate
MERGE INTO t USING (VALUES (1)) s (k) ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 'm';
\set VERBOSITY default
-- ON CONFLICT goes before on_duplicate, which is for what has none.
CREATE FOREIGN TABLE ign (k int, v text) SERVER kvfdw OPTIONS (on_duplicate 'ignore');
CREATE FOREIGN TABLE rep (k int, v text) SERVER kvfdw OPTIONS (on_duplicate 'replace');
INSERT INTO ign VALUES (1, 'a') ON CONFLICT (k) DO UPDATE SET v = 'no';
INSERT INTO ign VALUES (1, 'b');
INSERT INTO ign VALUES (1, 'c') ON CONFLICT (k) DO UPDATE SET v = ign.v || excluded.v RETURNING *;
INSERT INTO ign VALUES (2, 'a'), (2, 'b') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO rep VALUES (1, 'a') ON CONFLICT (k) DO NOTHING;
INSERT INTO rep VALUES (1, 'b') ON CONFLICT (k) DO NOTHING;
INSERT INTO rep VALUES (1, 'c') ON CONFLICT (k) DO UPDATE SET v = rep.v || excluded.v RETURNING *;
INSERT INTO rep VALUES (1, 'd'), (1, 'e') RETURNING *;
INSERT INTO rep VALUES (1, 'f'), (1, 'g') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
EXPLAIN (COSTS OFF) INSERT INTO rep VALUES (1, 'a') ON CONFLICT (k) DO NOTHING;
EXPLAIN (COSTS OFF) INSERT INTO rep VALUES (1, 'a');
-- SET of all columns does not read the row that it replaces.
CREATE FOREIGN TABLE far (k int, a int, v text) SERVER kvfdw;
INSERT INTO far SELECT g, g, repeat(g::text, 20) FROM generate_series(1, 1000) g;
SELECT kvfdw_flush('far');
CREATE TEMP TABLE seen (step int, n bigint);
CREATE FUNCTION seen(int) RETURNS bigint LANGUAGE sql AS $$
INSERT INTO seen SELECT $1, device_reads + value_cache_hits + recent_ring_hits + write_buffer_hits FROM kvfdw_stat_tables WHERE relid = 'far'::regclass;
SELECT (SELECT n FROM seen WHERE step = $1) - n FROM seen WHERE step = $1 - 1 $$;
SELECT seen(0);
INSERT INTO far SELECT g, -g, 'new' FROM generate_series(1, 100) g ON CONFLICT (k) DO UPDATE SET a = excluded.a, v = excluded.v || far.k;
SELECT seen(1);
INSERT INTO far SELECT g, -g, 'new' FROM generate_series(101, 200) g ON CONFLICT (k) DO UPDATE SET v = excluded.v;
SELECT seen(2) > 0;
SELECT k, a, length(v) FROM far WHERE k IN (1, 100, 101, 200);
DROP FOREIGN TABLE far;
DROP FUNCTION seen;
DROP TABLE seen;
-- A kept plan is made anew when the key is another.
PREPARE up AS INSERT INTO t VALUES (1, 'a') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
SET plan_cache_mode = force_generic_plan;
EXECUTE up;
DELETE FROM t;
DROP FOREIGN TABLE t;
CREATE FOREIGN TABLE t (k int, v text NOT NULL) SERVER kvfdw OPTIONS (key 'v');
EXECUTE up;
DROP FOREIGN TABLE t;
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw;
EXECUTE up;
EXECUTE up;
-- A partitioned table: every partition must have exactly that key, a heap one no other unique index.
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE FOREIGN TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (key 'a');
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
PREPARE pup AS INSERT INTO p VALUES (1, 1), (11, 1) ON CONFLICT (a) DO UPDATE SET b = p.b + 1 RETURNING tableoid::regclass, *;
EXECUTE pup;
CREATE UNIQUE INDEX ON p2 (a) WHERE a > 0;
EXECUTE pup;
CREATE UNIQUE INDEX p2_a ON p2 (a);
EXECUTE pup;
DROP INDEX p2_a_idx;
EXECUTE pup;
EXECUTE pup;
EXPLAIN (COSTS OFF) EXECUTE pup;
CREATE UNIQUE INDEX p2_b ON p2 (b);
EXECUTE pup;
INSERT INTO p VALUES (11, 1) ON CONFLICT (a) DO NOTHING;
INSERT INTO p VALUES (11, 1) ON CONFLICT DO NOTHING;
DROP INDEX p2_b;
EXECUTE pup;
ALTER TABLE p2 ADD CONSTRAINT x EXCLUDE USING btree (b WITH =);
EXECUTE pup;
ALTER TABLE p2 DROP CONSTRAINT x;
CREATE FOREIGN TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30) SERVER kvfdw OPTIONS (key 'a, b');
EXECUTE pup;
DROP FOREIGN TABLE p3;
EXECUTE pup;
DROP INDEX p2_a;
EXECUTE pup;
DROP TABLE p;
-- Triggers with transition tables are not for foreign tables, nor for what has such children.
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER tt AFTER UPDATE ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION f();
CREATE TABLE q (a int, b int) PARTITION BY RANGE (a);
CREATE FOREIGN TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (key 'a');
CREATE TRIGGER tt AFTER UPDATE ON q REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION f();
INSERT INTO q VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET b = 2;
INSERT INTO q VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET b = 2;
INSERT INTO q1 VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET b = 2 RETURNING *;
DROP TABLE q;
DROP FUNCTION f;
DROP FOREIGN TABLE t, ign, rep;
