-- Promise: constraints that are declared on tables with rows hold for these rows, or are refused as on
-- heap; a partition is attached only if its rows belong there.
\set VERBOSITY terse
CREATE SCHEMA fit;
SET search_path = fit, public;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/outcomes.sql'
\i :file

SELECT make('t', 'k int, a int, b text, c int');
SELECT outcomes('INSERT INTO @t VALUES (1, 1, ''x'', 5), (2, NULL, ''y'', -5)');
-- NOT NULL
SELECT outcomes('ALTER TABLE @t ALTER a SET NOT NULL');
SELECT outcomes('UPDATE @t SET a = 2 WHERE k = 2');
SELECT outcomes('ALTER TABLE @t ALTER a SET NOT NULL');
SELECT outcomes('ALTER TABLE @t ALTER b SET NOT NULL, ALTER a SET STATISTICS 10');
SELECT outcomes('INSERT INTO @t VALUES (3, NULL, ''z'', 1)');
-- CHECK
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT pos CHECK (c > 0)');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT pos CHECK (c > 0) NOT VALID');
SELECT outcomes('INSERT INTO @t VALUES (3, 3, ''z'', -1)');
SELECT outcomes('ALTER TABLE @t VALIDATE CONSTRAINT pos');
SELECT outcomes('UPDATE @t SET c = 7 WHERE k = 2');
SELECT outcomes('ALTER TABLE @t VALIDATE CONSTRAINT pos');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT short CHECK (length(b) < 2 OR c IS NULL), ADD CONSTRAINT small CHECK (k < 2)');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT null_is_fine CHECK (NULLIF(c, 7) > 0), ADD CHECK (k < 3)');
SELECT outcomes('ALTER TABLE @t ADD COLUMN d int DEFAULT 5 CHECK (d > 7)');
SELECT outcomes('ALTER TABLE @t ADD COLUMN d int DEFAULT 5 CHECK (d > 3), ADD CONSTRAINT d_c CHECK (d < c)');
SELECT outcomes('ALTER TABLE @t ADD COLUMN d int DEFAULT 5 CHECK (d > 3), ADD CONSTRAINT d_c CHECK (d <= c)');
SELECT outcomes('ALTER TABLE @t ADD COLUMN e int DEFAULT (random() * 0)::int CHECK (e > 0)');
SELECT outcomes('SELECT * FROM @t WHERE d = 5');
-- what this transaction has done counts
BEGIN;
SELECT outcomes('INSERT INTO @t VALUES (9, 9, ''n'', 900)');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT few CHECK (c < 900)');
SELECT outcomes('DELETE FROM @t WHERE k = 9');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT few CHECK (c < 900)');
ROLLBACK;
SELECT outcomes('INSERT INTO @t VALUES (9, 9, ''n'', 900)');
SELECT kvfdw_flush('f_t');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT few CHECK (c < 900)');
SELECT outcomes('TRUNCATE @t');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT few CHECK (c < 900)');

-- partitions
CREATE TABLE h_p (k int, v int) PARTITION BY RANGE (k);
CREATE TABLE f_p (k int, v int) PARTITION BY RANGE (k);
SELECT make('c', 'k int, v int');
SELECT outcomes('INSERT INTO @c VALUES (5, 1), (15, NULL)');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @c FOR VALUES FROM (0) TO (10)');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @c FOR VALUES FROM (0) TO (20)');
SELECT outcomes('ALTER TABLE @p ALTER v SET NOT NULL');
SELECT outcomes('ALTER TABLE @p ADD CONSTRAINT odd CHECK (k % 10 <> 5)');
SELECT outcomes('ALTER TABLE @p ADD CONSTRAINT low CHECK (k < 20)');
-- the default partition has rows of a new one
SELECT make('d', 'k int, v int, CONSTRAINT low CHECK (k < 20)');
SELECT outcomes('INSERT INTO @d VALUES (-100, 1)');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @d DEFAULT');
SELECT make('n', 'k int, v int, CONSTRAINT low CHECK (k < 20)');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @n FOR VALUES FROM (-200) TO (0)');
SELECT outcomes('CREATE TABLE @new PARTITION OF @p FOR VALUES FROM (-200) TO (0)');
SELECT outcomes('CREATE TABLE @new PARTITION OF @p FOR VALUES FROM (-300) TO (-200)');
SELECT outcomes('DELETE FROM @d');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @n FOR VALUES FROM (-200) TO (0)');
-- a partition that has partitions
CREATE TABLE h_s (k int, v int, CONSTRAINT low CHECK (k < 20)) PARTITION BY LIST (v);
CREATE TABLE f_s (k int, v int, CONSTRAINT low CHECK (k < 20)) PARTITION BY LIST (v);
SELECT make('l', 'k int, v int, CONSTRAINT low CHECK (k < 20)');
SELECT outcomes('INSERT INTO @l VALUES (-1000, 7)');
SELECT outcomes('ALTER TABLE @s ATTACH PARTITION @l FOR VALUES IN (8)');
SELECT outcomes('ALTER TABLE @s ATTACH PARTITION @l FOR VALUES IN (7)');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @s FOR VALUES FROM (-900) TO (-400)');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @s FOR VALUES FROM (-2000) TO (-400)');
SELECT outcomes('SELECT * FROM @p WHERE k = -1000');
SELECT outcomes('ALTER TABLE @p DETACH PARTITION @c');
-- inheritance
CREATE TABLE h_i (k int, v int);
CREATE TABLE f_i (k int, v int);
SELECT outcomes('ALTER TABLE @c INHERIT @i');
SELECT outcomes('ALTER TABLE @i ADD CONSTRAINT no_15 CHECK (k <> 15)');
SELECT outcomes('ALTER TABLE ONLY @i ADD CONSTRAINT no_15 CHECK (k <> 15) NO INHERIT');
SELECT outcomes('ALTER TABLE @i ALTER v SET NOT NULL');
-- rows that are not there are not looked for
CREATE FOREIGN TABLE fresh (k int, CHECK (k > 0)) SERVER kvfdw;
ALTER FOREIGN TABLE fresh ADD CHECK (k < 100);
DROP SCHEMA fit CASCADE;
