# The memcached lines of make bench; run.sh sources it.
#
# Clients of memcached (bench/lib/mcload.c: one thread, closed loop) read and write a kvfdw
# table with the columns key, flags, expires and value at wal 'full', then memcached itself,
# then Redis with appendfsync always; in turn, several times.  One process serves each of
# them.  Server CPU is that of all processes of a server.  The target of a line is of the
# whole: CPU for each request, and the rate compared with the others' on the same machine, whose
# CPUs the loader shares.
#
#   MEMCACHED_SECONDS=2     of each measurement
#   MEMCACHED_TURNS=3       measurements of each line and server
#   MEMCACHED_KEYS=10000
#   MEMCACHED_SIZES="4096 100"
#   MEMCACHED_CLIENTS="1 8 32 200"
#   MEMCACHED_WORKERS=1     processes of ours, threads of memcached

MEMCACHED_SECONDS=${MEMCACHED_SECONDS:-$(kv_calc "2 / $share")}
MEMCACHED_TURNS=${MEMCACHED_TURNS:-$((share > 1 ? 1 : 3))}
MEMCACHED_KEYS=${MEMCACHED_KEYS:-10000}
MEMCACHED_SIZES=${MEMCACHED_SIZES:-4096 100}
MEMCACHED_CLIENTS=${MEMCACHED_CLIENTS:-1 8 32 200}
MEMCACHED_WORKERS=${MEMCACHED_WORKERS:-1}

declare -A mc_port mc_pid mc_rate mc_cpu mc_p50 mc_p99

mc_free_port() { perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport'; }

mc_ticks() # server: CPU ticks of all its processes
{
	local pids=${mc_pid[$1]}
	[ "$1" != kvfdw ] || pids="$pids $(kv_children "$pids")"
	for pid in $pids; do cat "/proc/$pid/stat" 2>/dev/null; done | sed 's/.*) //' | awk '{ n += $12 + $13 } END { print n + 0 }'
}

mc_load() # server kind connections batch size seconds [keys]
{
	local protocol=memcached
	[ "$1" != redis ] || protocol=redis
	"$KV_RUN/mcload" 127.0.0.1 "${mc_port[$1]}" "$protocol" "$2" "$3" "$4" "${7:-$MEMCACHED_KEYS}" "$5" "$6" "$KV_SEED"
}

mc_start()
{
	local setting
	bash "$here/../test/lib/setup.sh" memcached redis-server
	"${CC:-cc}" -O2 -o "$KV_RUN/mcload" "$here/lib/mcload.c" || kv_die "cannot compile bench/lib/mcload.c"
	mc_port=([kvfdw]=$(mc_free_port) [memcached]=$(mc_free_port) [redis]=$(mc_free_port))
	kv_psql -c "CREATE ROLE bench_web LOGIN" -c "CREATE FOREIGN TABLE kv_memcached (key text COLLATE \"C\" NOT NULL, flags bigint NOT NULL DEFAULT 0,
		expires timestamptz, value bytea) SERVER kvfdw OPTIONS (key 'key', memcached '')" -c "GRANT SELECT, INSERT, UPDATE, DELETE ON kv_memcached TO bench_web"
	for setting in "kvfdw.memcached_workers = $MEMCACHED_WORKERS" "kvfdw.memcached_database = '$PGDATABASE'" "kvfdw.memcached_role = 'bench_web'" \
		"kvfdw.memcached_listen = '127.0.0.1'" "kvfdw.memcached_port = ${mc_port[kvfdw]}" "max_worker_processes = 32"; do
		kv_psql -c "ALTER SYSTEM SET $setting"
	done
	kv_server_stop
	kv_server_start
	mc_pid[kvfdw]=$(head -n 1 "$KV_PGDATA/postmaster.pid")
	mkdir -p "$KV_RUN/redis"
	[ "$(id -u)" != 0 ] || chown "$KV_SERVER_USER" "$KV_RUN/redis"
	kv_as memcached -l 127.0.0.1 -p "${mc_port[memcached]}" -U 0 -t "$MEMCACHED_WORKERS" -m 1024 -c 2000 >/dev/null 2>&1 &
	kv_as redis-server --bind 127.0.0.1 --port "${mc_port[redis]}" --dir "$KV_RUN/redis" --save '' --appendonly yes --appendfsync always \
		--maxclients 2000 >"$KV_RUN/redis.log" 2>&1 &
	for _ in $(seq 300); do
		mc_pid[memcached]=$(pgrep -f "^memcached .* -p ${mc_port[memcached]} " || true)
		mc_pid[redis]=$(pgrep -f "^redis-server .*:${mc_port[redis]}" || true)
		[ -z "${mc_pid[memcached]}" ] || [ -z "${mc_pid[redis]}" ] || break
		sleep 0.1
	done
	[ -n "${mc_pid[memcached]}" ] && [ -n "${mc_pid[redis]}" ] || kv_die "memcached or Redis does not start"
}

