/*
 * schema.c
 *		Opens a table's store, if its rows fit the table's definition.
 *
 * PostgreSQL lets ALTER FOREIGN TABLE change a column's type without touching the data, so each
 * store has a schema image: a text that describes the definition with which its rows were
 * written.  Every KvTable is compared with it once:
 *
 *		kvfdw schema 1 xid
 *		raw attnum
 *		forms lz4											(only if there may be such)
 *		key attnum typid typmod collation					(in key order)
 *		column attnum typid length alignment xid missing	(every value column)
 *
 * Types are base types; typmod is -1 but for bpchar, whose keys depend on it.  The collation is
 * not compared: it orders no keys, and pg_upgrade gives it another OID. missing is the value of
 * rows that are older than the column (added.c). raw is the column that rows in KV_FORM_RAW
 * belong to, for as long as the store lives, or 0.  The first writer of a store sets the image;
 * a writer whose table has columns that the image lacks adds them before it writes.
 *
 * The line forms stays in the image when the option is dropped: rows may have such values.
 *
 * Dropped columns stay in the image, since attribute numbers are not used twice.  Only the
 * image knows their format in old rows: the type may have been changed before the drop, and may
 * have been dropped with the column.
 *
 * xid is not 0 if the (sub)transaction that wrote the line held the table's
 * AccessExclusiveLock, so that it may have made the definition itself.  If it aborted, so did
 * its rows, and the line is ignored.  The next writer resolves such lines, so those that an
 * image has are of one transaction and its subtransactions, in the incarnation that wrote the
 * image (which the engine stores with it).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/tupmacs.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "parser/parse_coerce.h"
#include "port/pg_bswap.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "engine/change.h"
#include "engine/engine.h"
#include "engine/store.h"
#include "table/definition.h"
#include "table/internal.h"
#include "table/table.h"

/* ---- schema images as text: the grammar is in the head ---- */

typedef struct KvSchemaKey
{
	AttrNumber	attnum;
	Oid			typid;
	int32		typmod;
	Oid			collation;
} KvSchemaKey;

typedef struct KvSchemaColumn
{
	AttrNumber	attnum;
	Oid			typid;
	int16		attlen;			/* as in pg_attribute */
	char		attalign;
	uint64		xid;
	char	   *missing;		/* its bytes as in a row; NULL: the column is NULL there */
	int			missing_len;
} KvSchemaColumn;

/* The image in memory. */
typedef struct KvSchema
{
	uint64		xid;
	AttrNumber	raw;
	bool		compressed;		/* values may be */
	int			nkeys;
	int			ncolumns;
	KvSchemaKey	keys[MaxHeapAttributeNumber];
	KvSchemaColumn columns[MaxHeapAttributeNumber];
} KvSchema;

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

/* Raise XX001: the image is invalid. */
KV_NORETURN static void
raise_invalid(Relation rel)
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
		raise_invalid(rel);
}

/*
 * Read a store's image, and the incarnation of the server that wrote it; false: the store
 * has none yet.  *image gets its bytes.
 */
static bool
read_schema(Relation rel, KvStore *store, StringInfo image, KvSchema *schema,
			uint32 *incarnation)
{
	initStringInfo(image);
	*incarnation = kv_store_get_schema(store, image);
	if (image->len > 0)
		parse_schema(rel, image->data, schema);
	return image->len > 0;
}

/* Print the image as text, which replaces the contents of into. */
static void
print_schema(const KvSchema *schema, StringInfo into)
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

/* ---- the image and the definition ---- */

/*
 * Did the transaction of a line abort?  False while it runs, or if that is unknown.
 * incarnation: of the server that wrote the image.
 */
