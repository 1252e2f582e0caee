/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Event sets. Events come from `virtual-gpu xid`; whoever registered before sees them.
 */
#include "nvml_call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct event_set { unsigned long long types[MAX_GPUS]; uint64_t seen; };

NVML_CALL(nvmlEventSetCreate, (nvmlEventSet_t *set), (set))
{
    struct machine m;
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    if (!set || machine_read(&m) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *set = calloc(1, sizeof **set);
    if (!*set)
        return NVML_ERROR_MEMORY;
    (*set)->seen = m.running.event_count;
    return NVML_SUCCESS;
}

NVML_CALL(nvmlEventSetFree, (nvmlEventSet_t set), (set))
{
    free(set);
    return set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_CALL(nvmlDeviceRegisterEvents, (nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set), (device, types, set))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!set || (types & ~(unsigned long long)NVML_EVENT_SUPPORTED))
        return NVML_ERROR_INVALID_ARGUMENT;
    set->types[gpu] |= types;
    return NVML_SUCCESS;
}

static nvmlReturn_t next_event(nvmlEventSet_t set, nvmlEventData_t *data)
{
    struct machine m;
    if (machine_read(&m) != 0)
        return NVML_ERROR_UNKNOWN;
    if (set->seen > m.running.event_count)
        set->seen = 0; /* rebooted */
    while (set->seen < m.running.event_count) {
        const struct gpu_event *event = &m.running.events[set->seen++ % MAX_EVENTS];
        if (!(set->types[event->gpu] & event->type))
            continue;
        *data = (nvmlEventData_t){gpu_handle(event->gpu), event->type, event->data, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
        return NVML_SUCCESS;
    }
    return NVML_ERROR_TIMEOUT;
}

NVML_CALL(nvmlEventSetWait_v2, (nvmlEventSet_t set, nvmlEventData_t *data, unsigned milliseconds), (set, data, milliseconds))
{
    enum { STEP = 20 };
    nvmlReturn_t result = require_init();
    if (result != NVML_SUCCESS)
        return result;
    if (!set || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned waited = 0; (result = next_event(set, data)) == NVML_ERROR_TIMEOUT && waited < milliseconds; waited += STEP)
        nanosleep(&(struct timespec){0, STEP * 1000000}, NULL);
    return result;
}
NVML_ALIAS(nvmlEventSetWait, nvmlEventSetWait_v2, (nvmlEventSet_t set, nvmlEventData_t *data, unsigned milliseconds), (set, data, milliseconds))
