#!/bin/sh
# Promise: two sessions on a kvfdw table meet as they would on a heap table.
#
# Runs every spec (or those named) twice, on heap and on kvfdw, and compares
# both outputs with expected/NAME.out, or NAME_19.out from PostgreSQL 19 on.
#
#   run.sh [--heap-only|--kv-only] [--write] [SPEC...]
#
# The server is the one PGHOST and PGPORT name; --write stores heap's output
# as the expected one.  Prints one line per run and exits 1 if any differs.
here=$(cd "$(dirname "$0")" && pwd)
tester=${ISOLATIONTESTER:-$(dirname "$(pg_config --pgxs)")/../test/isolation/isolationtester}
kinds="heap kv" write=
while :; do
	case ${1-} in
		--heap-only) kinds=heap ;;
		--kv-only) kinds=kv ;;
		--write) write=1 kinds=heap ;;
		*) break ;;
	esac
	shift
done
[ $# -gt 0 ] || set -- $(cd "$here/specs" && ls *.spec | sed 's/\.spec$//')
out=${OUTDIR:-$(mktemp -d)} fail=0
major=$(($(psql -XAtc 'SHOW server_version_num' postgres) / 10000)) || exit 2
expected() # spec
{
	local alternative name=$1
	for alternative in "$here/expected/$1"_[0-9]*.out; do
		alternative=$(basename "$alternative" .out)
		if [ -f "$here/expected/$alternative.out" ] && [ "$major" -ge "${alternative##*_}" ]; then name=$alternative; fi
	done
	echo "$here/expected/$name.out"
}
mkdir -p "$out"
# a step that hangs is cancelled after this many seconds
export PGISOLATIONTIMEOUT=${PGISOLATIONTIMEOUT:-180}
export PGOPTIONS='-c client_min_messages=warning' LC_MESSAGES=C
for kind in $kinds; do
	db=kv_isolation_$kind
	psql -Xqc "DROP DATABASE IF EXISTS $db" postgres || exit 2
	psql -Xqc "CREATE DATABASE $db" postgres || exit 2
	if [ $kind = kv ]; then
		psql -Xqc "CREATE EXTENSION kvfdw" $db || exit 2
	else
		psql -Xqc "CREATE FUNCTION kvfdw_flush(regclass) RETURNS void LANGUAGE sql AS ''" $db || exit 2
	fi
	for spec in "$@"; do
		if [ $kind = kv ]; then cat "$here/specs/$spec.spec"
		else "$here/../campaign/heapify.pl" --filter <"$here/specs/$spec.spec"
		fi >"$out/$spec.$kind.spec"
		"$tester" "dbname=$db" <"$out/$spec.$kind.spec" >"$out/$spec.$kind.out" 2>&1
		[ -z "$write" ] || cp "$out/$spec.$kind.out" "$(expected "$spec")"
		if diff -u "$(expected "$spec")" "$out/$spec.$kind.out" >"$out/$spec.$kind.diff"; then
			echo "ok isolation $spec $kind"
		else
			echo "not ok isolation $spec $kind"
			sed 's/^/# /' "$out/$spec.$kind.diff"
			fail=1
		fi
	done
done
exit $fail
