/*
 * tier.c
 *		The second tier: frames that have left the recent ring, in a file on a fast local device.
 *
 * It is for servers whose tables are on slow storage, such as a network, and that also have a local
 * device.  That device may be lost at any time: all contents of the file are in value files, too,
 * and are verified when they are read (I 4).
 *
 *		recent ring ──about to leave──▸ tier writer ──one write──▸ tier ──hand reaches it──▸ gone
 *		                                    └──too late──▸ dropped
 *
 * The writer takes the frames that leave the ring next, in their order, and frees them in the ring
 * when they are in the file.  So a frame is in both for a moment only.  If the device does not keep
 * up, leaving frames are dropped; no process waits for a cache.
 *
 * A compaction also puts moved values into the tier, at their new addresses, if they were in the
 * tier or in the ring (take_moved).  Readers ask no more for the old addresses, which leave the
 * tier with age.
 *
 * The file is divided into frames (frame.h).  Before a frame is written it is dropped.  A process
 * that reads it at the same time finds its sequence changed, and reads the value's own file.
 *
 * The writer holds a lock on the file.  So a primary and a standby with the same setting, for
 * example, do not use the same file.  Other processes check that the file with this name is the
 * locked one.
 *
 * The server works without the file: the first error switches the tier off until the next start,
 * with one message.
 *
 * When the server stops it marks the file: a foot after the frames gets a stamp that is unique
 * (kv_tier_mark), and warm.c notes which frames the file has.  The next start keeps a file with
 * such a foot that no other user can have made.  It clears the foot, so the file does not look
 * marked whatever happens then.  Frames of open stores become available again if the note has the
 * same stamp, and if their places were not used since.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/cache/frame.h"
#include "engine/cache/internal.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/shard/shard.h"
#include "report.h"

#define KV_TIER_NAP_MS	1000
#define KV_TIER_START_MS	100		/* interval between checks for a writer */
#define KV_TIER_STARTS	600		/* maximum number of such checks */
#define KV_TIER_LOCK_MS	10	/* at a stop: interval between checks whether the writer has ended */
#define KV_TIER_LOCKS	500		/* maximum number of such checks */

#define KV_TIER_PUT		(256 * 1024)	/* bytes that a compaction puts at once: whole frames */
#define KV_TIER_TURN_MS	100		/* a compaction waits so long for writes by others */

#define KV_TIER_MAGIC	0x4b565449	/* "KVTI" */

/* After the frames, in a block of its own, from a clean stop to the next start. */
typedef struct KvTierFoot
{
	uint32		magic;
	uint32		format_version;
	uint64		system_identifier;
	uint64		stamp;			/* not 0 */
	uint32		frames;
	uint32		hand;			/* the oldest frame */
	uint32		pad;
	uint32		crc;			/* of all before */
} KvTierFoot;

StaticAssertDecl(sizeof(KvTierFoot) == 40, "foot of the second tier is 40 bytes on disk");

typedef enum KvTierState
{
	KV_TIER_STARTING,
	KV_TIER_ON,
	KV_TIER_OFF
} KvTierState;

typedef struct KvTier
{
	pg_atomic_uint32 state;
	KvIoInode	inode;			/* identifies the file while the tier is on */
	uint64		stamp;			/* stamp of the foot at the start; 0: none */
	/* held by the one process that writes frames; taken before the ring's lock */
	LWLock		writing;
	/* under that lock: the server stops, and no process writes frames any more */
	bool		marked;
	pg_atomic_uint64 hits;		/* values read there */
} KvTier;

static char *tier_path;
static int	tier_size_mb;			/* at least 2: the writer takes KV_LEAVING_FRAMES at once */

static KvTier *tier;
static KvFrameRing ring;
static File tier_file = -1;		/* for writing frames */
static File read_file = -1;		/* for reading frames */
static int	tier_lock = -1;		/* the writer's lock on the file */

/* ---- shared memory ---- */

