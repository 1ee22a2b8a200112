# The lines of scans that share what they read; run.sh sources it.
#
# One table of SCAN_SHARDS shards, ROWS rows of 8 + 4096 bytes loaded in random
# order, flushed, and the heap table of run.sh.  The server may use a third of
# what the rows take (but 512 MB at least); the range cache takes an eighth of
# them.  Each measurement begins with the server restarted and the page cache
# emptied, if we may.  Every result is compared with what the seed says
# (kvload sums), or row by row.  What is measured by fio has fio run just before
# and just after it, as the device is not the same from minute to minute.  Full
# scans are measured by two: fio as it is, with buffers in small pages, and with
# buffers in huge pages, of which root reserves some for the time.
#
# Device bytes are counted twice: by the engine (value read), and by the kernel
# for the whole device, with the mapped index, the server's start and whatever
# else the machine reads.  A target holds for both.
#
#   SCAN_SHARDS=64
#   SCAN_COUNTS="1 2 4 8 16 32 64"   concurrent scans in the plot
#   SCAN_PLOT_SECONDS=120            a table's curve ends before a point that may take longer

SCAN_SHARDS=${SCAN_SHARDS:-64}
SCAN_COUNTS=${SCAN_COUNTS:-1 2 4 8 16 32 64}
SCAN_PLOT_SECONDS=${SCAN_PLOT_SECONDS:-120}
SCAN_LINES="scan shared late ranges count inlist writer plot"
scan_sums="count(*), sum(length(v)), sum(get_byte(v, length(v) - 1)), bit_xor(k)"
scan_reads="FROM kvfdw_stat_io WHERE kind = 'value read'"

wants_scans()
{
	local name
	for name in $SCAN_LINES; do
		if wants "$name"; then return 0; fi
	done
	return 1
}

ordered() { printf 'SELECT %s FROM (SELECT k, v FROM %s ORDER BY k) s' "$scan_sums" "$1"; }
unordered() { printf 'SELECT %s FROM %s' "$scan_sums" "$1"; }
# What fio makes of the device now, with a file as large as a table: MB/s and operations/s.
fio_now() { KV_FIO_SECONDS=2 KV_FIO_SIZE=$USER_BYTES kv_fio "$@"; }
mbs() { kv_calc "int($1 * $USER_BYTES / 1e6 / $2)"; }
# Two decimals, rounded up.
times_() { kv_calc "int(100 * $1 / ($2 > 0 ? $2 : 1) + 0.9999) / 100"; }

# The server as the scans want it, within the memory limit.
scan_setup()
{
	local range_cache limit=$((USER_BYTES / 3)) files

	[ $limit -ge $((512 << 20)) ] || limit=$((512 << 20))
	range_cache=$((USER_BYTES / 8 >> 20))
	scan_data="data $(kv_calc "int(10 * $USER_BYTES / $limit) / 10")x memory"
	head_ "Scans: $SCAN_SHARDS shards, server limited to $((limit >> 20)) MB, range cache $range_cache MB"
	if wants scan || wants ranges || wants inlist; then KV_FIO_SIZE=$USER_BYTES kv_fio_prepare; fi
	scan_sum=$("$KV_LOAD" sums "$KV_SEED" "$ROWS" $SIZE)
	if { wants scan || wants plot; } && [ -z "${bench_loaded:-}" ]; then
		make_heap heap
		make_rows "$KV_RUN/rows" "$ROWS" $SIZE
		load_table heap
		kv_psql -c "ANALYZE heap"
	fi
	kv_server_stop
	# No JIT: its library costs each of 64 sessions 8 MB, and it is no part of what is measured.
	cat >"$KV_PGDATA/scan.conf" <<-END
		max_connections = 100
		shared_buffers = 64MB
		jit = off
		kvfdw.memtable_memory = 64MB
		kvfdw.value_cache = 16MB
		kvfdw.range_cache = ${range_cache}MB
		kvfdw.prefetch_workers = 2
	END
	chmod a+r "$KV_PGDATA/scan.conf"
	if ! memory_limit $limit; then
		scan_data="memory not limited"
		say "  no permission for a memory cgroup"
	fi
	kv_server_start
	make_kv scanned none "$SCAN_SHARDS"
	[ -f "$KV_RUN/rows" ] || make_rows "$KV_RUN/rows" "$ROWS" $SIZE
	load_table scanned
	rm -f "$KV_RUN/rows"
	kv_psql -c "SELECT kvfdw_flush('scanned')" -c CHECKPOINT -c "ANALYZE scanned" >/dev/null
	files=$(find "$KV_PGDATA/kvfdw"/*/"$(kv_psql -c "SELECT 'scanned'::regclass::oid")" -name '*.val' -printf '%f %s\n' |
		awk '{ sub(/\..*/, "", $1); s[$1] += $2 } END { for (i in s) print s[i] }' | sort -n |
		awk '{ s[NR] = $1 } END { printf "%d %.1f %.1f", NR, s[1] / 1e6, s[NR] / 1e6 }')
	read -r shards smallest largest <<<"$files"
	say "  values of $shards shards, $smallest to $largest MB"
	[ "$shards" = "$SCAN_SHARDS" ] || kv_die "the rows lie in $shards of $SCAN_SHARDS shards"
}

