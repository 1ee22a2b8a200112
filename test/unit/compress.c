/*
 * compress.c
 *		Values that are compressed become what they were, in no more bytes than pay; and of
 *		damaged ones nothing is read or written beside the bytes that there are.
 *
 * The source is included, with the few functions of the server that it calls.  Numbers are
 * drawn by a generator of its own, so each run is the same.
 */
#include "postgres.h"

#undef printf

#include "table/compress.c"

#define LARGEST		100000
#define DAMAGES		200

volatile sig_atomic_t InterruptPending = false;

static int	failed = 0;
static int	tests = 0;
static uint64 state = 1;
static Size largest = 0;		/* that was asked for */

/* ---- what the server has ---- */

void *
palloc(Size size)
{
	largest = Max(largest, size);
	return malloc(size);
}

void
pfree(void *pointer)
{
	free(pointer);
}

void
ProcessInterrupts(void)
{
}

/* ---- values ---- */

static uint32
draw(uint32 below)
{
	state = state * UINT64CONST(6364136223846793005) + 1442695040888963407;
	return (state >> 33) % below;
}

/* Noise, with repetitions of what was before: the more, the less is new. */
static void
make_value(char *value, Size len, int repeated)
{
	for (Size i = 0; i < len;)
	{
		Size		n = Min(len - i, 1 + draw(100));

		if (i > 0 && draw(100) < repeated)
		{
			Size		from = draw(i);

			for (Size j = 0; j < n; j++)
				value[i + j] = value[from + j];
		}
		else
			for (Size j = 0; j < n; j++)
				value[i + j] = draw(256);
		i += n;
	}
}

static Size
blocks(Size len)
{
	return (len + KV_BLOCK - 1) / KV_BLOCK;
}

static bool
pays(Size stored, Size len)
{
	if (len > KV_BLOCK)
		return blocks(stored) < blocks(len);
	return len > KV_BLOCK / 2 ? stored <= KV_BLOCK / 2 : stored * 5 <= len * 4 + 4;
}

/* A row of exactly these bytes, so that one more or less is found out. */
static KvRow
stored_row(KvForm form, const char *value, Size len)
{
	KvRow		row = {.form = form, .len = len, .value = malloc(Max(len, 1))};

	memcpy(unconstify(char *, row.value), value, len);
	return row;
}

static void
free_plain(KvRow *plain)
{
	if (plain->header != NULL)
		free((char *) plain->header + VARHDRSZ - MAXIMUM_ALIGNOF);
}

/* Is it an error, or a value of the length that it says? */
static bool
is_safe(KvRow row)
{
	KvRow		plain;
	Size		length = kv_value_length(&row);
	bool		whole = kv_value_decompress(&row, &plain);
	bool		safe = length <= KV_MAX_VALUE && (!whole || plain.len == length);

	/* its last byte can be read */
	if (whole)
		safe = safe && plain.value[length - 1] == ((char *) plain.header)[VARHDRSZ + length - 1];
	free_plain(&plain);
	free(unconstify(char *, row.value));
	return safe;
}

static bool
survives_damage(KvForm form, const char *stored, Size len)
{
	bool		safe = true;

	for (int i = 0; i < DAMAGES; i++)
	{
		Size		left = i % 3 == 0 ? draw(len + 1) : len;
		KvRow		row = stored_row(form, stored, left);
		char	   *bytes = unconstify(char *, row.value);

		for (int n = draw(4); left > 0 && n >= 0; n--)
			bytes[draw(i % 2 == 0 ? Min(left, 8) : left)] ^= 1 << draw(8);
		safe = is_safe(row) && safe;
	}
	return safe;
}

static void
result(bool ok, const char *what)
{
	failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", ++tests, what);
}

/* ---- the tests ---- */

static void
values(void)
{
	static char value[LARGEST];
	KvTable		table = {.compresses = true};
	int			compressed = 0;
	int			raw = 0;
	bool		same = true;
	bool		paid = true;
	bool		safe = true;

	for (int i = 0; i < 1000; i++)
	{
		Size		most = i % 3 == 0 ? LARGEST : i % 3 == 1 ? 3 * KV_BLOCK : KV_BLOCK + 1;
		Size		len = draw(most);
		KvForm		plain_form = i % 2 == 0 ? KV_FORM_RAW : KV_FORM_TUPLE;
		const char *bytes = value;
		Size		stored = len;
		KvForm		form;
		KvRow		row;
		KvRow		plain;

		make_value(value, len, draw(100));
		form = kv_value_compress(&table, plain_form, &bytes, &stored);
		if (form == plain_form)
		{
			raw++;
			same = same && bytes == value && stored == len;
			continue;
		}
		compressed++;
		row = stored_row(form, bytes, stored);
		paid = paid && pays(stored, len);
		same = same && kv_value_length(&row) == len && kv_value_decompress(&row, &plain) &&
			plain.form == plain_form && plain.len == len && memcmp(plain.value, value, len) == 0 &&
			(uintptr_t) plain.value % MAXIMUM_ALIGNOF == 0;
		free_plain(&plain);
		free(unconstify(char *, row.value));
		safe = safe && survives_damage(form, bytes, stored);
		free(unconstify(char *, bytes));
	}
	result(same && compressed > 200 && raw > 200, "values become what they were");
	result(paid, "those that are compressed pay");
	result(safe, "damage is an error, or a value of the length that it says");
}

