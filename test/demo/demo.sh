#!/bin/bash
# make demo: kvfdw's main job on real input, every step verified.
#
#   ROWS=200000   rows of 4 KB in the first part
#   SEED=n        repeat a run's data
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/../lib/setup.sh" libmemcached-tools
. "$here/../lib/server.sh"
. "$here/../../bench/lib/measure.sh"

ROWS=${ROWS:-200000}
SIZE=4096
CLIENTS=8
WRITERS=4
USER_BYTES=$((ROWS * (SIZE + 8)))
FIO_ROWS=$((ROWS < 20000 ? ROWS : 20000))
case $ROWS in
	'' | *[!0-9]* | 0) kv_die "ROWS must be a positive number, not '$ROWS'" ;;
esac

step() { printf '%s\n' "$*"; }
part() { printf '\n== %s\n' "$*"; }
mbs() { kv_calc "$1 * ($SIZE + 8) / 1e6 / $2"; }		# rows seconds

# Both tables give the same answer to the same question, @ being the table.
same() # what sql
{
	local kv heap kv_seconds heap_seconds start
	start=$(kv_now); kv=$(kv_psql -c "${2//@/packages}"); kv_seconds=$(kv_calc "$(kv_now) - $start")
	start=$(kv_now); heap=$(kv_psql -c "${2//@/packages_heap}"); heap_seconds=$(kv_calc "$(kv_now) - $start")
	if [ "$kv" != "$heap" ]; then
		printf 'kvfdw: %s\nheap:  %s\n' "${kv:0:500}" "${heap:0:500}" >&2
		kv_die "$1: kvfdw and heap disagree"
	fi
	printf '  %-44s %8s s   heap %8s s   %s\n' "$1" "$kv_seconds" "$heap_seconds" "$(tail -n 1 <<<"${kv:0:60}")"
}

kv_at_end()
{
	[ "$1" = 0 ] || [ "$1" = 130 ] || printf '\ndemo: FAILED (seed %s)\n' "$KV_SEED" >&2
}

