-- Promise: ON CONFLICT DO SELECT (PostgreSQL 19) inserts or returns, checks and refuses what it does on a heap table of the same server; on older servers it is a syntax error.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE SCHEMA twins;
SET search_path = twins, public;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/views.sql'
\i :file
-- A row that exists, one that does not, both, and twice the same.
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (30, 'x', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (30, 'a', 'b'), (5, 'c', 'd'), (30, 'e', 'f'), (6, 'g', 'h') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (30, 'a', 'b'), (5, 'c', 'd') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (30, 'a', 'b'), (30, 'c', 'd') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (30, 'a', 'b'), (30, 'c', 'd') ON CONFLICT (id) DO SELECT FOR KEY SHARE RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT FOR NO KEY UPDATE RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT FOR SHARE RETURNING secret || id$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT FOR KEY SHARE RETURNING @t$$);
SELECT compare($$INSERT INTO @t SELECT g, 'sel', 'ect' FROM generate_series(7, 12) g ON CONFLICT (id) DO SELECT RETURNING *$$);
-- RETURNING knows the old row and the new one; tableoid.
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (30, 'a', 'b'), (6, 'c', 'd') ON CONFLICT (id) DO SELECT RETURNING old.*, new.*, old IS NULL$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (30, 'a', 'b') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING WITH (OLD AS o) o.secret, secret, tableoid::regclass$$);
-- WHERE, of the existing row and the proposed one.
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (6, 'x', 'z'), (30, 'x', 'y') ON CONFLICT (id) DO SELECT WHERE @t.owner = 'carl' RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (6, 'x', 'z') ON CONFLICT (id) DO SELECT FOR UPDATE WHERE excluded.secret = 'z' RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT WHERE peek(@t.secret, false) RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT WHERE EXISTS (SELECT FROM @t o WHERE o.id > @t.id) RETURNING *$$);
-- What the command itself has changed.
SELECT compare($$WITH w AS (UPDATE @t SET secret = 'w' WHERE id = 5 RETURNING id) INSERT INTO @t SELECT id, 'x', 'y' FROM w ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$WITH w AS (UPDATE @t SET secret = 'w' WHERE id = 5 RETURNING id) INSERT INTO @t SELECT id, 'x', 'y' FROM w ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *$$);
SELECT compare($$WITH w AS (DELETE FROM @t WHERE id = 5 RETURNING id) INSERT INTO @t SELECT id, 'x', 'y' FROM w ON CONFLICT (id) DO SELECT FOR SHARE RETURNING *$$);
SELECT compare($$WITH w AS (INSERT INTO @t VALUES (40, 'x', 'y') RETURNING id) INSERT INTO @t SELECT id, 'x', 'z' FROM w ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$WITH w AS (INSERT INTO @t VALUES (5, 'x', 'y'), (40, 'x', 'y') ON CONFLICT (id) DO SELECT RETURNING *) INSERT INTO @t SELECT id + 100, owner, secret FROM w RETURNING *$$);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (30, 'a', 'b'), (30, 'c', 'd') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$WITH w AS (UPDATE @t SET secret = 'w' WHERE id = 5 RETURNING id) INSERT INTO @t SELECT id, 'x', 'y' FROM w ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *$$);
COMMIT;
-- Privileges, and a target with other column numbers.
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$, 'kv_viewer');
SELECT compare($$INSERT INTO @all VALUES ('y', 5, 'x') ON CONFLICT (no) DO SELECT RETURNING *$$);
-- Views and policies.
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (4, 'x', 'y') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT WHERE peek(@plain.secret, true) RETURNING *$$);
SELECT compare($$INSERT INTO @barrier VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$, 'kv_viewer');
SELECT compare($$INSERT INTO @checked VALUES (5, 'alice', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @checked VALUES (5, 'alice', 'y'), (31, 'dave', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @checked VALUES (4, 'dave', 'y') ON CONFLICT (id) DO SELECT FOR SHARE RETURNING *$$);
SELECT compare($$INSERT INTO @cascaded VALUES (4, 'alice', 'y'), (9, 'alice', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @nested VALUES ('x', 'y', 4) ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @invoker VALUES (5, 'x', 'y') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING *$$, 'kv_invoker');
SELECT compare($$INSERT INTO @p VALUES (4, 'alice', 'y'), (8, 'alice', 'y'), (31, 'alice', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @p VALUES (4, 'alice', 'y'), (8, 'alice', 'y'), (31, 'alice', 'y') ON CONFLICT (id) DO SELECT FOR UPDATE RETURNING old.*, new.*, tableoid::regclass$$);
SELECT compare($$INSERT INTO @p VALUES (4, 'alice', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (5, 'alice', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (5, 'alice', 'y') ON CONFLICT (id) DO SELECT FOR UPDATE WHERE peek(@p.secret, false) RETURNING *$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (9, 'alice', 'y') ON CONFLICT (id) DO SELECT WHERE peek(@p.secret, true) RETURNING *$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @parent VALUES (5, 'x', 'y'), (8, 'x', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$, 'kv_viewer');
SELECT compare($$INSERT INTO @policy_and_view VALUES (9, 'alice', 'y') ON CONFLICT (id) DO SELECT RETURNING *$$, 'kv_invoker');
-- Row triggers: those for rows that are inserted.
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('peeked'); IF TG_WHEN = 'BEFORE' AND TG_LEVEL = 'ROW' THEN new.secret := new.secret || '!'; END IF; RETURN new; END $$;
CREATE TRIGGER b BEFORE INSERT OR UPDATE ON h_t FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER a AFTER INSERT OR UPDATE ON h_t FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER s AFTER INSERT OR UPDATE ON h_t FOR EACH STATEMENT EXECUTE FUNCTION noted();
CREATE TRIGGER b BEFORE INSERT OR UPDATE ON f_t FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER a AFTER INSERT OR UPDATE ON f_t FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TRIGGER s AFTER INSERT OR UPDATE ON f_t FOR EACH STATEMENT EXECUTE FUNCTION noted();
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (30, 'a', 'b'), (6, 'c', 'd'), (31, 'e', 'f') ON CONFLICT (id) DO SELECT RETURNING *$$);
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y'), (6, 'c', 'd') ON CONFLICT (id) DO SELECT FOR UPDATE WHERE @t.id = 5 RETURNING old.*, new.*$$);
DEALLOCATE ALL;
DROP SCHEMA twins CASCADE;
DROP ROLE kv_viewer, kv_invoker, kv_row_owner;
