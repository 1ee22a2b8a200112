/*
 * machine.c
 *		How much memory a server may use, in trees of files as control groups of both versions have them.
 *
 * The source is included.
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#undef printf
#undef snprintf
#undef fprintf

#include "engine/io/machine.c"

#define MB	(1024 * 1024)

static int	tests = 0;
static int	failed = 0;
static char root[512];

size_t
strlcpy(char *to, const char *from, size_t size)
{
	snprintf(to, size, "%s", from);
	return strlen(from);
}

static void
put(const char *name, const char *text)
{
	char		path[1024];
	FILE	   *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++)
	{
		*at = '\0';
		(void) mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
}

static void
is_so(uint64 got, uint64 expected, const char *what)
{
	tests++;
	if (got != expected)
		failed++;
	printf("%sok %d - %s%s", got == expected ? "" : "not ", tests, what, got == expected ? "\n" : "");
	if (got != expected)
		printf(": %llu, not %llu\n", (unsigned long long) got, (unsigned long long) expected);
}

static const char *
groups_file(const char *groups)
{
	static char path[1024];

	put("groups", groups);
	snprintf(path, sizeof(path), "%s/groups", root);
	return path;
}

static void
is(const char *groups, uint64 expected, const char *what)
{
	is_so(kv_machine_memory(groups_file(groups), root), expected, what);
}

static void
is_idle(const char *groups, uint64 expected, const char *what)
{
	is_so(kv_machine_idle(groups_file(groups), root), expected, what);
}

int
main(int argc, char **argv)
{
	static char many[20000];
	uint64		all = (uint64) sysconf(_SC_PHYS_PAGES) * (uint64) sysconf(_SC_PAGESIZE);

	snprintf(root, sizeof(root), "%s/groups-of-%d", argv[1], (int) getpid());
	(void) mkdir(root, 0700);
	is("0::/\n", all, "no limit anywhere");
	put("a/b/memory.max", "max\n");
	is("0::/a/b\n", all, "version 2, unlimited");
	put("a/memory.max", "20971520\n");
	is("0::/a/b\n", 20 * MB, "version 2: the group above");
	put("a/b/memory.max", "10485760\n");
	is("0::/a/b\n", 10 * MB, "version 2: the group itself");
	put("memory.max", "5242880\n");
	is("0::/\n", 5 * MB, "version 2: a container that sees its own group as the root");
	is("0::/elsewhere/../x\n", 5 * MB, "version 2: a group that is not to be seen");
	put("memory.max", "max\n");
	put("memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
	is("12:memory:/x/y\n3:cpu:/a/b\n", all, "version 1, unlimited");
	put("memory/x/memory.limit_in_bytes", "7340032\n");
	is("3:cpu:/a/b\n12:memory:/x/y\n1:name=systemd:/\n0::/\n", 7 * MB, "version 1: the group above, and others beside");
	put("memory/memory.limit_in_bytes", "6291456\n");
	is("12:memory:/docker/0123\n", 6 * MB, "version 1: a container that sees its own group as the root");
	is("11:hugetlb,memory:/x/y\n", 6 * MB, "version 1: with another controller");
	is("11:memory_x,cpu:/x/y\n", all, "version 1: another controller's name begins so");
	memset(many, 'x', sizeof(many));
	memcpy(many + sizeof(many) - 16, "\n9:memory:/x/y\n", 16);
	memcpy(many, "1:name=", 7);
	many[7] = ':';
	is(many, 6 * MB, "version 1: far behind in the file");
	is("nonsense\n::\n:\n12:memory\n", all, "lines that say nothing");
	is_so(kv_machine_idle(groups_file("0::/none\n"), "/nowhere") > 0, 1, "idle: of the machine, where there is no group");
	put("i/j/memory.max", "3145728\n");
	put("i/j/memory.current", "1048576\n");
	is_idle("0::/i/j\n", 2 * MB, "idle: version 2, what a group has not used");
	put("i/memory.max", "5242880\n");
	put("i/memory.current", "4194304\n");
	is_idle("0::/i/j\n", 1 * MB, "idle: version 2, the group above has less");
	put("i/j/memory.current", "4000000\n");
	is_idle("0::/i/j\n", 0, "idle: version 2, more than all is used");
	put("memory/u/memory.limit_in_bytes", "4194304\n");
	put("memory/u/memory.usage_in_bytes", "1048576\n");
	is_idle("12:memory:/u\n", 3 * MB, "idle: version 1");
	put("memory/w/memory.limit_in_bytes", "4194304\n");
	is_idle("12:memory:/w\n", 4 * MB, "idle: a group that does not say what is used");
	printf("1..%d\n", tests);
	return failed > 0;
}
