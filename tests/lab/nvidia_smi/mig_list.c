/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * nvidia-smi mig: the listings.
 */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool id_is_listed(const char *ids, unsigned id)
{
    char copy[256], *rest = copy, *word;
    if (!ids)
        return true;
    snprintf(copy, sizeof copy, "%s", ids);
    while ((word = strsep(&rest, ",")) != NULL)
        if (*word && strtoul(word, NULL, 10) == id)
            return true;
    return false;
}

static bool profile_by_enum(nvmlDevice_t device, unsigned e, nvmlGpuInstanceProfileInfo_v2_t *p)
{
    p->version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2);
    return nvml.nvmlDeviceGetGpuInstanceProfileInfoV(device, e, p) == NVML_SUCCESS;
}

void profile_name(nvmlDevice_t device, unsigned profile_id, char *text, unsigned size)
{
    nvmlGpuInstanceProfileInfo_v2_t p;
    snprintf(text, size, "MIG ?");
    for (unsigned e = 0; e < NVML_GI_PROFILE_COUNT; e++)
        if (profile_by_enum(device, e, &p) && p.id == profile_id)
            snprintf(text, size, "%s", p.name);
}

int mig_instances(nvmlDevice_t device, nvmlGpuInstanceInfo_t *infos, nvmlGpuInstance_t *handles)
{
    nvmlGpuInstanceProfileInfo_v2_t p;
    nvmlGpuInstance_t found[16];
    int total = 0;
    for (unsigned e = 0; e < NVML_GI_PROFILE_COUNT; e++) {
        unsigned count = 0;
        if (!profile_by_enum(device, e, &p) || nvml.nvmlDeviceGetGpuInstances(device, p.id, found, &count) != NVML_SUCCESS)
            continue;
        for (unsigned i = 0; i < count; i++, total++) {
            handles[total] = found[i];
            nvml.nvmlGpuInstanceGetInfo(found[i], &infos[total]);
        }
    }
    return total;
}

int mig_computes(nvmlGpuInstance_t instance, nvmlComputeInstanceInfo_t *infos, nvmlComputeInstance_t *handles)
{
    nvmlComputeInstance_t found[8];
    int total = 0;
    for (unsigned e = 0; e < NVML_CI_PROFILE_COUNT; e++) {
        unsigned count = 0;
        if (nvml.nvmlGpuInstanceGetComputeInstances(instance, e, found, &count) != NVML_SUCCESS)
            continue;
        for (unsigned i = 0; i < count; i++, total++) {
            handles[total] = found[i];
            nvml.nvmlComputeInstanceGetInfo_v2(found[i], &infos[total]);
        }
    }
    return total;
}

/* NVML's numbers of profiles in the order in which nvidia-smi lists them: by size, "me" and double memory behind the plain ones. */
static const unsigned listed[NVML_GI_PROFILE_COUNT] = {0, 13, 7, 15, 10, 9, 1, 14, 8, 16, 11, 2, 3, 12, 4, 5, 6, 17};

int mig_list_profiles(const struct selection *s)
{
    nvmlGpuInstanceProfileInfo_v2_t p;
    puts("+-------------------------------------------------------------------------------+\n"
         "| GPU instance profiles:                                                        |\n"
         "| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |\n"
         "|                                Free/Total   GiB              CE    JPEG  OFA  |\n"
         "|===============================================================================|");
    for (int i = 0; i < s->count; i++)
        for (unsigned n = 0; n < NVML_GI_PROFILE_COUNT; n++) {
            unsigned left = 0;
            if (!profile_by_enum(s->gpus[i].handle, listed[n], &p))
                continue;
            nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(s->gpus[i].handle, p.id, &left);
            char memory[16];
            snprintf(memory, sizeof memory, "%.2f", (double)p.memorySizeMB / 1024);
            printf("| %3u  %-18s %3u     %u/%-9u%-11s%-7s%-7u%-6u%-4u|\n"
                   "|                                                              %2u     %-6u%-4u|\n",
                   s->gpus[i].index, p.name, p.id, left, p.instanceCount, memory, p.isP2pSupported ? "Yes" : "No", p.multiprocessorCount,
                   p.decoderCount, p.encoderCount, p.copyEngineCount, p.jpegCount, p.ofaCount);
            puts("+-------------------------------------------------------------------------------+");
        }
    return 0;
}

int mig_list_placements(const struct selection *s)
{
    nvmlGpuInstanceProfileInfo_v2_t p;
    nvmlGpuInstancePlacement_t at[32];
    for (int i = 0; i < s->count; i++)
        for (unsigned n = 0; n < NVML_GI_PROFILE_COUNT; n++) {
            unsigned count = 32;
            if (!profile_by_enum(s->gpus[i].handle, listed[n], &p)
                || nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2(s->gpus[i].handle, p.id, at, &count) != NVML_SUCCESS)
                continue;
            printf("GPU %2u Profile ID %2u Placement%s: {", s->gpus[i].index, p.id, count == 1 ? " " : "s");
            for (unsigned k = 0; k < count; k++)
                printf("%s%u", k ? "," : "", at[k].start);
            printf("}:%u\n", at[0].size);
        }
    return 0;
}

