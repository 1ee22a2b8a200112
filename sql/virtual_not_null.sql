-- Promise: NOT NULL of a virtual generated column is checked against the rows, as on heap (PostgreSQL 18).
SELECT current_setting('server_version_num')::int < 180000 AS skip_test \gset
\if :skip_test
\quit
\endif
\set VERBOSITY terse
CREATE SCHEMA virtual;
SET search_path = virtual, public;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/outcomes.sql'
\i :file

\pset format unaligned
\pset tuples_only on
SELECT make('t', 'k int, b int');
SELECT outcomes('INSERT INTO @t VALUES (1, 5), (2, 6)');
-- added
SELECT outcomes('ALTER TABLE @t ADD COLUMN z int GENERATED ALWAYS AS (NULLIF(b, 5)) VIRTUAL NOT NULL');
SELECT outcomes('ALTER TABLE @t ADD COLUMN z int GENERATED ALWAYS AS (NULLIF(b, 5)) VIRTUAL, ALTER z SET NOT NULL');
SELECT outcomes('ALTER TABLE @t ADD COLUMN y int GENERATED ALWAYS AS (k * 2) VIRTUAL NOT NULL, ADD COLUMN z int GENERATED ALWAYS AS (NULLIF(b, 5)) VIRTUAL');
SELECT * FROM f_t ORDER BY k;
-- later, and not valid before it is validated
SELECT outcomes('ALTER TABLE @t ALTER z SET NOT NULL');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT z_set NOT NULL z');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT z_set NOT NULL z NOT VALID');
SELECT outcomes('ALTER TABLE @t VALIDATE CONSTRAINT z_set');
SELECT outcomes('UPDATE @t SET b = 7 WHERE k = 1');
SELECT outcomes('ALTER TABLE @t VALIDATE CONSTRAINT z_set');
SELECT outcomes('UPDATE @t SET b = 5 WHERE k = 1');
-- another expression
SELECT outcomes('ALTER TABLE @t ALTER z SET EXPRESSION AS (NULLIF(b, 7))');
SELECT outcomes('ALTER TABLE @t ALTER z SET EXPRESSION AS (NULLIF(b, 8))');
SELECT outcomes('ALTER TABLE @t ALTER y SET EXPRESSION AS (NULLIF(k, 2)), ALTER z DROP NOT NULL, ALTER z SET EXPRESSION AS (NULLIF(b, 7))');
SELECT outcomes('ALTER TABLE @t ALTER z DROP NOT NULL, ALTER z SET EXPRESSION AS (NULLIF(b, 7))');
SELECT outcomes('ALTER TABLE @t ADD CONSTRAINT z_set NOT NULL z NOT VALID');
SELECT outcomes('ALTER TABLE @t ALTER z SET EXPRESSION AS (NULLIF(b, 6))');
SELECT outcomes('ALTER TABLE @t ADD COLUMN s int GENERATED ALWAYS AS (b) STORED NOT NULL');
SELECT outcomes('ALTER TABLE @t ALTER s SET EXPRESSION AS (NULLIF(b, 7))');
SELECT outcomes('ALTER TABLE @t ALTER s SET EXPRESSION AS (b * 10)');
SELECT outcomes('ALTER TABLE @t ALTER s SET EXPRESSION AS (b * 20), ADD CHECK (s > 130)');
SELECT * FROM f_t ORDER BY k;
SELECT * FROM h_t EXCEPT TABLE f_t;
-- values of which nothing else is read
SELECT make('w', 'k int, v text');
SELECT outcomes('INSERT INTO @w SELECT g, CASE WHEN g < 1000 THEN repeat(''v'', g) END FROM generate_series(1, 1000) g');
SELECT outcomes('ALTER TABLE @w ADD COLUMN n text GENERATED ALWAYS AS (upper(v)) VIRTUAL NOT NULL');
SELECT outcomes('UPDATE @w SET v = ''w'' WHERE v IS NULL');
SELECT outcomes('ALTER TABLE @w ADD COLUMN n text GENERATED ALWAYS AS (upper(v)) VIRTUAL NOT NULL');
-- a parent, and partitions that are attached
CREATE TABLE h_p (k int, b int) PARTITION BY RANGE (k);
CREATE TABLE h_q PARTITION OF h_p FOR VALUES FROM (0) TO (10);
CREATE TABLE f_p (k int, b int) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE f_q PARTITION OF f_p FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (key 'k');
SELECT outcomes('INSERT INTO @p VALUES (1, 5)');
SELECT outcomes('ALTER TABLE @p ADD COLUMN z int GENERATED ALWAYS AS (NULLIF(b, 5)) VIRTUAL NOT NULL');
SELECT outcomes('ALTER TABLE @p ADD COLUMN z int GENERATED ALWAYS AS (NULLIF(b, 5)) VIRTUAL');
SELECT outcomes('ALTER TABLE @p ALTER z SET NOT NULL');
SELECT outcomes('ALTER TABLE ONLY @p ALTER z SET NOT NULL');
SELECT outcomes('ALTER TABLE @p ALTER z SET EXPRESSION AS (b), ALTER z SET NOT NULL');
SELECT make('a', 'k int, b int, z int GENERATED ALWAYS AS (NULLIF(b, 6)) VIRTUAL');
SELECT outcomes('INSERT INTO @a (k, b) VALUES (11, 6)');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @a FOR VALUES FROM (10) TO (20)');
SELECT outcomes('ALTER TABLE @a ALTER z SET NOT NULL');
SELECT outcomes('ALTER TABLE @a ADD CONSTRAINT z_set NOT NULL z NOT VALID');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @a FOR VALUES FROM (10) TO (20)');
SELECT outcomes('ALTER TABLE @a VALIDATE CONSTRAINT z_set');
SELECT outcomes('UPDATE @a SET b = 1');
SELECT outcomes('ALTER TABLE @a VALIDATE CONSTRAINT z_set');
SELECT outcomes('ALTER TABLE @p ATTACH PARTITION @a FOR VALUES FROM (10) TO (20)');
SELECT outcomes('ALTER TABLE @p ALTER z SET EXPRESSION AS (NULLIF(b, 1))');
SELECT * FROM h_p EXCEPT TABLE f_p;
DROP SCHEMA virtual CASCADE;
