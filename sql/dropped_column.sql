-- Promise: rows that were stored before a column was dropped keep all their other
-- columns, whatever type the dropped column had come to have by then.
-- Old rows decode by what the dropped column was written with: wider, narrower, of
-- another alignment, of another kind of length.
CREATE FOREIGN TABLE d (k int, c bigint, a int, t text) SERVER kvfdw;
INSERT INTO d SELECT g, g * 1000, g * 10, 't' || g FROM generate_series(1, 3) g;
ALTER FOREIGN TABLE d ALTER COLUMN c TYPE int;
SELECT * FROM d;
ALTER FOREIGN TABLE d DROP COLUMN c;
SELECT * FROM d ORDER BY k;
UPDATE d SET t = t || '!' WHERE k = 2 RETURNING *;
SELECT * FROM d ORDER BY k;
SELECT kvfdw_flush('d');
SELECT * FROM d ORDER BY k;
CREATE FUNCTION drop_after_change(was text, becomes text, literal text) RETURNS TABLE (changed text, result text) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE FOREIGN TABLE c (k int, b "char", c %s, a int, t text, f float8) SERVER kvfdw', was);
  EXECUTE format('INSERT INTO c SELECT g, ''b'', %s, g, ''t'' || g, g / 4.0 FROM generate_series(1, 2) g', literal);
  BEGIN
    EXECUTE format('ALTER FOREIGN TABLE c ALTER COLUMN c TYPE %s', becomes);
  EXCEPTION WHEN datatype_mismatch THEN NULL;
  END;
  ALTER FOREIGN TABLE c DROP COLUMN c;
  changed := was || ' -> ' || becomes;
  FOR result IN EXECUTE 'SELECT c::text FROM c ORDER BY k' LOOP RETURN NEXT; END LOOP;
  DROP FOREIGN TABLE c;
END $$;
SELECT * FROM drop_after_change('bigint', 'int', '7');
SELECT * FROM drop_after_change('int', 'bigint', '7');
SELECT * FROM drop_after_change('text', 'int', $$'seven'$$);
SELECT * FROM drop_after_change('text', 'float8', $$repeat('long', 100)$$);
SELECT * FROM drop_after_change('float8', 'text', '7.5');
SELECT * FROM drop_after_change('bool', 'numeric', 'true');
SELECT * FROM drop_after_change('name', 'bool', $$'a name'$$);
SELECT * FROM drop_after_change('float8[]', 'text', 'ARRAY[7.5]');
SELECT * FROM drop_after_change('text', 'float8[]', $$repeat('long', 100)$$);
SELECT * FROM drop_after_change('uuid', '"char"', $$'5e0c1b1e-0000-4000-8000-000000000001'::uuid$$);
-- The type itself may go with the column.
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (x float8, y int);
CREATE DOMAIN wide AS bigint;
CREATE FOREIGN TABLE g (k int, m mood, p pair, w wide, a int, t text) SERVER kvfdw;
INSERT INTO g VALUES (1, 'sad', (1.5, 2), 3, 4, 'five'), (2, NULL, NULL, NULL, 4, 'five');
ALTER FOREIGN TABLE g ALTER COLUMN w TYPE smallint;
DROP TYPE mood, pair CASCADE;
DROP DOMAIN wide CASCADE;
ALTER FOREIGN TABLE g DROP COLUMN w;
SELECT * FROM g ORDER BY k;
-- The value column of a bare payload; the last value column.
CREATE FOREIGN TABLE r (k int, v text) SERVER kvfdw;
INSERT INTO r VALUES (1, 'bare'), (2, NULL);
ALTER FOREIGN TABLE r ADD COLUMN n int;
INSERT INTO r VALUES (3, 'not bare', 3);
ALTER FOREIGN TABLE r ALTER COLUMN v TYPE bigint;
ALTER FOREIGN TABLE r DROP COLUMN v;
SELECT * FROM r ORDER BY k;
ALTER FOREIGN TABLE r DROP COLUMN n;
SELECT * FROM r ORDER BY k;
INSERT INTO r VALUES (4);
ALTER FOREIGN TABLE r ADD COLUMN v text;
INSERT INTO r VALUES (5, 'new');
SELECT * FROM r ORDER BY k;
-- A drop that is rolled back, and one after TRUNCATE, when there are rows of the new type only.
CREATE FOREIGN TABLE b (k int, c bigint, a int) SERVER kvfdw;
INSERT INTO b VALUES (1, 2, 3);
BEGIN;
ALTER FOREIGN TABLE b ALTER COLUMN c TYPE smallint;
ALTER FOREIGN TABLE b DROP COLUMN c;
SELECT * FROM b;
INSERT INTO b VALUES (2, 5);
UPDATE b SET a = a + 1;
SELECT * FROM b ORDER BY k;
ROLLBACK;
SELECT * FROM b;
BEGIN;
SAVEPOINT s;
ALTER FOREIGN TABLE b DROP COLUMN c;
UPDATE b SET a = a + 1;
ROLLBACK TO s;
SELECT * FROM b;
COMMIT;
SELECT * FROM b;
TRUNCATE b;
ALTER FOREIGN TABLE b ALTER COLUMN c TYPE text;
INSERT INTO b VALUES (1, 'two', 3);
ALTER FOREIGN TABLE b ALTER COLUMN c TYPE float8;
ALTER FOREIGN TABLE b DROP COLUMN c;
SELECT * FROM b;
-- Dropped while there is no row that counts, but one that an open snapshot may see: rows that are
-- written afterwards have no such column.
DELETE FROM b;
ALTER FOREIGN TABLE b ADD COLUMN c bigint;
ALTER FOREIGN TABLE b ALTER COLUMN c TYPE int;
ALTER FOREIGN TABLE b DROP COLUMN c;
INSERT INTO b VALUES (1, 2);
SELECT * FROM b;
-- It moves with the rows when they are written anew for another wal level.
CREATE FOREIGN TABLE w (k int, c bigint, a int) SERVER kvfdw OPTIONS (wal 'none');
INSERT INTO w VALUES (1, 2, 3);
ALTER FOREIGN TABLE w ALTER COLUMN c TYPE "char";
ALTER FOREIGN TABLE w DROP COLUMN c;
ALTER FOREIGN TABLE w OPTIONS (SET wal 'full');
SELECT * FROM w;
DROP FOREIGN TABLE d, g, r, b, w;
DROP FUNCTION drop_after_change;
