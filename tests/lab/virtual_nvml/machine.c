/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The machine's two files: read by everybody without a lock (they are replaced whole), changed under one.
 */
#define _GNU_SOURCE
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

/* Changes with the layout of the structures, so that a library does not read the file of another build. */
#define MAGIC(type) (0x56470000u ^ (uint32_t)sizeof(struct type))

static int read_whole(const char *path, void *data, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = read(file, data, size);
    close(file);
    return length == (ssize_t)size ? 0 : -1;
}

/* Replace the file as a whole: whoever is killed here leaves the old one. */
static int write_whole(const char *path, const void *data, size_t size)
{
    char temporary[600];
    if (make_parent(path) != 0)
        return -1;
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        return -1;
    ssize_t length = write(file, data, size);
    close(file);
    if (length != (ssize_t)size || rename(temporary, path) != 0) {
        unlink(temporary);
        return -1;
    }
    return 0;
}

/* When a process started, in clock ticks since boot; 0 when there is no such process. */
uint64_t process_start_time(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_small_file(path, text, sizeof text) != 0)
        return 0;
    char *field = strrchr(text, ')'); /* the name in parentheses may hold anything */
    for (int i = 0; field && i < 20; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

void machine_prune_processes(struct machine *m)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->running.process_count; i++) {
        const struct gpu_process *p = &m->running.processes[i];
        if (p->start_time == 0 || process_start_time(p->pid) == p->start_time)
            m->running.processes[kept++] = *p;
    }
    memset(&m->running.processes[kept], 0, (m->running.process_count - kept) * sizeof m->running.processes[0]);
    m->running.process_count = kept;
}

int machine_read(struct machine *m)
{
    m->lock = -1;
    if (read_whole(path_inforom(), &m->hardware, sizeof m->hardware) != 0 || m->hardware.magic != MAGIC(hardware))
        return -1;
    if (read_whole(path_state(), &m->running, sizeof m->running) != 0 || m->running.magic != MAGIC(running))
        machine_boot(m); /* /run was emptied: the machine has been rebooted */
    if (!in_container()) /* from there the processes of others look as if they had ended */
        machine_prune_processes(m);
    return 0;
}

/* Exists while a change is written. Found by the next one, it says that somebody was killed in the middle. */
static const char *unfinished_path(void)
{
    static __thread char path[600];
    snprintf(path, sizeof path, "%s.unfinished", path_state());
    return path;
}

bool machine_gpu_changed(const struct machine *m, int gpu)
{
    const struct running *now = &m->running, *before = &m->running_before;
    return m->everything || now->modules != before->modules || now->fabric_state != before->fabric_state
        || memcmp(&now->gpus[gpu], &before->gpus[gpu], sizeof now->gpus[gpu]) != 0;
}

int machine_change(struct machine *m)
{
    char lock_path[600];
    snprintf(lock_path, sizeof lock_path, "%s.lock", path_state());
    make_parent(lock_path);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock < 0)
        return -1;
    while (flock(lock, LOCK_EX) != 0 && errno == EINTR)
        ;
    if (machine_read(m) != 0) {
        close(lock);
        return -1;
    }
    m->lock = lock;
    m->everything = access(path_state(), F_OK) != 0 || access(unfinished_path(), F_OK) == 0;
    m->hardware_before = m->hardware;
    m->running_before = m->running;
    return 0;
}

