/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What changes a GPU as a whole: compute mode, persistence, MIG mode, power limit, reset, time slice; and topo.
 */
#include "smi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int choice(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcasecmp(word, names[i]) == 0 || (word[0] == '0' + i && !word[1]))
            return i;
    return -1;
}

static int early_end(nvmlReturn_t result)
{
    puts("Terminating early due to previous error.");
    return result;
}

int set_compute_mode(const char *which, const char *word)
{
    static const char *const names[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"};
    int mode = choice(word, names, 4);
    if (mode < 0)
        return bad_argument("Unable to parse compute mode \"%s\".\n", word);
    struct selection s = select_gpus(which);
    for (int i = 0; i < s.count; i++) {
        nvmlReturn_t result = nvml.nvmlDeviceSetComputeMode(s.gpus[i].handle, mode);
        if (result == NVML_ERROR_NOT_SUPPORTED) {
            printf("Setting compute mode to %s is not supported for GPU %s.\nTreating as warning and moving on.\n", names[mode], s.gpus[i].bus_id);
        } else if (result != NVML_SUCCESS) {
            printf("Unable to set the compute mode to %s for GPU %s: %s\n", names[mode], s.gpus[i].bus_id, nvml.nvmlErrorString(result));
            return early_end(result);
        } else {
            printf("Set compute mode to %s for GPU %s.\n", names[mode], s.gpus[i].bus_id);
        }
    }
    puts("All done.");
    return 0;
}

int set_persistence_mode(const char *which, const char *word)
{
    static const char *const names[] = {"DISABLED", "ENABLED"};
    int mode = choice(word, names, 2);
    if (mode < 0)
        return bad_argument("Unable to parse persistence mode \"%s\".\n", word);
    struct selection s = select_gpus(which);
    for (int i = 0; i < s.count; i++) {
        nvmlReturn_t result = nvml.nvmlDeviceSetPersistenceMode(s.gpus[i].handle, mode);
        if (result != NVML_SUCCESS) {
            printf("Unable to set persistence mode for GPU %s: %s\n", s.gpus[i].bus_id, nvml.nvmlErrorString(result));
            return early_end(result);
        }
        printf("%s persistence mode for GPU %s.\n", mode ? "Enabled" : "Disabled", s.gpus[i].bus_id);
    }
    puts("All done.");
    return 0;
}

int set_mig_mode(const char *which, const char *word)
{
    static const char *const names[] = {"DISABLED", "ENABLED"};
    int mode = choice(word, names, 2);
    if (mode < 0)
        return bad_argument("Unable to parse MIG mode \"%s\".\n", word);
    struct selection s = select_gpus(which);
    const char *verb = mode ? "enable" : "disable";
    for (int i = 0; i < s.count; i++) {
        nvmlReturn_t status = NVML_SUCCESS, result = nvml.nvmlDeviceSetMigMode(s.gpus[i].handle, (unsigned)mode, &status);
        if (result == NVML_ERROR_NOT_SUPPORTED) {
            printf("Unable to %s MIG Mode for GPU %s: Not Supported\nTreating as warning and moving on.\n", verb, s.gpus[i].bus_id);
        } else if (result != NVML_SUCCESS) {
            printf("Unable to %s MIG Mode for GPU %s: %s\n", verb, s.gpus[i].bus_id, nvml.nvmlErrorString(result));
            return early_end(result);
        } else if (status == NVML_ERROR_RESET_REQUIRED) {
            printf("Warning: MIG mode is in pending %s state for GPU %s:Reset Required\n"
                   "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU %s\n",
                   verb, s.gpus[i].bus_id, s.gpus[i].bus_id);
        } else if (status == NVML_ERROR_IN_USE) {
            printf("Warning: MIG mode is in pending %s state for GPU %s:In use by another client\n"
                   "%s is currently being used by one or more other processes (e.g. CUDA application or a monitoring application such as "
                   "another instance of nvidia-smi). Please first kill all processes using the device and retry the command or reboot the "
                   "system to make MIG mode effective.\n",
                   verb, s.gpus[i].bus_id, s.gpus[i].bus_id);
        } else {
            printf("%s MIG Mode for GPU %s\n", mode ? "Enabled" : "Disabled", s.gpus[i].bus_id);
        }
    }
    puts("All done.");
    return 0;
}

int set_power_limit(const char *which, const char *watts)
{
    char *end;
    double wanted = strtod(watts, &end);
    if (!*watts || *end || wanted <= 0)
        return bad_argument("Unable to parse power limit \"%s\".\n", watts);
    struct selection s = select_gpus(which);
    for (int i = 0; i < s.count; i++) {
        unsigned before = 0, least = 0, most = 0;
        nvml.nvmlDeviceGetPowerManagementLimit(s.gpus[i].handle, &before);
        nvmlReturn_t result = nvml.nvmlDeviceSetPowerManagementLimit(s.gpus[i].handle, (unsigned)(wanted * 1000));
        if (result == NVML_ERROR_NOT_SUPPORTED) {
            printf("Changing power management limit is not supported for GPU: %s.\nTreating as warning and moving on.\n", s.gpus[i].bus_id);
        } else if (result == NVML_ERROR_INVALID_ARGUMENT) {
            nvml.nvmlDeviceGetPowerManagementLimitConstraints(s.gpus[i].handle, &least, &most);
            printf("Provided power limit %.2f W is not a valid power limit which should be between %.2f W and %.2f W for GPU %s\n", wanted,
                   least / 1000.0, most / 1000.0, s.gpus[i].bus_id);
            return early_end(result);
        } else if (result != NVML_SUCCESS) {
            printf("Failed to set power management limit for GPU %s: %s\n", s.gpus[i].bus_id, nvml.nvmlErrorString(result));
            return early_end(result);
        } else {
            printf("Power limit for GPU %s was set to %.2f W from %.2f W.\n", s.gpus[i].bus_id, wanted, before / 1000.0);
        }
    }
    puts("All done.");
    return 0;
}

int reset_gpus(const char *which)
{
    struct selection s = select_gpus(which);
    nvmlReturn_t failed = NVML_SUCCESS;
    nvml.nvmlShutdown(); /* a reset is refused while anybody, this program too, has the GPU open */
    for (int i = 0; i < s.count; i++) {
        int peers = 1;
        if (nvml.virtualGpuResetPeers((int)s.gpus[i].index, &peers) == NVML_SUCCESS && peers > s.count) {
            /* The words of the real program are not known; its manual says that it names the GPUs that have to be reset too. */
            printf("GPU %s could not be reset: GPUs with NVLink connections to it must be reset in the same command.\n", s.gpus[i].bus_id);
            return EXIT_OTHER;
        }
    }
    for (int i = 0; i < s.count; i++) {
        nvmlReturn_t result = nvml.virtualGpuReset((int)s.gpus[i].index);
        if (result == NVML_SUCCESS) {
            printf("GPU %s was successfully reset.\n", s.gpus[i].bus_id);
            continue;
        }
        failed = result;
        printf("The following GPUs could not be reset:\n  GPU %s: %s\n\n", s.gpus[i].bus_id, nvml.nvmlErrorString(result));
        if (result == NVML_ERROR_IN_USE)
            puts("1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics "
                 "application such as an X server, or a monitoring application such as another instance of nvidia-smi). Please first kill "
                 "all processes using this device and all compute applications running in the system.");
    }
    if (failed)
        return failed == NVML_ERROR_IN_USE ? EXIT_OTHER : failed;
    puts("All done.");
    return 0;
}

int compute_policy(int argc, char **argv)
{
    static const char *const names[] = {"Default", "Short", "Medium", "Long"};
    const char *which = NULL, *slice = NULL, *value;
    bool list = false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "-l") == 0 || strcmp(argv[i], "--list") == 0)
            list = true;
        else if ((value = option_value(argc, argv, &i, "-i")) || (value = option_value(argc, argv, &i, "--id")))
            which = value;
        else if ((value = option_value(argc, argv, &i, "--set-timeslice")))
            slice = value;
        else
            return bad_argument("Invalid combination of input arguments.\n");
    }
    start_nvml();
    if (slice && (strlen(slice) != 1 || *slice < '0' || *slice > '3'))
        return bad_argument("Invalid timeslice value \"%s\".\n", slice);
    if (!slice && !list)
        return bad_argument("Invalid combination of input arguments.\n");
    struct selection s = select_gpus(which);
    for (int i = 0; i < s.count; i++) {
        int value_now = slice ? atoi(slice) : -1;
        nvmlReturn_t result = nvml.virtualGpuTimeslice((int)s.gpus[i].index, &value_now);
        if (result != NVML_SUCCESS) {
            printf("Unable to set timeslice for GPU %s: %s\n", s.gpus[i].bus_id, nvml.nvmlErrorString(result));
            return result;
        }
        if (slice)
            printf("Successfully set timeslice policy for GPU %s to %s\n", s.gpus[i].bus_id, names[value_now]);
        else
            printf("+-----------------------+\n| GPU compute policies: |\n| GPU     Name   Value  |\n|=======================|\n"
                   "| %3u  Timeslice %-7s|\n+-----------------------+\n", s.gpus[i].index, names[value_now]);
    }
    return 0;
}

