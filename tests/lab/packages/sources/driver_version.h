/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The version of the loaded driver, which NVIDIA's daemons compare with their own.
 */
#ifndef LAB_DRIVER_VERSION_H
#define LAB_DRIVER_VERSION_H

#include <regex.h>

#include "daemon.h"

/* The text of a small file, or an empty one. */
static void read_text(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
    text[length > 0 ? length : 0] = 0;
    if (file >= 0)
        close(file);
}

/* Empty where no driver is loaded. */
static void driver_version(char *version, size_t size)
{
    char text[512];
    regex_t pattern;
    regmatch_t match[2];
    version[0] = 0;
    read_text("/proc/driver/nvidia/version", text, sizeof text);
    regcomp(&pattern, "Kernel Module[a-z0-9_ ]*  *([0-9.]+)", REG_EXTENDED);
    if (regexec(&pattern, text, 2, match, 0) == 0)
        snprintf(version, size, "%.*s", (int)(match[1].rm_eo - match[1].rm_so), text + match[1].rm_so);
}

#endif
