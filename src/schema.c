/*
 * schema.c
 *		A table's store, opened only where its rows fit the table's definition.
 *
 * PostgreSQL lets ALTER FOREIGN TABLE change a column's type without touching
 * the data, so each store keeps an image: a text that says what its rows were
 * written with.  Every KvTable is compared with it once:
 *
 *		kvfdw schema 1 xid
 *		raw attnum
 *		key attnum typid typmod collation			(in key order)
 *		column attnum typid xid						(every value column)
 *
 * Types are base types; typmod is -1 but for bpchar, whose keys depend on it.
 * raw is the column that rows in KV_FORM_RAW belong to, for as long as the
 * store lives, or 0.  The first writer of a store sets the image; a writer
 * that knows columns it lacks adds them before it writes.  Dropped columns
 * stay in it, since attribute numbers are not used twice.
 *
 * xid is not 0 if the transaction that wrote the line held the table's
 * AccessExclusiveLock, so that it may have made the definition itself.  If it
 * aborted, so did its rows, and the line counts for nothing.  The next writer
 * settles such lines.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "port/pg_bswap.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "kvfdw.h"

#define SCHEMA_VERSION		1

typedef struct SchemaKey
{
	AttrNumber	attnum;
	Oid			typid;
	int32		typmod;
	Oid			collation;
} SchemaKey;

typedef struct SchemaColumn
{
	AttrNumber	attnum;
	Oid			typid;
	uint64		xid;
} SchemaColumn;

/* The image in memory. */
typedef struct Schema
{
	uint64		xid;
	AttrNumber	raw;
	int			nkeys;
	int			ncolumns;
	SchemaKey	keys[MaxHeapAttributeNumber];
	SchemaColumn columns[MaxHeapAttributeNumber];
} Schema;

/* Did the transaction of a line abort?  False while it runs, or if nobody knows. */
static bool
line_aborted(uint64 xid)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		status;

	if (xid == 0 || TransactionIdIsCurrentTransactionId((TransactionId) xid))
		return false;

	/* an xid from before a crash that was never logged */
	if (xid >= U64FromFullTransactionId(ReadNextFullTransactionId()))
		return true;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = UInt64GetDatum(xid);
	fcinfo->args[0].isnull = false;
	status = pg_xact_status(fcinfo);
	return !fcinfo->isnull &&
		strcmp(TextDatumGetCString(status), "aborted") == 0;
}

/*
 * What a new line's xid is: see the head of this file.  A store that is
 * created with its table vanishes with it.
 */
static uint64
line_xid(Relation rel)
{
	if (rel->rd_createSubid == InvalidSubTransactionId &&
		CheckRelationLockedByMe(rel, AccessExclusiveLock, false))
		return U64FromFullTransactionId(GetTopFullTransactionId());
	return 0;
}

static int32
schema_typmod(const KvKeyColumn *column)
{
	return column->kind == KV_KEY_BPCHAR ? column->typmod : -1;
}

/* Read an image; XX001 if it is not one, 0A000 if it is of a later version. */
static void
parse_schema(Relation rel, const char *text, Schema *schema)
{
	int			version;
	int			used = 0;
	int			attnum;
	SchemaKey	key;
	SchemaColumn column;
	bool		valid;

	memset(schema, 0, offsetof(Schema, keys));

	valid = sscanf(text, "kvfdw schema %d " UINT64_FORMAT "%n",
				   &version, &schema->xid, &used) == 2;
	if (valid && version != SCHEMA_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("data of foreign table \"%s\" has schema version %d, but this kvfdw supports only version %d",
						RelationGetRelationName(rel), version, SCHEMA_VERSION),
				 errhint("Install the version of kvfdw that wrote it.")));
	text += used;
	valid = valid && sscanf(text, " raw %d%n", &attnum, &used) == 1;
	if (valid)
	{
		schema->raw = attnum;
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
		   sscanf(text, " column %d %u " UINT64_FORMAT "%n", &attnum,
				  &column.typid, &column.xid, &used) == 3)
	{
		column.attnum = attnum;
		schema->columns[schema->ncolumns++] = column;
		text += used;
	}

	if (!valid || schema->nkeys == 0 || strcmp(text, "\n") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("invalid schema image in the store of foreign table \"%s\"",
						RelationGetRelationName(rel))));
}

static void
print_schema(const Schema *schema, StringInfo into)
{
	resetStringInfo(into);
	appendStringInfo(into, "kvfdw schema %d " UINT64_FORMAT "\nraw %d\n",
					 SCHEMA_VERSION, schema->xid, schema->raw);
	for (int i = 0; i < schema->nkeys; i++)
	{
		const SchemaKey *key = &schema->keys[i];

		appendStringInfo(into, "key %d %u %d %u\n", key->attnum, key->typid,
						 key->typmod, key->collation);
	}
	for (int i = 0; i < schema->ncolumns; i++)
	{
		const SchemaColumn *column = &schema->columns[i];

		appendStringInfo(into, "column %d %u " UINT64_FORMAT "\n",
						 column->attnum, column->typid, column->xid);
	}
}

