/*
 * protocol.h
 *		The memcached protocols, without a server: bytes to requests, what a request does to
 *		an item, replies to bytes.
 *
 * The files of this module (text.c, meta.c, binary.c, line.c, item.c, print.c) use neither
 * PostgreSQL nor the engine.  They allocate nothing, raise nothing, and keep nothing but the
 * structs here.  They also build as a plain program (test/unit).
 *
 *	bytes → kv_mc_parse → KvMcRequest → kv_mc_apply → KvMcReply → kv_mc_print → bytes
 *
 * Every request is answered, in the order of parsing.  This includes wrong requests (KV_MC_SAY:
 * their reply is known already) and requests whose reply has no bytes.  A request points into
 * the input buffer, except for a key that was sent in base64, which the request stores itself
 * (kv_mc_key).  A request may be copied; the buffer may not be moved while requests point to
 * it.
 */
#ifndef KV_MEMCACHED_PROTOCOL_H
#define KV_MEMCACHED_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_MC_MAX_KEY		250		/* bytes */
#define KV_MC_MAX_OPAQUE	31		/* bytes of a meta request's opaque, without its O */
#define KV_MC_HEAD_SIZE		1024	/* bytes that a printer needs */
#define KV_MC_NO_VIVIFY		INT64_MIN

/* What the server allows; may be changed between two calls of kv_mc_parse. */
typedef struct KvMcLimits
{
	size_t		item_size;		/* bytes of a value */
	size_t		memory;			/* a longer request is refused; 0: no limit */
	size_t		line;			/* bytes of a command line: 2048 */
	size_t		get_line;	/* bytes of the line of get, gets, gat and gats, which have many keys */
	bool		flush_all;		/* flush_all is allowed */
	bool		auth;			/* clients must authenticate */
	const char *version;		/* what "version" says */
} KvMcLimits;

typedef enum KvMcProtocol
{
	KV_MC_UNKNOWN, KV_MC_TEXT, KV_MC_BINARY
} KvMcProtocol;

/*
 * The state of a connection's input.  All zeroes is a new one.  Changed by kv_mc_parse and
 * kv_mc_authenticated alone; a copy taken before a call of kv_mc_parse restores the state.
 */
typedef struct KvMcStream
{
	KvMcProtocol protocol;		/* its first byte says which */
	bool		authenticated;
	bool		auth_asked;		/* a KV_MC_AUTH is not answered: nothing more is parsed */
	bool		sasl_begun;		/* PLAIN was begun with no data, which come in a step */
	bool		in_get;			/* the keys of a get's line are being taken */
	bool		get_cas;		/* it is gets or gats */
	bool		get_touch;		/* it is gat or gats */
	int64_t		get_exptime;	/* the exptime of gat or gats */
	size_t		scanned;		/* bytes at the beginning that have no newline */
	uint64_t	swallow;		/* bytes to be thrown away first */
	bool		closed;			/* the last request closes; nothing more is parsed */
} KvMcStream;

typedef enum KvMcCommand
{
	/* without an item */
	KV_MC_SAY,					/* the reply is known: text, status */
	KV_MC_VERSION,
	KV_MC_QUIT,					/* no reply, or binary's empty one; close is set */
	KV_MC_AUTH,					/* user, password: check them, then kv_mc_authenticated */
	KV_MC_FLUSH,				/* exptime: delay, or a time; ≤ 0: now */
	KV_MC_STATS,				/* key: its argument; value: the text that follows it */
	/* with the item of the key */
	KV_MC_GET,					/* get, gets, and binary's */
	KV_MC_TOUCH,				/* touch, gat, gats */
	KV_MC_SET, KV_MC_ADD, KV_MC_REPLACE, KV_MC_APPEND, KV_MC_PREPEND, KV_MC_CAS,
	KV_MC_DELETE,
	/* a set whose value cannot be accepted: the item is deleted, then as SAY */
	KV_MC_DISCARD,
	KV_MC_INCR, KV_MC_DECR,
	KV_MC_META_GET,				/* mg */
	KV_MC_META_DEBUG			/* me */
} KvMcCommand;

/* The reply's form. */
typedef enum KvMcForm
{
	KV_MC_CLASSIC, KV_MC_META, KV_MC_PACKET
} KvMcForm;

/* Statuses of binary packets, for KV_MC_SAY. */
#define KV_MC_STATUS_NOT_FOUND		0x01
#define KV_MC_STATUS_EXISTS			0x02
#define KV_MC_STATUS_TOO_LARGE		0x03
#define KV_MC_STATUS_INVALID		0x04
#define KV_MC_STATUS_NOT_STORED		0x05
#define KV_MC_STATUS_NOT_NUMERIC	0x06
#define KV_MC_STATUS_AUTH_ERROR		0x20
#define KV_MC_STATUS_AUTH_CONTINUE	0x21
#define KV_MC_STATUS_UNKNOWN		0x81
#define KV_MC_STATUS_NO_MEMORY		0x82
#define KV_MC_STATUS_INTERNAL		0x84
#define KV_MC_STATUS_BUSY			0x85

