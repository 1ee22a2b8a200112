/*
 * internal.h
 *		What the files of the memcached front end share; nobody else includes it.
 *
 * (M 1) No reply to a write is sent before its transaction has committed and, in mode
 *       "on", its commit is on the device and on synchronous standbys.
 * (M 2) The loop waits for no row, no table and no client: what cannot be had now is
 *       parked, and its connection with it.
 * (M 3) A turn is one transaction, without subtransactions.  If it raises an error it is
 *       rolled back as a whole and done again request by request: nothing of it was
 *       acknowledged, and the input is still there.
 * (M 4) The requests of one connection are done and answered in order.
 * (M 5) Memory is bounded: a process keeps what kvfdw.memcached_memory allows, for requests and
 *       for replies each, one request more, a small buffer for each connection, and one turn.
 */
#ifndef KV_MEMCACHED_INTERNAL_H
#define KV_MEMCACHED_INTERNAL_H

#include "postgres.h"

#include <sys/socket.h>

#include "access/xlogdefs.h"
#include "lib/ilist.h"
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "memcached/proto.h"
#include "table/table.h"

#define KV_MC_MAX_WORKERS	64

/* Of memory contexts that are reset after each turn: most turns find all that they need in what is kept. */
#define KV_MC_TURN_SIZES	(Size) 64 * 1024, (Size) 64 * 1024, ALLOCSET_DEFAULT_MAXSIZE

/* ---- settings (start.c) ---- */

typedef enum KvMcCommit
{
	KV_MC_COMMIT_OFF, KV_MC_COMMIT_DRAIN, KV_MC_COMMIT_ON
} KvMcCommit;

typedef enum KvMcAuth
{
	KV_MC_AUTH_NONE, KV_MC_AUTH_PASSWORD
} KvMcAuth;

extern int	kv_mc_workers;
extern char *kv_mc_database;
extern char *kv_mc_role;
extern char *kv_mc_listen;
extern int	kv_mc_port;
extern char *kv_mc_socket;
extern int	kv_mc_auth;
extern int	kv_mc_commit;
extern int	kv_mc_max_connections;
extern int	kv_mc_memory_kb;
extern int	kv_mc_item_size_kb;
extern int	kv_mc_lock_timeout_ms;
extern int	kv_mc_idle_timeout_s;
extern int	kv_mc_client_timeout_s;
extern int	kv_mc_quota;
extern int	kv_mc_reap_interval_s;
extern int	kv_mc_reap_rate;
extern int	kv_mc_udp_port;
extern bool kv_mc_flush_all;

/* ---- shared memory ---- */

typedef enum KvMcCount
{
	KV_MC_COUNT_CONNECTIONS, KV_MC_COUNT_REJECTED, KV_MC_COUNT_DROPPED,
	KV_MC_COUNT_GETS, KV_MC_COUNT_HITS, KV_MC_COUNT_MISSES, KV_MC_COUNT_EXPIRED,
	KV_MC_COUNT_SETS, KV_MC_COUNT_TOO_LARGE, KV_MC_COUNT_NO_MEMORY, KV_MC_COUNT_DEBUGS,
	KV_MC_COUNT_CAS_HITS, KV_MC_COUNT_CAS_MISSES, KV_MC_COUNT_CAS_BADVAL,
	KV_MC_COUNT_DELETE_HITS, KV_MC_COUNT_DELETE_MISSES,
	KV_MC_COUNT_INCR_HITS, KV_MC_COUNT_INCR_MISSES,
	KV_MC_COUNT_DECR_HITS, KV_MC_COUNT_DECR_MISSES,
	KV_MC_COUNT_TOUCH_HITS, KV_MC_COUNT_TOUCH_MISSES,
	KV_MC_COUNT_FLUSHES_ALL, KV_MC_COUNT_AUTHS, KV_MC_COUNT_AUTH_FAILURES,
	KV_MC_COUNT_ERRORS, KV_MC_COUNT_TURNS, KV_MC_COUNT_REPEATED_TURNS, KV_MC_COUNT_PARKED,
	KV_MC_COUNT_WRITES, KV_MC_COUNT_MERGED_WRITES, KV_MC_COUNT_FLUSHES,
	KV_MC_COUNT_BYTES_IN, KV_MC_COUNT_BYTES_OUT, KV_MC_COUNT_REAPED,
	KV_MC_COUNTERS
} KvMcCount;

