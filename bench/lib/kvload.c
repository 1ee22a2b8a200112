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
#define INT8ARRAYOID 1016
#define MAX_SIZE (1 << 20)
#define MAX_CLIENTS 1024

static const char usage_text[] =
	"usage: kvload gen SEED FIRST ROWS SIZE               COPY BINARY rows on stdout\n"
	"       kvload verify SEED ROWS SIZE                  COPY BINARY rows on stdin: order, content, completeness\n"
	"       kvload points TABLE SEED ROWS SIZE COUNT CLIENTS  verified point reads\n"
	"       kvload insert TABLE SEED SIZE SECONDS CLIENTS BASE  single-row inserts\n"
	"       kvload sums SEED ROWS SIZE                    what SUMS must give for all rows\n"
	"       kvload each CLIENTS EXPECTED SQL              every client runs the statement once\n"
	"       kvload late EXPECTED SQL PROBE RISE           one client, and another when PROBE has risen\n"
	"       kvload beside CLIENTS EXPECTED SQL TABLE SIZE SECONDS  each, beside a writer; it alone for SECONDS\n"
	"       kvload ranges TABLE SEED ROWS SIZE COUNT CLIENTS FORM N  verified statements about N rows each;\n"
	"                                                     FORM: rows, limit, between, in\n"
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

/* The last byte of a row's value. */
static unsigned
row_last_byte(int64_t key, size_t size)
{
	uint64_t	state = (uint64_t) key ^ UINT64_C(0x5851F42D4C957F2D);
	size_t		at = size - 1;

	return mix(state + (at / 8 + 1) * UINT64_C(0x9E3779B97F4A7C15)) >> at % 8 * 8 & 0xFF;
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
	volatile int go;			/* clients of stages up to this one may start */
	volatile int ended;
	volatile uint64_t done[MAX_CLIENTS];
	volatile double seconds[MAX_CLIENTS];
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
wait_for_stage(Shared *shared, int stage)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	__sync_fetch_and_add(&shared->ready, 1);
	while (shared->go < stage)
		usleep(100);
}

static void
wait_for_go(Shared *shared)
{
	wait_for_stage(shared, 1);
}

/* Returns the time at which the clients of the first stage, all connected, may start. */
static double
start_clients(Shared *shared, int clients)
{
	int			status;
	double		start;

	if (clients > MAX_CLIENTS)
		die("there can be %d clients at most", MAX_CLIENTS);
	while (shared->ready < clients)
	{
		if (waitpid(-1, &status, WNOHANG) > 0)
			die("a client could not start");
		usleep(1000);
	}
	start = now();
	shared->go = 1;
	return start;
}

/* The others do not outlive one that fails: some may be waiting for it. */
static void
wait_for_clients(int clients)
{
	int			status;

	for (int i = 0; i < clients; i++)
	{
		if (wait(&status) < 0 || status != 0)
			die("one of %d clients failed", clients);
	}
}

