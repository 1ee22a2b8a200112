-- Promise: every key type sorts, compares and collides exactly as a heap primary key does.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
-- Loads vals into a kvfdw table and a heap twin, then compares every point,
-- every range between two values with all four bounds, IN, both orders,
-- min and max, the duplicate error, and what is left after a delete.
CREATE FUNCTION key_test(keytype text, vals text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  n int; i int; j int; op text; cond text; a text; b text; ranges int := 0; found int := 0;
BEGIN
  DROP FOREIGN TABLE IF EXISTS kt;
  DROP TABLE IF EXISTS ht;
  EXECUTE format('CREATE FOREIGN TABLE kt (k %s, v int) SERVER kvfdw', keytype);
  EXECUTE format('CREATE TABLE ht (k %s PRIMARY KEY, v int)', keytype);
  n := array_length(vals, 1);
  -- in an order that is neither ascending nor descending
  FOR i IN SELECT g FROM generate_series(1, n) g ORDER BY (g * 7919) % 101, g LOOP
    EXECUTE format('INSERT INTO kt VALUES (%L, %s)', vals[i], i);
    EXECUTE format('INSERT INTO ht VALUES (%L, %s)', vals[i], i);
  END LOOP;
  EXECUTE 'ANALYZE ht';
  PERFORM set_config('enable_sort', 'off', true);
  FOR i IN 1..n LOOP
    cond := format('WHERE k = %L', vals[i]);
    EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM kt ' || cond || ') s' INTO a;
    EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM ht ' || cond || ') s' INTO b;
    IF a IS DISTINCT FROM b THEN RETURN format('%s: point %s: kv %s heap %s', keytype, vals[i], a, b); END IF;
    found := found + (a IS NOT NULL)::int;
    FOR j IN 1..n LOOP
      FOREACH op IN ARRAY ARRAY['k >= %1$L AND k <= %2$L', 'k >= %1$L AND k < %2$L', 'k > %1$L AND k <= %2$L',
                                'k > %1$L AND k < %2$L', 'k < %1$L', 'k >= %2$L', 'k IN (%1$L, %2$L)'] LOOP
        cond := 'WHERE ' || format(op, vals[i], vals[j]);
        EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM kt ' || cond || ' ORDER BY k) s' INTO a;
        EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM ht ' || cond || ' ORDER BY k) s' INTO b;
        IF a IS DISTINCT FROM b THEN RETURN format('%s: %s: kv %s heap %s', keytype, cond, a, b); END IF;
        EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM kt ' || cond || ' ORDER BY k DESC) s' INTO a;
        EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM ht ' || cond || ' ORDER BY k DESC) s' INTO b;
        IF a IS DISTINCT FROM b THEN RETURN format('%s: %s DESC: kv %s heap %s', keytype, cond, a, b); END IF;
        ranges := ranges + 1;
      END LOOP;
    END LOOP;
    BEGIN
      EXECUTE format('INSERT INTO kt VALUES (%L, 0)', vals[i]);
      RETURN format('%s: %s was inserted twice', keytype, vals[i]);
    EXCEPTION WHEN unique_violation THEN NULL;
    END;
  END LOOP;
  EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM kt ORDER BY k) s' INTO a;
  EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM ht ORDER BY k) s' INTO b;
  IF a IS DISTINCT FROM b THEN RETURN format('%s: order: kv %s heap %s', keytype, a, b); END IF;
  EXECUTE 'SELECT (SELECT k FROM kt ORDER BY k LIMIT 1)::text || '' '' || (SELECT k FROM kt ORDER BY k DESC LIMIT 1)::text' INTO a;
  EXECUTE 'SELECT (SELECT k FROM ht ORDER BY k LIMIT 1)::text || '' '' || (SELECT k FROM ht ORDER BY k DESC LIMIT 1)::text' INTO b;
  IF a IS DISTINCT FROM b THEN RETURN format('%s: ends: kv %s heap %s', keytype, a, b); END IF;
  EXECUTE 'DELETE FROM kt WHERE v % 2 = 0';
  EXECUTE 'DELETE FROM ht WHERE v % 2 = 0';
  EXECUTE 'UPDATE kt SET v = -v WHERE v % 3 = 0';
  EXECUTE 'UPDATE ht SET v = -v WHERE v % 3 = 0';
  EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM kt ORDER BY k) s' INTO a;
  EXECUTE 'SELECT string_agg(s::text, '';'') FROM (SELECT * FROM ht ORDER BY k) s' INTO b;
  IF a IS DISTINCT FROM b THEN RETURN format('%s: after delete: kv %s heap %s', keytype, a, b); END IF;
  RETURN format('%s: same (%s keys, %s points, %s ranges both ways)', keytype, n, found, ranges);
