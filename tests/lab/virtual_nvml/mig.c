/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * MIG as the driver does it. On purpose independent of the collection's planner: it answers one call at a time, with a
 * plain look at what is taken, and knows nothing of layouts.
 */
#include "model.h"

#include <stdio.h>
#include <string.h>

const struct profile *mig_profile_by_enum(const struct board *b, unsigned nvml_enum)
{
    for (int i = 0; i < b->profile_count; i++)
        if (b->profiles[i].nvml_enum == (int)nvml_enum)
            return &b->profiles[i];
    return NULL;
}

const struct profile *mig_profile_by_id(const struct board *b, unsigned id)
{
    for (int i = 0; i < b->profile_count; i++)
        if (b->profiles[i].id == (int)id)
            return &b->profiles[i];
    return NULL;
}

const struct profile *mig_row(const struct machine *m, int gpu, int gi)
{
    return &gpu_board(m, gpu)->profiles[m->running.gpus[gpu].instances[gi].profile];
}

/* Whole 0, halves 1-2, quarters 3-6, eighths 7-14. On a mirrored chip the two halves are numbered the other way round. */
int mig_instance_id(const struct board *b, bool mirrored, const struct profile *p, int start)
{
    int parts = b->grid / p->size, part = start / p->size;
    if (mirrored && parts > 1)
        part = (part + parts / 2) % parts;
    return parts - 1 + part;
}

/* ---- GPU instances ---- */

static bool starts_at(const struct profile *p, unsigned start)
{
    for (int i = 0; i < p->start_count; i++)
        if (p->starts[i] == start)
            return true;
    return false;
}

static bool place_is_free(const struct machine *m, int gpu, int start, int size)
{
    for (int gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
        const struct gpu_instance *other = &m->running.gpus[gpu].instances[gi];
        if (other->present && start < other->start + mig_row(m, gpu, gi)->size && other->start < start + size)
            return false;
    }
    return true;
}

/* How many more of this profile its own limit, the compute slices and the engines allow, places aside. */
static int count_allowed(const struct machine *m, int gpu, const struct profile *p)
{
    const struct board *b = gpu_board(m, gpu);
    const struct profile *whole = NULL;
    int same = 0, slices = 0, decoders = 0, encoders = 0, jpeg = 0, ofa = 0;
    for (int i = 0; i < b->profile_count; i++)
        if (b->profiles[i].size == b->grid && (!whole || b->profiles[i].decoders >= whole->decoders))
            whole = &b->profiles[i];
    for (int gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
        if (!m->running.gpus[gpu].instances[gi].present)
            continue;
        const struct profile *row = mig_row(m, gpu, gi);
        same += row == p;
        slices += row->slices, decoders += row->decoders, encoders += row->encoders, jpeg += row->jpeg, ofa += row->ofa;
    }
    int allowed = p->max_instances - same;
    const int limits[][3] = {{b->slices, slices, p->slices}, {whole->decoders, decoders, p->decoders},
                             {whole->encoders, encoders, p->encoders}, {whole->jpeg, jpeg, p->jpeg}, {whole->ofa, ofa, p->ofa}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i][2] > 0 && (limits[i][0] - limits[i][1]) / limits[i][2] < allowed)
            allowed = (limits[i][0] - limits[i][1]) / limits[i][2];
    return allowed > 0 ? allowed : 0;
}

int mig_gpu_instance_capacity(const struct machine *m, int gpu, const struct profile *p)
{
    int places = 0, end = 0; /* starts ascend and the sizes are equal: taking the first that fits is the most */
    for (int i = 0; i < p->start_count; i++)
        if (p->starts[i] >= end && place_is_free(m, gpu, p->starts[i], p->size)) {
            places++;
            end = p->starts[i] + p->size;
        }
    int allowed = count_allowed(m, gpu, p);
    return places < allowed ? places : allowed;
}

/* Where the driver puts an instance when it is not told. Seen on H100: 1g 6,4,5,0,1,2,3; 2g and double-memory 1g 4,0,2,6.
 * Elsewhere (4- and 12-unit grids, halves) assumed: the upper half first, so that the large profile at 0 stays possible. */
static int default_start(const struct machine *m, int gpu, const struct profile *p)
{
    static const uint8_t eighths[] = {6, 4, 5, 0, 1, 2, 3, 7}, quarters[] = {4, 0, 2, 6};
    int grid = gpu_board(m, gpu)->grid;
    uint8_t order[12];
    int count = 0;
    if (grid == 8 && p->size == 1)
        memcpy(order, eighths, sizeof eighths), count = sizeof eighths;
    else if (grid == 8 && p->size == 2)
        memcpy(order, quarters, sizeof quarters), count = sizeof quarters;
    else
        for (int half = 1; half >= 0; half--)
            for (int i = 0; i < p->start_count; i++)
                if ((2 * p->starts[i] >= grid) == half)
                    order[count++] = p->starts[i];
    for (int i = 0; i < count; i++)
        if (starts_at(p, order[i]) && place_is_free(m, gpu, order[i], p->size))
            return order[i];
    return -1;
}