part "A private PostgreSQL server with kvfdw"
kv_begin demo
step "building"
kv_build
kv_build_load
mc_port=$(perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport')
kv_server_init "shared_buffers = 256MB" "max_wal_size = 4GB" "checkpoint_timeout = 30min" "max_worker_processes = 16" \
	"kvfdw.memcached_workers = 1" "kvfdw.memcached_database = 'postgres'" "kvfdw.memcached_role = 'web'" \
	"kvfdw.memcached_listen = '127.0.0.1'" "kvfdw.memcached_port = $mc_port"
kv_server_start
kv_psql -c 'CREATE EXTENSION kvfdw' -c 'CREATE ROLE web LOGIN'
step "$("$KV_BIN/postgres" --version), data on $(df --output=source,fstype "$KV_PGDATA" | tail -n 1 | tr -s ' ' ' '), seed $KV_SEED"
free=$(($(df --output=avail -B1 "$KV_PGDATA" | tail -n 1)))
[ "$free" -gt $((USER_BYTES * 8 + (2 << 30))) ] ||
	kv_die "ROWS=$ROWS needs $(((USER_BYTES * 8 >> 30) + 2)) GB free in $KV_RUN; there are $((free >> 30))"

step "what the disk can do (fio, direct I/O, 4 s each)"
kv_fio_prepare
read -r fio_write _ < <(kv_fio write 256k 4)
read -r fio_read _ < <(kv_fio read 256k 4)
read -r _ fio_iops < <(kv_fio randread 4k 1 $CLIENTS)
rm -f "$KV_RUN/fio"
step "  write $fio_write MB/s, read $fio_read MB/s, $CLIENTS x 4 KB random reads $fio_iops/s"

part "1. $ROWS rows of a random 8-byte key and a 4 KB value"
kv_psql -c "CREATE FOREIGN TABLE kv (k bigint NOT NULL, v bytea) SERVER kvfdw OPTIONS (key 'k')"
kv_psql -c "CREATE TABLE heap (k bigint PRIMARY KEY, v bytea)"
step "making the rows"
"$KV_LOAD" gen "$KV_SEED" 0 "$ROWS" $SIZE >"$KV_RUN/rows"
chmod a+r "$KV_RUN/rows"

declare -A load_s load_device points_s points_n scan_s write_n write_s
for table in heap kv; do
	step "$table: COPY"
	kv_copy_file $table "$KV_RUN/rows"
	load_s[$table]=$KV_SECONDS load_device[$table]=$KV_DEVICE_BYTES
	step "  $KV_SECONDS s, $(mbs "$ROWS" "$KV_SECONDS") MB/s"
done
rm -f "$KV_RUN/rows"

for table in heap kv; do
	kv_cold
	step "$table: $FIO_ROWS random point reads by $CLIENTS clients${KV_WARM:+ (warm: emptying the page cache needs root)}"
	read -r points_n[$table] points_s[$table] < <("$KV_LOAD" points $table "$KV_SEED" "$ROWS" $SIZE "$FIO_ROWS" $CLIENTS)
	[ "${points_n[$table]:-}" = "$FIO_ROWS" ] || kv_die "$table: the point reads failed"
	step "  all $FIO_ROWS values right, ${points_s[$table]} s"
	kv_cold
	step "$table: full ordered scan${KV_WARM:+ (warm)}"
	scan()
	{
		kv_psql -c "COPY (SELECT k, v FROM $table ORDER BY k) TO STDOUT (FORMAT binary)" |
			"$KV_LOAD" verify "$KV_SEED" "$ROWS" $SIZE >/dev/null
	}
	kv_timed scan_s[$table] scan
	step "  order and content of $ROWS rows right, ${scan_s[$table]} s"
done

for table in heap kv; do
	mkdir -p "$KV_RUN/state-$table"
done
step "heap: $WRITERS writers, transactions of 1 to 8 rows, 4 s"
read -r write_n[heap] write_s[heap] < <("$KV_LOAD" write heap "$KV_SEED" $SIZE $WRITERS "$KV_RUN/state-heap" 4)
step "kv: $WRITERS writers, and the postmaster gets SIGKILL at a random moment"
start=$(kv_now)
"$KV_LOAD" write kv "$KV_SEED" $SIZE $WRITERS "$KV_RUN/state-kv" 60 >"$KV_RUN/write.out" &
writers=$!
sleep "$((2 + RANDOM % 4)).$((RANDOM % 1000))"
[ -d "/proc/$writers" ] || kv_die "the writers ended before the kill"
killed=$(kv_calc "$(kv_now) - $start")
kv_server_kill
wait "$writers" || kv_die "a writer failed"
read -r write_n[kv] write_s[kv] <"$KV_RUN/write.out"
step "  killed after $killed s with ${write_n[kv]} rows acknowledged; starting again"
kv_timed restart_s kv_server_start
kv_timed first_s kv_psql -o /dev/null -c "SELECT k FROM kv LIMIT 1"
step "  server up after $restart_s s, first row of kv after another $first_s s"
result=$("$KV_LOAD" check kv "$KV_SEED" "$ROWS" $SIZE $WRITERS "$KV_RUN/state-kv") ||
	kv_die "what the table holds is not what was acknowledged"
step "  $result"
"$KV_LOAD" points kv "$KV_SEED" "$ROWS" $SIZE 2000 $CLIENTS >/dev/null || kv_die "loaded rows are damaged"
"$KV_LOAD" write kv "$KV_SEED" $SIZE $WRITERS "$KV_RUN/state-kv" 2 >"$KV_RUN/write.out" || kv_die "writing does not go on"
read -r more _ <"$KV_RUN/write.out"
[ "$more" -gt 0 ] || kv_die "writing does not go on"
"$KV_LOAD" check kv "$KV_SEED" "$ROWS" $SIZE $WRITERS "$KV_RUN/state-kv" >/dev/null || kv_die "the writes after the crash are not right"
problems=$(kv_psql -c "SELECT * FROM kvfdw_check('kv')")
[ -z "$problems" ] || { printf '%s\n' "$problems" >&2; kv_die "kvfdw_check found problems"; }
step "  writing goes on: $more more rows; kvfdw_check reads everything and finds nothing wrong"

part "2. This machine's package index (apt-cache dumpavail)"
command -v apt-cache >/dev/null || kv_die "part 2 needs apt-cache, so Debian or a relative of it"
if [ "$(apt-cache dumpavail 2>/dev/null | grep -c '^Package:' || true)" -lt 10000 ]; then
	step "fetching the package lists"
	if [ "$(id -u)" = 0 ]; then apt-get update; else sudo apt-get update; fi >"$KV_RUN/apt.log" 2>&1 ||
		step "  apt-get update failed; taking the packages this machine knows"
fi
apt-cache dumpavail | perl "$here/packages.pl" >"$KV_RUN/packages"
chmod a+r "$KV_RUN/packages"
records=$(wc -l <"$KV_RUN/packages")
[ "$records" -gt 0 ] || kv_die "the package index is empty"
columns='version text, section text, installed_size int, depends text[], description text'
kv_psql -c "CREATE FOREIGN TABLE packages (package text COLLATE \"C\" NOT NULL, $columns) SERVER kvfdw OPTIONS (key 'package')" \
	-c "CREATE TABLE packages_heap (package text COLLATE \"C\" PRIMARY KEY, $columns)"
for table in packages packages_heap; do
	kv_timed seconds kv_psql -c "COPY $table FROM '$KV_RUN/packages'"
	step "  $table: COPY of $records records, $seconds s"
done
kv_psql -c "ANALYZE packages" -c "ANALYZE packages_heap" \
	-c "CREATE TABLE needs AS SELECT package, split_part(d, ' ', 1) COLLATE \"C\" AS needs FROM packages_heap, unnest(depends) d" \
	-c "ANALYZE needs"

all="SELECT count(*) || ' records, md5 ' || md5(string_agg(t::text, ',' ORDER BY package)) FROM @ t"
same "everything, in order" "$all"
name=$(kv_psql -c "SELECT package FROM packages_heap ORDER BY (package <> 'bash'), package LIMIT 1")
same "point: package = '$name'" "SELECT version FROM @ WHERE package = '$name'"
same "1000 points: = ANY (…)" "SELECT count(*) || ' found, md5 ' || md5(string_agg(t::text, ',' ORDER BY package)) FROM @ t
	WHERE package = ANY (ARRAY(SELECT package FROM packages_heap ORDER BY md5(package || '$KV_SEED') LIMIT 1000) || 'no such package'::text)"
same "prefix range: libp…" "SELECT count(*) || ' found, md5 ' || md5(string_agg(t::text, ',')) FROM
	(SELECT * FROM @ WHERE package >= 'libp' AND package < 'libq' ORDER BY package) t"
same "the last five before 'm'" "SELECT string_agg(package, ' ') FROM (SELECT package FROM @ WHERE package < 'm' ORDER BY package DESC LIMIT 5) t"
same "join with a heap table: what needs lib* need" "SELECT count(*) || ' pairs, ' || sum(p.installed_size) || ' kB' FROM needs n JOIN @ p ON p.package = n.needs
	WHERE n.package LIKE 'lib%'"
same "join, a few rows (parameterised)" "SELECT string_agg(p.package || ' ' || p.version, ', ' ORDER BY p.package) FROM needs n JOIN @ p ON p.package = n.needs WHERE n.package = '$name'"
same "update: sizes of section libs" "WITH u AS (UPDATE @ SET installed_size = installed_size + 1 WHERE section = 'libs' RETURNING 1) SELECT count(*) || ' updated' FROM u"
same "update of the key" "WITH u AS (UPDATE @ SET package = package || '-renamed' WHERE package >= 'libx' AND package < 'liby' RETURNING 1) SELECT count(*) || ' renamed' FROM u"
same "delete: section games" "WITH d AS (DELETE FROM @ WHERE section = 'games' RETURNING 1) SELECT count(*) || ' deleted' FROM d"
same "delete and rollback" "BEGIN; DELETE FROM @; ROLLBACK; SELECT count(*) || ' records' FROM @"
if kv_psql -c "INSERT INTO packages (package) VALUES ('$name')" 2>"$KV_RUN/duplicate"; then
	kv_die "a second '$name' was accepted"
fi
grep -q 'duplicate key' "$KV_RUN/duplicate" || { cat "$KV_RUN/duplicate" >&2; kv_die "a duplicate key raised another error"; }
step "  a duplicate key is refused: $(head -n 1 "$KV_RUN/duplicate")"
same "everything, in order, again" "$all"
problems=$(kv_psql -c "SELECT * FROM kvfdw_check('packages')")
[ -z "$problems" ] || { printf '%s\n' "$problems" >&2; kv_die "kvfdw_check found problems"; }

part "3. The same rows by memcached, with the client tools of libmemcached"
kv_psql -c "CREATE FOREIGN TABLE cache (key text COLLATE \"C\" NOT NULL, flags bigint NOT NULL DEFAULT 0, expires timestamptz, value bytea)
	SERVER kvfdw OPTIONS (key 'key', memcached '')" -c "GRANT SELECT, INSERT, UPDATE, DELETE ON cache TO web"
mc() { "$1" --servers="127.0.0.1:$mc_port" "${@:2}"; }
mc_ready() { for _ in $(seq 600); do ! mc memcping >/dev/null 2>&1 || return 0; sleep 0.1; done; kv_die "no answer at port $mc_port"; }
# Both read every page, as it was written.
mc_same()
{
	local page
	for page in "$KV_RUN"/pages/*; do
		[ "$(mc memccat "${page##*/}")" = "$(cat "$page")" ] || kv_die "memccat reads another ${page##*/}"
	done
	[ "$(kv_psql -c "SELECT key || ' ' || md5(value) FROM cache ORDER BY key COLLATE \"C\"")" = \
		"$(cd "$KV_RUN/pages" && md5sum -- * | awk '{ print $2, $1 }' | LC_ALL=C sort)" ] || kv_die "SQL reads other pages"
}
mkdir "$KV_RUN/pages"
kv_psql -c "SELECT package || '.txt ' || replace(description, E'\\n', ' ') FROM packages_heap WHERE description IS NOT NULL ORDER BY md5(package) LIMIT 100" |
	while read -r page text; do printf '%s' "$text" >"$KV_RUN/pages/$page"; done