/* Start the clients together, wait for all; prints operations and seconds. */
static void
finish_clients(Shared *shared, int clients)
{
	double		start = start_clients(shared, clients);
	uint64_t	total = 0;

	wait_for_clients(clients);
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

/* ---- statements over many rows ---- */

/* What the benchmark's statements add up of a set of rows; in SQL, SUMS. */
typedef struct Sums
{
	uint64_t	rows;
	uint64_t	bytes;
	uint64_t	last_bytes;
	int64_t		keys;
} Sums;

#define SUMS "count(*), sum(length(v)), sum(get_byte(v, length(v) - 1)), bit_xor(k)"

static void
add_row(Sums *sums, int64_t key, size_t size)
{
	sums->rows++;
	sums->bytes += size;
	sums->last_bytes += row_last_byte(key, size);
	sums->keys ^= key;
}

static void
sums_text(const Sums *sums, char *text, size_t len)
{
	snprintf(text, len, "%" PRIu64 "|%" PRIu64 "|%" PRIu64 "|%" PRId64,
			 sums->rows, sums->bytes, sums->last_bytes, sums->keys);
}

static void
print_sums(uint64_t seed, uint64_t rows, size_t size)
{
	Sums		sums = {0};
	char		text[128];

	for (uint64_t n = 0; n < rows; n++)
		add_row(&sums, row_key(seed, n), size);
	sums_text(&sums, text, sizeof text);
	printf("%s\n", text);
}

/* Dies unless the result is one row that reads, joined with |, as expected; of COPY, the number of rows. */
static void
expect(PGresult *result, const char *expected)
{
	char		text[1024] = "";

	if (PQresultStatus(result) == PGRES_COMMAND_OK)
		snprintf(text, sizeof text, "%s", PQcmdTuples(result));
	else if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(result));
	else if (PQntuples(result) != 1)
		die("%d rows instead of one", PQntuples(result));
	else
	{
		for (int i = 0; i < PQnfields(result); i++)
		{
			size_t		len = strlen(text);

			snprintf(text + len, sizeof text - len, "%s%s", i > 0 ? "|" : "", PQgetvalue(result, 0, i));
		}
	}
	if (strcmp(text, expected) != 0)
		die("the result is %s, expected %s", text, expected);
	PQclear(result);
}

/* Client c of a stage runs the statement once. */
static void
fork_statement(Shared *shared, int c, int stage, const char *expected, const char *sql)
{
	PGconn	   *conn;
	double		start;

	if (fork() != 0)
		return;
	conn = connect_or_die();
	wait_for_stage(shared, stage);
	start = now();
	expect(PQexec(conn, sql), expected);
	shared->seconds[c] = now() - start;
	__sync_fetch_and_add(&shared->ended, 1);
	_exit(0);
}

static void
fastest_and_slowest(Shared *shared, int clients, double *fastest, double *slowest)
{
	*fastest = *slowest = clients > 0 ? shared->seconds[0] : 0;
	for (int c = 1; c < clients; c++)
	{
		if (shared->seconds[c] < *fastest)
			*fastest = shared->seconds[c];
		if (shared->seconds[c] > *slowest)
			*slowest = shared->seconds[c];
	}
}

/* Prints the seconds of all together, of the fastest and of the slowest. */
static void
each(int clients, const char *expected, const char *sql)
{
	Shared	   *shared = shared_new();
	double		start,
				end,
				fastest,
				slowest;

	for (int c = 0; c < clients; c++)
		fork_statement(shared, c, 1, expected, sql);
	start = start_clients(shared, clients);
	wait_for_clients(clients);
	end = now();
	fastest_and_slowest(shared, clients, &fastest, &slowest);
	printf("%.3f %.3f %.3f\n", end - start, fastest, slowest);
}

static uint64_t
probe(PGconn *conn, const char *sql)
{
	PGresult   *result = PQexec(conn, sql);
	uint64_t	n;

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
		die("%s: %s", sql, PQresultErrorMessage(result));
	n = number(PQgetvalue(result, 0, 0));
	PQclear(result);
	return n;
}

/* Prints the seconds of both together, of the first, of the late one, and what the probe had risen by when that began. */
static void
late(const char *expected, const char *sql, const char *probe_sql, uint64_t rise)
{
	Shared	   *shared = shared_new();
	PGconn	   *conn;
	uint64_t	before,
				risen;
	double		start;
	int			status;

	for (int c = 0; c < 2; c++)
		fork_statement(shared, c, c + 1, expected, sql);
	conn = connect_or_die();
	before = probe(conn, probe_sql);
	start = start_clients(shared, 2);
	while ((risen = probe(conn, probe_sql) - before) < rise)
	{
		if (waitpid(-1, &status, WNOHANG) > 0)
			die("the first statement ended when the probe had risen by %" PRIu64 ", not %" PRIu64, risen, rise);
		usleep(1000);
	}
	shared->go = 2;
	wait_for_clients(2);
	printf("%.3f %.3f %.3f %" PRIu64 "\n", now() - start, shared->seconds[0], shared->seconds[1], risen);
}

