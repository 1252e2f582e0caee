/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * UUIDs of version 5 (RFC 9562): derived from a namespace and a name by SHA-1.
 */
#include "model.h"

#include <stdio.h>
#include <string.h>

static uint32_t rotate(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

static void sha1_block(uint32_t state[5], const uint8_t block[64])
{
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 ? b ^ c ^ d : i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        uint32_t k = i < 20 ? 0x5A827999 : i < 40 ? 0x6ED9EBA1 : i < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

void uuid_from_name(const char *name_space, const char *name, char text[37])
{
    uint32_t state[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    uint8_t message[256] = {0}, d[20];
    int length = snprintf((char *)message, 200, "%s%s", name_space, name);
    if (length > 199)
        length = 199;
    message[length] = 0x80;
    size_t padded = ((size_t)length + 9 + 63) / 64 * 64;
    for (int i = 0; i < 8; i++)
        message[padded - 1 - (size_t)i] = (uint8_t)((uint64_t)length * 8 >> (8 * i));
    for (size_t at = 0; at < padded; at += 64)
        sha1_block(state, message + at);
    for (int i = 0; i < 20; i++)
        d[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    d[6] = (uint8_t)((d[6] & 0x0F) | 0x50);
    d[8] = (uint8_t)((d[8] & 0x3F) | 0x80);
    snprintf(text, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", d[0], d[1], d[2], d[3], d[4], d[5], d[6],
             d[7], d[8], d[9], d[10], d[11], d[12], d[13], d[14], d[15]);
}
