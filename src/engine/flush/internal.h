/*
 * internal.h
 *		Shared by the files of this module only.
 */
#ifndef KV_FLUSH_INTERNAL_H
#define KV_FLUSH_INTERNAL_H

#include "engine/base/types.h"
#include "engine/shard/shard.h"

/* ---- moves.c ---- */
#ifdef KVFDW_FAULTS
extern bool kv_test_compact;
/*
 * Before a merge of all runs: mark the value files that may be emptied of the values it covers.
 */
extern void kv_test_choose(KvShard *shard, uint32 immutable_log);
/* A version is emitted: if its value is in a marked value file, it gets another address. */
extern void kv_test_move(KvStore *store, uint32 shard_id, KvKey key, KvVersion *version);
extern void kv_test_chosen(KvShard *shard);	/* afterwards: removes remaining marks */
#define KV_TEST_COMPACT(call) call
#else
#define KV_TEST_COMPACT(call) ((void) 0)
#endif

#endif							/* KV_FLUSH_INTERNAL_H */