END $$;
SELECT key_test('int2', '{-32768,-32767,-256,-255,-1,0,1,127,128,255,256,32766,32767}');
SELECT key_test('int4', '{-2147483648,-2147483647,-65536,-257,-256,-1,0,1,255,256,65535,65536,2147483647}');
SELECT key_test('int8', '{-9223372036854775808,-9223372036854775807,-4294967296,-2147483649,-1,0,1,255,256,4294967295,4294967296,9223372036854775806,9223372036854775807}');
SELECT key_test('oid', '{0,1,255,256,65535,2147483647,2147483648,4294967294,4294967295}');
SELECT key_test('bool', '{t,f}');
SELECT key_test('float4', '{-Infinity,-3.4e38,-1.5,-1,-1e-37,0,1e-37,1,1.5,3.4e38,Infinity,NaN}');
SELECT key_test('float8', '{-Infinity,-1.7976931348623157e308,-1.5,-1,-5e-324,0,5e-324,1,1.0000000000000002,1.5,1.7976931348623157e308,Infinity,NaN}');
SELECT key_test('date', '{-infinity,"4713-11-24 BC","0001-01-01 BC","0001-01-01",1969-12-31,1970-01-01,1999-12-31,2000-01-01,2000-02-29,9999-12-31,5874897-12-31,infinity}');
SELECT key_test('time', '{00:00:00,00:00:00.000001,01:02:03,12:00:00,23:59:59.999999,24:00:00}');
SELECT key_test('timestamp', '{-infinity,"4713-11-24 00:00:00 BC","1999-12-31 23:59:59.999999","2000-01-01 00:00:00","2000-01-01 00:00:00.000001","2026-06-01 12:00:00","294276-12-31 23:59:59.999999",infinity}');
SELECT key_test('timestamptz', '{-infinity,"1999-12-31 23:59:59.999999+00","2000-01-01 00:00:00+00","2000-01-01 00:00:00+01","2000-01-01 00:00:00.000001+00","2026-06-01 12:00:00+12",infinity}');
SELECT key_test('uuid', '{00000000-0000-0000-0000-000000000000,00000000-0000-0000-0000-000000000001,7fffffff-ffff-ffff-ffff-ffffffffffff,80000000-0000-0000-0000-000000000000,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,ffffffff-ffff-ffff-ffff-ffffffffffff}');
SELECT key_test('numeric', '{-Infinity,-1e1000,-123456789012345678901234567890.5,-10001,-10000,-9999,-100,-99,-10,-9.99,-1.5,-1,-0.1,-0.0001,-0.00001,-1e-1000,0,1e-1000,0.00001,0.00010001,0.0001,0.1,0.11,0.9,0.99,1,1.5,2,9.99,10,99,100,9999,9999.5,10000,10001,123456789012345678901234567890.5,1e1000,Infinity,NaN}');
SELECT key_test('numeric(12,3)', '{-999999999.999,-1,-0.001,0,0.001,0.01,1,1.001,999999999.999}');
SELECT key_test('bytea', ARRAY['\x', '\x00', '\x0000', '\x0001', '\x00ff', '\x01', '\x0100', '\x01ff', '\x7f', '\x80', '\xfe', '\xff', '\xff00', '\xffff', '\x0102030405060708', '\x010203040506070809', '\x01020304050607', '\x0102030405060708ff']);
SELECT key_test('text COLLATE "C"', ARRAY['', ' ', '!', '0', '00', 'A', 'B', 'a', 'a ', E'a\x01', 'aa', 'ab', 'abcdefg', 'abcdefgh', 'abcdefghi', 'abcdefgi', 'b', '~', 'ä', 'ß', 'é', '漢', '漢字', repeat('x', 500), repeat('x', 501), repeat('x', 500) || 'y', repeat('y', 1000)]);
SELECT key_test('varchar(20) COLLATE "C"', ARRAY['', ' ', 'A', 'Z', 'a', 'a ', 'a  ', 'ab', 'z', 'twenty characters ok']);
SELECT key_test('char(6) COLLATE "C"', ARRAY['', 'a', 'ab', 'a b', E'a\x01', 'a!', 'abcdef', 'b', 'B', 'zzzzzz']);
SELECT key_test('char(1) COLLATE "C"', ARRAY['', '0', 'A', 'a', 'z']);
-- Equal values with different bytes are the same key, and come back as stored.
CREATE FOREIGN TABLE eq_num (k numeric, v int) SERVER kvfdw;
INSERT INTO eq_num VALUES (1.00, 1), (20.0, 2), (300, 3), (0.000, 4);
SELECT * FROM eq_num ORDER BY k;
SELECT * FROM eq_num WHERE k = 1 OR k = 20.000 ORDER BY k;
SELECT * FROM eq_num WHERE k IN (300.0000, 0) ORDER BY k DESC;
INSERT INTO eq_num VALUES (1, 5);
INSERT INTO eq_num VALUES (20.000, 5);
UPDATE eq_num SET k = 1.0 WHERE k = 1;
SELECT * FROM eq_num ORDER BY k;
CREATE FOREIGN TABLE eq_float (k float8, v int) SERVER kvfdw;
INSERT INTO eq_float VALUES ('-0', 1), ('NaN', 2), ('inf', 3), ('-inf', 4);
SELECT * FROM eq_float ORDER BY k;
SELECT * FROM eq_float WHERE k = 0;
SELECT * FROM eq_float WHERE k = 'NaN';
SELECT * FROM eq_float WHERE k > 1e300 ORDER BY k;
INSERT INTO eq_float VALUES (0, 5);
INSERT INTO eq_float VALUES ('NaN', 5);
CREATE FOREIGN TABLE eq_char (k char(5) COLLATE "C", v int) SERVER kvfdw;
INSERT INTO eq_char VALUES ('a', 1), ('b ', 2);
INSERT INTO eq_char VALUES ('a    ', 3);
SELECT *, octet_length(k) FROM eq_char WHERE k = 'a  ';
SELECT * FROM eq_char WHERE k = 'b'::char(5);
-- Keys of several columns: equal prefixes, prefix ranges, both orders.
CREATE FOREIGN TABLE two (a int, b text COLLATE "C", c int, v text) SERVER kvfdw OPTIONS (key 'a, b', shards '4');
INSERT INTO two SELECT a, repeat(chr(97 + b), 1 + b % 3), b, a || '/' || b FROM generate_series(-3, 3) a, generate_series(0, 9) b ORDER BY b, a;
SELECT count(*), min(v), max(v) FROM two;
SELECT a, b, v FROM two WHERE a = 2 AND b = 'cc';
SELECT a, b, v FROM two WHERE a = 2 AND b = 'ccc';
SELECT a, b FROM two WHERE a = -1 ORDER BY a, b;
SELECT a, b FROM two WHERE a = -1 ORDER BY a DESC, b DESC;
SELECT a, b FROM two WHERE a = 1 AND b > 'c' AND b <= 'ee' ORDER BY b;
SELECT a, b FROM two WHERE a = 1 AND b >= 'ccc' AND b < 'ee' ORDER BY b DESC;
SELECT a, b FROM two WHERE a > 1 AND b = 'a' ORDER BY a;
SELECT a, b FROM two WHERE a IN (3, -3, 99) AND b IN ('bb', 'zz', 'a') ORDER BY a, b;
SELECT a, b FROM two WHERE (a, b) > (2, 'ggg') ORDER BY a, b LIMIT 5;
SELECT a, count(*), string_agg(b, ',') FROM (SELECT * FROM two ORDER BY a, b) s GROUP BY a ORDER BY a;
SELECT a, b FROM two ORDER BY a DESC, b LIMIT 3;
SELECT a, b FROM two WHERE b = 'a' AND a BETWEEN -1 AND 1 ORDER BY a;
SELECT a, b FROM two WHERE c = 4 AND a < -1 ORDER BY a;
INSERT INTO two VALUES (2, 'cc', 0, 'again');
\set VERBOSITY terse
INSERT INTO two VALUES (2, NULL, 0, 'null');
\set VERBOSITY default
-- The second part never runs into the first.
CREATE FOREIGN TABLE parts (a bytea, b bytea, v int) SERVER kvfdw OPTIONS (key 'a, b');
INSERT INTO parts VALUES ('\x', '\x', 1), ('\x', '\x00', 2), ('\x00', '\x', 3), ('\x00', '\x00', 4), ('\x0000', '\x', 5),
  ('\x01', '\xff', 6), ('\x01ff', '\x', 7), ('\xff', '\x', 8), ('\xff', '\xff', 9), ('\xffff', '\x', 10), ('\x00ff', '\x01', 11), ('\x0001', '\xff', 12);
