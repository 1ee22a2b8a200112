/*
 * syscolumn.c
 *		System columns, which rows do not have, except for tableoid.
 *
 * The executor would show the same ctid for all rows, so that a DELETE of the rows whose ctid a
 * subquery has chosen would delete all.  So a query that names a system column is refused.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/heap.h"
#include "optimizer/optimizer.h"
#include "optimizer/prep.h"
#include "utils/lsyscache.h"

#include "fdw/fdw.h"

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
