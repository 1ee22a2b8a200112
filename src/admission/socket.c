/*
 * socket.c
 *		The client's connection: has the client sent something, and waiting for that.
 */
#include "postgres.h"

#include <poll.h>

#include "miscadmin.h"

#include "admission/connection.h"
#include "admission/internal.h"

#ifdef KV_SERVER_HAS_GSS
extern bool be_gssapi_get_enc(Port *port);
#endif

bool
kv_socket_can_wait(void)
{
	if (!WaitEventSetCanReportClosed())
		return false;
#ifdef KV_SERVER_HAS_GSS
	/* GSSAPI's layer cannot tell whether a part of a packet is left */
	if (be_gssapi_get_enc(MyProcPort))
		return false;
#endif
#ifndef USE_OPENSSL
	if (MyProcPort->ssl_in_use)
		return false;
#endif
	return true;
}

bool
kv_socket_has_data(void)
{
	if (kv_pq_buffer_has_data())
		return true;
#ifdef USE_OPENSSL
	/* OpenSSL keeps the rest of a record that is longer than the server's buffer */
	if (MyProcPort->ssl_in_use && SSL_pending(MyProcPort->ssl) > 0)
		return true;
#endif
	return false;
}

bool
kv_socket_is_readable(void)
{
	struct pollfd client = {.fd = MyProcPort->sock, .events = POLLIN};

	return poll(&client, 1, 0) > 0;
}

uint32
kv_socket_wait(uint32 events, long timeout, uint32 wait_event)
{
	WaitEvent	event;

	ModifyWaitEvent(FeBeWaitSet, FeBeWaitSetSocketPos, events, NULL);
	if (WaitEventSetWait(FeBeWaitSet, timeout, &event, 1, wait_event) == 0)
		return 0;
	if (event.events & WL_POSTMASTER_DEATH)
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("terminating connection due to unexpected postmaster exit")));
	if (event.events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	return event.events;
}
