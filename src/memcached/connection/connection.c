/*
 * connection.c
 *		Connections: input, output, and the memory for both.
 *
 * Input.  A connection that is not in the middle of a request has no buffers.  While its client
 * does not read its replies, nothing more is read from it.  A small buffer can always be had.
 * When the memory for all connections is used up, only one of those that need a larger buffer
 * is read: the favoured one.  Else many clients, each with half of a large value, would wait
 * for each other (M 5).  A value that was announced gets all of its memory at once only while
 * half of the memory is free; else its buffer grows with the bytes that arrive.  While other
 * clients wait for memory, a client that sends none of the rest for a tenth of its time-out is
 * disconnected.
 *
 * Output.  When unread replies fill half of the memory, no request is executed for clients that
 * did not take their last replies at once.  Other clients get no more than their sockets
 * accept.  A value for which there is no memory waits until there is; after a tenth of the
 * time-out the other connections leave the memory to it.  A value that could never be sent is
 * an error.  While other clients wait, a client that has read nothing for a tenth of its
 * time-out is disconnected.  If replies fill all of the memory nevertheless, the client is
 * disconnected that has read none for the longest time.
 */
#include "memcached/connection/connection.h"
#include "memcached/connection/wait.h"

#include "clock.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "utils/memutils.h"

#define SPARE_BUFFERS	64		/* of that size: each request takes one and returns it */
#define LEAST_ROOM		((size_t) 4 * 1024) /* for one read */
#define MAX_ACCEPTED	64		/* at once */
#define MOST_DATAGRAMS	64		/* whose requests are not executed yet */
#define SAID_ROOM		((size_t) 64 * 1024)
#define SAID_PIECES		256		/* for two of each of 100 large values */
#define SAID_COPIED		((size_t) 4096) /* shorter pieces are copied */
#define MOST_SAID		((Size) 1024 * 1024)	/* of values, for one client in a batch */
#define SAID_SMALL		((Size) 1024)	/* so many bytes do not matter */

dlist_head	kv_mc_connections = DLIST_STATIC_INIT(kv_mc_connections);
dlist_head	kv_mc_working = DLIST_STATIC_INIT(kv_mc_working);
int			kv_mc_nconnections = 0;
dlist_head	kv_mc_held = DLIST_STATIC_INIT(kv_mc_held);
int			kv_mc_nheld = 0;

static int	epoll = -1;
static int	most_connections;
static int	ndatagrams = 0;		/* of kv_mc_nconnections, those that are datagrams */
static MemoryContext context;
static size_t in_memory = 0;	/* bytes of all input buffers */
static size_t out_memory = 0;	/* bytes of all output buffers */
static char *spare[SPARE_BUFFERS];	/* free buffers */
static int	nspare = 0;
static KvMcConnection *favoured = NULL;
/* the connection whose value has waited for memory for long: the others leave it to this one */
static KvMcConnection *next_to_send = NULL;
static bool some_starve = false;	/* some connection is starved */
static bool room_made = false;	/* there may be memory for it now */
static dlist_head closed = DLIST_STATIC_INIT(closed);	/* events of these may still come */

/* Pieces for one connection that are not sent yet. */
static struct
{
	struct iovec pieces[SAID_PIECES];
	int			npieces;
	char		copied[SAID_ROOM];
	size_t		used;
} said;

void
kv_mc_connections_init(int epoll_fd, int most)
{
	epoll = epoll_fd;
	most_connections = most;
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw memcached connections",
									ALLOCSET_DEFAULT_SIZES);
}

/* ---- buffers ---- */

static void
count_memory(KvMcBuffer *buffer, ssize_t change)
{
	*(buffer->sends ? &out_memory : &in_memory) += change;
	pg_atomic_write_u64(&kv_mc_me->memory, in_memory + out_memory);
}

static size_t
most_memory(void)
{
	return (size_t) kv_mc_memory_kb * 1024;
}

/* Do unread replies fill half of their memory? */
static bool
is_short(void)
{
	return out_memory > most_memory() / 2;
}

Size
kv_mc_reply_room(void)
{
	return most_memory() / 2 - Min(out_memory, most_memory() / 2);
}

/*
 * Is there no memory for so many bytes more, in addition to unread replies and to the value of
 * another connection that waits?
 */
