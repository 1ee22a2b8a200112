/*
 * fault.c
 *		Fault injection and stop points of test builds (-DKVFDW_FAULTS).
 *
 * kvfdw.fault = 'kind:N:action[,…]' makes the Nth call of a kind (one of kv_io_kind_names with
 * underscores for blanks) misbehave; 'N+' means the Nth and every later one.  Calls are counted
 * per process since the setting last changed in it.
 *
 * kvfdw.stop_points = 'name=action[,…]' has a process that reaches the named point
 *
 *  - kill itself (kill);
 *  - raise ERROR (error); or
 *  - create $PGDATA/kvfdw/waiting.name and waiting.name.pid, and wait until
 *    $PGDATA/kvfdw/continue.name exists, or step.name, which ends one wait and is removed by
 *    that (wait).
 *
 * Other settings for tests:
 *
 *  - kvfdw.skip = 'name' skips the named step, for tests of its effect; 'direct_io': value
 *    files are opened without direct I/O.
 *  - kvfdw.boot_id replaces the running kernel's, and kvfdw.server_version the running server's
 *    number.
 *  - kvfdw.test_value_file_kb makes value files small, so that little data has many.
 *  - kvfdw.test_space_kb replaces the spare bytes of a file system.
 *
 * Faults and stop points are parsed into fixed static arrays, so that a check costs no
 * allocation and may be made anywhere, critical sections included.
 */
#include "postgres.h"

#ifdef KVFDW_FAULTS

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "compat.h"
#include "engine/base/types.h"
#include "engine/base/wait.h"
#include "engine/base/worker.h"
#include "engine/engine.h"
#include "engine/io/fault.h"
#include "engine/io/internal.h"
#include "engine/io/io.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/guc.h"

#define MAX_FAULTS			16
#define MAX_STOP_POINTS		16
#define FAULT_DELAY_USEC	100000L
#define STOP_POLL_MSEC		10

#define ACTION_SHORT		(-1)
#define ACTION_DELAY		(-2)
#define ACTION_KILL			(-3)
#define ACTION_ROT			(-4)

typedef struct Fault
{
	KvIoKind	kind;
	uint64		nth;
	bool		onwards;		/* the Nth call and every later one */
	int			action;			/* an errno, or ACTION_… */
} Fault;

typedef enum StopAction
{
	STOP_KILL,
	STOP_WAIT,
	STOP_ERROR
} StopAction;

typedef struct StopPoint
{
	char		name[NAMEDATALEN];
	StopAction	action;
} StopPoint;

static const char *const fault_action_names[] = {
	"short", "delay", "kill", "rot", "EIO", "ENOSPC", "EDQUOT", "EFBIG", "ENOMEM", "EMFILE",
		"ENFILE",
	"EACCES", "EROFS", "ENOENT", "EINTR", "EAGAIN", "EINVAL"
};
static const int fault_actions[] = {
	ACTION_SHORT, ACTION_DELAY, ACTION_KILL, ACTION_ROT, EIO, ENOSPC, EDQUOT, EFBIG, ENOMEM, EMFILE,
		ENFILE,
	EACCES, EROFS, ENOENT, EINTR, EAGAIN, EINVAL
};

StaticAssertDecl(lengthof(fault_actions) == lengthof(fault_action_names), "each action has a name");

static const char *const stop_action_names[] = {"kill", "wait", "error"};

static char *fault_setting;
static char *stop_setting;
static char *skip_setting;
static char *boot_id_setting;
static int	write_buffer_units;
static int	server_version_setting;
static int	space_setting = -1;
int			kv_test_value_file_kb = 0;

static Fault faults[MAX_FAULTS];
static int	nfaults;
static uint64 fault_calls[KV_IO_KINDS];
static bool rots;				/* of the last counted call */

static StopPoint stop_points[MAX_STOP_POINTS];
static int	nstop_points;

/* Does the word of that length equal a name, taking '_' for its blanks? */
static bool
word_is(const char *word, Size len, const char *name)
{
	if (strlen(name) != len)
		return false;
	for (Size i = 0; i < len; i++)
	{
		if (word[i] != (name[i] == ' ' ? '_' : name[i]))
			return false;
	}
	return true;
}

/* The index of the name at the beginning of the text up to stop, or -1; *p is moved after it. */
static int
parse_word(const char **p, const char *stop, const char *const *names, int count)
{
	const char *word = *p;
	Size		len = strcspn(word, stop);

	*p += len;
	for (int i = 0; i < count; i++)
	{
		if (word_is(word, len, names[i]))
			return i;
	}
	return -1;
}

