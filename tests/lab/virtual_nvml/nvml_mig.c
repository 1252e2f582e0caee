/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * NVML's MIG calls on top of mig.c.
 */
#include "nvml_call.h"

#include <stdio.h>
#include <string.h>

NVML_CALL(nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned *current, unsigned *pending), (device, current, pending))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (gpu_board(&m, gpu)->slices == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = m.running.gpus[gpu].mig_current;
    *pending = m.running.gpus[gpu].mig_pending;
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceSetMigMode, (nvmlDevice_t device, unsigned mode, nvmlReturn_t *status), (device, mode, status))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (mode > NVML_DEVICE_MIG_ENABLE || !status)
        return finish_change(&m, NVML_ERROR_INVALID_ARGUMENT);
    return finish_change(&m, mig_set_mode(&m, gpu, mode == NVML_DEVICE_MIG_ENABLE, others_have_nvml_open(), status));
}

/* Drivers before 550 tell nothing of profiles while MIG is off. */
static bool profiles_are_known(const struct machine *m, int gpu)
{
    return m->running.gpus[gpu].mig_current || driver_branch(library_version()) >= 550;
}

/* The numbers that a driver knows at all: 580 has 17. */
static unsigned profile_count(void)
{
    return driver_branch(library_version()) > 580 ? NVML_GI_PROFILE_COUNT : NVML_GI_PROFILE_COUNT - 1;
}

/* ---- GPU instance profiles ---- */

