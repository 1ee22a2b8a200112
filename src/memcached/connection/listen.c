/*
 * listen.c
 *		Listening sockets, and requests in datagrams.
 *
 * Each process has its own sockets, bound with SO_REUSEPORT, so that the kernel distributes the
 * connections.  SO_REUSEPORT would also let two servers share a port, each with half of the
 * clients.  So the first process of this server checks whether the port is free.  The Unix socket
 * belongs to the first process.
 *
 * Datagrams.  Off by default, and never beyond the loopback addresses.  A sender's address proves
 * nothing: an attacker could forge one, and have replies sent to others that are larger than the
 * requests.  There is no authentication, so with passwords there are no datagrams.  A request is
 * one datagram.  It is served as a connection that sends nothing more and ends with the reply.  The
 * first process has the sockets.
 */
#include "memcached/connection/connection.h"

#include "clock.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/varlena.h"

/* ---- connections ---- */

#define MAX_LISTENERS	32
#define PAUSE_US		100000	/* no connection is accepted for so long when no file descriptor
								 * is free */
#define SPARE_FILES		64		/* descriptors that are left to PostgreSQL's own files */

static int	listeners[MAX_LISTENERS];
static int	nlisteners = 0;
static int	listen_epoll = -1;
static TimestampTz paused_until = 0;	/* 0: it listens */
static char unix_path[sizeof(((struct sockaddr_un *) NULL)->sun_path)] = "";

static void
add_listener(int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (listen(fd, SOMAXCONN) != 0 || epoll_ctl(listen_epoll, EPOLL_CTL_ADD, fd, &event) != 0)
		ereport(FATAL,
				(errcode_for_socket_access(),
				 errmsg("could not listen for memcached clients: %m")));
	listeners[nlisteners++] = fd;
}

/* Return a socket bound to the address, or -1 with errno. */
static int
bind_address(const struct addrinfo *address, bool shared)
{
	int			one = 1;
	int			fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int			err;

	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
		(!shared || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) == 0) &&
		(address->ai_family != AF_INET6 ||
		 setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) == 0) &&
		bind(fd, address->ai_addr, address->ai_addrlen) == 0)
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

/* Does this process listen there already, because another name has the same address? */
static bool
listens_on(const struct addrinfo *address)
{
	for (int i = 0; i < nlisteners; i++)
	{
		struct sockaddr_storage own;
		socklen_t	length = sizeof(own);

		memset(&own, 0, sizeof(own));
		if (getsockname(listeners[i], (struct sockaddr *) &own, &length) == 0 &&
			length == address->ai_addrlen && memcmp(&own, address->ai_addr, length) == 0)
			return true;
	}
	return false;
}

/* Listen on one address; first: no other process of this server does. */
static bool
listen_on(const struct addrinfo *address, const char *name, bool first)
{
	int			fd = -1;

	if (listens_on(address))
		return true;
	if (nlisteners == MAX_LISTENERS)
		return false;
	if (first)
	{
		int			probe = bind_address(address, false);

		if (probe >= 0)
		{
			/* SO_REUSEADDR permits bind where another server does not listen yet */
			bool		free = listen(probe, 1) == 0;
			int			err = errno;

			close(probe);
			errno = err;
			if (free)
				fd = bind_address(address, true);
		}
	}
	else
		fd = bind_address(address, true);
	if (fd < 0)
	{
		ereport(LOG,
				(errcode_for_socket_access(),
				 errmsg("could not listen for memcached clients at address \"%s\", port %d: %m",
						name, kv_mc_port)));
		return false;
	}
	add_listener(fd);
	return true;
}

/* Return the addresses of a name, to be freed; NULL: there are none. */
static struct addrinfo *
resolve(const char *name)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_family = AF_UNSPEC,
							 .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char		port[8];
	int			err;

	snprintf(port, sizeof(port), "%d", kv_mc_port);
	err = getaddrinfo(strcmp(name, "*") == 0 ? NULL : name, port, &hints, &found);
	if (err == 0)
		return found;
	ereport(LOG,
			(errmsg("could not translate \"%s\" in \"kvfdw.memcached_listen\" to an address: %s",
					name, gai_strerror(err))));
	return NULL;
}

