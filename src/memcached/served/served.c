/*
 * served.c
 *		The tables that are served: the list, the checks, recovery, and the privileges.
 *
 * The table option "memcached" has a table served.  The list of tables is made again after a
 * change to any foreign table's options; a table is checked again after a change to it.  Both
 * arrive as invalidations, which a transaction processes when it begins and when it gets a
 * lock.  Locks are not waited for.  A session that alters a table gets its lock as soon as the
 * running batches have ended, because later requests for a lock queue after it.
 *
 * The executor is bypassed, so a table must not have what only the executor does: triggers,
 * constraints, generated columns.
 *
 * A table's prefix takes keys away from other tables, so a table is served only if its owner is
 * trusted.  The owner must have the rights of the database's owner, or the processes' role must
 * have been made a member of the owner's role.
 *
 * After a crash, and on a standby, the first use of a table recovers it, which may take long.
 * The loop does not wait for that (M 2): a process that lives for one table recovers it, and
 * requests are parked until then.  They are parked also where no such process can be started
 * now: another attempt may start one, and the maintainer recovers all tables, one after the
 * other.  The maintainer does not recover tables that a standby learns of later; the loop
 * recovers these itself.
 */
#include "memcached/served/served.h"

#include "clock.h"
#include "engine/store.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

static MemoryContext context = NULL;
static KvMcTable **tables = NULL;	/* those with the longest prefixes first */
static int	ntables = 0;
static bool listed = false;		/* the list agrees with the catalog */
static uint64 list_changes = 0;

static const char *const default_columns[] = {"value", "flags", "expires"};

/* ---- the list ---- */

/* A table, or any table, may have changed.  False: it is none of those in the list. */
static bool
check_again(Oid relid)
{
	bool		found = false;

	for (int i = 0; i < ntables; i++)
	{
		if (OidIsValid(relid) && tables[i]->relid != relid)
			continue;
		tables[i]->checked = false;
		tables[i]->changes++;
		found = true;
	}
	return found;
}

static void
relcache_callback(Datum arg, Oid relid)
{
	if (check_again(relid))
	{
		/* the table may have another owner */
		listed = false;
		list_changes++;
	}
}

/* A domain may have changed, or a new table has a type: the list itself is not affected. */
static void
type_callback(Datum arg, int cacheid, uint32 hash)
{
	(void) check_again(InvalidOid);
}

/* A schema, ownership or membership has changed. */
static void
surroundings_callback(Datum arg, int cacheid, uint32 hash)
{
	relcache_callback(arg, InvalidOid);
}

static void
syscache_callback(Datum arg, int cacheid, uint32 hash)
{
	listed = false;
	list_changes++;
}

void
kv_mc_tables_init(void)
{
	context = AllocSetContextCreate(TopMemoryContext, "kvfdw memcached tables",
									ALLOCSET_DEFAULT_SIZES);
	CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNTABLEREL, syscache_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, type_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(CONSTROID, type_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, surroundings_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMMEMROLE, surroundings_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, surroundings_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, surroundings_callback, (Datum) 0);
}

/* May tables of this owner take keys? */
static bool
is_trusted(Oid owner)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	Oid			dba = HeapTupleIsValid(tuple) ? ((Form_pg_database) GETSTRUCT(tuple))->datdba
		: InvalidOid;
	Oid			role = get_role_oid(kv_mc_role, true);

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return (OidIsValid(dba) && has_privs_of_role(owner, dba)) ||
		(OidIsValid(role) && is_member_of_role_nosuper(role, owner));
}

/* Returns InvalidOid if it was dropped. */
static Oid
owner_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

static int
compare_tables(const ListCell *a, const ListCell *b)
{
	const KvMcTable *left = lfirst(a);
	const KvMcTable *right = lfirst(b);

	if (left->prefix_length != right->prefix_length)
		return left->prefix_length > right->prefix_length ? -1 : 1;
	return strcmp(left->prefix, right->prefix);
}

/* All tables with the option, as the catalog has them now; in the list's context. */
static List *
read_tables(void)
{
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, kv_foreign_tables())
	{
		Oid			relid = lfirst_oid(cell);
		const char *prefix;
		MemoryContext old;
		KvMcTable  *table;
		Oid			owner = owner_of(relid);

		/* dropped since, or of another wrapper */
		if (!OidIsValid(owner) ||
			!SearchSysCacheExists1(FOREIGNTABLEREL, ObjectIdGetDatum(relid)) ||
			!kv_is_foreign_table(relid))
			continue;
		prefix = kv_table_option(relid, "memcached");
		if (prefix == NULL)
			continue;
		old = MemoryContextSwitchTo(context);
		table = palloc0(sizeof(KvMcTable));
		table->relid = relid;
		table->trusted = is_trusted(owner);
		table->prefix = pstrdup(prefix);
		table->prefix_length = strlen(prefix);
		found = lappend(found, table);
		MemoryContextSwitchTo(old);
	}
	list_sort(found, compare_tables);
	return found;
}

