/*
 * enter.c
 *		Installs the gate in a session, and calls it.
 *
 * PostgreSQL sends through PqCommMethods, which may be replaced.  The message ReadyForQuery
 * tells whether a transaction is open; the flush that follows it is the last call before the
 * next request is read.  Another library that replaces the methods calls ours, or ours call its
 * methods; they are never put back.
 */
#include "postgres.h"

#include "replication/walsender.h"

#include "admission/connection.h"
#include "admission/internal.h"

static const PQcommMethods *previous = NULL;
static PQcommMethods methods;

static ClientAuthentication_hook_type previous_authentication = NULL;

/* The transaction status that is about to be sent; 0: none is. */
static char ready = 0;

static int
put_message(char type, const char *body, size_t length)
{
	if (type == 'Z' && length == 1)
		ready = body[0];
	return previous->putmessage(type, body, length);
}

static int
flush(void)
{
	int			result = previous->flush();
	char		status = ready;

	/* what the gate sends is no answer to a request */
	ready = 0;
	if (status == 'I' && result == 0)
		kv_admission_gate();
	return result;
}

void
kv_enter_install(void)
{
	if (previous != NULL || kv_admit == NULL || am_walsender)
		return;
	previous = PqCommMethods;
	methods = *previous;
	methods.putmessage = put_message;
	methods.flush = flush;
	PqCommMethods = &methods;
	kv_gate_hooks();
}

static void
at_authentication(Port *port, int status)
{
	if (previous_authentication)
		previous_authentication(port, status);
	if (kv_admission_limit != -1)
		kv_enter_install();
}

void
kv_enter_hook(void)
{
	previous_authentication = ClientAuthentication_hook;
	ClientAuthentication_hook = at_authentication;
}
