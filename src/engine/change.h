/*
 * change.h
 *		Changes of rows for logical decoding: which are passed to output plugins, and the messages
 *		that the plugins get (docs/reference/change-feed.md, Messages).
 *
 * Locks:  none.  Functions raise ERROR.
 */
#ifndef KV_ENGINE_CHANGE_H
#define KV_ENGINE_CHANGE_H

#include "engine/base/types.h"

/* ---- writers (write/fed.c, xact/wal.c) ---- */
/*
 * From now on, in this transaction: are changes of the store for logical decoding?  Until then they
 * are not.  Every writer calls this first; a process that rewrites rows with off.
 */
extern void kv_store_feed(KvStore *store, bool on);
/* Log that a table whose changes are followed was truncated, if there can be logical decoding. */
extern void kv_wal_log_truncate(Oid dboid, Oid relid);

/* ---- messages (xact/decode.c) ---- */
#define KV_CHANGE_PREFIX	"kvfdw"
#define KV_CHANGE_VERSION	1

typedef enum KvChangeKind
{
	KV_CHANGE_PUT = 'P',
	KV_CHANGE_DELETE = 'D',		/* without a value */
	KV_CHANGE_TRUNCATE = 'T'	/* without a key */
} KvChangeKind;

#define KV_CHANGE_HAS_MORE	0x01	/* the next message continues the change */
#define KV_CHANGE_CONTINUES 0x02	/* the message continues the one before it */

/* Each message has this head, then its part of key and value.  Integers are big-endian. */
typedef struct KvChangeHead
{
	uint8		version;
	uint8		kind;			/* KvChangeKind */
	uint8		flags;
	uint8		form;			/* KvForm of the value */
	uint32		relid;
	uint32		keylen;			/* of the whole change, as valuelen */
	uint32		valuelen;
} KvChangeHead;

StaticAssertDecl(sizeof(KvChangeHead) == 16, "message head size");

/* Does our output plugin decode?  NULL: it was not loaded. */
struct LogicalDecodingContext;
typedef bool (*KvChangeCheck) (const struct LogicalDecodingContext *ctx);
extern KvChangeCheck kv_change_is_trusted;
/*
 * The prefix of messages for our output plugin.  No session can write it, so the plugin can trust
 * the bytes.
 */
extern const char *kv_change_trusted_prefix(void);

#endif							/* KV_ENGINE_CHANGE_H */
