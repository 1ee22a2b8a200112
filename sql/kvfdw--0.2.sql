/* kvfdw 0.2 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION kvfdw" to load this file. \quit

-- Each object and each column of a view has a comment; docs/reference/functions-and-views.md has
-- the same names and texts.  A new object has both.

COMMENT ON EXTENSION kvfdw IS
	'Foreign data wrapper for tables stored in an embedded key-value engine, with transactions, '
	'WAL and standbys.';

-- ---- the foreign data wrapper and its server ----

CREATE FUNCTION kvfdw_handler() RETURNS fdw_handler
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION kvfdw_handler() IS
	'Returns the handler functions of the foreign data wrapper kvfdw.';

CREATE FUNCTION kvfdw_validator(text[], oid) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION kvfdw_validator(text[], oid) IS
	'Checks options of the foreign data wrapper kvfdw; raises HV00D for an unknown option and '
	'22023 for a wrong value.';

CREATE FOREIGN DATA WRAPPER kvfdw HANDLER kvfdw_handler VALIDATOR kvfdw_validator;
COMMENT ON FOREIGN DATA WRAPPER kvfdw IS
	'Foreign tables stored in an embedded key-value engine. The library must be in '
	'shared_preload_libraries.';

CREATE SERVER kvfdw FOREIGN DATA WRAPPER kvfdw;
COMMENT ON SERVER kvfdw IS
	'Server of kvfdw foreign tables, which are stored on this server. Its options are defaults '
	'for its tables.';

-- ---- indexes of kvfdw tables ----

CREATE FUNCTION kvfdw_index_handler(internal) RETURNS index_am_handler
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION kvfdw_index_handler(internal) IS
	'Returns the handler functions of the index access method kvfdw.';

CREATE ACCESS METHOD kvfdw TYPE INDEX HANDLER kvfdw_index_handler;
COMMENT ON ACCESS METHOD kvfdw IS
	'Indexes of kvfdw tables: those of primary keys, which have no storage.';

CREATE OPERATOR CLASS kvfdw_ops DEFAULT FOR TYPE anyelement USING kvfdw AS STORAGE anyelement;
COMMENT ON OPERATOR CLASS kvfdw_ops USING kvfdw IS
	'Columns of indexes of kvfdw tables, of all types that a key can have.';
COMMENT ON OPERATOR FAMILY kvfdw_ops USING kvfdw IS
	'Family of the operator class kvfdw_ops. It has no operators.';

-- ---- functions for tables ----

CREATE FUNCTION kvfdw_check(relation regclass,
	OUT file text,
	OUT "position" bigint,
	OUT problem text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_check(regclass) IS
	'Reads and verifies all files of a kvfdw table; returns a row for each problem, with the '
	'file and the byte in it. Only for the owner of the table.';

CREATE FUNCTION kvfdw_changes(slot_name name, upto_lsn pg_lsn DEFAULT NULL,
	upto_nchanges integer DEFAULT NULL, VARIADIC options text[] DEFAULT '{}',
	OUT lsn pg_lsn,
	OUT xid xid,
	OUT change json)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;
COMMENT ON FUNCTION kvfdw_changes(name, pg_lsn, integer, text[]) IS
	'Returns the committed changes that a slot with output plugin kvfdw has not confirmed, as JSON. '
	'They stay until pg_replication_slot_advance(). Only for superusers and roles with '
	'REPLICATION.';

CREATE FUNCTION kvfdw_compact(relation regclass, sorted boolean DEFAULT false,
	OUT moved_bytes bigint,
	OUT freed_bytes bigint,
	OUT waiting_for text)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_compact(regclass, boolean) IS
	'Gives back the space of dead values of a kvfdw table; sorted: moves all values into key '
	'order. Returns bytes of values moved, bytes of files removed, and what remaining files '
	'wait for. Only for the owner of the table.';

CREATE FUNCTION kvfdw_cut(relation regclass) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_cut(regclass) IS
	'Ends each shard of a kvfdw table after its greatest key, so that later keys go to a new '
	'shard. Returns the number of shards. Only for the owner of the table.';

CREATE FUNCTION kvfdw_flush(relation regclass) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_flush(regclass) IS
	'Moves the recent row versions of a kvfdw table from memtables to runs, as happens in time '
	'without it. Only for the owner of the table.';

CREATE FUNCTION kvfdw_prewarm(relation regclass) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_prewarm(regclass) IS
	'Reads the values of a kvfdw table into the value cache until it is full; returns the bytes '
	'read. Only for the owner of the table.';

CREATE FUNCTION kvfdw_split(relation regclass) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_split(regclass) IS
	'Splits each shard of a kvfdw table into up to eight; returns the number of shards. Only '
	'for the owner of the table.';

CREATE FUNCTION kvfdw_relation_size(relation regclass) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_relation_size(regclass) IS
	'Returns the bytes of all files of a kvfdw table, including space allocated in advance. '
	'pg_relation_size() is 0 for foreign tables.';

-- ---- functions for the server ----

CREATE FUNCTION kvfdw_io_method() RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_io_method() IS
	'Returns how this session makes batches of device I/O: io_uring or sync. See '
	'kvfdw.io_method.';

CREATE FUNCTION kvfdw_stat_reset() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
REVOKE ALL ON FUNCTION kvfdw_stat_reset() FROM PUBLIC;
COMMENT ON FUNCTION kvfdw_stat_reset() IS
	'Sets the counters of all kvfdw views to zero, for all databases. Only for superusers and '
	'roles with the privilege EXECUTE.';

CREATE FUNCTION kvfdw_admission_tune() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
REVOKE ALL ON FUNCTION kvfdw_admission_tune() FROM PUBLIC;
COMMENT ON FUNCTION kvfdw_admission_tune() IS
	'Requests that the limit of admission is measured and chosen now, and returns at once; '
	'requires kvfdw.admission_limit = 0. Only for superusers and roles with the privilege '
	'EXECUTE.';

-- ---- memcached ----

CREATE FUNCTION kvfdw_memcached_tables(
	OUT relid oid,
	OUT schemaname name,
	OUT relname name,
	OUT prefix text,
	OUT served boolean,
	OUT reason text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_memcached_tables() IS
	'Lists the tables of this database that have the option memcached, the prefix of their '
	'keys, and why one is not served.';

CREATE FUNCTION kvfdw_memcached_connections(
	OUT worker_id integer,
	OUT address text,
	OUT role regrole,
	OUT state text,
	OUT connection_start timestamptz,
	OUT last_activity timestamptz,
	OUT requests bigint,
	OUT received_bytes bigint,
	OUT unsent_bytes bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
REVOKE ALL ON FUNCTION kvfdw_memcached_connections() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kvfdw_memcached_connections() TO pg_read_all_stats;
COMMENT ON FUNCTION kvfdw_memcached_connections() IS
	'Lists the connections of memcached clients. Only for superusers and members of '
	'pg_read_all_stats.';

-- ---- views, which everybody may read; each is over a function of its own ----

CREATE FUNCTION kvfdw_stat_get_tables(
	OUT relid oid,
	OUT generation bigint,
	OUT shards integer,
	OUT n_live_tup bigint,
	OUT n_tup_ins bigint,
	OUT n_tup_upd bigint,
	OUT n_tup_del bigint,
	OUT point_reads bigint,
	OUT range_scans bigint,
	OUT rows_read bigint,
	OUT device_reads bigint,
	OUT device_read_bytes bigint,
	OUT value_bytes bigint,
	OUT device_write_bytes bigint,
	OUT write_buffer_hits bigint,
	OUT value_cache_hits bigint,
	OUT flushes bigint,
	OUT memory_flushes bigint,
	OUT recovered_entries bigint,
	OUT recovered_write_buffers bigint,
	OUT recovery_time double precision,
	OUT memtable_bytes bigint,
	OUT runs bigint,
	OUT wal text,
	OUT usable boolean,
	OUT lost_entries bigint,
	OUT lost_log_bytes bigint,
	OUT value_files bigint,
	OUT value_file_bytes bigint,
	OUT live_bytes bigint,
	OUT obsolete_value_files bigint,
	OUT obsolete_bytes bigint,
	OUT obsolete_waiting_for text,
	OUT relocated_reads bigint,
	OUT compactions bigint,
	OUT moved_bytes bigint,
	OUT unsorted_bytes bigint,
	OUT space_waits bigint,
	OUT space_limit bigint,
	OUT space_blocked_by text,
	OUT recent_ring_hits bigint,
	OUT tier_hits bigint,
	OUT splits bigint,
	OUT stats_reset timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_tables() IS
	'Returns the rows of the view kvfdw_stat_tables, which has the comments.';

CREATE VIEW kvfdw_stat_tables AS
	SELECT s.relid, n.nspname AS schemaname, c.relname, s.generation, s.shards, s.n_live_tup,
		s.n_tup_ins, s.n_tup_upd, s.n_tup_del, s.point_reads, s.range_scans, s.rows_read,
		s.device_reads, s.device_read_bytes, s.value_bytes, s.device_write_bytes,
		s.write_buffer_hits, s.value_cache_hits, s.flushes, s.memory_flushes,
		s.recovered_entries, s.recovered_write_buffers, s.recovery_time, s.memtable_bytes,
		s.runs, s.wal, s.usable, s.lost_entries, s.lost_log_bytes, s.value_files,
		s.value_file_bytes, s.live_bytes, s.obsolete_value_files, s.obsolete_bytes,
		s.obsolete_waiting_for, s.relocated_reads, s.compactions, s.moved_bytes,
		s.unsorted_bytes, s.space_waits, s.space_limit, s.space_blocked_by,
		s.recent_ring_hits, s.tier_hits, s.splits, s.stats_reset
	FROM kvfdw_stat_get_tables() s
		LEFT JOIN pg_class c ON c.oid = s.relid
		LEFT JOIN pg_namespace n ON n.oid = c.relnamespace;
GRANT SELECT ON kvfdw_stat_tables TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_tables IS
	'One row for each kvfdw table of this database that was used or recovered since the start '
	'of the server, or that is unusable.';
COMMENT ON COLUMN kvfdw_stat_tables.relid IS 'OID of the table.';
COMMENT ON COLUMN kvfdw_stat_tables.schemaname IS
	'Schema of the table; NULL if the table was dropped, or is not committed yet.';
COMMENT ON COLUMN kvfdw_stat_tables.relname IS 'Name of the table; NULL as for schemaname.';
COMMENT ON COLUMN kvfdw_stat_tables.generation IS
	'Generation of the data; TRUNCATE begins a new one.';
COMMENT ON COLUMN kvfdw_stat_tables.shards IS 'Number of shards.';
COMMENT ON COLUMN kvfdw_stat_tables.n_live_tup IS
	'Estimated number of rows: entries of the index, including versions that a flush will '
	'remove.';
COMMENT ON COLUMN kvfdw_stat_tables.n_tup_ins IS
	'Rows inserted, including those rolled back. An update that changes the key counts as a '
	'delete and an insert.';
COMMENT ON COLUMN kvfdw_stat_tables.n_tup_upd IS 'Rows updated, including those rolled back.';
COMMENT ON COLUMN kvfdw_stat_tables.n_tup_del IS 'Rows deleted, including those rolled back.';
COMMENT ON COLUMN kvfdw_stat_tables.point_reads IS 'Keys looked up.';
COMMENT ON COLUMN kvfdw_stat_tables.range_scans IS 'Range scans begun.';
COMMENT ON COLUMN kvfdw_stat_tables.rows_read IS 'Rows returned to the executor.';
COMMENT ON COLUMN kvfdw_stat_tables.device_reads IS
	'Reads of values from files. The page cache of the kernel may serve them, see '
	'kvfdw.page_cache.';
COMMENT ON COLUMN kvfdw_stat_tables.device_read_bytes IS 'Bytes of these reads.';
COMMENT ON COLUMN kvfdw_stat_tables.value_bytes IS
	'Values accepted, as stored: after compression (in bytes).';
COMMENT ON COLUMN kvfdw_stat_tables.device_write_bytes IS
	'Values written to files, with padding (in bytes).';
COMMENT ON COLUMN kvfdw_stat_tables.write_buffer_hits IS 'Values read from write buffers.';
COMMENT ON COLUMN kvfdw_stat_tables.value_cache_hits IS 'Values read from the value cache.';
COMMENT ON COLUMN kvfdw_stat_tables.flushes IS 'Flushes by the maintainer and by kvfdw_flush().';
COMMENT ON COLUMN kvfdw_stat_tables.memory_flushes IS
	'Flushes by processes that needed memtable memory.';
COMMENT ON COLUMN kvfdw_stat_tables.recovered_entries IS
	'Index entries that the recovery of the table replayed.';
COMMENT ON COLUMN kvfdw_stat_tables.recovered_write_buffers IS
	'Write buffers that the recovery of the table replayed.';
COMMENT ON COLUMN kvfdw_stat_tables.recovery_time IS
	'Time of the recovery of the table (in milliseconds).';
COMMENT ON COLUMN kvfdw_stat_tables.memtable_bytes IS
	'Shared memory that the memtables have now (in bytes).';
COMMENT ON COLUMN kvfdw_stat_tables.runs IS
	'Run files now, without those kept for checkpoints and backups.';
COMMENT ON COLUMN kvfdw_stat_tables.wal IS
	'Durability level with which the data was written: full, keys or none.';
COMMENT ON COLUMN kvfdw_stat_tables.usable IS
	'False if each use of the table is an error, which tells the reason.';
COMMENT ON COLUMN kvfdw_stat_tables.lost_entries IS
	'Damaged row versions left out after a crash, with wal none only.';
COMMENT ON COLUMN kvfdw_stat_tables.lost_log_bytes IS
	'Bytes of key logs that could not be read after a crash, with wal none only.';
COMMENT ON COLUMN kvfdw_stat_tables.value_files IS 'Value files now, without obsolete ones.';
COMMENT ON COLUMN kvfdw_stat_tables.value_file_bytes IS
	'Bytes of these files that hold live or dead values.';
COMMENT ON COLUMN kvfdw_stat_tables.live_bytes IS
	'Estimate of the bytes of live values among value_file_bytes.';
COMMENT ON COLUMN kvfdw_stat_tables.obsolete_value_files IS
	'Value files without any value of the table that still exist.';
COMMENT ON COLUMN kvfdw_stat_tables.obsolete_bytes IS
	'Bytes of these files, including files that are being freed.';
COMMENT ON COLUMN kvfdw_stat_tables.obsolete_waiting_for IS
	'What keeps obsolete files: mark, checkpoint or backup; nothing if they are about to be '
	'removed; NULL if there are none.';
COMMENT ON COLUMN kvfdw_stat_tables.relocated_reads IS
	'Reads of values that a compaction had moved, which were looked up again.';
COMMENT ON COLUMN kvfdw_stat_tables.compactions IS 'Compactions of a shard.';
COMMENT ON COLUMN kvfdw_stat_tables.moved_bytes IS 'Values that compactions have moved (in bytes).';
COMMENT ON COLUMN kvfdw_stat_tables.unsorted_bytes IS
	'Part of live_bytes that was neither put in key order nor found to be in it, or in stretches.';
COMMENT ON COLUMN kvfdw_stat_tables.space_waits IS
	'Waits of writers for a compaction, each for a write buffer or a large value.';
COMMENT ON COLUMN kvfdw_stat_tables.space_limit IS
	'Limit of value_file_bytes, see kvfdw.max_space_amplification; NULL: no limit.';
COMMENT ON COLUMN kvfdw_stat_tables.space_blocked_by IS
	'Why the table is not compacted although it is due: snapshot, backup, disk, release, retry '
	'or damage; NULL: nothing.';
COMMENT ON COLUMN kvfdw_stat_tables.recent_ring_hits IS 'Values read from the recent ring.';
COMMENT ON COLUMN kvfdw_stat_tables.tier_hits IS 'Values read from the second tier.';
COMMENT ON COLUMN kvfdw_stat_tables.splits IS
	'Shards that were split, cut or joined to a neighbor.';
COMMENT ON COLUMN kvfdw_stat_tables.stats_reset IS
	'Time at which the counters began: the start of the server or the last kvfdw_stat_reset().';

CREATE FUNCTION kvfdw_stat_get_shards(
	OUT relid oid,
	OUT generation bigint,
	OUT shard_id integer,
	OUT "position" integer,
	OUT entries bigint,
	OUT value_file_bytes bigint,
	OUT live_bytes bigint,
	OUT unsorted_bytes bigint,
	OUT memtable_bytes bigint,
	OUT runs bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_shards() IS
	'Returns the rows of the view kvfdw_stat_shards, which has the comments.';

CREATE VIEW kvfdw_stat_shards AS
	SELECT s.relid, n.nspname AS schemaname, c.relname, s.generation, s.shard_id, s.position,
		s.entries, s.value_file_bytes, s.live_bytes, s.unsorted_bytes, s.memtable_bytes,
		s.runs
	FROM kvfdw_stat_get_shards() s
		LEFT JOIN pg_class c ON c.oid = s.relid
		LEFT JOIN pg_namespace n ON n.oid = c.relnamespace;
GRANT SELECT ON kvfdw_stat_shards TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_shards IS
	'One row for each shard of the kvfdw tables of this database that were used or recovered '
	'since the start of the server. The position has their order.';
COMMENT ON COLUMN kvfdw_stat_shards.relid IS 'OID of the table.';
COMMENT ON COLUMN kvfdw_stat_shards.schemaname IS
	'Schema of the table; NULL if the table was dropped, or is not committed yet.';
COMMENT ON COLUMN kvfdw_stat_shards.relname IS 'Name of the table; NULL as for schemaname.';
COMMENT ON COLUMN kvfdw_stat_shards.generation IS
	'Generation of the data; TRUNCATE begins a new one.';
COMMENT ON COLUMN kvfdw_stat_shards.shard_id IS
	'Id of the shard, which the names of its files have.';
COMMENT ON COLUMN kvfdw_stat_shards.position IS
	'Place of the shard among all shards of the table, in key order; the first is 0.';
COMMENT ON COLUMN kvfdw_stat_shards.entries IS
	'Entries of its index, including versions that a flush will remove.';
COMMENT ON COLUMN kvfdw_stat_shards.value_file_bytes IS
	'Bytes of its value files that hold live or dead values.';
COMMENT ON COLUMN kvfdw_stat_shards.live_bytes IS
	'Estimate of the bytes of live values among value_file_bytes.';
COMMENT ON COLUMN kvfdw_stat_shards.unsorted_bytes IS
	'Part of live_bytes that was neither put in key order nor found to be in it, or in stretches.';
COMMENT ON COLUMN kvfdw_stat_shards.memtable_bytes IS
	'Shared memory that its memtables have now (in bytes).';
COMMENT ON COLUMN kvfdw_stat_shards.runs IS 'Run files of the shard now.';

CREATE FUNCTION kvfdw_stat_get_progress(
	OUT pid integer,
	OUT datid oid,
	OUT relid oid,
	OUT command text,
	OUT phase text,
	OUT shard_id integer,
	OUT unit text,
	OUT done bigint,
	OUT total bigint,
	OUT command_start timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_progress() IS
	'Returns the rows of the view kvfdw_stat_progress, which has the comments.';

CREATE VIEW kvfdw_stat_progress AS
	SELECT s.pid, s.datid, d.datname, s.relid, s.command, s.phase, s.shard_id, s.unit, s.done,
		s.total, s.command_start
	FROM kvfdw_stat_get_progress() s
		LEFT JOIN pg_database d ON d.oid = s.datid;
GRANT SELECT ON kvfdw_stat_progress TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_progress IS
	'One row for each process that works on a kvfdw table of any database for a long time, such '
	'as a compaction or a recovery.';
COMMENT ON COLUMN kvfdw_stat_progress.pid IS 'Process ID.';
COMMENT ON COLUMN kvfdw_stat_progress.datid IS 'OID of the database of the table.';
COMMENT ON COLUMN kvfdw_stat_progress.datname IS 'Name of the database of the table.';
COMMENT ON COLUMN kvfdw_stat_progress.relid IS 'OID of the table.';
COMMENT ON COLUMN kvfdw_stat_progress.command IS
	'Task: flush, compact, move, rewrite, recovery, check or prewarm.';
COMMENT ON COLUMN kvfdw_stat_progress.phase IS 'Phase of the task; NULL if it has none.';
COMMENT ON COLUMN kvfdw_stat_progress.shard_id IS
	'Id of the shard; NULL if the task is not about a single shard.';
COMMENT ON COLUMN kvfdw_stat_progress.unit IS
	'Unit of done and total: entries, bytes, rows or shards.';
COMMENT ON COLUMN kvfdw_stat_progress.done IS 'Amount of work done.';
COMMENT ON COLUMN kvfdw_stat_progress.total IS 'Estimated amount of all work; NULL: not known yet.';
COMMENT ON COLUMN kvfdw_stat_progress.command_start IS 'Time at which the task began.';

CREATE FUNCTION kvfdw_stat_get_io(
	OUT kind text,
	OUT calls bigint,
	OUT bytes bigint,
	OUT errors bigint,
	OUT stats_reset timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_io() IS
	'Returns the rows of the view kvfdw_stat_io, which has the comments.';

CREATE VIEW kvfdw_stat_io AS SELECT * FROM kvfdw_stat_get_io();
GRANT SELECT ON kvfdw_stat_io TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_io IS
	'One row for each kind of system call of kvfdw, counted for the whole server.';
COMMENT ON COLUMN kvfdw_stat_io.kind IS
	'Kind of the call: value read, value write, value extend, key log read, key log write, run '
	'map, run write, buffer map, meta read, meta write, unlink, sync, compact read, compact '
	'write, tier read or tier write.';
COMMENT ON COLUMN kvfdw_stat_io.calls IS 'Calls.';
COMMENT ON COLUMN kvfdw_stat_io.bytes IS 'Bytes read, written or mapped.';
COMMENT ON COLUMN kvfdw_stat_io.errors IS 'Calls that failed; the server log tells the errors.';
COMMENT ON COLUMN kvfdw_stat_io.stats_reset IS
	'Time at which the counters began: the start of the server or the last kvfdw_stat_reset().';

CREATE FUNCTION kvfdw_stat_get_cache(
	OUT cache text,
	OUT enabled boolean,
	OUT hits bigint,
	OUT block_size bigint,
	OUT inserted bigint,
	OUT evictions bigint,
	OUT dropped bigint,
	OUT errors bigint,
	OUT size_bytes bigint,
	OUT used_bytes bigint,
	OUT misses_off bigint,
	OUT misses_oversized bigint,
	OUT misses_absent bigint,
	OUT misses_probation bigint,
	OUT misses_evicted bigint,
	OUT misses_partial bigint,
	OUT misses_busy bigint,
	OUT misses_damaged bigint,
	OUT stats_reset timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_cache() IS
	'Returns the rows of the view kvfdw_stat_cache, which has the comments.';

CREATE VIEW kvfdw_stat_cache AS SELECT * FROM kvfdw_stat_get_cache();
GRANT SELECT ON kvfdw_stat_cache TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_cache IS
	'One row for each place from which values are read, in the order in which it is asked, for '
	'all databases.';
COMMENT ON COLUMN kvfdw_stat_cache.cache IS
	'Place: write buffers, recent ring, value cache, tier or device.';
COMMENT ON COLUMN kvfdw_stat_cache.enabled IS
	'False if the cache is switched off, or the file of the second tier has failed.';
COMMENT ON COLUMN kvfdw_stat_cache.hits IS
	'Values read there; for the device, reads of one value or of several neighbors.';
COMMENT ON COLUMN kvfdw_stat_cache.block_size IS
	'Unit that is inserted and evicted; NULL for the device (in bytes).';
COMMENT ON COLUMN kvfdw_stat_cache.inserted IS
	'Blocks that were inserted, including those read back after a start; NULL for the device.';
COMMENT ON COLUMN kvfdw_stat_cache.evictions IS
	'Blocks that left: written, moved to the next cache, or replaced; NULL for the device.';
COMMENT ON COLUMN kvfdw_stat_cache.dropped IS
	'Blocks that left the recent ring before the second tier could take them; NULL for other '
	'caches.';
COMMENT ON COLUMN kvfdw_stat_cache.errors IS
	'Values that failed verification there and were read elsewhere, and failed reads; NULL for '
	'write buffers.';
COMMENT ON COLUMN kvfdw_stat_cache.size_bytes IS 'Capacity; for the device, bytes of value files.';
COMMENT ON COLUMN kvfdw_stat_cache.used_bytes IS
	'Part of the capacity that is in use; for the device, bytes of live values.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_off IS 'Misses: the cache is off.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_oversized IS
	'Misses: the cache takes no value of this size.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_absent IS
	'Misses: no trace of the value there since the server started.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_probation IS 'Misses: evicted before a second read.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_evicted IS 'Misses: evicted by others.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_partial IS 'Misses: only some blocks are there.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_busy IS
	'Misses: another process was writing it there, or over it.';
COMMENT ON COLUMN kvfdw_stat_cache.misses_damaged IS 'Misses: it failed verification.';
COMMENT ON COLUMN kvfdw_stat_cache.stats_reset IS
	'Time at which the counters began: the start of the server or the last kvfdw_stat_reset().';

CREATE FUNCTION kvfdw_stat_get_range_cache(
	OUT windows bigint,
	OUT window_size bigint,
	OUT used bigint,
	OUT scans bigint,
	OUT hits bigint,
	OUT loads bigint,
	OUT shared bigint,
	OUT waits bigint,
	OUT reads bigint,
	OUT read_bytes bigint,
	OUT evictions bigint,
	OUT stats_reset timestamptz)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_range_cache() IS
	'Returns the rows of the view kvfdw_stat_range_cache, which has the comments.';

CREATE VIEW kvfdw_stat_range_cache AS SELECT * FROM kvfdw_stat_get_range_cache();
GRANT SELECT ON kvfdw_stat_range_cache TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_range_cache IS
	'One row for the cache that scans of large ranges share, for all databases; zeros if it is '
	'switched off.';
COMMENT ON COLUMN kvfdw_stat_range_cache.windows IS 'Windows of the cache.';
COMMENT ON COLUMN kvfdw_stat_range_cache.window_size IS 'Size of a window (in bytes).';
COMMENT ON COLUMN kvfdw_stat_range_cache.used IS 'Windows that have data or are being loaded.';
COMMENT ON COLUMN kvfdw_stat_range_cache.scans IS 'Scans that use the cache now.';
COMMENT ON COLUMN kvfdw_stat_range_cache.hits IS
	'Windows that a scan found loaded for another scan.';
COMMENT ON COLUMN kvfdw_stat_range_cache.loads IS
	'Windows that were loaded for the scan that used them.';
COMMENT ON COLUMN kvfdw_stat_range_cache.shared IS
	'Windows that were being loaded for another scan when a scan needed them.';
COMMENT ON COLUMN kvfdw_stat_range_cache.waits IS 'Sleeps of scans until a window was loaded.';
COMMENT ON COLUMN kvfdw_stat_range_cache.reads IS
	'Windows that the workers have read from the device.';
COMMENT ON COLUMN kvfdw_stat_range_cache.read_bytes IS 'Bytes of these reads.';
COMMENT ON COLUMN kvfdw_stat_range_cache.evictions IS 'Windows that were replaced.';
COMMENT ON COLUMN kvfdw_stat_range_cache.stats_reset IS
	'Time at which the counters began: the start of the server or the last kvfdw_stat_reset().';

CREATE FUNCTION kvfdw_stat_get_checkpointer(
	OUT num_done bigint,
	OUT last_lsn pg_lsn,
	OUT last_done timestamptz,
	OUT last_total_time double precision,
	OUT last_shards bigint,
	OUT last_files bigint,
	OUT last_bytes bigint,
	OUT stats_reset timestamptz)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_checkpointer() IS
	'Returns the rows of the view kvfdw_stat_checkpointer, which has the comments.';

CREATE VIEW kvfdw_stat_checkpointer AS SELECT * FROM kvfdw_stat_get_checkpointer();
GRANT SELECT ON kvfdw_stat_checkpointer TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_checkpointer IS
	'One row about checkpoints, which the process kvfdw checkpointer completes; last_* are '
	'those of the last one.';
COMMENT ON COLUMN kvfdw_stat_checkpointer.num_done IS
	'Checkpoints for which kvfdw made its tables durable; on a standby, records of such '
	'checkpoints that were replayed.';
COMMENT ON COLUMN kvfdw_stat_checkpointer.last_lsn IS
	'End of the WAL record of the last checkpoint.';
COMMENT ON COLUMN kvfdw_stat_checkpointer.last_done IS
	'Time at which the last checkpoint was done.';
COMMENT ON COLUMN kvfdw_stat_checkpointer.last_total_time IS
	'Time that the last checkpoint took in kvfdw (in milliseconds).';
COMMENT ON COLUMN kvfdw_stat_checkpointer.last_shards IS
	'Shards that the last checkpoint made durable, which are those that had changed.';
COMMENT ON COLUMN kvfdw_stat_checkpointer.last_files IS 'Files that the last checkpoint synced.';
COMMENT ON COLUMN kvfdw_stat_checkpointer.last_bytes IS
	'Bytes of key logs and runs among these files.';
COMMENT ON COLUMN kvfdw_stat_checkpointer.stats_reset IS
	'Time at which the counters began: the start of the server or the last kvfdw_stat_reset().';

CREATE FUNCTION kvfdw_stat_get_admission(
	OUT pid integer,
	OUT session_limit integer,
	OUT quota integer,
	OUT active integer,
	OUT waiting integer,
	OUT lent integer,
	OUT grants bigint,
	OUT overdue bigint,
	OUT requests bigint,
	OUT pauses bigint,
	OUT pause_time double precision,
	OUT max_pause_time double precision,
	OUT throughput double precision,
	OUT unfairness double precision,
	OUT variability double precision,
	OUT jain double precision,
	OUT tuning boolean,
	OUT last_tuned timestamptz,
	OUT tuned_limits integer[],
	OUT tuned_throughputs double precision[],
	OUT missed_turns bigint,
	OUT stats_reset timestamptz)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_admission() IS
	'Returns the rows of the view kvfdw_stat_admission, which has the comments.';

CREATE VIEW kvfdw_stat_admission AS SELECT * FROM kvfdw_stat_get_admission();
GRANT SELECT ON kvfdw_stat_admission TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_admission IS
	'One row about admission for the whole server: how many sessions work and pause.';
COMMENT ON COLUMN kvfdw_stat_admission.pid IS
	'Process ID of kvfdw admission; NULL: it does not run.';
COMMENT ON COLUMN kvfdw_stat_admission.session_limit IS
	'Limit in force; NULL: no session is paused.';
COMMENT ON COLUMN kvfdw_stat_admission.quota IS
	'Requests per turn of a session of weight 1; NULL as for session_limit.';
COMMENT ON COLUMN kvfdw_stat_admission.active IS 'Sessions with a slot.';
COMMENT ON COLUMN kvfdw_stat_admission.waiting IS
	'Paused sessions, and those that queue in advance.';
COMMENT ON COLUMN kvfdw_stat_admission.lent IS
	'Sessions whose slot was given to others, and which have not been ready since.';
COMMENT ON COLUMN kvfdw_stat_admission.grants IS 'Slots given to paused sessions.';
COMMENT ON COLUMN kvfdw_stat_admission.overdue IS 'Pauses that kvfdw.admission_max_wait ended.';
COMMENT ON COLUMN kvfdw_stat_admission.requests IS
	'Requests of sessions that are subject to admission.';
COMMENT ON COLUMN kvfdw_stat_admission.pauses IS 'Pauses.';
COMMENT ON COLUMN kvfdw_stat_admission.pause_time IS
	'Time of all pauses, including queuing in advance (in milliseconds).';
COMMENT ON COLUMN kvfdw_stat_admission.max_pause_time IS
	'Time of the longest pause (in milliseconds).';
COMMENT ON COLUMN kvfdw_stat_admission.throughput IS 'Requests per second, in the last second.';
COMMENT ON COLUMN kvfdw_stat_admission.unfairness IS
	'Largest deviation of requests per weight from their mean, as a part of it, among busy '
	'sessions of the last window.';
COMMENT ON COLUMN kvfdw_stat_admission.variability IS
	'Mean standard deviation of latency of the sessions, pauses included, as a part of the mean '
	'latency.';
COMMENT ON COLUMN kvfdw_stat_admission.jain IS
	'Jain''s index of the requests per weight: 1 is perfectly even.';
COMMENT ON COLUMN kvfdw_stat_admission.tuning IS 'True while the limit is being chosen.';
COMMENT ON COLUMN kvfdw_stat_admission.last_tuned IS
	'Time at which the limit was chosen last; NULL: never.';
COMMENT ON COLUMN kvfdw_stat_admission.tuned_limits IS
	'Limits that were measured then; 0: no limit.';
COMMENT ON COLUMN kvfdw_stat_admission.tuned_throughputs IS 'Throughput at each of these limits.';
COMMENT ON COLUMN kvfdw_stat_admission.missed_turns IS
	'Turns of sessions that had queued in advance and had no request.';
COMMENT ON COLUMN kvfdw_stat_admission.stats_reset IS
	'Time at which the counters began: the start of the server or the last kvfdw_stat_reset().';

CREATE FUNCTION kvfdw_stat_get_admission_roles(
	OUT roleid oid,
	OUT weight integer,
	OUT sessions integer,
	OUT requests bigint,
	OUT pauses bigint,
	OUT pause_time double precision,
	OUT stats_reset timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_admission_roles() IS
	'Returns the rows of the view kvfdw_stat_admission_roles, which has the comments.';

CREATE VIEW kvfdw_stat_admission_roles AS
	SELECT r.rolname AS role, s.weight, s.sessions, s.requests, s.pauses, s.pause_time,
		s.stats_reset
	FROM kvfdw_stat_get_admission_roles() s
		LEFT JOIN pg_roles r ON r.oid = s.roleid;
GRANT SELECT ON kvfdw_stat_admission_roles TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_admission_roles IS
	'One row for each role about its requests and pauses by admission; roles beyond 127 share '
	'one row.';
COMMENT ON COLUMN kvfdw_stat_admission_roles.role IS
	'Name of the role; NULL: the roles beyond 127, together.';
COMMENT ON COLUMN kvfdw_stat_admission_roles.weight IS 'Weight of one of its sessions.';
COMMENT ON COLUMN kvfdw_stat_admission_roles.sessions IS 'Sessions now.';
COMMENT ON COLUMN kvfdw_stat_admission_roles.requests IS
	'Requests, including those of sessions that have ended.';
COMMENT ON COLUMN kvfdw_stat_admission_roles.pauses IS
	'Pauses, including those of sessions that have ended.';
COMMENT ON COLUMN kvfdw_stat_admission_roles.pause_time IS
	'Time of these pauses (in milliseconds).';
COMMENT ON COLUMN kvfdw_stat_admission_roles.stats_reset IS
	'Time at which the counters began: the start of the server or the last kvfdw_stat_reset().';

CREATE FUNCTION kvfdw_stat_get_memcached(
	OUT worker_id integer,
	OUT pid integer,
	OUT connections integer,
	OUT buffer_memory bigint,
	OUT accepted bigint,
	OUT rejected bigint,
	OUT dropped bigint,
	OUT gets bigint,
	OUT hits bigint,
	OUT misses bigint,
	OUT expired bigint,
	OUT sets bigint,
	OUT too_large bigint,
	OUT no_memory bigint,
	OUT meta_debugs bigint,
	OUT cas_hits bigint,
	OUT cas_misses bigint,
	OUT cas_badval bigint,
	OUT delete_hits bigint,
	OUT delete_misses bigint,
	OUT incr_hits bigint,
	OUT incr_misses bigint,
	OUT decr_hits bigint,
	OUT decr_misses bigint,
	OUT touch_hits bigint,
	OUT touch_misses bigint,
	OUT flush_alls bigint,
	OUT auths bigint,
	OUT auth_failures bigint,
	OUT errors bigint,
	OUT batches bigint,
	OUT repeated_batches bigint,
	OUT parked bigint,
	OUT writes bigint,
	OUT merged_writes bigint,
	OUT wal_flushes bigint,
	OUT bytes_in bigint,
	OUT bytes_out bigint,
	OUT reaped bigint,
	OUT stats_reset timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION kvfdw_stat_get_memcached() IS
	'Returns the rows of the view kvfdw_stat_memcached, which has the comments.';

CREATE VIEW kvfdw_stat_memcached AS SELECT * FROM kvfdw_stat_get_memcached();
GRANT SELECT ON kvfdw_stat_memcached TO PUBLIC;
COMMENT ON VIEW kvfdw_stat_memcached IS
	'One row for each process that serves memcached clients, and one for the process that '
	'deletes expired rows.';
COMMENT ON COLUMN kvfdw_stat_memcached.worker_id IS
	'Number of the process, from 0; NULL: the reaper.';
COMMENT ON COLUMN kvfdw_stat_memcached.pid IS 'Process ID; NULL: it does not run.';
COMMENT ON COLUMN kvfdw_stat_memcached.connections IS 'Connections now.';
COMMENT ON COLUMN kvfdw_stat_memcached.buffer_memory IS
	'Memory of buffers for requests and replies now (in bytes).';
COMMENT ON COLUMN kvfdw_stat_memcached.accepted IS 'Connections accepted.';
COMMENT ON COLUMN kvfdw_stat_memcached.rejected IS
	'Connections refused, because kvfdw.memcached_max_connections was reached.';
COMMENT ON COLUMN kvfdw_stat_memcached.dropped IS
	'Connections closed because their replies or unfinished requests used up the memory.';
COMMENT ON COLUMN kvfdw_stat_memcached.gets IS 'Keys read.';
COMMENT ON COLUMN kvfdw_stat_memcached.hits IS 'Keys read and found.';
COMMENT ON COLUMN kvfdw_stat_memcached.misses IS 'Keys read and not found.';
COMMENT ON COLUMN kvfdw_stat_memcached.expired IS 'Keys not found because their row has expired.';
COMMENT ON COLUMN kvfdw_stat_memcached.sets IS
	'Requests to store a value, including those refused by a condition.';
COMMENT ON COLUMN kvfdw_stat_memcached.too_large IS
	'Requests with a value larger than kvfdw.memcached_max_item_size.';
COMMENT ON COLUMN kvfdw_stat_memcached.no_memory IS
	'Requests with a value larger than kvfdw.memcached_buffer_memory.';
COMMENT ON COLUMN kvfdw_stat_memcached.meta_debugs IS
	'Commands me, which memcached counts as cmd_meta.';
COMMENT ON COLUMN kvfdw_stat_memcached.cas_hits IS 'Requests with a cas number that were executed.';
COMMENT ON COLUMN kvfdw_stat_memcached.cas_misses IS
	'Requests with a cas number for a key without an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.cas_badval IS
	'Requests with a cas number that is not the current one.';
COMMENT ON COLUMN kvfdw_stat_memcached.delete_hits IS 'Deletes of an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.delete_misses IS 'Deletes of a key without an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.incr_hits IS 'Commands incr for an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.incr_misses IS 'Commands incr for a key without an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.decr_hits IS 'Commands decr for an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.decr_misses IS 'Commands decr for a key without an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.touch_hits IS 'Commands touch for an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.touch_misses IS 'Commands touch for a key without an item.';
COMMENT ON COLUMN kvfdw_stat_memcached.flush_alls IS 'Commands flush_all.';
COMMENT ON COLUMN kvfdw_stat_memcached.auths IS 'Authentications tried.';
COMMENT ON COLUMN kvfdw_stat_memcached.auth_failures IS 'Authentications that failed.';
COMMENT ON COLUMN kvfdw_stat_memcached.errors IS 'Requests answered with SERVER_ERROR.';
COMMENT ON COLUMN kvfdw_stat_memcached.batches IS
	'Transactions; for the reaper, those that were to delete rows.';
COMMENT ON COLUMN kvfdw_stat_memcached.repeated_batches IS
	'Transactions that were rolled back and repeated.';
COMMENT ON COLUMN kvfdw_stat_memcached.parked IS
	'Requests that had to wait for a row, a table or memory.';
COMMENT ON COLUMN kvfdw_stat_memcached.writes IS 'Rows written.';
COMMENT ON COLUMN kvfdw_stat_memcached.merged_writes IS
	'Writes that a later write of the same batch replaced.';
COMMENT ON COLUMN kvfdw_stat_memcached.wal_flushes IS 'Flushes of the WAL for writes of clients.';
COMMENT ON COLUMN kvfdw_stat_memcached.bytes_in IS 'Bytes received.';
COMMENT ON COLUMN kvfdw_stat_memcached.bytes_out IS 'Bytes sent.';
COMMENT ON COLUMN kvfdw_stat_memcached.reaped IS 'Expired rows deleted, by the reaper.';
COMMENT ON COLUMN kvfdw_stat_memcached.stats_reset IS
	'Time at which the counters began: the start of the server, the last kvfdw_stat_reset(), or '
	'"stats reset" of a client.';
