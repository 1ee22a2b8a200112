-- Promise: an upsert through a view or under row security sees, changes and refuses what it does on a heap table of the same server: the existing row is checked before WHERE, SET and RETURNING look at it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS kvfdw;
CREATE SCHEMA twins;
SET search_path = twins, public;
\getenv here PG_ABS_SRCDIR
\set file :here '/sql/lib/views.sql'
\i :file
-- Where the server checks existing rows, so does kvfdw, and nothing of the row gets out.
SELECT outcome($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'got ' || @plain.secret WHERE peek(@plain.secret, true) RETURNING secret$$, 'f_', '') ~ 'not visible through view "@plain" peeked 0$' = checks_views AS checked FROM server;
SELECT outcome($$INSERT INTO @p VALUES (5, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'got ' || @p.secret WHERE peek(@p.secret, true) RETURNING secret$$, 'f_', 'kv_row_owner') ~ '^42501 new row violates row-level security policy \(USING expression\) for table "@p" peeked 0$' AS checked;
-- A view with WHERE.
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'got ' || @plain.secret RETURNING secret$$);
SELECT compare($$INSERT INTO @plain VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'got ' || @plain.secret RETURNING secret$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, secret = excluded.secret$$);
SELECT compare($$INSERT INTO @plain VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, secret = excluded.secret RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@plain.secret, true) RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@plain.secret, false) RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@plain.secret, false) RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 's' WHERE @plain.owner = 'alice' RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 's' WHERE @plain.secret < 's6'$$);
SELECT compare($$INSERT INTO @plain VALUES (3, 'x', 'y'), (5, 'x', 'y'), (20, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 's' || @plain.secret RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET id = 50, owner = 'alice' RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET id = 5 RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y'), (4, 'x', 'y'), (21, 'x', 'y') ON CONFLICT (id) DO NOTHING RETURNING *$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y'), (21, 'x', 'y') ON CONFLICT DO NOTHING$$);
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y')$$);
SELECT compare($$INSERT INTO @plain SELECT id + 3, 'alice', secret FROM @plain ON CONFLICT (id) DO UPDATE SET secret = excluded.secret || @plain.secret RETURNING *$$);
SELECT compare($$INSERT INTO @plain SELECT id, 'alice', 'own' FROM @plain ON CONFLICT (id) DO UPDATE SET secret = excluded.secret || @plain.secret RETURNING *$$);
SELECT compare($$WITH w AS (INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 'w' || @plain.secret RETURNING *) INSERT INTO @plain SELECT id + 100, owner, secret FROM w RETURNING *$$);
SELECT compare($$WITH w AS (INSERT INTO @plain VALUES (2, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 'w' || @plain.secret RETURNING *) INSERT INTO @plain SELECT id + 3, owner, secret FROM w ON CONFLICT (id) DO UPDATE SET secret = excluded.secret RETURNING *$$);
SELECT compare($$EXECUTE @prepared (5)$$), compare($$EXECUTE @prepared (4)$$), compare($$EXECUTE @prepared (22)$$);
SELECT compare($$EXECUTE @blind (5)$$), compare($$EXECUTE @blind (4)$$), compare($$EXECUTE @blind (22)$$);
SET plan_cache_mode = force_generic_plan;
SELECT compare($$EXECUTE @prepared (5)$$), compare($$EXECUTE @prepared (4)$$), compare($$EXECUTE @prepared (22)$$);
RESET plan_cache_mode;
SELECT compare($$SELECT @in_plpgsql(5)$$), compare($$SELECT @in_plpgsql(4)$$), compare($$SELECT @in_sql(5)$$), compare($$SELECT @in_sql(4)$$);
-- No WHERE, other column numbers; security_barrier; security_invoker; a subquery in WHERE.
SELECT compare($$INSERT INTO @all VALUES ('y', 5, 'x') ON CONFLICT (no) DO UPDATE SET secret = 'a' || @all.secret RETURNING *$$);
SELECT compare($$INSERT INTO @barrier VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@barrier.secret, true) RETURNING *$$);
SELECT compare($$INSERT INTO @barrier VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 'b' WHERE peek(@barrier.secret, true) RETURNING *$$);
SELECT compare($$INSERT INTO @invoker VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING *$$, 'kv_invoker');
SELECT compare($$INSERT INTO @invoker VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'i' || @invoker.secret RETURNING *$$, 'kv_invoker');
SELECT compare($$INSERT INTO @subquery VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING *$$);
SELECT compare($$INSERT INTO @subquery VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 'sub' RETURNING *$$);
-- Check options.
SELECT compare($$INSERT INTO @checked VALUES (5, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING *$$);
SELECT compare($$INSERT INTO @checked VALUES (4, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'dave' RETURNING *$$);
SELECT compare($$INSERT INTO @checked VALUES (4, 'dave', 'y') ON CONFLICT (id) DO UPDATE SET secret = excluded.owner RETURNING *$$);
SELECT compare($$INSERT INTO @checked VALUES (5, 'dave', 'y') ON CONFLICT (id) DO NOTHING$$);
SELECT compare($$INSERT INTO @local VALUES (5, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'l' || @local.secret RETURNING *$$);
SELECT compare($$INSERT INTO @local VALUES (8, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET secret = 'l' || @local.secret RETURNING *$$);
SELECT compare($$INSERT INTO @local VALUES (4, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'dave' RETURNING *$$);
SELECT compare($$INSERT INTO @cascaded VALUES (5, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING *$$);
SELECT compare($$INSERT INTO @cascaded VALUES (4, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'dave' RETURNING *$$);
SELECT compare($$INSERT INTO @cascaded VALUES (9, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET id = 7 WHERE peek(@cascaded.secret, true) RETURNING *$$);
-- Views of views.
SELECT compare($$INSERT INTO @nested VALUES ('x', 'y', 5) ON CONFLICT (id) DO UPDATE SET secret = 'n' || @nested.secret RETURNING *$$);
SELECT compare($$INSERT INTO @nested VALUES ('x', 'y', 4) ON CONFLICT (id) DO UPDATE SET secret = 'n' || @nested.secret RETURNING *$$);
SELECT compare($$INSERT INTO @nested VALUES ('x', 'y', 3) ON CONFLICT (id) DO UPDATE SET secret = 'n' || @nested.secret RETURNING *$$);
SELECT compare($$INSERT INTO @outer VALUES ('y', 5, 'x') ON CONFLICT (no) DO UPDATE SET secret = 'o' || @outer.secret WHERE peek(@outer.secret, true) RETURNING *$$);
-- Roles with rights on the view only.
SELECT compare($$INSERT INTO @t VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice'$$, 'kv_viewer');
SELECT compare($$INSERT INTO @plain VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING secret$$, 'kv_viewer');
SELECT compare($$INSERT INTO @plain VALUES (4, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING secret$$, 'kv_viewer');
SELECT compare($$INSERT INTO @barrier VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@barrier.secret, false) RETURNING secret$$, 'kv_viewer');
SELECT compare($$INSERT INTO @checked VALUES (9, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING secret$$, 'kv_viewer');
SELECT compare($$INSERT INTO @nested VALUES ('x', 'y', 9) ON CONFLICT (id) DO UPDATE SET secret = 'n' RETURNING secret$$, 'kv_viewer');
-- Partitioned tables.
SELECT compare($$INSERT INTO @parent VALUES (5, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'p' || @parent.secret RETURNING *$$);
SELECT compare($$INSERT INTO @parent VALUES (9, 'x', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@parent.secret, true) RETURNING *$$);
SELECT compare($$INSERT INTO @parent VALUES (3, 'x', 'y'), (8, 'x', 'y'), (30, 'x', 'y') ON CONFLICT (id) DO UPDATE SET secret = 'p' || @parent.secret RETURNING *$$);
SELECT compare($$INSERT INTO @parent_checked VALUES ('y', 'alice', 5) ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING *$$, 'kv_viewer');
SELECT compare($$INSERT INTO @parent_checked VALUES ('y', 'alice', 4) ON CONFLICT (id) DO UPDATE SET owner = 'dave' RETURNING *$$, 'kv_viewer');
SELECT compare($$INSERT INTO @parent_checked VALUES ('y', 'alice', 4), ('y', 'alice', 6) ON CONFLICT (id) DO UPDATE SET secret = excluded.secret || @parent_checked.secret RETURNING *$$, 'kv_viewer');
-- Row security: policies before WHERE, and before a view's WHERE.
SELECT compare($$INSERT INTO @p VALUES (5, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING secret$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (5, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@p.secret, true) RETURNING secret$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (9, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@p.secret, false) RETURNING secret$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (4, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET secret = 'r' || @p.secret WHERE peek(@p.secret, true) RETURNING secret$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (4, 'alice', 'y'), (8, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'dave'$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @p VALUES (5, 'alice', 'y'), (31, 'alice', 'y') ON CONFLICT (id) DO NOTHING$$, 'kv_row_owner');
SELECT compare($$INSERT INTO @policy_and_view VALUES (5, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' RETURNING secret$$, 'kv_invoker');
SELECT compare($$INSERT INTO @policy_and_view VALUES (9, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice' WHERE peek(@policy_and_view.secret, true)$$, 'kv_invoker');
SELECT compare($$INSERT INTO @parent_invoker VALUES (3, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'x' RETURNING secret$$, 'kv_invoker');
SELECT compare($$INSERT INTO @parent_invoker VALUES (4, 'alice', 'y') ON CONFLICT (id) DO UPDATE SET owner = 'alice', secret = 'v' || @parent_invoker.secret RETURNING secret$$, 'kv_invoker');
-- UPDATE and DELETE through views find what these show.
SELECT compare($$UPDATE @plain SET owner = 'alice', secret = 'u' WHERE id IN (4, 5) AND peek(secret, true) RETURNING *$$);
SELECT compare($$UPDATE @checked SET owner = 'dave' WHERE id = 4 RETURNING *$$);
SELECT compare($$UPDATE @policy_and_view SET secret = 'u' WHERE id IN (4, 5, 9) RETURNING *$$, 'kv_invoker');
SELECT compare($$UPDATE @p SET owner = 'dave' WHERE id = 4$$, 'kv_row_owner');
-- Rows that come to a partition from others: by UPDATE, by MERGE that updates, and by MERGE that inserts.
SELECT compare($$UPDATE @m SET id = 12 WHERE id = 1$$, 'kv_row_owner');
SELECT compare($$UPDATE @m SET id = 12, owner = 'bob' WHERE id = 1$$, 'kv_row_owner');
SELECT compare($$MERGE INTO @m USING (VALUES (1)) s (k) ON @m.id = s.k AND @m.id < 10 WHEN MATCHED THEN UPDATE SET id = 12$$, 'kv_row_owner');
SELECT compare($$MERGE INTO @m USING (VALUES (1)) s (k) ON @m.id = s.k AND @m.id < 10 WHEN MATCHED THEN UPDATE SET id = 12, owner = 'bob'$$, 'kv_row_owner');
SELECT compare($$MERGE INTO @m USING (VALUES (1), (13), (14)) s (k) ON @m.id = s.k AND @m.id < 10 WHEN MATCHED THEN UPDATE SET id = 12, owner = 'bob' WHEN NOT MATCHED THEN INSERT VALUES (k, 'bob', 'm')$$, 'kv_row_owner');
SELECT compare($$MERGE INTO @m USING (VALUES (13), (1), (14)) s (k) ON @m.id = s.k AND @m.id < 10 WHEN MATCHED THEN UPDATE SET id = 12, secret = 'm' WHEN NOT MATCHED THEN INSERT VALUES (k, 'bob', 'm')$$, 'kv_row_owner');
SELECT compare($$MERGE INTO @m USING (VALUES (13), (1)) s (k) ON @m.id = s.k AND @m.id < 10 WHEN MATCHED THEN UPDATE SET id = 12 WHEN NOT MATCHED THEN INSERT VALUES (k, 'dave', 'm')$$, 'kv_row_owner');
SELECT compare($$MERGE INTO @m USING (VALUES (1), (13)) s (k) ON @m.id = s.k AND @m.id < 10 WHEN MATCHED THEN UPDATE SET id = 12 WHEN NOT MATCHED THEN INSERT VALUES (k - 1, 'bob', 'm')$$, 'kv_row_owner');
DEALLOCATE ALL;
DROP SCHEMA twins CASCADE;
DROP ROLE kv_viewer, kv_invoker, kv_row_owner;
