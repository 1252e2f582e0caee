/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What can be set of a GPU: power limit, clocks, ECC. All but ECC is gone after a reset, a reload or a reboot (gpu_reset_state).
 * Which limits and clocks a board takes is assumed, and so is that it runs at the highest clock that it may: only the power limit that it
 * is delivered with comes from a source (lab_boards.py).
 */
#include "nvml_call.h"

#include <stdio.h>

enum { GRAPHICS = 0, SM = 1, MEMORY = 2, VIDEO = 3, NO_CLOCK = 4, IDLE_VIDEO = 765, MAX_VIDEO = 1545, MAX_GRAPHICS = 1980, MIN_GRAPHICS = 345, GRAPHICS_STEP = 15 };
static unsigned memory_clock(const struct board *b, int which) { return (unsigned)b->memory_clocks[which]; }
static unsigned default_limit(const struct board *b) { return (unsigned)b->power_watt * 1000; }
static unsigned least_limit(const struct board *b) { return (unsigned)b->least_watt * 1000; }
static unsigned limit_of(const struct machine *m, int gpu)
{
    unsigned set = m->running.gpus[gpu].power_limit;
    return set ? set : default_limit(gpu_board(m, gpu));
}

/* GeForce boards of the lab let nothing be set: somewhere has to be a board that does not. */
static bool settable(const struct machine *m, int gpu) { return gpu_board(m, gpu)->brand != 5; }

#define GETTER(name, type, check, expression)                                                \
    NVML_CALL(name, (nvmlDevice_t device, type *value), (device, value))                     \
    {                                                                                        \
        struct machine m;                                                                    \
        int gpu;                                                                             \
        nvmlReturn_t result = open_gpu(&m, device, &gpu);                                    \
        if (result != NVML_SUCCESS || !value)                                                \
            return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;            \
        if (!(check))                                                                        \
            return NVML_ERROR_NOT_SUPPORTED;                                                 \
        *value = (type)(expression);                                                         \
        return NVML_SUCCESS;                                                                 \
    }

GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, true, limit_of(&m, gpu))
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, true, default_limit(gpu_board(&m, gpu)))
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, true, limit_of(&m, gpu))

NVML_CALL(nvmlDeviceGetPowerManagementLimitConstraints, (nvmlDevice_t device, unsigned *least, unsigned *most), (device, least, most))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS || !least || !most)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    if (!settable(&m, gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    *least = least_limit(gpu_board(&m, gpu));
    *most = default_limit(gpu_board(&m, gpu));
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceSetPowerManagementLimit, (nvmlDevice_t device, unsigned milliwatts), (device, milliwatts))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!settable(&m, gpu))
        return finish_change(&m, NVML_ERROR_NOT_SUPPORTED);
    if (milliwatts < least_limit(gpu_board(&m, gpu)) || milliwatts > default_limit(gpu_board(&m, gpu)))
        return finish_change(&m, NVML_ERROR_INVALID_ARGUMENT);
    m.running.gpus[gpu].power_limit = milliwatts;
    return finish_change(&m, NVML_SUCCESS);
}

/* ---- Clocks ---- */

static bool is_memory_clock(const struct board *b, unsigned clock)
{
    return clock == memory_clock(b, 0) || clock == memory_clock(b, 1);
}

static nvmlReturn_t clock_of(nvmlDevice_t device, int type, const unsigned *value, struct machine *m, int *gpu)
{
    nvmlReturn_t result = open_gpu(m, device, gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!value || type < GRAPHICS || type > VIDEO)
        return NVML_ERROR_INVALID_ARGUMENT;
    return settable(m, *gpu) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

NVML_CALL(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t device, int type, unsigned *clock), (device, type, clock))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = clock_of(device, type, clock, &m, &gpu);
    if (result == NVML_SUCCESS)
        *clock = type == VIDEO ? MAX_VIDEO : type == MEMORY ? memory_clock(gpu_board(&m, gpu), 0) : MAX_GRAPHICS;
    return result;
}

NVML_CALL(nvmlDeviceGetClockInfo, (nvmlDevice_t device, int type, unsigned *clock), (device, type, clock))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = clock_of(device, type, clock, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result == NVML_ERROR_INVALID_ARGUMENT && type == NO_CLOCK ? NVML_ERROR_NOT_SUPPORTED : result;
    if (type == VIDEO) {
        *clock = IDLE_VIDEO;
        return NVML_SUCCESS;
    }
    const struct running_gpu *now = &m.running.gpus[gpu];
    unsigned locked = type == MEMORY ? now->memory_lock[1] : now->graphics_lock[1];
    unsigned wanted = type == MEMORY ? now->application[0] : now->application[1];
    *clock = locked ? locked : wanted ? wanted : type == MEMORY ? memory_clock(gpu_board(&m, gpu), 0) : MAX_GRAPHICS;
    return NVML_SUCCESS;
}

