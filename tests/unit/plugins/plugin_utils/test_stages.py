# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import stages
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import STAGES, plan_stages
from ansible_collections.gpufleet.nvidia.tests.unit.golden.corpus import TRAINING, described, recorded
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import installed_program, seen

BARE = {
    "schema": 1,
    "host": {
        "distribution": {"id": "debian", "version": "12", "codename": "bookworm", "family": "debian"},
        "package_manager": "apt",
        "architecture": "x86_64",
        "kernel_headers": True,
    },
    "runtimes": {"containerd": {"version": "2.1.5", "active": True, "config_path": "/etc/containerd/config.toml"}},
    "pci": [{"address": "0000:18:00.0", "device_id": "0x26b9", "kind": "gpu", "board": "l40s-48gb"}],
    "gpus": None,
}
#: Those of a host to which nobody brings files of Slurm.
WITHOUT_SLURM = [name for name in STAGES if name != "slurm"]


def desired(**variables):
    return collect(variables, lambda value: value)


def test_the_stages_are_those_of_site_in_its_order():
    assert list(STAGES) == ["driver", "toolkit", "runtime", "boot", "settings", "mig", "sharing", "dcgm", "slurm"]


def test_a_bare_host_needs_what_its_desired_state_has():
    plans = plan_stages(seen(BARE), desired())
    assert list(plans) == WITHOUT_SLURM
    assert [name for name, plan in plans.items() if plan.needed] == ["driver", "toolkit", "runtime", "sharing"]
    assert [refusal.message for plan in plans.values() for refusal in plan.refusals] == []


_MIRROR = {"url": "https://mirror.example.com/nvidia", "key_file": "/root/mirror.asc", "key_fingerprint": "A" * 40}
_NEW = {**BARE, "toolkit": {"packages": {}}}
_FAULT = "/root/mirror.asc cannot be read: No such file or directory"
_NO_KEY = {f"nvidia_{part}_repository_key_file": _FAULT for part in ("driver", "toolkit")}


@pytest.mark.parametrize("prefix", ["nvidia_driver_", "nvidia_toolkit_"])
def test_a_key_file_without_the_repositorys_key_is_refused_where_packages_are_to_come(prefix):
    """The stage itself would say so after the stages before it had changed the host."""
    wanted = desired(**{f"{prefix}repository_{name}": value for name, value in _MIRROR.items()})
    (refusal,) = [
        one for plan in plan_stages(seen({**_NEW, "key_files": _NO_KEY}), wanted).values() for one in plan.refusals
    ]
    assert (refusal.thing, refusal.reason) == (f"{prefix}repository_key_file", _FAULT)
    assert "on the host" in refusal.remedy and f"{prefix}repository_key_url" in refusal.remedy
    right = {**_NEW, "key_files": {**_NO_KEY, f"{prefix}repository_key_file": None}}
    for facts, others in (
        (right, {}),
        (_NEW, {}),
        ({**_NEW, "key_files": _NO_KEY}, {f"{prefix}manage_repository": False}),
    ):
        plans = plan_stages(seen(facts), {**wanted, **others})
        assert [one.message for plan in plans.values() for one in plan.refusals] == []


def test_a_driver_that_goes_back_needs_no_key_file():
    """The stage configures no repository then."""
    before = {"schema": 1, "version": "580.126.20", "packages": {"nvidia-open": "580.126.20-1"}}
    facts = {**recorded(TRAINING, "ready"), "key_files": _NO_KEY}
    facts = {**facts, "recorded": {**facts["recorded"], "driver_previous": before}}
    variables = {f"nvidia_driver_repository_{name}": value for name, value in _MIRROR.items()}
    wanted = {**desired(**described(TRAINING)), **variables, "nvidia_driver_state": "previous"}
    plan = plan_stages(seen(facts), wanted)["driver"]
    assert plan.needed and plan.unknown and _FAULT not in "".join(one.message for one in plan.refusals)


def test_a_host_that_has_its_packages_needs_no_key_file():
    facts = {**recorded(TRAINING, "ready"), "key_files": _NO_KEY}
    variables = {
        f"nvidia_{part}_repository_{name}": value for part in ("driver", "toolkit") for name, value in _MIRROR.items()
    }
    plans = plan_stages(seen(facts), {**desired(**described(TRAINING)), **variables})
    assert [one.message for plan in plans.values() for one in plan.refusals] == []


def test_a_runtime_without_cdi_is_refused_with_both_ways_out():
    """Debian 12 has containerd 1.6, which starts containers without their devices and without an error."""
    old = {**BARE, "runtimes": {"containerd": {**BARE["runtimes"]["containerd"], "version": "1.6.20"}}}
    (refusal,) = plan_stages(seen(old), desired())["runtime"].refusals
    assert refusal.thing == "nvidia_toolkit_device_injection"
    assert "containerd 1.6.20 does not inject" in refusal.reason
    assert "Install containerd 1.7.2 or newer, or set nvidia_toolkit_device_injection: volume_mounts." in refusal.remedy


