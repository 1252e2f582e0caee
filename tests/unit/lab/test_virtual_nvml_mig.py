# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPU and compute instances, as pynvml sees them from separate processes."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine

ENABLE = "d = nvmlDeviceGetHandleByIndex(0); nvmlDeviceSetMigMode(d, 1)\n"


def with_mig(machine: VirtualMachine, *boards: str) -> VirtualMachine:
    """MIG on, on every GPU that has it; Ampere through its reset."""
    machine.start(*boards)
    machine.nvml(
        """
        for i in range(nvmlDeviceGetCount()):
            refused(nvmlDeviceSetMigMode, nvmlDeviceGetHandleByIndex(i), 1)
        answer(None)
        """
    )
    machine.gpu("reset")
    return machine


def test_driver_chooses_the_places_of_the_real_one(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm", "--count=2")
    assert machine.nvml(
        """
        a, b = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
        answer([[place(create(a, 19))[1] for _ in range(7)], [place(create(b, 15))[1] for _ in range(4)]])
        """
    ) == [[6, 4, 5, 0, 1, 2, 3], [4, 0, 2, 6]]


def test_order_matters_to_the_driver_as_on_the_real_one(machine: VirtualMachine) -> None:
    """The MIG guide's known issue: 19,19,14,9 fails and 9 first works."""
    with_mig(machine, "a100-40gb", "--count=2")
    script = "d = nvmlDeviceGetHandleByIndex({}); answer([refused(create, d, p) for p in {}])"
    assert machine.nvml(script.format(0, [19, 19, 14, 9])) == [None, None, None, "InsufficientResources"]
    assert machine.nvml(script.format(1, [9, 14, 19, 19])) == [None] * 4


@pytest.mark.parametrize(
    ("mirrored", "ids"),
    [
        ([], {"3g": [[1, 0, 4], [2, 4, 4]], "1g": [[7 + s, s, 1] for s in range(7)]}),
        (["--mirrored"], {"3g": [[1, 4, 4], [2, 0, 4]], "1g": [[7 + (s + 4) % 8, s, 1] for s in range(7)]}),
    ],
)
def test_instance_ids_are_not_places(
    machine: VirtualMachine, mirrored: list[str], ids: dict[str, list[list[int]]]
) -> None:
    machine.gpu("create", "--board", "h100-80gb-sxm", *mirrored)
    machine.gpu("boot")
    machine.gpu("load", "580.126.09", "open")
    found = machine.nvml(
        ENABLE
        + """
three = [create(d, 9, 0), create(d, 9, 4)]
places = [place(i) for i in three]
for i in three: nvmlGpuInstanceDestroy(i)
answer([sorted(places), sorted((place(create(d, 19, s)) for s in range(7)), key=lambda p: p[1])])
"""
    )
    assert found == [sorted(ids["3g"]), ids["1g"]]


def test_other_processes_see_what_one_made(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm")
    made = machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        instance = create(d, 9, 4)
        nvmlGpuInstanceCreateComputeInstance(instance, 2)
        answer([place(instance), nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(d, 0))])
        """
    )
    seen = machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        m = nvmlDeviceGetMigDeviceHandleByIndex(d, 0)
        answer([place(gpu_instances(d)[0]), nvmlDeviceGetUUID(m)])
        """
    )
    assert seen == made
    shown = machine.show()["gpus"][0]["gpu_instances"][0]
    assert [shown["id"], shown["start"], shown["size"]] == made[0]
    assert shown["compute_instances"][0]["uuid"] == made[1]


def test_mig_device(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm")
    found = machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        instance = create(d, 9, 0)
        nvmlGpuInstanceCreateComputeInstance(instance, 1)
        nvmlGpuInstanceCreateComputeInstance(instance, 0)
        mig = [nvmlDeviceGetMigDeviceHandleByIndex(d, i) for i in range(2)]
        a = nvmlDeviceGetAttributes(mig[0])
        answer({
            "names": [nvmlDeviceGetName(m) for m in mig],
            "ids": [[nvmlDeviceGetGpuInstanceId(m), nvmlDeviceGetComputeInstanceId(m)] for m in mig],
            "parent": nvmlDeviceGetUUID(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig[0])) == nvmlDeviceGetUUID(d),
            "attributes": [a.multiprocessorCount, a.gpuInstanceSliceCount, a.computeInstanceSliceCount, a.memorySizeMB],
            "memory": nvmlDeviceGetMemoryInfo(mig[0]).total >> 20,
            "is_mig": [nvmlDeviceIsMigDeviceHandle(h).value for h in (d, mig[0])],
            "by_uuid": nvmlDeviceGetUUID(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(mig[1]))) == nvmlDeviceGetUUID(mig[1]),
            "uuid": nvmlDeviceGetUUID(mig[0]),
        })
        """
    )
    assert found["names"] == ["NVIDIA H100 80GB HBM3 MIG 2c.3g.40gb", "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"]
    assert found["ids"] == [[1, 0], [1, 1]]
    assert found["attributes"] == [32, 3, 2, 40448]
    assert found["memory"] == 40448
    assert found["is_mig"] == [0, 1]
    assert found["parent"] and found["by_uuid"]
    assert uuid.UUID(found["uuid"].removeprefix("MIG-")).version == 5


def test_a_recreated_instance_has_its_uuid_back(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm", "--count=2")
    first, again, other = machine.nvml(
        """
        def make(gpu):
            d = nvmlDeviceGetHandleByIndex(gpu)
            gi = create(d, 9, 0)
            ci = nvmlGpuInstanceCreateComputeInstance(gi, 2)
            uuid = nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(d, 0))
            nvmlComputeInstanceDestroy(ci); nvmlGpuInstanceDestroy(gi)
            return uuid
        answer([make(0), make(0), make(1)])
        """
    )
    assert first == again != other


def test_destroyed_device_leaves_a_hole_in_the_index(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm")
    assert machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        made = [(g, nvmlGpuInstanceCreateComputeInstance(g, 0)) for g in (create(d, 19) for _ in range(3))]
        nvmlComputeInstanceDestroy(made[1][1])
        nvmlGpuInstanceDestroy(made[1][0])
        answer([nvmlDeviceGetMaxMigDeviceCount(d)]
               + [refused(nvmlDeviceGetMigDeviceHandleByIndex, d, i) for i in (0, 1, 2, 3, 7)])
        """
    ) == [7, None, "NotFound", None, "NotFound", "InvalidArgument"]


