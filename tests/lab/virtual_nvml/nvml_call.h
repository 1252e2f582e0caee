/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What every function of the library is made of.
 */
#ifndef NVML_CALL_H
#define NVML_CALL_H

#include "model.h"

#define EXPORT __attribute__((visibility("default")))

/* Define NVML function `name`: the exported symbol counts, records and fails the call on demand; the body that follows
 * the macro is the model. `arguments` repeats the names of the parameters. */
#define NVML_CALL(name, parameters, arguments)                      \
    static nvmlReturn_t model_##name parameters;                    \
    EXPORT nvmlReturn_t name parameters;                            \
    EXPORT nvmlReturn_t name parameters                             \
    {                                                               \
        nvmlReturn_t fault_ = call_begin(#name);                    \
        if (fault_ != FAULT_NONE)                                   \
            return fault_;                                          \
        return call_end(#name, model_##name arguments);             \
    }                                                               \
    static nvmlReturn_t model_##name parameters

/* A second name (an older version of the same signature) of a function that NVML_CALL defined in this file. */
#define NVML_ALIAS(alias, name, parameters, arguments)              \
    NVML_CALL(alias, parameters, arguments)                         \
    {                                                               \
        return model_##name arguments;                              \
    }

enum handle_kind { HANDLE_GPU = 0x47505531, HANDLE_MIG_DEVICE, HANDLE_GPU_INSTANCE, HANDLE_COMPUTE_INSTANCE };

/* What an NVML handle points to; never freed, so a stale one is recognised and not followed into nowhere. */
struct handle { enum handle_kind kind; int gpu, gpu_instance, compute_instance; };

nvmlReturn_t require_init(void);
bool others_have_nvml_open(void);
bool is_privileged(void); /* root, or what VIRTUAL_GPU_PRIVILEGED says (0 or 1) */

/* Read the machine and check the handle in one step; the GPU's or instance's numbers go to `where`. */
nvmlReturn_t open_device(struct machine *m, nvmlDevice_t device, struct handle *where);   /* a GPU or a MIG device */
nvmlReturn_t open_gpu(struct machine *m, nvmlDevice_t device, int *gpu);                  /* a GPU only */
nvmlReturn_t open_gpu_instance(struct machine *m, nvmlGpuInstance_t instance, struct handle *where);
nvmlReturn_t open_compute_instance(struct machine *m, nvmlComputeInstance_t instance, struct handle *where);

/* The same for a change: under the lock, as root; on success end with finish_change(). */
nvmlReturn_t change_gpu(struct machine *m, nvmlDevice_t device, int *gpu);
nvmlReturn_t change_gpu_instance(struct machine *m, nvmlGpuInstance_t instance, struct handle *where);
nvmlReturn_t change_compute_instance(struct machine *m, nvmlComputeInstance_t instance, struct handle *where);
nvmlReturn_t finish_change(struct machine *m, nvmlReturn_t result); /* commit a success, drop a failure */

nvmlDevice_t gpu_handle(int gpu);
nvmlDevice_t mig_device_handle(int gpu, int gi, int ci);
nvmlGpuInstance_t gpu_instance_handle(int gpu, int gi);
nvmlComputeInstance_t compute_instance_handle(int gpu, int gi, int ci);

nvmlReturn_t copy_text(char *to, unsigned size, const char *text); /* INSUFFICIENT_SIZE when it does not fit */
const char *library_version(void);

#endif
