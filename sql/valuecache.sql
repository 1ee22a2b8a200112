-- Promise: a value that was read by key, or in a short range, is read from the device once, and what the
-- cache has is never shown for another row, version or table.
CREATE FOREIGN TABLE c (k int, v text) SERVER kvfdw;
INSERT INTO c SELECT g, repeat(chr(96 + g), 700) FROM generate_series(1, 20) g;
SELECT kvfdw_freeze('c');
CREATE FUNCTION reads() RETURNS TABLE (device_reads bigint, cache_hits bigint) LANGUAGE sql AS
	$$ SELECT device_reads, cache_hits FROM kvfdw_stat_tables WHERE relid = 'c'::regclass $$;
SELECT kvfdw_stat_reset();
SELECT left(v, 3) FROM c WHERE k = 3;
SELECT * FROM reads();
SELECT left(v, 3) FROM c WHERE k = 3;
SELECT left(v, 3) FROM c WHERE k = 3;
SELECT * FROM reads();
-- neighbours in one block come with it
SELECT left(v, 3) FROM c WHERE k = 4;
SELECT * FROM reads();
-- a new version, which the cache takes over when it is written; a rolled back one; a deleted one
UPDATE c SET v = 'new' WHERE k = 3;
SELECT v FROM c WHERE k = 3;
SELECT kvfdw_freeze('c');
SELECT kvfdw_stat_reset();
SELECT v FROM c WHERE k = 3;
SELECT * FROM reads();
BEGIN;
UPDATE c SET v = 'rolled back' WHERE k = 3;
SELECT v FROM c WHERE k = 3;
ROLLBACK;
SELECT v FROM c WHERE k = 3;
DELETE FROM c WHERE k = 3;
SELECT v FROM c WHERE k = 3;
-- a generation, and a table, of the same places in their files
TRUNCATE c;
INSERT INTO c SELECT g, repeat(upper(chr(96 + g)), 700) FROM generate_series(1, 20) g;
SELECT kvfdw_freeze('c');
SELECT left(v, 3) FROM c WHERE k IN (3, 4, 5);
SELECT left(v, 3) FROM c WHERE k IN (3, 4, 5);
-- a value of several blocks is cached as a whole, up to 64 kB
TRUNCATE c;
INSERT INTO c SELECT g, repeat(chr(96 + g), n) FROM unnest(ARRAY[4097, 10000, 32768, 65000, 66000]) WITH ORDINALITY l (n, g);
SELECT kvfdw_freeze('c');
SELECT kvfdw_stat_reset();
SELECT k, length(v), v = repeat(chr(96 + k), length(v)) AS same FROM c WHERE k IN (1, 2, 3, 4, 5);
SELECT k, length(v), v = repeat(chr(96 + k), length(v)) AS same FROM c WHERE k IN (1, 2, 3, 4, 5);
SELECT device_reads <= 2 * 5 AND cache_hits = 4 AS hits FROM reads();
-- its new version takes its place there
UPDATE c SET v = repeat('new', 5000) WHERE k = 2;
SELECT kvfdw_freeze('c');
SELECT kvfdw_stat_reset();
SELECT v = repeat('new', 5000) AS new FROM c WHERE k = 2;
SELECT * FROM reads();
-- a short range fills the cache, and uses it; a large scan leaves it alone
TRUNCATE c;
INSERT INTO c SELECT g, repeat('x', 5000) FROM generate_series(1, 600) g;
SELECT kvfdw_freeze('c');
SELECT kvfdw_stat_reset();
SELECT count(*), sum(length(v)) FROM c WHERE k BETWEEN 101 AND 150;
SELECT count(*), sum(length(v)) FROM c WHERE k BETWEEN 101 AND 150;
SELECT cache_hits FROM reads();
SELECT sum(length(v)) FROM c WHERE k BETWEEN 149 AND 150;
SELECT length(v) FROM c WHERE k = 120;
SELECT cache_hits FROM reads();
SELECT kvfdw_stat_reset();
SELECT sum(length(v)) FROM c WHERE k > 150;
SELECT length(v) FROM c WHERE k IN (450, 500, 550, 599);
SELECT cache_hits FROM reads();
-- of values that fit, several of them, into a block none lies in two
TRUNCATE c;
INSERT INTO c SELECT g, repeat('z', 1000) FROM generate_series(1, 40) g;
SELECT kvfdw_freeze('c');
SELECT kvfdw_stat_reset();
SELECT sum(length(v)) FROM c WHERE k BETWEEN 1 AND 40;
SELECT device_read_bytes FROM kvfdw_stat_tables WHERE relid = 'c'::regclass;
-- an upsert, or an update that locks the newest version, reads what is there by key
TRUNCATE c;
INSERT INTO c SELECT g, repeat('y', 100) FROM generate_series(1, 20) g;
SELECT kvfdw_freeze('c');
SELECT kvfdw_stat_reset();
INSERT INTO c VALUES (1, 'a') ON CONFLICT (k) DO UPDATE SET v = left(c.v, 1) || excluded.v RETURNING v;
INSERT INTO c VALUES (2, 'b') ON CONFLICT (k) DO UPDATE SET v = left(c.v, 1) || excluded.v RETURNING v;
INSERT INTO c SELECT g, 'c' FROM generate_series(3, 20) g ON CONFLICT (k) DO UPDATE SET v = left(c.v, 1) || excluded.v;
SELECT * FROM reads();
SELECT * FROM kvfdw_check('c');
DROP FOREIGN TABLE c;
DROP FUNCTION reads();
