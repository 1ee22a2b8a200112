#!/bin/bash
# make memcached-tests: tests that others have written for memcached and its clients, unmodified, against a server
# of ours.
#
#   memccapable        libmemcached's, text and binary protocol
#   pymemcache         its integration tests
#   memcached          its own t/*.t of 1.6.18, unless they need what only memcached has:
#       its memory           extstore* binary-extstore chunked-* error-extstore restart slab* lru* dyn-maxbytes dash-M 64bit refhang
#                            issue_22 issue_29 issue_42 issue_163 issue_183 item_size_max stats
#       TLS, proxy, log      ssl_* proxy watcher*
#       options at a start   00-startup daemonize conn-limits maxconns misbehave idle-timeout issue_50 issue_61 issue_67 shutdown
#                            unixsocket udp stats-conns ascii-auth binary-sasl
#       counts by prefix     stats-detail
#       its source           whitespace
#
#   TESTS='getset cas'  these of memcached's only
#
# They come from Debian and PyPI.  Prints a line for each program; what one that fails has said is in .work/logs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/../lib/setup.sh" libmemcached-tools memcached python3-venv dpkg-dev
. "$here/../lib/server.sh"
. "$here/../lib/memcached.sh"
# test:numbers has these fail, and no others.  They need: binary a Unix socket alone, and values that are discarded as memory
# is short; flush-all a server started with -F and one with -C; metaget the flags h and l, and its second tier; expirations
# a clock that can be set.
MEMCACHED_TESTS="getset incrdecr flags noreply touch getandtouch cas issue_3 issue_14 issue_41 issue_68 issue_70 issue_104 issue_108 issue_140
	issue_152 issue_192 issue_260 line-lengths bogus-commands malicious-commands multiversioning quit strtol-testing binary-get evictions
	binary:3266,3267 flush-all:25,26,27 metaget:100,101,102,103,105,106,107,108,110,150,151,152,153 expirations:3,8,16,17,36"
PYMEMCACHE=4.0.0

kv_begin memcached
mc_server

place=$(dirname "$KV_RUN")/clients
logs=$(dirname "$KV_RUN")/logs
mkdir -p "$place" "$logs"
failed=0
passed=0
try() # name command…
{
	local name=$1
	shift
	if (cd "$place" && "$@") >"$logs/memcached-$name.log" 2>&1 </dev/null; then
		passed=$((passed + 1))
		echo "ok - $name"
	else
		failed=$((failed + 1))
		echo "not ok - $name"
		grep -v '^ok ' "$logs/memcached-$name.log" | tail -n "${LINES_SHOWN:-15}" | sed 's/^/# /'
	fi
	kv_psql -c 'TRUNCATE cache' -c 'SELECT kvfdw_stat_reset()' >/dev/null
}

try memccapable-text timeout 120 memccapable -h 127.0.0.1 -p "$MC_PORT" -a
try memccapable-binary timeout 120 memccapable -h 127.0.0.1 -p "$MC_PORT" -b

if ! [ -d "$place/pymemcache-$PYMEMCACHE" ]; then
	rm -rf "$place/pymemcache"
	python3 -m venv "$place/pymemcache"
	"$place/pymemcache/bin/pip" install -q "pymemcache==$PYMEMCACHE" pytest
	"$place/pymemcache/bin/pip" download -q --no-deps --no-binary :all: -d "$place" "pymemcache==$PYMEMCACHE"
	tar -xzf "$place/pymemcache-$PYMEMCACHE.tar.gz" -C "$place"
fi
try pymemcache timeout 120 env -C "$place/pymemcache-$PYMEMCACHE" "$place/pymemcache/bin/python" -m pytest -q -p no:cacheprovider -o addopts= \
	pymemcache/test/test_integration.py --server 127.0.0.1 --port "$MC_PORT"

# The source of the memcached that Debian has, by lists of our own.
fetch_source()
{
	local lists=$place/apt
	mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
	printf 'deb-src http://deb.debian.org/debian %s main\n' "$(. /etc/os-release && echo "$VERSION_CODENAME")" >"$lists/sources.list"
	(cd "$place" && apt=(apt-get -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$lists/lists"
		-o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root) && "${apt[@]}" -q update && "${apt[@]}" -q source memcached)
}
source=$(find "$place" -maxdepth 1 -type d -name 'memcached-1.*' | head -n 1)
if [ -z "$source" ]; then
	fetch_source >"$logs/memcached-source.log" 2>&1 || { tail -n 5 "$logs/memcached-source.log"; kv_die "the source of memcached cannot be had"; }
	source=$(find "$place" -maxdepth 1 -type d -name 'memcached-1.*' | head -n 1)
fi
# they look for one that was built, and do not start it
ln -sf "$(command -v memcached)" "$source/memcached-debug"
# As a program of Perl's Test::More: true if it comes to its end, and what fails are these numbers.
but() # numbers, command…
{
	local numbers=$1 code=0 said failed
	shift
	said=$(timeout 120 "$@" 2>&1) || code=$?
	printf '%s\n' "$said"
	failed=$(sed -n 's/^not ok \([0-9]*\).*/\1/p' <<<"$said" | paste -sd,)
	[ "$failed" = "$numbers" ] && [ "$code" = "$(wc -w <<<"${numbers//,/ }")" ]
}
for test in ${TESTS:-$MEMCACHED_TESTS}; do
	numbers=${test#"${test%%:*}"}
	test=${test%%:*}
	try "t-$test" but "${numbers#:}" env -C "$source" "T_MEMD_USE_DAEMON=127.0.0.1:$MC_PORT" perl -It/lib "t/$test.t"
done
echo "memcached-tests: $passed passed, $failed failed"
[ "$failed" = 0 ]
