/*
 * hugepage.c
 *		Huge pages for shared memory that PostgreSQL has in small ones.
 *
 * A device takes one piece of memory after another.  A large read into small pages consists of as
 * many pieces as it has pages, which are not contiguous.  The number of pieces that a device
 * accepts limits what is in flight; the queue of a virtual disk is full with a megabyte.  If
 * PostgreSQL itself has huge pages, there is nothing to do.  If none are reserved, the kernel can
 * still make some of free memory for pages that a process uses (MADV_COLLAPSE, Linux 6.1).
 *
 * The kernel requires that addresses and offsets in the segment agree modulo a huge page, and
 * PostgreSQL's do not.  So a process that reads maps the memory a second time, at a suitable
 * address.  Other processes have the same memory, in whatever pages, at PostgreSQL's addresses.
 *
 * Huge pages change only the speed of memory, and nothing relies on them: where the kernel refuses
 * them, small pages stay.
 */
#include "postgres.h"

#include <sys/mman.h>

#include "storage/fd.h"
#include "storage/pg_shmem.h"
#include "utils/memutils.h"

#include "engine/cache/window.h"

#define HUGE_PAGE		((uintptr_t) 2 * 1024 * 1024)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

/* The memory that was mapped for huge pages, from the first one on.  Empty: none was. */
static uintptr_t area_first = 0;
static uintptr_t area_end = 0;
static bool *tried;				/* was it tried to make each of them? */

/* Finds the offset of memory in its mapped segment; false: it is not known. */
static bool
segment_offset(const char *memory, uintptr_t *offset)
{
	FILE	   *maps = AllocateFile("/proc/self/maps", "r");
	char		line[1024];
	bool		found = false;

	while (maps != NULL && !found && fgets(line, sizeof(line), maps) != NULL)
	{
		unsigned long start;
		unsigned long end;
		unsigned long start_offset;

		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &start_offset) != 3)
			continue;
		found = (uintptr_t) memory >= start && (uintptr_t) memory < end;
		*offset = start_offset + ((uintptr_t) memory - start);
	}
	if (maps != NULL)
		FreeFile(maps);
	return found;
}

char *
kv_huge_map(char *memory, Size size)
{
	uintptr_t	offset;
	uintptr_t	place;
	Size		whole = TYPEALIGN(HUGE_PAGE, size) + HUGE_PAGE;
	char	   *room;

	if (huge_pages == HUGE_PAGES_OFF || !segment_offset(memory, &offset))
		return memory;

	room = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return memory;
	place = TYPEALIGN(HUGE_PAGE, (uintptr_t) room) + offset % HUGE_PAGE;
	if (place > (uintptr_t) room + HUGE_PAGE)
		place -= HUGE_PAGE;

	/* an old size of 0: the memory stays at its old address, too */
	if (mremap(memory, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *) place) == MAP_FAILED)
	{
		elog(DEBUG1, "could not map shared memory for huge pages: %m");
		(void) munmap(room, whole);
		return memory;
	}
	area_first = TYPEALIGN(HUGE_PAGE, place);
	area_end = place + size;
	tried = MemoryContextAllocZero(TopMemoryContext, size / HUGE_PAGE + 1);
	return (char *) place;
}

/*
 * Tries each page once: an attempt may take milliseconds, and pages that one process did not get
 * are tried by others, too.
 */
void
kv_huge_make(const char *bytes, Size len)
{
	uintptr_t	first = TYPEALIGN_DOWN(HUGE_PAGE, (uintptr_t) bytes);

	for (uintptr_t page = Max(first, area_first);
		 page < (uintptr_t) bytes + len && page + HUGE_PAGE <= area_end; page += HUGE_PAGE)
	{
		Size		number = (page - area_first) / HUGE_PAGE;

		if (tried[number])
			continue;
		tried[number] = true;

		/* it is made of present pages; one is enough */
		(void) *(volatile char *) page;
		if (madvise((void *) page, HUGE_PAGE, MADV_COLLAPSE) != 0)
			elog(DEBUG1, "could not make a huge page: %m");
	}
}
