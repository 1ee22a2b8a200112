#!/bin/bash
# Tests of what needs no server, as plain programs: src/memcached's protocols, the policy of the value cache,
# when splits are tried, how fast compactions go, hashes and prefixes of keys, compressed values, checksums, and how much memory there is.
#
#   test/unit/run.sh test DIRECTORY     the suite "unit": tables of requests and replies, and some
#                                       streams compared with memcached 1.6.18, if that is installed
#   test/unit/run.sh oracle [ROUNDS]    make oracle: as many streams, after installing memcached
#   test/unit/run.sh fuzz [SECONDS]     make fuzz: each protocol so long, with clang's libFuzzer
#
#   SEED=n     repeat an oracle's streams
#   PROTOCOLS="META BINARY"   those to fuzz; all three without it
#
# All is built with AddressSanitizer and UndefinedBehaviorSanitizer.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
protocols=("$root"/src/memcached/protocol/*.c "$here/dictionary.c")
flags=(-std=gnu99 -g -O1 -fno-sanitize-recover=undefined -I"$root/src" -I"$here" -Wall -Wextra -Werror -Wno-missing-field-initializers)

build() # program, source…
{
	local program=$1
	shift
	${CC:-cc} "${flags[@]}" -fsanitize=address,undefined -o "$program" "$@" "${protocols[@]}"
}

# Streams to a dictionary of ours and to memcached, side by side.
compare() # directory, rounds
{
	local sockets user=() code=0 theirs ours
	build "$1/memcached_server" "$here/memcached_server.c"
	sockets=$(mktemp -d /tmp/kvfdw.XXXXXX)
	if [ "$(id -u)" = 0 ]; then
		user=(-u nobody)
		chown nobody "$sockets"
	fi
	memcached "${user[@]}" -s "$sockets/theirs" -U 0 >/dev/null 2>&1 &
	theirs=$!
	exec {held}> >(exec "$1/memcached_server" "$sockets/ours" >/dev/null)
	ours=$!
	until [ -S "$sockets/theirs" ] && [ -S "$sockets/ours" ]; do
		kill -0 "$theirs" && kill -0 "$ours" || { echo "not ok - memcached and the dictionary start"; return 1; }
		sleep 0.1
	done
	perl "$here/memcached_oracle.pl" --ours "$sockets/ours" --theirs "$sockets/theirs" --rounds "$2" --flush ${SEED:+--seed "$SEED"} || code=$?
	exec {held}>&-
	kill "$theirs"
	wait "$theirs" || true
	rm -rf "$sockets"
	return $code
}

case ${1:-} in
	test)
		build "$2/memcached_test" "$here"/memcached_{test,text,meta,binary,parts}.c
		"$2/memcached_test"
		for program in value_cache split_look pace key_hash key_prefix compress machine crc; do
			${CC:-cc} "${flags[@]}" -std=gnu11 -Wno-sign-compare -Wno-unused-parameter -fsanitize=address,undefined \
				-isystem "$("${KV_PG_CONFIG:-${PG_CONFIG:-pg_config}}" --includedir-server)" -o "$2/$program" "$here/$program.c" -lm -llz4
			"$2/$program" "$2"
		done
		# others may say other things of what is wrong
		if [ "$(memcached -V 2>/dev/null)" = 'memcached 1.6.18' ]; then
			compare "$2" 100
		else
			echo "ok 1 - replies are memcached's # skip there is no memcached 1.6.18"
		fi
		;;
	oracle)
		bash "$root/test/lib/setup.sh" memcached
		memcached -V
		directory=$(mktemp -d)
		trap 'rm -rf "$directory"' EXIT
		compare "$directory" "${2:-3000}"
		;;
	fuzz)
		seconds=${2:-300}
		command -v "${CLANG:=$(command -v clang || command -v clang-14 || echo clang)}" >/dev/null ||
			{ echo "fuzz: install clang (Debian: clang libclang-rt-14-dev), or set CLANG" >&2; exit 1; }
		work=$root/.work/fuzz
		for protocol in ${PROTOCOLS:-TEXT META BINARY}; do
			mkdir -p "$work/$protocol"
			"$CLANG" "${flags[@]}" -fsanitize=fuzzer,address,undefined -DKV_FUZZ_$protocol -o "$work/fuzz-$protocol" \
				"${protocols[@]}" "$here/fuzz.c"
			nice "$work/fuzz-$protocol" -max_total_time="$seconds" -max_len=4096 -timeout=60 -print_final_stats=1 -verbosity=0 \
				-dict="$here/fuzz.dict" -artifact_prefix="$work/$protocol-" "$work/$protocol" >"$work/$protocol.log" 2>&1 || {
				tail -n 60 "$work/$protocol.log"
				echo "fuzz: $protocol failed; the input is $work/$protocol-*"
				exit 1
			}
			printf '%s: %s executions, nothing found\n' "$protocol" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$protocol.log")"
		done
		;;
	*)
		sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
		exit 1
		;;
esac
