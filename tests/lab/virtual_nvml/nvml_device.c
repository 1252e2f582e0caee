/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Finding devices, and what identifies them.
 */
#include "nvml_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

NVML_CALL(nvmlDeviceGetCount_v2, (unsigned *count), (count))
{
    struct machine m;
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (machine_read(&m) != 0)
        return NVML_ERROR_UNKNOWN;
    *count = (unsigned)gpu_count_accessible(&m);
    return NVML_SUCCESS;
}
NVML_ALIAS(nvmlDeviceGetCount, nvmlDeviceGetCount_v2, (unsigned *count), (count))

static nvmlReturn_t found_gpu(const struct machine *m, int gpu, nvmlDevice_t *device)
{
    if (!gpu_accessible(m, gpu))
        return NVML_ERROR_NOT_FOUND;
    if (m->running.gpus[gpu].lost)
        return NVML_ERROR_GPU_IS_LOST;
    *device = gpu_handle(gpu);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device), (index, device))
{
    struct machine m;
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    int gpu = device && machine_read(&m) == 0 ? gpu_at_index(&m, index) : -1;
    return gpu < 0 ? NVML_ERROR_INVALID_ARGUMENT : found_gpu(&m, gpu, device);
}
NVML_ALIAS(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device), (index, device))

/* A GPU's UUID, a MIG device's, or the form of drivers before 470: MIG-GPU-<uuid>/<gi>/<ci>. */
static nvmlReturn_t by_uuid(const char *uuid, nvmlDevice_t *device)
{
    struct machine m;
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    if (!uuid || !device || machine_read(&m) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)m.hardware.gpu_count; gpu++) {
        if (strcmp(m.hardware.gpus[gpu].uuid, uuid) == 0)
            return found_gpu(&m, gpu, device);
        for (int slot = 0; slot < MAX_MIG_DEVICES; slot++) {
            const struct mig_slot *mig = &m.running.gpus[gpu].slots[slot];
            char text[96], old[96];
            mig_uuid(&m.hardware.gpus[gpu], mig->gpu_instance, mig->compute_instance, text, sizeof text);
            snprintf(old, sizeof old, "MIG-%s/%d/%d", m.hardware.gpus[gpu].uuid, mig->gpu_instance, mig->compute_instance);
            if (mig->used && (strcmp(text, uuid) == 0 || strcmp(old, uuid) == 0)) {
                if (!gpu_accessible(&m, gpu) || !mig_accessible(gpu, mig->gpu_instance, mig->compute_instance))
                    return NVML_ERROR_NOT_FOUND;
                *device = mig_device_handle(gpu, mig->gpu_instance, mig->compute_instance);
                return NVML_SUCCESS;
            }
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_CALL(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *device), (uuid, device)) { return by_uuid(uuid, device); }

NVML_CALL(nvmlDeviceGetHandleByUUIDV, (const nvmlUUID_t *uuid, nvmlDevice_t *device), (uuid, device))
{
    if (!uuid || uuid->version != NVML_STRUCT_VERSION(nvmlUUID_t, 1))
        return uuid ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT;
    return uuid->type == 1 ? by_uuid(uuid->value.str, device) : NVML_ERROR_NOT_SUPPORTED;
}

NVML_CALL(nvmlDeviceGetHandleBySerial, (const char *serial, nvmlDevice_t *device), (serial, device))
{
    struct machine m;
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    if (!serial || !device || machine_read(&m) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int gpu = 0; gpu < (int)m.hardware.gpu_count; gpu++)
        if (strcmp(m.hardware.gpus[gpu].serial, serial) == 0)
            return found_gpu(&m, gpu, device);
    return NVML_ERROR_NOT_FOUND;
}

NVML_CALL(nvmlDeviceGetHandleByPciBusId_v2, (const char *address, nvmlDevice_t *device), (address, device))
{
    struct machine m;
    unsigned domain = 0, bus, slot, function = 0;
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    if (!address || !device || machine_read(&m) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(address, "%x:%x.%x", &bus, &slot, &function) < 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (int gpu = 0; gpu < (int)m.hardware.gpu_count; gpu++)
        if (domain == 0 && slot == 0 && m.hardware.gpus[gpu].bus == bus)
            return found_gpu(&m, gpu, device);
    return NVML_ERROR_NOT_FOUND;
}
NVML_ALIAS(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2, (const char *address, nvmlDevice_t *device), (address, device))

/* ---- Identity ---- */

NVML_CALL(nvmlDeviceGetName, (nvmlDevice_t device, char *name, unsigned length), (device, name, length))
{
    struct machine m;
    struct handle at;
    char text[256], profile[64];
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS)
        return result;
    const char *product = m.hardware.gpus[at.gpu].product_name;
    snprintf(text, sizeof text, "%s", product);
    if (at.kind == HANDLE_MIG_DEVICE) {
        unsigned compute = m.running.gpus[at.gpu].instances[at.gpu_instance].compute[at.compute_instance].profile;
        mig_compute_name(gpu_board(&m, at.gpu), mig_row(&m, at.gpu, at.gpu_instance), compute, profile, sizeof profile);
        snprintf(text, sizeof text, "%s MIG %s", product, profile);
    }
    return copy_text(name, length, text);
}

NVML_CALL(nvmlDeviceGetUUID, (nvmlDevice_t device, char *uuid, unsigned length), (device, uuid, length))
{
    struct machine m;
    struct handle at;
    char text[96];
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof text, "%s", m.hardware.gpus[at.gpu].uuid);
    if (at.kind == HANDLE_MIG_DEVICE)
        mig_uuid(&m.hardware.gpus[at.gpu], at.gpu_instance, at.compute_instance, text, sizeof text);
    return copy_text(uuid, length, text);
}

