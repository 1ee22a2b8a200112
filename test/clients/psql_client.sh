# psql: \copy both ways, FETCH_COUNT, \gdesc, \gset, \crosstabview, cursors, what information_schema says of the columns.
set -e
run() { psql -XAtq "$@" 2>&1; }
echo '# \copy'
csv=$(mktemp)
trap 'rm -f "$csv"' EXIT
seq 1 1000 | awk '{ printf "%d,\"owner \"\"%d\"\"\",%d.25,%s\n", $1, $1, $1, ($1 % 3 ? "x" : "") }' >"$csv"
run -c "\\copy account FROM '$csv' (FORMAT csv)"
run -c "SELECT count(*), sum(balance), count(note), min(owner), max(owner) FROM account"
run -c "\\copy (SELECT * FROM account WHERE id BETWEEN 10 AND 12 ORDER BY id) TO STDOUT (FORMAT csv, HEADER)"
echo '1001,twice,1,
1001,twice,2,' | run -c "\\copy account FROM STDIN (FORMAT csv)" | sed 's/^\(CONTEXT.*line 2\):.*/\1/'
run -c 'SELECT count(*) FROM account WHERE id > 1000'
echo '# FETCH_COUNT'
run -v FETCH_COUNT=7 -c 'SELECT id, note FROM account WHERE id <= 30 ORDER BY id'
echo '# \gdesc and \gset'
run <<'S'
SELECT * FROM typed \gdesc
SELECT id AS one, owner FROM account WHERE id = 77 \gset
\echo :one :owner
SELECT id / 500 AS a, id % 3 AS b, count(*) FROM account GROUP BY 1, 2 \crosstabview
S
echo '# cursors'
run <<'S'
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, owner FROM account ORDER BY id;
FETCH 2 FROM c; FETCH LAST FROM c; FETCH PRIOR FROM c; FETCH ABSOLUTE 500 FROM c; FETCH BACKWARD 3 FROM c; MOVE FORWARD ALL FROM c; FETCH RELATIVE -1 FROM c;
SAVEPOINT s; DECLARE d CURSOR FOR SELECT id FROM account WHERE id < 5 ORDER BY id FOR UPDATE; FETCH 2 FROM d; UPDATE account SET note = 'seen' WHERE id = 1; FETCH 1 FROM d; ROLLBACK TO s; FETCH FIRST FROM c;
SELECT note FROM account WHERE id = 1;
COMMIT;
S
echo '# prepared statements'
run <<'S'
PREPARE p (bigint, bigint) AS SELECT count(*), sum(balance) FROM account WHERE id BETWEEN $1 AND $2;
PREPARE u (bigint) AS UPDATE account SET balance = balance + 1 WHERE id = $1 RETURNING balance;
EXECUTE p (1, 10); EXECUTE p (1, 10); EXECUTE p (10, 1); EXECUTE p (NULL, 1); EXECUTE p (1, 100); EXECUTE p (990, 2000); EXECUTE p (5, 5);
EXECUTE u (1); EXECUTE u (1); EXECUTE u (1); EXECUTE u (NULL); EXECUTE u (-1); EXECUTE u (1); EXECUTE u (1);
ALTER TABLE account ADD COLUMN extra text;
EXECUTE u (1);
PREPARE a AS SELECT * FROM account WHERE id = 1; EXECUTE a;
ALTER TABLE account DROP COLUMN extra;
EXECUTE a;
SELECT * FROM account WHERE id = 1;
S
echo '# information_schema'
run -c "SELECT table_name, column_name, ordinal_position, column_default, is_nullable, data_type, udt_name, character_maximum_length, numeric_precision, collation_name, is_updatable FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'kvfdw%' ORDER BY 1, 3"
run -c "SELECT table_name, is_insertable_into FROM information_schema.tables WHERE table_schema = 'public' AND table_name NOT LIKE 'kvfdw%' ORDER BY 1"
run -c "SELECT constraint_name, check_clause FROM information_schema.check_constraints WHERE constraint_schema = 'public' AND constraint_name = 'solvent' ORDER BY 1"
echo '# PL/pgSQL'
run <<'S'
DO $$ DECLARE r record; total numeric := 0; c refcursor; n bigint;
BEGIN
	FOR r IN SELECT * FROM account WHERE id <= 50 ORDER BY id LOOP
		BEGIN
			UPDATE account SET balance = balance + r.id WHERE id = r.id;
			IF r.id % 10 = 0 THEN RAISE division_by_zero; END IF;
		EXCEPTION WHEN division_by_zero THEN total := total + 1;
		END;
	END LOOP;
	OPEN c FOR SELECT id FROM account WHERE id > 990 ORDER BY id DESC;
	FETCH c INTO n; MOVE FORWARD 2 FROM c; FETCH c INTO n; CLOSE c;
	BEGIN INSERT INTO account (id, owner) VALUES (1, 'x'); EXCEPTION WHEN unique_violation THEN total := total + 100; END;
	RAISE NOTICE '% %', total, n;
END $$;
SELECT sum(balance) FROM account WHERE id <= 50;
S
