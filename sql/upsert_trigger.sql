-- Promise: upserts fire the triggers and meet the partitions, and the policies of a partitioned table, that they do on heap.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FOREIGN TABLE t (k int, v text, n int DEFAULT 5) SERVER kvfdw;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/triggers.sql'
\i :file
-- All four kinds, for rows that are inserted, updated, and both in one command.
INSERT INTO t VALUES (1, 'one'), (2, 'two') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
SELECT logged();
INSERT INTO t VALUES (1, 'uno') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *;
SELECT logged();
INSERT INTO t VALUES (3, 'three'), (1, 'eins'), (4, 'four'), (2, 'zwei'), (5, 'five') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *;
SELECT logged();
INSERT INTO t VALUES (1, 'where'), (6, 'six') ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE t.n > 5 RETURNING *;
SELECT logged();
INSERT INTO t VALUES (1, 'nothing'), (7, 'seven') ON CONFLICT (k) DO NOTHING RETURNING *;
SELECT logged();
INSERT INTO t VALUES (1, 'key') ON CONFLICT (k) DO UPDATE SET k = 11 RETURNING *;
SELECT logged();
INSERT INTO t VALUES (11, 'key') ON CONFLICT (k) DO UPDATE SET k = 2;
INSERT INTO t SELECT FROM t WHERE false ON CONFLICT (k) DO UPDATE SET v = 'none';
SELECT logged();
DROP TRIGGER b_row ON t;
INSERT INTO t VALUES (2, 'after only'), (12, 'after only') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
SELECT logged();
DROP TRIGGER a_row ON t; DROP TRIGGER b_stmt ON t; DROP TRIGGER a_stmt ON t;
-- One kind at a time.
CREATE TRIGGER one AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO t VALUES (2, 'i'), (20, 'i'), (3, 'i'), (21, 'i') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
SELECT logged();
DROP TRIGGER one ON t;
CREATE TRIGGER one AFTER UPDATE OF n ON t FOR EACH ROW WHEN (OLD.n <> NEW.n) EXECUTE FUNCTION note();
INSERT INTO t VALUES (2, 'i'), (22, 'i') ON CONFLICT (k) DO UPDATE SET v = 'w';
INSERT INTO t VALUES (2, 'i'), (22, 'i'), (3, 'i', 6) ON CONFLICT (k) DO UPDATE SET n = excluded.n;
SELECT logged();
DROP TRIGGER one ON t;
-- A BEFORE trigger changes the proposed row, its key too, the updated row, or suppresses either.
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.v = 'skip ' || TG_OP THEN RETURN NULL; END IF;
  IF NEW.v = 'shift ' || TG_OP THEN NEW.k := NEW.k + 100; END IF;
  NEW.n := length(NEW.v);
  RETURN NEW;