mc_stop()
{
	local setting
	kill "${mc_pid[memcached]}" "${mc_pid[redis]}" 2>/dev/null || true
	for setting in workers database role listen port commit; do
		kv_psql -c "ALTER SYSTEM RESET kvfdw.memcached_$setting"
	done
	kv_psql -c "ALTER SYSTEM RESET max_worker_processes" -c "DROP FOREIGN TABLE kv_memcached" -c "DROP ROLE bench_web"
	kv_server_stop
	kv_server_start
}

# Measure one kind with some servers in turn; sets mc_rate, mc_cpu, mc_p50 and mc_p99 of each; of mixed mc_p99_sets.
mc_measure() # kind connections batch size keys server…
{
	local kind=$1 connections=$2 batch=$3 size=$4 keys=$5 server ticks n seconds p50 p99 client
	local -A done=() time=() used=() loader=()
	shift 5
	for _ in $(seq "$MEMCACHED_TURNS"); do
		for server in "$@"; do
			ticks=$(mc_ticks "$server")
			read -r n seconds p50 p99 client mc_p99_sets < <(mc_load "$server" "$kind" "$connections" "$batch" "$size" "$MEMCACHED_SECONDS" "$keys") ||
				kv_die "the load on $server failed"
			done[$server]=$((${done[$server]:-0} + n))
			time[$server]=$(kv_calc "${time[$server]:-0} + $seconds")
			used[$server]=$((${used[$server]:-0} + $(mc_ticks "$server") - ticks))
			loader[$server]=$(kv_calc "${loader[$server]:-0} + $n * $client / 1e6")
			mc_p50[$server]=$p50 mc_p99[$server]=$p99
		done
	done
	for server in "$@"; do
		mc_rate[$server]=$(kv_calc "int(${done[$server]} / ${time[$server]})")
		mc_cpu[$server]=$(kv_calc "int(${used[$server]} * 1e8 / $(getconf CLK_TCK) / ${done[$server]}) / 100")
		say "  $server: ${mc_rate[$server]}/s, server CPU ${mc_cpu[$server]} us, loader busy $(kv_calc "int(100 * ${loader[$server]} / ${time[$server]})") % of the time, in the last turn p50 ${mc_p50[$server]} us, p99 ${mc_p99[$server]} us"
	done
}

mc_both() { printf '%s, CPU %s : %s us' "$(ratio "${mc_rate[kvfdw]}" "${mc_rate[memcached]}")" "${mc_cpu[kvfdw]}" "${mc_cpu[memcached]}"; }

mc_gets() # size
{
	local clients server
	for server in kvfdw memcached; do mc_load $server fill 8 16 "$1" 0 >/dev/null || kv_die "$server cannot be filled"; done
	for clients in $MEMCACHED_CLIENTS; do
		say "GET of $1 bytes, $clients clients"
		mc_measure get "$clients" 1 "$1" "$MEMCACHED_KEYS" kvfdw memcached
		line "memcached: GET of $1 bytes, $clients clients" "$(mc_both)" "1.1x, CPU 1x" \
			"${mc_rate[kvfdw]} >= 1.1 * ${mc_rate[memcached]} && ${mc_cpu[kvfdw]} <= ${mc_cpu[memcached]}"
		say "GET of $1 bytes, $clients clients, 16 pipelined"
		mc_measure get "$clients" 16 "$1" "$MEMCACHED_KEYS" kvfdw memcached
		line "memcached: GET of $1 bytes, $clients clients, 16 pipelined" "$(mc_both)" "1.4x" "${mc_rate[kvfdw]} >= 1.4 * ${mc_rate[memcached]}"
	done
	say "get of 100 keys, $1 bytes, 8 clients"
	mc_measure multi 8 100 "$1" "$MEMCACHED_KEYS" kvfdw memcached
	line "memcached: get of 100 keys, $1 bytes, 8 clients" "$(mc_both)" "1.4x" "${mc_rate[kvfdw]} >= 1.4 * ${mc_rate[memcached]}"
}

