/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The fabric manager: refuses a driver of another version and a machine without NVSwitch, as NVIDIA's does, and else
 * brings the fabric of the virtual machine up.
 */
#include <dirent.h>

#include "daemon.h"
#include "driver_version.h"

static const char pid_file[] = "/run/nvidia-fabricmanager/nv-fabricmanager.pid";

static int count_switches(void)
{
    DIR *directory = opendir("/proc/driver/nvidia-nvswitch/devices");
    int count = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return count;
}

static int set_fabric(const char *state)
{
    pid_t child = fork();
    int status = 1;
    if (child == 0) {
        execl("/usr/bin/virtual-gpu", "virtual-gpu", "fabric", state, (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

int main(int argc, char **argv)
{
    char running[64];
    if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-v"))) {
        printf("Fabric Manager version is : %s\n", VERSION);
        return 0;
    }
    int ready = daemon_begin();
    driver_version(running, sizeof running);
    if (!running[0]) {
        fprintf(stderr, "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n");
        return 1;
    }
    if (strcmp(running, VERSION)) {
        fprintf(stderr, "fabric manager NVIDIA GPU driver interface version %s don't match with driver version %s. "
                "Please update with matching NVIDIA driver package.\n", VERSION, running);
        return 1;
    }
    if (!count_switches()) {
        fprintf(stderr, "fabric manager don't have NVSwitch devices to manage: WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n");
        return 1;
    }
    mkdir("/run/nvidia-fabricmanager", 0755);
    if (set_fabric("completed"))
        return 1;
    daemon_ready(ready, pid_file);
    wait_for_end();
    unlink(pid_file);
    return 0;
}
