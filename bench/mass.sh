# The line of make bench with statements on all rows of a table; run.sh sources it,
# after pointcpu.sh.
#
# Small rows, kvfdw's own settings, no parallel processes.  Each case creates its table again and is
# one session; heap and kvfdw take turns, and the least of each statement counts.  Next to each ratio of times is
# the one of the time that all processes of the server have computed, which other work on the machine changes little.
#
#   MASS_ROWS="10000 100000 1000000"
#   MASS_TURNS=3
#   MASS_CASES="load lock update upsert rollback savepoints delete reader"

MASS_ROWS=${MASS_ROWS:-10000 100000 $((1000000 / share))}
MASS_TURNS=${MASS_TURNS:-3}
MASS_CASES=${MASS_CASES:-load lock update upsert rollback savepoints delete reader}

# The statements of a case; those after a line "= name" are timed together, up to the next such line or "=".
mass_case() # case rows
{
	local rows="SELECT i, repeat('x', 40) || i FROM generate_series(1, $2) i"
	case $1 in
		load) ;;
		*) echo "INSERT INTO mass $rows;" ;;
	esac
	case $1 in
		load) printf '%s\n' "= INSERT in the order of keys" "INSERT INTO mass $rows;" "= count(*) after it" "SELECT count(*) FROM mass;" \
			"= a scan after it" "SELECT sum(length(v)) FROM mass;" "= TRUNCATE" "TRUNCATE mass;" \
			"= INSERT in the reverse order" "INSERT INTO mass $rows ORDER BY i DESC;" = "TRUNCATE mass;" \
			"= INSERT in random order" "INSERT INTO mass $rows ORDER BY hashint4(i);" ;;
		lock) printf '%s\n' "BEGIN;" "= FOR UPDATE" "SELECT count(*) FROM (SELECT k FROM mass FOR UPDATE) s;" \
			"= FOR UPDATE again" "SELECT count(*) FROM (SELECT k FROM mass FOR UPDATE) s;" \
			"= UPDATE of what is locked" "UPDATE mass SET v = v || 'a';" "= COMMIT" "COMMIT;" ;;
		update) printf '%s\n' "BEGIN;" "= UPDATE" "UPDATE mass SET v = v || 'a';" "= a scan of own changes" "SELECT sum(length(v)) FROM mass;" \
			"= a cursor over own changes" "DECLARE c CURSOR FOR SELECT * FROM mass;" "MOVE ALL FROM c;" = "COMMIT;" \
			"= a join with itself" "SELECT count(*) FROM mass a JOIN mass b USING (k) WHERE length(a.v) = length(b.v);" ;;
		upsert) printf '%s\n' "= ON CONFLICT DO UPDATE" "INSERT INTO mass $rows ON CONFLICT (k) DO UPDATE SET v = excluded.v || mass.v;" ;;
		rollback) printf '%s\n' "BEGIN;" "UPDATE mass SET v = v || 'a';" "= ROLLBACK" "ROLLBACK;" "= a scan after it" "SELECT sum(length(v)) FROM mass;" ;;
		savepoints) printf '%s\n' "BEGIN;" "= UPDATE in 10000 savepoints" "DO \$\$ BEGIN FOR j IN 0 .. 9999 LOOP
				BEGIN UPDATE mass SET v = v || 's' WHERE k > j * $(($2 / 10000)) AND k <= (j + 1) * $(($2 / 10000));
					IF j % 2 = 0 THEN PERFORM 1 / 0; END IF;
				EXCEPTION WHEN division_by_zero THEN END;
			END LOOP; END \$\$;" "= a scan after it" "SELECT sum(length(v)) FROM mass;" = "COMMIT;" ;;
		delete) printf '%s\n' "= DELETE" "DELETE FROM mass;" "= count(*) after it" "SELECT count(*) FROM mass;" ;;
		reader) printf '%s\n' '\! touch '"$KV_RUN/mass.go; while [ ! -e $KV_RUN/mass.held ]; do sleep 0.05; done" \
			"= a scan beside an UPDATE that is not committed" "SELECT sum(length(v)) FROM mass;" \
			"= 2000 ranges of 10 rows beside it" "DO \$\$ BEGIN FOR i IN 1 .. 2000 LOOP PERFORM v FROM mass WHERE k >= i * $(($2 / 2500)) ORDER BY k LIMIT 10; END LOOP; END \$\$;" ;;
	esac
}