static bool
line_aborted(uint64 xid, uint32 incarnation)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		status;

	if (xid == 0)
		return false;

	/* an xid from before a crash that was never logged; another transaction may have it by now */
	if (kv_xid_was_lost(xid, incarnation) ||
		xid >= U64FromFullTransactionId(ReadNextFullTransactionId()))
		return true;
	if (TransactionIdIsCurrentTransactionId((TransactionId) xid))
		return false;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = UInt64GetDatum(xid);
	fcinfo->args[0].isnull = false;
	status = pg_xact_status(fcinfo);
	return !fcinfo->isnull &&
		strcmp(TextDatumGetCString(status), "aborted") == 0;
}

/*
 * The xid of a new line: see the head of this file.  A store that is created with its table is
 * dropped with it.
 */
static uint64
line_xid(Relation rel)
{
	if (rel->rd_createSubid != GetCurrentSubTransactionId() &&
		CheckRelationLockedByMe(rel, AccessExclusiveLock, false))
		return U64FromFullTransactionId(GetCurrentFullTransactionId());
	return 0;
}

static int32
schema_typmod(const KvKeyColumn *column)
{
	return column->kind == KV_KEY_BPCHAR ? column->typmod : -1;
}

static bool
is_value_column(const KvTable *table, int index)
{
	return table->valdesc != NULL &&
		!TupleDescAttr(table->valdesc, index)->attisdropped;
}

static KvSchemaColumn *
find_schema_column(KvSchema *schema, AttrNumber attnum)
{
	for (int i = 0; i < schema->ncolumns; i++)
	{
		if (schema->columns[i].attnum == attnum)
			return &schema->columns[i];
	}
	return NULL;
}

/* Make the image of an empty store, without its columns. */
static void
new_schema(Relation rel, const KvTable *table, KvSchema *schema)
{
	memset(schema, 0, offsetof(KvSchema, keys));
	schema->xid = line_xid(rel);
	schema->raw = table->raw_candidate;
	schema->nkeys = table->nkeys;
	for (int i = 0; i < table->nkeys; i++)
	{
		const KvKeyColumn *column = &table->keys[i];

		schema->keys[i].attnum = column->attnum;
		schema->keys[i].typid = column->typid;
		schema->keys[i].typmod = schema_typmod(column);
		schema->keys[i].collation = column->collation;
	}
}

KV_NORETURN static void
raise_mismatch(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
			 errmsg("definition of foreign table \"%s\" does not match its stored data",
					RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail),
			 errhint("Change the definition back to that of the stored data.")));
}

/*
 * The difference between the definition's key and the image's, palloc'd; NULL if there is none.
 */
static const char *
key_mismatch(const KvTable *table, const KvSchema *schema)
{
	bool		same = schema->nkeys == table->nkeys;

	for (int i = 0; same && i < table->nkeys; i++)
		same = schema->keys[i].attnum == table->keys[i].attnum;
	if (!same)
		return "The key has other columns than when the data was stored.";

	for (int i = 0; i < table->nkeys; i++)
	{
		const KvSchemaKey *stored = &schema->keys[i];
		const KvKeyColumn *now = &table->keys[i];
		const char *name = NameStr(TupleDescAttr(table->tupdesc, now->attnum - 1)->attname);
		KvKeyKind	kind;
		bool		lossy;

		/* text and varchar, timestamp with and without zone: the same bytes */
		if (stored->typid != now->typid &&
			(!kv_key_type_supported(stored->typid, &kind, &lossy) ||
			 kind != now->kind || kind == KV_KEY_TIMESTAMP))
			return psprintf("Key column \"%s\" is of type %s, but was stored as %s.",
							name, format_type_be(now->typid), format_type_be(stored->typid));
		if (stored->typmod != schema_typmod(now))
			return psprintf("Key column \"%s\" is of type %s, but was stored as %s.",
							name,
							format_type_with_typemod(now->typid, now->typmod),
							format_type_with_typemod(stored->typid, stored->typmod));
	}
	return NULL;
}

/*
 * Have rows decoded with the format in which their columns were written, dropped ones too.  A
 * dropped column that the image does not have is in no row.
 */
