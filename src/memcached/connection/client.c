/*
 * client.c
 *		What SQL sees of connections: kvfdw_memcached_connections().
 *
 * Each connection has an entry in shared memory; there are as many entries as there may be
 * connections.  Only the connection's process writes to it, without a lock.  A reader that
 * reads an entry while it changes may see some old and some new numbers.  A process takes an
 * entry by storing its own number as the owner.
 */
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"

#include "clock.h"
#include "report.h"
#include "engine/engine.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#define CLIENT_COLUMNS	9

PG_FUNCTION_INFO_V1(kvfdw_memcached_connections);

typedef enum KvMcClientState
{
	CLIENT_IDLE, CLIENT_RECEIVING, CLIENT_WORKING, CLIENT_PARKED, CLIENT_FLUSHING, CLIENT_SENDING,
	CLIENT_REFUSED
} KvMcClientState;

static const char *const state_names[] = {
	"idle", "receiving", "working", "parked", "flushing", "sending", "refused"
};

static KvMcClient *clients = NULL;
static int	hint = 0;			/* entries before this one are taken, probably */

Size
kv_mc_clients_size(void)
{
	return kv_mc_workers == 0 ? 0 : mul_size(sizeof(KvMcClient), kv_mc_max_connections);
}

void
kv_mc_clients_init(void)
{
	if (kv_mc_workers > 0)
		clients = (KvMcClient *) ((char *) kv_mc_shared + MAXALIGN(sizeof(KvMcShared)));
}

static void
write_address(char *to, size_t size, const struct sockaddr *address)
{
	char		host[INET6_ADDRSTRLEN] = "";

	if (address->sa_family == AF_INET)
	{
		const struct sockaddr_in *in = (const struct sockaddr_in *) address;

		(void) inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(to, size, "%s:%d", host, ntohs(in->sin_port));
	}
	else if (address->sa_family == AF_INET6)
	{
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *) address;

		(void) inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
		snprintf(to, size, "[%s]:%d", host, ntohs(in->sin6_port));
	}
	else
		snprintf(to, size, "local");
}

KvMcClient *
kv_mc_client_add(const struct sockaddr *address)
{
	for (int i = 0; i < kv_mc_max_connections; i++)
	{
		int			n = (hint + i) % kv_mc_max_connections;
		KvMcClient *client = &clients[n];
		uint32		nobody = 0;

		if (pg_atomic_read_u32(&client->owner) != 0)
			continue;
		/* a concurrent reader sees the previous client's address at worst */
		if (!pg_atomic_compare_exchange_u32(&client->owner, &nobody, kv_mc_my_number + 1))
			continue;
		hint = (n + 1) % kv_mc_max_connections;
		client->state = CLIENT_IDLE;
		client->role = InvalidOid;
		client->requests = client->in_bytes = client->out_bytes = 0;
		client->made = GetCurrentTimestamp();
		client->active = kv_clock();
		write_address(client->address, sizeof(client->address), address);
		return client;
	}
	return NULL;
}

static KvMcClientState
state_of(const KvMcConnection *conn)
{
	if (conn->hold_until != 0)
		return CLIENT_REFUSED;
	if (conn->held_upto != InvalidXLogRecPtr)
		return CLIENT_FLUSHING;
	if (kv_mc_is_parked(conn))
		return CLIENT_PARKED;
	if (kv_mc_pending(&conn->out) > 0)
		return CLIENT_SENDING;
	if (conn->working)
		return CLIENT_WORKING;
	return kv_mc_pending(&conn->in) > 0 ||
		conn->stream.swallow > 0 ? CLIENT_RECEIVING : CLIENT_IDLE;
}

void
kv_mc_client_update(const KvMcConnection *conn)
{
	KvMcClient *client = conn->client;

	if (client == NULL)
		return;
	client->state = state_of(conn);
	client->role = conn->role;
	client->active = conn->active;
	client->requests = conn->requests;
	client->in_bytes = kv_mc_pending(&conn->in);
	client->out_bytes = kv_mc_pending(&conn->out);
}

void
kv_mc_client_remove(KvMcClient *client)
{
	if (client != NULL)
		pg_atomic_write_u32(&client->owner, 0);
}

void
kv_mc_clients_leave(void)
{
	for (int i = 0; i < kv_mc_max_connections; i++)
	{
		if (pg_atomic_read_u32(&clients[i].owner) == kv_mc_my_number + 1)
			pg_atomic_write_u32(&clients[i].owner, 0);
	}
}

Datum
kvfdw_memcached_connections(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	kv_engine_require();
	InitMaterializedSRF(fcinfo, 0);
	kv_require_columns(rsinfo->setDesc, CLIENT_COLUMNS);
	for (int i = 0; clients != NULL && i < kv_mc_max_connections; i++)
	{
		KvMcClient *client = &clients[i];
		uint32		owner = pg_atomic_read_u32(&client->owner);
		Datum		values[CLIENT_COLUMNS];
		bool		nulls[CLIENT_COLUMNS] = {false};

		if (owner == 0)
			continue;
		values[0] = Int32GetDatum(owner - 1);
		values[1] = CStringGetTextDatum(client->address);
		nulls[2] = !OidIsValid(client->role);
		values[2] = ObjectIdGetDatum(client->role);
		values[3] = CStringGetTextDatum(state_names[client->state]);
		values[4] = TimestampTzGetDatum(client->made);
		values[5] = TimestampTzGetDatum(kv_wall_time(client->active));
		values[6] = Int64GetDatum(client->requests);
		values[7] = Int64GetDatum(client->in_bytes);
		values[8] = Int64GetDatum(client->out_bytes);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
