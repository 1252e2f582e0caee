# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX in the stage of the driver, from facts alone and on a host in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver, from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import IMEX_NODES_FILE, IMEX_UNIT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import DesiredImex
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import PreviousDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import HOLDER, User
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document, card
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._driver.host_double import (
    DAEMON,
    NEW,
    OLD,
    Manager,
    System,
    facts,
    full,
)

stage = by_document(stage_of_facts)

GB200 = card("0", "0x2941", "blackwell", "gb200-186gb")
RACK = DesiredImex("host", ("10.0.0.1", "10.0.0.2"))


def rack_host():
    """A host of a rack with the wanted driver and the package of IMEX, of which nothing was set up."""
    packages = {**full(NEW), "nvidia-imex": f"{NEW}-1"}
    system = System(Manager(packages, packages), loaded=NEW)
    system.base = replace(system.base, gpus=(GB200,))
    system.active, system.enabled = ({"nvidia-persistenced.service"} for _each in range(2))
    return system


def test_imex_runs_with_the_racks_nodes_and_a_second_run_has_nothing_to_do():
    system = rack_host()
    wanted = DesiredDriver(version=NEW, imex=RACK)
    checked = run_stage(system, wanted, check=True)
    assert IMEX_NODES_FILE not in system.files and IMEX_UNIT not in system.active
    report = run_stage(system, wanted, check=False)
    assert [step.kind for step in checked.steps] == [step.kind for step in report.steps]
    assert [step.kind.key for step in report.steps] == ["write_file", "enable_service", "start_service"]
    assert system.files[IMEX_NODES_FILE] == "10.0.0.1\n10.0.0.2\n"
    assert IMEX_UNIT in system.active & system.enabled
    assert not run_stage(system, wanted, check=False).changed


def test_other_nodes_restart_imex_where_nobody_uses_the_gpus_or_it_is_allowed():
    system = rack_host()
    run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)
    system.user_list = (User(HOLDER, "nvidia-imex", 7), User(HOLDER, "nvidia-persistenced", 8))
    moved = replace(RACK, nodes=("10.0.0.1", "10.0.0.3"))
    report = run_stage(system, DesiredDriver(version=NEW, imex=moved), check=False)
    assert [step.kind.key for step in report.steps] == ["write_file", "restart_service"]
    assert not report.steps[-1].disturbs
    system.user_list = (User(HOLDER, "python3", 4711),)
    with pytest.raises(
        Failure, match=r"python3 \(PID 4711\) uses the GPUs. Drain the rack first, or set nvidia_driver_imex_restart"
    ):
        run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)
    assert system.files[IMEX_NODES_FILE] == "10.0.0.1\n10.0.0.3\n"
    report = run_stage(system, DesiredDriver(version=NEW, imex=replace(RACK, restart=True)), check=False)
    assert report.steps[-1].disturbs == ("jobs of the rack that have imported memory of this host's GPUs",)


def test_a_run_that_is_cut_off_before_the_restart_is_finished_by_the_next(monkeypatch):
    system = rack_host()
    run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)
    moved = DesiredDriver(version=NEW, imex=replace(RACK, nodes=("10.0.0.1", "10.0.0.3")))
    with monkeypatch.context() as cut:
        cut.setattr(system, "restart", lambda _name: system.missing)
        with pytest.raises(AttributeError):
            run_stage(system, moved, check=False)
    assert [step.kind.key for step in run_stage(system, moved, check=False).steps] == ["start_service"]


def test_imex_is_masked_for_compute_domains_and_unmasked_again():
    system = rack_host()
    run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)
    masked = DesiredDriver(version=NEW, imex=DesiredImex("masked"))
    assert [str(step) for step in run_stage(system, masked, check=False).steps] == [
        "mask nvidia-imex.service (ComputeDomains run their own)"
    ]
    assert IMEX_UNIT not in system.active
    assert not run_stage(system, masked, check=False).changed
    kinds = [step.kind.key for step in run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False).steps]
    assert kinds == ["unmask_service", "start_service"]


def test_an_imex_that_does_not_stay_up_is_no_success():
    system = rack_host()
    system.start = lambda name: system.log.append(f"start {name}")
    with pytest.raises(Failure, match=r"still needed: start nvidia-imex\.service"):
        run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)


def test_the_way_back_to_the_previous_driver_leaves_imex_to_the_driver():
    """A rollback knows no rack, and the packages before may have no IMEX."""
    system = rack_host()
    system.record = PreviousDriver(NEW, full(NEW), "open", "nvidia")
    report = run_stage(system, DesiredDriver(state="previous", imex=DesiredImex("host")), check=False)
    assert system.files.get(IMEX_NODES_FILE) is None and "start_service" not in {step.kind.key for step in report.steps}
    assert from_options({"state": "previous", "imex": {"mode": "host"}}).imex.mode == "host"