/* Listen on all addresses of a name; false: on none of them. */
static bool
listen_name(const char *name, const struct addrinfo *addresses, bool first)
{
	bool		done = false;

	for (const struct addrinfo *address = addresses; address != NULL; address = address->ai_next)
		done |= listen_on(address, name, first);
	return done;
}

static bool
any_listens(void)
{
	for (int i = 0; i < KV_MC_MAX_WORKERS; i++)
	{
		if (kv_mc_shared->workers[i].listens)
			return true;
	}
	return false;
}

/*
 * Listen on TCP.  Names are resolved before the lock is taken: that may ask a name server, and
 * take long.
 */
static void
listen_tcp(void)
{
	char	   *value = pstrdup(kv_mc_listen);
	List	   *names;
	struct addrinfo **addresses;
	int			n;
	int			failed = -1;
	bool		first;
	ListCell   *cell;

	if (!SplitGUCList(value, ',', &names))
		ereport(FATAL,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid list syntax in parameter \"%s\"", "kvfdw.memcached_listen")));
	foreach(cell, names)
	{
		/* "*" includes all others, which would collide with it */
		if (strcmp(lfirst(cell), "*") == 0)
		{
			names = list_make1(lfirst(cell));
			break;
		}
	}
	n = list_length(names);
	addresses = palloc(sizeof(struct addrinfo *) * n);
	for (int i = 0; i < n; i++)
		addresses[i] = resolve(list_nth(names, i));
	LWLockAcquire(&kv_mc_shared->lock, LW_EXCLUSIVE);
	first = !any_listens();
	for (int i = 0; i < n && failed < 0; i++)
	{
		if (!listen_name(list_nth(names, i), addresses[i], first))
			failed = i;
	}
	kv_mc_me->listens = failed < 0 && nlisteners > 0;
	LWLockRelease(&kv_mc_shared->lock);
	for (int i = 0; i < n; i++)
	{
		if (addresses[i] != NULL)
			freeaddrinfo(addresses[i]);
	}
	if (failed >= 0)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("could not listen for memcached clients at address \"%s\", port %d",
						(char *) list_nth(names, failed), kv_mc_port),
				 errdetail("The previous message in the server log has the reason.")));
	pfree(addresses);
}

/* Does a process listen there?  If not, remove the socket that a dead server has left. */
static bool
socket_in_use(const struct sockaddr_un *address)
{
	int			fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool		used = fd >= 0 &&
		connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0;

	if (fd >= 0)
		close(fd);
	return used;
}

static void
listen_unix(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			length = snprintf(address.sun_path, sizeof(address.sun_path),
								  "%s/.s.kvfdw.%d", kv_mc_socket, kv_mc_port);
	mode_t		mask;
	int			fd;
	int			bound;

	if (length >= (int) sizeof(address.sun_path))
		ereport(FATAL,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("Unix-domain socket path \"%s/.s.kvfdw.%d\" is too long (maximum %d bytes)",
						kv_mc_socket, kv_mc_port, (int) sizeof(address.sun_path) - 1)));
	if (socket_in_use(&address))
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another process listens at socket \"%s\"", address.sun_path)));
	(void) unlink(address.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	mask = umask(0007);
	bound = fd < 0 ? -1 : bind(fd, (struct sockaddr *) &address, sizeof(address));
	umask(mask);
	if (bound != 0)
		ereport(FATAL,
				(errcode_for_socket_access(),
				 errmsg("could not listen for memcached clients at socket \"%s\": %m",
						address.sun_path)));
	strlcpy(unix_path, address.sun_path, sizeof(unix_path));
	add_listener(fd);
}

static void
leave(int code, Datum arg)
{
	kv_mc_listen_close();
	kv_mc_me->listens = false;
}