# Another session's changes, from when the reader asks for them until it is done.
mass_writer() # schema
{
	while [ ! -e "$KV_RUN/mass.go" ]; do sleep 0.05; done
	PGOPTIONS="-c search_path=$1" kv_psql -c "BEGIN" -c "UPDATE mass SET v = v || 'a'" -c "\\! touch $KV_RUN/mass.held; while [ -e $KV_RUN/mass.go ]; do sleep 0.05; done" -c ROLLBACK >/dev/null
}

# One turn of a case with a table of the schema: lines "name|ms|ms of processors".
mass_turn() # schema case rows
{
	local writer=
	rm -f "$KV_RUN/mass.go" "$KV_RUN/mass.held"
	if [ "$2" = reader ]; then mass_writer "$1" & writer=$!; fi
	{
		if [ "$1" = mass_kv ]; then
			printf '%s\n' "DROP FOREIGN TABLE IF EXISTS mass;" "CREATE FOREIGN TABLE mass (k bigint NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k');"
		else
			printf '%s\n' "DROP TABLE IF EXISTS mass;" "CREATE TABLE mass (k bigint PRIMARY KEY, v text);"
		fi
		mass_case "$2" "$3"
		echo =
	} | awk -v ticks="\\\\! bash $KV_RUN/ticks" '/^=/ { if (timed) print "\\timing off\n\\echo ticks\n" ticks
			timed = $0 != "="; if (timed) print "\\echo " $0 "\n" ticks "\n\\timing on"; next } { print }' |
		PGOPTIONS="-c search_path=$1 -c max_parallel_workers_per_gather=0 -c client_min_messages=warning" kv_psql 2>&1 |
		awk '/^= / { name = substr($0, 3); ms = 0; getline before } /^Time: / { ms += $2 } /ERROR:/ { print > "/dev/stderr"; exit 1 }
			/^ticks$/ { getline after; printf "%s|%s|%d\n", name, ms, (after - before) * '"$((1000 / $(getconf CLK_TCK)))"' }'
	rm -f "$KV_RUN/mass.go"
	[ -z "$writer" ] || wait "$writer"
}

bench_mass()
{
	local rows what turn schema name least heap_ms kv_ms heap_cpu kv_cpu

	head_ "Statements on all rows: 50 bytes each"
	{ declare -f server_ticks; echo server_ticks; } >"$KV_RUN/ticks"
	ycsb_server default
	kv_psql -c "CREATE SCHEMA mass_heap" -c "CREATE SCHEMA mass_kv"
	for rows in $MASS_ROWS; do
		for what in $MASS_CASES; do
			for ((turn = 0; turn < MASS_TURNS; turn++)); do
				for schema in mass_heap mass_kv; do
					mass_turn $schema "$what" "$rows" | sed "s/^/$schema|/"
				done
			done >"$KV_RUN/mass.times"
			while IFS='|' read -r name heap_ms kv_ms heap_cpu kv_cpu; do
				line "$name, $rows rows" "$(ratio "$kv_ms" "$heap_ms") heap, CPU $(ratio "$kv_cpu" "$heap_cpu"); $heap_ms and $kv_ms ms, CPU $heap_cpu and $kv_cpu ms" \
					"1.5x heap" "$kv_ms <= 1.5 * $heap_ms"
			done < <(awk -F'|' '!($2 in seen) { seen[$2] = 1; order[++n] = $2 }
				!(($1, $2) in ms) || $3 < ms[$1, $2] { ms[$1, $2] = $3 } !(($1, $2) in t) || $4 < t[$1, $2] { t[$1, $2] = $4 }
				END { for (i = 1; i <= n; i++) { m = order[i]; print m "|" ms["mass_heap", m] "|" ms["mass_kv", m] "|" t["mass_heap", m] "|" t["mass_kv", m] } }' "$KV_RUN/mass.times")
		done
	done
	kv_psql -c "DROP FOREIGN TABLE mass_kv.mass" -c "DROP TABLE mass_heap.mass" -c "DROP SCHEMA mass_heap" -c "DROP SCHEMA mass_kv"
}
