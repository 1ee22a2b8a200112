/*
 * ring.c
 *		Batches of direct I/O: io_uring where the kernel has it, pread and
 *		pwrite elsewhere.
 *
 * A process has up to two rings, made at their first use: one for reads and syncs, which
 * is empty whenever neither kv_io_read_batch() nor kv_io_sync_descriptors() runs, and one for
 * the buffer writer's writes.  A ring belongs to the process that made it; a child that inherits
 * one never touches it.
 *
 * Newer kernels charge rings to the limit of locked memory, all processes of a user together: 8
 * kB for each of up to KV_CHEAP_DEPTH requests.  So a process takes a ring of so many if it is
 * refused a larger one, and one that was refused asks again later, when others may have gone.
 *
 * Rules that keep I 6:
 *  - between the first submission of a read batch and its last completion nothing here can
 *    raise, allocate or serve interrupts;
 *  - at exit, the process waits for writes in flight before it detaches shared memory;
 *  - if waiting on a ring fails, that is a PANIC: the kernel may still write to the buffers.
 *
 * The kernel takes its own reference to a file when a request is submitted; until then fd.c may
 * close the raw descriptor.  fd.c closes one only to open another file, so everything prepared
 * is submitted before any call that could open one (kv_io_raw_desc of a closed file).
 */
#include "postgres.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "compat.h"
#include "engine/base/types.h"
#include "engine/io/internal.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/maintenance.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#define MAX_DEPTH			1024
#define KV_CHEAP_DEPTH		64	/* a ring of fewer needs as many pages */
#define ASK_AGAIN_US		(5 * USECS_PER_SEC)
#define MOST_FAILURES		3	/* failed reads in a row, after which a device counts as failed */

/*
 * Reads are submitted in groups of this size.  A device of a hypervisor begins when it is
 * kicked, after a group, and may complete a group's requests together.  With large groups the
 * device and the process would work alternately.
 */
#define SUBMIT_GROUP		8

/* How often, a millisecond apart, a failing io_uring_enter() is tried. */
#define RING_RETRIES		10000

typedef enum IoMethod
{
	IO_METHOD_AUTO,
	IO_METHOD_RING,
	IO_METHOD_SYNC
} IoMethod;

static const struct config_enum_entry kv_io_methods[] = {
	{"auto", IO_METHOD_AUTO, false},
	{"io_uring", IO_METHOD_RING, false},
	{"sync", IO_METHOD_SYNC, false},
	{NULL, 0, false}
};

static int	io_method = IO_METHOD_AUTO;
static int	io_depth = 64;
bool		kv_io_page_cache = true;

typedef struct Ring
{
	struct io_uring uring;
	int			pid;			/* process that made it; 0: none */
	int			wanted;			/* the setting when it was created */
	int			depth;			/* its actual depth */
	int			in_flight;		/* submitted or prepared, not reaped */
} Ring;

static Ring read_ring;
static Ring write_ring;

/*
 * The pid of a process that was refused a ring by the kernel, the error, and the time of the
 * last attempt.
 */
static int	refused_pid = 0;
static int	refused_errno = 0;
static TimestampTz refused_at = 0;

/* Writes that are finished, but not yet reaped: a queue. */
static KvIoRequest *finished[MAX_DEPTH];
static int	first_finished = 0;
static int	nfinished = 0;

/* The kind under which writes in flight are counted. */
static KvIoKind write_kind = KV_IO_VALUE_WRITE;

/* ---- rings ---- */

/* As ring_make, with this depth.  Returns 0 or an errno. */
static int
ring_init(Ring *ring, int depth, unsigned flags)
{
	int			r = io_uring_queue_init(depth, &ring->uring, flags);

	if (r == -EINVAL && flags != 0)
		r = io_uring_queue_init(depth, &ring->uring, 0);
	ring->depth = depth;
	return -r;
}

