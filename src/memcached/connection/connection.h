/*
 * connection.h
 *		Clients of a process: sockets, buffers, and the obstacles to their requests.
 *
 * A connection is in the middle of at most one request; later input is in its buffer.  A closed
 * connection is freed later (kv_mc_forget_closed), when no event of it can arrive any more.
 * Memory is bounded (M 5).
 *
 * Nothing here waits for a client (M 2).  Requests and replies that wait: wait.h.
 */
#ifndef KV_MEMCACHED_CONNECTION_H
#define KV_MEMCACHED_CONNECTION_H

#include "postgres.h"

#include <sys/socket.h>

#include "lib/ilist.h"

#include "memcached/process/process.h"

/* ---- connection.c ---- */

#define KV_MC_FIRST_BUFFER	((size_t) 16 * 1024)	/* the size with which buffers begin */

typedef struct KvMcBuffer
{
	char	   *data;			/* NULL: size is 0 */
	size_t		size;
	size_t		begin;			/* where its content begins */
	size_t		end;			/* where its content ends */
	bool		sends;			/* it has replies, not requests */
} KvMcBuffer;

/* Why a connection's next request cannot be done now. */
typedef enum KvMcObstacle
{
	KV_MC_NO_OBSTACLE,
	KV_MC_ROW_LOCKED,
	KV_MC_ROW_BUSY,				/* other transactions have changed it again and again */
	KV_MC_TABLE_BUSY,
	KV_MC_TABLE_CLOSED,			/* it is being recovered */
	KV_MC_NO_ROOM,
	KV_MC_FLUSHING				/* a flush_all cannot have its tables */
} KvMcObstacle;

/* The sender of a datagram's requests. */
typedef struct KvMcDatagram
{
	struct sockaddr_storage sender;
	socklen_t	sender_length;
	char		request[2];		/* its number */
} KvMcDatagram;

#define KV_MC_DATAGRAM_HEAD	8	/* bytes at the beginning of each datagram */

typedef struct KvMcConnection
{
	dlist_node	node;			/* in kv_mc_connections */
	dlist_node	work_node;		/* in kv_mc_working, if working */
	bool		working;
	int			fd;
	uint32		events;			/* that epoll is to report */
	KvMcStream	stream;
	KvMcBuffer	in;
	KvMcBuffer	out;
	size_t		needed;			/* bytes from in.begin on that the parser waits for */
	Oid			role;			/* whose privileges its requests have; InvalidOid: none yet */
	bool		eof;			/* the client sends nothing more */
	bool		closing;		/* to be closed when out is empty */
	bool		dead;			/* to be closed at once */
	bool		starved;		/* there was no memory to read into */
	TimestampTz active;			/* when something was last read or sent */
	bool		has_password;	/* its next request is a password that is to be verified */
	TimestampTz hold_until;		/* no request is executed before; 0: no hold */
	XLogRecPtr	held_upto;		/* its replies wait for this LSN; invalid: they do not */
	dlist_node	held_node;		/* in kv_mc_held, if its replies wait */
	uint64		moved;			/* bytes received, and sent and taken */
	uint64		sent;			/* bytes sent */
	uint64		taken;			/* bytes of them that the client had taken at the last look */
	/* since when each look found the process waiting for the client; 0: it does not wait */
	TimestampTz waits_since;
	uint64		waits_moved;	/* bytes that had been moved then */
	uint64		waits_requests; /* requests that had been answered then */
	bool		slow;			/* it did not take its last replies at once */
	/* bytes of a value that waits until there is memory for it; 0: no value waits */
	Size		wants;
	TimestampTz wants_since;	/* since when it waits */
	bool		passed_over;	/* no request of it was executed in this batch, because memory
								 * was short */
	TimestampTz made;
	uint64		requests;		/* that were answered */
	struct KvMcClient *client;	/* its entry for SQL; NULL: it has none */
	/* UDP: the replies are more than the datagrams hold; the rest is dropped */
	bool		too_much;
	KvMcDatagram *datagram;		/* UDP: where replies are sent; NULL: it is a connection */

	/* parked */
	KvMcObstacle obstacle;
	TransactionId waits_for;	/* the transaction that ROW_LOCKED waits for */
	TimestampTz parked_since;	/* since when its next request could not be executed; 0: it was
								 * not tried */
	TimestampTz retry_at;
	int			retry_us;

	/* the current batch */
	bool		gathered;		/* its requests are in the batch */
	bool		writes;			/* one of them may write */
	int			cut;			/* its requests from this one on are postponed */
	int			suspect;		/* its requests from this one on are executed one by one */
	size_t		parsed;			/* bytes of input that the batch's requests are made of */
	bool		silenced;		/* kv_mc_print's */
} KvMcConnection;

extern dlist_head kv_mc_connections;
extern dlist_head kv_mc_working;
extern int	kv_mc_nconnections;
/*
 * Called once, before there are connections: they are added to this epoll set, so many at most.
 */
extern void kv_mc_connections_init(int epoll_fd, int most);
/*
 * Accept the connections that wait at a listening socket; surplus ones get an error and are
 * closed.  False: no file descriptor was free.
 */
