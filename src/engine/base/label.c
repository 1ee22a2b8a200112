/*
 * label.c
 *		Names of foreign tables in messages: the name, or OIDs where it cannot be looked up.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "engine/base/label.h"

/* The table's schema and name; false: they cannot be looked up here. */
static bool
look_up(Oid dboid, Oid relid, char **schema, char **name)
{
	/* interrupts are held where a lock of the engine is */
	if (dboid != MyDatabaseId || !OidIsValid(dboid) || !IsTransactionState() ||
		InterruptHoldoffCount > 0)
		return false;
	*name = get_rel_name(relid);
	*schema = *name != NULL ? get_namespace_name(get_rel_namespace(relid)) : NULL;
	return *schema != NULL;
}

char *
kv_table_label(Oid dboid, Oid relid)
{
	char	   *schema;
	char	   *name;

	if (look_up(dboid, relid, &schema, &name))
		return psprintf("foreign table \"%s.%s\"", schema, name);
	return psprintf("foreign table with OID %u in database with OID %u", relid, dboid);
}

void
kv_raise_dropped(Oid dboid, Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("%s was dropped or truncated concurrently", kv_table_label(dboid, relid))));
}

char *
kv_table_sql_name(Oid dboid, Oid relid)
{
	char	   *schema;
	char	   *name;

	return look_up(dboid, relid, &schema, &name) ? quote_qualified_identifier(schema, name) : NULL;
}
