#!/bin/bash
# make upgrade: a cluster goes from version to version by pg_upgrade and kvfdw_upgrade, with tables of all levels
# and their heap twins, and is used and killed in each.
#
#   UPGRADE="15:bookworm 17:trixie 18:forky"   major versions, each with the suite of Debian that has it
#   UPGRADE_DIR=dir       where the root is, two gigabytes; default .work/upgrade.  It stays, for the next run
#
# As root or with sudo, on Debian.  What is tested is the last commit.  Prints a line for each step.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(cd "$here/.." && pwd)
dir=${UPGRADE_DIR:-$source_dir/.work/upgrade}
steps=${UPGRADE:-15:bookworm 17:trixie 18:forky}

. "$here/lib/root.sh"
bash "$here/lib/setup.sh" debootstrap
if [ "$(id -u)" != 0 ]; then exec sudo env "UPGRADE=$steps" "UPGRADE_DIR=$dir" bash "$0"; fi

root=$dir/root log=$dir/log
mkdir -p "$dir"
: >"$log"
ended() { local code=$?; [ "$code" = 0 ] || { tail -n 40 "$log"; echo "upgrade: FAILED; the log: $log"; }; exit $code; }
trap ended EXIT

# The last suite's root, with the older versions from theirs.
newest=${steps##*:}
if [ ! -f "$root.made" ]; then
	kv_make_root "$newest" "$root" >>"$log" 2>&1
	for step in $steps; do
		[ "${step#*:}" = "$newest" ] || echo "deb $(kv_mirror) ${step#*:} main" >"$root/etc/apt/sources.list.d/${step#*:}.list"
	done
	echo "create_main_cluster = false" >"$dir/createcluster.conf"
	mkdir -p "$root/etc/postgresql-common"
	cp "$dir/createcluster.conf" "$root/etc/postgresql-common/createcluster.conf"
	touch "$root.made"
fi
packages=(git ca-certificates build-essential liburing-dev liblz4-dev)
for step in $steps; do packages+=("postgresql-${step%%:*}" "postgresql-server-dev-${step%%:*}"); done
{
	kv_in_root "$root" apt-get -q update
	kv_in_root "$root" apt-get -qy --no-install-recommends install "${packages[@]}"
} >>"$log" 2>&1
rm -rf "$root/kvfdw"
git -c safe.directory='*' clone -q "$source_dir" "$root/kvfdw"
# headers of 15 are not for the C of today's compilers
for step in $steps; do
	kv_in_root "$root" make -s -j2 -C /kvfdw COPT=-std=gnu17 "PG_CONFIG=/usr/lib/postgresql/${step%%:*}/bin/pg_config" all install >>"$log" 2>&1
done
chmod -R a+rX "$root/kvfdw"
versions=
for step in $steps; do versions="$versions ${step%%:*}"; done
kv_in_root "$root" runuser -u postgres -- bash /kvfdw/test/lib/chain.sh $versions 2>>"$log" | tee -a "$log"
