/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Processes on a GPU or on an instance of it, in the three versions of the call.
 */
#include "nvml_call.h"

/* Fill `list` (with room for *count) by the processes of this type on the device; the same rules for all versions:
 * *count becomes how many there are, and INSUFFICIENT_SIZE says that they did not fit. */
static nvmlReturn_t list_processes(nvmlDevice_t device, char type, unsigned *count, nvmlProcessInfo_t *list)
{
    struct machine m;
    struct handle at;
    unsigned found = 0;
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS)
        return result;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < m.running.process_count; i++) {
        const struct gpu_process *p = &m.running.processes[i];
        bool here = p->gpu == at.gpu
            && (at.kind == HANDLE_GPU || (p->gpu_instance == at.gpu_instance && p->compute_instance == at.compute_instance));
        /* An MPS client is a compute process too; the second list tells it apart. */
        bool listed = type == 'C' ? p->type == 'C' || p->type == 'M' : p->type == type;
        if (!here || !listed || !process_in_view(p))
            continue;
        if (list && found < *count)
            list[found] = (nvmlProcessInfo_t){(unsigned)p->pid, (unsigned long long)p->memory_mib << 20, (unsigned)p->gpu_instance,
                                              (unsigned)p->compute_instance};
        found++;
    }
    result = found > (list ? *count : 0) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return result;
}

/* The first version's entries are shorter. */
static nvmlReturn_t list_processes_v1(nvmlDevice_t device, char type, unsigned *count, nvmlProcessInfo_v1_t *list)
{
    nvmlProcessInfo_t found[MAX_PROCESSES];
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (list && *count > MAX_PROCESSES)
        *count = MAX_PROCESSES;
    nvmlReturn_t result = list_processes(device, type, count, list ? found : NULL);
    for (unsigned i = 0; list && result == NVML_SUCCESS && i < *count; i++)
        list[i] = (nvmlProcessInfo_v1_t){found[i].pid, found[i].usedGpuMemory};
    return result;
}

#define PROCESS_CALLS(name, type)                                                                                                    \
    NVML_CALL(name##_v3, (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *list), (device, count, list))                     \
    {                                                                                                                                \
        return list_processes(device, type, count, list);                                                                            \
    }                                                                                                                                \
    NVML_CALL(name##_v2, (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *list), (device, count, list))                     \
    {                                                                                                                                \
        return list_processes(device, type, count, list);                                                                            \
    }                                                                                                                                \
    NVML_CALL(name, (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *list), (device, count, list))                       \
    {                                                                                                                                \
        return list_processes_v1(device, type, count, list);                                                                         \
    }

PROCESS_CALLS(nvmlDeviceGetComputeRunningProcesses, 'C')
PROCESS_CALLS(nvmlDeviceGetGraphicsRunningProcesses, 'G')
PROCESS_CALLS(nvmlDeviceGetMPSComputeRunningProcesses, 'M')
