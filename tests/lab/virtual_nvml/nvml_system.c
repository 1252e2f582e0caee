/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Initialisation, handles, versions: what every other call stands on.
 */
#define _GNU_SOURCE
#include "nvml_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef BUILD_VERSION
#error "BUILD_VERSION is the driver version that the library belongs to"
#endif

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static int init_count, session = -1, nodes[MAX_GPUS + 1], node_count; /* nvidiactl, and every GPU */

/* The version is the library file's own: libnvidia-ml.so.580.126.09, found through the link libnvidia-ml.so.1. */
const char *library_version(void)
{
    static char version[64];
    Dl_info info;
    char path[4096];
    const char *forced = secure_getenv("VIRTUAL_GPU_LIBRARY_VERSION");
    if (forced && *forced)
        return forced;
    if (!version[0]) {
        snprintf(version, sizeof version, "%s", BUILD_VERSION);
        if (dladdr((void *)&init_lock, &info) && info.dli_fname && realpath(info.dli_fname, path)) {
            const char *name = strstr(path, "libnvidia-ml.so.");
            if (name && strchr(name + 16, '.'))
                snprintf(version, sizeof version, "%s", name + 16);
        }
    }
    return version;
}

/* What NVML says of an open of /dev/nvidiactl that fails. Without the node there is no driver for it ("couldn't communicate
 * with the NVIDIA driver"); a device cgroup that has lost it gives "Failed to initialize NVML: Unknown Error" (NVIDIA's
 * container toolkit, troubleshooting guide); "if NVML does not have permission to talk to the driver" is nvml.h's. */
static nvmlReturn_t node_error(int number)
{
    return number == ENOENT ? NVML_ERROR_DRIVER_NOT_LOADED : number == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t driver_state(void)
{
    char path[600], loaded[64];
    struct machine m;
    static const char *const names[] = {"nvidia", "nvidia_current"};
    int refusal = in_container() ? device_refusal("nvidiactl") : 0;
    if (refusal)
        return node_error(refusal);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/sys/module/%s/version", path_sysroot(), names[i]);
        if (read_small_file(path, loaded, sizeof loaded) != 0)
            continue;
        if (strcmp(loaded, library_version()) != 0)
            return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
        return machine_read(&m) == 0 ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
    }
    return NVML_ERROR_DRIVER_NOT_LOADED;
}

/* The kernel counts who has the device open; here root's sessions write the count. */
static void show_references(void)
{
    struct machine m;
    if (geteuid() == 0 && machine_read(&m) == 0)
        tree_sync_references(&m);
}

/* A process that ends without nvmlShutdown closes its descriptors all the same. */
__attribute__((destructor)) static void end_session(void)
{
    if (init_count == 0)
        return;
    close(session);
    session = -1;
    show_references();
}

static void close_nodes(void)
{
    while (node_count > 0)
        if (nodes[--node_count] >= 0)
            close(nodes[node_count]);
}

static nvmlReturn_t initialize(void)
{
    pthread_mutex_lock(&init_lock);
    nvmlReturn_t result = init_count > 0 ? NVML_SUCCESS : driver_state();
    if (result == NVML_SUCCESS && init_count++ == 0) {
        session = session_open();
        node_count = session_devices(nodes);
        show_references();
    }
    pthread_mutex_unlock(&init_lock);
    return result;
}

