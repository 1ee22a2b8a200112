/* kvfdw 0.2 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION kvfdw" to load this file. \quit

CREATE FUNCTION kvfdw_handler() RETURNS fdw_handler
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FUNCTION kvfdw_validator(text[], oid) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE FOREIGN DATA WRAPPER kvfdw HANDLER kvfdw_handler VALIDATOR kvfdw_validator;

CREATE SERVER kvfdw FOREIGN DATA WRAPPER kvfdw;

-- Everybody may look at the statistics of the current database's tables.
CREATE FUNCTION kvfdw_stat_get_tables(
	OUT relid regclass,
	OUT generation bigint,
	OUT shards integer,
	OUT rows bigint,
	OUT inserts bigint,
	OUT updates bigint,
	OUT deletes bigint,
	OUT point_reads bigint,
	OUT range_scans bigint,
	OUT rows_read bigint,
	OUT device_reads bigint,
	OUT device_read_bytes bigint,
	OUT value_bytes bigint,
	OUT device_write_bytes bigint,
	OUT slot_hits bigint,
	OUT cache_hits bigint,
	OUT freezes bigint,
	OUT spills bigint,
	OUT recovered_entries bigint,
	OUT recovered_slots bigint,
	OUT recovery_ms bigint,
	OUT delta_bytes bigint,
	OUT runs bigint,
	OUT wal text,
	OUT usable boolean,
	OUT lost_entries bigint,
	OUT lost_log_bytes bigint,
	OUT chunks bigint,
	OUT value_file_bytes bigint,
	OUT live_bytes bigint,
	OUT retired_chunks bigint,
	OUT retired_bytes bigint,
	OUT retired_waits_for text,
	OUT moved_reads bigint,
	OUT passes bigint,
	OUT moved_bytes bigint,
	OUT unsorted_bytes bigint,
	OUT space_waits bigint,
	OUT space_bound bigint,
	OUT space_waits_for text,
	OUT recent_hits bigint,
	OUT tier_hits bigint,
	OUT splits bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_tables AS SELECT * FROM kvfdw_stat_get_tables();
GRANT SELECT ON kvfdw_stat_tables TO PUBLIC;

CREATE FUNCTION kvfdw_stat_get_io(
	OUT kind text,
	OUT calls bigint,
	OUT bytes bigint,
	OUT errors bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_io AS SELECT * FROM kvfdw_stat_get_io();
GRANT SELECT ON kvfdw_stat_io TO PUBLIC;

-- The last checkpoint checkpointer.
CREATE FUNCTION kvfdw_stat_get_barrier(
	OUT barriers bigint,
	OUT lsn pg_lsn,
	OUT ended timestamptz,
	OUT duration_ms double precision,
	OUT shards bigint,
	OUT files bigint,
	OUT bytes bigint)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_barrier AS SELECT * FROM kvfdw_stat_get_barrier();
GRANT SELECT ON kvfdw_stat_barrier TO PUBLIC;

-- The range cache, of all databases; counts since the start or kvfdw_stat_reset().
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
	OUT evictions bigint)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_range_cache AS SELECT * FROM kvfdw_stat_get_range_cache();
GRANT SELECT ON kvfdw_stat_range_cache TO PUBLIC;

-- The second tier, of all databases; counts since the start or kvfdw_stat_reset().
CREATE FUNCTION kvfdw_stat_get_tier(
	OUT "on" boolean,
	OUT frames bigint,
	OUT frame_size bigint,
	OUT used bigint,
	OUT hits bigint,
	OUT entered bigint,
	OUT dropped bigint)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_tier AS SELECT * FROM kvfdw_stat_get_tier();
GRANT SELECT ON kvfdw_stat_tier TO PUBLIC;

-- How values are read and written at present: io_uring or sync.
CREATE FUNCTION kvfdw_io_method() RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE FUNCTION kvfdw_stat_reset() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
REVOKE ALL ON FUNCTION kvfdw_stat_reset() FROM PUBLIC;

-- Bytes of a table's files.
CREATE FUNCTION kvfdw_relation_size(regclass) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

-- Reads and verifies everything; a row for each problem.  For the owner.
CREATE FUNCTION kvfdw_check(regclass, OUT file text, OUT "position" bigint, OUT problem text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

-- Flushes all recent versions now, as the maintainer would in time.  For the owner.
CREATE FUNCTION kvfdw_freeze(regclass) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

-- Gives back the space of dead values; sorted: and puts values in the order of keys.  For
-- the owner.
CREATE FUNCTION kvfdw_compact("table" regclass, sorted boolean DEFAULT false,
	OUT moved_bytes bigint, OUT freed_bytes bigint, OUT waiting_for text)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

-- Reads a table's values into the value cache, as far as it has room; returns bytes.  For
-- the owner.
CREATE FUNCTION kvfdw_prewarm(regclass) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

-- Splits every shard; at_end: behind its greatest key.  How many shards there are then.  For
-- the owner.
CREATE FUNCTION kvfdw_split("table" regclass, at_end boolean DEFAULT false) RETURNS integer
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

-- The compactions that run now: one row for each shard.
CREATE FUNCTION kvfdw_stat_get_compact(
	OUT relid regclass,
	OUT shard integer,
	OUT pid integer,
	OUT phase text,
	OUT moved_bytes bigint,
	OUT to_move_bytes bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_compact AS SELECT * FROM kvfdw_stat_get_compact();
GRANT SELECT ON kvfdw_stat_compact TO PUBLIC;

-- What takes long, of all databases: one row for each process that is at it.
CREATE FUNCTION kvfdw_stat_get_progress(
	OUT pid integer,
	OUT datid oid,
	OUT relid oid,
	OUT command text,
	OUT phase text,
	OUT shard integer,
	OUT unit text,
	OUT done bigint,
	OUT total bigint,
	OUT started timestamptz)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_progress AS
	SELECT s.pid, s.datid, d.datname, s.relid, s.command, s.phase, s.shard, s.unit, s.done, s.total, s.started
	FROM kvfdw_stat_get_progress() s LEFT JOIN pg_database d ON d.oid = s.datid;
GRANT SELECT ON kvfdw_stat_progress TO PUBLIC;

-- Admission, for the whole server; counts since the start or kvfdw_stat_reset().
CREATE FUNCTION kvfdw_stat_get_admission(
	OUT worker integer,
	OUT "limit" integer,
	OUT quota integer,
	OUT active integer,
	OUT waiting integer,
	OUT lent integer,
	OUT grants bigint,
	OUT overdue bigint,
	OUT requests bigint,
	OUT pauses bigint,
	OUT paused_ms double precision,
	OUT longest_ms double precision,
	OUT throughput double precision,
	OUT unfairness double precision,
	OUT variability double precision,
	OUT jain double precision,
	OUT tuning boolean,
	OUT tuned_at timestamptz,
	OUT tuned_limits integer[],
	OUT tuned_throughputs double precision[],
	OUT missed bigint)
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_admission AS SELECT * FROM kvfdw_stat_get_admission();
GRANT SELECT ON kvfdw_stat_admission TO PUBLIC;

CREATE FUNCTION kvfdw_stat_get_admission_roles(
	OUT roleid oid,
	OUT weight integer,
	OUT sessions integer,
	OUT requests bigint,
	OUT pauses bigint,
	OUT paused_ms double precision)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_admission_roles AS
	SELECT r.rolname AS role, s.weight, s.sessions, s.requests, s.pauses, s.paused_ms
	FROM kvfdw_stat_get_admission_roles() s LEFT JOIN pg_roles r ON r.oid = s.roleid;
GRANT SELECT ON kvfdw_stat_admission_roles TO PUBLIC;

-- Has the limit chosen anew, if kvfdw.admission_limit is 0; returns at once.
CREATE FUNCTION kvfdw_admission_tune() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
REVOKE ALL ON FUNCTION kvfdw_admission_tune() FROM PUBLIC;

-- The memcached front end: one row for each process; counts since the start or kvfdw_stat_reset().
CREATE FUNCTION kvfdw_stat_get_memcached(
	OUT worker integer,
	OUT pid integer,
	OUT connections integer,
	OUT memory bigint,
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
	OUT debugs bigint,
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
	OUT turns bigint,
	OUT repeated_turns bigint,
	OUT parked bigint,
	OUT writes bigint,
	OUT merged_writes bigint,
	OUT flushes bigint,
	OUT bytes_in bigint,
	OUT bytes_out bigint,
	OUT reaped bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_memcached AS SELECT * FROM kvfdw_stat_get_memcached();
GRANT SELECT ON kvfdw_stat_memcached TO PUBLIC;

-- The tables of this database that have the option memcached, and why one is not served.
CREATE FUNCTION kvfdw_memcached_tables(
	OUT relid regclass,
	OUT prefix text,
	OUT served boolean,
	OUT reason text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

-- The connections of memcached's clients.
CREATE FUNCTION kvfdw_memcached_connections(
	OUT worker integer,
	OUT address text,
	OUT role regrole,
	OUT state text,
	OUT began timestamptz,
	OUT active timestamptz,
	OUT requests bigint,
	OUT received bigint,
	OUT unsent bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
REVOKE ALL ON FUNCTION kvfdw_memcached_connections() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kvfdw_memcached_connections() TO pg_read_all_stats;

-- The shards of the tables that are in use, in the order of their keys: one row for each.
CREATE FUNCTION kvfdw_stat_get_shards(
	OUT relid regclass,
	OUT generation bigint,
	OUT shard integer,
	OUT "position" integer,
	OUT entries bigint,
	OUT value_file_bytes bigint,
	OUT live_bytes bigint,
	OUT unsorted_bytes bigint,
	OUT delta_bytes bigint,
	OUT runs bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_shards AS SELECT * FROM kvfdw_stat_get_shards();
GRANT SELECT ON kvfdw_stat_shards TO PUBLIC;

-- Where values are read, in the order in which it is tried, of all databases; counts since the start or kvfdw_stat_reset().
CREATE FUNCTION kvfdw_stat_get_tiers(
	OUT tier text,
	OUT hits bigint,
	OUT piece bigint,
	OUT entered bigint,
	OUT "left" bigint,
	OUT dropped bigint,
	OUT errors bigint,
	OUT bytes bigint,
	OUT used bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;

CREATE VIEW kvfdw_stat_tiers AS SELECT * FROM kvfdw_stat_get_tiers();
GRANT SELECT ON kvfdw_stat_tiers TO PUBLIC;