static bool
is_value_column(const KvTable *table, int index)
{
	return table->valdesc != NULL &&
		!TupleDescAttr(table->valdesc, index)->attisdropped;
}

static SchemaColumn *
find_schema_column(Schema *schema, AttrNumber attnum)
{
	for (int i = 0; i < schema->ncolumns; i++)
	{
		if (schema->columns[i].attnum == attnum)
			return &schema->columns[i];
	}
	return NULL;
}

/* The image of an empty store, but for its columns. */
static void
new_schema(Relation rel, const KvTable *table, Schema *schema)
{
	memset(schema, 0, offsetof(Schema, keys));
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
			 errhint("Undo the change, or TRUNCATE the table to start empty with the new definition.")));
}

static void
check_key(Relation rel, const KvTable *table, const Schema *schema)
{
	bool		same = schema->nkeys == table->nkeys;

	for (int i = 0; same && i < table->nkeys; i++)
		same = schema->keys[i].attnum == table->keys[i].attnum;
	if (!same)
		raise_mismatch(rel, "The key is not on the columns that it was on when the data was stored.");

	for (int i = 0; i < table->nkeys; i++)
	{
		const SchemaKey *stored = &schema->keys[i];
		const KvKeyColumn *now = &table->keys[i];
		const char *name = NameStr(TupleDescAttr(table->tupdesc, now->attnum - 1)->attname);
		KvKeyKind	kind;
		bool		lossy;

		/* text and varchar, timestamp with and without zone: the same bytes */
		if (stored->typid != now->typid &&
			(!kv_key_type_supported(stored->typid, &kind, &lossy) ||
			 kind != now->kind || kind == KV_KEY_TIMESTAMP))
			raise_mismatch(rel, psprintf("Key column \"%s\" is of type %s, but was stored as %s.",
								  name, format_type_be(now->typid),
								  format_type_be(stored->typid)));
		if (stored->typmod != schema_typmod(now))
			raise_mismatch(rel, psprintf("Key column \"%s\" is of type %s, but was stored as %s.",
								  name,
								  format_type_with_typemod(now->typid, now->typmod),
								  format_type_with_typemod(stored->typid, stored->typmod)));
		if (stored->collation != now->collation)
			raise_mismatch(rel, psprintf("Key column \"%s\" has collation \"%s\", but was stored with \"%s\".",
								  name, get_collation_name(now->collation),
								  get_collation_name(stored->collation)));
	}
}

/*
 * Can the store take keys of the present definition?  The engine made it for
 * keys of one length, or of any.
 */
static bool
same_key_width(const KvTable *table, const Schema *schema)
{
	int			total = 0;

	for (int i = 0; i < schema->nkeys; i++)
	{
		KvKeyKind	kind;
		bool		lossy;
		int			width;

		if (!kv_key_type_supported(schema->keys[i].typid, &kind, &lossy))
			return false;
		width = kv_key_kind_width(kind);
		if (width == 0)
			return table->key_width == 0;
		total += width;
	}
	return total == table->key_width;
}

/*
 * Compare a store's image with the definition and take raw_stored from it.
 * to_write: make it complete.
 */
static void
check_schema(Relation rel, KvTable *table, KvStore *store, bool to_write)
{
	StringInfoData image;
	StringInfoData complete;
	Schema	   *schema = palloc(sizeof(Schema));
	TupleDesc	desc = table->tupdesc;

	initStringInfo(&image);
	kv_store_get_schema(store, &image);
	if (image.len > 0)
		parse_schema(rel, image.data, schema);

	if (image.len == 0 ||
		(line_aborted(schema->xid) && same_key_width(table, schema)))
		new_schema(rel, table, schema);
	else
	{
		check_key(rel, table, schema);
		if (!TransactionIdIsCurrentTransactionId((TransactionId) schema->xid))
			schema->xid = 0;
	}

	/* forget what only aborted transactions had */
	for (int i = schema->ncolumns - 1; i >= 0; i--)
	{
		SchemaColumn *column = &schema->columns[i];

		if (column->attnum > desc->natts || line_aborted(column->xid))
			*column = schema->columns[--schema->ncolumns];
		else if (!TransactionIdIsCurrentTransactionId((TransactionId) column->xid))
			column->xid = 0;
	}

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		SchemaColumn *stored = find_schema_column(schema, att->attnum);
		Oid			typid;

		if (!is_value_column(table, i))
			continue;
		typid = getBaseType(att->atttypid);
		if (stored == NULL)
		{
			stored = &schema->columns[schema->ncolumns++];
			stored->attnum = att->attnum;
			stored->typid = typid;
			stored->xid = line_xid(rel);
		}
		else if (stored->typid != typid &&
				 !IsBinaryCoercible(stored->typid, typid))
			raise_mismatch(rel, psprintf("Column \"%s\" is of type %s, but was stored as %s.",
								  NameStr(att->attname), format_type_be(typid),
								  format_type_be(stored->typid)));
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

	/* a stale KvTable that is still in use must follow, it is of this shape */
	for (KvTable *each = table; each != NULL; each = each->stale)
	{
		each->raw_stored = schema->raw;
		each->raw_attnum = each->raw_candidate == schema->raw ? schema->raw : 0;
	}
	table->checked_store = store;
	table->writable = to_write;

	pfree(image.data);
	pfree(schema);
}

