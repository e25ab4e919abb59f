/* Preloaded into a process by test_power_cuts.py: writes down, in order, every change the process makes below a folder.

   DISK_RECORDER_ROOT  the folder whose files are watched, an absolute path without links
   DISK_RECORDER_LOG   the file that changes are appended to

   A record is a line of tab-separated fields, the last of them the length of the payload that follows the line:

     create  dir name inode 0        mkdir   dir name inode 0        symlink dir name 0 length    target
     rename  dir name dir2 name2 0   swap    dir name dir2 name2 0   unlink  dir name 0 0
     write   inode offset 0 length   data    size inode size 0 0     sync    inode 0 0 0
     say     0 0 0 length   text, written to standard output

   `dir` and `inode` are inode numbers. Nothing is really synced: the test decides later what a power cut would lose. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int log_descriptor = -1;
static const char *root;

__attribute__((constructor)) static void begin(void) {
    root = getenv("DISK_RECORDER_ROOT");
    const char *path = getenv("DISK_RECORDER_LOG");
    if (root && path) {
        int low = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_descriptor = fcntl(low, F_DUPFD_CLOEXEC, 700); /* out of the way of numbers the process expects */
        syscall(SYS_close, low);
    }
}

static void put(const char *op, const char *a, const char *b, const char *c, const char *d, const void *data, size_t size) {
    char line[5 * PATH_MAX];
    int length = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\t%s\t%zu\n", op, a, b, c, d, size);
    if (syscall(SYS_write, log_descriptor, line, length) != length) abort();
    if (size && syscall(SYS_write, log_descriptor, data, size) != (long)size) abort();
}

static int is_watched(const char *path) {
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

/* Where a path leads: the inode of its folder as text, and its last name. 0 where that is not watched. */
static int find(int at, const char *path, char *folder, char *name) {
    char full[2 * PATH_MAX], real[PATH_MAX], base[PATH_MAX], link[64];
    if (log_descriptor < 0) return 0;
    if (path[0] == '/' || at == AT_FDCWD) {
        snprintf(full, sizeof full, "%s", path);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
        snprintf(full, sizeof full, "%s/%s", base, path);
    }
    char *slash = strrchr(full, '/');
    snprintf(name, sizeof full, "%s", slash ? slash + 1 : full);
    if (slash) *slash = 0;
    struct stat status;
    if (!realpath(slash ? (*full ? full : "/") : ".", real) || !is_watched(real) || stat(real, &status)) return 0;
    snprintf(folder, 32, "%llu", (unsigned long long)status.st_ino);
    return 1;
}

static int watched_inode(int descriptor, char *inode) {
    char link[64], path[PATH_MAX];
    struct stat status;
    if (log_descriptor < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!is_watched(path) || fstat(descriptor, &status)) return 0;
    snprintf(inode, 32, "%llu", (unsigned long long)status.st_ino);
    return 1;
}

#define LOCKED(type, body) ({ pthread_mutex_lock(&order); type result = (body); int kept = errno; \
                              pthread_mutex_unlock(&order); errno = kept; result; })

static int recorded_open(int at, const char *path, int flags, mode_t mode) {
    char folder[32], name[2 * PATH_MAX], inode[32], size[8] = "0";
    struct stat before;
    int is_found = (flags & O_CREAT) && find(at, path, folder, name);
    int is_new = is_found && fstatat(at, path, &before, AT_SYMLINK_NOFOLLOW);
    int descriptor = syscall(SYS_openat, at, path, flags, mode);
    if (descriptor >= 0 && is_new && watched_inode(descriptor, inode)) put("create", folder, name, inode, "0", 0, 0);
    if (descriptor >= 0 && !is_new && (flags & O_TRUNC) && watched_inode(descriptor, inode))
        put("size", inode, size, "0", "0", 0, 0);
    return descriptor;
}

#define OPEN(name, ...) int name(__VA_ARGS__, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; va_end(rest); \
    return LOCKED(int, recorded_open(AT, path, flags, mode)); }
#define AT AT_FDCWD
OPEN(open, const char *path)
OPEN(open64, const char *path)
#undef AT
#define AT at
OPEN(openat, int at, const char *path)
OPEN(openat64, int at, const char *path)