static uint32
frame_count(void)
{
	return tier_path == NULL || tier_path[0] == '\0' || kv_recent_ring.memory() == 0 ? 0 :
		(uint32) tier_size_mb * (1024 * 1024 / KV_FRAME_SIZE) - 1;
}

/* The foot takes the space of one more frame. */
static uint64
file_size(void)
{
	return ((uint64) ring.n + 1) * KV_FRAME_SIZE;
}

#define KV_TIER_SUFFIX	".tier"

/* A start may remove a file with this name, so it must not be a file that is needed. */
static bool
check_path(char **path, void **extra, GucSource source)
{
	Size		len = strlen(*path);
	Size		suffix = strlen(KV_TIER_SUFFIX);

	if (len == 0 ||
		(is_absolute_path(*path) && !path_is_prefix_of_path(DataDir, *path) &&
		 len > suffix && strcmp(*path + len - suffix, KV_TIER_SUFFIX) == 0))
		return true;
	GUC_check_errdetail("\"kvfdw.tier_path\" must be an absolute path outside of the data "
						"directory that ends in \"%s\".", KV_TIER_SUFFIX);
	return false;
}

static void
define_settings(void)
{
	DefineCustomStringVariable("kvfdw.tier_path",
							   "Sets the file of the second tier, a cache on a fast local device.",
							   "The name ends in .tier; empty: no second tier. Values that leave "
							   "the recent ring are written there.",
							   &tier_path, "", PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
							   check_path, NULL, NULL);
	DefineCustomIntVariable("kvfdw.tier_size",
							"Sets the size of the file of the second tier.",
							"Has no effect without kvfdw.tier_path.",
							&tier_size_mb, 1024, 2, 16 * 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);
}

static Size
tier_memory(void)
{
	return frame_count() == 0 ? 0
		: add_size(MAXALIGN(sizeof(KvTier)), kv_frames_size(frame_count()));
}

static void
attach(void)
{
	bool		found;

	if (frame_count() == 0)
		return;
	tier = ShmemInitStruct("kvfdw tier", tier_memory(), &found);
	if (!found)
	{
		memset(tier, 0, sizeof(*tier));
		pg_atomic_init_u32(&tier->state, KV_TIER_STARTING);
		LWLockInitialize(&tier->writing, kv_tranche_room);
		pg_atomic_init_u64(&tier->hits, 0);
	}
	kv_frames_attach(&ring, (char *) tier + MAXALIGN(sizeof(KvTier)), frame_count(), found);
}

static bool
is_wanted(void)
{
	return frame_count() > 0;
}

void
kv_tier_count_hits(uint64 n)
{
	if (tier != NULL)
		pg_atomic_fetch_add_u64(&tier->hits, n);
}

static void
get_stats(KvCacheStats *stats)
{
	stats->block_size = KV_FRAME_SIZE;
	kv_frames_stats(&ring, stats);
	if (tier == NULL)
		return;
	stats->enabled = pg_atomic_read_u32(&tier->state) == KV_TIER_ON;
	stats->hits = pg_atomic_read_u64(&tier->hits);
	stats->dropped = kv_recent_dropped();
}

static void
reset_stats(void)
{
	kv_frames_stats_reset(&ring);
	if (tier != NULL)
		pg_atomic_write_u64(&tier->hits, 0);
}

static void
switch_off(uint32 state, int err)
{
	if (!pg_atomic_compare_exchange_u32(&tier->state, &state, KV_TIER_OFF))
		return;
	if (err == EBUSY)
		ereport(LOG,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot use second-tier cache file \"%s\": another server uses it",
						tier_path),
				 errhint("Set \"kvfdw.tier_path\" of this server to another file.")));
	else
	{
		errno = err;
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("cannot use second-tier cache file \"%s\": %m", tier_path),
				 errdetail("The second tier is off until the server is restarted.")));
	}
}

void
kv_tier_failed(int err)
{
	if (tier == NULL)
		return;
	pg_atomic_fetch_add_u64(&ring.control->errors, 1);
	switch_off(KV_TIER_ON, err);
}