/* Written by the process alone, but for the reset. */
typedef struct KvMcWorkerState
{
	int			pid;			/* 0: it does not run */
	bool		listens;		/* guarded by KvMcShared.lock */
	TimestampTz started;
	Latch	   *latch;		/* NULL: it does not run */
	pg_atomic_uint64 wanted;	/* this much of the WAL is to be flushed */
	pg_atomic_uint32 connections;
	pg_atomic_uint64 memory;	/* bytes of buffers */
	pg_atomic_uint64 counts[KV_MC_COUNTERS];
} KvMcWorkerState;

#define KV_MC_MAX_EMPTIED	64
#define KV_MC_MAX_LATER		32

/* A flush_all with a delay. */
typedef struct KvMcLater
{
	Oid			role;
	TimestampTz due;			/* 0: there is none */
} KvMcLater;

typedef struct KvMcShared
{
	LWLock		lock;			/* of who listens, held while sockets are made; and of later */
	int			tranche;
	pg_atomic_uint32 resets;	/* counters are to be set to 0 */
	pg_atomic_uint32 emptier;	/* pid of the process that does a flush_all, or 0 … */
	pg_atomic_uint32 emptied[KV_MC_MAX_EMPTIED];	/* … and tables that it waits for */
	KvMcLater	later[KV_MC_MAX_LATER];	/* guarded by lock */
	Latch	   *wal_flusher_latch;	/* NULL: it does not run */
	Latch	   *reaper_latch; /* likewise */
	pg_atomic_uint64 flushed;	/* the WAL is on the device, and on standbys, so far */
	pg_atomic_uint32 room_wanted;	/* a turn has found no memory for recent versions */
	KvMcWorkerState workers[KV_MC_MAX_WORKERS + 1];	/* the last one: the reaper */
} KvMcShared;

extern KvMcShared *kv_mc_shared;
extern KvMcWorkerState *kv_mc_me;	/* this process's, in a worker */
extern int	kv_mc_my_number;		/* … and its number, from 0 */

/* ---- connections (connection.c) ---- */

typedef struct KvMcBuffer
{
	char	   *data;			/* NULL: size is 0 */
	size_t		size;
	size_t		begin;			/* what is in it … */
	size_t		end;			/* … ends here */
	bool		sends;			/* it has replies */
} KvMcBuffer;

/* Why a connection's next request cannot be done now. */
typedef enum KvMcObstacle
{
	KV_MC_NO_OBSTACLE,
	KV_MC_ROW_LOCKED,
	KV_MC_ROW_BUSY,				/* it was changed by others again and again */
	KV_MC_TABLE_BUSY,
	KV_MC_TABLE_CLOSED,			/* it is being recovered */
	KV_MC_NO_ROOM,
	KV_MC_FLUSHING				/* a flush_all cannot have its tables */
} KvMcObstacle;

/* Whose request it was that came in a datagram. */
typedef struct KvMcDatagram
{
	struct sockaddr_storage sender;
	socklen_t	sender_length;
	char		request[2];		/* its number */
} KvMcDatagram;