mc_ready
mc memccp "$KV_RUN"/pages/* || kv_die "memccp failed"
mc_same
step "  memccp has written $(ls "$KV_RUN/pages" | wc -l) items; memccat and SQL read them"
kv_server_kill
step "  all processes of the server have had SIGKILL; starting again"
kv_server_start
mc_ready
mc_same
step "  memccat and SQL read them again"
kv_psql -c "UPDATE cache SET value = value || ' (changed)' WHERE key = (SELECT min(key) FROM cache)"
page=$(kv_psql -c "SELECT min(key) FROM cache")
mc memccat "$page" | grep -q '(changed)$' || kv_die "memccat does not see what SQL has changed"
step "  and what SQL changes, memccat sees"

part "4. Results: $ROWS rows, one run, one server, one disk"
row() # what kv_rows/s kv_MB/s heap_rows/s heap_MB/s ratio device share
{
	printf '%-26s %9s %8s %9s %8s %7s %13s %8s\n' "$@"
}
row "" "kv rows/s" "MB/s" "heap r./s" "MB/s" "kv/heap" "device/user" "of fio"
row "COPY, random keys" \
	"$(kv_calc "int($ROWS / ${load_s[kv]})")" "$(mbs "$ROWS" "${load_s[kv]}")" \
	"$(kv_calc "int($ROWS / ${load_s[heap]})")" "$(mbs "$ROWS" "${load_s[heap]}")" \
	"$(kv_calc "int(${load_s[heap]} / ${load_s[kv]} * 100) / 100")x" \
	"$(kv_calc "int(${load_device[kv]} / $USER_BYTES * 1000) / 1000") / $(kv_calc "int(${load_device[heap]} / $USER_BYTES * 100) / 100")" \
	"$(kv_calc "int(100 * $USER_BYTES / 1e6 / ${load_s[kv]} / $fio_write)") %"
row "point reads, $CLIENTS clients" \
	"$(kv_calc "int($FIO_ROWS / ${points_s[kv]})")" "$(mbs "$FIO_ROWS" "${points_s[kv]}")" \
	"$(kv_calc "int($FIO_ROWS / ${points_s[heap]})")" "$(mbs "$FIO_ROWS" "${points_s[heap]}")" \
	"$(kv_calc "int(${points_s[heap]} / ${points_s[kv]} * 100) / 100")x" "" \
	"$(kv_calc "int(100 * $FIO_ROWS / ${points_s[kv]} / $fio_iops)") %"
row "full ordered scan" \
	"$(kv_calc "int($ROWS / ${scan_s[kv]})")" "$(mbs "$ROWS" "${scan_s[kv]}")" \
	"$(kv_calc "int($ROWS / ${scan_s[heap]})")" "$(mbs "$ROWS" "${scan_s[heap]}")" \
	"$(kv_calc "int(${scan_s[heap]} / ${scan_s[kv]} * 100) / 100")x" "" \
	"$(kv_calc "int(100 * $USER_BYTES / 1e6 / ${scan_s[kv]} / $fio_read)") %"
row "transactions, $WRITERS writers" \
	"$(kv_calc "int(${write_n[kv]} / ${write_s[kv]})")" "$(mbs "${write_n[kv]}" "${write_s[kv]}")" \
	"$(kv_calc "int(${write_n[heap]} / ${write_s[heap]})")" "$(mbs "${write_n[heap]}" "${write_s[heap]}")" \
	"$(kv_calc "int(${write_n[kv]} / ${write_s[kv]} / (${write_n[heap]} / ${write_s[heap]}) * 100) / 100")x" "" \
	"$(kv_calc "int(100 * ${write_n[kv]} * ($SIZE + 8) / 1e6 / ${write_s[kv]} / $fio_write)") %"
echo
echo "device/user: bytes the device wrote per byte of keys and values, kv / heap, until all was settled."
echo "of fio: against $fio_write MB/s written, $fio_iops reads/s, $fio_read MB/s read by fio in this run."
echo "The commits of both survive power loss: kv has the default wal level, 'full'."
${KV_WARM:+echo "Reads were warm: emptying the page cache needs root."}
echo
echo "demo: all verified"
