# The overwrite line of make bench; run.sh sources it.
#
# OVERWRITE_CLIENTS clients of pgbench replace values of 4096 bytes of a table of OVERWRITE_MB MB, which only the compactor
# compacts: first OVERWRITE_TIMES times the table's bytes to warm up, until the space is that of a table that is overwritten for
# ever, then as many to measure.  Keys are uniform, then zipfian and spread over the key range.  Once a second it is noted
# what the value files have and what is live of it.
#
# Bytes of the device are all that was written to it, less those of the WAL, which has a page or two for each flush, however few
# records it takes along.  Both are told.
#
# Then the clients ask for OVERWRITE_PACE percent of what they had, OVERWRITE_SECONDS long: while the table is compacted as it
# must be, and again while it is not, and grows; and a heap table with the same rows for comparison.  The latency of an UPDATE counts from when it was due.
#
#   OVERWRITE_MB=1024
#   OVERWRITE_TIMES=2
#   OVERWRITE_LEVELS=none wal levels; all of it for each
#   OVERWRITE_CLIENTS=8
#   OVERWRITE_SKEW=1.07   the exponent of the zipfian distribution
#   OVERWRITE_PACE=70    0: not at that pace
#   OVERWRITE_SECONDS=30

OVERWRITE_MB=${OVERWRITE_MB:-$((1024 / share))}
OVERWRITE_TIMES=${OVERWRITE_TIMES:-2}
OVERWRITE_LEVELS=${OVERWRITE_LEVELS:-none}
OVERWRITE_CLIENTS=${OVERWRITE_CLIENTS:-8}
OVERWRITE_SKEW=${OVERWRITE_SKEW:-1.07}
OVERWRITE_PACE=${OVERWRITE_PACE:-70}
OVERWRITE_SECONDS=${OVERWRITE_SECONDS:-$((30 / share))}
OVERWRITE_ROWS=$((OVERWRITE_MB * 256))

# One run of the clients; how long, how fast and of what, pgbench's options say.
overwrite_run() # option…
{
	rm -f "$KV_RUN/overwrite.log".*
	kv_as "$KV_BIN/pgbench" -n -M prepared -c "$OVERWRITE_CLIENTS" -j "$(nproc)" --random-seed="$KV_SEED" "$@" --log --log-prefix="$KV_RUN/overwrite.log" >"$KV_RUN/overwrite.out" 2>&1 ||
		{ cat "$KV_RUN/overwrite.out" >&2; kv_die "pgbench failed"; }
}

# Once a second: bytes of value files, of live values, and the bound.
overwrite_sample()
{
	while sleep 1; do stat_of "value_file_bytes + obsolete_bytes || ' ' || live_bytes || ' ' || space_limit" overwritten 2>/dev/null || true; done
}

# What was written to the device so far, and of that to the WAL: each write begins with the page at which the one before ended.
overwrite_written()
{
	local sql="wal_bytes + wal_write * current_setting('wal_block_size')::int FROM pg_stat_wal"
	[ "$(kv_psql -c "SHOW server_version_num")" -lt 180000 ] || sql="sum(write_bytes) FROM pg_stat_io WHERE object = 'wal'"
	kv_psql -c CHECKPOINT
	sync
	kv_device_bytes "$KV_PGDATA" | awk '{ printf "%s ", $2 }'
	kv_psql -c "SELECT $sql"
}

# Of the last run: its worst second against the mean, and what 99 % of the updates took at most, in ms.  A line of the log: client,
# transaction, microseconds, script, unix time, …
overwrite_told()
{
	cat "$KV_RUN/overwrite.log".* | awk '{ n[$5]++; if (!f || $5 < f) f = $5; if ($5 > l) l = $5 }
		END { w = -1; for (s = f + 1; s < l; s++) { t += n[s]; if (w < 0 || n[s] < w) w = n[s] } printf "%.2f ", t ? w / (t / (l - f - 1)) : 0 }'
	cat "$KV_RUN/overwrite.log".* | awk '{ print $3 }' | sort -n | awk '{ v[NR] = $1 } END { printf "%.2f\n", v[int(NR * 0.99 + 0.5)] / 1000 }'
	rm -f "$KV_RUN/overwrite.log".*
}