static bool
is_too_much(const KvMcConnection *conn, Size bytes)
{
	if (next_to_send != NULL && next_to_send != conn)
		bytes += next_to_send->wants;
	return out_memory > 0 && out_memory + bytes > most_memory();
}

bool
kv_mc_must_wait(const KvMcConnection *conn)
{
	return (conn->slow && is_short()) || (conn->wants > 0 && is_too_much(conn, conn->wants));
}

bool
kv_mc_fits(Size value)
{
	return value <= most_memory();
}

/* Bytes that its socket surely accepts. */
static Size
socket_room(const KvMcConnection *conn)
{
	int			size = 0;
	int			queued = 0;
	socklen_t	length = sizeof(size);

	if (getsockopt(conn->fd, SOL_SOCKET, SO_SNDBUF, &size, &length) != 0 ||
		ioctl(conn->fd, SIOCOUTQ, &queued) != 0 || queued > size / 2)
		return 0;
	return size / 2 - queued;
}

bool
kv_mc_takes(KvMcConnection *conn, Size said, Size more, bool held)
{
	if (conn->datagram != NULL || (!is_short() && !is_too_much(conn, said + more)))
		return said == 0 || said + more <= MOST_SAID;
	if (said + more <= SAID_SMALL || (!held && said + more <= socket_room(conn)))
		return true;
	if (said == 0)
	{
		conn->slow |= is_short();
		if (conn->wants == 0)
			conn->wants_since = kv_clock();
		conn->wants = more;
	}
	return false;
}

void
kv_mc_send_next(KvMcConnection *conn)
{
	if (next_to_send == NULL)
		next_to_send = conn;
}

void
kv_mc_wants_nothing(KvMcConnection *conn)
{
	conn->wants = 0;
	if (next_to_send == conn)
		next_to_send = NULL;
}

static bool
may_have(KvMcConnection *conn, size_t more)
{
	if (in_memory + more <= most_memory())
		return true;
	if (favoured == NULL)
		favoured = conn;
	return favoured == conn;
}

