/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * virtual-gpu: builds, boots, breaks and shows the virtual machine. What the hardware, the kernel and a CUDA program do on
 * a real host, this does here.
 */
#define _GNU_SOURCE
#include "virtual_gpu.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: virtual-gpu COMMAND ...\n"
    "  create --board KEY [--product NAME] [--count N] ... [--nvswitch N] [--mirrored] [--passthrough] [--seed TEXT]\n"
    "  boards                        list the boards that create knows\n"
    "  boot                          fresh running state: PCI devices, no driver, no instances\n"
    "  reboot                        the same; what only the driver held is gone\n"
    "  load VERSION open|proprietary [MODULE ...]      default: nvidia nvidia_modeset nvidia_uvm\n"
    "  unload [MODULE ...]           rc 16 (EBUSY) when somebody holds it\n"
    "  run --gpu N [--gi G --ci C] --pid P [--memory MIB] [--type C|G|M|N] [--name TEXT]\n"
    "                                a process on a GPU or an instance; M+C and M are MPS clients, N holds the device only\n"
    "  stop --pid P                  take it off\n"
    "  hold                          keep NVML open until killed, as a monitoring daemon does\n"
    "  reset [--gpu N]               GPU reset, refused while it is held\n"
    "  lose --gpu N, find --gpu N    fall off the bus, and come back\n"
    "  fabric not-supported|not-started|in-progress|completed [--status N] [--mask N] [--summary N]\n"
    "                                NVML's code of the registration, its health mask and its summary; what is not given is healthy\n"
    "  nouveau on|off                the kernel's own driver is bound to the GPUs\n"
    "  bind --gpu N DRIVER           another kernel driver has the GPU, such as vfio-pci; nvidia gives it back\n"
    "  xid --gpu N --number X [--text TEXT]\n"
    "                                a critical error event; and the driver's line in the kernel's log, where /dev/kmsg is a plain file\n"
    "  recovery --gpu N --action X [--until reset|boot|replaced]\n"
    "                                the number of what the driver asks for (0: nothing), and what ends it\n"
    "  memory --gpu N [--uncorrected N] [--remapped-correctable N] [--remapped-uncorrectable N] [--remap none|pending|failed]\n"
    "                                errors of the memory, and rows that were replaced; a reset ends what is pending\n"
    "  peers on|off                  the GPUs can only be reset all together, or one by one\n"
    "  fail SYMBOL ACTION [--nth N] [--count K]        ACTION: ERROR-NAME, after:ERROR-NAME, kill, kill-after, hang:S, delay:MS\n"
    "  fail --clear | --list\n"
    "  trace on|off|show|log         count the calls per symbol; log: one per line\n"
    "  sync                          write tree and device nodes again\n"
    "  show                          everything, as JSON\n";

