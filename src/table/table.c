/*
 * table.c
 *		The cache of KvTables, this backend's descriptions of tables, built from the relcache and
 *		the tables' options.
 *
 * The cache has one entry per foreign table.  An invalidation only marks the entry; the next
 * kv_table_get builds a new KvTable and links the old one to it, because a running statement
 * may still use the old one.  Linked KvTables, and those of marked entries, are freed when the
 * transaction ends.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_proc.h"
#include "foreign/foreign.h"
#include "lib/ilist.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "table/internal.h"
#include "table/table.h"

#define HANDLER_SYMBOL		"kvfdw_handler"
#define INDEX_HANDLER_SYMBOL "kvfdw_index_handler"
#define LIBRARY_NAME		"kvfdw"

typedef struct CacheEntry
{
	Oid			relid;			/* hash key */
	dlist_node	node;			/* in cache_entries */
	uint32		hash;			/* of its pg_foreign_table row */
	bool		valid;			/* no invalidation since table was built */
	KvTable    *table;			/* the newest, or NULL */
} CacheEntry;

static MemoryContext cache_context = NULL;
static HTAB *cache = NULL;
static CacheEntry *asked_last = NULL;	/* the last result: statements ask for a table more than
										 * once */
static dlist_head cache_entries = DLIST_STATIC_INIT(cache_entries);
static bool cache_has_stale = false;
static uint64 invalidations = 0;	/* how many were received */

/* ---- building a KvTable ---- */

Form_pg_attribute
kv_find_attribute(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && strcmp(NameStr(att->attname), name) == 0)
			return att;
	}
	return NULL;
}

static Form_pg_attribute
first_attribute(TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
	{
		if (!TupleDescAttr(desc, i)->attisdropped)
			return TupleDescAttr(desc, i);
	}
	return NULL;
}

static void
add_key_column(KvTable *table, Relation rel, Form_pg_attribute att)
{
	KvKeyColumn *column = &table->keys[table->nkeys];
	int			width;

	if (att->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("key column \"%s\" of foreign table \"%s\" is a generated column",
						NameStr(att->attname), RelationGetRelationName(rel)),
				 errhint("Name other columns in the table's option \"key\".")));

	if (!kv_key_column_init(column, att))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of type %s cannot be part of the key of foreign table "
						"\"%s\"",
						NameStr(att->attname), format_type_be(att->atttypid),
						RelationGetRelationName(rel)),
				 errdetail("Key columns are of type smallint, integer, bigint, oid, boolean, real, "
						   "double precision, numeric, date, time, timestamp, timestamptz, uuid, "
						   "bytea, text, varchar or char, or of a domain over one of these."),
				 errhint("Name other columns in the table's option \"key\".")));

	table->keyindex[att->attnum - 1] = table->nkeys;
	table->any_lossy |= column->lossy;

	width = kv_key_kind_width(column->kind);
	if (width == 0)
		table->key_width = 0;
	else if (table->nkeys == 0 || table->key_width > 0)
		table->key_width += width;
	table->nkeys++;
}

static void
set_key(KvTable *table, Relation rel, const char *option)
{
	TupleDesc	desc = table->tupdesc;
	Form_pg_attribute att;
	ListCell   *cell;
	List	   *names;

	table->keys = palloc0(sizeof(KvKeyColumn) * Max(desc->natts, 1));
	table->keyindex = palloc(sizeof(int) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
		table->keyindex[i] = -1;

	if (option == NULL)
	{
		att = first_attribute(desc);
		if (att == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
					 errmsg("foreign table \"%s\" has no column that could be its key",
							RelationGetRelationName(rel)),
					 errhint("Declare at least one column of a supported key type.")));
		add_key_column(table, rel, att);
		return;
	}

	names = kv_key_option_columns(option);
	foreach(cell, names)
	{
		att = kv_find_attribute(desc, lfirst(cell));
		if (att == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("key column \"%s\" of foreign table \"%s\" does not exist",
							(char *) lfirst(cell), RelationGetRelationName(rel)),
					 errhint("Name existing columns in the table's option \"key\".")));
		add_key_column(table, rel, att);
	}
}

bool
kv_key_columns_exist(Relation rel)
{
	const char *option = kv_table_option(RelationGetRelid(rel), "key");
	ListCell   *cell;

	if (option == NULL)
		return first_attribute(RelationGetDescr(rel)) != NULL;
	foreach(cell, kv_key_option_columns(option))
	{
		if (kv_find_attribute(RelationGetDescr(rel), lfirst(cell)) == NULL)
			return false;
	}
	return true;
}

