#!/bin/bash
# make deb: the Debian packages, built in a fresh root, installed in another one from nothing but
# themselves and Debian, and tested there with their own installcheck.
#
#   DEB_SUITE=bookworm    Debian's suite; default: this machine's
#   DEB_DIR=dir           where the roots are, three gigabytes; default .work/deb.  The packages stay there,
#                         and the roots if something fails
#
# As root or with sudo, on Debian.  What is built is the last commit, for every PostgreSQL of the suite
# that debian/pgversions allows.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(cd "$here/.." && pwd)
suite=${DEB_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
dir=${DEB_DIR:-$source_dir/.work/deb}

bash "$here/lib/setup.sh" debootstrap git
if [ "$(id -u)" != 0 ]; then exec sudo env "DEB_SUITE=$suite" "DEB_DIR=$dir" bash "$0"; fi
. "$here/lib/root.sh"

mkdir -p "$dir"
base=$dir/$suite build=$dir/build try=$dir/install log=$dir/deb.log
: >"$log"
kv_at_end()
{
	local code=$?
	if [ "$code" = 0 ]; then
		rm -rf "$build" "$try"
	else
		tail -n "${DEB_LINES:-60}" "$log"
		echo "deb: FAILED while it was $doing; the log: $log"
	fi
	exit "$code"
}
trap kv_at_end EXIT

step() { doing=$1; echo "$1"; }

if [ ! -f "$base.made" ]; then
	step "making a root of $suite"
	kv_make_root "$suite" "$base" >>"$log" 2>&1
	touch "$base.made"
fi

step "building the packages"
rm -rf "$build" "$try"
cp -a --reflink=auto "$base" "$build"
git -c safe.directory='*' clone -q "$source_dir" "$build/kvfdw" >>"$log" 2>&1
kv_in_root "$build" bash -ec '
	cd /kvfdw
	apt-get -q update
	apt-get -qy --no-install-recommends build-dep ./
	pg_buildext updatecontrol
	dpkg-buildpackage -b -us -uc
' >>"$log" 2>&1
rm -f "$dir"/*.deb
cp "$build"/postgresql-*.deb "$dir/"

step "installing them in a root without compilers"
cp -a --reflink=auto "$base" "$try"
mkdir "$try/packages"
cp "$dir"/*-kvfdw_*.deb "$try/packages/"
kv_in_root "$try" bash -ec '
	apt-get -q update
	apt-get -qy --no-install-recommends install /packages/*.deb
	! command -v cc
	for version in $(cd /usr/lib/postgresql && ls); do
		ls "/usr/share/doc/postgresql-$version-kvfdw/docs/how-to/install.md" "/usr/share/postgresql/$version/man/man1/"kvfdw_upgrade.1*
		NONROOT=1 pg_virtualenv -v "$version" -o shared_preload_libraries=kvfdw psql -X -v ON_ERROR_STOP=1 <<-EOF
			CREATE EXTENSION kvfdw;
			CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw;
			INSERT INTO t SELECT i, i FROM generate_series(1, 10000) i;
			SELECT 1 / (count(*) = 10000 AND sum(k) = 50005000)::int AS right FROM t;
		EOF
	done
' >>"$log" 2>&1

step "running their installcheck there, with make and pg_regress"
git -c safe.directory='*' clone -q "$source_dir" "$try/kvfdw" >>"$log" 2>&1
failed=
kv_in_root "$try" bash -ec '
	apt-get -qy --no-install-recommends install make postgresql-server-dev-all
	cd /kvfdw
	debian/tests/installcheck
' >"$dir/installcheck.log" 2>&1 || failed=1
cat "$dir/installcheck.log" >>"$log"
# pg_regress up to 15 says "test name ... ok", later ones as TAP does
echo "$(cd "$dir" && echo *-kvfdw_*.deb) ($suite): $(grep -cE '^(test .* \.\.\. ok|ok [0-9])' "$log" || true) passed," \
	"$(grep -cE '^(test .* \.\.\. FAILED|not ok [0-9])' "$log" || true) failed"
[ -z "$failed" ]