/*
 * INSERTs of WRITER_ROWS rows with random keys, one after the other, until all
 * the statements have ended, or for some seconds where there are none.  The
 * table is emptied whenever it holds WRITER_BYTES.  Prints the writer's rows
 * and seconds, the rows left in the table, and the seconds of the fastest and
 * the slowest statement.
 */
#define WRITER_ROWS 4000
#define WRITER_BYTES (INT64_C(4) << 30)

static void
write_many(Shared *shared, int c, int clients, const char *table, size_t size, double seconds)
{
	static char value[MAX_SIZE];
	PGconn	   *conn = connect_or_die();
	int64_t		next = 0,
				left = 0;
	double		start;
	char		sql[512];
	char		truncate[512];

	snprintf(sql, sizeof sql, "INSERT INTO %s SELECT hashint8extended(g, 0), $2 FROM generate_series($1, $1 + %d) g",
			 table, WRITER_ROWS - 1);
	snprintf(truncate, sizeof truncate, "TRUNCATE %s", table);
	if (!prepare(conn, "insert", "%s", sql))
		die("%s", last_message);
	row_value(next, value, size);
	wait_for_go(shared);
	start = now();
	while (clients > 0 ? shared->ended < clients : now() < start + seconds)
	{
		uint64_t	wire = htobe64(next);
		const char *values[2] = {(char *) &wire, value};
		int			lengths[2] = {8, (int) size};
		int			formats[2] = {1, 1};

		if ((left + WRITER_ROWS) * (int64_t) size > WRITER_BYTES)
		{
			if (!run(conn, truncate))
				die("%s", last_message);
			left = 0;
		}
		if (!done(PQexecPrepared(conn, "insert", 2, values, lengths, formats, 1), PGRES_COMMAND_OK))
			die("%s", last_message);
		next += WRITER_ROWS;
		left += WRITER_ROWS;
	}
	shared->seconds[c] = now() - start;
	shared->done[c] = next;
	shared->done[c + 1] = left;
	_exit(0);
}

static void
beside(int clients, const char *expected, const char *sql, const char *table, size_t size, double seconds)
{
	Shared	   *shared = shared_new();
	double		fastest,
				slowest;

	for (int c = 0; c < clients; c++)
		fork_statement(shared, c, 1, expected, sql);
	if (fork() == 0)
		write_many(shared, clients, clients, table, size, seconds);
	start_clients(shared, clients + 1);
	wait_for_clients(clients + 1);
	fastest_and_slowest(shared, clients, &fastest, &slowest);
	printf("%" PRIu64 " %.3f %" PRIu64 " %.3f %.3f\n", shared->done[clients], shared->seconds[clients],
		   shared->done[clients + 1], fastest, slowest);
}

static int
compare_keys(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a,
				y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a,
				y = *(const double *) b;

	return (x > y) - (x < y);
}

static int64_t *
sorted_keys(uint64_t seed, uint64_t rows)
{
	int64_t    *keys = malloc(rows * sizeof *keys);

	if (keys == NULL)
		die("out of memory");
	for (uint64_t n = 0; n < rows; n++)
		keys[n] = row_key(seed, n);
	qsort(keys, rows, sizeof *keys, compare_keys);
	return keys;
}

