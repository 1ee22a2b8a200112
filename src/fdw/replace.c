/*
 * replace.c
 *		on_duplicate 'replace': may an INSERT or COPY overwrite a row?
 *
 * PostgreSQL has checked the privilege INSERT alone, and does not look at the existing row.  So
 * the checks of an upsert are made here, once in a statement, from the permissions that the
 * executor has: those of the table that the statement names, and of the views through which it
 * reaches the table.  For each the role that needed INSERT needs UPDATE.
 *
 * The check is made when a row is overwritten, not in advance: a role with INSERT alone gets an
 * error only where, without the option, it would get one too.
 *
 * The plan of an INSERT without ON CONFLICT has neither policies for the existing row nor the
 * WHERE of views.  Where such exist the option does not apply.
 */
#include "postgres.h"

#include "access/relation.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "parser/parsetree.h"
#include "rewrite/prs2lock.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"

#include "compat.h"
#include "fdw/modify.h"

/* An INSTEAD rule's own statement executes the insert, for the rule's owner. */
static bool
has_instead_rule(Relation view)
{
	for (int i = 0; i < view->rd_rules->numLocks; i++)
	{
		if (view->rd_rules->rules[i]->event == CMD_INSERT && view->rd_rules->rules[i]->isInstead)
			return true;
	}
	return false;
}

/*
 * The base relation of an automatically updatable view, or InvalidOid.  *hides is set if the
 * view may hide some of its rows.
 */
static Oid
base_of_view(Oid viewid, bool *hides)
{
	Relation	view = relation_open(viewid, AccessShareLock);
	Oid			base = InvalidOid;

	if (view->rd_rel->relkind == RELKIND_VIEW && !has_instead_rule(view))
	{
		Query	   *query = get_view_query(view);
		List	   *from = query->jointree->fromlist;

		if (list_length(from) == 1 && IsA(linitial(from), RangeTblRef))
			base = rt_fetch(linitial_node(RangeTblRef, from)->rtindex, query->rtable)->relid;
		*hides |= query->jointree->quals != NULL;
	}
	relation_close(view, AccessShareLock);
	return base;
}

static bool
view_leads_to(Oid viewid, Oid table, bool *hides)
{
	bool		hidden = false;
	Oid			base = viewid;

	do
		base = base_of_view(base, &hidden);
	while (base != table && OidIsValid(base) && get_rel_relkind(base) == RELKIND_VIEW);
	if (base != table)
		return false;
	*hides |= hidden;
	return true;
}

static bool
may_update(Oid relid, Oid role)
{
	return pg_class_aclcheck(relid, role, ACL_UPDATE) == ACLCHECK_OK ||
		pg_attribute_aclcheck_all(relid, role, ACL_UPDATE, ACLMASK_ALL) == ACLCHECK_OK;
}

bool
kv_may_replace(KvModifyState *state, EState *estate, ResultRelInfo *rinfo)
{
	ResultRelInfo *root = rinfo->ri_RootResultRelInfo ? rinfo->ri_RootResultRelInfo : rinfo;
	Oid			table = RelationGetRelid(root->ri_RelationDesc);
	bool		hides = false;
	ListCell   *lc;

	if (state->replace != KV_REPLACE_UNKNOWN)
		return state->replace == KV_REPLACES;
	foreach(lc, KV_PERMISSIONS(estate))
	{
		KvPermission *needed = lfirst(lc);
		Oid			role = OidIsValid(needed->checkAsUser) ? needed->checkAsUser : GetUserId();

		if ((needed->requiredPerms & ACL_INSERT) == 0 ||
			(needed->relid != table &&
			 (get_rel_relkind(needed->relid) != RELKIND_VIEW ||
			  !view_leads_to(needed->relid, table, &hides))))
			continue;
		if (needed->relid == table)
			hides |= check_enable_rls(table, needed->checkAsUser, true) == RLS_ENABLED;
		if (!may_update(needed->relid, role))
		{
			state->replace = KV_REPLACE_DENIED;
			state->denied = needed->relid;
			return false;
		}
	}
	state->replace = hides ? KV_REPLACE_HIDDEN : KV_REPLACES;
	return !hides;
}

void
kv_raise_denied(const KvModifyState *state)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to replace a row of foreign table \"%s\"",
					RelationGetRelationName(state->rel)),
			 errdetail("With the option on_duplicate 'replace', to replace a row requires the "
					   "UPDATE privilege on \"%s\".",
					   get_rel_name(state->denied))));
}
