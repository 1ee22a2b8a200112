/*
 * kvload.c
 *		Data and load for the demo and the benchmark, over libpq.
 *
 * Row number n of seed s has the key mix(s + n), a bijection, so keys are
 * random 8-byte integers without duplicates, and a value of pseudo-random
 * bytes made from the key, so any row can be verified alone and nothing
 * compresses.  Rows 0 … rows-1 are the loaded ones; writer w adds rows from
 * (w + 1) << 40 on.  The connection comes from the usual PG* variables.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

#define BYTEAOID 17
#define INT8OID 20
#define MAX_SIZE (1 << 20)

static const char usage_text[] =
	"usage: kvload gen SEED FIRST ROWS SIZE               COPY BINARY rows on stdout\n"
	"       kvload verify SEED ROWS SIZE                  COPY BINARY rows on stdin: order, content, completeness\n"
	"       kvload points TABLE SEED ROWS SIZE COUNT CLIENTS  verified point reads\n"
	"       kvload insert TABLE SEED SIZE SECONDS CLIENTS BASE  single-row inserts\n"
	"       kvload write TABLE SEED SIZE WRITERS STATE SECONDS  transactions with an outcome file each\n"
	"       kvload check TABLE SEED ROWS SIZE WRITERS STATE     compare the table with the outcome files\n";

static void
die(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	fprintf(stderr, "kvload: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

static uint64_t
mix(uint64_t x)
{
	x += UINT64_C(0x9E3779B97F4A7C15);
	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

static int64_t
row_key(uint64_t seed, uint64_t n)
{
	return (int64_t) mix(seed + n);
}

static void
row_value(int64_t key, char *value, size_t size)
{
	uint64_t	state = (uint64_t) key ^ UINT64_C(0x5851F42D4C957F2D);

	for (size_t at = 0; at < size; at += 8)
	{
		uint64_t	word = mix(state += UINT64_C(0x9E3779B97F4A7C15));

		memcpy(value + at, &word, size - at < 8 ? size - at : 8);
	}
}

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static uint64_t
number(const char *text)
{
	char	   *end;
	uint64_t	n = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0')
		die("\"%s\" is not a number", text);
	return n;
}

static size_t
value_size(const char *text)
{
	uint64_t	n = number(text);

	if (n > MAX_SIZE)
		die("values have at most %d bytes", MAX_SIZE);
	return n;
}

/* ---- COPY BINARY ---- */

static const char copy_signature[11] = "PGCOPY\n\377\r\n";

static void
put(const void *data, size_t len)
{
	if (fwrite(data, 1, len, stdout) != len)
		die("cannot write: %s", strerror(errno));
}

static void
gen(uint64_t seed, uint64_t first, uint64_t rows, size_t size)
{
	static char value[MAX_SIZE];
	uint32_t	zero = 0;
	uint16_t	columns = htons(2);
	uint32_t	key_len = htonl(8);
	uint32_t	value_len = htonl(size);

	put(copy_signature, sizeof copy_signature);
	put(&zero, 4);
	put(&zero, 4);
	for (uint64_t n = first; n < first + rows; n++)
	{
		int64_t		key = row_key(seed, n);
		uint64_t	wire = htobe64(key);

		row_value(key, value, size);
		put(&columns, 2);
		put(&key_len, 4);
		put(&wire, 8);
		put(&value_len, 4);
		put(value, size);
	}
	columns = 0xFFFF;
	put(&columns, 2);
	if (fflush(stdout) != 0)
		die("cannot write: %s", strerror(errno));
}

static void
get(void *data, size_t len)
{
	if (fread(data, 1, len, stdin) != len)
		die("the rows end in the middle");
}

