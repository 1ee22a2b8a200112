/*
 * survive.h
 *		Which versions of a key does a merge keep?
 *
 * A caller asks for a key's versions one after the other, the newest first.  With a later
 * horizon, and with newer versions in front of them, no more of them survive: compact/ relies
 * on that, because it asks before a flush does.
 *
 * All functions are inline, because they run once for each version of a merge.
 */
#ifndef KV_SURVIVE_H
#define KV_SURVIVE_H

#include "engine/base/types.h"
#include "engine/xact/xact.h"

typedef struct KvSurvival
{
	uint64		horizon;		/* kv_xid_horizon() */
	uint64		ended;			/* every transaction before it has ended */
	bool		with_base;		/* the base run takes part */
} KvSurvival;

typedef enum KvSurvives
{
	KV_SURVIVES_NOT,
	KV_SURVIVES_FROZEN,			/* in the base run */
	KV_SURVIVES_UNFROZEN
} KvSurvives;

/*
 * Decide on one version, which that incarnation wrote or, in_base, which is frozen; sets its
 * status. *resolved: every snapshot sees one of the newer versions, so this one counts only if
 * it is a running transaction's lock.  Set when every snapshot sees this version.
 */
static inline KvSurvives
kv_version_survives(const KvSurvival *rules, KvVersion *version, uint32 incarnation,
					bool in_base, bool *resolved)
{
	if (*resolved && version->kind != KV_VERSION_LOCK)
		return KV_SURVIVES_NOT;
	if (in_base)
	{
		*resolved = true;
		return KV_SURVIVES_FROZEN;
	}
	if (version->status == KV_XID_UNKNOWN)
		version->status = kv_xid_status(version->xid, incarnation);

	/* in recovery: it ended with the server that ran it, without a trace */
	if (version->status == KV_XID_UNKNOWN && version->xid < rules->ended)
		version->status = KV_XID_ABORTED;
	if (version->status == KV_XID_ABORTED ||
		(version->kind == KV_VERSION_LOCK && version->status != KV_XID_UNKNOWN))
		return KV_SURVIVES_NOT;
	if (version->status == KV_XID_UNKNOWN || version->xid >= rules->horizon)
		return KV_SURVIVES_UNFROZEN;
	*resolved = true;
	if (!rules->with_base)
		return KV_SURVIVES_UNFROZEN;
	return version->kind == KV_VERSION_PUT ? KV_SURVIVES_FROZEN : KV_SURVIVES_NOT;
}

#endif							/* KV_SURVIVE_H */
