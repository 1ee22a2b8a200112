/*
 * attempt.h
 *		Recovery from an ERROR that does not end the process's work.
 */
#ifndef KV_ATTEMPT_H
#define KV_ATTEMPT_H

/* Outside a transaction: true if the work succeeded; else its ERROR is logged and discarded. */
extern bool kv_attempt(void (*work) (void *arg), void *arg);
/* Outside a transaction, in PG_CATCH: release what the failed work held. */
extern void kv_drop_error(bool report);
/*
 * Has this error a cause outside of the current store?  A failed read or write counts, because
 * the device may succeed at the next start; so do limits: the existing data is intact.
 */
extern bool kv_error_concerns_all(int sqlerrcode);

#endif							/* KV_ATTEMPT_H */
