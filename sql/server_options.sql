-- Promise: options of a server are defaults of its tables, and a table's own win.  compression and max_space_amplification
-- follow the server; wal and tablespace are copied when a table is made, and no change of the server changes a table.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
\set SHOW_CONTEXT never
\set VERBOSITY default
CREATE FUNCTION own(t regclass) RETURNS text[] LANGUAGE sql AS 'SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = t';
CREATE FUNCTION level(t regclass) RETURNS text LANGUAGE sql AS 'SELECT wal FROM kvfdw_stat_tables WHERE relid = t ORDER BY generation DESC LIMIT 1';
-- What a server accepts.
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (shards '4');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (shard '4');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (compresion 'lz4');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (host 'localhost');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (wal 'some');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (compression 'zstd');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (max_space_amplification '1');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (max_space_amplification '11');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (tablespace 'nowhere');
CREATE SERVER bad FOREIGN DATA WRAPPER kvfdw OPTIONS (tablespace 'pg_global');
CREATE USER MAPPING FOR CURRENT_USER SERVER kvfdw OPTIONS (wal 'keys');
ALTER FOREIGN DATA WRAPPER kvfdw OPTIONS (ADD wal 'keys');
CREATE SERVER s FOREIGN DATA WRAPPER kvfdw OPTIONS (wal 'keys', compression 'lz4', max_space_amplification '0', tablespace 'pg_default');
ALTER SERVER s OPTIONS (DROP compression, DROP max_space_amplification, DROP tablespace);
-- wal: a new table has the server's, as its own; a table's own wins.
CREATE FOREIGN TABLE follows (k int, v text) SERVER s;
CREATE FOREIGN TABLE differs (k int, v text) SERVER s OPTIONS (wal 'none', key 'k');
INSERT INTO follows SELECT g, g FROM generate_series(1, 10) g;
INSERT INTO differs SELECT g, g FROM generate_series(1, 10) g;
SELECT own('follows'), level('follows'), own('differs'), level('differs');
-- A change of the server is for tables that are made afterwards.
ALTER SERVER s OPTIONS (SET wal 'full');
CREATE FOREIGN TABLE later (k int, v text) SERVER s;
INSERT INTO later VALUES (1, 'x');
TRUNCATE follows;
INSERT INTO follows VALUES (1, 'x');
SELECT level('follows') AS follows, level('differs') AS differs, own('later') AS own, level('later') AS later;
-- Without the server's option there is nothing to copy.
ALTER SERVER s OPTIONS (DROP wal);
CREATE FOREIGN TABLE plain (k int, v text) SERVER s;
INSERT INTO plain VALUES (1, 'x');
SELECT own('plain'), level('plain');
-- What would change a table is refused, and named with what to do.
ALTER SERVER s OPTIONS (ADD wal 'none');
CREATE FOREIGN TABLE plain2 (k int) SERVER s;
CREATE FOREIGN TABLE plain3 (k int) SERVER s;
CREATE FOREIGN TABLE "Plain 4" (k int) SERVER s;
ALTER SERVER s OPTIONS (ADD compression 'none', ADD wal 'none');
SELECT srvoptions FROM pg_foreign_server WHERE srvname = 's';
-- Other options are no matter, and a value that they have by default is none.
ALTER SERVER s OPTIONS (ADD wal 'full', ADD tablespace 'pg_default');
ALTER SERVER s OPTIONS (DROP wal, DROP tablespace);
ALTER SERVER s RENAME TO s2;
ALTER SERVER s2 RENAME TO s;
DROP FOREIGN TABLE plain2, plain3, "Plain 4";
ALTER FOREIGN TABLE plain OPTIONS (ADD wal 'full');
ALTER SERVER s OPTIONS (ADD wal 'none');
SELECT own('plain'), level('plain');
-- A table that drops its own has the server's, at TRUNCATE; the server is held to that until then.
ALTER FOREIGN TABLE plain OPTIONS (DROP wal);
SELECT own('plain'), level('plain');
ALTER SERVER s OPTIONS (SET wal 'keys');
ALTER SERVER s OPTIONS (DROP wal);
ALTER SERVER s OPTIONS (ADD max_space_amplification '2');
TRUNCATE plain;
INSERT INTO plain VALUES (2, 'y');
SELECT own('plain'), level('plain');
DROP FOREIGN TABLE plain;
-- Rolled back, or to a savepoint: as if nothing was.
BEGIN;
ALTER SERVER s OPTIONS (SET wal 'keys');
CREATE FOREIGN TABLE gone (k int) SERVER s;
SELECT own('gone');
ROLLBACK;
BEGIN;
SAVEPOINT a;
ALTER SERVER s OPTIONS (SET wal 'keys');
ROLLBACK TO a;
CREATE FOREIGN TABLE stays (k int) SERVER s;
COMMIT;
SELECT own('stays');
-- In one transaction, and by statements that are planned once.
CREATE FUNCTION make(t text) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DROP FOREIGN TABLE IF EXISTS ' || t; CREATE FOREIGN TABLE made (k int) SERVER s; RETURN own('made'); END $$;
SELECT make('made');
ALTER SERVER s OPTIONS (SET wal 'keys');
SELECT make('made');
CREATE FOREIGN TABLE IF NOT EXISTS made (k int) SERVER s;
-- Partitions.
CREATE TABLE p (k int, v text) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10) SERVER s;
CREATE FOREIGN TABLE p2 PARTITION OF p DEFAULT SERVER s OPTIONS (wal 'full');
INSERT INTO p VALUES (1, 'a'), (11, 'b');
SELECT own('p1'), level('p1'), own('p2'), level('p2');
-- An event trigger sees what the table gets, and rows that it writes have it.
CREATE FUNCTION seen() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE t regclass; BEGIN FOR t IN SELECT objid FROM pg_event_trigger_ddl_commands() LOOP EXECUTE format('INSERT INTO %s VALUES (1)', t); RAISE WARNING '% has %', t, own(t); END LOOP; END $$;
CREATE EVENT TRIGGER seen ON ddl_command_end WHEN TAG IN ('CREATE FOREIGN TABLE') EXECUTE FUNCTION seen();
CREATE FOREIGN TABLE watched (k int) SERVER s;
DROP EVENT TRIGGER seen;
SELECT count(*), level('watched') FROM watched;
-- compression and max_space_amplification follow the server at once, for tables without an own one.
CREATE FOREIGN TABLE comp (k int, v text) SERVER s;
CREATE FOREIGN TABLE raw (k int, v text) SERVER s OPTIONS (compression 'none', max_space_amplification '3');
CREATE FUNCTION bytes_of(t regclass) RETURNS text LANGUAGE plpgsql AS $$ DECLARE before bigint; n bigint; BEGIN SELECT sum(value_bytes) INTO before FROM kvfdw_stat_tables WHERE relid = t; EXECUTE format('INSERT INTO %s SELECT coalesce((SELECT max(k) FROM %1$s), 0) + g, repeat(''compressible '', 1000) FROM generate_series(1, 10) g', t); SELECT sum(value_bytes) - before INTO n FROM kvfdw_stat_tables WHERE relid = t; RETURN CASE WHEN n < 50000 THEN 'compressed' ELSE 'as they are' END; END $$;
INSERT INTO comp VALUES (0, '');
INSERT INTO raw VALUES (0, '');
SELECT bytes_of('comp'), bytes_of('raw');
ALTER SERVER s OPTIONS (SET compression 'lz4');
ALTER SERVER s OPTIONS (ADD compression 'lz4');
SELECT bytes_of('comp'), bytes_of('raw'), own('comp');
BEGIN;
ALTER SERVER s OPTIONS (DROP compression);
SELECT bytes_of('comp');
ROLLBACK;
SELECT bytes_of('comp');
ALTER FOREIGN TABLE comp OPTIONS (ADD compression 'none');
SELECT bytes_of('comp');
ALTER FOREIGN TABLE comp OPTIONS (DROP compression);
SELECT bytes_of('comp');
ALTER SERVER s OPTIONS (DROP compression);
SELECT bytes_of('comp');
SELECT count(*), count(DISTINCT v) FROM comp;
-- limits, at the next use
CREATE FUNCTION limit_of(t regclass) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SELECT count(*) FROM %s', t); RETURN (SELECT space_limit FROM kvfdw_stat_tables WHERE relid = t ORDER BY generation DESC LIMIT 1); END $$;
INSERT INTO comp SELECT g, repeat(md5(g::text), 100) FROM generate_series(1000, 5000) g;
INSERT INTO raw SELECT g, repeat(md5(g::text), 100) FROM generate_series(1000, 5000) g;
SELECT limit_of('comp') AS comp, limit_of('raw') AS raw \gset
ALTER SERVER s OPTIONS (SET max_space_amplification '5');
SELECT limit_of('comp') > :comp + 10000000 AS comp, limit_of('raw') = :raw AS raw;
BEGIN;
ALTER SERVER s OPTIONS (SET max_space_amplification '1.1');
SELECT limit_of('comp') > :comp + 10000000 AS comp;
COMMIT;
SELECT limit_of('comp') < :comp AS comp;
BEGIN;
ALTER SERVER s OPTIONS (SET max_space_amplification '10');
SELECT limit_of('comp') < :comp AS comp;
ROLLBACK;
SELECT limit_of('comp') < :comp AS comp;
ALTER SERVER s OPTIONS (SET max_space_amplification '0');
SELECT limit_of('comp');
-- Other servers have nothing to do with it.
CREATE FOREIGN TABLE other (k int) SERVER kvfdw;
SELECT own('other');
-- The role that makes a table needs the privilege on the server's tablespace, and level none has none there.
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE kvfdw_server_space LOCATION '';
CREATE FUNCTION place(t regclass) RETURNS name LANGUAGE sql AS $$ SELECT spcname FROM pg_shdepend JOIN pg_tablespace s ON s.oid = refobjid WHERE refclassid = 'pg_tablespace'::regclass AND objid = t $$;
CREATE ROLE kvfdw_maker;
CREATE SCHEMA kvfdw_made AUTHORIZATION kvfdw_maker;
ALTER SERVER s OPTIONS (ADD tablespace 'kvfdw_server_space');
CREATE SERVER placed FOREIGN DATA WRAPPER kvfdw OPTIONS (tablespace 'kvfdw_server_space');
GRANT USAGE ON FOREIGN SERVER placed TO kvfdw_maker;
SET ROLE kvfdw_maker;
CREATE FOREIGN TABLE kvfdw_made.t (k int) SERVER placed;
CREATE FOREIGN TABLE kvfdw_made.t (k int) SERVER placed OPTIONS (tablespace 'pg_default');
ALTER FOREIGN TABLE kvfdw_made.t OPTIONS (DROP tablespace);
RESET ROLE;
GRANT CREATE ON TABLESPACE kvfdw_server_space TO kvfdw_maker;
SET ROLE kvfdw_maker;
CREATE FOREIGN TABLE kvfdw_made.none (k int) SERVER placed OPTIONS (wal 'none');
CREATE FOREIGN TABLE kvfdw_made.none (k int) SERVER placed OPTIONS (wal 'none', tablespace 'pg_default');
CREATE FOREIGN TABLE kvfdw_made.u (k int) SERVER placed;
INSERT INTO kvfdw_made.t VALUES (1);
INSERT INTO kvfdw_made.u VALUES (1);
SELECT own('kvfdw_made.t'), place('kvfdw_made.t'), own('kvfdw_made.u'), place('kvfdw_made.u');
ALTER FOREIGN TABLE kvfdw_made.t OPTIONS (DROP tablespace);
SELECT own('kvfdw_made.t'), place('kvfdw_made.t');
RESET ROLE;
-- A table without an own level is not put where that of the server cannot be.
ALTER SERVER placed OPTIONS (ADD wal 'none');
ALTER FOREIGN TABLE kvfdw_made.u OPTIONS (ADD wal 'keys');
ALTER FOREIGN TABLE kvfdw_made.t OPTIONS (ADD wal 'keys', ADD tablespace 'kvfdw_server_space');
ALTER SERVER placed OPTIONS (ADD wal 'none');
ALTER FOREIGN TABLE kvfdw_made.u OPTIONS (DROP wal);
ALTER SERVER placed OPTIONS (DROP tablespace);
SELECT place('kvfdw_made.t'), place('kvfdw_made.u');
SELECT (SELECT count(*) FROM kvfdw_made.t) AS t, (SELECT count(*) FROM kvfdw_made.u) AS u;
-- The tablespace has another name, and the server is gone.
DROP SCHEMA kvfdw_made CASCADE;
ALTER SERVER placed OPTIONS (ADD tablespace 'kvfdw_server_space', DROP wal);
ALTER TABLESPACE kvfdw_server_space RENAME TO kvfdw_server_space2;
CREATE FOREIGN TABLE nowhere (k int) SERVER placed;
ALTER SERVER placed OPTIONS (SET tablespace 'kvfdw_server_space2');
CREATE FOREIGN TABLE there (k int) SERVER placed;
ALTER FOREIGN TABLE there OPTIONS (DROP tablespace);
ALTER TABLESPACE kvfdw_server_space2 RENAME TO kvfdw_server_space3;
ALTER SERVER placed OPTIONS (SET tablespace 'pg_default');
ALTER FOREIGN TABLE there OPTIONS (ADD tablespace 'kvfdw_server_space3');
ALTER TABLESPACE kvfdw_server_space3 RENAME TO kvfdw_server_space2;
ALTER SERVER placed OPTIONS (SET tablespace 'pg_default');
DROP SERVER placed CASCADE;
CREATE FOREIGN TABLE nowhere (k int) SERVER placed;
REVOKE CREATE ON TABLESPACE kvfdw_server_space2 FROM kvfdw_maker;
DROP ROLE kvfdw_maker;
DROP FOREIGN TABLE other;
DROP TABLE p;
DROP SERVER s CASCADE;
DROP FUNCTION own, level, place, make, seen, bytes_of, limit_of;
