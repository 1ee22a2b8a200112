/*
 * datagram.c
 *		Replies in datagrams.
 *
 * A datagram has a head of four 16-bit numbers, the first byte the higher one: the client's
 * number of the request, the datagram's own number, how many there are, and 0.  A long reply
 * has several datagrams, up to MOST_SENT.
 */
#include "memcached/connection/connection.h"

#include <sys/socket.h>

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

bool
kv_mc_datagram_fits(size_t length)
{
	return length <= (size_t) MOST_SENT * SENT_SIZE;
}

void
kv_mc_datagram_send(KvMcConnection *conn)
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
