#!/bin/bash
# Promise: programs that use PostgreSQL through its drivers print the same on kvfdw tables as on heap
# tables of the same names.  Called by test/run.sh with a server; prints TAP, a line per section.
#
#   make clients          all
#   DRIVERS='jdbc node'   these only: psql psycopg sqlalchemy django jdbc node
#
# Drivers come from Debian, PyPI and npm; the latter two are installed in .work/clients.  A program
# whose driver cannot be had is skipped.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tables.sh"
place=$(dirname "$KV_RUN")/clients
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir -p "$place"
setup() { bash "$here/../lib/setup.sh" "$@"; }

python_packages()
{
	python3 -c 'import ensurepip, venv' 2>/dev/null || setup python3-venv || return 1
	cmp -s "$here/requirements.txt" "$place/python/requirements.txt" && return
	rm -rf "$place/python"
	python3 -m venv "$place/python" && "$place/python/bin/pip" install -q -r "$here/requirements.txt" &&
		cp "$here/requirements.txt" "$place/python/"
}

node_packages()
{
	command -v npm >/dev/null || setup nodejs npm || return 1
	cmp -s "$here/package.json" "$place/node/package.json" && [ -d "$place/node/node_modules/pg" ] && return
	rm -rf "$place/node"
	mkdir -p "$place/node" && cp "$here/package.json" "$place/node/" &&
		(cd "$place/node" && npm install --silent --no-fund --no-audit)
}

java_packages()
{
	local packages=(libpostgresql-jdbc-java)
	command -v javac >/dev/null || packages+=(default-jdk-headless)
	setup "${packages[@]}"
}

# What a program needs, and how it is run.
prepare()
{
	case $1 in
		psql) ;;
		psycopg | sqlalchemy | django) python_packages ;;
		jdbc) java_packages ;;
		node) node_packages ;;
		*) echo "there is no client '$1'" >&2; return 1 ;;
	esac
}
run()
{
	case $1 in
		psql) bash "$here/psql_client.sh" ;;
		psycopg | sqlalchemy | django) "$place/python/bin/python" "$here/$1_client.py" ;;
		jdbc) java -cp /usr/share/java/postgresql.jar "$here/Jdbc.java" ;;
		node) NODE_PATH=$place/node/node_modules node "$here/node_client.js" ;;
	esac
}
export -f run
export here place

# A line for each section that heap has printed.
compare() # client
{
	perl -e '
		my ($client, @files) = @ARGV;
		my (@order, @text);
		for my $i (0, 1) {
			my $section = "start";
			open(my $f, "<", $files[$i]) or die;
			while (<$f>) {
				if (/^# (.*)/) { $section = $1; push @order, $section if !$i; next; }
				$text[$i]{$section} .= $_;
			}
		}
		print "not ok - $client: no sections\n" unless @order;
		for my $s (@order) {
			my @t = map { $_->{$s} // "" } @text;
			print $t[0] eq $t[1] && $t[0] ne "" ? "ok" : "not ok", " - $client: $s\n";
			next if $t[0] eq $t[1];
			my @l = map { [ split /\n/, $_ ] } @t;
			for my $n (0 .. ($#{$l[0]} > $#{$l[1]} ? $#{$l[0]} : $#{$l[1]})) {
				my ($h, $k) = map { substr($l[$_][$n] // "(nothing)", 0, 500) } 0, 1;
				print "#   heap:  $h\n#   kvfdw: $k\n" if ($l[0][$n] // "") ne ($l[1][$n] // "");
			}
		}' "$1" "$out/$1.heap" "$out/$1.kvfdw"
}

for client in ${DRIVERS:-psql psycopg sqlalchemy django jdbc node}; do
	if ! prepare "$client" >"$out/setup" 2>&1; then
		sed 's/^/# /' "$out/setup" | tail -n 5
		echo "ok - $client # skip its driver is not here and cannot be installed"
		continue
	fi
	for kind in heap kvfdw; do
		export PGDATABASE=${client}_$kind
		psql -Xq -d postgres -c "CREATE DATABASE $PGDATABASE" && tables $kind | psql -Xq -v ON_ERROR_STOP=1 ||
			echo "not ok - $client: cannot make its tables"
		if ! PGOPTIONS='-c lock_timeout=60s' timeout 300 bash -c "run $client" >"$out/$client.$kind" 2>"$out/$client.err"; then
			echo "not ok - $client ends with an error on $kind"
			(head -n 3 "$out/$client.err"; echo …; tail -n 5 "$out/$client.err") | sed 's/^/# /'
		fi
	done
	compare "$client"
done
