-- Promise: a value comes back byte for byte, whatever its size, shape and type.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
-- Bytes that never repeat and do not compress: n of them, different for every seed.
CREATE FUNCTION bytes(seed int, n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT substr(decode(string_agg(md5(seed || '.' || g), '' ORDER BY g), 'hex'), 1, n) FROM generate_series(0, n / 16) g
$$;
-- One bytea column: sizes at and around every border.
CREATE FOREIGN TABLE raw (k int, v bytea) SERVER kvfdw OPTIONS (key 'k', shards '2');
CREATE TABLE sizes (k int PRIMARY KEY, n int);
INSERT INTO sizes SELECT row_number() OVER (), n FROM unnest('{0,1,2,7,8,9,15,16,100,511,512,513,1023,1024,1025,2047,2048,4071,4072,4088,4095,4096,4097,4104,8191,8192,8193,12288,16383,16384,16385,32768,65535,65536,65537,131071,131072,131073,262120,262143,262144,262145,266240,524287,524288,524289,1048575,1048576,1048577}'::int[]) n;
INSERT INTO raw SELECT k, bytes(k, n) FROM sizes ORDER BY k;
SELECT count(*), sum(length(v)) FROM raw;
SELECT k, n, length(v) FROM sizes LEFT JOIN raw USING (k) WHERE v IS NULL OR length(v) <> n OR v <> bytes(k, n);
-- read one by one, and again after an overwrite by the next size
DO $$
DECLARE r record; got bytea;
BEGIN
  FOR r IN SELECT * FROM sizes LOOP
    SELECT v INTO got FROM raw WHERE k = r.k;
    IF got IS DISTINCT FROM bytes(r.k, r.n) THEN RAISE EXCEPTION 'size % differs', r.n; END IF;
    UPDATE raw SET v = bytes(-r.k, r.n + 1) WHERE k = r.k;
    SELECT v INTO got FROM raw WHERE k = r.k;
    IF got IS DISTINCT FROM bytes(-r.k, r.n + 1) THEN RAISE EXCEPTION 'size % + 1 differs', r.n; END IF;
  END LOOP;
END $$;
SELECT count(*) FROM sizes JOIN raw USING (k) WHERE v = bytes(-k, n + 1);
-- a value of every size from 0 to 5000, in the order and against the order of the key
CREATE FOREIGN TABLE each (k int, v text) SERVER kvfdw;
INSERT INTO each SELECT g, repeat(chr(33 + g % 90), g) FROM generate_series(0, 5000) g;
SELECT count(*), sum(length(v)), bool_and(v = repeat(chr(33 + k % 90), k)) FROM each;
SELECT count(*), bool_and(v = repeat(chr(33 + k % 90), k)) FROM (SELECT * FROM each WHERE k BETWEEN 4000 AND 4200 ORDER BY k DESC) s;
-- large values
CREATE FOREIGN TABLE large (k int, v bytea) SERVER kvfdw;
INSERT INTO large SELECT g, decode(repeat(md5(g::text), g * 65536), 'hex') FROM unnest('{1,4,16,64}'::int[]) g;
SELECT k, length(v), md5(v) = md5(decode(repeat(md5(k::text), k * 65536), 'hex')) AS same FROM large ORDER BY k;
SELECT k, length(v) FROM large WHERE k = 64;
UPDATE large SET v = v || '\x00' WHERE k = 16;
UPDATE large SET v = '\x' WHERE k = 1;
DELETE FROM large WHERE k = 4;
SELECT k, length(v), substr(v, length(v)) AS last FROM large ORDER BY k DESC;
-- NULL is not the empty value.
INSERT INTO raw VALUES (1001, NULL), (1002, ''), (1003, '\x00');
SELECT k, v, v IS NULL AS "null", length(v) FROM raw WHERE k > 1000 ORDER BY k;
UPDATE raw SET v = NULL WHERE k = 1003;
UPDATE raw SET v = '' WHERE k = 1001;
SELECT k, v, v IS NULL AS "null" FROM raw WHERE k > 1000 ORDER BY k;
SELECT k FROM raw WHERE v IS NULL;
-- Other single value columns: text, jsonb, an array, varchar, char, fixed width, name, bit.
CREATE FOREIGN TABLE one_text (k int, v text) SERVER kvfdw;
INSERT INTO one_text VALUES (1, ''), (2, NULL), (3, E'tab\tnewline\n'), (4, repeat('long ', 20000));
SELECT k, length(v), md5(v) FROM one_text ORDER BY k;
CREATE FOREIGN TABLE one_jsonb (k int, v jsonb) SERVER kvfdw;
INSERT INTO one_jsonb VALUES (1, '{"a": [1, 2, {"b": null}]}'), (2, 'null'), (3, NULL), (4, (SELECT jsonb_agg(g) FROM generate_series(1, 5000) g));
SELECT k, v -> 'a' -> 2 AS b, jsonb_typeof(v), CASE WHEN jsonb_typeof(v) = 'array' THEN v -> 4999 END AS last FROM one_jsonb ORDER BY k;
CREATE FOREIGN TABLE one_array (k int, v int[]) SERVER kvfdw;
INSERT INTO one_array VALUES (1, '{}'), (2, '{1,NULL,3}'), (3, '{{1,2},{3,4}}'), (4, '[5:6]={7,8}'), (5, NULL);
SELECT * FROM one_array ORDER BY k;
CREATE FOREIGN TABLE one_fixed (k int, v float8) SERVER kvfdw;
INSERT INTO one_fixed VALUES (1, 0.1), (2, '-0'), (3, 'NaN'), (4, NULL);
SELECT * FROM one_fixed ORDER BY k;
CREATE FOREIGN TABLE one_name (k int, v name) SERVER kvfdw;
INSERT INTO one_name VALUES (1, 'a_name'), (2, NULL);
SELECT * FROM one_name ORDER BY k;
CREATE FOREIGN TABLE one_char (k int, v char(4)) SERVER kvfdw;
INSERT INTO one_char VALUES (1, 'a'), (2, ''), (3, 'abcd');
SELECT k, v, octet_length(v) FROM one_char ORDER BY k;
-- No value column at all.
CREATE FOREIGN TABLE only_key (k int) SERVER kvfdw;
INSERT INTO only_key SELECT generate_series(1, 100);
SELECT count(*), min(k), max(k), sum(k) FROM only_key;
SELECT * FROM only_key WHERE k IN (5, 500);
DELETE FROM only_key WHERE k > 3;
UPDATE only_key SET k = k + 10 WHERE k > 1;
SELECT * FROM only_key ORDER BY k;
CREATE FOREIGN TABLE only_keys (a int, b numeric, c text COLLATE "C") SERVER kvfdw OPTIONS (key 'a, b, c');
INSERT INTO only_keys VALUES (1, 1.50, 'x'), (1, 1.5, 'y'), (1, 1.25, 'z');
SELECT * FROM only_keys ORDER BY a, b, c;
-- Many columns of many types, with NULLs everywhere.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE shape_heap (k int PRIMARY KEY, b bool, s int2, i int4, l int8, f float4, d float8, n numeric, t text, vc varchar(10), c char(3), by bytea, dt date, tm time, tz timestamptz, iv interval, u uuid, j json, jb jsonb, ia int[], ta text[], p point, nt inet, e mood, co pair, po positive, r int4range, bt bit(5), vb varbit);
CREATE FOREIGN TABLE shape (k int, b bool, s int2, i int4, l int8, f float4, d float8, n numeric, t text, vc varchar(10), c char(3), by bytea, dt date, tm time, tz timestamptz, iv interval, u uuid, j json, jb jsonb, ia int[], ta text[], p point, nt inet, e mood, co pair, po positive, r int4range, bt bit(5), vb varbit) SERVER kvfdw OPTIONS (key 'k');
INSERT INTO shape_heap SELECT k,
  CASE WHEN k % 2 = 0 THEN k % 4 = 0 END, CASE WHEN k % 3 <> 0 THEN k END, CASE WHEN k % 5 <> 0 THEN k * 1000 END, CASE WHEN k % 7 <> 0 THEN k * 10000000000 END,
  CASE WHEN k % 2 <> 0 THEN k / 3.0 END, CASE WHEN k % 3 <> 1 THEN k / 7.0 END, CASE WHEN k % 4 <> 1 THEN k / 11.0 END, CASE WHEN k % 5 <> 2 THEN repeat('t', k) END,
  CASE WHEN k % 6 <> 3 THEN left(md5(k::text), k % 11) END, CASE WHEN k % 7 <> 1 THEN 'c' END, CASE WHEN k % 8 <> 1 THEN bytes(k, k * 37) END,
  CASE WHEN k % 9 <> 1 THEN date '2026-01-01' + k END, CASE WHEN k % 2 <> 1 THEN time '00:00' + k * interval '1 minute' END, CASE WHEN k % 3 <> 2 THEN timestamptz '2026-01-01 00:00+00' + k * interval '1 hour' END,
  CASE WHEN k % 4 <> 2 THEN k * interval '1 day 1 second' END, CASE WHEN k % 5 <> 3 THEN md5(k::text)::uuid END, CASE WHEN k % 6 <> 4 THEN json_build_object('k', k) END, CASE WHEN k % 7 <> 5 THEN jsonb_build_array(k, NULL, 'x') END,
  CASE WHEN k % 8 <> 6 THEN ARRAY[k, NULL, -k] END, CASE WHEN k % 9 <> 7 THEN ARRAY['a', repeat('b', k * 50)] END, CASE WHEN k % 2 <> 1 THEN point(k, -k) END, CASE WHEN k % 3 <> 1 THEN '10.0.0.1'::inet + k END,
  CASE WHEN k % 4 <> 3 THEN (enum_range(NULL::mood))[1 + k % 3] END, CASE WHEN k % 5 <> 1 THEN (k, 'y')::pair END, CASE WHEN k % 6 <> 1 THEN k + 1 END, CASE WHEN k % 7 <> 2 THEN int4range(k, k + 5) END,
  CASE WHEN k % 8 <> 3 THEN (k % 32)::bit(5) END, CASE WHEN k % 9 <> 4 THEN (k % 32)::bit(5)::varbit END
FROM generate_series(0, 150) k;
INSERT INTO shape SELECT * FROM shape_heap ORDER BY md5(k::text);
INSERT INTO shape (k) VALUES (1000); INSERT INTO shape_heap (k) VALUES (1000);
SELECT count(*) AS rows, count(*) FILTER (WHERE kv::text IS DISTINCT FROM hp::text) AS different FROM shape kv FULL JOIN shape_heap hp USING (k);
UPDATE shape SET t = NULL, ia = ia || 1, co = (7, NULL)::pair WHERE k % 3 = 0; UPDATE shape_heap SET t = NULL, ia = ia || 1, co = (7, NULL)::pair WHERE k % 3 = 0;
SELECT count(*) AS rows, count(*) FILTER (WHERE kv::text IS DISTINCT FROM hp::text) AS different FROM shape kv FULL JOIN shape_heap hp USING (k);
SELECT k, e, co, (co).y, r FROM shape WHERE k IN (1, 2, 3, 1000) ORDER BY k;
SELECT bt, k FROM shape WHERE e = 'happy' AND po > 148 ORDER BY k;
INSERT INTO shape (k, po) VALUES (-1, 0);
INSERT INTO shape (k, vc) VALUES (-1, 'more than ten');
INSERT INTO shape (k, e) VALUES (-1, 'angry');
SELECT count(*) FROM shape WHERE k < 0;
-- Values that heap would compress or store out of line arrive whole and stay whole when copied on.
CREATE TABLE toasted (k int PRIMARY KEY, a text, b text);
ALTER TABLE toasted ALTER b SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT g, repeat('compress me ', 10000 * g), (SELECT string_agg(md5(x::text), '') FROM generate_series(1, 1000 * g) x) FROM generate_series(1, 3) g;
CREATE FOREIGN TABLE untoasted (k int, a text, b text) SERVER kvfdw;
INSERT INTO untoasted SELECT * FROM toasted;
CREATE FOREIGN TABLE untoasted1 (k int, b text) SERVER kvfdw;
INSERT INTO untoasted1 SELECT k, a FROM toasted UNION ALL SELECT k + 10, b FROM toasted;
DROP TABLE toasted;
SELECT k, length(a), length(b), md5(a), md5(b) FROM untoasted ORDER BY k;
SELECT k, length(b), md5(b) FROM untoasted1 ORDER BY k;
CREATE TABLE again AS SELECT * FROM untoasted;
SELECT count(*) FROM again JOIN untoasted USING (k, a, b);
-- Defaults and stored generated columns.
CREATE SEQUENCE ids;
CREATE FOREIGN TABLE dflt (k int DEFAULT nextval('ids') NOT NULL, v text DEFAULT 'none', w int DEFAULT 7 CHECK (w < 100), g int GENERATED ALWAYS AS (w * 2) STORED, n text NOT NULL DEFAULT '') SERVER kvfdw;
INSERT INTO dflt DEFAULT VALUES;
INSERT INTO dflt (v, w) VALUES ('given', 1), (DEFAULT, 2), (NULL, NULL);
SELECT * FROM dflt ORDER BY k;
UPDATE dflt SET w = w + 10, v = DEFAULT WHERE k < 3 RETURNING k, v, w, g;
INSERT INTO dflt (g) VALUES (1);
INSERT INTO dflt (n) VALUES (NULL);
INSERT INTO dflt (k, w) VALUES (50, 100);
UPDATE dflt SET w = 100 WHERE k = 1;
UPDATE dflt SET n = NULL WHERE k = 1;
SELECT * FROM dflt ORDER BY k;
-- Columns dropped, added and renamed.
CREATE FOREIGN TABLE alt (k int, a text, b int, c text) SERVER kvfdw;
INSERT INTO alt SELECT g, 'a' || g, g * 10, 'c' || g FROM generate_series(1, 3) g;
ALTER FOREIGN TABLE alt DROP COLUMN a;
SELECT * FROM alt ORDER BY k;
INSERT INTO alt VALUES (4, 40, 'c4');
ALTER FOREIGN TABLE alt ADD COLUMN d text;
SELECT * FROM alt ORDER BY k;
INSERT INTO alt VALUES (5, 50, 'c5', 'd5');
UPDATE alt SET d = 'new' WHERE k = 1;
ALTER FOREIGN TABLE alt RENAME COLUMN c TO cc;
ALTER FOREIGN TABLE alt RENAME COLUMN k TO key;
SELECT * FROM alt WHERE key <= 2 ORDER BY key;
ALTER FOREIGN TABLE alt RENAME TO alt2;
ALTER FOREIGN TABLE alt2 ADD COLUMN e int[];
ALTER FOREIGN TABLE alt2 DROP COLUMN b;
UPDATE alt2 SET e = ARRAY[key] WHERE key > 3;
SELECT * FROM alt2 ORDER BY key;
DROP FOREIGN TABLE raw, each, large, one_text, one_jsonb, one_array, one_fixed, one_name, one_char, only_key, only_keys, shape, untoasted, untoasted1, dflt, alt2;
DROP TABLE sizes, shape_heap, again;
DROP SEQUENCE ids;
DROP TYPE mood, pair;
DROP DOMAIN positive;
DROP FUNCTION bytes;
