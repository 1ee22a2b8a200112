/*
 * start.c
 *		Start: settings, shared memory, the hook of new sessions, the process.
 *
 * The process is registered when the server starts with admission on.  If it is switched on
 * later, the first session that reaches the gate has the process started.  A session gets its
 * gate when it begins, or when it reads a configuration that switches admission on.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "clock.h"
#include "admission/admission.h"
#include "admission/internal.h"
#include "compat.h"
#include "report.h"

#define KV_MAX_LIMIT	100000
#define KV_START_AFTER_MS 3000	/* the postmaster may be about to restart the process */

/* ---- settings ---- */

static void
assign_limit(int value, void *extra)
{
	if (value != -1 && IsUnderPostmaster && MyProcPort != NULL)
		kv_enter_install();
}

void
kv_admission_gucs(void)
{
	DefineCustomIntVariable("kvfdw.admission_limit",
							"Sets how many sessions may execute a request at a time.",
							"-1: no limit; 0: kvfdw measures and chooses the limit.",
							&kv_admission_limit, -1, -1, KV_MAX_LIMIT,
							PGC_SIGHUP, 0, NULL, assign_limit, NULL);
	DefineCustomIntVariable("kvfdw.admission_quota",
							"Sets how many requests a session of weight 1 makes in a turn.",
							"0: kvfdw chooses, by unfairness and variability.",
							&kv_admission_quota, 0, 0, KV_ADMIT_MAX_QUOTA,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.admission_weight",
							"Sets the weight of a session: its turn is this many times the quota.",
							"0: the session is never paused. For ALTER ROLE and ALTER DATABASE.",
							&kv_admission_weight, 1, 0, 1000,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.admission_max_wait",
							"Sets the longest pause of a session.",
							"After it the session continues, although the limit is reached.",
							&kv_admission_max_wait_ms, 20000, 10, 3600000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.admission_sample",
							"Sets the time of one sample while kvfdw chooses the limit.",
							"The choice takes about 40 times as long.",
							&kv_admission_sample_ms, 1000, 100, 600000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("kvfdw.admission_exempt_superusers",
							 "Enables superusers to work without pauses by admission.",
							 NULL,
							 &kv_admission_exempt_superusers, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("kvfdw.admission_exempt_monitor",
							 "Enables members of pg_monitor to work without pauses by admission.",
							 NULL,
							 &kv_admission_exempt_monitor, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("kvfdw.admission_unfairness",
							 "Sets the unfairness at which a quota chosen by kvfdw is lowered.",
							 "Limits with less unfairness are preferred, too. 0: unfairness is "
							 "ignored.",
							 &kv_admission_unfairness, 0.1, 0, 100,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("kvfdw.admission_variability",
							 "Sets the variability of latency at which a quota chosen by kvfdw is "
							 "lowered.",
							 "Limits with less variability are preferred, too. 0: variability is "
							 "ignored.",
							 &kv_admission_variability, 0.4, 0, 100,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
}

/* ---- shared memory ---- */

Size
kv_admission_memory(void)
{
	return add_size(offsetof(KvAdmit, members), mul_size(MaxBackends, sizeof(KvAdmitMember)));
}

void
kv_admission_attach(void)
{
	bool		found;

	kv_admit = ShmemInitStruct("kvfdw admission", kv_admission_memory(), &found);
	if (!found)
	{
		memset(kv_admit, 0, kv_admission_memory());
		kv_admit->tranche = kv_new_tranche("KvfdwAdmission");
		LWLockInitialize(&kv_admit->lock, kv_admit->tranche);
		pg_atomic_init_u64(&kv_admit->stats_since, GetCurrentTimestamp());
		pg_atomic_init_u32(&kv_admit->limit, 0);
		pg_atomic_init_u32(&kv_admit->quota, 1);
		pg_atomic_init_u32(&kv_admit->max_wait, kv_admission_max_wait_ms);
		pg_atomic_init_u32(&kv_admit->nwaiting, 0);
		pg_atomic_init_u32(&kv_admit->tune_wanted, 0);
		kv_admit->head = kv_admit->tail = KV_ADMIT_NONE;
		kv_admit->nmembers = MaxBackends;
		for (int i = 0; i < kv_admit->nmembers; i++)
		{
			pg_atomic_init_u32(&kv_admit->members[i].state, KV_ADMIT_OUT);
			kv_admit->members[i].prev = kv_admit->members[i].next = KV_ADMIT_NONE;
		}
		kv_admit->start_after = kv_clock() + KV_START_AFTER_MS * INT64CONST(1000);
	}
	kv_register_tranche(kv_admit->tranche, "KvfdwAdmission");
}

void
kv_admission_preload(void)
{
	kv_enter_hook();
	if (kv_admission_limit != -1)
	{
		BackgroundWorker worker;

		kv_admit_describe_worker(&worker);
		kv_register_worker(&worker, "Admission control is not in effect.");
	}
}
