# The YCSB lines of make bench; run.sh sources it.
#
# The workloads of the Yahoo! Cloud Serving Benchmark, over tables made and loaded with default
# options in random order of their keys:
#
#   A  half reads, half updates           D  95 % reads of what was inserted lately, 5 % inserts
#   B  95 % reads, 5 % updates            E  95 % ranges of 1 to 100 rows, 5 % inserts
#   C  reads                              F  half reads, half transactions that read a row and update it
#
# Each cell is a few runs of pgbench, prepared statements, against heap and kvfdw in turn; what counts is
# their ratio.  States:
#
#   default  the server with the settings that it ships with, and all memory of the machine, after a while of reads
#   hot   shared_buffers and kvfdw.value_cache have twice the bytes of a table's values each, and are filled before
#   warm  the server has memory for a third of the values, and each table gets it in the way that suits it: heap a quarter
#         of that as shared_buffers and the rest as page cache, kvfdw three quarters as kvfdw.value_cache and the rest as
#         page cache.  The server starts again for each table, its caches are filled from the table, and a run comes
#         before the one that counts, with other random numbers.
#   cold  the same memory, nothing in it
#
# Of warm and cold the bench also prints what any table could have there that reads one block of a file for each row: the
# transactions/s of a function that does that, without an index, a lock or a checksum, with all of the memory as page cache.
#
# All settings but these are what the server ships with, except autovacuum's.
#
#   YCSB_BYTES=200000000       of values in a table, hot
#   YCSB_FAR_BYTES=1000000000  the same in the other states: much more than any run reads
#   YCSB_WORKLOADS="C B E F A D"
#   YCSB_SIZES="100 1000 4096 8192"
#   YCSB_KEYS="uniform zipfian"
#   YCSB_CLIENTS="1 16"
#   YCSB_STATES="default hot warm cold"
#   YCSB_FLUSH="yes no"       with kvfdw_flush after the load, or without
#   YCSB_SECONDS=2             of a run
#   YCSB_TURNS=3               of runs
#   YCSB_FILL=20             seconds of reads of 16 clients before the state default
#   YCSB_SKEW=1.001          of pgbench's zipfian numbers, which is the least that it takes; YCSB itself has 0.99
#   YCSB_CACHE=default         kvfdw.value_cache as it ships, hot too; a size: of both sides

YCSB_BYTES=${YCSB_BYTES:-$((200000000 / share))}
YCSB_FAR_BYTES=${YCSB_FAR_BYTES:-$((1000000000 / share))}
YCSB_WORKLOADS=${YCSB_WORKLOADS:-C B E F A D}
YCSB_SECONDS=${YCSB_SECONDS:-2}
YCSB_TURNS=${YCSB_TURNS:-3}
YCSB_FILL=${YCSB_FILL:-$((20 / share > 0 ? 20 / share : 1))}
YCSB_SKEW=${YCSB_SKEW:-1.001}
YCSB_SPARE=$((192 << 20)) # what the processes of a server take beside its caches
if [ $share = 1 ]; then
	YCSB_SIZES=${YCSB_SIZES:-100 1000 4096 8192}
	YCSB_KEYS=${YCSB_KEYS:-uniform zipfian}
	YCSB_CLIENTS=${YCSB_CLIENTS:-1 16}
	YCSB_STATES=${YCSB_STATES:-default hot warm cold}
	YCSB_FLUSH=${YCSB_FLUSH:-yes no}
else
	YCSB_SIZES=${YCSB_SIZES:-1000}
	YCSB_KEYS=${YCSB_KEYS:-zipfian}
	YCSB_CLIENTS=${YCSB_CLIENTS:-16}
	YCSB_STATES=${YCSB_STATES:-default hot}
	YCSB_FLUSH=${YCSB_FLUSH:-yes}
fi

