/*
 * connection.h
 *		Clients of a process: sockets, buffers, and what is in the way of their requests.
 *
 * A connection is in the midst of one request at most; what it has sent behind that is in
 * its buffer.  One that is closed is freed later (kv_mc_forget_closed), when no event of its
 * own can come any more.  Memory is bounded (M 5).  Nothing here waits for a client (M 2):
 * kv_mc_linger and kv_mc_wait_for_writers wait a millisecond at most, and only kv_mc_held_end,
 * and kv_mc_held_look where the flusher does not run, for the WAL.
 */
#ifndef KV_MEMCACHED_CONNECTION_H
#define KV_MEMCACHED_CONNECTION_H

#include "postgres.h"

#include <sys/socket.h>

#include "lib/ilist.h"

#include "memcached/process/process.h"

/* ---- connection.c ---- */

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
	/* since then the client was waited for, each time that was looked; 0: it is not */
	TimestampTz waits_since;
	uint64		waits_moved;	/* … with so many bytes moved, … */
	uint64		waits_requests; /* … and requests answered, before */
	bool		slow;			/* it did not take its last replies at once */
	/* bytes of a value that waits for room beside others' replies; 0: none */
	Size		wants;
	TimestampTz wants_since;	/* … since then */
	bool		passed_over;	/* nothing was done for it in this batch, for want of room */
	TimestampTz made;
	uint64		requests;		/* that were answered */
	struct KvMcClient *client;	/* what others see of it; NULL: nothing */
	/* UDP: the replies are more than datagrams may have; the rest is dropped */
	bool		too_much;
	KvMcDatagram *datagram;		/* UDP: whom to answer; NULL: it is a connection */

	/* parked */
	KvMcObstacle obstacle;
	TransactionId waits_for;	/* of ROW_LOCKED */
	TimestampTz parked_since;	/* that its next request could not be done; 0: it was not tried */
	TimestampTz retry_at;
	int			retry_us;

	/* this batch */
	bool		gathered;		/* its requests are in the batch, … */
	bool		writes;			/* … and one of them may write */
	int			cut;			/* its requests from this one on are for later */
	int			suspect;		/* … and those from this one on are done one by one */
	size_t		parsed;			/* bytes of input that the batch's requests are made of */
	bool		silenced;		/* kv_mc_print's */
} KvMcConnection;

extern dlist_head kv_mc_connections;
extern dlist_head kv_mc_working;
extern int	kv_mc_nconnections;
extern dlist_head kv_mc_held;	/* whose replies wait for the WAL, in the order of their LSNs */
extern int	kv_mc_nheld;
/* Once, before there are any: they are added to this epoll set, so many at most. */
extern void kv_mc_connections_init(int epoll_fd, int most);
/*
 * Take those that wait at a listening socket; too many are told so and closed. False: no
 * descriptors.
 */
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
/*
 * Where the head of a reply is to be printed, of up to KV_MC_HEAD_SIZE bytes; then the reply, with
 * that head.
 */
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
extern bool kv_mc_connection_watch(KvMcConnection *conn);
/* Once a second: who takes nothing, sends half a request or nothing goes. */
extern void kv_mc_sweep(TimestampTz now);
extern void kv_mc_close_all(void);
extern void kv_mc_forget_closed(void);	/* no event of theirs is to be looked at any more */
/* So many bytes of replies that are not taken have room, without anybody having to wait. */
extern Size kv_mc_reply_room(void);
/*
 * May so many bytes more be said to the client in this batch? If not, and none were, it must wait.
 * held: they will be kept until the WAL is flushed, whatever its socket takes.
 */
extern bool kv_mc_takes(KvMcConnection *conn, Size said, Size more, bool held);
/* Can a value be sent at all, with all of the memory? */
extern bool kv_mc_fits(Size value);
/* Nothing may be done for the client now, as there are many replies that nobody takes. */
extern bool kv_mc_must_wait(const KvMcConnection *conn);
/* Its replies are not to be sent yet. */
extern bool kv_mc_is_held(const KvMcConnection *conn);
/* They do not wait for the WAL any more. */
extern void kv_mc_unhold(KvMcConnection *conn);

