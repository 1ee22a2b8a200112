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
	checkpoint_writers
}

# Commits of single rows, beside checkpoints and between them.
checkpoint_writers()
{
	local writer from until quiet quiet_max quiet_n busy busy_max busy_n shards=512 i
	head_ "Commits beside CHECKPOINT, $shards shards"
	make_kv changed full $shards
	printf '\\set k random(1, 1000000000)\nINSERT INTO changed VALUES (hashint8extended(:k, 0), %s) ON CONFLICT DO NOTHING;\n' "convert_to(repeat('x', 100), 'UTF8')" >"$KV_RUN/writes.sql"
	rm -f "$KV_RUN"/reads.[0-9]*
	chmod a+r "$KV_RUN/writes.sql"
	kv_as "$KV_BIN/pgbench" -n -M prepared -c 4 -j 1 -T 60 -f "$KV_RUN/writes.sql" --log --log-prefix="$KV_RUN/reads" >/dev/null 2>&1 &
	writer=$!
	sleep 3
	: >"$KV_RUN/windows"
	for i in $(seq 12); do
		from=$(kv_now)
		sleep 2
		until=$(kv_now)
		echo "quiet $from $until" >>"$KV_RUN/windows"
		kv_psql -c CHECKPOINT
		echo "busy $until $(kv_now)" >>"$KV_RUN/windows"
	done
	kv_psql -o /dev/null -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'"
	wait $writer 2>/dev/null || true
	read -r quiet quiet_max quiet_n < <(window_latencies quiet)
	read -r busy busy_max busy_n < <(window_latencies busy)
	say "  between: p99 $quiet ms, max $quiet_max ms, $quiet_n commits; beside a checkpoint: $busy ms, max $busy_max ms, $busy_n commits"
	line "p99 of commits of one row beside CHECKPOINT, $shards shards" "$busy ms, between $quiet ms" "1.5x" "$busy <= 1.5 * $quiet"
	kv_psql -c "DROP FOREIGN TABLE changed"
}

# p99 and maximum, in ms, and the number of the transactions that ended in windows of a kind.
window_latencies() # kind
{
	cat "$KV_RUN"/reads.[0-9]* | awk -v kind="$1" 'FILENAME != "-" { if ($1 == kind) { from[n] = $2; to[n++] = $3 } next }
		{ at = $5 + $6 / 1e6; for (i = 0; i < n; i++) if (at >= from[i] && at < to[i]) { print $3; break } }' "$KV_RUN/windows" - | sort -n |
		awk '{ v[NR] = $1 } END { printf "%.3f %.3f %d\n", v[int(NR * 0.99 + 0.5)] / 1000, v[NR] / 1000, NR }'
}

# The life of a table of so many shards beside a heap table of as many partitions.
MANY_SHARDS=${MANY_SHARDS:-$((10000 / share))}
MANY_ROWS=${MANY_ROWS:-200000}

many_step() # name kind command...
{
	local name=$1 kind=$2 s
	shift 2
	kv_timed s "$@"
	say "  $kind, $name: $s s"
	many[$kind$name]=$s
}
many_create_heap()
{
	kv_psql -c "CREATE TABLE many_heap (k bigint PRIMARY KEY, v bytea) PARTITION BY HASH (k)"
	# as many as one transaction may lock
	seq 0 $((MANY_SHARDS - 1)) | awk -v n="$MANY_SHARDS" '{ printf "CREATE TABLE many_heap_%d PARTITION OF many_heap FOR VALUES WITH (MODULUS %d, REMAINDER %d);\n", $1, n, $1 }' | kv_psql -f - >/dev/null
}
many_load() { kv_psql -c "INSERT INTO $1 SELECT hashint8extended(g, 0), convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, $MANY_ROWS) g"; }
many_checkpoint() { kv_psql -c CHECKPOINT; }
many_reopen() { kv_server_start; kv_psql -o /dev/null -c "SELECT count(*) FROM $1"; }
many_drop() { kv_psql -c "DROP $2 $1"; }

bench_many()
{
	local kind step
	declare -A many
	head_ "A table of $MANY_SHARDS shards, beside heap with $MANY_SHARDS partitions"
	kv_server_stop
	kv_server_init "${settings[@]}" "max_locks_per_transaction = 2000"
	kv_server_start
	kv_psql -c 'CREATE EXTENSION kvfdw'
	for kind in heap kv; do
		if [ $kind = heap ]; then many_step create $kind many_create_heap; else many_step create $kind make_kv many_kv full "$MANY_SHARDS"; fi
		many_step load $kind many_load "many_$kind"
		many_step checkpoint $kind many_checkpoint
		kv_server_kill
		many_step reopen $kind many_reopen "many_$kind"
		if [ $kind = heap ]; then many_step drop $kind many_drop many_heap TABLE; else many_step drop $kind many_drop many_kv "FOREIGN TABLE"; fi
	done
	for step in create load checkpoint reopen drop; do
		line "$step, $MANY_SHARDS shards, heap: partitions" "$(ratio "${many[kv$step]}" "${many[heap$step]}") of heap's ${many[heap$step]} s" "3x" "${many[kv$step]} <= 3 * ${many[heap$step]}"
	done
}
