# The script of an extension's version, as an update to it: all but the wrapper and its server is
# made anew.  REVOKE would take grants of the user's for the extension's own, which pg_dump leaves out.
1,/^CREATE SERVER/d
s/^CREATE \(FUNCTION\|VIEW\) /CREATE OR REPLACE \1 /
s/^REVOKE ALL ON FUNCTION \(.*\) FROM PUBLIC;$/DO $$BEGIN IF has_function_privilege('public', '\1', 'EXECUTE') THEN & END IF; END$$;/