static void
set_stored_forms(KvTable *table, KvSchema *schema)
{
	for (int i = 0; table->valdesc != NULL && i < table->valdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->valdesc, i);
		const KvSchemaColumn *stored = find_schema_column(schema, att->attnum);

		if (stored != NULL)
		{
			att->attlen = stored->attlen;
			att->attalign = stored->attalign;
		}
		else if (TupleDescAttr(table->tupdesc, i)->attisdropped)
			att->attlen = KV_NOT_STORED;
		kv_attribute_changed(table->valdesc, i);
	}
}

/* Set the bytes that a row has of such a datum, neither compressed nor out of line. */
static void
set_missing(KvSchemaColumn *column, Form_pg_attribute att, Datum value)
{
	if (att->attbyval)
	{
		column->missing = palloc(sizeof(Datum));
		store_att_byval(column->missing, value, att->attlen);
		column->missing_len = att->attlen;
	}
	else
	{
		column->missing = DatumGetPointer(value);
		column->missing_len = datumGetSize(value, false, att->attlen);
	}
}

/*
 * Set the values of rows older than a column, for kv_tuple_decode.  The former list is not
 * changed: it may still be in use.
 */
static void
set_missing_values(KvTable *table, const KvSchema *schema)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(table));

	table->nmissing = 0;
	for (int i = 0; i < schema->ncolumns; i++)
	{
		const KvSchemaColumn *column = &schema->columns[i];
		Form_pg_attribute att;
		KvMissing  *missing;

		if (column->missing == NULL || column->attnum > table->tupdesc->natts)
			continue;
		att = TupleDescAttr(table->tupdesc, column->attnum - 1);
		if (att->attisdropped)
			continue;
		if (table->nmissing == 0)
			table->missing = palloc(sizeof(KvMissing) * schema->ncolumns);
		missing = &table->missing[table->nmissing++];
		missing->attnum = column->attnum;
		if (att->attbyval)
			missing->value = fetch_att(column->missing, true, att->attlen);
		else
			missing->value = PointerGetDatum(memcpy(palloc(column->missing_len),
													column->missing, column->missing_len));
	}
	MemoryContextSwitchTo(old);
}

/* The line of a column of the definition, which is compared with the image's, or added. */
static KvSchemaColumn *
check_column(Relation rel, KvSchema *schema, Form_pg_attribute att)
{
	KvSchemaColumn *stored = find_schema_column(schema, att->attnum);
	Oid			typid = getBaseType(att->atttypid);

	if (stored == NULL)
	{
		stored = &schema->columns[schema->ncolumns++];
		memset(stored, 0, sizeof(*stored));
		stored->attnum = att->attnum;
		stored->typid = typid;
		stored->attlen = att->attlen;
		stored->attalign = att->attalign;
		stored->xid = line_xid(rel);
	}
	else if (stored->typid != typid &&
			 !IsBinaryCoercible(stored->typid, typid))
		raise_mismatch(rel, psprintf("Column \"%s\" is of type %s, but was stored as %s.",
									 NameStr(att->attname), format_type_be(typid),
									 format_type_be(stored->typid)));
	return stored;
}

/* Remove columns of aborted transactions. */
static void
resolve_columns(KvSchema *schema, int natts, uint32 incarnation)
{
	for (int i = schema->ncolumns - 1; i >= 0; i--)
	{
		KvSchemaColumn *column = &schema->columns[i];

		if (column->attnum > natts || line_aborted(column->xid, incarnation))
			*column = schema->columns[--schema->ncolumns];
		else if (!TransactionIdIsCurrentTransactionId((TransactionId) column->xid))
			column->xid = 0;
	}
}

/*
 * Compare a store's image with the definition, and take from it what kv_tuple_decode needs.
 * to_write: complete the image.  added: KvMissing of columns that this statement has added.
 */
