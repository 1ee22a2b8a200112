/*
 * pending.c
 *		Work on files at the end of a transaction (I 9).
 *
 * TRUNCATE and DROP note the files to be removed; nothing is touched before COMMIT, and a
 * ROLLBACK only removes files that the transaction itself has created.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "engine/base/wait.h"
#include "engine/engine.h"
#include "engine/lifecycle/lifecycle.h"
#include "engine/shard/shard.h"
#include "engine/buffer/buffer.h"
#include "engine/xact/xact.h"

typedef struct KvPending
{
	KvPendingKind kind;
	Oid			dboid;
	Oid			relid;
	uint32		generation;
	Oid			tablespace;		/* KV_PENDING_FOLLOW */
	SubTransactionId subid;
	struct KvPending *next;
} KvPending;

static KvPending *pending = NULL;	/* newest first, in TopTransactionContext */

void
kv_pending_add(KvPendingKind kind, Oid dboid, Oid relid, uint32 generation,
			   SubTransactionId subid)
{
	KvPending  *entry = MemoryContextAlloc(TopTransactionContext, sizeof(KvPending));

	entry->kind = kind;
	entry->dboid = dboid;
	entry->relid = relid;
	entry->generation = generation;
	entry->subid = subid;
	entry->next = pending;
	pending = entry;

	/*
	 * files that COMMIT removes must not be needed again: the commit record has to be on disk
	 * first, whatever synchronous_commit says (as for heap's files)
	 */
	if (kind != KV_PENDING_CREATE)
		ForceSyncCommit();
}

void
kv_store_follow_at_commit(KvStore *store, Oid tablespace)
{
	kv_pending_add(KV_PENDING_FOLLOW, store->key.dboid, store->key.relid, store->key.generation,
				   GetCurrentSubTransactionId());
	pending->tablespace = tablespace;
}

void
kv_store_drop_at_commit(Oid dboid, Oid relid)
{
	kv_pending_add(KV_PENDING_DROP, dboid, relid, 0, GetCurrentSubTransactionId());
}

void
kv_store_drop_database_at_commit(Oid dboid)
{
	kv_pending_add(KV_PENDING_DROP_DATABASE, dboid, InvalidOid, 0,
				   GetCurrentSubTransactionId());
}

bool
kv_engine_has_pending_files(void)
{
	return pending != NULL;
}

void
kv_engine_at_commit(void)
{
	kv_commit_forget();
	for (KvPending *entry = pending; entry != NULL; entry = entry->next)
	{
		switch (entry->kind)
		{
			case KV_PENDING_CREATE:
				break;
			case KV_PENDING_TRUNCATE:
				if (entry->generation > 1)
					kv_generations_discard(entry->dboid, entry->relid, 1, entry->generation - 1);
				break;
			case KV_PENDING_DROP:
				kv_table_discard(entry->dboid, entry->relid);
				break;
			case KV_PENDING_DROP_DATABASE:
				kv_database_discard(entry->dboid);
				break;
			case KV_PENDING_FOLLOW:
				kv_move_want(&(KvStoreKey) {entry->dboid, entry->relid, entry->generation},
							 entry->tablespace);
				break;
		}
	}
	if (pending != NULL)
		kv_wake_maintainer();
	pending = NULL;
	kv_files_let_go();
}

static void
undo(const KvPending *entry)
{
	if (entry->kind == KV_PENDING_CREATE)
		kv_table_discard(entry->dboid, entry->relid);
	else if (entry->kind == KV_PENDING_TRUNCATE)
		kv_generations_discard(entry->dboid, entry->relid, entry->generation,
							entry->generation);
}

void
kv_engine_at_abort(void)
{
	kv_commit_forget();
	for (KvPending *entry = pending; entry != NULL; entry = entry->next)
		undo(entry);
	if (pending != NULL)
		kv_wake_maintainer();
	pending = NULL;
	kv_files_let_go();
}

void
kv_engine_at_subxact(bool commit, SubTransactionId mine, SubTransactionId parent)
{
	KvPending **link = &pending;

	while (*link != NULL)
	{
		KvPending  *entry = *link;

		if (entry->subid != mine)
			link = &entry->next;
		else if (commit)
		{
			entry->subid = parent;
			link = &entry->next;
		}
		else
		{
			undo(entry);
			*link = entry->next;
		}
	}
}