nvmlReturn_t mig_create_gpu_instance(struct machine *m, int gpu, const struct profile *p, const nvmlGpuInstancePlacement_t *at, int *id)
{
    struct running_gpu *g = &m->running.gpus[gpu];
    const struct board *b = gpu_board(m, gpu);
    if (!g->mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    if (at && (at->size != (unsigned)p->size || !starts_at(p, at->start)))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < m->running.process_count; i++)
        if (m->running.processes[i].gpu == gpu && m->running.processes[i].gpu_instance == WHOLE_GPU
            && m->running.processes[i].type != 'N')
            return NVML_ERROR_IN_USE;
    int start = at ? (int)at->start : default_start(m, gpu, p);
    if (start < 0 || count_allowed(m, gpu, p) == 0 || !place_is_free(m, gpu, start, p->size))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    *id = mig_instance_id(b, m->hardware.mirrored, p, start);
    struct gpu_instance *instance = &g->instances[*id];
    memset(instance, 0, sizeof *instance);
    instance->present = true;
    instance->profile = (uint8_t)(p - b->profiles);
    instance->start = (uint8_t)start;
    return NVML_SUCCESS;
}

static bool instance_is_used(const struct machine *m, int gpu, int gi, int ci)
{
    for (uint32_t i = 0; i < m->running.process_count; i++) {
        const struct gpu_process *p = &m->running.processes[i];
        if (p->gpu == gpu && p->gpu_instance == gi && (ci == WHOLE_GPU || p->compute_instance == ci))
            return true;
    }
    return false;
}

nvmlReturn_t mig_destroy_gpu_instance(struct machine *m, int gpu, int gi)
{
    struct gpu_instance *instance = &m->running.gpus[gpu].instances[gi];
    for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++)
        if (instance->compute[ci].present)
            return NVML_ERROR_IN_USE;
    if (instance_is_used(m, gpu, gi, WHOLE_GPU))
        return NVML_ERROR_IN_USE;
    memset(instance, 0, sizeof *instance);
    return NVML_SUCCESS;
}

/* ---- Compute instances ---- */

static const int slices_of_enum[NVML_CI_PROFILE_COUNT] = {1, 2, 3, 4, 7, 8, 6, 1, 7};

static int multiprocessors_of_slices(const struct board *b, int slices)
{
    for (int i = 0; i < b->profile_count; i++)
        if (b->profiles[i].slices == slices && b->profiles[i].nvml_enum <= 6)
            return b->profiles[i].multiprocessors;
    return 0;
}

/* The compute profile in a GPU instance of profile p. A double-memory 1g of Hopper has more multiprocessors than its one
 * slice: profile 1_SLICE leaves the rest unused, 1_SLICE_REV1 has them all. */
bool mig_compute_profile(const struct board *b, const struct profile *p, unsigned nvml_enum, struct compute_profile *found)
{
    if (nvml_enum >= NVML_CI_PROFILE_COUNT || nvml_enum == 5 || nvml_enum == 8)
        return false;
    int slices = slices_of_enum[nvml_enum], base = multiprocessors_of_slices(b, slices);
    bool revision = nvml_enum == NVML_CI_PROFILE_1_SLICE_REV1;
    if (slices > p->slices || (slices != p->slices && base == 0) || (slices == 3 && p->slices == 4))
        return false;
    if (revision && !(p->slices == 1 && p->multiprocessors > base))
        return false;
    *found = (struct compute_profile){.nvml_enum = (int)nvml_enum, .slices = slices};
    bool whole = slices == p->slices && (revision || p->slices > 1 || p->multiprocessors <= base);
    found->multiprocessors = whole ? p->multiprocessors : base;
    int step = slices == 3 ? 4 : slices; /* 3c lies at 0 and 4, as 3g does */
    for (int start = 0; start + slices <= p->slices; start += step)
        found->starts[found->start_count++] = (uint8_t)start;
    found->count = found->start_count;
    return true;
}

static bool slices_are_free(const struct gpu_instance *instance, int start, int size)
{
    for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
        const struct compute_instance *other = &instance->compute[ci];
        if (other->present && start < other->start + other->size && other->start < start + size)
            return false;
    }
    return true;
}

int mig_compute_instance_capacity(const struct machine *m, int gpu, int gi, unsigned nvml_enum)
{
    struct compute_profile profile;
    int free_places = 0;
    if (!mig_compute_profile(gpu_board(m, gpu), mig_row(m, gpu, gi), nvml_enum, &profile))
        return 0;
    for (int i = 0; i < profile.start_count; i++)
        free_places += slices_are_free(&m->running.gpus[gpu].instances[gi], profile.starts[i], profile.slices);
    return free_places;
}

