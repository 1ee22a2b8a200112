/*
 * queue.c
 *		Slots and the queue for them, in shared memory.
 *
 * Every function here that changes a state takes KvAdmit.lock and leaves the counts true:
 * nactive members are ACTIVE, nlent are LENT, nwaiting are in the queue, and the queue is empty
 * while a slot is free.  Latches are set after the lock is released.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "clock.h"
#include "admission/internal.h"

KvAdmit    *kv_admit = NULL;

int			kv_admission_limit = -1;
int			kv_admission_quota = 0;
int			kv_admission_weight = 1;
int			kv_admission_max_wait_ms = 20000;
int			kv_admission_sample_ms = 1000;
bool		kv_admission_exempt_superusers = true;
bool		kv_admission_exempt_monitor = true;
double		kv_admission_unfairness = 0.1;
double		kv_admission_variability = 0.4;

#define KV_WAKE_BATCH	64
#define KV_IDLE_US		5000	/* a holder idle for so long may lend to a session that asks */

static void
set_state(KvAdmitMember *member, KvAdmitState state)
{
	pg_atomic_write_u32(&member->state, state);
}

static void
enqueue(int number)
{
	KvAdmitMember *member = &kv_admit->members[number];

	member->prev = kv_admit->tail;
	member->next = KV_ADMIT_NONE;
	if (kv_admit->tail == KV_ADMIT_NONE)
		kv_admit->head = number;
	else
		kv_admit->members[kv_admit->tail].next = number;
	kv_admit->tail = number;
	pg_atomic_fetch_add_u32(&kv_admit->nwaiting, 1);
	set_state(member, KV_ADMIT_WAITING);
}

static void
dequeue(int number, KvAdmitState state)
{
	KvAdmitMember *member = &kv_admit->members[number];

	if (member->prev == KV_ADMIT_NONE)
		kv_admit->head = member->next;
	else
		kv_admit->members[member->prev].next = member->next;
	if (member->next == KV_ADMIT_NONE)
		kv_admit->tail = member->prev;
	else
		kv_admit->members[member->next].prev = member->prev;
	member->prev = member->next = KV_ADMIT_NONE;
	pg_atomic_fetch_sub_u32(&kv_admit->nwaiting, 1);
	if (state == KV_ADMIT_ACTIVE)
		kv_admit->nactive++;
	member->waking = true;
	set_state(member, state);
}

/* Take the head of the queue, if it may proceed; its state then is what it proceeds as. */
static int
take_next(void)
{
	int			limit = pg_atomic_read_u32(&kv_admit->limit);
	int			number = kv_admit->head;

	if (number == KV_ADMIT_NONE || (limit != 0 && kv_admit->nactive >= limit))
		return KV_ADMIT_NONE;
	if (limit != 0)
		kv_admit->grants++;
	dequeue(number, limit != 0 ? KV_ADMIT_ACTIVE : KV_ADMIT_OUT);
	return number;
}

/* Give the free slots to waiting sessions, and release the lock. */
static void
hand_out_and_unlock(void)
{
	int			woken[KV_WAKE_BATCH];
	int			nwoken;

	for (;;)
	{
		for (nwoken = 0; nwoken < KV_WAKE_BATCH; nwoken++)
		{
			woken[nwoken] = take_next();
			if (woken[nwoken] == KV_ADMIT_NONE)
				break;
		}
		LWLockRelease(&kv_admit->lock);
		for (int i = 0; i < nwoken; i++)
			SetLatch(&GetPGProcByNumber(woken[i])->procLatch);
		if (nwoken < KV_WAKE_BATCH)
			break;
		LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	}
}

/* Change any state to OUT. */
static void
leave(int number)
{
	KvAdmitMember *member = &kv_admit->members[number];

	switch (kv_admit_state(member))
	{
		case KV_ADMIT_WAITING:
			dequeue(number, KV_ADMIT_OUT);
			return;
		case KV_ADMIT_ACTIVE:
			kv_admit->nactive--;
			break;
		case KV_ADMIT_LENT:
			kv_admit->nlent--;
			break;
		case KV_ADMIT_OUT:
			return;
	}
	set_state(member, KV_ADMIT_OUT);
}

void
kv_queue_release(void)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	leave(KV_MY_PROC_NUMBER);
	hand_out_and_unlock();
}

static bool
lend(int number)
{
	KvAdmitMember *member = &kv_admit->members[number];

	if (kv_admit_state(member) != KV_ADMIT_ACTIVE)
		return false;
	kv_admit->nactive--;
	kv_admit->nlent++;
	set_state(member, KV_ADMIT_LENT);
	return true;
}

bool
kv_queue_lend(int number, uint64 requests)
{
	bool		lent;

	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	lent = kv_admit->members[number].requests == requests && lend(number);
	hand_out_and_unlock();
	return lent;
}

/*
 * A session asks, no slot is free and no session waits yet.  Slots of sessions that have been
 * idle for a while are lent without waiting for the worker's next look.  Slots of sessions in a
 * transaction are left to the worker, because their idle time is not known here.
 */
