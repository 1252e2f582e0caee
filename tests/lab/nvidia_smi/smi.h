/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * nvidia-smi for lab hosts: the part of its command line, texts and exit codes that scripts rely on, spoken through
 * whatever libnvidia-ml.so.1 the loader finds.
 */
#ifndef SMI_H
#define SMI_H

#include <stdbool.h>

#include "nvml_abi.h"

/* The functions in use, resolved by name as the real program does: (result of the call, its name, parameters). */
#define NVML_FUNCTIONS(F)                                                                                            \
    F(nvmlInit_v2, (void))                                                                                           \
    F(nvmlShutdown, (void))                                                                                          \
    F(nvmlSystemGetDriverVersion, (char *, unsigned))                                                                \
    F(nvmlSystemGetNVMLVersion, (char *, unsigned))                                                                  \
    F(nvmlSystemGetCudaDriverVersion_v2, (int *))                                                                    \
    F(nvmlSystemGetProcessName, (unsigned, char *, unsigned))                                                        \
    F(nvmlDeviceGetCount_v2, (unsigned *))                                                                           \
    F(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t *))                                                     \
    F(nvmlDeviceGetHandleByUUID, (const char *, nvmlDevice_t *))                                                     \
    F(nvmlDeviceGetHandleBySerial, (const char *, nvmlDevice_t *))                                                   \
    F(nvmlDeviceGetHandleByPciBusId_v2, (const char *, nvmlDevice_t *))                                              \
    F(nvmlDeviceGetIndex, (nvmlDevice_t, unsigned *))                                                                \
    F(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned))                                                           \
    F(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned))                                                           \
    F(nvmlDeviceGetSerial, (nvmlDevice_t, char *, unsigned))                                                         \
    F(nvmlDeviceGetVbiosVersion, (nvmlDevice_t, char *, unsigned))                                                   \
    F(nvmlDeviceGetMinorNumber, (nvmlDevice_t, unsigned *))                                                          \
    F(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t *))                                                      \
    F(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t, nvmlMemory_v2_t *))                                                 \
    F(nvmlDeviceGetUtilizationRates, (nvmlDevice_t, nvmlUtilization_t *))                                            \
    F(nvmlDeviceGetTemperature, (nvmlDevice_t, int, unsigned *))                                                     \
    F(nvmlDeviceGetPowerUsage, (nvmlDevice_t, unsigned *))                                                           \
    F(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t, unsigned *))                                                   \
    F(nvmlDeviceGetPowerManagementLimit, (nvmlDevice_t, unsigned *))                                                 \
    F(nvmlDeviceGetPowerManagementLimitConstraints, (nvmlDevice_t, unsigned *, unsigned *))                          \
    F(nvmlDeviceSetPowerManagementLimit, (nvmlDevice_t, unsigned))                                                   \
    F(nvmlDeviceGetPersistenceMode, (nvmlDevice_t, int *))                                                           \
    F(nvmlDeviceSetPersistenceMode, (nvmlDevice_t, int))                                                             \
    F(nvmlDeviceGetComputeMode, (nvmlDevice_t, int *))                                                               \
    F(nvmlDeviceSetComputeMode, (nvmlDevice_t, int))                                                                 \
    F(nvmlDeviceGetEccMode, (nvmlDevice_t, int *, int *))                                                            \
    F(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int *, int *))                                              \
    F(nvmlDeviceGetArchitecture, (nvmlDevice_t, unsigned *))                                                         \
    F(nvmlDeviceGetNumaNodeId, (nvmlDevice_t, unsigned *))                                                           \
    F(nvmlDeviceGetNvLinkState, (nvmlDevice_t, unsigned, int *))                                                     \
    F(nvmlDeviceGetTopologyCommonAncestor, (nvmlDevice_t, nvmlDevice_t, int *))                                      \
    F(nvmlDeviceGetGpuFabricInfoV, (nvmlDevice_t, nvmlGpuFabricInfo_v3_t *))                                         \
    F(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))                      \
    F(nvmlDeviceGetMigMode, (nvmlDevice_t, unsigned *, unsigned *))                                                  \
    F(nvmlDeviceSetMigMode, (nvmlDevice_t, unsigned, nvmlReturn_t *))                                                \
    F(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned *))                                                    \
    F(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t, unsigned, nvmlDevice_t *))                                 \
    F(nvmlDeviceGetGpuInstanceId, (nvmlDevice_t, unsigned *))                                                        \
    F(nvmlDeviceGetComputeInstanceId, (nvmlDevice_t, unsigned *))                                                    \
    F(nvmlDeviceGetAttributes_v2, (nvmlDevice_t, nvmlDeviceAttributes_t *))                                          \
    F(nvmlDeviceGetGpuInstanceProfileInfoV, (nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_v2_t *))             \
    F(nvmlDeviceGetGpuInstancePossiblePlacements_v2, (nvmlDevice_t, unsigned, nvmlGpuInstancePlacement_t *, unsigned *)) \
    F(nvmlDeviceGetGpuInstanceRemainingCapacity, (nvmlDevice_t, unsigned, unsigned *))                               \
    F(nvmlDeviceCreateGpuInstance, (nvmlDevice_t, unsigned, nvmlGpuInstance_t *))                                    \
    F(nvmlDeviceCreateGpuInstanceWithPlacement, (nvmlDevice_t, unsigned, const nvmlGpuInstancePlacement_t *, nvmlGpuInstance_t *)) \
    F(nvmlGpuInstanceDestroy, (nvmlGpuInstance_t))                                                                   \
    F(nvmlDeviceGetGpuInstances, (nvmlDevice_t, unsigned, nvmlGpuInstance_t *, unsigned *))                          \
    F(nvmlGpuInstanceGetInfo, (nvmlGpuInstance_t, nvmlGpuInstanceInfo_t *))                                          \
    F(nvmlGpuInstanceGetComputeInstanceProfileInfoV, (nvmlGpuInstance_t, unsigned, unsigned, nvmlComputeInstanceProfileInfo_v2_t *)) \
    F(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, (nvmlGpuInstance_t, unsigned, unsigned *))                 \
    F(nvmlGpuInstanceCreateComputeInstance, (nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *))                  \
    F(nvmlComputeInstanceDestroy, (nvmlComputeInstance_t))                                                           \
    F(nvmlGpuInstanceGetComputeInstances, (nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t *, unsigned *))        \
    F(nvmlComputeInstanceGetInfo_v2, (nvmlComputeInstance_t, nvmlComputeInstanceInfo_t *))                           \
    F(virtualGpuResetPeers, (int, int *))                                                                            \
    F(virtualGpuReset, (int))                                                                                        \
    F(virtualGpuTimeslice, (int, int *))

