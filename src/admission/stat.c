/*
 * stat.c
 *		The views kvfdw_stat_admission and kvfdw_stat_admission_roles, and
 *		kvfdw_admission_tune().
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "clock.h"
#include "report.h"
#include "admission/admission.h"
#include "admission/internal.h"

PG_FUNCTION_INFO_V1(kvfdw_stat_get_admission);
PG_FUNCTION_INFO_V1(kvfdw_stat_get_admission_roles);
PG_FUNCTION_INFO_V1(kvfdw_admission_tune);

#define KV_COLUMNS		22
#define KV_ROLE_COLUMNS	7

static void
require_preload(void)
{
	if (kv_admit == NULL)
		kv_report_not_preloaded(ERROR);
}

/* Add a member's counters to those of its role. */
static void
add_member(KvAdmitRole *sum, const KvAdmitMember *member)
{
	sum->requests += member->requests;
	sum->pauses += member->pauses;
	sum->paused_us += member->paused_us;
}

/* Sum over all sessions since the start or the reset.  The caller holds the lock. */
static void
totals(KvAdmitRole *sum, uint64 *longest)
{
	memset(sum, 0, sizeof(*sum));
	*longest = kv_admit->longest_us;
	for (int i = 0; i < kv_admit->nroles; i++)
	{
		sum->requests += kv_admit->roles[i].requests;
		sum->pauses += kv_admit->roles[i].pauses;
		sum->paused_us += kv_admit->roles[i].paused_us;
	}
	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		if (kv_admit->members[i].pid == 0)
			continue;
		add_member(sum, &kv_admit->members[i]);
		*longest = Max(*longest, kv_admit->members[i].longest_us);
	}
}

static Datum
milliseconds(uint64 us)
{
	return Float8GetDatum((double) us / 1000.0);
}

Datum
kvfdw_stat_get_admission(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[KV_COLUMNS];
	bool		nulls[KV_COLUMNS] = {false};
	Datum		limits[KV_ADMIT_POINTS];
	Datum		rates[KV_ADMIT_POINTS];
	KvAdmitRole sum;
	uint64		longest;
	uint64		missed;
	int			npoints;
	int			limit;
	int			n = 0;

	require_preload();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	kv_require_columns(desc, KV_COLUMNS);
	LWLockAcquire(&kv_admit->lock, LW_SHARED);
	totals(&sum, &longest);
	limit = pg_atomic_read_u32(&kv_admit->limit);
	nulls[n] = kv_admit->worker_pid == 0;
	values[n++] = Int32GetDatum(kv_admit->worker_pid);
	nulls[n] = limit == 0;
	values[n++] = Int32GetDatum(limit);
	nulls[n] = limit == 0;
	values[n++] = Int32GetDatum(pg_atomic_read_u32(&kv_admit->quota));
	values[n++] = Int32GetDatum(kv_admit->nactive);
	values[n++] = Int32GetDatum(pg_atomic_read_u32(&kv_admit->nwaiting));
	values[n++] = Int32GetDatum(kv_admit->nlent);
	values[n++] = Int64GetDatum(kv_admit->grants);
	values[n++] = Int64GetDatum(kv_admit->overdue);
	values[n++] = Int64GetDatum(sum.requests);
	values[n++] = Int64GetDatum(sum.pauses);
	values[n++] = milliseconds(sum.paused_us);
	values[n++] = milliseconds(longest);
	values[n++] = Float8GetDatum(kv_admit->throughput);
	values[n++] = Float8GetDatum(kv_admit->unfairness);
	values[n++] = Float8GetDatum(kv_admit->variability);
	values[n++] = Float8GetDatum(kv_admit->jain);
	values[n++] = BoolGetDatum(kv_admit->tuning);
	nulls[n] = kv_admit->tuned_at == 0;
	values[n++] = TimestampTzGetDatum(kv_wall_time(kv_admit->tuned_at));
	npoints = kv_admit->npoints;
	missed = kv_admit->missed;
	for (int i = 0; i < npoints; i++)
	{
		limits[i] = Int32GetDatum(kv_admit->points[i].limit);
		rates[i] = Float8GetDatum(kv_admit->points[i].throughput);
	}
	LWLockRelease(&kv_admit->lock);
	values[n++] = PointerGetDatum(construct_array(limits, npoints, INT4OID, 4, true, TYPALIGN_INT));
	values[n++] = PointerGetDatum(construct_array(rates, npoints, FLOAT8OID, 8, FLOAT8PASSBYVAL,
												  TYPALIGN_DOUBLE));
	values[n++] = Int64GetDatum(missed);
	values[n++] = TimestampTzGetDatum(kv_stats_since());
	Assert(n == KV_COLUMNS);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* A line of the view: a role, summed over its present and its ended sessions. */
typedef struct KvRoleLine
{
	KvAdmitRole sum;
	int			sessions;
	int			weight;			/* of one of the sessions */
} KvRoleLine;

static KvRoleLine *
line_of(KvRoleLine *lines, int *nlines, Oid roleid)
{
	for (int i = 0; i < *nlines; i++)
	{
		if (lines[i].sum.roleid == roleid)
			return &lines[i];
	}
	lines[*nlines].sum.roleid = roleid;
	return &lines[(*nlines)++];
}

static int
collect_lines(KvRoleLine *lines)
{
	int			nlines = 0;

	LWLockAcquire(&kv_admit->lock, LW_SHARED);
	for (int i = 0; i < kv_admit->nroles; i++)
		line_of(lines, &nlines, kv_admit->roles[i].roleid)->sum = kv_admit->roles[i];
	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		KvAdmitMember *member = &kv_admit->members[i];
		KvRoleLine *line;

		if (member->pid == 0)
			continue;
		line = line_of(lines, &nlines, member->roleid);
		add_member(&line->sum, member);
		line->sessions++;
		line->weight = member->weight;
	}
	LWLockRelease(&kv_admit->lock);
	return nlines;
}