/* Returns NULL if there is no memory. */
static char *
take_bytes(size_t size)
{
	if (size == KV_MC_FIRST_BUFFER && nspare > 0)
		return spare[--nspare];
	return MemoryContextAllocExtended(context, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
}

static void
give_bytes(char *data, size_t size)
{
	if (size == KV_MC_FIRST_BUFFER && nspare < SPARE_BUFFERS)
		spare[nspare++] = data;
	else if (data != NULL)
		pfree(data);
}

static void
free_buffer(KvMcBuffer *buffer)
{
	give_bytes(buffer->data, buffer->size);
	count_memory(buffer, -(ssize_t) buffer->size);
	buffer->data = NULL;
	buffer->size = buffer->begin = buffer->end = 0;
	room_made = some_starve;
}

/*
 * Move the buffer's content to its front, or into a larger buffer if it must hold so many
 * bytes.
 */
static bool
make_room(KvMcBuffer *buffer, size_t size)
{
	size_t		used = kv_mc_pending(buffer);

	if (size > buffer->size)
	{
		char	   *data = take_bytes(size);

		if (data == NULL)
			return false;
		if (used > 0)
			memcpy(data, buffer->data + buffer->begin, used);
		give_bytes(buffer->data, buffer->size);
		count_memory(buffer, (ssize_t) size - (ssize_t) buffer->size);
		buffer->data = data;
		buffer->size = size;
	}
	else if (buffer->begin > 0 && used > 0)
		memmove(buffer->data, buffer->data + buffer->begin, used);
	buffer->begin = 0;
	buffer->end = used;
	return true;
}

/* ---- replies in datagrams ---- */

/*
 * A datagram has a head of four 16-bit numbers, the first byte the higher one: the client's
 * number of the request, the datagram's own number, how many there are, and 0.  A long reply
 * has several datagrams, up to MOST_SENT.
 */

#define MOST_SENT		64		/* datagrams of a reply */
#define SENT_SIZE		1400

static void
send_piece(const KvMcConnection *conn, int number, int total, const char *data, size_t length)
{
	const KvMcDatagram *to = conn->datagram;
	char		piece[KV_MC_DATAGRAM_HEAD + SENT_SIZE] = {
		to->request[0], to->request[1], (char) (number >> 8), (char) number,
		(char) (total >> 8), (char) total
	};

	memcpy(piece + KV_MC_DATAGRAM_HEAD, data, length);
	/* what the socket does not accept is lost, as datagrams may be */
	if (sendto(conn->fd, piece, KV_MC_DATAGRAM_HEAD + length, MSG_NOSIGNAL | MSG_DONTWAIT,
			   (const struct sockaddr *) &to->sender, to->sender_length) > 0)
		kv_mc_counts[KV_MC_COUNT_BYTES_OUT] += KV_MC_DATAGRAM_HEAD + length;
}

/* Do so many bytes fit into the datagrams of a reply? */
static bool
fits_in_datagrams(size_t length)
{
	return length <= (size_t) MOST_SENT * SENT_SIZE;
}

/* Send the replies to a datagram's requests, all at once. */
static void
send_datagrams(KvMcConnection *conn)
{
	static const char too_large[] = "SERVER_ERROR reply is too large for datagrams\r\n";
	const char *data = conn->out.data + conn->out.begin;
	size_t		length = kv_mc_pending(&conn->out);
	int			total;

	if (conn->too_much)
	{
		data = too_large;
		length = conn->stream.protocol == KV_MC_TEXT ? sizeof(too_large) - 1 : 0;
	}
	total = (length + SENT_SIZE - 1) / SENT_SIZE;
	for (int i = 0; i < total; i++)
		send_piece(conn, i, total, data + (size_t) i * SENT_SIZE,
				   Min(length - (size_t) i * SENT_SIZE, SENT_SIZE));
}

/* ---- coming and going ---- */

void
kv_mc_unhold(KvMcConnection *conn)
{
	if (conn->held_upto == InvalidXLogRecPtr)
		return;
	dlist_delete(&conn->held_node);
	conn->held_upto = InvalidXLogRecPtr;
	kv_mc_nheld--;
}

static int
connections_of_all(void)
{
	int			n = 0;

	for (int i = 0; i < KV_MC_MAX_WORKERS; i++)
		n += pg_atomic_read_u32(&kv_mc_shared->workers[i].connections);
	return n;
}

static void
add_connection(int fd, const struct sockaddr *address)
{
	KvMcConnection *conn = MemoryContextAllocZero(context, sizeof(KvMcConnection));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};

	conn->fd = fd;
	conn->out.sends = true;
	conn->events = EPOLLIN;
	conn->active = conn->made = kv_clock();
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
	{
		close(fd);
		pfree(conn);
		return;
	}
	dlist_push_tail(&kv_mc_connections, &conn->node);
	kv_mc_nconnections++;
	conn->client = kv_mc_client_add(address);
	kv_mc_counts[KV_MC_COUNT_CONNECTIONS]++;
	pg_atomic_write_u32(&kv_mc_me->connections, kv_mc_nconnections - ndatagrams);
}

static void
close_connection(KvMcConnection *conn)
{
	kv_mc_set_working(conn, false);
	free_buffer(&conn->in);
	free_buffer(&conn->out);
	if (favoured == conn)
		favoured = NULL;
	kv_mc_wants_nothing(conn);
	kv_mc_empty_leave(conn, NULL);
	kv_mc_unhold(conn);
	kv_mc_client_remove(conn->client);
	if (conn->datagram == NULL)
		close(conn->fd);
	else
	{
		pfree(conn->datagram);
		ndatagrams--;
	}
	conn->fd = -1;
	dlist_delete(&conn->node);
	dlist_push_tail(&closed, &conn->node);
	kv_mc_nconnections--;
	pg_atomic_write_u32(&kv_mc_me->connections, kv_mc_nconnections - ndatagrams);
}

void
kv_mc_add_datagram(int fd, const KvMcDatagram *from, const char *data, size_t length)
{
	KvMcConnection *conn;

	if (in_memory + length > most_memory() || ndatagrams >= MOST_DATAGRAMS)
		return;					/* the datagram is lost, as datagrams may be */
	conn = MemoryContextAllocZero(context, sizeof(KvMcConnection));
	conn->fd = fd;
	conn->out.sends = true;
	conn->eof = true;
	conn->active = conn->made = kv_clock();
	conn->datagram = MemoryContextAlloc(context, sizeof(KvMcDatagram));
	*conn->datagram = *from;
	dlist_push_tail(&kv_mc_connections, &conn->node);
	kv_mc_nconnections++;
	ndatagrams++;
	if (!make_room(&conn->in, length))
	{
		close_connection(conn);
		return;
	}
	memcpy(conn->in.data, data, length);
	conn->in.end = length;
	kv_mc_set_working(conn, true);
}

