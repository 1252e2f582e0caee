# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The health check of a host whose GPU works."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="module")
def health(module):
    answer = module("health", {"fail": False})
    return {check["name"]: check for check in answer["checks"]}


@pytest.mark.parametrize("name", ["driver", "nvidia_smi", "nvml", "mig"])
def test_a_gpu_that_works_is_found_healthy(health, name):
    if name == "nvidia_smi" and shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not installed")
    assert health[name]["status"] in ("passed", "skipped" if name == "mig" else "passed"), health[name]


def test_what_is_not_as_expected_fails(module, document):
    count = len(document["gpus"])
    answer = module("health", {"expect": {"driver_version": "1.2.3"}, "checks": ["driver"]})
    assert answer["failed"] is True and answer["changed"] is False
    assert answer["failed_check"] == "driver"
    assert "1.2.3 is expected" in answer["msg"]
    if document["pci"] is not None:
        assert module("health", {"expect": {"gpus": count + 1}, "fail": False})["failed_check"] == "pci"


def test_a_command_of_the_user_is_judged_by_its_end(module):
    answer = module("health", {"checks": ["cuda"], "cuda_check": ["/bin/sh", "-c", "exit 3"], "fail": False})
    assert answer["failed_check"] in ("cuda", "fabric")