int mig_list_instances(const struct selection *s)
{
    nvmlGpuInstanceInfo_t infos[16];
    nvmlGpuInstance_t handles[16];
    char name[96];
    int total = 0;
    for (int i = 0; i < s->count; i++)
        total += mig_instances(s->gpus[i].handle, infos, handles);
    if (total == 0) {
        puts("No GPU instances found: Not Found");
        return NVML_ERROR_NOT_FOUND;
    }
    puts("+---------------------------------------------------------+\n"
         "| GPU instances:                                          |\n"
         "| GPU   Name               Profile  Instance   Placement  |\n"
         "|                            ID       ID       Start:Size |\n"
         "|=========================================================|");
    for (int i = 0; i < s->count; i++)
        for (int k = 0, count = mig_instances(s->gpus[i].handle, infos, handles); k < count; k++) {
            profile_name(s->gpus[i].handle, infos[k].profileId, name, sizeof name);
            printf("| %3u  %-20s %3u      %3u        %3u:%-2u     |\n+---------------------------------------------------------+\n",
                   s->gpus[i].index, name, infos[k].profileId, infos[k].id, infos[k].placement.start, infos[k].placement.size);
        }
    return 0;
}

int mig_list_compute_profiles(const struct selection *s, const char *gi_ids)
{
    nvmlGpuInstanceInfo_t infos[16];
    nvmlGpuInstance_t handles[16];
    nvmlComputeInstanceProfileInfo_v2_t c;
    puts("+--------------------------------------------------------------------------------------+\n"
         "| Compute instance profiles:                                                           |\n"
         "| GPU     GPU       Name             Profile  Instances   Exclusive       Shared       |\n"
         "|       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  |\n"
         "|         ID                                                          CE    JPEG       |\n"
         "|======================================================================================|");
    for (int i = 0; i < s->count; i++)
        for (int k = 0, count = mig_instances(s->gpus[i].handle, infos, handles); k < count; k++) {
            unsigned most = 0;
            for (int pass = 0; pass < 2; pass++)
                for (unsigned e = 0; id_is_listed(gi_ids, infos[k].id) && e < NVML_CI_PROFILE_COUNT; e++) {
                    unsigned left = 0;
                    char id[16];
                    c.version = NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2);
                    if (nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV(handles[k], e, 0, &c) != NVML_SUCCESS)
                        continue;
                    if (pass == 0) {
                        most = c.multiprocessorCount > most ? c.multiprocessorCount : most;
                        continue;
                    }
                    nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(handles[k], c.id, &left);
                    snprintf(id, sizeof id, "%u%s", c.id, c.multiprocessorCount == most ? "*" : ""); /* the default one */
                    printf("| %3u    %3u       %-18s %3s      %u/%u          %3u       %3u   %3u   %3u   |\n"
                           "|                                                                   %3u   %3u         |\n",
                           s->gpus[i].index, infos[k].id, c.name, id, left, c.instanceCount, c.multiprocessorCount, c.sharedDecoderCount,
                           c.sharedEncoderCount, c.sharedOfaCount, c.sharedCopyEngineCount, c.sharedJpegCount);
                    puts("+--------------------------------------------------------------------------------------+");
                }
        }
    return 0;
}

int mig_list_compute(const struct selection *s, const char *gi_ids)
{
    nvmlGpuInstanceInfo_t infos[16];
    nvmlGpuInstance_t handles[16];
    nvmlComputeInstanceInfo_t inner[8];
    nvmlComputeInstance_t computes[8];
    nvmlComputeInstanceProfileInfo_v2_t c;
    int total = 0;
    for (int i = 0; i < s->count; i++)
        for (int k = 0, count = mig_instances(s->gpus[i].handle, infos, handles); k < count; k++)
            for (int n = 0, many = id_is_listed(gi_ids, infos[k].id) ? mig_computes(handles[k], inner, computes) : 0; n < many; n++) {
                if (total++ == 0)
                    puts("+--------------------------------------------------------------------+\n"
                         "| Compute instances:                                                 |\n"
                         "| GPU     GPU       Name             Profile   Instance   Placement  |\n"
                         "|       Instance                       ID        ID       Start:Size |\n"
                         "|         ID                                                         |\n"
                         "|====================================================================|");
                c.version = NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2);
                nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV(handles[k], inner[n].profileId, 0, &c);
                printf("| %3u    %3u       %-18s %3u       %3u        %3u:%-2u     |\n"
                       "+--------------------------------------------------------------------+\n",
                       s->gpus[i].index, infos[k].id, c.name, inner[n].profileId, inner[n].id, inner[n].placement.start, inner[n].placement.size);
            }
    if (total)
        return 0;
    puts("No compute instances found: Not Found");
    return NVML_ERROR_NOT_FOUND;
}
