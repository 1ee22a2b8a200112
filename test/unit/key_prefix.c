/*
 * key_prefix.c
 *		Prefixes of keys are their first eight bytes, or as many as there are, in the order of keys.
 */
#include "postgres.h"

#undef printf

#include "engine/base/key.h"

int
main(void)
{
	uint64		random = 1;
	int			wrong = 0;

	for (int i = 0; i < 100000; i++)
	{
		int			len = i % 20;
		uint8	   *key = malloc(Max(len, 1));	/* so that a read behind its end is one behind the memory, too */
		uint64		prefix = 0;

		for (int at = 0; at < len; at++)
		{
			key[at] = (random = random * UINT64CONST(6364136223846793005) + 1) >> 56;
			if (at < 8)
				prefix |= (uint64) key[at] << (56 - 8 * at);
		}
		wrong += kv_key_prefix(key, len) != prefix;
		for (int common = 0; common < len + 2; common++)
			wrong += kv_key_prefix_after(key, len, common) !=
				(common < len ? kv_key_prefix(key + common, len - common) : 0);
		free(key);
	}
	printf("%sok 1 - prefixes of keys are their first bytes\n1..1\n", wrong != 0 ? "not " : "");
	return wrong != 0;
}
