# The lines of make bench with queues; run.sh sources it.
#
# Producers append messages of 100 bytes to 17 kB to 100 topics, consumers read up to 100 messages of a topic
# in order: consumers that follow the producers, and consumers that read what has left the recent ring, but
# not the second tier.  The tier is a file in memory, for a fast device; the data directory's device is
# given QUEUE_IOPS reads a second, as a slow one over a network has, by a cgroup: one read each 2 ms.  Values are
# not read through the page cache, for the tier is to be measured.  Then producers alone, with a recent ring and
# without one in turn.
#
#   QUEUE_MESSAGES=40000     before anybody reads, 8.5 kB each in the mean
#   QUEUE_SECONDS=10         of a run
#   QUEUE_IOPS=500

QUEUE_MESSAGES=${QUEUE_MESSAGES:-$((40000 / share))}
QUEUE_SECONDS=${QUEUE_SECONDS:-$((10 / share > 3 ? 10 / share : 3))}
QUEUE_IOPS=${QUEUE_IOPS:-500}

# The server in a cgroup that has so many reads a second of the data directory's device.
iops_limit()
{
	cgroup=/sys/fs/cgroup/blkio/kvfdw-bench-$$
	mkdir "$cgroup" 2>/dev/null && echo "$(lsblk -no MAJ:MIN "$(df --output=source "$KV_PGDATA" | tail -n 1)" | head -n 1 | tr -d ' ') $1" >"$cgroup/blkio.throttle.read_iops_device" || return 1
	KV_CGROUP=$cgroup/cgroup.procs
}

queue_server() # limited? tier? [ring]
{
	kv_server_stop
	kv_forget_warm
	memory_unlimit
	printf '%s\n' "kvfdw.recent_ring = ${3:-32MB}" "kvfdw.value_cache = 0" "kvfdw.page_cache = off" "kvfdw.write_buffers = 8MB" >"$KV_PGDATA/scan.conf"
	[ "$2" = no ] || printf '%s\n' "kvfdw.tier_path = '$queue_tier'" "kvfdw.tier_size = 1GB" >>"$KV_PGDATA/scan.conf"
	chmod a+r "$KV_PGDATA/scan.conf"
	[ "$1" = no ] || iops_limit "$QUEUE_IOPS" || return 1
	kv_server_start
}

