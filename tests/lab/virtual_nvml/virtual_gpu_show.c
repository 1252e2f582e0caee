/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * virtual-gpu show and trace: the tests' oracle.
 */
#define _GNU_SOURCE
#include "virtual_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void print_file(const char *path)
{
    char buffer[4096];
    size_t length;
    FILE *file = fopen(path, "r");
    while (file && (length = fread(buffer, 1, sizeof buffer, file)) > 0)
        fwrite(buffer, 1, length, stdout);
    if (file)
        fclose(file);
}

/* ---- show ---- */

static void text_member(const char *name, const char *value)
{
    printf("\"%s\": ", name);
    if (!value) {
        printf("null");
        return;
    }
    putchar('"');
    for (; *value; value++)
        if (*value == '"' || *value == '\\')
            printf("\\%c", *value);
        else if ((unsigned char)*value >= ' ')
            putchar(*value);
    putchar('"');
}

static const char *boolean(bool value)
{
    return value ? "true" : "false";
}

static void show_processes(const struct machine *m, int gpu)
{
    const char *comma = "";
    printf("\"processes\": [");
    for (uint32_t i = 0; i < m->running.process_count; i++) {
        const struct gpu_process *p = &m->running.processes[i];
        if (p->gpu != gpu)
            continue;
        printf("%s{\"pid\": %d, \"type\": \"%c\", \"memory_mib\": %d, \"gpu_instance\": ", comma, p->pid, p->type, p->memory_mib);
        printf(p->gpu_instance == WHOLE_GPU ? "null" : "%d", p->gpu_instance);
        printf(", \"compute_instance\": ");
        printf(p->compute_instance == WHOLE_GPU ? "null" : "%d", p->compute_instance);
        printf(", \"fictional\": %s}", boolean(p->start_time == 0));
        comma = ", ";
    }
    printf("]");
}

static int slot_of(const struct running_gpu *g, int gi, int ci)
{
    for (int slot = 0; slot < MAX_MIG_DEVICES; slot++)
        if (g->slots[slot].used && g->slots[slot].gpu_instance == gi && g->slots[slot].compute_instance == ci)
            return slot;
    return -1;
}

static void show_instances(const struct machine *m, int gpu)
{
    const struct running_gpu *g = &m->running.gpus[gpu];
    const char *comma = "";
    char name[80], uuid[96];
    printf("\"gpu_instances\": [");
    for (int gi = 0; gi < MAX_GPU_INSTANCES; gi++) {
        if (!g->instances[gi].present)
            continue;
        const struct profile *p = mig_row(m, gpu, gi);
        printf("%s\n      {\"id\": %d, \"profile\": \"%s\", \"profile_id\": %d, \"start\": %d, \"size\": %d, \"memory_mib\": %d, \"compute_instances\": [",
               comma, gi, p->name, p->id, g->instances[gi].start, p->size, p->memory_mib);
        comma = ",";
        const char *inner = "";
        for (int ci = 0; ci < MAX_COMPUTE_INSTANCES; ci++) {
            const struct compute_instance *c = &g->instances[gi].compute[ci];
            struct compute_profile compute = {0};
            if (!c->present)
                continue;
            mig_compute_profile(gpu_board(m, gpu), p, c->profile, &compute);
            mig_compute_name(gpu_board(m, gpu), p, c->profile, name, sizeof name);
            mig_uuid(&m->hardware.gpus[gpu], gi, ci, uuid, sizeof uuid);
            printf("%s\n        {\"id\": %d, \"profile\": \"%s\", \"profile_id\": %d, \"start\": %d, \"size\": %d, \"multiprocessors\": %d, "
                   "\"uuid\": \"%s\", \"mig_index\": %d, \"minor\": %d}",
                   inner, ci, name, c->profile, c->start, c->size, compute.multiprocessors, uuid, slot_of(g, gi, ci), mig_minor(gpu, gi, ci));
            inner = ",";
        }
        printf("], \"minor\": %d}", mig_minor(gpu, gi, WHOLE_GPU));
    }
    printf("]");
}