void die(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("virtual-gpu: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(status);
}

void change_or_die(struct machine *m)
{
    if (machine_change(m) != 0)
        die(1, "No machine at %s, or no right to change it: create one with `virtual-gpu create`, as root", path_inforom());
}

void commit_or_die(struct machine *m)
{
    if (machine_commit(m) != 0)
        die(1, "Failed to write %s: %s", path_state(), strerror(errno));
}

int number(const char *option, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (!*text || *end || value < 0 || value > 4194304)
        die(2, "%s wants a number, not \"%s\"", option, text);
    return (int)value;
}

int gpu_number(const struct machine *m, const char *text)
{
    int gpu = number("--gpu", text);
    if (gpu >= (int)m->hardware.gpu_count)
        die(2, "there is no GPU %d, only 0 to %d", gpu, (int)m->hardware.gpu_count - 1);
    return gpu;
}

const char *option(int argc, char **argv, const char *name)
{
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

/* ---- The driver ---- */

static int command_boot(void)
{
    struct machine m;
    change_or_die(&m);
    machine_boot(&m);
    m.everything = true;
    fault_clear();
    commit_or_die(&m);
    return 0;
}

static uint32_t modules_of(int argc, char **argv, uint32_t fallback)
{
    uint32_t wanted = 0;
    for (int i = 0; i < argc; i++) {
        uint32_t module = module_by_name(argv[i]);
        if (!module)
            die(2, "no module %s", argv[i]);
        wanted |= module;
    }
    return wanted ? wanted : fallback;
}

static int command_load(int argc, char **argv)
{
    struct machine m;
    if (argc < 2 || (strcmp(argv[1], "open") != 0 && strcmp(argv[1], "proprietary") != 0))
        die(2, "load VERSION open|proprietary [MODULE ...]");
    if (call_begin("moduleLoad") != FAULT_NONE)
        die(1, "could not insert 'nvidia': No such device");
    change_or_die(&m);
    int failed = driver_load(&m, argv[0], strcmp(argv[1], "open") == 0,
                             modules_of(argc - 2, argv + 2, MODULE_NVIDIA | MODULE_MODESET | MODULE_UVM));
    if (failed == EEXIST)
        failed = 0;
    if (failed) {
        machine_abort(&m);
        die(failed, "could not insert 'nvidia': %s", strerror(failed));
    }
    commit_or_die(&m);
    call_end("moduleLoad", NVML_SUCCESS);
    return 0;
}

static int command_unload(int argc, char **argv)
{
    struct machine m;
    const char *holder = "";
    if (call_begin("moduleUnload") != FAULT_NONE)
        die(EBUSY, "Module nvidia is in use");
    change_or_die(&m);
    int failed = driver_unload(&m, modules_of(argc, argv, MODULES_OF_DRIVER), &holder);
    if (failed) {
        machine_abort(&m);
        die(failed, "Module is in use by: %s", holder);
    }
    commit_or_die(&m);
    call_end("moduleUnload", NVML_SUCCESS);
    return 0;
}

static int command_nouveau(int argc, char **argv)
{
    struct machine m;
    if (argc != 1 || (strcmp(argv[0], "on") != 0 && strcmp(argv[0], "off") != 0))
        die(2, "nouveau on|off");
    change_or_die(&m);
    if (m.running.modules & MODULE_NVIDIA) {
        machine_abort(&m);
        die(EBUSY, "the nvidia module is loaded");
    }
    m.running.modules = (m.running.modules & ~(uint32_t)MODULE_NOUVEAU) | (strcmp(argv[0], "on") == 0 ? MODULE_NOUVEAU : 0);
    commit_or_die(&m);
    return 0;
}

static int command_bind(int argc, char **argv)
{
    struct machine m;
    const char *gpu = option(argc, argv, "--gpu");
    if (argc != 3 || !gpu)
        die(2, "bind --gpu N DRIVER");
    change_or_die(&m);
    struct running_gpu *g = &m.running.gpus[gpu_number(&m, gpu)];
    memset(g->other_driver, 0, sizeof g->other_driver);
    if (strcmp(argv[2], "nvidia") != 0)
        snprintf(g->other_driver, sizeof g->other_driver, "%s", argv[2]);
    commit_or_die(&m);
    return 0;
}

/* ---- Processes ---- */

static int command_run(int argc, char **argv)
{
    struct machine m;
    const char *gpu = option(argc, argv, "--gpu"), *gi = option(argc, argv, "--gi"), *ci = option(argc, argv, "--ci");
    const char *pid = option(argc, argv, "--pid"), *memory = option(argc, argv, "--memory"), *type = option(argc, argv, "--type");
    const char *name = option(argc, argv, "--name");
    if (!gpu || !pid || (ci && !gi))
        die(2, "run --gpu N [--gi G --ci C] --pid P [--memory MIB] [--type C|G|M|N] [--name TEXT]");
    change_or_die(&m);
    struct gpu_process p = {.pid = number("--pid", pid), .gpu = gpu_number(&m, gpu), .gpu_instance = WHOLE_GPU, .compute_instance = WHOLE_GPU};
    p.start_time = option(argc, argv, "--fictional") ? 0 : process_start_time(p.pid);
    p.memory_mib = memory ? number("--memory", memory) : 0;
    p.type = type ? type[0] : 'C';
    snprintf(p.name, sizeof p.name, "%s", name ? name : "");
    if (gi) {
        p.gpu_instance = number("--gi", gi);
        p.compute_instance = ci ? number("--ci", ci) : WHOLE_GPU;
        const struct gpu_instance *instance = &m.running.gpus[p.gpu].instances[p.gpu_instance];
        if (p.gpu_instance >= MAX_GPU_INSTANCES || !instance->present
            || (ci && (p.compute_instance >= MAX_COMPUTE_INSTANCES || !instance->compute[p.compute_instance].present)))
            die(2, "GPU %s has no such instance", gpu);
    }
    if (!strchr("CGMN", p.type) || m.running.process_count >= MAX_PROCESSES)
        die(2, "the type is C, G, M or N, and there is room for %d processes", MAX_PROCESSES);
    if (!(m.running.modules & MODULE_NVIDIA))
        die(1, "no driver is loaded");
    m.running.processes[m.running.process_count++] = p;
    commit_or_die(&m);
    return 0;
}

static int command_stop(int argc, char **argv)
{
    struct machine m;
    const char *pid = option(argc, argv, "--pid");
    uint32_t kept = 0;
    if (!pid)
        die(2, "stop --pid P");
    change_or_die(&m);
    uint32_t had = m.running.process_count;
    for (uint32_t i = 0; i < had; i++)
        if (m.running.processes[i].pid != number("--pid", pid))
            m.running.processes[kept++] = m.running.processes[i];
    m.running.process_count = kept;
    commit_or_die(&m);
    return kept < had ? 0 : 1;
}

static int command_hold(void)
{
    int session = session_open();
    if (session < 0)
        die(1, "Failed to open a session beside %s: %s", path_state(), strerror(errno));
    int nodes[MAX_GPUS + 1];
    session_devices(nodes);
    puts("holding");
    fflush(stdout);
    for (;;)
        pause();
}

/* ---- Failing calls ---- */

static int command_fail(int argc, char **argv)
{
    char rule[256], action[128];
    const char *reason, *nth = option(argc, argv, "--nth"), *count = option(argc, argv, "--count");
    if (argc == 1 && strcmp(argv[0], "--clear") == 0) {
        fault_clear();
        return 0;
    }
    if (argc == 1 && strcmp(argv[0], "--list") == 0) {
        print_file(path_faults());
        return 0;
    }
    if (argc < 2)
        die(2, "fail SYMBOL ACTION [--nth N] [--count K]");
    if (strncmp(argv[1], "hang:", 5) == 0 || strncmp(argv[1], "delay:", 6) == 0) {
        snprintf(action, sizeof action, "%s", argv[1]);
        *strchr(action, ':') = '=';
    } else if (strncmp(argv[1], "after:", 6) == 0) {
        snprintf(action, sizeof action, "error-after=%s", argv[1] + 6);
    } else if (strncmp(argv[1], "kill", 4) == 0 || strchr(argv[1], '=')) {
        snprintf(action, sizeof action, "%s", argv[1]);
    } else {
        snprintf(action, sizeof action, "error=%s", argv[1]);
    }
    snprintf(rule, sizeof rule, "%s:%s%s%s%s%s", argv[0], action, nth ? ":nth=" : "", nth ? nth : "", count ? ":count=" : "", count ? count : "");
    if (fault_add(rule, &reason) != 0)
        die(2, "%s: %s", rule, reason);
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    int rest = argc - 2;
    char **words = argv + 2;
    const struct { const char *name; int (*run)(int, char **); } commands[] = {
        {"create", command_create}, {"load", command_load}, {"unload", command_unload}, {"nouveau", command_nouveau}, {"run", command_run},
        {"bind", command_bind}, {"stop", command_stop}, {"reset", command_reset}, {"fabric", command_fabric}, {"xid", command_xid}, {"recovery", command_recovery}, {"peers", command_peers},
        {"memory", command_memory}, {"fail", command_fail},
        {"trace", command_trace}, {"show", command_show}, {"boards", command_boards},
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(command, commands[i].name) == 0)
            return commands[i].run(rest, words);
    if (strcmp(command, "boot") == 0 || strcmp(command, "reboot") == 0)
        return command_boot();
    if (strcmp(command, "hold") == 0)
        return command_hold();
    if (strcmp(command, "lose") == 0 || strcmp(command, "find") == 0)
        return command_lose(rest, words, command[0] == 'l');
    if (strcmp(command, "sync") == 0) {
        struct machine m;
        change_or_die(&m);
        m.everything = true;
        commit_or_die(&m);
        return 0;
    }
    fputs(usage, strcmp(command, "--help") == 0 ? stdout : stderr);
    return strcmp(command, "--help") == 0 ? 0 : 2;
}
