-- Promise: a primary key is declared, seen, used, altered and dropped on a kvfdw table as on heap, with heap's outcome; what is
-- not there is refused by name.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE SCHEMA pk;
GRANT USAGE ON SCHEMA pk TO PUBLIC;
SET search_path = pk, public;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/outcomes.sql'
\i :file
-- twins: "same", or both outcomes, of a statement about tables @…; {…} is said of kvfdw's only.
CREATE FUNCTION twins(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE heap text := outcome(replace(replace(regexp_replace(sql, '{[^}]*}', '', 'g'), '@', 'h_'), ' FOREIGN TABLE', ' TABLE'));
	kv text := outcome(replace(translate(sql, '{}', ''), '@', 'f_'));
BEGIN
	heap := replace(heap, 'h_', '@'); kv := replace(replace(kv, 'f_', '@'), 'foreign table', 'table');
	RETURN CASE WHEN heap = kv THEN heap ELSE 'heap: ' || heap || ', kvfdw: ' || kv END;
END $$;
-- What the catalogs say of primary keys.
CREATE FUNCTION described(prefix text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT replace(concat_ws(' ', c.relname, conname, contype, i.relname, pg_get_constraintdef(o.oid), regexp_replace(pg_get_indexdef(i.oid), 'USING \w+', 'USING'), indisprimary,
		indisunique, indimmediate, indisvalid, indisready, indislive, c.relowner = i.relowner, c.relnamespace = i.relnamespace, c.relhasindex, attnotnull, o.connoinherit,
		obj_description(i.oid), obj_description(o.oid)), prefix, '@')
	FROM (SELECT * FROM pg_class WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('pk', 'other'))) c JOIN pg_constraint o ON o.conrelid = c.oid AND contype = 'p' JOIN pg_index x ON x.indexrelid = o.conindid AND x.indrelid = c.oid JOIN pg_class i ON i.oid = conindid
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = conkey[1] WHERE c.relname LIKE replace(prefix, '_', '\_') || '%' ORDER BY 1 $$;
CREATE FUNCTION differences() RETURNS SETOF text LANGUAGE sql AS $$
	(SELECT 'heap: ' || d FROM described('h_') d EXCEPT SELECT 'heap: ' || d FROM described('f_') d) UNION ALL (SELECT 'kvfdw: ' || d FROM described('f_') d EXCEPT SELECT 'kvfdw: ' || d FROM described('h_') d) $$;
-- CREATE.
SELECT s, twins(s) FROM unnest(ARRAY[
	'CREATE FOREIGN TABLE @a (id int PRIMARY KEY, v text) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @b (a int, b text COLLATE "C", c int, PRIMARY KEY (b, a)) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @c (v text, "Id 1" uuid CONSTRAINT "@C Key" PRIMARY KEY) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @d (id bigserial, n int NOT NULL, CONSTRAINT @d_key PRIMARY KEY (n, id)) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @e (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int DEFAULT 7) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @x (id int PRIMARY KEY NOT DEFERRABLE INITIALLY IMMEDIATE CHECK (id > 0)) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @g (id int NOT NULL PRIMARY KEY) {SERVER kvfdw OPTIONS (key ''id'', wal ''none'')}',
	'CREATE FOREIGN TABLE IF NOT EXISTS @a (x int, y int PRIMARY KEY) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @a (x int, y int PRIMARY KEY) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @no (id int PRIMARY KEY, v int, PRIMARY KEY (v)) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @no (id int PRIMARY KEY PRIMARY KEY) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @no (id int, PRIMARY KEY (id, id)) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @no (id int, PRIMARY KEY (x)) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @no (id int CONSTRAINT @a PRIMARY KEY) {SERVER kvfdw}',
	'CREATE FOREIGN TABLE @no (id int CONSTRAINT x CHECK (id > 0), CONSTRAINT x PRIMARY KEY (id)) {SERVER kvfdw}']) s;
SELECT * FROM described('f_');
SELECT * FROM differences();
\d f_b
-- What kvfdw has not.
SELECT s, outcome(s) FROM unnest(ARRAY[
	'CREATE FOREIGN TABLE no (id int PRIMARY KEY DEFERRABLE) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id int PRIMARY KEY INITIALLY DEFERRED) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id int, v int, PRIMARY KEY (id) INCLUDE (v)) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id int, PRIMARY KEY (id) WITH (fillfactor = 70)) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id int, PRIMARY KEY (id) USING INDEX TABLESPACE pg_default) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id jsonb PRIMARY KEY) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id int NULL PRIMARY KEY) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id int, v int, PRIMARY KEY (v)) SERVER kvfdw OPTIONS (key ''id'')',
	'CREATE FOREIGN TABLE no (id int, v int, PRIMARY KEY (v, id)) SERVER kvfdw OPTIONS (key ''id, v'')',
	'CREATE FOREIGN TABLE no (id int, v int UNIQUE) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (PRIMARY KEY (id)) INHERITS (f_a) SERVER kvfdw',
	'CREATE FOREIGN TABLE no (id int PRIMARY KEY) SERVER nowhere',
	'ALTER FOREIGN TABLE f_a ADD UNIQUE (id)',
	'ALTER FOREIGN TABLE f_a DROP CONSTRAINT f_a_pkey, ADD PRIMARY KEY USING INDEX f_b_pkey',
	'CREATE INDEX ON f_a (v)', 'CREATE UNIQUE INDEX ON f_a USING kvfdw (v)',
	'CREATE INDEX ON log USING kvfdw (v)',
	'REINDEX INDEX f_a_pkey', 'REINDEX TABLE f_a', 'CLUSTER f_a USING f_a_pkey', 'ALTER TABLE f_a CLUSTER ON f_a_pkey',
	'ALTER TABLE f_a REPLICA IDENTITY USING INDEX f_a_pkey',
	'ALTER INDEX f_a_pkey SET (fillfactor = 70)',
	'CREATE TABLE no (id int REFERENCES f_a)', 'CREATE TABLE no (id int REFERENCES f_a (id))']) s;
CREATE TABLE log (v text);
SELECT outcome('CREATE INDEX ON log USING kvfdw (v)');
REINDEX INDEX CONCURRENTLY f_a_pkey;
DROP INDEX CONCURRENTLY f_a_pkey;
-- The foreign tables of others have none.
CREATE FOREIGN DATA WRAPPER other;
CREATE SERVER other FOREIGN DATA WRAPPER other;
CREATE FOREIGN TABLE of_other (id int PRIMARY KEY) SERVER other;
CREATE FOREIGN TABLE of_other (id int) SERVER other;
ALTER FOREIGN TABLE of_other ADD PRIMARY KEY (id);
CREATE INDEX ON of_other USING kvfdw (id);
DROP FOREIGN DATA WRAPPER other CASCADE;
-- Rows: conflicts name the constraint, and ON CONFLICT does.
SELECT s, twins(s) FROM unnest(ARRAY[
	'INSERT INTO @a VALUES (1, ''a''), (2, ''b''), (3, ''c'')',
	'INSERT INTO @a VALUES (2, ''x'')',
	'INSERT INTO @c VALUES (''v'', ''00000000-0000-0000-0000-000000000001''), (''w'', ''00000000-0000-0000-0000-000000000001'')',
	'INSERT INTO @a VALUES (NULL, ''x'')',
	'UPDATE @a SET id = 3 WHERE id = 1',
	'INSERT INTO @a VALUES (2, ''x'') ON CONFLICT ON CONSTRAINT @a_pkey DO NOTHING',
	'INSERT INTO @a VALUES (2, ''x''), (4, ''d'') ON CONFLICT ON CONSTRAINT @a_pkey DO UPDATE SET v = excluded.v',
	'INSERT INTO @a VALUES (2, ''y'') ON CONFLICT (id) DO UPDATE SET v = excluded.v',
	'INSERT INTO @a VALUES (2, ''z'') ON CONFLICT DO NOTHING',
	'INSERT INTO @a VALUES (2, ''z'') ON CONFLICT (v) DO NOTHING',
	'INSERT INTO @a VALUES (2, ''z'') ON CONFLICT ON CONSTRAINT nope DO NOTHING',
	'INSERT INTO @x VALUES (2) ON CONFLICT ON CONSTRAINT @x_id_check DO NOTHING',
	'INSERT INTO @b VALUES (1, ''x'', 1), (1, ''y'', 1)',
	'INSERT INTO @b VALUES (1, ''x'', 2) ON CONFLICT (a, b) DO UPDATE SET c = 2',
	'INSERT INTO @c (v) VALUES (''no key'')']) s;
TABLE f_a;
EXPLAIN (COSTS OFF) INSERT INTO f_c VALUES ('v') ON CONFLICT ON CONSTRAINT "f_C Key" DO UPDATE SET v = excluded.v;
PREPARE upsert(int) AS INSERT INTO f_a VALUES ($1, 'p') ON CONFLICT ON CONSTRAINT f_a_pkey DO UPDATE SET v = 'q' RETURNING *;
EXECUTE upsert(1);
ALTER TABLE f_a RENAME CONSTRAINT f_a_pkey TO renamed;
EXECUTE upsert(1);
ALTER INDEX renamed RENAME TO f_a_pkey;
EXECUTE upsert(1);
DEALLOCATE upsert;
\copy f_a FROM STDIN
9	copied
\.
-- Queries: columns that depend on the key, joins that are not needed, what the planner believes of it.
SELECT id, v FROM f_a GROUP BY id ORDER BY id;
CREATE VIEW grouped AS SELECT id, v FROM f_a GROUP BY id;
ALTER FOREIGN TABLE f_a DROP CONSTRAINT f_a_pkey;
DROP VIEW grouped;
EXPLAIN (COSTS OFF) SELECT l.v FROM log l LEFT JOIN f_a ON l.v = f_a.v AND f_a.id = 1;
EXPLAIN (COSTS OFF) SELECT l.v FROM log l LEFT JOIN f_a ON length(l.v) = f_a.id;
EXPLAIN (COSTS OFF) SELECT l.v FROM log l LEFT JOIN f_b ON length(l.v) = f_b.a;
ANALYZE f_a;
SELECT relname, reltuples, relpages FROM pg_class WHERE relname IN ('f_a', 'f_a_pkey') ORDER BY 1;
SELECT pg_relation_size('f_a_pkey'), pg_indexes_size('f_a');
-- ALTER.
SELECT s, twins(s) FROM unnest(ARRAY[
	'ALTER FOREIGN TABLE @a DROP CONSTRAINT @a_pkey',
	'INSERT INTO @a VALUES (NULL, ''x'')',
	'ALTER FOREIGN TABLE @a DROP CONSTRAINT @a_pkey',
	'ALTER FOREIGN TABLE @a DROP CONSTRAINT IF EXISTS @a_pkey',
	'ALTER FOREIGN TABLE IF EXISTS @nope ADD PRIMARY KEY (id)',
	'ALTER FOREIGN TABLE @nope ADD PRIMARY KEY (id)',
	'ALTER TABLE @a ADD PRIMARY KEY (id, id)',
	'ALTER TABLE @a ADD CONSTRAINT @one PRIMARY KEY (id), ADD CONSTRAINT @two PRIMARY KEY (id)',
	'ALTER TABLE @a ADD CONSTRAINT @b PRIMARY KEY (id)',
	'ALTER FOREIGN TABLE @a ADD CONSTRAINT @one PRIMARY KEY (id), ADD COLUMN w int DEFAULT 5',
	'INSERT INTO @a VALUES (2, ''x'')',
	'ALTER TABLE @a ADD PRIMARY KEY (id)',
	'ALTER TABLE @a ALTER COLUMN id DROP NOT NULL',
	'COMMENT ON CONSTRAINT @one ON @a IS ''the only one''',
	'COMMENT ON INDEX @one IS ''its index''',
	'ALTER TABLE @a ALTER COLUMN id TYPE int, ALTER COLUMN v TYPE varchar(20)',
	'ALTER TABLE @a RENAME COLUMN id TO "an Id"',
	'INSERT INTO @a VALUES (2, ''x'')',
	'UPDATE @a SET w = 6 WHERE "an Id" = 2',
	'ALTER TABLE @a DROP CONSTRAINT @one, ADD PRIMARY KEY ("an Id")',
	'ALTER TABLE @b ALTER COLUMN b TYPE varchar COLLATE "C"',
	'DROP INDEX @a_pkey',
	'ALTER TABLE @a ADD COLUMN k int PRIMARY KEY',
	'ALTER TABLE @a ADD COLUMN IF NOT EXISTS w int PRIMARY KEY',
	'ALTER TABLE @a DROP CONSTRAINT @a_pkey, ADD COLUMN IF NOT EXISTS "an Id" int PRIMARY KEY',
	'ALTER TABLE @a ADD PRIMARY KEY ("an Id")']) s;
SELECT * FROM differences();
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'f_a'::regclass;
TABLE f_a;
-- The key is what it is while there are rows; else it is what the primary key says, or an option does.
CREATE FOREIGN TABLE k (a int, b int, c int) SERVER kvfdw;
ALTER FOREIGN TABLE k ADD PRIMARY KEY (b, a);
\d k
ALTER FOREIGN TABLE k OPTIONS (SET key 'a');
ALTER FOREIGN TABLE k OPTIONS (DROP key);
ALTER FOREIGN TABLE k OPTIONS (ADD shards '2');
ALTER FOREIGN TABLE k DROP CONSTRAINT k_pkey, OPTIONS (SET key 'c'), ADD PRIMARY KEY (a);
ALTER FOREIGN TABLE k DROP CONSTRAINT k_pkey, OPTIONS (SET key 'c'), OPTIONS (SET shards '3'), ADD PRIMARY KEY (c);
INSERT INTO k VALUES (1, 2, 3);
ALTER FOREIGN TABLE k DROP CONSTRAINT k_pkey, OPTIONS (DROP key), ADD PRIMARY KEY (a);
ALTER FOREIGN TABLE k DROP CONSTRAINT k_pkey;
ALTER FOREIGN TABLE k ADD PRIMARY KEY (a);
ALTER FOREIGN TABLE k DROP COLUMN c;
ALTER FOREIGN TABLE k ADD PRIMARY KEY (c);
INSERT INTO k VALUES (1, 2, 3);
DELETE FROM k;
ALTER FOREIGN TABLE k DROP COLUMN c;
SELECT conname FROM pg_constraint WHERE conrelid = 'k'::regclass AND contype = 'p';
-- A column added as the primary key that the option names already.
ALTER FOREIGN TABLE k ADD COLUMN c int PRIMARY KEY;
\d k
DROP FOREIGN TABLE k;
-- Types of the key's columns, where their values stay what they are.
CREATE DOMAIN whole AS int;
CREATE FOREIGN TABLE ty (k varchar(10) COLLATE "C", i int, v int, PRIMARY KEY (k, i)) SERVER kvfdw;
INSERT INTO ty VALUES ('a', 1, 1);
COMMENT ON CONSTRAINT ty_pkey ON ty IS 'kept';
ALTER FOREIGN TABLE ty ALTER COLUMN k TYPE varchar(20), ALTER COLUMN i TYPE whole, ALTER COLUMN v TYPE text;
SELECT obj_description(oid) FROM pg_constraint WHERE conname = 'ty_pkey';
ALTER FOREIGN TABLE ty ALTER COLUMN i TYPE bigint;
ALTER FOREIGN TABLE ty ALTER COLUMN i TYPE int, DROP CONSTRAINT ty_pkey;
ALTER FOREIGN TABLE ty ALTER COLUMN i TYPE whole, ADD CONSTRAINT ty_pkey PRIMARY KEY (k, i);
\d ty
INSERT INTO ty VALUES ('a', 1, 1);
DROP FOREIGN TABLE ty;
-- Parents: the key of a child is its own.
SELECT s, twins(s) FROM unnest(ARRAY[
	'CREATE TABLE @parent (id int, v text)',
	'CREATE FOREIGN TABLE @child (w int, PRIMARY KEY (id)) INHERITS (@parent) {SERVER kvfdw}',
	'INSERT INTO @child VALUES (1, ''a'', 1)',
	'ALTER TABLE @parent ADD PRIMARY KEY (id)',
	'INSERT INTO @child VALUES (1, ''a'', 1)',
	'ALTER TABLE ONLY @parent DROP CONSTRAINT @parent_pkey',
	'ALTER TABLE @parent ALTER COLUMN v TYPE varchar(9)',
	'ALTER TABLE @parent ALTER COLUMN id TYPE int',
	'ALTER TABLE @parent RENAME COLUMN id TO i',
	'UPDATE @parent SET v = ''b'' WHERE i = 1',
	'DROP TABLE @parent CASCADE']) s;
CREATE TABLE p (v text, id int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE p1 PARTITION OF p (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10) SERVER kvfdw;
CREATE FOREIGN TABLE p2 PARTITION OF p (id PRIMARY KEY) FOR VALUES FROM (10) TO (20) SERVER kvfdw;
CREATE TABLE p3 (id int PRIMARY KEY, v text);
CREATE FOREIGN TABLE p4 (id int, v text, CONSTRAINT pk PRIMARY KEY (id)) SERVER kvfdw;
ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30);
ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (30) TO (40);
INSERT INTO p SELECT 'v' || g, g FROM generate_series(1, 39, 4) g;
INSERT INTO p VALUES ('x', 1), ('x', 13), ('x', 21), ('x', 33), ('new', 34) ON CONFLICT (id) DO UPDATE SET v = excluded.v || p.id;
INSERT INTO p VALUES ('y', 1), ('y', 13), ('y', 21), ('y', 33), ('new', 35) ON CONFLICT DO NOTHING;
INSERT INTO p VALUES ('y', 33);
\copy p FROM STDIN
copied	2
copied	36
\.
UPDATE p SET v = 'u' WHERE id = 2;
SELECT tableoid::regclass, * FROM p ORDER BY id;
ALTER TABLE p ADD PRIMARY KEY (id);
ALTER TABLE p DETACH PARTITION p4;
INSERT INTO p4 (id) VALUES (33);
ALTER TABLE p ALTER COLUMN id TYPE bigint;
DROP TABLE p;
DROP FOREIGN TABLE p4;
-- Names, owners, schemas, privileges.
CREATE ROLE kv_pk_owner;
CREATE ROLE kv_pk_other;
CREATE SCHEMA other AUTHORIZATION kv_pk_owner;
ALTER FOREIGN TABLE f_b OWNER TO kv_pk_owner;
ALTER TABLE h_b OWNER TO kv_pk_owner;
SELECT * FROM differences();
SET ROLE kv_pk_owner;
SELECT twins('ALTER TABLE @b DROP CONSTRAINT @b_pkey');
SELECT twins('ALTER TABLE @b ADD PRIMARY KEY (b, a)');
RESET ROLE;
ALTER FOREIGN TABLE f_b SET SCHEMA other;
ALTER TABLE h_b SET SCHEMA other;
SET ROLE kv_pk_owner;
SELECT twins('ALTER TABLE other.@b ADD PRIMARY KEY (b, a)');
SELECT twins('ALTER INDEX other.@b_pkey RENAME TO @b_key');
SELECT twins('COMMENT ON INDEX other.@b_key IS ''mine''');
SELECT twins('ALTER TABLE @a ADD PRIMARY KEY (id)');
RESET ROLE;
SELECT * FROM differences();
REASSIGN OWNED BY kv_pk_owner TO kv_pk_other;
SELECT * FROM differences();
SELECT relname, relowner::regrole FROM pg_class WHERE relnamespace = 'other'::regnamespace AND relkind IN ('f', 'i') ORDER BY 1;
DROP OWNED BY kv_pk_other CASCADE;
SELECT count(*) FROM pg_class WHERE relname IN ('f_b', 'f_b_key');
DROP SCHEMA other;
DROP ROLE kv_pk_owner, kv_pk_other;
-- Copies of a table's definition.
CREATE TABLE copied (LIKE f_a INCLUDING ALL);
\d copied
DROP TABLE copied;
-- Also after statements that hide the indexes of their targets from the executor.
CREATE TABLE p (id int, v text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE p1 PARTITION OF p (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10) SERVER kvfdw;
CREATE FOREIGN TABLE p2 PARTITION OF p (PRIMARY KEY (id)) FOR VALUES FROM (10) TO (20) SERVER kvfdw;
INSERT INTO p SELECT g, 'v' FROM generate_series(1, 19) g;
CREATE FUNCTION copies(VARIADIC tables text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE t text;
BEGIN
	FOREACH t IN ARRAY tables LOOP
		EXECUTE format('CREATE TABLE copied (LIKE %s INCLUDING INDEXES)', t);
		RETURN NEXT t || ': ' || coalesce((SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'copied'::regclass AND contype = 'p'), 'none');
		DROP TABLE copied;
	END LOOP;
END $$;
DELETE FROM p WHERE v = 'none';
SELECT copies('p1', 'p2');
UPDATE p SET v = 'u' WHERE v = 'v';
SELECT copies('p1', 'p2');
DELETE FROM p1 WHERE id = 5;
SELECT copies('p1', 'p2');
INSERT INTO p VALUES (5, 'n'), (6, 'n'), (16, 'n') ON CONFLICT (id) DO UPDATE SET v = 'x';
SELECT copies('p1', 'p2');
SELECT v, count(*) FROM p GROUP BY v ORDER BY v;
DROP FUNCTION copies;
DROP TABLE p;
-- Event triggers see the table with its primary key, and what they would see on heap.
CREATE FUNCTION seen() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_EVENT = 'sql_drop' THEN
		INSERT INTO log SELECT concat_ws(' ', TG_EVENT, object_type, object_identity) FROM pg_event_trigger_dropped_objects() WHERE object_type ~ 'index|constraint' AND object_identity !~ 'not_null' ORDER BY 1;
	ELSE
		INSERT INTO log SELECT concat_ws(' ', TG_TAG, command_tag, object_type, object_identity, (SELECT string_agg(conname, ' ') FROM pg_constraint WHERE contype = 'p' AND conrelid::regclass::text ~ '_ev$'))
			FROM pg_event_trigger_ddl_commands();
	END IF;
END $$;
CREATE EVENT TRIGGER seen_end ON ddl_command_end EXECUTE FUNCTION seen();
CREATE EVENT TRIGGER seen_drop ON sql_drop EXECUTE FUNCTION seen();
CREATE TABLE h_ev (id int PRIMARY KEY, v int);
ALTER TABLE h_ev DROP CONSTRAINT h_ev_pkey;
ALTER TABLE h_ev ADD PRIMARY KEY (id);
ALTER TABLE h_ev RENAME COLUMN id TO k;
DROP TABLE h_ev;
TABLE log;
TRUNCATE log;
CREATE FOREIGN TABLE f_ev (id int PRIMARY KEY, v int) SERVER kvfdw;
ALTER TABLE f_ev DROP CONSTRAINT f_ev_pkey;
ALTER TABLE f_ev ADD PRIMARY KEY (id);
ALTER FOREIGN TABLE f_ev RENAME COLUMN id TO k;
DROP FOREIGN TABLE f_ev;
TABLE log;
DROP EVENT TRIGGER seen_end;
DROP EVENT TRIGGER seen_drop;
-- Undone, in functions, more than once in a session.
BEGIN;
SAVEPOINT s;
CREATE FOREIGN TABLE x (id int PRIMARY KEY) SERVER kvfdw;
INSERT INTO x VALUES (1);
ROLLBACK TO s;
CREATE FOREIGN TABLE x (id int) SERVER kvfdw;
SAVEPOINT s;
ALTER FOREIGN TABLE x ADD PRIMARY KEY (id);
ROLLBACK TO s;
ALTER FOREIGN TABLE x ADD CONSTRAINT again PRIMARY KEY (id);
COMMIT;
INSERT INTO x VALUES (1), (1);
CREATE FUNCTION again() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	DROP FOREIGN TABLE x;
	CREATE FOREIGN TABLE x (id int PRIMARY KEY) SERVER kvfdw;
	ALTER FOREIGN TABLE x DROP CONSTRAINT x_pkey;
	ALTER FOREIGN TABLE x ADD CONSTRAINT y PRIMARY KEY (id);
	RETURN (SELECT pg_get_constraintdef(oid) || ' ' || conname FROM pg_constraint WHERE conrelid = 'x'::regclass);
END $$;
SELECT again();
SELECT again();
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM x;
ALTER FOREIGN TABLE x DROP CONSTRAINT y, ADD PRIMARY KEY (id);
ROLLBACK;
TRUNCATE x;
-- The extension owns the access method.
SELECT twins('DROP ACCESS METHOD kvfdw');
BEGIN;
DROP EXTENSION kvfdw CASCADE;
SELECT relname FROM pg_class WHERE relnamespace = 'pk'::regnamespace AND relkind IN ('f', 'i') AND relname !~ '^h_';
SELECT amname FROM pg_am WHERE amname = 'kvfdw';
ROLLBACK;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'kvfdw_ops';
DROP FOREIGN TABLE f_a, x;
SELECT count(*) FROM pg_class WHERE relname IN ('f_a_pkey', 'y');
SET client_min_messages = error;
DROP SCHEMA pk CASCADE;