static ssize_t recorded_write(int descriptor, const void *data, size_t size) {
    char inode[32], offset[32];
    struct stat status;
    int is_file = watched_inode(descriptor, inode) && !fstat(descriptor, &status) && S_ISREG(status.st_mode);
    if (is_file) {
        int appends = fcntl(descriptor, F_GETFL) & O_APPEND;
        long long at = appends ? (long long)status.st_size : (long long)lseek(descriptor, 0, SEEK_CUR);
        snprintf(offset, sizeof offset, "%lld", at);
    }
    ssize_t written = syscall(SYS_write, descriptor, data, size);
    if (written > 0 && is_file) put("write", inode, offset, "0", "0", data, written);
    if (written > 0 && descriptor == 1 && log_descriptor >= 0) put("say", "0", "0", "0", "0", data, written);
    return written;
}
ssize_t write(int descriptor, const void *data, size_t size) { return LOCKED(ssize_t, recorded_write(descriptor, data, size)); }

static int recorded_sync(int descriptor) {
    char inode[32];
    if (!watched_inode(descriptor, inode)) return syscall(SYS_fsync, descriptor);
    put("sync", inode, "0", "0", "0", 0, 0);
    return 0;
}
int fsync(int descriptor) { return LOCKED(int, recorded_sync(descriptor)); }
int fdatasync(int descriptor) { return LOCKED(int, recorded_sync(descriptor)); }

static int recorded_truncate(int descriptor, off_t length) {
    char inode[32], size[32];
    int result = syscall(SYS_ftruncate, descriptor, length);
    snprintf(size, sizeof size, "%lld", (long long)length);
    if (!result && watched_inode(descriptor, inode)) put("size", inode, size, "0", "0", 0, 0);
    return result;
}
int ftruncate(int descriptor, off_t length) { return LOCKED(int, recorded_truncate(descriptor, length)); }
int ftruncate64(int descriptor, off64_t length) { return LOCKED(int, recorded_truncate(descriptor, length)); }

static int recorded_rename(int at, const char *from, int at2, const char *to, unsigned flags) {
    char folder[32], name[2 * PATH_MAX], folder2[32], name2[2 * PATH_MAX];
    int is_watched = find(at, from, folder, name) && find(at2, to, folder2, name2);
    int result = syscall(SYS_renameat2, at, from, at2, to, flags);
    if (!result && is_watched) put(flags & RENAME_EXCHANGE ? "swap" : "rename", folder, name, folder2, name2, 0, 0);
    return result;
}
int rename(const char *from, const char *to) { return LOCKED(int, recorded_rename(AT_FDCWD, from, AT_FDCWD, to, 0)); }
int renameat(int at, const char *from, int at2, const char *to) { return LOCKED(int, recorded_rename(at, from, at2, to, 0)); }
int renameat2(int at, const char *from, int at2, const char *to, unsigned flags) {
    return LOCKED(int, recorded_rename(at, from, at2, to, flags));
}

static int recorded_unlink(int at, const char *path, int flags) {
    char folder[32], name[2 * PATH_MAX];
    int is_watched = find(at, path, folder, name);
    int result = syscall(SYS_unlinkat, at, path, flags);
    if (!result && is_watched) put("unlink", folder, name, "0", "0", 0, 0);
    return result;
}
int unlink(const char *path) { return LOCKED(int, recorded_unlink(AT_FDCWD, path, 0)); }
int rmdir(const char *path) { return LOCKED(int, recorded_unlink(AT_FDCWD, path, AT_REMOVEDIR)); }
int unlinkat(int at, const char *path, int flags) { return LOCKED(int, recorded_unlink(at, path, flags)); }

static int recorded_mkdir(int at, const char *path, mode_t mode) {
    char folder[32], name[2 * PATH_MAX], inode[32];
    struct stat status;
    int is_watched = find(at, path, folder, name);
    int result = syscall(SYS_mkdirat, at, path, mode);
    if (!result && is_watched && !fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW)) {
        snprintf(inode, sizeof inode, "%llu", (unsigned long long)status.st_ino);
        put("mkdir", folder, name, inode, "0", 0, 0);
    }
    return result;
}
int mkdir(const char *path, mode_t mode) { return LOCKED(int, recorded_mkdir(AT_FDCWD, path, mode)); }
int mkdirat(int at, const char *path, mode_t mode) { return LOCKED(int, recorded_mkdir(at, path, mode)); }

static int recorded_symlink(const char *target, int at, const char *path) {
    char folder[32], name[2 * PATH_MAX];
    int is_watched = find(at, path, folder, name);
    int result = syscall(SYS_symlinkat, target, at, path);
    if (!result && is_watched) put("symlink", folder, name, "0", "0", target, strlen(target));
    return result;
}
int symlink(const char *target, const char *path) { return LOCKED(int, recorded_symlink(target, AT_FDCWD, path)); }
int symlinkat(const char *target, int at, const char *path) { return LOCKED(int, recorded_symlink(target, at, path)); }
