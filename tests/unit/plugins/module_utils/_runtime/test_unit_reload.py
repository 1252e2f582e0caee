# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import HolderScan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import unit_reload

UNIT = "gpufleet-mps@0.service"
NULL = os.stat("/dev/null").st_rdev
#: A real device node of this machine stands for that of a GPU: the rules name devices by their numbers.
NUMBERS = f"/dev/char/{os.major(NULL)}:{os.minor(NULL)}"


def process(pid, command, device, container=True):
    """An entry of C(holders) of the facts."""
    whose = {"pod_uid": "8f1c", "container_id": "0" * 64} if container else {"pod_uid": None, "container_id": None}
    return {"pid": pid, "command": command, "command_line": "", "devices": [device], "unit": None, **whose}


@pytest.fixture
def host(monkeypatch):
    """A host where one container has a device open; its rules are set by the test."""

    class Host:
        rules = {"c.scope": set()}
        scope = "c.scope"
        holders = (process(812, "python3", "/dev/null"),)
        stale = [UNIT]
        reloads = 0

        def reload(self):
            self.reloads += 1

    made = Host()
    monkeypatch.setattr(unit_reload, "device_holders", lambda _files: HolderScan(made.holders, 0))
    monkeypatch.setattr(unit_reload, "unit_of", lambda _cgroup, kind: made.scope if kind == ".scope" else None)
    monkeypatch.setattr(unit_reload.systemd, "outdated", lambda _names, _changed: made.stale)
    monkeypatch.setattr(unit_reload.systemd, "device_rules", lambda scopes: {one: made.rules[one] for one in scopes})
    monkeypatch.setattr(unit_reload.systemd, "daemon_reload", made.reload)
    return made


def test_a_container_that_systemd_knows_nothing_of_keeps_its_gpus(host):
    with pytest.raises(Refused) as refused:
        unit_reload.reload_units([UNIT], [UNIT], HostFiles())
    assert host.reloads == 0
    for part in (UNIT, "python3 (PID 812, pod 8f1c)", "systemctl daemon-reload", "nvidia_toolkit_device_injection"):
        assert part in refused.value.message


@pytest.mark.parametrize("rules", [None, {NUMBERS}, {"/dev/null"}, {"char-nvidia"}, {"char-nvidia-frontend"}])
def test_devices_that_are_in_its_rules_stay(host, rules):
    host.rules = {"c.scope": rules}
    assert unit_reload.reload_units([UNIT], [UNIT], HostFiles())
    assert host.reloads == 1


@pytest.mark.parametrize(
    ("holder", "scope"),
    [
        (process(5, "nvidia-persiste", "/dev/null", container=False), "c.scope"),
        (process(6, "python3", "/dev/null"), None),
        (process(7, "python3", "/dev/nvidia-that-went"), "c.scope"),
    ],
    ids=["no container", "not systemd's", "device is gone"],
)
def test_others_lose_nothing_by_a_reload(host, holder, scope):
    host.holders, host.scope = (holder,), scope
    assert unit_reload.reload_units([UNIT], [UNIT], HostFiles())


def test_a_unit_that_was_masked_can_be_started_again(host, monkeypatch):
    unmasked = []
    monkeypatch.setattr(unit_reload.systemd, "unmask", unmasked.append)
    host.holders = ()
    unit_reload.unmask(UNIT)
    assert (unmasked, host.reloads) == ([UNIT], 1)


def test_a_unit_stays_masked_where_containers_would_lose_their_gpus(host, monkeypatch):
    """Its mask would be in systemd's memory alone, where no later run sees it."""
    unmasked = []
    monkeypatch.setattr(unit_reload.systemd, "unmask", unmasked.append)
    with pytest.raises(Refused, match="systemctl daemon-reload"):
        unit_reload.unmask(UNIT)
    assert (unmasked, host.reloads) == ([], 0)


def test_where_nothing_is_outdated_nobody_is_looked_for(host, monkeypatch):
    host.stale = []
    monkeypatch.setattr(unit_reload, "device_holders", None)
    assert not unit_reload.reload_units([UNIT], [UNIT])
    assert host.reloads == 0
