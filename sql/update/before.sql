-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION kvfdw UPDATE" to load this file. \quit

-- What follows is the new version's script with OR REPLACE, from behind the wrapper and its server on.
-- So views, and the functions that these are over, go first: they may get other columns.  A view on which
-- something of the user's depends stays and is replaced, which can only add columns behind those that it
-- has; its function gives up its name, and goes last.  Other functions are replaced, and keep their grants.
DO $update$
DECLARE
	object record;
BEGIN
	FOR object IN
		SELECT format('%I.%I', n.nspname, c.relname) AS name
		FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'kvfdw'
			JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'v' JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	LOOP
		BEGIN
			EXECUTE format('DROP VIEW %s', object.name);
		EXCEPTION WHEN dependent_objects_still_exist THEN
			RAISE NOTICE 'view % is replaced, for other objects depend on it', object.name;
		END;
	END LOOP;
	FOR object IN
		SELECT format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS name, p.proname
		FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'kvfdw'
			JOIN pg_proc p ON p.oid = d.objid JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			AND p.proname LIKE 'kvfdw\_stat\_get\_%'
	LOOP
		BEGIN
			EXECUTE format('DROP FUNCTION %s', object.name);
		EXCEPTION WHEN dependent_objects_still_exist THEN
			EXECUTE format('ALTER FUNCTION %s RENAME TO %I', object.name, 'old_' || object.proname);
		END;
	END LOOP;
END
$update$;

