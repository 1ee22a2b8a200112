/*
 * memcached_text.c
 *		The classic text protocol's requests and replies.
 */
#include <stdint.h>

#include "memcached_test.h"

#define K50		"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define K250	K50 K50 K50 K50 K50
#define STREAM(title, list, ...) \
	do { static const Stream s = {.name = title, .steps = list, ##__VA_ARGS__}; run_stream(&s); } while (0)

static const Step storing[] = {
	{"get a\r\n", "END\r\n"},
	{"set a 5 0 3\r\none\r\n", "STORED\r\n"},
	{"get a\r\n", "VALUE a 5 3\r\none\r\nEND\r\n"},
	{"set a 0 0 0\r\n\r\n", "STORED\r\n"},
	{"get a\r\n", "VALUE a 0 0\r\n\r\nEND\r\n"},
	{"add a 0 0 3\r\ntwo\r\n", "NOT_STORED\r\n"},
	{"add b 4294967295 0 3\r\ntwo\r\n", "STORED\r\n"},
	{"replace c 0 0 5\r\nthree\r\n", "NOT_STORED\r\n"},
	{"replace b 1 0 5\r\nthree\r\n", "STORED\r\n"},
	{"append b 9 9 2\r\n!!\r\n", "STORED\r\n"},
	{"prepend b 9 9 2\r\n<<\r\n", "STORED\r\n"},
	{"append b 9 9 1\r\n?\r\n", "STORED\r\n"},
	{"prepend b 9 9 1\r\n>\r\n", "STORED\r\n"},
	{"prepend b 9 9 0\r\n\r\n", "STORED\r\n"},
	{"append c 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
	{"prepend c 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
	{"get a b c\r\n", "VALUE a 0 0\r\n\r\nVALUE b 1 11\r\n><<three!!?\r\nEND\r\n"},
	{"get  b   c b \r\n", "VALUE b 1 11\r\n><<three!!?\r\nVALUE b 1 11\r\n><<three!!?\r\nEND\r\n"},
	{"set a 0 0 4\r\n\r\n\r\n\r\n", "STORED\r\n"},
	{"get a\n", "VALUE a 0 4\r\n\r\n\r\n\r\nEND\r\n"},
	{"delete a\r\n", "DELETED\r\n"},
	{"delete a\r\n", "NOT_FOUND\r\n"},
	{"delete b 0\r\n", "DELETED\r\n"},
	{"set " K250 " 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"get " K250 " " K250 "\r\n", "VALUE " K250 " 0 1\r\nx\r\nVALUE " K250 " 0 1\r\nx\r\nEND\r\n"},
	{"set f +7 +0 +1\r\nx\r\n", "STORED\r\n"},
	{"bget f\r\n", "VALUE f 7 1\r\nx\r\nEND\r\n"},
	{0}
};

static const Step numbers[] = {
	{"gets a\r\n", "END\r\n"},
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"gets a\r\n", "VALUE a 0 1 1\r\nx\r\nEND\r\n"},
	{"cas a 0 0 1 2\r\ny\r\n", "EXISTS\r\n"},
	{"cas a 0 0 1 1\r\ny\r\n", "STORED\r\n"},
	{"cas a 0 0 1 1\r\nz\r\n", "EXISTS\r\n"},
	{"cas a 0 0 1 0\r\nz\r\n", "EXISTS\r\n"},
	{"cas b 0 0 1 1\r\nz\r\n", "NOT_FOUND\r\n"},
	{"gets a b a\r\n", "VALUE a 0 1 2\r\ny\r\nVALUE a 0 1 2\r\ny\r\nEND\r\n"},
	{"cas a 0 0 1 2 noreply\r\nz\r\n", ""},
	{"append a 0 0 1\r\nz\r\n", "STORED\r\n"},
	{"gats 100 a\r\n", "VALUE a 0 2 5\r\nzz\r\nEND\r\n"},
	{"gats 100 a\r\n", "VALUE a 0 2 5\r\nzz\r\nEND\r\n"},
	{"incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
	{"cas a 0 0 1 18446744073709551615\r\nz\r\n", "EXISTS\r\n"},
	{"cas a 0 0 1 18446744073709551616\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{0}
};

static const Step arithmetic[] = {
	{"incr a 1\r\n", "NOT_FOUND\r\n"},
	{"decr a 1\r\n", "NOT_FOUND\r\n"},
	{"set a 3 0 1\r\n1\r\n", "STORED\r\n"},
	{"incr a 1\r\n", "2\r\n"},
	{"incr a 8\r\n", "10\r\n"},
	{"get a\r\n", "VALUE a 3 2\r\n10\r\nEND\r\n"},
	{"decr a 1\r\n", "9\r\n"},
	{"decr a 9\r\n", "0\r\n"},
	{"decr a 5\r\n", "0\r\n"},
	{"incr a 18446744073709551615\r\n", "18446744073709551615\r\n"},
	{"incr a 2\r\n", "1\r\n"},
	{"set a 0 0 2\r\nhi\r\n", "STORED\r\n"},
	{"incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
	{"set a 0 0 0\r\n\r\n", "STORED\r\n"},
	{"incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
	{"set a 0 0 20\r\n18446744073709551616\r\n", "STORED\r\n"},
	{"incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
	{"set a 0 0 5\r\n12   \r\n", "STORED\r\n"},
	{"incr a 1\r\n", "13\r\n"},
	{"incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
	{"incr a -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
	{"incr a\r\n", "ERROR\r\n"},
	{"incr " K250 "x 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"incr a 1 noreply\r\n", ""},
	{"decr a 4 noreply\r\n", ""},
	{"get a\r\n", "VALUE a 0 2\r\n10\r\nEND\r\n"},
	{0}
};

static const Step expiry[] = {
	{"set a 0 -1 1\r\nx\r\n", "STORED\r\n"},
	{"get a\r\n", "END\r\n"},
	{"add a 0 100 1\r\nx\r\n", "STORED\r\n"},
	{"touch a 0\r\n", "TOUCHED\r\n"},
	{"touch b 0\r\n", "NOT_FOUND\r\n"},
	{"gat 10 a b\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
	{"gat -1 a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
	{"get a\r\n", "END\r\n"},
	{"set a 0 2592000 1\r\nx\r\n", "STORED\r\n"},
	{"get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
	{"set a 0 2592001 1\r\nx\r\n", "STORED\r\n"},
	{"get a\r\n", "END\r\n"},
	{"set a 0 999999999 1\r\nx\r\n", "STORED\r\n"},
	{"get a\r\n", "END\r\n"},
	{"set a 0 1000000001 1\r\nx\r\n", "STORED\r\n"},
	{"get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
	{"touch a -5\r\n", "TOUCHED\r\n"},
	{"incr a 1\r\n", "NOT_FOUND\r\n"},
	{"touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
	{"touch " K250 "x 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"touch a 0 noreply\r\n", ""},
	{"gat x a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
	{"gat 10\r\n", "END\r\n"},
	{"gat\r\n", "ERROR\r\n"},
	{0}
};

#define ONE			"VALUE a 0 1\r\nx\r\nEND\r\n"
#define EXPIRES(time, reply) \
	{"set a 0 " time " 1\r\nx\r\n", "STORED\r\n"}, {"get a\r\n", (reply)}, \
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"}, {"gat " time " a\r\n", ONE}, {"get a\r\n", (reply)}, \
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"}, {"touch a " time "\r\n", "TOUCHED\r\n"}, {"get a\r\n", (reply)}

/* memcached has 32 bits of a time, the highest of which is its sign */
static const Step expiry_borders[] = {
	EXPIRES("2147483647", ONE),
	EXPIRES("2147483648", "END\r\n"),
	EXPIRES("4294967295", "END\r\n"),
	EXPIRES("4294967296", ONE),
	EXPIRES("4294968296", ONE),
	EXPIRES("4298000000", "END\r\n"),
	EXPIRES("9223372036854775807", "END\r\n"),
	EXPIRES("-2147483648", "END\r\n"),
	EXPIRES("-2147483649", ONE),
	EXPIRES("-4294967296", ONE),
	EXPIRES("-9223372036854775808", ONE),
	EXPIRES("\t+5\tx", ONE),
	{"set a 0 9223372036854775808 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"touch a -9223372036854775809\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
	{"gat 18446744073709551615 a\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
	{"flush_all 4294967295\r\n", "OK\r\n"},
	{"get a\r\n", "END\r\n"},
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"flush_all 2147483647\r\n", "OK\r\n"},
	{"get a\r\n", ONE},
	{"flush_all 9223372036854775808\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
	{"flush_all 4294967296\r\n", "OK\r\n"},
	{"get a\r\n", "END\r\n"},
	{0}
};

static const Step number_borders[] = {
	{"set n 4294967295 0 1\r\n0\r\n", "STORED\r\n"},
	{"incr n 18446744073709551615\r\n", "18446744073709551615\r\n"},
	{"incr n 1\r\n", "0\r\n"},
	{"incr n 18446744073709551616\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
	{"incr n -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
	{"incr n -9223372036854775808\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
	{"incr n -0\r\n", "0\r\n"},
	{"incr n -18446744073709551615\r\n", "1\r\n"},
	{"incr n \t+5\tx\r\n", "6\r\n"},
	{"incr n 1\r\r\n", "7\r\n"},
	{"cas n 0 0 1 18446744073709551615\r\n1\r\n", "EXISTS\r\n"},
	{"cas n 0 0 1 18446744073709551616\r\n", "CLIENT_ERROR bad command line format\r\n"},
	/* what memcached cuts to 32 bits, and would take for another number */
	{"set n 18446744073709551615 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set n 0 0 4294967297\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set n 0 0 -4294967295\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"verbosity 4294967296\r\n", "OK\r\n"},
	{"verbosity 18446744073709551616\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"verbosity -1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"cache_memlimit 4294967296\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"},
	{"cache_memlimit 4294967295\r\n", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"},
	{"cache_memlimit x\r\n", "ERROR\r\n"},
	{0}
};

static const Step errors[] = {
	{"\r\n", "ERROR\r\n"},
	{"   \r\n", "ERROR\r\n"},
	{"x\r\n", "ERROR\r\n"},
	{"get\r\n", "ERROR\r\n"},
	{"GET a\r\n", "ERROR\r\n"},
	{"get " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"get a b " K250 "x c\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a 0 0\r\n", "ERROR\r\n"},
	{"set a 0 0 1 1 1\r\n", "ERROR\r\n"},
	{"set a x 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a -1 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a 4294967296 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a 0 x 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a 0 0 2147483647\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a 0 0 1x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set " K250 "x 0 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"set a 0 0 1\r\nxyz", "CLIENT_ERROR bad data chunk\r\n"},
	{"set a 0 0 1 noreply\r\nxyz", ""},
	{"set a 0 0 x noreply\r\n", ""},
	{"set a 0 0 3 noreply\r\none\r\n", ""},
	{"add a 0 0 3 noreply\r\none\r\n", ""},
	{"set a 0 0 3 nonsense\r\none\r\n", "STORED\r\n"},
	{"delete a noreply\r\n", ""},
	{"delete a 0 noreply\r\n", ""},
	{"delete a 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"},
	{"delete a 0 0\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"},
	{"delete a b c d\r\n", "ERROR\r\n"},
	{"delete " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"delete\r\n", "ERROR\r\n"},
	{"boguscommand slkdsldkfjsd\r\n", "ERROR\r\n"},
	{"version\r\n", "VERSION 1.6.18\r\n"},
	{"verbosity 1\r\n", "OK\r\n"},
	{"verbosity\r\n", "ERROR\r\n"},
	{"verbosity x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"verbosity 1 noreply\r\n", ""},
	{"shutdown\r\n", "ERROR: shutdown not enabled\r\n"},
	{"watch mutations\r\n", "CLIENT_ERROR watch commands not allowed\r\n"},
	{"lru_crawler enable\r\n", "ERROR\r\n"},
	{"lru_crawler crawl all\r\n", "CLIENT_ERROR lru crawler disabled\r\n"},
	{"slabs reassign 1 2\r\n", "CLIENT_ERROR slab reassignment disabled\r\n"},
	{"slabs\r\n", "ERROR\r\n"},
	{"slabs automove x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"slabs automove 1\r\n", "ERROR\r\n"},
	{"cache_memlimit 10\r\n", "OK\r\n"},
	{"cache_memlimit 7\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"},
	{"cache_memlimit 1000000001\r\n", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"},
	{"cache_memlimit x\r\n", "ERROR\r\n"},
	{"cache_memlimit 10 noreply\r\n", ""},
	{"stats\r\n", "STAT pid 1\r\nEND\r\n"},
	{"stats reset\r\n", "RESET\r\n"},
	{"stats nonsense\r\n", "ERROR\r\n"},
	{"stats " K250 "x\r\n", "ERROR\r\n"},
	{0}
};

static const Step flushing[] = {
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"flush_all 10\r\n", "OK\r\n"},
	{"get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
	{"flush_all\r\n", "OK\r\n"},
	{"get a\r\n", "END\r\n"},
	{"add a 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"flush_all 0 noreply\r\n", ""},
	{"get a\r\n", "END\r\n"},
	{"flush_all noreply\r\n", ""},
	{"flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
	{"flush_all 0 0 0\r\n", "ERROR\r\n"},
	{0}
};

static const Step not_flushing[] = {
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n"},
	{"flush_all x\r\n", "CLIENT_ERROR flush_all not allowed\r\n"},
	{"flush_all noreply\r\n", ""},
	{"get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
	{0}
};

static const Step large[] = {
	{"set a 0 0 10\r\n0123456789\r\n", "STORED\r\n"},
	{"append a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
	{"prepend a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
	{"add b 0 0 11\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"append a 0 0 11\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"get a\r\n", "VALUE a 0 10\r\n0123456789\r\nEND\r\n"},
	{"set a 0 0 11\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"get a\r\n", "END\r\n"},
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"set a 0 0 11 noreply\r\nget a\r\nvers\r\n", ""},
	{"get a\r\n", "END\r\n"},
	{0}
};


static const Step quitting[] = {
	{"set a 0 0 1\r\nx\r\n", "STORED\r\n"},
	{"quit\r\nget a\r\n", ""},
	{0}
};

static const Step browser[] = {
	{"version\r\n", "VERSION 1.6.18\r\n"},
	{"POST /x HTTP/1.1\r\nversion\r\n", ""},
	{0}
};

static const Step authentication[] = {
	{"get a\r\n", "CLIENT_ERROR unauthenticated\r\n"},
	{"version\r\n", "CLIENT_ERROR unauthenticated\r\n"},
	{"mn\r\n", "CLIENT_ERROR unauthenticated\r\n"},
	{"set x 0 0\r\n", "CLIENT_ERROR unauthenticated\r\n"},
	{"set x 0 0 x\r\n", "CLIENT_ERROR unauthenticated\r\n"},
	{"set x 0 0 4\r\nuser\r\n", "CLIENT_ERROR bad authentication token format\r\n"},
	{"set x 0 0 4\r\nuserxx", "CLIENT_ERROR bad command line termination\r\n"},
	{"set x 0 0 1025\r\nuser " K250 K250 K250 K250 "kkkkkkkkkkkkkkkkkkkk\r\n", "CLIENT_ERROR auth token too long\r\n"},
	{"set x 0 0 10\r\nuser wrong\r\n", "CLIENT_ERROR authentication failure\r\n"},
	{"get a\r\n", "CLIENT_ERROR unauthenticated\r\n"},
	{"set x 0 0 11\r\nuser secret\r\nset a 0 0 1\r\nx\r\n", "STORED\r\nSTORED\r\n"},
	{"get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"},
	{0}
};

void
test_text(void)
{
	STREAM("text: what is stored is got", storing);
	STREAM("text: cas numbers", numbers,.numbers = true);
	STREAM("text: incr and decr", arithmetic);
	STREAM("text: expiry, touch and gat", expiry);
	STREAM("text: times of expiry at the borders of 32 and 64 bits", expiry_borders);
	STREAM("text: other numbers at those borders", number_borders);
	STREAM("text: errors, noreply, what has no item", errors);
	STREAM("text: flush_all", flushing);
	STREAM("text: flush_all where it is not allowed", not_flushing,.no_flush = true);
	STREAM("text: values that are too large are swallowed, and set leaves no old one", large,.item_size = 10);
	STREAM("text: quit", quitting,.closes = true);
	STREAM("text: what a browser sends ends the connection", browser,.closes = true);
	STREAM("text: authentication", authentication,.auth = true);
}
