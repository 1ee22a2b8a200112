# The zipf line of make bench; run.sh sources it.
#
# pgbench, prepared statements: half single-row SELECTs, half single-row UPDATEs,
# over ZIPF_KEYS keys of which few are hot.  The hot keys are spread over the
# key range.  The tables take turns, so a slow spell of the machine meets both.
#
#   ZIPF_KEYS=1000000     rows, with values of 100 to 1000 bytes
#   ZIPF_CLIENTS=32
#   ZIPF_SKEW=1.07        the exponent of the distribution
#   ZIPF_SECONDS=20       of each run
#   ZIPF_TURNS=3          runs of each table

ZIPF_KEYS=${ZIPF_KEYS:-$((1000000 / share))}
ZIPF_CLIENTS=${ZIPF_CLIENTS:-32}
ZIPF_SKEW=${ZIPF_SKEW:-1.07}
ZIPF_SECONDS=${ZIPF_SECONDS:-$((20 / share))}
ZIPF_TURNS=${ZIPF_TURNS:-3}

# One run against a table.  Prints "transactions/s p50-read p99-read p50-update p99-update", latencies in ms.
zipf_run() # table turn
{
	local dir=$KV_RUN/zipf-$1-$2 script tps
	mkdir -p "$dir"
	for script in read update; do
		{
			echo "\\set k 1 + permute(random_zipfian(1, $ZIPF_KEYS, $ZIPF_SKEW) - 1, $ZIPF_KEYS)"
			if [ $script = read ]; then
				echo "SELECT v FROM $1 WHERE k = :k;"
			else
				echo "\\set size random(100, 1000)"
				echo "UPDATE $1 SET v = zipf_value(:k, :size) WHERE k = :k;"
			fi
		} >"$dir/$script.sql"
	done
	pgbench -n -M prepared -c "$ZIPF_CLIENTS" -j "$(nproc)" -T "$ZIPF_SECONDS" --random-seed=$((KV_SEED + $2)) \
		-f "$dir/read.sql" -f "$dir/update.sql" --log --log-prefix="$dir/log" >"$dir/out" 2>&1 ||
		{ cat "$dir/out" >&2; kv_die "pgbench failed on $1"; }
	tps=$(awk '/^tps = / { print int($3); exit }' "$dir/out")
	# A line of the log: client, transaction, microseconds, script, ...
	echo "$tps $(cat "$dir"/log* | sort -n -k 3,3 | awk '{ t[$4, n[$4]++] = $3 }
		END { for (s = 0; s < 2; s++) printf "%.2f %.2f ", t[s, int(n[s] * 0.5)] / 1000, t[s, int(n[s] * 0.99)] / 1000 }')"
	rm -rf "$dir"
}

bench_zipf()
{
	local t turn tps p50r p99r p50u p99u
	local -A sum=([heap_zipf]=0 [kv_zipf]=0) worst_read=([heap_zipf]=0 [kv_zipf]=0) worst_update=([heap_zipf]=0 [kv_zipf]=0)

	head_ "Half reads, half updates, zipfian keys ($ZIPF_SKEW), $ZIPF_KEYS rows, $ZIPF_CLIENTS clients, $ZIPF_TURNS x $ZIPF_SECONDS s each"
	kv_psql -c "CREATE FUNCTION zipf_value(k bigint, size int) RETURNS text LANGUAGE sql IMMUTABLE AS
		\$\$ SELECT left(repeat(md5(k::text), 32), size) \$\$" \
		-c "CREATE FOREIGN TABLE kv_zipf (k bigint NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k', wal 'none')" \
		-c "CREATE TABLE heap_zipf (k bigint PRIMARY KEY, v text)" \
		-c "ALTER SYSTEM SET autovacuum = on" -c "SELECT pg_reload_conf()" >/dev/null
	for t in heap_zipf kv_zipf; do
		kv_psql -c "INSERT INTO $t SELECT k, zipf_value(k, 100 + k % 901) FROM generate_series(1, $ZIPF_KEYS) k" -c "ANALYZE $t"
	done
	kv_psql -c "VACUUM heap_zipf" -c "SELECT kvfdw_flush('kv_zipf')" >/dev/null
	for turn in $(seq "$ZIPF_TURNS"); do
		for t in heap_zipf kv_zipf; do
			kv_psql -c CHECKPOINT
			read -r tps p50r p99r p50u p99u < <(zipf_run $t "$turn")
			say "  $t, turn $turn: $tps/s; read $p50r ms, p99 $p99r ms; update $p50u ms, p99 $p99u ms"
			sum[$t]=$((sum[$t] + tps))
			if kv_true "$p99r > ${worst_read[$t]}"; then worst_read[$t]=$p99r; fi
			if kv_true "$p99u > ${worst_update[$t]}"; then worst_update[$t]=$p99u; fi
		done
	done
	kv_psql -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
	line "half reads, half updates, zipfian, $ZIPF_CLIENTS clients, against heap" \
		"$(ratio "${sum[kv_zipf]}" "${sum[heap_zipf]}") heap" ""
	line "worst p99 of those reads and updates, ms" \
		"${worst_read[kv_zipf]}, ${worst_update[kv_zipf]} (heap ${worst_read[heap_zipf]}, ${worst_update[heap_zipf]})" ""
}
