# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stage would do, by the facts of a host."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import from_variables
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import from_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.steps import PACKAGES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import PERSISTENCE_UNIT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document, seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._driver.host_double import (
    DAEMON,
    FACTS,
    HELD,
    NEW,
    OLD,
    facts,
    full,
    ready,
)

stage = by_document(stage_of_facts)


def test_the_stage_is_not_needed_only_when_the_facts_prove_it():
    assert not stage(FACTS, {}).needed
    assert not stage({**FACTS, "pci": []}, {}).needed
    assert not stage(facts(packages={}), {"nvidia_driver_state": "absent"}).needed


@pytest.mark.parametrize(
    ("driver", "desired"),
    [
        ({"packages": {}}, {}),
        ({"loaded_version": None}, {}),
        ({"holds": []}, {}),
        ({}, {"nvidia_driver_hold": False}),
        ({"persistence_daemon": {"installed": True, "active": False}}, {}),
        ({"nouveau_loaded": True}, {"nvidia_driver_reboot": True}),
        ({}, {"nvidia_driver_branch": "595"}),
        ({}, {"nvidia_driver_state": "absent"}),
        ({}, {"nvidia_driver_state": "previous"}),
        ({}, {"nvidia_driver_fabric_manager": "always"}),
    ],
)
def test_the_stage_is_needed(driver, desired):
    planned = stage(facts(**driver), desired)
    assert planned.needed
    assert planned.steps or planned.unknown or planned.unread
    assert not planned.refusals


def test_a_masked_service_is_unmasked_before_it_is_started():
    daemon = {"installed": True, "active": False, "masked": True}
    kinds = [step.kind for step in stage(facts(persistence_daemon=daemon), {}).steps]
    assert kinds == [Kind.UNMASK_SERVICE, Kind.START_SERVICE]


@pytest.mark.parametrize(
    ("holders", "desired", "who", "reboot"),
    [
        (
            None,
            {},
            ["the host, which needs a reboot if anything but NVIDIA's services has the driver open"],
            "possible",
        ),
        ([], {}, [], None),
        # A service of the host is stopped for the change; the same program in a container is not.
        ([DAEMON], {}, [], None),
        ([{**DAEMON, "container_id": "a"}], {}, ["nv-hostengine (PID 12) uses the driver"], "needed"),
        ([HELD], {}, ["needs a reboot (nvidia_driver_reboot is false): python3 (PID 4711) uses the driver"], "needed"),
        (
            [HELD],
            {"nvidia_driver_reboot": True},
            ["the host, which is rebooted: python3 (PID 4711) uses"],
            "needed",
        ),
        ([], {"nvidia_driver_reload": "never"}, ["nvidia_driver_reload is never"], "needed"),
        ([{**HELD, "pid": pid} for pid in range(5)], {}, ["python3 (PID 2) uses the driver, 2 more"], "needed"),
    ],
)
@pytest.mark.parametrize("change", [{"nvidia_driver_branch": "595"}, {"nvidia_driver_state": "absent"}])
def test_the_plan_says_whom_another_driver_disturbs_and_whether_the_host_reboots(holders, desired, who, reboot, change):
    instances = [{"id": number, "profile": "1g.10gb", "start": number, "size": 1} for number in (1, 2)]
    given = {**FACTS, "gpus": [{"gpu_instances": instances}, {"gpu_instances": None}]}
    given.update({"holders": holders} if holders is not None else {})
    planned = stage(given, {**change, **desired})
    *_releases_first, step = planned.steps
    # Where the facts tell that somebody is in the way, nothing begins without leave.
    assert bool(planned.refusals) == (reboot == "needed" and "nvidia_driver_reboot" not in desired)
    assert not stage(given, {**change, **desired, "nvidia_driver_disruption": "force"}).refusals
    assert step.disturbs[:2] == ("every process that uses a GPU", "2 MIG instances, which a reload destroys")
    assert len(step.disturbs) == 2 + len(who)
    assert all(part in found for part, found in zip(who, step.disturbs[2:]))
    assert step.data.get("reboot") == reboot


