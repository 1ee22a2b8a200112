#!/bin/bash
# Roots of Debian's suites, to build and test in: source this file.  Needs root and debootstrap.

# The mirror that this machine's apt uses.
kv_mirror()
{
	local mirror
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
	[ -n "$mirror" ] || { echo "kvfdw: apt has no Debian mirror" >&2; return 1; }
	echo "$mirror"
}

# A minimal root, in which packages start no server.
kv_make_root() # suite directory
{
	rm -rf "$2"
	mkdir -p "$2"
	# one script serves them all; debootstrap may be older than the suite
	debootstrap --variant=minbase "$1" "$2" "$(kv_mirror)" /usr/share/debootstrap/scripts/sid || return 1
	printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
	chmod +x "$2/usr/sbin/policy-rc.d"
	echo force-unsafe-io >"$2/etc/dpkg/dpkg.cfg.d/kvfdw"
	# the lists of a suite that is not released yet end after days, and a mirror may be older
	echo 'Acquire::Check-Valid-Until "false";' >"$2/etc/apt/apt.conf.d/99kvfdw"
}

# Run a command in a root, with proc, sys, dev and shared memory, in a mount namespace of
# its own: nothing stays mounted, however it ends.  The root is a mount itself, without
# which it could make no such namespaces.
kv_in_root() # directory command…
{
	local root=$1
	shift
	unshare -m bash -c 'set -e
		root=$1; shift
		mount --bind "$root" "$root"
		mount -t proc proc "$root/proc"
		mount -t sysfs sysfs "$root/sys"
		mount --rbind /dev "$root/dev"
		mount -t tmpfs tmpfs "$root/dev/shm"
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
	' kv_in_root "$root" "$@"
}