SELECT * FROM parts ORDER BY a, b;
SELECT * FROM parts ORDER BY a DESC, b DESC;
SELECT * FROM parts WHERE a = '\x00' ORDER BY b;
SELECT * FROM parts WHERE a = '\xff' ORDER BY b;
SELECT * FROM parts WHERE a = '\x' ORDER BY b;
SELECT * FROM parts WHERE a > '\x00' AND a < '\xff' ORDER BY a, b;
-- Key columns need not come first, nor in the table's order.
CREATE FOREIGN TABLE back (v text, b int, w int, a int) SERVER kvfdw OPTIONS (key 'a, b');
INSERT INTO back VALUES ('x', 1, 10, 2), ('y', 2, 20, 1), ('z', 1, 30, 1);
SELECT * FROM back ORDER BY a, b;
SELECT w FROM back WHERE b = 1 AND a = 1;
INSERT INTO back VALUES ('dup', 2, 0, 1);
-- NULL is no key.
\set VERBOSITY terse
INSERT INTO back VALUES ('null', NULL, 0, 1);
INSERT INTO back (b) VALUES (1);
UPDATE back SET a = NULL WHERE b = 1 AND a = 1;
\set VERBOSITY default
SELECT count(*) FROM back WHERE a IS NULL;
SELECT count(*) FROM back WHERE a = NULL;
SELECT count(*) FROM back WHERE b IN (1, NULL);
-- Comparing with another type of the same family gives the same rows.
CREATE FOREIGN TABLE cross_int (k int4, v int) SERVER kvfdw;
INSERT INTO cross_int SELECT g, g FROM generate_series(-5, 5) g;
SELECT v FROM cross_int WHERE k = 3::int8;
SELECT v FROM cross_int WHERE k = 3::int2;
SELECT v FROM cross_int WHERE k = 3::numeric;
SELECT v FROM cross_int WHERE k = 3.5;
SELECT count(*) FROM cross_int WHERE k < 99999999999::int8;
SELECT count(*) FROM cross_int WHERE k > (-99999999999)::int8;
SELECT count(*) FROM cross_int WHERE k = 99999999999::int8;
SELECT v FROM cross_int WHERE k >= 3::int2 AND k < 5.5 ORDER BY k;
SELECT v FROM cross_int WHERE 4 < k;
SELECT v FROM cross_int WHERE k BETWEEN 2 AND -2;
SELECT v FROM cross_int WHERE k IN (SELECT 4) OR k = -4 ORDER BY k;
CREATE FOREIGN TABLE cross_date (k date, v int) SERVER kvfdw;
INSERT INTO cross_date VALUES ('2026-01-01', 1), ('2026-01-02', 2), ('2026-01-03', 3);
SELECT v FROM cross_date WHERE k = timestamp '2026-01-02 00:00:00';
SELECT v FROM cross_date WHERE k >= timestamp '2026-01-02 00:00:01' ORDER BY k;
SELECT v FROM cross_date WHERE k < timestamptz '2026-01-02 00:00:00+00' ORDER BY k;
CREATE FOREIGN TABLE cross_text (k text COLLATE "C", v int) SERVER kvfdw;
INSERT INTO cross_text VALUES ('a', 1), ('a ', 2), ('b', 3), ('B', 4), ('ab%', 5), ('abc', 6);
SELECT v FROM cross_text WHERE k = 'a'::varchar;
SELECT v FROM cross_text WHERE k = 'a '::char(3) ORDER BY k;
SELECT v FROM cross_text WHERE k LIKE 'ab%' ORDER BY k;
SELECT v FROM cross_text WHERE k LIKE 'ab\%';
SELECT v FROM cross_text WHERE k ~ '^a' ORDER BY k;
SELECT v FROM cross_text WHERE k >= 'a' ORDER BY k DESC;
SELECT v FROM cross_text WHERE upper(k) = 'B' ORDER BY k;
-- IN and = ANY: repeated, absent, NULL and many elements.
SELECT v FROM cross_int WHERE k IN (3, 1, 3, 77, 1) ORDER BY k;
SELECT v FROM cross_int WHERE k = ANY ('{5,4,-5,NULL}') ORDER BY k DESC;
SELECT v FROM cross_int WHERE k = ANY ('{}');
SELECT v FROM cross_int WHERE k = ANY (NULL::int[]);
SELECT count(*) FROM cross_int WHERE k = ANY (ARRAY(SELECT generate_series(-1000, 1000)));
SELECT v FROM cross_int WHERE k <> ALL ('{5,4,3,2,1,0}') ORDER BY k;
SELECT v FROM cross_int WHERE k IN (1, 2, 3) AND k IN (2, 3, 4) AND k > 2;
SELECT v FROM cross_int WHERE k = 1 AND k = 2;
-- Many keys whose values fill more than one batch, some of them small: when they have just been written, and frozen.
CREATE FOREIGN TABLE any_large (k int, v text) SERVER kvfdw;
INSERT INTO any_large SELECT g, repeat(chr(97 + g % 26), CASE WHEN g % 3 = 0 THEN 10 ELSE 400000 END) FROM generate_series(1, 50) g;
CREATE VIEW any_large_read AS SELECT count(*) AS rows, count(DISTINCT k) AS keys, bool_and(v = repeat(chr(97 + k % 26), CASE WHEN k % 3 = 0 THEN 10 ELSE 400000 END)) AS same
	FROM any_large WHERE k = ANY (ARRAY(SELECT generate_series(-5, 60)));
