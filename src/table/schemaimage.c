/*
 * schemaimage.c
 *		Schema images as text: see the head of schema.c for their grammar.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "nodes/bitmapset.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "compat.h"
#include "engine/store.h"
#include "table/schemaimage.h"

#define SCHEMA_VERSION		1

/*
 * Read the last field of a column's line, which is "-" or bytes in hexadecimal; the
 * characters it takes, or 0.
 */
static int
parse_missing(const char *text, KvSchemaColumn *column)
{
	int			len;
	bool		fits;

	if (strncmp(text, " -\n", 3) == 0)
		return 2;
	len = strspn(text + 1, "0123456789abcdef");
	if (text[0] != ' ' || text[len + 1] != '\n' || len == 0 || len % 2 != 0)
		return 0;
	column->missing = palloc(Max(len / 2, VARHDRSZ));	/* whose header can be read */
	column->missing_len = hex_decode(text + 1, len, column->missing);
	if (column->attlen > 0)
		fits = column->missing_len == column->attlen;
	else if (column->attlen == -1)
		fits = column->missing_len >= VARHDRSZ && VARATT_IS_4B_U(column->missing) &&
			VARSIZE_4B(column->missing) == column->missing_len;
	else
		fits = memchr(column->missing, '\0', column->missing_len) ==
			column->missing + column->missing_len - 1;
	return fits ? len + 1 : 0;
}

/* Read a column's line, with which text begins; returns the bytes read, or 0. */
static int
parse_column(const char *text, KvSchemaColumn *column)
{
	int			attnum;
	int			attlen;
	int			used = 0;
	int			more;

	column->missing = NULL;
	column->missing_len = 0;
	if (sscanf(text, " column %d %u %d %c " UINT64_FORMAT "%n", &attnum, &column->typid, &attlen,
			   &column->attalign, &column->xid, &used) != 5)
		return 0;
	if (attnum < 1 || attnum > MaxHeapAttributeNumber || attlen < -2 || attlen == 0 ||
		attlen > PG_INT16_MAX || strchr("csid", column->attalign) == NULL)
		return 0;
	column->attnum = attnum;
	column->attlen = attlen;
	more = parse_missing(text + used, column);
	return more == 0 ? 0 : used + more;
}

void
kv_schema_raise_invalid(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("stored schema of foreign table \"%s\" is damaged",
					RelationGetRelationName(rel))));
}

/* Read an image; XX001 if it is not one, 0A000 if it is of another version. */
static void
parse_schema(Relation rel, const char *text, KvSchema *schema)
{
	int			version;
	int			used = 0;
	int			attnum;
	KvSchemaKey	key;
	Bitmapset  *seen = NULL;
	bool		valid;

	memset(schema, 0, offsetof(KvSchema, keys));

	valid = sscanf(text, "kvfdw schema %d " UINT64_FORMAT "%n",
				   &version, &schema->xid, &used) == 2;
	if (valid && version != SCHEMA_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("data of foreign table \"%s\" has schema version %d, but this library "
						"reads version %d",
						RelationGetRelationName(rel), version, SCHEMA_VERSION),
				 errhint("Use the version of kvfdw that wrote it.")));
	text += used;
	valid = valid && sscanf(text, " raw %d%n", &attnum, &used) == 1;
	if (valid)
	{
		schema->raw = attnum;
		text += used;
	}
	if (valid)
	{
		used = 0;
		sscanf(text, " forms lz4%n", &used);
		schema->compressed = used > 0;
		text += used;
	}
	while (valid && schema->nkeys < MaxHeapAttributeNumber &&
		   sscanf(text, " key %d %u %d %u%n", &attnum, &key.typid,
				  &key.typmod, &key.collation, &used) == 4)
	{
		key.attnum = attnum;
		schema->keys[schema->nkeys++] = key;
		text += used;
	}
	while (valid && schema->ncolumns < MaxHeapAttributeNumber &&
		   (used = parse_column(text, &schema->columns[schema->ncolumns])) > 0)
	{
		attnum = schema->columns[schema->ncolumns++].attnum;
		valid = !bms_is_member(attnum, seen);
		seen = bms_add_member(seen, attnum);
		text += used;
	}
	bms_free(seen);

	if (!valid || schema->nkeys == 0 || strcmp(text, "\n") != 0)
		kv_schema_raise_invalid(rel);
}

bool
kv_schema_read(Relation rel, KvStore *store, StringInfo image, KvSchema *schema,
			   uint32 *incarnation)
{
	initStringInfo(image);
	*incarnation = kv_store_get_schema(store, image);
	if (image->len > 0)
		parse_schema(rel, image->data, schema);
	return image->len > 0;
}

void
kv_schema_print(const KvSchema *schema, StringInfo into)
{
	resetStringInfo(into);
	appendStringInfo(into, "kvfdw schema %d " UINT64_FORMAT "\nraw %d\n",
					 SCHEMA_VERSION, schema->xid, schema->raw);
	if (schema->compressed)
		appendStringInfoString(into, "forms lz4\n");
	for (int i = 0; i < schema->nkeys; i++)
	{
		const KvSchemaKey *key = &schema->keys[i];

		appendStringInfo(into, "key %d %u %d %u\n", key->attnum, key->typid,
						 key->typmod, key->collation);
	}
	for (int i = 0; i < schema->ncolumns; i++)
	{
		const KvSchemaColumn *column = &schema->columns[i];

		appendStringInfo(into, "column %d %u %d %c " UINT64_FORMAT " ", column->attnum,
						 column->typid, column->attlen, column->attalign, column->xid);
		if (column->missing == NULL)
			appendStringInfoChar(into, '-');
		else
		{
			enlargeStringInfo(into, column->missing_len * 2);
			into->len += hex_encode(column->missing, column->missing_len, into->data + into->len);
		}
		appendStringInfoChar(into, '\n');
	}
}
