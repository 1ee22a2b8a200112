/*
 * report.c
 *		Messages that the engine, admission and memcached have in common, and the registration of
 *		background workers.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "postmaster/bgworker_internals.h"

#include "compat.h"
#include "report.h"

void
kv_report_not_preloaded(int elevel)
{
	ereport(elevel,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("kvfdw must be loaded via \"shared_preload_libraries\""),
			 errhint("Add kvfdw to the libraries in postgresql.conf, for example "
					 "shared_preload_libraries = 'kvfdw', and restart the server.")));
}

void
kv_raise_other_version(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"kvfdw\" of this database has another version than the "
					"loaded library"),
			 errhint("Run \"ALTER EXTENSION kvfdw UPDATE\". If kvfdw was installed since the "
					 "server was started, restart the server.")));
}

void
kv_require_columns(TupleDesc desc, int n)
{
	if (desc->natts != n)
		kv_raise_other_version();
}

void
kv_report_not_started(const char *worker, const char *without)
{
	ereport(LOG,
			(errmsg("could not start background worker \"%s\"", worker),
			 errdetail_internal("%s", without),
			 errhint("You might need to increase \"max_worker_processes\".")));
}

void
kv_report_not_running(int elevel, const char *worker, const char *without)
{
	ereport(elevel,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("background worker \"%s\" is not running", worker),
			 without != NULL ? errdetail_internal("%s", without) : 0,
			 errhint("Check the server log for why it exited, or increase "
					 "\"max_worker_processes\" and restart the server.")));
}

/* ---- workers that the postmaster starts with the server ---- */

/*
 * PostgreSQL's own message, for a worker that finds no free slot, does not name it.  Here the
 * log has one WARNING for all of them.
 */

#define KV_MOST_MISSING 64		/* at most so many are named */

typedef struct KvMissing
{
	char		name[BGW_MAXLEN];
	const char *without;
} KvMissing;

static int	nwanted = 0;
static int	nmissing = 0;
static KvMissing missing[KV_MOST_MISSING];

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
	if (IsUnderPostmaster || !IsPostmasterEnvironment)
		return;
	nwanted++;
	if (is_registered(worker))
		return;
	if (nmissing < KV_MOST_MISSING)
	{
		strlcpy(missing[nmissing].name, worker->bgw_name, BGW_MAXLEN);
		missing[nmissing].without = without;
	}
	nmissing++;
}

int
kv_registered_workers(void)
{
	return nwanted - nmissing;
}

/* Count all that are registered so far, of whatever library. */
static int
count_registered(void)
{
	kv_worker_iter iter;
	int			n = 0;

	kv_each_worker(iter)
		n++;
	return n;
}

/* The names of the missing workers, and what each lack means; each sentence appears once. */
static char *
describe_missing(void)
{
	StringInfoData text;
	int			named = Min(nmissing, KV_MOST_MISSING);

	initStringInfo(&text);
	appendStringInfoString(&text, "There is no slot for ");
	for (int i = 0; i < named; i++)
		appendStringInfo(&text, "%s\"%s\"", i > 0 ? ", " : "", missing[i].name);
	appendStringInfoChar(&text, '.');
	for (int i = 0; i < named; i++)
	{
		bool		said = false;

		for (int j = 0; j < i && !said; j++)
			said = strcmp(missing[j].without, missing[i].without) == 0;
		if (!said)
			appendStringInfo(&text, " %s", missing[i].without);
	}
	return text.data;
}

void
kv_register_report(void)
{
	int			others;

	if (IsUnderPostmaster || !IsPostmasterEnvironment)
		return;
	others = count_registered() - kv_registered_workers();
	if (nmissing == 0 && others + nwanted < max_worker_processes)
		return;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 nmissing > 0 ?
			 errmsg("could not start %d of %d kvfdw background workers: "
					"\"max_worker_processes\" is %d",
					nmissing, nwanted, max_worker_processes) :
			 errmsg("kvfdw cannot start background workers on demand: "
					"\"max_worker_processes\" is %d",
					max_worker_processes),
			 errdetail_internal("%s", nmissing > 0 ? describe_missing() :
								"Sessions write values to files, scans do not read ahead, and "
								"kvfdw tables are neither compacted nor analyzed."),
			 errhint("Set \"max_worker_processes\" to at least %d, plus the workers that parallel "
					 "queries and logical replication need, and restart the server.",
					 others + nwanted + 1)));
}