/* Opens this server's file, if it still has its name; -1 and errno. */
static File
open_own(int flags, KvIoKind kind)
{
	File		file = kv_io_open(tier_path, KV_IO_DIRECT | KV_IO_NOFOLLOW | KV_IO_FAIL_OK | flags,
								  kind);

	if (file < 0 || kv_io_is_inode(file, &tier->inode))
		return file;
	kv_io_close(file);
	errno = ESTALE;
	return -1;
}

/*
 * Is the tier off?  If so, closes this process's descriptors, so that a removed file keeps no
 * space.  No read is under way.
 */
static bool
is_off(void)
{
	if (pg_atomic_read_u32(&tier->state) != KV_TIER_OFF)
		return false;
	if (read_file >= 0)
		kv_io_close(read_file);
	if (tier_file >= 0)
		kv_io_close(tier_file);
	if (tier_lock >= 0)
		kv_io_unlock(tier_lock);
	read_file = tier_file = tier_lock = -1;
	return true;
}

/* ---- reading ---- */

/* This process's descriptor; -1: there is none. */
File
kv_tier_file(void)
{
	if (pg_atomic_read_u32(&tier->state) != KV_TIER_ON)
		return -1;
	if (read_file < 0)
	{
		read_file = open_own(KV_IO_READONLY, KV_IO_TIER_READ);
		if (read_file < 0)
			kv_tier_failed(errno);
	}
	return read_file;
}

static bool
find_part(uint32 cache_id, uint64 number, uint32 from, uint32 len, KvTierPart *part)
{
	uint32		blocks = kv_frame_blocks(from, len);
	KvFrame    *frame;

	part->frame = kv_frame_find(&ring, cache_id, number, blocks);
	if (part->frame == KV_NO_FRAME)
		return false;
	frame = &ring.frames[part->frame];
	part->sequence = pg_atomic_read_u64(&frame->sequence);
	pg_read_barrier();
	return part->sequence % 2 == 0 && frame->number == number && frame->cache_id == cache_id &&
		(pg_atomic_read_u32(&frame->valid) & blocks) == blocks;
}

bool
kv_tier_find(uint32 cache_id, KvAddress address, uint32 len, KvTierPlace *place)
{
	uint64		number = address / KV_FRAME_SIZE;
	uint32		from = address % KV_FRAME_SIZE;
	uint32		first = Min(len, KV_FRAME_SIZE - from);

	if (tier == NULL || is_off() || len == 0 || len - first > KV_FRAME_SIZE ||
		pg_atomic_read_u32(&tier->state) != KV_TIER_ON ||
		!find_part(cache_id, number, from, first, &place->parts[0]))
		return false;
	place->nparts = 1;
	place->offset = (uint64) place->parts[0].frame * KV_FRAME_SIZE + from;
	if (first == len)
		return true;

	/* the rest must follow it in the file, too */
	place->nparts = 2;
	return find_part(cache_id, number + 1, 0, len - first, &place->parts[1]) &&
		place->parts[1].frame == place->parts[0].frame + 1;
}

KvMiss
kv_tier_why(uint32 cache_id, KvAddress address, uint32 len)
{
	uint64		number = address / KV_FRAME_SIZE;
	uint32		from = address % KV_FRAME_SIZE;
	uint32		first = Min(len, KV_FRAME_SIZE - from);
	KvMiss		why;

	if (tier == NULL || pg_atomic_read_u32(&tier->state) != KV_TIER_ON)
		return KV_MISS_OFF;
	if (len - first > KV_FRAME_SIZE)
		return KV_MISS_OVERSIZED;
	why = kv_frame_why(&ring, cache_id, number, kv_frame_blocks(from, first));
	if (first < len)
	{
		KvMiss		rest = kv_frame_why(&ring, cache_id, number + 1,
										kv_frame_blocks(0, len - first));

		/* both parts may be there, and not follow each other in the file */
		why = why == KV_MISS_BUSY && rest == KV_MISS_BUSY ? KV_MISS_PARTIAL :
			kv_frame_whole(why, rest);
	}
	return why;
}

