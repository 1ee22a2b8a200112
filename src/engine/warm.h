/*
 * warm.h
 *		The value cache and the second tier are warm after a clean restart: a file says what they
 *		had.
 *
 * What the file says is a hint.  It may be missing, damaged, old or another server's: what
 * is read for it is verified when it is used (I 4), and nothing here raises but
 * kv_store_prewarm, which is in engine.h.
 */
#ifndef KV_WARM_H
#define KV_WARM_H

/*
 * In the maintainer, when it is told to end: if the server stops, writes the file; what one that is
 * still to be read has goes into it.
 */
extern void kv_warm_note(void);
/*
 * In the maintainer, when stores have been opened, on a standby when it is consistent: if there
 * is a file, starts who reads it, once; if there is no room for a worker, has frames of the second
 * tier found itself and reads no blocks.
 */
extern void kv_warm_start(void);
/*
 * Its main function; arg is not used. Has frames found and reads blocks of open stores, removes the
 * file.
 */
extern PGDLLEXPORT void kv_warm_worker_main(Datum arg);

#endif							/* KV_WARM_H */