nvmlReturn_t require_init(void)
{
    return init_count > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

bool others_have_nvml_open(void)
{
    return sessions_open(session);
}

NVML_CALL(nvmlInit_v2, (void), ()) { return initialize(); }
NVML_CALL(nvmlInit, (void), ()) { return initialize(); }
NVML_CALL(nvmlInitWithFlags, (unsigned flags), (flags))
{
    (void)flags; /* NO_GPUS and NO_ATTACH change nothing here */
    return initialize();
}

NVML_CALL(nvmlShutdown, (void), ())
{
    if (init_count == 0)
        return NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&init_lock);
    if (--init_count == 0) {
        close(session);
        close_nodes();
        session = -1;
        show_references();
    }
    pthread_mutex_unlock(&init_lock);
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result);
EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized", "Not Found",
        "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "GPU access blocked by the operating system", "Driver/library version mismatch", "In use by another client",
        "Insufficient Memory", "No data", "vGPU ECC not supported",
        "Insufficient Resources", "Invalid Frequency", "Argument version mismatch", "Requested functionality has been deprecated",
        "System is not in ready state", "No supported GPUs were found", "Resource not in correct state to perform requested operation",
        "Reset type is not supported for given device",
    };
    if (result >= 0 && result < (int)(sizeof texts / sizeof texts[0]))
        return texts[result];
    return "Unknown Error";
}

/* ---- Permission and small helpers ---- */

bool is_privileged(void)
{
    const char *forced = secure_getenv("VIRTUAL_GPU_PRIVILEGED");
    return forced && *forced ? *forced == '1' : may_administer();
}

nvmlReturn_t copy_text(char *to, unsigned size, const char *text)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

/* ---- Handles ---- */

static struct handle gpu_handles[MAX_GPUS];
static struct handle instance_handles[MAX_GPUS][MAX_GPU_INSTANCES];
static struct handle compute_handles[MAX_GPUS][MAX_GPU_INSTANCES][MAX_COMPUTE_INSTANCES];
static struct handle mig_handles[MAX_GPUS][MAX_GPU_INSTANCES][MAX_COMPUTE_INSTANCES];

nvmlDevice_t gpu_handle(int gpu)
{
    gpu_handles[gpu] = (struct handle){HANDLE_GPU, gpu, WHOLE_GPU, WHOLE_GPU};
    return &gpu_handles[gpu];
}

nvmlDevice_t mig_device_handle(int gpu, int gi, int ci)
{
    mig_handles[gpu][gi][ci] = (struct handle){HANDLE_MIG_DEVICE, gpu, gi, ci};
    return &mig_handles[gpu][gi][ci];
}

nvmlGpuInstance_t gpu_instance_handle(int gpu, int gi)
{
    instance_handles[gpu][gi] = (struct handle){HANDLE_GPU_INSTANCE, gpu, gi, WHOLE_GPU};
    return &instance_handles[gpu][gi];
}

nvmlComputeInstance_t compute_instance_handle(int gpu, int gi, int ci)
{
    compute_handles[gpu][gi][ci] = (struct handle){HANDLE_COMPUTE_INSTANCE, gpu, gi, ci};
    return &compute_handles[gpu][gi][ci];
}

#define IN_TABLE(pointer, table) ((const char *)(pointer) >= (const char *)(table) && (const char *)(pointer) < (const char *)(table) + sizeof(table))