int topology(int argc, char **argv)
{
    if (argc < 1 || (strcmp(argv[0], "-m") != 0 && strcmp(argv[0], "--matrix") != 0))
        return bad_argument("topo -m\n");
    start_nvml();
    struct selection s = select_gpus(NULL);
    for (int i = 0; i < s.count; i++)
        printf("\tGPU%u", s.gpus[i].index);
    puts("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID");
    for (int i = 0; i < s.count; i++) {
        unsigned numa = 0;
        printf("GPU%u", s.gpus[i].index);
        for (int k = 0; k < s.count; k++) {
            int level = 0, active = 0, links = 0;
            for (unsigned link = 0; nvml.nvmlDeviceGetNvLinkState(s.gpus[i].handle, link, &active) == NVML_SUCCESS; link++)
                links += active;
            nvml.nvmlDeviceGetTopologyCommonAncestor(s.gpus[i].handle, s.gpus[k].handle, &level);
            if (i == k)
                printf("\t X ");
            else if (links)
                printf("\tNV%d", links);
            else
                printf("\t%s", level >= 50 ? "SYS" : "NODE");
        }
        nvml.nvmlDeviceGetNumaNodeId(s.gpus[i].handle, &numa);
        printf("\t\t%u\t\tN/A\n", numa);
    }
    return 0;
}
