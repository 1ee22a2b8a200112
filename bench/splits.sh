# The lines of shards that are split while a table is loaded; run.sh sources it.
#
# A table with the options that it has by default gets rows of 8 + 4096 bytes, SPLITS_BATCH a
# transaction, by one session and by eight, under keys in any order and under keys that
# only grow: the same with shards that are never split (0) and with each size, in turns that
# begin with another of them each time.  A pause is the longest transaction; the worst second that
# in which the fewest rows were committed, but for the first and the last.  The rates are
# compared within each turn.  How long writers waited for a change of shards the server log says.
# The table of the last turn that was split, with most sessions, is scanned in key order, cold: right after its
# load once and eight times at once, and when each of its shards has been put in order.
#
#   SPLITS_ROWS=400000      rows of each load, about 1.6 GB
#   SPLITS_BATCH=100
#   SPLITS_TURNS=3
#   SPLITS_SIZES="1024 128" MB
#   SPLITS_CLIENTS="1 8"
#   SPLITS_KEYS="random serial"
#   SPLITS_LEVELS="full"    wal levels; all of it for each

SPLITS_ROWS=${SPLITS_ROWS:-$((400000 / share))}
SPLITS_BATCH=${SPLITS_BATCH:-100}
SPLITS_TURNS=${SPLITS_TURNS:-3}
SPLITS_SIZES=${SPLITS_SIZES:-1024 128}
SPLITS_CLIENTS=${SPLITS_CLIENTS:-1 8}
SPLITS_KEYS=${SPLITS_KEYS:-random serial}
SPLITS_LEVELS=${SPLITS_LEVELS:-full}

# Seconds of CPU that the server has had, with those of its processes that have ended.
splits_cpu() { head -n 1 "$KV_PGDATA/postmaster.pid" | awk -v ticks="$(getconf CLK_TCK)" '{ cmd = "cat /proc/" $1 "/stat /proc/[0-9]*/stat 2>/dev/null"
	while ((cmd | getline line) > 0) { sub(/.*\) /, "", line); split(line, f, " "); if (!n++) t = f[12] + f[13] + f[14] + f[15]; else if (f[2] == $1) t += f[12] + f[13] }
	printf "%.2f", t / ticks }'; }