bool
kv_tier_still(const KvTierPlace *place)
{
	pg_read_barrier();
	for (int i = 0; i < place->nparts; i++)
	{
		if (pg_atomic_read_u64(&ring.frames[place->parts[i].frame].sequence) !=
			place->parts[i].sequence)
			return false;
	}
	return true;
}

void
kv_tier_drop(const KvTierPlace *place)
{
	if (kv_tier_still(place))
		pg_atomic_fetch_add_u64(&ring.control->errors, 1);
	for (int i = 0; i < place->nparts; i++)
	{
		const KvTierPart *part = &place->parts[i];

		LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
		if (pg_atomic_read_u64(&ring.frames[part->frame].sequence) == part->sequence)
			kv_frame_drop(&ring, part->frame);
		LWLockRelease(&ring.control->lock);
	}
}

static void
forget_frames(uint32 cache_id, KvAddress address, uint64 len, KvForget why)
{
	if (tier == NULL || why != KV_FORGET_LEFT)
		return;
	for (uint64 number = address / KV_FRAME_SIZE; number <= (address + len - 1) / KV_FRAME_SIZE;
		 number++)
	{
		uint32		frame;

		/* several frames may have them */
		while (kv_frame_find(&ring, cache_id, number, 0) != KV_NO_FRAME)
		{
			LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
			frame = kv_frame_find(&ring, cache_id, number, 0);
			if (frame != KV_NO_FRAME)
				kv_frame_drop(&ring, frame);
			LWLockRelease(&ring.control->lock);
		}
	}
}

/* ---- from a clean stop to the next start ---- */

/*
 * Takes the writer's lock when the writer has ended; -1: another process holds it, or there is no
 * such file.
 */
static int
lock_after_writer(void)
{
	KvIoInode	inode;
	int			lock = kv_io_try_lock(tier_path, &inode);

	for (int looks = 0; lock < 0 && errno == EBUSY && looks < KV_TIER_LOCKS; looks++)
	{
		KV_STOP_POINT("tier_lock");
		pg_usleep(KV_TIER_LOCK_MS * 1000);
		lock = kv_io_try_lock(tier_path, &inode);
	}
	return lock;
}

/* Writes the foot.  False: that failed, or the next start would not keep the file. */
static bool
write_foot(const char *block)
{
	File		file = open_own(0, KV_IO_TIER_WRITE);
	bool		written;

	if (file < 0)
		return false;
	written = kv_io_is_private(file, file_size()) &&
		kv_io_try_write(file, block, KV_BLOCK, file_size() - KV_FRAME_SIZE, KV_IO_TIER_WRITE) == 0;
	kv_io_close(file);
	return written;
}

uint64
kv_tier_mark(void)
{
	char		memory[2 * KV_BLOCK];
	char	   *block = (char *) TYPEALIGN(KV_BLOCK, memory);
	KvTierFoot	foot = {KV_TIER_MAGIC, KV_FORMAT_VERSION};
	int			lock;
	bool		written;

	if (tier == NULL || pg_atomic_read_u32(&tier->state) != KV_TIER_ON ||
		!pg_strong_random(&foot.stamp, sizeof(foot.stamp)))
		return 0;
	lock = lock_after_writer();
	if (lock < 0)
		return 0;
	LWLockAcquire(&tier->writing, LW_EXCLUSIVE);
	tier->marked = true;
	LWLockRelease(&tier->writing);
	foot.system_identifier = GetSystemIdentifier();
	foot.frames = ring.n;
	foot.hand = ring.control->hand;
	foot.crc = kv_crc(&foot, offsetof(KvTierFoot, crc));
	memset(block, 0, KV_BLOCK);
	memcpy(block, &foot, sizeof(foot));
	written = write_foot(block);
	kv_io_unlock(lock);
	return written ? foot.stamp : 0;
}

