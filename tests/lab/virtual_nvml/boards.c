/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The table of boards.
 */
#include "model.h"

#include <string.h>

#include "boards.h"

const struct board *board_find(const char *key)
{
    for (int i = 0; i < board_count; i++)
        if (strcmp(boards[i].key, key) == 0)
            return &boards[i];
    for (int i = 0; i < board_count; i++)
        if (strncmp(boards[i].key, key, strlen(key)) == 0)
            return &boards[i];
    return NULL;
}
