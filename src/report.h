/*
 * report.h
 *		Messages that the engine, admission and memcached have in common.
 */
#ifndef KV_REPORT_H
#define KV_REPORT_H

#include "access/tupdesc.h"

/* Tell that the library was not preloaded, with the line to add. */
extern void kv_report_not_preloaded(int elevel);

/*
 * Does the function's SQL definition have n columns?  ERROR (55000) if not: the definition is
 * of another version than the library.
 */
extern void kv_require_columns(TupleDesc desc, int n);

/* LOG: a background worker found no slot; without: the consequence, as a sentence. */
extern void kv_report_not_started(const char *worker, const char *without);

/* A background worker does not run; without: the consequence, as a sentence, or NULL. */
extern void kv_report_not_running(int elevel, const char *worker, const char *without);

#endif							/* KV_REPORT_H */