static void
each_frame(void (*each) (void *arg, const KvCachedUnit *unit), void *arg)
{
	for (uint32 i = 0; i < ring.n; i++)
	{
		const KvFrame *frame = &ring.frames[i];
		KvCachedUnit one = {.frame = i};

		LWLockAcquire(&ring.control->lock, LW_SHARED);
		one.cache_id = frame->cache_id;
		one.number = frame->number;
		one.valid = pg_atomic_read_u32(&ring.frames[i].valid);
		LWLockRelease(&ring.control->lock);
		if (one.cache_id != 0 && one.valid != 0)
			each(arg, &one);
	}
}

bool
kv_tier_was_marked(uint64 stamp)
{
	if (tier == NULL || stamp == 0)
		return false;
	for (int looks = 0; pg_atomic_read_u32(&tier->state) == KV_TIER_STARTING &&
		 looks < KV_TIER_STARTS && !ShutdownRequestPending; looks++)
	{
		CHECK_FOR_INTERRUPTS();
		kv_nap(KV_TIER_START_MS, KV_WAIT_IDLE);
	}
	pg_read_barrier();
	return pg_atomic_read_u32(&tier->state) == KV_TIER_ON && tier->stamp == stamp;
}

void
kv_tier_enter(const KvCachedUnit *frame)
{
	if (frame->frame >= ring.n)
		return;
	LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
	if (kv_frame_enter(&ring, frame->frame, frame->cache_id, frame->number))
	{
		pg_write_barrier();
		pg_atomic_write_u32(&ring.frames[frame->frame].valid, frame->valid & KV_FRAME_ALL);
	}
	LWLockRelease(&ring.control->lock);
}

/* ---- the writer ---- */

static bool
foot_is_sound(const KvTierFoot *foot)
{
	return foot->magic == KV_TIER_MAGIC && foot->format_version == KV_FORMAT_VERSION &&
		foot->system_identifier == GetSystemIdentifier() && foot->stamp != 0 &&
		foot->frames == ring.n && foot->hand < ring.n &&
		foot->crc == kv_crc(foot, offsetof(KvTierFoot, crc));
}

/* Keeps a file that this server has marked, and clears its mark.  False: there is no such file. */
static bool
keep_file(void)
{
	char		memory[2 * KV_BLOCK];
	char	   *block = (char *) TYPEALIGN(KV_BLOCK, memory);
	KvTierFoot	foot;
	uint64		at = file_size() - KV_FRAME_SIZE;
	File		file = open_own(0, KV_IO_TIER_WRITE);
	bool		sound;

	if (file < 0)
		return false;
	sound = kv_io_is_private(file, file_size()) &&
		kv_io_try_read(file, block, KV_BLOCK, at, KV_IO_TIER_WRITE) == KV_BLOCK;
	if (sound)
	{
		memcpy(&foot, block, sizeof(foot));
		sound = foot_is_sound(&foot);
	}
	if (sound)
	{
		memset(block, 0, KV_BLOCK);
		sound = kv_io_try_write(file, block, KV_BLOCK, at, KV_IO_TIER_WRITE) == 0 &&
			kv_io_try_sync(file) == 0;
	}
	kv_io_close(file);
	if (!sound)
		return false;
	ring.control->hand = foot.hand;
	tier->stamp = foot.stamp;
	return true;
}

/* Keeps or makes the file, and takes its lock.  Returns 0 or an errno. */
static int
first_file(void)
{
	int			err;

	tier_lock = kv_io_try_lock(tier_path, &tier->inode);
	if (tier_lock >= 0 && keep_file())
		return 0;
	if (tier_lock < 0 && errno == EBUSY)
		return EBUSY;
	(void) kv_io_unlink(tier_path);
	if (tier_lock >= 0)
		kv_io_unlock(tier_lock);
	tier_lock = -1;
	err = kv_io_try_make(tier_path, file_size(), KV_IO_TIER_WRITE);
	if (err != 0)
		return err;
	tier_lock = kv_io_try_lock(tier_path, &tier->inode);
	return tier_lock < 0 ? errno : 0;
}