Datum
kvfdw_stat_get_admission_roles(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	KvRoleLine *lines;
	int			nlines;

	require_preload();
	InitMaterializedSRF(fcinfo, 0);
	kv_require_columns(rsinfo->setDesc, KV_ROLE_COLUMNS);
	lines = palloc0((KV_ADMIT_ROLES + kv_admit->nmembers) * sizeof(KvRoleLine));
	nlines = collect_lines(lines);
	for (int i = 0; i < nlines; i++)
	{
		Datum		values[KV_ROLE_COLUMNS];
		bool		nulls[KV_ROLE_COLUMNS] = {false};

		nulls[0] = !OidIsValid(lines[i].sum.roleid);
		values[0] = ObjectIdGetDatum(lines[i].sum.roleid);
		nulls[1] = lines[i].sessions == 0;
		values[1] = Int32GetDatum(lines[i].weight);
		values[2] = Int32GetDatum(lines[i].sessions);
		values[3] = Int64GetDatum(lines[i].sum.requests);
		values[4] = Int64GetDatum(lines[i].sum.pauses);
		values[5] = milliseconds(lines[i].sum.paused_us);
		values[6] = TimestampTzGetDatum(kv_stats_since());
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
kvfdw_admission_tune(PG_FUNCTION_ARGS)
{
	require_preload();
	if (kv_admission_limit != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot choose an admission limit while \"kvfdw.admission_limit\" is %d",
						kv_admission_limit),
				 errhint("Set \"kvfdw.admission_limit\" to 0.")));
	LWLockAcquire(&kv_admit->lock, LW_SHARED);
	if (kv_admit->worker_latch == NULL)
	{
		LWLockRelease(&kv_admit->lock);
		kv_report_not_running(ERROR, "kvfdw admission", NULL);
	}
	pg_atomic_write_u32(&kv_admit->tune_wanted, 1);
	SetLatch(kv_admit->worker_latch);
	LWLockRelease(&kv_admit->lock);
	PG_RETURN_VOID();
}

/*
 * A session writes its own counters without the lock, so one that finishes a
 * request just now may keep an old value.
 */
void
kv_admission_stat_reset(TimestampTz now)
{
	if (kv_admit == NULL)
		return;
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	pg_atomic_write_u64(&kv_admit->stats_since, now);
	kv_admit->nroles = 0;
	kv_admit->overdue = kv_admit->missed = kv_admit->grants = kv_admit->longest_us = 0;
	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		KvAdmitMember *member = &kv_admit->members[i];

		member->requests = member->pauses = member->paused_us = member->longest_us = 0;
	}
	LWLockRelease(&kv_admit->lock);
}

TimestampTz
kv_stats_since(void)
{
	return kv_admit == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&kv_admit->stats_since);
}
