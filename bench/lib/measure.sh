# What the demo and the benchmark measure with.  Source after server.sh.

KV_SEED=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

kv_now() { printf '%s' "$EPOCHREALTIME"; }

# calc EXPRESSION: arithmetic with fractions, four significant digits.
kv_calc() { awk "BEGIN { x = $1; printf (x >= 1000 || x <= -1000) ? \"%.0f\" : \"%.4g\", x }" 2>/dev/null || printf '?'; }

kv_true() { awk "BEGIN { exit !($1) }"; }

# The load generator, compiled against this PostgreSQL's libpq.
kv_build_load()
{
	local lib
	lib=$("$KV_PG_CONFIG" --libdir)
	KV_LOAD=$KV_RUN/kvload
	"${CC:-cc}" -O2 -o "$KV_LOAD" "$KV_ROOT/bench/lib/kvload.c" \
		-I"$("$KV_PG_CONFIG" --includedir)" -L"$lib" -Wl,-rpath,"$lib" -lpq ||
		kv_die "cannot compile bench/lib/kvload.c"
}

# kv_fio KIND(read|write|randread) BLOCK DEPTH [JOBS]: prints "MB/s IOPS".
# All runs of one session use one file, next to the data directory.  KV_FIO_MEMORY: the
# kind of memory that its buffers are, as --mem of fio; shmhuge is huge pages.
kv_fio()
{
	local kind=$1 block=$2 depth=$3 jobs=${4:-1} engine out
	for engine in io_uring libaio psync; do
		if out=$(fio --name=kvfdw --filename="$KV_RUN/fio" --size="${KV_FIO_SIZE:-1g}" --rw="$kind" --mem="${KV_FIO_MEMORY:-malloc}" \
			--bs="$block" --iodepth="$depth" --numjobs="$jobs" --group_reporting --direct=1 \
			--ioengine="$engine" --time_based --runtime="${KV_FIO_SECONDS:-4}" --norandommap \
			--randrepeat=0 --invalidate=1 --output-format=terse --terse-version=3 2>"$KV_RUN/fio.log"); then
			awk -F';' -v kind="$kind" '/^3;/ { i = (kind == "write") ? 48 : 7
				printf "%.0f %.0f\n", $i * 1.024 / 1000 * 1, $(i + 1) }' <<<"$out"
			return
		fi
	done
	cat "$KV_RUN/fio.log" >&2
	kv_die "fio does not run on $KV_RUN"
}

# Lay the file out with real blocks, so that no fio run meets unwritten extents.
kv_fio_prepare()
{
	fio --name=kvfdw --filename="$KV_RUN/fio" --size="${KV_FIO_SIZE:-1g}" --rw=write --bs=1m --direct=1 \
		--ioengine=psync --end_fsync=1 >/dev/null 2>"$KV_RUN/fio.log" ||
		{ cat "$KV_RUN/fio.log" >&2; kv_die "fio does not run on $KV_RUN"; }
}

# Rows that COPY has taken so far, every few seconds, until killed.
kv_copy_progress()
{
	local rows
	while sleep 5; do
		rows=$(kv_psql -c 'SELECT max(tuples_processed) FROM pg_stat_progress_copy' 2>/dev/null || true)
		[ -z "$rows" ] || printf '    %s rows\n' "$rows"
	done
}

# kv_timed VARIABLE COMMAND…: run it and store the seconds it took.
kv_timed()
{
	local variable=$1 start
	shift
	start=$(kv_now)
	"$@"
	printf -v "$variable" '%s' "$(kv_calc "$(kv_now) - $start")"
}

# COPY a file of COPY BINARY rows into a table.  Sets KV_SECONDS;
# KV_SETTLED_SECONDS, which a CHECKPOINT after it is part of; and KV_DEVICE_BYTES:
# what the device took until all of it was done.
kv_copy_file() # table file
{
	local before after progress start
	kv_psql -c CHECKPOINT
	sync
	read -r _ before < <(kv_device_bytes "$KV_PGDATA")
	kv_copy_progress &
	progress=$!
	start=$(kv_now)
	kv_timed KV_SECONDS kv_psql -c "COPY $1 FROM '$2' (FORMAT binary)"
	kill "$progress" 2>/dev/null || true
	wait "$progress" 2>/dev/null || true
	kv_psql -c CHECKPOINT
	KV_SETTLED_SECONDS=$(kv_calc "$(kv_now) - $start")
	sync
	read -r _ after < <(kv_device_bytes "$KV_PGDATA")
	KV_DEVICE_BYTES=$((after - before))
}

# Of a server that is stopped: it will not load into kvfdw's caches again what they held, as heap's are empty, too.
kv_forget_warm() { rm -f "$KV_PGDATA/kvfdw/warm"; }

# Cold caches: the server is restarted without what it held, and the page cache emptied, if we may.
kv_cold()
{
	kv_server_stop
	kv_forget_warm
	kv_drop_caches || KV_WARM=1
	kv_server_start
}
