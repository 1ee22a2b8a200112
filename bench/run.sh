#!/bin/bash
# make bench: kvfdw against a heap table in the same server, on the same disk,
# in one run.  Prints each line with its target and asserts nothing; raw
# numbers go to bench/results/<date>.txt.
#
#   BENCH_ROWS=500000     rows of 8 + 4096 bytes
#   BENCH_KEYS=10000000   keys of the reopen line of wal level none
#   BENCH_SECONDS=5       of each INSERT measurement
#   BENCH_READS=100000    point reads of each client count
#   BENCH_REDO_ROWS=250000  rows, of 8 + 4096 bytes, of the redo lines and reopen's others: about 1 GB of WAL
#   BENCH_ONLY="load scan"  of: defaults rest shards load point scan cold limited shared late ranges inlist writer plot count
#                         insert slowsync zipf upsert overwrite cleaning ycsb pointcpu mass queue pops cachescan tierhit warm splits move reopen redo free checkpoint many admission memcached memcachedcpu; see scan.sh for scan, and shared to count; queue includes pops
#   BENCH_SHORT=1         a fifth of everything, for a quick look
#   SEED=n                repeat a run's data
#   REST_…, SHARDS_…, SCAN_…, ZIPF_…, UPSERT_…, OVERWRITE_…, CLEANING_…, YCSB_…, POINTCPU_…, MASS_…, QUEUE_…, POPS_…, CACHESCAN_…, TIERHIT_…, WARM_…, SPLITS_…, MOVE_…, ADMISSION_…, MEMCACHED_…, MEMCACHEDCPU_…, FREE_…, CHECKPOINT_…  of these lines; see their files
#
# The line plot writes bench/results/scan-throughput.svg and .tsv; with BENCH_SHORT, into bench/results/short.
#
# A kvfdw table has the wal level that its line names, and 'none' where it
# names none.
#
# The heap table is (k bigint PRIMARY KEY, v bytea) with default storage: a
# 4 KB value that does not compress goes out of line (TOAST), as it would for
# any user.  Clients are processes with prepared statements and binary
# parameters (bench/lib/kvload.c); every value read is verified.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/../test/lib/setup.sh"
. "$here/../test/lib/server.sh"
. "$here/lib/measure.sh"

share=1
[ -z "${BENCH_SHORT:-}" ] || share=5
ROWS=${BENCH_ROWS:-$((500000 / share))}
KEYS=${BENCH_KEYS:-$((10000000 / share))}
SECONDS_EACH=${BENCH_SECONDS:-$((5 / share > 0 ? 5 / share : 1))}
READS=${BENCH_READS:-$((100000 / share))}
REDO_ROWS=${BENCH_REDO_ROWS:-$((250000 / share))}
LINES="defaults rest shards load point scan cold limited shared late ranges inlist writer plot count insert slowsync zipf upsert overwrite cleaning ycsb pointcpu mass queue pops cachescan tierhit warm splits move reopen redo free checkpoint many admission memcached memcachedcpu"
ONLY=" ${BENCH_ONLY:-$LINES} "
SIZE=4096
USER_BYTES=$((ROWS * (SIZE + 8)))
for line in $ONLY; do
	[[ " $LINES " == *" $line "* ]] || kv_die "BENCH_ONLY knows $LINES, not '$line'"
done

. "$here/load.sh"
. "$here/scan.sh"
. "$here/defaults.sh"
. "$here/rest.sh"
. "$here/insert.sh"
. "$here/zipf.sh"
. "$here/upsert.sh"
. "$here/overwrite.sh"
. "$here/cleaning.sh"
. "$here/ycsb.sh"
. "$here/pointcpu.sh"
. "$here/mass.sh"
. "$here/queue.sh"
. "$here/pops.sh"
. "$here/cachescan.sh"
. "$here/tierhit.sh"
. "$here/warm.sh"
. "$here/splits.sh"
. "$here/move.sh"
. "$here/admission.sh"
. "$here/memcached.sh"
. "$here/memcachedcpu.sh"
. "$here/reopen.sh"
. "$here/redo.sh"
. "$here/free.sh"

