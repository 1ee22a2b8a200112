/*
 * gate.h
 *		Who may go on now: writers wait while nothing makes what they log durable.
 *
 * Takes no lock; none is held on entry of what waits, which is an ERROR after a minute.
 */
#ifndef KV_GATE_H
#define KV_GATE_H

#include "port/atomics.h"
#include "storage/condition_variable.h"

typedef struct KvGate
{
	pg_atomic_uint32 is_open;		/* 1: what is logged now is covered by the next one */
	ConditionVariable opened;
	pg_atomic_uint32 logging;	/* writers between their version and its WAL record */
} KvGate;

extern KvGate *kv_gate;

extern void kv_gate_init(void);	/* once, when kv_gate has been made: writers wait */
extern void kv_gate_wait(void);		/* no lock held; until the checkpointer runs */

#endif							/* KV_GATE_H */
