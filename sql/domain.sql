-- Promise: a constraint that a domain gets holds for the rows of all kvfdw tables that use it, or is refused as on heap.
\set VERBOSITY terse
CREATE SCHEMA dom;
SET search_path = dom, public;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/outcomes.sql'
\i :file

SELECT outcomes('CREATE DOMAIN @d AS int');
SELECT outcomes('CREATE DOMAIN @over AS @d');
CREATE TABLE h_t (k h_d, v h_d, o h_over, x int);
CREATE FOREIGN TABLE f_t (k f_d NOT NULL, v f_d, o f_over, x int) SERVER kvfdw OPTIONS (key 'k');
CREATE TABLE h_n (k h_d); CREATE FOREIGN TABLE f_n (k f_d NOT NULL) SERVER kvfdw;
-- without rows
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT few CHECK (VALUE < 1000)');
SELECT outcomes('INSERT INTO @t VALUES (1, 10, 100, 0), (2, NULL, 200, 0), (3, 30, NULL, 0)');
-- CHECK
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT small CHECK (VALUE < 30)');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT large CHECK (VALUE > 1)');
SELECT outcomes('ALTER DOMAIN @over ADD CONSTRAINT less CHECK (VALUE < 200)');
SELECT outcomes('ALTER DOMAIN @over ADD CONSTRAINT less CHECK (VALUE < 201)');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT known CHECK (VALUE IS NOT NULL)');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT null_is_fine CHECK (NULLIF(VALUE, 30) > 0)');
-- NOT VALID, VALIDATE
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT later CHECK (VALUE <> 30) NOT VALID');
SELECT outcomes('INSERT INTO @t VALUES (4, 30, 0, 0)');
SELECT outcomes('ALTER DOMAIN @d VALIDATE CONSTRAINT later');
SELECT outcomes('UPDATE @t SET v = 31 WHERE k = 3');
SELECT outcomes('ALTER DOMAIN @d VALIDATE CONSTRAINT later');
SELECT outcomes('INSERT INTO @t VALUES (30, 1, 1, 0)');
-- NOT NULL
SELECT outcomes('ALTER DOMAIN @over SET NOT NULL');
SELECT outcomes('UPDATE @t SET o = 5 WHERE k = 3');
SELECT outcomes('ALTER DOMAIN @over SET NOT NULL');
SELECT outcomes('ALTER DOMAIN @d SET NOT NULL');
SELECT outcomes('UPDATE @t SET v = 20 WHERE k = 2');
SELECT outcomes('ALTER DOMAIN @d SET NOT NULL');
SELECT outcomes('INSERT INTO @t VALUES (5, NULL, 1, 0)');
SELECT outcomes('ALTER DOMAIN @d DROP NOT NULL');
SELECT outcomes('INSERT INTO @t VALUES (5, NULL, 1, 0)');
SELECT outcomes('ALTER DOMAIN @d SET DEFAULT 7');
SELECT outcomes('ALTER DOMAIN @d DROP CONSTRAINT few');
-- old rows of a column that was added; one that was dropped
SELECT outcomes('DELETE FROM @t WHERE k = 5');
SELECT outcomes('ALTER TABLE @t ADD COLUMN w @d DEFAULT 77');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT no77 CHECK (VALUE <> 77)');
SELECT outcomes('ALTER TABLE @t DROP COLUMN w');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT no77 CHECK (VALUE <> 77)');
-- what this transaction has done counts, what was deleted does not
BEGIN;
SELECT outcomes('INSERT INTO @t VALUES (9, 99, 1, 0)');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT no99 CHECK (VALUE <> 99)');
SELECT outcomes('DELETE FROM @t WHERE k = 9');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT no99 CHECK (VALUE <> 99)');
SELECT mode FROM pg_locks WHERE relation = 'f_t'::regclass AND mode = 'ShareLock';
ROLLBACK;
SELECT outcomes('INSERT INTO @t VALUES (9, 99, 1, 0)');
SELECT kvfdw_flush('f_t');
SELECT outcomes('ALTER DOMAIN @d ADD CONSTRAINT no99 CHECK (VALUE <> 99)');
-- partitions
SELECT outcomes('CREATE DOMAIN @part AS text');
CREATE TABLE h_p (k int, v h_part) PARTITION BY RANGE (k);
CREATE TABLE f_p (k int, v f_part) PARTITION BY RANGE (k);
CREATE TABLE h_p1 PARTITION OF h_p FOR VALUES FROM (0) TO (10);
CREATE FOREIGN TABLE f_p1 PARTITION OF f_p FOR VALUES FROM (0) TO (10) SERVER kvfdw OPTIONS (key 'k');
SELECT outcomes('INSERT INTO @p VALUES (1, ''x''), (2, NULL)');
SELECT outcomes('ALTER DOMAIN @part ADD CHECK (VALUE <> ''x'')');
SELECT outcomes('ALTER DOMAIN @part ADD CHECK (VALUE <> ''y'')');
SELECT outcomes('ALTER DOMAIN @part SET NOT NULL');
-- within other types
SELECT outcomes('CREATE DOMAIN @in AS int');
SELECT outcomes('CREATE DOMAIN @in2 AS @in');
SELECT outcomes('CREATE TYPE @row AS (a text, b @in2)');
SELECT outcomes('CREATE TYPE @range AS RANGE (subtype = @in)');
SELECT outcomes('CREATE DOMAIN @array AS @in[]');
SELECT make('a', 'k int, v text');
SELECT outcomes('ALTER TABLE @a ADD COLUMN c @row');
SELECT outcomes('ALTER DOMAIN @in ADD CHECK (VALUE > 0) NOT VALID');
SELECT outcomes('ALTER DOMAIN @in ADD CHECK (VALUE > 0)');
SELECT outcomes('ALTER DOMAIN @in2 SET NOT NULL');
SELECT outcomes('ALTER TABLE @a DROP COLUMN c, ADD COLUMN c @row[]');
SELECT outcomes('ALTER DOMAIN @in ADD CHECK (VALUE > 0)');
SELECT outcomes('ALTER TABLE @a DROP COLUMN c, ADD COLUMN c @range');
SELECT outcomes('ALTER DOMAIN @in ADD CHECK (VALUE > 0)');
SELECT outcomes('ALTER TABLE @a DROP COLUMN c, ADD COLUMN c @array');
SELECT outcomes('ALTER DOMAIN @in SET NOT NULL');
SELECT outcomes('ALTER DOMAIN @array SET NOT NULL');
SELECT outcomes('ALTER TABLE @a DROP COLUMN c');
SELECT outcomes('ALTER DOMAIN @in ADD CHECK (VALUE > 0)');
SET client_min_messages = error;
DROP SCHEMA dom CASCADE;
