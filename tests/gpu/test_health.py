# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The health check of a host whose GPU works."""

from __future__ import annotations

import shutil

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import judged

#: What a board or a branch of the driver does not have is skipped, and says so.
MAY_BE_SKIPPED = ("recovery", "memory")


@pytest.fixture(scope="module")
def health(module):
    answer = module("health", {"fail": False})
    return {check["name"]: check for check in answer["checks"]}


@pytest.mark.parametrize("name", ["driver", "nvidia_smi", "nvml", *MAY_BE_SKIPPED])
def test_a_gpu_that_works_is_found_healthy(health, name):
    if name == "nvidia_smi" and shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not installed")
    assert health[name]["status"] in ("passed", *(("skipped",) if name in MAY_BE_SKIPPED else ())), health[name]


def test_the_facts_of_the_gpu_are_judged_as_the_module_judges_them(health, module):
    facts = module("gpu_info", {"gather": ["errors", "health"]})["gpu"]
    of_facts = {check["name"]: check["status"] for check in judged(view_of(facts)).as_list()}
    for name in ("driver", "nvidia_smi", "nvml", *MAY_BE_SKIPPED):
        assert of_facts[name] == health[name]["status"], name


def test_a_gpu_that_the_driver_does_not_show_is_the_first_failure(module):
    facts = module("gpu_info", {"gather": ["errors", "health"]})["gpu"]
    lost = facts["gpus"].pop()
    report = judged(view_of(facts))
    assert report.first_failure is not None and report.first_failure[0] == "nvml"
    if facts["pci"] is not None:
        assert f"NVML does not see {lost['pci_address']}" in report.message


def test_what_does_not_work_fails_the_module_with_the_reason(module):
    answer = module("health", {"checks": ["cuda"], "cuda_check": ["/bin/sh", "-c", "echo no device; exit 3"]})
    assert answer["failed"] is True and answer["changed"] is False and answer["healthy"] is False
    assert answer["failed_check"] in ("cuda", "fabric")
    if answer["failed_check"] == "cuda":
        assert "the CUDA command ended with 3: no device" in answer["msg"]


def test_a_command_of_the_user_is_judged_by_its_end(module):
    for status, failed in ((3, "cuda"), (0, None)):
        answer = module(
            "health", {"checks": ["cuda"], "cuda_check": ["/bin/sh", "-c", f"exit {status}"], "fail": False}
        )
        assert answer["failed_check"] in (failed, "fabric")
        assert "failed" not in answer