results=$here/results/$(date +%Y-%m-%d-%H%M%S).txt
mkdir -p "$here/results"
exec > >(tee "$results") 2>&1
logger=$!

table=()
sum=()
wants() { [[ $ONLY == *" $1 "* ]]; }
say() { printf '%s\n' "$*"; }
head_() { printf '\n== %s\n' "$*"; }
met() { if kv_true "$1"; then echo met; else echo missed; fi; }
line() # what measured target [condition that says whether the target is met]
{
	local verdict=
	[ -z "${4:-}" ] || verdict=$(met "$4")
	table+=("$(printf '%-72s %-38s %-18s %s' "$1" "$2" "$3" "$verdict")")
	say "  -> $1: $2${verdict:+ ($3: $verdict)}"
}
of_heap_and_fio() { printf '%s' "$(ratio "$heap_s" "$kv_s") heap, $(kv_calc "int(100 * $USER_BYTES / 1e6 / $kv_s / $fio_read)") % of fio"; }
ratio() { printf '%sx' "$(kv_calc "int($1 / $2 * 100) / 100")"; }

cgroup=
kv_at_end()
{
	return_huge_pages
	[ -z "${mc_pid[memcached]:-}" ] || kill "${mc_pid[memcached]}" 2>/dev/null || true
	[ -z "${mc_pid[redis]:-}" ] || kill "${mc_pid[redis]}" 2>/dev/null || true
	if [ -n "$cgroup" ]; then
		[ ! -s "$KV_PGDATA/postmaster.pid" ] || kv_as "$KV_BIN/pg_ctl" -D "$KV_PGDATA" -m immediate -w stop >/dev/null 2>&1
		rmdir "$cgroup" 2>/dev/null
	fi
	[ "$1" = 0 ] || printf 'bench: FAILED (seed %s)\n' "$KV_SEED"
}

# A memory cgroup with a limit in bytes; sets KV_CGROUP.
memory_limit()
{
	if [ -w /sys/fs/cgroup/memory/cgroup.procs ]; then
		cgroup=/sys/fs/cgroup/memory/kvfdw-bench-$$
		mkdir "$cgroup" 2>/dev/null && echo "$1" >"$cgroup/memory.limit_in_bytes" || return 1
	elif [ -w /sys/fs/cgroup/cgroup.subtree_control ]; then
		grep -qw memory /sys/fs/cgroup/cgroup.subtree_control ||
			echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || return 1
		cgroup=/sys/fs/cgroup/kvfdw-bench-$$
		mkdir "$cgroup" 2>/dev/null && echo "$1" >"$cgroup/memory.max" || return 1
	else
		return 1
	fi
	KV_CGROUP=$cgroup/cgroup.procs
}

# After the server has stopped.
memory_unlimit()
{
	[ -z "$cgroup" ] || rmdir "$cgroup"
	cgroup=
	unset KV_CGROUP
}

