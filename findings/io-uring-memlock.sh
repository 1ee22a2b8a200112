#!/bin/bash
# Linux 6.18 with liburing 2.3 (Debian 2.3-3), x86-64: rings count against RLIMIT_MEMLOCK.
#
# The common belief: only kernels before 5.12 charge a ring to that limit, newer ones charge the
# memory cgroup.  A good guess, therefore: a user without privileges may have any number of rings
# with `ulimit -l 64`; and io_uring_mlock_size() tells what a ring needs, whenever it is asked.
#
# Seen on 6.18.44 with a limit of 64 kB:
#     depth 1 or 64: 8 rings (8 kB each), then ENOMEM
#     depth 128:     4 rings
#     two processes: 4 rings in one leave 4 at most for another of the same user
#     root:          as many as it asks for
# io_uring_mlock_size() trusts that nothing is charged and replies 0, until the limit is used
# up: then the same call replies 8192, or 16384 for a depth of 128.
# The script skips kernels before 6.18, and machines where io_uring is refused.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/deb"

fetch() # package=version…: unpack them into $dir/root
{
	(cd "$dir/deb"
	get="apt-get -qq -o APT::Sandbox::User=root"
	$get download "$@" 2>/dev/null || { $get update && $get download "$@"; }
	for deb in *.deb; do dpkg -x "$deb" "$dir/root"; done) >&2
}

skip()
{
	echo "skipped: $1"
	exit 0
}

uname -sr
IFS=.- read -r major minor _ <<<"$(uname -r)"
[ $((major * 1000 + minor)) -ge 6018 ] || skip "seen on 6.18"
[ "$(uname -m) $(getconf PAGESIZE)" = "x86_64 4096" ] || skip "seen on x86-64 with pages of 4 kB"
[ "$(id -u)" = 0 ] || skip "needs root, to run as users that have no other rings"

fetch liburing-dev=2.3-3
cat >"$dir/rings.c" <<'C'
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rings DEPTH MOST [COMMAND]: make rings until one is refused, then run the command. */
int
main(int argc, char **argv)
{
	static struct io_uring rings[32];
	unsigned	depth = atoi(argv[1]);
	int			most = atoi(argv[2]);
	int			made = 0,
				error = 0;

	while (made < most && (error = io_uring_queue_init(depth, &rings[made], 0)) == 0)
		made++;
	printf("depth %u: %d rings, %s; io_uring_mlock_size %zd\n", depth, made,
		   strerror(-error), io_uring_mlock_size(depth, 0));
	fflush(stdout);
	return argc > 3 ? system(argv[3]) : 0;
}
C
cc -I "$dir/root/usr/include" -o "$dir/rings" "$dir/rings.c" "$dir"/root/usr/lib/*/liburing.a

# The kernel gives a ring back only some time after its end, and io_uring_mlock_size() makes one
# too: each run has a user of its own, and asks for the size last.
user=$((100000 + $$))
as_user()
{
	user=$((user + 1))
	prlimit --memlock=65536 setpriv --reuid=$user --regid=$user --clear-groups "$@"
}

"$dir/rings" 1 1 | grep -q ' 1 rings' || skip "io_uring is refused here"
{
	as_user "$dir/rings" 1 0
	as_user "$dir/rings" 128 0
	as_user "$dir/rings" 1 32
	as_user "$dir/rings" 64 32
	as_user "$dir/rings" 128 32
	as_user "$dir/rings" 1 4 "$dir/rings 1 32"
	prlimit --memlock=65536 "$dir/rings" 1 32
} >"$dir/seen"
cat "$dir/seen"
# the ring of the first process's question may still count
sed -i '7s/: [34] rings/: N rings/' "$dir/seen"
diff - "$dir/seen" <<'OUT'
depth 1: 0 rings, Success; io_uring_mlock_size 0
depth 128: 0 rings, Success; io_uring_mlock_size 0
depth 1: 8 rings, Cannot allocate memory; io_uring_mlock_size 8192
depth 64: 8 rings, Cannot allocate memory; io_uring_mlock_size 8192
depth 128: 4 rings, Cannot allocate memory; io_uring_mlock_size 16384
depth 1: 4 rings, Success; io_uring_mlock_size 0
depth 1: N rings, Cannot allocate memory; io_uring_mlock_size 8192
depth 1: 32 rings, Success; io_uring_mlock_size 0
OUT