bool
kv_has_key_candidate(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		KvKeyKind	kind;
		bool		lossy;

		if (!att->attisdropped && att->attgenerated == '\0' &&
			kv_key_type_supported(getBaseType(att->atttypid), &kind, &lossy) &&
			(!OidIsValid(att->attcollation) || get_collation_isdeterministic(att->attcollation)))
			return true;
	}
	return false;
}

/* Is a column's datum part of the stored value? */
static bool
is_value_column(const KvTable *table, Form_pg_attribute att)
{
	int			index = table->keyindex[att->attnum - 1];

	if (att->attisdropped || KV_ATTRIBUTE_IS_VIRTUAL(att))
		return false;
	return index < 0 || table->keys[index].lossy;
}

static void
set_value_shape(KvTable *table)
{
	TupleDesc	desc = CreateTupleDescCopy(table->tupdesc);
	int			ncolumns = 0;
	AttrNumber	varlena = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(table->tupdesc, i);

		if (is_value_column(table, att))
		{
			ncolumns++;
			if (att->attlen == -1)
				varlena = att->attnum;
		}
		else
		{
			TupleDescAttr(desc, i)->attisdropped = true;
			kv_attribute_changed(desc, i);
		}
	}

	if (ncolumns > 0)
		table->valdesc = desc;
	if (ncolumns == 1 && !table->any_lossy)
		table->raw_candidate = varlena;
	table->raw_attnum = table->raw_candidate;
	table->raw_stored = table->raw_candidate;
}

/* Has this transaction, which may be rolled back, written the row of a catalog? */
static bool
is_pending(int cacheid, Oid oid)
{
	HeapTuple	tuple = SearchSysCache1(cacheid, ObjectIdGetDatum(oid));
	bool		pending = HeapTupleIsValid(tuple) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return pending;
}

/* The KvTable is the first chunk of a context of its own. */
KvTable *
kv_table_build(Relation rel, TupleDesc desc)
{
	List	   *options = kv_table_options(RelationGetRelid(rel));
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "kvfdw table",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KvTable    *table = palloc0(sizeof(KvTable));

	table->relid = RelationGetRelid(rel);
	table->options_pending = is_pending(FOREIGNTABLEREL, table->relid) ||
		is_pending(FOREIGNSERVEROID, GetForeignTable(table->relid)->serverid);
	table->tupdesc = CreateTupleDescCopyConstr(desc);

	kv_table_read_options(table, options);
	table->wal_given = kv_table_own_option(table->relid, "wal") != NULL;
	if (kv_option_value(options, "tablespace") != NULL)
		table->tablespace = kv_tablespace_of(table->relid);
	set_key(table, rel, kv_option_value(options, "key"));
	set_value_shape(table);

	MemoryContextSwitchTo(old);
	return table;
}

/* ---- the cache ---- */

static void
free_tables(KvTable *table)
{
	while (table != NULL)
	{
		KvTable    *stale = table->stale;

		MemoryContextDelete(GetMemoryChunkContext(table));
		table = stale;
	}
}

/* At the end of a transaction nothing uses a KvTable. */
static void
xact_callback(XactEvent event, void *arg)
{
	dlist_mutable_iter iter;

	if (!cache_has_stale ||
		(event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		 event != XACT_EVENT_PREPARE))
		return;

	dlist_foreach_modify(iter, &cache_entries)
	{
		CacheEntry *entry = dlist_container(CacheEntry, node, iter.cur);

		if (entry->valid && entry->table != NULL)
		{
			free_tables(entry->table->stale);
			entry->table->stale = NULL;
		}
		else
		{
			free_tables(entry->table);
			dlist_delete(&entry->node);
			hash_search(cache, &entry->relid, HASH_REMOVE, NULL);
			asked_last = NULL;
		}
	}
	cache_has_stale = false;
}

static void
relcache_callback(Datum arg, Oid relid)
{
	dlist_iter	iter;

	invalidations++;
	if (cache == NULL)
		return;

	if (OidIsValid(relid))
	{
		CacheEntry *entry = hash_search(cache, &relid, HASH_FIND, NULL);

		if (entry != NULL)
		{
			entry->valid = false;
			cache_has_stale = true;
		}
		return;
	}

	dlist_foreach(iter, &cache_entries)
		dlist_container(CacheEntry, node, iter.cur)->valid = false;
	cache_has_stale = true;
}

static void
syscache_callback(Datum arg, int cacheid, uint32 hash)
{
	dlist_iter	iter;

	invalidations++;
	dlist_foreach(iter, &cache_entries)
	{
		CacheEntry *entry = dlist_container(CacheEntry, node, iter.cur);

		if (hash == 0 || hash == entry->hash)
		{
			entry->valid = false;
			cache_has_stale = true;
		}
	}
}

