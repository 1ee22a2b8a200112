/*
 * store.h
 *		Stores of tables, as the SQL side creates, opens, moves and drops them.
 *
 * A store is one generation of one table's data.  The SQL side knows it by the OIDs of its database
 * and its table, and holds a lock on the relation while it has a pointer.
 *
 * All functions here raise ERROR unless they say otherwise.  None holds a lock when it returns.
 */
#ifndef KV_ENGINE_STORE_H
#define KV_ENGINE_STORE_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/snapshot.h"

#include "engine/base/key.h"
#include "engine/base/types.h"

/* ---- stores (lifecycle/generation.c) ---- */

/*
 * The store of a table, recovered if this is its first use since the server started.  The
 * caller holds a lock on the relation.  Returns NULL if no row was ever written and bounds is
 * NULL.
 *
 * If bounds is given a missing store is created.  It gets so many shards, key_width (every
 * key's encoded length, or 0), wal, and its value files in tablespace (InvalidOid: the data
 * directory).  created_in: the subtransaction that created the relation, if that was in this
 * transaction.
 */
extern KvStore *kv_store_open(Oid dboid, Oid relid, int shards, int key_width,
							  const KvKey *bounds, KvWalLevel wal, Oid tablespace,
							  SubTransactionId created_in);

/*
 * False: kv_store_open would recover the table's store, or, if *opening is set, wait for a
 * process that does.  A store that was created since the start needs no recovery.  The caller
 * holds a lock on the relation.
 */
extern bool kv_store_is_ready(Oid dboid, Oid relid, bool *opening);

/* TRUNCATE: create a new, empty generation that becomes the table's at COMMIT. */
extern void kv_store_truncate(Oid dboid, Oid relid, int shards, int key_width,
							  const KvKey *bounds, KvWalLevel wal, Oid tablespace,
							  SubTransactionId created_in);
/*
 * The rows of such a generation were copied from the previous one, so older snapshots see none
 * of them.
 */
extern void kv_store_note_copied(KvStore *store);
/* False: the snapshot is older than the copy. */
extern bool kv_store_serves(KvStore *store, Snapshot snapshot);
/* DROP: remove the store from the registry, and unlink its files, at COMMIT. */
extern void kv_store_drop_at_commit(Oid dboid, Oid relid);
extern void kv_store_drop_database_at_commit(Oid dboid);

/*
 * The schema image that the SQL side stores in a store: an opaque string that it compares at
 * open. set replaces the image durably.  get returns the incarnation of the server that wrote
 * it, for kv_xid_was_lost.
 */
extern uint32 kv_store_get_schema(KvStore *store, StringInfo into);
extern void kv_store_set_schema(KvStore *store, const char *data, int len);

/* Is the xid, noted in that incarnation, of a transaction that a crash has rolled back? */
extern bool kv_xid_was_lost(uint64 xid, uint32 incarnation);

/* Was the store made for keys of this width, each key's encoded length or 0? */
extern bool kv_store_fits_keys(const KvStore *store, int key_width);
/* The wal level with which a table's data was written; false if it has no usable data. */
extern bool kv_store_wal_level(Oid dboid, Oid relid, KvWalLevel *level);
/*
 * The tablespace of the store's values, InvalidOid: none; returns false if the table has no
 * usable data.
 */
extern bool kv_store_tablespace(Oid dboid, Oid relid, Oid *tablespace);
/* A store with value files in a tablespace.  False: there is none. */
extern bool kv_space_user(Oid tablespace, Oid *dboid, Oid *relid);
/*
 * A store that creates its value files in the tablespace, has never moved, and could not be
 * opened without it.  False: there is none.
 */
extern bool kv_space_awaits_move(Oid tablespace, Oid *dboid, Oid *relid);
/* Does the store have values in tablespaces, or may it have? */
extern bool kv_store_has_tablespaces(Oid dboid, Oid relid);
/*
 * Moving a table's values to another tablespace, value file by value file, while readers and
 * writers run.
 *
 *  - follow: the catalog names the tablespace, and is committed; new value files are created
 *    there from now on.  ERROR: its directory there cannot be created.
 *  - can_follow: false if the values are leaving too many tablespaces already.  ERROR: as
 *    above.
 *  - lies_in: the store has followed, and is not asked to follow elsewhere.
 */
extern void kv_store_follow(KvStore *store, Oid tablespace);
extern bool kv_store_can_follow(KvStore *store, Oid tablespace);
extern bool kv_store_lies_in(KvStore *store, Oid tablespace);
extern void kv_store_follow_at_commit(KvStore *store, Oid tablespace);
/*
 * From now on, while the server runs, the store has this kvfdw.max_space_amplification of its
 * own; -1: the setting.
 */
extern void kv_store_bound_space(KvStore *store, double amp);

/* ---- pg_upgrade (restart/takeover.c) ---- */
/*
 * In the old server: record durably the tables of a database that were never written to.
 * Replaces an earlier record of the database.
 */
extern void kv_unwritten_note(Oid dboid, const List *relids);
/* In the new server: was the table recorded so?  ERROR (XX001) if the record is damaged. */
extern bool kv_unwritten_has(Oid dboid, Oid relid);
/*
 * In the new server: record that pg_upgrade has created tables in the database; kvfdw_upgrade
 * checks that.
 */
extern void kv_upgraded_note(Oid dboid);

#endif							/* KV_ENGINE_STORE_H */
