/*
 * memcached_meta.c
 *		The meta commands' requests and replies.
 */
#include <stdint.h>

#include "memcached_test.h"

#define K50		"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define K250	K50 K50 K50 K50 K50
#define O31		"0123456789012345678901234567890"
#define WITH_ZERO(request, reply)	{.in = (request), .out = (reply), .in_length = sizeof(request) - 1}
#define STREAM(title, list, ...) \
	do { static const Stream s = {.name = title, .steps = list, ##__VA_ARGS__}; run_stream(&s); } while (0)

static const Step getting[] = {
	{"mn\r\n", "MN\r\n"},
	{"mg a v\r\n", "EN\r\n"},
	{"mg a v q\r\n", ""},
	{"mg a k Oabc v t\r\n", "EN ka Oabc\r\n"},
	{"ms a 3 F5 T100\r\none\r\n", "HD\r\n"},
	{"mg a\r\n", "HD\r\n"},
	{"mg a v\r\n", "VA 3\r\none\r\n"},
	{"mg a q v\r\n", "VA 3\r\none\r\n"},
	{"mg a t f s v k O" O31 "\r\n", "VA 3 t100 f5 s3 ka O" O31 "\r\none\r\n"},
	{"mg a   s  t\r\n", "HD s3 t100\r\n"},
	{"mg a t T200\r\n", "HD t100\r\n"},
	{"mg a T0 t\r\n", "HD t-1\r\n"},
	{"mg a T10 t u\r\n", "HD t10\r\n"},
	{"mg a T-1 t v\r\n", "VA 3 t0\r\none\r\n"},
	{"mg a\r\n", "EN\r\n"},
	{"ms a 0\r\n\r\n", "HD\r\n"},
	{"mg a v s t f\r\n", "VA 0 s0 t-1 f0\r\n\r\n"},
	{"get a\r\n", "VALUE a 0 0\r\n\r\nEND\r\n"},
	{"me a\r\n", "ME a exp=-1 cas=5 size=0\r\n"},
	{"me b\r\n", "EN\r\n"},
	{"me\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{0}
};

static const Step setting[] = {
	{"ms a 1\r\nx\r\n", "HD\r\n"},
	{"ms a 1 ME\r\ny\r\n", "NS\r\n"},
	{"ms b 1 ME k Oz\r\ny\r\n", "HD kb Oz\r\n"},
	{"ms c 1 MR\r\ny\r\n", "NS\r\n"},
	{"ms a 1 MR F7\r\nz\r\n", "HD\r\n"},
	{"ms a 2 MA F9\r\n..\r\n", "HD\r\n"},
	{"ms a 2 MP\r\n,,\r\n", "HD\r\n"},
	{"ms c 2 MP q\r\n,,\r\n", "NS\r\n"},
	{"ms a 0 MP q\r\n\r\n", ""},
	{"mg a v f\r\n", "VA 5 f7\r\n,,z..\r\n"},
	{"ms a 1 MS\r\nx\r\n", "HD\r\n"},
	{"ms a 1 q\r\nx\r\n", ""},
	{"ms a 1 T-1\r\nx\r\n", "HD\r\n"},
	{"mg a\r\n", "EN\r\n"},
	{"md a\r\n", "NF\r\n"},
	{"md b q k Oz\r\n", ""},
	{"md b q k Oz\r\n", "NF kb Oz\r\n"},
	{0}
};

static const Step numbers[] = {
	{"ms a 1 c\r\nx\r\n", "HD c1\r\n"},
	{"ms a 1 c k Ox C2\r\nx\r\n", "EX c0 ka Ox\r\n"},
	{"ms a 1 c C1\r\ny\r\n", "HD c2\r\n"},
	{"ms b 1 c C1\r\ny\r\n", "NF c0\r\n"},
	{"ms a 1 C1 MR\r\ny\r\n", "EX\r\n"},
	{"ms a 1 C1 MA\r\ny\r\n", "EX\r\n"},
	{"ms a 1 C2 MA c\r\ny\r\n", "HD c3\r\n"},
	{"ms a 1 C9 ME c\r\ny\r\n", "NS c0\r\n"},
	{"mg a c v\r\n", "VA 2 c3\r\nyy\r\n"},
	{"md a C1 k\r\n", "EX ka\r\n"},
	{"md a C3\r\n", "HD\r\n"},
	{"ma n N0 J5 c\r\n", "HD c4\r\n"},
	{"ma n C3\r\n", "EX\r\n"},
	{"ma n C4 c v\r\n", "VA 1 c5\r\n6\r\n"},
	{"ms a 1 Cx\r\ny\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{0}
};

static const Step stale[] = {
	/* of those who miss, one is told to make the item */
	{"mg a N30 t v\r\n", "VA 0 t30 W\r\n\r\n"},
	{"mg a N30 t v\r\n", "VA 0 t30 Z\r\n\r\n"},
	{"ms a 3 T100\r\nnew\r\n", "HD\r\n"},
	{"mg a N30 v\r\n", "VA 3\r\nnew\r\n"},
	/* of those who meet it shortly before it expires, too */
	{"mg a R50 v\r\n", "VA 3\r\nnew\r\n"},
	{"mg a R101 t\r\n", "HD t100 W\r\n"},
	{"mg a R101\r\n", "HD Z\r\n"},
	{"ms a 3 T100\r\nnew\r\n", "HD\r\n"},
	{"mg a T200 R150\r\n", "HD\r\n"},
	{"mg a R250 T300\r\n", "HD W\r\n"},
	{"ms a 3\r\nnew\r\n", "HD\r\n"},
	{"mg a R100\r\n", "HD\r\n"},
	/* and of those who meet what was declared stale */
	{"md a I T30\r\n", "HD\r\n"},
	{"mg a t v\r\n", "VA 3 t30 X W\r\nnew\r\n"},
	{"mg a t v\r\n", "VA 3 t30 Z X\r\nnew\r\n"},
	{"get a\r\n", "VALUE a 0 3\r\nnew\r\nEND\r\n"},
	{"ms a 3\r\nnow\r\n", "HD\r\n"},
	{"mg a v\r\n", "VA 3\r\nnow\r\n"},
	{"md b I\r\n", "NF\r\n"},
	{"mg c N10 T20 t\r\n", "HD t20 W\r\n"},
	{"mg d T20 N10 t\r\n", "HD t10 W\r\n"},
	{"mg e t N10\r\n", "HD t-1 W\r\n"},
	/* how long it lives is what the flags before t have made of it */
	{"mg f N30 t T100\r\n", "HD t30 W\r\n"},
	{"mg f N30 t T100\r\n", "HD t100 Z\r\n"},
	{"mg g T100 t N30 v\r\n", "VA 0 t100 W\r\n\r\n"},
	{"mg g t\r\n", "HD t30 Z\r\n"},
	{"mg h t N30 T100\r\n", "HD t-1 W\r\n"},
	{"mg h T200 t N30\r\n", "HD t200 Z\r\n"},
	{"mg i N0 t T100 R200\r\n", "HD t-1 W\r\n"},
	{"mg j N30 t T-1\r\n", "HD t30 W\r\n"},
	{"mg j\r\n", "EN\r\n"},
	{0}
};

static const Step older[] = {
	{"ms a 1 c T50\r\n1\r\n", "HD c1\r\n"},
	{"md a I\r\n", "HD\r\n"},
	{"mg a c v\r\n", "VA 1 c3 X W\r\n1\r\n"},
	/* who has fetched it before it became stale may store, and it stays stale */
	{"ms a 1 C1\r\n2\r\n", "EX\r\n"},
	{"ms a 1 C1 I T9\r\n2\r\n", "HD\r\n"},
	{"mg a c t v\r\n", "VA 1 c4 t50 Z X\r\n2\r\n"},
	{"ms a 1 C4 I T9\r\n3\r\n", "HD\r\n"},
	{"mg a c t v\r\n", "VA 1 c5 t9\r\n3\r\n"},
	{"ms b 1 C1 I\r\n2\r\n", "NF\r\n"},
	{"ms a 1 C0 I\r\n2\r\n", "EX\r\n"},
	{0}
};

/* memcached has 32 bits of a time, the highest of which is its sign */
static const Step borders[] = {
	{"ms a 1 T4294967295\r\nx\r\n", "HD\r\n"},
	{"mg a\r\n", "EN\r\n"},
	{"ms a 1 T4294967306\r\nx\r\n", "HD\r\n"},
	{"mg a t\r\n", "HD t10\r\n"},
	{"mg a T-4294967266 t R4294967327\r\n", "HD t30 W\r\n"},
	{"mg a T-2147483649 t\r\n", "HD t1147483647 Z\r\n"},
	{"mg a T2147483648\r\n", "HD Z\r\n"},
	{"mg a\r\n", "EN\r\n"},
	{"mg a N2147483648\r\n", "HD W\r\n"},
	{"mg a N4294967296 t\r\n", "HD t-1 W\r\n"},
	{"mg a R4294967295\r\n", "HD Z\r\n"},
	{"mg a T9223372036854775808\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{"ma n N4294967295\r\n", "HD\r\n"},
	{"ma n\r\n", "NF\r\n"},
	{"ma n N4294967346 J18446744073709551615 t\r\n", "HD t50\r\n"},
	{"ma n D18446744073709551615 v T4294967295\r\n", "VA 20\r\n18446744073709551614\r\n"},
	{"ma n\r\n", "NF\r\n"},
	{"ma n D18446744073709551616\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
	{"ms a 1 F4294967295\r\nx\r\n", "HD\r\n"},
	{"mg a f\r\n", "HD f4294967295\r\n"},
	{"ms a 1 F4294967296\r\nx\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ms a 4294967297\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"md a I T4294967295\r\n", "HD\r\n"},
	{"mg a\r\n", "EN\r\n"},
	{0}
};

static const Step counting[] = {
	{"ma n\r\n", "NF\r\n"},
	{"ma n q k Oz\r\n", "NF kn Oz\r\n"},
	{"ma n N90 J13 v t\r\n", "VA 2 t90\r\n13\r\n"},
	{"ma n v\r\n", "VA 2\r\n14\r\n"},
	{"ma n MI D5 v\r\n", "VA 2\r\n19\r\n"},
	{"ma n M+ v\r\n", "VA 2\r\n20\r\n"},
	{"ma n MD v\r\n", "VA 2\r\n19\r\n"},
	{"ma n M- D20 v k Oz\r\n", "VA 1 kn Oz\r\n0\r\n"},
	{"ma n t T10\r\n", "HD t90\r\n"},
	{"ma o N30 t T100\r\n", "HD t30\r\n"},
	{"ma o t\r\n", "HD t100\r\n"},
	{"ma p T100 t N30\r\n", "HD t100\r\n"},
	{"ma p t\r\n", "HD t30\r\n"},
	{"ma n T20 t\r\n", "HD t20\r\n"},
	{"ma n q\r\n", ""},
	{"ma n q v\r\n", ""},
	{"ma m N0 q\r\n", ""},
	{"mg n v\r\n", "VA 1\r\n4\r\n"},
	{"ms n 2\r\nhi\r\n", "HD\r\n"},
	{"ma n q\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
	{"ms n 0\r\n\r\n", "HD\r\n"},
	{"ma n C77\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"},
	{"ma n Dx\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
	{"ma n Jx\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
	{"ma n MX\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"},
	{0}
};

static const Step errors[] = {
	{"mx a\r\n", "ERROR\r\n"},
	{"mg\r\n", "ERROR\r\n"},
	{"ms\r\n", "ERROR\r\n"},
	{"ms a\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ms a S5\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ms a -1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"mg " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ms " K250 "x 1\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"md " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ma " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"me " K250 "x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"mg a v v\r\n", "CLIENT_ERROR duplicate flag\r\n"},
	{"mg a !\r\n", "CLIENT_ERROR invalid flag\r\n"},
	{"mg a ! Tx\r\n", "CLIENT_ERROR invalid flag\r\n"},
	{"mg a Tx ! v v\r\n", "CLIENT_ERROR invalid flag\r\n"},
	{"mg a Tx Fx\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{"mg a Fx Tx\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{"mg a h\r\n", "CLIENT_ERROR unsupported flag\r\n"},
	{"mg a l q\r\n", "CLIENT_ERROR unsupported flag\r\n"},
	{"mg a Tx\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{"mg a O" O31 "x\r\n", "CLIENT_ERROR opaque token too long\r\n"},
	{"mg a 1 2 3 4 5 6 7 8 9 0 A B C D F G H J\r\n", "CLIENT_ERROR options flags are too long\r\n"},
	{"ms a 2 Tx\r\nxy\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{"ms a 2 Fx q\r\nxy\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ms a 2 MZ\r\nxy\r\n", "CLIENT_ERROR invalid mode for ms M token\r\n"},
	{"ms a 2 MSS\r\nxy\r\n", "CLIENT_ERROR incorrect length for M token\r\n"},
	{"ms a 2 M\r\nxy\r\n", "CLIENT_ERROR incorrect length for M token\r\n"},
	/* a zero byte is a byte of the line, and no mode; memcached's line ends there, so it has the error of "M" alone */
	WITH_ZERO("ms a 2 M\0\r\nxy\r\n", "CLIENT_ERROR invalid mode for ms M token\r\n"),
	WITH_ZERO("ma a M\0\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"),
	WITH_ZERO("ms a 2 MS\0\r\nxy\r\n", "CLIENT_ERROR incorrect length for M token\r\n"),
	{"ms a 2 O" O31 "x\r\nxy\r\n", "CLIENT_ERROR opaque token too long\r\n"},
	/* a flag that is wrong by itself comes before a mode that there is not, and that before an opaque token */
	{"ms a 2 MX Fx\r\nxy\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ms a 2 Fx MX\r\nxy\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ms a 2 Tx MX Fx\r\nxy\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{"ms a 2 Tx O" O31 "x\r\nxy\r\n", "CLIENT_ERROR bad token in command line format\r\n"},
	{"ms a 2 MX O" O31 "x\r\nxy\r\n", "CLIENT_ERROR invalid mode for ms M token\r\n"},
	{"mg a Fx O" O31 "x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"mg a MX Fx\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"mg a MXX\r\n", "CLIENT_ERROR incorrect length for M token\r\n"},
	{"mg a MX\r\n", "EN\r\n"},
	{"md a MX\r\n", "NF\r\n"},
	{"md a Fx O" O31 "x\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
	{"ma a MX O" O31 "x\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"},
	{"ma a MX Dx\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
	{"ma a Dx MX\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
	{"ms a 2 c c\r\nxy\r\n", "CLIENT_ERROR duplicate flag\r\n"},
	{"ms a 2 q\r\nxyzw", "CLIENT_ERROR bad data chunk\r\n"},
	{"md a v v\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"},
	{"md a O" O31 "x\r\n", "CLIENT_ERROR opaque token too long\r\n"},
	{"version\r\n", "VERSION 1.6.18\r\n"},
	{0}
};

static const Step base64[] = {
	{"ms Zm9v 3 b k\r\nbar\r\n", "HD kZm9v b\r\n"},
	{"get foo\r\n", "VALUE foo 0 3\r\nbar\r\nEND\r\n"},
	{"mg Zm9v b k v\r\n", "VA 3 kZm9v b\r\nbar\r\n"},
	{"mg Zm9 b v\r\n", "CLIENT_ERROR error decoding key\r\n"},
	{"mg Zm9! b v\r\n", "CLIENT_ERROR error decoding key\r\n"},
	{"ms Zm9 2 b\r\nxy\r\n", "CLIENT_ERROR error decoding key\r\n"},
	{"me Zm9v b\r\n", "ME Zm9v exp=-1 cas=1 size=3\r\n"},
	{"me Zm9 b\r\n", "CLIENT_ERROR bad command line format\r\n"},
	{"ma Zm8= b k N0\r\n", "HD kZm8= b\r\n"},
	{"get fo\r\n", "VALUE fo 0 1\r\n0\r\nEND\r\n"},
	{"md Zg== b k\r\n", "NF kZg== b\r\n"},
	{"ms AAAA 1 b\r\nx\r\n", "HD\r\n"},
	{"mg AAAA b k v\r\n", "VA 1 kAAAA b\r\nx\r\n"},
	{0}
};

static const Step large[] = {
	{"ms a 10\r\n0123456789\r\n", "HD\r\n"},
	{"ms a 1 MA\r\nx\r\n", "NS\r\n"},
	{"ms a 11 MA\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"ms a 11 MP\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"ms a 11 ME\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"ms a 11 MR\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"mg a v\r\n", "VA 10\r\n0123456789\r\n"},
	{"ms a 11 q\r\n0123456789x\r\n", "SERVER_ERROR object too large for cache\r\n"},
	{"mg a\r\n", "EN\r\n"},
	{0}
};

void
test_meta(void)
{
	STREAM("meta: mg", getting,.numbers = true);
	STREAM("meta: ms and md", setting);
	STREAM("meta: cas numbers", numbers,.numbers = true);
	STREAM("meta: one client is told to make an item anew", stale);
	STREAM("meta: a value older than the item", older,.numbers = true);
	STREAM("meta: times and numbers at the borders of 32 and 64 bits", borders);
	STREAM("meta: ma", counting);
	STREAM("meta: errors, and their data are swallowed", errors);
	STREAM("meta: keys in base64", base64,.numbers = true);
	STREAM("meta: values that are too large, and set alone leaves no old one", large,.item_size = 10);
}