def test_the_compute_instance_with_all_multiprocessors_of_a_double_memory_slice(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm", "--board=a100-40gb")
    script = """
        d = nvmlDeviceGetHandleByIndex({})
        g = create(d, 15)
        found = {{}}
        for e in range(NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            try:
                found[e] = nvmlGpuInstanceGetComputeInstanceProfileInfo(g, e, 0).multiprocessorCount
            except NVMLError_NotSupported:
                pass
        answer(found)
        """
    assert machine.nvml(script.format(0)) == {"0": 16, "7": 26}
    assert machine.nvml(script.format(1)) == {"0": 14}


def test_compute_instances_share_the_slices(machine: VirtualMachine) -> None:
    with_mig(machine, "a100-40gb")
    found = machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        g = create(d, 0)
        def left(p): return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(g, p)
        def places(p):
            where, count = (c_nvmlComputeInstancePlacement_t * 8)(), c_uint(8)
            nvmlGpuInstanceGetComputeInstancePossiblePlacements(g, p, where, byref(count))
            return [[w.start, w.size] for w in where[: count.value]]
        before = [left(p) for p in (0, 1, 2, 3, 4)]
        at = c_nvmlComputeInstancePlacement_t(4, 3)
        c = nvmlGpuInstanceCreateComputeInstanceWithPlacement(g, 2, byref(at))
        again = refused(nvmlGpuInstanceCreateComputeInstanceWithPlacement, g, 2, byref(at))
        odd = refused(nvmlGpuInstanceCreateComputeInstanceWithPlacement, g, 2, byref(c_nvmlComputeInstancePlacement_t(1, 3)))
        info = nvmlComputeInstanceGetInfo(c)
        answer([before, places(1), [left(p) for p in (0, 1, 2, 3, 4)], again, odd, [info.placement.start, info.profileId],
                refused(nvmlGpuInstanceCreateComputeInstance, g, 4)])
        """
    )
    assert found == [
        [7, 3, 2, 1, 1], [[0, 2], [2, 2], [4, 2]], [4, 2, 1, 1, 0], "InsufficientResources", "InvalidArgument", [4, 2],
        "InsufficientResources",
    ]  # fmt: skip


def test_what_is_in_use_stays(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm")
    machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        nvmlGpuInstanceCreateComputeInstance(create(d, 9, 4), 2)
        nvmlGpuInstanceCreateComputeInstance(create(d, 19, 0), 0)
        answer(None)
        """
    )
    machine.gpu(
        "run", "--gpu", "0", "--gi", "2", "--ci", "0", "--pid", "4100001", "--memory", "2048", "--name", "train.py"
    )
    script = """
        d = nvmlDeviceGetHandleByIndex(0)
        busy, idle = nvmlDeviceGetGpuInstanceById(d, 2), nvmlDeviceGetGpuInstanceById(d, 7)
        answer([refused(nvmlGpuInstanceDestroy, busy), refused(nvmlComputeInstanceDestroy, nvmlGpuInstanceGetComputeInstanceById(busy, 0)),
                refused(nvmlGpuInstanceDestroy, idle), refused(nvmlComputeInstanceDestroy, nvmlGpuInstanceGetComputeInstanceById(idle, 0)),
                refused(nvmlGpuInstanceDestroy, idle),
                [[p.pid, p.usedGpuMemory >> 20, p.gpuInstanceId, p.computeInstanceId] for p in nvmlDeviceGetComputeRunningProcesses(d)],
                [p.pid for p in nvmlDeviceGetComputeRunningProcesses(nvmlDeviceGetMigDeviceHandleByIndex(d, 0))],
                nvmlSystemGetProcessName(4100001)])
        """
    process = [[4100001, 2048, 2, 0]]
    assert machine.nvml(script) == ["InUse", "InUse", "InUse", None, None, process, [4100001], "train.py"]
    machine.gpu("stop", "--pid", "4100001")
    assert machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        g = nvmlDeviceGetGpuInstanceById(d, 2)
        nvmlComputeInstanceDestroy(nvmlGpuInstanceGetComputeInstanceById(g, 0)); nvmlGpuInstanceDestroy(g)
        answer([len(gpu_instances(d)), refused(nvmlGpuInstanceGetInfo, g), refused(nvmlDeviceGetGpuInstanceById, d, 2)])
        """
    ) == [0, "InvalidArgument", "NotFound"]


def test_a_process_on_the_whole_gpu_stops_creation(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm")
    machine.gpu("run", "--gpu", "0", "--pid", "4100001")
    assert machine.nvml("answer(refused(create, nvmlDeviceGetHandleByIndex(0), 19))") == "InUse"


def test_return_codes(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--board=t4")
    before = machine.nvml(
        """
        a, b = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
        answer([refused(create, a, 19), refused(nvmlDeviceGetMigMode, b), refused(nvmlDeviceSetMigMode, b, 1),
                refused(nvmlDeviceGetGpuInstanceProfileInfo, a, 99), refused(nvmlDeviceGetGpuInstanceProfileInfo, a, 5),
                refused(nvmlDeviceGetGpuInstanceProfileInfo, a, 0), nvmlDeviceGetMaxMigDeviceCount(b),
                refused(nvmlDeviceGetMigDeviceHandleByIndex, a, 0), refused(nvmlDeviceGetHandleByIndex, 2),
                refused(nvmlDeviceSetMigMode, a, 7)])
        """
    )
    assert before == [
        "NotSupported", "NotSupported", "NotSupported", "InvalidArgument", "NotSupported", None, 0, "NotFound", "InvalidArgument",
        "InvalidArgument",
    ]  # fmt: skip
    after = machine.nvml(
        ENABLE
        + """
