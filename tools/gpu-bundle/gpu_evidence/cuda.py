# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CUDA program without CUDA's tools: the kernel is PTX, which the driver's own library compiles for the GPU.

    python3 -m gpu_evidence.cuda [hold] [user=UID] [MIB ...]

Adds two vectors, allocates each number of MiB, prints one line of JSON, and with C(hold) keeps what it has until its standard input ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any, Callable

from gpu_evidence.running import Folder, environment, run

MIB = 1024 * 1024
_COUNT = 1 << 20
_PTX = """.version {version}
.target {target}
.address_size 64

.visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [pa];
    ld.param.u64 %rd2, [pb];
    ld.param.u64 %rd3, [pc];
    ld.param.u32 %r1, [pn];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra done;
    cvta.to.global.u64 %rd4, %rd1;
    cvta.to.global.u64 %rd5, %rd2;
    cvta.to.global.u64 %rd6, %rd3;
    mul.wide.u32 %rd7, %r5, 4;
    add.s64 %rd8, %rd4, %rd7;
    add.s64 %rd9, %rd5, %rd7;
    add.s64 %rd10, %rd6, %rd7;
    ld.global.f32 %f1, [%rd8];
    ld.global.f32 %f2, [%rd9];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd10], %f3;
done:
    ret;
}}
"""
#: From the oldest on: a driver compiles PTX of older targets for newer GPUs.
_TARGETS = (("6.0", "sm_52"), ("6.3", "sm_75"), ("7.0", "sm_80"), ("7.8", "sm_90"))
_ATTRIBUTES = range(1, 150)


class Cuda:
    """The driver's library; every call is written down with its result and its time."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.calls: list[list[Any]] = []

    def __call__(self, name: str, *arguments: Any) -> int:
        function = getattr(self._library, name, None)
        if function is None:
            self.calls.append([name, None, 0])
            return -1
        started = time.perf_counter()
        result = int(function(*arguments))
        self.calls.append([name, result, round((time.perf_counter() - started) * 1e6, 1)])
        return result


def client(sizes: list[int]) -> dict[str, Any]:
    """What a program sees of the first GPU, and what it can do with it."""
    cuda = Cuda()
    said: dict[str, Any] = {
        "pid": os.getpid(),
        "uid": os.geteuid(),
        "calls": cuda.calls,
        "allocations": [],
        "added": None,
    }
    devices, device, context, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    cuda("cuDriverGetVersion", ctypes.byref(version))
    said["version"] = version.value
    steps: list[Callable[[], int]] = [
        lambda: cuda("cuInit", 0),
        lambda: cuda("cuDeviceGetCount", ctypes.byref(devices)),
        lambda: cuda("cuDeviceGet", ctypes.byref(device), 0),
        lambda: cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        lambda: cuda("cuCtxSetCurrent", context),
    ]
    for step in steps:
        if step() != 0:
            said["devices"] = devices.value
            return said
    said["devices"] = devices.value
    said["device"] = _properties(cuda, device)
    said["memory"] = _memory(cuda)
    said["added"] = _addition(cuda)
    for size in sizes:
        pointer = ctypes.c_uint64()
        said["allocations"].append([size, cuda("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size * MIB))])
    said["memory_afterwards"] = _memory(cuda)
    return said


def _properties(cuda: Cuda, device: Any) -> dict[str, Any]:
    name, uuid, total = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    cuda("cuDeviceGetName", name, 256, device)
    cuda("cuDeviceGetUuid_v2", uuid, device)
    cuda("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    attributes = {}
    for number in _ATTRIBUTES:
        value = ctypes.c_int()
        result = cuda("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        cuda.calls.pop()
        attributes[number] = value.value if result == 0 else {"result": result}
    # 16 is the number of multiprocessors, which a thread percentage of MPS lowers.
    return {
        "name": name.value.decode(),
        "uuid": bytes(uuid).hex(),
        "total": total.value,
        "multiprocessors": attributes[16],
        "attributes": attributes,
    }


def _memory(cuda: Cuda) -> dict[str, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    result = cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return {"result": result, "free": free.value, "total": total.value}


def _addition(cuda: Cuda) -> dict[str, Any]:
    """Add two vectors on the GPU by the first PTX that the driver compiles; whether every element is right."""
    said: dict[str, Any] = {"loaded": {}, "right": None}
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    for version, target in _TARGETS:
        text = ctypes.create_string_buffer(_PTX.format(version=version, target=target).encode())
        result = cuda("cuModuleLoadData", ctypes.byref(module), text)
        said["loaded"][target] = result
        if result == 0:
            break
    else:
        return said
    if cuda("cuModuleGetFunction", ctypes.byref(function), module, b"add") != 0:
        return said
    size = ctypes.c_size_t(4 * _COUNT)
    one, two, back = ((ctypes.c_float * _COUNT)() for _ in range(3))
    for index in range(_COUNT):
        one[index], two[index] = index % 1000, 3 * (index % 777)
    pointers = [ctypes.c_uint64() for _ in range(3)]
    for pointer in pointers:
        if cuda("cuMemAlloc_v2", ctypes.byref(pointer), size) != 0:
            return said
    cuda("cuMemcpyHtoD_v2", pointers[0], one, size)
    cuda("cuMemcpyHtoD_v2", pointers[1], two, size)
    cuda("cuMemsetD8_v2", pointers[2], ctypes.c_ubyte(255), size)
    count = ctypes.c_uint(_COUNT)
    arguments = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in (*pointers, count)))
    cuda("cuLaunchKernel", function, _COUNT // 256, 1, 1, 256, 1, 1, 0, None, arguments, None)
    cuda("cuCtxSynchronize")
    cuda("cuMemcpyDtoH_v2", back, pointers[2], size)
    said["right"] = all(back[index] == one[index] + two[index] for index in range(_COUNT))
    for pointer in pointers:
        cuda("cuMemFree_v2", pointer)
    return said


def part(out: str, work: str) -> int:
    folder = Folder(out)
    done = folder.keep("cuda", run([sys.executable, "-m", "gpu_evidence.cuda", "256", "1024"], 50, environment()))
    if not done.ok:
        absent = "libcuda.so.1" in done.err
        return folder.answer("absent" if absent else "failed", "libcuda.so.1 cannot be loaded" if absent else done.said)
    said = json.loads(done.out)
    if not (said["added"] or {}).get("right"):
        return folder.answer("failed", f"the addition is wrong or did not run: {said['added']}, {said['calls'][:8]}")
    from gpu_evidence import mps, nvml, product

    with mps.client(environment(), None) as held:
        folder.write_json("held.json", held)
        nvml.in_use(folder, "held")
        product.in_use(folder, "held", work)
    return folder.answer(
        "ran",
        f"{_COUNT} elements added on {said['device']['name']}, allocations {said['allocations']}",
        devices=said["devices"],
    )


def become(user: int) -> None:
    """Go on as another user; from within, for that user need not be allowed to start this Python."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main(words: list[str]) -> int:
    users = [int(word[len("user=") :]) for word in words if word.startswith("user=")]
    if users:
        become(users[0])
    words = [word for word in words if not word.startswith("user=")]
    print(json.dumps(client([int(word) for word in words if word != "hold"])), flush=True)
    if "hold" in words:
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