/* Takes the lock of the same file again, for a later writer. */
static int
same_file(void)
{
	KvIoInode	inode;

	tier_lock = kv_io_try_lock(tier_path, &inode);
	if (tier_lock < 0)
		return errno;
	return inode.device == tier->inode.device && inode.number == tier->inode.number ? 0 : ESTALE;
}

/* Opens the file.  The first writer since the start keeps or makes it. */
static void
begin_file(void)
{
	uint32		state = pg_atomic_read_u32(&tier->state);
	int			err;

	if (state == KV_TIER_OFF)
		return;
	err = state == KV_TIER_STARTING ? first_file() : same_file();
	if (err == 0)
	{
		tier_file = open_own(0, KV_IO_TIER_WRITE);
		err = tier_file < 0 ? errno : 0;
	}
	pg_write_barrier();
	if (err != 0)
		switch_off(state, err);
	else
		pg_atomic_compare_exchange_u32(&tier->state, &state, KV_TIER_ON);
}

/* Frees n consecutive frames from the hand on, which do not wrap around.  Returns the first. */
static uint32
free_places(uint32 n)
{
	uint32		first;

	LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
	if (ring.control->hand + n > ring.n)
		ring.control->hand = 0;
	first = ring.control->hand;
	for (uint32 i = first; i < first + n; i++)
	{
		kv_frame_drop(&ring, i);
		kv_frame_use(&ring, i);
	}
	LWLockRelease(&ring.control->lock);
	return first;
}

/* Publishes a frame that is in the file at the hand. */
static void
publish(uint32 cache_id, uint64 number, uint32 valid)
{
	uint32		frame;

	LWLockAcquire(&ring.control->lock, LW_EXCLUSIVE);
	frame = kv_frame_take(&ring, cache_id, number);
	pg_write_barrier();
	pg_atomic_write_u32(&ring.frames[frame].valid, valid);
	LWLockRelease(&ring.control->lock);
}

/*
 * Writes bytes of n frames, from an offset in the first one on, to the frames at the hand.  False:
 * the write failed.
 */
static bool
write_frames(const char *bytes, Size len, uint32 from, uint32 n)
{
	uint32		first = free_places(n);
	int			err;

	KV_STOP_POINT("tier_before_write");
	err = kv_io_try_write(tier_file, bytes, len, (uint64) first * KV_FRAME_SIZE + from,
						  KV_IO_TIER_WRITE);
	KV_STOP_POINT("tier_written");
	if (err != 0)
		kv_tier_failed(err);
	return err == 0;
}

/* May this process write frames?  The lock is held. */
static bool
may_write(void)
{
	if (pg_atomic_read_u32(&tier->state) != KV_TIER_ON || tier->marked)
		return false;
	if (tier_file < 0)
	{
		tier_file = open_own(0, KV_IO_TIER_WRITE);
		if (tier_file < 0)
			kv_tier_failed(errno);
	}
	return tier_file >= 0;
}

/* Moves the frames that leave the recent ring next; false: there are none. */
static bool
move_frames(char *buffer)
{
	KvLeaving	leaving[KV_LEAVING_FRAMES];
	int			n = kv_recent_oldest(leaving, KV_LEAVING_FRAMES, buffer);

	if (n == 0)
		return false;
	LWLockAcquire(&tier->writing, LW_EXCLUSIVE);
	if (may_write() && write_frames(buffer, (Size) n * KV_FRAME_SIZE, 0, n))
	{
		for (int i = 0; i < n; i++)
		{
			publish(leaving[i].cache_id, leaving[i].number, leaving[i].valid);
			kv_recent_leave(&leaving[i]);
		}
	}
	LWLockRelease(&tier->writing);
	return true;
}

/* Are the n frames at the hand unused?  The lock is held, so the hand does not move. */
static bool
are_free(uint32 n)
{
	uint32		first = ring.control->hand + n > ring.n ? 0 : ring.control->hand;

	for (uint32 i = first; i < first + n; i++)
	{
		if (ring.frames[i].cache_id != 0)
			return false;
	}
	return true;
}

