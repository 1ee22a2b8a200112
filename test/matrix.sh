#!/bin/bash
# make matrix: the tests with every PostgreSQL that Debian has, each in a root of its own.
#
#   MATRIX="15:bookworm 17:trixie 18:forky 19:experimental"   major version and Debian's suite
#   SUITES="rooms sql"    suites of test/run.sh; default: all.  TAP, SQL and SPEC: files of them, as there
#   MATRIX_DIR=dir        where the roots are, a gigabyte each; default .work/matrix.  They stay, for the
#                         next run; remove the directory when it is not needed
#
# As root or with sudo, on Debian.  The mirror is the one that this machine's apt uses.  What is tested is
# the last commit.  Prints a line for each version, and the whole output of those that failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(cd "$here/.." && pwd)
roots=${MATRIX_DIR:-$source_dir/.work/matrix}
versions=${MATRIX:-15:bookworm 17:trixie 18:forky 19:experimental}

. "$here/lib/root.sh"
bash "$here/lib/setup.sh" debootstrap
if [ "$(id -u)" != 0 ]; then exec sudo env "MATRIX=$versions" "SUITES=${SUITES:-}" "TAP=${TAP:-}" "SQL=${SQL:-}" "SPEC=${SPEC:-}" "MATRIX_DIR=$roots" bash "$0"; fi

mirror=$(kv_mirror)

# errexit does not count here: a caller tests it.
prepare() # version suite root
{
	local version=$1 suite=$2 root=$3 base=$2
	[ "$suite" != experimental ] || base=sid
	if [ ! -f "$root/prepared" ]; then
		kv_make_root "$base" "$root" || return
		touch "$root/prepared"
	fi
	if [ "$suite" = experimental ]; then
		echo "deb $mirror experimental main" >"$root/etc/apt/sources.list.d/experimental.list"
		# PostgreSQL and nothing else: what is there of Perl or a C library does not go with the rest
		printf '%s\n' "Package: src:postgresql-$version src:postgresql-common src:pgtap" \
			'Pin: release a=experimental' 'Pin-Priority: 990' >"$root/etc/apt/preferences.d/experimental"
	fi
	kv_in_root "$root" apt-get -q update || return
	kv_in_root "$root" apt-get -qy --no-install-recommends install \
		"postgresql-$version" "postgresql-server-dev-$version" git ca-certificates locales || return
	# pgTAP may not be there yet for the newest
	kv_in_root "$root" apt-get -qy --no-install-recommends install "postgresql-$version-pgtap" || true
	# fincore, which util-linux has itself until bookworm
	kv_in_root "$root" apt-get -qy --no-install-recommends install util-linux-extra || true
}

failed=0
for pair in $versions; do
	version=${pair%%:*} suite=${pair#*:}
	root=$roots/$suite
	log=$roots/$version.log
	mkdir -p "$roots"
	line="PostgreSQL $version ($suite)"
	if ! prepare "$version" "$suite" "$root" >"$log" 2>&1; then
		tail -n 30 "$log"
		echo "$line: could not be installed"
		failed=1
		continue
	fi
	rm -rf "$root/kvfdw"
	git -c safe.directory='*' clone -q "$source_dir" "$root/kvfdw"
	suites=${SUITES:-rooms sql sql-sync isolation pgtap tap differential concurrent}
	if [ ! -f "$root/usr/share/postgresql/$version/extension/pgtap.control" ]; then
		suites=$(printf '%s\n' $suites | grep -vx pgtap | tr '\n' ' ')
		line="$line, without pgTAP"
	fi
	# shellcheck disable=SC2086
	if kv_in_root "$root" env "PG_CONFIG=/usr/lib/postgresql/$version/bin/pg_config" "TAP=${TAP:-}" "SQL=${SQL:-}" "SPEC=${SPEC:-}" bash /kvfdw/test/run.sh $suites >"$log" 2>&1; then
		:
	else
		cat "$log"
		failed=1
	fi
	server=$(kv_in_root "$root" "/usr/lib/postgresql/$version/bin/pg_config" --version)
	echo "$line: $server: $(grep -E '^[0-9]+ passed, ' "$log" | tail -n 1 || true)"
done
exit $failed