static void
list_tables(void)
{
	uint64		before = list_changes;
	List	   *found;
	int			n;

	tables = NULL;
	ntables = 0;
	MemoryContextReset(context);
	found = read_tables();
	n = list_length(found);
	tables = MemoryContextAlloc(context, sizeof(KvMcTable *) * Max(n, 1));
	for (int i = 0; i < n; i++)
		tables[i] = list_nth(found, i);
	ntables = n;
	listed = before == list_changes;
}

void
kv_mc_tables_begin(void)
{
	if (!listed)
		list_tables();
	for (int i = 0; i < ntables; i++)
	{
		tables[i]->state = KV_MC_TABLE_UNTRIED;
		tables[i]->to_write = false;
		tables[i]->first = -1;
	}
}

KvMcTable *
kv_mc_table_find(const char *key, int length)
{
	for (int i = 0; i < ntables; i++)
	{
		if (tables[i]->trusted && tables[i]->prefix_length <= length &&
			memcmp(tables[i]->prefix, key, tables[i]->prefix_length) == 0)
			return tables[i];
	}
	return NULL;
}

int
kv_mc_tables(KvMcTable ***all)
{
	*all = tables;
	return ntables;
}

/* ---- what can be served ---- */

static void
set_reason(KvMcTable *table, const char *sqlstate, const char *reason)
{
	if (table->reason != NULL)
		return;
	snprintf(table->reason_text, sizeof(table->reason_text), "%s table \"%s\" %s", sqlstate,
			 get_rel_name(table->relid), reason);
	table->reason = table->reason_text;
}

static void
refuse(KvMcTable *table, const char *reason)
{
	set_reason(table, "0A000", reason);
}

static Oid
column_type(TupleDesc desc, AttrNumber attnum)
{
	return TupleDescAttr(desc, attnum - 1)->atttypid;
}

/* Which columns are value, flags and expires? */
static void
find_columns(KvMcTable *table, TupleDesc desc)
{
	const char *option = kv_table_option(table->relid, "memcached_columns");
	AttrNumber *columns[] = {&table->value, &table->flags, &table->expires};
	List	   *names = NIL;

	if (option != NULL)
		(void) SplitIdentifierString(pstrdup(option), ',', &names);
	for (int i = 0; i < lengthof(columns); i++)
	{
		const char *name = option == NULL ? default_columns[i] :
			i < list_length(names) ? list_nth(names, i) : NULL;
		Form_pg_attribute att = name == NULL ? NULL : kv_find_attribute(desc, name);

		*columns[i] = att == NULL ? 0 : att->attnum;
		if (*columns[i] == 0 && (i == 0 || (option != NULL && name != NULL)))
			refuse(table, psprintf("has no column \"%s\"", name));
		if (*columns[i] != 0 && *columns[i] == table->key)
			refuse(table, psprintf("has column \"%s\" as its key", name));
	}
	if (table->value == table->flags || table->value == table->expires ||
		(table->flags != 0 && table->flags == table->expires))
		refuse(table, "names a column twice in the option \"memcached_columns\"");
}

static void
check_types(KvMcTable *table, TupleDesc desc)
{
	Oid			key = column_type(desc, table->key);
	Oid			value = column_type(desc, table->value);

	if (key != TEXTOID && key != BYTEAOID &&
		(key != VARCHAROID || TupleDescAttr(desc, table->key - 1)->atttypmod >= 0))
		refuse(table, "has a key that is not of type text, varchar or bytea");
	if (value != TEXTOID && value != BYTEAOID)
		refuse(table, "has values that are not of type bytea or text");
	if (table->flags != 0 && column_type(desc, table->flags) != INT8OID)
		refuse(table, "has flags that are not of type bigint");
	if (table->expires != 0 && column_type(desc, table->expires) != TIMESTAMPTZOID)
		refuse(table, "has times of expiry that are not of type timestamptz");
	table->text_key = key != BYTEAOID;
	table->text_value = value == TEXTOID;
}

