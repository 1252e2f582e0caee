/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * NVLink, fabric and topology: enough to tell an SXM board behind switches from a card in a slot.
 */
#include "nvml_call.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t link_of(nvmlDevice_t device, unsigned link, const void *answer, struct machine *m, int *gpu)
{
    nvmlReturn_t result = open_gpu(m, device, gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!answer)
        return NVML_ERROR_INVALID_ARGUMENT;
    int links = gpu_board(m, *gpu)->nvlinks;
    if (links == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    return link < (unsigned)links ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_CALL(nvmlDeviceGetNvLinkState, (nvmlDevice_t device, unsigned link, int *active), (device, link, active))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = link_of(device, link, active, &m, &gpu);
    if (result == NVML_SUCCESS)
        *active = m.hardware.nvswitch_count > 0; /* without switches the links lead nowhere */
    return result;
}

NVML_CALL(nvmlDeviceGetNvLinkVersion, (nvmlDevice_t device, unsigned link, unsigned *version), (device, link, version))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = link_of(device, link, version, &m, &gpu);
    if (result == NVML_SUCCESS)
        *version = gpu_board(&m, gpu)->architecture == NVML_ARCH_AMPERE ? 5 : gpu_board(&m, gpu)->architecture == NVML_ARCH_HOPPER ? 6 : 7;
    return result;
}

NVML_CALL(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t device, unsigned link, nvmlPciInfo_t *info), (device, link, info))
{
    struct machine m;
    int gpu;
    nvmlReturn_t result = link_of(device, link, info, &m, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (m.hardware.nvswitch_count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned bus = 0x05 + link % m.hardware.nvswitch_count;
    *info = (nvmlPciInfo_t){.bus = bus, .pciDeviceId = 0x22A310DE};
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", bus);
    snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", bus);
    return NVML_SUCCESS;
}
NVML_ALIAS(nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2,
           (nvmlDevice_t device, unsigned link, nvmlPciInfo_t *info), (device, link, info))

/* ---- Fabric ---- */

static nvmlReturn_t fabric_of(nvmlDevice_t device, const void *answer, struct machine *m)
{
    int gpu;
    nvmlReturn_t result = open_gpu(m, device, &gpu);
    if (result != NVML_SUCCESS)
        return result;
    if (!answer)
        return NVML_ERROR_INVALID_ARGUMENT;
    return gpu_board(m, gpu)->architecture >= NVML_ARCH_HOPPER ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* The GPUs of a rack are in its cluster; those of one host are by themselves. */
static void put_in_rack(const struct machine *m, unsigned char cluster[16], unsigned *clique)
{
    memset(cluster, machine_in_rack(m) ? 0x72 : 0, 16);
    *clique = machine_in_rack(m);
}

NVML_CALL(nvmlDeviceGetGpuFabricInfo, (nvmlDevice_t device, nvmlGpuFabricInfo_t *info), (device, info))
{
    struct machine m;
    nvmlReturn_t result = fabric_of(device, info, &m);
    if (result != NVML_SUCCESS)
        return result;
    *info = (nvmlGpuFabricInfo_t){.state = m.running.fabric_state, .status = (nvmlReturn_t)m.running.fabric_status};
    put_in_rack(&m, info->clusterUuid, &info->cliqueId);
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetGpuFabricInfoV, (nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info), (device, info))
{
    struct machine m;
    nvmlReturn_t result = fabric_of(device, info, &m);
    if (result != NVML_SUCCESS)
        return result;
    bool v2 = info->version == NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2);
    if (!v2 && info->version != NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    put_in_rack(&m, info->clusterUuid, &info->cliqueId);
    info->status = (nvmlReturn_t)m.running.fabric_status;
    info->state = m.running.fabric_state;
    info->healthMask = m.running.fabric_mask;
    if (!v2)
        info->healthSummary = m.running.fabric_state == NVML_FABRIC_COMPLETED ? m.running.fabric_summary : 0;
    return NVML_SUCCESS;
}

/* ---- Topology ---- */

NVML_CALL(nvmlDeviceGetTopologyCommonAncestor, (nvmlDevice_t one, nvmlDevice_t other, int *level), (one, other, level))
{
    struct machine m;
    int a, b;
    nvmlReturn_t result = open_gpu(&m, one, &a);
    if (result == NVML_SUCCESS)
        result = open_gpu(&m, other, &b);
    if (result != NVML_SUCCESS || !level)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    if (a == b)
        return NVML_ERROR_NOT_SUPPORTED;
    *level = m.hardware.gpus[a].numa_node == m.hardware.gpus[b].numa_node ? 40 : 50; /* NODE, SYSTEM */
    return NVML_SUCCESS;
}

NVML_CALL(nvmlDeviceGetP2PStatus, (nvmlDevice_t one, nvmlDevice_t other, int capability, int *status), (one, other, capability, status))
{
    struct machine m;
    int a, b;
    nvmlReturn_t result = open_gpu(&m, one, &a);
    if (result == NVML_SUCCESS)
        result = open_gpu(&m, other, &b);
    if (result != NVML_SUCCESS || !status)
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    (void)capability;
    *status = m.running.gpus[a].mig_current || m.running.gpus[b].mig_current ? 4 : 0; /* DISABLED_BY_REGKEY, OK */
    return NVML_SUCCESS;
}
