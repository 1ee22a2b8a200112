#!/bin/bash
# make test: every suite against a private server with the test build, then one
# line "N passed, N failed", and how many were skipped if any were.  A suite that
# ran no test has failed.
#
#   test/run.sh [SUITE…]     rooms unit sql sql-sync isolation pgtap tap differential concurrent tutorial
#                            and, by its name only, clients
#   TAP='00[37]*'         of the tap suite, these files only; SQL='count*' of sql and sql-sync,
#                         SPEC='lock-*' of isolation
#
#   ADMISSION=2        all of it under admission with so many slots, for superusers too
#   COMPACTIONS=on          all of it while all tables are compacted all the time
#   SPLITS=on          all of it while shards are split and cut all the time
#   DEAD=1             all of it while scans step over so many dead keys in a row, in place of 64
#   TIER=1             differential and concurrent with a second tier of 2 MB and a recent ring of 1 MB
#   VALUE_FILE_KB=64        all of it with the smallest value files of so many kB
#   COMPACT=1          merges of all runs move the values of closed value files
#   STATEMENTS=20000   statements of the differential test
#   STEPS=5000         steps of the concurrent test
#   SEED=n             repeat their run
set -euo pipefail
shopt -s extglob	# in SQL
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/lib/setup.sh"
. "$here/lib/server.sh"

