/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * /proc and /sys as the driver and the PCI bus show them, below path_tree(). Files are rewritten in place and only when
 * they differ, because lab hosts bind-mount some of them one by one.
 */
#define _GNU_SOURCE
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MINORS_PER_GPU = 135, MINORS_PER_INSTANCE = 9, FIRST_INSTANCE_MINOR = 3 };

/* The driver's fixed numbering: 1 config, 2 monitor, then 135 per GPU: 15 instances of one node each and eight inside. */
int mig_minor(int gpu, int gi, int ci)
{
    return FIRST_INSTANCE_MINOR + gpu * MINORS_PER_GPU + gi * MINORS_PER_INSTANCE + (ci == WHOLE_GPU ? 0 : 1 + ci);
}

__attribute__((format(printf, 2, 3))) static void put(const char *path, const char *format, ...)
{
    char full[1200], text[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(full, sizeof full, "%s/%s", path_tree(), path);
    make_parent(full);
    write_in_place(full, text);
}

__attribute__((format(printf, 1, 2))) static void folder(const char *format, ...)
{
    char path[600], full[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    snprintf(full, sizeof full, "%s/%s", path_tree(), path);
    make_directories(full);
}

static void remove_below(const char *full)
{
    DIR *directory = opendir(full);
    struct dirent *entry;
    char child[1400];
    while (directory && (entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof child, "%s/%s", full, entry->d_name);
        if (entry->d_type == DT_DIR) {
            remove_below(child);
            rmdir(child);
        } else {
            unlink(child);
        }
    }
    if (directory)
        closedir(directory);
}

/* Remove a file or a whole folder of the tree; what a folder is mounted on stays if `contents_only`. */
static void drop(const char *path, bool contents_only)
{
    char full[1200];
    snprintf(full, sizeof full, "%s/%s", path_tree(), path);
    remove_below(full);
    if (!contents_only && rmdir(full) != 0)
        unlink(full);
}

static void put_link(const char *path, const char *target)
{
    char full[1200], present[256];
    snprintf(full, sizeof full, "%s/%s", path_tree(), path);
    ssize_t length = readlink(full, present, sizeof present - 1);
    if (length == (ssize_t)strlen(target) && strncmp(present, target, (size_t)length) == 0)
        return;
    unlink(full);
    (void)!symlink(target, full);
}

/* ---- sys/bus/pci/devices ---- */

struct pci_device { char address[16]; int vendor, device, subsystem_vendor, subsystem, pci_class, numa_node; const char *driver; bool lost; };

static void put_binary_config(const char *path, const struct pci_device *d)
{
    unsigned char config[256] = {0};
    char full[1200];
    const int ids[] = {d->vendor, d->device};
    for (int i = 0; i < 2; i++) {
        config[2 * i] = (unsigned char)ids[i];
        config[2 * i + 1] = (unsigned char)(ids[i] >> 8);
    }
    config[0x08] = 0xA1;
    config[0x09] = (unsigned char)d->pci_class, config[0x0A] = (unsigned char)(d->pci_class >> 8), config[0x0B] = (unsigned char)(d->pci_class >> 16);
    config[0x2C] = (unsigned char)d->subsystem_vendor, config[0x2D] = (unsigned char)(d->subsystem_vendor >> 8);
    config[0x2E] = (unsigned char)d->subsystem, config[0x2F] = (unsigned char)(d->subsystem >> 8);
    if (d->lost)
        memset(config, 0xFF, sizeof config); /* what a bus answers for a card that fell off it */
    snprintf(full, sizeof full, "%s/%s/config", path_tree(), path);
    FILE *file = fopen(full, "r+");
    if (!file)
        file = fopen(full, "w");
    if (file) {
        fwrite(config, 1, sizeof config, file);
        fclose(file);
    }
}

/* An entry of /sys/bus/pci/devices is a link into /sys/devices, whose first folder is the PCIe root of the device. Every GPU
 * and NVSwitch is below a root port of its own (assumed: the bus before its own). The host bridge is not: the machine that
 * runs the lab has a root 0000:00 too, with its disks. */
static void put_pci_folder(const struct pci_device *d, char *base, size_t size)
{
    char link[64], target[64];
    unsigned bus = (unsigned)strtoul(d->address + 5, NULL, 16);
    snprintf(link, sizeof link, "sys/bus/pci/devices/%s", d->address);
    if (bus == 0) {
        snprintf(base, size, "%s", link);
        folder("%s", base);
        return;
    }
    snprintf(base, size, "sys/devices/pci0000:%02x/%s", bus - 1, d->address);
    folder("%s", base);
    folder("sys/bus/pci/devices");
    snprintf(target, sizeof target, "../../../%s", base + strlen("sys/"));
    put_link(link, target);
}

static void put_pci_device(const struct pci_device *d, bool can_reset)
{
    char base[64], path[128];
    put_pci_folder(d, base, sizeof base);
    const struct { const char *name; int width, value; } numbers[] = {
        {"vendor", 4, d->vendor}, {"device", 4, d->device}, {"subsystem_vendor", 4, d->subsystem_vendor},
        {"subsystem_device", 4, d->subsystem}, {"class", 6, d->pci_class},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", base, numbers[i].name);
        put(path, "0x%0*x\n", numbers[i].width, (unsigned)numbers[i].value);
    }
    snprintf(path, sizeof path, "%s/numa_node", base);
    put(path, "%d\n", d->numa_node);
    snprintf(path, sizeof path, "%s/revision", base);
    put(path, "0xa1\n");
    snprintf(path, sizeof path, "%s/resource", base);
    const char *zero = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
    put(path, "%s\n%s\n%s\n%s\n%s\n%s\n", zero, zero, zero, zero, zero, zero);
    snprintf(path, sizeof path, "%s/uevent", base);
    put(path, "%s%s%sPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\n", d->driver ? "DRIVER=" : "",
        d->driver ? d->driver : "", d->driver ? "\n" : "", (unsigned)d->pci_class, (unsigned)d->vendor, (unsigned)d->device,
        (unsigned)d->subsystem_vendor, (unsigned)d->subsystem, d->address);
    put_binary_config(base, d);
    if (can_reset) {
        snprintf(path, sizeof path, "%s/reset", base);
        put(path, "%s", "");
    }
    snprintf(path, sizeof path, "%s/driver", base);
    if (d->driver) {
        char target[64];
        snprintf(target, sizeof target, "../../../bus/pci/drivers/%s", d->driver);
        put_link(path, target);
    } else {
        drop(path, false);
    }
}

/* The function of a ConnectX on the baseboard by which NVLink 5 switches are managed: its vital product data says so. */
static void put_switch_port(void)
{
    struct pci_device d = {"0000:00:1f.7", 0x15B3, 0x1021, 0x15B3, 0x0041, 0x020700, 0, NULL, false};
    put_pci_device(&d, true);
    put("sys/bus/pci/devices/0000:00:1f.7/vpd", "NVSwitch SW_MNG");
}

static void sync_pci(const struct machine *m)
{
    const struct running *r = &m->running;
    const char *driver = r->modules & MODULE_NVIDIA ? "nvidia" : r->modules & MODULE_NOUVEAU ? "nouveau" : NULL;
    struct pci_device bridge = {"0000:00:00.0", 0x8086, 0x09A2, 0x8086, 0, 0x060000, 0, NULL, false};
    put_pci_device(&bridge, false); /* every machine has devices that are none of NVIDIA's */
    for (int i = 0; i < (int)m->hardware.gpu_count; i++) {
        if (!machine_gpu_changed(m, i))
            continue;
        const struct board *b = gpu_board(m, i);
        const char *other = r->gpus[i].other_driver;
        struct pci_device d = {"", 0x10DE, b->device_id, 0x10DE, b->subsystem_id, b->pci_class, m->hardware.gpus[i].numa_node, other[0] ? other : driver,
                               r->gpus[i].lost};
        gpu_address(m, i, d.address, sizeof d.address);
        put_pci_device(&d, !m->hardware.passthrough);
    }
    bool hopper = m->hardware.gpu_count && gpu_board(m, 0)->architecture >= NVML_ARCH_HOPPER;
    for (unsigned i = 0; i < m->hardware.nvswitch_count; i++) {
        struct pci_device d = {"", 0x10DE, hopper ? 0x22A3 : 0x1AF1, 0x10DE, hopper ? 0x1796 : 0x1309, 0x068000, 0,
                               r->modules & MODULE_NVIDIA ? "nvidia-nvswitch" : NULL, false};
        snprintf(d.address, sizeof d.address, "0000:%02x:00.0", 0x05 + i);
        put_pci_device(&d, true);
    }
    if (machine_has_switches(m) && !m->hardware.nvswitch_count)
        put_switch_port();
}

/* ---- sys/module, proc/modules, proc/devices ---- */

static const uint32_t all_modules[] = {MODULE_NVIDIA, MODULE_UVM, MODULE_MODESET, MODULE_DRM, MODULE_PEERMEM, MODULE_NOUVEAU,
                                       MODULE_MLX5_CORE, MODULE_MLX5_IB, MODULE_IB_UMAD};

static void sync_modules(const struct machine *m)
{
    static const struct { uint32_t module; const char *users; } dependents[] = {
        {MODULE_NVIDIA, "nvidia_uvm,nvidia_modeset,nvidia_peermem"}, {MODULE_MODESET, "nvidia_drm"}, {MODULE_MLX5_CORE, "mlx5_ib"}};
    char path[128], list[2048] = "";
    size_t length = 0;
    folder("sys/module");
    for (size_t i = 0; i < sizeof all_modules / sizeof all_modules[0]; i++) {
        const char *name = module_name(all_modules[i]);
        char users[128] = "-";
        snprintf(path, sizeof path, "sys/module/%s", name);
        if (!(m->running.modules & all_modules[i])) {
            drop(path, false);
            continue;
        }
        int references = module_references(m, all_modules[i]);
        for (size_t d = 0; d < sizeof dependents / sizeof dependents[0]; d++)
            if (dependents[d].module == all_modules[i]) {
                char copy[128], *rest = copy, *user;
                size_t at = 0;
                snprintf(copy, sizeof copy, "%s", dependents[d].users);
                while ((user = strsep(&rest, ",")) != NULL)
                    if (m->running.modules & module_by_name(user)) {
                        at += (size_t)snprintf(users + at, sizeof users - at, "%s,", user);
                        folder("%s/holders/%s", path, user);
                    }
            }
        folder("%s/holders", path);
        folder("%s/parameters", path);
        snprintf(path, sizeof path, "sys/module/%s/refcnt", name);
        put(path, "%d\n", references);
        snprintf(path, sizeof path, "sys/module/%s/initstate", name);
        put(path, "live\n");
        bool of_driver = all_modules[i] & MODULES_OF_DRIVER;
        if (of_driver) {
            snprintf(path, sizeof path, "sys/module/%s/version", name);
            put(path, "%s\n", m->running.driver_version);
        }
        length += (size_t)snprintf(list + length, sizeof list - length, "%s %d %d %s Live 0x0000000000000000%s\n", name, 60000000, references,
                                   users, of_driver ? " (POE)" : "");
    }
    put("proc/modules", "%s", list);
    put("proc/devices", "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n%s%s%s\nBlock devices:\n259 blkext\n",
        m->running.modules & MODULE_NVIDIA ? "195 nvidia\n195 nvidia-frontend\n195 nvidiactl\n234 nvidia-caps-imex-channels\n235 nvidia-caps\n" : "",
        m->running.modules & MODULE_MODESET ? "195 nvidia-modeset\n" : "", m->running.modules & MODULE_UVM ? "510 nvidia-uvm\n" : "");
}

/* ---- proc/driver/nvidia, nvidia-caps, nvidia-nvswitch ---- */

/* In decimal 0400 for the right to configure (MIG user guide, "Device nodes and capabilities") and 0444 for all others. */
static void put_capability(const char *path, int minor)
{
    put(path, "DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, minor == 1 ? 0400 : 0444);
}

/* Files for the instances that are there, and only for them. */
static void sync_capabilities(const struct machine *m, int gpu)
{
    char path[160];
    for (int gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
        const struct gpu_instance *instance = &m->running.gpus[gpu].instances[gi];
        snprintf(path, sizeof path, "proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", gpu_minor(gpu), gi);
        if (!instance->present) {
            drop(path, false);
            continue;
        }
        snprintf(path, sizeof path, "proc/driver/nvidia/capabilities/gpu%d/mig/gi%d/access", gpu_minor(gpu), gi);
        put_capability(path, mig_minor(gpu, gi, WHOLE_GPU));
        for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
            snprintf(path, sizeof path, "proc/driver/nvidia/capabilities/gpu%d/mig/gi%d/ci%d", gpu_minor(gpu), gi, ci);
            if (!instance->compute[ci].present) {
                drop(path, false);
                continue;
            }
            strcat(path, "/access");
            put_capability(path, mig_minor(gpu, gi, ci));
        }
    }
}

static void put_mig_minors(const struct machine *m)
{
    char full[1200];
    size_t size = 0;
    char *text = NULL;
    FILE *stream = open_memstream(&text, &size);
    fprintf(stream, "config 1\nmonitor 2\n");
    for (int gpu = 0; gpu < (int)m->hardware.gpu_count; gpu++)
        for (int gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
            fprintf(stream, "gpu%d/gi%d/access %d\n", gpu_minor(gpu), gi, mig_minor(gpu, gi, WHOLE_GPU));
            for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++)
                fprintf(stream, "gpu%d/gi%d/ci%d/access %d\n", gpu_minor(gpu), gi, ci, mig_minor(gpu, gi, ci));
        }
    fclose(stream);
    snprintf(full, sizeof full, "%s/proc/driver/nvidia-caps/mig-minors", path_tree());
    make_parent(full);
    write_in_place(full, text);
    free(text);
}

/* What the module was loaded with, as kernel-tools left it beside the state: one "Name: value" a line, in place of the driver's own. */
static void put_parameters(void)
{
    static const char *const own[] = {"ResmanDebugLevel: 4294967295", "ModifyDeviceFiles: 1", "DeviceFileUID: 0", "DeviceFileGID: 0",
                                      "DeviceFileMode: 438", "EnableStreamMemOPs: 0", "EnableMSI: 1", "RegistryDwords: \"\"",
                                      "CoherentGPUMemoryMode: \"\""};
    char path[700], text[8192] = "", line[1024];
    bool given[sizeof own / sizeof own[0]] = {false};
    size_t length = 0;
    snprintf(path, sizeof path, "%s.params", path_state());
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
            size_t name = strcspn(own[i], ":") + 1;
            if (strncmp(line, own[i], name) == 0) { /* one that the driver does not have is ignored, as the kernel does */
                given[i] = true;
                length += (size_t)snprintf(text + length, sizeof text - length, "%s", line);
            }
        }
    }
    if (file)
        fclose(file);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!given[i])
            length += (size_t)snprintf(text + length, sizeof text - length, "%s\n", own[i]);
    put("proc/driver/nvidia/params", "%s", text);
}

