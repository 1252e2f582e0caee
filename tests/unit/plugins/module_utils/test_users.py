# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import (
    HOLDER,
    PROCESS,
    TOLERATE_RESET,
    User,
    holders_of,
    merged,
    mps_pids,
    named,
    names,
    reset_obstacle,
    users_of,
)

TRAIN, OTHER = {"pid": 812, "name": "python3"}, {"pid": 813, "name": None}
NOBODY_KNOWS = "unknown (NVML reports no processes)"


def gpu(whole=(), on_instance=(), on_part=(), **parts):
    part = {"id": 0, "profile": "1g.10gb", "uuid": "MIG-a", "processes": list(on_part)}
    place = {"profile": "1g.10gb", "start": 0, "size": 1}
    instance = {**place, "id": 1, "processes": list(on_instance), "compute_instances": [part]}
    empty = {**place, "id": 2, "processes": [], "compute_instances": []}
    processes = None if whole is None else list(whole)
    return {"index": 0, "minor": 3, "processes": processes, "gpu_instances": [instance, empty], **parts}


@pytest.mark.parametrize(
    ("given", "everybody", "on_one", "on_part", "on_empty"),
    [
        (gpu(), (), (), (), ()),
        # NVML lists the processes of instances on their GPU, too.
        (gpu([TRAIN], [TRAIN], [TRAIN]), ("python3 (PID 812)",), (), ("python3 (PID 812)",), ()),
        (gpu([], [TRAIN]), ("python3 (PID 812)",), ("python3 (PID 812)",), (), ()),
        (gpu([{**TRAIN, "gpu_instance": 1}], [TRAIN]), ("python3 (PID 812)",), ("python3 (PID 812)",), (), ()),
        # On no instance that is known: it may be on any.
        (gpu([OTHER]), ("a process (PID 813)",), (), ("a process (PID 813)",), ("a process (PID 813)",)),
        (gpu([{**OTHER, "gpu_instance": 7}]), ("a process (PID 813)",), (), (), ()),
        (gpu(None), (NOBODY_KNOWS,), (), (NOBODY_KNOWS,), (NOBODY_KNOWS,)),
        # Of a GPU that fell off the bus nothing is known, and nothing can use it.
        (gpu(None, lost=True), (), (), (), ()),
    ],
)
def test_the_users_of_a_gpu_and_its_parts(given, everybody, on_one, on_part, on_empty):
    found = users_of(gpu_view(given))
    assert names(found.everybody) == everybody
    assert names(found.instances[1]) == on_one
    assert names(found.compute[1, 0]) == on_part
    assert names(found.instances[2]) == on_empty
    assert names(found.on(1)) == (*on_one, *on_part)


def test_users_of_one_name_are_one_text():
    users = [User(PROCESS, "python3", pid) for pid in (7, 8)]
    users += [User(HOLDER, "python3", 9, "pod abc"), User(PROCESS, "someone")]
    assert named(users) == "python3 (PIDs 7, 8), python3 (PID 9, pod abc), someone"
    assert str(users[2]) == "python3 (PID 9, pod abc)"


def test_a_process_counts_once_and_by_what_tells_most_of_it():
    holder = {"pid": 812, "command": "python3", "devices": ["/dev/nvidia3"], "pod_uid": "abc"}
    assert names(
        merged(users_of(gpu_view(gpu([TRAIN]))).everybody, holders_of(view_of({"holders": [holder]}).holders, 3))
    ) == ("python3 (PID 812, pod abc)",)


HOLDERS = [
    {"pid": 1, "command": "nvidia-persiste", "devices": ["/dev/nvidia3"]},
    {"pid": 2, "command": "nv-hostengine", "devices": ["/dev/nvidia3", "/dev/nvidiactl"]},
    {"pid": 3, "command": "python3", "devices": ["/dev/nvidia30"]},
]


HOLDERS = view_of({"holders": HOLDERS}).holders


def test_holders_of_a_gpu_and_of_the_driver():
    assert names(holders_of(HOLDERS, 3, TOLERATE_RESET)) == ("nv-hostengine (PID 2)",)
    assert [user.pid for user in holders_of(HOLDERS)] == [1, 2, 3]
    assert holders_of(None) == ()


def test_what_keeps_a_gpu_from_a_reset():
    assert reset_obstacle(gpu_view(gpu()), HOLDERS) == "is held by nv-hostengine (PID 2)"
    assert reset_obstacle(gpu_view(gpu([TRAIN])), HOLDERS) == "is in use by python3 (PID 812)"
    assert reset_obstacle(gpu_view(gpu(None)), ()) == f"is in use by {NOBODY_KNOWS}"
    assert reset_obstacle(gpu_view(gpu()), HOLDERS[:1]) == ""


def test_daemons_of_mps_work_for_others():
    assert mps_pids(view_of({"mps": [{"pid": 900, "servers": [910]}, {"pid": 901, "servers": None}]})) == {
        900,
        901,
        910,
    }
    assert mps_pids(view_of({})) == frozenset()
