#!/bin/bash
# Private PostgreSQL servers for the demo, the tests and the benchmark.
#
# Source this file, then:
#
#   kv_begin NAME           a run directory of its own, removed at exit
#   kv_build [faults]       build, and install into a private copy of PostgreSQL's
#                           tree inside the run directory; nothing outside is touched,
#                           and no other build can be loaded by mistake
#   kv_server_init [LINE…]  a data directory with these postgresql.conf lines added
#   kv_server_start | kv_server_stop [fast|immediate|smart] | kv_server_kill
#
# Exported then: PATH (the private tree's programs first), PGHOST, PGPORT, PGUSER,
# PGDATABASE, KV_BIN, KV_RUN, KV_PGDATA.  There is no TCP port: the server
# listens on a Unix socket in a directory of its own.
#
# PostgreSQL refuses to run as root: root starts it as the user postgres.
# Data lives in .work/ of the checkout or, where that user cannot reach it, in
# /var/tmp; never in memory.  KV_WORK=dir chooses another place, KV_KEEP=1
# keeps the run directory.
#
# Run as a program, it gives a command a server with the extension preloaded:
#
#   test/lib/server.sh [faults] COMMAND…

set -euo pipefail

KV_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
KV_SERVER_USER=$(id -un)
if [ "$(id -u)" = 0 ]; then KV_SERVER_USER=${KV_USER:-postgres}; fi

kv_note() { printf '%s\n' "$*" >&2; }
kv_die() { printf 'kvfdw: %s\n' "$*" >&2; exit 1; }

# Run a command as the user who owns the server.
kv_as()
{
	if [ "$(id -u)" = 0 ]; then
		(cd "${KV_RUN:-/}" && exec runuser -u "$KV_SERVER_USER" -- "$@")
	else
		(cd "${KV_RUN:-/}" && exec "$@")
	fi
}

# Or as who we are.
kv_as_is() { (cd "${KV_RUN:-/}" && exec "$@"); }

# Make, without the flags and job server of a make that called us.
kv_make() { env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s -C "$KV_ROOT" "$@"; }

# Can the server's user work in this directory, and is it on a disk?
kv_usable()
{
	mkdir -p "$1" 2>/dev/null || return 1
	case "$(stat -f -c %T "$1")" in
		tmpfs | ramfs) return 1 ;;
	esac
	kv_as test -x "$1"
}

kv_process_start() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# Kill the servers whose data directories are under $1, and what is left of them.
kv_reap()
{
	local file pid pids
	while IFS= read -r file; do
		pid=$(head -n 1 "$file" 2>/dev/null || true)
		[ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd" 2>/dev/null)" = "$(dirname "$file")" ] || continue
		pids="$pid $(kv_children "$pid")"
		kill -9 $pids 2>/dev/null || true
		kv_wait_gone 10 $pids || true
	done < <(find "$1" -maxdepth 6 -name postmaster.pid 2>/dev/null)
}

kv_children() { ps -o pid= --ppid "$1" 2>/dev/null | tr '\n' ' ' || true; }

