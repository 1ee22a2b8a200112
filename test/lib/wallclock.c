/*
 * wallclock.c
 *		Preloaded into a server: a wall clock that is as many seconds off as the file $KV_WALLCLOCK says, an
 *		int64.  What counts time since the machine has started is as it was.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t
seconds_off(void)
{
	static const int64_t none = 0;
	static const volatile int64_t *off = NULL;

	if (off == NULL)
	{
		const char *path = getenv("KV_WALLCLOCK");
		int			fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		void	   *file = fd >= 0 ? mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

		if (fd >= 0)
			close(fd);
		off = file != MAP_FAILED ? file : &none;
	}
	return *off;
}

int
clock_gettime(clockid_t id, struct timespec *now)
{
	int			result = syscall(SYS_clock_gettime, id, now);

	if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		now->tv_sec += seconds_off();
	return result;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	struct timespec wall;

	(void) zone;
	(void) clock_gettime(CLOCK_REALTIME, &wall);
	now->tv_sec = wall.tv_sec;
	now->tv_usec = wall.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *now)
{
	struct timespec wall;

	(void) clock_gettime(CLOCK_REALTIME, &wall);
	if (now != NULL)
		*now = wall.tv_sec;
	return wall.tv_sec;
}
