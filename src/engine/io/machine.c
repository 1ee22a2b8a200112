/*
 * machine.c
 *		How much memory the server may use: the machine's, or less if a control group
 *		(cgroup, of version 1 or 2) limits it, as in a container.
 *
 * A process is in a group, which has limits of its own and those of the groups above it.
 * What a container sees of that may begin anywhere, so each is looked for where it would be,
 * and what is not there limits nothing.
 */
#include "postgres.h"

#include <unistd.h>

#include "engine/io/machine.h"

/* The beginning of a file, as a string; false: it cannot be read. */
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

/* The limit of a group and of those above it, in files of this name below root. */
static uint64
group_limit(const char *root, const char *group, const char *name, uint64 most)
{
	char		path[3 * MAXPGPATH];
	char		below[MAXPGPATH];
	char		text[32];
	char	   *slash;

	strlcpy(below, group, sizeof(below));
	for (;;)
	{
		snprintf(path, sizeof(path), "%s%s/%s", root, strcmp(below, "/") == 0 ? "" : below, name);
		if (read_text(path, text, sizeof(text)) && text[0] >= '1' && text[0] <= '9')
			most = Min(most, (uint64) strtoull(text, NULL, 10));
		slash = strrchr(below, '/');
		if (slash == NULL)
			return most;
		*slash = '\0';
	}
}

/* Is the controller of memory in a list "memory,hugetlb"? */
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

uint64
kv_machine_memory(const char *groups_path, const char *root)
{
	uint64		most = (uint64) sysconf(_SC_PHYS_PAGES) * (uint64) sysconf(_SC_PAGESIZE);
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
			most = group_limit(root, group, "memory.max", most);
		else if (has_memory(controllers + 1))
			most = group_limit(v1, group, "memory.limit_in_bytes", most);
	}
	free(line);
	fclose(groups);
	return most;
}
