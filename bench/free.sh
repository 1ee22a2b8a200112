# The lines of make bench about freeing space and about checkpoints; run.sh sources it.

FREE_MB=${FREE_MB:-$((2048 / share))}
FREE_ROWS=$((ROWS / 5))
FREE_QUIET=${FREE_QUIET:-10}
CHECKPOINT_SHARDS=${CHECKPOINT_SHARDS:-"1 64 512 $((4096 / share))"}
CHECKPOINT_ROWS=${CHECKPOINT_ROWS:-6000}

# p99 and maximum, in ms, and the number of the reads that ended between two moments
# (unix time).
latencies() # from to
{
	cat "$KV_RUN"/reads.[0-9]* | awk -v from="$1" -v to="$2" '{ at = $5 + $6 / 1e6 } at >= from && at < to { print $3 }' | sort -n |
		awk '{ v[NR] = $1 } END { printf "%.3f %.3f %d\n", v[int(NR * 0.99 + 0.5)] / 1000, v[NR] / 1000, NR }'
}

dropped() { [ -n "$(find "$KV_PGDATA/kvfdw" -maxdepth 1 -name 'dropped.*' -print -quit)" ]; }

bench_free()
{
	local reader from dropped_at gone_at quiet quiet_max quiet_n busy busy_max busy_n
	head_ "4 KB point reads beside DROP of $FREE_MB MB"
	make_kv victim none 16
	make_kv bystander none 4
	kv_psql -c "ALTER FOREIGN TABLE victim ALTER v SET STORAGE EXTERNAL" >/dev/null
	kv_psql -c "INSERT INTO victim SELECT g, convert_to(repeat(md5(g::text), 8192), 'UTF8') FROM generate_series(1, $FREE_MB * 4) g"
	kv_psql -c "INSERT INTO bystander SELECT g, convert_to(repeat(md5(g::text), $SIZE / 32), 'UTF8') FROM generate_series(1, $FREE_ROWS) g"
	kv_psql -c "SELECT kvfdw_flush('bystander')" -c CHECKPOINT >/dev/null
	sync
	printf '\\set k random(1, %d)\nSELECT length(v) FROM bystander WHERE k = :k;\n' "$FREE_ROWS" >"$KV_RUN/reads.sql"
	rm -f "$KV_RUN"/reads.[0-9]*
	chmod a+r "$KV_RUN/reads.sql"
	kv_as "$KV_BIN/pgbench" -n -M prepared -c 4 -j 1 -T 900 -f "$KV_RUN/reads.sql" --log --log-prefix="$KV_RUN/reads" >/dev/null 2>&1 &
	reader=$!
	sleep 3
	from=$(kv_now)
	sleep "$FREE_QUIET"
	dropped_at=$(kv_now)
	kv_psql -c "DROP FOREIGN TABLE victim"
	# the file system may be at it after the files have gone
	while dropped; do sleep 0.1; done
	gone_at=$(kv_now)
	sleep 6
	kv_psql -o /dev/null -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'"
	wait $reader 2>/dev/null || true
	read -r quiet quiet_max quiet_n < <(latencies "$from" "$dropped_at")
	read -r busy busy_max busy_n < <(latencies "$dropped_at" "$(kv_calc_time "$gone_at" 5)")
	say "  without: p99 $quiet ms, max $quiet_max ms, $quiet_n reads; beside it: $busy ms, max $busy_max ms, $busy_n reads; freed in $(kv_calc "$gone_at - $dropped_at") s"
	line "p99 of 4 KB point reads, DROP of $FREE_MB MB" "$busy ms, without $quiet ms; max $busy_max, without $quiet_max" "2x without" "$busy <= 2 * $quiet"
	kv_psql -c "DROP FOREIGN TABLE bystander"
}

kv_calc_time() { awk "BEGIN { printf \"%.6f\", $1 + $2 }"; }

# CHECKPOINT after the same random inserts, into so many shards: the third of three, which has files
# of the checkpoints before to replace.
bench_checkpoint()
{
	local n round ms one=
	for n in $CHECKPOINT_SHARDS; do
		head_ "CHECKPOINT after $CHECKPOINT_ROWS random inserts into $n shards"
		make_kv changed full "$n"
		for round in 1 2 3; do
			# keys that are spread over the shards
			kv_psql -c "INSERT INTO changed SELECT hashint8extended(g, $round), convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, $CHECKPOINT_ROWS) g"
			ms=$(kv_psql -c '\timing on' -c CHECKPOINT | awk '/^Time:/ { printf "%.0f", $2 }')
			say "  round $round: $ms ms"
		done
		one=${one:-$ms}
		line "CHECKPOINT, $CHECKPOINT_ROWS random inserts into $n shards" "$ms ms, $(ratio "$ms" "$one") of one shard's" "3x" "$ms <= 3 * $one"
		kv_psql -c "DROP FOREIGN TABLE changed"
	done
}