void
kv_mc_listen_all(int epoll_fd)
{
	listen_epoll = epoll_fd;
	before_shmem_exit(leave, (Datum) 0);
	if (kv_mc_listen[0] != '\0')
		listen_tcp();
	if (kv_mc_socket[0] != '\0' && kv_mc_my_number == 0)
		listen_unix();
	if (nlisteners == 0 && kv_mc_my_number == 0)
		ereport(LOG,
				(errmsg("kvfdw listens for memcached clients at no address"),
				 errhint("Set \"kvfdw.memcached_listen\" or \"kvfdw.memcached_socket\".")));
}

void
kv_mc_listen_close(void)
{
	for (int i = 0; i < nlisteners; i++)
		close(listeners[i]);
	nlisteners = 0;
	if (unix_path[0] != '\0')
		(void) unlink(unix_path);
	unix_path[0] = '\0';
}

/* Set the listeners' events.  Connections that wait in the queue stay there. */
static void
set_events(uint32 events)
{
	struct epoll_event event = {.events = events};

	for (int i = 0; i < nlisteners; i++)
		(void) epoll_ctl(listen_epoll, EPOLL_CTL_MOD, listeners[i], &event);
}

void
kv_mc_accept_all(void)
{
	bool		room = true;

	for (int i = 0; i < nlisteners; i++)
		room &= kv_mc_accept(listeners[i]);
	if (room)
		return;
	set_events(0);
	paused_until = kv_clock() + PAUSE_US;
}

bool
kv_mc_listen_paused(void)
{
	return paused_until != 0;
}

void
kv_mc_listen_resume(TimestampTz now)
{
	if (paused_until == 0 || now < paused_until)
		return;
	paused_until = 0;
	set_events(EPOLLIN);
}

/* Raise the limit of file descriptors if necessary and allowed. */
int
kv_mc_connection_room(void)
{
	int			wanted = kv_mc_max_connections;
	rlim_t		need = (rlim_t) max_files_per_process + SPARE_FILES + wanted;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return Min(wanted, SPARE_FILES);
	if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < need)
	{
		limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? need : Min(need, limit.rlim_max);
		if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
			(void) getrlimit(RLIMIT_NOFILE, &limit);
	}
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= need)
		return wanted;
	wanted = Max((int64) limit.rlim_cur - max_files_per_process - SPARE_FILES, SPARE_FILES);
	ereport(LOG,
			(errmsg("background worker \"kvfdw memcached %d\" accepts only %d of %d connections",
					kv_mc_my_number, wanted, kv_mc_max_connections),
			 errdetail("A process of this server may have %llu open files.",
					   (unsigned long long) limit.rlim_cur),
			 errhint("Raise the limit of open files (\"ulimit -n\", or \"LimitNOFILE=\" of a "
					 "systemd service).")));
	return wanted;
}

/* ---- datagrams ---- */

#define MOST_RECEIVED	64		/* at once */

char		kv_mc_udp_tag;

static int	sockets[2] = {-1, -1};
static char received[65536];

static void
receive_at(int i, const struct sockaddr *address, socklen_t length, int epoll_fd)
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
				 errmsg("could not receive memcached datagrams at port %d: %m",
						kv_mc_udp_port)));
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
				(errmsg("cannot receive memcached datagrams because clients must authenticate"),
				 errhint("Set \"kvfdw.memcached_udp_port\" to 0.")));
		return;
	}
	receive_at(0, (struct sockaddr *) &four, sizeof(four), epoll_fd);
	receive_at(1, (struct sockaddr *) &six, sizeof(six), epoll_fd);
}

/* Receive the datagrams of one socket. */
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
		/* one datagram of several, or not of this protocol */
		if (got <= KV_MC_DATAGRAM_HEAD || received[2] != 0 || received[3] != 0 ||
			received[4] != 0 || received[5] != 1)
			continue;
		memcpy(from.request, received, sizeof(from.request));
		kv_mc_add_datagram(fd, &from, received + KV_MC_DATAGRAM_HEAD, got - KV_MC_DATAGRAM_HEAD);
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