bool
kv_mc_accept(int listener)
{
	static const char full[] = "ERROR Too many open connections\r\n";
	int			one = 1;

	for (int i = 0; i < MAX_ACCEPTED; i++)
	{
		struct sockaddr_storage address = {0};
		socklen_t	length = sizeof(address);
		int			fd = accept4(listener, (struct sockaddr *) &address, &length,
								 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)		/* no connection, or it is gone, or no descriptor: the loop tries again */
			return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
		if (kv_mc_nconnections - ndatagrams >= most_connections ||
			connections_of_all() >= kv_mc_max_connections)
		{
			kv_mc_counts[KV_MC_COUNT_REJECTED]++;
			(void) send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
			close(fd);
			continue;
		}
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		(void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
		add_connection(fd, (struct sockaddr *) &address);
	}
	return true;
}

void
kv_mc_forget_closed(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &closed)
	{
		dlist_delete(iter.cur);
		pfree(dlist_container(KvMcConnection, node, iter.cur));
	}
}

void
kv_mc_close_all(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &kv_mc_connections)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, node, iter.cur);

		if (!conn->dead && kv_mc_pending(&conn->out) > 0 && !kv_mc_is_held(conn))
			kv_mc_send_rest(conn);
		close_connection(conn);
	}
}

void
kv_mc_set_working(KvMcConnection *conn, bool working)
{
	if (working && !conn->working)
		dlist_push_tail(&kv_mc_working, &conn->work_node);
	else if (!working && conn->working)
		dlist_delete(&conn->work_node);
	conn->working = working;
}

void
kv_mc_last_in_line(KvMcConnection *conn)
{
	dlist_delete(&conn->work_node);
	dlist_push_tail(&kv_mc_working, &conn->work_node);
}

void
kv_mc_first_in_line(KvMcConnection *conn)
{
	dlist_delete(&conn->work_node);
	dlist_push_head(&kv_mc_working, &conn->work_node);
}

bool
kv_mc_is_held(const KvMcConnection *conn)
{
	return conn->hold_until != 0 || conn->held_upto != InvalidXLogRecPtr;
}

/* The events that epoll is to report. */
static uint32
wanted_events(const KvMcConnection *conn)
{
	if (kv_mc_pending(&conn->out) > 0 && !kv_mc_is_held(conn))
		return EPOLLOUT;
	/*
	 * unchanged: mostly the input will be processed in a moment, or nothing comes before the
	 * held replies; kv_mc_mute handles the rest
	 */
	if (conn->hold_until == 0 &&
		(conn->working || (kv_mc_pending(&conn->out) > 0 && !conn->eof && !conn->starved)))
		return conn->events & EPOLLIN;
	if (kv_mc_pending(&conn->out) > 0)
		return 0;
	return !conn->eof && !conn->working && !conn->starved && conn->hold_until == 0 ? EPOLLIN : 0;
}

static bool
set_events(KvMcConnection *conn, uint32 events)
{
	struct epoll_event event = {.events = events, .data.ptr = conn};

	if (events == conn->events)
		return true;
	conn->events = events;
	return epoll_ctl(epoll, EPOLL_CTL_MOD, conn->fd, &event) == 0;
}

void
kv_mc_mute(KvMcConnection *conn)
{
	if (conn->datagram == NULL && !set_events(conn, 0))
		conn->dead = true;
}

bool
kv_mc_connection_watch(KvMcConnection *conn)
{
	bool		sending = kv_mc_pending(&conn->out) > 0 || conn->too_much;
	bool		done = conn->closing || (conn->eof && !conn->working && conn->hold_until == 0);

	if (conn->fd < 0)
		return false;
	if (conn->datagram != NULL && done && sending && !kv_mc_is_held(conn))
	{
		send_datagrams(conn);
		sending = false;
	}
	if (conn->dead || (done && !sending))
	{
		close_connection(conn);
		return false;
	}
	if (conn->datagram != NULL)
		return true;
	kv_mc_client_update(conn);
	if (!set_events(conn, wanted_events(conn)))
	{
		close_connection(conn);
		return false;
	}
	return true;
}

/* ---- in ---- */

/*
 * Make room to read what is needed, at least a little; false: there is no memory now.  Of the
 * bytes that are announced, only as many get memory as have arrived, so that an announcement
 * alone costs others little.
 */