/* kind:N:action or kind:N+:action */
static bool
parse_fault(const char **p, void *item)
{
	Fault	   *fault = item;
	char	   *end;
	int			kind = parse_word(p, ":", kv_io_kind_names, KV_IO_KINDS);
	int			action;

	if (kind < 0 || *(*p)++ != ':' || !isdigit((unsigned char) **p))
		return false;
	fault->kind = (KvIoKind) kind;
	fault->nth = strtoull(*p, &end, 10);
	fault->onwards = (*end == '+');
	*p = end + (fault->onwards ? 1 : 0);
	if (*(*p)++ != ':')
		return false;
	action = parse_word(p, ",", fault_action_names, lengthof(fault_action_names));
	if (action >= 0)
		fault->action = fault_actions[action];
	return action >= 0;
}

/* name=action */
static bool
parse_stop_point(const char **p, void *item)
{
	StopPoint  *point = item;
	Size		len = strcspn(*p, "=");
	int			action;

	if (len == 0 || len >= NAMEDATALEN || (*p)[len] != '=' || memchr(*p, '/', len) != NULL)
		return false;
	memcpy(point->name, *p, len);
	point->name[len] = '\0';
	*p += len + 1;
	action = parse_word(p, ",", stop_action_names, lengthof(stop_action_names));
	if (action >= 0)
		point->action = (StopAction) action;
	return action >= 0;
}

/* Parse items with commas between them into out.  Returns a count, or -1. */
static int
parse_list(const char *setting, void *out, Size size, int max,
		   bool (*parse) (const char **p, void *item))
{
	int			n = 0;

	for (const char *p = setting; *p != '\0'; n++)
	{
		if (n >= max || !parse(&p, (char *) out + n * size))
			return -1;
		if (*p == ',')
			p++;
	}
	return n;
}

static int
parse_faults(const char *setting, Fault *out)
{
	return parse_list(setting, out, sizeof(Fault), MAX_FAULTS, parse_fault);
}

static int
parse_stop_points(const char *setting, StopPoint *out)
{
	return parse_list(setting, out, sizeof(StopPoint), MAX_STOP_POINTS, parse_stop_point);
}

static bool
check_fault(char **newval, void **extra, GucSource source)
{
	Fault		parsed[MAX_FAULTS];

	if (parse_faults(*newval, parsed) >= 0)
		return true;
	GUC_check_errdetail("A fault is kind:N:action or kind:N+:action, at most %d of them.",
						MAX_FAULTS);
	return false;
}

static void
assign_fault(const char *newval, void *extra)
{
	nfaults = Max(parse_faults(newval, faults), 0);
	memset(fault_calls, 0, sizeof(fault_calls));
}

static bool
check_stop_points(char **newval, void **extra, GucSource source)
{
	StopPoint	parsed[MAX_STOP_POINTS];

	if (parse_stop_points(*newval, parsed) >= 0)
		return true;
	GUC_check_errdetail("A stop point is name=kill, name=wait or name=error, at most %d of them.",
						MAX_STOP_POINTS);
	return false;
}

static void
assign_stop_points(const char *newval, void *extra)
{
	nstop_points = Max(parse_stop_points(newval, stop_points), 0);
}

int
kv_fault(KvIoKind kind, Size *len)
{
	uint64		call;

	rots = false;
	if (nfaults == 0)
		return 0;
	call = ++fault_calls[kind];
	for (int i = 0; i < nfaults; i++)
	{
		const Fault *fault = &faults[i];

		if (fault->kind != kind ||
			(fault->onwards ? call < fault->nth : call != fault->nth))
			continue;
		switch (fault->action)
		{
			case ACTION_SHORT:
				if (len != NULL)
					*len /= 2;
				break;
			case ACTION_DELAY:
				pg_usleep(FAULT_DELAY_USEC);
				break;
			case ACTION_KILL:
				kill(getpid(), SIGKILL);
				break;
			case ACTION_ROT:
				rots = true;
				break;
			default:
				return fault->action;
		}
	}
	return 0;
}

bool
kv_fault_rots(void)
{
	return rots;
}

void
kv_fault_rot(char *bytes, int len)
{
	for (int i = 0; rots && i < len; i++)
		bytes[i] ^= 1;
	rots = false;
}

/* Take a step: when it is taken, a waiting file belongs to the next wait. */
static bool
take_step(const char *step, const char *waiting)
{
	if (access(step, F_OK) != 0)
		return false;
	unlink(waiting);
	return unlink(step) == 0;
}

static void
create_empty(const char *path)
{
	int			fd = open(path, O_CREAT | O_WRONLY, pg_file_create_mode);

	if (fd >= 0)
		close(fd);
}

/*
 * Wait at a stop point, in any process; interrupts are served where allowed.  Several processes
 * may wait at one point.  Each also has a file of its own, so that the test can tell when all
 * have continued.
 */