extern bool kv_mc_accept(int listener);
/* Add the requests of a datagram that arrived at this socket; their bytes are copied. */
extern void kv_mc_add_datagram(int fd, const KvMcDatagram *from, const char *data, size_t length);
/* Read what the client has sent, if there is memory for it. */
extern void kv_mc_read(KvMcConnection *conn);
/* Read again from starved connections, if memory has become free. */
extern void kv_mc_feed_starved(void);
/* Drop the first bytes of the input, which have been processed. */
extern void kv_mc_consume(KvMcConnection *conn, size_t bytes);
extern void kv_mc_set_working(KvMcConnection *conn, bool working);
/* A working connection has had its share: put it last in the next batch. */
extern void kv_mc_last_in_line(KvMcConnection *conn);
/* A working connection was passed over: put it first in the next batch. */
extern void kv_mc_first_in_line(KvMcConnection *conn);
/* A request of the client was answered: no value of it waits any more. */
extern void kv_mc_wants_nothing(KvMcConnection *conn);
/* Its value has waited for memory for long: the others leave it to this one, if to none yet. */
extern void kv_mc_send_next(KvMcConnection *conn);
/* Add bytes for the client; pieces of 4 kB and more are not copied before kv_mc_send. */
extern void kv_mc_tell(KvMcConnection *conn, const char *data, size_t length);
/* Print a reply for its connection. */
extern void kv_mc_answer(KvMcConnection *conn, const KvMcRequest *request, const KvMcReply *reply);
/* Send what was added since the last call; bytes that the socket does not accept are kept. */
extern void kv_mc_send(KvMcConnection *conn);
/*
 * If the replies that clients do not read take too much memory, disconnect the client that has
 * read none for the longest time.
 */
extern void kv_mc_drop_stalled(void);
/* Send more of the kept replies. */
extern void kv_mc_send_rest(KvMcConnection *conn);
/* More input has arrived while the connection is working: stop epoll's reports of it for now. */
extern void kv_mc_mute(KvMcConnection *conn);
/* After any change: close the connection, or tell epoll what it waits for.  False: closed. */
extern bool kv_mc_connection_watch(KvMcConnection *conn);
extern void kv_mc_close_all(void);
extern void kv_mc_forget_closed(void);	/* called when no event of closed connections is left */
/* Bytes of unread replies for which there is memory without making any connection wait. */
extern Size kv_mc_reply_room(void);
/*
 * May so many bytes more be added for the client in this batch?  If not, and none were added
 * yet, the connection must wait.  held: the bytes will be kept until the WAL is flushed,
 * whatever the socket accepts.
 */
extern bool kv_mc_takes(KvMcConnection *conn, Size said, Size more, bool held);
/* Can a value be sent at all, if it gets all of the memory? */
extern bool kv_mc_fits(Size value);
/*
 * Is memory so short, because replies are not read, that no request of the client may be
 * executed?
 */
extern bool kv_mc_must_wait(const KvMcConnection *conn);
/* Do its replies wait for the WAL? */
extern bool kv_mc_is_held(const KvMcConnection *conn);
/* Its replies do not wait for the WAL any more. */
extern void kv_mc_unhold(KvMcConnection *conn);

static inline size_t
kv_mc_pending(const KvMcBuffer *buffer)
{
	return buffer->end - buffer->begin;
}

/* ---- listen.c: connections, and datagrams ---- */

/* Make this process's listening sockets and add them to the epoll set, with NULL as data. */
extern void kv_mc_listen_all(int epoll_fd);
/* Accept from all listening sockets; if no file descriptor is free, pause for a while. */
extern void kv_mc_accept_all(void);
extern bool kv_mc_listen_paused(void);
/* Listen again, if the pause is over. */
extern void kv_mc_listen_resume(TimestampTz now);
extern void kv_mc_listen_close(void);
/* How many connections this process can have. */
extern int	kv_mc_connection_room(void);

extern char kv_mc_udp_tag;		/* in place of a connection in epoll's events */
/* Make the sockets, in the first process, and add them to the epoll set. */
extern void kv_mc_udp_listen(int epoll_fd);
/* Read the datagrams that have arrived. */
extern void kv_mc_udp_read(void);

/* ---- client.c: connections as SQL sees them ---- */

/* One connection, in shared memory; written by its process. */
typedef struct KvMcClient
{
	pg_atomic_uint32 owner;		/* number of the process + 1; 0: the entry is free */
	Oid			role;
	char		address[64];
	int			state;
	TimestampTz made;
	TimestampTz active;
	uint64		requests;
	uint64		in_bytes;		/* received and not processed */
	uint64		out_bytes;		/* not sent yet */
} KvMcClient;

/* Bytes of shared memory for them. */
extern Size kv_mc_clients_size(void);
/* at the start of the server, zeroed memory follows KvMcShared */
extern void kv_mc_clients_init(void);
/* Returns NULL if there is no free entry. */
extern KvMcClient *kv_mc_client_add(const struct sockaddr *address);
extern void kv_mc_client_update(const KvMcConnection *conn);
extern void kv_mc_client_remove(KvMcClient *client);
extern void kv_mc_clients_leave(void);	/* frees all entries of this process */

#endif							/* KV_MEMCACHED_CONNECTION_H */
