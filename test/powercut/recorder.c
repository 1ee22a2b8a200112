/*
 * recorder.c
 *		An nbdkit plugin: a disk in a file (image=) that appends every write and
 *		every flush to a log (log=), in the order in which they take effect.
 *
 * A record is a struct RecorderHeader and, for a write, the bytes written.  It
 * is in the log before the request is answered, so whatever a client of the
 * disk knows to be done stands below the log's size at that moment.
 */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_SERIALIZE_ALL_REQUESTS

#define RECORD_MAGIC	0x4b565043

/* KvDisk.pm reads it as "L< C C x2 Q< L< x4". */
typedef struct RecorderHeader
{
	uint32_t	magic;
	uint8_t		type;			/* 'W' or 'F' */
	uint8_t		fua;			/* this write was durable when it was answered */
	uint16_t	pad1;
	uint64_t	offset;
	uint32_t	length;
	uint32_t	pad2;
} RecorderHeader;

static_assert(sizeof(RecorderHeader) == 24, "KvDisk.pm knows the size");

static char *image_path;
static char *log_path;
static int	image = -1;
static int	record_log = -1;
static int64_t image_size;

static int
recorder_config(const char *key, const char *value)
{
	char	  **path;

	if (strcmp(key, "image") == 0)
		path = &image_path;
	else if (strcmp(key, "log") == 0)
		path = &log_path;
	else
	{
		nbdkit_error("unknown parameter '%s'", key);
		return -1;
	}
	free(*path);
	*path = nbdkit_absolute_path(value);
	return *path == NULL ? -1 : 0;
}

static int
recorder_get_ready(void)
{
	struct stat status;

	if (image_path == NULL || log_path == NULL)
	{
		nbdkit_error("image= and log= are needed");
		return -1;
	}
	image = open(image_path, O_RDWR | O_CLOEXEC);
	record_log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
	if (image < 0 || record_log < 0 || fstat(image, &status) != 0)
	{
		nbdkit_error("cannot open %s or %s: %m", image_path, log_path);
		return -1;
	}
	image_size = status.st_size;
	return 0;
}

static void *
recorder_open(int readonly)
{
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
recorder_get_size(void *handle)
{
	return image_size;
}

static int
recorder_can_flush(void *handle)
{
	return 1;
}

static int
recorder_can_fua(void *handle)
{
	return NBDKIT_FUA_NATIVE;
}

static int
fail(const char *what)
{
	nbdkit_error("%s: %m", what);
	nbdkit_set_error(EIO);
	return -1;
}

static int
record(uint8_t type, uint32_t flags, uint64_t offset, uint32_t length, const void *data)
{
	RecorderHeader header = {
		.magic = RECORD_MAGIC,
		.type = type,
		.fua = (flags & NBDKIT_FLAG_FUA) != 0,
		.offset = offset,
		.length = length
	};
	struct iovec parts[2] = {{&header, sizeof header}, {(void *) data, length}};

	if (writev(record_log, parts, 2) != (ssize_t) (sizeof header + length))
		return fail("cannot write to the log");
	return 0;
}

static int
recorder_pread(void *handle, void *data, uint32_t length, uint64_t offset, uint32_t flags)
{
	if (pread(image, data, length, offset) != (ssize_t) length)
		return fail("cannot read the image");
	return 0;
}

static int
recorder_pwrite(void *handle, const void *data, uint32_t length, uint64_t offset, uint32_t flags)
{
	if (pwrite(image, data, length, offset) != (ssize_t) length)
		return fail("cannot write to the image");
	return record('W', flags, offset, length, data);
}

static int
recorder_flush(void *handle, uint32_t flags)
{
	return record('F', 0, 0, 0, NULL);
}

static struct nbdkit_plugin plugin = {
	.name = "recorder",
	.config = recorder_config,
	.get_ready = recorder_get_ready,
	.open = recorder_open,
	.get_size = recorder_get_size,
	.can_flush = recorder_can_flush,
	.can_fua = recorder_can_fua,
	.pread = recorder_pread,
	.pwrite = recorder_pwrite,
	.flush = recorder_flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
