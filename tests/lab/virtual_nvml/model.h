/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * One virtual machine with NVIDIA GPUs: what is soldered in (struct hardware, a file that survives a reboot) and what
 * the driver holds (struct running, a file that does not). Every process reads and changes both through machine.c.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nvml_abi.h"

enum {
    MAX_GPUS = 16,
    MAX_GPU_INSTANCES = 15,    /* ids 0..14: whole, halves, quarters, eighths */
    MAX_COMPUTE_INSTANCES = 8, /* ids 0..7 in one GPU instance */
    MAX_MIG_DEVICES = 8,       /* never more than compute slices */
    MAX_PROCESSES = 256,
    MAX_EVENTS = 64,
    WHOLE_GPU = -1,
};

/* ---- boards.c: the table generated from the collection's ---- */

struct profile {
    const char *name; /* "1g.10gb+me" */
    int nvml_enum, id, slices, max_instances;
    int reported_count; /* what NVML says max_instances is */
    int memory_mib, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    int size, start_count;
    uint8_t starts[12];
};

struct board {
    const char *key, *product_name;
    int device_id, subsystem_id, pci_class, architecture, capability_major, capability_minor, brand, memory_mib;
    int slices, grid; /* 0: no MIG */
    int multiprocessors, nvlinks, power_watt, least_watt, memory_clocks[2], bus_width, bar1_mib;
    const struct profile *profiles;
    int profile_count;
};

extern const struct board boards[];
extern const int board_count;

/* The board with this key, or with the first key that starts so ("t4", "h100-80gb"); NULL when there is none. */
const struct board *board_find(const char *key);

/* ---- The machine's two files ---- */

struct hardware_gpu {
    char board[40], product_name[96], uuid[48], serial[20], vbios[20];
    uint8_t bus, numa_node;
    bool mig_mode; /* in the InfoROM: Ampere keeps it over a reboot */
    bool ecc_pending;
    uint8_t recovery_action; /* what the driver asks for again after every reset and boot: the board is broken */
    bool remap_failed; /* no spare row is left */
    unsigned remapped_correctable, remapped_uncorrectable; /* rows of memory that were replaced in the board's life */
};

struct hardware {
    uint32_t magic, gpu_count, nvswitch_count;
    bool mirrored;    /* the chip's halves are swapped in the numbering of GPU instances */
    bool passthrough; /* a virtual machine: no GPU reset from inside */
    struct hardware_gpu gpus[MAX_GPUS];
};

struct compute_instance { bool present; uint8_t profile, start, size; }; /* profile: NVML's enum */
struct gpu_instance {
    bool present;
    uint8_t profile, start; /* profile: row of the board's table */
    struct compute_instance compute[MAX_COMPUTE_INSTANCES];
};
struct mig_slot { bool used; uint8_t gpu_instance, compute_instance; };

struct running_gpu {
    bool mig_current, mig_pending, persistence, ecc_current, lost;
    char other_driver[16]; /* the kernel driver that has it in place of NVIDIA's, which does not see it then; empty: none */
    uint8_t compute_mode, timeslice, recovery_action; /* what the driver asks for; a reset clears it */
    unsigned power_limit, graphics_lock[2], memory_lock[2], application[2]; /* mW, MHz; 0: the board's own, not locked */
    bool remap_pending; /* rows are replaced at the next reset */
    unsigned uncorrected_errors; /* since the driver was loaded */
    bool recovery_until_boot, reset_with_peers; /* only a boot clears it; only all GPUs can be reset together */
    struct gpu_instance instances[MAX_GPU_INSTANCES];
    struct mig_slot slots[MAX_MIG_DEVICES]; /* a MIG device keeps its index; a destroyed one leaves a hole */
};

struct gpu_process {
    int pid;
    uint64_t start_time; /* of a real process, so that it goes when the process goes; 0: fictional, stays until stopped */
    int gpu, gpu_instance, compute_instance; /* WHOLE_GPU: not in an instance */
    int memory_mib;
    char type; /* C compute, G graphics, M MPS client, N none: holds the device file only */
    char name[64];
};

struct gpu_event { uint64_t number; int gpu; uint64_t type, data; };

