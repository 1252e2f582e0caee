# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power limits, clocks and ECC: the description, the planner, and the change of virtual GPUs."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import gpu_reset, kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.records import record_differences
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import restore
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import NotInEffect, Refused, carry_out
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import SETTINGS, Settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import taken
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.desired import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.plan import EccPolicy, plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.stage import stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.state import GpuWithSettings
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import h100, h100_settings
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.virtual_gpus import VirtualHost, build

RESET = EccPolicy()
FULL = Settings(power_limit=500, graphics_clocks=(1200, 1500), memory_clocks=(1593, 1593))


def variables(**options):
    return {f"nvidia_settings_{name}": value for name, value in options.items()}


def gpu(index=0, power=700, ecc=True, **changes):
    return h100(index, **{"settings": h100_settings(power, ecc), **changes})


def facts(*gpus, record=None):
    return view_of({"gpus": list(gpus), "recorded": {"settings": record}})


# ---- the description ----


def test_nothing_is_described_by_default():
    assert not read({}).anything
    assert not stage(facts(gpu()), {}).needed


def test_a_single_clock_is_a_range_of_itself():
    assert read(variables(graphics_clocks=[1410])).graphics_clocks == (1410, 1410)


@pytest.mark.parametrize(
    ("options", "thing", "reason"),
    [
        ({"power_limit": -1}, "power_limit", "is negative"),
        ({"graphics_clocks": [1500, 1200]}, "graphics_clocks", "above the highest"),
        ({"graphics_clocks": [1, 2, 3]}, "graphics_clocks", "not a pair"),
        ({"memory_clocks": [0, 0]}, "memory_clocks", "not a pair"),
        ({"application_clocks": [2619]}, "application_clocks", "not a pair"),
        ({"application_clocks": [2619, 999999]}, "application_clocks", "not a pair"),
        (
            {"application_clocks": [2619, 1980], "graphics_clocks": [1410]},
            "application_clocks",
            "graphics_clocks locks",
        ),
        ({"ecc": "maybe"}, "ecc", "must be one of"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(options, thing, reason):
    with pytest.raises(Refused, match=reason) as refused:
        read(variables(**options))
    assert refused.value.thing == f"nvidia_settings_{thing}"


def test_a_record_is_read_as_it_was_written():
    full = replace(FULL, ecc=False)
    assert taken(SETTINGS, json.loads(json.dumps(full.as_dict()))) == full
    for broken in (None, [], {}, {**full.as_dict(), "ecc": 3}, {**full.as_dict(), "graphics_clocks": [1]}):
        assert taken(SETTINGS, broken) is None


# ---- what is refused at the gate ----


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"power_limit": 900}, "takes 200 to 700 W, not 900 W"),
        ({"power_limit": 100}, "takes 200 to 700 W, not 100 W"),
        ({"graphics_clocks": [1410, 2100]}, "reaches 1980 MHz, not 2100 MHz"),
        ({"memory_clocks": [3000]}, "reaches 2619 MHz, not 3000 MHz"),
        ({"application_clocks": [2619, 2100]}, "reaches 1980 MHz"),
    ],
)
def test_what_a_board_does_not_take_is_refused_with_what_it_takes(options, text):
    with pytest.raises(Refused, match=text):
        stage(facts(gpu()), variables(**options))


@pytest.mark.parametrize("options", [{"power_limit": 500}, {"graphics_clocks": [1410]}, {"ecc": "enabled"}])
def test_a_board_that_lets_nothing_be_set_is_refused(options):
    with pytest.raises(Refused):
        stage(facts(gpu(settings={})), variables(**options))


def test_an_application_clock_that_the_board_lacks_is_refused_with_the_nearest():
    seen = GpuWithSettings(gpu_view(gpu()), supported={2619: (1980, 1965, 1950, 345)})
    with pytest.raises(Refused, match="The nearest are 1950, 1965 MHz"):
        plan([seen], Settings(application_clocks=(2619, 1960)), None, EccPolicy())
    with pytest.raises(Refused, match="It has 2619 MHz"):
        plan([seen], Settings(application_clocks=(1000, 1980)), None, EccPolicy())


