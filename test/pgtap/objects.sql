-- Promise: the extension's functions and views exist with the documented columns, types and privileges.
\set QUIET on
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS kvfdw;
BEGIN;
SELECT no_plan();
SELECT has_extension('kvfdw');
SELECT has_function('kvfdw_handler', ARRAY[]::text[]);
SELECT function_returns('kvfdw_handler', ARRAY[]::text[], 'fdw_handler');
SELECT has_function('kvfdw_validator', ARRAY['text[]', 'oid']);
SELECT has_function('kvfdw_stat_reset', ARRAY[]::text[]);
SELECT function_returns('kvfdw_stat_reset', ARRAY[]::text[], 'void');
SELECT has_function('kvfdw_relation_size', ARRAY['regclass']);
SELECT function_returns('kvfdw_relation_size', ARRAY['regclass'], 'bigint');
SELECT is_strict('kvfdw_relation_size', ARRAY['regclass']);
SELECT has_function('kvfdw_freeze', ARRAY['regclass']);
SELECT function_returns('kvfdw_freeze', ARRAY['regclass'], 'void');
SELECT function_returns('kvfdw_prewarm', ARRAY['regclass'], 'bigint');
SELECT has_function('kvfdw_compact', ARRAY['regclass', 'boolean']);
SELECT function_returns('kvfdw_compact', ARRAY['regclass', 'boolean'], 'record');
SELECT is((SELECT string_agg(name || ' ' || type::regtype, ', ' ORDER BY n) FROM pg_proc, unnest(proargnames, proallargtypes, proargmodes) WITH ORDINALITY AS a (name, type, mode, n) WHERE oid = 'kvfdw_compact(regclass, boolean)'::regprocedure), 'table regclass, sorted boolean, moved_bytes bigint, freed_bytes bigint, waiting_for text', 'kvfdw_compact names its arguments and columns');
SELECT columns_are('kvfdw_stat_compact', ARRAY['relid', 'shard', 'pid', 'phase', 'moved_bytes', 'to_move_bytes']);
SELECT table_privs_are('kvfdw_stat_compact', 'public', ARRAY['SELECT']);
SELECT columns_are('kvfdw_stat_shards', ARRAY['relid', 'generation', 'shard', 'position', 'entries', 'value_file_bytes', 'live_bytes', 'unsorted_bytes', 'delta_bytes', 'runs']);
SELECT table_privs_are('kvfdw_stat_shards', 'public', ARRAY['SELECT']);
SELECT columns_are('kvfdw_stat_progress', ARRAY['pid', 'datid', 'datname', 'relid', 'command', 'phase', 'shard', 'unit', 'done', 'total', 'started']);
SELECT table_privs_are('kvfdw_stat_progress', 'public', ARRAY['SELECT']);
SELECT has_function('kvfdw_check', ARRAY['regclass']);
SELECT is((SELECT proretset FROM pg_proc WHERE oid = 'kvfdw_check(regclass)'::regprocedure), true, 'kvfdw_check returns a set');
SELECT is((SELECT string_agg(name || ' ' || type::regtype, ', ' ORDER BY n) FROM pg_proc, unnest(proargnames, proallargtypes, proargmodes) WITH ORDINALITY AS a (name, type, mode, n) WHERE oid = 'kvfdw_check(regclass)'::regprocedure AND mode IN ('o', 't')), 'file text, position bigint, problem text', 'kvfdw_check names its columns');
SELECT is((SELECT string_agg(provolatile::text, '') FROM pg_proc WHERE oid IN ('kvfdw_check(regclass)'::regprocedure, 'kvfdw_relation_size(regclass)'::regprocedure, 'kvfdw_freeze(regclass)'::regprocedure, 'kvfdw_stat_reset()'::regprocedure)), 'vvvv', 'all are volatile');
SELECT is((SELECT count(*)::int FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'kvfdw' WHERE proname !~ '^kvfdw_'), 0, 'every function begins with kvfdw_');
SELECT function_returns('kvfdw_io_method', ARRAY[]::text[], 'text');
SELECT has_view('kvfdw_stat_tables');
SELECT has_view('kvfdw_stat_io');
SELECT has_view('kvfdw_stat_barrier');
SELECT columns_are('kvfdw_stat_barrier', ARRAY['barriers', 'lsn', 'ended', 'duration_ms', 'shards', 'files', 'bytes']);
SELECT col_type_is('kvfdw_stat_barrier', c, t) FROM (VALUES ('lsn', 'pg_lsn'), ('ended', 'timestamp with time zone'), ('duration_ms', 'double precision'), ('bytes', 'bigint')) v (c, t);
SELECT table_privs_are('kvfdw_stat_barrier', 'public', ARRAY['SELECT']);
SELECT has_view('kvfdw_stat_range_cache');
SELECT columns_are('kvfdw_stat_range_cache', ARRAY['windows', 'window_size', 'used', 'scans', 'hits', 'loads', 'shared', 'waits', 'reads', 'read_bytes', 'evictions']);
SELECT col_type_is('kvfdw_stat_range_cache', c, 'bigint') FROM unnest(ARRAY['windows', 'window_size', 'used', 'scans', 'hits', 'loads', 'shared', 'waits', 'reads', 'read_bytes', 'evictions']) c;
SELECT table_privs_are('kvfdw_stat_range_cache', 'public', ARRAY['SELECT']);
SELECT columns_are('kvfdw_stat_tier', ARRAY['on', 'frames', 'frame_size', 'used', 'hits', 'entered', 'dropped']);
SELECT table_privs_are('kvfdw_stat_tier', 'public', ARRAY['SELECT']);
SELECT columns_are('kvfdw_stat_tiers', ARRAY['tier', 'hits', 'piece', 'entered', 'left', 'dropped', 'errors', 'bytes', 'used']);
SELECT table_privs_are('kvfdw_stat_tiers', 'public', ARRAY['SELECT']);
SELECT is((SELECT string_agg(tier, ', ') FROM kvfdw_stat_tiers), 'slots, recent, value cache, tier, device', 'kvfdw_stat_tiers has a row for each tier');
SELECT has_function('kvfdw_stat_get_range_cache', ARRAY[]::text[]);
SELECT volatility_is('kvfdw_stat_get_range_cache', ARRAY[]::text[], 'volatile');
SELECT columns_are('kvfdw_stat_io', ARRAY['kind', 'calls', 'bytes', 'errors']);
SELECT col_type_is('kvfdw_stat_io', 'kind', 'text');
SELECT col_type_is('kvfdw_stat_io', c, 'bigint') FROM unnest(ARRAY['calls', 'bytes', 'errors']) c;
SELECT has_column('kvfdw_stat_tables', c, 'kvfdw_stat_tables has ' || c) FROM unnest(ARRAY['relid', 'shards', 'inserts', 'updates', 'deletes', 'point_reads', 'range_scans', 'device_reads', 'device_read_bytes', 'device_write_bytes', 'value_bytes', 'freezes', 'runs', 'wal', 'usable', 'lost_entries', 'lost_log_bytes']) c;
SELECT table_privs_are('kvfdw_stat_io', 'public', ARRAY['SELECT']);
SELECT table_privs_are('kvfdw_stat_tables', 'public', ARRAY['SELECT']);
-- Who may do what.
CREATE ROLE kvfdw_pgtap_user;
CREATE FOREIGN TABLE public.mine (k int, v text) SERVER kvfdw;
SELECT is(has_function_privilege('kvfdw_pgtap_user', 'kvfdw_stat_reset()', 'EXECUTE'), false, 'the reset is for superusers, as in pg_stat_statements');
SET ROLE kvfdw_pgtap_user;
SELECT throws_ok($$SELECT kvfdw_freeze('mine')$$, '42501', NULL, 'kvfdw_freeze needs the owner');
SELECT throws_ok($$SELECT kvfdw_prewarm('mine')$$, '42501', NULL, 'kvfdw_prewarm needs the owner');
SELECT throws_ok($$SELECT kvfdw_compact('mine')$$, '42501', NULL, 'kvfdw_compact needs the owner');
SELECT throws_ok($$SELECT kvfdw_check('mine')$$, '42501', NULL, 'kvfdw_check needs the owner');
SELECT lives_ok($$SELECT * FROM kvfdw_stat_range_cache$$, 'everybody may read the range cache''s view');
SELECT throws_ok($$SET kvfdw.scan_share_wait = '1s'$$, '55P02', NULL, 'kvfdw.scan_share_wait is in postgresql.conf');
SELECT throws_ok($$SET kvfdw.io_method = 'sync'$$, '42501', NULL, 'kvfdw.io_method is for superusers');
SELECT lives_ok($$SELECT * FROM kvfdw_stat_io$$, 'everybody may read the views');
RESET ROLE;
SELECT is((SELECT context FROM pg_settings WHERE name = 'kvfdw.io_method'), 'superuser', 'context of kvfdw.io_method');
SELECT is((SELECT enumvals::text FROM pg_settings WHERE name = 'kvfdw.io_method'), '{auto,io_uring,sync}', 'values of kvfdw.io_method');
SELECT is((SELECT vartype FROM pg_settings WHERE name = 'kvfdw.io_depth'), 'integer', 'type of kvfdw.io_depth');
SELECT is((SELECT (vartype, context, unit, boot_val, min_val, max_val)::text FROM pg_settings WHERE name = 'kvfdw.' || n), w, 'kvfdw.' || n) FROM (VALUES
	('range_cache', '(integer,postmaster,kB,-1,-1,2147483647)'), ('scan_share_wait', '(integer,sighup,ms,10000,1,600000)'),
	('prefetch_workers', '(integer,postmaster,,2,0,16)'), ('prefetch_cpus', '(string,postmaster,,"",,)')) v (n, w);
SELECT cmp_ok((SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'kvfdw prefetch'), '<=', current_setting('kvfdw.prefetch_workers')::int, 'no more prefetch workers run than are allowed');
SELECT is((SELECT count(*)::int FROM pg_settings WHERE name LIKE 'kvfdw.%' AND coalesce(short_desc, '') = ''), 0, 'every setting is described');
SELECT throws_ok($$SET kvfdw.unknown = 1$$, '42602', NULL, 'the prefix kvfdw is reserved');
SELECT * FROM finish();
ROLLBACK;