static void
stop_wait(const char *name)
{
	static uint32 wait_event = 0;
	char		waiting[MAXPGPATH];
	char		mine[MAXPGPATH];
	char		go_on[MAXPGPATH];
	char		step[MAXPGPATH];

	snprintf(waiting, sizeof(waiting), "%s/kvfdw/waiting.%s", DataDir, name);
	snprintf(go_on, sizeof(go_on), "%s/kvfdw/continue.%s", DataDir, name);
	snprintf(step, sizeof(step), "%s/kvfdw/step.%s", DataDir, name);

	snprintf(mine, sizeof(mine), "%s.%d", waiting, (int) getpid());
	create_empty(mine);
	PG_TRY();
	{
		while (access(go_on, F_OK) != 0 && !take_step(step, waiting))
		{
			/* another process that continued has removed it */
			create_empty(waiting);
			if (MyLatch == NULL || !IsUnderPostmaster)
			{
				pg_usleep(STOP_POLL_MSEC * 1000L);
				continue;
			}
			kv_nap(STOP_POLL_MSEC, KV_WAIT_EVENT(wait_event, "KvfdwStopPoint"));
			CHECK_FOR_INTERRUPTS();
		}
	}
	PG_FINALLY();
	{
		unlink(waiting);
		unlink(mine);
	}
	PG_END_TRY();
}

void
kv_stop_point(const char *name)
{
	/* a worker may have been told only now to stop here */
	kv_worker_reload();
	for (int i = 0; i < nstop_points; i++)
	{
		if (strcmp(stop_points[i].name, name) != 0)
			continue;
		switch (stop_points[i].action)
		{
			case STOP_KILL:
				kill(getpid(), SIGKILL);
				break;
			case STOP_WAIT:
				stop_wait(name);
				break;
			case STOP_ERROR:
				ereport(ERROR,
						(errcode(ERRCODE_INTERNAL_ERROR),
						 errmsg("stopped at \"%s\" by \"kvfdw.stop_points\"", name)));
		}
	}
}

static bool
check_value_file(int *value, void **extra, GucSource source)
{
	return *value == 0 || (*value >= 64 && (*value & (*value - 1)) == 0);
}

void
kv_fault_gucs(void)
{
	DefineCustomStringVariable("kvfdw.fault",
							   "Makes chosen file system calls of this process fail.",
							   "A list of kind:N:action; the action is an errno name, short, "
							   "delay or kill. For tests only.",
							   &fault_setting, "", PGC_SUSET, 0,
							   check_fault, assign_fault, NULL);
	DefineCustomStringVariable("kvfdw.stop_points",
							   "Stops this process at named points.",
							   "A list of name=kill, name=wait and name=error. For tests only.",
							   &stop_setting, "", PGC_SUSET, 0,
							   check_stop_points, assign_stop_points, NULL);
	DefineCustomStringVariable("kvfdw.skip",
							   "Leaves out a step that durability, or a check, needs.",
							   "For tests only.",
							   &skip_setting, "", PGC_SIGHUP, 0,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("kvfdw.boot_id",
							   "Sets what stands for the boot id of the running kernel.",
							   "For tests only.",
							   &boot_id_setting, "", PGC_POSTMASTER, 0,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.buffer_units",
							"Sets how many units the buffer file has, whatever "
							"kvfdw.write_buffers says.",
							"For tests only.",
							&write_buffer_units, 0, 0, INT_MAX, PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.server_version",
							"Sets what stands for the version number of the running server.",
							"For tests only.",
							&server_version_setting, 0, 0, INT_MAX, PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("kvfdw.test_value_file_kb",
							"Sets the size of the smallest value files.",
							"A power of two; 0: as in other builds. Tables made with another size "
							"cannot be read. For tests only.",
							&kv_test_value_file_kb, 0, 0, 4096, PGC_POSTMASTER, GUC_UNIT_KB,
							check_value_file, NULL, NULL);
	DefineCustomIntVariable("kvfdw.test_space_kb",
							"Sets what stands for the free space of the file system.",
							"-1: what the file system says. For tests only.",
							&space_setting, -1, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);
}

bool
kv_fault_skips(const char *step)
{
	return strcmp(skip_setting, step) == 0;
}

int
kv_fault_server_version(void)
{
	return server_version_setting;
}

int64
kv_fault_space(void)
{
	return space_setting < 0 ? -1 : (int64) space_setting * 1024;
}

int
kv_fault_buffer_units(void)
{
	return write_buffer_units;
}

const char *
kv_fault_boot_id(void)
{
	return boot_id_setting[0] != '\0' ? boot_id_setting : NULL;
}

#endif							/* KVFDW_FAULTS */