SELECT * FROM any_large_read;
SELECT kvfdw_flush('any_large');
SELECT * FROM any_large_read;
-- Long keys.
CREATE FOREIGN TABLE long_key (k text COLLATE "C", v int) SERVER kvfdw;
INSERT INTO long_key SELECT repeat(md5(g::text), 60), g FROM generate_series(1, 20) g;
SELECT count(*), sum(length(k)), sum(v) FROM long_key;
SELECT v FROM long_key WHERE k = repeat(md5('7'), 60);
SELECT bool_and(k = repeat(md5(v::text), 60)) FROM long_key;
-- Keys that begin alike, in memory: first those of one beginning, then shorter ones, others, and longer beginnings.
CREATE TABLE alike_heap (k text COLLATE "C" PRIMARY KEY, v int);
CREATE FOREIGN TABLE alike (k text COLLATE "C", v int) SERVER kvfdw;
INSERT INTO alike_heap SELECT 'k' || lpad(g::text, 15, '0'), g FROM generate_series(1, 3000) g;
INSERT INTO alike SELECT * FROM alike_heap ORDER BY md5(k);
CREATE VIEW alike_differs AS SELECT
	(SELECT count(*) FROM alike_heap h FULL JOIN alike a ON a.k = h.k WHERE a.v IS DISTINCT FROM h.v) AS rows,
	(SELECT count(*) FROM alike_heap h WHERE (SELECT a.v FROM alike a WHERE a.k = h.k) IS DISTINCT FROM h.v) AS points,
	(SELECT count(*) FROM generate_series(1, 16) n WHERE EXISTS (SELECT FROM alike WHERE k = left('k000000000000001', n) || 'x')) AS absent,
	(SELECT count(*) FROM alike_heap h WHERE v % 40 = 7 AND (SELECT a.k FROM alike a WHERE a.k > h.k ORDER BY a.k LIMIT 1) IS DISTINCT FROM
		(SELECT a.k FROM alike_heap a WHERE a.k > h.k ORDER BY a.k LIMIT 1)) AS next,
	(SELECT count(*) FROM alike_heap h WHERE v % 40 = 9 AND (SELECT a.k FROM alike a WHERE a.k < h.k ORDER BY a.k DESC LIMIT 1) IS DISTINCT FROM
		(SELECT a.k FROM alike_heap a WHERE a.k < h.k ORDER BY a.k DESC LIMIT 1)) AS previous;
