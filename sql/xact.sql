-- Promise: commit, rollback, savepoints, command ids and cursors see and keep what a heap table does.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw OPTIONS (key 'k', shards '4');
INSERT INTO t SELECT g, 'base' FROM generate_series(1, 5) g;
-- COMMIT keeps, ROLLBACK leaves no trace.
BEGIN;
INSERT INTO t VALUES (6, 'rolled back');
UPDATE t SET v = 'rolled back' WHERE k = 1;
DELETE FROM t WHERE k = 2;
UPDATE t SET k = 30 WHERE k = 3;
SELECT * FROM t ORDER BY k;
ROLLBACK;
SELECT * FROM t ORDER BY k;
BEGIN;
INSERT INTO t VALUES (6, 'committed');
UPDATE t SET v = 'committed' WHERE k = 1;
DELETE FROM t WHERE k = 2;
UPDATE t SET k = 30 WHERE k = 3;
COMMIT;
SELECT * FROM t ORDER BY k;
-- A key freed by a rollback can be used; a deleted key too.
INSERT INTO t VALUES (2, 'again'), (3, 'again');
-- an error rolls back the whole transaction
BEGIN;
INSERT INTO t VALUES (7, 'lost');
INSERT INTO t VALUES (1, 'duplicate');
SELECT count(*) FROM t;
COMMIT;
SELECT count(*) FROM t WHERE k = 7;
-- Savepoints: release, rollback, nested, reused, with errors inside.
BEGIN;
INSERT INTO t VALUES (10, 'outer');
SAVEPOINT a;
INSERT INTO t VALUES (11, 'a');
UPDATE t SET v = 'a' WHERE k = 10;
SAVEPOINT b;
DELETE FROM t WHERE k IN (10, 11);
SELECT k, v FROM t WHERE k >= 10 ORDER BY k;
ROLLBACK TO b;
SELECT k, v FROM t WHERE k BETWEEN 10 AND 20 ORDER BY k;
RELEASE b;
INSERT INTO t VALUES (11, 'duplicate of a');
ROLLBACK TO a;
SELECT k, v FROM t WHERE k BETWEEN 10 AND 20 ORDER BY k;
INSERT INTO t VALUES (11, 'second try');
SAVEPOINT a;
UPDATE t SET v = v || ' kept' WHERE k = 11;
RELEASE a;
COMMIT;
SELECT k, v FROM t WHERE k BETWEEN 10 AND 20 ORDER BY k;
-- a released savepoint dies with its parent
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
INSERT INTO t VALUES (12, 'b');
RELEASE b;
ROLLBACK TO a;
SELECT count(*) FROM t WHERE k = 12;
INSERT INTO t VALUES (12, 'after');
COMMIT;
SELECT v FROM t WHERE k = 12;
-- the same key through many savepoints: every second one is taken back
CREATE FOREIGN TABLE deep (k int, v int) SERVER kvfdw;
DO $$
BEGIN
  INSERT INTO deep VALUES (1, 0);
  FOR i IN 1..300 LOOP
    BEGIN
      UPDATE deep SET v = i WHERE k = 1;
      INSERT INTO deep VALUES (i + 1, i);
      IF i % 2 = 0 THEN RAISE EXCEPTION 'take back'; END IF;
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
  END LOOP;
END $$;
SELECT count(*), sum(v), (SELECT v FROM deep WHERE k = 1) AS last FROM deep;
-- Exception blocks: the duplicate is caught, the block's writes go, the rest stays.
DO $$
DECLARE caught text; msg text; det text;
BEGIN
  INSERT INTO t VALUES (13, 'before block');
  BEGIN
    INSERT INTO t VALUES (14, 'in block');
    UPDATE t SET v = 'in block' WHERE k = 13;
    INSERT INTO t VALUES (13, 'duplicate');
  EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS caught = RETURNED_SQLSTATE, msg = MESSAGE_TEXT, det = PG_EXCEPTION_DETAIL;
    INSERT INTO t VALUES (15, caught || ' ' || msg || ' ' || det);
  END;