static bool
room_to_read(KvMcConnection *conn)
{
	KvMcBuffer *in = &conn->in;
	size_t		size = in->size;
	size_t		used = kv_mc_pending(in);

	if (size - in->end >= LEAST_ROOM && size - in->begin >= conn->needed)
		return true;
	if (size == 0)
		size = KV_MC_FIRST_BUFFER;
	if (conn->needed > size)
	{
		if (in_memory + conn->needed - in->size <= most_memory() / 2)
			size = conn->needed;
		else if (size - used < LEAST_ROOM)
			size = Min(2 * size, conn->needed);
	}
	else if (size - used < LEAST_ROOM && conn->needed <= used)
		size *= 2;
	if (size > in->size && size > KV_MC_FIRST_BUFFER && !may_have(conn, size - in->size))
		return false;
	return make_room(in, size) && in->end < in->size;
}

void
kv_mc_read(KvMcConnection *conn)
{
	ssize_t		got;

	conn->starved = !room_to_read(conn);
	if (conn->starved)
	{
		some_starve = true;
		return;
	}
	got = recv(conn->fd, conn->in.data + conn->in.end, conn->in.size - conn->in.end, 0);
	if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		conn->dead = true;
	if (got == 0)
		conn->eof = true;
	if (got > 0)
	{
		conn->in.end += got;
		conn->active = kv_clock();
		conn->moved += got;
		kv_mc_counts[KV_MC_COUNT_BYTES_IN] += got;
		kv_mc_set_working(conn, kv_mc_pending(&conn->in) >= conn->needed);
	}
	else
		kv_mc_consume(conn, 0);
}

void
kv_mc_consume(KvMcConnection *conn, size_t bytes)
{
	conn->in.begin += bytes;
	Assert(conn->in.begin <= conn->in.end);
	if (kv_mc_pending(&conn->in) > 0)
		return;
	if (favoured == conn)
		favoured = NULL;
	free_buffer(&conn->in);
}

void
kv_mc_feed_starved(void)
{
	dlist_mutable_iter iter;

	if (!room_made)
		return;
	some_starve = room_made = false;
	dlist_foreach_modify(iter, &kv_mc_connections)
	{
		KvMcConnection *conn = dlist_container(KvMcConnection, node, iter.cur);

		if (conn->starved)
		{
			conn->starved = false;
			(void) kv_mc_connection_watch(conn);
		}
	}
}

/* ---- out ---- */

/* Make room for what is to be kept, and hardly more, because it counts. */
static void
make_room_to_keep(KvMcConnection *conn, size_t length)
{
	KvMcBuffer *out = &conn->out;
	size_t		size = kv_mc_pending(out) + length;

	if (length > 0 && out->size - out->end < length &&
		!make_room(out, (size + KV_MC_FIRST_BUFFER - 1) / KV_MC_FIRST_BUFFER * KV_MC_FIRST_BUFFER))
		conn->dead = true;
}

/* Keep bytes that the socket does not accept now. */
static void
keep(KvMcConnection *conn, const char *data, size_t length)
{
	KvMcBuffer *out = &conn->out;

	if (conn->dead || length == 0)
		return;
	memcpy(out->data + out->end, data, length);
	out->end += length;
}

static void
add_piece(const char *data, size_t length)
{
	said.pieces[said.npieces].iov_base = unconstify(char *, data);
	said.pieces[said.npieces++].iov_len = length;
}

/* Add the bytes that were just copied to the end of the copied pieces. */
static void
add_copied(size_t length)
{
	struct iovec *last = said.npieces > 0 ? &said.pieces[said.npieces - 1] : NULL;
	const char *data = said.copied + said.used;

	said.used += length;
	if (last != NULL && (char *) last->iov_base + last->iov_len == data)
		last->iov_len += length;
	else if (length > 0)
		add_piece(data, length);
}

void
kv_mc_tell(KvMcConnection *conn, const char *data, size_t length)
{
	bool		copied = length < SAID_COPIED;

	if (length == 0)
		return;
	if (said.npieces == SAID_PIECES || (copied && SAID_ROOM - said.used < length))
		kv_mc_send(conn);
	if (!copied)
	{
		add_piece(data, length);
		return;
	}
	memcpy(said.copied + said.used, data, length);
	add_copied(length);
}

