/*
 * clock.h
 *		Monotonic clock, for durations and due times.
 *
 * Times are microseconds in a TimestampTz, since an arbitrary moment long ago.  All processes
 * of a server read the same clock; its values mean nothing after a restart of the machine.  The
 * wall clock (GetCurrentTimestamp) may be set forwards and back at any time. kvfdw uses it only
 * for times that people or files are told, for the expiry of rows, and for comparisons with
 * times that PostgreSQL took from it.
 */
#ifndef KV_CLOCK_H
#define KV_CLOCK_H

#include "datatype/timestamp.h"

extern TimestampTz kv_clock(void);
/*
 * Convert a time of kv_clock to what the wall clock, as it is set now, would have said then;
 * exact to some microseconds.
 */
extern TimestampTz kv_wall_time(TimestampTz clock);

#endif							/* KV_CLOCK_H */
