/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * --query-gpu and --query-compute-apps.
 */
#include "smi.h"

#include <stdio.h>
#include <string.h>

static void text_value(char *text, unsigned size, nvmlReturn_t result, const char *value)
{
    snprintf(text, size, "%s", result == NVML_SUCCESS ? value : result == NVML_ERROR_NOT_SUPPORTED ? "[N/A]" : "[Unknown Error]");
}

/* The value of one field and its unit; false: no such field. */
static bool gpu_field(const struct gpu *g, const char *field, char *text, unsigned size, const char **unit)
{
    char value[128] = "";
    unsigned number = 0, second = 0;
    int mode = 0, other = 0;
    nvmlPciInfo_t pci;
    nvmlReturn_t result = NVML_SUCCESS;
    nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
    nvmlGpuFabricInfo_v3_t fabric = {.version = NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3)};
    nvmlUtilization_t load = {0, 0};
#define IS(a) (strcmp(field, a) == 0)
    *unit = "";
    nvml.nvmlDeviceGetPciInfo_v3(g->handle, &pci);
    if (IS("index"))
        snprintf(value, sizeof value, "%u", g->index);
    else if (IS("count"))
        nvml.nvmlDeviceGetCount_v2(&number), snprintf(value, sizeof value, "%u", number);
    else if (IS("name") || IS("gpu_name"))
        result = nvml.nvmlDeviceGetName(g->handle, value, sizeof value);
    else if (IS("uuid") || IS("gpu_uuid"))
        result = nvml.nvmlDeviceGetUUID(g->handle, value, sizeof value);
    else if (IS("serial") || IS("gpu_serial"))
        result = nvml.nvmlDeviceGetSerial(g->handle, value, sizeof value);
    else if (IS("vbios_version"))
        result = nvml.nvmlDeviceGetVbiosVersion(g->handle, value, sizeof value);
    else if (IS("driver_version"))
        result = nvml.nvmlSystemGetDriverVersion(value, sizeof value);
    else if (IS("pci.bus_id") || IS("gpu_bus_id"))
        snprintf(value, sizeof value, "%s", pci.busId);
    else if (IS("pci.domain"))
        snprintf(value, sizeof value, "0x%04X", pci.domain);
    else if (IS("pci.bus"))
        snprintf(value, sizeof value, "0x%02X", pci.bus);
    else if (IS("pci.device"))
        snprintf(value, sizeof value, "0x%02X", pci.device);
    else if (IS("pci.device_id"))
        snprintf(value, sizeof value, "0x%08X", pci.pciDeviceId);
    else if (IS("pci.sub_device_id"))
        snprintf(value, sizeof value, "0x%08X", pci.pciSubSystemId);
    else if (strncmp(field, "memory.", 7) == 0) {
        result = nvml.nvmlDeviceGetMemoryInfo_v2(g->handle, &memory);
        unsigned long long bytes = IS("memory.total") ? memory.total : IS("memory.used") ? memory.used
            : IS("memory.free") ? memory.free : IS("memory.reserved") ? memory.reserved : ~0ull;
        if (bytes == ~0ull)
            return false;
        snprintf(value, sizeof value, "%llu", bytes >> 20);
        *unit = "MiB";
    } else if (IS("utilization.gpu") || IS("utilization.memory")) {
        result = nvml.nvmlDeviceGetUtilizationRates(g->handle, &load);
        snprintf(value, sizeof value, "%u", IS("utilization.gpu") ? load.gpu : load.memory);
        *unit = "%";
    } else if (IS("temperature.gpu")) {
        result = nvml.nvmlDeviceGetTemperature(g->handle, 0, &number);
        snprintf(value, sizeof value, "%u", number);
    } else if (IS("power.draw") || IS("power.limit")) {
        result = IS("power.draw") ? nvml.nvmlDeviceGetPowerUsage(g->handle, &number) : nvml.nvmlDeviceGetEnforcedPowerLimit(g->handle, &number);
        snprintf(value, sizeof value, "%u.%02u", number / 1000, number % 1000 / 10);
        *unit = "W";
    } else if (IS("persistence_mode")) {
        result = nvml.nvmlDeviceGetPersistenceMode(g->handle, &mode);
        snprintf(value, sizeof value, "%s", mode ? "Enabled" : "Disabled");
    } else if (IS("compute_mode")) {
        result = nvml.nvmlDeviceGetComputeMode(g->handle, &mode);
        snprintf(value, sizeof value, "%s", compute_mode_name(mode));
    } else if (IS("compute_cap")) {
        result = nvml.nvmlDeviceGetCudaComputeCapability(g->handle, &mode, &other);
        snprintf(value, sizeof value, "%d.%d", mode, other);
    } else if (IS("mig.mode.current") || IS("mig.mode.pending")) {
        result = nvml.nvmlDeviceGetMigMode(g->handle, &number, &second);
        snprintf(value, sizeof value, "%s", (IS("mig.mode.current") ? number : second) ? "Enabled" : "Disabled");
    } else if (IS("ecc.mode.current") || IS("ecc.mode.pending")) {
        result = nvml.nvmlDeviceGetEccMode(g->handle, &mode, &other);
        snprintf(value, sizeof value, "%s", (IS("ecc.mode.current") ? mode : other) ? "Enabled" : "Disabled");
    } else if (IS("fabric.state") || IS("fabric.status")) {
        static const char *const states[] = {"N/A", "Not Started", "In Progress", "Completed"};
        result = nvml.nvmlDeviceGetGpuFabricInfoV(g->handle, &fabric);
        snprintf(value, sizeof value, "%s", IS("fabric.state") ? states[fabric.state & 3] : fabric.state == NVML_FABRIC_COMPLETED ? "Success" : "N/A");
    } else if (IS("display_mode"))
        snprintf(value, sizeof value, "[Requested functionality has been deprecated]");
    else if (IS("display_active"))
        snprintf(value, sizeof value, "Disabled");
    else if (IS("pstate"))
        snprintf(value, sizeof value, "P0");
    else
        return false;
