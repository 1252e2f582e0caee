# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role gives the module every variable that the stage plans the host's sharing by: one of them cannot refuse what the other plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import GpuFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import variables as variables_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.desired import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import host_sharing
from ansible_collections.gpufleet.nvidia.plugins.modules.mps import ARGUMENTS

ROLE = Path(__file__).resolve().parents[5] / "roles" / "nvidia_sharing"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
GPUS = [GpuFacts(0, uuid="GPU-0", board="l40s-48gb", architecture="ada", memory_mib=46068)]


def options(variables):
    """Return the options of the module as the role's task gives them."""
    (task,) = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    given = {
        name: variables[re.fullmatch(r"{{ (\w+) }}", text)[1]] for name, text in task["gpufleet.nvidia.mps"].items()
    }
    return {**{name: option.get("default") for name, option in ARGUMENTS.items()}, **given}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"backend": "dra", "memory_slice": "4GiB"},
        {"backend": "dra", "mode": "mps", "memory_slice": "4GiB"},
        {"backend": "dra", "mode": "time_slicing", "replicas": 2},
        {"backend": "hami", "memory_slice": "4GiB"},
        {"mode": "mps", "memory_slice": "4GiB", "gpus_per_pod": 2},
        {"mode": "mps", "mps_manager": "host", "replicas": 4},
        {"mode": "time_slicing", "replicas": 4, "time_slice": "long"},
    ],
    ids=str,
)
def test_the_module_wants_what_the_stage_wants(variables):
    desired = {**DEFAULTS, **{f"nvidia_sharing_{name}": value for name, value in variables.items()}}
    wanted = [
        host_sharing(found, GPUS, 580, True) for found in (read(variables_of("mps", options(desired))), read(desired))
    ]
    assert wanted[0] == wanted[1]
