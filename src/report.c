/*
 * report.c
 *		Messages that the engine, admission and memcached have in common.
 */
#include "postgres.h"

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
kv_require_columns(TupleDesc desc, int n)
{
	if (desc->natts != n)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"kvfdw\" of this database has another version than the "
						"loaded library"),
				 errhint("Run \"ALTER EXTENSION kvfdw UPDATE\". If kvfdw was installed since the "
						 "server was started, restart the server.")));
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
