-- Promise: an INSERT of many rows, which is done in batches, does what it does on a heap table: errors, conflicts, triggers, partitions, rows that functions see in between.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE SCHEMA batch;
SET search_path = batch;
CREATE DOMAIN small AS int CHECK (VALUE < 1000000);
CREATE FOREIGN TABLE kv (k int NOT NULL, n small, v text, CONSTRAINT n_low CHECK (n < 100000)) SERVER kvfdw OPTIONS (key 'k');
CREATE TABLE hp (k int CONSTRAINT kv_pkey PRIMARY KEY, n small, v text, CONSTRAINT n_low CHECK (n < 100000));
CREATE FOREIGN TABLE kv_keys (k int NOT NULL, n small, v text, CONSTRAINT n_low CHECK (n < 100000)) SERVER kvfdw OPTIONS (key 'k', wal 'keys');
CREATE FOREIGN TABLE kv_none (k int NOT NULL, n small, v text, CONSTRAINT n_low CHECK (n < 100000)) SERVER kvfdw OPTIONS (key 'k', wal 'none', shards '8');
-- attempt: how many rows a statement has inserted, or its error. twins: the same on all tables, and which differ.
CREATE FUNCTION attempt(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n bigint; state text; message text; detail text; constr text; col text;
BEGIN
  EXECUTE statement;
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n || ' rows';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, constr = CONSTRAINT_NAME, col = COLUMN_NAME;
  RETURN regexp_replace(concat_ws(' ', state, message, detail, constr, col), '\m(kv_keys|kv_none|hp)\M', 'kv', 'g');
END $$;
CREATE FUNCTION contents(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
  EXECUTE format('SELECT count(*) || '' '' || coalesce(md5(string_agg(k || '':'' || coalesce(n::text, ''-'') || '':'' || coalesce(v, ''-''), '','' ORDER BY k)), '''') FROM %s', name) INTO r;
  RETURN r;
END $$;
CREATE FUNCTION twins(statement text) RETURNS TABLE (result text, differ text) LANGUAGE plpgsql AS $$
DECLARE name text; mine text;
BEGIN
  result := attempt(format(statement, 'hp', 'hp'));
  FOREACH name IN ARRAY ARRAY['kv', 'kv_keys', 'kv_none'] LOOP
    mine := regexp_replace(attempt(format(statement, name, name)), '\m(kv_keys|kv_none)_pkey\M', 'kv_pkey', 'g');
    IF mine <> result OR contents(name) <> contents('hp') THEN differ := concat_ws(', ', differ, name || ': ' || mine); END IF;
  END LOOP;
  RETURN NEXT;
END $$;
\set ECHO all
SELECT * FROM twins('INSERT INTO %s SELECT g, g, ''row '' || g FROM generate_series(1, 1000) g');
SELECT * FROM twins('INSERT INTO %s VALUES (2001, 1, ''a''), (2002, 2, ''b''), (2003, 3, ''c''), (2004, 4, ''d''), (2005, 5, ''e''), (2006, 6, ''f''), (2007, 7, ''g''), (2008, 8, ''h''), (2009, 9, ''i''), (2010, 10, NULL)');
SELECT * FROM twins('INSERT INTO %s SELECT g, g, repeat(''x'', g * 97) FROM generate_series(1001, 1200) g');
-- in any order, of any size, and values that fit into no buffer
SELECT * FROM twins('INSERT INTO %s SELECT (g * 7919) %% 5003 + 10000, g, repeat(chr(65 + g %% 26), (g * 37) %% 900) FROM generate_series(1, 3000) g');
SELECT * FROM twins('INSERT INTO %s SELECT g + 20000, g, repeat(md5(g::text), CASE WHEN g %% 10 = 0 THEN 20000 ELSE 5 END) FROM generate_series(1, 100) g');
-- duplicates: of a row of the table, of one of the same batch, of one of another batch
SELECT * FROM twins('INSERT INTO %s SELECT g, g, ''again'' FROM generate_series(30000, 30100) g UNION ALL SELECT 500, 1, ''x'' UNION ALL SELECT 400, 1, ''x''');
SELECT * FROM twins('INSERT INTO %s SELECT 30000 + g %% 50, g, ''twice'' FROM generate_series(1, 100) g');
SELECT * FROM twins('INSERT INTO %s SELECT 30000 + g %% 300, g, ''twice'' FROM generate_series(1, 1000) g');
-- of several wrong rows the first one counts
SELECT * FROM twins('INSERT INTO %s SELECT CASE g WHEN 20 THEN 500 WHEN 30 THEN NULL ELSE 30000 + g END, g, ''x'' FROM generate_series(1, 60) g');
SELECT * FROM twins('INSERT INTO %s SELECT CASE g WHEN 30 THEN 500 WHEN 20 THEN NULL ELSE 30000 + g END, g, ''x'' FROM generate_series(1, 60) g');
SELECT * FROM twins('INSERT INTO %s SELECT CASE g WHEN 20 THEN 500 ELSE 30000 + g END, CASE g WHEN 30 THEN 100001 ELSE g END, ''x'' FROM generate_series(1, 60) g');
SELECT * FROM twins('INSERT INTO %s SELECT CASE g WHEN 30 THEN 500 ELSE 30000 + g END, CASE g WHEN 20 THEN 100001 ELSE g END, ''x'' FROM generate_series(1, 60) g');
SELECT * FROM twins('INSERT INTO %s SELECT 30000 + g, CASE g WHEN 40 THEN 2000000 ELSE g END, ''x'' FROM generate_series(1, 60) g');
-- ON CONFLICT
SELECT * FROM twins('INSERT INTO %s SELECT g, -1, ''ignored'' FROM generate_series(900, 1300) g ON CONFLICT DO NOTHING');
SELECT * FROM twins('INSERT INTO %s SELECT 31000 + g %% 100, g, ''first wins'' FROM generate_series(1, 400) g ON CONFLICT DO NOTHING');
SELECT * FROM twins('INSERT INTO %s SELECT g, -2, ''set'' FROM generate_series(1290, 1350) g ON CONFLICT (k) DO UPDATE SET n = excluded.n, v = excluded.v');
-- rows that were deleted, in this transaction and before
SELECT * FROM twins('DELETE FROM %s WHERE k BETWEEN 100 AND 900');
SELECT * FROM twins('INSERT INTO %s SELECT g, g, ''anew'' FROM generate_series(100, 900) g');
SELECT * FROM twins('WITH gone AS (DELETE FROM %s WHERE k BETWEEN 1000 AND 1100 RETURNING k) INSERT INTO %s SELECT k + 40000, 1, ''moved'' FROM gone');
-- RETURNING, in a WITH query
SELECT * FROM twins('WITH made AS (INSERT INTO %s SELECT g, g, ''made'' FROM generate_series(50000, 50200) g RETURNING k) INSERT INTO %s SELECT k + 1000, k - 50000, ''made of it'' FROM made');
-- functions that see the rows before
CREATE FUNCTION so_far(name text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ DECLARE r bigint; BEGIN EXECUTE 'SELECT count(*) FROM ' || name INTO r; RETURN r; END $$;
CREATE FUNCTION before_it(name text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$ DECLARE r bigint; BEGIN EXECUTE 'SELECT count(*) FROM ' || name INTO r; RETURN r; END $$;
SELECT * FROM twins('INSERT INTO %s SELECT g, so_far(''%s''), ''so far'' FROM generate_series(60000, 60100) g');
SELECT * FROM twins('INSERT INTO %s SELECT g, before_it(''%s''), ''before it'' FROM generate_series(60200, 60300) g');
SELECT * FROM twins('WITH c AS MATERIALIZED (SELECT g, so_far(''%s'') AS n FROM generate_series(61000, 61100) g), i AS (INSERT INTO %s SELECT g, n, ''through WITH'' FROM c) SELECT 1');
CREATE SEQUENCE s;
SELECT * FROM twins('INSERT INTO %s SELECT 70000 + g, nextval(''s'') * 0, ''a sequence'' FROM generate_series(1, 200) g');
CREATE DOMAIN counted AS int CHECK (so_far('hp') > 0);
SELECT * FROM twins('INSERT INTO %s SELECT (71000 + g)::counted, 1, ''a domain'' FROM generate_series(1, 200) g');
-- triggers
CREATE TABLE seen (name text, k int, n bigint);
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (TG_ARGV[0], NEW.k, so_far(TG_TABLE_NAME)); IF TG_WHEN = 'BEFORE' AND NEW.k % 3 = 0 THEN RETURN NULL; END IF; NEW.v := 'seen'; RETURN NEW; END $$;
CREATE TRIGGER b BEFORE INSERT ON kv FOR EACH ROW EXECUTE FUNCTION look('kv b');
CREATE TRIGGER b BEFORE INSERT ON kv_keys FOR EACH ROW EXECUTE FUNCTION look('kv_keys b');
CREATE TRIGGER b BEFORE INSERT ON kv_none FOR EACH ROW EXECUTE FUNCTION look('kv_none b');
CREATE TRIGGER b BEFORE INSERT ON hp FOR EACH ROW EXECUTE FUNCTION look('hp b');
SELECT * FROM twins('INSERT INTO %s SELECT g, 1, ''x'' FROM generate_series(80000, 80100) g');
DROP TRIGGER b ON kv; DROP TRIGGER b ON kv_keys; DROP TRIGGER b ON kv_none; DROP TRIGGER b ON hp;
CREATE TRIGGER a AFTER INSERT ON kv FOR EACH ROW EXECUTE FUNCTION look('kv a');
CREATE TRIGGER a AFTER INSERT ON kv_keys FOR EACH ROW EXECUTE FUNCTION look('kv_keys a');
CREATE TRIGGER a AFTER INSERT ON kv_none FOR EACH ROW EXECUTE FUNCTION look('kv_none a');
CREATE TRIGGER a AFTER INSERT ON hp FOR EACH ROW EXECUTE FUNCTION look('hp a');
SELECT * FROM twins('INSERT INTO %s SELECT g, 1, ''x'' FROM generate_series(81000, 81100) g');
DROP TRIGGER a ON kv; DROP TRIGGER a ON kv_keys; DROP TRIGGER a ON kv_none; DROP TRIGGER a ON hp;
SELECT regexp_replace(name, '.* ', '') AS trigger, count(*) / 4 AS rows, count(DISTINCT (k, n)) FROM seen GROUP BY 1 ORDER BY 1;
-- statement triggers see all rows
CREATE FUNCTION look_after() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES ('stmt', so_far(TG_TABLE_NAME), 0); RETURN NULL; END $$;
CREATE TRIGGER s AFTER INSERT ON kv EXECUTE FUNCTION look_after();
CREATE TRIGGER s AFTER INSERT ON hp EXECUTE FUNCTION look_after();
SELECT * FROM twins('INSERT INTO %s SELECT g, 1, ''x'' FROM generate_series(82000, 82100) g');
SELECT count(DISTINCT k), count(*) FROM seen WHERE name = 'stmt';
DROP TRIGGER s ON kv; DROP TRIGGER s ON hp;
-- views with a check option
CREATE VIEW kv_low AS SELECT * FROM kv WHERE n < 50 WITH CHECK OPTION;
CREATE VIEW hp_low AS SELECT * FROM hp WHERE n < 50 WITH CHECK OPTION;
SELECT attempt('INSERT INTO kv_low SELECT g, g - 83000, ''x'' FROM generate_series(83000, 83100) g') = replace(attempt('INSERT INTO hp_low SELECT g, g - 83000, ''x'' FROM generate_series(83000, 83100) g'), 'hp_low', 'kv_low');
-- a savepoint in the middle, and rows of it again
DO $$
DECLARE t text;
BEGIN
  FOREACH t IN ARRAY ARRAY['kv', 'kv_keys', 'kv_none', 'hp'] LOOP
    EXECUTE format('INSERT INTO %s SELECT g, 1, ''kept'' FROM generate_series(90000, 90100) g', t);
    BEGIN
      EXECUTE format('INSERT INTO %s SELECT g, 2, ''undone'' FROM generate_series(90101, 90300) g', t);
      RAISE EXCEPTION 'undo';
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
    EXECUTE format('INSERT INTO %s SELECT g, 3, ''instead'' FROM generate_series(90101, 90200) g', t);
  END LOOP;
END $$;
SELECT name, contents(name) = contents('hp') AS same FROM unnest(ARRAY['kv', 'kv_keys', 'kv_none']) name;
-- on_duplicate
CREATE FOREIGN TABLE ignores (k int, v text) SERVER kvfdw OPTIONS (key 'k', on_duplicate 'ignore');
CREATE FOREIGN TABLE replaces (k int, v text) SERVER kvfdw OPTIONS (key 'k', on_duplicate 'replace');
SELECT attempt(format('INSERT INTO %s SELECT g %% 300, ''row '' || g FROM generate_series(1, 1000) g', name)) FROM unnest(ARRAY['ignores', 'replaces']) name;
SELECT (SELECT string_agg(v, ',' ORDER BY k) FROM ignores WHERE k IN (0, 1, 299)), (SELECT string_agg(v, ',' ORDER BY k) FROM replaces WHERE k IN (0, 1, 299)), (SELECT count(*) FROM ignores), (SELECT count(*) FROM replaces);
-- partitions of both kinds, and an insert directly into one
CREATE TABLE parts (k int, n int, v text) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (1000) SERVER kvfdw OPTIONS (key 'k');
CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (1000) TO (2000);
CREATE FOREIGN TABLE p3 PARTITION OF parts FOR VALUES FROM (2000) TO (3000) SERVER kvfdw OPTIONS (key 'k');
SELECT attempt('INSERT INTO parts SELECT (g * 7) % 3000, g, ''x'' FROM generate_series(1, 3000) g');
SELECT tableoid::regclass, count(*), sum(k), count(DISTINCT n) FROM parts GROUP BY 1 ORDER BY 1::text;
SELECT attempt('INSERT INTO parts SELECT g, g, ''x'' FROM generate_series(2990, 3010) g');
SELECT attempt('INSERT INTO p1 SELECT g, g, ''x'' FROM generate_series(-50, 50) g');
SELECT attempt('INSERT INTO p1 SELECT g, g, ''x'' FROM generate_series(990, 1050) g');
TRUNCATE parts;
SELECT attempt('INSERT INTO parts SELECT g, (SELECT count(*) FROM parts), ''x'' FROM generate_series(1, 100) g'), attempt('INSERT INTO parts SELECT g, so_far(''parts''), ''x'' FROM generate_series(101, 200) g');
SELECT n, count(*) FROM parts WHERE k <= 100 GROUP BY n;
SELECT bool_and(n = k - 1) FROM parts WHERE k > 100;
-- stored generated columns
CREATE FOREIGN TABLE gen (k int, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, CHECK (twice < 1000)) SERVER kvfdw OPTIONS (key 'k');
SELECT attempt('INSERT INTO gen SELECT g, g FROM generate_series(1, 499) g'), attempt('INSERT INTO gen SELECT g, g FROM generate_series(500, 600) g');
SELECT count(*), sum(twice) FROM gen;
-- COPY, also of wrong rows
\set SHOW_CONTEXT never
COPY kv (k, n, v) FROM stdin;
95001	1	one
95002	2	two
\.
COPY kv (k, n, v) FROM stdin;
95003	1	one
95001	2	again
\.
SELECT v FROM kv WHERE k BETWEEN 95001 AND 95010 ORDER BY k;
\set ECHO none
SET client_min_messages = error;
DROP SCHEMA batch CASCADE;
