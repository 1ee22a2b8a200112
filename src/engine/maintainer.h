/*
 * maintainer.h
 *		The maintainer process; registers all workers that run from the start.
 */
#ifndef KV_MAINTAINER_H
#define KV_MAINTAINER_H

#include "engine/base/types.h"

/*
 * While shared_preload_libraries are loaded: register checkpointer, maintainer and tier, and
 * define the workers on demand.
 */
extern void kv_workers_register(void);
/* The maintainer's main function; arg is not used.  Does not return. */
extern PGDLLEXPORT void kv_maintainer_main(Datum arg);

#endif							/* KV_MAINTAINER_H */
