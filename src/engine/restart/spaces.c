/*
 * spaces.c
 *		Whose the directories in tablespaces are.
 *
 * The servers of a replication have the same files in kvfdw/ and the same rows, but each has
 * put values at places of its own.  So nothing good comes of one server's directory "kvfdw"
 * with another's tablespaces.  Tools make such copies: pgBackRest, where its option
 * backup-standby is on, copies pg_tblspc/ of a standby and all else of the primary.  A file
 * that the standby does not have under the name that it has on the primary is left out.
 *
 * So directories in tablespaces have the server's id in their names (format/path.c).  What has
 * another server's id is not looked at.  In a copy of two servers files are missing then, which
 * is found where the images are chosen (durable/imageback.c), or when the store is opened
 * (format/where.c), whatever the tool has left out or mixed, also if it takes what has not
 * changed from an earlier copy.
 *
 * A server gets another id at each start at which it may become another than the one whose
 * files it has: from a backup_label, or as a standby, or by recovery from an archive.  Of two
 * servers that go on from the same files one at least is started so, unless they never meet.
 * The steps:
 *
 *	1. the control file gets the new id, and the one before among the former ones;
 *	2. directories that have a former id get the new one, by rename;
 *	3. the control file gets no former ids any more.
 *
 * A start that is cut off leaves former ids, and the next one begins with step 2.  So does one
 * that has met a tablespace that is not mounted, or cannot be written; then who opens a store
 * does it for the tablespaces of that, when they are there.  The former ids have no room for
 * more than a few: then the oldest is forgotten, and what still has it is refused.
 *
 * Before there was such an id it was the id of the directory "kvfdw", and so it is in a new one.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/io/fault.h"
#include "engine/restart/restart.h"

/* Step 2, in all tablespaces.  False: not in all. */
static bool
claim_all(void)
{
	bool		all = true;
	ListCell   *cell;

	foreach(cell, kv_numbered_entries("pg_tblspc", LOG))
	{
		if (kv_space_claim(lfirst_oid(cell)))
			continue;
		ereport(LOG,
				(errmsg("could not search tablespace with OID %u for values of kvfdw tables",
						lfirst_oid(cell)),
				 errdetail("kvfdw searches it again when a table with values there is used.")));
		all = false;
	}
	return all;
}

static bool
has_former_ids(void)
{
	return kv_base->former_ids[0] != 0;
}

static void
forget_former_ids(void)
{
	memset(kv_base->former_ids, 0, sizeof(kv_base->former_ids));
}

void
kv_spaces_begin(const KvControlFile *control)
{
	forget_former_ids();
	kv_base->server_id = kv_directory_id();
	if (control == NULL)
		return;
	kv_base->server_id = control->server_id;
	memcpy(kv_base->former_ids, control->former_ids, sizeof(control->former_ids));
	if (has_former_ids() && claim_all())
		forget_former_ids();
}

void
kv_spaces_part(void)
{
	memmove(&kv_base->former_ids[1], &kv_base->former_ids[0],
			(KV_FORMER_SERVERS - 1) * sizeof(uint64));
	kv_base->former_ids[0] = kv_base->server_id;
	if (!pg_strong_random(&kv_base->server_id, sizeof(kv_base->server_id)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
}

void
kv_spaces_claim(void)
{
	if (!has_former_ids())
		return;
	KV_STOP_POINT("spaces_before_claim");
	if (!claim_all())
		return;
	KV_STOP_POINT("spaces_claimed");
	forget_former_ids();
	kv_control_note_ids();
}
