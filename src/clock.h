/*
 * clock.h
 *		A clock that nobody sets: for how long something takes, and when it is due.
 *
 * Microseconds, as TimestampTz are, from a moment long ago that means nothing; the same for all
 * processes
 * of a server, and lost with it. The wall clock (GetCurrentTimestamp) may be set forwards and back
 * at any
 * time. It is for what people and files are told, for rows that expire, and beside what PostgreSQL
 * has from it.
 */
#ifndef KV_CLOCK_H
#define KV_CLOCK_H

#include "datatype/timestamp.h"

extern TimestampTz kv_clock(void);
/*
 * What the wall clock, as it is set now, would have said at a time of kv_clock's; exact to some
 * microseconds.
 */
extern TimestampTz kv_wall_time(TimestampTz clock);

#endif							/* KV_CLOCK_H */