/* Of a MIG device the index with which its GPU gives the same handle (nvml.h: "indices that can be passed to
 * nvmlDeviceGetMigDeviceHandleByIndex to retrieve an identical handle"). */
NVML_CALL(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned *index), (device, index))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS || !index)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    int found = at.kind == HANDLE_MIG_DEVICE ? mig_index(&m, at.gpu, at.gpu_instance, at.compute_instance) : gpu_index(&m, at.gpu);
    if (found < 0)
        return NVML_ERROR_NOT_FOUND;
    *index = (unsigned)found;
    return NVML_SUCCESS;
}

/* A call that answers with one number of one GPU. */
#define NVML_NUMBER(name, type, expression)                         \
    NVML_CALL(name, (nvmlDevice_t device, type *value), (device, value)) \
    {                                                               \
        struct machine m;                                           \
        int gpu;                                                    \
        nvmlReturn_t result = open_gpu(&m, device, &gpu);           \
        if (result != NVML_SUCCESS)                                 \
            return result;                                          \
        if (!value)                                                 \
            return NVML_ERROR_INVALID_ARGUMENT;                     \
        const struct board *board = gpu_board(&m, gpu);             \
        const struct running_gpu *now = &m.running.gpus[gpu];       \
        (void)board, (void)now;                                     \
        *value = (type)(expression);                                \
        return NVML_SUCCESS;                                        \
    }

NVML_NUMBER(nvmlDeviceGetMinorNumber, unsigned, gpu_minor(gpu))
NVML_NUMBER(nvmlDeviceGetBrand, int, board->brand)
NVML_NUMBER(nvmlDeviceGetArchitecture, unsigned, board->architecture)
NVML_NUMBER(nvmlDeviceGetVirtualizationMode, int, m.hardware.passthrough ? 1 : 0)
NVML_NUMBER(nvmlDeviceGetBoardId, unsigned, m.hardware.gpus[gpu].bus << 8)
NVML_NUMBER(nvmlDeviceGetMultiGpuBoard, unsigned, 0)
NVML_NUMBER(nvmlDeviceGetDisplayMode, int, 0)
NVML_NUMBER(nvmlDeviceGetDisplayActive, int, 0)
NVML_NUMBER(nvmlDeviceGetBusType, unsigned, 2)
NVML_NUMBER(nvmlDeviceGetNumaNodeId, unsigned, m.hardware.gpus[gpu].numa_node)
NVML_NUMBER(nvmlDeviceGetNumGpuCores, unsigned, board->multiprocessors * (board->architecture >= NVML_ARCH_HOPPER ? 128 : 64))
NVML_NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, board->bus_width)
NVML_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, board->architecture >= NVML_ARCH_HOPPER ? 5 : 4)
NVML_NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, board->architecture >= NVML_ARCH_HOPPER ? 5 : 4)
NVML_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, board->architecture >= NVML_ARCH_HOPPER ? 5 : 4)
NVML_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
NVML_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
NVML_NUMBER(nvmlDeviceGetPerformanceState, int, 0)
NVML_NUMBER(nvmlDeviceGetPowerState, int, 0)
NVML_NUMBER(nvmlDeviceGetPowerUsage, unsigned, board->power_watt * 1000 / 10)
NVML_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 1) /* idle */
NVML_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 1)
NVML_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, int, 0)
NVML_NUMBER(nvmlDeviceGetPersistenceMode, int, now->persistence)
NVML_NUMBER(nvmlDeviceGetComputeMode, int, now->compute_mode)
NVML_NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, NVML_EVENT_SUPPORTED)
/* "Returns zero if MIG is not supported or enabled" (nvml.h): nvidia-ctk asks for no instance then. */
NVML_NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, now->mig_current ? board->slices : 0)