int machine_commit(struct machine *m)
{
    int failed = 0;
    int mark = open(unfinished_path(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (mark >= 0)
        close(mark);
    m->hardware.magic = MAGIC(hardware);
    m->running.magic = MAGIC(running);
    if (memcmp(&m->hardware, &m->hardware_before, sizeof m->hardware) != 0)
        failed |= write_whole(path_inforom(), &m->hardware, sizeof m->hardware);
    failed |= write_whole(path_state(), &m->running, sizeof m->running);
    tree_sync(m);
    device_nodes_sync(m);
    if (!in_container()) /* it made the nodes in a /dev of its own; the host's next change makes them in the host's */
        unlink(unfinished_path());
    close(m->lock);
    m->lock = -1;
    return failed ? -1 : 0;
}

void machine_abort(struct machine *m)
{
    close(m->lock);
    m->lock = -1;
}

void machine_create(const struct hardware *hardware)
{
    struct hardware copy = *hardware;
    copy.magic = MAGIC(hardware);
    if (write_whole(path_inforom(), &copy, sizeof copy) != 0) {
        fprintf(stderr, "virtual-gpu: Failed to write %s: %s\n", path_inforom(), strerror(errno));
        exit(1);
    }
    unlink(path_state());
}

void machine_boot(struct machine *m)
{
    uint8_t random[16];
    memset(&m->running, 0, sizeof m->running);
    m->running.magic = MAGIC(running);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, 1, sizeof random);
    for (int i = 0; i < 16; i++)
        snprintf(m->running.boot_id + 2 * i, 3, "%02x", random[i]);
    m->running.fabric_summary = 1;
    /* In progress is what GPUs are until a fabric manager has registered them, for hours if none runs (siderolabs/extensions#717). */
    m->running.fabric_state = machine_has_switches(m) ? NVML_FABRIC_IN_PROGRESS
                              : machine_in_rack(m)    ? NVML_FABRIC_COMPLETED
                                                      : NVML_FABRIC_NOT_SUPPORTED;
    for (uint32_t i = 0; i < m->hardware.gpu_count; i++)
        gpu_reset_state(m, (int)i);
}

static bool first_board_is(const struct machine *m, const char *one, const char *other)
{
    const char *key = m->hardware.gpu_count ? gpu_board(m, 0)->key : "";
    return strncmp(key, one, strlen(one)) == 0 || strncmp(key, other, strlen(other)) == 0;
}

bool machine_in_rack(const struct machine *m)
{
    return first_board_is(m, "gb200", "gb300");
}

bool machine_has_switches(const struct machine *m)
{
    return m->hardware.nvswitch_count || (m->hardware.gpu_count > 1 && first_board_is(m, "b200", "b300"));
}

void gpu_reset_state(struct machine *m, int gpu)
{
    const struct board *board = gpu_board(m, gpu);
    struct running_gpu *g = &m->running.gpus[gpu];
    const struct running_gpu before = *g;
    bool hopper_or_newer = board->architecture >= NVML_ARCH_HOPPER;
    memset(g, 0, sizeof *g);
    g->recovery_action = before.recovery_until_boot ? before.recovery_action : m->hardware.gpus[gpu].recovery_action;
    g->recovery_until_boot = before.recovery_until_boot;
    g->reset_with_peers = before.reset_with_peers;
    g->persistence = before.persistence;
    g->lost = before.lost;
    memcpy(g->other_driver, before.other_driver, sizeof g->other_driver);
    /* Ampere reads its mode from the InfoROM. Newer chips keep it over a reset (the driver knows it), not over a reboot:
     * machine_boot() comes here with everything zero. */
    g->mig_current = g->mig_pending = hopper_or_newer ? before.mig_pending : m->hardware.gpus[gpu].mig_mode;
    g->ecc_current = m->hardware.gpus[gpu].ecc_pending;
}

const struct board *gpu_board(const struct machine *m, int gpu)
{
    return board_find(m->hardware.gpus[gpu].board);
}

int gpu_minor(int gpu)
{
    return gpu;
}

void gpu_address(const struct machine *m, int gpu, char *text, size_t size)
{
    snprintf(text, size, "0000:%02x:00.0", m->hardware.gpus[gpu].bus);
}

bool gpu_is_used(const struct machine *m, int gpu, int except_pid)
{
    for (uint32_t i = 0; i < m->running.process_count; i++)
        if (m->running.processes[i].gpu == gpu && m->running.processes[i].pid != except_pid)
            return true;
    return false;
}
