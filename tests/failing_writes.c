/* Preloaded: the n-th write to a file below a folder fails, once or from then on.

   Writes are write, pwrite, writev, fsync, fdatasync and ftruncate of regular files, and rename. tests/failing_writes.py
   calls fail_at before a run, and asks how many writes there were. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long wanted, seen; /* which one fails, counted from 1; 0: none */
static int reason, goes_on;

void fail_at(const char *below, long number, int error, int from_then_on) {
    strncpy(folder, below, sizeof folder - 1);
    wanted = number, seen = 0, reason = error, goes_on = from_then_on;
}

long writes_seen(void) { return seen; }

static int fails(const char *path) {
    if (!*folder || strncmp(path, folder, strlen(folder))) return 0;
    const long number = __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
    if (!wanted || (goes_on ? number < wanted : number != wanted)) return 0;
    errno = reason;
    return 1;
}

static int fails_on(int file) {
    char link[64], path[PATH_MAX];
    if (!*folder) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define ON_FILE(result, name, parameters, arguments) \
    result name parameters { return fails_on(file) ? -1 : REAL(name) arguments; }

ON_FILE(ssize_t, write, (int file, const void *from, size_t count), (file, from, count))
ON_FILE(ssize_t, pwrite, (int file, const void *from, size_t count, off_t place), (file, from, count, place))
ON_FILE(ssize_t, pwrite64, (int file, const void *from, size_t count, off64_t place), (file, from, count, place))
ON_FILE(ssize_t, writev, (int file, const struct iovec *parts, int count), (file, parts, count))
ON_FILE(int, fsync, (int file), (file))
ON_FILE(int, fdatasync, (int file), (file))
ON_FILE(int, ftruncate, (int file, off_t length), (file, length))
ON_FILE(int, ftruncate64, (int file, off64_t length), (file, length))

int rename(const char *from, const char *to) { return fails(to) ? -1 : REAL(rename)(from, to); }
