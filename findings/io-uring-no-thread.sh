#!/bin/bash
# Linux 6.18 with liburing 2.3 (Debian 2.3-3): what io_uring says when it can make no thread.
#
# An fsync of io_uring always runs in a thread of the kernel (io-wq), which counts against the
# limits of processes and tasks (RLIMIT_NPROC, pids.max, TasksMax).  A good guess: at such a limit
# the request ends with EAGAIN, as fork() does, or with the result of the sync in the caller.
#
# Seen on 6.18.44, for a user with RLIMIT_NPROC = 1: the submission succeeds, and the request ends
# with ECANCELED, though no one has cancelled it and the file is not synced.  A request that needs
# no thread (NOP) ends well in the same ring, and so does fsync(2) of the same file.
# So ECANCELED of a sync is no failed sync: the file can be synced by fsync(2).
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
[ "$(id -u)" = 0 ] || skip "needs root, to run as a user that has no other processes"

fetch liburing-dev=2.3-3
cat >"$dir/sync.c" <<'C'
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int
result(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int			r;

	if (io_uring_submit_and_wait(ring, 1) < 0 || io_uring_peek_cqe(ring, &cqe) != 0)
		return 1;
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return r;
}

int
main(int argc, char **argv)
{
	struct io_uring ring;
	int			fd = open(argv[1], O_CREAT | O_RDWR, 0600);

	if (fd < 0 || write(fd, "x", 1) != 1 || io_uring_queue_init(8, &ring, 0) != 0)
		return 2;
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	printf("nop: %s\n", strerror(-result(&ring)));
	io_uring_prep_fsync(io_uring_get_sqe(&ring), fd, IORING_FSYNC_DATASYNC);
	printf("io_uring fsync: %s\n", strerror(-result(&ring)));
	printf("fsync(2): %s\n", fsync(fd) == 0 ? "Success" : "failed");
	return 0;
}
C
cc -I "$dir/root/usr/include" -o "$dir/sync" "$dir/sync.c" "$dir"/root/usr/lib/*/liburing.a
"$dir/sync" "$dir/root-file" >"$dir/free" || skip "io_uring is refused here"

user=$((100000 + $$))
mkdir "$dir/theirs"
chown $user "$dir/theirs"
prlimit --nproc=1 setpriv --reuid=$user --regid=$user --clear-groups "$dir/sync" "$dir/theirs/file" >"$dir/limited"
echo "without a limit:" && cat "$dir/free"
echo "RLIMIT_NPROC = 1:" && cat "$dir/limited"
diff - "$dir/free" <<'OUT'
nop: Success
io_uring fsync: Success
fsync(2): Success
OUT
diff - "$dir/limited" <<'OUT'
nop: Success
io_uring fsync: Operation canceled
fsync(2): Success
OUT