typedef struct KvMcRequest
{
	KvMcCommand command;
	KvMcForm	form;
	bool		noreply;		/* classic: there is no reply at all */
	bool		quiet;			/* meta, binary: the usual outcome has no reply */
	bool		close;			/* close the connection when the reply has been sent */
	bool		with_cas;		/* classic: VALUE has the cas number */
	bool		with_key;		/* binary: the reply has the key */
	bool		with_value;		/* the reply has the value, if there is one */
	bool		last;			/* classic get: END follows */
	bool		key_in_base64;	/* meta b: the key is in decoded */
	bool		has_cas;		/* only if the item's cas number is cas */
	bool		touch;			/* there is a new exptime: TOUCH, or T of mg, md and ma */
	bool		touch_made;	/* T follows N: the new exptime applies also to the item that N makes */
	bool		stale;			/* meta I */
	bool		recache;		/* meta R: recache_exptime is set */
	bool		recache_touched;	/* R is compared with the exptime that an earlier T set */
	bool		replaces;		/* it stores unconditionally: if its value cannot be stored, the
								 * old item must be deleted */
	uint8_t		opcode;			/* binary: returned as received */
	uint32_t	opaque;			/* binary: returned as received, in the client's byte order */
	uint32_t	flags;
	/* SAY and DISCARD: the status in binary, also where there is no memory for a value */
	uint16_t	status;
	uint16_t	key_length;
	const char *key;			/* use kv_mc_key */
	int64_t		exptime;		/* as the client wrote it; kv_mc_expires */
	int64_t		vivify_exptime;	/* KV_MC_NO_VIVIFY: a missing item is not made */
	int64_t		recache_exptime;
	uint64_t	cas;
	uint64_t	delta;		/* of incr and decr */
	uint64_t	initial;		/* of an item that incr and decr make */
	const char *value;			/* what is to be stored; the text of SAY and DISCARD */
	size_t		value_length;
	const char *options;		/* meta: its flags, as received */
	size_t		options_length;
	const char *user;			/* AUTH */
	size_t		user_length;
	const char *password;
	size_t		password_length;
	char		decoded[KV_MC_MAX_KEY * 3 / 4 + 1];
} KvMcRequest;

static inline const char *
kv_mc_key(const KvMcRequest *request)
{
	return request->key_in_base64 ? request->decoded : request->key;
}

/* Is the request about the item of its key?  kv_mc_apply is for these. */
static inline bool
kv_mc_has_item(const KvMcRequest *request)
{
	return request->command >= KV_MC_GET;
}

/*
 * May the request change the item?  A KV_MC_META_GET that only reads does change a stale item,
 * unless fold->read_only forbids it.
 */
static inline bool
kv_mc_writes(const KvMcRequest *request)
{
	if (request->command == KV_MC_META_GET)
		return request->touch || request->recache || request->vivify_exptime != KV_MC_NO_VIVIFY;
	return request->command > KV_MC_GET && request->command != KV_MC_META_DEBUG;
}

/* ---- bytes to requests (text.c, meta.c, binary.c) ---- */

/*
 * Parse the next request of [begin, end), after the end of the last call's request.  The input
 * after that request must still be there.
 *
 * True: there is a request.  It owns *consumed bytes from begin on (and what was swallowed
 * before it), and points into them.  Call again after them.
 *
 * False: there is none yet.  *consumed bytes can be thrown away.  After them, *needed bytes
 * must be there before another call is of use (0 if that cannot be known yet: one more byte is
 * enough).  That is how a large value announces its size: the buffer must come to hold the line
 * or the packet's head, the value and its end.  That is at most the larger of line and 294,
 * plus the larger of item_size and 1024 (a user's name and password), plus 2 bytes.  A value
 * that is too large is answered with an error and swallowed piece by piece.
 *
 * Each key of a get is a request of its own; the last one has last set.  The line has been
 * checked before the first.
 */
extern bool kv_mc_parse(KvMcStream *stream, const KvMcLimits *limits, const char *begin,
						const char *end,
						KvMcRequest *request, size_t *consumed, size_t *needed);

/*
 * A value cannot be accepted: the request's reply becomes this, a line of text or a packet's
 * status and body, and the item is deleted that the value would have replaced.
 */
extern void kv_mc_discard(KvMcRequest *request, uint16_t status, const char *text);

/* The answer to a KV_MC_AUTH.  Its reply is KV_MC_DONE or KV_MC_REFUSED. */
extern void kv_mc_authenticated(KvMcStream *stream, bool ok);

/* ---- what requests do to an item (item.c) ---- */

/*
 * An item while the requests of a batch are applied to it, one after the other.  It must not be
 * copied in that time: the value that append and prepend make has free bytes on both sides,
 * which belong to this struct.
 */
typedef struct KvMcItem
{
	bool		row;			/* there is a row, even if it has expired */
	bool		exists;			/* there is an item, now */
	bool		changed;		/* it differs from the row */
	bool		stale;
	bool		won;			/* a client has been told to recache it */
	uint32_t	flags;
	int64_t		expires;		/* seconds of Unix time; 0: never */
	/* expires is the row's time rounded; the row keeps its time until another is set */
	bool		expires_rounded;
	uint64_t	cas;
	const char *value;
	size_t		length;
	bool		made;			/* append or prepend made the value */
	size_t		room_before;	/* free bytes before a made value */
	size_t		room_after;		/* free bytes after a made value */
} KvMcItem;