def test_a_contradiction_is_refused_once_and_names_both_variables():
    plans = plan_stages(seen(BARE), desired(nvidia_toolkit_cdi=False))
    (refusal,) = [refusal for plan in plans.values() for refusal in plan.refusals]
    assert refusal.thing == "nvidia_toolkit_device_injection"
    assert "nvidia_toolkit_cdi is false" in refusal.reason


def of_machines(*drivers):
    """Return a bare host with one GPU for each of the kernel drivers."""
    cards = [
        {**BARE["pci"][0], "address": f"0000:1{index}:00.0", "kernel_driver": name}
        for index, name in enumerate(drivers)
    ]
    return {**BARE, "pci": cards}


@pytest.mark.parametrize("given", [["0000:10:00.0", "0000:11:00.0"], ["11:00.0", "10:00.0"], 2, "2"])
def test_a_host_that_gives_half_of_its_gpus_to_virtual_machines_is_planned_for_the_rest(given):
    host = of_machines("vfio-pci", "pci-stub", None, "nvidia")
    declared = {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 2}]}
    plans = plan_stages(seen(host), desired(gpu_facts_passthrough=given, **declared))
    assert list(plans) == WITHOUT_SLURM and [r.message for plan in plans.values() for r in plan.refusals] == []
    assert "virtual machines have the GPUs 0000:10:00.0, 0000:11:00.0: they are left alone" in plans["driver"].warnings


@pytest.mark.parametrize("given", [[], 1, True, "all", ["0000:10:00.0", "0000:12:00.0"]])
def test_gpus_of_virtual_machines_that_nobody_described_are_named(given):
    plans = plan_stages(seen(of_machines("vfio-pci", "vfio-pci", None)), desired(gpu_facts_passthrough=given))
    (refusal,) = plans["hardware"].refusals
    assert refusal.thing == "gpu_facts_passthrough" and "(vfio-pci) have 0000:10:00.0, 0000:11:00.0" in refusal.reason


def test_a_host_whose_gpus_all_go_to_virtual_machines_is_none_of_the_group():
    (refusal,) = plan_stages(seen(of_machines("vfio-pci")), desired(gpu_facts_passthrough=1))["hardware"].refusals
    assert refusal.thing == "the group gpu_hosts"


def test_gpus_that_another_kernel_driver_has_are_refused_by_driver_and_nouveaus_are_not():
    """The name of a driver on the bus is not that of its module."""
    nova, other = plan_stages(seen(of_machines("NovaCore", "nvidia", "NovaCore", "some-driver")), desired())[
        "driver"
    ].refusals
    assert "0000:10:00.0" in nova.thing and "0000:12:00.0" in nova.thing and "0000:11:00.0" not in nova.thing
    assert (
        nova.reason == "bound to the kernel driver NovaCore, so the driver nvidia cannot use them"
        and "'blacklist nova_core'" in nova.remedy
    )
    assert (
        "some-driver, so the driver nvidia cannot use it" in other.reason and "'blacklist some_driver'" in other.remedy
    )
    assert plan_stages(seen(of_machines("nouveau")), desired())["driver"].refusals == ()


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"nvidia-container-cli.root": "/run/nvidia/driver"}, "where containers get the driver's libraries from"),
        ({"nvidia-container-runtime.mode": "csv"}, "it is csv"),
        ({"nvidia-container-runtime.mode": "cdi", "nvidia-container-cli.root": "/"}, ""),
        ({"nvidia-container-cli.no-cgroups": "True"}, ""),
    ],
)
def test_settings_of_the_toolkit_with_which_no_container_gets_a_gpu_are_refused(settings, refused):
    plan = plan_stages(seen({**BARE, "toolkit": {"packages": {}, "settings": settings}}), desired())["toolkit"]
    assert [refused in refusal.reason for refusal in plan.refusals] == [True] * bool(refused)
    assert any("cannot open them" in text for text in plan.warnings) is ("nvidia-container-cli.no-cgroups" in settings)


@pytest.mark.parametrize(
    ("version", "specification", "refused"),
    [("1.7.15", "0.7.0", True), ("1.7.16", "0.7.0", False), ("1.7.15", "0.5.0", False), (None, "0.7.0", False)],
)
def test_a_containerd_that_does_not_read_the_hosts_specification_is_refused(version, specification, refused):
    """nvidia-container-toolkit#1940; of a containerd that does not tell its version nothing is said."""
    cdi = [{"path": "/var/run/cdi/nvidia.yaml", "own": True, "kind": "nvidia.com/gpu", "version": specification}]
    runtimes = {"containerd": {"version": version, "nvidia": True}}
    plan = plan_stages(seen({**BARE, "cdi": cdi, "runtimes": runtimes}), desired())["runtime"]
    assert any("refuses CDI specifications of version" in one.reason for one in plan.refusals) is refused