/* Is this an address that we gave out, of a kind the caller accepts, and is what it names still there? */
static nvmlReturn_t resolve(struct machine *m, const struct handle *handle, unsigned kinds, struct handle *where)
{
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    bool ours = IN_TABLE(handle, gpu_handles) || IN_TABLE(handle, instance_handles) || IN_TABLE(handle, compute_handles)
        || IN_TABLE(handle, mig_handles);
    if (!ours || handle->kind < HANDLE_GPU || !(kinds >> (handle->kind - HANDLE_GPU) & 1))
        return NVML_ERROR_INVALID_ARGUMENT;
    *where = *handle;
    if (where->gpu >= (int)m->hardware.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct running_gpu *g = &m->running.gpus[where->gpu];
    if (g->lost)
        return NVML_ERROR_GPU_IS_LOST;
    if (where->gpu_instance != WHOLE_GPU && !g->instances[where->gpu_instance].present)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (where->compute_instance != WHOLE_GPU && !g->instances[where->gpu_instance].compute[where->compute_instance].present)
        return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}

enum { GPU = 1, MIG_DEVICE = 2, GPU_INSTANCE = 4, COMPUTE_INSTANCE = 8 };

static nvmlReturn_t open_handle(struct machine *m, const struct handle *handle, unsigned kinds, struct handle *where)
{
    return machine_read(m) == 0 ? resolve(m, handle, kinds, where) : NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t change_handle(struct machine *m, const struct handle *handle, unsigned kinds, struct handle *where)
{
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    if (!is_privileged())
        return NVML_ERROR_NO_PERMISSION;
    if (machine_change(m) != 0)
        return NVML_ERROR_UNKNOWN;
    nvmlReturn_t result = resolve(m, handle, kinds, where);
    if (result != NVML_SUCCESS)
        machine_abort(m);
    return result;
}

nvmlReturn_t open_device(struct machine *m, nvmlDevice_t device, struct handle *where)
{
    return open_handle(m, device, GPU | MIG_DEVICE, where);
}

nvmlReturn_t open_gpu(struct machine *m, nvmlDevice_t device, int *gpu)
{
    struct handle where;
    nvmlReturn_t result = open_handle(m, device, GPU, &where);
    *gpu = result == NVML_SUCCESS ? where.gpu : 0;
    return result;
}

nvmlReturn_t open_gpu_instance(struct machine *m, nvmlGpuInstance_t instance, struct handle *where)
{
    return open_handle(m, instance, GPU_INSTANCE, where);
}

nvmlReturn_t open_compute_instance(struct machine *m, nvmlComputeInstance_t instance, struct handle *where)
{
    return open_handle(m, instance, COMPUTE_INSTANCE, where);
}

nvmlReturn_t change_gpu(struct machine *m, nvmlDevice_t device, int *gpu)
{
    struct handle where;
    nvmlReturn_t result = change_handle(m, device, GPU, &where);
    *gpu = result == NVML_SUCCESS ? where.gpu : 0;
    return result;
}

nvmlReturn_t change_gpu_instance(struct machine *m, nvmlGpuInstance_t instance, struct handle *where)
{
    return change_handle(m, instance, GPU_INSTANCE, where);
}

nvmlReturn_t change_compute_instance(struct machine *m, nvmlComputeInstance_t instance, struct handle *where)
{
    return change_handle(m, instance, COMPUTE_INSTANCE, where);
}

nvmlReturn_t finish_change(struct machine *m, nvmlReturn_t result)
{
    if (result == NVML_SUCCESS)
        return machine_commit(m) == 0 ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
    machine_abort(m);
    return result;
}

/* ---- System ---- */

NVML_CALL(nvmlSystemGetDriverVersion, (char *version, unsigned length), (version, length))
{
    nvmlReturn_t ready = require_init();
    return ready == NVML_SUCCESS ? copy_text(version, length, library_version()) : ready;
}

NVML_CALL(nvmlSystemGetNVMLVersion, (char *version, unsigned length), (version, length))
{
    char text[80];
    int major, minor;
    driver_cuda_version(library_version(), &major, &minor);
    snprintf(text, sizeof text, "%d.%s", major, library_version());
    return copy_text(version, length, text); /* answers without initialisation too */
}

NVML_CALL(nvmlSystemGetCudaDriverVersion_v2, (int *version), (version))
{
    int major, minor;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    driver_cuda_version(library_version(), &major, &minor);
    *version = major * 1000 + minor * 10;
    return NVML_SUCCESS;
}
NVML_ALIAS(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2, (int *version), (version))

NVML_CALL(nvmlSystemGetProcessName, (unsigned pid, char *name, unsigned length), (pid, name, length))
{
    static __thread struct machine m;
    char path[64], text[512];
    nvmlReturn_t ready = require_init();
    if (ready != NVML_SUCCESS)
        return ready;
    if (!name || length == 0 || machine_read(&m) != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    bool found = read_small_file(path, text, sizeof text) == 0 && text[0];
    for (uint32_t i = 0; i < m.running.process_count; i++)
        if (m.running.processes[i].pid == (int)pid && m.running.processes[i].name[0])
            snprintf(text, sizeof text, "%s", m.running.processes[i].name), found = true;
    if (!found)
        return NVML_ERROR_NOT_FOUND;
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