/* Parameters of kv_mc_apply. */
typedef struct KvMcFold
{
	int64_t		now;			/* seconds of Unix time */
	size_t		item_size;		/* bytes of a value */
	bool		read_only;		/* mg does not mark a stale item as won */
	uint64_t	next_cas;		/* number for the next write, until the version's is known;
								 * increases by one */
	/* lasts until the replies are printed; not NULL */
	void	   *(*alloc) (void *arg, size_t size);
	void	   *arg;
} KvMcFold;

typedef enum KvMcOutcome
{
	KV_MC_DONE,					/* STORED, DELETED, TOUCHED, OK, HD */
	KV_MC_HIT,					/* with the item's value, flags … */
	KV_MC_MISS,					/* a get's, and NOT_FOUND */
	KV_MC_NOT_STORED,
	KV_MC_EXISTS,
	KV_MC_NUMBER,				/* incr, decr: value has its digits */
	KV_MC_NOT_NUMERIC,
	KV_MC_REFUSED,				/* authentication failed; flush_all is not allowed */
	KV_MC_ERROR,				/* value is the message: SERVER_ERROR … */
	KV_MC_CLIENT_ERROR			/* value is the message: CLIENT_ERROR … */
} KvMcOutcome;

/* A reply, until it is printed.  Values are those of the item, the request or fold->alloc. */
typedef struct KvMcReply
{
	KvMcOutcome outcome;
	bool		created;		/* mg and ma have made the item */
	bool		stale;			/* meta X */
	bool		won_before;		/* meta Z: another client has been told to recache it */
	bool		won;			/* meta W: this client is told to recache it */
	uint16_t	status;			/* ERROR in binary; 0: KV_MC_STATUS_INTERNAL */
	uint32_t	flags;
	/* seconds that the item had to live; -1: for ever, or there was no item */
	int64_t		ttl;
	int64_t		ttl_touched;	/* the same after T of the request */
	int64_t		ttl_made;		/* the same after N, if created */
	uint64_t	cas;			/* of the item after the request; 0: none */
	uint64_t	number;			/* of NUMBER */
	const char *value;
	size_t		length;
} KvMcReply;

/*
 * Set the item of a row; if expires ≤ now there is none.  A caller whose row has no full second
 * rounds it, and says so in the item.  A caller without a row sets all to zeroes.
 */
extern void kv_mc_item_set(KvMcItem *item, int64_t now, const char *value, size_t length,
						   uint32_t flags,
						   int64_t expires, uint64_t cas, bool stale, bool won);

/*
 * Apply a request to its item.  Each write gives the item the number fold->next_cas.  When the
 * last request has been applied and the row was written, replies whose cas is item->cas get the
 * number of the new version.  Other such numbers stay as they are and must never match.
 */
extern void kv_mc_apply(KvMcItem *item, const KvMcRequest *request, KvMcFold *fold,
						KvMcReply *reply);

typedef enum KvMcWrite
{
	KV_MC_KEEP, KV_MC_PUT, KV_MC_REMOVE
} KvMcWrite;

/*
 * What is to be done with the row?  A row that had expired is kept if no request has written
 * it.
 */
extern KvMcWrite kv_mc_item_write(const KvMcItem *item);

/*
 * When does an item expire that was given exptime?  0: never; < 0: at once; up to 30 days:
 * seconds from now; else Unix time.  Never returns a negative number.
 */
extern int64_t kv_mc_expires(int64_t exptime, int64_t now);

/* ---- replies to bytes (print.c) ---- */

/*
 * Sent one after the other; any may be empty.  head is in the caller's memory, tail is
 * constant.
 */
typedef struct KvMcPieces
{
	const char *head;
	size_t		head_length;
	const char *value;
	size_t		value_length;
	const char *tail;
	size_t		tail_length;
} KvMcPieces;

/*
 * Print the bytes of a reply.  head has KV_MC_HEAD_SIZE bytes.
 *
 * Of a reply to SAY, VERSION and QUIT only matters whether it is an ERROR.  The outcome of
 * STATS is:
 *
 *  - DONE with a value: a line like RESET.
 *  - DONE without a value: the end of the lines that kv_mc_print_stat has made.
 *  - MISS: there are no such statistics.
 *
 * An ERROR's message is cut to what fits, and its line ends are removed.
 *
 * *silenced belongs to the connection and is false at first.  Once a key of a get had an ERROR,
 * the line's other keys and END are not printed.
 */
extern void kv_mc_print(const KvMcRequest *request, const KvMcReply *reply, bool *silenced,
						char *head, KvMcPieces *pieces);

/*
 * Print one line of the answer to KV_MC_STATS into head, of KV_MC_HEAD_SIZE bytes; returns its
 * length.
 */
extern size_t kv_mc_print_stat(const KvMcRequest *request, const char *name, const char *value,
							   char *head);

#endif							/* KV_MEMCACHED_PROTOCOL_H */
