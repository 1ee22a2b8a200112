/*
 * slowsync.c
 *		A library to preload: every fdatasync and fsync takes 1 ms longer, as
 *		on a slower device.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int
slow_sync(const char *name, int fd)
{
	struct timespec delay = {0, 1000000};
	int			(*sync) (int) = (int (*) (int)) dlsym(RTLD_NEXT, name);

	nanosleep(&delay, NULL);
	return sync(fd);
}

int
fdatasync(int fd)
{
	return slow_sync("fdatasync", fd);
}

int
fsync(int fd)
{
	return slow_sync("fsync", fd);
}
