/*
 * register.c
 *		Background workers that the postmaster starts with the server.
 *
 * PostgreSQL's own message, for a worker that finds no room, does not name it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker_internals.h"

#include "compat.h"
#include "register.h"

static int	missing = 0;

static bool
is_registered(const BackgroundWorker *worker)
{
	kv_worker_iter iter;

	kv_each_worker(iter)
	{
		const BackgroundWorker *other = &kv_worker_of(iter)->rw_worker;

		if (strcmp(other->bgw_library_name, worker->bgw_library_name) == 0 &&
			strcmp(other->bgw_name, worker->bgw_name) == 0 &&
			other->bgw_main_arg == worker->bgw_main_arg)
			return true;
	}
	return false;
}

void
kv_register_worker(BackgroundWorker *worker, const char *without)
{
	RegisterBackgroundWorker(worker);
	if (IsUnderPostmaster || !IsPostmasterEnvironment || is_registered(worker))
		return;
	missing++;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("there is no room for background worker \"%s\"", worker->bgw_name),
			 errdetail("%s", without),
			 errhint("Increase max_worker_processes from %d to at least %d.",
					 max_worker_processes, max_worker_processes + missing)));
}