int command_show(int argc, char **argv)
{
    static const char *const compute_modes[] = {"default", "exclusive_thread", "prohibited", "exclusive_process"};
    static const char *const fabric[] = {"not-supported", "not-started", "in-progress", "completed"};
    static const uint32_t all[] = {MODULE_NVIDIA, MODULE_UVM, MODULE_MODESET, MODULE_DRM, MODULE_PEERMEM, MODULE_NOUVEAU,
                                   MODULE_MLX5_CORE, MODULE_MLX5_IB, MODULE_IB_UMAD};
    struct machine m;
    char address[16];
    const char *comma = "";
    (void)argc, (void)argv;
    if (machine_read(&m) != 0)
        die(1, "no machine at %s", path_inforom());
    bool loaded = m.running.modules & MODULE_NVIDIA;
    printf("{\n  \"boot_id\": \"%s\", ", m.running.boot_id);
    text_member("driver_version", loaded ? m.running.driver_version : NULL);
    printf(", ");
    text_member("flavour", loaded ? (m.running.open_flavour ? "open" : "proprietary") : NULL);
    printf(", \"modules\": [");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (m.running.modules & all[i]) {
            printf("%s\"%s\"", comma, module_name(all[i]));
            comma = ", ";
        }
    printf("],\n  \"nvswitches\": %u, \"fabric\": \"%s\", \"mirrored\": %s, \"passthrough\": %s, \"nvml_clients\": %s,\n  \"gpus\": [",
           m.hardware.nvswitch_count, fabric[m.running.fabric_state], boolean(m.hardware.mirrored), boolean(m.hardware.passthrough),
           boolean(sessions_open(-1)));
    for (int gpu = 0; gpu < (int)m.hardware.gpu_count; gpu++) {
        const struct hardware_gpu *hw = &m.hardware.gpus[gpu];
        const struct running_gpu *g = &m.running.gpus[gpu];
        gpu_address(&m, gpu, address, sizeof address);
        printf("%s\n    {\"index\": %d, \"board\": \"%s\", ", gpu ? "," : "", gpu, hw->board);
        text_member("name", hw->product_name);
        printf(", \"uuid\": \"%s\", \"serial\": \"%s\", \"pci_address\": \"%s\", \"memory_mib\": %d, \"lost\": %s,\n     ", hw->uuid, hw->serial,
               address, gpu_board(&m, gpu)->memory_mib, boolean(g->lost));
        printf("\"mig\": {\"supported\": %s, \"current\": %s, \"pending\": %s, \"inforom\": %s}, ", boolean(gpu_board(&m, gpu)->slices > 0),
               boolean(g->mig_current), boolean(g->mig_pending), boolean(hw->mig_mode));
        printf("\"compute_mode\": \"%s\", \"persistence_mode\": %s, \"timeslice\": %d, \"recovery_action\": %d,\n     ", compute_modes[g->compute_mode],
               boolean(g->persistence), g->timeslice, g->recovery_action);
        printf("\"settings\": {\"power_limit_mw\": %u, \"graphics_lock\": [%u, %u], \"memory_lock\": [%u, %u], "
               "\"application\": [%u, %u], \"ecc\": %s, \"ecc_pending\": %s},\n     ", g->power_limit, g->graphics_lock[0],
               g->graphics_lock[1], g->memory_lock[0], g->memory_lock[1], g->application[0], g->application[1], boolean(g->ecc_current),
               boolean(hw->ecc_pending));
        show_processes(&m, gpu);
        printf(",\n     ");
        show_instances(&m, gpu);
        printf("}");
    }
    printf("\n  ]\n}\n");
    return 0;
}

/* ---- trace ---- */

struct count { char symbol[96]; long calls; };

static int by_symbol(const void *a, const void *b)
{
    return strcmp(((const struct count *)a)->symbol, ((const struct count *)b)->symbol);
}

static void show_counts(const char *path)
{
    static struct count counts[1024];
    size_t used = 0;
    char line[256], symbol[96];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        size_t i = 0;
        if (sscanf(line, "%*d %95s", symbol) != 1)
            continue;
        while (i < used && strcmp(counts[i].symbol, symbol) != 0)
            i++;
        if (i == used && used < sizeof counts / sizeof counts[0])
            strcpy(counts[used++].symbol, symbol);
        counts[i].calls++;
    }
    if (file)
        fclose(file);
    qsort(counts, used, sizeof counts[0], by_symbol);
    printf("{");
    for (size_t i = 0; i < used; i++)
        printf("%s\n  \"%s\": %ld", i ? "," : "", counts[i].symbol, counts[i].calls);
    printf("\n}\n");
}

int command_trace(int argc, char **argv)
{
    char finished[700];
    const char *word = argc == 1 ? argv[0] : "";
    snprintf(finished, sizeof finished, "%s.finished", path_trace());
    if (strcmp(word, "on") == 0) {
        unlink(finished);
        unlink(path_trace());
        FILE *file = fopen(path_trace(), "w");
        if (!file)
            die(1, "Failed to write %s", path_trace());
        fclose(file);
    } else if (strcmp(word, "off") == 0) {
        rename(path_trace(), finished);
    } else if (strcmp(word, "show") == 0) {
        show_counts(access(path_trace(), F_OK) == 0 ? path_trace() : finished);
    } else if (strcmp(word, "log") == 0) {
        print_file(access(path_trace(), F_OK) == 0 ? path_trace() : finished);
    } else {
        die(2, "trace on|off|show|log");
    }
    return 0;
}