static void
check_schema(Relation rel, KvTable *table, KvStore *store, bool to_write, List *added)
{
	ListCell   *cell;
	StringInfoData image;
	StringInfoData complete;
	KvSchema	   *schema = palloc(sizeof(KvSchema));
	TupleDesc	desc = table->tupdesc;
	bool		fits;
	bool		stored;
	uint32		incarnation;

	stored = read_schema(rel, store, &image, schema, &incarnation);
	fits = kv_store_fits_keys(store, table->key_width);
	if (!stored || (line_aborted(schema->xid, incarnation) && fits))
	{
		/* created by TRUNCATE, before the key was changed */
		if (to_write && !fits)
			raise_mismatch(rel,
						   "Keys of the table have another length than when it was last "
						   "truncated.");
		new_schema(rel, table, schema);
	}
	else
	{
		const char *mismatch = key_mismatch(table, schema);

		if (mismatch != NULL)
			raise_mismatch(rel, mismatch);
		if (!fits)
			raise_invalid(rel);
		if (!TransactionIdIsCurrentTransactionId((TransactionId) schema->xid))
			schema->xid = 0;
	}

	/* a stale KvTable that is in use writes with its own options, too */
	for (KvTable *each = table; each != NULL; each = each->stale)
		schema->compressed |= each->compresses;
	resolve_columns(schema, desc->natts, incarnation);
	for (int i = 0; i < desc->natts; i++)
	{
		if (is_value_column(table, i))
			(void) check_column(rel, schema, TupleDescAttr(desc, i));
	}
	foreach(cell, added)
	{
		const KvMissing *missing = lfirst(cell);
		Form_pg_attribute att = TupleDescAttr(desc, missing->attnum - 1);

		set_missing(check_column(rel, schema, att), att, missing->value);
	}

	if (to_write)
	{
		initStringInfo(&complete);
		print_schema(schema, &complete);
		if (complete.len != image.len ||
			memcmp(complete.data, image.data, image.len) != 0)
			kv_store_set_schema(store, complete.data, complete.len);
		pfree(complete.data);
	}

	/* a stale KvTable that is still in use has this shape and must be changed, too */
	for (KvTable *each = table; each != NULL; each = each->stale)
	{
		each->raw_stored = schema->raw;
		each->raw_attnum = each->raw_candidate == schema->raw ? schema->raw : 0;
		set_stored_forms(each, schema);
		set_missing_values(each, schema);
	}
	table->checked_store = store;
	table->writable = to_write;

	pfree(image.data);
	pfree(schema);
}

/* ---- stores ---- */

/*
 * The lower bounds of a new store's shards: shard i begins at i / shards of all 8-byte strings
 * (with no trailing zeros, so that a shorter key that equals a bound is not below it).  So the
 * split is by encoded keys.  Uuids and hashes spread evenly; small positive integers, whose
 * sign bit is flipped, are all at the beginning of the upper half.
 */
static KvKey *
make_bounds(int shards)
{
	KvKey	   *bounds = palloc(sizeof(KvKey) * shards);
	uint64	   *starts = palloc(sizeof(uint64) * shards);

	for (int i = 0; i < shards; i++)
	{
		/* i * 2^64 / shards, in two halves of long division */
		uint64		high = ((uint64) i << 32) / shards;
		uint64		rest = ((uint64) i << 32) % shards;

		starts[i] = pg_hton64((high << 32) | ((rest << 32) / shards));
		bounds[i].data = (const uint8 *) &starts[i];
		bounds[i].len = sizeof(uint64);
		while (bounds[i].len > 0 && bounds[i].data[bounds[i].len - 1] == 0)
			bounds[i].len--;
	}
	return bounds;
}

KvRenewed	kv_renewed = {InvalidOid, NULL};

/* bounds NULL: open the store only if there is one. */
static KvStore *
open_store(Relation rel, const KvTable *table, const KvKey *bounds)
{
	return kv_store_open(MyDatabaseId, table->relid, table->shards, table->key_width, bounds,
						 table->wal, table->tablespace, rel->rd_createSubid);
}

