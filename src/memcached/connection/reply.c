/*
 * reply.c
 *		Replies, printed for their connections.
 */
#include "memcached/connection/connection.h"

void
kv_mc_answer(KvMcConnection *conn, const KvMcRequest *request, const KvMcReply *reply)
{
	KvMcPieces	pieces;

	kv_mc_print(request, reply, &conn->silenced, kv_mc_say_head(conn), &pieces);
	kv_mc_tell_pieces(conn, &pieces);
}