/* ---- stores ---- */

/*
 * The lower bounds of a new store's shards: shard i begins at i / shards of
 * all 8-byte strings (with no trailing zeros, so that a shorter key that
 * equals a bound is not below it).  So the split is by encoded keys: uuids and
 * hashes spread evenly; small positive integers, whose sign bit is flipped,
 * all lie at the beginning of the upper half.
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

/*
 * The store of a table, after its data and its definition were found to agree.
 * Returns NULL if nothing was ever written and !create.  Whoever is going to
 * write rows passes create = true, also for UPDATE.  kv_table_get's KvTable is
 * fit for kv_tuple_encode and kv_tuple_decode only after this.  The caller
 * holds a lock on the relation.
 */
KvStore *
kv_table_store(Relation rel, bool create)
{
	KvTable    *table = kv_table_get(rel);
	KvStore    *store;

	kv_engine_require();

	store = kv_store_open(MyDatabaseId, table->relid, table->shards,
						  table->key_width, NULL, table->wal, false, rel->rd_createSubid);
	if (store == NULL)
	{
		KvKey	   *bounds;

		if (!create)
			return NULL;
		bounds = make_bounds(table->shards);
		store = kv_store_open(MyDatabaseId, table->relid, table->shards,
							  table->key_width, bounds, table->wal, true,
							  rel->rd_createSubid);
		pfree(unconstify(uint8 *, bounds[0].data));
		pfree(bounds);
	}

	if (unlikely(table->checked_store != store || (create && !table->writable)))
		check_schema(rel, table, store, create);
	return store;
}

/*
 * TRUNCATE: a fresh store with the table's present definition, whatever the
 * old one was written with.  Every backend looks at the store anew.
 */
void
kv_table_truncate(Relation rel)
{
	KvTable    *table = kv_table_get(rel);
	KvKey	   *bounds = make_bounds(table->shards);

	kv_engine_require();
	kv_store_truncate(MyDatabaseId, table->relid, table->shards,
					  table->key_width, bounds, table->wal, rel->rd_createSubid);
	CacheInvalidateRelcache(rel);
}

/* Copy every row that is there now, as it is stored. */
static void
copy_rows(Relation rel, KvStore *from, KvStore *to)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw copy",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	KvKey		unbounded = {NULL, 0};
	KvScan	   *scan = kv_scan_begin(from, snapshot, true);
	CommandId	cid = GetCurrentCommandId(true);
	KvRow		row;

	kv_scan_range(scan, unbounded, unbounded, KV_ASCENDING, 0);
	while (kv_scan_next(scan, &row))
	{
		KvKey		key = {row.key, row.keylen};

		(void) kv_insert(to, rel, key, row.form, row.value, row.len, snapshot, cid, false);
	}
	kv_scan_end(scan);
	UnregisterSnapshot(snapshot);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/*
 * At the end of a transaction that has changed a table's options, and so holds
 * AccessExclusiveLock: if its wal option is not what its data was written with,
 * write the data anew, as ALTER TABLE … SET LOGGED does.
 */
void
kv_table_apply_wal_option(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	KvTable    *table;
	KvWalLevel	level;

	if (rel == NULL)
		return;
	table = kv_table_get(rel);

	/* without the lock: the ALTER was rolled back to a savepoint */
	if (CheckRelationLockedByMe(rel, AccessExclusiveLock, true) && table->wal_given && kv_store_wal_level(MyDatabaseId, relid, &level) &&
		level != table->wal)
	{
		KvStore    *store = kv_table_store(rel, false);
		KvKey	   *bounds = make_bounds(table->shards);
		StringInfoData schema;
		KvStore    *fresh;

		/* what the last statement has written is to be copied, too */
		CommandCounterIncrement();
		initStringInfo(&schema);
		kv_store_get_schema(store, &schema);
		kv_table_truncate(rel);
		fresh = kv_store_open(MyDatabaseId, relid, table->shards, table->key_width, bounds,
							  table->wal, true, rel->rd_createSubid);
		kv_store_set_schema(fresh, schema.data, schema.len);
		copy_rows(rel, store, fresh);
	}
	relation_close(rel, NoLock);
}
