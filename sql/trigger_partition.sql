-- Promise: triggers, partitions, inheritance and views treat a kvfdw table as they treat a heap table.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FOREIGN TABLE t (k int, v text, n int DEFAULT 5) SERVER kvfdw;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/triggers.sql'
\i :file
-- Row and statement triggers.
INSERT INTO t VALUES (1, 'one'), (2, 'two');
SELECT logged();
UPDATE t SET v = upper(v) WHERE k = 1;
SELECT logged();
UPDATE t SET k = 3 WHERE k = 2;
SELECT logged();
DELETE FROM t WHERE k = 3 RETURNING *;
SELECT logged();
COPY t FROM stdin;
7	seven	7
8	eight	8
\.
SELECT logged();
INSERT INTO t VALUES (7, 'dup', 0);
INSERT INTO t VALUES (7, 'dup', 0) ON CONFLICT DO NOTHING;
SELECT logged();
DROP TRIGGER b_row ON t; DROP TRIGGER a_row ON t; DROP TRIGGER b_stmt ON t; DROP TRIGGER a_stmt ON t;
-- A BEFORE trigger changes the row, its key too, or suppresses it.
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN IF OLD.k = 8 THEN RETURN NULL; END IF; RETURN OLD; END IF;
  IF NEW.v = 'skip' THEN RETURN NULL; END IF;
  IF NEW.v = 'shift' THEN NEW.k := NEW.k + 100; END IF;
  NEW.n := length(NEW.v);
  RETURN NEW;