/* The table's store if there is one; ERROR if there should be one (mark.c). */
static KvStore *
find_store(Relation rel, KvTable *table)
{
	KvStore    *store;

	if (unlikely(table->relid == kv_renewed.relid))
		return kv_renewed.from;
	store = open_store(rel, table, NULL);
	if (store != NULL || table->unmarked)
		return store;
	if (kv_mark_exists(table->relid))
	{
		/* a first writer may have come in between */
		store = open_store(rel, table, NULL);
		if (store == NULL)
			kv_mark_raise_missing(table->relid);
		return store;
	}
	table->unmarked = true;
	return NULL;
}

KvStore *
kv_table_store(Relation rel, bool create)
{
	KvTable    *table = kv_table_get(rel);
	KvStore    *store;

	kv_engine_require();
	if (create && table->relid == kv_renewed.relid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot change foreign table \"%s\" while its rows are being rewritten",
						RelationGetRelationName(rel))));

	store = find_store(rel, table);
	if (store == NULL)
	{
		KvKey	   *bounds;

		if (!create)
			return NULL;
		bounds = make_bounds(table->shards);
		store = open_store(rel, table, bounds);
		pfree(unconstify(uint8 *, bounds[0].data));
		pfree(bounds);
	}

	if (unlikely(table->checked_store != store || (create && !table->writable)))
		check_schema(rel, table, store, create, NIL);
	if (!table->options_pending)
	{
		kv_store_bound_space(store, table->space_amp);
		if (create && !RecoveryInProgress())
			kv_store_follow(store, table->tablespace);
	}
	if (create)
	{
		kv_store_feed(store, table->changes);
		kv_mark_ensure(table);
	}
	return store;
}

KvStore *
kv_table_written_store(Relation rel)
{
	KvStore    *store = find_store(rel, kv_table_get(rel));
	StringInfoData image;

	if (store == NULL)
		return NULL;
	initStringInfo(&image);
	(void) kv_store_get_schema(store, &image);
	return image.len == 0 ? NULL : kv_table_store(rel, true);
}

bool
kv_table_columns_fit(Relation rel)
{
	KvTable    *table = kv_table_get(rel);
	KvStore    *store = find_store(rel, table);
	TupleDesc	desc = table->tupdesc;
	StringInfoData image;
	KvSchema		schema;
	uint32		incarnation;

	if (store == NULL || !read_schema(rel, store, &image, &schema, &incarnation))
		return true;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		KvSchemaColumn *stored = is_value_column(table, i)
			? find_schema_column(&schema, att->attnum) : NULL;

		if (stored != NULL && !IsBinaryCoercible(stored->typid, getBaseType(att->atttypid)))
			return false;
	}
	return key_mismatch(table, &schema) == NULL;
}

void
kv_table_fit_key(Relation rel)
{
	KvTable    *table = kv_table_get(rel);
	KvWalLevel	level;
	KvStore    *store;
	StringInfoData image;
	KvSchema	   *schema;
	const char *mismatch = NULL;
	uint32		incarnation;

	/*
	 * not where a store is missing or cannot be used: each use reports that, and TRUNCATE helps
	 */
	if (!kv_store_wal_level(MyDatabaseId, table->relid, &level))
		return;
	store = find_store(rel, table);
	if (store == NULL)
		return;
	schema = palloc(sizeof(KvSchema));
	if (read_schema(rel, store, &image, schema, &incarnation) &&
		!line_aborted(schema->xid, incarnation))
		mismatch = key_mismatch(table, schema);
	pfree(schema);
	pfree(image.data);
	if (mismatch == NULL && kv_store_fits_keys(store, table->key_width))
		return;
	if (!kv_table_has_rows(rel))
		kv_table_truncate(rel);
	else if (mismatch != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("cannot change the key of foreign table \"%s\" while it has rows",
						RelationGetRelationName(rel)),
				 errdetail_internal("%s", mismatch),
				 errhint("Create a table with another key, and copy the rows into it.")));
}

void
kv_table_set_missing(Relation rel, List *added)
{
	KvStore    *store = kv_table_written_store(rel);

	if (store != NULL)
		check_schema(rel, kv_table_get(rel), store, true, added);
}