enum module {
    MODULE_NVIDIA = 1, MODULE_UVM = 2, MODULE_MODESET = 4, MODULE_DRM = 8, MODULE_PEERMEM = 16, MODULE_NOUVEAU = 32,
    MODULE_MLX5_CORE = 64, MODULE_MLX5_IB = 128, MODULE_IB_UMAD = 256, /* the kernel's own, by which NVLink 5 switches are managed */
    MODULES_OF_DRIVER = MODULE_NVIDIA | MODULE_UVM | MODULE_MODESET | MODULE_DRM | MODULE_PEERMEM
};

struct running {
    uint32_t magic;
    char boot_id[40], driver_version[32];
    bool open_flavour;
    uint32_t modules;
    uint8_t fabric_state, fabric_summary; /* 1 healthy, 2 unhealthy, 3 limited capacity */
    uint32_t fabric_status, fabric_mask;  /* of the registration, an error of NVML; what is degraded */
    uint32_t process_count;
    uint64_t event_count;
    struct running_gpu gpus[MAX_GPUS];
    struct gpu_process processes[MAX_PROCESSES];
    struct gpu_event events[MAX_EVENTS];
};

struct machine {
    struct hardware hardware;
    struct running running;
    int lock;        /* of a change in progress; -1 otherwise */
    bool everything; /* tree and device nodes may be out of step anywhere */
    struct hardware hardware_before;
    struct running running_before;
};

/* ---- paths.c ---- */

const char *path_state(void);     /* VIRTUAL_GPU_STATE    /run/virtual-gpu/state */
const char *path_inforom(void);   /* VIRTUAL_GPU_INFOROM  /var/lib/virtual-gpu/inforom */
const char *path_tree(void);      /* VIRTUAL_GPU_TREE     /run/virtual-gpu/tree */
const char *path_devices(void);   /* VIRTUAL_GPU_DEV      /dev */
const char *path_sysroot(void);   /* VIRTUAL_GPU_SYSROOT  / (where the library looks for sys/module/nvidia/version) */
const char *path_container(void); /* VIRTUAL_GPU_CONTAINER  /.virtual-gpu-container (there: this is a container) */
int make_directories(const char *path);            /* mkdir -p */
int make_parent(const char *path);                 /* mkdir -p of its folder */
int read_small_file(const char *path, char *text, size_t size); /* first line without its newline; -1: not there */
int write_in_place(const char *path, const char *text);         /* same inode, so that a bind mount of the file stays valid */

/* ---- machine.c ---- */

int machine_read(struct machine *m);           /* 0, or -1: this machine was never created */
int machine_change(struct machine *m);         /* the same, under the lock; end with commit or abort */
int machine_commit(struct machine *m);         /* write what changed, bring tree and device nodes in step, unlock */
void machine_abort(struct machine *m);
void machine_create(const struct hardware *hardware); /* writes the InfoROM and forgets the running state */
void machine_boot(struct machine *m);          /* fresh running state: what a reboot leaves */
/* Whether its NVLink switches are those of a rack (GB200, GB300), which bring its fabric up. */
bool machine_in_rack(const struct machine *m);
/* Whether it has NVLink switches of its own, which its fabric manager brings up: on the PCI bus, or NVLink 5 (HGX B200, B300).
 * One GPU alone is a virtual machine's, without them. */
bool machine_has_switches(const struct machine *m);
void machine_prune_processes(struct machine *m);
uint64_t process_start_time(int pid); /* clock ticks after boot; 0: no such process */
const struct board *gpu_board(const struct machine *m, int gpu);
int gpu_minor(int gpu);
void gpu_address(const struct machine *m, int gpu, char *text, size_t size); /* 0000:18:00.0 */
void gpu_reset_state(struct machine *m, int gpu); /* what a GPU reset does to one GPU, allowed or not */
bool gpu_is_used(const struct machine *m, int gpu, int except_pid); /* some process holds this GPU */

/* ---- container.c: what a container's device nodes and device cgroup let it see ---- */

bool in_container(void);
int device_refusal(const char *name); /* 0, or the errno with which opening the node of /dev is refused */
bool gpu_accessible(const struct machine *m, int gpu);
bool mig_accessible(int gpu, int gi, int ci); /* ci WHOLE_GPU: the GPU instance */
int gpu_count_accessible(const struct machine *m);
int gpu_at_index(const struct machine *m, unsigned index); /* -1: no such GPU */
int gpu_index(const struct machine *m, int gpu);
const struct mig_slot *mig_slot_at_index(const struct machine *m, int gpu, unsigned index); /* NULL: no MIG device has it */
int mig_index(const struct machine *m, int gpu, int gi, int ci); /* -1: no such MIG device */
bool process_in_view(const struct gpu_process *p);
bool may_administer(void); /* root, with the capability for it */

