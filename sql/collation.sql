-- Promise: text keys of any deterministic collation find equal keys only and sort as the collation says; others are refused; of a key without an order that scans can use a notice tells.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
SELECT getdatabaseencoding() <> 'UTF8' OR NOT EXISTS (SELECT FROM pg_collation WHERE collname = 'en-x-icu') AS skip_test \gset
\if :skip_test
\quit
\endif
SET client_encoding = utf8;
CREATE TABLE heap (k text COLLATE "en-x-icu" PRIMARY KEY, v int);
CREATE FOREIGN TABLE kv (k text COLLATE "en-x-icu", v int) SERVER kvfdw OPTIONS (key 'k', shards '3');
INSERT INTO heap SELECT k, row_number() OVER () FROM unnest(ARRAY['a', 'A', 'b', 'B', 'ä', 'Ä', 'z', 'Z', 'ab', 'aB', 'Ab', 'a b', 'a-b', 'éa', 'ea', 'eb', 'œ', 'oe', 'of', '', ' ', '1', '10', '2', 'ß', 'ss', 'st']) k;
INSERT INTO kv SELECT * FROM heap ORDER BY k COLLATE "C" DESC;
SELECT count(*) FROM ((TABLE kv EXCEPT TABLE heap) UNION ALL (TABLE heap EXCEPT TABLE kv)) s;
SELECT string_agg(k, ',') = (SELECT string_agg(k, ',') FROM (SELECT k FROM heap ORDER BY k) h) AS same FROM (SELECT k FROM kv ORDER BY k) s;
SELECT string_agg(k, ',') = (SELECT string_agg(k, ',') FROM (SELECT k FROM heap ORDER BY k DESC) h) AS same FROM (SELECT k FROM kv ORDER BY k DESC) s;
SELECT string_agg(k, ',') = (SELECT string_agg(k, ',') FROM (SELECT k FROM heap ORDER BY k COLLATE "C") h) AS same FROM (SELECT k FROM kv ORDER BY k COLLATE "C") s;
-- every point, every range
SELECT count(*) FROM heap h WHERE (SELECT v FROM kv WHERE kv.k = h.k) IS DISTINCT FROM h.v;
SELECT count(*) FROM heap a, heap b WHERE (SELECT count(*) FROM kv WHERE kv.k >= a.k AND kv.k < b.k) <> (SELECT count(*) FROM heap x WHERE x.k >= a.k AND x.k < b.k);
SELECT k FROM kv WHERE k IN ('a', 'A', 'aa', 'Ä') ORDER BY k;
SELECT k FROM kv WHERE k > 'ss' ORDER BY k;
SELECT k FROM kv WHERE k = 'a' COLLATE "C";
SELECT k FROM kv WHERE k > 'Z' COLLATE "C" AND k < 'c' COLLATE "C" ORDER BY k COLLATE "C";
SELECT min(k), max(k) FROM kv;
SELECT count(*) FROM kv JOIN heap ON kv.k = heap.k;
SELECT count(*) FROM kv JOIN heap ON lower(kv.k) = heap.k;
INSERT INTO kv VALUES ('Ä', 0);
UPDATE kv SET k = 'ß' WHERE k = 'ss';
DELETE FROM kv WHERE k > 'e' AND k < 'p'; DELETE FROM heap WHERE k > 'e' AND k < 'p';
SELECT kvfdw_flush('kv');
SELECT count(*) FROM ((TABLE kv EXCEPT TABLE heap) UNION ALL (TABLE heap EXCEPT TABLE kv)) s;
SELECT string_agg(k, ',') = (SELECT string_agg(k, ',') FROM (SELECT k FROM heap ORDER BY k) h) AS same FROM (SELECT k FROM kv ORDER BY k) s;
-- no order is promised beyond the C collation
CREATE FOREIGN TABLE two (a int, b text COLLATE "en-x-icu", v int) SERVER kvfdw OPTIONS (key 'a, b');
INSERT INTO two SELECT g % 2, k, g FROM heap, generate_series(1, 2) g;
SELECT string_agg(b, ',') = (SELECT string_agg(k, ',') FROM (SELECT k FROM heap ORDER BY k) h) AS same FROM (SELECT b FROM two WHERE a = 1 ORDER BY b) s;
SELECT string_agg(b, ',') = (SELECT string_agg(k, ',') FROM (SELECT k FROM heap ORDER BY k LIMIT 5) h) AS same FROM (SELECT b FROM two WHERE a = 1 ORDER BY a, b LIMIT 5) s;
SELECT count(*) = (SELECT count(*) FROM heap WHERE k <= 'b') AS same FROM two WHERE a = 0 AND b <= 'b';
DROP FOREIGN TABLE kv, two;
DROP TABLE heap;
-- a nondeterministic collation makes different bytes equal: no key of that
CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE FOREIGN TABLE nondet (k text COLLATE blind, v int) SERVER kvfdw;
-- as a value it is fine
CREATE FOREIGN TABLE nondet (k int, v text COLLATE blind) SERVER kvfdw;
INSERT INTO nondet VALUES (1, 'a'), (2, 'A'), (3, 'b');
SELECT * FROM nondet WHERE v = 'a' ORDER BY k;
DROP FOREIGN TABLE nondet;
DROP COLLATION blind;
-- text keys whose order scans cannot use are told of when they are made.
SET client_min_messages = notice;
CREATE FOREIGN TABLE ordered (k text COLLATE "C", v text) SERVER kvfdw;
CREATE FOREIGN TABLE unordered (v text, k text COLLATE "POSIX", l varchar COLLATE "ucs_basic", m text COLLATE "en-x-icu", i int) SERVER kvfdw OPTIONS (key 'i, k, m');
ALTER FOREIGN TABLE unordered OPTIONS (ADD on_duplicate 'ignore');
ALTER FOREIGN TABLE unordered ALTER COLUMN k SET NOT NULL;
DROP FOREIGN TABLE ordered, unordered;