/* Create a ring of the configured depth, or a smaller one.  Returns 0 or an errno. */
static int
ring_make(Ring *ring, bool waits_only)
{
	int			err;
	unsigned	flags = 0;

	if (!AcquireExternalFD())
		return EMFILE;

#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
	/* cheapest, but completes nothing unless the process waits for it */
	if (waits_only)
		flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
#else
	(void) waits_only;
#endif
	err = ring_init(ring, io_depth, flags);
	if (err == ENOMEM && io_depth > KV_CHEAP_DEPTH)
		err = ring_init(ring, KV_CHEAP_DEPTH, flags);
	if (err != 0)
	{
		ReleaseExternalFD();
		return err;
	}
	ring->pid = MyProcPid;
	ring->wanted = io_depth;
	ring->in_flight = 0;
	return 0;
}

/* May the kernel create a ring after such a refusal, when other processes have ended? */
static bool
is_shortage(int err)
{
	return err == ENOMEM || err == EAGAIN || err == EMFILE || err == ENFILE;
}

/* The detail of a message that a ring was refused: the limit that was met. */
static int
refusal_detail(void)
{
	struct rlimit limit;

	if (refused_errno != ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
		limit.rlim_cur == RLIM_INFINITY)
		return 0;
	return errdetail("Rings may count as locked memory, whose limit is %llu kB for all processes "
					 "of the server's user.",
					 (unsigned long long) limit.rlim_cur / 1024);
}

/* The hint of such a message: how to raise the limit, or, for an ERROR, do without a ring. */
static int
refusal_hint(bool is_error)
{
	if (refused_errno != ENOMEM)
		return is_error ? errhint("Set \"kvfdw.io_method\" to \"auto\" or \"sync\".") : 0;
	return is_error ?
		errhint("Raise the limit of locked memory (\"ulimit -l\", or \"LimitMEMLOCK=\" of a "
				"systemd service), or set \"kvfdw.io_method\" to \"auto\" or \"sync\".") :
		errhint("Raise the limit of locked memory: \"ulimit -l\", or \"LimitMEMLOCK=\" of a "
				"systemd service.");
}

/*
 * Create the ring of this process if necessary; true: it is ready to use.  Raises only if a
 * ring is required and refused, and only if may_raise.
 */