overwrite_line() # name key-expression target
{
	local all="-t $((OVERWRITE_ROWS * OVERWRITE_TIMES / OVERWRITE_CLIENTS))" before after wal_before wal_after written wal user sampler space bound beyond samples second p99 rate
	printf '\\set k %s\nUPDATE overwritten SET v = overwrite_value(:k, :client_id) WHERE k = :k;\n' "$2" >"$KV_RUN/overwrite.sql"
	sed 's/overwritten/&_heap/' "$KV_RUN/overwrite.sql" >"$KV_RUN/overwrite_heap.sql"
	chmod a+r "$KV_RUN"/overwrite*.sql
	overwrite_run $all -f "$KV_RUN/overwrite.sql"
	: >"$KV_RUN/overwrite.samples"
	overwrite_sample >"$KV_RUN/overwrite.samples" &
	sampler=$!
	user=$(stat_of value_bytes overwritten)
	read -r before wal_before < <(overwrite_written)
	overwrite_run $all -f "$KV_RUN/overwrite.sql"
	rate=$(awk '/^tps = / { print int($3); exit }' "$KV_RUN/overwrite.out")
	read -r after wal_after < <(overwrite_written)
	kill $sampler 2>/dev/null || true
	wait $sampler 2>/dev/null || true
	user=$(($(stat_of value_bytes overwritten) - user))
	wal=$(kv_calc "($wal_after - $wal_before) / $user")
	written=$(kv_calc "($after - $before) / $user - $wal")
	read -r space bound beyond samples < <(awk '$2 > 0 && $1 / $2 > m { m = $1 / $2 } $3 > 0 && $1 / $3 > b { b = $1 / $3 } $1 > $3 { n++ } END { printf "%.2f %.3f %d %d\n", m, b, n, NR }' "$KV_RUN/overwrite.samples")
	read -r second p99 < <(overwrite_told)
	say "  $1: $rate/s, worst second $second of the mean, p99 $p99 ms; $(stat_of "compactions || ' compactions, ' || space_waits || ' waits'" overwritten)"
	line "device bytes per user byte, values overwritten, $1" "$written (and $wal of WAL)" "at most $3" "$written <= $3"
	line "… value files / live bytes, at most, in $samples seconds" "$space; $bound of space_limit, above it in $beyond of them" "1 of it" "$beyond == 0"
	[ "$OVERWRITE_PACE" = 0 ] || overwrite_paced "$1" $((rate * OVERWRITE_PACE / 100))
}

# The same at a lower pace, with compaction and without.
overwrite_paced() # name rate
{
	local second p99 second_without p99_without second_heap p99_heap passes
	passes=$(stat_of compactions overwritten)
	overwrite_run -T "$OVERWRITE_SECONDS" -R "$2" -f "$KV_RUN/overwrite.sql"
	passes=$(($(stat_of compactions overwritten) - passes))
	read -r second p99 < <(overwrite_told)
	kv_psql -c "ALTER SYSTEM SET kvfdw.max_space_amplification = 0" -c "SELECT pg_reload_conf()" >/dev/null
	overwrite_run -T "$OVERWRITE_SECONDS" -R "$2" -f "$KV_RUN/overwrite.sql"
	kv_psql -c "ALTER SYSTEM RESET kvfdw.max_space_amplification" -c "SELECT pg_reload_conf()" >/dev/null
	read -r second_without p99_without < <(overwrite_told)
	overwrite_run -T "$OVERWRITE_SECONDS" -R "$2" -f "$KV_RUN/overwrite_heap.sql"
	say "  $1 at $2/s: $passes compactions; heap had $(awk '/^tps = / { print int($3); exit }' "$KV_RUN/overwrite.out")/s"
	read -r second_heap p99_heap < <(overwrite_told)
	line "$1, $OVERWRITE_PACE % of that: worst second against the mean" "$second (without compaction $second_without, heap $second_heap)" "at least 0.9" "$second >= 0.9"
	line "… p99 of an UPDATE" "$p99 ms (without compaction $p99_without, heap $p99_heap)" "at most twice" "$p99 <= 2 * $p99_without"
}

overwrite_level() # level
{
	make_kv overwritten "$1"
	kv_psql -c "ALTER FOREIGN TABLE overwritten ALTER v SET STORAGE EXTERNAL" \
		-c "INSERT INTO overwritten SELECT k, overwrite_value(k, 0) FROM (SELECT 1 + (i * 7919::bigint) % $OVERWRITE_ROWS k FROM generate_series(1, $OVERWRITE_ROWS) i) s ON CONFLICT DO NOTHING" >/dev/null
	[ "$OVERWRITE_PACE" = 0 ] || kv_psql -c "CREATE TABLE overwritten_heap (k bigint PRIMARY KEY, v bytea)" -c "ALTER TABLE overwritten_heap ALTER v SET STORAGE EXTERNAL" \
		-c "INSERT INTO overwritten_heap SELECT * FROM overwritten" >/dev/null
	kv_psql -c CHECKPOINT
	overwrite_line uniform "random(1, $OVERWRITE_ROWS)" 2.2
	overwrite_line zipfian "1 + permute(random_zipfian(1, $OVERWRITE_ROWS, $OVERWRITE_SKEW) - 1, $OVERWRITE_ROWS)" 1.6
	kv_psql -c "DROP FOREIGN TABLE overwritten" -c "DROP TABLE IF EXISTS overwritten_heap" 2>/dev/null
}

bench_overwrite()
{
	local level
	kv_psql -c "CREATE FUNCTION overwrite_value(k bigint, n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS \$\$ SELECT convert_to(repeat(md5(k::text || n), 128), 'UTF8') \$\$" >/dev/null
	for level in $OVERWRITE_LEVELS; do
		head_ "Values of 4096 bytes overwritten at level $level, $OVERWRITE_MB MB, $((2 * OVERWRITE_TIMES)) times, $OVERWRITE_CLIENTS clients"
		overwrite_level "$level"
	done
}
