# The upsert lines of make bench; run.sh sources it.
#
# pgbench, prepared: INSERT … ON CONFLICT (k) DO UPDATE SET n = n + 1 on few keys, one
# row a transaction, or 100 rows in key order.  The tables take turns, and have the
# settings that they have by default: wal 'full'.  The counters are compared with
# the number of upserts at the end.
#
#   UPSERT_ROWS=1000000   upserts of each line and table; one row by one client: a tenth
#   UPSERT_KEYS=1000
#   UPSERT_TURNS=4        runs that they are spread over
#   UPSERT_CLIENTS="1 8 32"

UPSERT_ROWS=${UPSERT_ROWS:-$((1000000 / share))}
UPSERT_KEYS=${UPSERT_KEYS:-1000}
UPSERT_TURNS=${UPSERT_TURNS:-4}
UPSERT_CLIENTS=${UPSERT_CLIENTS:-1 8 32}

# Prints upserts/s of one run.
upsert_run() # table clients rows-a-transaction upserts turn
{
	local out=$KV_RUN/upsert-$1.out script=$KV_RUN/upsert-$1.sql
	if [ "$3" = 1 ]; then
		printf '\\set k random(1, %d)\nINSERT INTO %s VALUES (:k, 1, %s)' "$UPSERT_KEYS" "$1" "repeat('x', 100)"
	else
		printf '\\set k random(1, %d)\nINSERT INTO %s SELECT k, 1, %s FROM generate_series(:k, %d, %d) k' \
			$((UPSERT_KEYS / $3)) "$1" "repeat('x', 100)" "$UPSERT_KEYS" $((UPSERT_KEYS / $3))
	fi >"$script"
	echo " ON CONFLICT (k) DO UPDATE SET n = $1.n + 1;" >>"$script"
	pgbench -n -M prepared -c "$2" -j "$(nproc)" -t $(($4 / $3 / $2)) --random-seed=$((KV_SEED + $5)) \
		-f "$script" >"$out" 2>&1 || { cat "$out" >&2; kv_die "pgbench failed on $1"; }
	awk -v n="$3" '/^tps = / { print int($3 * n); exit }' "$out"
}

bench_upsert()
{
	local clients rows upserts t turn rate total
	local -A seconds=() made=()

	head_ "INSERT … ON CONFLICT DO UPDATE on $UPSERT_KEYS keys, $UPSERT_ROWS rows"
	kv_psql -c "CREATE FOREIGN TABLE kv_upsert (k int, n bigint, v text) SERVER kvfdw" \
		-c "CREATE TABLE heap_upsert (k int PRIMARY KEY, n bigint, v text)" \
		-c "ALTER SYSTEM SET autovacuum = on" -c "SELECT pg_reload_conf()" >/dev/null
	for clients in $UPSERT_CLIENTS; do
		for rows in 1 100; do
			upserts=$((UPSERT_ROWS / UPSERT_TURNS))
			[ "$clients-$rows" != 1-1 ] || upserts=$((upserts / 10))
			upserts=$((upserts / clients / rows * clients * rows))
			for t in heap_upsert kv_upsert; do
				kv_psql -c "TRUNCATE $t" -c "INSERT INTO $t SELECT k, 0, repeat('x', 100) FROM generate_series(1, $UPSERT_KEYS) k"
				seconds[$t]=0
			done
			for turn in $(seq "$UPSERT_TURNS"); do
				for t in heap_upsert kv_upsert; do
					kv_psql -c CHECKPOINT
					rate=$(upsert_run $t "$clients" $rows $upserts "$turn")
					say "  $t, $clients clients, $rows rows, turn $turn: $rate upserts/s"
					seconds[$t]=$(kv_calc "${seconds[$t]} + $upserts / $rate")
				done
			done
			total=$((upserts * UPSERT_TURNS))
			for t in heap_upsert kv_upsert; do
				[ "$(kv_psql -c "SELECT sum(n) FROM $t")" = $total ] || kv_die "the counters of $t are not $total"
			done
			line "upserts of $([ $rows = 1 ] && echo 1 row || echo $rows rows), $clients client$([ "$clients" = 1 ] || echo s), wal 'full'" \
				"$(ratio "${seconds[heap_upsert]}" "${seconds[kv_upsert]}") heap" "1x heap" \
				"${seconds[heap_upsert]} >= ${seconds[kv_upsert]}"
		done
	done
	kv_psql -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
	kv_psql -c "DROP TABLE heap_upsert" -c "DROP FOREIGN TABLE kv_upsert"
}
