/*
 * address.c
 *		The order of addresses, and a setting of tests that changes value files' sizes.
 */
#include "postgres.h"

#include "engine/base/address.h"

#ifdef KVFDW_FAULTS
int			kv_test_value_file_kb = 0;
#endif

int
kv_address_compare(const void *a, const void *b)
{
	KvAddress	left = *(const KvAddress *) a;
	KvAddress	right = *(const KvAddress *) b;

	return left < right ? -1 : left > right;
}