static void
verify(uint64_t seed, uint64_t rows, size_t size)
{
	static char value[MAX_SIZE],
				expected[MAX_SIZE];
	char		signature[11];
	uint32_t	len;
	uint64_t	count = 0,
				sum = 0,
				expected_sum = 0;
	int64_t		last = 0;
	double		told = now();

	get(signature, sizeof signature);
	if (memcmp(signature, copy_signature, sizeof signature) != 0)
		die("this is not COPY BINARY output");
	get(&len, 4);
	get(&len, 4);
	for (;;)
	{
		uint16_t	columns;
		uint64_t	wire;
		int64_t		key;

		get(&columns, 2);
		if (columns == 0xFFFF)
			break;
		get(&len, 4);
		if (ntohs(columns) != 2 || ntohl(len) != 8)
			die("row %" PRIu64 " does not have the form (bigint, bytea)", count);
		get(&wire, 8);
		key = (int64_t) be64toh(wire);
		get(&len, 4);
		if (ntohl(len) != size)
			die("key %" PRId64 ": the value has %d bytes, not %zu", key, (int) ntohl(len), size);
		get(value, size);
		row_value(key, expected, size);
		if (memcmp(value, expected, size) != 0)
			die("key %" PRId64 ": wrong value", key);
		if (count > 0 && key <= last)
			die("key %" PRId64 " comes after %" PRId64, key, last);
		last = key;
		sum += mix(key);
		count++;
		if (count % 1024 == 0 && now() - told > 5)
		{
			told = now();
			fprintf(stderr, "    %" PRIu64 " of %" PRIu64 " rows\n", count, rows);
		}
	}
	for (uint64_t n = 0; n < rows; n++)
		expected_sum += mix(row_key(seed, n));
	if (count != rows)
		die("%" PRIu64 " rows, expected %" PRIu64, count, rows);
	if (sum != expected_sum)
		die("the rows are not the rows that were loaded");
	printf("%" PRIu64 "\n", count);
}

/* ---- libpq ---- */

static void
ignore_notice(void *arg, const PGresult *result)
{
}

static PGconn *
connect_or_die(void)
{
	PGconn	   *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
		die("%s", PQerrorMessage(conn));
	PQsetNoticeReceiver(conn, ignore_notice, NULL);
	return conn;
}

/* True on success; otherwise the message is in last_message. */
static char last_message[1024];

static bool
done(PGresult *result, ExecStatusType wanted)
{
	bool		ok = PQresultStatus(result) == wanted;

	if (!ok)
		snprintf(last_message, sizeof last_message, "%s", PQresultErrorMessage(result));
	PQclear(result);
	return ok;
}

static bool
run(PGconn *conn, const char *sql)
{
	return done(PQexec(conn, sql), PGRES_COMMAND_OK);
}

static bool
prepare(PGconn *conn, const char *name, const char *format, const char *table)
{
	char		sql[512];
	Oid			types[2] = {INT8OID, BYTEAOID};

	snprintf(sql, sizeof sql, format, table);
	return done(PQprepare(conn, name, sql, 2, types), PGRES_COMMAND_OK);
}

static bool
prepare_read(PGconn *conn, const char *table)
{
	char		sql[512];
	Oid			types[1] = {INT8OID};

	snprintf(sql, sizeof sql, "SELECT v FROM %s WHERE k = $1", table);
	return done(PQprepare(conn, "read", sql, 1, types), PGRES_COMMAND_OK);
}

static bool
insert_row(PGconn *conn, int64_t key, size_t size)
{
	static char value[MAX_SIZE];
	uint64_t	wire = htobe64(key);
	const char *values[2] = {(char *) &wire, value};
	int			lengths[2] = {8, (int) size};
	int			formats[2] = {1, 1};

	row_value(key, value, size);
	return done(PQexecPrepared(conn, "insert", 2, values, lengths, formats, 1),
				PGRES_COMMAND_OK);
}

/* 1: there with the right value; 0: absent; dies on anything else. */
static int
read_row(PGconn *conn, int64_t key, size_t size)
{
	static char expected[MAX_SIZE];
	uint64_t	wire = htobe64(key);
	const char *values[1] = {(char *) &wire};
	int			lengths[1] = {8};
	int			formats[1] = {1};
	PGresult   *result = PQexecPrepared(conn, "read", 1, values, lengths, formats, 1);
	int			rows;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("key %" PRId64 ": %s", key, PQresultErrorMessage(result));
	rows = PQntuples(result);
	if (rows > 1)
		die("key %" PRId64 ": %d rows", key, rows);
	if (rows == 1)
	{
		row_value(key, expected, size);
		if (PQgetlength(result, 0, 0) != size ||
			memcmp(PQgetvalue(result, 0, 0), expected, size) != 0)
			die("key %" PRId64 ": wrong value", key);
	}
	PQclear(result);
	return rows;
}

/* What the clients share: a start signal, and what each of them did. */
typedef struct Shared
{
	volatile int ready;
	volatile int go;
	volatile uint64_t done[1024];
} Shared;

static Shared *
shared_new(void)
{
	Shared	   *shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE,
							  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	return shared;
}

static void
wait_for_go(Shared *shared)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	__sync_fetch_and_add(&shared->ready, 1);
	while (!shared->go)
		usleep(100);
}