struct nvml {
#define F(name, parameters) nvmlReturn_t(*name) parameters;
    NVML_FUNCTIONS(F)
#undef F
    const char *(*nvmlErrorString)(nvmlReturn_t);
};

extern struct nvml nvml;

enum { MAX_SELECTED = 16, EXIT_BAD_ARGUMENT = 2, EXIT_OTHER = 255 };

/* One GPU that the command is about. */
struct gpu { unsigned index; nvmlDevice_t handle; char bus_id[32]; };
struct selection { struct gpu gpus[MAX_SELECTED]; int count; };

/* Start NVML; prints what the real program prints, and exits with its code, when that fails. */
void start_nvml(void);

/* The GPUs of -i: indices, UUIDs, PCI addresses or serials, separated by commas; all when text is NULL. Exits when one is unknown. */
struct selection select_gpus(const char *text);

bool mig_is_on(nvmlDevice_t device);
const char *compute_mode_name(int mode);
int bad_argument(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Take "--name=value" or "--name value" at argv[*i]; NULL when argv[*i] is another option. */
const char *option_value(int argc, char **argv, int *i, const char *name);

int list_gpus(const char *which);                                            /* -L */
int summary(const char *which);                                              /* no argument */
int query(const char *which);                                                /* -q */
int query_gpu(const char *which, const char *fields, const char *format);    /* --query-gpu */
int query_compute_apps(const char *which, const char *fields, const char *format);
int set_compute_mode(const char *which, const char *mode);                   /* -c */
int set_persistence_mode(const char *which, const char *mode);               /* -pm */
int set_mig_mode(const char *which, const char *mode);                       /* -mig */
int set_power_limit(const char *which, const char *watts);                   /* -pl */
int reset_gpus(const char *which);                                           /* -r */
int mig_command(int argc, char **argv);                                      /* mig ... */
int compute_policy(int argc, char **argv);                                   /* compute-policy ... */
int topology(int argc, char **argv);                                         /* topo -m */

/* mig.c and mig_list.c */
int mig_list_profiles(const struct selection *s);
int mig_list_placements(const struct selection *s);
int mig_list_instances(const struct selection *s);
int mig_list_compute_profiles(const struct selection *s, const char *gi_ids);
int mig_list_compute(const struct selection *s, const char *gi_ids);
int mig_instances(nvmlDevice_t device, nvmlGpuInstanceInfo_t *infos, nvmlGpuInstance_t *handles); /* sorted by profile and start */
int mig_computes(nvmlGpuInstance_t instance, nvmlComputeInstanceInfo_t *infos, nvmlComputeInstance_t *handles);
bool id_is_listed(const char *ids, unsigned id); /* in "1,2"; NULL lists all */
void profile_name(nvmlDevice_t device, unsigned profile_id, char *text, unsigned size);

#endif
