/*
 * again.c
 *		Finds a version again whose value may have moved.
 *
 * A reader that has found a version and reads its value later holds nothing in between.  A merge
 * may have moved the value; its value file may have been removed.  So a value may be missing, cut
 * off, or not match its entry.  It is damaged only if the key, looked up again, still has it at the
 * same address (I 16).
 *
 * A scan looks the key up with its snapshot (fetch.c).  This file is for readers without one.  They
 * find the same version by its xid and command id.  Merges remove these from versions that all
 * snapshots see, so a frozen version matches as well.  No other version can match: while the
 * caller's snapshot or lock exists, no newer version is seen by all.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/index/run.h"
#include "engine/scan/scan.h"
#include "engine/shard/shard.h"

/* A wanted version, and the result of the search. */
typedef struct KvSearch
{
	const KvVersion *wanted;
	KvVersion	found;			/* the newest possible match */
	bool		any;			/* found is set */
	bool		same_address;	/* a match has the address of the wanted version */
} KvSearch;

static void
consider(KvSearch *search, const KvVersion *version)
{
	const KvVersion *wanted = search->wanted;

	if (version->kind != wanted->kind || version->len != wanted->len ||
		(version->xid != 0 && (version->xid != wanted->xid || version->cid != wanted->cid)))
		return;
	if (version->location == wanted->location)
		search->same_address = true;
	if (!search->any)
		search->found = *version;
	search->any = true;
}

static void
consider_chain(KvSearch *search, const KvMemtable *memtable, KvKey key)
{
	KvMemtableItem *item = kv_memtable_find(memtable, key.data, key.len);
	dsa_pointer pointer = item ? item->newest : InvalidDsaPointer;

	while (DsaPointerIsValid(pointer))
	{
		KvMemtableVersion *node = kv_address(pointer);

		consider(search, &node->version);
		pointer = node->older;
	}
}

bool
kv_version_again(KvStore *store, KvKey key, KvVersion *version)
{
	KvShard    *shard;
	const KvRunSet *set = kv_key_view(store, key, &shard);
	KvSearch	search = {.wanted = version};
	KvRunVersions walk;
	KvVersion	older;
	uint32		incarnation;

	consider_chain(&search, &shard->active, key);
	consider_chain(&search, &shard->immutable, key);
	LWLockRelease(&shard->lock);
	kv_run_versions_begin(&walk, set, key);
	while (kv_run_versions_next(&walk, &older, &incarnation))
		consider(&search, &older);
	kv_run_trust();
	if (search.any && !search.same_address)
	{
		version->location = search.found.location;
		version->crc = search.found.crc;
	}
	return search.any;
}