@pytest.mark.parametrize(
    ("driver", "desired"),
    [
        ({}, {}),
        ({"holds": []}, {}),
        ({}, {"nvidia_driver_hold": False}),
        ({"persistence_daemon": {"installed": True, "active": False}}, {}),
        ({"loaded_version": None}, {}),
        ({"loaded_version": NEW}, {}),
        ({}, {"nvidia_driver_module_parameters": {"NVreg_EnableMSI": 1}}),
        ({"configured_parameters": {"NVreg_EnableMSI": "1"}, "loaded_parameters": {"NVreg_EnableMSI": "1"}}, {}),
        (
            {"configured_parameters": {"NVreg_EnableMSI": "1"}, "loaded_parameters": {"NVreg_EnableMSI": "0"}},
            {"nvidia_driver_module_parameters": {"NVreg_EnableMSI": 1}},
        ),
    ],
)
def test_check_mode_of_the_module_and_the_plan_from_facts_are_the_same(driver, desired, monkeypatch):
    given = facts(**driver)
    system = ready()
    system.active = {PERSISTENCE_UNIT} if given["driver"]["persistence_daemon"]["active"] else set()
    monkeypatch.setattr(system, "read", lambda: from_facts(seen(given)))
    report = run_stage(system, from_variables(desired), check=True)
    assert [(step.kind, step.target, step.why) for step in report.steps] == [
        (step.kind, step.target, step.why) for step in stage(given, desired).steps
    ]


POD = {"pod": "team/notebook", "pod_uid": "1", "container": "main", "resource": "nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("gpu", "holders", "who"),
    [
        ({"processes": [], "allocations": [POD]}, [], r"pod team/notebook \(nvidia\.com/gpu\)"),
        (
            {"processes": [], "allocations": [{"reason": "its checkpoint cannot be read"}]},
            [],
            r"unknown \(its checkpoint",
        ),
        ({"processes": [{"pid": 7, "name": "train"}]}, [], r"train \(PID 7\)"),
        ({"processes": [{"pid": 4711, "name": "python3"}]}, [HELD], r"python3 \(PID 4711\)\. Run"),
        ({"processes": None}, None, r"unknown \(NVML reports no processes\)"),
    ],
)
def test_a_driver_in_use_is_refused_whoever_uses_it(gpu, holders, who):
    given = {**FACTS, "gpus": [{"index": 0, **gpu}], **({"holders": holders} if holders is not None else {})}
    (refusal,) = stage(given, {"nvidia_driver_branch": "595"}).refusals
    assert re.search(f"driver {OLD} is loaded and is in use by {who}", refusal.message)
    for part in ("gpufleet.nvidia.upgrade", "nvidia_driver_reboot: true", "nvidia_driver_disruption: force"):
        assert part in refusal.remedy
    # Nobody is asked to leave for what touches neither packages nor the loaded module.
    assert not stage(given, {"nvidia_driver_hold": False}).refusals


def test_nvmls_silence_is_no_user_where_the_holders_are_known():
    given = {**FACTS, "gpus": [{"index": 0, "processes": None}], "holders": [DAEMON]}
    assert not stage(given, {"nvidia_driver_branch": "595"}).refusals


def test_a_module_that_is_not_of_the_packages_leads_to_what_mends_it():
    given = {**facts(loaded_version=NEW), "holders": [HELD]}
    (refusal,) = stage(given, {}).refusals
    assert f"the packages are of driver {OLD}, and driver {NEW} is loaded" in refusal.reason
    assert not stage(given, {"nvidia_driver_reboot": True}).refusals


