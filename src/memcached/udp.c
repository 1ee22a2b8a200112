/*
 * udp.c
 *		Requests in datagrams, of clients on this machine.
 *
 * Off by default, and never beyond the loopback addresses: an address of a sender proves
 * nothing, and who forges one would have replies sent to others that are larger than his
 * requests.  There is no authentication, so with passwords there are no datagrams.
 *
 * A datagram has a head of four 16-bit numbers, the first byte the higher one: the client's
 * number of the request, the datagram's own number, how many there are, and 0.  Requests
 * have one datagram; replies have several if need be, up to MOST_SENT.  A datagram is served as a
 * connection on which nothing more comes, and that ends with its reply.  The first process
 * has the sockets.
 */
#include "memcached/internal.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_RECEIVED	64		/* at once */
#define MOST_SENT		64		/* datagrams of a reply */
#define SENT_SIZE		1400
#define HEAD_SIZE		8

char		kv_mc_udp_tag;

static int	sockets[2] = {-1, -1};
static char received[65536];

static void
listen_on(int i, const struct sockaddr *address, socklen_t length, int epoll_fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &kv_mc_udp_tag};
	int			one = 1;
	int			fd = socket(address->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;					/* this machine may lack the family */
	if ((address->sa_family == AF_INET6 &&
		 setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) != 0) ||
		bind(fd, address, length) != 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
	{
		ereport(LOG,
				(errcode_for_socket_access(),
				 errmsg("could not take datagrams of memcached's clients at port %d: %m", kv_mc_udp_port)));
		close(fd);
		return;
	}
	sockets[i] = fd;
}

void
kv_mc_udp_listen(int epoll_fd)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(kv_mc_udp_port),
	.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(kv_mc_udp_port),
	.sin6_addr = IN6ADDR_LOOPBACK_INIT};

	if (kv_mc_udp_port == 0 || kv_mc_my_number != 0)
		return;
	if (kv_mc_auth != KV_MC_AUTH_NONE)
	{
		ereport(LOG,
				(errmsg("no datagrams of memcached's clients are taken where they must authenticate"),
				 errhint("Set kvfdw.memcached_udp_port to 0.")));
		return;
	}
	listen_on(0, (struct sockaddr *) &four, sizeof(four), epoll_fd);
	listen_on(1, (struct sockaddr *) &six, sizeof(six), epoll_fd);
}

static void
send_piece(const KvMcConnection *conn, int number, int total, const char *data, size_t length)
{
	const KvMcDatagram *to = conn->datagram;
	char		piece[HEAD_SIZE + SENT_SIZE] = {
		to->request[0], to->request[1], (char) (number >> 8), (char) number,
		(char) (total >> 8), (char) total
	};

	memcpy(piece + HEAD_SIZE, data, length);
	/* what is not taken is lost, as datagrams may be */
	if (sendto(conn->fd, piece, HEAD_SIZE + length, MSG_NOSIGNAL | MSG_DONTWAIT,
			   (const struct sockaddr *) &to->sender, to->sender_length) > 0)
		kv_mc_counts[KV_MC_COUNT_BYTES_OUT] += HEAD_SIZE + length;
}

bool
kv_mc_udp_fits(size_t length)
{
	return length <= (size_t) MOST_SENT * SENT_SIZE;
}

void
kv_mc_udp_send(KvMcConnection *conn)
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

/* Take what has come at one socket. */
static void
receive(int fd)
{
	for (int i = 0; i < MOST_RECEIVED; i++)
	{
		KvMcDatagram from = {.sender_length = sizeof(from.sender)};
		ssize_t		got = recvfrom(fd, received, sizeof(received), MSG_DONTWAIT,
								   (struct sockaddr *) &from.sender, &from.sender_length);

		if (got < 0)
			return;
		kv_mc_counts[KV_MC_COUNT_BYTES_IN] += got;
		/* one of several, or none of ours */
		if (got <= HEAD_SIZE || received[2] != 0 || received[3] != 0 || received[4] != 0 || received[5] != 1)
			continue;
		memcpy(from.request, received, sizeof(from.request));
		kv_mc_add_datagram(fd, &from, received + HEAD_SIZE, got - HEAD_SIZE);
	}
}

void
kv_mc_udp_read(void)
{
	for (int i = 0; i < lengthof(sockets); i++)
	{
		if (sockets[i] >= 0)
			receive(sockets[i]);
	}
}