static inline size_t
kv_mc_pending(const KvMcBuffer *buffer)
{
	return buffer->end - buffer->begin;
}

/* Its next request cannot be done now. */
static inline bool
kv_mc_is_parked(const KvMcConnection *conn)
{
	return conn->obstacle != KV_MC_NO_OBSTACLE;
}

/* ---- reply.c ---- */

/* Print a reply for its connection. */
extern void kv_mc_answer(KvMcConnection *conn, const KvMcRequest *request, const KvMcReply *reply);

/* ---- datagram.c: replies in datagrams ---- */

#define KV_MC_DATAGRAM_HEAD	8	/* bytes at the beginning of each */

/* Send the replies to a datagram's requests, all at once. */
extern void kv_mc_datagram_send(KvMcConnection *conn);
/* May there be so many bytes of them? */
extern bool kv_mc_datagram_fits(size_t length);

/* ---- udp.c: requests in datagrams ---- */

extern char kv_mc_udp_tag;		/* in place of a connection in events */
/* Makes the sockets, in the first process, and adds them to the epoll set. */
extern void kv_mc_udp_listen(int epoll_fd);
/* Takes what has come at them. */
extern void kv_mc_udp_read(void);

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

/* ---- park.c: requests that cannot be done now ---- */

/* some connection is parked, or nothing is done on it for a while */
extern bool kv_mc_any_waits;
/* The connection's next request cannot be done; false: not in time, *reply says so. */
extern bool kv_mc_park(KvMcConnection *conn, KvMcObstacle obstacle, TransactionId xid,
					   KvMcReply *reply);
/* Has its next request been tried so long ago? */
extern bool kv_mc_parked_for(const KvMcConnection *conn, int64 ms, TimestampTz now);
/* Something is to be done at this time. */
extern void kv_mc_wake_at(TimestampTz when);
/* Those whose obstacle may be gone are tried in the next batch. */
extern void kv_mc_wake(TimestampTz now);
/* So long nothing is to be tried; -1: nothing waits. */
extern long kv_mc_sleep_ms(TimestampTz now);

/* ---- held.c: replies that wait for the WAL ---- */

/*
 * Do replies to writes wait for the WAL in place of the process? for_all: there is no other client
 * than those of the batch and those who wait already.
 */
extern bool kv_mc_holds(bool for_all);
/* The connection's replies are kept until the WAL is on the device, and on standbys, so far. */
extern void kv_mc_hold(KvMcConnection *conn, XLogRecPtr upto);
/* Send what need not wait any more; idle: there is nothing else to do. */
extern void kv_mc_held_look(TimestampTz now, bool idle);
extern bool kv_mc_any_held(void);
/* How many connections are held and have no request in the batch that is being done? */
extern int	kv_mc_held_beside(void);
/*
 * A batch has flushed the WAL itself, so far, for so many connections, and began with that then:
 * send what is held for no more.
 */
extern void kv_mc_flushed(XLogRecPtr upto, int writers, TimestampTz since);
/* Wait a little for those who are about to write again; false: for nobody. */
extern bool kv_mc_linger(int epoll_fd, TimestampTz now);
/*
 * Likewise in a batch that began then and has writes of so many connections, if it has not been
 * waited in vain for so long (µs) that it is not worth while.
 */
extern bool kv_mc_wait_for_writers(int epoll_fd, int writing, TimestampTz began, int64 waited);
/* The process ends: send what may be. */
extern void kv_mc_held_end(void);

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
/* at the start of the server, zeroed memory follows KvMcShared */
extern void kv_mc_clients_init(void);
/* NULL: there is no room. */
extern KvMcClient *kv_mc_client_add(const struct sockaddr *address);
extern void kv_mc_client_update(const KvMcConnection *conn);
extern void kv_mc_client_remove(KvMcClient *client);
extern void kv_mc_clients_leave(void);	/* this process has none any more */

#endif							/* KV_MEMCACHED_CONNECTION_H */
