#!/bin/bash
# memcached 1.6.18 (Debian 1.6.18-1+deb12u1): the order of mg's flags decides the time to live.
#
# N(ttl) creates an item on a miss with that time to live; T(ttl) updates the time to live,
# "if hit" says the protocol's description.  A good guess: a miss with N30 and T100 leaves an
# item of 30 seconds, and the order of the flags matters only for the order of what they return.
#
# Seen: flags act from left to right, T also on a miss, and the last of N and T wins.
#     mg a N30 T100   creates an item of 100 seconds
#     mg b T100 N30   creates an item of  30 seconds
#     mg c N30 t T100 replies t30, though the item then lives 100 seconds
# R(ttl), which tells one client to recache if less is left, compares with what T has just set.
# For an item with 50 seconds left:
#     mg h R60 T100   tells this client to recache (W)
#     mg h T100 R60   does not
set -eu
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; wait; rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir "$dir/deb" "$dir/run"

fetch() # package=version…: unpack them into $dir/root
{
	(cd "$dir/deb"
	get="apt-get -qq -o APT::Sandbox::User=root"
	$get download "$@" 2>/dev/null || { $get update && $get download "$@"; }
	for deb in *.deb; do dpkg -x "$deb" "$dir/root"; done) >&2
}

fetch memcached=1.6.18-1+deb12u1 libevent-2.1-7=2.1.12-stable-8
for lib in "$dir"/root/usr/lib/*-linux-gnu; do export LD_LIBRARY_PATH=$lib; done
[ "$(id -u)" != 0 ] || chown nobody "$dir/run"
"$dir/root/usr/bin/memcached" -u nobody -s "$dir/run/socket" &
server=$!
for _ in {1..100}; do [ ! -S "$dir/run/socket" ] || break; sleep 0.1; done

python3 - "$dir/run/socket" <<'PY'
import re, socket, sys

client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
replies = client.makefile("rb")
wrong = 0


def ask(line):
    client.sendall(line.replace("\n", "\r\n").encode() + b"\r\n")
    return replies.readline().decode().strip()


def expect(line, pattern):
    global wrong
    reply = ask(line)
    ok = re.fullmatch(pattern, reply)
    wrong += not ok
    print(f"{line!r}: {reply}" + ("" if ok else f"  -- was: {pattern}"))


print(ask("version"))
# a second may pass between two commands
expect("mg a N30 T100", "HD W")
expect("mg a t", "HD t(100|99|98) Z")
expect("mg b T100 N30", "HD W")
expect("mg b t", "HD t(30|29|28) Z")
expect("mg c N30 t T100", "HD t(30|29|28) W")
expect("mg c t", "HD t(100|99|98) Z")
for key in "hi":
    expect(f"set {key} 0 50 1\na", "STORED")
expect("mg h R60 T100", "HD W")
expect("mg i T100 R60", "HD")
sys.exit(wrong != 0)
PY