/* Options of a server are defaults of its tables; servers are rarely altered. */
static void
server_callback(Datum arg, int cacheid, uint32 hash)
{
	relcache_callback(arg, InvalidOid);
}

void
kv_table_init(void)
{
	CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNTABLEREL, syscache_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, server_callback, (Datum) 0);
	RegisterXactCallback(xact_callback, NULL);
}

static void
create_cache(void)
{
	HASHCTL		info;

	if (CacheMemoryContext == NULL)
		CreateCacheMemoryContext();
	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(CacheMemoryContext, "kvfdw tables",
											  ALLOCSET_DEFAULT_SIZES);

	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(CacheEntry);
	info.hcxt = cache_context;
	cache = hash_create("kvfdw tables", 64, &info,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

KvTable *
kv_table_get(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	CacheEntry *entry;
	KvTable    *table;
	uint64		before;
	bool		found;

	if (cache == NULL)
		create_cache();

	entry = asked_last;
	if (entry == NULL || entry->relid != relid)
		entry = hash_search(cache, &relid, HASH_FIND, NULL);
	if (likely(entry != NULL && entry->valid && entry->table != NULL))
	{
		asked_last = entry;
		return entry->table;
	}

	entry = hash_search(cache, &relid, HASH_ENTER, &found);
	if (!found)
	{
		entry->valid = false;
		entry->table = NULL;
		entry->hash = GetSysCacheHashValue1(FOREIGNTABLEREL,
											ObjectIdGetDatum(relid));
		dlist_push_tail(&cache_entries, &entry->node);
	}
	cache_has_stale = true;		/* the old table, or the entry if this fails */

	before = invalidations;
	table = kv_table_build(rel, RelationGetDescr(rel));
	MemoryContextSetParent(GetMemoryChunkContext(table), cache_context);
	table->stale = entry->table;
	entry->table = table;
	entry->valid = before == invalidations;
	return table;
}

KvTable *
kv_table_get_by_oid(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	KvTable    *table = kv_table_get(rel);

	table_close(rel, NoLock);
	return table;
}

/* ---- which tables are ours ---- */

/* Is a function this one of this library? */
static bool
is_function(Oid function, const char *symbol)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		ours = false;
	bool		isnull;
	Datum		datum;

	if (!HeapTupleIsValid(tuple))
		return false;

	datum = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	if (!isnull && strcmp(TextDatumGetCString(datum), symbol) == 0)
	{
		datum = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_probin, &isnull);
		if (!isnull)
		{
			char	   *library = TextDatumGetCString(datum);
			char	   *base = last_dir_separator(library);

			base = base ? base + 1 : library;
			ours = strcmp(base, LIBRARY_NAME) == 0 ||
				strcmp(base, LIBRARY_NAME DLSUFFIX) == 0;
		}
	}
	ReleaseSysCache(tuple);
	return ours;
}

bool
kv_is_handler(Oid function)
{
	return is_function(function, HANDLER_SYMBOL);
}

bool
kv_is_index_handler(Oid function)
{
	return is_function(function, INDEX_HANDLER_SYMBOL);
}

bool
kv_is_foreign_table(Oid relid)
{
	HeapTuple	tuple;
	Oid			server;
	Oid			wrapper;
	Oid			handler;

	if (get_rel_relkind(relid) != RELKIND_FOREIGN_TABLE)
		return false;

	tuple = SearchSysCache1(FOREIGNTABLEREL, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	server = ((Form_pg_foreign_table) GETSTRUCT(tuple))->ftserver;
	ReleaseSysCache(tuple);

	tuple = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(server));
	if (!HeapTupleIsValid(tuple))
		return false;
	wrapper = ((Form_pg_foreign_server) GETSTRUCT(tuple))->srvfdw;
	ReleaseSysCache(tuple);

	tuple = SearchSysCache1(FOREIGNDATAWRAPPEROID, ObjectIdGetDatum(wrapper));
	if (!HeapTupleIsValid(tuple))
		return false;
	handler = ((Form_pg_foreign_data_wrapper) GETSTRUCT(tuple))->fdwhandler;
	ReleaseSysCache(tuple);

	return OidIsValid(handler) && kv_is_handler(handler);
}

List *
kv_foreign_tables(void)
{
	Relation	catalog = table_open(ForeignTableRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	List	   *tables = NIL;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		tables = lappend_oid(tables, ((Form_pg_foreign_table) GETSTRUCT(tuple))->ftrelid);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return tables;
}
