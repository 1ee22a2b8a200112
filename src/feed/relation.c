/*
 * relation.c
 *		Descriptions of the relations that changes are of, as the historic snapshot shows them.
 *
 * A description is used until an invalidation of the relation, its schema or its types.  Core
 * sends these invalidations to a process that decodes when it reaches them in the WAL.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "feed/feed.h"

static HTAB *relations = NULL;	/* of the decoding that is under way, or NULL */
static MemoryContext relations_context = NULL;

static void
invalidate(Oid relid)
{
	HASH_SEQ_STATUS status;
	KvFeedRelation *relation;

	if (relations == NULL)
		return;
	hash_seq_init(&status, relations);
	while ((relation = hash_seq_search(&status)) != NULL)
	{
		if (!OidIsValid(relid) || relation->relid == relid)
			relation->valid = false;
	}
}

static void
relcache_callback(Datum arg, Oid relid)
{
	invalidate(relid);
}

static void
syscache_callback(Datum arg, int cacheid, uint32 hash)
{
	invalidate(InvalidOid);
}

static void
end(void *arg)
{
	relations = NULL;
	relations_context = NULL;
}

void
kv_feed_relations_begin(void)
{
	static bool registered = false;
	HASHCTL		info = {.keysize = sizeof(Oid), .entrysize = sizeof(KvFeedRelation)};
	MemoryContextCallback *callback;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, syscache_callback, (Datum) 0);
		CacheRegisterSyscacheCallback(TYPEOID, syscache_callback, (Datum) 0);
		CacheRegisterSyscacheCallback(FOREIGNTABLEREL, syscache_callback, (Datum) 0);
		registered = true;
	}
	relations_context = AllocSetContextCreate(CurrentMemoryContext, "kvfdw feed relations",
											  ALLOCSET_DEFAULT_SIZES);
	info.hcxt = relations_context;
	relations = hash_create("kvfdw feed relations", 64, &info,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	callback = MemoryContextAlloc(relations_context, sizeof(*callback));
	callback->func = end;
	callback->arg = NULL;
	MemoryContextRegisterResetCallback(relations_context, callback);
}

/* The replica identity's columns; with FULL there are none in particular. */
static void
find_identity(KvFeedRelation *relation, Relation rel)
{
	Bitmapset  *identity = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_IDENTITY_KEY);

	for (int i = 0; i < relation->desc->natts; i++)
	{
		if (bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, identity))
			relation->in_key[i] = relation->has_key = true;
	}
}

static void
describe(KvFeedRelation *relation, Relation rel)
{
	StringInfoData name;
	const char *schema = get_namespace_name(RelationGetNamespace(rel));
	const char *qualified = quote_qualified_identifier(schema, RelationGetRelationName(rel));

	initStringInfo(&name);
	kv_json_string(&name, qualified, strlen(qualified));
	relation->name = name.data;
	relation->desc = CreateTupleDescCopy(RelationGetDescr(rel));
	relation->columns = palloc0(sizeof(KvJsonColumn) * Max(relation->desc->natts, 1));
	relation->in_key = palloc0(sizeof(bool) * Max(relation->desc->natts, 1));
	relation->has_key = false;
	relation->table = NULL;
	for (int i = 0; i < relation->desc->natts; i++)
		kv_json_column_init(&relation->columns[i], TupleDescAttr(relation->desc, i));
	if (!kv_is_foreign_table(RelationGetRelid(rel)))
	{
		find_identity(relation, rel);
		return;
	}
	relation->table = kv_table_build(rel, RelationGetDescr(rel));
	relation->has_key = true;
	for (int i = 0; i < relation->table->nkeys; i++)
		relation->in_key[relation->table->keys[i].attnum - 1] = true;
}

KvFeedRelation *
kv_feed_relation(Oid relid, Relation rel)
{
	bool		found;
	KvFeedRelation *relation = hash_search(relations, &relid, HASH_ENTER, &found);
	MemoryContext old;
	Relation	opened = NULL;

	if (!found)
	{
		relation->valid = false;
		relation->context = NULL;
	}
	if (likely(relation->valid))
		return relation;

	if (rel == NULL)
	{
		rel = opened = RelationIdGetRelation(relid);
		if (rel == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("relation with OID %u does not exist", relid)));
	}
	if (relation->context == NULL)
		relation->context = AllocSetContextCreate(relations_context, "kvfdw feed relation",
												  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(relation->context);
	old = MemoryContextSwitchTo(relation->context);
	relation->valid = true;		/* unless an invalidation arrives in between */
	describe(relation, rel);
	MemoryContextSwitchTo(old);
	if (opened != NULL)
		RelationClose(opened);
	return relation;
}