static void
lend_idle(void)
{
	TimestampTz now = kv_clock();

	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		KvAdmitMember *member = &kv_admit->members[i];

		if (kv_admit_state(member) == KV_ADMIT_ACTIVE &&
			GetPGProcByNumber(i)->wait_event_info == WAIT_EVENT_CLIENT_READ &&
			KV_LXID(GetPGProcByNumber(i)) == InvalidLocalTransactionId &&
			now - member->since > KV_IDLE_US)
			(void) lend(i);
	}
}

/* From OUT to ACTIVE if a slot is free, else to WAITING; OUT if every session passes. */
static void
ask(KvAdmitMember *member)
{
	int			limit = pg_atomic_read_u32(&kv_admit->limit);
	bool		nobody_waits = pg_atomic_read_u32(&kv_admit->nwaiting) == 0;

	Assert(kv_admit_state(member) == KV_ADMIT_OUT);
	if (limit == 0)
		return;
	if (kv_admit->nactive >= limit && nobody_waits)
		lend_idle();
	if (kv_admit->nactive < limit && nobody_waits)
	{
		kv_admit->nactive++;
		set_state(member, KV_ADMIT_ACTIVE);
		return;
	}
	enqueue(KV_MY_PROC_NUMBER);
	if (nobody_waits && kv_admit->worker_latch != NULL)
		SetLatch(kv_admit->worker_latch);
}

KvAdmitState
kv_queue_ask(void)
{
	KvAdmitState state;

	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	ask(KV_ADMIT_ME);
	state = kv_admit_state(KV_ADMIT_ME);
	LWLockRelease(&kv_admit->lock);
	return state;
}

KvAdmitState
kv_queue_again(void)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	leave(KV_MY_PROC_NUMBER);
	ask(KV_ADMIT_ME);
	hand_out_and_unlock();
	return kv_admit_state(KV_ADMIT_ME);
}

void
kv_queue_miss(void)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	leave(KV_MY_PROC_NUMBER);
	kv_admit->missed++;
	hand_out_and_unlock();
}

void
kv_queue_overdue(void)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	if (kv_admit_state(KV_ADMIT_ME) == KV_ADMIT_WAITING)
	{
		dequeue(KV_MY_PROC_NUMBER, KV_ADMIT_ACTIVE);
		kv_admit->overdue++;
	}
	LWLockRelease(&kv_admit->lock);
}

void
kv_queue_set_limit(int limit)
{
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	pg_atomic_write_u32(&kv_admit->limit, limit);
	hand_out_and_unlock();
}

void
kv_queue_set_max_wait(int ms)
{
	if (pg_atomic_exchange_u32(&kv_admit->max_wait, ms) == (uint32) ms)
		return;
	for (int i = 0; i < kv_admit->nmembers; i++)
	{
		if (kv_admit_state(&kv_admit->members[i]) == KV_ADMIT_WAITING)
			SetLatch(&GetPGProcByNumber(i)->procLatch);
	}
}

/*
 * The counters of the ended sessions of this role; those of all remaining roles when the array
 * is full.
 */
static KvAdmitRole *
role_counts(Oid roleid)
{
	KvAdmitRole *role;

	for (int i = 0; i < kv_admit->nroles; i++)
	{
		if (kv_admit->roles[i].roleid == roleid)
			return &kv_admit->roles[i];
	}
	if (kv_admit->nroles == KV_ADMIT_ROLES)
		return &kv_admit->roles[KV_ADMIT_ROLES - 1];
	role = &kv_admit->roles[kv_admit->nroles++];
	memset(role, 0, sizeof(*role));
	role->roleid = kv_admit->nroles < KV_ADMIT_ROLES ? roleid : InvalidOid;
	return role;
}

/* The session ends. */
static void
resign(int code, Datum arg)
{
	KvAdmitMember *member = KV_ADMIT_ME;
	KvAdmitRole *role;

	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	leave(KV_MY_PROC_NUMBER);
	role = role_counts(member->roleid);
	role->requests += member->requests;
	role->pauses += member->pauses;
	role->paused_us += member->paused_us;
	kv_admit->longest_us = Max(kv_admit->longest_us, member->longest_us);
	member->pid = 0;
	hand_out_and_unlock();
}

void
kv_queue_join(void)
{
	KvAdmitMember *member = KV_ADMIT_ME;

	Assert(KV_MY_PROC_NUMBER < kv_admit->nmembers);
	before_shmem_exit(resign, (Datum) 0);
	LWLockAcquire(&kv_admit->lock, LW_EXCLUSIVE);
	Assert(kv_admit_state(member) == KV_ADMIT_OUT);
	member->pid = MyProcPid;
	member->roleid = GetSessionUserId();
	member->weight = 1;
	member->waking = false;
	member->since = kv_clock();
	member->requests = member->pauses = member->latencies = 0;
	member->paused_us = member->longest_us = 0;
	member->latency_sum = member->latency_squares = 0;
	LWLockRelease(&kv_admit->lock);
}
