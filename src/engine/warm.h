/*
 * warm.h
 *		Keeps the value cache and the second tier warm across a clean restart: a file records
 *		their contents.
 *
 * The file is a hint.  It may be missing, damaged, old or another server's: blocks that are read
 * for it are verified when they are used (I 4).
 * Errors: none, except for kv_store_prewarm, which engine.h declares.
 */
#ifndef KV_WARM_H
#define KV_WARM_H

/*
 * In the maintainer, when it is told to end: if the server stops, write the file, with the
 * entries of an earlier file that was not yet read.
 */
extern void kv_warm_note(void);
/*
 * In the maintainer, when stores have been opened, on a standby when it is consistent: if there
 * is a file, start the worker that reads it, once.  If there is no place for a worker, the
 * maintainer re-enters frames of the second tier itself and reads no blocks.
 */
extern void kv_warm_start(void);
/*
 * The worker's main function; arg is not used.  Re-enters frames and reads blocks of open
 * stores, then removes the file.
 */
extern PGDLLEXPORT void kv_warm_worker_main(Datum arg);

#endif							/* KV_WARM_H */
