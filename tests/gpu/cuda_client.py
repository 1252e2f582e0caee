# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CUDA program without CUDA's tools: allocates device memory through the driver's library, says how it went, and holds it.

    cuda_client.py MIB...

Allocates each number of MiB on the first visible GPU, one after the other, prints one line of JSON, and ends when its standard input
does. A result of 0 is success, 2 is CUDA_ERROR_OUT_OF_MEMORY.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

MIB = 1024 * 1024


def main(sizes: list[int]) -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, devices = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    steps: dict[str, int] = {}
    for name, call in (
        ("cuInit", lambda: cuda.cuInit(0)),
        ("cuDeviceGetCount", lambda: cuda.cuDeviceGetCount(ctypes.byref(devices))),
        ("cuDeviceGet", lambda: cuda.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
        ("cuCtxSetCurrent", lambda: cuda.cuCtxSetCurrent(context)),
    ):
        steps[name] = call()
        if steps[name]:
            break
    answer = {"pid": os.getpid(), "steps": steps, "devices": devices.value, "allocations": []}
    if not any(steps.values()):
        for size in sizes:
            pointer = ctypes.c_uint64()
            answer["allocations"].append(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size * MIB)))
    print(json.dumps(answer), flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main([int(argument) for argument in sys.argv[1:]]))
