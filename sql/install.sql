-- Promise: CREATE EXTENSION makes the wrapper, the server, the views and the functions, and DROP EXTENSION leaves none.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS kvfdw CASCADE;
RESET client_min_messages;
SELECT count(*) FROM pg_foreign_data_wrapper WHERE fdwname = 'kvfdw';
CREATE EXTENSION kvfdw;
SELECT fdwname, fdwhandler::regproc, fdwvalidator::regproc FROM pg_foreign_data_wrapper WHERE fdwname = 'kvfdw';
SELECT srvname, fdwname, srvoptions FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = srvfdw WHERE srvname = 'kvfdw';
SELECT count(*) FROM pg_foreign_table;
-- every name of the extension begins with kvfdw_
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'kvfdw' ORDER BY p.oid::regprocedure::text COLLATE "C";
SELECT c.oid::regclass, relkind FROM pg_class c JOIN pg_depend d ON d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'kvfdw' ORDER BY c.oid::regclass::text COLLATE "C";
-- it can be put into another schema, and made again
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw;
INSERT INTO t VALUES (1, 'a');
SELECT * FROM t;
DROP EXTENSION kvfdw;
SET client_min_messages = warning;
DROP EXTENSION kvfdw CASCADE;
RESET client_min_messages;
SELECT count(*) FROM pg_foreign_table;
SELECT * FROM t;
CREATE SCHEMA elsewhere;
CREATE EXTENSION kvfdw SCHEMA elsewhere;
SELECT elsewhere.kvfdw_stat_reset();
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw;
SELECT count(*) FROM t;
INSERT INTO t VALUES (1, 'new table of the old name');
SELECT * FROM t;
SET client_min_messages = warning;
DROP SCHEMA elsewhere CASCADE;
CREATE EXTENSION kvfdw;
-- several servers and users work alike
CREATE SERVER kv2 FOREIGN DATA WRAPPER kvfdw;
CREATE FOREIGN TABLE t (k int, v text) SERVER kv2;
INSERT INTO t VALUES (1, 'on another server');
SELECT * FROM t;
DROP SERVER kv2 CASCADE;
SELECT count(*) FROM pg_foreign_table;
-- privileges are the table's own
CREATE ROLE kvfdw_regress_reader;
CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw;
INSERT INTO t VALUES (1, 'a');
GRANT SELECT ON t TO kvfdw_regress_reader;
SET ROLE kvfdw_regress_reader;
SELECT * FROM t;
INSERT INTO t VALUES (2, 'b');
UPDATE t SET v = 'b';
DELETE FROM t;
TRUNCATE t;
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER kvfdw TO kvfdw_regress_reader;
DROP FOREIGN TABLE t;
REVOKE USAGE ON FOREIGN SERVER kvfdw FROM kvfdw_regress_reader;
DROP ROLE kvfdw_regress_reader;
