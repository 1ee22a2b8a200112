# The lines of crash recovery of make bench; run.sh sources it.
#
# A server of its own for each table: rows are loaded with no checkpoint after
# the first, the server is killed, its directory copied.  Where it was, kvfdw
# trusts what the page cache has kept and replays nothing; the copy is to it what
# the directory is after a power loss, set back and replayed.  For heap there is
# no difference but the page cache, which is emptied for the copy if we may.

# Start a server that has crashed.  Sets up_s, seconds until it is up; of redo
# itself redo_s, and redo_mb of WAL.
start_again()
{
	local log from to

	log=$(wc -c <"$KV_SERVER_LOG")
	kv_timed up_s kv_server_start
	read -r from to redo_s < <(tail -c +$((log + 1)) "$KV_SERVER_LOG" | awk '
		/ redo starts at / { from = $NF }
		/ redo done at / { for (i = 1; i < NF; i++) if ($i == "at") to = $(i + 1); else if ($i == "elapsed:") s = $(i + 1) }
		END { print from, to, s }')
	[ -n "$redo_s" ] || kv_die "the server that was killed has replayed nothing"
	redo_mb=$(kv_psql -c "SELECT round(('$to'::pg_lsn - '$from'::pg_lsn) / 1e6)")
}

check_rows() # table
{
	[ "$(kv_psql -c "SELECT count(*) FROM $1")" = "$REDO_ROWS" ] &&
		"$KV_LOAD" points "$1" "$KV_SEED" "$REDO_ROWS" $SIZE 1000 1 >/dev/null ||
		kv_die "rows are lost or damaged after recovery"
}

# Load, kill, and start twice.  Sets kill_redo_s, kill_up_s, loss_redo_s, loss_up_s and redo_mb.
crash_with() # table make-function [level]
{
	kv_server_init "${settings[@]}" "max_wal_size = 64GB"
	kv_server_start
	kv_psql -c 'CREATE EXTENSION kvfdw'
	"$2" "$1" "${3:-}"
	kv_psql -c CHECKPOINT
	kv_psql -c "COPY $1 FROM '$KV_RUN/rows' (FORMAT binary)"
	kv_server_kill
	kv_as cp -a "$KV_PGDATA" "$KV_RUN/copy"

	start_again
	kill_redo_s=$redo_s kill_up_s=$up_s
	say "  $1 after SIGKILL: redo of $redo_mb MB in $redo_s s; up after $up_s s"
	check_rows "$1"
	kv_server_stop immediate

	rm -rf "$KV_PGDATA"
	mv "$KV_RUN/copy" "$KV_PGDATA"
	kv_drop_caches || KV_WARM=1
	start_again
	loss_redo_s=$redo_s loss_up_s=$up_s
	say "  $1 after a power loss: redo of $redo_mb MB in $redo_s s; up after $up_s s"
	check_rows "$1"
	kv_server_stop
}

bench_redo()
{
	local heap_kill_up heap_loss_up heap_loss_s heap_mb
	local kill_redo_s kill_up_s loss_redo_s loss_up_s redo_s up_s redo_mb

	head_ "Crash recovery, $REDO_ROWS rows since the last checkpoint"
	kv_server_stop
	make_rows "$KV_RUN/rows" "$REDO_ROWS" $SIZE
	crash_with redo_heap make_heap
	heap_kill_up=$kill_up_s heap_loss_up=$loss_up_s heap_loss_s=$loss_redo_s heap_mb=$redo_mb
	crash_with redo_full make_kv full
	rm -f "$KV_RUN/rows"
	kv_server_start
	line "redo after a power loss, MB of WAL per second, wal 'full'${KV_WARM:+ (warm: not root)}" \
		"$(kv_calc "int($redo_mb / $loss_redo_s)"), $(ratio "$redo_mb / $loss_redo_s" "($heap_mb / $heap_loss_s)") heap" ""
	line "server up after a power loss, $REDO_ROWS rows, wal 'full'" "$loss_up_s s (heap $heap_loss_up s)" ""
	line "server up after SIGKILL, those rows, redo in $kill_redo_s s" "$kill_up_s s (heap $heap_kill_up s)" ""
}
