# The lines of make bench with defaults only, and of COPY into many shards; run.sh
# sources it.
#
# defaults: a table made without options, in a server with kvfdw's own settings, right
# after its load: no flush, no ANALYZE, no checkpoint but the server's.  Heap, created
# and loaded the same way, and fio are measured for comparison.  Tables are analyzed by the server itself.  Cold: the server is restarted and the page
# cache emptied; what the load has left in write buffers and memtables is recovered then.  As
# a restart may flush, each cold line says how many runs the table has.
#
# Then clients of pgbench overwrite DEFAULTS_OVERWRITE_MB of each table ten times, a row at a time.
#
# shards: the same rows into tables of more and more shards.  After each the table goes,
# and the next load begins when its space has come back.
#
#   DEFAULTS_OVERWRITE_MB=256
#   DEFAULTS_CLIENTS=8
#   SHARDS_COUNTS="1 16 64 256 1000"
#   SHARDS_ROWS=250000
#   SHARDS_LEVEL=none

DEFAULTS_OVERWRITE_MB=${DEFAULTS_OVERWRITE_MB:-$((256 / share))}
DEFAULTS_CLIENTS=${DEFAULTS_CLIENTS:-8}
SHARDS_COUNTS=${SHARDS_COUNTS:-1 16 64 256 1000}
SHARDS_ROWS=${SHARDS_ROWS:-$((250000 / share))}
SHARDS_LEVEL=${SHARDS_LEVEL:-none}

# Load a table, and no more.  Sets seconds.
plain_load() # table file
{
	local start

	sync
	start=$(kv_now)
	kv_psql -c "COPY $1 FROM '$2' (FORMAT binary)"
	seconds=$(kv_calc "$(kv_now) - $start")
}

# A statement in both tables, each in a cold server if so.  Sets heap_s and kv_s.
beside_heap() # cold|warm what sql with @T for the table
{
	local t start answer heap_answer

	for t in default_heap default_kv; do
		[ "$1" = warm ] || kv_cold
		start=$(kv_now)
		answer=$(kv_psql -c "${3//@T/$t}")
		seconds=$(kv_calc "$(kv_now) - $start")
		say "  $2, $t: $seconds s$([ $t = default_heap ] || printf ', %s runs' "$(stat_of runs default_kv)")"
		if [ $t = default_heap ]; then
			heap_s=$seconds heap_answer=$answer
		else
			kv_s=$seconds
			[ "$answer" = "$heap_answer" ] || kv_die "$2: heap says $heap_answer, kvfdw $answer"
		fi
	done
}

default_points() # cold|warm clients reads what
{
	local t n rate=

	for t in default_heap default_kv; do
		[ "$1" = warm ] || kv_cold
		read -r n seconds < <("$KV_LOAD" points $t "$KV_SEED" "$ROWS" $SIZE "$3" "$2")
		say "  $4, $t: $(kv_calc "int($n / $seconds)") reads/s"
		[ $t = default_heap ] && heap_s=$seconds || kv_s=$seconds
	done
	line "$4" "$(ratio "$heap_s" "$kv_s") heap$([ "$1" = warm ] || printf ', %s %% of fio' "$(kv_calc "int(100 * $3 / $kv_s / $fio_random32)")")" ""
}

# Full ordered scans at once of one table, cold.  Sets seconds and bytes, of values, by the engine.
default_each() # number table
{
	local out

	kv_cold
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	out=$("$KV_LOAD" each "$1" "$default_sum" "$(ordered "$2")")
	seconds=${out%% *}
	bytes=$(kv_psql -c "SELECT coalesce(sum(bytes), 0) $scan_reads")
	say "  $1 ordered scans at once, $2: $seconds s, $bytes bytes read by the engine"
}

# One ordered scan of default_kv, cold, against the one right after the load.
default_after() # what [target]
{
	default_each 1 default_kv
	line "defaults: ordered scan right after the load / after $1, cold" \
		"time $(times_ "$loaded_s" "$seconds"), device bytes $(times_ "$loaded_bytes" "$bytes")" "${2:-}" \
		"${2:+$loaded_s <= 1.2 * $seconds && $loaded_bytes <= 1.1 * $bytes}"
}

