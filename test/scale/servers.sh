# Servers of the scale demo: source after server.sh.  A server is a name and a port; all listen in
# one socket directory and have their data in the run directory.

declare -A PORT=()

# psql on a server
on() { local name=$1; shift; PGPORT=${PORT[$name]} kv_psql "$@"; }

start() # name
{
	kv_as "$KV_BIN/pg_ctl" -D "$KV_RUN/$1" -l "$KV_RUN/$1.log" -t 300 -w start >"$KV_RUN/pg_ctl.log" 2>&1 </dev/null ||
		{ tail -n 20 "$KV_RUN/$1.log" >&2; kv_die "the server $1 did not start"; }
}

configure() # name lines…
{
	local name=$1
	shift
	printf '%s\n' "port = ${PORT[$name]}" "$@" | kv_as tee -a "$KV_RUN/$name/postgresql.conf" >/dev/null
}

new_server() # name lines…
{
	local name=$1
	shift
	PORT[$name]=$((PGPORT + ${#PORT[@]} + 1))
	kv_as "$KV_BIN/initdb" -D "$KV_RUN/$name" -U postgres -A trust -E UTF8 --locale=C -N >"$KV_RUN/initdb.log" 2>&1 || kv_die "initdb failed"
	configure "$name" "listen_addresses = ''" "unix_socket_directories = '$KV_SOCKETS'" "shared_preload_libraries = 'kvfdw'" \
		"kvfdw.memtable_memory = 64MB" "kvfdw.value_cache = 32MB" "kvfdw.range_cache = 32MB" "shared_buffers = 32MB" \
		"max_wal_size = 2GB" "log_min_messages = fatal" "$@"
	start "$name"
	on "$name" -c 'CREATE EXTENSION kvfdw'
}

new_standby() # name of
{
	PORT[$1]=$((PGPORT + ${#PORT[@]} + 1))
	PGPORT=${PORT[$2]} kv_as "$KV_BIN/pg_basebackup" -D "$KV_RUN/$1" -R -X stream -c fast --no-sync
	configure "$1"
	start "$1"
}

# Until the standby has replayed what the other one has written.
caught_up() # name of
{
	local lsn
	lsn=$(on "$2" -c 'SELECT pg_current_wal_flush_lsn()')
	until [ "$(on "$1" -c "SELECT pg_last_wal_replay_lsn() >= '$lsn'")" = t ]; do sleep 0.1; done
}

kill_server() # name
{
	KV_PGDATA=$KV_RUN/$1 kv_server_kill
}