# The scripts of a workload against a table, each with its weight: prints pgbench's options.
ycsb_scripts() # table workload keys rows directory
{
	local t=$1 which=$2 rows=$4 dir=$5 number latest key
	number="\\set n random(1, $rows)"
	latest="\\set n random(0, $((rows - 1)))"
	if [ "$3" = zipfian ]; then
		number="\\set n 1 + permute(random_zipfian(1, $rows, $YCSB_SKEW) - 1, $rows)"
		latest="\\set n random_zipfian(1, $rows, $YCSB_SKEW) - 1"
	fi
	key="ycsb_key(:n)"
	printf '%s\n' "$number" "SELECT v FROM $t WHERE k = $key;" >"$dir/read.sql"
	printf '%s\n' "$number" "UPDATE $t SET v = :pad WHERE k = $key;" >"$dir/update.sql"
	printf '%s\n' "$number" BEGIN\; "SELECT v FROM $t WHERE k = $key;" "UPDATE $t SET v = :pad WHERE k = $key;" COMMIT\; >"$dir/modify.sql"
	printf '%s\n' "INSERT INTO $t VALUES (ycsb_key(nextval('ycsb_$t')), :pad);" >"$dir/insert.sql"
	printf '%s\n' "$latest" "SELECT v FROM $t WHERE k = ycsb_key((SELECT last_value FROM ycsb_$t) - :n);" >"$dir/latest.sql"
	printf '%s\n' "$number" "\\set rows random(1, 100)" "SELECT k, v FROM $t WHERE k >= $key ORDER BY k LIMIT :rows;" >"$dir/range.sql"
	case $which in
		A) echo "-f $dir/read.sql@50 -f $dir/update.sql@50" ;;
		B) echo "-f $dir/read.sql@95 -f $dir/update.sql@5" ;;
		C) echo "-f $dir/read.sql" ;;
		D) echo "-f $dir/latest.sql@95 -f $dir/insert.sql@5" ;;
		E) echo "-f $dir/range.sql@95 -f $dir/insert.sql@5" ;;
		F) echo "-f $dir/read.sql@50 -f $dir/modify.sql@50" ;;
		*) kv_die "YCSB has no workload '$which'" ;;
	esac
}

# One run.  Prints transactions/s.
ycsb_run() # table workload keys clients rows seconds turn
{
	local dir=$KV_RUN/ycsb scripts
	mkdir -p "$dir"
	scripts=$(ycsb_scripts "$1" "$2" "$3" "$5" "$dir")
	# shellcheck disable=SC2086
	pgbench -n -M prepared -c "$4" -j "$(nproc)" -T "$6" --random-seed="$((KV_SEED + $7))" -D pad="$ycsb_pad" $scripts >"$dir/out" 2>&1 ||
		{ cat "$dir/out" >&2; kv_die "pgbench failed on $1"; }
	awk '/^tps = / { print $3; exit }' "$dir/out"
}

# Sets bound: transactions/s that read a block of a file of as many bytes each, and return a value's worth of it.
ycsb_bound() # state size clients
{
	local turn dir=$KV_RUN/ycsb all=()
	mkdir -p "$dir"
	printf '%s\n' "\set n random(0, $((YCSB_FAR_BYTES / 4096 - 1)))" \
		"SELECT substr(pg_read_binary_file('$KV_RUN/fio', :n::bigint * 4096, 4096), 1, $2);" >"$dir/block.sql"
	for turn in $(seq "$YCSB_TURNS"); do
		ycsb_server "$1" file
		pgbench -n -M prepared -c "$3" -j "$(nproc)" -T "$YCSB_SECONDS" --random-seed="$((KV_SEED + turn))" -f "$dir/block.sql" >"$dir/out" 2>&1 ||
			{ cat "$dir/out" >&2; kv_die "pgbench failed on a file"; }
		all+=("$(awk '/^tps = / { print int($3); exit }' "$dir/out")")
	done
	bound=$(printf '%s\n' "${all[@]}" | sort -n | sed -n "$(((YCSB_TURNS + 1) / 2))p")
}

# Both tables are used in one server, which goes on from cell to cell.
ycsb_together() { [ "$1" = hot ] || [ "$1" = default ]; } # state