mc_flushes() { kv_psql -c "SELECT pg_sleep(0.1)" -c "SELECT sum(sets) || ' ' || sum(wal_flushes) FROM kvfdw_stat_memcached" | tail -n 1; }

# Commits for each flush while so many clients write, distinct keys.
mc_commits() # clients target
{
	local sets0 flushes0 sets1 flushes1
	read -r sets0 flushes0 < <(mc_flushes)
	mc_load kvfdw set "$1" 1 4096 "$MEMCACHED_SECONDS" >/dev/null || kv_die "the load failed"
	read -r sets1 flushes1 < <(mc_flushes)
	line "memcached: writes for each flush, $1 clients" "$(kv_calc "int(10 * ($sets1 - $sets0) / ($flushes1 - $flushes0 + 0.001)) / 10")" "$2" \
		"$sets1 - $sets0 >= $2 * ($flushes1 - $flushes0)"
}

mc_sets() # size
{
	local clients batch target verdict
	for clients in $MEMCACHED_CLIENTS; do
		for batch in 1 16; do
			say "durable SET of $1 bytes, $clients clients, $batch at once"
			mc_measure set "$clients" $batch "$1" "$MEMCACHED_KEYS" kvfdw memcached redis
			target= verdict=
			if [ "$clients" = 32 ] && [ $batch = 1 ]; then
				target="0.5x memcached"
				verdict="${mc_rate[kvfdw]} >= 0.5 * ${mc_rate[memcached]}"
			fi
			line "memcached: durable SET of $1 bytes, $clients clients, $batch at once" "$(ratio "${mc_rate[kvfdw]}" "${mc_rate[memcached]}") memcached, ${mc_rate[kvfdw]}/s" "$target" "$verdict"
			line "  … beside Redis, appendfsync always" "$(ratio "${mc_rate[kvfdw]}" "${mc_rate[redis]}")" "1x" "${mc_rate[kvfdw]} >= ${mc_rate[redis]}"
		done
	done
	say "durable SET of $1 bytes, 10 hot keys, 32 clients"
	mc_measure set 32 1 "$1" 10 kvfdw memcached redis
	line "memcached: durable SET of $1 bytes, 10 hot keys, 32 clients" "$(ratio "${mc_rate[kvfdw]}" "${mc_rate[memcached]}") memcached" "1x memcached" "${mc_rate[kvfdw]} >= ${mc_rate[memcached]}"
	line "  … beside Redis, appendfsync always" "$(ratio "${mc_rate[kvfdw]}" "${mc_rate[redis]}")" "1x" "${mc_rate[kvfdw]} >= ${mc_rate[redis]}"
}

# Are gets held up by the flush of sets, or sets by the loop that is busy with gets?  There is no target for that.
mc_mixed()
{
	local alone set_alone
	mc_load kvfdw fill 8 16 4096 0 >/dev/null || kv_die "kvfdw cannot be filled"
	say "GETs of 7 clients, alone, and while another one writes"
	mc_measure get 7 1 4096 "$MEMCACHED_KEYS" kvfdw
	alone=${mc_p99[kvfdw]}
	mc_measure set 1 1 4096 "$MEMCACHED_KEYS" kvfdw
	set_alone=${mc_p99[kvfdw]}
	mc_measure mixed 8 1 4096 "$MEMCACHED_KEYS" kvfdw
	line "memcached: p99 of GET beside durable SETs, and alone" "${mc_p99[kvfdw]} and $alone us" ""
	line "memcached: p99 of a durable SET beside GETs, and alone" "$mc_p99_sets and $set_alone us" ""
}

bench_memcached()
{
	local size
	head_ "Clients of memcached, $MEMCACHED_KEYS keys, $MEMCACHED_WORKERS process"
	mc_start
	for size in $MEMCACHED_SIZES; do
		mc_gets "$size"
		mc_sets "$size"
	done
	mc_mixed
	mc_commits 32 30
	mc_commits 256 120
	mc_stop
}