kv_wait_gone() # seconds pid…
{
	local tries=$(($1 * 50)) pid alive
	shift
	while :; do
		alive=
		for pid in "$@"; do
			if [ -d "/proc/$pid" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2>/dev/null; then alive=1; fi
		done
		[ -n "$alive" ] || return 0
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.02
	done
}

kv_begin() # name
{
	local name=$1 dir work='' old owner start sockets

	# By its path: the private tree's own comes first in PATH later.
	KV_PG_CONFIG=$(command -v "${PG_CONFIG:-pg_config}") ||
		kv_die "cannot run '${PG_CONFIG:-pg_config}'; run test/lib/setup.sh, or set PG_CONFIG"
	if [ "$(id -u)" = 0 ] && ! id -u "$KV_SERVER_USER" >/dev/null 2>&1; then
		kv_die "there is no user '$KV_SERVER_USER' to run the server as; run test/lib/setup.sh, or set KV_USER"
	fi
	if [ -n "${KV_WORK:-}" ]; then
		kv_usable "$KV_WORK" || kv_die "KV_WORK=$KV_WORK is in memory or out of reach of user $KV_SERVER_USER"
		work=$KV_WORK
	else
		for dir in "$KV_ROOT/.work" "/var/tmp/kvfdw-$(id -u)"; do
			if kv_usable "$dir"; then work=$dir; break; fi
		done
		[ -n "$work" ] || kv_die "neither $KV_ROOT nor /var/tmp is on a disk that user $KV_SERVER_USER can use; set KV_WORK"
	fi
	[ -O "$work" ] || kv_die "$work belongs to somebody else; set KV_WORK"
	work=$(cd "$work" && pwd -P)

	# What killed runs have left.
	for old in "$work"/run-*; do
		[ -f "$old/owner" ] || continue
		read -r owner start sockets <"$old/owner" || true
		if [ "$(kv_process_start "$owner")" != "$start" ]; then
			kv_reap "$old"
			rm -rf "$old" "$sockets"
		fi
	done

	KV_RUN=$work/run-$name-$$
	KV_SOCKETS=$(mktemp -d /tmp/kvfdw.XXXXXX)
	mkdir -p "$KV_RUN"
	echo "$$ $(kv_process_start $$) $KV_SOCKETS" >"$KV_RUN/owner"
	if [ "$(id -u)" = 0 ]; then chown "$KV_SERVER_USER" "$KV_RUN" "$KV_SOCKETS"; fi
	KV_PGDATA=$KV_RUN/data
	KV_SERVER_LOG=$KV_RUN/server.log
	export KV_PG_CONFIG KV_RUN KV_PGDATA KV_SERVER_LOG KV_SERVER_USER KV_ROOT KV_SOCKETS
	export PGHOST=$KV_SOCKETS PGPORT=${KV_PORT:-6140} PGUSER=postgres PGDATABASE=postgres
	unset PGPASSWORD PGOPTIONS PGSERVICE PGDATA
	KV_OWNER=$BASHPID
	trap kv_end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
}

kv_end()
{
	local code=$?
	[ "$BASHPID" = "$KV_OWNER" ] || return 0	# a subshell that failed
	set +e
	trap - EXIT
	if declare -F kv_at_end >/dev/null; then kv_at_end "$code"; fi
	if [ -n "${KV_RUN:-}" ] && [ -d "$KV_RUN" ]; then
		if [ "$code" != 0 ] && [ "$code" != 130 ] && [ -s "$KV_SERVER_LOG" ]; then
			cp "$KV_SERVER_LOG" "$(dirname "$KV_RUN")/last-failure.log" &&
				kv_note "the server's log: $(dirname "$KV_RUN")/last-failure.log"
			grep -E 'was terminated by signal|PANIC:|TRAP:' "$KV_SERVER_LOG" | tail -n 5 >&2
		fi
		if [ -s "$KV_PGDATA/postmaster.pid" ] && [ -z "${KV_KEEP:-}" ]; then
			kv_as "$KV_BIN/pg_ctl" -D "$KV_PGDATA" -m immediate -t 30 -w stop >/dev/null 2>&1
		fi
		if [ -n "${KV_KEEP:-}" ]; then
			kv_note "kept: $KV_RUN (socket directory $KV_SOCKETS)"
		else
			kv_reap "$KV_RUN"
			rm -rf "$KV_RUN" "$KV_SOCKETS"
		fi
	fi
	exit "$code"
}

# Mirror PostgreSQL's installation: programs copied, everything else linked.
# PostgreSQL finds its libraries and extensions relative to where its program
# is, so what make install DESTDIR adds is seen by this copy alone.
kv_build() # [faults]
{
	local flavour=${1:-release} pg_config=$KV_PG_CONFIG bin lib share
	local faults=
	[ "$flavour" = faults ] && faults=1

	"$pg_config" --version >/dev/null 2>&1 || kv_die "cannot run '$pg_config'; run test/lib/setup.sh, or set PG_CONFIG"
	bin=$("$pg_config" --bindir) lib=$("$pg_config" --pkglibdir) share=$("$pg_config" --sharedir)
	[ -x "$bin/postgres" ] || kv_die "there is no server in $bin"

	kv_make -j"$(nproc)" PG_CONFIG="$pg_config" FAULTS=$faults all || kv_die "the build failed"

	KV_TREE=$KV_RUN/tree
	KV_BIN=$KV_TREE$bin
	KV_FLAVOUR=$flavour
	rm -rf "$KV_TREE"
	mkdir -p "$KV_BIN" "$KV_TREE$lib" "$KV_TREE$share/extension"
	cp -pL "$bin"/* "$KV_BIN/"
	find "$lib" -mindepth 1 -maxdepth 1 ! -name 'kvfdw*' -exec ln -sf -t "$KV_TREE$lib" {} +
	find "$share" -mindepth 1 -maxdepth 1 ! -name extension ! -name man -exec ln -sf -t "$KV_TREE$share" {} +
	find "$share/extension" -mindepth 1 -maxdepth 1 ! -name 'kvfdw*' -exec ln -sf -t "$KV_TREE$share/extension" {} +
	kv_make PG_CONFIG="$pg_config" FAULTS=$faults DESTDIR="$KV_TREE" install >/dev/null || kv_die "the installation failed"
	cmp -s "$KV_ROOT/kvfdw.so" "$KV_TREE$lib/kvfdw.so" || kv_die "the library changed while it was installed"
	chmod -R a+rX "$KV_TREE"

	# The programs must look into the tree, not where they were copied from.
	[ "$("$KV_BIN/pg_config" --pkglibdir)" -ef "$KV_TREE$lib" ] ||
		kv_die "this PostgreSQL is not relocatable: $bin and $lib share no prefix"
	export KV_TREE KV_BIN KV_FLAVOUR
	export PATH=$KV_BIN:$PATH
}

kv_server_init() # postgresql.conf lines…
{
	local line
	rm -rf "$KV_PGDATA"
	kv_as "$KV_BIN/initdb" -D "$KV_PGDATA" -U postgres -A trust -E UTF8 --locale=C >"$KV_RUN/initdb.log" 2>&1 ||
		{ cat "$KV_RUN/initdb.log" >&2; kv_die "initdb failed"; }
	case "$(stat -f -c %T "$KV_PGDATA")" in
		tmpfs | ramfs) kv_die "the data directory $KV_PGDATA is not on a disk" ;;
	esac
	{
		echo "listen_addresses = ''"
		echo "port = $PGPORT"
		echo "unix_socket_directories = '$KV_SOCKETS'"
		echo "shared_preload_libraries = 'kvfdw'"
		echo "log_line_prefix = '%m [%p] %b '"
		for line in "$@"; do echo "$line"; done
	} >>"$KV_PGDATA/postgresql.conf"
}

# KV_CGROUP: a cgroup.procs file; the server is started inside that group.
kv_server_start()
{
	local cgroup=${KV_CGROUP:-}
	touch "$KV_SERVER_LOG"
	if [ "$(id -u)" = 0 ]; then chown "$KV_SERVER_USER" "$KV_SERVER_LOG"; fi
	if ! (
		if [ -n "$cgroup" ]; then echo "$BASHPID" >"$cgroup"; fi
		kv_as "$KV_BIN/pg_ctl" -D "$KV_PGDATA" -l "$KV_SERVER_LOG" -t 120 -w start >"$KV_RUN/pg_ctl.log" 2>&1 </dev/null
	); then
		tail -n 20 "$KV_SERVER_LOG" >&2
		kv_die "the server did not start"
	fi
	KV_POSTMASTER=$(head -n 1 "$KV_PGDATA/postmaster.pid")
}

kv_server_stop() # [mode]
{
	kv_as "$KV_BIN/pg_ctl" -D "$KV_PGDATA" -m "${1:-fast}" -t 300 -w stop >"$KV_RUN/pg_ctl.log" 2>&1 ||
		{ tail -n 20 "$KV_SERVER_LOG" >&2; kv_die "the server did not stop"; }
}

# SIGKILL to the postmaster; returns when its last child is gone.
kv_server_kill()
{
	local postmaster children
	postmaster=$(head -n 1 "$KV_PGDATA/postmaster.pid")
	kill -STOP "$postmaster"	# no child is born between the listing and the kill
	children=$(kv_children "$postmaster")
	kill -9 "$postmaster"
	if ! kv_wait_gone 10 "$postmaster" $children; then
		kill -9 $children 2>/dev/null || true
		kv_wait_gone 10 $children || kv_die "processes of the killed server do not end: $children"
	fi

	# Its process entry may wait for an init that is slow, or that a container
	# lacks; PostgreSQL would take that for a running server.
	for _ in $(seq 250); do
		[ -d "/proc/$postmaster" ] || return 0
		sleep 0.02
	done
	rm -f "$KV_PGDATA/postmaster.pid"
}

kv_psql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

# A copy of the checkout's tests that the server's user can read, if it must be one.
kv_readable_root()
{
	if kv_as test -r "$KV_ROOT/test/lib/server.sh"; then
		echo "$KV_ROOT"
	else
		mkdir -p "$KV_RUN/checkout"
		(cd "$KV_ROOT" && cp -r Makefile META.json kvfdw.control README.md docs sql expected src test "$KV_RUN/checkout/")
		chmod -R a+rX "$KV_RUN/checkout"
		echo "$KV_RUN/checkout"
	fi
}

# "bytes-read bytes-written" of the device below a path, since boot.  A file
# system without a device of its own (overlay) counts every disk.
kv_device_bytes() # path
{
	local number stat
	number=$(stat -c '%Hd:%Ld' "$1")
	stat=/sys/dev/block/$number/stat
	if [ -r "$stat" ]; then
		awk '{ printf "%.0f %.0f\n", $3 * 512, $7 * 512 }' "$stat"
	else
		for stat in /sys/block/*/device; do cat "${stat%device}stat"; done 2>/dev/null |
			awk '{ r += $3 * 512; w += $7 * 512 } END { printf "%.0f %.0f\n", r, w }'
	fi
}

# Empty the page cache of everything, if we may.
kv_drop_caches()
{
	sync
	if [ -w /proc/sys/vm/drop_caches ]; then
		echo 3 >/proc/sys/vm/drop_caches 2>/dev/null
	elif command -v sudo >/dev/null; then
		sudo -n sh -c 'echo 3 >/proc/sys/vm/drop_caches' 2>/dev/null
	else
		return 1
	fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	flavour=release
	if [ "${1:-}" = faults ]; then flavour=faults; shift; fi
	[ $# -gt 0 ] || set -- psql
	kv_begin adhoc
	kv_build $flavour
	kv_server_init "max_prepared_transactions = 10"
	kv_server_start
	kv_psql -c 'CREATE EXTENSION kvfdw'
	"$@"
fi
