-- Promise: flushing changes where rows are kept and nothing that a query can see.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE TABLE heap (a int, b text COLLATE "C", v text, PRIMARY KEY (a, b));
CREATE FOREIGN TABLE kv (a int, b text COLLATE "C", v text) SERVER kvfdw OPTIONS (key 'a, b', shards '4');
-- rows in both, in one order or the other; 'same' if no query can tell them apart
CREATE FUNCTION compare() RETURNS text LANGUAGE plpgsql AS $$
DECLARE d bigint; k text; h text;
BEGIN
  SELECT count(*) INTO d FROM ((TABLE kv EXCEPT ALL TABLE heap) UNION ALL (TABLE heap EXCEPT ALL TABLE kv)) s;
  IF d > 0 THEN RETURN d || ' rows differ'; END IF;
  SELECT md5(string_agg(s::text, ';')) INTO k FROM (SELECT * FROM kv ORDER BY a, b) s;
  SELECT md5(string_agg(s::text, ';')) INTO h FROM (SELECT * FROM heap ORDER BY a, b) s;
  IF k IS DISTINCT FROM h THEN RETURN 'order differs'; END IF;
  SELECT md5(string_agg(s::text, ';')) INTO k FROM (SELECT * FROM kv WHERE a > 100 ORDER BY a DESC, b DESC) s;
  SELECT md5(string_agg(s::text, ';')) INTO h FROM (SELECT * FROM heap WHERE a > 100 ORDER BY a DESC, b DESC) s;
  IF k IS DISTINCT FROM h THEN RETURN 'descending order differs'; END IF;
  SELECT count(*) INTO d FROM heap WHERE v IS DISTINCT FROM (SELECT kv.v FROM kv WHERE kv.a = heap.a AND kv.b = heap.b);
  IF d > 0 THEN RETURN d || ' points differ'; END IF;
  SELECT count(*) INTO d FROM kvfdw_check('kv');
  IF d > 0 THEN RETURN d || ' problems'; END IF;
  SELECT count(*) INTO d FROM heap;
  RETURN 'same, ' || d || ' rows';