void
kv_table_truncate(Relation rel)
{
	KvTable    *table = kv_table_get(rel);
	KvKey	   *bounds = make_bounds(table->shards);

	kv_engine_require();
	kv_store_truncate(MyDatabaseId, table->relid, table->shards,
					  table->key_width, bounds, table->wal, table->tablespace,
					  rel->rd_createSubid);
	if (table->changes)
		kv_wal_log_truncate(MyDatabaseId, table->relid);
	CacheInvalidateRelcache(rel);
}

KvStore *
kv_table_renew(Relation rel, KvStore *store, bool same_schema)
{
	KvTable    *table = kv_table_get(rel);
	KvKey	   *bounds = make_bounds(table->shards);
	KvWalLevel	level = table->wal;
	StringInfoData schema;
	KvStore    *fresh;

	if (!table->wal_given)
		(void) kv_store_wal_level(MyDatabaseId, table->relid, &level);
	initStringInfo(&schema);
	(void) kv_store_get_schema(store, &schema);
	kv_store_truncate(MyDatabaseId, table->relid, table->shards, table->key_width, bounds, level,
					  table->tablespace, rel->rd_createSubid);
	CacheInvalidateRelcache(rel);
	fresh = open_store(rel, table, NULL);
	if (same_schema)
		kv_store_set_schema(fresh, schema.data, schema.len);
	kv_mark_ensure(table);
	return fresh;
}

/* ---- rows that are to be converted ---- */

/* Do the bytes of one type stand for the same value in the other? */
static bool
same_values(Oid was, Oid typid)
{
	return IsBinaryCoercible(was, getBaseType(typid));
}

KvStore *
kv_table_store_to_convert(Relation rel, List *retyped)
{
	TupleDesc	desc = RelationGetDescr(rel);
	KvStore    *store;
	StringInfoData image;
	KvSchema	   *schema;
	uint32		incarnation;
	KvWalLevel	level;
	bool		converts = false;
	ListCell   *cell;

	/* not where a store is missing or cannot be used: each use reports that */
	if (!kv_store_wal_level(MyDatabaseId, RelationGetRelid(rel), &level))
		return NULL;
	store = find_store(rel, kv_table_get(rel));
	schema = palloc(sizeof(KvSchema));
	if (store == NULL || !read_schema(rel, store, &image, schema, &incarnation) ||
		line_aborted(schema->xid, incarnation))
		return NULL;
	resolve_columns(schema, desc->natts, incarnation);
	foreach(cell, retyped)
	{
		KvRetyped  *column = lfirst(cell);
		Form_pg_attribute att = TupleDescAttr(desc, column->attnum - 1);
		const KvSchemaColumn *stored = find_schema_column(schema, column->attnum);

		if (stored == NULL || att->attisdropped)
			continue;			/* no row has it, or it is only in the key */
		if (!same_values(stored->typid, column->was))
		{
			/* a server without the library allows the type to change without the rows */
			column->was = stored->typid;
			column->typmod = -1;
			column->collation = get_typcollation(stored->typid);
		}
		converts |= !same_values(column->was, att->atttypid);
	}
	return converts ? store : NULL;
}

const KvTable *
kv_table_before(Relation rel, KvStore *store, List *retyped)
{
	TupleDesc	desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
	KvTable    *table;
	ListCell   *cell;

	foreach(cell, retyped)
	{
		const KvRetyped *column = lfirst(cell);
		Form_pg_attribute att = TupleDescAttr(desc, column->attnum - 1);
		bool		not_null = att->attnotnull;
		char		generated = att->attgenerated;

		TupleDescInitEntry(desc, column->attnum, NameStr(att->attname), column->was,
						   column->typmod, 0);
		TupleDescInitEntryCollation(desc, column->attnum, column->collation);
		att->attnotnull = not_null;
		att->attgenerated = generated;
		kv_attribute_changed(desc, column->attnum - 1);
	}
	table = kv_table_build(rel, desc);
	check_schema(rel, table, store, false, NIL);
	return table;
}
