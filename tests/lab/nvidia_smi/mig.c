/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * nvidia-smi mig: creating and destroying instances.
 */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "2g.20gb", "MIG 2g.20gb" or "14": the profile, with its enum in *number; false when the GPU has none of that name. */
static bool find_profile(nvmlDevice_t device, const char *word, nvmlGpuInstanceProfileInfo_v2_t *found)
{
    char *end;
    unsigned long id = strtoul(word, &end, 10);
    bool by_id = *word && !*end;
    for (unsigned e = 0; e < NVML_GI_PROFILE_COUNT; e++) {
        found->version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2);
        if (nvml.nvmlDeviceGetGpuInstanceProfileInfoV(device, e, found) != NVML_SUCCESS)
            continue;
        if (by_id ? found->id == id : strcasecmp(found->name, word) == 0 || strcasecmp(found->name + 4, word) == 0)
            return true;
    }
    return false;
}

static nvmlReturn_t create_compute(const struct gpu *g, nvmlGpuInstance_t instance, unsigned gi, int wanted)
{
    nvmlComputeInstanceProfileInfo_v2_t profile, best = {.version = 0};
    nvmlComputeInstance_t compute;
    nvmlComputeInstanceInfo_t info;
    for (unsigned e = 0; e < NVML_CI_PROFILE_COUNT; e++) {
        profile.version = NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2);
        if (nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, e, 0, &profile) != NVML_SUCCESS)
            continue;
        if (wanted >= 0 ? profile.id == (unsigned)wanted : profile.multiprocessorCount > best.multiprocessorCount)
            best = profile;
    }
    nvmlReturn_t result = best.version ? nvml.nvmlGpuInstanceCreateComputeInstance(instance, best.id, &compute) : NVML_ERROR_NOT_SUPPORTED;
    if (result != NVML_SUCCESS) {
        printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %d: %s\n"
               "Failed to create compute instances: %s\n",
               g->index, gi, wanted >= 0 ? wanted : (int)best.id, nvml.nvmlErrorString(result), nvml.nvmlErrorString(result));
        return result;
    }
    nvml.nvmlComputeInstanceGetInfo_v2(compute, &info);
    printf("Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using profile %s (ID %2u)\n", info.id, g->index, gi,
           best.name, best.id);
    return result;
}

