/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The fabric manager: refuses a driver of another version and a machine without NVSwitch, as NVIDIA's does, and else
 * brings the fabric of the virtual machine up.
 *
 * With NVLink 5 it does what nvidia-fabricmanager-start.sh does. Without InfiniBand devices (mlx5_ib) that sees no NVLink 5 and goes on as if the
 * switches were on the PCI bus (NVIDIA/gpu-operator#2781); it ends without ib_umad (spectrocloud/CanvOS#700) and without ibstat, and starts the subnet
 * manager first, without which the switches cannot be asked (siderolabs/extensions#717 and #893).
 */
#include <dirent.h>
#include <stdbool.h>

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

static pid_t start(const char *const program[])
{
    pid_t child = fork();
    if (child == 0) {
        execv(program[0], (char *const *)program);
        _exit(127);
    }
    return child;
}

static int set_fabric(const char *state)
{
    int status = 1;
    waitpid(start((const char *const[]){"/usr/bin/virtual-gpu", "fabric", state, NULL}), &status, 0);
    return status;
}

static bool is_installed(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Returns the subnet manager's process, 0 where the switches are not NVLink 5, -1 where it cannot be started. */
static pid_t start_subnet_manager(void)
{
    static const char program[] = "/opt/nvidia/nvlsm/sbin/nvlsm";
    if (!is_installed("/sys/module/mlx5_ib")) {
        fprintf(stderr, "Detected Pre-NVL5 system\n");
        return 0;
    }
    fprintf(stderr, "Detected NVL5+ system\n");
    if (!is_installed("/sys/module/ib_umad")) {
        fprintf(stderr, "Kernel module \"ib_umad\" has not been loaded, fabric manager cannot be started\n");
        return -1;
    }
    if (!is_installed("/usr/sbin/ibstat") || !is_installed(program)) {
        fprintf(stderr, "ibstat and nvlsm are needed, fabric manager cannot be started\n");
        return -1;
    }
    return start((const char *const[]){program, "--config", "/usr/share/nvidia/nvlsm/nvlsm.conf", NULL});
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
    pid_t subnet_manager = start_subnet_manager();
    if (subnet_manager < 0)
        return 1;
    if (!subnet_manager && !count_switches()) {
        fprintf(stderr, "fabric manager don't have NVSwitch devices to manage: WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n");
        return 1;
    }
    mkdir("/run/nvidia-fabricmanager", 0755);
    if (set_fabric("completed"))
        return 1;
    daemon_ready(ready, pid_file);
    wait_for_end();
    if (subnet_manager)
        kill(subnet_manager, SIGTERM);
    unlink(pid_file);
    return 0;
}
