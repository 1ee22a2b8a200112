# What it costs to keep value files within their bound, by simulation; run.sh sources it.
#
# lib/cleaning.c has the shard of OVERWRITE_MB that the line overwrite writes to, and value files as large as its own. It is overwritten
# under uniform keys and zipfian ones, with value files that are emptied by their age, its root, and without regard to it, and between other marks: so
# this tells what src/engine/compact/files.c and src/engine/shard/space.c chose among. No server has a part in it.
#
#   CLEANING_TIMES=3         times the shard's bytes, to warm up and again to measure
#   OVERWRITE_MB, OVERWRITE_SKEW   as there

CLEANING_TIMES=${CLEANING_TIMES:-3}

bench_cleaning()
{
	local blocks=$((OVERWRITE_MB * 256)) chunk=1024 skew power marks written
	# as KV_VALUE_FILES_WANTED has it, of files at their bound
	while [ $((chunk * 24)) -lt $((blocks * 3 / 2)) ]; do chunk=$((chunk * 4)); done
	head_ "Overwrites of $OVERWRITE_MB MB in chunks of $((chunk / 256)) MB, by simulation: blocks written for each"
	"${CC:-cc}" -O2 -Wall -Wextra -o "$KV_RUN/cleaning" "$here/lib/cleaning.c" -lm || kv_die "cannot compile bench/lib/cleaning.c"
	for skew in 0 "$OVERWRITE_SKEW"; do
		for marks in "0.93 0.90" "0.90 0.80"; do
			for power in 0.5 0 1; do
				# shellcheck disable=SC2086
				written=$("$KV_RUN/cleaning" "$blocks" "$chunk" "$CLEANING_TIMES" "$skew" "$power" $marks)
				line "skew $skew, emptied from ${marks% *} down to ${marks#* } of the dead allowed, age^$power" "$written" ""
			done
		done
	done
}