END $$;
INSERT INTO heap SELECT g, 'k' || g % 7, repeat(md5(g::text), g % 40) FROM generate_series(1, 3000) g;
INSERT INTO kv SELECT * FROM heap ORDER BY md5(a::text);
SELECT compare();
SELECT kvfdw_flush('kv');
SELECT compare();
SELECT kvfdw_flush('kv');
SELECT compare();
-- frozen rows updated, deleted, moved and taken again, before and after the next flush
UPDATE kv SET v = 'updated ' || a WHERE a % 5 = 0; UPDATE heap SET v = 'updated ' || a WHERE a % 5 = 0;
DELETE FROM kv WHERE a % 7 = 0; DELETE FROM heap WHERE a % 7 = 0;
UPDATE kv SET a = a + 10000 WHERE a % 11 = 0; UPDATE heap SET a = a + 10000 WHERE a % 11 = 0;
INSERT INTO kv SELECT g, 'k0', NULL FROM generate_series(7, 700, 7) g; INSERT INTO heap SELECT g, 'k0', NULL FROM generate_series(7, 700, 7) g;
INSERT INTO kv VALUES (1, 'k1', 'frozen key again');
SELECT compare();
SELECT kvfdw_flush('kv');
SELECT compare();
INSERT INTO kv VALUES (1, 'k1', 'frozen key again');
INSERT INTO kv VALUES (1, 'k1', 'frozen key again') ON CONFLICT DO NOTHING;
-- what a rollback took back stays away
BEGIN;
DELETE FROM kv WHERE a < 1000;
INSERT INTO kv SELECT g, 'x', 'rolled back' FROM generate_series(20000, 20100) g;
UPDATE kv SET v = 'rolled back' WHERE a > 2000;
ROLLBACK;
SELECT compare();
SELECT kvfdw_flush('kv');
SELECT compare();
BEGIN;
SAVEPOINT a;
DELETE FROM kv WHERE a < 1000;
ROLLBACK TO a;
UPDATE kv SET v = 'kept' WHERE a = 1; UPDATE heap SET v = 'kept' WHERE a = 1;
COMMIT;
SELECT kvfdw_flush('kv');
SELECT compare();
-- a transaction that flushed nothing of its own still sees its writes
BEGIN;
INSERT INTO kv VALUES (30000, 'own', 'uncommitted'); INSERT INTO heap VALUES (30000, 'own', 'uncommitted');
SELECT kvfdw_flush('kv');
SELECT compare();
COMMIT;
SELECT compare();
-- a cursor opened before a flush goes on with its snapshot
BEGIN;
DECLARE c CURSOR FOR SELECT a, v FROM kv WHERE a BETWEEN 1 AND 6 ORDER BY a;
FETCH 1 FROM c;
DELETE FROM kv WHERE a BETWEEN 3 AND 4;
UPDATE kv SET v = 'after the cursor' WHERE a = 2;
SELECT kvfdw_flush('kv');
SELECT a, length(v) FROM kv WHERE a BETWEEN 1 AND 6 ORDER BY a;
FETCH ALL FROM c;
ROLLBACK;
SELECT compare();
-- everything deleted, and filled again
DELETE FROM kv; DELETE FROM heap;
SELECT kvfdw_flush('kv');
SELECT compare();
INSERT INTO heap SELECT g, 'again', g::text FROM generate_series(1, 500) g; INSERT INTO kv TABLE heap;
SELECT kvfdw_flush('kv');
SELECT compare();
TRUNCATE kv; TRUNCATE heap;
SELECT kvfdw_flush('kv');
SELECT compare();
INSERT INTO kv VALUES (1, 'a', 'b'); INSERT INTO heap VALUES (1, 'a', 'b');
SELECT compare();
-- every key encoding, frozen
CREATE FOREIGN TABLE frozen_num (k numeric, v text) SERVER kvfdw;
INSERT INTO frozen_num VALUES (1.50, 'a'), (-2, 'b'), ('NaN', 'c'), (1e20, 'd'), (0.000, 'e');
SELECT kvfdw_flush('frozen_num');
SELECT * FROM frozen_num ORDER BY k;
SELECT * FROM frozen_num WHERE k IN (1.5, 0, -2.0) ORDER BY k DESC;
INSERT INTO frozen_num VALUES (1.5, 'dup');
CREATE FOREIGN TABLE frozen_int (k int8, v bytea) SERVER kvfdw;
INSERT INTO frozen_int SELECT g, decode(repeat('ab', g % 5000), 'hex') FROM generate_series(-500, 20000) g WHERE g >= 0 OR g % 2 = 0;
SELECT kvfdw_flush('frozen_int');
SELECT count(*), sum(k), sum(length(v)) FROM frozen_int;
SELECT k, length(v) FROM frozen_int WHERE k BETWEEN 4998 AND 5001 ORDER BY k DESC;
SELECT k FROM frozen_int ORDER BY k LIMIT 2;
SELECT k FROM frozen_int ORDER BY k DESC LIMIT 2;
SELECT k FROM frozen_int WHERE k IN (-2, -1, 0, 19999, 20001) ORDER BY k;
SELECT count(*) FROM kvfdw_check('frozen_int');
DROP FOREIGN TABLE kv, frozen_num, frozen_int;
DROP TABLE heap;
DROP FUNCTION compare;
-- keys that have a beginning in common, those beside and between them, and runs whose pages have more in common than all: as heap
CREATE FOREIGN TABLE common_kv (k text COLLATE "C" NOT NULL, v int) SERVER kvfdw;
CREATE TABLE common_heap (k text COLLATE "C" PRIMARY KEY, v int);
CREATE FUNCTION common_differ() RETURNS TABLE (points bigint, up bigint, down bigint, counts bigint, damage bigint) LANGUAGE sql AS $$
  WITH probe AS MATERIALIZED (SELECT DISTINCT left(k, length(k) - cut) || more AS k
    FROM (SELECT k, row_number() OVER (ORDER BY k) AS n FROM common_heap) s, generate_series(0, 2) cut, unnest(ARRAY['', chr(1), '~']) more
    WHERE n % 97 = 0 OR length(k) < 22)
  SELECT count(*) FILTER (WHERE (SELECT v FROM common_kv t WHERE t.k = p.k) IS DISTINCT FROM (SELECT v FROM common_heap t WHERE t.k = p.k)),
    count(*) FILTER (WHERE ARRAY(SELECT t.k FROM common_kv t WHERE t.k >= p.k ORDER BY t.k LIMIT 2) IS DISTINCT FROM ARRAY(SELECT t.k FROM common_heap t WHERE t.k >= p.k ORDER BY t.k LIMIT 2)),
    count(*) FILTER (WHERE ARRAY(SELECT t.k FROM common_kv t WHERE t.k < p.k ORDER BY t.k DESC LIMIT 2) IS DISTINCT FROM ARRAY(SELECT t.k FROM common_heap t WHERE t.k < p.k ORDER BY t.k DESC LIMIT 2)),
    count(*) FILTER (WHERE (SELECT count(*) FROM common_kv t WHERE t.k < p.k) IS DISTINCT FROM (SELECT count(*) FROM common_heap t WHERE t.k < p.k)),
    (SELECT count(*) FROM kvfdw_check('common_kv'))
  FROM probe p $$;
CREATE FUNCTION common_add(q text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN EXECUTE 'INSERT INTO common_kv ' || q; EXECUTE 'INSERT INTO common_heap ' || q; END $$;
SELECT common_add($$SELECT 'tenant/0001/user:' || lpad(g::text, 6, '0'), g FROM generate_series(1, 2000) g$$);
SELECT kvfdw_flush('common_kv');
SELECT * FROM common_differ();
-- what all have in common is less and less, by less than 8 bytes and by more, up to nothing
SELECT common_add($$SELECT 'tenant/0001/user;' || lpad(g::text, 40, '0'), g FROM generate_series(1, 500) g$$);
SELECT kvfdw_flush('common_kv');
SELECT * FROM common_differ();
SELECT common_add($$SELECT 'tenant/0002/' || md5(g::text) || g, g FROM generate_series(1, 500) g$$);
SELECT common_add($$SELECT left('tenant/0001/user:', g), g FROM generate_series(1, 17) g$$);
SELECT kvfdw_flush('common_kv');
SELECT * FROM common_differ();
-- not frozen: an older snapshot, and runs of several versions of a key
SELECT common_add($$VALUES ('', 0), ('user', 1), ('a', 2)$$);
UPDATE common_kv SET v = -v WHERE k LIKE 'tenant/0001/user:00%';
UPDATE common_heap SET v = -v WHERE k LIKE 'tenant/0001/user:00%';
SELECT * FROM common_differ();
SELECT kvfdw_flush('common_kv');
SELECT * FROM common_differ();
DROP FOREIGN TABLE common_kv;
DROP TABLE common_heap;
DROP FUNCTION common_differ, common_add;
