/*
 * item.c
 *		What the commands do to an item.
 */
#include "memcached/protocol/parse.h"

#define LONGEST_DELAY	(INT64_C(60) * 60 * 24 * 30) /* seconds; larger numbers are Unix time */
#define EXPIRED			1

int64_t
kv_mc_expires(int64_t exptime, int64_t now)
{
	if (exptime == 0)
		return 0;
	if (exptime < 0)
		return EXPIRED;
	if (exptime <= LONGEST_DELAY)
		return now + exptime;
	return exptime;
}

static bool
has_expired(int64_t expires, int64_t now)
{
	return expires != 0 && expires <= now;
}

/* Seconds to live; -1: for ever. */
static int64_t
ttl(int64_t expires, const KvMcFold *fold)
{
	if (expires == 0)
		return -1;
	return expires > fold->now ? expires - fold->now : 0;
}

void
kv_mc_item_set(KvMcItem *item, int64_t now, const char *value, size_t length, uint32_t flags,
			   int64_t expires, uint64_t cas, bool stale, bool won)
{
	memset(item, 0, sizeof(KvMcItem));
	item->row = true;
	item->exists = !has_expired(expires, now);
	item->value = value ? value : "";
	item->length = length;
	item->flags = flags;
	item->expires = expires;
	item->cas = cas;
	item->stale = stale;
	item->won = won;
}

KvMcWrite
kv_mc_item_write(const KvMcItem *item)
{
	if (!item->changed)
		return KV_MC_KEEP;
	if (item->exists)
		return KV_MC_PUT;
	return item->row ? KV_MC_REMOVE : KV_MC_KEEP;
}

/* ---- changes ---- */

static void
mark(KvMcItem *item, KvMcFold *fold)
{
	item->changed = true;
	item->exists = !has_expired(item->expires, fold->now);
	item->cas = fold->next_cas++;
}

static void
set_value(KvMcItem *item, const char *value, size_t length)
{
	item->value = value;
	item->length = length;
	item->made = false;
	item->room_before = item->room_after = 0;
}

static void
set_expires(KvMcItem *item, int64_t exptime, const KvMcFold *fold)
{
	item->expires = kv_mc_expires(exptime, fold->now);
	item->expires_rounded = false;
}

/* Store a new item in the place of the old one. */
static void
store(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold)
{
	set_value(item, request->value, request->value_length);
	item->flags = request->flags;
	set_expires(item, request->exptime, fold);
	item->stale = item->won = false;
	mark(item, fold);
}

/* Make the item of a request where there is none. */
static void
vivify(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold, const char *value, size_t length)
{
	set_value(item, value, length);
	item->flags = 0;
	set_expires(item, request->touch_made ? request->exptime : request->vivify_exptime, fold);
	item->stale = false;
	item->won = request->command == KV_MC_META_GET;
	mark(item, fold);
}

static void
remove_item(KvMcItem *item, KvMcFold *fold)
{
	mark(item, fold);
	item->exists = false;
}

static void
touch(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold)
{
	if (kv_mc_expires(request->exptime, fold->now) == item->expires && !item->expires_rounded)
		return;
	set_expires(item, request->exptime, fold);
	mark(item, fold);
}

/*
 * Append bytes to the value, or prepend them.  A value that has grown once gets memory for
 * more, so that many requests do not copy it as many times.  The bytes that earlier replies
 * point to stay unchanged.
 */
static void
grow(KvMcItem *item, const char *more, size_t length, bool before, KvMcFold *fold)
{
	size_t     *room = before ? &item->room_before : &item->room_after;
	size_t		whole = item->length + length;
	char	   *to;

	if (*room < length)
	{
		size_t		spare = item->made && whole < fold->item_size ? fold->item_size - whole : 0;
		char	   *made;

		if (spare > whole)
			spare = whole;
		*room = length + spare;
		made = fold->alloc(fold->arg, item->room_before + item->length + item->room_after);
		memcpy(made + item->room_before, item->value, item->length);
		item->value = made + item->room_before;
		item->made = true;
	}
	to = (char *) item->value + (before ? -(ptrdiff_t) length : (ptrdiff_t) item->length);
	memcpy(to, more, length);
	*room -= length;
	item->length = whole;
	if (before)
		item->value = to;
}

/* ---- commands ---- */

static KvMcOutcome
apply_append(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold)
{
	if (!item->exists)
		return KV_MC_NOT_STORED;
	if (request->has_cas && request->cas != 0 && request->cas != item->cas)
		return KV_MC_EXISTS;
	if (request->value_length > fold->item_size ||
		item->length > fold->item_size - request->value_length)
		return KV_MC_NOT_STORED;
	if (request->value_length > 0)
		grow(item, request->value, request->value_length, request->command == KV_MC_PREPEND, fold);
	item->stale = item->won = false;
	mark(item, fold);
	return KV_MC_DONE;
}

static KvMcOutcome
apply_cas(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold)
{
	int64_t		expires = item->expires;
	bool		rounded = item->expires_rounded;
	bool		won = item->won;

	if (!item->exists)
		return KV_MC_MISS;
	if (request->cas == item->cas)
	{
		store(item, request, fold);
		return KV_MC_DONE;
	}
	if (!request->stale || request->cas == 0)
		return KV_MC_EXISTS;
	/* the client has an older number: its value may be served as stale */
	store(item, request, fold);
	item->expires = expires;
	item->expires_rounded = rounded;
	item->exists = item->stale = true;
	item->won = won;
	return KV_MC_DONE;
}

