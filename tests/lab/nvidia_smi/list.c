/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What is there: -L, the table of no arguments, -q.
 */
#include "smi.h"

#include <stdio.h>
#include <string.h>

static const char *enabled(int value)
{
    return value ? "Enabled" : "Disabled";
}

static const char *mig_name(const char *device_name)
{
    const char *mig = strstr(device_name, " MIG ");
    return mig ? mig + 5 : device_name;
}

int list_gpus(const char *which)
{
    struct selection s = select_gpus(which);
    char name[128], uuid[96];
    nvmlDevice_t mig;
    for (int i = 0; i < s.count; i++) {
        unsigned most = 0;
        nvml.nvmlDeviceGetName(s.gpus[i].handle, name, sizeof name);
        nvml.nvmlDeviceGetUUID(s.gpus[i].handle, uuid, sizeof uuid);
        printf("GPU %u: %s (UUID: %s)\n", s.gpus[i].index, name, uuid);
        nvml.nvmlDeviceGetMaxMigDeviceCount(s.gpus[i].handle, &most);
        for (unsigned k = 0; mig_is_on(s.gpus[i].handle) && k < most; k++) {
            if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(s.gpus[i].handle, k, &mig) != NVML_SUCCESS)
                continue;
            nvml.nvmlDeviceGetName(mig, name, sizeof name);
            nvml.nvmlDeviceGetUUID(mig, uuid, sizeof uuid);
            printf("  MIG %-15s Device %2u: (UUID: %s)\n", mig_name(name), k, uuid);
        }
    }
    return 0;
}

static int list_processes(nvmlDevice_t device, nvmlProcessInfo_t *list, unsigned room)
{
    unsigned count = room;
    return nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list) == NVML_SUCCESS ? (int)count : 0;
}

static void instance_text(unsigned id, char *text, unsigned size)
{
    if (id == NVML_NO_INSTANCE)
        snprintf(text, size, "N/A");
    else
        snprintf(text, size, "%u", id);
}

static void summary_mig(const struct selection *s)
{
    nvmlDeviceAttributes_t a;
    nvmlDevice_t mig;
    unsigned gi, ci;
    bool any = false;
    for (int i = 0; i < s->count; i++)
        any |= mig_is_on(s->gpus[i].handle);
    if (!any)
        return;
    puts("\n+-----------------------------------------------------------------------------------------+\n"
         "| MIG devices:                                                                            |\n"
         "+------------------+----------------------------------+-----------+-----------------------+\n"
         "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |\n"
         "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |\n"
         "|==================+==================================+===========+=======================|");
    for (int i = 0; i < s->count; i++)
        for (unsigned k = 0; k < 8 && mig_is_on(s->gpus[i].handle); k++) {
            nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
            if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(s->gpus[i].handle, k, &mig) != NVML_SUCCESS)
                continue;
            nvml.nvmlDeviceGetGpuInstanceId(mig, &gi);
            nvml.nvmlDeviceGetComputeInstanceId(mig, &ci);
            nvml.nvmlDeviceGetAttributes_v2(mig, &a);
            nvml.nvmlDeviceGetMemoryInfo_v2(mig, &memory);
            printf("| %2u  %3u  %2u  %2u  |  %8lluMiB / %6lluMiB          | %3u      0| %2u  %2u  %3u  %3u  %3u  |\n", s->gpus[i].index, gi, ci, k,
                   memory.used >> 20, memory.total >> 20, a.multiprocessorCount, a.sharedCopyEngineCount, a.sharedEncoderCount,
                   a.sharedDecoderCount, a.sharedOfaCount, a.sharedJpegCount);
        }
    puts("+------------------+----------------------------------+-----------+-----------------------+");
}