/*
 * Takes the lock for writing frames, if it is soon free.  Its holder writes to the device, and may
 * hang there.  After a wait in vain this process does not wait again until the lock was free once.
 */
static bool
may_have_turn(void)
{
	static bool stands = false;

	for (int naps = 0; !LWLockConditionalAcquire(&tier->writing, LW_EXCLUSIVE); naps++)
	{
		stands |= naps == KV_TIER_TURN_MS;
		if (stands)
			return false;
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1, KV_WAIT_PACE);
	}
	stands = false;
	return true;
}

/* Is a value here, or about to come here? */
static bool
has_or_will(uint32 cache_id, KvLocation from, uint32 len)
{
	KvAddress	address = KV_LOCATION_ADDRESS(from);
	KvTierPlace place;

	return kv_tier_find(cache_id, address, len, &place) ||
		kv_recent_may_have(cache_id, address);
}

/*
 * Puts moved values into the tier, if there is one.  Otherwise readers would look for them here in
 * vain, and value files may be slow.  Unless most of them were here, does so only if nothing is
 * evicted for them.  Skips them if another process writes to the tier for long.
 */
static bool
take_moved(KvStore *store, KvAddress address, const char *blocks, Size len, bool displaces)
{
	uint32		cache_id = store->cache_id;
	uint64		first = address / KV_FRAME_SIZE;
	uint64		last = (address + len - 1) / KV_FRAME_SIZE;

	Assert(address % KV_BLOCK == 0 && len % KV_BLOCK == 0 && len > 0 &&
		   last - first < KV_LEAVING_FRAMES);
	if (tier == NULL || !may_have_turn())
		return true;
	if (may_write() && (displaces || are_free(last - first + 1)) &&
		write_frames(blocks, len, address % KV_FRAME_SIZE, last - first + 1))
	{
		for (uint64 number = first; number <= last; number++)
		{
			KvAddress	begin = Max(address, number * KV_FRAME_SIZE);
			KvAddress	end = Min(address + len, (number + 1) * KV_FRAME_SIZE);

			publish(cache_id, number, kv_frame_blocks(begin % KV_FRAME_SIZE, end - begin));
		}
	}
	LWLockRelease(&tier->writing);
	return true;
}

static void
writer_exit(int code, Datum arg)
{
	kv_recent_attend(NULL);
}

void
kv_tier_writer_main(Datum arg)
{
	char	   *buffer;

	kv_worker_begin(NULL);
	before_shmem_exit(writer_exit, (Datum) 0);
	buffer = (char *) TYPEALIGN(KV_BLOCK, MemoryContextAlloc(TopMemoryContext,
															 KV_LEAVING_FRAMES * KV_FRAME_SIZE +
															 KV_BLOCK));

	begin_file();
	kv_recent_attend(MyLatch);
	while (kv_worker_goes_on(NULL))
	{
		bool		some = !is_off() && pg_atomic_read_u32(&tier->state) == KV_TIER_ON &&
			move_frames(buffer);

		if (!some)
			kv_nap(KV_TIER_NAP_MS, KV_WAIT_IDLE);
	}
	proc_exit(1);				/* the postmaster starts it again, unless the server stops */
}

static void
register_writer(void)
{
	BackgroundWorker worker;

	if (!is_wanted())
		return;
	kv_worker_describe(&worker, "kvfdw tier", "kv_tier_writer_main");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	kv_register_worker(&worker, "The second-tier cache stays empty.");
}

const KvCache kv_second_tier = {
	.name = "tier", .counter = KV_OWN_COUNTER,
	.asked = KV_ASKED_TIER, .never = 1 << KV_MISS_PROBATION,
	.gucs = define_settings, .memory = tier_memory, .attach = attach, .workers = register_writer,
	.forget = forget_frames,
	.mover = {is_wanted, KV_TIER_PUT, has_or_will, take_moved},
	.each = each_frame,
	.stats = get_stats, .stats_reset = reset_stats
};
