/* Preloaded: the n-th write to a file below a folder fails, once or from then on, or the process is killed there.

   Writes are write, pwrite, writev, fsync, fdatasync and ftruncate of regular files, and rename. tests/failing_writes.py
   calls fault_at before a run, and asks how many writes there were. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAILS, FAILS_FROM_THEN_ON, KILLED_BEFORE, KILLED_HALFWAY, KILLED_AFTER, GOES_WELL };

static char folder[PATH_MAX], part[PATH_MAX];
static long wanted, seen; /* which one it is, counted from 1; 0: none */
static int reason, what;

/* files: only writes to paths that have this in them, below the folder, are counted */
void fault_at(const char *below, const char *files, long number, int fault, int error) {
    strncpy(folder, below, sizeof folder - 1);
    strncpy(part, files, sizeof part - 1);
    wanted = number, seen = 0, what = fault, reason = error;
}

long writes_seen(void) { return seen; }

static int fault_of(const char *path) {
    if (!*folder || strncmp(path, folder, strlen(folder)) || !strstr(path + strlen(folder), part)) return GOES_WELL;
    const long number = __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
    if (!wanted || (what == FAILS_FROM_THEN_ON ? number < wanted : number != wanted)) return GOES_WELL;
    errno = reason;
    return what;
}

static int fault_on(int file) {
    char link[64], path[PATH_MAX];
    if (!*folder) return GOES_WELL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return GOES_WELL;
    path[length] = 0;
    return fault_of(path);
}

static void end(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WITH_FAULT(fault, name, arguments, half)                 \
    const int now = fault;                                       \
    if (now == FAILS || now == FAILS_FROM_THEN_ON) return -1;    \
    if (now == GOES_WELL) return REAL(name) arguments;           \
    if (now == KILLED_HALFWAY) half;                             \
    if (now == KILLED_AFTER) REAL(name) arguments;               \
    end();                                                       \
    return -1;
#define ON_FILE(result, name, parameters, arguments, half) \
    result name parameters { WITH_FAULT(fault_on(file), name, arguments, half) }
#define NOTHING (void)0

ON_FILE(ssize_t, write, (int file, const void *from, size_t count), (file, from, count),
        REAL(write)(file, from, count / 2))
ON_FILE(ssize_t, pwrite, (int file, const void *from, size_t count, off_t place), (file, from, count, place),
        REAL(pwrite)(file, from, count / 2, place))
ON_FILE(ssize_t, pwrite64, (int file, const void *from, size_t count, off64_t place), (file, from, count, place),
        REAL(pwrite64)(file, from, count / 2, place))
ON_FILE(ssize_t, writev, (int file, const struct iovec *parts, int count), (file, parts, count),
        REAL(writev)(file, parts, count / 2))
ON_FILE(int, fsync, (int file), (file), NOTHING)
ON_FILE(int, fdatasync, (int file), (file), NOTHING)
ON_FILE(int, ftruncate, (int file, off_t length), (file, length), NOTHING)
ON_FILE(int, ftruncate64, (int file, off64_t length), (file, length), NOTHING)

int rename(const char *from, const char *to) { WITH_FAULT(fault_of(to), rename, (from, to), NOTHING) }