/* ---- sessions.c: NVML clients hold the driver, as an open /dev/nvidiactl does ---- */

int session_open(void);  /* a descriptor to keep; -1: cannot be recorded */
int session_devices(int nodes[MAX_GPUS + 1]); /* open nvidiactl and every GPU's device as paths; how many, -1 for one that is not there */
bool sessions_open(int except); /* somebody has a session, leaving out the one with this descriptor (-1: none) */
bool persistence_daemon_open(void); /* it has a session: the driver stays loaded, and a GPU can be reset all the same */

/* ---- driver.c ---- */

int driver_load(struct machine *m, const char *version, bool open_flavour, uint32_t modules); /* 0 or errno */
int driver_unload(struct machine *m, uint32_t modules, const char **holder);                  /* 0 or errno */
uint32_t module_by_name(const char *name);
const char *module_name(uint32_t module);
int module_references(const struct machine *m, uint32_t module);
void driver_cuda_version(const char *driver_version, int *major, int *minor);
int driver_branch(const char *driver_version);

/* ---- mig.c: pure on the machine ---- */

const struct profile *mig_profile_by_enum(const struct board *b, unsigned nvml_enum);
const struct profile *mig_profile_by_id(const struct board *b, unsigned id);
int mig_instance_id(const struct board *b, bool mirrored, const struct profile *p, int start);
nvmlReturn_t mig_create_gpu_instance(struct machine *m, int gpu, const struct profile *p, const nvmlGpuInstancePlacement_t *at, int *id);
nvmlReturn_t mig_destroy_gpu_instance(struct machine *m, int gpu, int gi);
int mig_gpu_instance_capacity(const struct machine *m, int gpu, const struct profile *p);
struct compute_profile { int nvml_enum, slices, count, multiprocessors, start_count; uint8_t starts[8]; };
bool mig_compute_profile(const struct board *b, const struct profile *p, unsigned nvml_enum, struct compute_profile *found);
nvmlReturn_t mig_create_compute_instance(struct machine *m, int gpu, int gi, unsigned nvml_enum, const nvmlComputeInstancePlacement_t *at,
                                         int *id);
nvmlReturn_t mig_destroy_compute_instance(struct machine *m, int gpu, int gi, int ci);
int mig_compute_instance_capacity(const struct machine *m, int gpu, int gi, unsigned nvml_enum);
nvmlReturn_t mig_set_mode(struct machine *m, int gpu, bool enable, bool in_use, nvmlReturn_t *activation);
void mig_uuid(const struct hardware_gpu *gpu, int gi, int ci, char *text, size_t size);
const struct profile *mig_row(const struct machine *m, int gpu, int gi);
void mig_compute_name(const struct board *b, const struct profile *p, unsigned nvml_enum, char *text, size_t size); /* 1c.3g.40gb */

/* ---- uuid.c ---- */

void uuid_from_name(const char *name_space, const char *name, char text[37]); /* version 5: SHA-1 of both */

/* ---- tree.c, device_nodes.c: /proc, /sys and /dev as the lab host mounts them ---- */

void tree_sync(const struct machine *m);
void tree_sync_references(const struct machine *m); /* only the modules' reference counts */
bool machine_gpu_changed(const struct machine *m, int gpu);
void device_nodes_sync(const struct machine *m);
int mig_minor(int gpu, int gi, int ci); /* ci WHOLE_GPU: the GPU instance's access node */

/* ---- faults.c ---- */

enum { FAULT_NONE = -1 };
nvmlReturn_t call_begin(const char *symbol);                      /* FAULT_NONE: go on; otherwise answer this */
nvmlReturn_t call_end(const char *symbol, nvmlReturn_t result);   /* what to answer after the effect */
int fault_add(const char *rule, const char **reason);             /* "nvmlShutdown:error=IN_USE:nth=2" */
void fault_clear(void);
const char *path_faults(void);
const char *path_trace(void);
const char *nvml_error_name(nvmlReturn_t code);                   /* "IN_USE"; NULL: no such code */
int nvml_error_by_name(const char *name);                         /* -1: no such name */

#endif