# Bytes of a table's files, as large as they get while it is overwritten.
default_largest() # table
{
	local size="pg_total_relation_size('$1')"
	[ "$1" = default_heap ] || size="(SELECT value_file_bytes + obsolete_bytes FROM kvfdw_stat_tables WHERE relid = '$1'::regclass)"
	while sleep 1; do kv_psql -c "SELECT $size" 2>/dev/null || true; done
}

# Each row of a new, smaller table is overwritten ten times, in random order.
default_overwrites()
{
	local t rows=$((DEFAULTS_OVERWRITE_MB * 256)) sampler before after written rate heap_rate largest

	kv_psql -c "DROP TABLE default_heap" -c "DROP FOREIGN TABLE default_kv"
	kv_psql -c "CREATE TABLE default_heap (k bigint PRIMARY KEY, v bytea)"
	kv_psql -c "CREATE FOREIGN TABLE default_kv (k bigint NOT NULL, v bytea) SERVER kvfdw" -c "CREATE TABLE default_noise (noise bytea)" \
		-c "ALTER TABLE default_noise ALTER noise SET STORAGE external" \
		-c "INSERT INTO default_noise SELECT string_agg(decode(md5(g::text), 'hex'), '') FROM generate_series(1, $SIZE / 16 + 256) g"
	for t in default_heap default_kv; do
		kv_psql -c "INSERT INTO $t SELECT k, substring(noise, (1 + k % 4096)::int, $SIZE) FROM (SELECT 1 + (i * 7919::bigint) % $rows k FROM generate_series(1, $rows) i) s, default_noise ON CONFLICT DO NOTHING"
		printf '\\set k random(1, %s)\n\\set at random(1, 4096)\nUPDATE %s SET v = substring(noise, :at::int, %s) FROM default_noise WHERE k = :k;\n' "$rows" $t $SIZE >"$KV_RUN/overwrites.sql"
		kv_psql -c CHECKPOINT
		sync
		read -r _ before < <(kv_device_bytes "$KV_PGDATA")
		default_largest $t >"$KV_RUN/largest" &
		sampler=$!
		pgbench -n -M prepared -c "$DEFAULTS_CLIENTS" -j "$(nproc)" -t $((rows * 10 / DEFAULTS_CLIENTS)) -f "$KV_RUN/overwrites.sql" >"$KV_RUN/overwrites.out" 2>&1 ||
			{ cat "$KV_RUN/overwrites.out" >&2; kv_die "pgbench failed"; }
		kill $sampler 2>/dev/null || true
		wait $sampler 2>/dev/null || true
		kv_psql -c CHECKPOINT
		sync
		read -r _ after < <(kv_device_bytes "$KV_PGDATA")
		rate=$(awk '/^tps = / { print int($3); exit }' "$KV_RUN/overwrites.out")
		written=$(kv_calc "($after - $before) / ($rows * 10 * $SIZE)")
		largest=$(sort -n "$KV_RUN/largest" | awk -v bytes=$((rows * (SIZE + 8))) 'END { printf "%.2f", $1 / bytes }')
		say "  overwrites, $t: $rate/s, $written device bytes per byte, files at most $largest times the values"
		[ $t = default_kv ] || heap_rate=$rate
	done
	line "defaults: overwrites of ten times the data, $DEFAULTS_CLIENTS clients" "$(ratio "$rate" "$heap_rate") heap" ""
	line "… device bytes, WAL included, per byte; files by values" "$written; $largest" ""
	kv_psql -c "DROP TABLE default_noise"
}