def test_an_imex_that_ended_with_the_new_driver_runs_again_after_the_rollback():
    """With the nodes that it has; where the packages of before have no IMEX, and where ComputeDomains run it, nothing is started."""
    system = rack_host()
    run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)
    system.record = PreviousDriver(NEW, system.manager.packages.copy(), "open", "nvidia")
    system.active.discard(IMEX_UNIT)
    back = DesiredDriver(state="previous", imex=DesiredImex("host"))
    masked = replace(back, imex=DesiredImex("masked"))
    assert not run_stage(system, masked, check=False).changed and IMEX_UNIT not in system.active
    report = run_stage(system, back, check=False)
    assert [step.kind.key for step in report.steps] == ["start_service"]
    assert IMEX_UNIT in system.active and system.files[IMEX_NODES_FILE] == "10.0.0.1\n10.0.0.2\n"
    assert not run_stage(system, back, check=False).changed


def test_the_removal_of_the_driver_takes_what_imex_was_given():
    system = rack_host()
    run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)
    system.manager.packages.pop("nvidia-imex")
    run_stage(system, DesiredDriver(state="absent", imex=DesiredImex("host")), check=False)
    assert system.files[IMEX_NODES_FILE] is None


def rack_facts(**imex):
    packages = {**full(OLD), "nvidia-imex": f"{OLD}-1"}
    card = {"address": "0", "device_id": "0x2941", "kind": "gpu", "architecture": "blackwell", "board": "gb200-186gb"}
    found = {"version": OLD, "active": True, "enabled": True, "masked": False, "nodes": ["10.0.0.1"], **imex}
    host = {**facts(packages=packages, holds=list(packages)), "pci": [card]}
    return {**host, "fabric": {"nvswitches": 0, "manager": {"installed": False, "active": False}, "imex": found}}


ON_HOST = {"nvidia_driver_imex": "host", "nvidia_driver_imex_nodes": ["10.0.0.1"], "nvidia_driver_version": OLD}


@pytest.mark.parametrize(
    ("imex", "desired", "steps"),
    [
        ({}, ON_HOST, []),
        ({"active": False}, ON_HOST, ["start_service"]),
        ({"enabled": False}, ON_HOST, ["enable_service"]),
        ({"nodes": None}, ON_HOST, ["write_file", "restart_service"]),
        ({"masked": True, "active": False}, ON_HOST, ["unmask_service", "start_service"]),
        ({}, {"nvidia_driver_imex": "masked"}, ["mask_service"]),
        ({"masked": True, "active": False}, {"nvidia_driver_imex": "masked"}, []),
        ({"active": False}, {}, []),
    ],
)
def test_the_stage_plans_imex(imex, desired, steps):
    planned = stage(rack_facts(**imex), desired)
    assert [step.kind.key for step in planned.steps] == steps and not planned.refusals
    assert planned.needed is bool(steps)
    unmanaged = [text for text in planned.warnings if "nvidia_driver_imex is unmanaged" in text]
    assert bool(unmanaged) is (desired == {})


def test_the_stage_brings_the_missing_package_of_imex():
    host = rack_facts(active=False, version=None)
    host["driver"] = {**host["driver"], "packages": full(OLD)}
    assert "nvidia-imex is not installed" in str(stage(host, ON_HOST).steps[0])


def test_the_stage_refuses_a_restart_that_takes_memory_from_jobs():
    """NVML's processes, where nobody looked for holders, and those of instances; the services of NVIDIA are nobody."""
    host = {**rack_facts(nodes=["10.0.0.9"]), "gpus": [{"index": 0, "processes": [{"pid": 5, "name": "torch"}]}]}
    (refusal,) = stage(host, ON_HOST).refusals
    assert (refusal.thing, "torch (PID 5) uses the GPUs" in refusal.reason) == ("nvidia_driver_imex_restart", True)
    allowed = stage(host, {**ON_HOST, "nvidia_driver_imex_restart": True})
    assert allowed.steps[-1].disturbs
    host["gpus"] = [
        {
            "index": 0,
            "gpu_instances": [
                {
                    "id": 1,
                    "profile": "1g.10gb",
                    "start": 0,
                    "size": 1,
                    "compute_instances": [{"id": 0, "profile": "1g.10gb", "processes": [{"pid": 6, "name": "x"}]}],
                }
            ],
        }
    ]
    assert stage(host, ON_HOST).refusals
    host["gpus"] = []
    host["holders"] = [{**DAEMON, "command": "nvidia-imex"}]
    assert not stage(host, ON_HOST).refusals
    host["holders"].append({**DAEMON, "pid": 9, "command": "python3"})
    assert "python3 (PID 9) uses the GPUs" in stage(host, ON_HOST).refusals[0].reason


