# The line of values that move to another tablespace; run.sh sources it.
#
# A table of MOVE_MB with values in a tablespace is moved to another one and back, in turns: alone, during
# pgbench's point reads of it, and during a COPY into another table.  The reads and the COPY are measured without a move as well, in each turn.  Both
# tablespaces are on the device of the data directory, so the move reads and writes there what others read and write.
# It has ended when the first has no value file any more.
#
#   MOVE_MB=1024
#   MOVE_COPY_MB=512      of the COPY
#   MOVE_SECONDS=10       of reads without a move
#   MOVE_CLIENTS=4        of pgbench
#   MOVE_TURNS=3

MOVE_MB=${MOVE_MB:-$((1024 / share))}
MOVE_COPY_MB=${MOVE_COPY_MB:-$((512 / share))}
MOVE_SECONDS=${MOVE_SECONDS:-10}
MOVE_CLIENTS=${MOVE_CLIENTS:-4}
MOVE_TURNS=${MOVE_TURNS:-3}

move_files() { find "$KV_RUN/move_$1" -name '*.c?????.val' 2>/dev/null | wc -l; }

# Seconds until what is in the one place has gone to the other.
move_send() # from to
{
	local start
	start=$(kv_now)
	kv_psql -c "ALTER FOREIGN TABLE kv_move OPTIONS (SET tablespace 'move_$2')"
	while [ "$(move_files "$1")" != 0 ]; do sleep 0.1; done
	kv_calc "$(kv_now) - $start"
}

# Reads per second between two moments (unix time).
move_reads() # from to
{
	cat "$KV_RUN"/move.log.* | awk -v from="$1" -v to="$2" '{ at = $5 + $6 / 1e6 } at >= from && at < to { n++ } END { printf "%.0f", n / (to - from) }'
}

move_copy()
{
	local seconds
	kv_psql -c "TRUNCATE kv_move_copy" -c CHECKPOINT >/dev/null
	sync
	kv_timed seconds kv_psql -c "COPY kv_move_copy FROM '$KV_RUN/move.rows' BINARY"
	kv_calc "$MOVE_COPY_MB / $seconds"
}

# The one in the middle of numbers.
move_median() { tr ' ' '\n' <<<"${1% }" | sort -g | awk '{ x[NR] = $1 } END { printf "%.4g", NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

bench_move()
{
	local at=a other=b turn seconds from to rows=$((MOVE_MB * 256)) reader alone beside_reads beside_copy reads reads_moved copied copied_moved place
	local -A all

	head_ "$MOVE_MB MB of values that move to another tablespace, $MOVE_TURNS turns"
	for place in a b; do
		rm -rf "$KV_RUN/move_$place"
		kv_as mkdir "$KV_RUN/move_$place"
		kv_psql -c "CREATE TABLESPACE move_$place LOCATION '$KV_RUN/move_$place'"
	done
	for place in kv_move kv_move_copy; do
		kv_psql -c "CREATE FOREIGN TABLE $place (k bigint NOT NULL, v bytea) SERVER kvfdw OPTIONS (key 'k'$([ $place != kv_move ] || echo ", tablespace 'move_a'"))"
	done
	make_rows "$KV_RUN/move.rows" "$rows" 4096
	kv_psql -c "COPY kv_move FROM '$KV_RUN/move.rows' BINARY" -c "SELECT kvfdw_flush('kv_move')" -c "CREATE TABLE kv_move_keys AS SELECT row_number() OVER (ORDER BY random()) AS n, k FROM kv_move" \
		-c "CREATE UNIQUE INDEX ON kv_move_keys (n)" -c CHECKPOINT >/dev/null
	make_rows "$KV_RUN/move.rows" $((MOVE_COPY_MB * 256)) 4096
	printf '\\set n random(1, %d)\nSELECT length(v) FROM kv_move WHERE k = (SELECT k FROM kv_move_keys WHERE n = :n);\n' "$rows" >"$KV_RUN/move.sql"
	chmod a+r "$KV_RUN/move.sql"
	for turn in $(seq "$MOVE_TURNS"); do
		alone=$(kv_calc "$MOVE_MB / $(move_send $at $other)")
		read -r at other <<<"$other $at"

		rm -f "$KV_RUN"/move.log.*
		kv_as "$KV_BIN/pgbench" -n -M prepared -c "$MOVE_CLIENTS" -j 1 -T 900 -f "$KV_RUN/move.sql" --log --log-prefix="$KV_RUN/move.log" >/dev/null 2>&1 &
		reader=$!
		sleep 3
		from=$(kv_now)
		sleep "$MOVE_SECONDS"
		to=$(kv_now)
		seconds=$(move_send $at $other)
		beside_reads=$(kv_calc "$MOVE_MB / $seconds")
		kv_psql -o /dev/null -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'"
		wait $reader 2>/dev/null || true
		reads=$(move_reads "$from" "$to")
		reads_moved=$(move_reads "$to" "$(kv_calc_time "$to" "$seconds")")
		read -r at other <<<"$other $at"

		copied=$(move_copy)
		from=$(kv_now)
		{ move_send $at $other >"$KV_RUN/move.seconds"; } &
		reader=$!
		copied_moved=$(move_copy)
		to=$(kv_now)
		wait $reader
		seconds=$(<"$KV_RUN/move.seconds")
		beside_copy=$(kv_calc "$MOVE_MB / $seconds")
		read -r at other <<<"$other $at"
		say "  turn $turn: the move alone $alone MB/s, beside reads $beside_reads, beside COPY $beside_copy (which had ended after $(kv_calc "$to - $from") of $seconds s); reads $reads/s, beside a move $reads_moved; COPY $copied MB/s, beside a move $copied_moved"
		all[alone]+="$alone " all[beside_reads]+="$beside_reads " all[beside_copy]+="$beside_copy "
		all[reads]+="$(kv_calc "$reads_moved / $reads") " all[copied]+="$(kv_calc "$copied_moved / $copied") "
	done
	line "pace of a move of $MOVE_MB MB to another tablespace" "$(move_median "${all[alone]}") MB/s; beside reads $(move_median "${all[beside_reads]}"), COPY $(move_median "${all[beside_copy]}")" ""
	line "point reads of the table, $MOVE_CLIENTS clients, beside the move" "$(move_median "${all[reads]}")x those without" ""
	line "COPY into another table beside the move" "$(move_median "${all[copied]}")x that without" ""
	kv_psql -c "DROP FOREIGN TABLE kv_move, kv_move_copy" -c "DROP TABLE kv_move_keys" -c CHECKPOINT >/dev/null
	rm -f "$KV_RUN"/move.rows "$KV_RUN"/move.log.*
	for place in a b; do
		until kv_psql -c "DROP TABLESPACE move_$place" 2>/dev/null; do sleep 0.2; done
	done
}
