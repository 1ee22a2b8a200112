/*
 * map.c
 *		Mapped files, and mapped pages that the kernel cannot read.
 *
 * A load from a mapped page that is unreadable (the device fails, the file was cut) is a
 * SIGBUS, whose default action takes the whole server down.  Guarded mappings prevent that:
 *
 *  - A mapping whose owner looks for failures (kv_io_guard): the handler maps a page of zeros
 *    in the place of the unreadable one, notes the failure in the guard, and the load
 *    continues.  There is no jump, so this may happen under any lock.  Results computed since
 *    are worthless: every reader of such a mapping checks kv_io_guard_failures before it trusts
 *    what it has read.  That also finds pages that were verified, dropped from the page cache,
 *    and cannot be read again.
 *  - A mapping without which the server cannot continue (kv_io_guard_file): PANIC, which names
 *    the file.
 *
 * Any other SIGBUS is handled as without guards.  It is never blocked while a mapping is read,
 * and a child inherits handler, guards and mappings together.
 *
 * The handler runs in the middle of a load or a store of this process, never concurrently, so
 * the list needs no lock: it is only kept consistent at every moment.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/io/internal.h"
#include "engine/io/io.h"
#include "engine/io/map.h"

volatile sig_atomic_t kv_io_guard_failures = 0;

static KvIoGuard *volatile guards = NULL;
static struct sigaction former;
static uintptr_t page_size;

void *
kv_io_map(const char *path, bool writable, Size *len, KvIoKind kind)
{
	int			err = kv_fault(kind, NULL);
	int			fd = -1;
	struct stat info;
	void	   *addr = MAP_FAILED;

	info.st_size = 0;
	if (err == 0)
	{
		fd = BasicOpenFile(path, PG_BINARY | (writable ? O_RDWR : O_RDONLY));
		if (fd < 0 || fstat(fd, &info) != 0)
			err = errno;
	}
	if (err == 0)
	{
		addr = mmap(NULL, info.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
					writable ? MAP_SHARED : MAP_PRIVATE, fd, 0);
		if (addr == MAP_FAILED)
			err = errno;
	}
	if (fd >= 0)
		close(fd);
	kv_io_stat_add(kind, err == 0 ? info.st_size : 0, err == ENOENT ? 0 : err);
	if (err != 0)
	{
		errno = err;
		return NULL;
	}
	*len = info.st_size;
	return addr;
}

void
kv_io_unmap(void *addr, Size len)
{
	(void) munmap(addr, len);
}

/* ---- guards ---- */

/* Act as if there were no handler. */
static void
pass_on(int signo, siginfo_t *info, void *context)
{
	if (former.sa_flags & SA_SIGINFO)
		former.sa_sigaction(signo, info, context);
	else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN)
		former.sa_handler(signo);
	else if (former.sa_handler == SIG_DFL || info->si_code > 0)
	{
		/* a faulting instruction is repeated, any other signal is sent again */
		signal(SIGBUS, SIG_DFL);
		if (info->si_code <= 0)
			raise(SIGBUS);
	}
}

static void
handle_bus_error(int signo, siginfo_t *info, void *context)
{
	int			save_errno = errno;
	char	   *addr = info->si_addr;
	KvIoGuard  *guard = guards;

	/* only the kernel sends an address */
	while (guard != NULL && (info->si_code <= 0 || addr < guard->addr ||
							 addr >= guard->addr + guard->len))
		guard = guard->next;
	if (guard != NULL && guard->path != NULL)
		ereport(PANIC,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not access file \"%s\" at offset %zu",
						guard->path, (Size) (addr - guard->addr)),
				 errdetail("A mapped page of the file could not be read or allocated.")));
	if (guard != NULL)
	{
		char	   *page = (char *) ((uintptr_t) addr & ~(page_size - 1));

		if (mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				 -1, 0) == MAP_FAILED)
			guard = NULL;
		else if (!guard->failed)
		{
			guard->offset = page - guard->addr;
			guard->failed = true;
			kv_io_guard_failures = kv_io_guard_failures + 1;
		}
	}
	if (guard == NULL)
		pass_on(signo, info, context);
	errno = save_errno;
}

static void
add_guard(KvIoGuard *guard, const char *path, void *addr, Size len)
{
	static bool installed = false;

	if (!installed)
	{
		struct sigaction action = {0};

		page_size = sysconf(_SC_PAGESIZE);
		action.sa_sigaction = handle_bus_error;
		action.sa_flags = SA_SIGINFO | SA_RESTART;
		sigemptyset(&action.sa_mask);
		if (sigaction(SIGBUS, &action, &former) != 0)
			elog(ERROR, "could not install a handler of SIGBUS: %m");
		installed = true;
	}
	guard->path = path;
	guard->addr = addr;
	guard->len = len;
	guard->offset = 0;
	guard->failed = false;
	guard->previous = NULL;
	guard->next = guards;
	if (guard->next != NULL)
		guard->next->previous = guard;
	guards = guard;
}

void
kv_io_guard(KvIoGuard *guard, void *addr, Size len)
{
	add_guard(guard, NULL, addr, len);
}

void
kv_io_guard_file(KvIoGuard *guard, const char *path, void *addr, Size len)
{
	add_guard(guard, path, addr, len);
}

void
kv_io_unguard(KvIoGuard *guard)
{
	if (guard->previous != NULL)
		guard->previous->next = guard->next;
	else
		guards = guard->next;
	if (guard->next != NULL)
		guard->next->previous = guard->previous;
	kv_io_guard_reported(guard);
}

void
kv_io_guard_reported(KvIoGuard *guard)
{
	if (!guard->failed)
		return;
	guard->failed = false;
	kv_io_guard_failures = kv_io_guard_failures - 1;
}
