-- Promise: the counters move with the work, the reset empties them, the size grows and shrinks, kvfdw_check is clean.
\set QUIET on
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS kvfdw;
DROP FOREIGN TABLE IF EXISTS tap_t;
DROP TABLE IF EXISTS tap_plan, tap_heap;
SELECT no_plan();
CREATE FOREIGN TABLE tap_t (k int, v text) SERVER kvfdw OPTIONS (key 'k', shards '4');
CREATE TABLE tap_heap (k int);
SELECT is((SELECT count(*) FROM kvfdw_check('tap_t')), 0::bigint, 'a table never written is clean');
SELECT cmp_ok(kvfdw_relation_size('tap_t'), '>=', 0::bigint, 'a table never written has a size');
SELECT kvfdw_stat_reset();
SELECT is((SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 0::numeric, 'the reset empties the counters');
CREATE TABLE tap_plan AS SELECT kvfdw_relation_size('tap_t') AS empty;
INSERT INTO tap_t SELECT g, repeat('v', 4096) FROM generate_series(1, 2000) g;
SELECT is((SELECT n_tup_ins::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 2000::bigint, 'inserts are counted');
SELECT is((SELECT schemaname || '.' || relname FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 'public.tap_t', 'the view names the table');
SELECT is((SELECT shards::int FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 4, 'the number of shards');
SELECT ok((SELECT value_files >= 2 AND value_file_bytes >= 2000 * 4096 FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 'value files and their bytes');
SELECT is((SELECT value_bytes::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 2000 * 4096::bigint, 'bytes of values are counted');
SELECT cmp_ok(kvfdw_relation_size('tap_t'), '>', (SELECT empty + 2000 * 4096 FROM tap_plan), 'the size grows by the values at least');
UPDATE tap_t SET v = 'short' WHERE k <= 100;
DELETE FROM tap_t WHERE k BETWEEN 101 AND 150;
SELECT is((SELECT n_tup_upd::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 100::bigint, 'updates are counted');
SELECT is((SELECT n_tup_del::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 50::bigint, 'deletes are counted');
SELECT ok((SELECT live_bytes BETWEEN 1 AND value_file_bytes - 150 * 4096 FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 'what was replaced or deleted is not live');
SELECT ok((SELECT obsolete_value_files = 0 AND obsolete_bytes = 0 AND obsolete_waiting_for IS NULL AND relocated_reads = 0 FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 'no value has moved');
SELECT is((SELECT v FROM tap_t WHERE k = 7), 'short', 'a point read');
SELECT cmp_ok((SELECT point_reads::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), '>=', 1::bigint, 'point reads are counted');
SELECT is((SELECT count(v) FROM tap_t), 1950::bigint, 'a scan');
SELECT cmp_ok((SELECT range_scans::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), '>=', 1::bigint, 'scans are counted');
SELECT lives_ok($$SELECT kvfdw_flush('tap_t')$$, 'kvfdw_flush');
SELECT cmp_ok((SELECT flushes::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), '>=', 1::bigint, 'flushes are counted');
SELECT cmp_ok((SELECT runs::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), '>=', 1::bigint, 'runs are counted');
SELECT is((SELECT count(v) FROM tap_t), 1950::bigint, 'a scan of what is frozen');
SELECT ok((SELECT moved_bytes > 0 AND freed_bytes > 0 FROM kvfdw_compact('tap_t', true)), 'kvfdw_compact');
SELECT ok((SELECT compactions >= 1 AND moved_bytes >= 1850 * 4096 FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 'compactions are counted');
SELECT ok((SELECT every(bytes >= 1850 * 4096) FROM kvfdw_stat_io WHERE kind LIKE 'compact %'), 'and what they read and write');
SELECT is((SELECT count(v) FROM tap_t), 1950::bigint, 'a scan of what is compacted');
SELECT is((SELECT count(*) FROM kvfdw_check('tap_t')), 0::bigint, 'kvfdw_check is clean');
SELECT cmp_ok((SELECT bytes FROM kvfdw_stat_io WHERE kind = 'value write'), '>=', 1900 * 4096::bigint, 'written bytes are counted');
SELECT is((SELECT sum(errors) FROM kvfdw_stat_io), 0::numeric, 'no errors');
-- the time of a reset: one, in all views
CREATE VIEW tap_resets AS SELECT stats_reset FROM kvfdw_stat_tables UNION ALL SELECT stats_reset FROM kvfdw_stat_io UNION ALL SELECT stats_reset FROM kvfdw_stat_cache UNION ALL SELECT stats_reset FROM kvfdw_stat_range_cache UNION ALL SELECT stats_reset FROM kvfdw_stat_checkpointer UNION ALL SELECT stats_reset FROM kvfdw_stat_admission UNION ALL SELECT stats_reset FROM kvfdw_stat_admission_roles UNION ALL SELECT stats_reset FROM kvfdw_stat_memcached;
SELECT is((SELECT count(*) - count(stats_reset) FROM tap_resets), 0::bigint, 'each row has the time since when it counts');
CHECKPOINT;
SELECT cmp_ok((SELECT num_done FROM kvfdw_stat_checkpointer), '>', 0::bigint, 'checkpoints are counted');
CREATE TABLE tap_before AS SELECT clock_timestamp() AS at, last_lsn, last_done FROM kvfdw_stat_checkpointer;
SELECT kvfdw_stat_reset();
SELECT is((SELECT count(DISTINCT stats_reset) FROM tap_resets), 1::bigint, 'after a reset it is the same in all views');
SELECT ok((SELECT every(stats_reset BETWEEN at AND clock_timestamp()) FROM tap_resets, tap_before), '... the time of the reset');
SELECT ok((SELECT num_done < 5 AND c.last_lsn >= b.last_lsn AND c.last_done >= b.last_done FROM kvfdw_stat_checkpointer c, tap_before b), 'a reset sets the number of checkpoints to zero, and keeps the last one');
DROP VIEW tap_resets;
DROP TABLE tap_before;
SELECT is((SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del + point_reads), 0) FROM kvfdw_stat_tables), 0::numeric, 'the reset empties the counters of tables');
SELECT is((SELECT bytes FROM kvfdw_stat_io WHERE kind = 'value write'), 0::bigint, 'and of I/O');
SELECT is((SELECT count(*) FROM (SELECT k FROM tap_t FOR UPDATE) s), 1950::bigint, 'rows are locked below another part of a query');
SELECT is((SELECT point_reads::bigint FROM kvfdw_stat_tables WHERE relid = 'tap_t'::regclass), 0::bigint, 'and are not read again for it');
-- a rolled back insert leaves no row; the size never says less than what is there
BEGIN;
INSERT INTO tap_t SELECT g, 'back' FROM generate_series(10001, 10100) g;
ROLLBACK;
SELECT is((SELECT count(*) FROM tap_t), 1950::bigint, 'rolled back rows are not there');
-- shards: a cut adds some for keys to come, a split makes up to eight of each
SELECT cmp_ok(kvfdw_cut('tap_t'), '>', 4, 'a cut adds shards for keys to come');
SELECT cmp_ok(kvfdw_split(relation => 'tap_t'), '>', 8, 'a split divides each shard that has keys');
SELECT is((SELECT count(*) FROM tap_t), 1950::bigint, 'with all rows');
SELECT is((SELECT count(DISTINCT shard_id) FROM kvfdw_stat_shards WHERE relname = 'tap_t'), (SELECT shards::bigint FROM kvfdw_stat_tables WHERE relname = 'tap_t'), 'each has a row');
TRUNCATE tap_t;
SELECT cmp_ok(kvfdw_relation_size('tap_t'), '<', 2000 * 4096::bigint, 'the size shrinks after TRUNCATE');
SELECT is((SELECT count(*) FROM kvfdw_check('tap_t')), 0::bigint, 'an emptied table is clean');
SELECT throws_ok($$SELECT kvfdw_relation_size('tap_heap')$$, '42809', NULL, 'a heap table is refused by kvfdw_relation_size');
SELECT throws_ok($$SELECT * FROM kvfdw_check('tap_heap')$$, '42809', NULL, 'by kvfdw_check');
SELECT throws_ok($$SELECT kvfdw_flush('tap_heap')$$, '42809', NULL, 'by kvfdw_flush');
SELECT throws_ok($$SELECT kvfdw_compact('tap_heap')$$, '42809', NULL, 'by kvfdw_compact');
SELECT throws_ok($$INSERT INTO tap_t SELECT 1, 'x' FROM generate_series(1, 2)$$, '23505', 'duplicate key value violates unique constraint "tap_t_pkey"', 'the duplicate error');
SELECT is((SELECT count(*) FROM tap_t), 0::bigint, 'and it left nothing');
DROP FOREIGN TABLE tap_t;
SELECT is((SELECT count(*) FROM kvfdw_stat_tables WHERE relid NOT IN (SELECT ftrelid FROM pg_foreign_table)), 0::bigint, 'a dropped table leaves the view');
DROP TABLE tap_plan, tap_heap;
-- the WAL can be read
CREATE EXTENSION IF NOT EXISTS pg_walinspect;
CREATE FOREIGN TABLE tap_w (k int, v text) SERVER kvfdw;
CREATE FOREIGN TABLE tap_keys (k int, v text) SERVER kvfdw OPTIONS (wal 'keys');
SELECT pg_current_wal_lsn() AS before \gset
INSERT INTO tap_w VALUES (1, 'logged');
DELETE FROM tap_w;
INSERT INTO tap_w SELECT g, 'together' FROM generate_series(1, 10) g;
-- a BATCH is of write buffers that are written before COMMIT
BEGIN;
INSERT INTO tap_keys SELECT g, repeat('k', 4096) FROM generate_series(1, 2000) g;
SELECT kvfdw_flush('tap_keys');
COMMIT;
SELECT pg_current_wal_flush_lsn() AS after \gset
CREATE TEMP TABLE tap_wal AS SELECT record_type, description FROM pg_get_wal_records_info(:'before', :'after') WHERE resource_manager = 'kvfdw';
CHECKPOINT;
SELECT redo_lsn AS before, pg_current_wal_flush_lsn() AS after FROM pg_control_checkpoint() \gset
INSERT INTO tap_wal SELECT record_type, description FROM pg_get_wal_records_info(:'before', :'after') WHERE resource_manager = 'kvfdw';
SELECT bag_has('SELECT DISTINCT record_type FROM tap_wal', $$VALUES ('CREATE'), ('SCHEMA'), ('PUT'), ('VERSIONS'), ('BATCH'), ('DURABLE')$$, 'every kind of record has its name');
SELECT is((SELECT count(*) FROM tap_wal WHERE description IS NULL OR description ~ 'UNKNOWN'), 0::bigint, 'and a description');
SELECT cmp_ok((SELECT count(*) FROM tap_wal WHERE record_type = 'PUT' AND description ~ 'put, xid \d+, cid \d+, key 80000001, length 6'), '=', 1::bigint, 'of a PUT: what was put');
SELECT cmp_ok((SELECT count(*) FROM tap_wal WHERE record_type = 'VERSIONS' AND description ~ 'versions 10, xid \d+, cid \d+$'), '=', 1::bigint, 'of VERSIONS: how many');
DROP FOREIGN TABLE tap_w, tap_keys;
DROP EXTENSION pg_walinspect;
SELECT * FROM finish();
