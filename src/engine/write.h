/*
 * write.h
 *		What locking a row (rowlock.c) and writing a version (write.c) share.
 */
#ifndef KV_WRITE_H
#define KV_WRITE_H

#include "engine/internal.h"

/* How a key stands for one who wants a lock of some strength on it. */
typedef struct KvKeyState
{
	bool		exists;			/* some version is finished or this transaction's */
	KvVersion	newest;			/* the newest such that is no LOCK */
	uint64		unfinished;		/* xid of another's conflicting write, or 0 */
	uint64		locked_by;		/* xid of another's conflicting LOCK, or 0 */
	int			held;			/* this transaction's own LockTupleMode, or -1 */
	KvDeltaPlace place;			/* in the active delta */
} KvKeyState;

/* A version on its way into the store. */
typedef struct KvWrite
{
	KvVersion	version;
	KvForm		form;
	const char *value;
	uint32		crc;
	KvPlacing	placing;
} KvWrite;

/* Returns with the shard's lock held exclusively. */
extern void kv_key_look(KvStore *store, uint32 shardno, KvKey key, LockTupleMode wanted,
						KvKeyState *state);

extern void kv_write_prepare(KvStore *store, uint32 shardno, KvKey key, KvVersionKind kind,
							 KvForm form, const char *value, Size len, CommandId cid,
							 KvWrite *write);

/* state: from kv_key_look, the shard's lock being held since. */
extern bool kv_write_finish(KvStore *store, uint32 shardno, KvKey key, KvWrite *write,
							KvKeyState *state);

#endif							/* KV_WRITE_H */
