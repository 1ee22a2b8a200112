/*
 * gone.c
 *		What a process has mapped and open of files that have gone.
 */
#include "postgres.h"

#include "engine/index/run.h"
#include "engine/shard/shard.h"
#include "engine/value/value.h"

void
kv_files_let_go(void)
{
	kv_value_let_go();
	if (!kv_run_any_gone())
		return;
	kv_runset_forget(NULL);
	kv_run_let_go();
}