static void sync_driver_files(const struct machine *m)
{
    const struct running *r = &m->running;
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX %s  %s  Release Build  (virtual@lab)\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
        r->open_flavour ? "Open Kernel Module for x86_64" : "x86_64 Kernel Module", r->driver_version);
    put_parameters();
    put("proc/driver/nvidia-caps/sys-minors", "fabric-mgmt 0\n");
    put_mig_minors(m);
    put_capability("proc/driver/nvidia/capabilities/mig/config", 1);
    put_capability("proc/driver/nvidia/capabilities/mig/monitor", 2);
}

static void sync_proc_driver(const struct machine *m)
{
    char path[160], address[16];
    const struct running *r = &m->running;
    folder("proc/driver");
    if (!(r->modules & MODULE_NVIDIA)) {
        drop("proc/driver", true);
        return;
    }
    if (m->everything || r->modules != m->running_before.modules)
        sync_driver_files(m);
    for (int gpu = 0; gpu < (int)m->hardware.gpu_count; gpu++) {
        if (!machine_gpu_changed(m, gpu))
            continue;
        gpu_address(m, gpu, address, sizeof address);
        snprintf(path, sizeof path, "proc/driver/nvidia/gpus/%s", address);
        if (r->gpus[gpu].other_driver[0]) {
            drop(path, false);
            continue;
        }
        strcat(path, "/information");
        put(path,
            "Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t %s\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
            "DMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
            m->hardware.gpus[gpu].product_name, 40 + gpu, m->hardware.gpus[gpu].uuid, m->hardware.gpus[gpu].vbios, address, gpu_minor(gpu),
            r->driver_version);
        sync_capabilities(m, gpu);
    }
    for (unsigned i = 0; i < m->hardware.nvswitch_count; i++) {
        snprintf(path, sizeof path, "proc/driver/nvidia-nvswitch/devices/0000:%02x:00.0", 0x05 + i);
        put(path, "BIOS Version: 96.10.46.00.01\nFabric State: %s\n", r->fabric_state == NVML_FABRIC_COMPLETED ? "Configured" : "Standby");
    }
}

void tree_sync_references(const struct machine *m)
{
    char path[128];
    for (size_t i = 0; i < sizeof all_modules / sizeof all_modules[0]; i++) {
        if (!(m->running.modules & all_modules[i]))
            continue;
        snprintf(path, sizeof path, "sys/module/%s/refcnt", module_name(all_modules[i]));
        put(path, "%d\n", module_references(m, all_modules[i]));
    }
}

void tree_sync(const struct machine *m)
{
    sync_pci(m);
    sync_modules(m);
    sync_proc_driver(m);
}
