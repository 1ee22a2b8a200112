/*
 * role.c
 *		Which process flushes a shard, and which one compacts or splits it.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "engine/base/wait.h"
#include "engine/shard/shard.h"

bool
kv_role_claim(KvShard *shard, int roles)
{
	if (!kv_role_is_free(shard, roles))
		return false;
	if (roles & KV_ROLE_FLUSH)
		shard->roles.maintainer = MyProcPid;
	if (roles & KV_ROLE_COMPACT)
		shard->roles.compactor = MyProcPid;
	return true;
}

bool
kv_role_try(KvShard *shard, int roles)
{
	bool		mine;

	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	mine = kv_role_claim(shard, roles);
	LWLockRelease(&shard->lock);
	return mine;
}

bool
kv_role_wait(KvShard *shard, int roles, uint32 wait_event)
{
	bool		waited = false;

	ConditionVariablePrepareToSleep(&shard->changed);
	for (;;)
	{
		LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
		if (kv_role_is_free(shard, roles))
			break;
		if ((roles & KV_ROLE_COMPACT) || shard->roles.maintainer == shard->roles.compactor)
			kv_shard_await(shard);
		LWLockRelease(&shard->lock);
		waited = true;
		kv_maintenance_interrupts();
		ConditionVariableTimedSleep(&shard->changed, 1000, wait_event);
	}
	ConditionVariableCancelSleep();
	return waited;
}

bool
kv_role_take(KvShard *shard, int roles, uint32 wait_event)
{
	bool		mine;

	(void) kv_role_wait(shard, roles, wait_event);
	mine = shard->place.bounds_since != KV_NOT_IN_MAP && kv_role_claim(shard, roles);
	LWLockRelease(&shard->lock);
	return mine;
}

void
kv_role_give(KvShard *shard, int roles)
{
	LWLockAcquire(&shard->lock, LW_EXCLUSIVE);
	if (roles & KV_ROLE_FLUSH)
		shard->roles.maintainer = 0;
	if (roles & KV_ROLE_COMPACT)
		shard->roles.compactor = 0;
	LWLockRelease(&shard->lock);
	ConditionVariableBroadcast(&shard->changed);
}
