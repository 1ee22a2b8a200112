/*
 * put.c
 *		Writes a row for a process that must not wait: if it is still the expected version, and
 *		no transaction or session is in the way.
 *
 * Everything else is a result, not an ERROR and not a wait.  One wait is left: if a value file
 * has to grow, or a value is too large for a write buffer, it is written here.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"

#include "engine/base/types.h"
#include "engine/index/memtable.h"
#include "engine/io/fault.h"
#include "engine/maintenance.h"
#include "engine/rows.h"
#include "engine/shard/shard.h"
#include "engine/write/internal.h"
#include "engine/xact/xact.h"

const KvVersion kv_any_version = {0};

static bool
is_there(const KvKeyState *state)
{
	return state->exists && state->newest.kind == KV_VERSION_PUT;
}

/* A frozen version has lost its xid and kept its address; its checksum covers the address. */
static bool
is_still(const KvKeyState *state, const KvVersion *expected)
{
	bool		there = is_there(state);

	if (expected == &kv_any_version)
		return true;
	if (expected == NULL || !there)
		return expected == NULL && !there;
	return state->newest.location == expected->location &&
		state->newest.len == expected->len && state->newest.crc == expected->crc;
}

/* Can the key be written?  DONE: yes. */
static KvPut
judge(const KvKeyState *state, const KvVersion *expected, TransactionId *in_the_way)
{
	uint64		holder = state->unfinished != 0 ? state->unfinished : state->locked_by;

	if (holder != 0)
	{
		*in_the_way = (TransactionId) holder;
		return KV_PUT_LOCKED;
	}
	return is_still(state, expected) ? KV_PUT_DONE : KV_PUT_CHANGED;
}

KvPut
kv_put_if(KvStore *store, KvKey key, const KvVersion *expected, const KvPutValue *put,
		  CommandId cid, bool yields, KvVersion *made, TransactionId *in_the_way)
{
	KvVersionKind kind = put != NULL ? KV_VERSION_PUT : KV_VERSION_DELETE;
	LockTupleMode mode = put != NULL ? LockTupleNoKeyExclusive : LockTupleExclusive;
	Size		len = put != NULL ? put->len : 0;
	KvWrite		write;
	KvKeyState	state;

	Assert(put != NULL || expected != &kv_any_version);
	KV_STOP_POINT("put_if");
	*in_the_way = InvalidTransactionId;
	if (yields && kv_queue_is_used(store, key, mode))
		return KV_PUT_LOCKED;
	kv_write_prepare(store, key, kind, put != NULL ? put->form : KV_FORM_RAW,
					 put != NULL ? put->value : NULL, len, cid, &write);
	write.nowait = true;
	for (;;)
	{
		KvPut		result;

		CHECK_FOR_INTERRUPTS();
		kv_key_lookup(store, key, mode, &state);
		result = judge(&state, expected, in_the_way);
		if (result != KV_PUT_DONE)
		{
			kv_key_leave(store, &state);
			return result;
		}
		if (kv_write_finish(store, key, &write, &state))
			break;
		if (write.refused)
			return KV_PUT_NO_ROOM;
	}
	*made = write.version;
	kv_stat_add(store, put == NULL ? KV_COUNT_DELETES :
				is_there(&state) ? KV_COUNT_UPDATES : KV_COUNT_INSERTS, 1);
	kv_stat_add(store, KV_COUNT_VALUE_BYTES, len);
	kv_note_change(store);
	return KV_PUT_DONE;
}

#define NUMBER_BITS		60
#define NUMBER_KIND		(UINT64CONST(1) << NUMBER_BITS) /* of a version with a value */
#define NUMBER_EMPTY	(UINT64CONST(3) << NUMBER_BITS)
#define STORE_FACTOR	UINT64CONST(0x9E3779B97F4A7C15)

/*
 * Redo assigns addresses again, perhaps to other values, and a standby has addresses of its
 * own.  So the number depends on the run of the server.  The incarnation would not be enough: a
 * restarted standby keeps its incarnation, and so does a copy.
 */
uint64
kv_version_number(const KvStore *store, const KvVersion *version)
{
	uint64		place = version->location + store->shape.id * STORE_FACTOR + kv_incarnations->run;

	return (place & (NUMBER_KIND - 1)) | (version->len > 0 ? NUMBER_KIND : NUMBER_EMPTY);
}