create(d, 9, 0)
answer([refused(create, d, 9, 0), refused(create, d, 9, 2), refused(create, d, 0), refused(create, d, 77)])
"""
    )
    assert after == ["InsufficientResources", "InvalidArgument", "InsufficientResources", "InvalidArgument"]


def test_only_root_changes(machine: VirtualMachine) -> None:
    with_mig(machine, "h100-80gb-sxm")
    calls = """
        d = nvmlDeviceGetHandleByIndex(0)
        answer([refused(nvmlDeviceSetMigMode, d, 0), refused(nvmlDeviceCreateGpuInstance, d, 19),
                refused(nvmlDeviceSetComputeMode, d, 0), refused(nvmlDeviceSetPersistenceMode, d, 1), refused(nvmlDeviceGetMigMode, d)])
        """
    assert machine.nvml(calls, VIRTUAL_GPU_PRIVILEGED="0") == ["NoPermission"] * 4 + [None]


def test_media_engines_are_shared_by_all(machine: VirtualMachine) -> None:
    with_mig(machine, "rtx-pro-6000-96gb")
    assert machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        ids = profile_ids(d)
        create(d, ids["1g.24gb+me.all"])
        answer([nvmlDeviceGetGpuInstanceRemainingCapacity(d, ids[n]) for n in ("1g.24gb", "1g.24gb-me", "2g.48gb", "2g.48gb-me")]
               + [refused(create, d, ids["1g.24gb"])])
        """
    ) == [0, 3, 0, 1, "InsufficientResources"]


#: Boards with every kind of grid, with the number of all layouts that placements, limits and engines allow.
#: The numbers for A30, A100 and RTX PRO 6000 are those of independent enumerations of the same hardware.
LAYOUTS = {"a30-24gb": 76, "a100-40gb": 2319, "rtx-pro-6000-96gb": 717}


def _mark_of(count):
    """Every layout of a board takes its time: the more, the later."""
    return [pytest.mark.slow, pytest.mark.by_name] if count > 1000 else [pytest.mark.slow] if count > 100 else []


@pytest.mark.parametrize("board", [pytest.param(board, marks=_mark_of(count)) for board, count in LAYOUTS.items()])
def test_all_layouts_of_a_board(machine: VirtualMachine, board: str) -> None:
    """Walk depth first through every layout by create and destroy, and count them."""
    with_mig(machine, board)
    found = machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        places = []
        for profile in profile_ids(d).values():
            where, count = (c_nvmlGpuInstancePlacement_t * 16)(), c_uint(16)
            nvmlDeviceGetGpuInstancePossiblePlacements(d, profile, where, byref(count))
            places += [(profile, where[i].start) for i in range(count.value)]
        def walk(first):
            total = 1
            for i in range(first, len(places)):
                try:
                    g = create(d, *places[i])
                except NVMLError_InsufficientResources:
                    continue
                total += walk(i + 1)
                nvmlGpuInstanceDestroy(g)
            return total
        answer([len(places), walk(0)])
        """
    )
    assert found[1] == LAYOUTS[board]
