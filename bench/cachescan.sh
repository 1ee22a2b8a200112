# What a scan of much more than the value cache costs those who read by key; run.sh sources it.
#
# Hits per read of a hot set that takes three quarters of the value cache, read by key, zipfian: alone, while full scans
# of a table of ten times the cache run, and while short ranges all over it are read.  Nothing but the value cache keeps values:
# there is no recent ring, and reads go past the page cache.
#
#   CACHESCAN_MB=16        of value cache
#   CACHESCAN_SECONDS=5    of a run
#   CACHESCAN_CLIENTS=4    that read the hot set

CACHESCAN_MB=${CACHESCAN_MB:-16}
CACHESCAN_SECONDS=${CACHESCAN_SECONDS:-$((5 / share > 1 ? 5 / share : 1))}
CACHESCAN_CLIENTS=${CACHESCAN_CLIENTS:-4}

# Hits per hot read while others run a script, if one is named.  Sets hits, reads and others' rows.
cachescan_run() # [script]
{
	local dir=$KV_RUN/cachescan beside=

	pgbench -n -M prepared -c "$CACHESCAN_CLIENTS" -T 2 --random-seed="$KV_SEED" -f "$dir/hot.sql" >/dev/null 2>&1
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	if [ -n "${1:-}" ]; then
		pgbench -n -M prepared -c 1 -T "$CACHESCAN_SECONDS" --random-seed="$KV_SEED" -f "$dir/$1.sql" >"$dir/beside" 2>&1 &
		beside=$!
	fi
	pgbench -n -M prepared -c "$CACHESCAN_CLIENTS" -j "$(nproc)" -T "$CACHESCAN_SECONDS" --random-seed="$((KV_SEED + 1))" -f "$dir/hot.sql" >"$dir/out" 2>&1 ||
		{ cat "$dir/out" >&2; kv_die "pgbench failed"; }
	[ -z "$beside" ] || wait "$beside" || { cat "$dir/beside" >&2; kv_die "pgbench failed"; }
	read -r hits reads < <(kv_psql -c "SELECT round(value_cache_hits / point_reads::numeric, 3) || ' ' || point_reads FROM kvfdw_stat_tables WHERE relid = 'hot'::regclass")
	others=$(stat_of rows_read cold)
}

bench_cachescan()
{
	local dir=$KV_RUN/cachescan hot=$((CACHESCAN_MB * 192)) cold=$((CACHESCAN_MB * 2560)) hits reads others alone what

	head_ "Value cache of $CACHESCAN_MB MB, $CACHESCAN_CLIENTS clients read $hot hot blocks, $((cold / 256)) MB beside, $CACHESCAN_SECONDS s each"
	mkdir -p "$dir"
	kv_server_stop
	kv_forget_warm
	printf '%s\n' "kvfdw.value_cache = ${CACHESCAN_MB}MB" "kvfdw.recent_ring = 0" "kvfdw.page_cache = off" >"$KV_PGDATA/scan.conf"
	chmod a+r "$KV_PGDATA/scan.conf"
	kv_server_start
	for t in hot cold; do
		kv_psql -c "CREATE FOREIGN TABLE $t (k int NOT NULL, v text) SERVER kvfdw" \
			-c "INSERT INTO $t SELECT g, repeat(md5(g::text), 128) FROM generate_series(1, ${!t}) g" -c "SELECT kvfdw_flush('$t')" >/dev/null
	done
	printf '%s\n' "\\set k 1 + permute(random_zipfian(1, $hot, 1.001) - 1, $hot)" "SELECT v FROM hot WHERE k = :k;" >"$dir/hot.sql"
	printf '%s\n' "SELECT count(v) FROM cold;" >"$dir/scan.sql"
	printf '%s\n' "\\set k random(1, $((cold - 50)))" "SELECT v FROM cold WHERE k BETWEEN :k AND :k + 49;" >"$dir/ranges.sql"
	cachescan_run
	alone=$hits
	say "  alone: $hits hits per read, $((reads / CACHESCAN_SECONDS)) reads/s"
	for what in scan ranges; do
		cachescan_run $what
		say "  beside $what: $hits hits per read, $((reads / CACHESCAN_SECONDS)) reads/s; $((others / CACHESCAN_SECONDS)) rows/s beside"
		line "hits of a hot set beside $([ $what = scan ] && echo full scans || echo short ranges) of 10 x the value cache" "$hits of $alone alone" "0.8 of alone" "$hits >= 0.8 * $alone"
	done
	kv_psql -c "DROP FOREIGN TABLE hot, cold"
	kv_server_stop
	rm -f "$KV_PGDATA/scan.conf"
	kv_server_start
}
