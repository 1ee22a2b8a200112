-- Promise: rows show in a column that is added later what they would on heap: its default
-- as it was then, once for all rows or row by row, whatever becomes of the default.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FUNCTION shift(t text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT t || '!' $$;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN filled AS text NOT NULL;
CREATE DOMAIN seven AS int DEFAULT 7;
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (x float8, y text);
-- attempt: the message of an error, or NULL; twins: the same on both tables, and what differs then.
CREATE FUNCTION attempt(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN EXECUTE statement; RETURN NULL;
EXCEPTION WHEN OTHERS THEN RETURN sqlstate || ' ' || replace(replace(sqlerrm, 'kv', 't'), 'heap', 't'); END $$;
CREATE FUNCTION twins(change text) RETURNS TABLE (error text, differing bigint, example text) LANGUAGE plpgsql AS $$
DECLARE wrong text;
BEGIN
  error := attempt(replace(change, '%s', 'kv'));
  wrong := attempt(replace(change, '%s', 'heap'));
  IF error IS DISTINCT FROM wrong THEN error := error || ', but heap: ' || coalesce(wrong, 'none'); END IF;
  SELECT count(*) INTO differing FROM (SELECT kv::text FROM kv FULL JOIN heap ON kv.k = heap.k WHERE kv::text IS DISTINCT FROM heap::text) s;
  SELECT kv::text INTO example FROM kv ORDER BY k LIMIT 1;
  RETURN NEXT;
END $$;
CREATE PROCEDURE fresh(columns text, options text = '') LANGUAGE plpgsql AS $$
BEGIN
  DROP FOREIGN TABLE IF EXISTS kv; DROP TABLE IF EXISTS heap;
  EXECUTE format('CREATE FOREIGN TABLE kv (%s) SERVER kvfdw %s', columns, options);
  EXECUTE format('CREATE TABLE heap (%s)', columns);
END $$;
CALL fresh('k int, v text');
SELECT * FROM twins('INSERT INTO %s SELECT g, ''v'' || g FROM generate_series(1, 5) g');
-- Rows of a bare payload, of none, and with a header; every kind of length and alignment.
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN a int DEFAULT 5');
SELECT * FROM twins('ALTER TABLE %s ALTER COLUMN a SET DEFAULT 6');
SELECT * FROM twins('INSERT INTO %s (k, v) VALUES (6, NULL)');
SELECT * FROM twins('INSERT INTO %s VALUES (7, ''seven'', NULL)');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN b text NOT NULL DEFAULT shift(''b''), ADD COLUMN c float8 DEFAULT 1.5, ADD COLUMN n int');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN d numeric(10,3) DEFAULT 12.3456, ADD COLUMN e int[] DEFAULT ARRAY[1,2,NULL], ADD COLUMN f "char" DEFAULT ''x'', ADD COLUMN g name DEFAULT ''a name'', ADD COLUMN h pair DEFAULT ROW(1.5, ''y''), ADD COLUMN i mood DEFAULT ''happy'', ADD COLUMN j jsonb DEFAULT ''{"a": [1, 2]}'', ADD COLUMN l uuid DEFAULT ''5e0c1b1e-0000-4000-8000-000000000001'', ADD COLUMN m bool NOT NULL DEFAULT true, ADD COLUMN o varchar(3) DEFAULT ''abc'', ADD COLUMN p bytea DEFAULT ''\x00ff'', ADD COLUMN q smallint DEFAULT -1, ADD COLUMN r char(4) DEFAULT ''ab'', ADD COLUMN s cidr DEFAULT ''10.0.0.0/8''');
SELECT * FROM twins('UPDATE %s SET n = k WHERE k % 2 = 0');
SELECT kvfdw_flush('kv');
SELECT * FROM twins('UPDATE %s SET b = b || a WHERE k < 3');
SELECT * FROM twins('DELETE FROM %s WHERE a = 5 AND k = 2');
-- Large ones, compressed by whoever, are in every row.
SELECT error, differing, length(example) FROM twins('ALTER TABLE %s ADD COLUMN t text DEFAULT repeat(''long'', 300)');
SELECT error, differing, length(example) FROM twins('ALTER TABLE %s ADD COLUMN u text NOT NULL DEFAULT repeat(''longer '', 20000)');
SELECT error, differing, length(example) FROM twins('ALTER TABLE %s DROP COLUMN u, DROP COLUMN t');
-- Dropped, changed, renamed columns and defaults: old rows keep theirs.
SELECT * FROM twins('ALTER TABLE %s DROP COLUMN c, DROP COLUMN h, ALTER COLUMN b DROP DEFAULT');
SELECT * FROM twins('ALTER TABLE %s ALTER COLUMN b TYPE varchar');
SELECT * FROM twins('ALTER TABLE %s RENAME COLUMN b TO bb');
SELECT * FROM twins('INSERT INTO %s (k, bb) VALUES (8, ''new'')');
-- NOT NULL without a default, types that allow no NULL, defaults that are errors.
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z int NOT NULL');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z int NOT NULL DEFAULT NULL');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z filled');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z filled DEFAULT ''full''');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z2 positive DEFAULT -1');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z2 positive DEFAULT 1, ADD COLUMN z3 positive, ADD COLUMN z4 seven, ADD COLUMN z5 seven DEFAULT NULL');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z6 int DEFAULT 1 / 0');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN z7 int DEFAULT 1, ADD COLUMN z8 int NOT NULL');
-- Row by row, in the order of keys: sequences, generated columns, volatile functions.
CREATE TABLE copy AS TABLE heap;
TRUNCATE heap;
INSERT INTO heap SELECT * FROM copy ORDER BY k;
DROP TABLE copy;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN id serial, ADD COLUMN x int DEFAULT 3');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN own int GENERATED ALWAYS AS IDENTITY (START 10)');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN gen text GENERATED ALWAYS AS (bb || k) STORED NOT NULL, ADD COLUMN y int DEFAULT 4, ADD COLUMN gen2 int GENERATED ALWAYS AS (y * k) STORED');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN gen3 int GENERATED ALWAYS AS (nullif(k, 3)) STORED NOT NULL');
SELECT * FROM twins('INSERT INTO %s (k, bb, z) VALUES (9, ''nine'', ''z'')');
ALTER FOREIGN TABLE kv ADD COLUMN random float8 NOT NULL DEFAULT random(), ADD COLUMN at timestamptz DEFAULT clock_timestamp(), ADD COLUMN now timestamptz DEFAULT now();
SELECT count(DISTINCT random) = count(*), count(DISTINCT at) > 1, count(DISTINCT now), count(*) FROM kv;
SELECT relname FROM pg_class WHERE relname LIKE 'kv_id_seq';
-- What cannot be told apart.
ALTER FOREIGN TABLE kv ADD COLUMN late int DEFAULT 1, ALTER COLUMN late SET DEFAULT 2;
-- Transactions.
CALL fresh('k int, v text');
SELECT * FROM twins('INSERT INTO %s VALUES (1, ''one''), (2, ''two'')');
BEGIN;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN a int DEFAULT 5');
INSERT INTO kv VALUES (3, 'three', 3);
SELECT * FROM kv ORDER BY k;
ROLLBACK;
SELECT * FROM kv ORDER BY k;
BEGIN;
SAVEPOINT s;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN a int DEFAULT 5');
ROLLBACK TO s;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN b text DEFAULT ''six''');
SAVEPOINT s2;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN id serial');
ROLLBACK TO s2;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN c int DEFAULT 7');
RELEASE s;
SELECT * FROM twins('INSERT INTO %s (k) VALUES (3)');
COMMIT;
SELECT * FROM twins('SELECT');
SELECT * FROM kv ORDER BY k;
BEGIN;
DELETE FROM kv; DELETE FROM heap;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN d int NOT NULL');
ROLLBACK;
-- A table that is made in the same transaction.
BEGIN;
CALL fresh('k int');
SELECT * FROM twins('INSERT INTO %s VALUES (1), (2)');
SAVEPOINT s;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN a int DEFAULT 5');
SELECT * FROM twins('INSERT INTO %s VALUES (3, 3)');
ROLLBACK TO s;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN b text DEFAULT ''five''');
SELECT * FROM twins('INSERT INTO %s VALUES (3)');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN c float8 DEFAULT random() * 0');
COMMIT;
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN d int NOT NULL DEFAULT 9');
-- Without rows there is nothing to show; after TRUNCATE neither.
SELECT * FROM twins('TRUNCATE %s');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN e int NOT NULL');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN f int DEFAULT 1 / 0');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN f serial');
SELECT * FROM twins('INSERT INTO %s (k, e) VALUES (1, 2)');
SELECT * FROM twins('ALTER TABLE %s ADD COLUMN g int DEFAULT 8');
SELECT * FROM twins('INSERT INTO %s (k, e, g) VALUES (2, 2, NULL)');
-- Rows that are written anew for another level take it with them.
ALTER FOREIGN TABLE kv OPTIONS (ADD wal 'keys');
SELECT * FROM twins('SELECT');
ALTER FOREIGN TABLE kv OPTIONS (SET wal 'none'), ADD COLUMN h int DEFAULT 9; ALTER TABLE heap ADD COLUMN h int DEFAULT 9;
SELECT * FROM twins('SELECT');
ALTER FOREIGN TABLE kv OPTIONS (SET wal 'keys'), ADD COLUMN i serial; ALTER TABLE heap ADD COLUMN i serial;
SELECT * FROM twins('SELECT');
-- Everywhere rows are read: conditions, projections, RETURNING, triggers, row marks, joins, ANALYZE, parents.
CREATE TABLE parent (k int, v text) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE part1 PARTITION OF parent FOR VALUES FROM (0) TO (10) SERVER kvfdw;
CREATE TABLE part2 PARTITION OF parent FOR VALUES FROM (10) TO (20);
INSERT INTO parent SELECT g, 'v' || g FROM generate_series(1, 19, 3) g;
ALTER TABLE parent ADD COLUMN a int NOT NULL DEFAULT 5, ADD COLUMN b text DEFAULT 'six';
SELECT * FROM parent ORDER BY k;
ALTER TABLE parent ADD COLUMN n int NOT NULL;
SELECT a, b FROM part1 WHERE b = 'six' AND a > 4 ORDER BY k LIMIT 1;
SELECT count(*), sum(a), count(b) FROM part1 WHERE k > 1;
SELECT k, b FROM part1 WHERE a = 5 ORDER BY k FOR UPDATE;
CREATE FUNCTION show() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING '% -> %', old, new; RETURN new; END $$;
CREATE TRIGGER show BEFORE UPDATE ON part1 FOR EACH ROW EXECUTE FUNCTION show();
UPDATE part1 SET v = 'new' WHERE k = 1 RETURNING *;
DELETE FROM part1 WHERE k = 4 RETURNING a, b;
SELECT * FROM parent ORDER BY k;
COPY (SELECT * FROM part1 ORDER BY k) TO STDOUT;
ANALYZE part1;
SELECT attname, null_frac, n_distinct FROM pg_stats WHERE tablename = 'part1' AND attname IN ('a', 'b') ORDER BY 1;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT * FROM part1 ORDER BY k;
COMMIT;
ALTER TABLE parent DROP COLUMN b;
FETCH c;
CLOSE c;
DROP TABLE parent;
-- an event trigger sees no rows that the statement has not reached yet, and writes none
CALL fresh('k int, c int');
INSERT INTO kv VALUES (1, 1), (2, 2);
CREATE FUNCTION audit() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE current_setting('kv.audit'); END $$;
CREATE FUNCTION audited(change text, audit text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN PERFORM set_config('kv.audit', audit, false); RETURN coalesce(attempt(change), 'ok'); END $$;
CREATE EVENT TRIGGER kv_audit ON ddl_command_end WHEN TAG IN ('ALTER FOREIGN TABLE') EXECUTE FUNCTION audit();
SELECT audited('ALTER FOREIGN TABLE kv ADD COLUMN d int DEFAULT 5', audit) FROM (VALUES ('UPDATE kv SET c = c WHERE k = 1'), ('INSERT INTO kv VALUES (3, 3, NULL)'), ('DO $d$ BEGIN PERFORM count(*) FROM kv; END $d$'), ('TABLE kv'), ('COPY kv FROM PROGRAM ''echo 4''')) v (audit);
SELECT audited('ALTER FOREIGN TABLE kv ADD COLUMN d float8 DEFAULT random()', 'TABLE kv'), audited('ALTER FOREIGN TABLE kv ADD COLUMN d seven', 'TABLE kv'), audited('ALTER FOREIGN TABLE kv ALTER c TYPE text', 'TABLE kv');
SELECT audited('ALTER FOREIGN TABLE kv ADD COLUMN e text', 'INSERT INTO kv VALUES (3, 3)'), audited('ALTER FOREIGN TABLE kv ALTER e TYPE varchar(5)', 'SELECT'), audited('ALTER FOREIGN TABLE kv ALTER c SET NOT NULL', 'UPDATE kv SET c = 1 WHERE k = 1');
DROP EVENT TRIGGER kv_audit;
SELECT * FROM kv ORDER BY k;
DROP FUNCTION audit, audited;
DROP FOREIGN TABLE kv; DROP TABLE heap;
DROP PROCEDURE fresh; DROP FUNCTION twins, attempt, show, shift;
DROP DOMAIN positive, filled, seven; DROP TYPE mood, pair;
