/*
 * tlspipe.c
 *		A pipe to a PostgreSQL server over TLS: what is read at once is sent in one
 *		record, of up to 16 kB, which is twice the server's buffer.
 *
 * tlspipe ADDRESS PORT; ends with its input or the server.
 */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void
must(int right, const char *what)
{
	if (!right)
	{
		write(2, what, strlen(what));
		exit(1);
	}
}

int
main(int argc, char **argv)
{
	static const unsigned char request[8] = {0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f};
	static char buffer[16384];
	struct sockaddr_in address = {.sin_family = AF_INET};
	int			fd = socket(AF_INET, SOCK_STREAM, 0);
	SSL		   *ssl;
	char		answer;

	must(argc == 3, "usage: tlspipe ADDRESS PORT\n");
	address.sin_port = htons(atoi(argv[2]));
	must(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1, "no address\n");
	must(connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0, "cannot connect\n");
	must(write(fd, request, 8) == 8 && read(fd, &answer, 1) == 1 && answer == 'S', "no TLS\n");
	ssl = SSL_new(SSL_CTX_new(TLS_client_method()));
	SSL_set_fd(ssl, fd);
	must(SSL_connect(ssl) == 1, "no handshake\n");

	for (;;)
	{
		struct pollfd fds[2] = {{0, POLLIN, 0}, {fd, POLLIN, 0}};
		int			n;

		if (SSL_pending(ssl) == 0)
			poll(fds, 2, -1);
		if (SSL_pending(ssl) > 0 || fds[1].revents)
		{
			n = SSL_read(ssl, buffer, sizeof(buffer));
			if (n <= 0 || write(1, buffer, n) != n)
				return 0;
		}
		if (fds[0].revents)
		{
			/* as much as there is, so that it goes into one record */
			n = read(0, buffer, sizeof(buffer));
			if (n <= 0 || SSL_write(ssl, buffer, n) != n)
				return 0;
		}
	}
}
