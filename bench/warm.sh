# The lines of make bench with a clean restart; run.sh sources it.
#
# Hot point reads before the server stops, right after it has started again, and after another restart
# whose notes of what was cached are removed.  The table is larger than the caches in memory; what has left them
# is in the second tier, a file in memory, and the data directory's device has QUEUE_IOPS reads a second, as
# in queue.sh.
#
#   WARM_ROWS=150000         of 1 kB
#   WARM_SECONDS=30          of a run
#   QUEUE_IOPS, YCSB_SKEW    as there

WARM_ROWS=${WARM_ROWS:-$((150000 / share))}
WARM_SECONDS=${WARM_SECONDS:-$((30 / share > 5 ? 30 / share : 5))}

# The server again; warming: yes, or no.
warm_server() # limited? warming
{
	kv_server_stop
	memory_unlimit
	if [ "$2" = no ]; then
		kv_forget_warm
		rm -f "$warm_tier"
	fi
	# with a tier the default leaves no worker to read what was noted
	printf '%s\n' "kvfdw.value_cache = 48MB" "kvfdw.recent_ring = 16MB" "kvfdw.tier_path = '$warm_tier'" "kvfdw.tier_size = 1GB" \
		"max_worker_processes = 16" >"$KV_PGDATA/scan.conf"
	chmod a+r "$KV_PGDATA/scan.conf"
	[ "$1" = no ] || iops_limit "$QUEUE_IOPS" || return 1
	kv_server_start
}

# One run of hot reads; says what came of it, and sets rate, first (reads in its first second) and device (reads).
warm_run() # when seconds
{
	local dir=$KV_RUN/warm reads cache recent tier_hits
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	pgbench -n -M prepared -c 16 -j "$(nproc)" -T "$2" -P 1 --random-seed="$KV_SEED" -f "$dir/read.sql" >"$dir/out" 2>&1 ||
		{ cat "$dir/out" >&2; kv_die "pgbench failed"; }
	rate=$(awk '/^tps = / { print int($3); exit }' "$dir/out")
	first=$(awk '/^progress: / { print int($4); exit }' "$dir/out")
	read -r reads cache recent tier_hits device < <(kv_psql -c "SELECT concat_ws(' ', point_reads, value_cache_hits, recent_ring_hits, tier_hits, device_reads)
		FROM kvfdw_stat_tables WHERE relid = 'warm'::regclass")
	say "  $1: $rate reads/s, $first in the first second; of $reads $cache from the value cache, $recent recent, $tier_hits from the tier, $device from the device"
}

bench_warm()
{
	local warm_tier=/dev/shm/kvfdw-bench-$$.tier limited=yes rate first device
	local before cold warm cold_device warm_device warm_first cold_first before_device

	head_ "A clean restart: $WARM_ROWS rows of 1 kB, zipfian $YCSB_SKEW, 16 clients, $WARM_SECONDS s each"
	mkdir -p "$KV_RUN/warm"
	printf '%s\n' "\\set n 1 + permute(random_zipfian(1, $WARM_ROWS, $YCSB_SKEW) - 1, $WARM_ROWS)" "SELECT v FROM warm WHERE k = :n;" >"$KV_RUN/warm/read.sql"
	warm_server yes no || { limited=no; warm_server no no; }
	kv_psql -c "CREATE FOREIGN TABLE warm (k bigint NOT NULL, v text) SERVER kvfdw"
	# slowly enough for the tier to follow
	pgbench -n -c 1 -t $((WARM_ROWS / 500)) -f <(printf '%s\n' "\\set n :n + 500" "INSERT INTO warm SELECT g, repeat(md5(g::text), 32) FROM generate_series(:n - 499, :n) g;" \
		"SELECT pg_sleep(0.02);") -D n=0 >"$KV_RUN/warm/out" 2>&1 || { cat "$KV_RUN/warm/out" >&2; kv_die "the load failed"; }
	kv_psql -c "ANALYZE warm" -c "SELECT kvfdw_flush('warm')" -c CHECKPOINT >/dev/null
	say "  the tier: $(kv_psql -c "SELECT format('%s of %s blocks, %s inserted, %s dropped', used_bytes / block_size, size_bytes / block_size, inserted, dropped) FROM kvfdw_stat_cache WHERE cache = 'tier'")"
	warm_run "to fill the caches" "$WARM_SECONDS"
	warm_run "before the stop" "$WARM_SECONDS"
	before=$rate before_device=$device
	warm_server $limited yes
	warm_run "after a clean restart" "$WARM_SECONDS"
	warm=$rate warm_device=$device warm_first=$first
	warm_server $limited no
	warm_run "after one without what was noted" "$WARM_SECONDS"
	cold=$rate cold_device=$device cold_first=$first
	line "device reads of hot reads: before a restart, after it, without notes" "$before_device, $warm_device, $cold_device" ""
	line "hot reads after a clean restart$([ $limited = yes ] || printf ' (home not slowed)'), first $WARM_SECONDS s" "$(ratio "$warm" "$before") before ($(ratio "$cold" "$before") without notes)" "0.9x" "$warm >= 0.9 * $before"
	line "… in the first second, reads" "$warm_first ($cold_first without notes)" ""
	kv_psql -c "DROP FOREIGN TABLE warm"
	kv_server_stop
	rm -f "$KV_PGDATA/scan.conf" "$warm_tier"
	memory_unlimit
	kv_server_start
}