@pytest.mark.parametrize(
    ("driver", "former", "desired", "refused"),
    [
        # What an upgrade brought, and the inventory of before it.
        ("580.178.04", "575.57.08", {"nvidia_driver_branch": "575"}, 'upgrade gave it .*nvidia_driver_branch: "580"'),
        ("580.178.04", "580.126.09", {"nvidia_driver_version": "580.126.09"}, 'nvidia_driver_version: "580.178.04"'),
        ("580.178.04", "575.57.08", {"nvidia_driver_branch": "570"}, "upgrade gave it"),
        # It follows, or goes on.
        ("580.178.04", "575.57.08", {"nvidia_driver_branch": "580"}, ""),
        ("580.178.04", "575.57.08", {"nvidia_driver_branch": "595"}, ""),
        ("580.178.04", "575.57.08", {"nvidia_driver_branch": "575", "nvidia_driver_allow_downgrade": True}, ""),
        # What was rolled back is not brought again.
        ("580.178.04", "595.91.07", {"nvidia_driver_branch": "595"}, "rollback gave it .*595.91.07.*who@where"),
        ("580.178.04", "595.91.07", {"nvidia_driver_branch": "610"}, ""),
        # Somebody has changed it since.
        ("580.126.09", "575.57.08", {"nvidia_driver_branch": "575"}, ""),
        ("", "", {"nvidia_driver_branch": "575"}, ""),
    ],
)
def test_what_a_rollout_left_is_not_taken_back_until_the_inventory_follows(driver, former, desired, refused):
    about = {"driver": driver, "former": former, "operator": "who@where", "since": "2026-11-26T10:00:00Z"}
    given = {**FACTS, "holders": [], "recorded": {"rolled_out": about if driver else None}}
    options = {"nvidia_driver_allow_vulnerable": True, **desired}
    found = [refusal.message for refusal in stage(given, options).refusals]
    assert len(found) == bool(refused) and all(re.search(refused, message) for message in found), found


@pytest.mark.parametrize(
    ("branch", "kind"), [("575", "downgrade_driver"), ("595", "change_driver"), ("580", "change_driver")]
)
def test_the_plan_says_where_another_driver_is_an_older_one(branch, kind):
    given = {**facts(packages={**full(OLD), "libcuda1": f"{NEW}-1"}), "holders": []}
    planned = stage(given, {"nvidia_driver_branch": branch, "nvidia_driver_allow_vulnerable": True})
    (step,) = [step for step in planned.steps if step.kind in PACKAGES]
    assert step.kind.key == kind and step.what.startswith(kind.replace("_", " "))


def test_on_a_bare_host_a_driver_disturbs_nobody_but_nouveau_asks_for_a_reboot():
    bare = {**FACTS, "driver": {}}
    (step,) = stage(bare, {}).steps
    assert (step.kind.key, step.disturbs, dict(step.data)) == (
        "install_driver",
        (),
        {"version": "", "branch": "580", "before": "packages"},
    )
    taken = stage({**FACTS, "driver": {"nouveau_loaded": True}}, {}).steps[0]
    assert "nouveau holds the GPUs" in taken.disturbs[0] and taken.data["reboot"] == "needed"


@pytest.mark.parametrize(
    ("desired", "thing"),
    [
        ({"nvidia_driver_version": "580.126.09"}, "nvidia_driver_version"),
        ({"nvidia_driver_branch": "570"}, "nvidia_driver_branch"),
        ({"nvidia_driver_branch": "abc"}, "nvidia_driver_branch"),
        ({"nvidia_driver_disruption": "idle_only"}, "nvidia_driver_disruption"),
        ({"nvidia_driver_source": "distribution", "nvidia_driver_branch": "535"}, "nvidia_driver_source"),
    ],
)
def test_the_stage_refuses(desired, thing):
    assert thing in [refusal.thing for refusal in stage(FACTS, desired).refusals]


def test_the_stage_bears_a_bare_host():
    assert stage({}, {}).refusals
    bare = {**FACTS, "driver": None, "fabric": None, "pci": None}
    assert stage(bare, {}).needed
    secure = {**FACTS, "host": {**FACTS["host"], "secure_boot": True}, "driver": {}}
    assert "Secure Boot" in " ".join(stage(secure, {}).warnings)


def test_a_driver_of_somebody_else_is_left_alone():
    planned = stage({}, {"nvidia_driver_state": "unmanaged"})
    assert not planned.needed
    assert not planned.steps


@pytest.mark.parametrize(("headers", "steps"), [(False, True), (True, False), (None, False)])
def test_the_headers_of_the_next_kernel_are_a_step_where_its_module_has_to_be_built(headers, steps):
    host = facts(packages=full(OLD), holds=list(full(OLD)))
    following = {"release": "6.1.0-99-amd64", "version": None, "headers": headers}
    host["driver"].update(
        next_kernel=following, dkms=[{"name": "nvidia", "version": OLD, "kernel": None, "state": "added"}]
    )
    planned = [str(step) for step in stage(host, {}).steps]
    assert any("build" in text and "6.1.0-99-amd64" in text for text in planned)
    assert any("linux-headers-6.1.0-99-amd64" in text for text in planned) is steps
