# The lines of make bench with what the server does for clients of memcached; run.sh sources it, after memcached.sh.
#
# The time of the server's processes in ticks of the kernel's clock for each request, by process, how much of it is
# in the kernel, and how much of the whole time that is: the rest is spent waiting.  Of durable sets also how
# many share a flush, and how long it takes from one to the next.  Where strace is, system calls for
# each request, which no other work on the machine changes.
#
#   MEMCACHEDCPU_SECONDS=3    of each measurement of time
#   MEMCACHED_KEYS, MEMCACHED_SIZES    as there

MEMCACHEDCPU_SECONDS=${MEMCACHEDCPU_SECONDS:-$((share > 1 ? 1 : 3))}

mc_worker() { kv_psql -c "SELECT pid FROM kvfdw_stat_memcached WHERE worker_id = 0" 2>/dev/null || true; }

# Of each process: its name, and ticks outside of the kernel and in it.
mc_process_ticks()
{
	local pid
	for pid in $(kv_children "${mc_pid[kvfdw]}"); do
		[ -r "/proc/$pid/stat" ] || continue
		printf '%s\t%s\n' "$(ps -o args= -p "$pid" | sed 's/^postgres: //; s/ *$//')" "$(sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12, $13 }')"
	done
}

# Who takes the server's time, while there is this load.
mc_time_shares() # kind connections batch size keys
{
	local n seconds sets0 flushes0 sets1 flushes1
	read -r sets0 flushes0 < <(mc_flushes)
	mc_process_ticks >"$KV_RUN/ticks0"
	read -r n seconds _ < <(mc_load kvfdw "$1" "$2" "$3" "$4" "$MEMCACHEDCPU_SECONDS" "$5") || kv_die "the load failed"
	mc_process_ticks >"$KV_RUN/ticks1"
	read -r sets1 flushes1 < <(mc_flushes)
	[ "$sets1" = "$sets0" ] || say "  a flush takes $(kv_calc "int(1e6 * $seconds / ($flushes1 - $flushes0 + 0.001))") us, with what is done between two; $(kv_calc "int(10 * ($sets1 - $sets0) / ($flushes1 - $flushes0 + 0.001)) / 10") sets share it"
	awk -F'[\t ]+' -v n="$n" -v seconds="$seconds" -v hz="$(getconf CLK_TCK)" '
		{ user = $(NF - 1); kernel = $NF; $(NF - 1) = $NF = ""; sub(/ +$/, "") }
		NR == FNR { u[$0] = user; k[$0] = kernel; next }
		{ du[$0] += user - u[$0]; dk[$0] += kernel - k[$0]; all += user - u[$0] + kernel - k[$0] }
		END { printf "  server %.2f us:", all * 1e6 / hz / n
			for (p in du) if (du[p] + dk[p] > 0 && du[p] + dk[p] >= all / 100)
				printf " %s %d%% (%d%% of that in the kernel; busy %d%% of the time);", p, 100 * (du[p] + dk[p]) / all + 0.5,
					100 * dk[p] / (du[p] + dk[p]) + 0.5, 100 * (du[p] + dk[p]) / hz / seconds + 0.5
			print "" }' "$KV_RUN/ticks0" "$KV_RUN/ticks1"
}

# Ticks of memcached outside of the kernel and in it.
mc_other_ticks() { sed 's/.*) //' "/proc/${mc_pid[memcached]}/stat" | awk '{ print $12, $13 }'; }

# What memcached takes for the same.
mc_other_time() # kind connections batch size keys
{
	local n user0 kernel0 user1 kernel1
	read -r user0 kernel0 < <(mc_other_ticks)
	read -r n _ < <(mc_load memcached "$1" "$2" "$3" "$4" "$MEMCACHEDCPU_SECONDS" "$5") || kv_die "the load failed"
	read -r user1 kernel1 < <(mc_other_ticks)
	awk -v n="$n" -v user=$((user1 - user0)) -v kernel=$((kernel1 - kernel0)) -v hz="$(getconf CLK_TCK)" 'BEGIN {
		printf "  memcached %.2f us, %d%% of that in the kernel\n", (user + kernel) * 1e6 / hz / n, 100 * kernel / (user + kernel + 0.001) + 0.5 }'
}

mc_system_calls() # kind connections batch size keys
{
	local n pid strace
	command -v strace >/dev/null || return 0
	rm -f "$KV_RUN/calls"
	pid=$(mc_worker)
	strace -c -U calls,name -o "$KV_RUN/calls" -p "$pid" 2>/dev/null &
	strace=$!
	sleep 0.5
	read -r n _ < <(mc_load kvfdw "$1" "$2" "$3" "$4" 1 "$5") || kv_die "the load failed"
	kill -INT $strace 2>/dev/null || true
	wait $strace 2>/dev/null || true
	[ -s "$KV_RUN/calls" ] || return 0		# it was not let
	awk -v n="$n" '$1 ~ /^[0-9]+$/ && $2 != "total" && $1 >= n / 100 { printf "%s%s %.2f", m++ ? ", " : "  system calls of the process: ", $2, $1 / n } END { if (m) print "" }' "$KV_RUN/calls"
}

mc_times() # what kind connections batch size keys
{
	say "$1"
	shift
	mc_time_shares "$@"
	mc_other_time "$@"
	mc_system_calls "$@"
}

mc_each()
{
	local size server
	for size in $MEMCACHED_SIZES; do
		for server in kvfdw memcached; do mc_load $server fill 8 16 "$size" 0 >/dev/null || kv_die "$server cannot be filled"; done
		mc_times "a get of $size bytes, 1 client" get 1 1 "$size" "$MEMCACHED_KEYS"
		mc_times "a get of $size bytes, 8 clients" get 8 1 "$size" "$MEMCACHED_KEYS"
		mc_times "a get of $size bytes, 32 clients" get 32 1 "$size" "$MEMCACHED_KEYS"
		mc_times "a key of a get of 100, $size bytes, 8 clients" multi 8 100 "$size" "$MEMCACHED_KEYS"
		mc_times "a durable set of $size bytes, 32 clients" set 32 1 "$size" "$MEMCACHED_KEYS"
		mc_times "a durable set of $size bytes, 10 hot keys, 32 clients" set 32 1 "$size" 10
	done
}

bench_memcachedcpu()
{
	head_ "What the server does for clients of memcached, $MEMCACHED_KEYS keys"
	mc_start
	mc_each
	mc_stop
}