#undef IS
    text_value(text, size, result, value);
    return true;
}

static bool app_field(const struct gpu *g, const nvmlProcessInfo_t *p, const char *field, char *text, unsigned size, const char **unit)
{
    *unit = "";
    if (strcmp(field, "pid") == 0)
        snprintf(text, size, "%u", p ? p->pid : 0);
    else if (strcmp(field, "used_memory") == 0 || strcmp(field, "used_gpu_memory") == 0) {
        snprintf(text, size, "%llu", p ? p->usedGpuMemory >> 20 : 0);
        *unit = "MiB";
    } else if (strcmp(field, "process_name") == 0 || strcmp(field, "name") == 0) {
        snprintf(text, size, "[Not Found]");
        if (p)
            nvml.nvmlSystemGetProcessName(p->pid, text, size);
    } else if (strncmp(field, "gpu_", 4) == 0 || strcmp(field, "count") == 0)
        return gpu_field(g, field, text, size, unit);
    else
        return false;
    return true;
}

struct format { bool header, units; };

static struct format parse_format(const char *text)
{
    return (struct format){!strstr(text, "noheader"), !strstr(text, "nounits")};
}

/* Print one line; p and g NULL: the header. False names the field that does not exist. */
static bool print_line(const char *fields, const struct gpu *g, const nvmlProcessInfo_t *p, bool apps, bool header, bool units)
{
    char copy[1024], text[256], *rest = copy, *field;
    const char *unit, *separator = "";
    snprintf(copy, sizeof copy, "%s", fields);
    while ((field = strsep(&rest, ",")) != NULL) {
        while (*field == ' ')
            field++;
        bool known = apps ? app_field(g, p, field, text, sizeof text, &unit) : gpu_field(g, field, text, sizeof text, &unit);
        if (!known) {
            printf("%sField \"%s\" is not a valid field to query.\n\n", *separator ? "\n" : "", field);
            return false;
        }
        if (header)
            printf(units && *unit ? "%s%s [%s]" : "%s%s", separator, strcmp(field, "used_memory") == 0 ? "used_gpu_memory" : field, unit);
        else
            printf(units && *unit && text[0] != '[' ? "%s%s %s" : "%s%s", separator, text, unit);
        separator = ", ";
    }
    puts("");
    return true;
}

int query_gpu(const char *which, const char *fields, const char *format_text)
{
    struct selection s = select_gpus(which);
    struct format format = parse_format(format_text);
    if (format.header && !print_line(fields, &s.gpus[0], NULL, false, true, format.units))
        return EXIT_BAD_ARGUMENT;
    for (int i = 0; i < s.count; i++)
        if (!print_line(fields, &s.gpus[i], NULL, false, false, format.units))
            return EXIT_BAD_ARGUMENT;
    return 0;
}

int query_compute_apps(const char *which, const char *fields, const char *format_text)
{
    struct selection s = select_gpus(which);
    struct format format = parse_format(format_text);
    nvmlProcessInfo_t list[256];
    if (format.header && !print_line(fields, &s.gpus[0], NULL, true, true, format.units))
        return EXIT_BAD_ARGUMENT;
    for (int i = 0; i < s.count; i++) {
        unsigned count = 256;
        if (nvml.nvmlDeviceGetComputeRunningProcesses_v3(s.gpus[i].handle, &count, list) != NVML_SUCCESS)
            continue;
        for (unsigned k = 0; k < count; k++)
            if (!print_line(fields, &s.gpus[i], &list[k], true, false, format.units))
                return EXIT_BAD_ARGUMENT;
    }
    return 0;
}
