#!/bin/bash
# A server with a table "cache" for clients of memcached; source test/lib/server.sh and call kv_begin first.
#
#   mc_server [faults] [LINE…]   builds, and starts it with these postgresql.conf lines added, at $MC_PORT
#                                of 127.0.0.1; returns when it can be connected to
#   mc_wait                      the same, after a restart

mc_server()
{
	local flavour=
	if [ "${1:-}" = faults ]; then flavour=faults; shift; fi
	kv_build $flavour
	MC_PORT=$(perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")->sockport')
	kv_server_init "kvfdw.memcached_workers = 2" "kvfdw.memcached_database = 'postgres'" "kvfdw.memcached_role = 'web'" \
		"kvfdw.memcached_port = $MC_PORT" "kvfdw.memcached_listen = '127.0.0.1'" "kvfdw.memcached_flush_all = on" \
		"kvfdw.memcached_max_item_size = '1MB'" "max_worker_processes = 32" "$@"
	kv_server_start
	kv_psql -c 'CREATE EXTENSION kvfdw' -c 'CREATE ROLE web LOGIN' -c "CREATE FOREIGN TABLE cache (key bytea NOT NULL, flags bigint NOT NULL DEFAULT 0,
		expires timestamptz, value bytea) SERVER kvfdw OPTIONS (key 'key', memcached '')" -c 'GRANT ALL ON cache TO web'
	mc_wait
}

mc_wait()
{
	until exec 3<>"/dev/tcp/127.0.0.1/$MC_PORT"; do sleep 0.2; done 2>/dev/null
	exec 3>&-
}
