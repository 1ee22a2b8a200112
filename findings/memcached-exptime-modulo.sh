#!/bin/bash
# memcached 1.6.18 (Debian 1.6.18-1+deb12u1): an expiration time above 2147483647 is neither
# a later date nor refused; its low 32 bits are taken as a signed number.
#
# Numbers above 30 days are dates in seconds since 1970.  A good guess for 2147483648 and
# 4294967295 (2038, 2106): kept, or at worst cut to the last date known; for a number of more
# than 32 bits: CLIENT_ERROR, as the same server replies to one of more than 64 bits.
#
# Seen, each with the reply STORED or HD:
#     2147483647             a date in 2038
#     2147483648, 4294967295 expired at once (negative)
#     4294967296             never expires (0)
#     4294967326             30 seconds from now
#     4294967295 in gat      takes away the item that it returns
# A client that sends -1 as an unsigned number is saved by this; a client that keeps dates in
# more than 31 bits, or sends milliseconds, loses its items without an error.
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


def ask(line, lines=1):
    client.sendall(line.replace("\n", "\r\n").encode() + b"\r\n")
    return " ".join(replies.readline().decode().strip() for _ in range(lines))


def expect(line, pattern, lines=1):
    global wrong
    reply = ask(line, lines)
    ok = re.fullmatch(pattern, reply)
    wrong += not ok
    print(f"{line!r}: {reply}" + ("" if ok else f"  -- was: {pattern}"))


print(ask("version"))
for number, left in (
    (2147483647, r"HD t\d{7,}"),
    (2147483648, "EN"),
    (4294967295, "EN"),
    (4294967296, "HD t-1"),
    (4294967326, "HD t(30|29|28)"),
):
    expect(f"set k 0 {number} 1\na", "STORED")
    expect("mg k t", left)
    expect(f"ms m 1 T{number}\na", "HD")
    expect("mg m t", left)
expect("set k 0 0 1\na", "STORED")
expect("gat 4294967295 k", "VALUE k 0 1 a END", 3)
expect("mg k t", "EN")
sys.exit(wrong != 0)
PY
