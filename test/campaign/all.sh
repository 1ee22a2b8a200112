#!/bin/bash
# make campaigns: the long campaigns of compactions and splits, one after the other, each with all tables compacted all
# the time, and then with shards split and cut all the time; and the crash tests at all their points.
# A line says of each how it ended; what it printed is in .work/campaigns.
#
#   test/campaign/all.sh [SECONDS]
#
#   CAMPAIGNS='torture powercut'   these only, of torture powercut differential concurrent append bank crash
#   MODES=COMPACTIONS         of COMPACTIONS and SPLITS; or COMPACTIONS+SPLITS, both at once
#   ROUNDS=300           of torture
#   CUTS=300             of powercut, at each level; without root it is left out
#   STATEMENTS=200000    of differential
#   STEPS=50000          of concurrent
#   SECONDS=1800         append and bank, each
#   VALUE_FILE_KB=64          the smallest value files of so many kB
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
logs=$root/.work/campaigns
seconds=${1:-1800}
export VALUE_FILE_KB=${VALUE_FILE_KB:-64}
rounds=${ROUNDS:-300} cuts=${CUTS:-300} statements=${STATEMENTS:-200000} steps=${STEPS:-50000}
# what others of the campaigns would take for theirs
unset ROUNDS CUTS STATEMENTS STEPS KV_ALL TAP
mkdir -p "$logs"
failed=0 n=0

# Runs a command, of which the last line that it prints is its result.
campaign() # name command…
{
	local name=$1 start=$(date +%s) outcome=ok
	shift
	n=$((n + 1))
	"$@" >"$logs/$name.log" 2>&1 </dev/null || outcome=FAILED
	[ $outcome = ok ] || failed=$((failed + 1))
	printf '%-24s %-6s %6d s   %s\n' "$name" $outcome $(($(date +%s) - start)) "$(grep -v '^[[:space:]]*$' "$logs/$name.log" | tail -n 1)"
}

one() # campaign mode
{
	local name=$1-$2 level each
	for each in ${2//+/ }; do local -x "$each=on"; done
	case $1 in
		torture) campaign "$name" env ROUNDS="$rounds" bash "$here/campaign.sh" torture ;;
		append | bank) campaign "$name" bash "$here/campaign.sh" "$1" "$seconds" ;;
		differential) campaign "$name" env STATEMENTS="$statements" bash "$here/../run.sh" differential ;;
		concurrent) campaign "$name" env STEPS="$steps" bash "$here/../run.sh" concurrent ;;
		powercut)
			if [ "$(id -u)" != 0 ]; then printf '%-24s left out: it needs root\n' "$name"; return; fi
			for level in full keys none; do
				campaign "$name-$level" env LEVEL=$level CUTS="$cuts" bash "$here/../powercut/run.sh"
			done ;;
	esac
}

for mode in ${MODES:-COMPACTIONS SPLITS}; do
	for name in ${CAMPAIGNS:-torture powercut differential concurrent append bank}; do one "$name" "$mode"; done
done
case " ${CAMPAIGNS:-crash} " in
	*' crash '*) campaign crash env -u VALUE_FILE_KB KV_ALL=1 TAP='@(128|150|156)*' bash "$here/../run.sh" tap ;;
esac
printf '\n%d campaigns, %d failed\n' $n $failed
[ $failed = 0 ]