END $$;
SELECT * FROM t WHERE k BETWEEN 13 AND 15 ORDER BY k;
-- A statement never sees its own writes (command ids).
CREATE FOREIGN TABLE self (k int, v int) SERVER kvfdw;
INSERT INTO self SELECT g, g FROM generate_series(1, 100) g;
INSERT INTO self SELECT k + 100, v FROM self;
INSERT INTO self SELECT k + 1000, v FROM self ORDER BY k DESC;
SELECT count(*), sum(k) FROM self;
BEGIN;
INSERT INTO self SELECT k + 10000, v FROM self;
INSERT INTO self SELECT k + 20000, v FROM self WHERE k > 10000;
SELECT count(*), sum(k) FROM self;
UPDATE self SET v = v + (SELECT count(*) FROM self) WHERE k <= 100;
SELECT sum(v) FROM self WHERE k <= 100;
DELETE FROM self WHERE k IN (SELECT k + 10000 FROM self);
SELECT count(*) FROM self;
ROLLBACK;
SELECT count(*), sum(k), sum(v) FROM self;
-- a function sees what was written before it was called, and by itself
CREATE FUNCTION add_and_count(i int) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ BEGIN INSERT INTO self VALUES (i, 0); RETURN (SELECT count(*) FROM self); END $$;
CREATE FUNCTION stable_count() RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT count(*) FROM self $$;
SELECT add_and_count(-1), add_and_count(-2), stable_count();
SELECT add_and_count(-3), stable_count();
SELECT stable_count();
INSERT INTO self SELECT -10 - g, stable_count() FROM generate_series(1, 3) g RETURNING *;
-- Cursors: a snapshot from their opening, whatever happens next.
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM t WHERE k < 100 ORDER BY k;
FETCH 2 FROM c;
DELETE FROM t WHERE k = 3;
UPDATE t SET v = 'after the cursor' WHERE k = 4;
INSERT INTO t VALUES (0, 'new');
UPDATE t SET k = 99 WHERE k = 5;
FETCH 4 FROM c;
SELECT * FROM t WHERE k <= 5 OR k = 99 ORDER BY k;
CLOSE c;
ROLLBACK;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k FROM t ORDER BY k;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
FETCH PRIOR FROM c;
FETCH FIRST FROM c;
FETCH ABSOLUTE 4 FROM c;
FETCH RELATIVE -2 FROM c;
MOVE FORWARD ALL FROM c;
FETCH BACKWARD 1 FROM c;
COMMIT;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT k, v FROM t WHERE k <= 6 ORDER BY k DESC;
FETCH 1 FROM h;
UPDATE t SET v = 'changed before commit' WHERE k = 1;
COMMIT;
UPDATE t SET v = 'changed after commit' WHERE k = 2;
FETCH ALL FROM h;
CLOSE h;
-- a cursor over rows that a savepoint took back keeps what it saw
BEGIN;
SAVEPOINT s;
INSERT INTO t VALUES (50, 'to be rolled back');
DECLARE c CURSOR FOR SELECT k FROM t WHERE k >= 50 ORDER BY k;
FETCH 1 FROM c;
ROLLBACK TO s;
SELECT count(*) FROM t WHERE k = 50;
COMMIT;
-- WHERE CURRENT OF is not for foreign tables; a loop with updates is.
DO $$
DECLARE r record;
BEGIN
  FOR r IN SELECT k FROM t WHERE k < 7 ORDER BY k LOOP
    UPDATE t SET v = 'loop ' || r.k WHERE k = r.k;
    DELETE FROM t WHERE k = r.k + 1 AND r.k = 2;
  END LOOP;
END $$;
SELECT * FROM t WHERE k < 7 ORDER BY k;
-- Commit and rollback inside a procedure.
CREATE PROCEDURE batches() LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..6 LOOP
    INSERT INTO deep VALUES (1000 + i, i);
    IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
