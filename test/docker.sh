#!/bin/bash
# make docker: what the Dockerfile says, done in roots of Debian in place of the official image, without
# Docker; and a server from what comes of it.
#
#   DOCKER_DIR=dir    where the roots are, a gigabyte and a half; default .work/docker.  They stay if something fails
#
# As root or with sudo, on Debian.  The suite is that of the image, the PostgreSQL that suite's own.  What is
# built is the last commit.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(cd "$here/.." && pwd)
dir=${DOCKER_DIR:-$source_dir/.work/docker}

bash "$here/lib/setup.sh" debootstrap git
if [ "$(id -u)" != 0 ]; then exec sudo env "DOCKER_DIR=$dir" bash "$0"; fi
. "$here/lib/root.sh"

mkdir -p "$dir"
log=$dir/docker.log image=$dir/image
: >"$log"
kv_at_end()
{
	local code=$?
	if [ "$code" = 0 ]; then
		rm -rf "$dir"/stage.*
	else
		tail -n 40 "$log"
		echo "docker: FAILED at: $doing; the log: $log"
	fi
	exit "$code"
}
trap kv_at_end EXIT
die() { echo "$*" >>"$log"; exit 1; }

# Lines that go on are one; comments are none.
mapfile -t steps < <(sed -e '/^#/d' -e ':again' -e '/\\$/{N;s/\\\n//;b again' -e '}' "$source_dir/Dockerfile")
doing="the image"
suite=$(printf '%s\n' "${steps[@]}" | sed -n 's/^FROM postgres:[^ ]*-\([a-z]*\).*/\1/p' | uniq)
[ "$(wc -w <<<"$suite")" = 1 ] || die "the stages are of several suites: $suite"

# The image has a configuration for all clusters, and PostgreSQL's programs in its path.
if [ ! -f "$image.made" ]; then
	doing="a root of $suite with PostgreSQL"
	kv_make_root "$suite" "$image" >>"$log" 2>&1
	mkdir -p "$image/etc/postgresql-common"
	echo "create_main_cluster = false" >"$image/etc/postgresql-common/createcluster.conf"
	kv_in_root "$image" bash -ec '
		apt-get -q update
		apt-get -qy --no-install-recommends install postgresql ca-certificates
		cd /usr/share/postgresql
		mv */postgresql.conf.sample .
		ln -s ../postgresql.conf.sample [1-9]*/
	' >>"$log" 2>&1
	touch "$image.made"
fi
major=$(ls "$image/usr/lib/postgresql")
in_image() # root command…
{
	kv_in_root "$1" env PG_MAJOR="$major" PATH="/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/$major/bin" "${@:2}" >>"$log" 2>&1
}

for step in "${steps[@]}"; do
	doing=$step
	read -r word what <<<"$step"
	read -r -a words <<<"$what"
	case $word in
		'' | ARG) ;;
		FROM)
			root=$dir/stage.${words[2]:-last} place=/
			rm -rf "$root"
			cp -a --reflink=auto "$image" "$root"
			;;
		WORKDIR) place=$what; mkdir -p "$root$place" ;;
		RUN) in_image "$root" sh -c "cd $place && $what" ;;
		COPY)
			case $what in
				". "*) mkdir -p "$root${words[1]}" && git -C "$source_dir" -c safe.directory='*' archive HEAD | tar -x -C "$root${words[1]}" ;;
				--from=*) from=$dir/stage.${words[0]#--from=} && cp -a "$from${words[1]}." "$root${words[2]}" ;;
				*) die "which files?" ;;
			esac
			;;
		*) die "unknown word" ;;
	esac
done

doing="a server of the image"
cat >"$root/tmp/try.sql" <<-'EOF'
	CREATE EXTENSION kvfdw;
	CREATE FOREIGN TABLE t (k int, v text) SERVER kvfdw OPTIONS (key 'k', compression 'lz4');
	INSERT INTO t SELECT i, repeat(i::text, 100) FROM generate_series(1, 10000) i;
	SELECT 1 / (count(*) = 10000 AND sum(k) = 50005000 AND min(length(v)) = 100)::int AS right FROM t;
EOF
in_image "$root" runuser -u postgres -- bash -ec '
	! command -v cc
	command -v kvfdw_upgrade
	cd /tmp
	initdb -D data >/dev/null
	pg_ctl -s -w -D data -l log -o "-k /tmp" start || { cat log; exit 1; }
	psql -h /tmp -X -v ON_ERROR_STOP=1 -f try.sql
	pg_ctl -s -D data stop
'
echo "ok - the steps of the Dockerfile ($suite, PostgreSQL $major) and a server from them"