static bool
ring_ready(Ring *ring, bool may_raise)
{
	int			err;

	if (io_method == IO_METHOD_SYNC || MyProcPid == PostmasterPid)
		return false;
	if (ring->pid == MyProcPid)
	{
		if (ring->wanted == io_depth || ring->in_flight > 0)
			return true;
		io_uring_queue_exit(&ring->uring);
		ReleaseExternalFD();
	}
	ring->pid = 0;

	/* an ERROR describes the present state */
	if (refused_pid != MyProcPid || (io_method == IO_METHOD_RING && may_raise) ||
		kv_clock() - refused_at >= ASK_AGAIN_US)
	{
		err = ring_make(ring, ring == &read_ring);
		if (err == 0)
		{
			refused_pid = 0;
			return true;
		}
		refused_pid = MyProcPid;
		refused_errno = err;
		refused_at = kv_clock();
	}
	if (io_method == IO_METHOD_RING)
	{
		if (may_raise)
		{
			errno = refused_errno;
			ereport(ERROR,
					(errcode(is_shortage(refused_errno) ? ERRCODE_INSUFFICIENT_RESOURCES :
							 ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("could not create an io_uring ring: %m"),
					 refusal_detail(),
					 refusal_hint(true)));
		}
	}
	else if (kv_io_tells_without_ring())
	{
		errno = refused_errno;
		ereport(LOG,
				(errmsg("kvfdw reads and writes without io_uring: %m"),
				 refusal_detail(),
				 refusal_hint(false)));
	}
	return false;
}

/*
 * Submit what is prepared and wait for that many completions.  Never raises; PANIC if the
 * kernel refuses to continue (see the rules above).
 */
static void
ring_enter(Ring *ring, unsigned wait)
{
	int			retries = 0;

	while (io_uring_sq_ready(&ring->uring) > 0 ||
		   io_uring_cq_ready(&ring->uring) < wait)
	{
		int			r;

		r = wait > 0 ? io_uring_submit_and_wait(&ring->uring, wait)
			: io_uring_submit(&ring->uring);
		if (r >= 0 || r == -EINTR)
			continue;

		/*
		 * the kernel is short of memory, or wants completions to be reaped first; the caller
		 * can do that once everything is submitted
		 */
		if (++retries > RING_RETRIES)
		{
			errno = -r;
			elog(PANIC, "could not wait for io_uring requests: %m");
		}
		pg_usleep(1000L);
	}
}

/*
 * The descriptor of a file for a request that is about to be prepared; -1 with
 * errno if it cannot be opened.  *last and *last_fd: of the previous request.
 */
static int
ring_desc(Ring *ring, File file, File *last, int *last_fd)
{
	int			fd;

	if (file == *last)
		return *last_fd;

	if (KV_RAW_DESC_MAY_OPEN || FileGetRawDesc(file) < 0)
	{
		if (io_uring_sq_ready(&ring->uring) > 0)
			ring_enter(ring, 0);
	}
	if (!kv_io_raw_desc(file, &fd))
		return -1;
	*last = file;
	*last_fd = fd;
	return fd;
}

/*
 * Has the kernel not begun a request with this result?  ECANCELED: it needed a thread for it, and
 * a limit of processes or tasks let it have none.  Then the process does it itself.
 */
static bool
is_not_begun(int result)
{
	return result == -EAGAIN || result == -EINTR || result == -ECANCELED;
}

/* ---- reads ---- */

typedef struct ReadBatch
{
	KvIoKind	kind;
	KvIoDone	done;
	void	   *arg;
	File		last;			/* the file of the last request that was queued, or -1 */
	int			last_fd;
} ReadBatch;

static void
have_result(const ReadBatch *batch, KvIoRequest *request, int result)
{
	request->result = result;
	if (request->cached)
		kv_fault_rot(request->buffer, result);
	/* without a file the device was not read */
	kv_io_stat_add(batch->kind, Max(result, 0), result < 0 && request->file >= 0 ? -result : 0);
	if (batch->done)
		batch->done(request, batch->arg);
}

/*
 * The ring has completed the request, perhaps without all of its bytes.  A short result is
 * either the end of the file, or a plain read gets the rest.
 */
static void
finish_read(ReadBatch *batch, KvIoRequest *request, int result)
{
	if (is_not_begun(result) || (result >= 0 && result < (int) request->len))
	{
		if (io_uring_sq_ready(&read_ring.uring) > 0)
			ring_enter(&read_ring, 0);
		batch->last = -1;
		result = kv_io_pread(request->file, request->buffer, request->len,
							 request->offset, 0);
	}
	have_result(batch, request, result);
}

/* Queue the read, or finish it if it cannot be queued. */
static void
queue_read(ReadBatch *batch, KvIoRequest *request)
{
	Size		len = request->len;
	int			err = kv_fault(batch->kind, &len);
	struct io_uring_sqe *sqe;
	bool		another = request->file != batch->last;
	int			fd;

	/* direct I/O cannot read a part of a block: this is an empty read */
	len -= len % KV_BLOCK;
	if (err == 0 && request->file < 0)
		err = ENOENT;
	if (err != 0 || len == 0)
	{
		finish_read(batch, request, -err);
		return;
	}
	if (kv_fault_rots())
	{
		finish_read(batch, request, -EAGAIN);	/* now, because the next call may succeed */
		return;
	}
	fd = ring_desc(&read_ring, request->file, &batch->last, &batch->last_fd);
	if (fd < 0)
	{
		finish_read(batch, request, -errno);
		return;
	}
	if (request->cached && (another || request->around > 0))
		kv_io_advise(fd, request);
	sqe = io_uring_get_sqe(&read_ring.uring);
	io_uring_prep_read(sqe, fd, request->buffer, len, request->offset);
	io_uring_sqe_set_data(sqe, request);
	read_ring.in_flight++;
}

/*
 * How many completions to wait for?  While there is more to submit, small groups, so that the
 * queue stays full.  At the end half of the rest, if there is work to do with the completed
 * ones; else all of it at once.
 */
static unsigned
completions_wanted(const ReadBatch *batch, bool more)
{
	if (more)
		return Max(1, read_ring.in_flight / 8);
	return batch->done ? (read_ring.in_flight + 1) / 2 : read_ring.in_flight;
}

static void
read_with_ring(ReadBatch *batch, KvIoRequest *requests, int n)
{
	struct io_uring_cqe *cqes[MAX_DEPTH];
	KvIoRequest *ended[MAX_DEPTH];
	int			results[MAX_DEPTH];
	unsigned	got = 0;
	int			next = 0;

	/* an ERROR has interrupted a batch: the kernel still writes to its buffers */
	if (read_ring.in_flight != 0)
		elog(PANIC, "reads of an earlier batch are under way");
	while (next < n || read_ring.in_flight > 0 || got > 0)
	{
		while (next < n && read_ring.in_flight < read_ring.depth)
		{
			queue_read(batch, &requests[next++]);
			if (io_uring_sq_ready(&read_ring.uring) >= SUBMIT_GROUP)
				ring_enter(&read_ring, 0);
		}
		if (got > 0)
			ring_enter(&read_ring, 0);
		for (unsigned i = 0; i < got; i++)
			finish_read(batch, ended[i], results[i]);
		ring_enter(&read_ring, completions_wanted(batch, next < n));

		got = io_uring_peek_batch_cqe(&read_ring.uring, cqes, lengthof(cqes));
		for (unsigned i = 0; i < got; i++)
		{
			ended[i] = io_uring_cqe_get_data(cqes[i]);
			results[i] = cqes[i]->res;
		}
		io_uring_cq_advance(&read_ring.uring, got);
		read_ring.in_flight -= got;
	}
}

void
kv_io_read_batch(KvIoRequest *requests, int n, KvIoKind kind, KvIoDone done, void *arg)
{
	ReadBatch	batch = {kind, done, arg, -1, -1};
	bool		ring = (n > 1 || io_method == IO_METHOD_RING) && ring_ready(&read_ring, true);

	if (ring && n > 1)
	{
		/* fd.c may log when it opens a file, and a log message serves interrupts */
		HOLD_INTERRUPTS();
		pgstat_report_wait_start(kv_io_wait_event());
		read_with_ring(&batch, requests, n);
		pgstat_report_wait_end();
		RESUME_INTERRUPTS();
		return;
	}
	for (int i = 0; i < n; i++)
	{
		KvIoRequest *request = &requests[i];
		Size		first = request->len;
		int			err = kv_fault(kind, &first);
		int			fd;

		if (err == 0 && request->file < 0)
			err = ENOENT;
		if (err == 0 && request->cached && kv_io_raw_desc(request->file, &fd))
			kv_io_advise(fd, request);
		have_result(&batch, request, err != 0 ? -err :
					kv_io_pread(request->file, request->buffer, request->len,
								request->offset, first));
	}
}

void
kv_io_read_blocks(const KvIoRequest *failed, KvIoKind kind, int *results, int *failures)
{
	for (Size done = 0; done < failed->len; done += KV_BLOCK)
	{
		KvIoRequest block = {
			.file = failed->file,
			.offset = failed->offset + done,
			.len = KV_BLOCK,
			.buffer = failed->buffer + done,
			.cached = failed->cached,
			.result = failed->result
		};

		if (*failures < MOST_FAILURES && !ShutdownRequestPending)
		{
			CHECK_FOR_INTERRUPTS();
			kv_io_read_batch(&block, 1, kind, NULL, NULL);
			*failures = block.result < 0 ? *failures + 1 : 0;
		}
		results[done / KV_BLOCK] = block.result;
	}
}

/* ---- writes ---- */

static void
push_finished(KvIoRequest *request)
{
	Assert(nfinished < MAX_DEPTH);
	finished[(first_finished + nfinished++) % MAX_DEPTH] = request;
}

/* Reap completions of the write ring, and continue incomplete ones. */
static void
collect_writes(unsigned wait)
{
	struct io_uring_cqe *cqe;

	if (write_ring.pid != MyProcPid || write_ring.in_flight == 0)
		return;
	pgstat_report_wait_start(kv_io_wait_event());
	ring_enter(&write_ring, wait);
	pgstat_report_wait_end();

	while (io_uring_peek_cqe(&write_ring.uring, &cqe) == 0)
	{
		KvIoRequest *request = io_uring_cqe_get_data(cqe);
		int			r = cqe->res;

		io_uring_cqe_seen(&write_ring.uring, cqe);
		write_ring.in_flight--;
		if (is_not_begun(r) || (r >= 0 && r < (int) request->len))
			r = -kv_io_pwrite(request->file, request->buffer, request->len,
							  request->offset, 0);
		request->result = r < 0 ? r : (int) request->len;
		kv_io_stat_add(write_kind, r < 0 ? 0 : request->len, r < 0 ? -r : 0);
		push_finished(request);
	}
}

/* before_shmem_exit callback: the buffers of writes in flight are shared memory. */
static void
drain_writes(int code, Datum arg)
{
	if (write_ring.pid == MyProcPid)
		collect_writes(write_ring.in_flight);
}

void
kv_io_submit_write(KvIoRequest *request, KvIoKind kind)
{
	static int	exit_callback_pid = 0;
	Size		first = request->len;
	int			err;
	int			fd = -1;
	File		last = -1;
	struct io_uring_sqe *sqe;
	bool		use_ring = ring_ready(&write_ring, kv_io_writes_in_flight() == 0);

	if (kv_io_writes_in_flight() >= MAX_DEPTH)
		elog(ERROR, "too many writes in flight");
	if (use_ring && exit_callback_pid != MyProcPid)
	{
		before_shmem_exit(drain_writes, (Datum) 0);
		exit_callback_pid = MyProcPid;
	}

	write_kind = kind;
	err = kv_fault(kind, &first);
	if (use_ring && write_ring.in_flight >= write_ring.depth)
		collect_writes(1);
	if (use_ring && err == 0 && first == request->len &&
		(FileGetRawFlags(request->file) & PG_O_DIRECT))
	{
		fd = ring_desc(&write_ring, request->file, &last, &fd);
		if (fd < 0)
			err = errno;
	}
	if (fd < 0)
	{
		/* no ring, no direct I/O, or a fault: write all of it now */
		if (err == 0)
			err = kv_io_pwrite(request->file, request->buffer, request->len,
							   request->offset, first);
		if (err == 0)
			err = kv_io_wait_written(request->file, request->offset, request->len);
		request->result = err != 0 ? -err : (int) request->len;
		kv_io_stat_add(kind, err != 0 ? 0 : request->len, err);
		push_finished(request);
		return;
	}

	sqe = io_uring_get_sqe(&write_ring.uring);
	io_uring_prep_write(sqe, fd, request->buffer, request->len, request->offset);
	io_uring_sqe_set_data(sqe, request);
	write_ring.in_flight++;
	ring_enter(&write_ring, 0);
}

KvIoRequest *
kv_io_reap_write(bool wait)
{
	KvIoRequest *request;

	if (nfinished == 0)
		collect_writes(wait ? 1 : 0);
	if (nfinished == 0)
		return NULL;
	request = finished[first_finished];
	first_finished = (first_finished + 1) % MAX_DEPTH;
	nfinished--;
	return request;
}

int
kv_io_writes_in_flight(void)
{
	return nfinished + (write_ring.pid == MyProcPid ? write_ring.in_flight : 0);
}

/* ---- syncs ---- */

/* Queue the sync of a descriptor; its index in the array identifies the result. */
static void
queue_sync(int fd, int i)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&read_ring.uring);

	io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
	io_uring_sqe_set_data64(sqe, i);
	read_ring.in_flight++;
}