static void
check_others(KvMcTable *table, TupleDesc desc)
{
	table->others = false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		bool		ours = att->attnum == table->key || att->attnum == table->value ||
			att->attnum == table->flags;

		if (att->attisdropped)
			continue;
		if (att->attgenerated != '\0')
			refuse(table, "has a generated column");
		else if (kv_domain_has_constraints(att->atttypid))
			refuse(table, psprintf("has column \"%s\" of a domain with constraints",
								   NameStr(att->attname)));
		else if (att->attnotnull && !ours)
			refuse(table, psprintf("has NOT NULL column \"%s\"", NameStr(att->attname)));
		table->others |= !ours && att->attnum != table->expires;
	}
}

/* Find the columns, and what of the table cannot be served. */
static void
check_parts(KvMcTable *table, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	KvTable    *kv;

	table->reason = NULL;
	if (!is_trusted(rel->rd_rel->relowner))
		set_reason(table, "42501", "has an owner who may not serve keys");
	for (int i = 0; i < ntables; i++)
	{
		if (tables[i] != table && tables[i]->trusted &&
			strcmp(tables[i]->prefix, table->prefix) == 0)
			set_reason(table, "55000", "has the same prefix as another table");
	}
	if (rel->trigdesc != NULL)
		refuse(table, "has triggers");
	if (rel->rd_rel->relispartition)
		refuse(table, "is a partition");
	if (desc->constr != NULL && desc->constr->num_check > 0)
		refuse(table, "has CHECK constraints");
	if (!kv_key_columns_exist(rel))
		set_reason(table, "42703", "has no column that its option \"key\" names");
	if (table->reason != NULL)
		return;
	kv = kv_table_get(rel);
	if (kv->nkeys != 1)
		refuse(table, "has a key of several columns");
	table->key = kv->keys[0].attnum;
	find_columns(table, desc);
	if (table->reason != NULL)
		return;
	check_types(table, desc);
	check_others(table, desc);
}

/*
 * Check a table that the caller has locked.  After an ERROR, or a change during the check, it
 * is not checked.
 */
static void
check_table(KvMcTable *table, Relation rel)
{
	uint64		before = table->changes;

	check_parts(table, rel);
	table->checked = before == table->changes;
	table->watched = false;
}

/* ---- recovery before the first use ---- */

#define AGAIN_US	USECS_PER_SEC	/* at most one process is started for a table in so long */
#define MOST_ASKED	16

/* The latest tables for which processes were started. */
typedef struct KvMcAsked
{
	Oid			relid;
	TimestampTz at;
	BackgroundWorkerHandle *process;	/* NULL: none was started */
} KvMcAsked;

static KvMcAsked asked[MOST_ASKED];

/* Returns NULL if no slot for a worker is free. */
static BackgroundWorkerHandle *
start_process(Oid relid)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *process = NULL;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_name, BGW_MAXLEN, "kvfdw memcached open");
	snprintf(worker.bgw_type, BGW_MAXLEN, "kvfdw memcached open");
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "kvfdw");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "kv_memcached_open_main");
	worker.bgw_main_arg = ObjectIdGetDatum(relid);
	if (!RegisterDynamicBackgroundWorker(&worker, &process))
		process = NULL;
	MemoryContextSwitchTo(old);
	return process;
}

static bool
lives(BackgroundWorkerHandle *process)
{
	pid_t		pid;
	BgwHandleStatus status;

	if (process == NULL)
		return false;
	status = GetBackgroundWorkerPid(process, &pid);
	return status == BGWH_NOT_YET_STARTED || status == BGWH_STARTED;
}

/*
 * No process recovers the table: start one, if the last one for it has ended or there never was
 * one.  False: none can be started.
 */
static bool
have_opened(Oid relid)
{
	TimestampTz now = kv_clock();
	KvMcAsked  *place = &asked[0];
	BackgroundWorkerHandle *process;

	for (int i = 0; i < MOST_ASKED; i++)
	{
		if (asked[i].relid == relid)
		{
			place = &asked[i];
			if (lives(place->process) || (now >= place->at && now - place->at < AGAIN_US))
				return true;
			break;
		}
		if (asked[i].at < place->at)
			place = &asked[i];
	}
	process = start_process(relid);
	if (process == NULL)
		return !RecoveryInProgress();
	if (place->process != NULL)
		pfree(place->process);
	*place = (KvMcAsked) {.relid = relid, .at = now, .process = process};
	return true;
}

/* False: the table has to be recovered first, which another process does; try again. */
static bool
is_ready(Oid relid)
{
	bool		opening;

	if (kv_store_is_ready(MyDatabaseId, relid, &opening))
		return true;
	return !opening && !have_opened(relid);
}

