/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The character devices: made where mknod is allowed, left out where it is not. No driver answers behind them; tools
 * look at their numbers.
 */
#define _GNU_SOURCE
#include "model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { MAJOR_NVIDIA = 195, MAJOR_CAPS = 235, MAJOR_UVM = 510 };

static void node(const char *name, int major_number, int minor_number, mode_t mode, bool wanted)
{
    char path[600];
    struct stat present;
    snprintf(path, sizeof path, "%s/%s", path_devices(), name);
    bool there = lstat(path, &present) == 0;
    bool right = there && S_ISCHR(present.st_mode) && present.st_rdev == makedev((unsigned)major_number, (unsigned)minor_number);
    if (there && !S_ISCHR(present.st_mode))
        return; /* somebody mounted a file over it */
    if (there && (!wanted || !right))
        unlink(path);
    if (wanted && !right && mknod(path, S_IFCHR | mode, makedev((unsigned)major_number, (unsigned)minor_number)) == 0)
        (void)!chmod(path, mode);
}

static void sync_driver_nodes(const struct machine *m, bool loaded)
{
    char caps[600];
    node("nvidiactl", MAJOR_NVIDIA, 255, 0666, loaded);
    node("nvidia-modeset", MAJOR_NVIDIA, 254, 0666, m->running.modules & MODULE_MODESET);
    node("nvidia-uvm", MAJOR_UVM, 0, 0666, m->running.modules & MODULE_UVM);
    node("nvidia-uvm-tools", MAJOR_UVM, 1, 0666, m->running.modules & MODULE_UVM);
    if (loaded) {
        snprintf(caps, sizeof caps, "%s/nvidia-caps", path_devices());
        make_directories(caps);
    }
    node("nvidia-caps/nvidia-cap1", MAJOR_CAPS, 1, 0400, loaded);
    node("nvidia-caps/nvidia-cap2", MAJOR_CAPS, 2, 0444, loaded);
}

static void sync_gpu_nodes(const struct machine *m, int gpu, bool loaded)
{
    char name[64];
    snprintf(name, sizeof name, "nvidia%d", gpu_minor(gpu));
    node(name, MAJOR_NVIDIA, gpu_minor(gpu), 0666, loaded && !m->running.gpus[gpu].lost && !m->running.gpus[gpu].other_driver[0]);
    for (int gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
        const struct gpu_instance *instance = &m->running.gpus[gpu].instances[gi];
        snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%d", mig_minor(gpu, gi, WHOLE_GPU));
        node(name, MAJOR_CAPS, mig_minor(gpu, gi, WHOLE_GPU), 0444, loaded && instance->present);
        for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
            snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%d", mig_minor(gpu, gi, ci));
            node(name, MAJOR_CAPS, mig_minor(gpu, gi, ci), 0444, loaded && instance->present && instance->compute[ci].present);
        }
    }
}

void device_nodes_sync(const struct machine *m)
{
    bool loaded = m->running.modules & MODULE_NVIDIA;
    if (geteuid() != 0 || make_directories(path_devices()) != 0)
        return;
    if (m->everything || m->running.modules != m->running_before.modules)
        sync_driver_nodes(m, loaded);
    for (int gpu = 0; gpu < (int)m->hardware.gpu_count; gpu++)
        if (machine_gpu_changed(m, gpu))
            sync_gpu_nodes(m, gpu, loaded);
}
