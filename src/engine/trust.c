/*
 * trust.c
 *		What of the directory may be believed after a start.
 *
 * The control file says where and under which kernel it was written: the boot
 * id, and the inode and birth time of the directory.
 *
 *	- The same kernel, the same directory: the page cache has survived whatever
 *	  happened to the server.  Everything valid counts.  A server that follows
 *	  another's WAL replays it all the same, on top of what is there.
 *	- Another kernel: of what was not synced any part may be missing.  Each store
 *	  is set back to its image, the state that the last barrier made durable
 *	  (image.c), and redo adds what was logged since.
 *	- Another directory: a copy.  The same; if there is a backup label it was made
 *	  while files changed, and only some images are complete in it.
 *
 * A copy of a running server, and a server that follows another's WAL, cannot have
 * the values of stores below wal level 'full': those are unusable from then on
 * (F 23).  A server that was shut down has all of them in its images.
 *
 * Setting back happens in the postmaster, before anything else looks at the
 * stores, and is done again until redo has rebuilt them (the control file's
 * rebuilding mark), so a start that is cut off does no harm.  A store that cannot
 * be set back is unusable, and says why; the server starts.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "engine/fault.h"
#include "engine/internal.h"

#define KV_BOOT_ID_PATH	"/proc/sys/kernel/random/boot_id"

void
kv_trust_identity(KvIdentity *identity)
{
	FILE	   *file = AllocateFile(KV_BOOT_ID_PATH, "r");
	const char *other = kv_fault_boot_id();

	memset(identity, 0, sizeof(*identity));
	if (file != NULL)
	{
		if (fgets(identity->boot_id, sizeof(identity->boot_id), file) == NULL)
			identity->boot_id[0] = '\0';
		FreeFile(file);
	}
	if (other != NULL)
		strlcpy(identity->boot_id, other, sizeof(identity->boot_id));
	identity->boot_id[strcspn(identity->boot_id, "\n")] = '\0';
	kv_io_identify("kvfdw", &identity->inode, &identity->birth_sec, &identity->birth_nsec);
}

bool
kv_trust_same_place(const KvIdentity *a, const KvIdentity *b)
{
	return a->inode == b->inode && a->birth_sec == b->birth_sec &&
		a->birth_nsec == b->birth_nsec;
}

/* What the backup label, if there is one, says about the copy that this is. */
void
kv_trust_read_label(KvReset *reset)
{
	Size		len;
	char	   *label = kv_io_slurp(BACKUP_LABEL_FILE, &len);
	uint32		high = 0;
	uint32		low = 0;

	if (label == NULL)
		return;
	if (sscanf(label, "START WAL LOCATION: %X/%X", &high, &low) != 2)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("invalid data in file \"%s\"", BACKUP_LABEL_FILE)));
	reset->backup_redo = (uint64) high << 32 | low;
	reset->backup_of_primary = strstr(label, "BACKUP FROM: primary") != NULL &&
		strstr(label, "BACKUP METHOD: pg_rewind") == NULL;
	pfree(label);
}

/* A kernel that does not name itself is never the same one. */
bool
kv_trust_same_boot(const KvIdentity *a, const KvIdentity *b)
{
	return a->boot_id[0] != '\0' && strcmp(a->boot_id, b->boot_id) == 0;
}

/* Is this error no fault of the store at hand? */
bool
kv_error_concerns_all(int sqlerrcode)
{
	return ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_INSUFFICIENT_RESOURCES ||
		ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION;
}

static void
reset_store(KvStore *store, const KvReset *reset)
{
	KvFound		found;
	int			at = 0;

	if (!kv_table_file_read(store, NULL))
	{
		/*
		 * A store is made whole and goes by renaming.  So this is what a backup has
		 * got of one that went while it was copied; the WAL up to the backup's end
		 * has the commit of its TRUNCATE or DROP.
		 */
		if (reset->backup_redo != 0)
			kv_io_rmtree(kv_path_store(&store->key));
		return;
	}
	if (reset->values_lost && store->wal != KV_WAL_FULL)
	{
		kv_store_mark_not_logged(store);
		return;
	}
	if (reset->images_old && store->wal == KV_WAL_FULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the last restartpoint is ahead of what was made durable of the table")));
	if (!reset->set_back)
		return;
	if (store->behind && store->wal != KV_WAL_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the table could not be opened after a crash, so what it had then was not made durable before the operating system was restarted")));
	kv_store_list_files(&store->key, &found);
	for (int shard = 0; shard < store->nshards; shard++)
	{
		int			n = kv_found_of_shard(&found, at, shard);

		kv_shard_reset(store, shard, found.files + at, n, reset);
		at += n;
	}
	pfree(found.files);
}

/* An ERROR makes this store unusable and no other. */
static void
attempt_reset(const KvStoreKey *key, const void *reset)
{
	MemoryContext context = CurrentMemoryContext;
	KvStore		store;

	memset(&store, 0, sizeof(store));
	store.key = *key;
	PG_TRY();
	{
		reset_store(&store, reset);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (kv_error_concerns_all(error->sqlerrcode))
			PG_RE_THROW();
		EmitErrorReport();
		FlushErrorState();
		kv_store_mark_unusable(&store, ERRCODE_DATA_CORRUPTED, error->message);
		FreeErrorData(error);
	}
	PG_END_TRY();
}

void
kv_trust_reset_stores(const KvReset *reset)
{
	int			n;

	/* what is in merge slots is in the WAL as well, or lost */
	if (reset->set_back)
		kv_merge_discard();
	n = kv_visit_stores(attempt_reset, reset);
	if (n > 0 && reset->set_back)
		ereport(LOG,
				(errmsg("kvfdw has set %d stores back to their last checkpoint", n),
				 errdetail("WAL replay adds what was logged since.")));
}
