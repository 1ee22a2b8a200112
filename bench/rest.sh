# The lines of tables at rest after a load in random order; run.sh sources it.
#
# A table with the options that it has by default, but for its level, gets rows of 8 + 4096 bytes in one COPY. The server has its
# own settings, and may use a third of what the rows take (but 512 MB at least). Then no session uses it, so the compactor sorts
# its values: what the load and all that wrote to the device is counted. Of the default level full, for which the WAL is
# counted too, a minute after the load the table is scanned in key order, cold, once and eight times at once; and both again when it is in order.
#
#   REST_ROWS=500000
#   REST_LEVELS="none keys full"

REST_ROWS=${REST_ROWS:-$ROWS}
REST_LEVELS=${REST_LEVELS:-none keys full}
REST_BYTES=$((REST_ROWS * (SIZE + 8)))

# So many ordered scans at once, cold.  Sets mbs, of all together; fio, before and after; and bytes, read by the engine.
rest_scan() # number when
{
	local before out
	kv_cold
	read -r before _ < <(KV_FIO_SECONDS=2 kv_fio read 256k 4)
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	out=$("$KV_LOAD" each "$1" "$rest_sum" "$(ordered rested)")
	bytes=$(kv_psql -c "SELECT coalesce(sum(bytes), 0) $scan_reads")
	read -r fio _ < <(KV_FIO_SECONDS=2 kv_fio read 256k 4)
	fio=$(kv_calc "($before + $fio) / 2")
	mbs=$(kv_calc "$1 * $REST_BYTES / 1e6 / ${out%% *}")
	say "  $1 ordered scans at once, cold, $2: $mbs MB/s (fio $fio), $bytes bytes read by the engine; $(stat_of "shards || ' shards, ' || unsorted_bytes || ' of ' || live_bytes || ' bytes not in order'" rested)"
}

rest_written() { kv_psql -c CHECKPOINT; sync; kv_device_bytes "$KV_PGDATA" | awk '{ print $2 }'; }

# Wait until all is in order, as far as the compactor takes that for worth while, or nothing came of it for two minutes, as a compaction job
# over a large shard may take.  Sets unsorted, bytes that are left, and seconds since the load.
rest_ordered()
{
	local last= since
	since=$(kv_now)
	while kv_true "$(kv_now) - $since < 120"; do
		unsorted=$(stat_of unsorted_bytes rested)
		[ "$unsorted" = "$last" ] || since=$(kv_now)
		last=$unsorted
		[ $((unsorted * 50)) -gt "$REST_BYTES" ] || break
		sleep 1
	done
	seconds=$(kv_calc "int($since - $loaded)")
}

rest_level() # level
{
	local before loaded start mbs fio bytes once least=1.06 least_ordered=2.1 per_byte seconds unsorted
	make_kv rested "$1"
	before=$(rest_written)
	start=$(kv_now)
	"$KV_LOAD" gen "$KV_SEED" 0 "$REST_ROWS" "$SIZE" | kv_psql -c "COPY rested FROM STDIN (FORMAT binary)"
	loaded=$(kv_now)
	per_byte=$(kv_calc "($(rest_written) - $before) / $REST_BYTES")
	say "  level $1: loaded in $(kv_calc "$loaded - $start") s"
	if [ "$1" = full ]; then
		line "device bytes per user byte of a random load, wal 'full'" "$per_byte" ""
		sleep "$(kv_calc "$loaded + 60 - $(kv_now)")"
		rest_scan 1 "a minute after the load"
		once=$bytes
		line "defaults: ordered scan a minute after a random load, cold, $rest_data" "$(kv_calc "$mbs / $fio")x fio" "0.8x" "$mbs >= 0.8 * $fio"
		rest_scan 8 "then"
		line "… device bytes of eight at once / one" "$(times_ "$bytes" "$once")" "<= 1.1" "$bytes <= 1.1 * $once"
	else
		line "device bytes per user byte of a random load, wal '$1'" "$per_byte" "<= $least" "$per_byte <= $least"
	fi
	rest_ordered
	per_byte=$(kv_calc "($(rest_written) - $before) / $REST_BYTES")
	say "  level $1: in order as far as it comes $seconds s after the load, but for $unsorted bytes"
	if [ "$1" = full ]; then
		line "… when all is in order" "$per_byte, $seconds s after the load" ""
		rest_scan 1 "in order"
		once=$bytes
		line "… ordered scan then, cold" "$(kv_calc "$mbs / $fio")x fio" "0.8x" "$mbs >= 0.8 * $fio"
		rest_scan 8 "in order"
		line "… device bytes of eight at once / one" "$(times_ "$bytes" "$once")" "<= 1.1" "$bytes <= 1.1 * $once"
	else
		line "… when all is in order" "$per_byte, $seconds s after the load" "<= $least_ordered" "$per_byte <= $least_ordered && $unsorted * 50 <= $REST_BYTES"
	fi
	kv_psql -c "DROP FOREIGN TABLE rested" -c CHECKPOINT
	while compgen -G "$KV_PGDATA/kvfdw/dropped.*" >/dev/null; do sleep 0.5; done
}

bench_rest()
{
	local level rest_sum rest_data limit=$((REST_BYTES / 3))
	[ $limit -ge $((512 << 20)) ] || limit=$((512 << 20))
	rest_data="data $(kv_calc "int(10 * $REST_BYTES / $limit) / 10")x memory"
	head_ "Tables at rest after a random load: $REST_ROWS rows of 8 B + 4 KB, $rest_data"
	KV_FIO_SIZE=$((REST_BYTES < (4 << 30) ? REST_BYTES : 4 << 30)) kv_fio_prepare
	rest_sum=$("$KV_LOAD" sums "$KV_SEED" "$REST_ROWS" $SIZE)
	kv_server_stop
	if ! memory_limit $limit; then
		rest_data="memory not limited"
		say "  no permission for a memory cgroup"
	fi
	kv_server_start
	for level in $REST_LEVELS; do rest_level "$level"; done
	rm -f "$KV_RUN/fio"
	kv_server_stop
	memory_unlimit
	kv_server_start
}
