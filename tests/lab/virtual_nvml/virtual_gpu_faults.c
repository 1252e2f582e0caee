/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * virtual-gpu: the faults of the hardware, and the resets that end some of them.
 */
#include "virtual_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int reset_one(struct machine *m, int gpu)
{
    if (m->hardware.passthrough)
        return NVML_ERROR_NOT_SUPPORTED;
    if (m->running.gpus[gpu].lost)
        return NVML_ERROR_GPU_IS_LOST;
    if (gpu_is_used(m, gpu, 0) || sessions_open(-1))
        return NVML_ERROR_IN_USE;
    gpu_reset_state(m, gpu);
    return NVML_SUCCESS;
}

int command_reset(int argc, char **argv)
{
    struct machine m;
    const char *gpu = option(argc, argv, "--gpu");
    change_or_die(&m);
    for (int i = 0; i < (int)m.hardware.gpu_count; i++) {
        if (gpu && i != gpu_number(&m, gpu))
            continue;
        int failed = reset_one(&m, i);
        if (failed) {
            machine_abort(&m);
            die(failed, "GPU %d cannot be reset: %s", i, nvml_error_name(failed));
        }
    }
    commit_or_die(&m);
    return 0;
}

int command_lose(int argc, char **argv, bool lost)
{
    struct machine m;
    const char *gpu = option(argc, argv, "--gpu");
    if (!gpu)
        die(2, "%s --gpu N", lost ? "lose" : "find");
    change_or_die(&m);
    m.running.gpus[gpu_number(&m, gpu)].lost = lost;
    commit_or_die(&m);
    return 0;
}

int command_recovery(int argc, char **argv)
{
    struct machine m;
    const char *gpu = option(argc, argv, "--gpu"), *action = option(argc, argv, "--action"), *until = option(argc, argv, "--until");
    if (!gpu || !action || (until && strcmp(until, "reset") != 0 && strcmp(until, "boot") != 0 && strcmp(until, "replaced") != 0))
        die(2, "recovery --gpu N --action X [--until reset|boot|replaced]");
    change_or_die(&m);
    int which = gpu_number(&m, gpu);
    uint8_t asked = (uint8_t)number("--action", action);
    m.running.gpus[which].recovery_action = asked;
    m.running.gpus[which].recovery_until_boot = asked && until && strcmp(until, "boot") == 0;
    m.hardware.gpus[which].recovery_action = until && strcmp(until, "replaced") == 0 ? asked : 0;
    commit_or_die(&m);
    return 0;
}

/* A count that is given, or what it was. */
static void count_or_keep(int argc, char **argv, const char *name, unsigned *value)
{
    const char *given = option(argc, argv, name);
    if (given)
        *value = (unsigned)number(name, given);
}

int command_memory(int argc, char **argv)
{
    static const char *const states[] = {"none", "pending", "failed"};
    struct machine m;
    const char *gpu = option(argc, argv, "--gpu"), *remap = option(argc, argv, "--remap");
    int state = 0;
    while (remap && state < 3 && strcmp(remap, states[state]) != 0)
        state++;
    if (!gpu || state == 3)
        die(2, "memory --gpu N [--uncorrected N] [--remapped-correctable N] [--remapped-uncorrectable N] [--remap none|pending|failed]");
    change_or_die(&m);
    int which = gpu_number(&m, gpu);
    struct hardware_gpu *board = &m.hardware.gpus[which];
    count_or_keep(argc, argv, "--uncorrected", &m.running.gpus[which].uncorrected_errors);
    count_or_keep(argc, argv, "--remapped-correctable", &board->remapped_correctable);
    count_or_keep(argc, argv, "--remapped-uncorrectable", &board->remapped_uncorrectable);
    if (remap) {
        m.running.gpus[which].remap_pending = state == 1;
        board->remap_failed = state == 2;
    }
    commit_or_die(&m);
    return 0;
}

int command_peers(int argc, char **argv)
{
    struct machine m;
    if (argc != 1 || (strcmp(argv[0], "on") != 0 && strcmp(argv[0], "off") != 0))
        die(2, "peers on|off");
    change_or_die(&m);
    for (uint32_t i = 0; i < m.hardware.gpu_count; i++)
        m.running.gpus[i].reset_with_peers = strcmp(argv[0], "on") == 0;
    commit_or_die(&m);
    return 0;
}

int command_fabric(int argc, char **argv)
{
    static const char *const names[] = {"not-supported", "not-started", "in-progress", "completed"};
    struct machine m;
    uint32_t status = 0, mask = 0, summary = 1;
    for (int i = 1; i + 1 < argc; i += 2)
        *(strcmp(argv[i], "--status") == 0 ? &status : strcmp(argv[i], "--mask") == 0 ? &mask : &summary) =
            (uint32_t)strtoul(argv[i + 1], NULL, 0);
    for (uint8_t i = 0; argc % 2 == 1 && i < 4; i++)
        if (strcmp(argv[0], names[i]) == 0) {
            change_or_die(&m);
            m.running.fabric_state = i;
            m.running.fabric_status = status;
            m.running.fabric_mask = mask;
            m.running.fabric_summary = (uint8_t)summary;
            commit_or_die(&m);
            return 0;
        }
    die(2, "fabric not-supported|not-started|in-progress|completed [--status N] [--mask N] [--summary N]");
    return 2;
}

/* The line as the driver writes it, in the shape of a record of /dev/kmsg. Never into a real one: that is the machine's, for all labs. */
static void log_xid(const struct machine *m, int gpu, int xid, const char *text)
{
    struct stat found;
    char address[32];
    const char *path = getenv("VIRTUAL_GPU_KMSG") ? getenv("VIRTUAL_GPU_KMSG") : "/dev/kmsg";
    FILE *log = stat(path, &found) == 0 && S_ISREG(found.st_mode) ? fopen(path, "a") : NULL;
    if (!log)
        return;
    gpu_address(m, gpu, address, sizeof address);
    *strrchr(address, '.') = '\0';
    fprintf(log, "4,%llu,%llu,-;NVRM: Xid (PCI:%s): %d, %s\n", (unsigned long long)m->running.event_count, (unsigned long long)m->running.event_count,
            address, xid, text ? text : "pid='<unknown>', name=<unknown>");
    fclose(log);
}

int command_xid(int argc, char **argv)
{
    struct machine m;
    const char *gpu = option(argc, argv, "--gpu"), *xid = option(argc, argv, "--number");
    if (!gpu || !xid)
        die(2, "xid --gpu N --number X [--text TEXT]");
    change_or_die(&m);
    log_xid(&m, gpu_number(&m, gpu), number("--number", xid), option(argc, argv, "--text"));
    struct gpu_event *event = &m.running.events[m.running.event_count++ % MAX_EVENTS];
    *event = (struct gpu_event){m.running.event_count, gpu_number(&m, gpu), NVML_EVENT_XID_CRITICAL, (uint64_t)number("--number", xid)};
    commit_or_die(&m);
    return 0;
}
