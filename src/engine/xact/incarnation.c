/*
 * incarnation.c
 *		The writing incarnation, and the boundaries of dead ones.
 *
 * An incarnation is one run of the server between two starts; restart/incarnation.c begins them
 * and keeps their boundaries in the control file.  Takes no lock: the table is written at the
 * start and at the end of redo, and emptied when no file needs it any more.
 */
#include "postgres.h"

#include "access/xlog.h"

#include "engine/xact/xact.h"

KvIncarnations *kv_incarnations = NULL;

void
kv_incarnations_init(void)
{
	if (!pg_strong_random(&kv_incarnations->run, sizeof(kv_incarnations->run)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	pg_atomic_init_u64(&kv_incarnations->replayed_horizon, 0);
}

uint32
kv_writing_incarnation(void)
{
	return RecoveryInProgress() ? 0 : kv_incarnations->current;
}

bool
kv_incarnation_aborted(uint32 incarnation, uint64 xid)
{
	if (incarnation == kv_incarnations->current)
		return false;
	for (int i = kv_incarnations->ndead - 1; i >= 0; i--)
	{
		const KvIncarnation *dead = &kv_incarnations->dead[i];

		if (dead->number == incarnation)
			return xid >= dead->boundary;
		if (dead->number < incarnation)
			break;
	}
	return false;
}
