# The lines of make bench with rows that were deleted at one end; run.sh sources it.
#
# Of a table of small rows most are deleted: at the head, at the tail, in the middle, all but every
# thousandth.  Then the first row in key order is read, and 300 rows are popped, as a queue does: DELETE of the
# row with the least key, and INSERT after the greatest, each in a transaction of its own.  With and
# without a snapshot that is older than the deletion; in heap and in kvfdw, in the same server.
#
#   POPS_ROWS="10000 300000 1000000"
#   POPS_POPS=300
#   POPS_SHARDS="1 8"        of the kvfdw table, with 300000 rows

POPS_ROWS=${POPS_ROWS:-$([ $share = 1 ] && echo "10000 300000 1000000" || echo "10000 100000")}
POPS_POPS=${POPS_POPS:-$((300 / share))}
POPS_SHARDS=${POPS_SHARDS:-1 8}

pops_drop() { kv_psql -c "DROP TABLE IF EXISTS pops_heap" -c "DROP FOREIGN TABLE IF EXISTS pops_kv" 2>/dev/null; }

pops_tables() # rows shards
{
	local t
	pops_drop
	kv_psql -c "CREATE TABLE pops_heap (k bigint PRIMARY KEY, v text)" \
		-c "CREATE FOREIGN TABLE pops_kv (k bigint NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k', shards '$2')"
	for t in pops_heap pops_kv; do kv_psql -c "INSERT INTO $t SELECT g, 'value ' || g FROM generate_series(1, $1) g"; done
	kv_psql -c "SELECT kvfdw_flush('pops_kv')" -c "VACUUM ANALYZE pops_heap" -c "ANALYZE pops_kv" >/dev/null
}

# Seconds of a read of the first row: of the first read after the deletion, and the median of ten that follow.
pops_first() # table
{
	kv_psql -c "SELECT count(*) FROM $1 WHERE k = 0" -c '\timing on' -f "$dir/first.$1.sql" |
		awk '/^Time:/ { print $2 / 1000 }' >"$dir/times"
	echo "$(head -n 1 "$dir/times") $(tail -n +2 "$dir/times" | sort -g | sed -n 5p)"
}

pops_scripts() # where middle from
{
	local t i read
	for t in pops_heap pops_kv; do
		case $1 in
		head) read="SELECT k FROM $t ORDER BY k LIMIT 1" ;;
		tail) read="SELECT k FROM $t ORDER BY k DESC LIMIT 1" ;;
		*) read="SELECT k FROM $t WHERE k > $middle ORDER BY k LIMIT 1" ;;
		esac
		for i in 1 2 3 4 5 6 7 8 9 10 11; do echo "$read;"; done >"$dir/first.$t.sql"
		for i in $(seq "$POPS_POPS"); do
			case $1 in
			tail) echo "DELETE FROM $t WHERE k = (SELECT max(k) FROM $t) RETURNING k; INSERT INTO $t SELECT max(k) + 1, 'pushed' FROM $t;" ;;
			*) echo "DELETE FROM $t WHERE k = (SELECT min(k) FROM $t WHERE k > $3) RETURNING k; INSERT INTO $t SELECT max(k) + 1, 'pushed' FROM $t;" ;;
			esac
		done >"$dir/pops.$t.sql"
	done
}

pops_case() # rows shards where old?
{
	local rows=$1 middle=$(($1 / 2)) left=$(($1 / 30)) from=0 condition what holder= t seconds
	local -A first again pops
	pops_tables "$rows" "$2"
	case $3 in
	head) condition="k <= $((rows - left))" ;;
	tail) condition="k > $left" ;;
	middle) condition="k BETWEEN $((left / 2)) AND $((rows - left / 2))" from=$((left / 2)) ;;
	holes) condition="k % 1000 <> 0" ;;
	esac
	pops_scripts "$3" "$middle" "$from"
	if [ "$4" = old ]; then
		(printf '%s\n' "BEGIN ISOLATION LEVEL REPEATABLE READ;" "SELECT count(*) FROM pops_heap;" "SELECT pg_sleep(3600);" | kv_psql >/dev/null 2>&1) &
		holder=$!
		until [ "$(kv_psql -c "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(3600)%' AND pid <> pg_backend_pid()")" = 1 ]; do :; done
	fi
	for t in pops_heap pops_kv; do
		kv_psql -c "DELETE FROM $t WHERE $condition"
		read -r first[$t] again[$t] < <(pops_first $t)
		kv_timed seconds kv_psql -f "$dir/pops.$t.sql" >"$dir/popped.$t"
		pops[$t]=$seconds
		kv_psql -c "SELECT count(*), min(k), max(k), sum(k) FROM $t" >>"$dir/popped.$t"
	done
	cmp -s "$dir/popped.pops_heap" "$dir/popped.pops_kv" || kv_die "heap and kvfdw have popped other rows"
	if [ -n "$holder" ]; then
		kv_psql -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(3600)%' AND pid <> pg_backend_pid()" >/dev/null
		wait $holder 2>/dev/null || true
	fi
	what="$rows rows, $2 shard(s), deleted $3${4:+, $4 snapshot}"
	say "  $what: first row heap ${first[pops_heap]} s, kvfdw ${first[pops_kv]} s; again ${again[pops_heap]} s, ${again[pops_kv]} s; $POPS_POPS pops ${pops[pops_heap]} s, ${pops[pops_kv]} s"
	line "$what: first row" "$(pops_of "${first[pops_kv]}" "${first[pops_heap]}"), again $(pops_of "${again[pops_kv]}" "${again[pops_heap]}")" "1.2 of heap's, or 1 ms" \
		"(${first[pops_kv]} <= 1.2 * ${first[pops_heap]} || ${first[pops_kv]} < 0.001) && (${again[pops_kv]} <= 1.2 * ${again[pops_heap]} || ${again[pops_kv]} < 0.001)"
	line "$what: $POPS_POPS pops" "$(pops_of "${pops[pops_kv]}" "${pops[pops_heap]}")" "1.2 of heap's time" "${pops[pops_kv]} <= 1.2 * ${pops[pops_heap]}"
}

pops_of() { kv_calc "int($1 / $2 * 100) / 100"; }

bench_pops()
{
	local rows shards where old dir=$KV_RUN/pops

	head_ "A queue after a mass delete: the first row, and $POPS_POPS pops"
	mkdir -p "$dir"
	for rows in $POPS_ROWS; do
		for shards in $POPS_SHARDS; do
			[ "$shards" = 1 ] || [ "$rows" = 300000 ] || continue
			for where in head tail middle holes; do
				for old in "" old; do
					[ "$rows" -le 300000 ] || [ $where = head ] || continue
					pops_case "$rows" "$shards" $where "$old"
				done
			done
		done
	done
	pops_drop
}