suites=(rooms unit sql sql-sync isolation pgtap tutorial tap differential concurrent)
[ $# -eq 0 ] || suites=("$@")
total_passed=0 total_failed=0 total_skipped=0 finished= failures=()

kv_at_end()
{
	[ -n "$finished" ] || [ "$1" = 130 ] || printf '\nthe test run itself failed\n%d passed, %d failed\n' "$total_passed" $((total_failed + 1))
}

# A fresh server for a suite; arguments are postgresql.conf lines.
server()
{
	if [ -s "$KV_PGDATA/postmaster.pid" ]; then kv_server_stop immediate; fi
	: >"$KV_SERVER_LOG"
	local admission=() chunks=()
	[ -z "${VALUE_FILE_KB:-}" ] || chunks=("kvfdw.test_value_file_kb = $VALUE_FILE_KB")
	[ -z "${COMPACT:-}" ] || chunks+=("kvfdw.test_compact = on")
	[ -z "${COMPACTIONS:-}" ] || chunks+=("kvfdw.test_compactions = on" "kvfdw.compact_memory = 4MB")
	[ -z "${DEAD:-}" ] || chunks+=("kvfdw.test_dead_keys = $DEAD")
	[ -z "${SPLITS:-}" ] || chunks+=("kvfdw.test_splits = on")
	[ -z "${ADMISSION:-}" ] || admission=("kvfdw.admission_limit = $ADMISSION" "kvfdw.admission_exempt_superusers = off"
		"kvfdw.admission_exempt_monitor = off")
	kv_server_init "fsync = off" "autovacuum_naptime = 1h" "max_prepared_transactions = 10" "log_min_messages = info" "${admission[@]}" "${chunks[@]}" "$@"
	kv_server_start
	kv_psql -c 'CREATE EXTENSION kvfdw'
}

# A server whose range cache has two windows or a few, and which reads in either way:
# the seed says what, so that it repeats all of a run.
seeded_server() # seed
{
	local caches=(2MB 512kB 512kB 2MB) methods=(auto auto sync sync)
	echo "# kvfdw.range_cache = ${caches[$1 % 4]}, kvfdw.io_method = ${methods[$1 % 4]}"
	local tier=()
	[ -z "${TIER:-}" ] || tier=("kvfdw.recent_ring = 1MB" "kvfdw.value_cache = 1MB" "kvfdw.tier_path = '$KV_RUN/kv.tier'" "kvfdw.tier_size = 2MB")
	# with so few windows scans are in each other's way all the time: they are not to wait long for it
	server "kvfdw.range_cache = '${caches[$1 % 4]}'" "kvfdw.io_method = ${methods[$1 % 4]}" "kvfdw.scan_share_wait = 1s" "${tier[@]}"
}

# How much of it was used, and of the second tier.
range_cache()
{
	kv_psql -At -c "SELECT '# range cache: ' || row_to_json(s) FROM kvfdw_stat_range_cache s"
	[ -z "${TIER:-}" ] || kv_psql -At -c "SELECT '# second tier: ' || row_to_json(s) FROM kvfdw_stat_cache s WHERE cache = 'tier'"
}

regress()
{
	local pgxs name names=''
	pgxs=$(dirname "$("$KV_PG_CONFIG" --pgxs)")
	for name in "$KV_ROOT"/sql/*.sql; do
		name=$(basename "$name" .sql)
		case $name in
			kvfdw--* | '*') continue ;;
			${SQL:-*}) ;;
			*) continue ;;
		esac
		# it counts segments of value files of the usual size
		[ -z "${VALUE_FILE_KB:-}" ] || [ "$name" != range_cache ] || continue
		# pg_regress would stop at the first one.
		if ! ls "$KV_ROOT/expected/$name"*.out >/dev/null 2>&1; then
			echo "not ok - sql/$name.sql has no expected/$name.out"
			continue
		fi
		names="$names $name"
	done
	[ -n "$names" ] || return 0
	mkdir -p "$out/regress"
	# shellcheck disable=SC2086
	timeout -k 5 600 "$pgxs/../test/regress/pg_regress" --inputdir="$KV_ROOT" --outputdir="$out/regress" \
		--bindir="$KV_BIN" --load-extension=kvfdw --dbname=contrib_regression $names || {
		[ ! -s "$out/regress/regression.diffs" ] || cat "$out/regress/regression.diffs"
		return 1
	}
}

suite_unit() { bash "$here/unit/run.sh" test "$out"; }

# The second time as a checkout below a folder named src, in one with a space in its name.
suite_rooms()
{
	perl "$here/rooms.pl"
	mkdir -p "$out/src/a checkout/test"
	cp -r "$KV_ROOT/src" "$out/src/a checkout/"
	cp -r "$here/rooms.pl" "$here/perl" "$out/src/a checkout/test/"
	perl "$out/src/a checkout/test/rooms.pl"
	perl "$here/docs.pl"
	perl "$here/hints.pl"
	perl "$here/messages.pl"
	perl "$here/words.pl"
}

# A scan does not read for itself where a worker of the range cache is slow, or has no place because others have them.
suite_sql() { server "kvfdw.scan_share_wait = 1min" "max_worker_processes = 16" "$@" && regress; }
# The files that read and write many values; the others do what they do by the same calls.
suite_sql-sync()
{
	local SQL=${SQL:-@(count|dml|flush|keys|own_writes|parallel|range_cache|upsert|values|wal|xact)}
	suite_sql "kvfdw.io_method = sync"
}

suite_isolation()
{
	local spec specs=()
	if [ -n "${SPEC:-}" ]; then
		shopt -s nullglob
		for spec in "$here"/isolation/specs/$SPEC.spec; do specs+=("$(basename "$spec" .spec)"); done
		[ ${#specs[@]} -gt 0 ] || return 0
	fi
	server
	ISOLATIONTESTER=$(dirname "$("$KV_PG_CONFIG" --pgxs)")/../test/isolation/isolationtester \
		OUTDIR=$out/isolation timeout -k 5 600 sh "$here/isolation/run.sh" "${specs[@]}"
}

suite_pgtap()
{
	local files
	shopt -s nullglob
	files=("$here"/pgtap/*.sql)
	[ ${#files[@]} -gt 0 ] || return 0
	server
	kv_psql -c 'CREATE EXTENSION pgtap'
	(cd "$here/pgtap" && timeout -k 5 300 pg_prove --verbose "${files[@]}")
}

# The tutorial's blocks, as the server's user, in a copy of the source with the objects that we have.
# What it would install goes to a directory of its own; its servers are this run's.
suite_tutorial()
{
	local dir=$out/tutorial source=$out/tutorial/kvfdw root version
	root=$(kv_readable_root)
	version=$("$KV_PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
	mkdir -p "$source" "$dir/bin"
	(cd "$KV_ROOT" && cp -pr --parents Makefile README.md kvfdw.control kvfdw.so bench/results bin build docs sql src "$source/")
	cat >"$dir/bin/sudo" <<-'EOF'
		#!/bin/sh
		# nothing is installed in the system: packages are asked for if Debian's PostgreSQL is used
		[ "$1" != apt-get ] || { dpkg-query -W "postgresql-$PG" >/dev/null 2>&1 || exit 0; set -- apt-get -s -qq install "$4" "$5" "$6" "$7"; }
		exec "$@"
	EOF
	chmod a+rx "$dir/bin" "$dir/bin/sudo"
	if [ "$(id -u)" = 0 ]; then chown -R "$KV_SERVER_USER" "$dir"; fi
	kv_as env -C "$source" -u PGPORT PATH="$dir/bin:$PATH" HOME="$dir" DEMO="$dir/demo" ROWS="${ROWS:-20000}" PG="$version" \
		MAKEFLAGS=" -- PG_CONFIG=$KV_PG_CONFIG FAULTS=1 DESTDIR=$dir/installed" \
		timeout -k 10 900 perl "$root/test/tutorial.pl" "$root/docs/tutorial.md" "$dir"
	cmp "$dir/installed$("$KV_PG_CONFIG" --pkglibdir)/kvfdw.so" "$KV_TREE$("$KV_PG_CONFIG" --pkglibdir)/kvfdw.so"
}

# Each file runs as the server's user, with clusters of its own below the run directory.
# One with file systems of its own begins as root, if we are (KvLoop.pm).
suite_tap()
{
	local root pgxs file names=()
	root=$(kv_readable_root)
	pgxs=$(dirname "$("$KV_PG_CONFIG" --pgxs)")
	shopt -s nullglob
	for file in "$root"/test/t/${TAP:-*}.pl; do names+=("$(basename "$file" .pl)"); done
	[ ${#names[@]} -gt 0 ] || return 0
	mkdir -p "$out/tap"
	if [ "$(id -u)" = 0 ]; then chown "$KV_SERVER_USER" "$out/tap"; fi
	initdb_once
	export PERL5LIB=$pgxs/../test/perl${PERL5LIB:+:$PERL5LIB} PG_REGRESS=$pgxs/../test/regress/pg_regress
	export -f kv_as kv_as_is one_tap
	export root out
	# the campaigns first: each is long, and would go on alone at the end; a test waits two thirds of its time
	printf '%s\n' "${names[@]}" | sort -s -k1,1.1 -r | xargs -P $(($(nproc) * 3)) -I{} bash -c 'one_tap {}' || true
	for file in "${names[@]}"; do
		cat "$out/tap/$file.log"
		if [ ! -e "$out/tap/$file.passed" ]; then
			grep -q '^not ok ' "$out/tap/$file.log" || ended_with_an_error "$file"
			tail -n 15 "$out/tap/$file/tmp_check/log/"*.log "$out/tap/$file/tmp_check/log/"regress_log_* 2>/dev/null | sed 's/^/# /' || true
		fi
	done
}

# What a file said that ended without a failed test, and the servers that ended then.
ended_with_an_error() # name
{
	local logs=$out/tap/$1/tmp_check/log
	echo "not ok - $1 ended with an error: $(grep -hE ' at .* line [0-9]+|Bail out!' "$out/tap/$1.log" "$logs/"regress_log_* | tail -n 1)"
	grep -H -E '(FATAL|PANIC): |was terminated by signal|server process .* exited' "$logs/"*.log 2>/dev/null |
		grep -vE 'terminating connection|the database system is|connection to client lost' | sed 's/^.*\/tmp_check\/log\//# /' | tail -n 3 || true
}

# initdb takes a second of a CPU: clusters are copies of one, whatever the locale of who tests.  Cluster.pm makes them by
# itself from PostgreSQL 17 on; before, a program of that name comes first in PATH.
initdb_once()
{
	export INITDB_TEMPLATE=$out/tap/template TAP_PATH=$out/tap/bin:$PATH
	kv_as "$KV_BIN/initdb" -D "$INITDB_TEMPLATE" -A trust -N -E UTF8 --locale=C.UTF-8 --lc-messages=C >/dev/null || kv_die "initdb failed"
	mkdir -p "$out/tap/bin"
	cat >"$out/tap/bin/initdb" <<-EOF
		#!/bin/sh
		[ "\$#\$1\$3\$4\$5\${INITDB_TEMPLATE:+ copy}" = "5-D-Atrust-N copy" ] && exec cp -RPp "\$INITDB_TEMPLATE" "\$2"
		exec "$KV_BIN/initdb" "\$@"
	EOF
	chmod a+rx "$out/tap/bin" "$out/tap/bin/initdb"
}

# A limit of its own for what would never end, and the tests' limits (KvTest.pm).
one_tap() # name
{
	local as=kv_as
	kv_as mkdir -p "$out/tap/$1"
	if grep -q '^use KvLoop' "$root/test/t/$1.pl"; then as=kv_as_is; fi
	if $as env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE TESTDIR="$out/tap/$1" TESTDATADIR="$out/tap/$1/tmp_check" \
		TESTLOGDIR="$out/tap/$1/tmp_check/log" PATH="$TAP_PATH" PG_TEST_TIMEOUT_DEFAULT=300 timeout -k 10 "${KV_ALL:+3}900" \
		prove --verbose --nocolor -I "$root/test/perl" "$root/test/t/$1.pl" >"$out/tap/$1.log" 2>&1; then
		touch "$out/tap/$1.passed"
	fi
}

suite_differential()
{
	local seed=${SEED:-$((RANDOM * 30 + RANDOM % 30))}
	[ -f "$here/campaign/differential.pl" ] || return 0
	seeded_server "$seed"
	(cd "$out" && timeout -k 5 "${KV_DIFFERENTIAL_SECONDS:-3600}" \
		perl "$here/campaign/differential.pl" --statements "${STATEMENTS:-20000}" --seed "$seed")
	range_cache
}

suite_concurrent()
{
	local seed=${SEED:-1}
	seeded_server "$seed"
	timeout -k 5 "${KV_CONCURRENT_SECONDS:-3600}" \
		perl "$here/campaign/concurrent.pl" --steps "${STEPS:-5000}" --seed "$seed"
	range_cache
}

# JDBC needs a TCP port.
suite_clients()
{
	PGPORT=$(perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1)->sockport')
	export PGPORT
	server "listen_addresses = '127.0.0.1'"
	bash "$here/clients/run.sh"
}

# The failed tests of a suite's log, each with what it said.
failed_tests() # log
{
	echo
	echo "failed in $1:"
	awk '/^[^ ]*\/t\/[^ ]*\.pl \.\./ { file = $1 }
		/^(test .* \.\.\. FAILED|not ok )|was terminated by signal|PANIC:|TRAP:/ {
			printf "    line %d%s: %s\n", FNR, (file == "" ? "" : " (" file ")"), $0; said = 6; next }
		said > 0 && /^$/ { next }
		said > 0 && /^#/ { print "        " $0; said--; next }
		{ said = 0 }' "$1"
}

kv_begin test
logs=$(dirname "$KV_RUN")/logs
rm -rf "$logs"
mkdir -p "$logs"
out=$KV_RUN/out
mkdir -p "$out"
chmod a+rx "$out"

echo "building with fault injection"
kv_build faults

for suite in "${suites[@]}"; do
	declare -F "suite_$suite" >/dev/null || kv_die "there is no suite '$suite'"
	start=$(date +%s)
	code=0
	log=$logs/$suite.log
	rm -rf "$out"/*
	(set -e; "suite_$suite") >"$log" 2>&1 </dev/null || code=$?

	# pg_regress up to 15 says "test name ... ok", TAP says "ok"; the summary
	# lines of a TAP file's subtests are indented and not counted twice.
	passed=$(grep -cE '^(test .* \.\.\. ok|ok )' "$log" || true)
	failed=$(grep -cE '^(test .* \.\.\. FAILED|not ok )' "$log" || true)
	passed=$((passed - $(grep -ciE '^ok .*# (skip|todo)' "$log" || true)))
	skipped=$(grep -ciE '^(ok .*# skip|.*\.pl \.+ skipped:)' "$log" || true)	# a file that skips all counts once
	failed=$((failed - $(grep -ciE '^not ok .*# todo' "$log" || true)))
	notes=()
	[ "$skipped" = 0 ] || notes+=("$skipped skipped")
	if [ "$passed" = 0 ] && [ "$failed" = 0 ] && [ "$skipped" = 0 ]; then
		notes+=("ran no test")
		failed=1
	elif [ "$code" != 0 ] && [ "$failed" = 0 ]; then
		notes+=("ended with exit code $code")
		failed=1
	fi
	# Only the TAP suite kills processes on purpose, in clusters of its own.
	if [ -s "$KV_SERVER_LOG" ] && grep -E 'was terminated by signal|PANIC:|TRAP:' "$KV_SERVER_LOG" >>"$log"; then
		notes+=("a server process crashed")
		failed=$((failed + 1))
	fi
	cp "$KV_SERVER_LOG" "$logs/$suite.server.log" 2>/dev/null || true
	printf '%-14s %5d passed %5d failed   %4d s%s\n' "$suite" "$passed" "$failed" $(($(date +%s) - start)) "${notes[*]:+   ${notes[*]}}"
	if [ "$failed" -gt 0 ]; then
		if grep -qE '^(\+|-)' "$log"; then
			grep -nE '^(\*\*\*|---|\+\+\+|@@|[-+ ])' "$log" | grep -v '^[0-9]*: *$' | head -n "${KV_DIFF_LINES:-60}" | sed 's/^[0-9]*:/    /' || true
		else
			tail -n 25 "$log" | sed 's/^/    /'
		fi
		echo "    log: $log"
		failures+=("$log")
		mkdir -p "$logs/$suite" && cp -r "$out"/. "$logs/$suite/" 2>/dev/null || true
		find "$logs/$suite" -name pgdata -prune -exec rm -rf {} + 2>/dev/null || true
	fi
	total_passed=$((total_passed + passed))
	total_failed=$((total_failed + failed))
	total_skipped=$((total_skipped + skipped))
done
if [ -s "$KV_PGDATA/postmaster.pid" ]; then kv_server_stop immediate; fi

finished=1
# Last, so that whoever sees only the end of this knows what failed.
for log in "${failures[@]}"; do failed_tests "$log" | head -n 20; done
echo
echo "$total_passed passed, $total_failed failed$([ $total_skipped = 0 ] || echo ", $total_skipped skipped")"
[ "$total_failed" = 0 ]