# One load.  Prints rows/s, the server's CPU time for each row in µs, the longest pause in ms, the worst second over the mean,
# and the shards then.
splits_load() # keys clients size turn
{
	local script=$KV_RUN/splits.sql key="hashint8extended(b * $SPLITS_BATCH + g, $4)" log=$KV_RUN/splits-log cpu
	[ "$1" = random ] || key="b * $SPLITS_BATCH + g"
	kv_psql -c "ALTER SYSTEM SET kvfdw.shard_size = '$3MB'" -c "SELECT pg_reload_conf()" >/dev/null
	kv_psql -c "DROP FOREIGN TABLE IF EXISTS kv_splits" -c "CREATE FOREIGN TABLE kv_splits (k bigint NOT NULL, v bytea) SERVER kvfdw OPTIONS (key 'k', wal '$splits_level')" \
		-c "ALTER SEQUENCE splits_batch RESTART" -c CHECKPOINT >/dev/null 2>&1
	# what was dropped goes before
	while [ -n "$(find "$KV_PGDATA/kvfdw" -name 'dropped.*' -print -quit)" ]; do sleep 0.2; done
	sync
	echo "INSERT INTO kv_splits SELECT $key, substring(noise, (1 + g)::int, $SIZE) FROM splits_noise, (SELECT nextval('splits_batch')) AS n (b), generate_series(1::bigint, $SPLITS_BATCH) g;" >"$script"
	rm -f "$log".*
	cpu=$(splits_cpu)
	pgbench -n -M prepared -c "$2" -j "$(nproc)" -t $((SPLITS_ROWS / SPLITS_BATCH / $2)) -l --log-prefix="$log" -f "$script" >"$KV_RUN/splits.out" 2>&1 ||
		{ cat "$KV_RUN/splits.out" >&2; kv_die "pgbench failed"; }
	# what backends have had is known when they are gone
	while [ "$(kv_psql -c "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'")" != 0 ]; do sleep 0.1; done
	sleep 0.1
	cpu=$(kv_calc "($(splits_cpu) - $cpu) * 1e6 / $SPLITS_ROWS")
	cat "$log".* | awk -v batch="$SPLITS_BATCH" -v cpu="$cpu" '
		{ end = $5 + $6 / 1e6; begin = end - $3 / 1e6; n++
		  if ($3 > longest) longest = $3
		  if (n == 1 || begin < first) first = begin
		  if (end > last) last = end
		  at[n] = end }
		END {
		  for (i = 1; i <= n; i++) second[int(at[i] - first)]++
		  worst = n
		  for (s = 1; s < int(last - first); s++) if (second[s] + 0 < worst) worst = second[s] + 0
		  printf "%.0f %.1f %.0f %.2f ", n * batch / (last - first), cpu, longest / 1000, worst / (n / (last - first)) }'
	stat_of shards kv_splits
}

# The one in the middle of numbers, each followed by a space.
splits_median() { tr ' ' '\n' <<<"${1% }" | sort -g | awk '{ x[NR] = $1 } END { printf "%.2f", NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

# So many ordered scans at once of what was loaded, cold.  Sets mbs, of each, and bytes, read by the engine.
splits_scan() # number when
{
	local start seconds n pids=()
	kv_cold
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	start=$(kv_now)
	for n in $(seq "$1"); do
		kv_psql -c "SELECT count(*) FROM (SELECT k, v FROM kv_splits ORDER BY k OFFSET 0) s WHERE length(v) = $SIZE" >"$KV_RUN/splits.scan$n" &
		pids+=($!)
	done
	wait "${pids[@]}"
	seconds=$(kv_calc "$(kv_now) - $start")
	bytes=$(kv_psql -c "SELECT coalesce(sum(bytes), 0) $scan_reads")
	for n in $(seq "$1"); do
		[ "$(<"$KV_RUN/splits.scan$n")" = $SPLITS_ROWS ] || kv_die "the scan has not found $SPLITS_ROWS rows"
	done
	mbs=$(kv_calc "$SPLITS_ROWS * ($SIZE + 8) / 1e6 / $seconds")
	say "     $1 ordered scan$([ "$1" = 1 ] || echo "s at once"), cold, $2: $mbs MB/s, $(kv_calc "int(100 * $mbs / $fio_read)") % of fio, $bytes bytes read by the engine, $(stat_of shards kv_splits) shards"
}

# The scans of a table that was just loaded.
splits_scans() # keys size
{
	local mbs bytes once what="$1 keys, shard_size $2 MB"
	splits_scan 1 "right after the load"
	once=$bytes
	[ "$1" = random ] || line "ordered scan right after the load, cold, $what" "$(kv_calc "$mbs / $fio_read")x fio" "0.9x" "$mbs >= 0.9 * $fio_read"
	splits_scan 8 "right after the load"
	line "device bytes of eight ordered scans at once / one, $what" "$(times_ "$bytes" "$once")" "<= 1.1" "$bytes <= 1.1 * $once"
	kv_psql -c "SELECT kvfdw_compact('kv_splits', true)" -c CHECKPOINT >/dev/null
	splits_scan 1 "in order"
	line "ordered scan in order, cold, $what" "$(kv_calc "$mbs / $fio_read")x fio" "0.8x" "$mbs >= 0.8 * $fio_read"
}

splits_turns() # keys clients
{
	local size turn rate cpu pause worst shards sizes="0 $SPLITS_SIZES" who="$2 session$([ "$2" = 1 ] || echo s)"
	local -A rates cpus pauses worsts base
	local told
	told=$(stat -c %s "$KV_SERVER_LOG")
	for turn in $(seq "$SPLITS_TURNS"); do
		for size in $sizes; do
			read -r rate cpu pause worst shards < <(splits_load "$1" "$2" "$size" "$turn")
			say "  $1 keys, $who, shard_size $size MB, turn $turn: $rate rows/s, $cpu µs CPU each, longest pause $pause ms, worst second $worst of the mean, $shards shards"
			base[$size]=$rate
			cpus[$size]+="$cpu " pauses[$size]+="$pause " worsts[$size]+="$worst "
			if [ "$turn" = "$SPLITS_TURNS" ] && [ "$size" != 0 ] && [ "$2" = "${SPLITS_CLIENTS##* }" ]; then
				splits_scans "$1" "$size"
			fi
		done
		for size in $sizes; do rates[$size]+="$(kv_calc "${base[$size]} / ${base[0]}") "; done
		sizes="${sizes#* } ${sizes%% *}"
	done
	for size in $SPLITS_SIZES; do
		rate=$(splits_median "${rates[$size]}")
		line "load under $1 keys, $who, shard_size $size MB" "${rate}x that of 0" "0.9x" "$rate >= 0.9"
		worst=$(splits_median "${worsts[$size]}")
		line "worst second of that, against the mean" "$worst (of 0: $(splits_median "${worsts[0]}"))" "0.9" "$worst >= 0.9"
		say "     CPU $(splits_median "${cpus[$size]}") µs each (of 0: $(splits_median "${cpus[0]}")); longest pause $(splits_median "${pauses[$size]}") ms (of 0: $(splits_median "${pauses[0]}"))"
	done
	splits_halts "$told" "$1 keys, $who, level $splits_level"
}

# What the server log has of changes since it had so many bytes.
splits_halts() # bytes what
{
	local halts=$KV_RUN/splits.halts
	tail -c +$(($1 + 1)) "$KV_SERVER_LOG" >"$KV_RUN/splits.told"
	sed -n 's/.*It has [0-9]* shards now; writers waited for at most \([0-9.]*\) ms.*/\1/p' "$KV_RUN/splits.told" | sort -g >"$halts"
	say "     splits that were given up: $(grep -c 'was not split' "$KV_RUN/splits.told" || true)"
	[ -s "$halts" ] || return 0
	line "writers' longest wait for each of $(wc -l <"$halts") changes of shards, $2" \
		"$(awk '{ x[NR] = $1 } END { printf "median %s, 95 %% %s, all %s ms", x[int((NR + 1) / 2)], x[int(NR * .95 + .99)], x[NR] }' "$halts")" "<= 20 ms" \
		"$(tail -n 1 "$halts") <= 20"
}

bench_splits()
{
	local keys clients splits_level=${SPLITS_LEVELS%% *}

	kv_psql -c "CREATE SEQUENCE splits_batch" -c "CREATE TABLE splits_noise (noise bytea)" -c "ALTER TABLE splits_noise ALTER noise SET STORAGE external" \
		-c "INSERT INTO splits_noise SELECT string_agg(decode(md5(g::text), 'hex'), '') FROM generate_series(1, ($SIZE + $SPLITS_BATCH) / 16 + 1) g"
	# the first writes files of the WAL that others find
	splits_load random 1 0 0 >/dev/null
	for splits_level in $SPLITS_LEVELS; do
		head_ "Loads of $SPLITS_ROWS rows at level $splits_level while shards are split, $SPLITS_TURNS turns"
		for keys in $SPLITS_KEYS; do
			for clients in $SPLITS_CLIENTS; do splits_turns "$keys" "$clients"; done
		done
	done
	kv_psql -c "DROP FOREIGN TABLE kv_splits" -c "ALTER SYSTEM RESET kvfdw.shard_size" -c "SELECT pg_reload_conf()" >/dev/null
}