bench_defaults()
{
	local heap_s kv_s seconds bytes heap_load kv_load default_sum sum loaded_s loaded_bytes

	head_ "Defaults only, right after the load: $ROWS rows of 8 B + 4 KB, random keys"
	default_sum=$("$KV_LOAD" sums "$KV_SEED" "$ROWS" $SIZE)
	make_rows "$KV_RUN/rows" "$ROWS" $SIZE
	# tables are analyzed as by default
	kv_psql -c "ALTER SYSTEM SET autovacuum = on" -c "SELECT pg_reload_conf()" >/dev/null
	kv_psql -c "CREATE TABLE default_heap (k bigint PRIMARY KEY, v bytea)"
	kv_psql -c "CREATE FOREIGN TABLE default_kv (k bigint NOT NULL, v bytea) SERVER kvfdw"
	plain_load default_heap "$KV_RUN/rows"; heap_load=$seconds
	plain_load default_kv "$KV_RUN/rows"; kv_load=$seconds
	rm -f "$KV_RUN/rows"
	say "  load: heap $heap_load s, kvfdw $kv_load s"
	line "defaults: COPY, random keys" "$(ratio "$heap_load" "$kv_load") heap, $(kv_calc "int(100 * $USER_BYTES / 1e6 / $kv_load / $fio_write)") % of fio" ""
	sum="count(*), sum(length(v)), sum(get_byte(v, length(v) - 1))"
	# the first ones while nothing has been flushed
	beside_heap warm "defaults: full scan right after the load" "SELECT $sum FROM @T"
	line "defaults: full scan right after the load" "$(of_heap_and_fio)" ""
	beside_heap warm "defaults: ordered scan right after the load" "SELECT $sum FROM (SELECT k, v FROM @T ORDER BY k) s"
	line "defaults: ordered scan right after the load" "$(of_heap_and_fio)" ""
	default_points warm 32 "$((READS / 10))" "defaults: point SELECT right after the load, 32 clients"
	beside_heap cold "defaults: full scan, cold" "SELECT $sum FROM @T"
	line "defaults: full scan, cold${KV_WARM:+ (warm: not root)}" "$(of_heap_and_fio)" ""
	beside_heap cold "defaults: COPY of all rows, cold" "COPY (SELECT k, v FROM @T) TO '/dev/null' (FORMAT binary)"
	line "defaults: COPY of all rows, cold" "$(of_heap_and_fio)" ""
	beside_heap cold "defaults: ordered scan, cold" "SELECT $sum FROM (SELECT k, v FROM @T ORDER BY k) s"
	line "defaults: ordered scan, cold" "$(of_heap_and_fio)" ""
	default_points cold 32 "$((READS / 10))" "defaults: cold point SELECT, 32 clients"
	default_each 1 default_kv; loaded_s=$seconds loaded_bytes=$bytes
	default_each 8 default_heap; heap_s=$seconds
	default_each 8 default_kv; kv_s=$seconds
	line "defaults: eight ordered scans at once, cold" \
		"$(ratio "$heap_s" "$kv_s") heap, table read $(kv_calc "int(100 * $bytes / $USER_BYTES) / 100") times" ""
	line "defaults: device bytes of eight ordered scans at once / one" "$(times_ "$bytes" "$loaded_bytes")" "<= 1.1" \
		"$bytes <= 1.1 * $loaded_bytes"
	kv_psql -c "SELECT kvfdw_flush('default_kv')" -c CHECKPOINT >/dev/null
	default_after "a flush" "<= 1.2 and 1.1"
	kv_psql -c "SELECT kvfdw_compact('default_kv', true)" -c CHECKPOINT >/dev/null
	default_after "an order pass"
	default_overwrites
	kv_psql -c "DROP TABLE default_heap" -c "DROP FOREIGN TABLE default_kv" -c "ALTER SYSTEM RESET autovacuum" \
		-c "SELECT pg_reload_conf()" >/dev/null
}

bench_shards()
{
	local n seconds first= writes

	head_ "COPY of $SHARDS_ROWS rows of 8 B + 4 KB into more and more shards, wal '$SHARDS_LEVEL', default settings"
	make_rows "$KV_RUN/rows" "$SHARDS_ROWS" $SIZE
	for n in $SHARDS_COUNTS; do
		make_kv sharded "$SHARDS_LEVEL" "$n"
		kv_psql -c CHECKPOINT -c "SELECT kvfdw_stat_reset()" >/dev/null
		plain_load sharded "$KV_RUN/rows"
		writes=$(kv_psql -c "SELECT calls FROM kvfdw_stat_io WHERE kind = 'value write'")
		: "${first:=$seconds}"
		say "  $n shards: $seconds s, $(kv_calc "int(10 * $SHARDS_ROWS / $writes) / 10") values per write"
		line "COPY into $n shards / into ${SHARDS_COUNTS%% *}" "$(times_ "$seconds" "$first")" "<= 1.2" "$seconds <= 1.2 * $first"
		kv_psql -c "DROP FOREIGN TABLE sharded"
		while compgen -G "$KV_PGDATA/kvfdw/dropped.*" >/dev/null; do sleep 0.5; done
	done
	rm -f "$KV_RUN/rows"
}
