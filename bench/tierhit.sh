# What a value of the second tier costs, against one of the value cache; run.sh sources it.
#
# The tier is a file in memory (tmpfs), so what is measured is the way there and back.  Rows of 4 kB are read by key, one after
# the other in one statement, without a value cache and then with one that has them all: the first statement of a session,
# which has not touched that memory before, and the best of five.
#
#   TIERHIT_ROWS=20000

TIERHIT_ROWS=${TIERHIT_ROWS:-$((20000 / share))}

tierhit_server() # value_cache
{
	kv_server_stop
	printf '%s\n' "kvfdw.recent_ring = 8MB" "kvfdw.value_cache = $1" "kvfdw.tier_path = '$tierhit_file'" "kvfdw.tier_size = 1GB" "kvfdw.page_cache = off" "max_worker_processes = 16" >"$KV_PGDATA/scan.conf"
	chmod a+r "$KV_PGDATA/scan.conf"
	kv_server_start
	kv_psql -c "SELECT pg_sleep(3)" >/dev/null
}

# Microseconds for each row: sets first, and us of the best statement; and hits of a statement, by column.
tierhit_run() # column
{
	local times
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	times=$(for _ in 1 2 3 4 5; do
		echo "EXPLAIN (ANALYZE, TIMING OFF) SELECT count(v) FROM generate_series(1, $read) g, LATERAL (SELECT v FROM tierhit WHERE k = 1 + (g * 7919::bigint % $read)::int OFFSET 0) l;"
	done | kv_psql | awk '/^Execution Time/ { print $3 }')
	first=$(kv_calc "$(head -n 1 <<<"$times") * 1000 / $read")
	hits=$(stat_of "$1 / 5" tierhit)
	us=$(kv_calc "$(sort -n <<<"$times" | head -n 1) * 1000 / $read")
}

bench_tierhit()
{
	local tierhit_file=/dev/shm/kvfdw-bench-$$.tier hits us first read=$((TIERHIT_ROWS * 4 / 5)) tier n

	head_ "A value of the second tier and one of the value cache, $read rows of 4 kB by key"
	tierhit_server 0
	kv_psql -c "CREATE FOREIGN TABLE tierhit (k int NOT NULL, v text) SERVER kvfdw"
	for n in $(seq 1 200 "$TIERHIT_ROWS"); do echo "INSERT INTO tierhit SELECT g, repeat(md5(g::text), 128) FROM generate_series($n, $((n + 199))) g; SELECT kvfdw_flush('tierhit'), pg_sleep(0.02);"; done | kv_psql >/dev/null
	tierhit_run tier_hits
	tier=$us
	say "  in the tier: $us us for each row, $first at first, $hits of $read rows there"
	tierhit_server 512MB
	kv_psql -c "SELECT kvfdw_prewarm('tierhit')" >/dev/null
	tierhit_run value_cache_hits
	say "  in the value cache: $us us for each row, $first at first, $hits of $read rows there"
	line "a row of the second tier in memory, against one of the value cache" "$tier us, $us us" ""
	kv_psql -c "DROP FOREIGN TABLE tierhit"
	kv_server_stop
	rm -f "$KV_PGDATA/scan.conf" "$tierhit_file"
	kv_server_start
}