typedef struct KvMcConnection
{
	dlist_node	node;			/* in all connections */
	dlist_node	work_node;		/* in those with something to do, if working */
	bool		working;
	int			fd;
	uint32		events;			/* that epoll is to tell of */
	KvMcStream	stream;
	KvMcBuffer	in;
	KvMcBuffer	out;
	size_t		needed;			/* bytes from in.begin on that the parser waits for */
	Oid			role;			/* whose privileges it has; InvalidOid: none yet */
	bool		eof;			/* the client sends nothing more */
	bool		closing;		/* to be closed when out is empty */
	bool		dead;			/* to be closed at once */
	bool		starved;		/* there was no memory to read into */
	TimestampTz active;			/* when something was last read or sent */
	bool		has_password;	/* its next request is a password to be verified */
	TimestampTz hold_until;		/* nothing is done before; 0: no hold */
	XLogRecPtr	held_upto;		/* its replies wait for this; invalid: they do not … */
	dlist_node	held_node;		/* … else in the list of those that do */
	uint64		moved;			/* bytes received, and sent and taken */
	uint64		sent;			/* bytes */
	uint64		taken;			/* of them, when that was looked at last */
	TimestampTz waits_since;	/* since then the client was waited for, each time that was looked; 0: it is not */
	uint64		waits_moved;	/* … with so many bytes moved, … */
	uint64		waits_requests; /* … and requests answered, before */
	bool		slow;			/* it did not take its last replies at once */
	Size		wants;			/* bytes of a value that waits for room beside others' replies; 0: none */
	TimestampTz wants_since;	/* … since then */
	bool		passed_over;	/* nothing was done for it in this turn, for want of room */
	TimestampTz made;
	uint64		requests;		/* that were answered */
	struct KvMcClient *client;	/* what others see of it; NULL: nothing */
	bool		too_much;		/* UDP: the replies are more than datagrams may have; the rest is dropped */
	KvMcDatagram *datagram;		/* UDP: whom to answer; NULL: it is a connection */

	/* parked */
	KvMcObstacle obstacle;
	TransactionId waits_for;	/* of ROW_LOCKED */
	TimestampTz parked_since;	/* that its next request could not be done; 0: it was not tried */
	TimestampTz retry_at;
	int			retry_us;

	/* this turn */
	bool		gathered;		/* its requests are in the turn, … */
	bool		writes;			/* … and one of them may write */
	int			cut;			/* its requests from this one on are for later */
	int			suspect;		/* … and those from this one on are done one by one */
	size_t		parsed;			/* bytes of input that the turn's requests are made of */
	bool		silenced;		/* kv_mc_print's */
} KvMcConnection;

extern dlist_head kv_mc_connections;
extern dlist_head kv_mc_working;
extern int	kv_mc_nconnections;
/* Once, before there are any: they are added to this epoll set. */
extern void kv_mc_connections_init(int epoll_fd);
/* Take those that wait at a listening socket; too many are told so and closed.  False: no descriptors. */
extern bool kv_mc_accept(int listener);
/* Requests in a datagram that came at this socket; they are copied. */
extern void kv_mc_add_datagram(int fd, const KvMcDatagram *from, const char *data, size_t length);
/* Take what the client has sent, if there is room for it. */
extern void kv_mc_read(KvMcConnection *conn);
/* Read again from those for which there was no memory, if some has become free. */
extern void kv_mc_feed_starved(void);
/* The first bytes of the input are done with. */
extern void kv_mc_consume(KvMcConnection *conn, size_t bytes);
extern void kv_mc_set_working(KvMcConnection *conn, bool working);
/* One that is working: it has had its share, others are before it the next time … */
extern void kv_mc_last_in_line(KvMcConnection *conn);
/* … or it was passed over, and is before them. */
extern void kv_mc_first_in_line(KvMcConnection *conn);
/* A request of the client was answered: no value of its waits. */
extern void kv_mc_wants_nothing(KvMcConnection *conn);
/* Bytes for the client; those of 4 kB and more are not copied before kv_mc_send. */
extern void kv_mc_tell(KvMcConnection *conn, const char *data, size_t length);
/* Where the head of a reply is to be printed, of up to KV_MC_HEAD_SIZE bytes; then the reply, with that head. */
extern char *kv_mc_say_head(KvMcConnection *conn);
extern void kv_mc_tell_pieces(KvMcConnection *conn, const KvMcPieces *pieces);
/* Send what was said since the last call; what the socket does not take is kept. */
extern void kv_mc_send(KvMcConnection *conn);
/* Replies that nobody takes are too many: disconnect who has taken none for the longest time. */
extern void kv_mc_drop_stalled(void);
/* Send more of what was kept. */
extern void kv_mc_send_rest(KvMcConnection *conn);
/* More has come before what there is was done: hear no more of that for now. */
extern void kv_mc_mute(KvMcConnection *conn);
/* After anything has changed: closes it, or tells epoll what it waits for now.  False: closed. */
extern bool kv_mc_settle(KvMcConnection *conn);
/* Once a second: who takes nothing, sends half a request or nothing goes. */
extern void kv_mc_sweep(TimestampTz now);
extern void kv_mc_close_all(void);
extern void kv_mc_forget_closed(void);	/* no event of theirs is to be looked at any more */
/* So many bytes of replies that are not taken have room, without anybody having to wait. */
extern Size kv_mc_reply_room(void);
/*
 * May so many bytes more be said to the client in this turn?  If not, and none were, it must wait.  held: they
 * will be kept until the WAL is flushed, whatever its socket takes.
 */
