/*
 * syscolumn.c
 *		System columns, which rows do not have, except for tableoid; and ctid as a made-up name.
 *
 * The executor would show the same ctid for all rows, so that a DELETE of the rows whose ctid a
 * subquery has chosen would delete all.  So a query that names a system column is refused.
 *
 * A node above the scan that locks a row (FOR UPDATE below a sort, a limit, a join) knows the
 * row by its ctid alone, six bytes.  The scan stores each key that it returns and uses the
 * key's offset in that store as the ctid.  Keys are kept in memory up to work_mem, then in a
 * temporary file.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/heap.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "optimizer/prep.h"
#include "storage/buffile.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "compat.h"
#include "fdw/fdw.h"

/* ---- queries that name one ---- */

/*
 * Columns of a relation that the query uses, except the ctid of its row mark, which is not the
 * user's.
 */
static Bitmapset *
columns_used(PlannerInfo *root, RelOptInfo *rel)
{
	Index		top = rel->relid;
	PlanRowMark *mark;
	Bitmapset  *attrs = NULL;
	ListCell   *lc;

	foreach(lc, rel->baserestrictinfo)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause, rel->relid, &attrs);

	/* the mark is of the table that the query names */
	while (root->append_rel_array != NULL && root->append_rel_array[top] != NULL)
		top = root->append_rel_array[top]->parent_relid;
	if (top == root->parse->resultRelation)
		pull_varattnos((Node *) root->parse->returningList, top, &attrs);
	mark = get_plan_rowmark(root->rowMarks, top);
	if (mark == NULL || (mark->allMarkTypes & ~(1 << ROW_MARK_COPY)) == 0)
	{
		pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &attrs);
		return attrs;
	}
	foreach(lc, root->parse->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (!entry->resjunk || entry->resname == NULL ||
			strncmp(entry->resname, "ctid", 4) != 0)
			pull_varattnos((Node *) entry->expr, top, &attrs);
	}
	pull_varattnos((Node *) root->parse->jointree, top, &attrs);
	return attrs;
}

void
kv_refuse_system_columns(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	Bitmapset  *attrs = columns_used(root, rel);
	int			member = -1;

	while ((member = bms_next_member(attrs, member)) >= 0)
	{
		AttrNumber	attnum = member + FirstLowInvalidHeapAttributeNumber;

		if (attnum < 0 && attnum != TableOidAttributeNumber)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("foreign table \"%s\" does not have the system column \"%s\"",
							get_rel_name(relid),
							NameStr(SystemAttributeDefinition(attnum)->attname)),
					 attnum == SelfItemPointerAttributeNumber ?
					 errhint("Identify rows by the columns of their key.") : 0));
	}
}

/* ---- names for the rows of a scan ---- */

struct KvRowNames
{
	MemoryContext context;
	char	   *memory;			/* the first notes: a length and a key each */
	uint64		in_memory;
	uint64		room;
	BufFile    *file;			/* the others */
	uint64		in_file;
	bool		at_end;			/* is the file positioned at its end? */
	bool		any;
	uint64		last;			/* the last name */
	StringInfoData key;			/* of the row named or found last */
};

KvRowNames *
kv_names_create(void)
{
	KvRowNames *names = palloc0(sizeof(KvRowNames));

	names->context = CurrentMemoryContext;
	initStringInfo(&names->key);
	return names;
}

static bool
fits_in_memory(KvRowNames *names, uint64 bytes)
{
	if (names->file != NULL || names->in_memory + bytes > (uint64) work_mem * 1024)
		return false;
	if (names->in_memory + bytes > names->room)
	{
		names->room = Max(2 * names->room, 1024);
		names->room = Max(names->room, names->in_memory + bytes);
		if (names->memory == NULL)
			names->memory = MemoryContextAllocHuge(names->context, names->room);
		else
			names->memory = repalloc_huge(names->memory, names->room);
	}
	return true;
}

static void
seek(KvRowNames *names, uint64 place)
{
	if (BufFileSeek(names->file, 0, (off_t) place, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in temporary file: %m")));
}

void
kv_names_add(KvRowNames *names, KvKey key, ItemPointer name)
{
	uint16		len = key.len;

	/* a rescan returns the same row again, often at once */
	if (!names->any || names->key.len != key.len ||
		memcmp(names->key.data, key.data, key.len) != 0)
	{
		if (fits_in_memory(names, sizeof(len) + len))
		{
			names->last = names->in_memory;
			memcpy(names->memory + names->in_memory, &len, sizeof(len));
			memcpy(names->memory + names->in_memory + sizeof(len), key.data, len);
			names->in_memory += sizeof(len) + len;
		}
		else
		{
			if (names->file == NULL)
			{
				MemoryContext old = MemoryContextSwitchTo(names->context);

				names->file = BufFileCreateTemp(false);
				names->at_end = true;
				MemoryContextSwitchTo(old);
			}
			if (!names->at_end)
				seek(names, names->in_file);
			names->last = names->in_memory + names->in_file;
			BufFileWrite(names->file, &len, sizeof(len));
			BufFileWrite(names->file, unconstify(uint8 *, key.data), len);
			names->in_file += sizeof(len) + len;
			names->at_end = true;
		}
		resetStringInfo(&names->key);
		appendBinaryStringInfo(&names->key, (const char *) key.data, len);
		names->any = true;
	}
	ItemPointerSet(name, (BlockNumber) (names->last >> 16), names->last & 0xFFFF);
}

KvKey
kv_names_find(KvRowNames *names, ItemPointer name)
{
	uint64		place = ((uint64) ItemPointerGetBlockNumberNoCheck(name) << 16) |
		ItemPointerGetOffsetNumberNoCheck(name);
	KvKey		key;

	if (!names->any || place >= names->in_memory + names->in_file)
		elog(ERROR, "row to lock has no name");
	if (place != names->last)
	{
		uint16		len;

		names->last = place;
		resetStringInfo(&names->key);
		if (place < names->in_memory)
		{
			memcpy(&len, names->memory + place, sizeof(len));
			appendBinaryStringInfo(&names->key, names->memory + place + sizeof(len), len);
		}
		else
		{
			seek(names, place - names->in_memory);
			names->at_end = false;
			kv_buffile_read(names->file, &len, sizeof(len));
			enlargeStringInfo(&names->key, len);
			kv_buffile_read(names->file, names->key.data, len);
			names->key.len = len;
		}
	}
	key.data = (const uint8 *) names->key.data;
	key.len = names->key.len;
	return key;
}

void
kv_names_end(KvRowNames *names)
{
	if (names->file != NULL)
		BufFileClose(names->file);
}
