/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What a process in a container gets to see: the devices whose nodes it can open, as from the kernel's driver. Its /dev
 * and its device cgroup decide, nothing that the process says of itself. On a host everything is there.
 */
#define _GNU_SOURCE
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file marks a container, because `runc exec` and `kubectl exec` start processes without the container's environment. */
bool in_container(void)
{
    return access(path_container(), F_OK) == 0;
}

/* No driver is behind the nodes, so an open that is allowed ends with ENXIO. The device cgroup answers before that: EPERM. */
int device_refusal(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", path_devices(), name);
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0)
        close(file);
    return file >= 0 || errno == ENXIO ? 0 : errno;
}

static bool capability_allowed(int minor_number)
{
    char name[64];
    snprintf(name, sizeof name, "nvidia-caps/nvidia-cap%d", minor_number);
    return device_refusal(name) == 0;
}

bool gpu_accessible(const struct machine *m, int gpu)
{
    char name[64];
    snprintf(name, sizeof name, "nvidia%d", gpu_minor(gpu));
    return !m->running.gpus[gpu].other_driver[0] && (!in_container() || device_refusal(name) == 0);
}

/* A MIG device needs both nodes, its GPU instance's and its compute instance's (MIG user guide, "Device nodes and
 * capabilities"). */
bool mig_accessible(int gpu, int gi, int ci)
{
    return !in_container()
        || (capability_allowed(mig_minor(gpu, gi, WHOLE_GPU)) && (ci == WHOLE_GPU || capability_allowed(mig_minor(gpu, gi, ci))));
}

/* ---- Numbering: the accessible ones, from 0 ---- */

int gpu_count_accessible(const struct machine *m)
{
    int count = 0;
    for (int gpu = 0; gpu < (int)m->hardware.gpu_count; gpu++)
        count += gpu_accessible(m, gpu);
    return count;
}

int gpu_at_index(const struct machine *m, unsigned index)
{
    for (int gpu = 0; gpu < (int)m->hardware.gpu_count; gpu++)
        if (gpu_accessible(m, gpu) && index-- == 0)
            return gpu;
    return -1;
}

int gpu_index(const struct machine *m, int gpu)
{
    int index = 0;
    for (int before = 0; before < gpu; before++)
        index += gpu_accessible(m, before);
    return index;
}

/* A container numbers its MIG devices from 0: what is Device 2 of the host is Device 0 of the pod that got it alone
 * (NVIDIA's "MIG Support in Kubernetes", strategy mixed, the pod with the 1g.5gb device 9/0). In which order several are
 * numbered is not documented: here in the host's. */
const struct mig_slot *mig_slot_at_index(const struct machine *m, int gpu, unsigned index)
{
    const struct mig_slot *slots = m->running.gpus[gpu].slots;
    if (!in_container())
        return index < MAX_MIG_DEVICES && slots[index].used ? &slots[index] : NULL;
    for (int slot = 0; slot < MAX_MIG_DEVICES; slot++)
        if (slots[slot].used && mig_accessible(gpu, slots[slot].gpu_instance, slots[slot].compute_instance) && index-- == 0)
            return &slots[slot];
    return NULL;
}

int mig_index(const struct machine *m, int gpu, int gi, int ci)
{
    for (unsigned index = 0; index < MAX_MIG_DEVICES; index++) {
        const struct mig_slot *slot = mig_slot_at_index(m, gpu, index);
        if (slot && slot->gpu_instance == gi && slot->compute_instance == ci)
            return (int)index;
    }
    return -1;
}

/* ---- Processes ---- */

/* A container has process IDs of its own; the driver shows it the processes that have one there. */
bool process_in_view(const struct gpu_process *p)
{
    return !in_container() || (p->start_time != 0 && process_start_time(p->pid) == p->start_time);
}

/* The driver asks for CAP_SYS_ADMIN (NV_IS_SUSER in the open kernel modules); root of an unprivileged container lacks it. */
bool may_administer(void)
{
    enum { SYS_ADMIN = 21 };
    char line[256];
    unsigned long long effective = 0;
    if (geteuid() != 0 || !in_container())
        return geteuid() == 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "CapEff:", 7) == 0)
            effective = strtoull(line + 7, NULL, 16);
    if (status)
        fclose(status);
    return effective >> SYS_ADMIN & 1;
}
