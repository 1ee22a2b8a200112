/*
 * expired.c
 *		Expired rows that other processes meet: keys for the reaper.
 *
 * A batch that reads an expired row notes its key in a ring in shared memory.  So does a
 * compaction, which reads the values that it moves anyway.  The reaper looks up each key again
 * and deletes the row as it does in its walk.  So a note may be wrong, out of date, or lost
 * where the ring is full: the walk finds lost ones.
 *
 * A compaction cannot drop an expired row.  An older snapshot may see it, a session may have it
 * locked, and the role may lack the privilege to delete it.  A standby, where values have
 * addresses of their own, and a server that recovers from its WAL would still have the row.
 *
 * The compacting process has no catalog, so the ring stores for each table how its time of
 * expiry is found in stored bytes.
 */
#include "memcached/served/served.h"

#include "engine/maintenance.h"

#include "access/xlog.h"
#include "miscadmin.h"

#define RING_BYTES		(256 * 1024)
#define MOST_WATCHED	64		/* tables */
#define MOST_KEY		1024	/* rows with longer keys are left to the walk */
#define RECENT_NOTES	256

/* A table whose rows may expire. */
typedef struct KvMcWatched
{
	Oid			relid;			/* InvalidOid: the entry is free */
	KvProbe		expires;
} KvMcWatched;

typedef struct KvMcExpiredRing
{
	LWLock		lock;			/* of all fields; nothing is waited for while it is held */
	Oid			dboid;			/* of the tables */
	int			nwatched;		/* a new one replaces the oldest */
	KvMcWatched watched[MOST_WATCHED];
	uint64		begin;			/* bytes that were taken since the start */
	uint64		end;			/* bytes that were put since the start */
	char		bytes[RING_BYTES];
} KvMcExpiredRing;

/* A note; its key follows. */
typedef struct KvMcNote
{
	Oid			relid;
	uint32		length;
} KvMcNote;

static KvMcExpiredRing *ring = NULL;

/* ---- the ring ---- */

static void
put_bytes(const void *from, size_t n)
{
	size_t		at = ring->end % RING_BYTES;
	size_t		first = Min(n, RING_BYTES - at);

	memcpy(ring->bytes + at, from, first);
	memcpy(ring->bytes, (const char *) from + first, n - first);
	ring->end += n;
}

static void
copy_bytes(uint64 from, void *to, size_t n)
{
	size_t		at = from % RING_BYTES;
	size_t		first = Min(n, RING_BYTES - at);

	memcpy(to, ring->bytes + at, first);
	memcpy((char *) to + first, ring->bytes, n - first);
}

static void
note(Oid relid, KvKey key)
{
	KvMcNote	one = {.relid = relid, .length = key.len};
	bool		first;

	if (key.len > MOST_KEY)
		return;
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	first = ring->begin == ring->end;
	if (ring->end - ring->begin + sizeof(one) + key.len <= RING_BYTES)
	{
		put_bytes(&one, sizeof(one));
		put_bytes(key.data, key.len);
	}
	LWLockRelease(&ring->lock);
	if (first && kv_mc_shared->reaper_latch != NULL)
		SetLatch(kv_mc_shared->reaper_latch);
}

void
kv_mc_expired_note(const KvMcTable *table, KvKey key, uint32 hash, int64 now)
{
	static struct
	{
		uint32		hash;
		int64		at;
	}			recent[RECENT_NOTES]; /* a row may be read again before the reaper has deleted it */
	int			i = hash % RECENT_NOTES;

	if (!table->reaped)
		return;
	if (recent[i].hash == hash && recent[i].at == now)
		return;
	recent[i].hash = hash;
	recent[i].at = now;
	note(table->relid, key);
}

void
kv_mc_expired_again(Oid relid, KvKey key)
{
	note(relid, key);
}

int
kv_mc_expired_take(Oid *relid, KvKey *keys, int most)
{
	char	   *copied;
	int			n = 0;

	if (ring->begin == ring->end)
		return 0;
	copied = palloc(most * MOST_KEY);
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	for (; n < most && ring->begin < ring->end; n++)
	{
		KvMcNote	one;

		copy_bytes(ring->begin, &one, sizeof(one));
		if (n > 0 && one.relid != *relid)
			break;
		*relid = one.relid;
		copy_bytes(ring->begin + sizeof(one), copied, one.length);
		keys[n] = (KvKey) {.data = (uint8 *) copied, .len = one.length};
		copied += one.length;
		ring->begin += sizeof(one) + one.length;
	}
	LWLockRelease(&ring->lock);
	return n;
}

/* ---- expired rows that a compaction meets ---- */

void
kv_mc_expired_watch(const KvMcTable *table)
{
	KvMcWatched *place = NULL;
	KvProbe		probe;

	if (table->reaped && !kv_probe_make(table->table, table->expires, &probe))
		return;
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	ring->dboid = MyDatabaseId;
	for (int i = 0; i < MOST_WATCHED; i++)
	{
		if (ring->watched[i].relid == table->relid)
			place = &ring->watched[i];
	}
	if (place == NULL && table->reaped)
		place = &ring->watched[ring->nwatched++ % MOST_WATCHED];
	if (place != NULL)
		place->relid = table->reaped ? table->relid : InvalidOid;
	if (table->reaped)
		place->expires = probe;
	LWLockRelease(&ring->lock);
}

/* How is the time of expiry found in a table's rows?  False: the table is not watched. */
static bool
find_watched(Oid dboid, Oid relid, KvProbe *probe)
{
	bool		found = false;

	LWLockAcquire(&ring->lock, LW_SHARED);
	for (int i = 0; i < MOST_WATCHED && ring->dboid == dboid && !found; i++)
	{
		found = ring->watched[i].relid == relid;
		if (found)
			*probe = ring->watched[i].expires;
	}
	LWLockRelease(&ring->lock);
	return found;
}

static void
meet_moved(Oid dboid, Oid relid, KvKey key, KvForm form, const char *value, Size len)
{
	KvProbe		probe;
	int64		expires;

	/* mostly no table is watched, which is checked without the lock; a standby deletes nothing */
	if (ring->nwatched == 0 || ring->dboid != dboid || RecoveryInProgress())
		return;
	if (find_watched(dboid, relid, &probe) && kv_probe_read(&probe, form, value, len, &expires) &&
		expires <= GetCurrentTimestamp())
		note(relid, key);
}

/* ---- start ---- */

Size
kv_mc_expired_size(void)
{
	return kv_mc_workers == 0 ? 0 : sizeof(KvMcExpiredRing);
}

void
kv_mc_expired_init(void *memory, bool found)
{
	if (kv_mc_workers == 0)
		return;
	ring = memory;
	if (!found)
		LWLockInitialize(&ring->lock, kv_mc_shared->tranche);
	kv_moved_hook = meet_moved;
}