extern bool kv_mc_takes(KvMcConnection *conn, Size said, Size more, bool held);
/* Can a value be sent at all, with all of the memory? */
extern bool kv_mc_fits(Size value);
/* Nothing may be done for the client now, as there are many replies that nobody takes. */
extern bool kv_mc_must_wait(const KvMcConnection *conn);
/* Its replies are not to be sent yet. */
extern bool kv_mc_is_held(const KvMcConnection *conn);

static inline size_t
kv_mc_pending(const KvMcBuffer *buffer)
{
	return buffer->end - buffer->begin;
}

/* ---- udp.c: requests in datagrams ---- */

extern char kv_mc_udp_tag;		/* in place of a connection in events */
/* Makes the sockets, in the first process, and adds them to the epoll set. */
extern void kv_mc_udp_listen(int epoll_fd);
/* Takes what has come at them. */
extern void kv_mc_udp_read(void);
/* Send the replies to a datagram's requests, all at once. */
extern void kv_mc_udp_send(KvMcConnection *conn);
/* May there be so many bytes of them? */
extern bool kv_mc_udp_fits(size_t length);

/* ---- park.c: requests that cannot be done now ---- */

extern bool kv_mc_any_waits;	/* some connection is parked, or nothing is done on it for a while */
/* The connection's next request cannot be done; false: not in time, *reply says so. */
extern bool kv_mc_park(KvMcConnection *conn, KvMcObstacle obstacle, TransactionId xid,
					   KvMcReply *reply);
extern bool kv_mc_is_parked(const KvMcConnection *conn);
/* Has its next request been tried so long ago? */
extern bool kv_mc_parked_for(const KvMcConnection *conn, int64 ms, TimestampTz now);
/* Something is to be done at this time. */
extern void kv_mc_wake_at(TimestampTz when);
/* Those whose obstacle may be gone are tried in the next turn. */
extern void kv_mc_wake(TimestampTz now);
/* So long nothing is to be tried; -1: nothing waits. */
extern long kv_mc_sleep_ms(TimestampTz now);

/* ---- held.c: replies that wait for the WAL ---- */

/* Is there a process to flush for others? */
extern bool kv_mc_flusher_runs(void);
/* Are there synchronous standbys to be waited for, by name at least? */
extern bool kv_mc_has_standbys(void);
/*
 * Do replies to writes wait for the WAL in place of the process?  for_all: there is no other client than those
 * of the turn and those who wait already.
 */
extern bool kv_mc_holds(bool for_all);
/* How far the WAL must be flushed for all that can be seen now; invalid: it is. */
extern XLogRecPtr kv_mc_seen_upto(void);
/* The connection's replies are kept until the WAL is on the device, and on standbys, so far. */
extern void kv_mc_hold(KvMcConnection *conn, XLogRecPtr upto);
extern void kv_mc_unhold(KvMcConnection *conn);
/* Have it flushed, some time soon. */
extern void kv_mc_ask_flush(XLogRecPtr upto);
/* Send what need not wait any more; idle: there is nothing else to do. */
extern void kv_mc_held_look(TimestampTz now, bool idle);
extern bool kv_mc_any_held(void);
/* How many connections are held and have no request in the turn that is being done? */
extern int	kv_mc_held_beside(void);
/*
 * A turn has flushed the WAL itself, so far, for so many connections, and began with that then: send
 * what is held for no more.
 */
extern void kv_mc_flushed(XLogRecPtr upto, int writers, TimestampTz since);
/* Wait a little for those who are about to write again; false: for nobody. */
extern bool kv_mc_linger(int epoll_fd, TimestampTz now);
/*
 * Likewise in a turn that began then and has writes of so many connections, if it has not been waited
 * in vain for so long (µs) that it is not worth while.
 */
extern bool kv_mc_wait_for_writers(int epoll_fd, int writing, TimestampTz began, int64 waited);
/* The process ends: send what may be. */
extern void kv_mc_held_end(void);
/* The process that flushes.  Does not return. */
extern PGDLLEXPORT void kv_memcached_flusher_main(Datum arg);

/* ---- client.c: what others see of connections ---- */

/* One connection, in shared memory; written by its process. */
typedef struct KvMcClient
{
	pg_atomic_uint32 owner;		/* number of the process + 1; 0: there is none */
	Oid			role;
	char		address[64];
	int			state;
	TimestampTz made;
	TimestampTz active;
	uint64		requests;
	uint64		in_bytes;		/* received and not done, … */
	uint64		out_bytes;		/* … and not sent */
} KvMcClient;

