# The COPY lines of make bench; run.sh sources it.
#
# Level 'full' comes after heap's load and its CHECKPOINT, so it writes to recycled WAL files. In a fresh cluster
# the server creates the files first, which is a third byte for each byte that is loaded.

# One table's load.  Sets KV_SECONDS, KV_SETTLED_SECONDS and KV_DEVICE_BYTES.
load_table() # table
{
	kv_copy_file "$1" "$KV_RUN/rows"
	say "  $1: $KV_SECONDS s, $(kv_calc "$USER_BYTES / 1e6 / $KV_SECONDS") MB/s; $KV_SETTLED_SECONDS s with its CHECKPOINT; $KV_DEVICE_BYTES bytes to the device"
}

# A load at a level below which rows are lost with the power: what makes it durable is part of it.
load_durable() # level heap-seconds heap-bytes-per-byte least-ratio most-bytes-per-byte
{
	local per_byte

	make_kv "kv_$1" "$1"
	load_table "kv_$1"
	per_byte=$(kv_calc "int(1000 * $KV_DEVICE_BYTES / $USER_BYTES) / 1000")
	line "COPY BINARY, 8 B + 4 KB rows, random keys, wal '$1', with CHECKPOINT" \
		"$(ratio "$2" "$KV_SETTLED_SECONDS") heap, $(kv_calc "int(100 * $USER_BYTES / 1e6 / $KV_SETTLED_SECONDS / $fio_write)") % of fio" \
		"$4x heap" "$2 >= $4 * $KV_SETTLED_SECONDS"
	line "device bytes written per user byte, wal '$1'" "$per_byte (heap $3)" "<= $5" "$per_byte <= $5"
	kv_psql -c "DROP FOREIGN TABLE kv_$1"
}

bench_load()
{
	local heap_s heap_settled_s heap_per_byte per_byte index

	head_ "COPY BINARY, $ROWS rows, random keys, one session (WAL files: created for heap, recycled for level full)"
	make_kv kv none
	make_heap heap
	make_rows "$KV_RUN/rows" "$ROWS" $SIZE
	load_table heap
	heap_s=$KV_SECONDS heap_settled_s=$KV_SETTLED_SECONDS
	heap_per_byte=$(kv_calc "int(100 * $KV_DEVICE_BYTES / $USER_BYTES) / 100")
	if wants load; then
		# first, while there are WAL segments of heap's to use again
		load_durable full "$heap_settled_s" "$heap_per_byte" 3 2.15
		load_durable keys "$heap_settled_s" "$heap_per_byte" 10 1.06
	fi
	load_table kv
	say "  kv:   engine's own count: $(stat_of "value_bytes || ' value bytes, ' || device_write_bytes || ' written'" kv)"
	line "COPY BINARY, 8 B + 4 KB rows, random keys, one session" \
		"$(ratio "$heap_s" "$KV_SECONDS") heap, $(kv_calc "int(100 * $USER_BYTES / 1e6 / $KV_SECONDS / $fio_write)") % of fio" \
		"10x heap" "$heap_s >= 10 * $KV_SECONDS"
	per_byte=$(kv_calc "int(1000 * $KV_DEVICE_BYTES / $USER_BYTES) / 1000")
	line "device bytes written per user byte, that load" "$per_byte (heap $heap_per_byte)" "<= 1.05" "$per_byte <= 1.05"
	# until a checkpoint the runs before the flush stay
	kv_psql -c "SELECT kvfdw_flush('kv')" -c CHECKPOINT >/dev/null
	index=$(kv_calc "int(100 * $(run_files kv) / $ROWS) / 100")
	line "bytes of index per 8-byte key, frozen" "$index" "<= 24" "$index <= 24"
	rm -f "$KV_RUN/rows"
	kv_psql -c ANALYZE
	bench_loaded=1
}
