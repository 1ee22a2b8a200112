# The lines of make bench about starts after SIGKILL; run.sh sources it.
#
# What is measured begins when the last process of the killed server has gone, and
# ends with the first row: the server's start, its recovery, a connection.

# Start a killed server and read a row.  Sets up_s, first_s and their sum, row_s.
first_row() # table
{
	kv_timed up_s kv_server_start
	kv_timed first_s kv_psql -o /dev/null -c "SELECT k, v FROM $1 ORDER BY k LIMIT 1"
	row_s=$(kv_calc "$up_s + $first_s")
}

# Rows with no checkpoint after the first, SIGKILL, start.  Sets row_s and wal_mb.
reopen_loaded() # table warm|cold
{
	local from
	kv_psql -c CHECKPOINT
	from=$(kv_psql -c 'SELECT pg_current_wal_insert_lsn()')
	kv_psql -c "COPY $1 FROM '$KV_RUN/rows' (FORMAT binary)"
	wal_mb=$(kv_psql -c "SELECT round((pg_current_wal_insert_lsn() - '$from') / 1e6)")
	kv_server_kill
	if [ "$2" = cold ]; then kv_drop_caches || KV_WARM=1; fi
	first_row "$1"
	check_rows "$1"
	say "  $1, $2 page cache: $wal_mb MB of WAL; server up after $up_s s, first row after $first_s s more"
}

# In a server of each table's own, as the lines of redo.
reopen_beside_heap()
{
	local kind cache up_s first_s row_s wal_mb
	declare -A s

	kv_server_stop
	make_rows "$KV_RUN/rows" "$REDO_ROWS" $SIZE
	for kind in heap full; do
		kv_server_init "${settings[@]}" "max_wal_size = 64GB"
		kv_server_start
		kv_psql -c 'CREATE EXTENSION kvfdw'
		for cache in warm cold; do
			if [ $kind = heap ]; then make_heap "heap_$cache"; else make_kv "full_$cache" full; fi
			reopen_loaded "${kind}_$cache" $cache
			s[$kind$cache]=$row_s
		done
		[ $kind = full ] || kv_server_stop
	done
	rm -f "$KV_RUN/rows"
	for cache in warm cold; do
		line "reopen after SIGKILL, $REDO_ROWS rows since a checkpoint, wal 'full', $cache" \
			"${s[full$cache]} s, $(kv_calc "int(100 * ${s[full$cache]} / ${s[heap$cache]}) / 100")x heap's ${s[heap$cache]} s" "<= heap / 3" \
			"3 * ${s[full$cache]} <= ${s[heap$cache]}"
	done
}

# The recovery of a table is one task for each of its shards, done by the session that asks and kvfdw.recovery_workers helpers.
reopen_helpers() # number, or nothing for the default
{
	if [ -n "${1:-}" ]; then kv_psql -c "ALTER SYSTEM SET kvfdw.recovery_workers = $1"; else kv_psql -c "ALTER SYSTEM RESET kvfdw.recovery_workers"; fi
}

reopen_many_keys()
{
	local worst=0 state up_s first_s row_s values count
	local -A s

	make_kv reopen none
	make_rows "$KV_RUN/rows" "$KEYS" 16
	kv_copy_file reopen "$KV_RUN/rows"
	rm -f "$KV_RUN/rows"
	say "  loaded in $KV_SECONDS s; $(stat_of shards reopen) shards"
	for state in "right after the load, no helpers" "right after the load" "flushed"; do
		case $state in
			*helpers) reopen_helpers 0 ;;
			flushed) kv_psql -c "SELECT kvfdw_flush('reopen')" >/dev/null ;;
			*) reopen_helpers ;;
		esac
		kv_server_kill
		first_row reopen
		values=$(kv_psql -c "SELECT coalesce(sum(calls), 0) || ' reads, ' || coalesce(sum(bytes), 0) || ' bytes' FROM kvfdw_stat_io WHERE kind = 'value read'")
		count=$("$KV_LOAD" points reopen "$KV_SEED" "$KEYS" 16 1000 1) || kv_die "rows are lost or damaged"
		say "  $state: server up after $up_s s, first row after $first_s s more; $(stat_of shards reopen) shards; value reads until then: $values; ${count%% *} random rows right"
		s[$state]=$row_s
	done
	for state in "right after the load" "flushed"; do
		if kv_true "${s[$state]} > $worst"; then worst=${s[$state]}; fi
	done
	line "reopen after SIGKILL, $KEYS keys, wal 'none', until the first row" "$worst s, $values" "<= 1 s, own value" "$worst <= 1"
	line "… right after the load / that without helpers" "$(times_ "${s["right after the load"]}" "${s["right after the load, no helpers"]}")" ""
}

bench_reopen()
{
	head_ "Reopen after SIGKILL, $KEYS keys"
	reopen_many_keys
	head_ "Reopen after SIGKILL, $REDO_ROWS rows since the last checkpoint"
	reopen_beside_heap
}