# The server for a state and, unless they are together, for one of the tables, running, with both tables as they were.
ycsb_server() # state table
{
	local buffers=16 cache fair

	kv_server_stop
	kv_forget_warm
	memory_unlimit
	if [ "$1" = default ]; then
		rm -f "$KV_PGDATA/scan.conf"
		kv_server_start
		return
	fi
	fair=$((YCSB_FAR_BYTES / 3))
	case $1.$2 in
		*.file) cache=16 ;;
		hot.*) buffers=$((YCSB_BYTES * 2 >> 20)) cache=$buffers ;;
		*.heap_ycsb) buffers=$((fair / 4 >> 20)) cache=16 ;;
		*) cache=$((fair * 3 / 4 >> 20)) ;;
	esac
	echo "shared_buffers = $((buffers < 16 ? 16 : buffers))MB" >"$KV_PGDATA/scan.conf"
	[ "${YCSB_CACHE:-}" = default ] || echo "kvfdw.value_cache = ${YCSB_CACHE:-$((cache < 16 ? 16 : cache))MB}" >>"$KV_PGDATA/scan.conf"
	chmod a+r "$KV_PGDATA/scan.conf"
	if [ "$1" != hot ] && ! memory_limit $((fair + YCSB_SPARE)); then say "  no permission for a memory cgroup: the page cache is not limited"; fi
	[ "$1" = hot ] || kv_drop_caches || KV_WARM=1
	kv_server_start
	[ "$1" != cold ] || return 0
	if [ "$2" = file ]; then
		kv_psql -c "SELECT sum(length(pg_read_binary_file('$KV_RUN/fio', n << 20, 1 << 20))) FROM generate_series(0, $YCSB_FAR_BYTES - 1 >> 20) n" >/dev/null
		return
	fi
	[ "$2" = kv_ycsb ] || kv_psql -c "SELECT sum(pg_prewarm(c.oid)) FROM pg_class t, pg_class c
		WHERE t.relname = 'heap_ycsb' AND (c.oid IN (t.oid, t.reltoastrelid) OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (t.oid, t.reltoastrelid)))" >/dev/null
	[ "$2" = heap_ycsb ] || kv_psql -c "SELECT kvfdw_prewarm('kv_ycsb')" >/dev/null
}

# Two tables, loaded and analyzed.  Sets rows.
ycsb_load() # size flush bytes
{
	local t

	rows=$(($3 / $1))
	for t in heap_ycsb kv_ycsb; do
		kv_psql -c "INSERT INTO $t SELECT ycsb_key(n), '$ycsb_pad' FROM generate_series(1, $rows) n ORDER BY hashint8extended(n, 1)" \
			-c "ANALYZE $t" -c "CREATE SEQUENCE ycsb_$t START $((rows + 1))"
	done
	kv_psql -c "VACUUM heap_ycsb"
	[ "$2" = no ] || kv_psql -c "SELECT kvfdw_flush('kv_ycsb')" >/dev/null
	kv_psql -c CHECKPOINT
}

# Runs of both tables in turn, after one of each that does not count unless all is to be cold.  Each turn has
# random numbers of its own, the same for both.  The ratio is the median of those of the turns, so that a slow spell
# of the machine does not make it.
ycsb_cell() # workload size keys clients state flush rows
{
	local t turn target=1.0 what ratios=() turns=$YCSB_TURNS reads=0 done=0
	local -A tps=() sum=([heap_ycsb]=0 [kv_ycsb]=0)

	for turn in $(seq 0 "$turns"); do
		[ "$turn" != 0 ] || ycsb_together "$5" || continue
		for t in heap_ycsb kv_ycsb; do
			ycsb_together "$5" || ycsb_server "$5" $t
			[ "$5" != warm ] || ycsb_run $t "$1" "$3" "$4" "$7" "$YCSB_SECONDS" $((turn + 100)) >/dev/null
			[ $t = heap_ycsb ] || kv_psql -c "SELECT kvfdw_stat_reset()" >/dev/null
			tps[$t]=$(ycsb_run $t "$1" "$3" "$4" "$7" "$YCSB_SECONDS" "$turn")
			[ "$turn" != 0 ] || continue
			sum[$t]=$(kv_calc "${sum[$t]} + ${tps[$t]}")
		done
		[ "$turn" != 0 ] || continue
		reads=$(($(stat_of device_reads kv_ycsb) + reads))
		done=$(awk '/^number of transactions actually processed/ { print $NF }' "$KV_RUN/ycsb/out" | awk -F/ -v n="$done" '{ print n + $1 }')
		ratios+=("$(kv_calc "${tps[kv_ycsb]} / ${tps[heap_ycsb]}")")
	done
	ycsb_together "$5" || [ "$1" != C ] || target=1.5
	what="YCSB $1, $2 B, $3, $4 clients, $5$([ "$6" = yes ] || printf ', not flushed')"
	say "  $what: heap $(kv_calc "int(${sum[heap_ycsb]} / $turns)")/s, kvfdw $(kv_calc "int(${sum[kv_ycsb]} / $turns)")/s, $(kv_calc "int(1000 * $reads / ($done + 1))") device reads per 1000; turns: ${ratios[*]}"
	t=$(printf '%s\n' "${ratios[@]}" | sort -g | sed -n "$(((turns + 1) / 2))p")
	line "$what" "$(ratio "$t" 1) heap" "${target}x heap" "$t >= $target"
}