/* Bytes of shared memory for them. */
extern Size kv_mc_clients_size(void);
extern void kv_mc_clients_init(void);	/* at the start of the server, zeroed memory follows KvMcShared */
/* NULL: there is no room. */
extern KvMcClient *kv_mc_client_add(const struct sockaddr *address);
extern void kv_mc_client_update(const KvMcConnection *conn);
extern void kv_mc_client_remove(KvMcClient *client);
extern void kv_mc_clients_leave(void);	/* this process has none any more */

/* ---- listen.c ---- */

/* Makes this process's listening sockets and adds them to the epoll set, with NULL as data … */
extern void kv_mc_listen_all(int epoll_fd);
/* … and accepts from all of them; without descriptors they are left alone for a while. */
extern void kv_mc_accept_all(void);
extern bool kv_mc_listen_paused(void);
/* Listen again, if the while has passed. */
extern void kv_mc_listen_resume(TimestampTz now);
extern void kv_mc_listen_close(void);
/* How many connections this process can have. */
extern int	kv_mc_connection_room(void);

/* ---- served.c: the tables ---- */

typedef enum KvMcTableState
{
	KV_MC_TABLE_UNTRIED,		/* in this transaction */
	KV_MC_TABLE_OPEN,
	KV_MC_TABLE_IS_BUSY,
	KV_MC_TABLE_IS_CLOSED,		/* it is being recovered */
	KV_MC_TABLE_UNUSABLE		/* reason says why */
} KvMcTableState;

typedef struct KvMcTable
{
	Oid			relid;
	char	   *prefix;
	int			prefix_length;
	bool		trusted;		/* by its owner: it may serve keys at all */
	bool		checked;		/* since it last changed: all up to reason */
	uint64		changes;		/* that were noticed */
	AttrNumber	key, value, flags, expires; /* 0: there is no such column */
	bool		others;			/* there are more columns */
	bool		text_key, text_value;
	const char *reason;			/* why it cannot be served, with its SQLSTATE; NULL: it can */
	char		reason_text[256];
	bool		watched;		/* compactions know how its rows expire, … */
	bool		reaped;			/* … if the reaper may delete those that have; it is told of them then */

	int			suspicion;		/* turn.c: of raising errors; 0: there is none */

	/* privileges, as far as is of interest, of the role that was asked for last, … */
	Oid			acl_role;
	AclMode		acl;
	bool		acl_known;
	uint64		acl_changes;	/* … when so many changes were noticed */

	/* this transaction */
	KvMcTableState state;
	bool		to_write;		/* keys.c: some request may write to it */
	KvTable    *table;
	KvStore    *store;			/* NULL: nothing was ever written */
	int			first;			/* keys.c: the first of its keys, or -1 … */
	int			last;			/* … and the last */
	int			looked;			/* keys.c: so many of them were looked up */
} KvMcTable;

/* Once in a process: has it notice changes of tables. */
extern void kv_mc_tables_init(void);
/* At the beginning of a transaction: what was known of tables in the last one is forgotten. */
extern void kv_mc_tables_begin(void);
/* The table with the longest prefix that the key begins with, or NULL. */
extern KvMcTable *kv_mc_table_find(const char *key, int length);
/* Lock and look, without waiting for a lock; writes: rows may be written. */
extern KvMcTableState kv_mc_table_open(KvMcTable *table, bool writes);
extern bool kv_mc_table_allows(KvMcTable *table, Oid role, AclMode mode);
extern int	kv_mc_tables(KvMcTable ***tables);
/* Why it cannot be served, with the SQLSTATE; NULL: it can. */
extern const char *kv_mc_table_reason(KvMcTable *table);
/*
 * TRUNCATE all tables for which the role may, in a transaction; an ERROR if there are none.
 * False: some are locked by others now, and marked (kv_mc_empty_mark); roll back.
 */
extern bool kv_mc_tables_truncate(Oid role);
extern bool kv_mc_tables_may_truncate(Oid role);	/* are there any? */

/* ---- open.c: recovery ---- */

/* False: it has to be recovered first, which another process does; try again. */
extern bool kv_mc_table_ready(Oid relid);
/* The process that recovers one table; arg is its OID. */
extern PGDLLEXPORT void kv_memcached_open_main(Datum arg);