def test_ecc_is_not_changed_under_a_process():
    busy = gpu(processes=[{"pid": 812, "name": "python3"}])
    for means in ({}, {"reboot": True}):
        with pytest.raises(Refused, match=r"in use by python3 \(PID 812\)"):
            stage(facts(busy), variables(ecc="disabled", **means))
    with pytest.raises(Refused, match=r"in use by unknown \(NVML reports no processes\)"):
        stage(facts(gpu(processes=None)), variables(ecc="disabled"))
    given = gpu(processes=[], allocations=[{"pod": "team/notebook", "resource": "nvidia.com/gpu"}])
    with pytest.raises(Refused, match=r"in use by pod team/notebook \(nvidia.com/gpu\)"):
        stage(facts(given), variables(ecc="disabled"))
    assert not stage(facts(busy, record=Settings(ecc=True).as_dict()), variables(ecc="enabled")).needed


@pytest.mark.parametrize(
    ("options", "changes", "reason"),
    [
        ({"reset": "never"}, {}, "nvidia_settings_reset is never"),
        ({}, {"gpu_instances": [{"id": 1, "profile": "1g.10gb", "start": 0, "size": 1}]}, "destroy its GPU instances"),
    ],
)
def test_ecc_that_takes_a_reboot_is_refused_unless_that_is_allowed(options, changes, reason):
    with pytest.raises(Refused, match=reason):
        stage(facts(gpu(**changes)), variables(ecc="disabled", **options))
    (step, _record) = stage(facts(gpu(**changes)), variables(ecc="disabled", reboot=True, **options)).steps
    assert step.data["reboot"] == "needed" and "is rebooted" in str(step)


# ---- the plan ----


def texts(found):
    return [step.what for step in found.steps]


def test_every_gpu_is_set_and_the_host_remembers():
    found = stage(facts(gpu(), gpu(1, power=500)), variables(power_limit=500, graphics_clocks=[1200, 1500]))
    assert texts(found) == [
        "set the power limit GPU 0 (0000:18:00.0) to 500 W",
        "lock the graphics clock GPU 0 (0000:18:00.0) to 1200 to 1500 MHz",
        "lock the graphics clock GPU 1 (0000:2a:00.0) to 1200 to 1500 MHz",
        "record the settings of the GPUs in /etc/gpufleet/settings.json",
    ]


def test_ecc_is_reset_into_effect_and_the_power_limit_set_after_that():
    found = stage(facts(gpu(power=500)), variables(power_limit=500, ecc="disabled"))
    assert [step.kind.key for step in found.steps] == ["set_ecc", "reset_gpu", "set_power_limit", "record_settings"]


def test_a_settled_host_has_nothing_to_do():
    settled = gpu(power=500)
    settled["settings"]["clocks_mhz"].update(graphics=1410, locked_graphics=[1200, 1500])
    wanted = variables(power_limit=500, graphics_clocks=[1200, 1500])
    record = read(wanted).as_dict()
    assert not stage(facts(settled, record=record), wanted).needed
    # The driver was loaded anew by hand: nobody remembers a lock, or the clock runs away.
    settled["settings"]["clocks_mhz"]["graphics"] = 1980
    assert [step.kind.key for step in stage(facts(settled, record=record), wanted).steps] == ["lock_clocks"]


def test_what_is_not_described_any_more_goes_back_to_the_boards_own_but_ecc():
    record = Settings(500, (1200, 1500), (1593, 1593), None, False)
    found = stage(facts(gpu(power=500, ecc=False), record=record.as_dict()), {})
    assert [step.kind.key for step in found.steps] == [
        "set_power_limit",
        "unlock_clocks",
        "unlock_clocks",
        "remove_file",
    ]
    assert found.steps[0].data["watts"] == 700
    slow = gpu()
    slow["settings"]["clocks_mhz"]["application"] = [2619, 1410]
    found = stage(facts(slow, record=Settings(application_clocks=(2619, 1410)).as_dict()), {})
    assert [step.kind.key for step in found.steps] == ["reset_application_clocks", "remove_file"]


def test_a_host_without_a_driver_is_planned_later():
    found = stage(view_of({"nvml": {"reason": "no driver"}}), variables(power_limit=500))
    assert found.needed and "no driver" in found.unknown


def test_facts_of_an_earlier_release_are_not_taken_for_a_board_that_lets_nothing_be_set():
    old = gpu()
    del old["settings"]
    found = stage(facts(old), variables(power_limit=500))
    assert found.needed and "earlier release" in found.unread
    assert record_differences(facts(old, record=FULL.as_dict()))["settings"] == ""
    assert "cannot be used" in record_differences(facts(old, record={"schema": 9}))["settings"]