scan_done()
{
	rm -f "$KV_RUN/fio"
	kv_server_stop
	rm "$KV_PGDATA/scan.conf"
	memory_unlimit
	kv_server_start
}

# Seconds of CPU that the server has used since its start, sessions that have ended included.
server_cpu()
{
	local clients= pid

	while [ "$clients" != 1 ]; do
		[ -z "$clients" ] || sleep 0.05
		clients=$(kv_psql -c "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
	done
	{
		cat "/proc/$KV_POSTMASTER/stat"
		for pid in $(kv_children "$KV_POSTMASTER"); do cat "/proc/$pid/stat" 2>/dev/null || true; done
	} | sed 's/.*) //' | awk -v hz="$(getconf CLK_TCK)" '{ n += $12 + $13 } NR == 1 { n += $14 + $15 } END { print n / hz }'
}

# Run a kvload command in a server that has just been started on cold caches.
# Sets out, what it printed; reads and read_bytes, of values by the engine;
# device_bytes, of the whole device by the kernel; cpu, seconds of the server.
# Returns false, and says why, if the command fails, as when memory is out.
cold_run() # kvload arguments
{
	local reads_before bytes_before device_before cpu_before

	limited_cold
	cpu_before=$(server_cpu)
	read -r reads_before bytes_before < <(kv_psql -F ' ' -c "SELECT coalesce(sum(calls), 0), coalesce(sum(bytes), 0) $scan_reads")
	read -r device_before _ < <(kv_device_bytes "$KV_PGDATA")
	if ! out=$("$KV_LOAD" "$@" 2>"$KV_RUN/kvload.log"); then
		say "  kvload $1 failed: $(head -n 3 "$KV_RUN/kvload.log" | tr -s '\n\t' ' ')"
		grep -E 'was terminated by signal|PANIC:' "$KV_SERVER_LOG" | tail -n 1 || true
		return 1
	fi
	read -r device_bytes _ < <(kv_device_bytes "$KV_PGDATA")
	read -r reads read_bytes < <(kv_psql -F ' ' -c "SELECT coalesce(sum(calls), 0), coalesce(sum(bytes), 0) $scan_reads")
	device_bytes=$((device_bytes - device_before))
	reads=$((reads - reads_before)) read_bytes=$((read_bytes - bytes_before))
	cpu=$(kv_calc "$(server_cpu) - $cpu_before")
}

# Ordered scans of a table, all started together, once per table and number.
# Returns false if they fail.
declare -A scan_s scan_fast scan_slow scan_cpu scan_read scan_device
concurrent_scans() # table number
{
	local id=$1_$2 s fast slow

	[ -z "${scan_s[$id]:-}" ] || return 0
	if ! cold_run each "$2" "$scan_sum" "$(ordered "$1")"; then
		say "  $1, $2 at once: failed"
		return 1
	fi
	read -r s fast slow <<<"$out"
	scan_s[$id]=$s scan_fast[$id]=$fast scan_slow[$id]=$slow
	scan_cpu[$id]=$cpu scan_read[$id]=$read_bytes scan_device[$id]=$device_bytes
	say "  $1, $2 at once: $s s ($fast to $slow), $(mbs "$2" "$s") MB/s, $cpu s of CPU, $read_bytes bytes read by the engine in $reads reads, $device_bytes by the device"
}

# The middle one of three numbers.
median() { printf '%s\n' "$@" | sort -g | sed -n 2p; }

# Reserve huge pages for fio, if we may and there are any, and give them back.
huge_pages_kept=
huge_pages=/proc/sys/vm/nr_hugepages
reserve_huge_pages()
{
	[ -w $huge_pages ] || return 0
	huge_pages_kept=$(cat $huge_pages)
	echo $((huge_pages_kept + 4)) >$huge_pages
	[ "$(cat $huge_pages)" -ge $((huge_pages_kept + 4)) ] || return_huge_pages
}
return_huge_pages()
{
	[ -z "$huge_pages_kept" ] || echo "$huge_pages_kept" >$huge_pages
	huge_pages_kept=
}

# What fio reads from end to end, MB/s: with buffers in small pages, and in huge ones, or 0.
sequential_fio()
{
	local small huge=0

	read -r small _ < <(fio_now read 256k 4)
	[ -z "$huge_pages_kept" ] || read -r huge _ < <(KV_FIO_MEMORY=shmhuge fio_now read 256k 4)
	echo "$small $huge"
}

# Of what fio reads before and after; "?" if it does not.
of_fio() { if [ "$1" = 0 ]; then echo '?'; else kv_calc "int(200 * $USER_BYTES / 1e6 / $s / ($1 + $2))"; fi; }

# Three times what is run by "$@", which sets s, with fio before, between and after.
# Sets seconds, and percent and huge_percent, of what fio reads: the medians.
beside_fio() # command
{
	local small huge small_after huge_after all_seconds= all_percents= all_huge= i

	reserve_huge_pages
	read -r small huge < <(sequential_fio)
	for i in 1 2 3; do
		"$@"
		read -r small_after huge_after < <(sequential_fio)
		percent=$(of_fio "$small" "$small_after") huge_percent=$(of_fio "$huge" "$huge_after")
		say "    $s s, $(mbs 1 "$s") MB/s, $percent % of fio's $small and $small_after MB/s beside it, $huge_percent % of $huge and $huge_after with huge pages"
		all_seconds+=" $s" all_percents+=" $percent" all_huge+=" $huge_percent"
		small=$small_after huge=$huge_after
	done
	return_huge_pages
	seconds=$(median $all_seconds) percent=$(median $all_percents) huge_percent=$(median $all_huge)
}

select_scan() # table
{
	unset "scan_s[$1_1]"
	concurrent_scans "$1" 1
	s=${scan_s[$1_1]}
}

copy_scan() # table
{
	cold_run each 1 "$ROWS" "COPY (SELECT k, v FROM $1 ORDER BY k) TO '/dev/null' (FORMAT binary)"
	read -r s _ <<<"$out"
	say "  $1, COPY to /dev/null: $s s, $(mbs 1 "$s") MB/s, $cpu s of CPU"
}

bench_full_scan()
{
	local form what s seconds percent huge_percent heap_s

	head_ "Full ordered scan, one session, cold, $scan_data"
	for form in select copy; do
		what="full ordered scan, cold"
		[ $form = select ] || what="COPY of all rows in key order, cold"
		${form}_scan heap
		heap_s=$s
		beside_fio ${form}_scan scanned
		line "$what, $scan_data, $SCAN_SHARDS shards${KV_WARM:+ (warm: not root)}, median of 3" \
			"$percent % of fio ($huge_percent % with huge pages), $(ratio "$heap_s" "$seconds") heap" "80 %, 10x heap" \
			"$percent >= 80 && $heap_s >= 10 * $seconds"
	done
	kv_psql -c "COPY (SELECT k, v FROM scanned ORDER BY k) TO STDOUT (FORMAT binary)" |
		"$KV_LOAD" verify "$KV_SEED" "$ROWS" $SIZE >/dev/null || kv_die "the scan gives wrong rows"
}

# Device bytes against those of one scan, by the engine's count and by the kernel's.
bytes_line() # what read-bytes device-bytes one-read-bytes one-device-bytes most
{
	line "$1" "$(times_ "$2" "$4"), device $(times_ "$3" "$5")" "<= $6" "$2 <= $6 * $4 && $3 <= $6 * $5"
}

bench_shared()
{
	local n bound

	head_ "Concurrent full ordered scans, cold, $scan_data"
	for n in 1 8; do concurrent_scans scanned $n; done
	bytes_line "device bytes of 8 concurrent ordered scans / one" "${scan_read[scanned_8]}" "${scan_device[scanned_8]}" \
		"${scan_read[scanned_1]}" "${scan_device[scanned_1]}" 1.1
	if concurrent_scans scanned 64; then
		bytes_line "device bytes of 64 concurrent ordered scans / one" "${scan_read[scanned_64]}" "${scan_device[scanned_64]}" \
			"${scan_read[scanned_1]}" "${scan_device[scanned_1]}" 1.2
	else
		line "device bytes of 64 concurrent ordered scans / one" "failed" "<= 1.2" 0
	fi
	bound=$(kv_calc "int(800 * ${scan_cpu[scanned_1]} / $(nproc) / ${scan_s[scanned_1]}) / 100")
	line "time of 8 concurrent ordered scans / one" \
		"$(times_ "${scan_s[scanned_8]}" "${scan_s[scanned_1]}") (8x CPU of one / cores: $bound)" "<= 3" \
		"${scan_s[scanned_8]} <= 3 * ${scan_s[scanned_1]}"
}

# A scan that begins when another has read half of what one alone reads.
late_scan() # what sql one-read-bytes one-device-bytes most
{
	local s first late half

	cold_run late "$scan_sum" "$2" "SELECT coalesce(sum(bytes), 0) $scan_reads" $(($3 / 2))
	read -r s first late half <<<"$out"
	say "  $1: $s s together, first $first s, late $late s; $read_bytes bytes read by the engine, $((100 * half / $3)) % of one scan's when the second began; $device_bytes by the device"
	bytes_line "device bytes of a scan and one half a scan later / one, $1" "$read_bytes" "$device_bytes" "$3" "$4" "$5"
}

bench_late()
{
	local PGOPTIONS one_read one_device

	head_ "A scan that begins when another is half way, cold, $scan_data"
	concurrent_scans scanned 1
	late_scan "ORDER BY k" "$(ordered scanned)" "${scan_read[scanned_1]}" "${scan_device[scanned_1]}" 1.6
	# a session is a process
	export PGOPTIONS='-c max_parallel_workers_per_gather=0'
	cold_run each 1 "$scan_sum" "$(unordered scanned)"
	say "  one without ORDER BY: ${out%% *} s, $read_bytes bytes read by the engine, $device_bytes by the device"
	one_read=$read_bytes one_device=$device_bytes
	say "  what has left the cache when the second begins, the half but an eighth, must be read again: 1.375 is the least"
	late_scan "no order" "$(unordered scanned)" "$one_read" "$one_device" 1.1
}

# Statements over many single rows.  Sets rate, rows/s; fio, the 4 KB reads/s of as
# many processes, 64 deep each; and p99, ms.
many_rows() # form rows-each statements clients
{
	local n s rows p50 fio_after

	read -r _ fio < <(fio_now randread 4k 64 "$4")
	cold_run ranges scanned "$KV_SEED" "$ROWS" $SIZE "$3" "$4" "$1" "$2"
	read -r n s rows p50 p99 <<<"$out"
	read -r _ fio_after < <(fio_now randread 4k 64 "$4")
	fio=$(kv_calc "int(($fio + $fio_after) / 2)")
	rate=$(kv_calc "int($rows / $s)")
	say "  $1 $2, $4 clients: $n statements, $rate rows/s, $(kv_calc "$n / $s") statements/s, p50 $p50 ms, p99 $p99 ms, $(kv_calc "$reads / $rows") reads of $(kv_calc "int($read_bytes / ($reads > 0 ? $reads : 1))") bytes per row, $cpu s of CPU; fio $fio/s"
}

bench_ranges()
{
	local clients fio n form what

	head_ "Range scans of 100 rows at random places, cold, $scan_data"
	n=$((READS / 25 > 400 ? READS / 25 : 400))
	for clients in 1 16; do
		many_rows rows 100 $n $clients
		line "k >= \$1 ORDER BY k LIMIT 100, to the client, $clients client$([ $clients = 1 ] || echo s)" \
			"$(kv_calc "int(100 * $rate / $fio)") %" ""
		for form in limit between; do
			what="k >= \$1 ORDER BY k LIMIT 100"
			[ $form = limit ] || what="k BETWEEN \$1 AND \$2"
			many_rows $form 100 $n $clients
			line "$what, summed, $clients client$([ $clients = 1 ] || echo s), rows / fio's 4 KB reads" \
				"$(kv_calc "int(100 * $rate / $fio)") %, p99 $p99 ms" "70 %" "$rate >= 0.7 * $fio"
		done
	done
	n=$((READS / 10 > 1000 ? READS / 10 : 1000))
	many_rows rows 1 $n 1
	line "device reads of LIMIT 1 after a seek" \
		"$reads of $(kv_calc "int($read_bytes / ($reads > 0 ? $reads : 1))") bytes for $n seeks" "exactly 1" "$reads == $n"
}

bench_inlist()
{
	local n fio

	head_ "IN lists of 512 keys, one session, cold, $scan_data"
	n=$((READS / 512 > 40 ? READS / 512 : 40))
	many_rows in 512 $n 1
	line "k IN (512 keys), one session, cold, rows / fio's 4 KB reads" \
		"$(kv_calc "int(100 * $rate / $fio)") %, p99 $p99 ms" "70 %" "$rate >= 0.7 * $fio"
}

bench_count()
{
	local out count ms cold best=0 reads plan

	head_ "count(*) of $KEYS frozen keys"
	make_kv counted none "$SCAN_SHARDS"
	make_rows "$KV_RUN/rows" "$KEYS" 16
	kv_copy_file counted "$KV_RUN/rows"
	rm -f "$KV_RUN/rows"
	kv_psql -c "SELECT kvfdw_flush('counted')" -c CHECKPOINT -c "ANALYZE counted" >/dev/null
	limited_cold
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	out=$(printf '%s\n' '\timing on' 'SELECT count(*) FROM counted \g' '\g' '\g' '\g' | kv_psql)
	reads=$(kv_psql -c "SELECT coalesce(sum(calls), 0) $scan_reads")
	for count in $(grep -v '^Time' <<<"$out"); do
		[ "$count" = "$KEYS" ] || kv_die "count(*) is $count, expected $KEYS"
	done
	read -r cold best < <(awk '/^Time/ { if (!n++) cold = $2; if (n == 1 || $2 < best) best = $2 } END { print cold, best }' <<<"$out")
	plan=$(kv_psql -c "EXPLAIN SELECT count(*) FROM counted" | awk '/Workers Planned/ { print $NF }')
	say "  cold $cold ms, best of four $best ms, ${plan:-0} parallel workers planned, $reads value reads"
	line "count(*) of $KEYS frozen keys, million keys/s" \
		"$(kv_calc "int($KEYS / $best / 100) / 10") (cold $(kv_calc "int($KEYS / $cold / 100) / 10")), $reads value reads" \
		">= 20, no value read" "$KEYS / $best >= 20000 && $reads == 0"
	kv_psql -c "DROP FOREIGN TABLE counted"
}

# A writer during 8 scans, then alone for as long as they took, up to a limit.
bench_writer()
{
	local rows s left fast slow alone with among seconds

	head_ "A writer beside 8 full ordered scans, cold, $scan_data"
	concurrent_scans scanned 8
	make_kv written none "$SCAN_SHARDS"
	seconds=$(awk -v s="${scan_s[scanned_8]}" 'BEGIN { printf "%d", (s < 2 ? 2 : s > 20 ? 20 : s) }')
	cold_run beside 0 "" "" written $SIZE "$seconds"
	read -r rows s left _ <<<"$out"
	check_written "$left"
	alone=$(kv_calc "int($rows / $s)")
	say "  alone: $rows rows in $s s, $alone rows/s, $cpu s of CPU"
	kv_psql -c "TRUNCATE written"
	cold_run beside 8 "$scan_sum" "$(ordered scanned)" written $SIZE 0
	read -r rows s left fast slow <<<"$out"
	check_written "$left"
	with=$(kv_calc "int($rows / $s)")
	say "  beside the scans: $rows rows in $s s, $with rows/s, $cpu s of CPU; scans $fast to $slow s, $read_bytes bytes read by the engine"
	kv_psql -c "TRUNCATE written"
	cold_run beside 8 10000000 "SELECT count(*) FROM (SELECT generate_series(1, 10000000)) s" written $SIZE 0
	read -r rows s left _ <<<"$out"
	check_written "$left"
	among=$(kv_calc "int($rows / $s)")
	say "  beside 8 sessions that read nothing and count to ten million: $rows rows in $s s, $among rows/s, $cpu s of CPU"
	line "multi-row INSERT beside 8 ordered scans / alone" \
		"$(kv_calc "int(100 * $with / $alone) / 100") (beside 8 that only compute: $(kv_calc "int(100 * $among / $alone) / 100"))" \
		">= 0.5" "$with >= 0.5 * $alone"
	line "slowest / fastest of those scans; fastest / one of 8 alone" \
		"$(times_ "$slow" "$fast"); $(times_ "$fast" "${scan_fast[scanned_8]}")" ""
	kv_psql -c "DROP FOREIGN TABLE written"
}

check_written() # rows
{
	[ "$(kv_psql -F ' ' -c "SELECT count(*), coalesce(sum(length(v)), 0) FROM written")" = "$1 $(($1 * SIZE))" ] ||
		kv_die "the writer's rows are not all there"
}

# Both tables' curves, as far as they can be had in the time.
bench_plot()
{
	local t n id last s where=$here/results

	head_ "Scan throughput, cold, $scan_data"
	if [ -n "${BENCH_SHORT:-}" ]; then where=$here/results/short; mkdir -p "$where"; fi
	{
		printf '# full ordered scans, cold, %s rows of %s bytes, %s; %s CPUs; fio reads 256 KB blocks at %s MB/s; %s\n' \
			"$ROWS" $((SIZE + 8)) "$scan_data" "$(nproc)" "$fio_read" "$(date +%F)"
		printf 'table\tscans\tMB_per_s\tseconds\tfastest_s\tslowest_s\tcpu_s\tread_bytes\tdevice_bytes\n'
	} >"$where/scan-throughput.tsv"
	for t in scanned heap; do
		last=0
		for n in $SCAN_COUNTS; do
			if [ $last != 0 ] && kv_true "$s * $n / $last > $SCAN_PLOT_SECONDS"; then
				say "  $t: no more than $last at once, as $n might take $(kv_calc "int($s * $n / $last)") s"
				printf '# %s: %s or more scans not measured; they might take more than %s s\n' \
					"${t/scanned/kvfdw}" "$n" "$SCAN_PLOT_SECONDS" >>"$where/scan-throughput.tsv"
				break
			fi
			if ! concurrent_scans $t "$n"; then
				printf '# %s: %s scans failed\n' "${t/scanned/kvfdw}" "$n" >>"$where/scan-throughput.tsv"
				break
			fi
			id=${t}_$n last=$n s=${scan_s[$id]}
			printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "${t/scanned/kvfdw}" "$n" "$(mbs "$n" "$s")" "$s" \
				"${scan_fast[$id]}" "${scan_slow[$id]}" "${scan_cpu[$id]}" "${scan_read[$id]}" "${scan_device[$id]}" \
				>>"$where/scan-throughput.tsv"
		done
	done
	perl "$here/lib/plot.pl" "$where/scan-throughput.tsv" "$fio_read" >"$where/scan-throughput.svg"
	say "  drawn: $(realpath --relative-to="$PWD" "$where/scan-throughput.svg")"
}

bench_scans()
{
	if ! wants_scans; then return 0; fi
	scan_setup
	if wants scan; then bench_full_scan; fi
	if wants shared; then bench_shared; fi
	if wants late; then bench_late; fi
	if wants ranges; then bench_ranges; fi
	if wants inlist; then bench_inlist; fi
	if wants writer; then bench_writer; fi
	if wants plot; then bench_plot; fi
	if wants count; then bench_count; fi
	scan_done
}