static nvmlReturn_t profile_of(nvmlDevice_t device, unsigned number, bool by_id, const void *answer, const struct profile **p)
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!answer || (!by_id && number >= profile_count()))
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct board *b = gpu_board(&m, gpu);
    *p = by_id ? mig_profile_by_id(b, number) : mig_profile_by_enum(b, number);
    if (by_id && !*p && b->slices != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return *p && profiles_are_known(&m, gpu) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

NVML_CALL(nvmlDeviceGetGpuInstanceProfileInfo, (nvmlDevice_t device, unsigned profile, nvmlGpuInstanceProfileInfo_t *info),
          (device, profile, info))
{
    const struct profile *p;
    nvmlReturn_t result = profile_of(device, profile, false, info, &p);
    if (result == NVML_SUCCESS)
        *info = (nvmlGpuInstanceProfileInfo_t){
            (unsigned)p->id, 0, (unsigned)p->slices, (unsigned)p->reported_count, (unsigned)p->multiprocessors, (unsigned)p->copy_engines,
            (unsigned)p->decoders, (unsigned)p->encoders, (unsigned)p->jpeg, (unsigned)p->ofa, (unsigned long long)p->memory_mib};
    return result;
}

static nvmlReturn_t fill_profile(const struct profile *p, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    if (info->version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){
            0, (unsigned)p->id, 0, (unsigned)p->slices, (unsigned)p->reported_count, (unsigned)p->multiprocessors,
            (unsigned)p->copy_engines, (unsigned)p->decoders, (unsigned)p->encoders, (unsigned)p->jpeg, (unsigned)p->ofa,
            (unsigned long long)p->memory_mib, ""};
        snprintf(info->name, sizeof info->name, "MIG %s", p->name);
        return NVML_SUCCESS;
    }
    nvmlGpuInstanceProfileInfo_v3_t *newer = (nvmlGpuInstanceProfileInfo_v3_t *)info;
    if (newer->version != NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *newer = (nvmlGpuInstanceProfileInfo_v3_t){
        newer->version, (unsigned)p->id, (unsigned)p->slices, (unsigned)p->reported_count, (unsigned)p->multiprocessors,
        (unsigned)p->copy_engines, (unsigned)p->decoders, (unsigned)p->encoders, (unsigned)p->jpeg, (unsigned)p->ofa,
        (unsigned long long)p->memory_mib, "", 0};
    snprintf(newer->name, sizeof newer->name, "MIG %s", p->name);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetGpuInstanceProfileInfoV, (nvmlDevice_t device, unsigned profile, nvmlGpuInstanceProfileInfo_v2_t *info),
          (device, profile, info))
{
    const struct profile *p;
    nvmlReturn_t result = profile_of(device, profile, false, info, &p);
    return result == NVML_SUCCESS ? fill_profile(p, info) : result;
}

NVML_CALL(nvmlDeviceGetGpuInstanceProfileInfoByIdV, (nvmlDevice_t device, unsigned id, nvmlGpuInstanceProfileInfo_v2_t *info),
          (device, id, info))
{
    const struct profile *p;
    nvmlReturn_t result = profile_of(device, id, true, info, &p);
    return result == NVML_SUCCESS ? fill_profile(p, info) : result;
}

NVML_CALL(nvmlDeviceGetGpuInstancePossiblePlacements_v2,
          (nvmlDevice_t device, unsigned id, nvmlGpuInstancePlacement_t *placements, unsigned *count), (device, id, placements, count))
{
    const struct profile *p;
    nvmlReturn_t result = profile_of(device, id, true, count, &p);
    if (result != NVML_SUCCESS)
        return result;
    if (placements && *count < (unsigned)p->start_count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    *count = (unsigned)p->start_count;
    for (int i = 0; placements && i < p->start_count; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){p->starts[i], (unsigned)p->size};
    return NVML_SUCCESS;
}
/* The first version trusts the caller's array. */
NVML_CALL(nvmlDeviceGetGpuInstancePossiblePlacements,
          (nvmlDevice_t device, unsigned id, nvmlGpuInstancePlacement_t *placements, unsigned *count), (device, id, placements, count))
{
    unsigned enough = 64;
    nvmlReturn_t result = model_nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count ? &enough : NULL);
    if (result == NVML_SUCCESS)
        *count = enough;
    return result;
}

/* The profile of this id on a GPU that can have instances; the driver also tells of it while MIG is off. */
static nvmlReturn_t known_profile(const struct machine *m, int gpu, unsigned id, const struct profile **p)
{
    const struct board *b = gpu_board(m, gpu);
    if (b->slices == 0 || !profiles_are_known(m, gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    *p = mig_profile_by_id(b, id);
    return *p ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* The GPU behind the handle, with MIG on, and the profile of this id on it. */
static nvmlReturn_t mig_gpu(const struct machine *m, int gpu, unsigned id, const struct profile **p)
{
    const struct board *b = gpu_board(m, gpu);
    if (b->slices == 0 || !m->running.gpus[gpu].mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    *p = mig_profile_by_id(b, id);
    return *p ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_CALL(nvmlDeviceGetGpuInstanceRemainingCapacity, (nvmlDevice_t device, unsigned id, unsigned *count), (device, id, count))
{
    struct machine m;
    const struct profile *p;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result == NVML_SUCCESS)
        result = known_profile(&m, gpu, id, &p);
    if (result == NVML_SUCCESS)
        *count = (unsigned)mig_gpu_instance_capacity(&m, gpu, p);
    return result;
}

/* ---- GPU instances ---- */

static nvmlReturn_t create_instance(nvmlDevice_t device, unsigned id, const nvmlGpuInstancePlacement_t *at, nvmlGpuInstance_t *instance)
{
    struct machine m;
    const struct profile *p;
    int gpu, gi = 0;
    nvmlReturn_t result = change_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    result = instance ? mig_gpu(&m, gpu, id, &p) : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        result = mig_create_gpu_instance(&m, gpu, p, at, &gi);
    if (result == NVML_SUCCESS)
        *instance = gpu_instance_handle(gpu, gi);
    return finish_change(&m, result);
}

NVML_CALL(nvmlDeviceCreateGpuInstance, (nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance), (device, id, instance))
{
    return create_instance(device, id, NULL, instance);
}

NVML_CALL(nvmlDeviceCreateGpuInstanceWithPlacement,
          (nvmlDevice_t device, unsigned id, const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *instance),
          (device, id, placement, instance))
{
    return placement ? create_instance(device, id, placement, instance) : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_CALL(nvmlGpuInstanceDestroy, (nvmlGpuInstance_t instance), (instance))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = change_gpu_instance(&m, instance, &at);
    return result == NVML_SUCCESS ? finish_change(&m, mig_destroy_gpu_instance(&m, at.gpu, at.gpu_instance)) : result;
}

NVML_CALL(nvmlDeviceGetGpuInstances, (nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances, unsigned *count),
          (device, id, instances, count))
{
    struct machine m;
    const struct profile *p;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result == NVML_SUCCESS)
        result = count ? known_profile(&m, gpu, id, &p) : NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    *count = 0;
    for (int gi = 0; gi < MAX_GPU_INSTANCES; gi++)
        if (m.running.gpus[gpu].instances[gi].present && mig_row(&m, gpu, gi) == p && mig_accessible(gpu, gi, WHOLE_GPU))
            instances[(*count)++] = gpu_instance_handle(gpu, gi);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetGpuInstanceById, (nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance), (device, id, instance))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu_board(&m, gpu)->slices == 0 || !profiles_are_known(&m, gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    if (id >= MAX_GPU_INSTANCES || !m.running.gpus[gpu].instances[id].present || !mig_accessible(gpu, (int)id, WHOLE_GPU))
        return NVML_ERROR_NOT_FOUND;
    *instance = gpu_instance_handle(gpu, (int)id);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlGpuInstanceGetInfo, (nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info), (instance, info))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_gpu_instance(&m, instance, &at);
    if (result != NVML_SUCCESS || !info)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    const struct profile *p = mig_row(&m, at.gpu, at.gpu_instance);
    const struct gpu_instance *gi = &m.running.gpus[at.gpu].instances[at.gpu_instance];
    *info = (nvmlGpuInstanceInfo_t){gpu_handle(at.gpu), (unsigned)at.gpu_instance, (unsigned)p->id, {gi->start, (unsigned)p->size}};
    return NVML_SUCCESS;
}

/* ---- Compute instance profiles ---- */

static nvmlReturn_t compute_profile_of(nvmlGpuInstance_t instance, unsigned number, unsigned engine, const void *answer,
                                       struct machine *m, struct handle *at, struct compute_profile *found)
{
    nvmlReturn_t result = open_gpu_instance(m, instance, at);
    if (result != NVML_SUCCESS)
        return result;
    if (!answer || number >= NVML_CI_PROFILE_COUNT || engine != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return mig_compute_profile(gpu_board(m, at->gpu), mig_row(m, at->gpu, at->gpu_instance), number, found) ? NVML_SUCCESS
                                                                                                         : NVML_ERROR_NOT_SUPPORTED;
}

/* The fields that all versions of the answer share, in their order. */
#define COMPUTE_FIELDS(c, p)                                                                                                     \
    (unsigned)(c).nvml_enum, (unsigned)(c).slices, (unsigned)(c).count, (unsigned)(c).multiprocessors, (unsigned)(p)->copy_engines, \
        (unsigned)(p)->decoders, (unsigned)(p)->encoders, (unsigned)(p)->jpeg, (unsigned)(p)->ofa

NVML_CALL(nvmlGpuInstanceGetComputeInstanceProfileInfo,
          (nvmlGpuInstance_t instance, unsigned profile, unsigned engine, nvmlComputeInstanceProfileInfo_t *info),
          (instance, profile, engine, info))
{
    struct machine m;
    struct handle at;
    struct compute_profile c;
    nvmlReturn_t result = compute_profile_of(instance, profile, engine, info, &m, &at, &c);
    if (result == NVML_SUCCESS)
        *info = (nvmlComputeInstanceProfileInfo_t){COMPUTE_FIELDS(c, mig_row(&m, at.gpu, at.gpu_instance))};
    return result;
}

NVML_CALL(nvmlGpuInstanceGetComputeInstanceProfileInfoV,
          (nvmlGpuInstance_t instance, unsigned profile, unsigned engine, nvmlComputeInstanceProfileInfo_v2_t *info),
          (instance, profile, engine, info))
{
    struct machine m;
    struct handle at;
    struct compute_profile c;
    char name[80];
    nvmlReturn_t result = compute_profile_of(instance, profile, engine, info, &m, &at, &c);
    if (result != NVML_SUCCESS)
        return result;
    const struct profile *p = mig_row(&m, at.gpu, at.gpu_instance);
    mig_compute_name(gpu_board(&m, at.gpu), p, profile, name, sizeof name);
    if (info->version == NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)) {
        *info = (nvmlComputeInstanceProfileInfo_v2_t){info->version, COMPUTE_FIELDS(c, p), ""};
        snprintf(info->name, sizeof info->name, "MIG %s", name);
        return NVML_SUCCESS;
    }
    nvmlComputeInstanceProfileInfo_v3_t *newer = (nvmlComputeInstanceProfileInfo_v3_t *)info;
    if (newer->version != NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v3_t, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *newer = (nvmlComputeInstanceProfileInfo_v3_t){newer->version, COMPUTE_FIELDS(c, p), "", 0};
    snprintf(newer->name, sizeof newer->name, "MIG %s", name);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlGpuInstanceGetComputeInstancePossiblePlacements,
          (nvmlGpuInstance_t instance, unsigned id, nvmlComputeInstancePlacement_t *placements, unsigned *count),
          (instance, id, placements, count))
{
    struct machine m;
    struct handle at;
    struct compute_profile c;
    nvmlReturn_t result = compute_profile_of(instance, id, 0, count, &m, &at, &c);
    if (result != NVML_SUCCESS)
        return result;
    if (placements && *count < (unsigned)c.start_count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    *count = (unsigned)c.start_count;
    for (int i = 0; placements && i < c.start_count; i++)
        placements[i] = (nvmlComputeInstancePlacement_t){c.starts[i], (unsigned)c.slices};
    return NVML_SUCCESS;
}

NVML_CALL(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, (nvmlGpuInstance_t instance, unsigned id, unsigned *count),
          (instance, id, count))
{
    struct machine m;
    struct handle at;
    struct compute_profile c;
    nvmlReturn_t result = compute_profile_of(instance, id, 0, count, &m, &at, &c);
    if (result == NVML_SUCCESS)
        *count = (unsigned)mig_compute_instance_capacity(&m, at.gpu, at.gpu_instance, id);
    return result;
}

/* ---- Compute instances ---- */

static nvmlReturn_t create_compute(nvmlGpuInstance_t instance, unsigned id, const nvmlComputeInstancePlacement_t *placement,
                                   nvmlComputeInstance_t *compute)
{
    struct machine m;
    struct handle at;
    int ci = 0;
    nvmlReturn_t result = change_gpu_instance(&m, instance, &at);
    if (result != NVML_SUCCESS)
        return result;
    result = compute && id < NVML_CI_PROFILE_COUNT ? mig_create_compute_instance(&m, at.gpu, at.gpu_instance, id, placement, &ci)
                                                   : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *compute = compute_instance_handle(at.gpu, at.gpu_instance, ci);
    return finish_change(&m, result);
}

NVML_CALL(nvmlGpuInstanceCreateComputeInstance, (nvmlGpuInstance_t instance, unsigned id, nvmlComputeInstance_t *compute),
          (instance, id, compute))
{
    return create_compute(instance, id, NULL, compute);
}

NVML_CALL(nvmlGpuInstanceCreateComputeInstanceWithPlacement,
          (nvmlGpuInstance_t instance, unsigned id, const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *compute),
          (instance, id, placement, compute))
{
    return placement ? create_compute(instance, id, placement, compute) : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_CALL(nvmlComputeInstanceDestroy, (nvmlComputeInstance_t compute), (compute))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = change_compute_instance(&m, compute, &at);
    if (result != NVML_SUCCESS)
        return result;
    return finish_change(&m, mig_destroy_compute_instance(&m, at.gpu, at.gpu_instance, at.compute_instance));
}

NVML_CALL(nvmlGpuInstanceGetComputeInstances,
          (nvmlGpuInstance_t instance, unsigned id, nvmlComputeInstance_t *computes, unsigned *count), (instance, id, computes, count))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_gpu_instance(&m, instance, &at);
    if (result != NVML_SUCCESS)
        return result;
    if (!count || id >= NVML_CI_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct gpu_instance *gi = &m.running.gpus[at.gpu].instances[at.gpu_instance];
    *count = 0;
    for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++)
        if (gi->compute[ci].present && gi->compute[ci].profile == id && mig_accessible(at.gpu, at.gpu_instance, ci))
            computes[(*count)++] = compute_instance_handle(at.gpu, at.gpu_instance, ci);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlGpuInstanceGetComputeInstanceById, (nvmlGpuInstance_t instance, unsigned id, nvmlComputeInstance_t *compute),
          (instance, id, compute))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_gpu_instance(&m, instance, &at);
    if (result != NVML_SUCCESS)
        return result;
    if (id >= MAX_COMPUTE_INSTANCES || !m.running.gpus[at.gpu].instances[at.gpu_instance].compute[id].present
        || !mig_accessible(at.gpu, at.gpu_instance, (int)id))
        return NVML_ERROR_NOT_FOUND;
    *compute = compute_instance_handle(at.gpu, at.gpu_instance, (int)id);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlComputeInstanceGetInfo_v2, (nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info), (compute, info))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_compute_instance(&m, compute, &at);
    if (result != NVML_SUCCESS || !info)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    const struct compute_instance *ci = &m.running.gpus[at.gpu].instances[at.gpu_instance].compute[at.compute_instance];
    *info = (nvmlComputeInstanceInfo_t){gpu_handle(at.gpu), gpu_instance_handle(at.gpu, at.gpu_instance), (unsigned)at.compute_instance,
                                        ci->profile, {ci->start, ci->size}};
    return NVML_SUCCESS;
}
NVML_ALIAS(nvmlComputeInstanceGetInfo, nvmlComputeInstanceGetInfo_v2, (nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info),
           (compute, info))

/* ---- MIG devices ---- */

NVML_CALL(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t device, unsigned index, nvmlDevice_t *mig), (device, index, mig))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    const struct board *b = gpu_board(&m, gpu);
    if (b->slices == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!m.running.gpus[gpu].mig_current)
        return NVML_ERROR_NOT_FOUND;
    if (!mig || index >= (unsigned)b->slices)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct mig_slot *slot = mig_slot_at_index(&m, gpu, index);
    if (!slot)
        return NVML_ERROR_NOT_FOUND;
    *mig = mig_device_handle(gpu, slot->gpu_instance, slot->compute_instance);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t device, unsigned *is_mig), (device, is_mig))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result == NVML_SUCCESS)
        *is_mig = at.kind == HANDLE_MIG_DEVICE;
    return result;
}

