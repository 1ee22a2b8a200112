# The admission line of make bench; run.sh sources it.
#
# Throughput, latency and fairness of many clients, without admission, with limits
# from a sweep, and with the limit that is chosen by measurement under the largest
# sweep's load.  Clients are pgbench's, of a role that may be paused.
#
#   ADMISSION_LOADS="tpcb hot select zipf"   TPC-B of ADMISSION_SCALE; updates of ten rows; point
#                           SELECTs; half SELECTs, half UPDATEs of a kvfdw table, zipfian
#   ADMISSION_SCALE=10
#   ADMISSION_CLIENTS="8 32 64 128 200 800"
#   ADMISSION_SWEEP=200     clients of the sweep
#   ADMISSION_LIMITS="8 16 32 64"
#   ADMISSION_SECONDS=20    of each run
#   ADMISSION_ROUNDS=4      of the runs that are compared
#
# What is compared is run in turn, in ADMISSION_ROUNDS rounds of half as long runs each, and
# the medians are taken, so that a change of the machine's speed cancels out; latencies are of the longer runs.
# bench/lib/rotate.c is measured for comparison: as many sessions, of which the client itself keeps only
# as many at work at once as the chosen limit allows, in turn.  That is the ceiling: what a server
# without admission gives when so many sessions take turns.
#
# Time inside the server is that of one statement in fifty, from its log; TPC-B is
# one request of five statements for that.  The figures are in
# bench/results/admission.tsv, the picture is admission.svg; with BENCH_SHORT, both are in bench/results/short.

ADMISSION_LOADS=${ADMISSION_LOADS:-tpcb hot select zipf}
ADMISSION_SCALE=${ADMISSION_SCALE:-10}
ADMISSION_CLIENTS=${ADMISSION_CLIENTS:-8 32 64 128 200 800}
ADMISSION_SWEEP=${ADMISSION_SWEEP:-200}
ADMISSION_LIMITS=${ADMISSION_LIMITS:-8 16 32 64}
ADMISSION_SECONDS=${ADMISSION_SECONDS:-$((20 / share))}
ADMISSION_ROUNDS=${ADMISSION_ROUNDS:-4}
ADMISSION_KEYS=${ADMISSION_KEYS:-$((1000000 / share))}

# What a load's clients do.
admission_script() # load
{
	case $1 in
		tpcb)
			cat <<-END
				\\set aid random(1, 100000 * $ADMISSION_SCALE)
				\\set bid random(1, $ADMISSION_SCALE)
				\\set tid random(1, 10 * $ADMISSION_SCALE)
				\\set delta random(-5000, 5000)
				UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid\\;
				SELECT abalance FROM pgbench_accounts WHERE aid = :aid\\;
				UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid\\;
				UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid\\;
				INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
			END
			;;
		hot) printf '%s\n' '\set k random(1, 10)' 'UPDATE admission_hot SET n = n + 1 WHERE k = :k;' ;;
		select) printf '%s\n' "\\set aid random(1, 100000 * $ADMISSION_SCALE)" 'SELECT abalance FROM pgbench_accounts WHERE aid = :aid;' ;;
		zipf)
			printf '%s\n' "\\set k 1 + permute(random_zipfian(1, $ADMISSION_KEYS, 1.07) - 1, $ADMISSION_KEYS)" '\set w random(0, 1)' \
				'\if :w' 'UPDATE admission_zipf SET v = repeat(md5(:k::text), 8) WHERE k = :k;' \
				'\else' 'SELECT v FROM admission_zipf WHERE k = :k;' '\endif'
			;;
		*) kv_die "ADMISSION_LOADS knows tpcb, hot, select and zipf, not '$1'" ;;
	esac
}