@pytest.mark.parametrize(
    ("runtime", "mode", "warned"),
    [("docker", "cdi", True), ("docker", "jit-cdi", True), ("docker", "auto", False), ("containerd", "cdi", False)],
)
def test_a_mode_with_which_docker_gpus_fails_is_named(runtime, mode, warned):
    """nvidia-container-toolkit#1246: the hook asserts that the mode is legacy."""
    toolkit = {"packages": {}, "settings": {"nvidia-container-runtime.mode": mode}}
    runtimes = {runtime: {"version": "29.1.3", "nvidia": True}}
    given = desired(nvidia_toolkit_runtime=runtime)
    plan = plan_stages(seen({**BARE, "toolkit": toolkit, "runtimes": runtimes}), given)["toolkit"]
    assert any("'docker run --gpus'" in text and "fails" in text for text in plan.warnings) is warned


@pytest.mark.parametrize(
    ("version", "strategy", "kubelet", "mode", "warned"),
    [
        ("1.19.1", "mixed", True, "auto", True),
        ("1.20.0", "single", True, "auto", True),
        ("1.20.1", "mixed", True, "auto", False),
        ("1.19.1", "none", True, "auto", False),
        ("1.19.1", "mixed", False, "auto", False),
        ("1.19.1", "mixed", True, "legacy", False),
    ],
)
def test_a_toolkit_with_which_the_device_plugin_sees_no_mig_devices_is_named(version, strategy, kubelet, mode, warned):
    toolkit = {"packages": {}, "settings": {"nvidia-container-runtime.mode": mode}}
    facts = {**BARE, "toolkit": toolkit, "kubelet": {"installed": kubelet, "active": kubelet}}
    given = desired(nvidia_toolkit_version=version, nvidia_mig_strategy=strategy)
    warnings = plan_stages(seen(facts), given)["toolkit"].warnings
    assert any("nvidia-cap2" in text for text in warnings) is warned


@pytest.mark.parametrize(
    ("source", "state", "refused"),
    [
        ("container", "unmanaged", False),
        ("outside", "unmanaged", False),
        (None, "unmanaged", False),
        ("nvidia", "unmanaged", True),
        # The driver that the stage before installs is on the host.
        (None, "present", True),
        ("nvidia", "present", True),
    ],
)
def test_a_root_of_the_toolkit_is_right_where_the_driver_is_not_on_the_host_itself(source, state, refused):
    toolkit = {"packages": {}, "settings": {"nvidia-container-cli.root": "/run/nvidia/driver"}}
    host = {**BARE, "toolkit": toolkit, "driver": {"source": source}}
    assert bool(plan_stages(seen(host), desired(nvidia_driver_state=state))["toolkit"].refusals) is refused


def test_no_facts_at_all_raise_nothing():
    assert all(isinstance(plan, StagePlan) for plan in plan_stages(seen({"schema": 1}), desired()).values())


def test_a_refusal_that_a_stage_raises_becomes_one_that_it_reports(monkeypatch):
    refusal = Refused("thing", "reason", "remedy")

    def refuses(_facts, _desired):
        raise refusal

    monkeypatch.setitem(stages.STAGES, "mig", refuses)
    plans = plan_stages(seen(BARE), desired())
    assert plans["mig"].refusals == (refusal,)
    assert plans["mig"].needed
    assert plans["sharing"].refusals == ()


def test_mps_of_the_device_plugin_on_mig_is_refused_before_there_is_a_driver():
    plans = plan_stages(
        seen(BARE),
        desired(nvidia_mig_strategy="mixed", nvidia_sharing_mode="mps", nvidia_sharing_memory_slice="4GiB"),
    )
    (refusal,) = plans["sharing"].refusals
    assert refusal.thing == "nvidia_sharing_mode"
    assert "time_slicing" in refusal.remedy


def test_a_slice_that_never_fits_the_boards_is_refused_before_there_is_a_driver():
    plans = plan_stages(seen(BARE), desired(nvidia_sharing_mode="mps", nvidia_sharing_memory_slice="40GiB"))
    (refusal,) = plans["sharing"].refusals
    assert refusal.thing == "nvidia_sharing_memory_slice"
    assert "The largest slice of this GPU is" in refusal.remedy


def test_facts_that_were_read_without_root_are_not_planned_with():
    (plan,) = plan_stages(seen({**BARE, "host": {**BARE["host"], "root": False}}), desired()).values()
    (refusal,) = plan.refusals
    assert refusal.thing == "become" and "--ask-become-pass" in refusal.remedy