void
kv_memcached_open_main(Datum arg)
{
	Oid			relid = DatumGetObjectId(arg);
	Relation	rel;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(kv_mc_database, NULL, 0);
	pgstat_report_appname("kvfdw memcached open");
	kv_mc_begin();
	rel = try_relation_open(relid, AccessShareLock);
	if (rel != NULL && kv_is_foreign_table(relid))
		(void) kv_table_store(rel, false);
	if (rel != NULL)
		table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	proc_exit(0);
}

/* ---- use in a transaction ---- */

/* Open a table that is locked; NULL: it cannot be served. */
static Relation
open_checked(KvMcTable *table)
{
	Relation	rel = try_relation_open(table->relid, NoLock);

	if (rel == NULL)
	{
		listed = false;
		table->reason = "42P01 table was dropped";
		return NULL;
	}
	if (!table->checked)
		check_table(table, rel);
	if (table->reason == NULL)
		return rel;
	table_close(rel, NoLock);
	return NULL;
}

static KvMcTableState
open_locked(KvMcTable *table, bool writes)
{
	Relation	rel = open_checked(table);

	if (rel == NULL)
		return KV_MC_TABLE_UNUSABLE;
	if (!is_ready(table->relid))
	{
		table_close(rel, NoLock);
		return KV_MC_TABLE_IS_CLOSED;
	}
	table->table = kv_table_get(rel);
	table->store = kv_table_store(rel, writes);
	if (table->store != NULL)
		kv_numbers_stay(table->store);
	table_close(rel, NoLock);
	if (!table->watched && table->expires != 0 && table->store != NULL)
	{
		table->reaped = kv_mc_table_allows(table, GetUserId(), ACL_SELECT | ACL_DELETE);
		kv_mc_expired_watch(table);
		table->watched = true;
	}
	return KV_MC_TABLE_OPEN;
}

const char *
kv_mc_table_reason(KvMcTable *table)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(table->relid, AccessShareLock))
		return "57P03 table is being changed";
	rel = open_checked(table);
	if (rel != NULL)
		table_close(rel, NoLock);
	UnlockRelationOid(table->relid, AccessShareLock);
	return rel == NULL ? table->reason : NULL;
}

KvMcTableState
kv_mc_table_open(KvMcTable *table, bool writes)
{
	if (table->state != KV_MC_TABLE_UNTRIED)
		return table->state;
	if (kv_mc_empty_wants(table->relid) ||
		!ConditionalLockRelationOid(table->relid, writes ? RowExclusiveLock : AccessShareLock))
		table->state = KV_MC_TABLE_IS_BUSY;
	else
		table->state = open_locked(table, writes);
	return table->state;
}

bool
kv_mc_table_allows(KvMcTable *table, Oid role, AclMode mode)
{
	if (!table->acl_known || table->acl_role != role || table->acl_changes != table->changes)
	{
		uint64		before = table->changes;
		Oid			schema = get_rel_namespace(table->relid);

		table->acl_known = false;
		table->acl_role = role;
		table->acl = !OidIsValid(schema) || !kv_may_use_schema(schema, role) ? 0 :
			pg_class_aclmask(table->relid, role,
							 ACL_SELECT | ACL_INSERT | ACL_UPDATE | ACL_DELETE | ACL_TRUNCATE,
							 ACLMASK_ALL);
		table->acl_changes = before;
		table->acl_known = true;
	}
	return (table->acl & mode) == mode;
}

static bool
may_truncate(KvMcTable *table, Oid role)
{
	return table->trusted && kv_mc_table_allows(table, role, ACL_TRUNCATE);
}

bool
kv_mc_tables_may_truncate(Oid role)
{
	for (int i = 0; i < ntables; i++)
	{
		if (may_truncate(tables[i], role))
			return true;
	}
	return false;
}

/* No table is emptied before all locks are held: it would have to be undone. */
bool
kv_mc_tables_truncate(Oid role)
{
	bool		complete = true;
	int			n = 0;

	for (int i = 0; i < ntables; i++)
	{
		if (!may_truncate(tables[i], role))
			continue;
		if (ConditionalLockRelationOid(tables[i]->relid, AccessExclusiveLock))
			tables[i]->state = KV_MC_TABLE_OPEN;
		else
		{
			kv_mc_empty_mark(tables[i]->relid);
			complete = false;
		}
	}
	for (int i = 0; complete && i < ntables; i++)
	{
		Relation	rel = tables[i]->state == KV_MC_TABLE_OPEN ? open_checked(tables[i]) : NULL;

		if (rel == NULL)
			continue;
		kv_table_truncate(rel);
		table_close(rel, NoLock);
		n++;
	}
	if (complete && n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to truncate any served table")));
	return complete;
}