/* Return memory for the head of a reply, of up to KV_MC_HEAD_SIZE bytes. */
static char *
say_head(KvMcConnection *conn)
{
	if (said.npieces == SAID_PIECES || SAID_ROOM - said.used < KV_MC_HEAD_SIZE)
		kv_mc_send(conn);
	return said.copied + said.used;
}

/* Add a reply whose head is in that memory. */
static void
tell_pieces(KvMcConnection *conn, const KvMcPieces *pieces)
{
	size_t		length = pieces->head_length + pieces->value_length + pieces->tail_length;
	char       *after = said.copied + said.used + pieces->head_length;

	Assert(pieces->head_length == 0 || pieces->head == said.copied + said.used);
	if (length < SAID_COPIED && length <= SAID_ROOM - said.used)
	{
		if (pieces->value_length > 0)
			memcpy(after, pieces->value, pieces->value_length);
		if (pieces->tail_length > 0)
			memcpy(after + pieces->value_length, pieces->tail, pieces->tail_length);
		add_copied(length);
		return;
	}
	add_copied(pieces->head_length);
	kv_mc_tell(conn, pieces->value, pieces->value_length);
	kv_mc_tell(conn, pieces->tail, pieces->tail_length);
}

void
kv_mc_answer(KvMcConnection *conn, const KvMcRequest *request, const KvMcReply *reply)
{
	KvMcPieces	pieces;

	kv_mc_print(request, reply, &conn->silenced, say_head(conn), &pieces);
	tell_pieces(conn, &pieces);
}

/* How many bytes of an attempt to send count as sent? */
static size_t
sent(KvMcConnection *conn, ssize_t result)
{
	if (result >= 0)
	{
		conn->active = kv_clock();
		conn->sent += result;
		kv_mc_counts[KV_MC_COUNT_BYTES_OUT] += result;
		return result;
	}
	if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		conn->dead = true;
	return 0;
}

void
kv_mc_send(KvMcConnection *conn)
{
	struct msghdr message = {.msg_iov = said.pieces, .msg_iovlen = said.npieces};
	size_t		done = 0;
	size_t		length = 0;

	if (said.npieces > 0 && !conn->dead && kv_mc_pending(&conn->out) == 0 && !kv_mc_is_held(conn) &&
		conn->datagram == NULL)
		done = sent(conn, sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
	for (int i = 0; i < said.npieces; i++)
		length += said.pieces[i].iov_len;
	if (conn->datagram != NULL && !fits_in_datagrams(kv_mc_pending(&conn->out) + length))
	{
		conn->too_much = true;
		free_buffer(&conn->out);
	}
	if (conn->too_much)
		said.npieces = 0;
	else
		make_room_to_keep(conn, length - done);
	for (int i = 0; i < said.npieces; i++)
	{
		size_t		skip = Min(done, said.pieces[i].iov_len);

		done -= skip;
		keep(conn, (char *) said.pieces[i].iov_base + skip, said.pieces[i].iov_len - skip);
	}
	said.npieces = 0;
	said.used = 0;
	conn->slow = conn->datagram == NULL && kv_mc_pending(&conn->out) > 0 && !kv_mc_is_held(conn);
}

void
kv_mc_send_rest(KvMcConnection *conn)
{
	KvMcBuffer *out = &conn->out;

	if (conn->datagram != NULL)
		return;					/* kv_mc_connection_watch sends them, when all are there */
	out->begin += sent(conn, send(conn->fd, out->data + out->begin, kv_mc_pending(out),
								  MSG_NOSIGNAL | MSG_DONTWAIT));
	if (kv_mc_pending(out) == 0)
		free_buffer(out);
	else
		conn->slow = true;
}

void
kv_mc_drop_stalled(void)
{
	/* a reply has some bytes more than its value, and is kept in whole buffers */
	while (out_memory > most_memory() + 2 * KV_MC_FIRST_BUFFER)
	{
		KvMcConnection *stalled = NULL;
		dlist_iter	iter;

		dlist_foreach(iter, &kv_mc_connections)
		{
			KvMcConnection *conn = dlist_container(KvMcConnection, node, iter.cur);

			if (conn->out.size > 0 && !kv_mc_is_held(conn) &&
				(stalled == NULL || conn->active < stalled->active))
				stalled = conn;
		}
		if (stalled == NULL)
			return;
		kv_mc_counts[KV_MC_COUNT_DROPPED]++;
		close_connection(stalled);
	}
}
