# The lines of make bench with the processor time of a hot point read; run.sh sources it, after ycsb.sh.
#
# Tables as in YCSB, hot; workload C, then YCSB E and F on both, then C again.  What counts is the time of
# all processes of the server, in clock ticks of the kernel, over the number of reads; so other work on
# the machine matters little.  Plans are generic.
#
# Then, where valgrind is, the machine instructions of a read, which no other work changes: a single-user
# server that executes a prepared statement, as a whole and within the executor alone (start, run and end of a
# plan).  System calls and the client are not in it.
#
#   POINTCPU_READS=400000    of a run
#   POINTCPU_KEYS="uniform zipfian"
#   POINTCPU_CLIENTS=16
#   POINTCPU_SECONDS=20      of E, and of F, in between
#   YCSB_BYTES, YCSB_SKEW    as there

POINTCPU_READS=${POINTCPU_READS:-$((400000 / share))}
POINTCPU_KEYS=${POINTCPU_KEYS:-uniform zipfian}
POINTCPU_CLIENTS=${POINTCPU_CLIENTS:-16}
POINTCPU_SECONDS=${POINTCPU_SECONDS:-$((20 / share))}

# Ticks that the server's processes have taken, those that have ended included.
server_ticks()
{
	local main
	read -r main <"$KV_PGDATA/postmaster.pid"
	for pid in $main $(pgrep -P "$main"); do cat "/proc/$pid/stat" 2>/dev/null || true; done |
		sed 's/.*) //' | awk '{ n += $12 + $13 + $14 + $15 } END { print n }'
}

# Microseconds of the server per read, of one run.
pointcpu_run() # table keys rows
{
	local dir=$KV_RUN/pointcpu before
	mkdir -p "$dir"
	ycsb_scripts "$1" C "$2" "$3" "$dir" >/dev/null
	before=$(server_ticks)
	PGOPTIONS="-c plan_cache_mode=force_generic_plan" pgbench -n -M prepared -c "$POINTCPU_CLIENTS" -j "$(nproc)" \
		-t $((POINTCPU_READS / POINTCPU_CLIENTS)) --random-seed="$KV_SEED" -f "$dir/read.sql" >"$dir/out" 2>&1 ||
		{ cat "$dir/out" >&2; kv_die "pgbench failed on $1"; }
	kv_calc "($(server_ticks) - $before) * 1000000 / $(getconf CLK_TCK) / $POINTCPU_READS"
}

# Both tables, three runs each in turn after one that does not count; the least of each.
pointcpu_lines() # when rows
{
	local keys t us counts round
	local -A least
	for keys in $POINTCPU_KEYS; do
		least=()
		kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
		for round in 0 1 2 3; do
			for t in heap_ycsb kv_ycsb; do
				us=$(pointcpu_run $t "$keys" "$2")
				if [ $round != 0 ] && { [ -z "${least[$t]:-}" ] || kv_true "$us < ${least[$t]}"; }; then least[$t]=$us; fi
			done
		done
		counts=$(kv_psql -c "SELECT format('%s reads, %s from the value cache, %s recent, %s device reads; %s runs, %s bytes in deltas',
			point_reads, value_cache_hits, recent_ring_hits, device_reads, runs, memtable_bytes) FROM kvfdw_stat_tables WHERE relid = 'kv_ycsb'::regclass")
		say "  $1, $keys: heap ${least[heap_ycsb]} us, kvfdw ${least[kv_ycsb]} us ($counts)"
		line "CPU of a hot point read, $1, $keys" "$(ratio "${least[kv_ycsb]}" "${least[heap_ycsb]}") heap" "0.9x heap" "${least[kv_ycsb]} <= 0.9 * ${least[heap_ycsb]}"
	done
}

# Instructions per read of a single-user server, all or those of the functions.  The difference of two runs counts.
pointcpu_instructions() # table rows [function…]
{
	local dir=$KV_RUN/pointcpu t=$1 rows=$2 reads n options=()
	shift 2
	for f in "$@"; do options+=("--toggle-collect=$f"); done
	for reads in 1000 3000; do
		{
			printf '%s\n' "SET plan_cache_mode = force_generic_plan;" "SELECT count(length(v)) FROM $t;" \
				"PREPARE q AS SELECT v FROM $t WHERE k = \$1;"
			for ((n = 0; n < reads; n++)); do echo "EXECUTE q(hashint8extended($((n % 1000 * (rows / 1000) + 1)), 0));"; done
		} >"$dir/statements"
		kv_as valgrind --tool=callgrind --callgrind-out-file=/dev/null "${options[@]}" \
			"$KV_BIN/postgres" --single -D "$KV_PGDATA" "$PGDATABASE" <"$dir/statements" 2>&1 >"$dir/rows" |
			sed -nE 's/.*Collected : ([0-9]+).*/\1/p'
		[ "$(grep -c 'v = ' "$dir/rows")" = "$reads" ] || kv_die "the server for one user did not find the rows of $t"
	done | awk '{ n[NR] = $1 } END { printf "%d", (n[2] - n[1]) / 2000 }'
}

pointcpu_instruction_lines() # rows
{
	local heap kv executor="standard_ExecutorStart standard_ExecutorRun standard_ExecutorFinish standard_ExecutorEnd"
	if ! command -v valgrind >/dev/null; then
		say "  there is no valgrind to count instructions"
		return
	fi
	kv_server_stop
	heap=$(pointcpu_instructions heap_ycsb "$1") kv=$(pointcpu_instructions kv_ycsb "$1")
	line "Instructions of a hot point read, EXECUTE" "$(ratio "$kv" "$heap") heap, $kv against $heap" "0.9x heap" "$kv <= 0.9 * $heap"
	# shellcheck disable=SC2086
	heap=$(pointcpu_instructions heap_ycsb "$1" $executor) kv=$(pointcpu_instructions kv_ycsb "$1" $executor)
	line "… of these in the executor" "$(ratio "$kv" "$heap") heap, $kv against $heap" "0.9x heap" "$kv <= 0.9 * $heap"
	kv_server_start
}

bench_pointcpu()
{
	local rows which t ycsb_pad YCSB_CACHE=

	head_ "CPU of hot point reads: $((YCSB_BYTES / 1000000)) MB of values of 1000 bytes, generic plans, $POINTCPU_CLIENTS clients"
	ycsb_begin 1000
	ycsb_load 1000 yes "$YCSB_BYTES"
	ycsb_server hot both
	pointcpu_lines "loaded" "$rows"
	pointcpu_instruction_lines "$rows"
	for which in E F; do
		for t in heap_ycsb kv_ycsb; do say "  $which, $t: $(ycsb_run $t $which zipfian "$POINTCPU_CLIENTS" "$rows" "$POINTCPU_SECONDS" 0)/s"; done
	done
	pointcpu_lines "after E and F" "$rows"
	ycsb_drop
	ycsb_end
}
