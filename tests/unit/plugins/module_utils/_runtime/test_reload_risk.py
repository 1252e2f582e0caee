# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan names the programs in containers that a reload of systemd may take GPUs from."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.stage import refused_reload
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

HOLDERS = [
    {"command": "python3", "pid": 41, "container_id": "c1"},
    {"command": "nv-hostengine", "pid": 42, "container_id": ""},
]
DESIRED = {"nvidia_toolkit_runtime": "containerd", "nvidia_toolkit_device_injection": "envvar"}


def facts(driver="systemd", holders=tuple(HOLDERS)):
    return {"runtimes": {"containerd": {"cgroup_drivers": {"runc": driver}}}, "holders": holders}


def test_programs_in_containers_are_named():
    (warning,) = refused_reload(seen(facts()), DESIRED)
    assert "Running in containers: python3 (PID 41). Drain the host first" in warning
    assert "nv-hostengine" not in warning


@pytest.mark.parametrize(
    ("found", "desired"),
    [
        (facts("cgroupfs"), DESIRED),
        (facts(holders=HOLDERS[1:]), DESIRED),
        (facts(), {**DESIRED, "nvidia_toolkit_device_injection": "cdi"}),
        (facts(), {**DESIRED, "nvidia_toolkit_runtime": "crio"}),
        ({}, DESIRED),
    ],
    ids=["another cgroup driver", "no container", "CDI", "another runtime", "nothing is known"],
)
def test_nothing_is_said_where_nothing_is_at_risk(found, desired):
    assert refused_reload(seen(found), desired) == ()
