/*
 * takeover.c
 *		Ownership of the directory "kvfdw" and of the directories in tablespaces, and takeover by
 *		another server.
 *
 * The directory has an id of its own, in the control file and in each of its files.  The
 * control file also has the system identifier of the server that it belongs to.  A server with
 * another identifier takes it over if both hold:
 *
 *  - The takeover is intended: the file "kvfdw.id" of the data directory, the token, names the
 *    directory, and how many servers have taken it over.  Each server keeps one for its own
 *    directory, so it exists where a server has got another identifier (pg_createsubscriber).
 *    kvfdw_upgrade makes one for the server that pg_upgrade has made.
 *  - Nothing is missing: the marks are complete, since the previous server was shut down
 *    cleanly, and none of its transactions has an xid that is still to be assigned here.
 *
 * Then the number of takeovers is incremented, in the control file and in the token.  So a
 * directory that has served another server since is not taken back: that server's transactions
 * are not known here.
 *
 * pg_upgrade does not know the directory, and the script that it leaves deletes that of the old
 * server.  So an old server with tables starts under pg_upgrade only if kvfdw.allow_pg_upgrade
 * says that the operator knows.  Tables of the new server have no data until kvfdw_upgrade has
 * run, which is an error at their first use (table/mark.c).
 */
#include "postgres.h"

#include <unistd.h>

#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "compat.h"
#include "engine/base/hash.h"
#include "engine/base/shared.h"
#include "engine/durable/durable.h"
#include "engine/format/format.h"
#include "engine/format/path.h"
#include "engine/io/fault.h"
#include "engine/io/io.h"
#include "engine/io/name.h"
#include "engine/restart/restart.h"
#include "engine/store.h"

#define KV_TOKEN_PATH		"kvfdw.id"
#define KV_TOKEN_FORMAT		"kvfdw directory " UINT64_FORMAT " taken over %u times\n"
#define KV_UPGRADING_PATH	KV_DIRECTORY "/upgrading"	/* exists while kvfdw_upgrade copies */

#define KV_MAGIC_UNWRITTEN	0x4b565557	/* "KVUW" */

/* kvfdw/unwritten.<dboid>: this and the OIDs of tables. */
typedef struct KvUnwritten
{
	uint32		magic;
	uint32		format_version;
	uint64		directory_id;
	uint32		dboid;
	uint32		n;
	uint32		pad;
	uint32		crc;			/* of the fields before it, and the OIDs */
} KvUnwritten;

StaticAssertDecl(sizeof(KvUnwritten) == 32, "size of the head of a list of tables");

static bool allow_upgrade = false;

void
kv_take_over_gucs(void)
{
	DefineCustomBoolVariable("kvfdw.allow_pg_upgrade",
							 "Enables pg_upgrade to start a server that has kvfdw tables.",
							 "pg_upgrade does not take their rows along: run kvfdw_upgrade after "
							 "it.",
							 &allow_upgrade, false,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

static void
print_token(char *token, Size size, uint64 id, uint32 takeovers)
{
	snprintf(token, size, KV_TOKEN_FORMAT, id, takeovers);
}

/* Does the token exist? */
static bool
has_token(uint64 id, uint32 takeovers)
{
	char		wanted[128];
	Size		len;
	char	   *token = kv_io_slurp(KV_TOKEN_PATH, &len);
	bool		same;

	print_token(wanted, sizeof(wanted), id, takeovers);
	same = token != NULL && len == strlen(wanted) && memcmp(token, wanted, len) == 0;
	if (token != NULL)
		pfree(token);
	return same;
}

void
kv_take_over_keep_token(void)
{
	char		token[128];

	if (has_token(kv_directory_id(), kv_control->takeovers))
		return;
	print_token(token, sizeof(token), kv_directory_id(), kv_control->takeovers);
	kv_io_replace(KV_TOKEN_PATH, token, strlen(token), true);
}

/* The highest known xid that a transaction of the directory may have had. */
static uint64
highest_xid(const KvControlFile *control)
{
	uint64		xid = control->stop_xid;

	for (int i = 0; i < Min(control->ndead, KV_MAX_INCARNATIONS); i++)
		xid = Max(xid, control->dead[i].boundary);
	return xid;
}

KV_NORETURN static void
refuse(const KvControlFile *control, const char *why)
{
	ereport(FATAL,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("directory \"kvfdw\" belongs to another database cluster"),
			 errdetail("Its system identifier is %llu, this cluster's is %llu. %s",
					   (unsigned long long) control->system_identifier,
					   (unsigned long long) GetSystemIdentifier(), why),
			 errhint("If this cluster was made by pg_upgrade, run kvfdw_upgrade with the old and "
					 "the new data directory. Otherwise put back the directory \"kvfdw\" of this "
					 "cluster.")));
}

bool
kv_take_over(const KvControlFile *control, const ControlFileData *pg_control)
{
	uint64		next_xid = U64FromFullTransactionId(pg_control->checkPointCopy.nextXid);

	if (access(KV_UPGRADING_PATH, F_OK) == 0)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("directory \"kvfdw\" is incomplete because kvfdw_upgrade was interrupted"),
				 errhint("Run kvfdw_upgrade again.")));
	if (control == NULL || control->system_identifier == GetSystemIdentifier())
		return false;
	if (!has_token(control->directory_id, control->takeovers))
		refuse(control, "The file \"kvfdw.id\" of the data directory does not name it.");
	if (control->complete != KV_COMPLETE)
		refuse(control, "Its server was not shut down cleanly.");
	if (highest_xid(control) > next_xid)
		refuse(control, "Its transactions are later than this cluster's.");
	ereport(LOG,
			(errmsg("taking over directory \"kvfdw\" of the cluster with system identifier %llu",
					(unsigned long long) control->system_identifier)));
	return true;
}

