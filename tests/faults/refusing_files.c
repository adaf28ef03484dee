/* A filesystem that lacks what network, FUSE and cluster filesystems may lack, loaded before libc by LD_PRELOAD: below
 * the folder $REFUSE_MMAP no file can be mapped as shared, below $REFUSE_LOCKS no file can be locked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int lies_below(const char *variable, int file) {
    const char *folder = getenv(variable);
    char link[64], path[4096];
    if (folder == NULL || file < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t from) {
    void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
    if ((flags & MAP_TYPE) != MAP_PRIVATE && lies_below("REFUSE_MMAP", file)) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    return real(at, size, protection, flags, file, from);
}

void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t from) {
    return mmap(at, size, protection, flags, file, from);
}

static int control(const char *name, int file, int command, void *argument) {
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, name);
    if ((command == F_SETLK || command == F_SETLKW || command == F_GETLK) && lies_below("REFUSE_LOCKS", file)) {
        errno = ENOLCK;
        return -1;
    }
    return real(file, command, argument);
}

int fcntl(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return control("fcntl", file, command, argument);
}

int fcntl64(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return control("fcntl64", file, command, argument);
}