static nvmlReturn_t application_clock(nvmlDevice_t device, int type, unsigned *clock, bool own)
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = clock_of(device, type, clock, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (type == VIDEO)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned set = m.running.gpus[gpu].application[type == MEMORY ? 0 : 1];
    *clock = set && !own ? set : type == MEMORY ? memory_clock(gpu_board(&m, gpu), 0) : MAX_GRAPHICS;
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetApplicationsClock, (nvmlDevice_t device, int type, unsigned *clock), (device, type, clock))
{
    return application_clock(device, type, clock, false);
}

NVML_CALL(nvmlDeviceGetDefaultApplicationsClock, (nvmlDevice_t device, int type, unsigned *clock), (device, type, clock))
{
    return application_clock(device, type, clock, true);
}

NVML_CALL(nvmlDeviceGetSupportedMemoryClocks, (nvmlDevice_t device, unsigned *count, unsigned *clocks), (device, count, clocks))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = clock_of(device, MEMORY, count, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    bool fits = clocks && *count >= 2;
    *count = 2;
    if (!fits)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    clocks[0] = memory_clock(gpu_board(&m, gpu), 0), clocks[1] = memory_clock(gpu_board(&m, gpu), 1);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetSupportedGraphicsClocks, (nvmlDevice_t device, unsigned memory, unsigned *count, unsigned *clocks),
          (device, memory, count, clocks))
{
    enum { COUNT = (MAX_GRAPHICS - MIN_GRAPHICS) / GRAPHICS_STEP + 1 };
    struct machine m;
    int gpu;
    nvmlReturn_t result = clock_of(device, GRAPHICS, count, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!is_memory_clock(gpu_board(&m, gpu), memory))
        return NVML_ERROR_NOT_FOUND;
    bool fits = clocks && *count >= COUNT;
    *count = COUNT;
    if (!fits)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (int i = 0; i < COUNT; i++)
        clocks[i] = MAX_GRAPHICS - (unsigned)i * GRAPHICS_STEP;
    return NVML_SUCCESS;
}

static nvmlReturn_t change_clocks(nvmlDevice_t device, struct machine *m, int *gpu)
{
    nvmlReturn_t result = change_gpu(m, device, gpu);
    if (result == NVML_SUCCESS && !settable(m, *gpu))
        return finish_change(m, NVML_ERROR_NOT_SUPPORTED);
    return result;
}

NVML_CALL(nvmlDeviceSetApplicationsClocks, (nvmlDevice_t device, unsigned memory, unsigned graphics), (device, memory, graphics))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_clocks(device, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!is_memory_clock(gpu_board(&m, gpu), memory) || graphics > MAX_GRAPHICS || graphics < MIN_GRAPHICS || graphics % GRAPHICS_STEP)
        return finish_change(&m, NVML_ERROR_INVALID_ARGUMENT);
    m.running.gpus[gpu].application[0] = memory;
    m.running.gpus[gpu].application[1] = graphics;
    return finish_change(&m, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceResetApplicationsClocks, (nvmlDevice_t device), (device))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_clocks(device, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    m.running.gpus[gpu].application[0] = m.running.gpus[gpu].application[1] = 0;
    return finish_change(&m, NVML_SUCCESS);
}

/* With least and most 0 the lock goes. */
static nvmlReturn_t lock(nvmlDevice_t device, bool memory, unsigned least, unsigned most)
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_clocks(device, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (least > most || most > (memory ? memory_clock(gpu_board(&m, gpu), 0) : (unsigned)MAX_GRAPHICS))
        return finish_change(&m, NVML_ERROR_INVALID_ARGUMENT);
    unsigned *range = memory ? m.running.gpus[gpu].memory_lock : m.running.gpus[gpu].graphics_lock;
    range[0] = least, range[1] = most;
    return finish_change(&m, NVML_SUCCESS);
}

NVML_CALL(nvmlDeviceSetGpuLockedClocks, (nvmlDevice_t device, unsigned least, unsigned most), (device, least, most))
{
    return lock(device, false, least, most);
}
NVML_CALL(nvmlDeviceResetGpuLockedClocks, (nvmlDevice_t device), (device)) { return lock(device, false, 0, 0); }
NVML_CALL(nvmlDeviceSetMemoryLockedClocks, (nvmlDevice_t device, unsigned least, unsigned most), (device, least, most))
{
    return lock(device, true, least, most);
}
NVML_CALL(nvmlDeviceResetMemoryLockedClocks, (nvmlDevice_t device), (device)) { return lock(device, true, 0, 0); }

/* ---- ECC: in the InfoROM, in effect after the next reset or reboot ---- */

NVML_CALL(nvmlDeviceSetEccMode, (nvmlDevice_t device, int mode), (device, mode))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!settable(&m, gpu))
        return finish_change(&m, NVML_ERROR_NOT_SUPPORTED);
    if (mode != 0 && mode != 1)
        return finish_change(&m, NVML_ERROR_INVALID_ARGUMENT);
    m.hardware.gpus[gpu].ecc_pending = mode == 1;
    return finish_change(&m, NVML_SUCCESS);
}