SELECT * FROM alike_differs;
CREATE TEMP TABLE alike_more AS
	SELECT left('k000000000000000', g) AS k, g AS v FROM generate_series(0, 16) g
	UNION ALL SELECT x || 'k0000000000', ascii(x) FROM unnest('{j,l,A,~}'::text[]) x
	UNION ALL SELECT repeat('a beginning that is long, ', 3) || lpad(g::text, 6, '0'), g FROM generate_series(1, 2000) g
	UNION ALL SELECT repeat('b', g), g FROM generate_series(1, 300) g;
INSERT INTO alike_heap SELECT * FROM alike_more;
INSERT INTO alike SELECT * FROM alike_more ORDER BY md5(k);
SELECT * FROM alike_differs;
UPDATE alike_heap SET v = v + 1;
UPDATE alike SET v = v + 1;
SELECT * FROM alike_differs;
DROP VIEW alike_differs;
DROP TABLE alike_heap, alike_more;
-- Many rows in one key order.
CREATE FOREIGN TABLE many (k int8, v int) SERVER kvfdw OPTIONS (key 'k', shards '16');
INSERT INTO many SELECT (hashint8extended(g, 42)), g FROM generate_series(1, 20000) g;
SELECT count(*), count(DISTINCT k), sum(v) FROM many;
SET enable_sort = off;
SELECT bool_and(k > prev) FROM (SELECT k, lag(k) OVER () prev FROM (SELECT k FROM many ORDER BY k) s) s WHERE prev IS NOT NULL;
SELECT bool_and(k < prev) FROM (SELECT k, lag(k) OVER () prev FROM (SELECT k FROM many ORDER BY k DESC) s) s WHERE prev IS NOT NULL;
SELECT bool_and(v = (SELECT m.v FROM many m WHERE m.k = hashint8extended(g, 42) AND m.v = g)) FROM generate_series(1, 200) g, LATERAL (SELECT g AS v) x;
RESET enable_sort;
DROP FOREIGN TABLE IF EXISTS kt;
DROP TABLE ht;
DROP FUNCTION key_test;
DROP VIEW any_large_read;
DROP FOREIGN TABLE eq_num, eq_float, eq_char, two, parts, back, cross_int, cross_date, cross_text, any_large, long_key, alike, many;