static KvMcOutcome
apply_delete(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold)
{
	if (!item->exists)
		return KV_MC_MISS;
	if (request->has_cas && request->cas != item->cas)
		return KV_MC_EXISTS;
	if (request->stale)
	{
		if (request->touch)
			set_expires(item, request->exptime, fold);
		item->stale = true;
		item->won = false;
		mark(item, fold);
	}
	else
		remove_item(item, fold);
	return KV_MC_DONE;
}

static KvMcOutcome
apply_arithmetic(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold, KvMcReply *reply)
{
	uint64_t	number = request->initial;
	bool		vivifies = !item->exists;
	char	   *digits;
	size_t		length;

	if (vivifies && request->vivify_exptime == KV_MC_NO_VIVIFY)
		return KV_MC_MISS;
	if (!vivifies)
	{
		if (item->length == 0)
			return KV_MC_NOT_NUMERIC;
		if (request->has_cas && request->cas != 0 && request->cas != item->cas)
			return KV_MC_EXISTS;
		if (!kv_mc_value_number(item->value, item->length, &number))
			return KV_MC_NOT_NUMERIC;
		if (request->command == KV_MC_INCR)
			number += request->delta;
		else
			number = number > request->delta ? number - request->delta : 0;
	}
	digits = fold->alloc(fold->arg, 20);
	length = (size_t) (kv_mc_put_number(digits, number) - digits);
	if (vivifies)
		vivify(item, request, fold, digits, length);
	else
	{
		set_value(item, digits, length);
		if (request->touch)
			set_expires(item, request->exptime, fold);
		mark(item, fold);
	}
	reply->created = vivifies;
	reply->number = number;
	reply->value = digits;
	reply->length = length;
	return KV_MC_NUMBER;
}

static KvMcOutcome
apply_get(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold, KvMcReply *reply)
{
	if (!item->exists)
		return KV_MC_MISS;
	reply->value = item->value;
	reply->length = item->length;
	reply->flags = item->flags;
	if (request->command == KV_MC_TOUCH)
		touch(item, request, fold);
	return KV_MC_HIT;
}

static KvMcOutcome
apply_meta_get(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold, KvMcReply *reply)
{
	int64_t		expires;

	if (!item->exists)
	{
		if (request->vivify_exptime == KV_MC_NO_VIVIFY)
			return KV_MC_MISS;
		vivify(item, request, fold, "", 0);
		reply->created = reply->won = true;
		reply->value = item->value;
		return KV_MC_HIT;
	}
	reply->value = item->value;
	reply->length = item->length;
	reply->flags = item->flags;
	reply->stale = item->stale;
	reply->won_before = item->won;
	expires = item->expires;
	if (request->touch)
		touch(item, request, fold);
	if (request->recache_touched)
		expires = item->expires;
	if (!item->won && !fold->read_only
		&& (item->stale || (request->recache && expires != 0
							&& expires < kv_mc_expires(request->recache_exptime, fold->now))))
	{
		reply->won = item->won = true;
		mark(item, fold);
	}
	return KV_MC_HIT;
}

static KvMcOutcome
apply(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold, KvMcReply *reply)
{
	switch (request->command)
	{
		case KV_MC_GET:
		case KV_MC_TOUCH:
		case KV_MC_META_DEBUG:
			return apply_get(item, request, fold, reply);
		case KV_MC_SET:
			store(item, request, fold);
			return KV_MC_DONE;
		case KV_MC_ADD:
			if (item->exists)
				return KV_MC_NOT_STORED;
			store(item, request, fold);
			return KV_MC_DONE;
		case KV_MC_REPLACE:
			if (!item->exists)
				return KV_MC_NOT_STORED;
			store(item, request, fold);
			return KV_MC_DONE;
		case KV_MC_APPEND:
		case KV_MC_PREPEND:
			return apply_append(item, request, fold);
		case KV_MC_CAS:
			return apply_cas(item, request, fold);
		case KV_MC_DELETE:
			return apply_delete(item, request, fold);
		case KV_MC_DISCARD:
			if (item->exists)
				remove_item(item, fold);
			return KV_MC_DONE;
		case KV_MC_INCR:
		case KV_MC_DECR:
			return apply_arithmetic(item, request, fold, reply);
		case KV_MC_META_GET:
			return apply_meta_get(item, request, fold, reply);
		default:
			return KV_MC_DONE;
	}
}

void
kv_mc_apply(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold, KvMcReply *reply)
{
	memset(reply, 0, sizeof(KvMcReply));
	reply->ttl = item->exists ? ttl(item->expires, fold) : -1;
	reply->outcome = apply(item, request, fold, reply);
	if (request->touch)
		reply->ttl_touched = ttl(kv_mc_expires(request->exptime, fold->now), fold);
	if (reply->created)
		reply->ttl_made = ttl(kv_mc_expires(request->vivify_exptime, fold->now), fold);
	if (reply->outcome == KV_MC_DONE || reply->outcome == KV_MC_HIT ||
		reply->outcome == KV_MC_NUMBER)
		reply->cas = item->cas;
}
