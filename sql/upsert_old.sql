-- Promise: from PostgreSQL 18 on, RETURNING of an upsert gives old and new rows as on heap.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SELECT current_setting('server_version_num')::int < 180000 AS without_old \gset
\if :without_old
\quit
\endif
CREATE FOREIGN TABLE t (k int, v text, n int) SERVER kvfdw;
INSERT INTO t VALUES (1, 'one', 1) ON CONFLICT (k) DO UPDATE SET v = 'no' RETURNING old.*, new.*, old, new, old IS NULL AS fresh;
INSERT INTO t VALUES (1, 'uno', 2), (2, 'two', 2), (3, 'three', 3) ON CONFLICT (k) DO UPDATE SET v = excluded.v, n = t.n + excluded.n RETURNING old.*, new.*, old, new, v, old.n + new.n AS sum;
INSERT INTO t VALUES (1, 'eins', 2), (4, 'four', 4) ON CONFLICT (k) DO UPDATE SET k = 10 RETURNING WITH (OLD AS o, NEW AS x) o.k, x.k, k, CASE WHEN o IS NULL THEN 'inserted' ELSE 'updated' END AS what;
INSERT INTO t VALUES (2, 'zwei', 0), (5, 'five', 5) ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE t.n > 100 RETURNING old.v, new.v;
INSERT INTO t VALUES (2, 'zwei', 0), (6, 'six', 6) ON CONFLICT (k) DO NOTHING RETURNING old.v, new.v;
INSERT INTO t VALUES (6, 'sechs', 0), (7, 'seven', 7), (2, 'zwei', 0) ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING old.tableoid::regclass, old.v || '>' || new.v AS both, (SELECT count(*) FROM t x WHERE x.k < old.k) AS below;
CREATE VIEW view AS SELECT k, upper(v) AS loud, n FROM t;
INSERT INTO view (k, n) VALUES (7, 70), (8, 80) ON CONFLICT (k) DO UPDATE SET n = excluded.n RETURNING old.loud, new.loud, old.n, new.n, old, new;
WITH w AS (INSERT INTO t VALUES (8, 'w', 0), (9, 'w', 0) ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING old.n AS before, new.n AS after) SELECT * FROM w ORDER BY before;
CREATE TABLE p (a int, b text, c int) PARTITION BY RANGE (a); -- heap: CREATE TABLE p (a int PRIMARY KEY, b text, c int) PARTITION BY RANGE (a);
CREATE FOREIGN TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (key 'a'); -- heap: CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE FOREIGN TABLE p2 (c int, b text, a int NOT NULL) SERVER kvfdw OPTIONS (key 'a');
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
INSERT INTO p VALUES (1, 'a', 1), (11, 'b', 2) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING old.*, new.*, old, new;
INSERT INTO p VALUES (1, 'aa', 3), (11, 'bb', 4), (12, 'c', 5), (2, 'd', 6) ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = p.c + 10 RETURNING old.*, new.*, old, new;
SELECT * FROM t ORDER BY k;
DROP TABLE p;
DROP VIEW view;
DROP FOREIGN TABLE t;