/* Start the clients together, wait for all; prints operations and seconds. */
static void
finish_clients(Shared *shared, int clients)
{
	double		start;
	int			status,
				failed = 0;
	uint64_t	total = 0;

	while (shared->ready < clients)
	{
		if (waitpid(-1, &status, WNOHANG) > 0)
			die("a client could not start");
		usleep(1000);
	}
	start = now();
	shared->go = 1;
	for (int i = 0; i < clients; i++)
	{
		if (wait(&status) < 0 || status != 0)
			failed++;
	}
	if (failed > 0)
		die("%d of %d clients failed", failed, clients);
	for (int i = 0; i < clients; i++)
		total += shared->done[i];
	printf("%" PRIu64 " %.3f\n", total, now() - start);
}

static void
points(const char *table, uint64_t seed, uint64_t rows, size_t size,
	   uint64_t count, int clients)
{
	Shared	   *shared = shared_new();

	for (int c = 0; c < clients; c++)
	{
		if (fork() == 0)
		{
			PGconn	   *conn = connect_or_die();
			uint64_t	state = seed ^ mix(time(NULL) + c * 7919);
			uint64_t	mine = count / clients + (c < count % clients);

			if (!prepare_read(conn, table))
				die("%s", last_message);
			wait_for_go(shared);
			for (uint64_t i = 0; i < mine; i++)
			{
				int64_t		key = row_key(seed, mix(state++) % rows);

				if (read_row(conn, key, size) != 1)
					die("key %" PRId64 " is missing", key);
				shared->done[c]++;
			}
			_exit(0);
		}
	}
	finish_clients(shared, clients);
}

static void
insert(const char *table, uint64_t seed, size_t size, double seconds, int clients,
	   uint64_t base)
{
	Shared	   *shared = shared_new();

	for (int c = 0; c < clients; c++)
	{
		if (fork() == 0)
		{
			PGconn	   *conn = connect_or_die();
			uint64_t	n = base + ((uint64_t) (c + 1) << 32);
			double		end;

			if (!prepare(conn, "insert", "INSERT INTO %s VALUES ($1, $2)", table))
				die("%s", last_message);
			wait_for_go(shared);
			end = now() + seconds;
			while (now() < end)
			{
				if (!insert_row(conn, row_key(seed, n++), size))
					die("%s", last_message);
				shared->done[c]++;
			}
			_exit(0);
		}
	}
	finish_clients(shared, clients);
}

/*
 * Transactions of a writer.  Number t has 1 to 8 rows; every fifth, roughly,
 * is rolled back.  A one-row transaction is a bare INSERT.
 */
static int
transaction_rows(int writer, uint64_t t)
{
	return 1 + mix(mix(writer) + t) % 8;
}

static bool
transaction_rolls_back(int writer, uint64_t t)
{
	return transaction_rows(writer, t) > 1 && mix(mix(writer) + t) / 8 % 5 == 0;
}

static int64_t
transaction_key(uint64_t seed, int writer, uint64_t t, int row)
{
	return row_key(seed, ((uint64_t) (writer + 1) << 40) + t * 8 + row);
}

/*
 * The outcome file has one letter per transaction: a acknowledged, r rolled
 * back, i in flight: COMMIT was sent and nothing came back, u unfinished:
 * the server died before COMMIT was sent.
 */
static void
write_transactions(const char *table, uint64_t seed, size_t size, int writer,
				   const char *path, double seconds, Shared *shared)
{
	FILE	   *outcomes = fopen(path, "a");
	PGconn	   *conn = connect_or_die();
	uint64_t	t;
	double		end;
	char		outcome = 'a';

	if (outcomes == NULL)
		die("cannot open \"%s\": %s", path, strerror(errno));
	if (!prepare(conn, "insert", "INSERT INTO %s VALUES ($1, $2)", table))
		die("%s", last_message);
	fseek(outcomes, 0, SEEK_END);
	t = ftell(outcomes);
	wait_for_go(shared);
	end = now() + seconds;
	for (; outcome != 'i' && outcome != 'u' && now() < end; t++)
	{
		int			rows = transaction_rows(writer, t);
		bool		rolls_back = transaction_rolls_back(writer, t);
		bool		ok = true;

		if (rows > 1)
			ok = run(conn, "BEGIN");
		for (int row = 0; ok && row < rows; row++)
			ok = insert_row(conn, transaction_key(seed, writer, t, row), size);
		if (!ok)
			outcome = rows == 1 ? 'i' : 'u';
		else if (rows == 1)
			outcome = 'a';
		else if (rolls_back)
			outcome = run(conn, "ROLLBACK") ? 'r' : 'u';
		else
			outcome = run(conn, "COMMIT") ? 'a' : 'i';
		if ((outcome == 'i' || outcome == 'u') && PQstatus(conn) == CONNECTION_OK)
			die("writer %d: %s", writer, last_message);
		fputc(outcome, outcomes);
		fflush(outcomes);
		shared->done[writer] += outcome == 'a' ? rows : 0;
	}
	_exit(0);
}