# The same for rotate; prints requests per second.
admission_rotate() # load sessions at-once seconds
{
	local load=$1 statements ranges
	case $load in
		tpcb)
			statements=("UPDATE pgbench_accounts SET abalance = abalance + \$4 WHERE aid = \$1; SELECT abalance FROM pgbench_accounts WHERE aid = \$1; UPDATE pgbench_tellers SET tbalance = tbalance + \$4 WHERE tid = \$3; UPDATE pgbench_branches SET bbalance = bbalance + \$4 WHERE bid = \$2; INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (\$3, \$2, \$1, \$4, CURRENT_TIMESTAMP);")
			ranges=("1:$((100000 * ADMISSION_SCALE))" "1:$ADMISSION_SCALE" "1:$((10 * ADMISSION_SCALE))" 0:5000)
			;;
		hot) statements=("UPDATE admission_hot SET n = n + 1 WHERE k = \$1;") ranges=(1:10) ;;
		select) statements=("SELECT abalance FROM pgbench_accounts WHERE aid = \$1;") ranges=("1:$((100000 * ADMISSION_SCALE))") ;;
		zipf)
			statements=("UPDATE admission_zipf SET v = repeat(md5(\$1::text), 8) WHERE k = \$1;" "SELECT v FROM admission_zipf WHERE k = \$1;")
			ranges=("1:$ADMISSION_KEYS~1.07")
			;;
	esac
	PGUSER=crowd "$KV_RUN/rotate" "$2" "$3" "$4" "${statements[@]}" -- "${ranges[@]}" || kv_die "rotate failed: $load"
}

admission_build()
{
	local lib
	lib=$("$KV_PG_CONFIG" --libdir)
	"${CC:-cc}" -O2 -pthread -o "$KV_RUN/rotate" "$here/lib/rotate.c" \
		-I"$("$KV_PG_CONFIG" --includedir)" -L"$lib" -Wl,-rpath,"$lib" -lpq -lm ||
		kv_die "cannot compile bench/lib/rotate.c"
}

# Set the limit and wait until it is in force.
admission_limit() # limit, -1: off
{
	adm_limit=$1
	kv_psql -c "ALTER SYSTEM SET kvfdw.admission_limit = $1" -c 'SELECT pg_reload_conf()' >/dev/null
	for _ in $(seq 200); do
		case $1 in
			-1) [ -n "$(kv_psql -c 'SELECT pid FROM kvfdw_stat_admission')" ] || return 0 ;;
			0) [ -z "$(kv_psql -c 'SELECT pid FROM kvfdw_stat_admission')" ] || return 0 ;;
			*) [ "$(kv_psql -c 'SELECT session_limit FROM kvfdw_stat_admission')" != "$1" ] || return 0 ;;
		esac
		sleep 0.1
	done
	kv_die "kvfdw.admission_limit = $1 does not come into force"
}

