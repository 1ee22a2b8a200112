#!/bin/bash
# make core PG_SOURCE=directory: PostgreSQL's own regression and isolation tests, without
# admission and with two slots for all sessions, superusers too: nothing may differ or hang.
#
#   PG_SOURCE=directory   the sources of the server's version, not built
#   SUITES="regress isolation"
#
# What fails in both runs alike is the sources' (another minor version, a missing library), and is
# told apart.  A few tests compare plans or statistics that depend on the load; run them again
# alone: TESTS="name…".  The server has room for more background workers than by default: kvfdw's own must
# not take those that tests of parallel queries count on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib/server.sh"

[ -f "${PG_SOURCE:-}/src/test/regress/regress.c" ] || kv_die "PG_SOURCE must name the sources of PostgreSQL"
kv_begin core
kv_build faults
pgxs=$(dirname "$("$KV_PG_CONFIG" --pgxs)")
lib=$KV_RUN/lib
mkdir -p "$lib"
gcc -O1 -fPIC -shared -w -I"$("$KV_PG_CONFIG" --includedir-server)" -DDLSUFFIX='".so"' -DREFINT_VERBOSE \
	-o "$lib/regress.so" "$PG_SOURCE/src/test/regress/regress.c"
for name in refint autoinc; do
	[ ! -f "$PG_SOURCE/contrib/spi/$name.c" ] ||
		gcc -O1 -fPIC -shared -w -I"$("$KV_PG_CONFIG" --includedir-server)" -o "$lib/$name.so" "$PG_SOURCE/contrib/spi/$name.c"
done
chmod -R a+rX "$KV_RUN"

# One suite against a fresh server; prints the names of the tests that failed.
run() # suite slots
{
	local out=$KV_RUN/$1-$2 settings=()
	[ "$2" = off ] || settings=("kvfdw.admission_limit = $2" "kvfdw.admission_exempt_superusers = off"
		"kvfdw.admission_exempt_monitor = off")
	if [ -s "$KV_PGDATA/postmaster.pid" ]; then kv_server_stop immediate; fi
	kv_server_init "fsync = off" "max_prepared_transactions = 10" "max_connections = 60" "max_worker_processes = 32" "${settings[@]}"
	kv_server_start
	kv_psql -c 'CREATE EXTENSION kvfdw'
	mkdir -p "$out"
	case $1 in
		regress) set -- "$1" "$2" "$pgxs/../test/regress/pg_regress" parallel_schedule ;;
		isolation) set -- "$1" "$2" "$pgxs/../test/isolation/pg_isolation_regress" isolation_schedule ;;
	esac
	chown -R "$KV_SERVER_USER" "$out" 2>/dev/null || true
	PGISOLATIONTIMEOUT=60 kv_as env PATH="$PATH" "$3" --inputdir="$PG_SOURCE/src/test/$1" --outputdir="$out" --bindir="$KV_BIN" \
		--dlpath="$lib" --max-concurrent-tests=20 --user=postgres \
		$([ -n "${TESTS:-}" ] && echo "$TESTS" || echo "--schedule=$PG_SOURCE/src/test/$1/$4") >"$out/log" 2>&1 || true
	if [ "$2" != off ]; then kv_psql -c "SELECT '# ' || row_to_json(s) FROM kvfdw_stat_admission s"; fi
	grep -cE '^(test|ok|     [a-z]).*(ok|ms)' "$out/log" >"$out/passed" || true
	sed -nE 's/^(test|not ok [0-9]+ +[-+])? *([a-z0-9_-]+) +\.\.\. FAILED.*/\2/p; s/^not ok [0-9]+ +[-+] +([a-z0-9_-]+).*/\1/p' "$out/log" | sort >"$out/failed"
}

failed=0
for suite in ${SUITES:-regress isolation}; do
	run $suite off
	run $suite 2
	common=$(comm -12 "$KV_RUN/$suite-off/failed" "$KV_RUN/$suite-2/failed" | wc -l)
	echo "$suite: without admission $(wc -l <"$KV_RUN/$suite-off/failed") failed; with two slots $(wc -l <"$KV_RUN/$suite-2/failed"), $common of them the same, $(cat "$KV_RUN/$suite-2/passed") passed"
	for name in $(comm -13 "$KV_RUN/$suite-off/failed" "$KV_RUN/$suite-2/failed"); do
		echo "not ok - $suite $name"
		diff "$KV_RUN/$suite-off/results/$name.out" "$KV_RUN/$suite-2/results/$name.out" | head -n 40 || true
		failed=1
	done
done
mkdir -p "$(dirname "$KV_RUN")/logs"
cp "$KV_SERVER_LOG" "$(dirname "$KV_RUN")/logs/core.server.log"
if grep -E 'was terminated by signal|PANIC:|TRAP:' "$KV_SERVER_LOG"; then failed=1; fi
exit $failed
