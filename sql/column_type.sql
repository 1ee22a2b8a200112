-- Promise: a column whose type is changed, to another length, precision or domain or to another type, has the
-- values that it would have on heap, or the change is refused: no row is left that cannot be read.
\set VERBOSITY terse
CREATE SCHEMA retype;
SET search_path = retype, public;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/outcomes.sql'
\i :file

CREATE DOMAIN big AS int CHECK (VALUE > 10);
CREATE DOMAIN given AS text NOT NULL;
SELECT make('t', 'k int, v varchar(20), n numeric(12,2), c char(5), ts timestamp, x text, i int, b bit(4), a varchar(12)[], p numeric');
SELECT outcomes('INSERT INTO @t SELECT g, repeat(''v'', g), g * 1000.55, ''ab'', ''2024-01-01 00:00:00.123456'', repeat(''x'', g) || ''  '', g, ''1010'', ARRAY[''a'', repeat(''b'', g), NULL], g / 3.0 FROM generate_series(1, 12) g');
SELECT outcomes('INSERT INTO @t (k, v) VALUES (13, NULL)');
-- A change of a column's type, and what the rows are then.
CREATE FUNCTION changed(sql text) RETURNS text LANGUAGE sql AS $$
	SELECT outcomes(sql) || ', ' || outcomes('DO $d$ BEGIN RAISE ''%'', (SELECT md5(string_agg(concat(t, octet_length(c)), '';'' ORDER BY k)) || max(c) || max(n) || max(ts) || min(x) || max(p) FROM @t t); END $d$')
$$;
SELECT changed('ALTER TABLE @t ALTER v TYPE varchar(11)');
SELECT changed('ALTER TABLE @t ALTER v TYPE varchar(12)');
SELECT changed('ALTER TABLE @t ALTER v TYPE text');
SELECT changed('ALTER TABLE @t ALTER n TYPE numeric(5,1)');
SELECT changed('ALTER TABLE @t ALTER n TYPE numeric(12,1), ALTER p TYPE numeric(6,3)');
SELECT changed('ALTER TABLE @t ALTER n TYPE numeric(12,2)');
SELECT changed('ALTER TABLE @t ALTER c TYPE char(8)');
SELECT changed('ALTER TABLE @t ALTER c TYPE char(1)');
SELECT changed('ALTER TABLE @t ALTER ts TYPE timestamp(3)');
SELECT changed('ALTER TABLE @t ALTER x TYPE varchar(12)');
SELECT changed('ALTER TABLE @t ALTER x TYPE given');
SELECT changed('ALTER TABLE @t ALTER i TYPE big');
SELECT changed('ALTER TABLE @t ALTER b TYPE bit(5)');
SELECT changed('ALTER TABLE @t ALTER a TYPE varchar(11)[]');
SELECT changed('ALTER TABLE @t ALTER a TYPE varchar(20)[]');
SELECT outcomes('DELETE FROM @t WHERE k = 13');
SELECT changed('ALTER TABLE @t ALTER x TYPE given');
SELECT outcomes('INSERT INTO @t (k) VALUES (14)');
SELECT changed('ALTER TABLE @t ADD COLUMN late numeric DEFAULT 1.2345');
SELECT changed('ALTER TABLE @t ALTER late TYPE numeric(4,2)');
SELECT changed('ALTER TABLE @t ADD COLUMN later int DEFAULT (random() * 0)::int, ALTER late TYPE numeric(4,1)');
SELECT changed('ALTER TABLE @t ADD CONSTRAINT one CHECK (late::text = ''1.2'')');
SELECT changed('ALTER TABLE @t ALTER late TYPE numeric(4,2)');
BEGIN;
SELECT changed('ALTER TABLE @t ALTER n TYPE numeric(12,0)');
ROLLBACK;
SELECT changed('UPDATE @t SET n = n');
SELECT count(*) FROM kvfdw_check('f_t');
-- a parent
CREATE TABLE h_p (k int, v numeric) PARTITION BY RANGE (k);
CREATE TABLE h_q PARTITION OF h_p FOR VALUES FROM (0) TO (100);
CREATE TABLE f_p (k int, v numeric) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE f_q PARTITION OF f_p FOR VALUES FROM (0) TO (100) SERVER kvfdw OPTIONS (key 'k');
SELECT outcomes('INSERT INTO @p VALUES (1, 1.55), (2, 22.5)');
SELECT outcomes('ALTER TABLE @p ALTER v TYPE numeric(2,1)');
SELECT outcomes('ALTER TABLE @p ALTER v TYPE numeric(3,1)');
SELECT * FROM h_p EXCEPT TABLE f_p;
-- of a key, where no key changes; else it is refused
CREATE FOREIGN TABLE key (k numeric(6,2), l varchar(10) COLLATE "C", v int) SERVER kvfdw OPTIONS (key 'k, l');
INSERT INTO key VALUES (1.50, 'a', 1), (2.25, 'bb', 2);
ALTER FOREIGN TABLE key ALTER k TYPE numeric(8,2), ALTER l TYPE varchar(2) COLLATE "C";
ALTER FOREIGN TABLE key ALTER l TYPE varchar(1) COLLATE "C";
ALTER FOREIGN TABLE key ALTER k TYPE numeric(8,1);
DELETE FROM key WHERE k = 2.25;
ALTER FOREIGN TABLE key ALTER l TYPE varchar(1) COLLATE "C";
TABLE key;
-- beside a column that is stored in another way
ALTER FOREIGN TABLE key ALTER v TYPE bigint, ALTER l TYPE varchar(3) COLLATE "C";
TABLE key;
ALTER FOREIGN TABLE key ALTER v TYPE int, ALTER k TYPE numeric(8,1);
INSERT INTO key VALUES (2.25, 'bb', 2);
ALTER FOREIGN TABLE key ALTER v TYPE bigint, ALTER k TYPE numeric(8,0);
TABLE key;

