/*
 * clock.c
 *		See clock.h.
 */
#include "postgres.h"

#include <time.h>

#include "utils/timestamp.h"

#include "clock.h"

/*
 * A large origin, so that 0, which stands for never, is long ago even right after a machine
 * start.
 */
#define KV_CLOCK_ORIGIN	(INT64CONST(1) << 50)

TimestampTz
kv_clock(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return KV_CLOCK_ORIGIN + now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

TimestampTz
kv_wall_time(TimestampTz clock)
{
	return GetCurrentTimestamp() - (kv_clock() - clock);
}