static int
sync_now(int fd)
{
	return pg_fdatasync(fd) != 0 ? errno : 0;
}

/* Sync the descriptors for which errs is -1. */
static void
sync_with_ring(const int *fds, int n, int *errs)
{
	int			next = 0;

	if (read_ring.in_flight != 0)
		elog(PANIC, "reads of an earlier batch are under way");
	while (next < n || read_ring.in_flight > 0)
	{
		struct io_uring_cqe *cqe;

		for (; next < n && read_ring.in_flight < read_ring.depth; next++)
		{
			if (errs[next] < 0)
				queue_sync(fds[next], next);
		}
		ring_enter(&read_ring, Min(read_ring.in_flight, 1));
		while (io_uring_peek_cqe(&read_ring.uring, &cqe) == 0)
		{
			int			i = io_uring_cqe_get_data64(cqe);
			int			result = cqe->res;

			io_uring_cqe_seen(&read_ring.uring, cqe);
			read_ring.in_flight--;

			if (is_not_begun(result))
				result = -sync_now(fds[i]);
			errs[i] = -result;
		}
	}
}

/*
 * The same without a ring: the device gets the pages of all files before the first one is
 * waited for.
 */
static void
sync_in_turn(const int *fds, int n, int *errs)
{
	for (int i = 0; i < n && n > 1; i++)
	{
		if (errs[i] < 0)
		{
			int			err = kv_io_start_pages(fds[i], 0, 0);

			errs[i] = err != 0 ? err : -1;
		}
	}
	for (int i = 0; i < n; i++)
	{
		if (errs[i] < 0)
			errs[i] = sync_now(fds[i]);
	}
}

