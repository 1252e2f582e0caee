# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens to a host after C(site), and what is changed in its description: which check of C(verify) says so, and that it is one of its
description or one of its function.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import judged
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.plan import FleetPlan, HostPlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.verification import Verification, verification

from . import corpus


def verified(host: corpus.Host, **variables: Any) -> Verification:
    description = describe("host", {**host.variables, **variables}, {"pool": ["host"]})
    return verification(description.stages(view_of(host.facts)), judged(view_of(host.facts)).checks, None)


def failed(found: Verification, group: str) -> list[str]:
    return list(dict.fromkeys(check.name for check in found.failed if check in getattr(found, group)))


@pytest.mark.parametrize(
    ("name", "variables", "stage"),
    [
        (corpus.TRAINING, {"nvidia_mig_layout": [{"devices": "all", "instances": {"7g.80gb": 1}}]}, "mig"),
        (corpus.TRAINING, {"nvidia_settings_power_limit": 300}, "settings"),
        (corpus.SHARED, {"nvidia_sharing_mps_manager": "host"}, "sharing"),
        (corpus.SHARED, {"nvidia_health_metrics": True}, "boot"),
        (corpus.SHARED, {"nvidia_dcgm_state": "present"}, "dcgm"),
        (corpus.SHARED, {"nvidia_driver_hold": False}, "driver"),
        (corpus.SHARED, {"gpu_facts_gpus": [{"board": "l4", "count": 4}]}, "description"),
    ],
)
def test_a_variable_that_was_changed_since_site_is_a_failed_check_of_the_description_alone(name, variables, stage):
    found = verified(corpus.ready(name), **variables)
    assert failed(found, "described") == [stage if stage == "description" else f"stage {stage}"]
    assert failed(found, "function") == []


@pytest.mark.parametrize(
    ("what", "stage"),
    [
        ("the toolkit accepts NVIDIA_VISIBLE_DEVICES from unprivileged containers", "toolkit"),
        ("a release candidate of the toolkit", "toolkit"),
        ("toolkit packages of two versions", "toolkit"),
        ("the toolkit's packages are not held", "toolkit"),
        ("the CDI specification is of another driver", "toolkit"),
        ("a second, broken CDI file", "toolkit"),
        ("the driver's packages are not held", "driver"),
        ("nouveau is loaded", "driver"),
        ("compute mode prohibited", "sharing"),
        ("the record of MIG is gone", "mig"),
        ("the runtime nvidia has another cgroup driver", "runtime"),
        ("metrics are written that nobody asked for", "boot"),
        ("the host program is gone", "boot"),
        ("the host program is of an older release", "boot"),
        ("a unit is not enabled", "boot"),
        ("a unit is masked", "boot"),
        ("a GPU is left in MIG mode", "mig"),
    ],
)
def test_what_was_done_to_a_host_since_site_is_a_failed_check_of_the_description_alone(what, stage):
    found = verified(corpus.edited()[f"{corpus.TRAINING}, {what}"])
    assert (failed(found, "described"), failed(found, "function")) == ([f"stage {stage}"], [])


@pytest.mark.parametrize(
    ("what", "check"),
    [
        ("the runtime is down", "runtime"),
        ("a GPU is lost", "nvml"),
        ("nvidia-smi fails", "nvidia_smi"),
        ("the record has the instances in another order", ""),
        ("an Xid", ""),
    ],
)
def test_what_no_stage_plans_for_is_a_failed_check_of_the_function_at_most(what, check):
    for name in (corpus.TRAINING, corpus.SHARED):
        host = corpus.edited().get(f"{name}, {what}")
        found = verified(host) if host else None
        assert found is None or (failed(found, "described"), failed(found, "function")) == (
            [],
            [check] if check else [],
        )


def test_a_lost_gpu_and_a_second_cdi_file_are_named_by_the_plan():
    found = verified(corpus.edited()[f"{corpus.TRAINING}, a GPU is lost"])
    assert any("GPU 1 fell off the bus" in check.evidence for check in found.checks)
    found = verified(corpus.edited()[f"{corpus.TRAINING}, a second, broken CDI file"])
    assert any("move /etc/cdi/nvidia.yaml aside" in check.evidence for check in found.failed)


@pytest.mark.parametrize("devices", [1, [0, 1]])
def test_what_the_description_says_of_a_lost_gpu_alone_is_not_known_and_stops_no_run(devices):
    host = corpus.ready(
        corpus.TRAINING, corpus.lose, nvidia_mig_layout=[{"devices": devices, "instances": {"7g.80gb": 1}}]
    )
    stages = describe("host", host.variables, {"pool": ["host"]}).stages(view_of(host.facts))
    assert stages["mig"].verdict.value == "unread" and "GPU 1 fell off the bus" in stages["mig"].unread


def _previous(packages):
    facts = corpus.recorded(corpus.SHARED, "ready")
    names = facts["driver"]["packages"]
    facts["recorded"]["driver_previous"] = packages and {
        "schema": 1,
        "version": packages,
        "packages": dict.fromkeys(names, f"{packages}-1"),
    }
    return corpus.Host(facts, {**corpus.described(corpus.SHARED), "nvidia_driver_state": "previous"})


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("580.178.04", ""),
        ("580.159.03", "downgrade driver 580.178.04 to 580.159.03"),
        (None, "no previous driver is recorded"),
    ],
)
def test_the_driver_from_before_the_last_change_is_red_only_until_it_is_there(version, words):
    found = verified(_previous(version))
    assert failed(found, "described") == (["stage driver"] if words else [])
    assert words in " ".join(check.evidence for check in found.failed)


def test_the_last_line_of_plan_says_what_is_above_it():
    refused = describe("a", {"nvidia_driver_hold": "perhaps"}, {"pool": ["a"]}).stages(None)
    hosts = [HostPlan("a", "pool", refused, "it did not answer"), HostPlan("b", "pool", {}, "it did not answer")]
    plan = FleetPlan(hosts, [{"action": "create", "path": "x"}])
    assert "impossible: nvidia_driver_hold" in plan.text()
    assert plan.summary() == (
        "2 hosts: 0 as described, 0 to change, 1 impossible, 1 unread; 1 file of the cluster to change once that is corrected"
    )
    assert plan.remedy().startswith("Correct what is impossible first")
    assert FleetPlan(hosts[1:], plan.files).remedy() == "Correct what keeps the unread hosts from being read."
