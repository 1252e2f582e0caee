# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage from facts: what site would do, and what it refuses before the first host is touched."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.packages import names
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document

stage = by_document(stage_of_facts)

DEFAULTS = collect({}, lambda value: value)
INSTALLED = dict.fromkeys(names(["13"]), "1:4.6.0-1")
RUNNING = {
    "packages": INSTALLED,
    "holds": sorted(INSTALLED),
    "dcgmi": "/usr/bin/dcgmi",
    "active": True,
    "enabled": True,
}
NONE = {"packages": {}, "holds": [], "dcgmi": None, "active": False, "enabled": False}


def plan(dcgm, driver="580.178.04", cards=(), distribution=("debian", "12"), **given):
    facts = {
        "host": {"distribution": dict(zip(("id", "version"), distribution)), "architecture": "x86_64"},
        "driver": {"on_disk_version": driver},
        "pci": [{"architecture": one} for one in cards],
    }
    if dcgm is not None:
        facts["dcgm"] = dcgm
    return stage(facts, {**DEFAULTS, **given})


def present(dcgm, **given):
    return plan(dcgm, **{"nvidia_dcgm_state": "present", **given})


def kinds(found):
    return [step.kind.key for step in found.steps]


def things(found):
    return [refusal.thing for refusal in found.refusals]


def test_by_default_nothing_is_done():
    for dcgm in (None, NONE, RUNNING):
        found = plan(dcgm)
        assert not (found.needed or found.steps or found.refusals)


def test_a_bare_host_gets_packages_holds_and_engine():
    found = present(NONE, driver=None)
    assert kinds(found) == ["install_dcgm", "hold_packages", "enable_service", "start_service"]
    assert str(found.steps[0]).startswith(
        "install DCGM 4.6.0 for CUDA 13 (datacenter-gpu-manager-4-core is not installed"
    )
    assert found.steps[1].data["packages"] == list(names(["13"]))


def test_what_is_there_is_not_done_again():
    assert not present(RUNNING).needed


@pytest.mark.parametrize(
    ("change", "given", "expected"),
    [
        ({"active": False}, {}, ["start_service"]),
        ({"enabled": False}, {}, ["enable_service"]),
        ({"holds": []}, {}, ["hold_packages"]),
        ({}, {"nvidia_dcgm_hold": False}, ["release_packages"]),
        ({}, {"nvidia_dcgm_version": "4.5.3"}, ["install_dcgm", "hold_packages", "start_service"]),
        ({}, {"nvidia_dcgm_cuda": ["12", "13"]}, ["install_dcgm", "hold_packages", "start_service"]),
        # After a rollback the driver is not the described one.
        ({}, {"driver": "575.57.08"}, ["install_dcgm", "hold_packages", "start_service"]),
        ({}, {"nvidia_driver_branch": "575"}, ["install_dcgm", "hold_packages", "start_service"]),
    ],
)
def test_what_differs_is_planned(change, given, expected):
    assert kinds(present({**RUNNING, **change}, **given)) == expected


def test_packages_that_are_not_known_are_asked_on_the_host():
    found = present({**RUNNING, "packages": None, "holds": None})
    assert found.needed and found.unread and not found.steps
    assert present({**RUNNING, "packages": None}, nvidia_dcgm_state="absent").unread


def test_without_a_driver_and_without_a_description_of_one():
    assert "no driver" in present(NONE, driver=None, nvidia_driver_state="unmanaged").unknown
    by_hand = present(NONE, driver=None, nvidia_driver_state="unmanaged", nvidia_dcgm_cuda=["13"])
    assert kinds(by_hand)[0] == "install_dcgm"


@pytest.mark.parametrize(
    ("given", "thing", "text"),
    [
        (
            {"distribution": ("debian", "13")},
            "nvidia_dcgm_state",
            "no source was found for packages of DCGM 4 for Debian 13",
        ),
        ({"nvidia_dcgm_version": "4.5.2"}, "nvidia_dcgm_version", "security floor"),
        ({"nvidia_driver_branch": "625", "driver": None}, "nvidia_dcgm_cuda", "branch 625"),
        ({"cards": ["volta"]}, "nvidia_dcgm_cuda", "NVIDIA/DCGM#254"),
        ({"nvidia_driver_source": "distribution"}, "nvidia_dcgm_state", "only in NVIDIA's CUDA repository"),
    ],
)
def test_what_cannot_be_met_is_refused(given, thing, text):
    found = present(NONE, **given)
    assert things(found) == [thing] and found.needed and not found.steps
    assert text in found.refusals[0].message


def test_all_that_is_wrong_is_said_at_once():
    found = present(NONE, nvidia_dcgm_version="4.5.2", distribution=("fedora", "44"))
    assert things(found) == ["nvidia_dcgm_version", "nvidia_dcgm_state"]


def test_packages_of_another_repository_are_used():
    ours = {"nvidia_driver_source": "distribution"}
    assert not present(RUNNING, **ours).refusals
    assert not present(NONE, **ours, nvidia_driver_manage_repository=False).refusals


def test_a_vulnerable_version_that_is_allowed_is_warned_of():
    found = present(NONE, nvidia_dcgm_version="4.5.2", nvidia_dcgm_allow_vulnerable=True)
    assert "VULNERABLE" in found.warnings[0] and not found.refusals


@pytest.mark.parametrize(
    ("dcgm", "given", "refused"),
    [
        (NONE, {}, True),
        (RUNNING, {}, False),
        # Facts of a release before this one do not tell.
        (None, {}, False),
        (NONE, {"nvidia_dcgm_state": "present"}, False),
        (RUNNING, {"nvidia_dcgm_state": "absent"}, True),
        (NONE, {"nvidia_health_dcgm_level": 0}, False),
    ],
)
def test_a_level_that_nothing_could_run_is_refused(dcgm, given, refused):
    found = plan(dcgm, **{"nvidia_health_dcgm_level": 2, **given})
    assert things(found) == (["nvidia_health_dcgm_level"] if refused else [])


def test_absent():
    assert plan(RUNNING, nvidia_dcgm_state="absent").needed
    assert not plan(NONE, nvidia_dcgm_state="absent").needed
