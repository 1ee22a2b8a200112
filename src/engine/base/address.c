/*
 * address.c
 *		What tests change about addresses.
 */
#include "postgres.h"

#include "engine/base/address.h"

#ifdef KVFDW_FAULTS
int			kv_test_chunk_kb = 0;
#endif