/* ---- reap.c ---- */

/* The process "kvfdw memcached reaper".  Does not return. */
extern PGDLLEXPORT void kv_memcached_reaper_main(Datum arg);

/* ---- room.c: memory for recent versions ---- */

/* A turn has found none: the reaper is to look whether the maintainer makes some, … */
extern void kv_mc_want_room(void);
/* … and does this: makes some in its place.  Returns µs until it is to be called again, if it is not told before. */
extern int64 kv_mc_make_room(void);

/* ---- expired.c: rows that have expired, as they are met ---- */

extern Size kv_mc_expired_size(void);	/* of shared memory, … */
extern void kv_mc_expired_init(void *memory, bool found);	/* … which begins here, zeroed if it is new */
/* In a turn: the table has a row that has expired; may be said again and again, and of one that is not reaped. */
extern void kv_mc_expired_note(const KvMcTable *table, KvKey key, uint32 hash, int64 now);
/* The reaper met a row that had been changed since it was looked at: it will look again. */
extern void kv_mc_expired_again(Oid relid, KvKey key);
/* Compactions are to note such rows of the table, which is open, if it is reaped; again after it was checked. */
extern void kv_mc_expired_watch(const KvMcTable *table);
/* Keys of one table that were noted, palloc'd; returns how many. */
extern int	kv_mc_expired_take(Oid *relid, KvKey *keys, int most);

/* ---- row.c: items of rows, rows of items ---- */

/* A row as it was looked up; its other columns are kept for when it is written. */
typedef struct KvMcRow
{
	Datum	   *values;			/* of a table with other columns; NULL: there is no row */
	bool	   *nulls;
} KvMcRow;

/* The key as the engine has it, palloc'd. */
extern KvKey kv_mc_row_key(const KvMcTable *table, const char *key, int length);
/* NULL, or why these bytes cannot be a key, or a value, of the table: CLIENT_ERROR. */
extern const char *kv_mc_row_bad_key(const KvMcTable *table, const char *key, int length);
extern const char *kv_mc_row_bad_value(const KvMcTable *table, const char *value, size_t length);
/* Fills in item, and row if it is to be kept.  look is FOUND. */
extern void kv_mc_row_read(const KvMcTable *table, const KvLook *look, int64 now, uint64 number,
						   KvMcItem *item, KvMcRow *row);
/* What to store for an item; palloc'd, or the item's own bytes. */
extern void kv_mc_row_write(const KvMcTable *table, const KvMcItem *item, const KvMcRow *row,
							KvPutValue *put);

/* ---- demand.c: what a request needs of its table ---- */

/* A plain mg changes an item that is stale: it marks it. */
static inline bool
kv_mc_may_change(const KvMcRequest *request)
{
	return request->command > KV_MC_GET && (request->command == KV_MC_META_GET || kv_mc_writes(request));
}

/* What it comes with and needs of the table: a value, privileges; NULL, or the reply: columns that are not there. */
extern bool kv_mc_has_value(const KvMcRequest *request);
extern AclMode kv_mc_privileges(const KvMcRequest *request, int64 now);
extern const char *kv_mc_lacks_column(const KvMcTable *table, const KvMcRequest *request);
/* Does what it makes of an item depend on nothing that was there? */
extern bool kv_mc_is_blind(const KvMcTable *table, const KvMcRequest *request, int64 now);

/* ---- turn.c ---- */

/* One request of a turn. */
typedef struct KvMcTask
{
	KvMcConnection *conn;
	KvMcStream	before;			/* to go back to, if it cannot be done now … */
	size_t		at;				/* … which begins here in the input */
	bool		answered;		/* reply is there without looking at a row */
	int			key;			/* number of its key in the turn */
	KvMcRequest request;
	KvMcReply	reply;
} KvMcTask;

typedef struct KvMcTurn
{
	MemoryContext context;		/* reset after each */
	KvMcTask  **tasks;
	int			ntasks;
	int			nclients;		/* connections that they are of … */
	int			nwriters;		/* … and those of them that may write */
	bool		writes;			/* one of them may write … */
	bool		reads;			/* … and one does not, so it need not wait for a flush */
	size_t		bytes;			/* of the values that come with them */
} KvMcTurn;