# The two tables, empty, and what they need.  Sets ycsb_pad.
ycsb_begin() # size
{
	ycsb_pad=$(head -c "$1" /dev/urandom | base64 -w 0 | head -c "$1")
	# keys that two statements compute alike, and that are far apart
	kv_psql -c "CREATE EXTENSION IF NOT EXISTS pg_prewarm" \
		-c "CREATE OR REPLACE FUNCTION ycsb_key(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT hashint8extended(\$1, 0)'" \
		-c "CREATE TABLE heap_ycsb (k bigint PRIMARY KEY, v text)" \
		-c "CREATE FOREIGN TABLE kv_ycsb (k bigint NOT NULL, v text) SERVER kvfdw"
}

ycsb_drop() { kv_psql -c "DROP TABLE heap_ycsb" -c "DROP FOREIGN TABLE kv_ycsb" -c "DROP SEQUENCE ycsb_heap_ycsb, ycsb_kv_ycsb"; }

# The server as it was.
ycsb_end()
{
	kv_server_stop
	rm -f "$KV_PGDATA/scan.conf"
	memory_unlimit
	kv_server_start
	kv_psql -c "DROP FUNCTION ycsb_key"
}

# The cells of a size of values in some states, over tables of their own.
ycsb_states() # size flush bytes state...
{
	local size=$1 flush=$2 bytes=$3 state which keys clients bound

	shift 3
	ycsb_begin "$size"
	ycsb_load "$size" "$flush" "$bytes"
	for state; do
		! ycsb_together "$state" || ycsb_server "$state" both
		if [ "$state" = default ]; then
			for which in heap_ycsb kv_ycsb; do ycsb_run $which C uniform 16 "$rows" "$YCSB_FILL" 100 >/dev/null; done
		fi
		for clients in $(ycsb_together "$state" || echo "$YCSB_CLIENTS"); do
			ycsb_bound "$state" "$size" "$clients"
			say "  one block of a file for each transaction, $state, uniform, $clients clients: $bound/s"
		done
		for which in $YCSB_WORKLOADS; do
			for keys in $YCSB_KEYS; do
				for clients in $YCSB_CLIENTS; do
					ycsb_cell "$which" "$size" "$keys" "$clients" "$state" "$flush" "$rows"
				done
			done
		done
	done
	ycsb_drop
}

bench_ycsb()
{
	local size flush state near= far= reads rows ycsb_pad

	for state in $YCSB_STATES; do
		case $state in hot) near=hot ;; *) far="$far $state" ;; esac
	done
	head_ "YCSB: $((YCSB_BYTES / 1000000)) MB of values, $((YCSB_FAR_BYTES / 1000000)) MB warm and cold, $YCSB_TURNS x $YCSB_SECONDS s each, zipfian $YCSB_SKEW, key order random"
	if [ -n "$far" ]; then
		read -r _ reads < <(KV_FIO_SECONDS=2 kv_fio randread 4k 1 16)
		say "  fio, 16 processes that wait for each random read of 4 KB: $reads/s"
	fi
	for size in $YCSB_SIZES; do
		for flush in $YCSB_FLUSH; do
			[ -z "$near" ] || ycsb_states "$size" "$flush" "$YCSB_BYTES" hot
			[ -z "$far" ] || ycsb_states "$size" "$flush" "$YCSB_FAR_BYTES" $far
		done
	done
	ycsb_end
}