/* A call that answers with one text of one GPU. */
#define NVML_TEXT(name, expression)                                 \
    NVML_CALL(name, (nvmlDevice_t device, char *text, unsigned length), (device, text, length)) \
    {                                                               \
        struct machine m;                                           \
        int gpu;                                                    \
        nvmlReturn_t result = open_gpu(&m, device, &gpu);           \
        return result == NVML_SUCCESS ? copy_text(text, length, expression) : result; \
    }

NVML_TEXT(nvmlDeviceGetSerial, m.hardware.gpus[gpu].serial)
NVML_TEXT(nvmlDeviceGetVbiosVersion, m.hardware.gpus[gpu].vbios)
NVML_TEXT(nvmlDeviceGetBoardPartNumber, "900-21010-0000-000")
NVML_TEXT(nvmlDeviceGetInforomImageVersion, "G520.0200.00.05")

NVML_CALL(nvmlDeviceGetGspFirmwareVersion, (nvmlDevice_t device, char *version), (device, version))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    return result == NVML_SUCCESS ? copy_text(version, 64, library_version()) : result;
}

NVML_CALL(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t device, int *major, int *minor), (device, major, minor))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS)
        return result;
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = gpu_board(&m, at.gpu)->capability_major;
    *minor = gpu_board(&m, at.gpu)->capability_minor;
    return NVML_SUCCESS;
}

/* ---- PCI ---- */

struct pci { unsigned bus, device_id, subsystem_id, pci_class; };

static nvmlReturn_t pci_of(nvmlDevice_t device, const void *answer, struct pci *pci)
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS || !answer)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    const struct board *b = gpu_board(&m, gpu);
    *pci = (struct pci){m.hardware.gpus[gpu].bus, (unsigned)b->device_id << 16 | 0x10DE, (unsigned)b->subsystem_id << 16 | 0x10DE,
                        (unsigned)b->pci_class};
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *info), (device, info))
{
    struct pci pci;
    nvmlReturn_t result = pci_of(device, info, &pci);
    if (result != NVML_SUCCESS)
        return result;
    *info = (nvmlPciInfo_t){.bus = pci.bus, .pciDeviceId = pci.device_id, .pciSubSystemId = pci.subsystem_id};
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", pci.bus);
    snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", pci.bus);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetPciInfo_v2, (nvmlDevice_t device, nvmlPciInfo_v2_t *info), (device, info))
{
    struct pci pci;
    nvmlReturn_t result = pci_of(device, info, &pci);
    if (result != NVML_SUCCESS)
        return result;
    *info = (nvmlPciInfo_v2_t){.bus = pci.bus, .pciDeviceId = pci.device_id, .pciSubSystemId = pci.subsystem_id};
    snprintf(info->busId, sizeof info->busId, "0000:%02X:00.0", pci.bus);
    return NVML_SUCCESS;
}
NVML_ALIAS(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2, (nvmlDevice_t device, nvmlPciInfo_v2_t *info), (device, info))

NVML_CALL(nvmlDeviceGetPciInfoExt, (nvmlDevice_t device, nvmlPciInfoExt_v1_t *info), (device, info))
{
    struct pci pci;
    nvmlReturn_t result = pci_of(device, info, &pci);
    if (result != NVML_SUCCESS)
        return result;
    if (info->version != NVML_STRUCT_VERSION(nvmlPciInfoExt_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *info = (nvmlPciInfoExt_v1_t){.version = info->version, .bus = pci.bus, .pciDeviceId = pci.device_id,
                                  .pciSubSystemId = pci.subsystem_id, .baseClass = pci.pci_class >> 16, .subClass = pci.pci_class >> 8 & 0xFF};
    snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", pci.bus);
    return NVML_SUCCESS;
}

/* ---- Memory and load ---- */

static const unsigned long long MIB = 1024 * 1024;
enum { RESERVED_MIB = 630 }; /* of a whole GPU, for the driver */

/* MiB of the device behind the handle: total and what its processes use. */
static nvmlReturn_t memory_of(nvmlDevice_t device, const void *answer, unsigned long long *total, unsigned long long *used)
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS || !answer)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    bool mig = at.kind == HANDLE_MIG_DEVICE;
    *total = (unsigned long long)(mig ? mig_row(&m, at.gpu, at.gpu_instance)->memory_mib : gpu_board(&m, at.gpu)->memory_mib);
    *used = 0;
    for (uint32_t i = 0; i < m.running.process_count; i++) {
        const struct gpu_process *p = &m.running.processes[i];
        if (p->gpu == at.gpu && (!mig || p->gpu_instance == at.gpu_instance))
            *used += (unsigned long long)p->memory_mib;
    }
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory), (device, memory))
{
    unsigned long long total, used;
    nvmlReturn_t result = memory_of(device, memory, &total, &used);
    if (result != NVML_SUCCESS)
        return result;
    unsigned long long reserved = total > 2 * RESERVED_MIB ? RESERVED_MIB : 0; /* version 1 counts it as used */
    *memory = (nvmlMemory_t){total * MIB, (total - used - reserved) * MIB, (used + reserved) * MIB};
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *memory), (device, memory))
{
    unsigned long long total, used;
    nvmlReturn_t result = memory_of(device, memory, &total, &used);
    if (result != NVML_SUCCESS)
        return result;
    if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned long long reserved = total > 2 * RESERVED_MIB ? RESERVED_MIB : 0;
    *memory = (nvmlMemory_v2_t){memory->version, total * MIB, reserved * MIB, (total - used - reserved) * MIB, used * MIB};
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetBAR1MemoryInfo, (nvmlDevice_t device, nvmlBAR1Memory_t *memory), (device, memory))
{
    struct machine m;
    struct handle at;
    nvmlReturn_t result = open_device(&m, device, &at);
    if (result != NVML_SUCCESS || !memory)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    unsigned long long total = (unsigned long long)gpu_board(&m, at.gpu)->bar1_mib;
    *memory = (nvmlBAR1Memory_t){total * MIB, (total - 1) * MIB, 1 * MIB};
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t *utilization), (device, utilization))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (m.running.gpus[gpu].mig_current)
        return NVML_ERROR_NOT_SUPPORTED;
    *utilization = (nvmlUtilization_t){0, 0};
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetTemperature, (nvmlDevice_t device, int sensor, unsigned *celsius), (device, sensor, celsius))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result == NVML_SUCCESS && (sensor != 0 || !celsius))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *celsius = 31;
    return result;
}