/* One element of -cgi: a profile's id or name, and where: "19:4". */
static nvmlReturn_t create_instance(const struct gpu *g, char *word, bool with_compute)
{
    nvmlGpuInstanceProfileInfo_v2_t profile;
    nvmlGpuInstance_t instance;
    nvmlGpuInstanceInfo_t info;
    nvmlGpuInstancePlacement_t placements[32];
    unsigned count = 32;
    char *colon = strchr(word, ':');
    if (colon)
        *colon = '\0';
    if (!find_profile(g->handle, word, &profile)) {
        printf("Unable to create a GPU instance on GPU %2u using profile %s: Invalid Argument\nFailed to create GPU instances: Invalid Argument\n",
               g->index, word);
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    nvmlReturn_t result = nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2(g->handle, profile.id, placements, &count);
    if (colon && result == NVML_SUCCESS) {
        nvmlGpuInstancePlacement_t at = {(unsigned)atoi(colon + 1), placements[0].size};
        result = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(g->handle, profile.id, &at, &instance);
    } else if (result == NVML_SUCCESS) {
        result = nvml.nvmlDeviceCreateGpuInstance(g->handle, profile.id, &instance);
    }
    if (result != NVML_SUCCESS) {
        printf("Unable to create a GPU instance on GPU %2u using profile %u: %s\nFailed to create GPU instances: %s\n", g->index, profile.id,
               nvml.nvmlErrorString(result), nvml.nvmlErrorString(result));
        return result;
    }
    nvml.nvmlGpuInstanceGetInfo(instance, &info);
    printf("Successfully created GPU instance ID %2u on GPU %2u using profile %s (ID %2u)\n", info.id, g->index, profile.name, profile.id);
    return with_compute ? create_compute(g, instance, info.id, -1) : NVML_SUCCESS;
}

static int create_instances(const struct selection *s, const char *profiles, bool with_compute)
{
    for (int i = 0; i < s->count; i++) {
        char copy[512], *rest = copy, *word;
        snprintf(copy, sizeof copy, "%s", profiles);
        while ((word = strsep(&rest, ",")) != NULL) {
            nvmlReturn_t result = create_instance(&s->gpus[i], word, with_compute);
            if (result != NVML_SUCCESS)
                return result;
        }
    }
    return 0;
}

static int create_computes(const struct selection *s, const char *profiles, const char *gi_ids)
{
    nvmlGpuInstanceInfo_t infos[16];
    nvmlGpuInstance_t handles[16];
    for (int i = 0; i < s->count; i++)
        for (int k = 0, count = mig_instances(s->gpus[i].handle, infos, handles); k < count; k++) {
            if (!id_is_listed(gi_ids, infos[k].id))
                continue;
            char copy[512], *rest = copy, *word;
            snprintf(copy, sizeof copy, "%s", profiles);
            while ((word = strsep(&rest, ",")) != NULL) {
                nvmlReturn_t result = create_compute(&s->gpus[i], handles[k], infos[k].id, *word ? atoi(word) : -1);
                if (result != NVML_SUCCESS)
                    return result;
            }
        }
    return 0;
}

static int destroy_computes(const struct selection *s, const char *ci_ids, const char *gi_ids)
{
    nvmlGpuInstanceInfo_t infos[16];
    nvmlGpuInstance_t handles[16];
    nvmlComputeInstanceInfo_t inner[8];
    nvmlComputeInstance_t computes[8];
    int destroyed = 0;
    for (int i = 0; i < s->count; i++)
        for (int k = 0, count = mig_instances(s->gpus[i].handle, infos, handles); k < count; k++)
            for (int c = 0, n = id_is_listed(gi_ids, infos[k].id) ? mig_computes(handles[k], inner, computes) : 0; c < n; c++) {
                if (!id_is_listed(ci_ids, inner[c].id))
                    continue;
                nvmlReturn_t result = nvml.nvmlComputeInstanceDestroy(computes[c]);
                if (result != NVML_SUCCESS) {
                    printf("Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n"
                           "Failed to destroy compute instances: %s\n",
                           inner[c].id, s->gpus[i].index, infos[k].id, nvml.nvmlErrorString(result), nvml.nvmlErrorString(result));
                    return result;
                }
                printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n", inner[c].id, s->gpus[i].index,
                       infos[k].id);
                destroyed++;
            }
    if (destroyed)
        return 0;
    puts("No compute instances found: Not Found");
    return NVML_ERROR_NOT_FOUND;
}

static int destroy_instances(const struct selection *s, const char *gi_ids)
{
    nvmlGpuInstanceInfo_t infos[16];
    nvmlGpuInstance_t handles[16];
    int destroyed = 0;
    for (int i = 0; i < s->count; i++)
        for (int k = 0, count = mig_instances(s->gpus[i].handle, infos, handles); k < count; k++) {
            if (!id_is_listed(gi_ids, infos[k].id))
                continue;
            nvmlReturn_t result = nvml.nvmlGpuInstanceDestroy(handles[k]);
            if (result != NVML_SUCCESS) {
                printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\nFailed to destroy GPU instances: %s\n", infos[k].id,
                       s->gpus[i].index, nvml.nvmlErrorString(result), nvml.nvmlErrorString(result));
                return result;
            }
            printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", infos[k].id, s->gpus[i].index);
            destroyed++;
        }
    if (destroyed)
        return 0;
    puts("No GPU instances found: Not Found");
    return NVML_ERROR_NOT_FOUND;
}

