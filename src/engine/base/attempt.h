/*
 * attempt.h
 *		After an ERROR that does not end what the process is doing.
 */
#ifndef KV_ATTEMPT_H
#define KV_ATTEMPT_H

/* Outside a transaction: true if it went through; else its ERROR is logged and forgotten. */
extern bool kv_attempt(void (*work) (void *arg), void *arg);
/* Outside a transaction, in PG_CATCH: lets go of what it held. */
extern void kv_drop_error(bool report);
/*
 * Is this error no fault of the store at hand?  What a device did not do once it may do at
 * the next start, so a failed read or write is none, either; nor are limits: what is there
 * is whole.
 */
extern bool kv_error_concerns_all(int sqlerrcode);

#endif							/* KV_ATTEMPT_H */
