/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The driver's life cycle: which modules are loaded, who holds them, which CUDA belongs to which driver.
 */
#include "model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { uint32_t module; const char *name; uint32_t needs; } modules[] = {
    {MODULE_NVIDIA, "nvidia", 0},
    {MODULE_UVM, "nvidia_uvm", MODULE_NVIDIA},
    {MODULE_MODESET, "nvidia_modeset", MODULE_NVIDIA},
    {MODULE_DRM, "nvidia_drm", MODULE_NVIDIA | MODULE_MODESET},
    {MODULE_PEERMEM, "nvidia_peermem", MODULE_NVIDIA},
    {MODULE_NOUVEAU, "nouveau", 0},
    {MODULE_MLX5_CORE, "mlx5_core", 0},
    {MODULE_MLX5_IB, "mlx5_ib", MODULE_MLX5_CORE},
    {MODULE_IB_UMAD, "ib_umad", 0},
};
enum { MODULE_COUNT = sizeof modules / sizeof modules[0] };

uint32_t module_by_name(const char *name)
{
    for (int i = 0; i < MODULE_COUNT; i++) {
        const char *a = modules[i].name, *b = name;
        while (*a && (*a == *b || (*a == '_' && *b == '-')))
            a++, b++;
        if (!*a && !*b)
            return modules[i].module;
    }
    return strcmp(name, "nvidia_current") == 0 || strcmp(name, "nvidia-current") == 0 ? MODULE_NVIDIA : 0;
}

const char *module_name(uint32_t module)
{
    for (int i = 0; i < MODULE_COUNT; i++)
        if (modules[i].module == module)
            return modules[i].name;
    return NULL;
}

int driver_load(struct machine *m, const char *version, bool open_flavour, uint32_t wanted)
{
    struct running *r = &m->running;
    for (int i = 0; i < MODULE_COUNT; i++)
        if (wanted & modules[i].module)
            wanted |= modules[i].needs;
    if (!(wanted & MODULES_OF_DRIVER)) {
        r->modules |= wanted;
        return 0;
    }
    if (r->modules & MODULE_NOUVEAU)
        return ENODEV; /* nouveau is bound to the devices */
    if (m->hardware.gpu_count && gpu_count_accessible(m) == 0)
        return ENODEV; /* another driver has them all */
    if ((r->modules & MODULE_NVIDIA) && (strcmp(r->driver_version, version) != 0 || r->open_flavour != open_flavour))
        return wanted & ~r->modules ? EINVAL : EEXIST; /* a module of another version: unknown symbols */
    if (!(r->modules & MODULE_NVIDIA)) {
        snprintf(r->driver_version, sizeof r->driver_version, "%s", version);
        r->open_flavour = open_flavour;
        if (machine_has_switches(m)) /* the fabric manager registers them with every driver anew */
            r->fabric_state = NVML_FABRIC_IN_PROGRESS;
        for (uint32_t gpu = 0; gpu < m->hardware.gpu_count; gpu++) {
            r->gpus[gpu].mig_pending = false;
            gpu_reset_state(m, (int)gpu);
            r->gpus[gpu].persistence = false;
        }
    }
    r->modules |= wanted;
    return 0;
}

int module_references(const struct machine *m, uint32_t module)
{
    int count = 0;
    for (int i = 0; i < MODULE_COUNT; i++)
        if ((m->running.modules & modules[i].module) && (modules[i].needs & module))
            count++;
    if (module == MODULE_NVIDIA || module == MODULE_UVM)
        count += (int)m->running.process_count;
    if (module == MODULE_NVIDIA && (sessions_open(-1) || persistence_daemon_open()))
        count++;
    return count;
}

int driver_unload(struct machine *m, uint32_t unwanted, const char **holder)
{
    struct running *r = &m->running;
    static const uint32_t order[] = {MODULE_DRM, MODULE_MODESET, MODULE_PEERMEM, MODULE_UVM, MODULE_NVIDIA, MODULE_NOUVEAU,
                                     MODULE_IB_UMAD, MODULE_MLX5_IB, MODULE_MLX5_CORE};
    for (size_t o = 0; o < sizeof order / sizeof order[0]; o++) {
        if (!(unwanted & r->modules & order[o]))
            continue;
        for (int i = 0; i < MODULE_COUNT; i++)
            if ((r->modules & modules[i].module) && (modules[i].needs & order[o])) {
                *holder = modules[i].name;
                return EBUSY;
            }
        if (module_references(m, order[o]) > 0) {
            *holder = r->process_count ? r->processes[0].name : "a process that has NVML open";
            return EBUSY;
        }
        r->modules &= ~order[o];
    }
    if (!(r->modules & MODULE_NVIDIA)) {
        r->driver_version[0] = '\0';
        for (uint32_t gpu = 0; gpu < m->hardware.gpu_count; gpu++) {
            r->gpus[gpu].mig_pending = false; /* only what the InfoROM has stays */
            gpu_reset_state(m, (int)gpu);
            r->gpus[gpu].persistence = false;
        }
    }
    return 0;
}

int driver_branch(const char *driver_version)
{
    return atoi(driver_version);
}

void driver_cuda_version(const char *driver_version, int *major, int *minor)
{
    static const struct { int branch, major, minor; } table[] = {
        {615, 13, 4}, {610, 13, 3}, {595, 13, 2}, {590, 13, 1}, {580, 13, 0}, {575, 12, 9}, {570, 12, 8}, {565, 12, 7},
        {560, 12, 6}, {555, 12, 5}, {550, 12, 4}, {545, 12, 3}, {535, 12, 2}, {530, 12, 1}, {525, 12, 0}, {470, 11, 4},
    };
    *major = 11, *minor = 0;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (driver_branch(driver_version) >= table[i].branch) {
            *major = table[i].major, *minor = table[i].minor;
            return;
        }
}
