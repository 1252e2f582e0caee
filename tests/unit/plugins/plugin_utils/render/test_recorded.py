# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.modes import Sharing
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import capacity
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.recorded import KeptFacts
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen_gpu


def offered(name, starts, size, remaining):
    return {
        "name": name,
        "id": size,
        "memory_mib": 24000 * size,
        "max_instances": 4 // size,
        "remaining": remaining,
        "starts": starts,
        "size": size,
    }


def read(remaining=4, **given):
    profiles = [offered("1g.24gb", [0, 1, 2, 3], 1, remaining), offered("4g.96gb", [0], 4, remaining // 4)]
    gpu = {
        "index": 0,
        "name": "NVIDIA X1000 96GB",
        "memory_mib": 98304,
        "mig": {"supported": True, "current": True, "pending": True},
        "gpu_instances": [],
        "profiles": profiles,
        **given,
    }
    return {"gpu_facts_host": {"gpu": {"schema": 1, "host": {"name": "a"}, "nvml": {"available": True}, "gpus": [gpu]}}}


@pytest.mark.parametrize("layout", ["all-1g.24gb", {"node": {"1g.24gb": 4}}])
def test_a_board_that_the_table_does_not_have_is_rendered_from_what_its_driver_offered(tmp_path, layout):
    fresh = KeptFacts(str(tmp_path))
    fresh.gpus("a", read())
    fresh.keep()
    later = KeptFacts(str(tmp_path)).gpus("a", {})
    assert capacity([seen_gpu(one) for one in later], "mixed", layout, Sharing()).resources == {
        "nvidia.com/mig-1g.24gb": 4
    }


def test_what_is_left_of_the_profiles_changes_no_file(tmp_path):
    first = KeptFacts(str(tmp_path))
    first.gpus("a", read(remaining=4))
    first.keep()
    second = KeptFacts(str(tmp_path))
    second.gpus("a", read(remaining=0))
    assert list(second.outdated()) == []


def test_of_a_board_that_the_table_has_whole_no_profiles_are_kept(tmp_path):
    facts = KeptFacts(str(tmp_path))
    (gpu,) = facts.gpus("a", read(board="h100-80gb-sxm", name="NVIDIA H100 80GB HBM3"))
    assert not gpu.says("profiles")
