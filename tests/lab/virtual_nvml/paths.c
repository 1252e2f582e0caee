/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Where the files are, and writing them.
 */
#define _GNU_SOURCE
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The variable's value; below VIRTUAL_GPU_ROOT (one folder for everything, for tests without root); or the default. */
static const char *place(char *buffer, size_t size, const char *variable, const char *below_root, const char *fallback)
{
    const char *value = secure_getenv(variable);
    if (value && *value)
        return value;
    const char *root = secure_getenv("VIRTUAL_GPU_ROOT");
    if (!root || !*root)
        return fallback;
    snprintf(buffer, size, "%s/%s", root, below_root);
    return buffer;
}

#define PLACE(function, variable, below_root, fallback)                             \
    const char *function(void)                                                      \
    {                                                                               \
        static __thread char buffer[512];                                           \
        return place(buffer, sizeof buffer, variable, below_root, fallback);        \
    }

PLACE(path_state, "VIRTUAL_GPU_STATE", "run/state", "/run/virtual-gpu/state")
PLACE(path_inforom, "VIRTUAL_GPU_INFOROM", "inforom", "/var/lib/virtual-gpu/inforom")
PLACE(path_tree, "VIRTUAL_GPU_TREE", "tree", "/run/virtual-gpu/tree")
PLACE(path_devices, "VIRTUAL_GPU_DEV", "dev", "/dev")
PLACE(path_sysroot, "VIRTUAL_GPU_SYSROOT", "tree", "/")
PLACE(path_container, "VIRTUAL_GPU_CONTAINER", "container", "/.virtual-gpu-container")

int make_directories(const char *path)
{
    char part[600];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1; *slash; slash++) {
        if (*slash != '/')
            continue;
        *slash = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return mkdir(part, 0755) == 0 || errno == EEXIST ? 0 : -1;
}

int make_parent(const char *path)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return 0;
    *slash = '\0';
    return make_directories(folder);
}

int read_small_file(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, size - 1);
    close(file);
    if (length < 0)
        return -1;
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return 0;
}

int write_in_place(const char *path, const char *text)
{
    size_t length = strlen(text);
    char *present = malloc(length + 1);
    if (!present)
        return -1;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) {
        free(present);
        return -1;
    }
    ssize_t had = pread(file, present, length + 1, 0);
    int failed = 0;
    if (had != (ssize_t)length || memcmp(present, text, length) != 0)
        failed = pwrite(file, text, length, 0) != (ssize_t)length || ftruncate(file, (off_t)length) != 0;
    close(file);
    free(present);
    return failed ? -1 : 0;
}
