/*
 * identity.c
 *		Identity of a file, and of the mount of its file system.
 *
 * Pages that were written and not synced belong to the mounted file system: they are lost when
 * it is unmounted, shut down by an error, or replaced by a snapshot.  Either of two numbers
 * proves that the file system has been mounted all the time, because a kernel never uses one
 * twice:
 *
 *  - the mount's unique id (Linux 6.8);
 *  - the inode of the file system's directory in sysfs, which is created at each mount (ext4,
 *    xfs, f2fs).  It outlives a container, whose mounts do not.
 *
 * A file is the same if it has its inode and was not changed since: a copy of it, or another
 * file of its name, has another change time.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "engine/io/io.h"
#include "utils/pidfile.h"

#define KV_STATX_MNT_ID_UNIQUE	0x4000	/* newer than some headers */

/* The inode of the mounted file system's directory in sysfs; 0 if there is none. */
static uint64
sysfs_inode(dev_t device)
{
	static const char *const kinds[] = {"ext4", "xfs", "f2fs"};
	char		link[64];
	char		target[MAXPGPATH];
	ssize_t		len;
	const char *name;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(device), minor(device));
	len = readlink(link, target, sizeof(target) - 1);
	if (len <= 0)
		return 0;
	target[len] = '\0';
	name = last_dir_separator(target);
	if (name == NULL)
		return 0;
	for (int i = 0; i < lengthof(kinds); i++)
	{
		char		path[MAXPGPATH];
		struct stat info;

		snprintf(path, sizeof(path), "/sys/fs/%s/%s", kinds[i], name + 1);
		if (stat(path, &info) == 0)
			return info.st_ino;
	}
	return 0;
}

void
kv_io_identify_mount(const char *path, uint64 *mount, uint64 *superblock)
{
	struct statx info;

	*mount = *superblock = 0;
	if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | KV_STATX_MNT_ID_UNIQUE, &info) != 0)
		kv_io_error(ERROR, errno, path, "stat");
#ifdef STATX_MNT_ID
	if (info.stx_mask & KV_STATX_MNT_ID_UNIQUE)
		*mount = info.stx_mnt_id;
#endif
	*superblock = sysfs_inode(makedev(info.stx_dev_major, info.stx_dev_minor));
}

bool
kv_io_identify_file(const char *path, uint64 *inode, int64 *changed_sec, uint32 *changed_nsec)
{
	struct stat info;

	if (stat(path, &info) != 0)
	{
		if (errno != ENOENT)
			kv_io_error(ERROR, errno, path, "stat");
		return false;
	}
	*inode = info.st_ino;
	*changed_sec = info.st_ctim.tv_sec;
	*changed_nsec = info.st_ctim.tv_nsec;
	return true;
}

/* Reads line LOCK_FILE_LINE_PM_STATUS of postmaster.pid. */
bool
kv_io_server_stops(void)
{
	char		text[2 * MAXPGPATH];
	int			len = kv_io_peek("postmaster.pid", text, sizeof(text) - 1);
	char	   *line = text;

	text[Max(len, 0)] = '\0';
	for (int i = 1; line != NULL && i < LOCK_FILE_LINE_PM_STATUS; i++)
	{
		line = strchr(line, '\n');
		line = line != NULL ? line + 1 : NULL;
	}
	return line != NULL && strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}
