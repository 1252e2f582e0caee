/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A CUDA driver library for programs that only ask whether there is one, such as the MPS control daemon. It has no
 * devices: a program that wants to compute is told so.
 */
#include <stddef.h>
#include <string.h>

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_NOT_FOUND = 500 };

static size_t export_table[32] = {sizeof export_table};

int cuInit(unsigned int flags) { (void)flags; return CUDA_SUCCESS; }
int cuDriverGetVersion(int *version) { *version = CUDA_VERSION; return CUDA_SUCCESS; }
int cuDeviceGetCount(int *count) { *count = 0; return CUDA_SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { (void)device; (void)ordinal; return CUDA_ERROR_NO_DEVICE; }
int cuDeviceGetName(char *name, int length, int device)
{
    (void)name; (void)length; (void)device;
    return CUDA_ERROR_NO_DEVICE;
}
int cuDeviceGetUuid(void *uuid, int device) { (void)uuid; (void)device; return CUDA_ERROR_NO_DEVICE; }
int cuDeviceGetUuid_v2(void *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)value; (void)attribute; (void)device;
    return CUDA_ERROR_NO_DEVICE;
}
int cuDeviceComputeCapability(int *major, int *minor, int device)
{
    (void)major; (void)minor; (void)device;
    return CUDA_ERROR_NO_DEVICE;
}
int cuGetExportTable(const void **table, const void *id) { (void)id; *table = export_table; return CUDA_SUCCESS; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "no CUDA device in the lab"; return CUDA_SUCCESS; }
int cuGetErrorName(int error, const char **text) { (void)error; *text = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS; }

int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags)
{
    static const struct { const char *name; void *function; } known[] = {
        {"cuInit", (void *)cuInit}, {"cuDriverGetVersion", (void *)cuDriverGetVersion},
        {"cuDeviceGetCount", (void *)cuDeviceGetCount}, {"cuDeviceGet", (void *)cuDeviceGet},
        {"cuDeviceGetName", (void *)cuDeviceGetName}, {"cuDeviceGetUuid", (void *)cuDeviceGetUuid},
        {"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute}, {"cuGetExportTable", (void *)cuGetExportTable},
        {"cuGetErrorString", (void *)cuGetErrorString}, {"cuGetErrorName", (void *)cuGetErrorName},
    };
    (void)version; (void)flags;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, symbol) == 0) {
            *function = known[i].function;
            return CUDA_SUCCESS;
        }
    *function = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status)
{
    int result = cuGetProcAddress(symbol, function, version, flags);
    if (status)
        *status = result == CUDA_SUCCESS ? 0 : 1;
    return result;
}