@pytest.mark.parametrize(
    ("board", "distribution", "reason"),
    [
        (
            "h100-80gb-sxm",
            ("debian", "12"),
            "IMEX is for boards on the NVLink switches of a rack (GB200, GB300), not h100-80gb-sxm",
        ),
        ("gb200-186gb", ("sles", "15"), "no source confirms what the package of IMEX is called"),
    ],
)
def test_the_stage_refuses_imex_where_there_is_none(board, distribution, reason):
    host = rack_facts()
    host["pci"][0]["board"] = board
    host["host"] = {**host["host"], "distribution": dict(zip(("id", "version"), distribution))}
    assert any(reason in refusal.reason for refusal in stage(host, ON_HOST).refusals)


@pytest.mark.parametrize(
    ("desired", "thing", "reason"),
    [
        ({**ON_HOST, "nvidia_driver_imex_nodes": []}, "nvidia_driver_imex_group", "no host of its rack is known"),
        ({**ON_HOST, "nvidia_driver_imex_nodes": ["gpu01"]}, "nvidia_driver_imex_address", "'gpu01' is not an IPv4"),
        (
            {**ON_HOST, "nvidia_driver_imex_nodes": ["::1", "0::1"]},
            "nvidia_driver_imex_address",
            "two hosts of the rack have ::1",
        ),
        ({"nvidia_driver_imex": "on"}, "nvidia_driver_imex", "must be one of unmanaged, host, masked"),
    ],
)
def test_what_is_refused_of_imex_without_looking_at_the_host(desired, thing, reason):
    (refusal,) = stage(rack_facts(), desired).refusals
    assert refusal.thing == thing and reason in refusal.reason


def test_an_unmanaged_driver_brings_no_imex():
    planned = stage(rack_facts(), {**ON_HOST, "nvidia_driver_state": "unmanaged"})
    assert not planned.needed and "IMEX is not set up" in planned.warnings[0]


@pytest.mark.parametrize(
    ("found", "more", "removed"),
    [
        (["10.0.0.1", "10.0.0.2"], {}, "would no longer reach 10.0.0.2"),
        (["10.0.0.2", "10.0.0.3"], {}, "would no longer reach 2 nodes, 10.0.0.2 to 10.0.0.3"),
        (["10.0.0.1", "10.0.0.2"], {"nvidia_driver_imex_remove_nodes": True}, ""),
        # As many hosts, one of them with another address; and a rack that grows.
        (["10.0.0.9"], {}, ""),
        ([], {}, ""),
        (["# addresses of the hosts, one a line", "10.0.0.1"], {}, ""),
        (None, {}, ""),
        (["10.0.0.1", "10.0.0.2"], {"nvidia_driver_imex": "masked"}, ""),
        (["10.0.0.1", "10.0.0.2"], {"nvidia_driver_state": "previous"}, ""),
    ],
)
def test_an_inventory_with_a_part_of_the_rack_is_refused(found, more, removed):
    """A sliced job of AWX does not know the hosts of the other slices, and would write a file without them."""
    refusals = stage(rack_facts(nodes=found), {**ON_HOST, **more}).refusals
    if not removed:
        assert not [one for one in refusals if "reach" in one.reason]
        return
    (refusal,) = refusals
    assert refusal.thing == "nvidia_driver_imex_group" and removed in refusal.reason
    assert "nvidia_driver_imex_remove_nodes: true" in refusal.remedy and "--limit keeps all" in refusal.remedy


def test_the_host_itself_refuses_a_shorter_file_and_the_removal_of_the_driver_does_not():
    system = rack_host()
    run_stage(system, DesiredDriver(version=NEW, imex=RACK), check=False)
    part = replace(RACK, nodes=("10.0.0.1",))
    with pytest.raises(Refused, match=r"would no longer reach 10\.0\.0\.2"):
        run_stage(system, DesiredDriver(version=NEW, imex=part), check=False)
    assert system.files[IMEX_NODES_FILE] == "10.0.0.1\n10.0.0.2\n"
    run_stage(system, DesiredDriver(version=NEW, imex=replace(part, remove_nodes=True)), check=False)
    assert system.files[IMEX_NODES_FILE] == "10.0.0.1\n"