END $$;
CALL batches();
SELECT k FROM deep WHERE k > 1000 ORDER BY k;
-- kvfdw and heap share one commit.
CREATE TABLE h (k int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED);
INSERT INTO h VALUES (1);
BEGIN;
INSERT INTO t VALUES (60, 'with heap');
INSERT INTO h VALUES (1);
COMMIT;
SELECT count(*) FROM t WHERE k = 60;
BEGIN;
INSERT INTO t VALUES (60, 'with heap');
INSERT INTO h VALUES (2);
COMMIT;
SELECT (SELECT count(*) FROM t WHERE k = 60) AS kv, (SELECT count(*) FROM h) AS heap;
-- Read only transactions refuse writes and allow reads.
BEGIN READ ONLY;
SELECT count(*) FROM t WHERE k = 60;
INSERT INTO t VALUES (61, 'no');
ROLLBACK;
-- Snapshots of stricter levels see own writes.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM t WHERE k >= 60;
INSERT INTO t VALUES (61, 'rr'), (62, 'rr');
DELETE FROM t WHERE k = 60;
SELECT k FROM t WHERE k >= 60 ORDER BY k;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE t SET v = 'ser' WHERE k = 61 RETURNING *;
COMMIT;
SELECT * FROM t WHERE k >= 60 ORDER BY k;
-- Row locks in one session: they are not writes.
BEGIN;
SELECT k FROM t WHERE k >= 60 ORDER BY k FOR UPDATE;
SELECT k FROM t WHERE k = 61 FOR SHARE;
SELECT k FROM t WHERE k = 61 FOR NO KEY UPDATE SKIP LOCKED;
SELECT k FROM t WHERE k = 61 FOR KEY SHARE NOWAIT;
UPDATE t SET v = 'locked first' WHERE k = 61;
SELECT v FROM t WHERE k = 61 FOR UPDATE;
ROLLBACK;
SELECT v FROM t WHERE k = 61;
DROP FOREIGN TABLE t, deep, self;
DROP TABLE h;
DROP FUNCTION add_and_count, stable_count;
DROP PROCEDURE batches;
-- Ten thousand subtransactions, a third of them rolled back, on both kinds of table.
CREATE FOREIGN TABLE subs (k int, v text) SERVER kvfdw;
CREATE TABLE subs_heap (k int PRIMARY KEY, v text);
BEGIN;
SAVEPOINT outermost;
DO $$
BEGIN
	FOR i IN 1 .. 10000 LOOP
		BEGIN
			INSERT INTO subs VALUES (i, 'new');
			INSERT INTO subs_heap VALUES (i, 'new');
			IF i % 3 = 0 THEN RAISE EXCEPTION 'back'; END IF;
			IF i % 7 = 0 THEN
				UPDATE subs SET v = 'changed' WHERE k = i - 1;
				UPDATE subs_heap SET v = 'changed' WHERE k = i - 1;
			END IF;
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END LOOP;
END $$;
SELECT count(*), count(*) FILTER (WHERE v = 'changed') AS changed FROM subs;
SELECT count(*) FROM ((TABLE subs EXCEPT TABLE subs_heap) UNION ALL (TABLE subs_heap EXCEPT TABLE subs)) d;
RELEASE outermost;
SAVEPOINT again;
DELETE FROM subs WHERE k % 2 = 0;
DELETE FROM subs_heap WHERE k % 2 = 0;
ROLLBACK TO again;
COMMIT;
SELECT kvfdw_flush('subs');
SELECT count(*) FROM ((TABLE subs EXCEPT TABLE subs_heap) UNION ALL (TABLE subs_heap EXCEPT TABLE subs)) d;
DROP FOREIGN TABLE subs;
DROP TABLE subs_heap;
-- Among far more versions that nobody sees a scan finds every row, in either order: rolled back ones, locks.
CREATE FOREIGN TABLE sparse (k int, v text) SERVER kvfdw OPTIONS (key 'k');
INSERT INTO sparse SELECT g * 100, 'row ' || g FROM generate_series(1, 300) g;
SELECT kvfdw_flush('sparse');
BEGIN;
SAVEPOINT s;
INSERT INTO sparse SELECT g, 'back' FROM generate_series(1, 30000) g WHERE g % 100 <> 0;
UPDATE sparse SET v = 'back' WHERE k % 200 = 0;
ROLLBACK TO s;
SELECT count(*), sum(k), count(DISTINCT v), min(v) FROM sparse;
SELECT array_agg(k ORDER BY n) FROM (SELECT k, row_number() OVER () AS n FROM (SELECT k, v FROM sparse ORDER BY k LIMIT 5 OFFSET 150) o) o;
SELECT array_agg(k ORDER BY n) FROM (SELECT k, row_number() OVER () AS n FROM (SELECT k, v FROM sparse ORDER BY k DESC LIMIT 5 OFFSET 150) o) o;
SELECT count(*), sum(k), count(DISTINCT v) FROM (SELECT * FROM sparse WHERE k > 50 ORDER BY k DESC OFFSET 0) o;
DECLARE every CURSOR FOR SELECT k, v FROM sparse ORDER BY k;
MOVE 299 FROM every;
FETCH 2 FROM every;
COMMIT;
DROP FOREIGN TABLE sparse;
CREATE FOREIGN TABLE held (k int, v text) SERVER kvfdw OPTIONS (key 'k');
INSERT INTO held SELECT g, 'row ' || g FROM generate_series(1, 3000) g;
SELECT kvfdw_flush('held');
BEGIN;
SELECT count(*) FROM (SELECT k FROM held FOR UPDATE) s;
SELECT count(*), sum(k), count(DISTINCT v) FROM held;
SELECT count(*), sum(k), count(DISTINCT v) FROM (SELECT * FROM held WHERE k > 1000 ORDER BY k DESC OFFSET 0) o;
COMMIT;
DROP FOREIGN TABLE held;
