/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The command line, the library and the choice of GPUs.
 */
#include "smi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nvml nvml;

static const char no_driver[] =
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n";
static const char no_library[] =
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly "
    "installed and present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your system PATH.\n";

static void load_library(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        fputs(no_library, stdout);
        exit(NVML_ERROR_LIBRARY_NOT_FOUND);
    }
#define F(name, parameters) nvml.name = (nvmlReturn_t(*) parameters)dlsym(library, #name);
    NVML_FUNCTIONS(F)
#undef F
    nvml.nvmlErrorString = (const char *(*)(nvmlReturn_t))dlsym(library, "nvmlErrorString");
}

/* "13.580.126.09" to "580.126", as the program shows it. */
static void short_version(char *text, unsigned size)
{
    char full[80];
    int major, branch, minor;
    snprintf(text, size, "N/A");
    if (nvml.nvmlSystemGetNVMLVersion(full, sizeof full) == NVML_SUCCESS && sscanf(full, "%d.%d.%d", &major, &branch, &minor) == 3)
        snprintf(text, size, "%d.%d", branch, minor);
}

void start_nvml(void)
{
    char version[32];
    if (!nvml.nvmlInit_v2)
        load_library();
    nvmlReturn_t result = nvml.nvmlInit_v2();
    if (result == NVML_SUCCESS)
        return;
    if (result == NVML_ERROR_DRIVER_NOT_LOADED)
        fputs(no_driver, stdout);
    else
        printf("Failed to initialize NVML: %s\n", nvml.nvmlErrorString(result));
    if (result == NVML_ERROR_LIB_RM_VERSION_MISMATCH) {
        short_version(version, sizeof version);
        printf("NVML library version: %s\n", version);
    }
    exit(result);
}

int bad_argument(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    return EXIT_BAD_ARGUMENT;
}

bool mig_is_on(nvmlDevice_t device)
{
    unsigned current, pending;
    return nvml.nvmlDeviceGetMigMode(device, &current, &pending) == NVML_SUCCESS && current;
}

const char *compute_mode_name(int mode)
{
    static const char *const names[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    return mode >= 0 && mode < 4 ? names[mode] : "Unknown";
}

/* ---- GPUs ---- */

static void add_gpu(struct selection *s, nvmlDevice_t handle)
{
    nvmlPciInfo_t pci;
    struct gpu *gpu = &s->gpus[s->count++];
    gpu->handle = handle;
    nvml.nvmlDeviceGetIndex(handle, &gpu->index);
    nvml.nvmlDeviceGetPciInfo_v3(handle, &pci);
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%s", pci.busId);
}

static void lost_gpu(unsigned index, nvmlReturn_t why)
{
    printf("Unable to determine the device handle for GPU%u: %s%s\n", index, nvml.nvmlErrorString(why),
           why == NVML_ERROR_GPU_IS_LOST ? ".  Reboot the system to recover this GPU" : "");
    exit(why);
}

static nvmlReturn_t find_gpu(const char *word, nvmlDevice_t *handle)
{
    char *end;
    unsigned long index = strtoul(word, &end, 10);
    if (*word && !*end && strlen(word) < 5)
        return nvml.nvmlDeviceGetHandleByIndex_v2((unsigned)index, handle);
    if (strncmp(word, "GPU-", 4) == 0)
        return nvml.nvmlDeviceGetHandleByUUID(word, handle);
    if (strchr(word, ':'))
        return nvml.nvmlDeviceGetHandleByPciBusId_v2(word, handle);
    return nvml.nvmlDeviceGetHandleBySerial(word, handle);
}

struct selection select_gpus(const char *text)
{
    struct selection s = {.count = 0};
    nvmlDevice_t handle;
    unsigned count = 0;
    if (!text) {
        nvml.nvmlDeviceGetCount_v2(&count);
        for (unsigned i = 0; i < count && i < MAX_SELECTED; i++) {
            nvmlReturn_t result = nvml.nvmlDeviceGetHandleByIndex_v2(i, &handle);
            if (result != NVML_SUCCESS)
                lost_gpu(i, result);
            add_gpu(&s, handle);
        }
        if (count == 0) {
            puts("No devices were found");
            exit(NVML_ERROR_NOT_FOUND);
        }
        return s;
    }
    char copy[1024], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", text);
    while ((word = strsep(&rest, ",")) != NULL && s.count < MAX_SELECTED) {
        nvmlReturn_t result = find_gpu(word, &handle);
        if (result == NVML_ERROR_GPU_IS_LOST)
            lost_gpu((unsigned)atoi(word), result);
        if (result != NVML_SUCCESS) {
            puts("No devices were found");
            exit(NVML_ERROR_NOT_FOUND);
        }
        add_gpu(&s, handle);
    }
    return s;
}

/* ---- Command line ---- */

const char *option_value(int argc, char **argv, int *i, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(argv[*i], name, length) == 0 && argv[*i][length] == '=')
        return argv[*i] + length + 1;
    if (strcmp(argv[*i], name) == 0 && *i + 1 < argc)
        return argv[++*i];
    return NULL;
}

