# The last part of the scale demo, which sources it: the server two is killed under load and comes back.
# What fails until then, and what never does.

part "The server two is killed under load, and comes back"

# A client that goes on with statement after statement, @ being their number, until there is the
# file `stop`, for which psql looks itself: its pipe holds hundreds of statements.
client() # name statement
{
	local i=0
	while [ ! -e "$KV_RUN/stop" ]; do
		i=$((i + 1))
		printf '%s\n\\echo %s :SQLSTATE\n' "${2//@/$i}" "$i"
		printf '\\set stop `test -e %s && echo true || echo false`\n\\if :stop\n\\q\n\\endif\n' "$KV_RUN/stop"
	done 2>/dev/null | PGPORT=${PORT[coordinator]} psql -XqAt -o /dev/null >"$KV_RUN/$1.client" 2>/dev/null
}

done_by() { grep -c ' 00000$' "$KV_RUN/$1.client" || true; }
failed_by() { grep -vc ' 00000$' "$KV_RUN/$1.client" || true; }

# Until a client has so many more statements done, or failed.
until_more() # done_by|failed_by client number
{
	local from tries=0
	from=$($1 "$2")
	until [ "$($1 "$2")" -ge $((from + $3)) ]; do
		sleep 0.1
		[ $((tries += 1)) -lt 3000 ] || kv_die "the client '$2' stands still"
	done
}

key_of() # server
{
	on "$1" -c "SELECT min(k) FROM readings WHERE k > 0"
}

declare -A statement=(
	[row]="INSERT INTO readings VALUES (-2000000000 - @, 1, 'row')"
	[pair]="INSERT INTO readings VALUES (-3000000000 - 2 * @, 2, 'pair'), (-3000000001 - 2 * @, 2, 'pair')"
	[key]="SELECT body FROM readings WHERE k = $(key_of one)"
	[dead]="SELECT body FROM readings WHERE k = $(key_of two)"
	[count]="SELECT count(*) FROM readings"
	[standby]="SELECT body FROM readings_there WHERE k = $(key_of two)"
)
clients=(row pair key dead count standby)
for name in "${clients[@]}"; do
	: >"$KV_RUN/$name.client"
	client "$name" "${statement[$name]};" &
done
for name in "${clients[@]}"; do until_more done_by "$name" 20; done
[ "$(cat "$KV_RUN"/*.client | grep -vc ' 00000$')" = 0 ] || kv_die "something failed before the kill"
kill_server two
step "  killed; two is dead"
sleep "$((seconds / 3))"
for name in row key standby; do until_more done_by "$name" 50; done
for name in row pair dead count; do until_more failed_by "$name" 10; done
start two
step "  two is back"
sleep "$((seconds / 3))"
for name in "${clients[@]}"; do until_more done_by "$name" 50; done
touch "$KV_RUN/stop"
wait

on coordinator -c 'CREATE TABLE outcome (client text, i bigint, state text)'
for name in "${clients[@]}"; do
	sed "s/^/$name /" "$KV_RUN/$name.client" | on coordinator -c "\\copy outcome FROM STDIN (DELIMITER ' ')"
done
on coordinator <<-'EOF'
	CREATE VIEW keys AS SELECT client, state = '00000' AS done, i, k FROM outcome,
	  LATERAL (SELECT CASE client WHEN 'row' THEN -2000000000 - i ELSE -3000000000 - 2 * i - n END AS k
	    FROM generate_series(0, CASE client WHEN 'row' THEN 0 ELSE 1 END) n) s WHERE client IN ('row', 'pair');
	CREATE VIEW there AS SELECT o.*, r.k IS NOT NULL AS there, satisfies_hash_partition('readings'::regclass, 3, 1, o.k) AS on_two
	  FROM keys o LEFT JOIN (SELECT k FROM readings WHERE k <= -2000000000) r ON r.k = o.k;
	CREATE TABLE results AS SELECT * FROM there;
EOF
declare -A what=([row]="INSERT of a row, on any server" [pair]="INSERT of two rows, on any servers" [key]="SELECT of a key of one"
	[dead]="SELECT of a key of two" [count]="SELECT count(*)" [standby]="SELECT of a key of two, from its standby")
printf '  %-42s %8s %8s   %s\n' '' done failed SQLSTATEs
for name in "${clients[@]}"; do
	printf '  %-42s %8s %8s   %s\n' "${what[$name]}" "$(done_by "$name")" "$(failed_by "$name")" \
		"$(sed -n 's/^[0-9]* //; /^00000$/!p' "$KV_RUN/$name.client" | sort -u | paste -sd' ')"
done

never() # what count
{
	[ "$2" = 0 ] || kv_die "$1: $2"
	step "  never: $1"
}
ask() { on coordinator -c "SELECT count(*) FROM $1"; }
step "  rows that failed and are on two all the same: $(ask "results WHERE client = 'row' AND NOT done AND there")"
step "  pairs that failed and of which one row is there: $(ask "(SELECT i FROM results WHERE client = 'pair' AND NOT done GROUP BY i HAVING count(*) FILTER (WHERE there) = 1) s")"
never "a statement failed that needs one or three alone" "$(($(ask "results WHERE client = 'row' AND NOT done AND NOT on_two") + $(failed_by key)))"
never "a read from a standby failed" "$(failed_by standby)"
never "a row was lost that had been acknowledged" "$(ask 'results WHERE done AND NOT there')"
never "half of an acknowledged pair was lost" "$(ask "(SELECT i FROM results WHERE client = 'pair' AND done GROUP BY i HAVING count(*) FILTER (WHERE there) < 2) s")"
same='SELECT count(*), sum(hashtextextended(r::text, 0)) FROM readings r WHERE k > -2000000000'
[ "$(on alone -c "$same")" = "$(on coordinator -c "$same")" ] || kv_die "the rows from before are not what they were"
step "  the rows from before are as alone"
caught_up two-standby two
[ "$(on coordinator -c "${same/readings/readings_there}")" = "$(on coordinator -c "$same")" ] || kv_die "a standby differs"
step "  and on the standbys"
for i in 0 1 2; do
	[ -z "$(on "${servers[i]}" -c "SELECT * FROM kvfdw_check('readings_$i')")" ] || kv_die "readings_$i is damaged"
done
printf '\nscale-demo: all verified\n'