/* Do them: then each connection is parked, or has its replies said and its input consumed. */
extern void kv_mc_turn_run(KvMcTurn *turn);

/* ---- hash.c ---- */

/* Once in a process, before the next one: draws what its hashes depend on.  False: there are no random numbers. */
extern bool kv_mc_hash_begin(void);
/* Of a key of up to KV_MC_MAX_KEY bytes, for this process alone. */
extern uint32 kv_mc_hash(const char *key, int length);
/* A turn begins to write. */
extern void kv_mc_begin_writes(void);
/* Was a key of this hash written in the last few turns, so that sessions may be waiting for its row?  Notes that it is. */
extern bool kv_mc_was_written(uint32 hash);

/* ---- commit.c ---- */
/* Begin a transaction, now: that of a process which no client sends statements begins else when its last one did. */
extern void kv_mc_begin(void);
/* In a PG_CATCH: report the error in the log, where one of a kind per second is enough. */
extern void kv_mc_log_error(const ErrorData *edata);
/* Commit; if something was written, as the mode says, and the process ends if it was told to (M 1). */
extern void kv_mc_commit_as(KvMcCommit mode, bool wrote);
/* Commit, on this server's device; synchronous standbys are not waited for. */
extern void kv_mc_commit_here(void);
/* The WAL that replies in mode "drain" have run ahead of, or 0. */
extern XLogRecPtr kv_mc_unflushed;
extern void kv_mc_flush_wal(void);

/* ---- empty.c: flush_all ---- */

/* False: it cannot have its tables now, and the connection was parked. */
extern bool kv_mc_do_flush(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);
/* This process is the one that empties tables; false: another one is. */
extern bool kv_mc_empty_begin(void);
extern void kv_mc_empty_over(void);	/* … it is done, or given up */
/* The connection is closed, or goes on with this request: a flush_all of it that waits, and is another, is given up. */
extern void kv_mc_empty_leave(const KvMcConnection *conn, const KvMcRequest *request);
/* Other processes are to leave the table alone, until it is over. */
extern void kv_mc_empty_mark(Oid relid);
extern bool kv_mc_empty_wants(Oid relid);	/* another process has marked it */
/*
 * NULL, or an error.  *done: the tables were there to be had, and no error came.  *upto: NULL, or set to what synchronous
 * standbys have yet to have of it, or to invalid; else they are waited for.
 */
extern const char *kv_mc_empty_tables(Oid role, bool *done, XLogRecPtr *upto);
/* Those with a delay that are noted, due or not; a place is free whose due is 0. */
extern void kv_mc_empty_noted(KvMcLater noted[KV_MC_MAX_LATER]);
extern void kv_mc_empty_done(const KvMcLater *done);
/* After an ERROR: what has happened, in static memory; the transaction is rolled back. */
extern const char *kv_mc_roll_back(void);

/* ---- auth.c ---- */

/* A request that is a transaction of its own. */
extern void kv_mc_do_auth(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);

/* ---- stat.c ---- */

extern uint64 kv_mc_counts[KV_MC_COUNTERS];	/* of this process; published now and then */
/* Set them to 0 if a reset has come since: before anything is counted that came after it. */
extern void kv_mc_heed_reset(void);
/* Let others see them, likewise. */
extern void kv_mc_publish(void);
/* Count a request by its outcome. */
extern void kv_mc_count_reply(const KvMcRequest *request, const KvMcReply *reply);
/* The lines of the answer to a request for statistics; reply is then for its end. */
extern void kv_mc_tell_stats(KvMcConnection *conn, const KvMcRequest *request, KvMcReply *reply);

/* ---- worker.c ---- */
/*
 * In a transaction: FATAL if clients would be superusers without a password, as a role that may do
 * everything is nothing to give to whoever connects; or if this process's role was dropped or has
 * another name.  It starts again with the role that has the name then, if there is one.
 */
extern void kv_mc_check_role(void);
/* Settings that a role or database must not change for these processes. */
extern void kv_mc_set_options(void);
/* The process; arg is its number.  Does not return. */
extern PGDLLEXPORT void kv_memcached_main(Datum arg);
extern const char kv_mc_version[];
/* Print a reply for its connection. */
extern void kv_mc_answer(KvMcConnection *conn, const KvMcRequest *request, const KvMcReply *reply);

#endif							/* KV_MEMCACHED_INTERNAL_H */