/* The bounds of what pays, by values of which so many bytes are new. */
static void
bounds(void)
{
	static char value[4 * KV_BLOCK];
	KvTable		table = {.compresses = true};
	KvTable		other = {.compresses = false};
	bool		ok = true;
	struct
	{
		Size		len;
		Size		noise;
		bool		compressed;
	}			cases[] = {
		{63, 0, false}, {64, 0, true}, {200, 190, false}, {2048, 1500, true}, {2048, 1800, false},
		{4096, 1980, true}, {4096, 2100, false}, {4096, 3000, false}, {4097, 4000, true},
		{8192, 4000, true}, {8192, 4200, false}, {16384, 12000, true}, {16384, 12400, false}
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		for (int compresses = 0; compresses < 2; compresses++)
		{
			const char *bytes = value;
			Size		len = cases[i].len;
			KvForm		form;

			memset(value, 'x', cases[i].len);
			make_value(value, cases[i].noise, 0);
			form = kv_value_compress(compresses ? &table : &other, KV_FORM_RAW, &bytes, &len);
			if ((form != KV_FORM_RAW) != (compresses && cases[i].compressed))
			{
				printf("# %zu bytes, %zu of them noise: %zu\n", cases[i].len, cases[i].noise, len);
				ok = false;
			}
			if (form != KV_FORM_RAW)
				free(unconstify(char *, bytes));
		}
	}
	result(ok, "a value of a block is compressed to half of one, a larger one by a block, or not");
}

/* What says that it is longer than it can be is not worth the memory. */
static void
forged(void)
{
	static const struct
	{
		KvForm		form;
		const char *bytes;
		Size		len;
	}			cases[] = {
		{KV_FORM_LZ4, "", 0}, {KV_FORM_LZ4, "\4\0\0\0", 4}, {KV_FORM_LZ4, "\0\0\0\0\0", 5},
		{KV_FORM_LZ4, "\377\377\377\377\100abcd", 9}, {KV_FORM_LZ4, "\0\0\0\20\100abcd", 9},
		{KV_FORM_LZ4 | KV_FORM_NULL, "\4\0\0\0\100abcd", 9},
		{KV_FORM_LZ4 | KV_FORM_KEY, "\4\0\0\0\100abcd", 9},
		{KV_FORM_LZ4, "\5\0\0\0\100abcd", 9}, {KV_FORM_LZ4, "\3\0\0\0\100abcd", 9}
	};
	KvRow		good = stored_row(KV_FORM_LZ4, "\4\0\0\0\100abcd", 9);
	KvRow		plain;
	bool		ok = kv_value_decompress(&good, &plain) && memcmp(plain.value, "abcd", 4) == 0;

	free_plain(&plain);
	free(unconstify(char *, good.value));
	largest = 0;
	for (int i = 0; i < lengthof(cases); i++)
	{
		KvRow		row = stored_row(cases[i].form, cases[i].bytes, cases[i].len);

		ok = !kv_value_decompress(&row, &plain) && ok;
		free_plain(&plain);
		free(unconstify(char *, row.value));
	}
	for (uint32 length = KV_MAX_VALUE; length <= KV_MAX_VALUE + 1; length++)
	{
		KvRow		row = {.form = KV_FORM_LZ4, .len = KV_MAX_VALUE / 200, .value = calloc(1, KV_MAX_VALUE / 200)};

		memcpy(unconstify(char *, row.value), &length, sizeof(length));
		ok = kv_value_length(&row) == (length > KV_MAX_VALUE ? 0 : length) && ok;
		free(unconstify(char *, row.value));
	}
	result(ok && largest < 100, "bytes that cannot be a value are none, and cost no memory");
}

int
main(void)
{
	values();
	bounds();
	forged();
	return failed != 0;
}
