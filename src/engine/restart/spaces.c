/*
 * spaces.c
 *		Ownership of the directories in tablespaces.
 *
 * The servers of a replication have the same files in kvfdw/ and the same rows, but each has
 * its values at other addresses.  So one server's directory "kvfdw" must not be used with
 * another's tablespaces.  Tools make such copies: pgBackRest, where its option backup-standby
 * is on, copies pg_tblspc/ of a standby and all else of the primary.  It skips a file that the
 * standby does not have under the name that it has on the primary.
 *
 * So directories in tablespaces have the server's id in their names (format/path.c).  A
 * directory with another server's id is not read.  In a copy of two servers files are then
 * missing.  That is found when the marks are chosen (durable/markback.c), or when the store
 * is opened (format/where.c).  It is found whatever the tool has skipped or mixed, and if the
 * tool takes unchanged files from an earlier copy.
 *
 * A server gets another id at each start at which it may become different from the one whose
 * files it has: from a backup_label, as a standby, or by recovery from an archive.  Of two
 * servers that continue from the same files at least one is started so, unless they never
 * meet.  The steps:
 *
 *	1. the control file gets the new id, and the previous one among the former ones;
 *	2. directories that have a former id get the new one, by rename;
 *	3. the former ids are removed from the control file.
 *
 * A start that is interrupted leaves former ids, and the next one begins with step 2.  So does
 * one that has met a tablespace that is not mounted, or cannot be written.  Then a process that
 * opens a store does step 2 for the store's tablespaces, when they exist.  There is space for
 * only a few former ids: then the oldest is dropped, and directories that still have it are
 * refused.
 *
 * Before there was such an id it was the id of the directory "kvfdw", and so it is in a new
 * one.
 */
#include "postgres.h"

#include "engine/base/shared.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/restart/restart.h"

/* Do step 2 in all tablespaces.  False: not in all. */
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