void
kv_io_sync_descriptors(const int *fds, int n, int *errs)
{
	int			open = 0;

	for (int i = 0; i < n; i++)
	{
		errs[i] = kv_fault(KV_IO_SYNC, NULL);
		if (errs[i] == 0 && enableFsync)
			errs[i] = -1;
		open += errs[i] < 0;
	}
	kv_io_wait_start();
	if (open > 1 && ring_ready(&read_ring, false))
		sync_with_ring(fds, n, errs);
	else
		sync_in_turn(fds, n, errs);
	kv_io_wait_end();
	for (int i = 0; i < n; i++)
	{
		kv_io_stat_add(KV_IO_SYNC, 0, errs[i]);
		if (errs[i] != 0)
			kv_io_sync_failed();
	}
}

/* ---- settings ---- */

static bool
uring_in_use(void)
{
	return ring_ready(&read_ring, false);
}

const char *
kv_stat_io_method(void)
{
	return uring_in_use() ? "io_uring" : "sync";
}

void
kv_io_gucs(void)
{
	DefineCustomEnumVariable("kvfdw.io_method",
							 "Sets how batches of device I/O are made.",
							 "auto: io_uring where the kernel allows it; io_uring: an error "
							 "elsewhere; sync: pread and pwrite.",
							 &io_method, IO_METHOD_AUTO, kv_io_methods,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.io_depth",
							"Sets how many I/O requests a process keeps in flight.",
							NULL,
							&io_depth, 64, 1, MAX_DEPTH,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("kvfdw.page_cache",
							 "Enables reads of values of up to 256 kB through the page cache of "
							 "the kernel.",
							 "Off: from the device. Large scans always read from the device.",
							 &kv_io_page_cache, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	kv_fault_gucs();
}
