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
SELECT has_function('kvfdw_flush', ARRAY['regclass']);
SELECT function_returns('kvfdw_flush', ARRAY['regclass'], 'void');
SELECT function_returns('kvfdw_prewarm', ARRAY['regclass'], 'bigint');
SELECT has_function('kvfdw_compact', ARRAY['regclass', 'boolean']);
SELECT function_returns('kvfdw_compact', ARRAY['regclass', 'boolean'], 'record');
SELECT is((SELECT string_agg(name || ' ' || type::regtype, ', ' ORDER BY n) FROM pg_proc, unnest(proargnames, proallargtypes, proargmodes) WITH ORDINALITY AS a (name, type, mode, n) WHERE oid = 'kvfdw_compact(regclass, boolean)'::regprocedure), 'relation regclass, sorted boolean, moved_bytes bigint, freed_bytes bigint, waiting_for text', 'kvfdw_compact names its arguments and columns');
SELECT function_returns(f, ARRAY['regclass'], 'integer') FROM unnest(ARRAY['kvfdw_split', 'kvfdw_cut']) f;
SELECT is((SELECT string_agg(proname || ' ' || array_to_string(proargnames[1:pronargs], ' '), ', ' ORDER BY proname) FROM pg_proc WHERE proname ~ '^kvfdw_' AND pronargs > 0 AND proname <> 'kvfdw_validator'), 'kvfdw_changes slot_name upto_lsn upto_nchanges options, kvfdw_check relation, kvfdw_compact relation sorted, kvfdw_cut relation, kvfdw_flush relation, kvfdw_prewarm relation, kvfdw_relation_size relation, kvfdw_split relation', 'every argument has a name');
SELECT columns_are('kvfdw_stat_shards', ARRAY['relid', 'schemaname', 'relname', 'generation', 'shard_id', 'position', 'entries', 'value_file_bytes', 'live_bytes', 'unsorted_bytes', 'memtable_bytes', 'runs']);
SELECT table_privs_are('kvfdw_stat_shards', 'public', ARRAY['SELECT']);
SELECT columns_are('kvfdw_stat_progress', ARRAY['pid', 'datid', 'datname', 'relid', 'command', 'phase', 'shard_id', 'unit', 'done', 'total', 'command_start']);
SELECT table_privs_are('kvfdw_stat_progress', 'public', ARRAY['SELECT']);
SELECT has_function('kvfdw_check', ARRAY['regclass']);
SELECT is((SELECT proretset FROM pg_proc WHERE oid = 'kvfdw_check(regclass)'::regprocedure), true, 'kvfdw_check returns a set');
SELECT is((SELECT string_agg(name || ' ' || type::regtype, ', ' ORDER BY n) FROM pg_proc, unnest(proargnames, proallargtypes, proargmodes) WITH ORDINALITY AS a (name, type, mode, n) WHERE oid = 'kvfdw_check(regclass)'::regprocedure AND mode IN ('o', 't')), 'file text, position bigint, problem text', 'kvfdw_check names its columns');
SELECT is((SELECT string_agg(provolatile::text, '') FROM pg_proc WHERE oid IN ('kvfdw_check(regclass)'::regprocedure, 'kvfdw_relation_size(regclass)'::regprocedure, 'kvfdw_flush(regclass)'::regprocedure, 'kvfdw_stat_reset()'::regprocedure)), 'vvvv', 'all are volatile');
SELECT is((SELECT count(*)::int FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'kvfdw' WHERE proname !~ '^kvfdw_'), 0, 'every function begins with kvfdw_');
SELECT function_returns('kvfdw_io_method', ARRAY[]::text[], 'text');
SELECT has_view('kvfdw_stat_tables');
SELECT has_view('kvfdw_stat_io');
SELECT has_view('kvfdw_stat_checkpointer');
SELECT columns_are('kvfdw_stat_checkpointer', ARRAY['num_done', 'last_lsn', 'last_done', 'last_total_time', 'last_shards', 'last_files', 'last_bytes', 'stats_reset']);
SELECT col_type_is('kvfdw_stat_checkpointer', c, t) FROM (VALUES ('last_lsn', 'pg_lsn'), ('last_done', 'timestamp with time zone'), ('last_total_time', 'double precision'), ('last_bytes', 'bigint')) v (c, t);
SELECT table_privs_are('kvfdw_stat_checkpointer', 'public', ARRAY['SELECT']);
SELECT has_view('kvfdw_stat_range_cache');
SELECT columns_are('kvfdw_stat_range_cache', ARRAY['windows', 'window_size', 'used', 'scans', 'hits', 'loads', 'shared', 'waits', 'reads', 'read_bytes', 'evictions', 'stats_reset']);
SELECT col_type_is('kvfdw_stat_range_cache', c, 'bigint') FROM unnest(ARRAY['windows', 'window_size', 'used', 'scans', 'hits', 'loads', 'shared', 'waits', 'reads', 'read_bytes', 'evictions']) c;
SELECT table_privs_are('kvfdw_stat_range_cache', 'public', ARRAY['SELECT']);
SELECT columns_are('kvfdw_stat_cache', ARRAY['cache', 'enabled', 'hits', 'block_size', 'inserted', 'evictions', 'dropped', 'errors', 'size_bytes', 'used_bytes', 'misses_off', 'misses_oversized', 'misses_absent', 'misses_probation', 'misses_evicted', 'misses_partial', 'misses_busy', 'misses_damaged', 'stats_reset']);
SELECT table_privs_are('kvfdw_stat_cache', 'public', ARRAY['SELECT']);
SELECT is((SELECT string_agg(cache, ', ') FROM kvfdw_stat_cache), 'write buffers, recent ring, value cache, tier, device', 'kvfdw_stat_cache has a row for each cache, in the order of lookup');
SELECT is((SELECT string_agg(cache, ', ') FROM kvfdw_stat_cache WHERE enabled), 'write buffers, recent ring, value cache, device', 'and a cache that is switched off is not enabled');
SELECT is((SELECT string_agg(concat_ws(' ', cache, block_size IS NULL, inserted IS NULL, evictions IS NULL, dropped IS NULL, errors IS NULL), ', ') FROM kvfdw_stat_cache), 'write buffers f f f t t, recent ring f f f t f, value cache f f f t f, tier f f f f f, device t t t t f', 'what a cache does not count is NULL');
SELECT is((SELECT string_agg(relname::text, ' ' ORDER BY relname) FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e' JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'kvfdw' WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'stats_reset' AND atttypid = 'timestamptz'::regtype)), 'kvfdw_stat_progress kvfdw_stat_shards', 'each cumulative view has stats_reset');
SELECT col_type_is(v, c, 'double precision') FROM (VALUES ('kvfdw_stat_tables', 'recovery_time'), ('kvfdw_stat_admission', 'pause_time'), ('kvfdw_stat_admission', 'max_pause_time'), ('kvfdw_stat_admission_roles', 'pause_time')) x (v, c);
SELECT has_function('kvfdw_stat_get_range_cache', ARRAY[]::text[]);
SELECT volatility_is('kvfdw_stat_get_range_cache', ARRAY[]::text[], 'volatile');
SELECT columns_are('kvfdw_stat_io', ARRAY['kind', 'calls', 'bytes', 'errors', 'stats_reset']);
SELECT col_type_is('kvfdw_stat_io', 'kind', 'text');
SELECT col_type_is('kvfdw_stat_io', c, 'bigint') FROM unnest(ARRAY['calls', 'bytes', 'errors']) c;
SELECT has_column('kvfdw_stat_tables', c, 'kvfdw_stat_tables has ' || c) FROM unnest(ARRAY['relid', 'schemaname', 'relname', 'shards', 'n_live_tup', 'n_tup_ins', 'n_tup_upd', 'n_tup_del', 'point_reads', 'range_scans', 'device_reads', 'device_read_bytes', 'device_write_bytes', 'value_bytes', 'flushes', 'runs', 'wal', 'usable', 'lost_entries', 'lost_log_bytes']) c;
SELECT table_privs_are('kvfdw_stat_io', 'public', ARRAY['SELECT']);
SELECT table_privs_are('kvfdw_stat_tables', 'public', ARRAY['SELECT']);
-- Who may do what.
CREATE ROLE kvfdw_pgtap_user;
CREATE FOREIGN TABLE public.mine (k int, v text) SERVER kvfdw;
SELECT is(has_function_privilege('kvfdw_pgtap_user', 'kvfdw_stat_reset()', 'EXECUTE'), false, 'the reset is for superusers, as in pg_stat_statements');
SET ROLE kvfdw_pgtap_user;
SELECT throws_ok($$SELECT kvfdw_flush('mine')$$, '42501', NULL, 'kvfdw_flush needs the owner');
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