# One run.  Sets adm_tps, and in ms adm_p50, adm_p99, adm_max, adm_server (p99 of the time
# inside the server), and adm_jain, adm_unfair, adm_cv (mean of the clients').
admission_run() # load mode clients seconds [more pgbench options]
{
	local dir=$KV_RUN/admission load=$1 mode=$2 clients=$3 seconds=$4 log_size jobs first
	shift 4
	jobs=$(($(nproc) < clients ? $(nproc) : clients))
	rm -rf "$dir"
	mkdir -p "$dir"
	admission_script "$load" >"$dir/script.sql"
	log_size=$(stat -c %s "$KV_SERVER_LOG")
	pgbench -n -M simple -U crowd -c "$clients" -j "$jobs" -T "$seconds" --random-seed="$KV_SEED" "$@" \
		-f "$dir/script.sql" --log --log-prefix="$dir/log" >"$dir/out" 2>&1 ||
		{ tail -n 5 "$dir/out" >&2; kv_die "pgbench failed: $load, $mode, $clients clients"; }
	adm_tps=$(awk '/^tps = / { print $3; exit }' "$dir/out")
	# A line of the log: client, transaction, microseconds, script, second, ...  The first two seconds of a run
	# of five or more do not count: then each session fills its caches of the catalogs.
	first=$(awk '!least || $5 < least { least = $5 } END { print least + (seconds >= 5 ? 2 : 0) }' seconds="$seconds" "$dir"/log*)
	read -r adm_p50 adm_p99 adm_max adm_jain adm_unfair adm_cv < <(cat "$dir"/log* |
		awk -v first="$first" '$5 >= first' | sort -n -k 3,3 | awk -v clients="$clients" '
		{ t[NR] = $3 / 1000; n[$1]++; s[$1] += $3; q[$1] += $3 * $3 }
		END {
			mean = NR / clients
			for (c = 0; c < clients; c++) {
				squares += n[c] * n[c]
				d = n[c] > mean ? n[c] - mean : mean - n[c]
				if (d / mean > unfair) unfair = d / mean
				if (n[c] > 1) { m = s[c] / n[c]; v = q[c] / n[c] - m * m; cv += (v > 0 ? sqrt(v) : 0) / m; varied++ }
			}
			printf "%.2f %.2f %.2f %.4f %.3f %.3f\n", t[int(NR * 0.5) + 1], t[int(NR * 0.99) + 1], t[NR],
				NR * NR / (clients * squares), unfair, varied ? cv / varied : 0
		}')
	adm_server=$(tail -c +$((log_size + 1)) "$KV_SERVER_LOG" | sed -nE 's/.*LOG:  duration: ([0-9.]+) ms .*/\1/p' | sort -n |
		awk '{ t[NR] = $1 } END { printf "%.2f", NR ? t[int(NR * 0.99) + 1] : 0 }')
	say "  $load, $mode, $clients clients: $(kv_calc "int($adm_tps)")/s; p50 $adm_p50, p99 $adm_p99, max $adm_max ms; in the server p99 $adm_server ms; Jain $adm_jain, unfairness $adm_unfair, CV $adm_cv"
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$load" "${adm_of_round:-}$mode" "$clients" "$adm_tps" "$adm_p50" "$adm_p99" "$adm_max" \
		"$adm_server" "$adm_jain" "$adm_unfair" "$adm_cv" >>"$adm_figures"
}

# The limit that is chosen for a load; 0: none, or the measurement was refused.  Sets adm_chosen.
admission_choose() # load
{
	local dir=$KV_RUN/admission-choose client before begun
	mkdir -p "$dir"
	admission_script "$1" >"$dir/script.sql"
	admission_limit -1
	admission_limit 0
	pgbench -n -M simple -U crowd -c "$ADMISSION_SWEEP" -j "$(nproc)" -T 600 -f "$dir/script.sql" >"$dir/out" 2>&1 &
	client=$!
	until [ "$(kv_psql -c "SELECT count(*) FROM pg_stat_activity WHERE usename = 'crowd'")" -ge "$ADMISSION_SWEEP" ]; do
		kill -0 $client 2>/dev/null || { tail -n 5 "$dir/out" >&2; kv_die "pgbench failed: $1"; }
		sleep 0.2
	done
	before=$(kv_psql -c 'SELECT last_tuned FROM kvfdw_stat_admission')
	begun=$(date +%s)
	kv_psql -c 'SELECT kvfdw_admission_tune()' >/dev/null
	for _ in $(seq 25); do
		[ "$(kv_psql -c 'SELECT tuning FROM kvfdw_stat_admission')" != t ] || break
		sleep 0.2
	done
	for _ in $(seq 1200); do
		[ "$(kv_psql -c 'SELECT tuning FROM kvfdw_stat_admission')" = t ] || break
		sleep 0.2
	done
	adm_chosen=$(kv_psql -c 'SELECT coalesce(session_limit, 0) FROM kvfdw_stat_admission')
	if [ "$(kv_psql -c 'SELECT last_tuned FROM kvfdw_stat_admission')" = "$before" ]; then
		adm_chosen=0
		say "  $1: none chosen:$(sed -nE 's/.*kvfdw admission:(.*)/\1/p' "$KV_SERVER_LOG" | tail -n 1)"
	else
		say "  $1: chosen $adm_chosen in $(($(date +%s) - begun)) s, of $(kv_psql -c "SELECT tuned_limits::text || ' with ' || tuned_throughputs::int[]::text FROM kvfdw_stat_admission")"
	fi
	kill $client 2>/dev/null || true
	wait $client 2>/dev/null || true
	until [ "$(kv_psql -c "SELECT count(*) FROM pg_stat_activity WHERE usename = 'crowd'")" = 0 ]; do sleep 0.1; done
	[ "$adm_chosen" != 0 ] || adm_chosen=-1
	admission_limit "$adm_chosen"
}

# Keep a value; and the median of those that were kept under this name.
admission_keep() { adm_kept[$1]="${adm_kept[$1]:-} $2"; }
admission_median() { tr ' ' '\n' <<<"${adm_kept[$1]}" | sort -g | awk 'NF { v[++n] = $1 } END { print n ? (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2 : 0 }'; }

# One run that is compared; its values are kept under its mode and clients.
admission_compared() # load mode clients
{
	local adm_of_round='in a round: '
	admission_run "$1" "$2" "$3" "$adm_half"
	admission_keep "$2 $3" "$adm_tps"
}

# What is compared, once; the limits in another order in every second round.
admission_round() # load chosen least-clients clients-of-the-peak round
{
	local load=$1 limit rate clients limits="chosen $ADMISSION_LIMITS" least="off chosen"
	[ $(($5 % 2)) = 1 ] || least="chosen off"
	for limit in $least; do
		admission_limit "$([ "$limit" = off ] && echo -1 || echo "$2")"
		admission_compared "$load" "$limit" "$3"
	done
	admission_limit -1
	for clients in $(printf '%s\n' "$4" "$ADMISSION_SWEEP" | sort -nu); do
		[ "$clients" = "$3" ] || admission_compared "$load" off "$clients"
	done
	limit=$2
	[ "$limit" != -1 ] || limit=$ADMISSION_SWEEP
	rate=$(admission_rotate "$load" "$ADMISSION_SWEEP" "$limit" "$adm_half")
	admission_keep ceiling "$rate"
	say "  $load, ceiling, $limit of $ADMISSION_SWEEP sessions at a time: $rate/s"
	admission_limit "$2"
	rate=$(admission_rotate "$load" "$ADMISSION_SWEEP" "$ADMISSION_SWEEP" "$adm_half")
	admission_keep gate "$rate"
	say "  $load, all $ADMISSION_SWEEP sessions of the same client with the chosen limit: $rate/s"
	[ $(($5 % 2)) = 1 ] || limits=$(printf '%s\n' $limits | tac)
	for limit in $limits; do
		if [ "$limit" = chosen ]; then
			admission_limit "$2"
			admission_compared "$load" chosen "$ADMISSION_SWEEP"
		else
			admission_limit "$limit"
			admission_compared "$load" "P = $limit" "$ADMISSION_SWEEP"
		fi
	done
}

admission_load() # load
{
	local load=$1 clients limit round best=0 peak=0 peak_at chosen calm least=${ADMISSION_CLIENTS%% *} n=$ADMISSION_SWEEP tps off ceiling p99 server jain cv
	local adm_half=$((ADMISSION_SECONDS / 2 > 0 ? ADMISSION_SECONDS / 2 : 1))
	local -A adm_kept=()

	admission_choose "$load"
	limit=$adm_limit
	for clients in $ADMISSION_CLIENTS; do
		admission_limit -1
		admission_run "$load" off "$clients" "$ADMISSION_SECONDS"
		if kv_true "$adm_tps > $peak"; then peak=$adm_tps peak_at=$clients; fi
		admission_limit "$limit"
		admission_run "$load" chosen "$clients" "$ADMISSION_SECONDS"
		if [ "$clients" = "$ADMISSION_SWEEP" ]; then
			p99=$(kv_calc "$adm_p99 * $adm_tps / 1000 / $clients") server=$adm_server jain=$adm_jain cv=$adm_cv
		fi
	done
	admission_limit -1
	admission_run "$load" 'off, 70 % load' 32 "$ADMISSION_SECONDS" -R "$(kv_calc "int(0.7 * $peak)")"
	calm=$adm_server
	for round in $(seq "$ADMISSION_ROUNDS"); do admission_round "$load" "$limit" "$least" "$peak_at" "$round"; done
	admission_limit -1

	tps=$(admission_median "chosen $n")
	off=$(admission_median "off $n")
	ceiling=$(admission_median ceiling)
	peak=$(admission_median "off $peak_at")
	for limit in $ADMISSION_LIMITS; do
		chosen=$(admission_median "P = $limit $n")
		if kv_true "$chosen > $best"; then best=$chosen; fi
	done
	line "$load, $n clients: chosen limit against the best of the sweep" "$(ratio "$tps" "$best")" "0.97x" "$tps >= 0.97 * $best"
	line "$load, $n clients: against the peak without admission, $peak_at clients" "$(ratio "$tps" "$peak"), ceiling $(ratio "$ceiling" "$peak"), off $(ratio "$off" "$peak")" "0.97x" "$tps >= 0.97 * $peak"
	line "$load, $n clients: against the ceiling, with the same client" "$(ratio "$(admission_median gate)" "$ceiling"), pgbench $(ratio "$tps" "$ceiling")" "0.95x" "$(admission_median gate) >= 0.95 * $ceiling"
	line "$load, $n clients: p99 against clients / throughput" "$p99" "1.8" "$p99 <= 1.8"
	line "$load, $n clients: p99 in the server against that at 70 % load" "$(kv_calc "$server / ($calm > 0 ? $calm : 0.01)")x" "3x" "$server <= 3 * $calm"
	line "$load, $n clients: Jain, CV of latency" "$jain, $cv" "0.98, 0.4" "$jain >= 0.98 && $cv <= 0.4"
	line "$load, $least clients: against off" "$(ratio "$(admission_median "chosen $least")" "$(admission_median "off $least")")" "0.98x" \
		"$(admission_median "chosen $least") >= 0.98 * $(admission_median "off $least")"
}

bench_admission()
{
	local load where=$here/results

	head_ "Admission: $ADMISSION_LOADS; $ADMISSION_CLIENTS clients, ${ADMISSION_SECONDS} s each"
	[[ " $ADMISSION_CLIENTS " == *" $ADMISSION_SWEEP "* ]] || kv_die "ADMISSION_CLIENTS must have ADMISSION_SWEEP=$ADMISSION_SWEEP"
	if [ -n "${BENCH_SHORT:-}" ]; then where=$here/results/short; mkdir -p "$where"; fi
	adm_figures=$where/admission.tsv
	admission_build
	kv_psql -c 'ALTER SYSTEM SET max_connections = 900' -c 'ALTER SYSTEM SET max_worker_processes = 32'
	kv_server_stop
	kv_server_start
	pgbench -i -q -s "$ADMISSION_SCALE" >"$KV_RUN/admission.log" 2>&1 || kv_die "pgbench -i failed"
	kv_psql -c 'CREATE ROLE crowd LOGIN' \
		-c "ALTER ROLE crowd SET log_min_duration_sample = 0" -c "ALTER ROLE crowd SET log_statement_sample_rate = 0.02" \
		-c 'CREATE TABLE admission_hot (k int PRIMARY KEY, n bigint) WITH (fillfactor = 10)' \
		-c 'INSERT INTO admission_hot SELECT k, 0 FROM generate_series(1, 10) k' \
		-c "CREATE FOREIGN TABLE admission_zipf (k bigint NOT NULL, v text) SERVER kvfdw OPTIONS (key 'k', wal 'full')" \
		-c "INSERT INTO admission_zipf SELECT k, repeat(md5(k::text), 8) FROM generate_series(1, $ADMISSION_KEYS) k" \
		-c 'GRANT ALL ON ALL TABLES IN SCHEMA public TO crowd' -c 'ANALYZE' -c 'ALTER SYSTEM SET autovacuum = on' -c 'SELECT pg_reload_conf()' >/dev/null
	{
		printf '# %s CPUs; %s s each, seed %s; TPC-B of scale %s; %s\n' "$(nproc)" "$ADMISSION_SECONDS" "$KV_SEED" "$ADMISSION_SCALE" "$(date +%F)"
		printf 'load\tmode\tclients\ttps\tp50_ms\tp99_ms\tmax_ms\tserver_p99_ms\tjain\tunfairness\tcv\n'
	} >"$adm_figures"
	for load in $ADMISSION_LOADS; do admission_load "$load"; done
	perl "$here/lib/plot.pl" "$adm_figures" admission >"$where/admission.svg"
	say "  drawn: $(realpath --relative-to="$PWD" "$where/admission.svg")"
	kv_psql -c 'DROP FOREIGN TABLE admission_zipf' -c 'DROP TABLE admission_hot, pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers' \
		-c 'DROP OWNED BY crowd' -c 'DROP ROLE crowd' -c 'ALTER SYSTEM RESET ALL'
	kv_server_stop
	kv_server_start
}