run_files() { find "$KV_PGDATA/kvfdw"/*/"$(kv_psql -c "SELECT '$1'::regclass::oid")" -name '*.run*' -printf '%s\n' 2>/dev/null | awk '{ n += $1 } END { printf "%.0f", n }'; }
stat_of() { kv_psql -c "SELECT $1 FROM kvfdw_stat_tables WHERE relid = '$2'::regclass"; }
make_kv() # table level [shards]
{
	kv_psql -c "CREATE FOREIGN TABLE $1 (k bigint NOT NULL, v bytea) SERVER kvfdw OPTIONS (key 'k', wal '$2', shards '${3:-1}')"
}
make_heap() { kv_psql -c "CREATE TABLE $1 (k bigint PRIMARY KEY, v bytea)"; }
make_rows() # file rows size
{
	"$KV_LOAD" gen "$KV_SEED" 0 "$2" "$3" >"$1"
	chmod a+r "$1"
}
device_reads() { awk '{ print $1, $3 * 512 }' "/sys/dev/block/$(stat -c '%Hd:%Ld' "$KV_PGDATA")/stat" 2>/dev/null || echo "0 0"; }

head_ "Set-up"
kv_begin bench
kv_build
kv_build_load
free=$(($(df --output=avail -B1 "$KV_RUN" | tail -n 1)))
need=$((USER_BYTES * 8 + KEYS * 200 + (10 << 30)))
[ "$free" -gt $need ] ||
	kv_die "BENCH_ROWS=$ROWS and BENCH_KEYS=$KEYS need $(((need >> 30) + 1)) GB free in $KV_RUN; there are $((free >> 30))"
settings=("shared_buffers = 128MB" "max_wal_size = 4GB" "checkpoint_timeout = 30min" "max_connections = 60" "autovacuum = off"
	"include_if_exists = 'scan.conf'")
kv_server_init "${settings[@]}"
kv_server_start
kv_psql -c 'CREATE EXTENSION kvfdw'
say "$("$KV_BIN/postgres" --version); $(uname -sr); $(nproc) CPUs, $(awk '/^MemTotal/ { printf "%.1f", $2 / 1048576 }' /proc/meminfo) GB"
say "data on $(df --output=source,fstype "$KV_PGDATA" | tail -n 1 | tr -s ' '), io_method $(kv_psql -c 'SHOW kvfdw.io_method'), rows $ROWS, seed $KV_SEED"
say "fio on the same file system, direct I/O, 4 s each, MB/s and operations/s:"
kv_fio_prepare
read -r fio_write x < <(kv_fio write 256k 4); say "  write 256 KB, 4 deep: $fio_write $x"
read -r fio_read x < <(kv_fio read 256k 4); say "  read 256 KB, 4 deep: $fio_read $x"
read -r x fio_random1 < <(kv_fio randread 4k 1); say "  random read 4 KB, 1 deep: $x $fio_random1"
read -r x fio_random32 < <(kv_fio randread 4k 32); say "  random read 4 KB, 32 deep: $x $fio_random32"
rm -f "$KV_RUN/fio"

if wants defaults; then bench_defaults; fi
if wants rest; then bench_rest; fi
if wants shards; then bench_shards; fi
if wants load || wants point || wants cold || wants scan || wants limited; then bench_load; fi

if wants point; then
	head_ "Cold point SELECTs, one client"
	kv_cold
	reads=$((READS / 20 > 100 ? READS / 20 : 100))
	kv_psql -c "SELECT kvfdw_stat_reset()" -c "SELECT count(*) FROM kv WHERE k = 0" >/dev/null
	before=$(stat_of "coalesce(sum(device_reads), 0) || ' ' || coalesce(sum(device_read_bytes), 0)" kv)
	read -r ios_before _ < <(device_reads)
	read -r _ kv_s < <("$KV_LOAD" points kv "$KV_SEED" "$ROWS" $SIZE "$reads" 1)
	read -r ios_after _ < <(device_reads)
	after=$(stat_of "coalesce(sum(device_reads), 0) || ' ' || coalesce(sum(device_read_bytes), 0)" kv)
	read -r n0 b0 <<<"$before"
	read -r n1 b1 <<<"$after"
	say "  $reads reads in $kv_s s ($(kv_calc "int($reads / $kv_s)")/s, fio 1 deep $fio_random1/s); the disk counts $((ios_after - ios_before)) reads, of the index's mapped pages and of others too"
	line "device reads per cold point SELECT of 4096 bytes" \
		"$(kv_calc "int(1000 * ($n1 - $n0) / $reads) / 1000") of $(kv_calc "int(($b1 - $b0) / ($n1 - $n0 > 0 ? $n1 - $n0 : 1))") bytes" "exactly 1, of 4096" \
		"$n1 - $n0 == $reads && $b1 - $b0 == $reads * 4096"
fi

# A full scan of both tables, each after $1 has made the caches cold.  Sets heap_s and kv_s.
full_scan() # cold-function order
{
	local t start seconds heap_sum
	for t in heap kv; do
		"$1"
		start=$(kv_now)
		sum=$(kv_psql -c "SELECT count(*), sum(get_byte(v, $((SIZE - 1)))) FROM (SELECT k, v FROM $t $2) s")
		seconds=$(kv_calc "$(kv_now) - $start")
		say "  $t: $seconds s, $(kv_calc "$USER_BYTES / 1e6 / $seconds") MB/s"
		if [ $t = kv ]; then
			[ "$sum" = "$heap_sum" ] || kv_die "the scans differ: heap $heap_sum, kv $sum"
			kv_s=$seconds
		else
			heap_sum=$sum heap_s=$seconds
		fi
	done
}

ordered_scan() # cold-function suffix
{
	local heap_s kv_s
	full_scan "$1" "ORDER BY k"
	line "full ordered scan, cold$2${KV_WARM:+ (warm: not root)}" "$(of_heap_and_fio)" "5x heap" "$heap_s >= 5 * $kv_s"
}

if wants scan; then
	head_ "Full ordered scan, cold"
	ordered_scan kv_cold ""
	head_ "Full scan in no order, cold"
	full_scan kv_cold ""
	line "full scan in no order, one shard of values in any order, cold" "$(of_heap_and_fio)" ""
fi

# The server again, within the memory limit.
limited_cold()
{
	kv_server_stop
	kv_drop_caches || KV_WARM=1
	kv_server_start
}

if wants cold || wants limited; then
	limit=$((USER_BYTES / 3))
	if [ $limit -lt $((400 << 20)) ]; then
		line "lines with data 3x memory" "skipped: needs BENCH_ROWS >= 320000" ""
	elif ! memory_limit $limit; then
		line "lines with data 3x memory" "skipped: no permission for a memory cgroup" ""
	else
		if wants cold; then
			head_ "Cold point SELECTs, prepared, 32 clients, memory limited to $((limit >> 20)) MB"
			for t in heap kv; do
				limited_cold
				"$KV_LOAD" points $t "$KV_SEED" "$ROWS" $SIZE $((READS / 10)) 32 >/dev/null
				read -r n seconds < <("$KV_LOAD" points $t "$KV_SEED" "$ROWS" $SIZE "$READS" 32)
				say "  $t: $(kv_calc "int($n / $seconds)") reads/s"
				[ $t = kv ] && kv_s=$seconds || heap_s=$seconds
			done
			say "  both have that memory as page cache, and some of the rows in it; fio reads the device only"
			line "cold point SELECT, 32 clients, data 3x memory${KV_WARM:+ (warm: not root)}" "$(ratio "$heap_s" "$kv_s") heap, $(kv_calc "int(100 * $READS / $kv_s / $fio_random32)") % of fio" "2x heap" "$heap_s >= 2 * $kv_s"
		fi
		if wants limited; then
			head_ "Full ordered scan, cold, memory limited to $((limit >> 20)) MB"
			ordered_scan limited_cold ", data 3x memory"
		fi
		kv_server_stop
		memory_unlimit
		kv_server_start
	fi
fi

bench_scans
if wants insert; then bench_insert; fi
if wants slowsync; then bench_slowsync; fi
if wants zipf; then bench_zipf; fi
if wants upsert; then bench_upsert; fi
if wants overwrite; then bench_overwrite; fi
if wants cleaning; then bench_cleaning; fi
if wants ycsb; then bench_ycsb; fi
if wants pointcpu; then bench_pointcpu; fi
if wants mass; then bench_mass; fi
if wants queue; then bench_queue; fi
if wants queue || wants pops; then bench_pops; fi
if wants cachescan; then bench_cachescan; fi
if wants tierhit; then bench_tierhit; fi
if wants warm; then bench_warm; fi
if wants splits; then bench_splits; fi
if wants move; then bench_move; fi

if wants reopen; then bench_reopen; fi
if wants free; then bench_free; fi
if wants checkpoint; then bench_checkpoint; fi
if wants many; then bench_many; fi
if wants redo; then bench_redo; fi
if wants admission; then bench_admission; fi
if wants memcached; then bench_memcached; fi
if wants memcachedcpu; then bench_memcachedcpu; fi

kv_server_stop
head_ "Result, one run (seed $KV_SEED)"
printf '%-72s %-38s %s\n' "" measured target
printf '%s\n' "${table[@]}"
say
say "raw numbers: $results"
exec >&- 2>&-
wait "$logger" 2>/dev/null || true