static nvmlReturn_t open_mig_device(struct machine *m, nvmlDevice_t device, const void *answer, struct handle *at)
{
    nvmlReturn_t result = open_device(m, device, at);
    if (result != NVML_SUCCESS)
        return result;
    return at->kind == HANDLE_MIG_DEVICE && answer ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_CALL(nvmlDeviceGetGpuInstanceId, (nvmlDevice_t device, unsigned *id), (device, id))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_mig_device(&m, device, id, &at);
    if (result == NVML_SUCCESS)
        *id = (unsigned)at.gpu_instance;
    return result;
}

NVML_CALL(nvmlDeviceGetComputeInstanceId, (nvmlDevice_t device, unsigned *id), (device, id))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_mig_device(&m, device, id, &at);
    if (result == NVML_SUCCESS)
        *id = (unsigned)at.compute_instance;
    return result;
}

NVML_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (nvmlDevice_t mig, nvmlDevice_t *device), (mig, device))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_mig_device(&m, mig, device, &at);
    if (result == NVML_SUCCESS)
        *device = gpu_handle(at.gpu);
    return result;
}

NVML_CALL(nvmlDeviceGetAttributes_v2, (nvmlDevice_t device, nvmlDeviceAttributes_t *attributes), (device, attributes))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS)
        return result;
    if (at.kind != HANDLE_MIG_DEVICE)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct board *b = gpu_board(&m, at.gpu);
    const struct profile *p = mig_row(&m, at.gpu, at.gpu_instance);
    const struct compute_instance *ci = &m.running.gpus[at.gpu].instances[at.gpu_instance].compute[at.compute_instance];
    struct compute_profile c;
    if (!attributes || !mig_compute_profile(b, p, ci->profile, &c))
        return NVML_ERROR_INVALID_ARGUMENT;
    *attributes = (nvmlDeviceAttributes_t){
        (unsigned)c.multiprocessors, (unsigned)p->copy_engines, (unsigned)p->decoders, (unsigned)p->encoders, (unsigned)p->jpeg,
        (unsigned)p->ofa, (unsigned)p->slices, (unsigned)c.slices, (unsigned long long)p->memory_mib};
    return NVML_SUCCESS;
}
NVML_ALIAS(nvmlDeviceGetAttributes, nvmlDeviceGetAttributes_v2, (nvmlDevice_t device, nvmlDeviceAttributes_t *attributes), (device, attributes))