static int version(void)
{
    char text[80];
    int cuda;
    load_library();
    short_version(text, sizeof text);
    nvmlReturn_t result = nvml.nvmlInit_v2();
    char own[80] = "N/A";
    nvml.nvmlSystemGetNVMLVersion(own, sizeof own);
    printf("NVIDIA-SMI version  : %s\nNVML version        : %s\n", strchr(own, '.') ? strchr(own, '.') + 1 : own, text);
    if (result != NVML_SUCCESS)
        start_nvml();
    nvml.nvmlSystemGetDriverVersion(text, sizeof text);
    nvml.nvmlSystemGetCudaDriverVersion_v2(&cuda);
    printf("DRIVER version      : %s\nCUDA Version        : %d.%d\n", text, cuda / 1000, cuda % 1000 / 10);
    return 0;
}

int main(int argc, char **argv)
{
    const char *which = NULL, *gpu_fields = NULL, *app_fields = NULL, *format = NULL, *compute = NULL, *persistence = NULL, *mig = NULL;
    const char *limit = NULL, *value;
    bool list = false, full = false, reset = false;
    if (argc > 1 && strcmp(argv[1], "mig") == 0)
        return mig_command(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "compute-policy") == 0)
        return compute_policy(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "topo") == 0)
        return topology(argc - 2, argv + 2);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--version") == 0)
            return version();
        else if (strcmp(argv[i], "-L") == 0 || strcmp(argv[i], "--list-gpus") == 0)
            list = true;
        else if (strcmp(argv[i], "-q") == 0 || strcmp(argv[i], "--query") == 0)
            full = true;
        else if (strcmp(argv[i], "-r") == 0 || strcmp(argv[i], "--gpu-reset") == 0)
            reset = true;
        else if ((value = option_value(argc, argv, &i, "-i")) || (value = option_value(argc, argv, &i, "--id")))
            which = value;
        else if ((value = option_value(argc, argv, &i, "--query-gpu")))
            gpu_fields = value;
        else if ((value = option_value(argc, argv, &i, "--query-compute-apps")))
            app_fields = value;
        else if ((value = option_value(argc, argv, &i, "--format")))
            format = value;
        else if ((value = option_value(argc, argv, &i, "-c")) || (value = option_value(argc, argv, &i, "--compute-mode")))
            compute = value;
        else if ((value = option_value(argc, argv, &i, "-pm")) || (value = option_value(argc, argv, &i, "--persistence-mode")))
            persistence = value;
        else if ((value = option_value(argc, argv, &i, "-mig")) || (value = option_value(argc, argv, &i, "--multi-instance-gpu")))
            mig = value;
        else if ((value = option_value(argc, argv, &i, "-pl")) || (value = option_value(argc, argv, &i, "--power-limit")))
            limit = value;
        else if ((value = option_value(argc, argv, &i, "-d")) || (value = option_value(argc, argv, &i, "--display")))
            full = true; /* one section asked, all shown */
        else {
            printf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n\n", argv[i]);
            return EXIT_OTHER;
        }
    }
    if ((gpu_fields || app_fields) && (!format || strncmp(format, "csv", 3) != 0))
        return bad_argument("\"--query-*=\" switches require to specify --format switch.\n");
    start_nvml();
    if (list)
        return list_gpus(which);
    if (gpu_fields)
        return query_gpu(which, gpu_fields, format);
    if (app_fields)
        return query_compute_apps(which, app_fields, format);
    if (compute)
        return set_compute_mode(which, compute);
    if (persistence)
        return set_persistence_mode(which, persistence);
    if (mig)
        return set_mig_mode(which, mig);
    if (limit)
        return set_power_limit(which, limit);
    if (reset)
        return reset_gpus(which);
    return full ? query(which) : summary(which);
}
