/*
 * machine.c
 *		The memory that the server may use: the machine's, or less if a control group (cgroup,
 *		version 1 or 2) limits it, as in a container; and the part of it that is unused, by the
 *		page cache too.
 *
 * A process is in a group, which has limits of its own and those of the groups above it.  A
 * container may see only the lower part of that hierarchy.  So each limit is looked for where
 * it would be, and a missing file is no limit.
 */
#include "postgres.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include "engine/io/io.h"

/* Read the beginning of a file, as a string; false: it cannot be read. */
static bool
read_text(const char *path, char *into, Size size)
{
	FILE	   *file = fopen(path, "r");
	Size		n;

	if (file == NULL)
		return false;
	n = fread(into, 1, size - 1, file);
	into[n] = '\0';
	fclose(file);
	return true;
}

/* Names of the files of a group and of those above it, below root. */
typedef struct KvGroupFiles
{
	const char *limit;
	const char *used;
} KvGroupFiles;

static const KvGroupFiles version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes"};
static const KvGroupFiles version_2 = {"memory.max", "memory.current"};

/* Read the number in a file; false: there is none. */
static bool
read_number(const char *dir, const char *name, uint64 *number)
{
	char		path[4 * MAXPGPATH];
	char		text[32];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (!read_text(path, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
		return false;
	*number = strtoull(text, NULL, 10);
	return true;
}

/* The least limit of a group and of those above it; left: the least unused memory. */
static uint64
group_least(const char *root, const char *group, const KvGroupFiles *files, bool left, uint64 most)
{
	char		dir[3 * MAXPGPATH];
	char		below[MAXPGPATH];
	char	   *slash;

	strlcpy(below, group, sizeof(below));
	for (;;)
	{
		uint64		limit;
		uint64		used = 0;

		snprintf(dir, sizeof(dir), "%s%s", root, strcmp(below, "/") == 0 ? "" : below);
		if (read_number(dir, files->limit, &limit) && limit > 0)
		{
			if (left)
				(void) read_number(dir, files->used, &used);
			most = Min(most, limit - Min(limit, used));
		}
		slash = strrchr(below, '/');
		if (slash == NULL)
			return most;
		*slash = '\0';
	}
}

/* Is the memory controller in a list "memory,hugetlb"? */
static bool
has_memory(char *controllers)
{
	char	   *name;

	while ((name = strsep(&controllers, ",")) != NULL)
	{
		if (strcmp(name, "memory") == 0)
			return true;
	}
	return false;
}

/* The least of all groups that the file names, and of the machine. */
static uint64
least(const char *groups_path, const char *root, bool left, uint64 most)
{
	FILE	   *groups = fopen(groups_path, "r");
	char		v1[2 * MAXPGPATH];
	char	   *line = NULL;
	size_t		size = 0;

	if (groups == NULL)
		return most;
	snprintf(v1, sizeof(v1), "%s/memory", root);
	while (getline(&line, &size, groups) >= 0)
	{
		/* number:controllers:group */
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers ? strchr(controllers + 1, ':') : NULL;

		if (group == NULL)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (controllers[1] == '\0')
			most = group_least(root, group, &version_2, left, most);
		else if (has_memory(controllers + 1))
			most = group_least(v1, group, &version_1, left, most);
	}
	free(line);
	fclose(groups);
	return most;
}

uint64
kv_machine_memory(const char *groups_path, const char *root)
{
	return least(groups_path, root, false,
				 (uint64) sysconf(_SC_PHYS_PAGES) * (uint64) sysconf(_SC_PAGESIZE));
}

uint64
kv_machine_idle(const char *groups_path, const char *root)
{
	struct sysinfo info;

	if (sysinfo(&info) != 0)
		return 0;
	return least(groups_path, root, true, (uint64) info.freeram * info.mem_unit);
}
