-- Promise: option wal decides what a store's commits survive; changing it writes the rows anew, in the transaction that changes it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FOREIGN TABLE w (k int, v text, n int) SERVER kvfdw OPTIONS (shards '3', wal 'none');
CREATE VIEW level AS SELECT wal, usable, generation, lost_entries, lost_log_bytes FROM kvfdw_stat_tables WHERE relid = 'w'::regclass ORDER BY generation DESC LIMIT 1;
CREATE VIEW content AS SELECT count(*), sum(length(v)) AS bytes, sum(n) AS n, md5(string_agg(w::text, ';' ORDER BY k)) FROM w;
INSERT INTO w SELECT g * 1000000, repeat('x', (g + 2000) * 3), nullif(g % 5, 0) FROM generate_series(-1000, 1000) g;
INSERT INTO w VALUES (5, repeat('large', 100000), 1), (6, NULL, NULL), (7, '', 0);
TABLE level;
TABLE content;
-- rolled back
BEGIN;
ALTER FOREIGN TABLE w OPTIONS (SET wal 'full');
SELECT count(*) FROM w;
ROLLBACK;
TABLE level;
-- with other changes in the same transaction
BEGIN;
INSERT INTO w VALUES (8, 'before', 8);
ALTER FOREIGN TABLE w OPTIONS (SET wal 'keys');
INSERT INTO w VALUES (9, 'after', 9);
DELETE FROM w WHERE k = 7;
SAVEPOINT s;
DELETE FROM w;
ROLLBACK TO s;
COMMIT;
TABLE level;
TABLE content;
SELECT count(*) FROM kvfdw_check('w');
-- a savepoint that is rolled back changes nothing
BEGIN;
SAVEPOINT s;
ALTER FOREIGN TABLE w OPTIONS (SET wal 'none');
ROLLBACK TO s;
COMMIT;
TABLE level;
-- without the option a table keeps its level, whatever else is changed
ALTER FOREIGN TABLE w OPTIONS (DROP wal);
ALTER FOREIGN TABLE w OPTIONS (ADD on_duplicate 'ignore');
TABLE level;
-- what is made without it is 'full'
TRUNCATE w;
INSERT INTO w SELECT g, 'new', g FROM generate_series(1, 10) g;
TABLE level;
TABLE content;
ALTER FOREIGN TABLE w OPTIONS (ADD wal 'full');
TABLE level;
-- of a table that was never written there is nothing to write anew
CREATE FOREIGN TABLE empty (k int, v text) SERVER kvfdw;
ALTER FOREIGN TABLE empty OPTIONS (ADD wal 'keys');
SELECT count(*) FROM kvfdw_stat_tables WHERE relid = 'empty'::regclass;
INSERT INTO empty VALUES (1, 'one');
SELECT wal FROM kvfdw_stat_tables WHERE relid = 'empty'::regclass;
-- several tables, one dropped and one made in the same transaction
BEGIN;
ALTER FOREIGN TABLE w OPTIONS (SET wal 'keys');
ALTER FOREIGN TABLE empty OPTIONS (SET wal 'full');
DROP FOREIGN TABLE empty;
CREATE FOREIGN TABLE fresh (k int, v text) SERVER kvfdw OPTIONS (wal 'none');
INSERT INTO fresh VALUES (1, 'one');
ALTER FOREIGN TABLE fresh OPTIONS (SET wal 'keys');
COMMIT;
SELECT relname, wal FROM kvfdw_stat_tables WHERE usable AND relid IN ('w'::regclass, 'fresh'::regclass) ORDER BY generation DESC LIMIT 2;
TABLE content;
TABLE fresh;
-- the last checkpoint's marks
CHECKPOINT;
SELECT num_done > 0 AS some, last_lsn IS NOT NULL AS logged, last_done <= now() AS ended, last_total_time >= 0 AS took, last_shards >= 0 AS shards, last_files >= 0 AS files, last_bytes >= 0 AS bytes FROM kvfdw_stat_checkpointer;
DROP VIEW level, content;
DROP FOREIGN TABLE w, fresh;
