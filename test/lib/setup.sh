#!/bin/bash
# Installs what kvfdw's build, demo, tests and benchmark need and what is
# missing, on Debian 12, as root or with sudo.  Does nothing when all is there.
# With PG_CONFIG set, the PostgreSQL it names is taken as it is.  Arguments are
# further packages.
set -euo pipefail

packages=(build-essential pkg-config liburing-dev liblz4-dev fio strace util-linux procps
	perl libipc-run-perl libtap-parser-sourcehandler-pgtap-perl "$@")
if [ -z "${PG_CONFIG:-}" ]; then
	packages+=(postgresql-15 postgresql-server-dev-15 postgresql-15-pgtap)
fi

as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

if ! command -v dpkg-query >/dev/null; then
	if command -v "${PG_CONFIG:-pg_config}" >/dev/null && command -v fio >/dev/null; then
		exit 0
	fi
	echo "setup: this script installs Debian packages and dpkg is not here." >&2
	echo "setup: install PostgreSQL 15 with server headers, liburing, liblz4 and fio, and set PG_CONFIG." >&2
	exit 1
fi

missing=()
installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "${packages[@]}" 2>/dev/null || true)"
for package in "${packages[@]}"; do
	case "$installed" in
		*" installed:$package "*) ;;
		*) missing+=("$package") ;;
	esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "setup: installing ${missing[*]}"
if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
	echo "setup: this needs root, or sudo. As root: apt-get install ${missing[*]}" >&2
	exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update &&
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
} >"$log" 2>&1 </dev/null; then
	tail -n 30 "$log" >&2
	echo "setup: apt-get could not install ${missing[*]}" >&2
	exit 1
fi
