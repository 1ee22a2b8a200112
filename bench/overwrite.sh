# The overwrite line of make bench; run.sh sources it.
#
# OVERWRITE_CLIENTS clients of pgbench replace values of 4096 bytes of a table of OVERWRITE_MB MB, which nobody compacts by
# hand: first OVERWRITE_TIMES times the table's bytes to warm up, until the space is that of a table that is overwritten for
# ever, then as many to measure.  Keys are uniform, then zipfian and spread over the key range.  Once a second it is noted
# what the value files have and what is live of it.
#
#   OVERWRITE_MB=1024
#   OVERWRITE_TIMES=2
#   OVERWRITE_CLIENTS=8
#   OVERWRITE_SKEW=1.07   the exponent of the zipfian distribution

OVERWRITE_MB=${OVERWRITE_MB:-$((1024 / share))}
OVERWRITE_TIMES=${OVERWRITE_TIMES:-2}
OVERWRITE_CLIENTS=${OVERWRITE_CLIENTS:-8}
OVERWRITE_SKEW=${OVERWRITE_SKEW:-1.07}
OVERWRITE_ROWS=$((OVERWRITE_MB * 256))

# One run of as many updates as the table has rows, times OVERWRITE_TIMES.
overwrite_run() # prefix
{
	rm -f "$KV_RUN/overwrite.log".*
	kv_as "$KV_BIN/pgbench" -n -M prepared -c "$OVERWRITE_CLIENTS" -j "$(nproc)" -t $((OVERWRITE_ROWS * OVERWRITE_TIMES / OVERWRITE_CLIENTS)) \
		--random-seed="$KV_SEED" -f "$KV_RUN/overwrite.sql" --log --log-prefix="$KV_RUN/overwrite.log" >"$KV_RUN/overwrite.out" 2>&1 ||
		{ cat "$KV_RUN/overwrite.out" >&2; kv_die "pgbench failed"; }
}

# Once a second: bytes of value files, of live values, and the bound.
overwrite_sample()
{
	while sleep 1; do stat_of "value_file_bytes + retired_bytes || ' ' || live_bytes || ' ' || space_bound" overwritten 2>/dev/null || true; done
}

overwrite_line() # name key-expression target
{
	local before after written user sampler space second p99
	printf '\\set k %s\nUPDATE overwritten SET v = overwrite_value(:k, :client_id) WHERE k = :k;\n' "$2" >"$KV_RUN/overwrite.sql"
	chmod a+r "$KV_RUN/overwrite.sql"
	overwrite_run
	: >"$KV_RUN/overwrite.samples"
	overwrite_sample >"$KV_RUN/overwrite.samples" &
	sampler=$!
	user=$(stat_of value_bytes overwritten)
	read -r _ before < <(kv_device_bytes "$KV_PGDATA")
	overwrite_run
	kv_psql -c CHECKPOINT
	sync
	read -r _ after < <(kv_device_bytes "$KV_PGDATA")
	kill $sampler 2>/dev/null || true
	wait $sampler 2>/dev/null || true
	user=$(($(stat_of value_bytes overwritten) - user))
	written=$(kv_calc "($after - $before) / $user")
	space=$(awk '$2 > 0 && $1 / $2 > m { m = $1 / $2 } $1 > $3 { n++ } END { printf "%.2f, beyond the bound in %d of %d samples", m, n, NR }' "$KV_RUN/overwrite.samples")
	# a line of the log: client, transaction, microseconds, script, unix time, …
	second=$(cat "$KV_RUN/overwrite.log".* | awk '{ n[$5]++; if (!f || $5 < f) f = $5; if ($5 > l) l = $5 }
		END { w = -1; for (s = f + 1; s < l; s++) { t += n[s]; if (w < 0 || n[s] < w) w = n[s] } printf "%.2f", t ? w / (t / (l - f - 1)) : 0 }')
	p99=$(cat "$KV_RUN/overwrite.log".* | awk '{ print $3 }' | sort -n | awk '{ v[NR] = $1 } END { printf "%.2f", v[int(NR * 0.99 + 0.5)] / 1000 }')
	say "  $1: $(awk '/^tps = / { print int($3); exit }' "$KV_RUN/overwrite.out")/s; largest space $space; $(stat_of "passes || ' compactions, ' || space_waits || ' waits'" overwritten)"
	line "device bytes per user byte, values overwritten, $1" "$written" "at most $3" "$written <= $3"
	line "worst second of that, against the mean; p99 of an UPDATE" "$second; $p99 ms" ""
	rm -f "$KV_RUN/overwrite.log".*
}

bench_overwrite()
{
	head_ "Values of 4096 bytes overwritten, $OVERWRITE_MB MB, $OVERWRITE_CLIENTS clients"
	make_kv overwritten none
	kv_psql -c "ALTER FOREIGN TABLE overwritten ALTER v SET STORAGE EXTERNAL" \
		-c "CREATE FUNCTION overwrite_value(k bigint, n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS \$\$ SELECT convert_to(repeat(md5(k::text || n), 128), 'UTF8') \$\$" \
		-c "INSERT INTO overwritten SELECT k, overwrite_value(k, 0) FROM (SELECT 1 + (i * 7919::bigint) % $OVERWRITE_ROWS k FROM generate_series(1, $OVERWRITE_ROWS) i) s ON CONFLICT DO NOTHING" >/dev/null
	kv_psql -c CHECKPOINT
	overwrite_line uniform "random(1, $OVERWRITE_ROWS)" 2.2
	overwrite_line zipfian "1 + permute(random_zipfian(1, $OVERWRITE_ROWS, $OVERWRITE_SKEW) - 1, $OVERWRITE_ROWS)" 1.6
	kv_psql -c "DROP FOREIGN TABLE overwritten"
}
