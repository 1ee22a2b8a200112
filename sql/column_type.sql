-- Promise: a column whose type gets another length, precision or domain has the values that it would have on
-- heap, or the change is refused.
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
-- what rows cannot be read as is said at the next use
ALTER FOREIGN TABLE key ALTER v TYPE bigint, ALTER l TYPE varchar(3) COLLATE "C";
TABLE key;
ALTER FOREIGN TABLE key ALTER v TYPE int;
TABLE key;
DROP SCHEMA retype CASCADE;
