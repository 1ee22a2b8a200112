# The lines of single-row INSERT of make bench; run.sh sources it.
#
# Every run has keys of its own, from a base on.  Commits per flush are those of
# all clients together, over the server's flushes of its WAL to the device.

# Flushes of the WAL since the server's start.
wal_flushes()
{
	local clients=

	# sessions add their own to the count when they end
	while [ "$clients" != 1 ]; do
		[ -z "$clients" ] || sleep 0.05
		clients=$(kv_psql -c "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
	done
	if [ "$(kv_psql -c "SHOW server_version_num")" -ge 180000 ]; then
		kv_psql -c "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'"
	else
		kv_psql -c "SELECT wal_sync FROM pg_stat_wal"
	fi
}

# Sets insert_rate, rows/s, and insert_group, commits per flush.
insert_rows() # table clients base
{
	local n seconds flushes

	kv_psql -c CHECKPOINT
	flushes=$(wal_flushes)
	read -r n seconds < <("$KV_LOAD" insert "$1" "$KV_SEED" $SIZE "$SECONDS_EACH" "$2" "$3")
	flushes=$(($(wal_flushes) - flushes))
	insert_rate=$(kv_calc "$n / $seconds")
	insert_group=$(kv_calc "$n / ($flushes > 0 ? $flushes : 1)")
	say "  $1, $2 clients: $insert_rate rows/s, $insert_group commits per WAL flush"
}

insert_tables()
{
	[ -z "${insert_tables_made:-}" ] || return 0
	make_heap insert_heap
	make_kv insert_none none
	make_kv insert_full full
	insert_tables_made=1
}

bench_insert()
{
	local clients level target heap_rate heap_group name

	head_ "Single-row INSERT, prepared, $SECONDS_EACH s each"
	insert_tables
	for clients in 1 8 32; do
		insert_rows insert_heap $clients $((clients << 48))
		heap_rate=$insert_rate heap_group=$insert_group
		for level in none full; do
			case $level-$clients in
				none-1) target=1.5 ;;
				none-*) target=2 ;;
				full-1) target=1.3 ;;
				full-*) target=1.7 ;;
			esac
			insert_rows insert_$level $clients $((clients << 48))
			name="single-row INSERT, $clients client$([ $clients = 1 ] || echo s)"
			if [ $level = none ]; then
				name+=", against heap's logged INSERT"
			else
				name+=", wal '$level'"
			fi
			line "$name" "$(ratio "$insert_rate" "$heap_rate") heap" "${target}x heap" "$insert_rate >= $target * $heap_rate"
		done
		line "commits per WAL flush, $clients client$([ $clients = 1 ] || echo s), wal 'full'" "$insert_group (heap $heap_group)" ""
	done
}
