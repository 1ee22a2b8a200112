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

# Clients that wait for a slow device must share its flushes.
bench_slowsync()
{
	local heap_rate heap_group

	head_ "Single-row INSERT, 32 clients, fdatasync 1 ms slower, $SECONDS_EACH s each"
	"${CC:-cc}" -O2 -shared -fPIC -o "$KV_RUN/slowsync.so" "$here/lib/slowsync.c" -ldl ||
		kv_die "cannot compile bench/lib/slowsync.c"
	chmod a+rx "$KV_RUN/slowsync.so"
	insert_tables
	kv_server_stop
	LD_PRELOAD=$KV_RUN/slowsync.so kv_server_start
	grep -q slowsync.so "/proc/$KV_POSTMASTER/maps" || kv_die "the server has not loaded slowsync.so"
	insert_rows insert_heap 32 $((33 << 48))
	heap_rate=$insert_rate heap_group=$insert_group
	insert_rows insert_full 32 $((33 << 48))
	kv_server_stop
	kv_server_start
	line "commits per fdatasync that takes 1 ms more, 32 clients, wal 'full'" \
		"$insert_group (heap $heap_group), $(ratio "$insert_rate" "$heap_rate") heap" ">= 20" "$insert_group >= 20"
}
