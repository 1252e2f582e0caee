/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 * The commands of virtual-gpu that have files of their own.
 */
#ifndef VIRTUAL_GPU_H
#define VIRTUAL_GPU_H

#include "model.h"

__attribute__((noreturn, format(printf, 2, 3))) void die(int status, const char *format, ...);
void print_file(const char *path); /* nothing when it is not there */
void change_or_die(struct machine *m);
void commit_or_die(struct machine *m);
int number(const char *option, const char *text);
int gpu_number(const struct machine *m, const char *text);
const char *option(int argc, char **argv, const char *name); /* its value among the arguments; NULL when it is not given */

int command_create(int argc, char **argv);
int command_boards(int argc, char **argv);
int command_trace(int argc, char **argv);
int command_show(int argc, char **argv);
int command_reset(int argc, char **argv);
int command_lose(int argc, char **argv, bool lost);
int command_recovery(int argc, char **argv);
int command_memory(int argc, char **argv);
int command_peers(int argc, char **argv);
int command_fabric(int argc, char **argv);
int command_xid(int argc, char **argv);

#endif
