/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The persistence daemon: keeps every GPU initialised by holding NVML, and turns persistence mode on while it runs.
 */
#include <dlfcn.h>
#include <pwd.h>

#include "daemon.h"

static const char pid_file[] = "/run/nvidia-persistenced/nvidia-persistenced.pid";
static int (*device_count)(unsigned int *);
static int (*device_by_index)(unsigned int, void **);
static int (*set_persistence)(void *, int);

static void set_all(int enabled)
{
    unsigned int count = 0;
    void *device;
    device_count(&count);
    for (unsigned int i = 0; i < count; i++)
        if (device_by_index(i, &device) == 0)
            set_persistence(device, enabled);
}

static int fail(const char *why)
{
    fprintf(stderr, "nvidia-persistenced failed to initialize: %s\n", why);
    return 1;
}

int main(int argc, char **argv)
{
    const char *user = NULL;
    int persistence = 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--version") || !strcmp(argv[i], "-v")) {
            printf("nvidia-persistenced:  version %s (lab stand-in)\n", VERSION);
            return 0;
        }
        if (!strcmp(argv[i], "--user") && i + 1 < argc)
            user = argv[++i];
        else if (!strcmp(argv[i], "--no-persistence-mode"))
            persistence = 0;
    }
    int ready = daemon_begin();
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || !dlsym(library, "nvmlInit_v2"))
        return fail("Failed to open libnvidia-cfg.so.1: it and libnvidia-ml.so.1 have to be installed");
    int (*initialise)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*shut_down)(void) = (int (*)(void))dlsym(library, "nvmlShutdown");
    device_count = (int (*)(unsigned int *))dlsym(library, "nvmlDeviceGetCount_v2");
    device_by_index = (int (*)(unsigned int, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    set_persistence = (int (*)(void *, int))dlsym(library, "nvmlDeviceSetPersistenceMode");
    if (!shut_down || !device_count || !device_by_index || !set_persistence || initialise() != 0)
        return fail("Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) exist, and "
                    "that user 0 has read and write permissions for those files.");
    struct passwd *account = user ? getpwnam(user) : NULL;
    if (user && !account)
        return fail("Failed to look up the user");
    mkdir("/run/nvidia-persistenced", 0755);
    set_all(persistence);
    daemon_ready(ready, pid_file);
    wait_for_end();
    if (persistence)
        set_all(0);
    shut_down();
    unlink(pid_file);
    return 0;
}
