-- Promise: the views count what was done, the reset empties them, size and check speak of one table.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SELECT kvfdw_stat_reset();
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw OPTIONS (shards '2');
SELECT kvfdw_relation_size('t') >= 0 AS known_before_first_write;
INSERT INTO t SELECT g, repeat('x', 4096) FROM generate_series(1, 1000) g;
SELECT kvfdw_relation_size('t') BETWEEN 1000 * 4096 AND 400 * 1000 * 1000 AS holds_the_values;
SELECT count(*) FROM kvfdw_check('t');
SELECT kvfdw_freeze('t');
SELECT count(*) FROM kvfdw_check('t');
SELECT count(v) FROM t;
SELECT count(*) FROM t WHERE k = 77;
SELECT kind IS NOT NULL AS named, bool_or(calls > 0) AS called, bool_or(bytes > 0) AS moved, sum(errors) AS errors FROM kvfdw_stat_io GROUP BY 1;
SELECT count(*) = count(DISTINCT kind) AS one_row_per_kind FROM kvfdw_stat_io;
SELECT sum(bytes) >= 1000 * 4096 AS written FROM kvfdw_stat_io WHERE kind = 'value write';
SELECT kvfdw_stat_reset();
SELECT sum(calls) FILTER (WHERE kind IN ('value write', 'value read')) AS calls, sum(errors) AS errors FROM kvfdw_stat_io;
SELECT relid, shards, inserts FROM kvfdw_stat_tables WHERE relid = 't'::regclass;
TRUNCATE t;
SELECT count(*) FROM t;
SELECT kvfdw_relation_size('t') < 1000 * 4096 AS shrunk;
SELECT count(*) FROM kvfdw_check('t');
-- Wrong arguments.
CREATE TABLE heap (k int);
SELECT kvfdw_relation_size('heap');
SELECT * FROM kvfdw_check('heap');
SELECT kvfdw_freeze('heap');
SELECT kvfdw_relation_size(NULL) IS NULL AS strict;
SELECT kvfdw_relation_size(0::oid::regclass);
-- Settings: names are reserved, values checked.
SELECT current_setting('kvfdw.io_method') IN ('auto', 'io_uring', 'sync') AS known_method;
SET kvfdw.io_method = 'sync';
SET kvfdw.io_method = 'threads';
SET kvfdw.no_such_setting = 1;
RESET kvfdw.io_method;
SELECT name, vartype FROM pg_settings WHERE name IN ('kvfdw.io_method', 'kvfdw.io_depth') ORDER BY name;
-- both methods read and write the same
SET kvfdw.io_method = 'sync';
INSERT INTO t SELECT g, repeat('y', g) FROM generate_series(1, 5000, 7) g;
SELECT kvfdw_freeze('t');
SELECT count(*), sum(length(v)), bool_and(length(v) = k) AS right FROM t;
SELECT length(v) FROM t WHERE k = 4999;
RESET kvfdw.io_method;
SELECT count(*), sum(length(v)), bool_and(length(v) = k) AS right FROM t;
DROP FOREIGN TABLE t;
DROP TABLE heap;
