/*
 * schemaimage.h
 *		Reads and prints schema images, the text that describes how a store's rows were
 *		written.
 *
 * Its grammar, and what it is for, are at the head of schema.c.
 *
 * Locks:  none of the engine's. Errors: kv_schema_read raises XX001 for an invalid image, 0A000
 * for one of another version.
 */
#ifndef KV_SCHEMAIMAGE_H
#define KV_SCHEMAIMAGE_H

#include "postgres.h"

#include "access/htup_details.h"
#include "lib/stringinfo.h"
#include "utils/rel.h"

#include "compat.h"
#include "engine/store.h"

typedef struct KvSchemaKey
{
	AttrNumber	attnum;
	Oid			typid;
	int32		typmod;
	Oid			collation;
} KvSchemaKey;

typedef struct KvSchemaColumn
{
	AttrNumber	attnum;
	Oid			typid;
	int16		attlen;			/* as in pg_attribute */
	char		attalign;
	uint64		xid;
	char	   *missing;		/* its bytes as in a row; NULL: the column is NULL there */
	int			missing_len;
} KvSchemaColumn;

/* The image in memory. */
typedef struct KvSchema
{
	uint64		xid;
	AttrNumber	raw;
	bool		compressed;		/* values may be */
	int			nkeys;
	int			ncolumns;
	KvSchemaKey	keys[MaxHeapAttributeNumber];
	KvSchemaColumn columns[MaxHeapAttributeNumber];
} KvSchema;

/*
 * Read a store's image, and the incarnation of the server that wrote it; false: the store
 * has none yet.  *image gets its bytes.
 */
extern bool kv_schema_read(Relation rel, KvStore *store, StringInfo image, KvSchema *schema,
						   uint32 *incarnation);
/* Raise XX001: the image is invalid. */
KV_NORETURN extern void kv_schema_raise_invalid(Relation rel);
/* Print the image as text, which replaces the contents of into. */
extern void kv_schema_print(const KvSchema *schema, StringInfo into);

#endif							/* KV_SCHEMAIMAGE_H */