int summary(const char *which)
{
    struct selection s = select_gpus(which);
    char driver[80], name[128], mig[16], process[256], gi[12], ci[12];
    int cuda, any = 0;
    nvmlProcessInfo_t list[256];
    nvml.nvmlSystemGetDriverVersion(driver, sizeof driver);
    nvml.nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("+-----------------------------------------------------------------------------------------+\n"
           "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %2d.%-6d|\n"
           "|-----------------------------------------+------------------------+----------------------+\n"
           "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
           "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
           "|                                         |                        |               MIG M. |\n"
           "|=========================================+========================+======================|\n",
           driver, driver, cuda / 1000, cuda % 1000 / 10);
    for (int i = 0; i < s.count; i++) {
        const struct gpu *g = &s.gpus[i];
        nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
        unsigned watt = 0, cap = 0, current, pending, celsius = 0;
        int persistence = 0, mode = 0;
        nvml.nvmlDeviceGetName(g->handle, name, sizeof name);
        nvml.nvmlDeviceGetMemoryInfo_v2(g->handle, &memory);
        nvml.nvmlDeviceGetPowerUsage(g->handle, &watt);
        nvml.nvmlDeviceGetEnforcedPowerLimit(g->handle, &cap);
        nvml.nvmlDeviceGetPersistenceMode(g->handle, &persistence);
        nvml.nvmlDeviceGetComputeMode(g->handle, &mode);
        nvml.nvmlDeviceGetTemperature(g->handle, 0, &celsius);
        snprintf(mig, sizeof mig, "N/A");
        if (nvml.nvmlDeviceGetMigMode(g->handle, &current, &pending) == NVML_SUCCESS)
            snprintf(mig, sizeof mig, "%s%s", enabled((int)current), current != pending ? "*" : "");
        printf("| %3u  %-26.26s %6s  |   %s Off |                    0 |\n", g->index, name, persistence ? "On" : "Off", g->bus_id);
        printf("| N/A  %3uC    P0           %4uW / %4uW |  %6lluMiB / %6lluMiB |      0%%  %11.11s |\n", celsius, watt / 1000, cap / 1000,
               (memory.used + memory.reserved) >> 20, memory.total >> 20, compute_mode_name(mode));
        printf("|                                         |                        | %20s |\n", mig);
        puts("+-----------------------------------------+------------------------+----------------------+");
    }
    summary_mig(&s);
    puts("\n+-----------------------------------------------------------------------------------------+\n"
         "| Processes:                                                                              |\n"
         "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
         "|        ID   ID                                                               Usage      |\n"
         "|=========================================================================================|");
    for (int i = 0; i < s.count; i++)
        for (int k = 0, count = list_processes(s.gpus[i].handle, list, 256); k < count; k++, any++) {
            snprintf(process, sizeof process, "[Not Found]");
            nvml.nvmlSystemGetProcessName(list[k].pid, process, sizeof process);
            instance_text(list[k].gpuInstanceId, gi, sizeof gi);
            instance_text(list[k].computeInstanceId, ci, sizeof ci);
            printf("| %4u %4s %4s %16u      C   %-33.33s %8lluMiB |\n", s.gpus[i].index, gi, ci, list[k].pid, process, list[k].usedGpuMemory >> 20);
        }
    if (!any)
        puts("|  No running processes found                                                             |");
    puts("+-----------------------------------------------------------------------------------------+");
    return 0;
}

static void line(int indent, const char *name, const char *value)
{
    printf("%*s%-*s: %s\n", indent, "", 50 - indent, name, value);
}