@pytest.mark.parametrize(("count", "refused"), [(0, False), (1, False), (8, True)])
def test_another_number_of_gpus_than_described_is_refused_before_anything_is_installed_for_them(count, refused):
    described = [{"board": "l40s-48gb", "count": count}] if count else []
    plans = plan_stages(seen(BARE), desired(gpu_facts_gpus=described))
    assert (list(plans) == ["hardware"]) is refused
    if refused:
        (refusal,) = plans["hardware"].refusals
        assert refusal.thing == "gpu_facts_gpus"
        assert "described with 8 GPUs, and its PCI bus shows 1" in refusal.reason


@pytest.mark.parametrize(
    ("board", "reason"),
    [
        ("l40s", None),
        ("a30-24gb", "described with 1 x a30-24gb, and its PCI bus shows 1 x l40s-48gb"),
        ("l40x", "the table of boards has no 'l40x'"),
    ],
)
def test_a_board_is_known_by_its_key_and_by_the_beginning_that_only_it_has(board, reason):
    plans = plan_stages(seen(BARE), desired(gpu_facts_gpus=[{"board": board, "count": 1}]))
    if reason is None:
        assert "hardware" not in plans
    else:
        (refusal,) = plans["hardware"].refusals
        assert reason in refusal.reason


def test_the_program_of_the_controller_is_what_a_host_has_to_have(monkeypatch):
    """Whoever has another release, or another pynvml, plans for another program."""
    there = {**BARE, "host_program": installed_program("/metrics")}
    variables = desired(nvidia_health_metrics=True, nvidia_health_metrics_directory="/metrics")
    assert not plan_stages(seen(there), variables)["boot"].needed
    monkeypatch.setattr(stages, "program_identity", lambda _cache: {"version": "99.0.0", "sha256": "9"})
    (step,) = plan_stages(seen(there), variables)["boot"].steps
    assert step.what == "install /usr/local/lib/gpufleet/gpufleet-host.pyz" and "not 99.0.0" in step.why
    monkeypatch.setattr(stages, "program_identity", lambda _cache: "Failed to send pynvml to the host")
    plan = plan_stages(seen(there), variables)["boot"]
    assert plan.needed and plan.unread == "Failed to send pynvml to the host"


def test_metrics_are_written_where_the_variables_of_the_pool_ask_for_them():
    there = {**BARE, "host_program": installed_program()}
    assert not plan_stages(seen(there), desired())["boot"].needed
    asked = plan_stages(seen(there), desired(nvidia_health_metrics=True))["boot"]
    assert [step.target.rpartition("/")[2] for step in asked.steps] == [
        "gpufleet-metrics.service",
        "gpufleet-metrics.timer",
        "gpufleet-metrics.timer",
        "gpufleet-metrics.timer",
    ]
    with_metrics = {**BARE, "host_program": installed_program("/metrics")}
    assert plan_stages(seen(with_metrics), desired())["boot"].needed
    refused = plan_stages(seen(BARE), desired(nvidia_health_metrics=True, nvidia_health_metrics_directory="metrics"))[
        "boot"
    ]
    assert [refusal.thing for refusal in refused.refusals] == ["nvidia_health_metrics_directory"]


def test_a_reload_that_would_be_refused_is_told_with_the_first_stage_that_writes_units():
    busy = {
        **BARE,
        "runtimes": {"containerd": {**BARE["runtimes"]["containerd"], "cgroup_drivers": {"runc": "systemd"}}},
        "holders": [{"command": "train", "pid": 7, "container_id": "c", "devices": []}],
    }
    plans = plan_stages(seen(busy), desired(nvidia_toolkit_device_injection="envvar", nvidia_health_metrics=True))
    told = [name for name, plan in plans.items() if any("the host refuses that while" in one for one in plan.warnings)]
    assert told == ["driver"]


@pytest.mark.parametrize(
    ("changed", "variables", "refused"),
    [
        (True, {}, True),
        # The inventory followed, or says what was never there.
        (False, {}, False),
        (True, {"nvidia_mig_layout": "all-balanced"}, False),
        (True, {"nvidia_mig_disruption": "force"}, False),
    ],
)
def test_a_layout_that_repartition_replaced_is_not_brought_back(changed, variables, refused):
    facts, given = recorded(TRAINING, "ready"), described(TRAINING)
    request = facts["recorded"]["mig"]["request"]
    facts["recorded"]["rolled_out"] = {"former_layout": {name: request[name] for name in ("layout", "strategy")}}
    if changed:
        facts["gpus"][0]["gpu_instances"] = []
    found = plan_stages(seen(facts), desired(**{**given, **variables}))["mig"]
    assert bool(found.steps) == (changed or "nvidia_mig_layout" in variables)
    said = [refusal.message for refusal in found.refusals if "that repartition replaced" in refusal.message]
    assert len(said) == refused and all("gpufleet.nvidia.repartition" in message for message in said)