void
kv_take_over_guard_upgrade(void)
{
	if (IsBinaryUpgrade && !allow_upgrade && kv_numbered_entries(KV_DIRECTORY, ERROR) != NIL)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_upgrade does not copy the rows of kvfdw tables"),
				 errdetail("The rows are stored in the directory \"kvfdw\" of the old cluster, "
						   "which the script that pg_upgrade writes would delete."),
				 errhint("Run pg_upgrade with -o \"-c kvfdw.allow_pg_upgrade=on\", then run "
						 "kvfdw_upgrade before you start the new server.")));
}

/* Called before the WAL is replayed without a directory, and then removed. */
void
kv_take_over_guard_crash(void)
{
	if (access(KV_TOKEN_PATH, F_OK) == 0)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("directory \"kvfdw\" is empty, but had data before the server crashed"),
				 errhint("Make sure that its file system is mounted.")));
}

/* ---- tables without data ---- */

static uint32
unwritten_crc(const KvUnwritten *file)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	crc = kv_crc_add(crc, file, offsetof(KvUnwritten, crc));
	crc = kv_crc_add(crc, file + 1, file->n * sizeof(uint32));
	FIN_CRC32C(crc);
	return crc;
}

static char *
unwritten_path(Oid dboid)
{
	return psprintf(KV_DIRECTORY "/unwritten.%u", dboid);
}

void
kv_unwritten_note(Oid dboid, const List *relids)
{
	Size		size = sizeof(KvUnwritten) + list_length(relids) * sizeof(uint32);
	KvUnwritten *file = palloc0(size);
	uint32	   *oids = (uint32 *) (file + 1);
	ListCell   *cell;

	file->magic = KV_MAGIC_UNWRITTEN;
	file->format_version = KV_FORMAT_VERSION;
	file->directory_id = kv_directory_id();
	file->dboid = dboid;
	foreach(cell, relids)
		oids[file->n++] = lfirst_oid(cell);
	file->crc = unwritten_crc(file);
	kv_io_replace(unwritten_path(dboid), file, size, true);
	pfree(file);
}

bool
kv_unwritten_has(Oid dboid, Oid relid)
{
	char	   *path = unwritten_path(dboid);
	Size		len;
	KvUnwritten *file = (KvUnwritten *) kv_io_slurp(path, &len);
	const uint32 *oids;
	bool		found = false;

	if (file == NULL)
		return false;
	if (len >= sizeof(KvUnwritten) && file->magic == KV_MAGIC_UNWRITTEN)
		kv_format_require(path, file->format_version, KV_FORMAT_VERSION);
	if (len < sizeof(KvUnwritten) || file->magic != KV_MAGIC_UNWRITTEN ||
		file->n != (len - sizeof(KvUnwritten)) / sizeof(uint32) ||
		len != sizeof(KvUnwritten) + file->n * sizeof(uint32) || file->crc != unwritten_crc(file) ||
		file->directory_id != kv_directory_id() || file->dboid != dboid)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged", path),
				 errdetail("Without this file kvfdw takes tables that were never written for "
						   "missing ones."),
				 errhint("Put back the file that kvfdw_upgrade copied.")));
	oids = (const uint32 *) (file + 1);
	for (int i = 0; i < file->n && !found; i++)
		found = oids[i] == relid;
	pfree(file);
	return found;
}

void
kv_upgraded_note(Oid dboid)
{
	static const char text[] = "pg_upgrade has made kvfdw tables in this database.\n";

	kv_io_create_new(psprintf(KV_DIRECTORY "/upgraded.%u", dboid), text, sizeof(text) - 1,
					 KV_IO_META_WRITE);
}

/* ---- tablespaces ---- */

/*
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