/* Rows that must be those of keys[first … first + n - 1], in order. */
static void
expect_rows(PGresult *result, const int64_t *keys, uint64_t first, uint64_t n, size_t size)
{
	static char expected[MAX_SIZE];

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("%s", PQresultErrorMessage(result));
	if (PQntuples(result) != n)
		die("%d rows instead of %" PRIu64, PQntuples(result), n);
	for (int i = 0; i < PQntuples(result); i++)
	{
		uint64_t	wire;

		memcpy(&wire, PQgetvalue(result, i, 0), 8);
		if ((int64_t) be64toh(wire) != keys[first + i])
			die("key %" PRId64 " instead of %" PRId64, (int64_t) be64toh(wire), keys[first + i]);
		row_value(keys[first + i], expected, size);
		if (PQgetlength(result, i, 1) != size || memcmp(PQgetvalue(result, i, 1), expected, size) != 0)
			die("key %" PRId64 ": wrong value", keys[first + i]);
	}
	PQclear(result);
}

/* One statement over the n rows from keys[first] on.  Returns its rows, and its seconds without the checks. */
static uint64_t
range(PGconn *conn, const char *form, const int64_t *keys, uint64_t rows, uint64_t first, uint64_t n,
	  size_t size, double *seconds)
{
	int64_t		low = first > 0 ? keys[first - 1] + 1 : keys[0];
	uint64_t	width = UINT64_MAX / rows * n;
	int64_t		high = (uint64_t) INT64_MAX - low > width ? (int64_t) (low + width) : INT64_MAX;
	uint64_t	wire[2] = {htobe64(low), htobe64(high)};
	const char *values[2] = {(char *) &wire[0], (char *) &wire[1]};
	int			lengths[2] = {8, 8};
	int			formats[2] = {1, 1};
	bool		sums_wanted = strcmp(form, "rows") != 0;
	double		start = now();
	PGresult   *result = PQexecPrepared(conn, "range", strcmp(form, "between") == 0 ? 2 : 1,
										values, lengths, formats, sums_wanted ? 0 : 1);
	Sums		sums = {0};
	char		text[128];

	*seconds = now() - start;
	if (!sums_wanted)
	{
		expect_rows(result, keys, first, n, size);
		return n;
	}
	for (uint64_t i = first; i < rows; i++)
	{
		if (strcmp(form, "between") == 0 ? keys[i] > high : sums.rows == n)
			break;
		add_row(&sums, keys[i], size);
	}
	sums_text(&sums, text, sizeof text);
	expect(result, text);
	return sums.rows;
}

/* One statement over n keys from all over the table, in random order. */
static uint64_t
in_list(PGconn *conn, const int64_t *keys, uint64_t rows, uint64_t n, size_t size, uint64_t *state, double *seconds)
{
	int64_t    *list = malloc(n * sizeof *list);
	char	   *array = malloc(n * 21 + 3);
	char	   *end = array;
	const char *values[1] = {array};
	Sums		sums = {0};
	char		text[128];
	double		start;
	PGresult   *result;

	if (list == NULL || array == NULL)
		die("out of memory");
	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	from = i * rows / n;
		uint64_t	other = mix((*state)++) % (i + 1);

		list[i] = list[other];
		list[other] = keys[from + mix((*state)++) % ((i + 1) * rows / n - from)];
		add_row(&sums, list[other], size);
	}
	for (uint64_t i = 0; i < n; i++)
		end += sprintf(end, "%c%" PRId64, i == 0 ? '{' : ',', list[i]);
	strcpy(end, "}");
	start = now();
	result = PQexecPrepared(conn, "range", 1, values, NULL, NULL, 0);
	*seconds = now() - start;
	sums_text(&sums, text, sizeof text);
	expect(result, text);
	free(list);
	free(array);
	return n;
}

/*
 * The statements begin at random places, one in each of COUNT equal parts of
 * the table, the parts in random order.  Prints statements, seconds, rows, and
 * the median and the 99th percentile of the milliseconds of a statement.
 */
