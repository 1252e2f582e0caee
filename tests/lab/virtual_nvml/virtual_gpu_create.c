/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * virtual-gpu create: which boards the machine has, where they sit and what they are called.
 */
#include "virtual_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* PCI buses as on an eight-GPU baseboard, then more for larger machines. Ascending: NVML's index follows the bus. */
static const uint8_t buses_of_8[] = {0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB};
static const uint8_t buses_of_16[] = {0x18, 0x1B, 0x2A, 0x2D, 0x3A, 0x3D, 0x5D, 0x60, 0x9A, 0x9D, 0xAB, 0xAE, 0xBA, 0xBD, 0xDB, 0xDE};

static void name_gpu(struct hardware_gpu *gpu, const char *seed, int index)
{
    char name[128], uuid[37];
    snprintf(name, sizeof name, "%s/gpu/%d", seed, index);
    uuid_from_name("virtual-gpu", name, uuid);
    uuid[14] = '4'; /* a GPU's own UUID is not of the derived kind */
    snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-%s", uuid);
    snprintf(gpu->serial, sizeof gpu->serial, "165%010lu", strtoul(uuid + 28, NULL, 16) % 10000000000UL);
    snprintf(gpu->vbios, sizeof gpu->vbios, "96.00.74.00.%02X", index + 1);
}

static int count_of(const char *word)
{
    char *end;
    long count = strtol(word, &end, 10);
    if (*end || count < 0 || count > MAX_GPUS)
        die(2, "a count is 0 to %d, not \"%s\"", MAX_GPUS, word);
    return (int)count;
}

int command_create(int argc, char **argv)
{
    struct hardware hw = {0};
    char host[64] = "virtual";
    const char *seed = NULL;
    struct { const struct board *board; const char *product; int count; } groups[MAX_GPUS];
    int group_count = 0;
    for (int i = 0; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--mirrored") == 0) {
            hw.mirrored = true;
            continue;
        }
        if (strcmp(argv[i], "--passthrough") == 0) {
            hw.passthrough = true;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--board") == 0) {
            const struct board *board = board_find(value);
            if (!board || !*value || group_count == MAX_GPUS)
                die(2, "no board \"%s\"; `virtual-gpu boards` lists them", value);
            groups[group_count].board = board;
            groups[group_count].product = board->product_name;
            groups[group_count++].count = 1;
        } else if (strcmp(argv[i - 1], "--count") == 0 && group_count) {
            groups[group_count - 1].count = count_of(value);
        } else if (strcmp(argv[i - 1], "--product") == 0 && group_count) {
            groups[group_count - 1].product = value;
        } else if (strcmp(argv[i - 1], "--nvswitch") == 0) {
            hw.nvswitch_count = (uint32_t)count_of(value);
        } else if (strcmp(argv[i - 1], "--seed") == 0) {
            seed = value;
        } else {
            die(2, "create: %s is not known here", argv[i - 1]);
        }
    }
    gethostname(host, sizeof host - 1);
    for (int g = 0; g < group_count; g++)
        for (int i = 0; i < groups[g].count; i++) {
            if (hw.gpu_count == MAX_GPUS)
                die(2, "a machine has at most %d GPUs", MAX_GPUS);
            struct hardware_gpu *gpu = &hw.gpus[hw.gpu_count];
            snprintf(gpu->board, sizeof gpu->board, "%s", groups[g].board->key);
            snprintf(gpu->product_name, sizeof gpu->product_name, "%s", groups[g].product);
            gpu->ecc_pending = groups[g].board->brand != 5; /* GeForce has none */
            name_gpu(gpu, seed ? seed : host, (int)hw.gpu_count++);
        }
    for (uint32_t i = 0; i < hw.gpu_count; i++) {
        hw.gpus[i].bus = hw.gpu_count <= 8 ? buses_of_8[i] : buses_of_16[i];
        hw.gpus[i].numa_node = hw.gpu_count > 1 && i >= (hw.gpu_count + 1) / 2;
    }
    machine_create(&hw);
    return 0;
}

int command_boards(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int i = 0; i < board_count; i++)
        printf("%-28s %-46s %6d MiB%s\n", boards[i].key, boards[i].product_name, boards[i].memory_mib, boards[i].slices ? "  MIG" : "");
    return 0;
}
