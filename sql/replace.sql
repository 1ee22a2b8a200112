-- Promise: with on_duplicate 'replace' INSERT and COPY overwrite a row only for who may UPDATE, through a view only what no WHERE can hide, and under no policy; and a row that an UPDATE moves overwrites and loses none.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE ROLE kv_inserts;
CREATE ROLE kv_puts;
CREATE ROLE kv_view_owner;
GRANT CREATE ON SCHEMA public TO kv_view_owner;
CREATE FOREIGN TABLE t (k int, v text, g int GENERATED ALWAYS AS (k * 2) STORED) SERVER kvfdw OPTIONS (on_duplicate 'replace');
INSERT INTO t (k, v) VALUES (1, 'one'), (2, 'two');
GRANT SELECT, INSERT ON t TO kv_inserts;
GRANT SELECT, INSERT, UPDATE ON t TO kv_puts;
-- INSERT alone inserts.
SET ROLE kv_inserts;
INSERT INTO t VALUES (3, 'three') RETURNING *;
INSERT INTO t VALUES (1, 'taken');
INSERT INTO t VALUES (4, 'four'), (4, 'again');
INSERT INTO t SELECT k + 2, v FROM t;
INSERT INTO t SELECT k + 10, v FROM t;
COPY t (k, v) FROM stdin;
5	five
\.
\set SHOW_CONTEXT never
COPY t (k, v) FROM stdin;
6	six
2	taken
\.
\unset SHOW_CONTEXT
PREPARE put AS INSERT INTO t VALUES ($1, $2) RETURNING *;
EXECUTE put (1, 'taken');
EXECUTE put (7, 'seven');
WITH w AS (INSERT INTO t VALUES (2, 'taken') RETURNING *) SELECT * FROM w;
INSERT INTO t VALUES (1, 'taken') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO t VALUES (1, 'kept') ON CONFLICT (k) DO NOTHING;
INSERT INTO t VALUES (1, 'kept') ON CONFLICT DO NOTHING;
-- With UPDATE it overwrites, also in a plan that another role has made.
RESET ROLE;
SET ROLE kv_puts;
INSERT INTO t VALUES (1, 'put') RETURNING *;
COPY t (k, v) FROM stdin;
2	copied
\.
RESET ROLE;
SET plan_cache_mode = force_generic_plan;
EXECUTE put (1, 'put by the owner');
SET ROLE kv_inserts;
EXECUTE put (1, 'taken');
SET ROLE kv_puts;
EXECUTE put (1, 'put');
RESET ROLE;
RESET plan_cache_mode;
DEALLOCATE put;
SELECT * FROM t ORDER BY k;
-- UPDATE on each column is as good; on some it is not.
GRANT UPDATE (v) ON t TO kv_inserts;
SET ROLE kv_inserts;
INSERT INTO t VALUES (1, 'taken');
RESET ROLE;
GRANT UPDATE (k, g) ON t TO kv_inserts;
SET ROLE kv_inserts;
INSERT INTO t VALUES (1, 'by columns') RETURNING *;
RESET ROLE;
REVOKE UPDATE (k, v, g) ON t FROM kv_inserts;
-- Functions: who runs them, or who owns them.
CREATE FUNCTION put(int, text) RETURNS text LANGUAGE sql AS 'INSERT INTO t VALUES ($1, $2) RETURNING v';
CREATE FUNCTION put_definer(int, text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO t VALUES ($1, $2); RETURN $2; END $$;
SET ROLE kv_inserts;
SELECT put(1, 'taken');
SELECT put_definer(1, 'by the owner');
RESET ROLE;
-- Views: UPDATE on the view, and for its owner on the table; or for the invoker on both.
CREATE VIEW v AS SELECT v, k FROM t;
CREATE VIEW vi WITH (security_invoker) AS SELECT v, k FROM t;
CREATE VIEW vv AS SELECT k AS key, v AS value FROM v;
GRANT SELECT, INSERT ON v, vi, vv TO kv_inserts;
GRANT SELECT, INSERT, UPDATE ON vi, vv TO kv_puts;
SET ROLE kv_inserts;
INSERT INTO v VALUES ('through v', 20) RETURNING *;
INSERT INTO v VALUES ('taken', 1);
INSERT INTO vi VALUES ('taken', 1);
INSERT INTO vv VALUES (1, 'taken');
RESET ROLE;
GRANT UPDATE ON v, vi TO kv_inserts;
SET ROLE kv_inserts;
INSERT INTO v VALUES ('by the owner of v', 1) RETURNING *;
INSERT INTO vi VALUES ('taken', 1);
RESET ROLE;
SET ROLE kv_puts;
INSERT INTO vi VALUES ('through vi', 1) RETURNING *;
INSERT INTO vv VALUES (1, 'through vv') RETURNING *;
RESET ROLE;
GRANT SELECT, INSERT ON t TO kv_view_owner;
ALTER VIEW v OWNER TO kv_view_owner;
SET ROLE kv_inserts;
INSERT INTO v VALUES ('owner has no UPDATE', 1);
RESET ROLE;
INSERT INTO v VALUES ('owner has no UPDATE', 1);
INSERT INTO vv VALUES (1, 'owner of v has no UPDATE');
-- A view with WHERE: nothing is overwritten, shown or hidden.
CREATE VIEW low AS SELECT k, v FROM t WHERE k < 3;
CREATE VIEW low_checked AS SELECT k, v FROM t WHERE k < 3 WITH CHECK OPTION;
CREATE VIEW low_named AS SELECT v AS value, k FROM low;
INSERT INTO low VALUES (1, 'shown');
INSERT INTO low VALUES (3, 'hidden');
INSERT INTO low VALUES (21, 'new') RETURNING *;
INSERT INTO low_checked VALUES (1, 'shown');
INSERT INTO low_checked VALUES (3, 'not of the view');
INSERT INTO low_named VALUES ('shown', 1);
INSERT INTO low VALUES (1, 'upsert') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *;
-- What a statement does elsewhere is no matter.
CREATE TABLE heap (k int, v text);
CREATE VIEW heap_low AS SELECT * FROM heap WHERE k < 3;
WITH w AS (INSERT INTO heap_low VALUES (1, 'heap') RETURNING *) INSERT INTO t SELECT k, 'put beside' FROM w RETURNING *;
-- An INSTEAD rule is run by who owns it.
CREATE VIEW ruled AS SELECT k, v FROM t WHERE k < 3;
CREATE RULE r AS ON INSERT TO ruled DO INSTEAD INSERT INTO t VALUES (new.k, new.v);
GRANT INSERT ON ruled TO kv_inserts;
SET ROLE kv_inserts;
INSERT INTO ruled VALUES (1, 'by a rule');
RESET ROLE;
SELECT k, v FROM t WHERE k IN (1, 3, 21) ORDER BY k;
-- Partitions: the statement's table counts.
CREATE TABLE p (k int, v text) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (on_duplicate 'replace');
CREATE TABLE p2 (v text, k int PRIMARY KEY);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
CREATE FOREIGN TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30) SERVER kvfdw OPTIONS (on_duplicate 'ignore');
INSERT INTO p VALUES (1, 'one'), (11, 'eleven'), (12, 'twelve'), (21, 'twenty-one');
GRANT SELECT, INSERT ON p TO kv_inserts;
GRANT SELECT, INSERT, UPDATE ON p TO kv_puts;
GRANT SELECT, INSERT, UPDATE ON p1 TO kv_inserts;
SET ROLE kv_inserts;
INSERT INTO p VALUES (2, 'two'), (13, 'thirteen');
INSERT INTO p VALUES (14, 'fourteen'), (1, 'taken');
\set SHOW_CONTEXT never
COPY p FROM stdin;
1	taken
\.
\unset SHOW_CONTEXT
INSERT INTO p1 VALUES (1, 'partition') RETURNING *;
MERGE INTO p USING (VALUES (1)) s (n) ON p.k = s.n + 100 AND p.k > 10 AND p.k < 20 WHEN NOT MATCHED THEN INSERT VALUES (n, 'taken');
SET ROLE kv_puts;
INSERT INTO p VALUES (1, 'put') RETURNING *;
COPY p FROM stdin;
2	copied
\.
MERGE INTO p USING (VALUES (1)) s (n) ON p.k = s.n + 100 AND p.k > 10 AND p.k < 20 WHEN NOT MATCHED THEN INSERT VALUES (n, 'merged');
RESET ROLE;
SELECT tableoid::regclass, * FROM p ORDER BY k;
-- A row that an UPDATE or a MERGE moves to a partition.
UPDATE p SET k = 1 WHERE k = 11;
UPDATE p SET k = 21 WHERE k = 11;
UPDATE p SET k = 22 WHERE k = 12 RETURNING *;
MERGE INTO p USING (VALUES (11)) s (n) ON p.k = s.n AND p.k > 10 AND p.k < 20 WHEN MATCHED THEN UPDATE SET k = 1;
MERGE INTO p USING (VALUES (11)) s (n) ON p.k = s.n AND p.k > 10 AND p.k < 20 WHEN MATCHED THEN UPDATE SET k = 21;
SELECT tableoid::regclass, * FROM p ORDER BY k;
-- Row security: nothing is overwritten where policies count.
ALTER TABLE p ENABLE ROW LEVEL SECURITY;
CREATE POLICY shown ON p FOR SELECT USING (true);
CREATE POLICY new ON p FOR INSERT WITH CHECK (true);
CREATE POLICY mine ON p FOR UPDATE USING (v <> 'merged');
SET ROLE kv_puts;
INSERT INTO p VALUES (1, 'policies');
INSERT INTO p VALUES (3, 'policies') RETURNING *;
INSERT INTO p VALUES (2, 'policies');
INSERT INTO p VALUES (1, 'policies') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
INSERT INTO p VALUES (2, 'policies') ON CONFLICT (k) DO UPDATE SET v = excluded.v;
RESET ROLE;
INSERT INTO p VALUES (1, 'the owner') RETURNING *;
SELECT * FROM p WHERE k < 10 ORDER BY k;
-- An upsert that gives the row the key of another one: the option is not why, and no hint says so.
CREATE VIEW hides AS SELECT * FROM t WHERE k < 100;
INSERT INTO t (k) VALUES (41), (42);
INSERT INTO hides (k) VALUES (41) ON CONFLICT (k) DO UPDATE SET k = 42;
INSERT INTO hides (k) VALUES (41);
DROP TABLE p, heap CASCADE;
DROP FOREIGN TABLE t CASCADE;
DROP FUNCTION put(int, text);
DROP FUNCTION put_definer(int, text);
REVOKE CREATE ON SCHEMA public FROM kv_view_owner;
DROP ROLE kv_inserts, kv_puts, kv_view_owner;
