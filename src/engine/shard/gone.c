/*
 * gone.c
 *		Unmaps runs and closes value files whose files were removed.
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