# Messages read per second by consumers, who run the last script; sets device_reads, tier_hits, recent_hits, device
# reads per message, and percentiles of their latencies in ms, of the run.
queue_run() # scripts…
{
	local read
	rm -f "$KV_RUN/queue/log"*
	kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
	pgbench -n -M prepared -c 16 -j "$(nproc)" -T "$QUEUE_SECONDS" --random-seed="$KV_SEED" --log --log-prefix="$KV_RUN/queue/log" "$@" >"$KV_RUN/queue/out" 2>&1 ||
		{ cat "$KV_RUN/queue/out" >&2; kv_die "pgbench failed"; }
	read -r read device_reads tier_hits recent_hits < <(kv_psql -c "SELECT rows_read || ' ' || device_reads || ' ' || tier_hits || ' ' || recent_ring_hits FROM kvfdw_stat_tables WHERE relid = 'queue'::regclass")
	messages=$(kv_calc "int($read / $QUEUE_SECONDS)")
	per_message=$(kv_calc "$device_reads / ($read > 0 ? $read : 1)")
	# a line of the log: client, transaction, microseconds, script, ...
	read -r p50 p99 < <(cat "$KV_RUN/queue/log"* | awk -v script=$(($# / 2 - 1)) '$4 == script { print $3 }' | sort -n |
		awk '{ t[NR] = $1 } END { printf "%.1f %.1f\n", t[int((NR + 1) * 0.5)] / 1000, t[int((NR + 1) * 0.99)] / 1000 }')
}

queue_say() { say "  tier $tier, consumers $1: $messages messages/s, p50 $p50 ms, p99 $p99 ms; $recent_hits from the ring, $tier_hits from the tier, $device_reads device reads, $per_message of each message"; }

# Messages that producers alone write in a second, with a recent ring and without, which take turns to be the first, and
# after one run that does not count; sets with_ring and without_ring.
queue_writers()
{
	local rings ring turn=0 tps seconds=$(((QUEUE_SECONDS + 2) / 3))
	with_ring=0 without_ring=0
	for rings in 0 "32MB 0" "0 32MB" "32MB 0" "0 32MB"; do
		for ring in $rings; do
			queue_server no no $ring
			[ $turn != 0 ] || queue_table
			tps=$(pgbench -n -M prepared -c 16 -j "$(nproc)" -T $seconds --random-seed="$((KV_SEED + turn))" -f "$dir/produce.sql" 2>/dev/null | awk '/^tps = / { print int($3); exit }')
			say "  producers alone, recent_ring $ring, turn $turn: $tps messages/s"
			if [ $turn = 0 ]; then continue; fi
			if [ $ring = 0 ]; then without_ring=$((without_ring + tps)); else with_ring=$((with_ring + tps)); fi
		done
		turn=$((turn + 1))
	done
	queue_drop
}

queue_drop() { kv_psql -c "DROP FOREIGN TABLE queue" -c "DROP SEQUENCE queue_n" -c "DROP TABLE queue_pad"; }

queue_table()
{
	kv_psql -c "CREATE FOREIGN TABLE queue (topic int NOT NULL, n bigint NOT NULL, v bytea) SERVER kvfdw OPTIONS (key 'topic, n')" \
		-c "CREATE SEQUENCE queue_n CACHE 1" -c "CREATE TABLE queue_pad AS SELECT (SELECT string_agg(decode(md5(g::text), 'hex'), '') FROM generate_series(1, 1070) g) AS v"
}

# So many messages, slowly enough for the tier to follow.
queue_fill()
{
	pgbench -n -c 4 -t $(($1 / 400)) -f <(echo "INSERT INTO queue SELECT 1 + (random() * 99)::int, nextval('queue_n'), substr(p.v, 1, 100 + (random() * 16900)::int) FROM queue_pad p, generate_series(1, 100);") >/dev/null 2>&1
	kv_psql -c "SELECT kvfdw_flush('queue')" >/dev/null
}

bench_queue()
{
	local with dir=$KV_RUN/queue queue_tier=/dev/shm/kvfdw-bench-$$.tier messages device_reads tier_hits recent_hits per_message p50 p99 tier plain with_p99 with_ring without_ring limited=yes
	local last="(SELECT last_value FROM queue_n)"

	head_ "Queues: $QUEUE_MESSAGES messages of 100 B to 17 kB, 100 topics, 16 clients, $QUEUE_SECONDS s each"
	mkdir -p "$dir"
	printf '%s\n' "INSERT INTO queue SELECT 1 + (random() * 99)::int, nextval('queue_n'), substr(v, 1, 100 + (random() * 16900)::int) FROM queue_pad;" >"$dir/produce.sql"
	printf '%s\n' "\\set topic random(1, 100)" "SELECT v FROM queue WHERE topic = :topic AND n > $last - 1000 ORDER BY n LIMIT 100;" >"$dir/follow.sql"
	printf '%s\n' "\\set topic random(1, 100)" "\\set behind random($((QUEUE_MESSAGES / 4)), $((QUEUE_MESSAGES * 3 / 4)))" \
		"SELECT v FROM queue WHERE topic = :topic AND n > $last - :behind AND n <= $last - :behind + 1000 ORDER BY n LIMIT 100;" >"$dir/behind.sql"
	for tier in yes no; do
		queue_server "$limited" $tier || { limited=no; queue_server no $tier; }
		queue_table
		queue_fill "$QUEUE_MESSAGES"
		[ $tier = no ] || say "  the tier: $(kv_psql -c "SELECT format('%s of %s blocks, %s inserted, %s dropped', used_bytes / block_size, size_bytes / block_size, inserted, dropped) FROM kvfdw_stat_cache WHERE cache = 'tier'")"
		queue_run -f "$dir/produce.sql@1" -f "$dir/follow.sql@4"
		queue_say "that follow"
		[ $tier = no ] || line "consumers that follow producers: device reads" "$device_reads for $recent_hits messages" "0" "$device_reads == 0"
		queue_run -f "$dir/behind.sql"
		queue_say "behind the ring"
		[ $tier = yes ] && with=$messages with_p99=$p99 || plain=$messages
		queue_drop
	done
	if [ $limited = yes ]; then
		line "consumers behind the ring, $QUEUE_IOPS reads/s at home, with a tier" "$(ratio "$with" "$plain") without; p99 $with_p99, $p99 ms" "10x without" "$with >= 10 * $plain"
	else
		line "consumers behind the ring, no limit of reads at home (no permission)" "$(ratio "$with" "$plain") without; p99 $with_p99, $p99 ms" ""
	fi
	queue_writers
	line "producers alone, with a recent ring" "$(ratio "$with_ring" "$without_ring") without" "0.97x without" "$with_ring >= 0.97 * $without_ring"
	kv_server_stop
	rm -f "$KV_PGDATA/scan.conf" "$queue_tier"
	memory_unlimit
	kv_server_start
}