static void
write_all(const char *table, uint64_t seed, size_t size, int writers,
		  const char *state, double seconds)
{
	Shared	   *shared = shared_new();

	for (int w = 0; w < writers; w++)
	{
		if (fork() == 0)
		{
			char		path[4096];

			snprintf(path, sizeof path, "%s/writer%d", state, w);
			write_transactions(table, seed, size, w, path, seconds, shared);
		}
	}
	finish_clients(shared, writers);
}

static void
check(const char *table, uint64_t seed, uint64_t rows, size_t size, int writers,
	  const char *state)
{
	PGconn	   *conn = connect_or_die();
	char		text[4096];
	uint64_t	acknowledged = 0,
				rolled_back = 0,
				in_flight = 0,
				survived = 0,
				unfinished = 0,
				expected = rows;
	PGresult   *result;

	if (!prepare_read(conn, table))
		die("%s", last_message);
	for (int w = 0; w < writers; w++)
	{
		FILE	   *outcomes;
		int			outcome;

		snprintf(text, sizeof text, "%s/writer%d", state, w);
		if ((outcomes = fopen(text, "r")) == NULL)
			die("cannot open \"%s\": %s", text, strerror(errno));
		for (uint64_t t = 0; (outcome = fgetc(outcomes)) != EOF; t++)
		{
			int			wrote = transaction_rows(w, t);
			int			found = 0;

			for (int row = 0; row < wrote; row++)
				found += read_row(conn, transaction_key(seed, w, t, row), size);
			switch (outcome)
			{
				case 'a':
					acknowledged++;
					if (found != wrote)
						die("writer %d, transaction %" PRIu64 ": acknowledged, but only %d of %d rows are there",
							w, t, found, wrote);
					break;
				case 'i':
					in_flight++;
					if (found != 0 && found != wrote)
						die("writer %d, transaction %" PRIu64 ": %d of %d rows are there, neither all nor none",
							w, t, found, wrote);
					if (found > 0)
						survived++;
					break;
				default:
					if (outcome == 'r')
						rolled_back++;
					else
						unfinished++;
					if (found != 0)
						die("writer %d, transaction %" PRIu64 ": never committed, but %d of %d rows are visible",
							w, t, found, wrote);
			}
			expected += found;
		}
		fclose(outcomes);
	}
	snprintf(text, sizeof text, "SELECT count(*) FROM %s", table);
	result = PQexec(conn, text);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(result));
	if (number(PQgetvalue(result, 0, 0)) != expected)
		die("count(*) is %s, expected %" PRIu64, PQgetvalue(result, 0, 0), expected);
	printf("%" PRIu64 " acknowledged transactions all there, %" PRIu64 " rolled back and %" PRIu64
		   " unfinished all absent, %" PRIu64 " of %" PRIu64 " with COMMIT under way whole, the others absent; %" PRIu64 " rows\n",
		   acknowledged, rolled_back, unfinished, survived, in_flight, expected);
}

int
main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	static char buffer[1 << 20];

	setvbuf(strcmp(verb, "verify") == 0 ? stdin : stdout, buffer, _IOFBF, sizeof buffer);
	if (strcmp(verb, "gen") == 0 && argc == 6)
		gen(number(argv[2]), number(argv[3]), number(argv[4]), value_size(argv[5]));
	else if (strcmp(verb, "verify") == 0 && argc == 5)
		verify(number(argv[2]), number(argv[3]), value_size(argv[4]));
	else if (strcmp(verb, "points") == 0 && argc == 8)
		points(argv[2], number(argv[3]), number(argv[4]), value_size(argv[5]),
			   number(argv[6]), number(argv[7]));
	else if (strcmp(verb, "insert") == 0 && argc == 8)
		insert(argv[2], number(argv[3]), value_size(argv[4]), number(argv[5]),
			   number(argv[6]), number(argv[7]));
	else if (strcmp(verb, "write") == 0 && argc == 8)
		write_all(argv[2], number(argv[3]), value_size(argv[4]), number(argv[5]),
				  argv[6], number(argv[7]));
	else if (strcmp(verb, "check") == 0 && argc == 8)
		check(argv[2], number(argv[3]), number(argv[4]), value_size(argv[5]),
			  number(argv[6]), argv[7]);
	else
	{
		fputs(usage_text, stderr);
		return 2;
	}
	return 0;
}