static void
ranges(const char *table, uint64_t seed, uint64_t rows, size_t size, uint64_t count, int clients,
	   const char *form, uint64_t n)
{
	Shared	   *shared = shared_new();
	int64_t    *keys = sorted_keys(seed, rows);
	uint64_t   *part = malloc(count * sizeof *part);
	double	   *seconds = mmap(NULL, count * sizeof *seconds, PROT_READ | PROT_WRITE,
							   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t	random = seed ^ mix(time(NULL));
	uint64_t	total = 0;
	bool		in = strcmp(form, "in") == 0;
	char		sql[512];
	double		start,
				end;

	if (part == NULL || seconds == MAP_FAILED)
		die("out of memory");
	if (n == 0 || n > rows || size == 0 || count == 0)
		die("there are no ranges of %" PRIu64 " of %" PRIu64 " rows", n, rows);
	if (strcmp(form, "rows") == 0)
		snprintf(sql, sizeof sql, "SELECT k, v FROM %s WHERE k >= $1 ORDER BY k LIMIT %" PRIu64, table, n);
	else if (strcmp(form, "limit") == 0)
		snprintf(sql, sizeof sql, "SELECT " SUMS " FROM (SELECT k, v FROM %s WHERE k >= $1 ORDER BY k LIMIT %" PRIu64 ") s",
				 table, n);
	else if (strcmp(form, "between") == 0)
		snprintf(sql, sizeof sql, "SELECT " SUMS " FROM %s WHERE k BETWEEN $1 AND $2", table);
	else if (in)
		snprintf(sql, sizeof sql, "SELECT " SUMS " FROM %s WHERE k = ANY($1)", table);
	else
		die("there is no form \"%s\"", form);
	for (uint64_t i = 0; i < count; i++)
	{
		uint64_t	other = mix(random++) % (i + 1);

		part[i] = part[other];
		part[other] = i;
	}
	for (int c = 0; c < clients; c++)
	{
		if (fork() == 0)
		{
			PGconn	   *conn = connect_or_die();
			uint64_t	state = mix(random + c);
			Oid			types[2] = {in ? INT8ARRAYOID : INT8OID, INT8OID};

			if (!done(PQprepare(conn, "range", sql, strcmp(form, "between") == 0 ? 2 : 1, types), PGRES_COMMAND_OK))
				die("%s", last_message);
			wait_for_go(shared);
			for (uint64_t i = c; i < count; i += clients)
			{
				uint64_t	places = rows - n + 1;
				uint64_t	from = part[i] * places / count;
				uint64_t	to = (part[i] + 1) * places / count;
				uint64_t	first = from + (to > from ? mix(state++) % (to - from) : 0);

				if (in)
					shared->done[c] += in_list(conn, keys, rows, n, size, &state, &seconds[i]);
				else
					shared->done[c] += range(conn, form, keys, rows, first, n, size, &seconds[i]);
			}
			_exit(0);
		}
	}
	start = start_clients(shared, clients);
	wait_for_clients(clients);
	end = now();
	for (int c = 0; c < clients; c++)
		total += shared->done[c];
	qsort(seconds, count, sizeof *seconds, compare_doubles);
	printf("%" PRIu64 " %.3f %" PRIu64 " %.3f %.3f\n", count, end - start, total,
		   seconds[count / 2] * 1000, seconds[count * 99 / 100] * 1000);
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
	else if (strcmp(verb, "sums") == 0 && argc == 5)
		print_sums(number(argv[2]), number(argv[3]), value_size(argv[4]));
	else if (strcmp(verb, "each") == 0 && argc == 5)
		each(number(argv[2]), argv[3], argv[4]);
	else if (strcmp(verb, "late") == 0 && argc == 6)
		late(argv[2], argv[3], argv[4], number(argv[5]));
	else if (strcmp(verb, "beside") == 0 && argc == 8)
		beside(number(argv[2]), argv[3], argv[4], argv[5], value_size(argv[6]), number(argv[7]));
	else if (strcmp(verb, "ranges") == 0 && argc == 10)
		ranges(argv[2], number(argv[3]), number(argv[4]), value_size(argv[5]), number(argv[6]),
			   number(argv[7]), argv[8], number(argv[9]));
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
