"""A system whose disk refuses what it took, and the disk as it is found when the power goes.

A library of our own stands before `pwrite` and `fsync` of a process.  It keeps in a folder what is
on the disk of the store's files: what was written comes there with the sync behind it.  While the
file `failures` in that folder has digits left, a sync of the log takes one and fails as Linux does:
what was to be synced is taken for written from then on, and is not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 64
#define PARTS 100000

struct file { char path[512]; long count; struct { off_t from, to; } parts[PARTS]; };
static struct file *files[FILES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct file *find(int descriptor)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    const char *suffix;
    if (length < 0) return NULL;
    path[length] = 0;
    suffix = strstr(path, ".db");
    if (!suffix || (strcmp(suffix, ".db") && strcmp(suffix, ".db-wal"))) return NULL;
    if (!strncmp(path, getenv("LOST_PAGES"), strlen(getenv("LOST_PAGES")))) return NULL;
    for (int i = 0; i < FILES; i++) {
        if (!files[i]) { files[i] = calloc(1, sizeof **files); strcpy(files[i]->path, path); }
        if (!strcmp(files[i]->path, path)) return files[i];
    }
    abort();
}

static int fails(struct file *file)
{
    char name[600];
    struct stat found;
    if (!strstr(file->path, "-wal")) return 0;
    snprintf(name, sizeof name, "%s/failures", getenv("LOST_PAGES"));
    return !stat(name, &found) && found.st_size && !truncate(name, found.st_size - 1);
}

static void keep(struct file *file, int descriptor)
{
    char name[600], *piece;
    struct stat found;
    int image, source = open(file->path, O_RDONLY); /* stays open: see SQLite's locks */
    snprintf(name, sizeof name, "%s%s", getenv("LOST_PAGES"), strrchr(file->path, '/'));
    image = open(name, O_RDWR | O_CREAT, 0600);
    if (fstat(descriptor, &found) || ftruncate(image, found.st_size)) abort();
    for (long i = 0; i < file->count; i++) {
        off_t from = file->parts[i].from;
        size_t length = file->parts[i].to - from;
        piece = malloc(length);
        ssize_t got = pread(source, piece, length, from);
        ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
        if (got > 0 && real(image, piece, got, from) != got) abort();
        free(piece);
    }
    close(image);
}

static int synced(int descriptor, const char *how)
{
    int (*real)(int) = dlsym(RTLD_NEXT, how);
    int result = 0;
    pthread_mutex_lock(&mutex);
    struct file *file = find(descriptor);
    if (file && fails(file)) {
        file->count = 0;
        result = -1;
    } else if (!(result = real(descriptor)) && file) {
        keep(file, descriptor);
        file->count = 0;
    }
    pthread_mutex_unlock(&mutex);
    if (result) errno = EIO;
    return result;
}

static ssize_t written(int descriptor, const void *bytes, size_t length, off_t place)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    ssize_t result = real(descriptor, bytes, length, place);
    pthread_mutex_lock(&mutex);
    int error = errno;
    struct file *file = result > 0 ? find(descriptor) : NULL;
    if (file) {
        if (file->count == PARTS) abort();
        file->parts[file->count].from = place;
        file->parts[file->count++].to = place + result;
    }
    errno = error;
    pthread_mutex_unlock(&mutex);
    return result;
}

int fsync(int descriptor) { return synced(descriptor, "fsync"); }
int fdatasync(int descriptor) { return synced(descriptor, "fdatasync"); }
ssize_t pwrite64(int d, const void *b, size_t n, off_t p) { return written(d, b, n, p); }
ssize_t pwrite(int d, const void *b, size_t n, off_t p) { return written(d, b, n, p); }
"""


class LosingDisk:
    """The disk below the stores of some processes."""

    def __init__(self, folder: Path) -> None:
        """Make the library, and an empty disk.

        Args:
            folder: Not that of the stores.
        """
        compiler = shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler: install gcc")
        self.folder = folder
        folder.mkdir()
        source, self._library = folder / "lost.c", folder / "lost.so"
        source.write_text(SOURCE, "ascii")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl", "-lpthread"],
            check=True,
        )
        self.fail(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process must be given that is to have this disk."""
        return {**os.environ, "LD_PRELOAD": str(self._library), "LOST_PAGES": str(self.folder)}

    def fail(self, count: int) -> None:
        """Let the next syncs of logs fail, so many."""
        (self.folder / "failures").write_text("x" * count, "ascii")

    def failures_left(self) -> int:
        """Return how many are still to come."""
        return (self.folder / "failures").stat().st_size

    def found(self, name: str, folder: Path) -> Path:
        """Return a store as the power leaves it, in a folder of its own."""
        folder.mkdir()
        for file in (name, f"{name}-wal"):
            if (self.folder / file).exists():
                shutil.copy(self.folder / file, folder / file)
        return folder / name
