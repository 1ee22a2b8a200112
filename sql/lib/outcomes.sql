\set ECHO none
-- Run a statement with @ as h_ on heap and as f_ on kvfdw, and show what both lead to.
CREATE FUNCTION outcome(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE state text; message text; tab text; col text; con text; n bigint;
BEGIN
	EXECUTE sql;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN 'ok ' || n;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, tab = TABLE_NAME, col = COLUMN_NAME, con = CONSTRAINT_NAME;
	RETURN concat_ws(' ', state, message, '(' || tab || ')', '(' || NULLIF(col, '') || ')', '(' || NULLIF(con, '') || ')');
END $$;
CREATE FUNCTION outcomes(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE heap text := replace(outcome(replace(sql, '@', 'h_')), 'h_', '@'); kv text := replace(outcome(replace(sql, '@', 'f_')), 'f_', '@');
BEGIN
	RETURN CASE WHEN heap = kv THEN heap ELSE 'heap: ' || heap || ', kvfdw: ' || kv END;
END $$;
-- A table of each, with the same columns; and a statement for both.
CREATE FUNCTION make(name text, columns text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE h_%s (%s)', name, columns);
	EXECUTE format('CREATE FOREIGN TABLE f_%s (%s) SERVER kvfdw OPTIONS (key ''k'')', name, columns);
END $$;
\set ECHO all
