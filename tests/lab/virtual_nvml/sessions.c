/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Who has NVML open. A session is a shared flock on one file, which the kernel takes back when the process ends, however
 * it ends. It also holds /dev/nvidiactl and the GPUs' devices as paths (no driver answers their open), so that fuser and
 * /proc/<pid>/fd show the holder as they do on a real host.
 */
#define _GNU_SOURCE
#include "model.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { ANY_CLIENT, PERSISTENCE_DAEMON };

static void sessions_path(char *path, size_t size, int kind)
{
    snprintf(path, size, "%s.%s", path_state(), kind == PERSISTENCE_DAEMON ? "persistence" : "sessions");
}

/* The persistence daemon keeps GPUs initialised and lets go of one that is reset: it keeps the driver loaded, no more. */
static int kind_of_this_process(void)
{
    char name[32] = "";
    FILE *comm = fopen("/proc/self/comm", "r");
    if (comm) {
        if (!fgets(name, sizeof name, comm))
            name[0] = 0;
        fclose(comm);
    }
    return strncmp(name, "nvidia-persiste", 15) == 0 ? PERSISTENCE_DAEMON : ANY_CLIENT;
}

int session_open(void)
{
    char path[600];
    sessions_path(path, sizeof path, kind_of_this_process());
    int file = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0)
        flock(file, LOCK_SH);
    return file;
}

int session_devices(int nodes[MAX_GPUS + 1])
{
    char path[600];
    struct machine m;
    int count = 0;
    snprintf(path, sizeof path, "%s/nvidiactl", path_devices());
    nodes[count++] = open(path, O_PATH | O_CLOEXEC);
    uint32_t gpus = machine_read(&m) == 0 ? m.hardware.gpu_count : 0;
    for (uint32_t gpu = 0; gpu < gpus && gpu < MAX_GPUS; gpu++) {
        snprintf(path, sizeof path, "%s/nvidia%d", path_devices(), gpu_minor((int)gpu));
        nodes[count++] = open(path, O_PATH | O_CLOEXEC);
    }
    return count;
}

static bool is_held(int kind, int except)
{
    char path[600];
    sessions_path(path, sizeof path, kind);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    if (except >= 0)
        flock(except, LOCK_UN);
    bool busy = flock(file, LOCK_EX | LOCK_NB) != 0;
    close(file);
    if (except >= 0)
        flock(except, LOCK_SH);
    return busy;
}

bool sessions_open(int except)
{
    return is_held(ANY_CLIENT, except);
}

bool persistence_daemon_open(void)
{
    return is_held(PERSISTENCE_DAEMON, -1);
}
