
DO $update$
DECLARE
	object record;
BEGIN
	FOR object IN
		SELECT format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS name
		FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'kvfdw'
			JOIN pg_proc p ON p.oid = d.objid JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			AND p.proname LIKE 'old\_kvfdw\_%'
	LOOP
		EXECUTE format('DROP FUNCTION %s', object.name);
	END LOOP;
END
$update$;