END $$;
CREATE TRIGGER meddle BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION meddle();
INSERT INTO t VALUES (2, 'skip INSERT'), (3, 'skip UPDATE'), (4, 'plain'), (30, 'new') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *;
INSERT INTO t VALUES (30, 'shift INSERT'), (4, 'shift UPDATE') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *;
INSERT INTO t VALUES (30, 'shift INSERT') ON CONFLICT (k) DO UPDATE SET v = 'was there', n = excluded.n + 1000 RETURNING *;
INSERT INTO t VALUES (130, 'x'), (30, 'shift INSERT') ON CONFLICT (k) DO UPDATE SET v = 'twice';
SELECT * FROM t ORDER BY k;
DROP TRIGGER meddle ON t;
-- A trigger that changes the row itself.
CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.v = 'own' THEN UPDATE t SET n = n + 1 WHERE k = NEW.k; END IF; IF NEW.v = 'delete' THEN DELETE FROM t WHERE k = NEW.k; END IF; IF NEW.v = 'insert' THEN INSERT INTO t VALUES (NEW.k, 'from trigger', 0); END IF; RETURN NEW; END $$;
CREATE TRIGGER own BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION own();
INSERT INTO t VALUES (2, 'own') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO t VALUES (2, 'delete') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
DROP TRIGGER own ON t;
CREATE TRIGGER own BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION own();
INSERT INTO t VALUES (2, 'own') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO t VALUES (2, 'delete') ON CONFLICT (k) DO UPDATE SET v = 'not deleted' RETURNING *;
DELETE FROM t WHERE k = 40;
INSERT INTO t VALUES (40, 'insert') ON CONFLICT (k) DO UPDATE SET v = 'inserted before' RETURNING *;
INSERT INTO t VALUES (40, 'insert') ON CONFLICT (k) DO NOTHING RETURNING *;
DROP TRIGGER own ON t;
-- functions in SET and WHERE that write the row
CREATE FUNCTION touch(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN UPDATE t SET n = n + 1 WHERE k = $1; RETURN 1; END $$;
INSERT INTO t VALUES (3, 'x') ON CONFLICT (k) DO UPDATE SET n = t.n + touch(3);
INSERT INTO t VALUES (3, 'x') ON CONFLICT (k) DO UPDATE SET v = 'touched' WHERE touch(4) = 1 RETURNING *;
SELECT * FROM t ORDER BY k;
DROP FOREIGN TABLE t;
-- Partitions: rows are routed and updated there, with other column numbers, below another level, beside heap ones.
CREATE TABLE p (a int, b text, c int) PARTITION BY RANGE (a); -- heap: CREATE TABLE p (a int, b text, c int, PRIMARY KEY (a)) PARTITION BY RANGE (a);
CREATE FOREIGN TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (key 'a'); -- heap: CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE FOREIGN TABLE p2 (c int, gone int, b text, a int NOT NULL) SERVER kvfdw OPTIONS (key 'a');
ALTER FOREIGN TABLE p2 DROP COLUMN gone;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
CREATE TABLE sub PARTITION OF p FOR VALUES FROM (20) TO (40) PARTITION BY RANGE (a);
CREATE FOREIGN TABLE p3 PARTITION OF sub FOR VALUES FROM (20) TO (30) SERVER kvfdw OPTIONS (key 'a'); -- heap: CREATE TABLE p3 PARTITION OF sub FOR VALUES FROM (20) TO (30);
CREATE TABLE p4 PARTITION OF sub (PRIMARY KEY (a)) FOR VALUES FROM (30) TO (40); -- heap: CREATE TABLE p4 PARTITION OF sub FOR VALUES FROM (30) TO (40);
INSERT INTO p SELECT g * 10 + 1, 'first', g FROM generate_series(0, 3) g ON CONFLICT (a) DO UPDATE SET b = 'never' RETURNING tableoid::regclass, *;
INSERT INTO p SELECT g * 10 + 1, 'second', 7 FROM generate_series(0, 3) g ON CONFLICT (a) DO UPDATE SET b = excluded.b || ' after ' || p.b, c = p.c + excluded.c WHERE p.c <> 2 RETURNING tableoid::regclass, *;
INSERT INTO p VALUES (1, 'n', 0), (2, 'n', 0), (31, 'n', 0), (32, 'n', 0), (11, 'n', 0) ON CONFLICT (a) DO NOTHING RETURNING *;
INSERT INTO p VALUES (1, 'twice', 0), (1, 'twice', 0) ON CONFLICT (a) DO UPDATE SET b = excluded.b;
INSERT INTO p VALUES (31, 'twice', 0), (31, 'twice', 0) ON CONFLICT (a) DO UPDATE SET b = excluded.b;
INSERT INTO p VALUES (11, 'whole', 0), (1, 'whole', 0) ON CONFLICT (a) DO UPDATE SET b = p::text || excluded::text RETURNING p;
INSERT INTO p VALUES (11, 'row', 5) ON CONFLICT (a) DO UPDATE SET (a, b, c) = ROW (excluded.*) WHERE excluded = (11, text 'row', 5) RETURNING *;
INSERT INTO p VALUES (1, 'b', 0) ON CONFLICT (b) DO UPDATE SET c = 0;
INSERT INTO p VALUES (1, 'b', 0) ON CONFLICT (a, b) DO NOTHING;
INSERT INTO p VALUES (1, 'moves', 0) ON CONFLICT (a) DO UPDATE SET a = 3 RETURNING *;
INSERT INTO p VALUES (3, 'moves', 0) ON CONFLICT (a) DO UPDATE SET a = 12;
INSERT INTO p VALUES (31, 'moves', 0) ON CONFLICT (a) DO UPDATE SET a = 12;
INSERT INTO p1 VALUES (3, 'moves', 0) ON CONFLICT (a) DO UPDATE SET a = 12;
INSERT INTO p1 VALUES (3, 'direct', 0) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *;
INSERT INTO p1 VALUES (12, 'direct', 0) ON CONFLICT (a) DO UPDATE SET b = excluded.b;
INSERT INTO sub VALUES (21, 'sub', 0), (31, 'sub', 0) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *;
PREPARE up AS INSERT INTO p SELECT g, 'prepared', 0 FROM generate_series(1, 35, 10) g ON CONFLICT (a) DO UPDATE SET c = p.c + 1 RETURNING tableoid::regclass, a, c;
SET plan_cache_mode = force_generic_plan;
EXECUTE up;
EXECUTE up;
RESET plan_cache_mode;
DEALLOCATE up;
INSERT INTO p VALUES (1, 'all', 1), (11, 'all', 11) ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = excluded.c RETURNING *;
INSERT INTO p VALUES (1, 'all', 1), (11, 'all', 11) ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = p.c + p.a RETURNING *;
-- triggers of partitions and of the whole
CREATE TRIGGER r AFTER INSERT OR UPDATE ON p FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER s AFTER INSERT OR UPDATE ON p FOR EACH STATEMENT EXECUTE FUNCTION note();
CREATE TRIGGER b BEFORE INSERT OR UPDATE ON p2 FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO p VALUES (3, 't', 0), (4, 't', 0), (13, 't', 0), (11, 't', 0), (31, 't', 0), (33, 't', 0) ON CONFLICT (a) DO UPDATE SET b = excluded.b;
SELECT logged();
DROP TRIGGER r ON p; DROP TRIGGER s ON p; DROP TRIGGER b ON p2;
-- policies of the whole: for what is proposed, what is there, and what becomes of it
CREATE ROLE regress_kv_upsert;
GRANT ALL ON p TO regress_kv_upsert;
ALTER TABLE p ENABLE ROW LEVEL SECURITY;
CREATE POLICY i ON p FOR INSERT WITH CHECK (b <> 'bad insert');
CREATE POLICY u ON p FOR UPDATE USING (c < 100) WITH CHECK (b <> 'bad update');
CREATE POLICY s ON p FOR SELECT USING (true);
SET ROLE regress_kv_upsert;
INSERT INTO p VALUES (3, 'ok', 0) ON CONFLICT (a) DO UPDATE SET c = 100 RETURNING *;
INSERT INTO p VALUES (3, 'ok', 0) ON CONFLICT (a) DO UPDATE SET c = 1;
INSERT INTO p VALUES (11, 'ok', 0) ON CONFLICT (a) DO UPDATE SET b = 'bad update';
INSERT INTO p VALUES (11, 'bad insert', 0) ON CONFLICT (a) DO UPDATE SET b = 'good';
INSERT INTO p VALUES (11, 'bad insert', 0) ON CONFLICT (a) DO NOTHING;
INSERT INTO p VALUES (11, 'good', 0) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *;
RESET ROLE;
DROP OWNED BY regress_kv_upsert;
DROP ROLE regress_kv_upsert;
SELECT tableoid::regclass, * FROM p ORDER BY a;
DROP TABLE p;
-- Inheritance: the table named is the one that gets the row.
CREATE FOREIGN TABLE cities (name text COLLATE "C", people int) SERVER kvfdw;
CREATE FOREIGN TABLE capitals (state text) INHERITS (cities) SERVER kvfdw OPTIONS (key 'name');
INSERT INTO cities VALUES ('Las Vegas', 1) ON CONFLICT (name) DO UPDATE SET people = 0;
INSERT INTO capitals VALUES ('Las Vegas', 2, 'NV') ON CONFLICT (name) DO UPDATE SET people = 0;
INSERT INTO capitals VALUES ('Las Vegas', 3, 'XX') ON CONFLICT (name) DO UPDATE SET people = capitals.people + excluded.people RETURNING *;
INSERT INTO cities VALUES ('Las Vegas', 4) ON CONFLICT (name) DO UPDATE SET people = cities.people + excluded.people RETURNING *;
SELECT tableoid::regclass, * FROM cities ORDER BY people;
DROP FOREIGN TABLE capitals, cities;
DROP TABLE log CASCADE;
