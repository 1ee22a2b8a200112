/*
 * server.h
 *		Is the library loaded, and which I/O has the server done?  The part of engine.h for
 *		modules that engine.h includes.
 */
#ifndef KV_SERVER_H
#define KV_SERVER_H

extern bool kv_engine_ready(void);	/* was the library preloaded? */
extern void kv_engine_require(void);	/* ERROR with the required setting, if not */
extern void kv_engine_warn(void);	/* WARNING with it, if not */

typedef struct KvIoStats
{
	const char *kind;			/* 'value read', 'value write', 'key log write', … */
	uint64		calls;
	uint64		bytes;
	uint64		errors;
} KvIoStats;

extern int	kv_stat_io(KvIoStats *out, int max);	/* returns how many kinds */
extern const char *kv_stat_io_method(void);	/* 'io_uring' or 'sync', as in use */

#endif							/* KV_SERVER_H */
