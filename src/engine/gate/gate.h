/*
 * gate.h
 *		Write gate: blocks writers while no checkpointer makes their WAL records durable.
 *
 * Without the process "kvfdw checkpointer" a checkpoint could discard WAL that no durable image
 * covers yet.
 *
 * Locks:  takes none.  kv_gate_wait() must be called without any lock held.  Errors:
 * kv_gate_wait() raises ERROR after a minute.
 */
#ifndef KV_GATE_H
#define KV_GATE_H

#include "port/atomics.h"
#include "storage/condition_variable.h"

typedef struct KvGate
{
	pg_atomic_uint32 is_open;		/* 1: the next checkpoint covers what is logged now */
	ConditionVariable opened;
	pg_atomic_uint32 logging;	/* writers that have put a version and not yet logged its WAL
								 * record */
} KvGate;

extern KvGate *kv_gate;

extern void kv_gate_init(void);	/* called once, when kv_gate exists: the gate is closed */
extern void kv_gate_wait(void);		/* waits until the checkpointer runs; no lock is held */

#endif							/* KV_GATE_H */