NVML_CALL(nvmlDeviceGetTemperatureV, (nvmlDevice_t device, nvmlTemperature_v1_t *temperature), (device, temperature))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result == NVML_SUCCESS && temperature->version != NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS && temperature->sensorType != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        temperature->temperature = 31;
    return result;
}

/* ---- Modes ---- */

static bool has_ecc(const struct board *b)
{
    return b->brand != 5; /* all but GeForce */
}

NVML_CALL(nvmlDeviceGetEccMode, (nvmlDevice_t device, int *current, int *pending), (device, current, pending))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!has_ecc(gpu_board(&m, gpu)))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = m.running.gpus[gpu].ecc_current;
    *pending = m.hardware.gpus[gpu].ecc_pending;
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetTotalEccErrors, (nvmlDevice_t device, int error, int counter, unsigned long long *count), (device, error, counter, count))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!has_ecc(gpu_board(&m, gpu)) || !m.running.gpus[gpu].ecc_current)
        return NVML_ERROR_NOT_SUPPORTED;
    if (error < 0 || error > 1 || counter < 0 || counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = error == 1 ? m.running.gpus[gpu].uncorrected_errors : 0;
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetRemappedRows, (nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed),
          (device, correctable, uncorrectable, pending, failed))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (gpu_board(&m, gpu)->architecture < NVML_ARCH_AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    *correctable = m.hardware.gpus[gpu].remapped_correctable;
    *uncorrectable = m.hardware.gpus[gpu].remapped_uncorrectable;
    *pending = m.running.gpus[gpu].remap_pending;
    *failed = m.hardware.gpus[gpu].remap_failed;
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int count, nvmlFieldValue_t *values), (device, count, values))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = open_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!values || count <= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (values[i].fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
            continue;
        values[i].nvmlReturn = NVML_SUCCESS;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.uiVal = m.running.gpus[gpu].recovery_action;
    }
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceSetPersistenceMode, (nvmlDevice_t device, int mode), (device, mode))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (mode == 0 || mode == 1)
        m.running.gpus[gpu].persistence = mode == 1;
    return finish_change(&m, mode == 0 || mode == 1 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

/* With MIG on, the mode is DEFAULT and cannot be changed. EXCLUSIVE_THREAD is gone since CUDA 8. */
NVML_CALL(nvmlDeviceSetComputeMode, (nvmlDevice_t device, int mode), (device, mode))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = change_gpu(&m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (mode < 0 || mode >= NVML_COMPUTEMODE_COUNT)
        return finish_change(&m, NVML_ERROR_INVALID_ARGUMENT);
    if (m.running.gpus[gpu].mig_current || mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
        return finish_change(&m, NVML_ERROR_NOT_SUPPORTED);
    m.running.gpus[gpu].compute_mode = (uint8_t)mode;
    return finish_change(&m, NVML_SUCCESS);
}
