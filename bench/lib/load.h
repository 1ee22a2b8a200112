/*
 * load.h
 *		What the programs that make load share.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdint.h>
#include <time.h>

/* Seconds of a clock that is never set. */
static inline double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* xorshift64; the state is not 0. */
static inline uint64_t
random_of(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

#endif							/* LOAD_H */