def test_a_gpu_that_is_lost_hides_no_other():
    lost = {"index": 0, "lost": True}
    found = stage(facts(lost, gpu(1)), variables(power_limit=500))
    assert [step.data.get("index") for step in found.steps] == [1, None]


# ---- virtual GPUs ----


@pytest.fixture
def host(tmp_path, monkeypatch):
    build()
    monkeypatch.setattr(apply, "RECORD", str(tmp_path / "settings.json"))
    # Who has the device nodes of this machine open is nobody's business here.
    monkeypatch.setattr(apply, "HostFiles", lambda: HostFiles(str(tmp_path / "nobody")))
    monkeypatch.setattr(gpu_reset, "LOCKS_PATH", str(tmp_path / "locks"))
    monkeypatch.setattr(apply.record, "__defaults__", (str(tmp_path / "settings.json"),))
    monkeypatch.setattr(restore, "LOCK_PATH", str(tmp_path / "lock"))

    def create(board="h100-80gb-sxm", count=2):
        made = VirtualHost.create(tmp_path / "host", board, count)
        monkeypatch.setenv("VIRTUAL_GPU_ROOT", str(made.root))
        return made

    return create


def brought(host, wanted, means=RESET):
    """Read, plan, apply, read back, as the module does."""
    with open_nvml() as nvml:

        def planned():
            return plan(apply.observe(nvml, wanted), wanted, apply.record(), means)

        done, waiting = carry_out(
            "apply the settings of the GPUs",
            planned(),
            lambda steps: apply.apply(steps, wanted, nvml, reset=host._reset),
            planned,
            waits=apply.awaits_reboot,
        )
    assert all(step.disturbs for step in waiting)
    return [step.kind.key for step in done]


def shown(host):
    return [one["settings"] for one in json.loads(host.control("show"))["gpus"]]


def test_set_read_back_and_idempotent(host):
    virtual = host()
    assert len(brought(virtual, FULL)) == 7
    assert [(one["power_limit_mw"], one["graphics_lock"], one["memory_lock"]) for one in shown(virtual)] == [
        (500000, [1200, 1500], [1593, 1593])
    ] * 2
    assert brought(virtual, FULL) == []
    assert apply.record() == FULL
    assert brought(virtual, Settings(application_clocks=(1593, 1410)))
    assert [(one["graphics_lock"], one["application"]) for one in shown(virtual)] == [([0, 0], [1593, 1410])] * 2
    assert brought(virtual, Settings())[-1] == "remove_file" and apply.record() is None
    assert brought(virtual, Settings()) == []


def test_a_boot_loses_them_and_the_host_program_sets_them_again(host, tmp_path):
    virtual = host()
    brought(virtual, FULL)
    virtual.control("boot")
    virtual.control("load", "580.126.09", "open")
    (tmp_path / "locks").unlink()
    assert shown(virtual)[0]["power_limit_mw"] == 0
    assert restore.restore_settings() == 0
    assert [(one["power_limit_mw"], one["graphics_lock"]) for one in shown(virtual)] == [(500000, [1200, 1500])] * 2
    assert brought(virtual, FULL) == []


def test_a_board_that_was_exchanged_keeps_no_other_from_its_settings(host, tmp_path, capsys):
    virtual = host("t4-16gb", 1)
    (tmp_path / "settings.json").write_text(json.dumps(replace(FULL, memory_clocks=None).as_dict()))
    assert restore.restore_settings() == 1
    assert "takes 28 to 70 W, not 500 W" in capsys.readouterr().err
    (tmp_path / "settings.json").write_text("{")
    assert restore.restore_settings() == 1
    (tmp_path / "settings.json").unlink()
    assert restore.restore_settings() == 0
    assert shown(virtual)[0]["power_limit_mw"] == 0


def test_ecc_takes_effect_by_a_reset_of_that_gpu(host):
    virtual = host()
    off = Settings(power_limit=500, ecc=False)
    assert brought(virtual, off).count("reset_gpu") == 2
    assert [(one["ecc"], one["power_limit_mw"]) for one in shown(virtual)] == [(False, 500000)] * 2
    assert brought(virtual, off) == []


