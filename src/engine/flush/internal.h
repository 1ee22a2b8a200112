/*
 * internal.h
 *		What the files of flushing share; nobody else includes it.
 */
#ifndef KV_FLUSH_INTERNAL_H
#define KV_FLUSH_INTERNAL_H

#include "engine/base/types.h"
#include "engine/shard/shard.h"

/* ---- testmove.c ---- */
#ifdef KVFDW_FAULTS
extern bool kv_test_compact;
/* Before a merge of all runs: mark what may be emptied of what it covers. */
extern void kv_test_choose(KvShard *shard, uint32 immutable_log);
/* A version is emitted: if it lies in a value file that is marked, it gets another place. */
extern void kv_test_move(KvStore *store, uint32 shard_id, KvKey key, KvVersion *version);
extern void kv_test_chosen(KvShard *shard);	/* afterwards: take the marks away that are left */
#define KV_TEST_COMPACT(call) call
#else
#define KV_TEST_COMPACT(call) ((void) 0)
#endif

#endif							/* KV_FLUSH_INTERNAL_H */
