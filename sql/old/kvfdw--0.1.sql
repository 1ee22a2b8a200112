/* kvfdw 0.1 */

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
	OUT freezes bigint,
	OUT spills bigint,
	OUT recovered_entries bigint,
	OUT recovered_slots bigint,
	OUT recovery_ms bigint,
	OUT delta_bytes bigint,
	OUT runs bigint)
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
