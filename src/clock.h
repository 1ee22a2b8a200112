/*
 * clock.h
 *		A clock that nobody sets: for how long something takes, and when it is due.
 *
 * Microseconds, as TimestampTz are, from a moment long ago that means nothing; the same for all processes
 * of a server, and lost with it.  The wall clock (GetCurrentTimestamp) may be set forwards and back at any
 * time.  It is for what people and files are told, for rows that expire, and beside what PostgreSQL has from it.
 */
#ifndef KV_CLOCK_H
#define KV_CLOCK_H

#include "datatype/timestamp.h"

extern TimestampTz kv_clock(void);

#endif							/* KV_CLOCK_H */