/* Keep the GPUs that can (or do) MIG; exits with the real program's words when none is left. */
static struct selection mig_gpus(const char *which, bool must_be_on, bool only_lists)
{
    struct selection all = select_gpus(which), some = {.count = 0};
    unsigned current, pending;
    for (int i = 0; i < all.count; i++)
        if (nvml.nvmlDeviceGetMigMode(all.gpus[i].handle, &current, &pending) == NVML_SUCCESS && (current || !must_be_on))
            some.gpus[some.count++] = all.gpus[i];
    if (some.count == 0) {
        puts(must_be_on ? "No MIG-enabled devices found." : "No MIG-supported devices found.");
        exit(must_be_on && only_lists ? 0 : NVML_ERROR_NOT_FOUND); /* the lists end well: 580.159.04 on H200 */
    }
    return some;
}

int mig_command(int argc, char **argv)
{
    const char *which = NULL, *gi = NULL, *ci = NULL, *create = NULL, *create_ci = NULL, *value;
    enum { NOTHING, PROFILES, PLACEMENTS, INSTANCES, COMPUTE_PROFILES, COMPUTES, CREATE, CREATE_COMPUTE, DESTROY, DESTROY_COMPUTE } verb = NOTHING;
    bool with_compute = false;
    for (int i = 0; i < argc; i++) {
#define IS(a, b) (strcmp(argv[i], a) == 0 || strcmp(argv[i], b) == 0)
        if (IS("-lgip", "--list-gpu-instance-profiles"))
            verb = PROFILES;
        else if (IS("-lgipp", "--list-gpu-instance-possible-placements"))
            verb = PLACEMENTS;
        else if (IS("-lgi", "--list-gpu-instances"))
            verb = INSTANCES;
        else if (IS("-lcip", "--list-compute-instance-profiles"))
            verb = COMPUTE_PROFILES;
        else if (IS("-lci", "--list-compute-instances"))
            verb = COMPUTES;
        else if (IS("-dgi", "--destroy-gpu-instance"))
            verb = DESTROY;
        else if (IS("-dci", "--destroy-compute-instance"))
            verb = DESTROY_COMPUTE;
        else if (IS("-C", "--default-compute-instance"))
            with_compute = true;
        else if ((value = option_value(argc, argv, &i, "-cgi")) || (value = option_value(argc, argv, &i, "--create-gpu-instance")))
            verb = CREATE, create = value;
        else if (IS("-cci", "--create-compute-instance"))
            verb = CREATE_COMPUTE, create_ci = i + 1 < argc && argv[i + 1][0] != '-' ? argv[++i] : "";
        else if ((value = option_value(argc, argv, &i, "-gi")) || (value = option_value(argc, argv, &i, "--gpu-instance-id")))
            gi = value;
        else if ((value = option_value(argc, argv, &i, "-ci")) || (value = option_value(argc, argv, &i, "--compute-instance-id")))
            ci = value;
        else if ((value = option_value(argc, argv, &i, "-i")) || (value = option_value(argc, argv, &i, "--id")))
            which = value;
        else
            return bad_argument("Invalid argument: %s\n", argv[i]);
#undef IS
    }
    start_nvml();
    struct selection s = mig_gpus(which, verb != PROFILES && verb != PLACEMENTS, verb < CREATE);
    switch (verb) {
    case PROFILES:
        return mig_list_profiles(&s);
    case PLACEMENTS:
        return mig_list_placements(&s);
    case INSTANCES:
        return mig_list_instances(&s);
    case COMPUTE_PROFILES:
        return mig_list_compute_profiles(&s, gi);
    case COMPUTES:
        return mig_list_compute(&s, gi);
    case CREATE:
        return create_instances(&s, create, with_compute);
    case CREATE_COMPUTE:
        return create_computes(&s, create_ci, gi);
    case DESTROY:
        return destroy_instances(&s, gi);
    case DESTROY_COMPUTE:
        return destroy_computes(&s, ci, gi);
    default:
        return bad_argument("No command specified.\n");
    }
}