static void query_one(const struct gpu *g)
{
    static const char *const fabric_states[] = {"N/A", "Not Started", "In Progress", "Completed"};
    static const char *const architectures[] = {"Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell"};
    char text[256];
    unsigned current, pending, number = 0;
    int mode = 0, other = 0;
    nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
    nvmlGpuFabricInfo_v3_t fabric = {.version = NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3)};
    nvmlProcessInfo_t list[256];
    printf("\nGPU %s\n", g->bus_id);
    nvml.nvmlDeviceGetName(g->handle, text, sizeof text);
    line(4, "Product Name", text);
    nvml.nvmlDeviceGetArchitecture(g->handle, &number);
    line(4, "Product Architecture", number >= 5 && number <= 10 ? architectures[number - 5] : "N/A");
    nvml.nvmlDeviceGetPersistenceMode(g->handle, &mode);
    line(4, "Persistence Mode", enabled(mode));
    puts("    MIG Mode");
    bool mig = nvml.nvmlDeviceGetMigMode(g->handle, &current, &pending) == NVML_SUCCESS;
    line(8, "Current", mig ? enabled((int)current) : "N/A");
    line(8, "Pending", mig ? enabled((int)pending) : "N/A");
    nvml.nvmlDeviceGetSerial(g->handle, text, sizeof text);
    line(4, "Serial Number", text);
    nvml.nvmlDeviceGetUUID(g->handle, text, sizeof text);
    line(4, "GPU UUID", text);
    nvml.nvmlDeviceGetMinorNumber(g->handle, &number);
    snprintf(text, sizeof text, "%u", number);
    line(4, "Minor Number", text);
    nvml.nvmlDeviceGetVbiosVersion(g->handle, text, sizeof text);
    line(4, "VBIOS Version", text);
    bool has_fabric = nvml.nvmlDeviceGetGpuFabricInfoV(g->handle, &fabric) == NVML_SUCCESS && fabric.state > 0 && fabric.state < 4;
    puts("    Fabric");
    line(8, "State", has_fabric ? fabric_states[fabric.state] : "N/A");
    line(8, "Status", has_fabric && fabric.state == NVML_FABRIC_COMPLETED ? "Success" : "N/A");
    nvml.nvmlDeviceGetMemoryInfo_v2(g->handle, &memory);
    puts("    FB Memory Usage");
    const struct { const char *name; unsigned long long bytes; } amounts[] = {
        {"Total", memory.total}, {"Reserved", memory.reserved}, {"Used", memory.used}, {"Free", memory.free}};
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%llu MiB", amounts[i].bytes >> 20);
        line(8, amounts[i].name, text);
    }
    nvml.nvmlDeviceGetComputeMode(g->handle, &mode);
    line(4, "Compute Mode", compute_mode_name(mode));
    bool ecc = nvml.nvmlDeviceGetEccMode(g->handle, &mode, &other) == NVML_SUCCESS;
    puts("    ECC Mode");
    line(8, "Current", ecc ? enabled(mode) : "N/A");
    line(8, "Pending", ecc ? enabled(other) : "N/A");
    int count = list_processes(g->handle, list, 256);
    line(4, "Processes", count ? "" : "None");
    for (int i = 0; i < count; i++) {
        char gi[12], ci[12];
        instance_text(list[i].gpuInstanceId, gi, sizeof gi);
        instance_text(list[i].computeInstanceId, ci, sizeof ci);
        line(8, "GPU instance ID", gi);
        line(8, "Compute instance ID", ci);
        snprintf(text, sizeof text, "%u", list[i].pid);
        line(8, "Process ID", text);
        line(12, "Type", "C");
        snprintf(text, sizeof text, "[Not Found]");
        nvml.nvmlSystemGetProcessName(list[i].pid, text, sizeof text);
        line(12, "Name", text);
        snprintf(text, sizeof text, "%llu MiB", list[i].usedGpuMemory >> 20);
        line(12, "Used GPU Memory", text);
    }
}

int query(const char *which)
{
    struct selection s = select_gpus(which);
    char text[80];
    int cuda;
    puts("\n==============NVSMI LOG==============\n");
    nvml.nvmlSystemGetDriverVersion(text, sizeof text);
    line(0, "Driver Version", text);
    nvml.nvmlSystemGetCudaDriverVersion_v2(&cuda);
    snprintf(text, sizeof text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    line(0, "CUDA Version", text);
    printf("\n%-50s: %d", "Attached GPUs", s.count);
    for (int i = 0; i < s.count; i++)
        query_one(&s.gpus[i]);
    return 0;
}
