/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the lab's nvidia-smi needs and public NVML has no call for: GPU reset and time slice. Real nvidia-smi asks the
 * driver by private ways; these two symbols are ours.
 */
#include "nvml_call.h"

EXPORT nvmlReturn_t virtualGpuReset(int index);
EXPORT nvmlReturn_t virtualGpuResetPeers(int index, int *peers);
EXPORT nvmlReturn_t virtualGpuTimeslice(int index, int *timeslice);

/* Reset the GPU of this index. Refused while anybody holds it: a process, or another process that has NVML open. */
nvmlReturn_t virtualGpuReset(int index)
{
    struct machine m;
    nvmlReturn_t fault = call_begin("gpuReset"), result = NVML_SUCCESS;
    if (fault != FAULT_NONE)
        return fault;
    if (!is_privileged())
        return call_end("gpuReset", NVML_ERROR_NO_PERMISSION);
    if (machine_change(&m) != 0)
        return call_end("gpuReset", NVML_ERROR_UNKNOWN);
    int gpu = gpu_at_index(&m, (unsigned)index);
    if (gpu < 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if (m.hardware.passthrough)
        result = NVML_ERROR_NOT_SUPPORTED;
    else if (m.running.gpus[gpu].lost)
        result = NVML_ERROR_GPU_IS_LOST;
    else if (gpu_is_used(&m, gpu, 0) || others_have_nvml_open())
        result = NVML_ERROR_IN_USE;
    else
        gpu_reset_state(&m, gpu);
    return call_end("gpuReset", finish_change(&m, result));
}

/* How many GPUs have to be reset in the same command as the one of this index, itself among them. */
nvmlReturn_t virtualGpuResetPeers(int index, int *peers)
{
    struct machine m;
    int gpu = machine_read(&m) == 0 ? gpu_at_index(&m, (unsigned)index) : -1;
    if (gpu < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *peers = m.running.gpus[gpu].reset_with_peers ? (int)m.hardware.gpu_count : 1;
    return NVML_SUCCESS;
}

/* Set the time slice (0 default to 3 long), or read it when *timeslice is negative. */
nvmlReturn_t virtualGpuTimeslice(int index, int *timeslice)
{
    struct machine m;
    if (*timeslice < 0) {
        int gpu = machine_read(&m) == 0 ? gpu_at_index(&m, (unsigned)index) : -1;
        if (gpu < 0)
            return NVML_ERROR_INVALID_ARGUMENT;
        *timeslice = m.running.gpus[gpu].timeslice;
        return NVML_SUCCESS;
    }
    if (!is_privileged())
        return NVML_ERROR_NO_PERMISSION;
    if (*timeslice > 3 || machine_change(&m) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    int gpu = gpu_at_index(&m, (unsigned)index);
    if (gpu < 0)
        return finish_change(&m, NVML_ERROR_INVALID_ARGUMENT);
    m.running.gpus[gpu].timeslice = (uint8_t)*timeslice;
    return finish_change(&m, NVML_SUCCESS);
}