nvmlReturn_t mig_create_compute_instance(struct machine *m, int gpu, int gi, unsigned nvml_enum, const nvmlComputeInstancePlacement_t *at,
                                         int *id)
{
    struct running_gpu *g = &m->running.gpus[gpu];
    struct gpu_instance *instance = &g->instances[gi];
    struct compute_profile profile;
    int start = -1;
    if (!mig_compute_profile(gpu_board(m, gpu), mig_row(m, gpu, gi), nvml_enum, &profile))
        return NVML_ERROR_NOT_SUPPORTED;
    for (uint32_t i = 0; i < m->running.process_count; i++) {
        const struct gpu_process *p = &m->running.processes[i];
        if (p->gpu == gpu && p->gpu_instance == gi && p->compute_instance == WHOLE_GPU)
            return NVML_ERROR_IN_USE;
    }
    bool known_place = at == NULL;
    for (int i = 0; i < profile.start_count; i++) {
        if (at && (at->start != profile.starts[i] || at->size != (unsigned)profile.slices))
            continue;
        known_place = true;
        if (start < 0 && slices_are_free(instance, profile.starts[i], profile.slices))
            start = profile.starts[i];
    }
    if (!known_place)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (start < 0)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    int slot = 0;
    for (*id = 0; instance->compute[*id].present; ++*id)
        ;
    while (slot < MAX_MIG_DEVICES && g->slots[slot].used)
        slot++;
    if (*id >= MAX_COMPUTE_INSTANCES || slot >= MAX_MIG_DEVICES)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    instance->compute[*id] = (struct compute_instance){true, (uint8_t)nvml_enum, (uint8_t)start, (uint8_t)profile.slices};
    g->slots[slot] = (struct mig_slot){true, (uint8_t)gi, (uint8_t)*id};
    return NVML_SUCCESS;
}

nvmlReturn_t mig_destroy_compute_instance(struct machine *m, int gpu, int gi, int ci)
{
    struct running_gpu *g = &m->running.gpus[gpu];
    if (instance_is_used(m, gpu, gi, ci))
        return NVML_ERROR_IN_USE;
    memset(&g->instances[gi].compute[ci], 0, sizeof g->instances[gi].compute[ci]);
    for (int slot = 0; slot < MAX_MIG_DEVICES; slot++)
        if (g->slots[slot].used && g->slots[slot].gpu_instance == gi && g->slots[slot].compute_instance == ci)
            memset(&g->slots[slot], 0, sizeof g->slots[slot]);
    return NVML_SUCCESS;
}

/* "3g.40gb" when the compute instance is the whole GPU instance, "1c.3g.40gb" otherwise. */
void mig_compute_name(const struct board *b, const struct profile *p, unsigned nvml_enum, char *text, size_t size)
{
    struct compute_profile profile;
    if (mig_compute_profile(b, p, nvml_enum, &profile) && profile.slices < p->slices)
        snprintf(text, size, "%dc.%s", profile.slices, p->name);
    else
        snprintf(text, size, "%s", p->name);
}

/* ---- Mode and names ---- */

/* Ampere writes the desired state into the InfoROM and needs a GPU reset; Hopper and newer switch at once. A GPU in use, or with
 * instances, keeps its mode: the call succeeds and the activation status says why nothing happened. */
nvmlReturn_t mig_set_mode(struct machine *m, int gpu, bool enable, bool in_use, nvmlReturn_t *activation)
{
    const struct board *b = gpu_board(m, gpu);
    struct running_gpu *g = &m->running.gpus[gpu];
    *activation = NVML_SUCCESS;
    if (b->slices == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    for (int gi = 0; gi < MAX_GPU_INSTANCES && !enable; gi++)
        in_use |= g->instances[gi].present;
    in_use |= gpu_is_used(m, gpu, 0);
    g->mig_pending = enable;
    m->hardware.gpus[gpu].mig_mode = b->architecture < NVML_ARCH_HOPPER && enable;
    if (g->mig_current == enable)
        return NVML_SUCCESS;
    if (b->architecture < NVML_ARCH_HOPPER || in_use) {
        *activation = in_use ? NVML_ERROR_IN_USE : NVML_ERROR_RESET_REQUIRED;
        return NVML_SUCCESS;
    }
    g->mig_current = enable;
    g->compute_mode = NVML_COMPUTEMODE_DEFAULT;
    return NVML_SUCCESS;
}

/* The same GPU, GPU instance and compute instance have the same UUID after re-creation. */
void mig_uuid(const struct hardware_gpu *gpu, int gi, int ci, char *text, size_t size)
{
    char name[32], uuid[37];
    snprintf(name, sizeof name, "%d/%d", gi, ci);
    uuid_from_name(gpu->uuid, name, uuid);
    snprintf(text, size, "MIG-%s", uuid);
}