-- ---- another type: values are cast as an assignment would ----
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN small AS smallint CHECK (VALUE < 1000);
CREATE FUNCTION mood_number(mood) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT CASE $1 WHEN 'sad' THEN 1 ELSE 2 END $$;
CREATE CAST (mood AS int) WITH FUNCTION mood_number AS ASSIGNMENT;
-- One change of a column of that type with such values, on tables of other columns before, beside and behind it,
-- at all levels, also where it is the only one and where rows are in runs; then what is stored is sound.
CREATE FUNCTION change(was text, becomes text, vals text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE shape text; lvl text; answer text; first text;
BEGIN
	FOREACH shape IN ARRAY ARRAY['k int, c %s', 'k int, a text, c %s, b int8, d "char"', 'k int, c %s, z text'] LOOP
		FOREACH lvl IN ARRAY CASE shape WHEN 'k int, c %s' THEN ARRAY['full'] ELSE ARRAY['full', 'keys', 'none'] END LOOP
			PERFORM make('x', format(shape, was));
			EXECUTE format('ALTER FOREIGN TABLE f_x OPTIONS (ADD wal %L)', lvl);
			PERFORM outcomes(format('INSERT INTO @x (k, c) SELECT row_number() OVER (), v FROM (VALUES %s) v (v)', vals));
			IF lvl = 'keys' THEN PERFORM kvfdw_flush('f_x'); END IF;
			PERFORM outcomes('INSERT INTO @x (k, c) SELECT k + 100, c FROM @x');
			answer := outcomes(format('ALTER TABLE @x ALTER c TYPE %s', becomes)) || CASE WHEN shape = 'k int, c %s' THEN
				' | ' || outcomes('DO $d$ BEGIN RAISE ''%'', (SELECT string_agg(left(x::text, 50), '' '' ORDER BY k) FROM @x x WHERE k < 100); END $d$') ELSE '' END;
			PERFORM outcomes('INSERT INTO @x (k, c) SELECT k + 1000, c FROM @x');
			PERFORM outcomes('UPDATE @x SET c = c WHERE k % 2 = 0');
			IF EXISTS (SELECT x::text FROM h_x x EXCEPT ALL SELECT x::text FROM f_x x) THEN RETURN NEXT format('%s %s: rows differ', shape, lvl); END IF;
			IF EXISTS (SELECT FROM kvfdw_check('f_x')) THEN RETURN NEXT format('%s %s: not sound', shape, lvl); END IF;
			DROP TABLE h_x; DROP FOREIGN TABLE f_x;
			IF first IS NULL THEN RETURN NEXT answer; ELSIF first <> answer THEN RETURN NEXT format('%s %s: %s', shape, lvl, answer); END IF;
			first := coalesce(first, split_part(answer, ' | ', 1));
		END LOOP;
	END LOOP;
END $$;
\pset format unaligned
\pset tuples_only on
SELECT change('int', 'bigint', '(1), (-2), (NULL)');
SELECT change('bigint', 'int', '(1), (-2), (NULL::bigint)');
SELECT change('bigint', 'int', '(1), (4294967296)');
SELECT change('int', 'text', '(1), (-2), (NULL)');
SELECT change('text', 'int', '(''1''), (NULL)');
SELECT change('numeric', 'smallint', '(1.5), (2.5), (NULL)');
SELECT change('float8', 'numeric(6,2)', '(1.005), (1e3), (NULL)');
SELECT change('float8', 'numeric(6,2)', '(1e10)');
SELECT change('bool', 'int', '(true)');
SELECT change('char(5)', 'text', '(''ab''), ('''')');
SELECT change('text', 'char(3)', '(''ab''), (''abcd'')');
SELECT change('text', 'name', '(repeat(''x'', 70))');
SELECT change('name', 'varchar(3)', '(''abc'')');
SELECT change('timestamp', 'date', '(''2024-01-31 23:00''::timestamp), (NULL)');
SELECT change('date', 'timestamptz', '(''2024-01-31''::date)');
SELECT change('int[]', 'numeric(5,1)[]', '(ARRAY[1, 2, NULL]), (NULL)');
SELECT change('varchar(5)[]', 'text', '(ARRAY[''a'', ''b'']::varchar(5)[])');
SELECT change('json', 'jsonb', '(''{"b": 1, "a": 2}''::json)');
SELECT change('inet', 'cidr', '(''10.0.0.1/8''::inet)');
SELECT change('mood', 'int', '(''sad''::mood), (''happy''), (NULL)');
SELECT change('mood', 'text', '(''sad''::mood)');
SELECT change('text', 'mood', '(''sad'')');
SELECT change('int', 'small', '(1), (NULL)');
SELECT change('int', 'small', '(1), (1000)');
SELECT change('small', 'bigint', '(1::small), (NULL)');
SELECT change('text', 'bytea', '(''x'')');
SELECT change('text', 'bigint', '(repeat(''long'', 3000))');
SELECT change('bigint', 'text COLLATE "C"', '(1)');
SELECT change('int', 'oid', '(-1)');
-- a cast may say more than the bytes do: it is of the type that the column had last
SELECT make('o', 'k int, v int, t text');
SELECT outcomes('INSERT INTO @o VALUES (1, -1, ''a  '')');
SELECT outcomes('ALTER TABLE @o ALTER v TYPE oid, ALTER t TYPE char(5)'), outcomes('ALTER TABLE @o ALTER v TYPE bigint, ALTER t TYPE text');
SELECT o, length(t) FROM f_o o;
SELECT *, length(t) FROM h_o EXCEPT SELECT *, length(t) FROM f_o;
-- with all that one statement may do beside; a default is changed with the type
SELECT make('m', 'k int, a int DEFAULT 7, b text, c numeric, d int');
SELECT outcomes('INSERT INTO @m SELECT g, g, g::text, g / 4.0, g FROM generate_series(1, 5) g');
SELECT outcomes('ALTER TABLE @m ADD COLUMN e int DEFAULT 5, ALTER a TYPE bigint, ADD COLUMN f bigint GENERATED ALWAYS AS (d + 1) STORED, DROP COLUMN b, ADD COLUMN g float8 DEFAULT random() * 0, ALTER c TYPE int, ADD COLUMN h text NOT NULL DEFAULT ''x'', ADD COLUMN i int');
SELECT outcomes('INSERT INTO @m (k) VALUES (6)');
SELECT * FROM h_m EXCEPT TABLE f_m;
SELECT * FROM f_m ORDER BY k;
SELECT outcomes('ALTER TABLE @m ALTER a TYPE int, ADD COLUMN n int NOT NULL');
SELECT outcomes('ALTER TABLE @m ALTER a TYPE int, ADD CHECK (a < 6)');
SELECT outcomes('ALTER TABLE @m ALTER a TYPE int, ALTER a SET NOT NULL, ALTER d SET NOT NULL');
SELECT outcomes('ALTER TABLE @m ALTER d TYPE bigint');
SELECT outcomes('ALTER TABLE @m ALTER f TYPE text');
SELECT outcomes('ALTER TABLE @m DROP COLUMN f, ALTER d TYPE text');
SELECT outcomes('ALTER TABLE @m ALTER a TYPE bigint, ADD COLUMN j int');
SELECT outcomes('INSERT INTO @m (k) VALUES (7)');
SELECT * FROM h_m EXCEPT TABLE f_m;
SELECT count(*) FROM kvfdw_check('f_m');
-- rolled back, to a savepoint and as a whole; after rows of the same transaction
BEGIN;
SELECT outcomes('INSERT INTO @m (k, a) VALUES (8, 8)');
SAVEPOINT s;
SELECT outcomes('ALTER TABLE @m ALTER a TYPE text');
SELECT outcomes('UPDATE @m SET a = a || ''!''');
ROLLBACK TO s;
SELECT * FROM h_m EXCEPT TABLE f_m;
SELECT outcomes('ALTER TABLE @m ALTER a TYPE numeric(3,1)');
SELECT * FROM h_m EXCEPT TABLE f_m;
ROLLBACK;
SELECT * FROM h_m EXCEPT TABLE f_m;
SELECT outcomes('INSERT INTO @m (k, a) VALUES (9, 9)');
SELECT * FROM h_m EXCEPT TABLE f_m;
SELECT count(*) FROM kvfdw_check('f_m');
-- no rows: whatever the types; rows that were deleted count for nothing
CREATE FOREIGN TABLE e (k int, v text) SERVER kvfdw;
ALTER FOREIGN TABLE e ALTER v TYPE int;
INSERT INTO e VALUES (1, 2);
DELETE FROM e;
ALTER FOREIGN TABLE e ALTER v TYPE point;
INSERT INTO e VALUES (1, '(1,2)');
\set VERBOSITY default
ALTER FOREIGN TABLE e ALTER v TYPE int;
ALTER FOREIGN TABLE e ALTER v TYPE int USING 1;
\set VERBOSITY terse
TABLE e;
-- the parent of a hierarchy, and of partitions
CREATE TABLE h_r (k int, v text);
CREATE TABLE h_s () INHERITS (h_r);
CREATE TABLE f_r (k int, v text);
CREATE FOREIGN TABLE f_s () INHERITS (f_r) SERVER kvfdw;
SELECT outcomes('INSERT INTO @s VALUES (1, ''1''), (2, ''x'')');
SELECT outcomes('ALTER TABLE @r ALTER v TYPE int');
SELECT outcomes('ALTER TABLE ONLY @r ALTER v TYPE varchar');
SELECT outcomes('ALTER TABLE @s ALTER v TYPE varchar');
SELECT outcomes('ALTER TABLE @r ALTER v TYPE char(2)');
SELECT outcomes('ALTER TABLE @r ALTER v TYPE name');
SELECT * FROM h_s EXCEPT TABLE f_s;
SELECT outcomes('ALTER TABLE @p ALTER v TYPE text');
SELECT outcomes('ALTER TABLE @p ALTER v TYPE int USING v::int');
SELECT * FROM h_p EXCEPT TABLE f_p;
-- row types: their attributes keep their types while a column has values of them, within others or not
CREATE TYPE pair AS (x int, y text);
CREATE TYPE pairs AS (p pair[]);
CREATE DOMAIN pair_d AS pair;
CREATE TABLE rowtype (a int, b text);
CREATE FOREIGN TABLE frowtype (a int, b text) SERVER kvfdw;
CREATE FUNCTION uses(type text, sql text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE what text;
BEGIN
	FOREACH what IN ARRAY ARRAY['TABLE', 'FOREIGN TABLE'] LOOP
		EXECUTE format('CREATE %s u (k int, c %s) %s', what, type, CASE what WHEN 'TABLE' THEN '' ELSE 'SERVER kvfdw' END);
		BEGIN
			EXECUTE sql;
			RETURN NEXT what || ': ok';
		EXCEPTION WHEN OTHERS THEN
			RETURN NEXT what || ': ' || sqlstate || ' ' || sqlerrm;
		END;
		EXECUTE format('DROP %s u', what);
	END LOOP;
END $$;
SELECT uses('pair', 'ALTER TYPE pair ALTER ATTRIBUTE x TYPE bigint');
SELECT uses('pair[]', 'ALTER TYPE pair ALTER ATTRIBUTE x TYPE int');
SELECT uses('pair_d', 'ALTER TYPE pair ALTER ATTRIBUTE y TYPE varchar');
SELECT uses('pairs', 'ALTER TYPE pair ALTER ATTRIBUTE x TYPE bigint');
SELECT uses('rowtype', 'ALTER TABLE rowtype ALTER a TYPE bigint');
SELECT uses('frowtype', 'ALTER FOREIGN TABLE frowtype ALTER a TYPE bigint');
SELECT uses('int', 'ALTER TYPE pair ALTER ATTRIBUTE x TYPE int');
-- and what leaves values readable is done
SELECT make('y', 'k int, c pair, m mood');
SELECT outcomes('INSERT INTO @y VALUES (1, (1, ''one''), ''sad'')');
ALTER TYPE pair ADD ATTRIBUTE z int;
ALTER TYPE mood ADD VALUE 'so so' BEFORE 'happy';
ALTER TYPE mood RENAME VALUE 'sad' TO 'blue';
SELECT outcomes('INSERT INTO @y VALUES (2, (2, ''two'', 3), ''blue'')');
ALTER TYPE pair DROP ATTRIBUTE y;
ALTER TYPE pair RENAME ATTRIBUTE z TO zz;
SELECT outcomes('INSERT INTO @y VALUES (3, (3, 4), NULL)');
TABLE h_y EXCEPT TABLE f_y;
SELECT outcomes('ALTER TABLE @y ALTER c TYPE text');
TABLE f_y;
TABLE h_y EXCEPT TABLE f_y;
-- rows of a table that an older library has let be changed without them: the change can be undone, or gone on with
CREATE FOREIGN TABLE older (k int, v int, w text) SERVER kvfdw;
INSERT INTO older VALUES (1, 5, 'x'), (2, NULL, NULL);
UPDATE pg_attribute a SET atttypid = t.oid, attlen = typlen, attbyval = typbyval, attalign = typalign, attstorage = typstorage, attcollation = typcollation
	FROM pg_type t WHERE t.oid = 'text'::regtype AND attrelid = 'older'::regclass AND attname = 'v';
\c
SET search_path = retype, public;
\set VERBOSITY default
SELECT * FROM older;
ALTER FOREIGN TABLE older ALTER w TYPE name;
\set VERBOSITY terse
BEGIN;
ALTER FOREIGN TABLE older ALTER v TYPE int;
TABLE older;
ROLLBACK;
ALTER FOREIGN TABLE older ALTER v TYPE bigint, ALTER w TYPE name;
TABLE older;
SELECT count(*) FROM kvfdw_check('older');
DROP SCHEMA retype CASCADE;