def test_ecc_that_waits_for_a_reboot_is_no_failure_and_is_there_after_it(host):
    virtual = host(count=1)
    off = Settings(ecc=False)
    assert brought(virtual, off, EccPolicy(reset=False, reboot=True)) == ["set_ecc", "record_settings"]
    assert (shown(virtual)[0]["ecc"], shown(virtual)[0]["ecc_pending"]) == (True, False)
    virtual.control("boot")
    virtual.control("load", "580.126.09", "open")
    assert brought(virtual, off) == []


def test_somebody_who_came_since_the_plan_keeps_the_gpu(host):
    virtual = host(count=1)
    off = Settings(ecc=False)
    with open_nvml() as nvml:
        found = plan(apply.observe(nvml, off), off, None, EccPolicy())
        virtual.control("run", "--gpu", "0", "--pid", str(os.getpid()))
        with pytest.raises(apply.SettingsError, match=r"it is in use by .* since it was planned"):
            apply.apply(found, off, nvml, reset=virtual._reset)


def test_a_value_that_the_driver_drops_is_seen(host, monkeypatch):
    virtual = host(count=1)
    monkeypatch.setattr(apply.nvml_settings, "set_power_limit", lambda *_arguments: None)
    with pytest.raises(NotInEffect, match=r"still needed: set the power limit GPU 0 .* to 500 W \(it is 700 W\)"):
        brought(virtual, Settings(power_limit=500))


def test_a_value_that_the_driver_drops_at_boot_is_named_with_its_gpu(host, monkeypatch):
    host(count=2)
    set_power_limit = apply.nvml_settings.set_power_limit
    monkeypatch.setattr(
        apply.nvml_settings, "set_power_limit", lambda nvml, index, watts: index and set_power_limit(nvml, index, watts)
    )
    with open_nvml() as nvml:
        (failed,) = apply.restore(nvml, Settings(power_limit=500, ecc=False))
    assert failed.startswith("GPU 0 (") and "still needed: set the power limit GPU 0" in failed


def test_a_driver_that_refuses_is_a_failure_with_the_step(host):
    virtual = host(count=1)
    virtual.control("fail", "nvmlDeviceSetPowerManagementLimit", "error=NO_PERMISSION")
    with pytest.raises(apply.SettingsError, match=r"Failed to set the power limit GPU 0 .* to 500 W"):
        brought(virtual, Settings(power_limit=500))


def test_a_board_without_power_limit_and_clocks(host):
    host("rtx-2080-ti", 1)
    with open_nvml() as nvml:
        (seen,) = apply.observe(nvml, FULL)
    shown = seen.settings.as_dict()
    assert (shown["power_w"], shown["clocks_mhz"]) == ({"limit": 260, "default": 260}, {})


def test_settings_are_read_from_facts_as_the_driver_told_them(host):
    host("h100-80gb-sxm", 1)
    with open_nvml() as nvml:
        (seen,) = apply.observe(nvml, FULL)
    facts = {"index": 0, "settings": json.loads(json.dumps(seen.settings.as_dict()))}
    assert GpuWithSettings(gpu_view(facts)).settings == seen.settings
    assert seen.settings.power_w.limit and seen.settings.clocks_mhz.max


def test_a_process_keeps_nothing_from_being_set_by_its_name(host, monkeypatch):
    host("h100-80gb-sxm", 1)
    with open_nvml() as nvml:
        found = list(nvml.gpus())
        found[0].facts["processes"] = [{"pid": 812, "name": "a\x1bb\n"}]
        monkeypatch.setattr(nvml, "gpus", lambda: found)
        (seen,) = apply.observe(nvml, FULL)
    assert seen.facts.processes[0].name == "a?b "


def test_locks_are_forgotten_where_gpus_lose_them(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_reset, "LOCKS_PATH", str(tmp_path / "locks"))
    for lose in (
        lambda: gpu_reset.reset_gpu("0000:18:00.0"),
        lambda: gpu_reset.reset_gpus(["0000:18:00.0", "0000:2a:00.0"]),
        lambda: kernel.unload_module("nvidia"),
    ):
        for module in (gpu_reset, kernel):
            monkeypatch.setattr(module, "run", lambda words, **_options: Result(tuple(words), 0, "", ""))
        gpu_reset.keep_lock("GPU-0", "graphics", (1, 2))
        lose()
        assert gpu_reset.read_locks() == {}
    assert gpu_reset.parse_locks('{"GPU-0": 3}') == {} and gpu_reset.parse_locks("[]") == {}