END $$;
CREATE TRIGGER meddle BEFORE INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION meddle();
INSERT INTO t VALUES (20, 'skip', 0), (21, 'shift', 0), (22, 'plain', 0) RETURNING *;
UPDATE t SET v = 'skip' WHERE k = 22 RETURNING *;
UPDATE t SET v = 'shift' WHERE k = 22 RETURNING *;
UPDATE t SET v = 'shift', k = 21 WHERE k = 7;
DELETE FROM t WHERE k IN (7, 8) RETURNING *;
SELECT * FROM t ORDER BY k;
DROP TRIGGER meddle ON t;
-- WHEN conditions and column lists.
CREATE TRIGGER w AFTER UPDATE OF v ON t FOR EACH ROW WHEN (OLD.v IS DISTINCT FROM NEW.v) EXECUTE FUNCTION note();
UPDATE t SET v = v WHERE k = 1;
UPDATE t SET v = 'changed' WHERE k = 1;
UPDATE t SET n = 0 WHERE k = 1;
SELECT logged();
DROP TRIGGER w ON t;
-- An AFTER trigger that fails takes the statement with it; one that writes the table is seen.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.n < 0 THEN RAISE EXCEPTION 'n is negative'; END IF; RETURN NULL; END $$;
CREATE TRIGGER refuse AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION refuse();
\set SHOW_CONTEXT never
INSERT INTO t VALUES (30, 'kept?', 1), (31, 'no', -1);
UPDATE t SET n = -1 WHERE k = 1;
\unset SHOW_CONTEXT
SELECT count(*) FROM t WHERE k >= 30 AND k < 100 OR n < 0;
DROP TRIGGER refuse ON t;
CREATE FUNCTION echo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.k < 1000 THEN INSERT INTO t VALUES (NEW.k + 1000, 'echo of ' || NEW.k, (SELECT count(*) FROM t)); END IF; RETURN NULL; END $$;
CREATE TRIGGER echo AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION echo();
INSERT INTO t VALUES (40, 'a', 0), (41, 'b', 0);
SELECT * FROM t WHERE k >= 40 AND k NOT BETWEEN 100 AND 200 ORDER BY k;
DROP TRIGGER echo ON t;
-- A BEFORE trigger that changes a row which the statement comes to later: an error, not a row passed over.
CREATE FUNCTION ahead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE t SET n = 0 WHERE k = OLD.k + 1; IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$;
CREATE TRIGGER ahead BEFORE UPDATE OR DELETE ON t FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION ahead();
UPDATE t SET n = 1 WHERE k IN (40, 41);
DELETE FROM t WHERE k IN (40, 41);
UPDATE t SET n = 1 WHERE k = 40 RETURNING *;
DROP FOREIGN TABLE t;
DROP FUNCTION ahead;
-- Constraints that a heap table would enforce.
CREATE FOREIGN TABLE con (k int CHECK (k > 0), v text NOT NULL, CONSTRAINT short CHECK (length(v) < 5)) SERVER kvfdw;
INSERT INTO con VALUES (1, 'ok');
INSERT INTO con VALUES (0, 'ok');
INSERT INTO con VALUES (2, 'longer');
INSERT INTO con VALUES (2, NULL);
UPDATE con SET v = 'longer';
UPDATE con SET k = -1;
UPDATE con SET v = NULL;
SELECT * FROM con;
DROP FOREIGN TABLE con;
-- Partitions: heap and kvfdw side by side under one parent.
CREATE TABLE p (k int, v text) PARTITION BY RANGE (k);
CREATE TABLE p_heap PARTITION OF p (PRIMARY KEY (k)) FOR VALUES FROM (0) TO (100);
CREATE FOREIGN TABLE p_kv1 PARTITION OF p FOR VALUES FROM (100) TO (200) SERVER kvfdw OPTIONS (key 'k', shards '2');
CREATE FOREIGN TABLE p_kv2 PARTITION OF p DEFAULT SERVER kvfdw;
INSERT INTO p SELECT g, 'v' || g FROM generate_series(-10, 290, 10) g;
SELECT tableoid::regclass AS part, count(*), min(k), max(k) FROM p GROUP BY 1 ORDER BY 1;
SELECT * FROM p WHERE k IN (50, 150, 250, 251) ORDER BY k;
SELECT k FROM p WHERE k BETWEEN 80 AND 120 ORDER BY k DESC;
SELECT k FROM p ORDER BY k LIMIT 3;
INSERT INTO p VALUES (150, 'dup');
INSERT INTO p VALUES (1000, 'in default'), (101, 'in kv1'), (1, 'in heap') RETURNING tableoid::regclass, *;
INSERT INTO p VALUES (100, 'dup'), (102, 'new') ON CONFLICT DO NOTHING;
COPY p FROM stdin;
2	copied to heap
103	copied to kv1
2000	copied to kv2
\.
SELECT tableoid::regclass, * FROM p WHERE v LIKE 'copied%' OR k = 102 ORDER BY k;
UPDATE p SET v = 'updated' WHERE k IN (0, 100, 200);
UPDATE p SET k = 104 WHERE k = 2 RETURNING tableoid::regclass, *;
UPDATE p SET k = 105 WHERE k = 104;
DELETE FROM p WHERE k % 20 = 0 AND k BETWEEN 60 AND 240;
SELECT tableoid::regclass AS part, count(*), sum(k) FROM p GROUP BY 1 ORDER BY 1;
SELECT * FROM p WHERE v = 'updated' OR k IN (104, 105) ORDER BY k;
INSERT INTO p_kv1 VALUES (5, 'not mine');
INSERT INTO p_kv1 VALUES (199, 'mine');
SET enable_partitionwise_join = on;
SELECT count(*) FROM p a JOIN p b USING (k);
RESET enable_partitionwise_join;
ALTER TABLE p DETACH PARTITION p_kv1;
SELECT count(*) FROM p;
SELECT count(*) FROM p_kv1;
ALTER TABLE p ATTACH PARTITION p_kv1 FOR VALUES FROM (100) TO (200);
SELECT count(*) FROM p;
TRUNCATE p;
SELECT count(*) FROM p;
INSERT INTO p VALUES (110, 'after truncate');
SELECT tableoid::regclass, * FROM p;
DROP TABLE p;
-- Inheritance.
CREATE TABLE par (k int, v text);
CREATE FOREIGN TABLE chi (extra text) INHERITS (par) SERVER kvfdw OPTIONS (key 'k');
INSERT INTO par VALUES (1, 'parent');
INSERT INTO chi VALUES (2, 'child', 'more');
SELECT tableoid::regclass, * FROM par ORDER BY k;
SELECT * FROM ONLY par;
UPDATE par SET v = v || '!' WHERE k > 0;
DELETE FROM par WHERE k = 1;
SELECT * FROM chi;
DROP TABLE par CASCADE;
-- DELETE where only some of the foreign tables have row triggers, in any order.
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % %: %', TG_RELNAME, TG_WHEN, TG_OP, OLD; RETURN OLD; END $$;
SET client_min_messages = notice;
CREATE TABLE dp (v text, k int, n int DEFAULT 7) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE dp1 PARTITION OF dp FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (key 'k');
CREATE FOREIGN TABLE dp2 (n int, k int, v text) SERVER kvfdw OPTIONS (key 'k');
ALTER TABLE dp ATTACH PARTITION dp2 FOR VALUES FROM (10) TO (20);
CREATE TABLE dp3 PARTITION OF dp FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE dp31 PARTITION OF dp3 FOR VALUES FROM (20) TO (25) SERVER kvfdw OPTIONS (key 'k');
CREATE TABLE dp32 PARTITION OF dp3 FOR VALUES FROM (25) TO (30);
INSERT INTO dp SELECT 'v' || g, g FROM generate_series(1, 29, 2) g;
CREATE TRIGGER seen BEFORE DELETE ON dp2 FOR EACH ROW EXECUTE FUNCTION seen();
DELETE FROM dp WHERE k IN (1, 11, 21, 25);
DELETE FROM dp WHERE k IN (3, 13, 23, 27) RETURNING *;
DELETE FROM dp1 WHERE k = 5;
DROP TRIGGER seen ON dp2;
CREATE TRIGGER seen AFTER DELETE ON dp31 FOR EACH ROW EXECUTE FUNCTION seen();
INSERT INTO dp VALUES ('again', 21);
DELETE FROM dp WHERE v LIKE 'v%' AND k % 4 = 1 OR k = 21;
CREATE TRIGGER seen AFTER UPDATE ON dp1 FOR EACH ROW EXECUTE FUNCTION seen();
DROP TRIGGER seen ON dp31;
DELETE FROM dp WHERE k IN (7, 15);
SELECT * FROM dp ORDER BY k;
DROP TABLE dp;
CREATE FOREIGN TABLE ip (k int, v text) SERVER kvfdw;
CREATE FOREIGN TABLE ic1 (extra text) INHERITS (ip) SERVER kvfdw;
CREATE FOREIGN TABLE ic2 () INHERITS (ip) SERVER kvfdw;
CREATE TRIGGER seen BEFORE DELETE ON ic1 FOR EACH ROW EXECUTE FUNCTION seen();
INSERT INTO ip VALUES (1, 'parent');
INSERT INTO ic1 VALUES (2, 'child', 'extra');
INSERT INTO ic2 VALUES (3, 'other');
DELETE FROM ip WHERE k < 3 RETURNING *;
DELETE FROM ONLY ip;
DELETE FROM ip USING (VALUES (3)) x (k) WHERE x.k = ip.k;
SELECT * FROM ip;
DROP FOREIGN TABLE ip CASCADE;
DROP FUNCTION seen;
SET client_min_messages = warning;
-- Views, with and without check option.
CREATE FOREIGN TABLE base (k int, v text) SERVER kvfdw;
CREATE VIEW all_rows AS SELECT * FROM base;
CREATE VIEW low AS SELECT * FROM base WHERE k < 100 WITH CHECK OPTION;
INSERT INTO all_rows VALUES (1, 'through a view');
INSERT INTO low VALUES (2, 'low') RETURNING *;
INSERT INTO low VALUES (100, 'too high');
UPDATE low SET k = 101 WHERE k = 2;
UPDATE all_rows SET v = 'changed' WHERE k = 1;
DELETE FROM low WHERE k = 2;
SELECT * FROM all_rows;
CREATE MATERIALIZED VIEW mat AS SELECT count(*) FROM base;
SELECT * FROM mat;
DROP FOREIGN TABLE base CASCADE;
-- Triggers of a heap table that write kvfdw tables.
CREATE FOREIGN TABLE audit (n int, what text) SERVER kvfdw;
CREATE TABLE watched (k int PRIMARY KEY);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES ((SELECT count(*) FROM audit), TG_OP || ' ' || coalesce(NEW.k, OLD.k)); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON watched DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit();
BEGIN;
INSERT INTO watched VALUES (1), (2);
DELETE FROM watched WHERE k = 1;
SELECT count(*) FROM audit;
COMMIT;
SELECT * FROM audit ORDER BY n;
DROP FOREIGN TABLE audit;
DROP TABLE watched, log;
DROP FUNCTION note, logged, meddle, refuse, echo, audit;
