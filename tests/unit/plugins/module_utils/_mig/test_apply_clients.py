# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply_clients
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_clients import ServicesFailed


class Systemd:
    def __init__(self):
        self.active = set()
        self.broken = set()
        self.calls = []

    def available(self):
        return True

    def units(self, names):
        if "systemctl" in self.broken:
            raise CommandError(["systemctl"], "no answer")
        return {name: Unit(name, "loaded", "active" if name in self.active else "inactive", "") for name in names}

    def __getattr__(self, verb):
        def change(name):
            self.calls.append((verb, name))
            if (verb, name) in self.broken:
                raise CommandError(["systemctl", verb, name], "it failed")

        return change


@pytest.fixture
def systemd(monkeypatch):
    fake = Systemd()
    monkeypatch.setattr(apply_clients, "systemd", fake)
    return fake


def test_who_has_to_notice(systemd):
    systemd.active = {"nvidia-dcgm.service", "dcgm-exporter.service", "k3s.service"}
    found = apply_clients.to_notify(["dcgm-exporter.service"])
    assert found[0] == "nvidia-dcgm.service" and "pod nvidia-device-plugin" in found
    systemd.active = set()
    assert apply_clients.to_notify([]) == ()
    systemd.broken = {"systemctl"}
    assert apply_clients.to_notify([]) == ()


def test_services_that_run_are_stopped_and_started_again_whatever_happens(systemd):
    systemd.active = {"a.service"}
    with pytest.raises(ValueError), apply_clients.out_of_the_way(["a.service", "b.service"]):
        raise ValueError
    assert systemd.calls == [("stop", "a.service"), ("start", "a.service")]


def test_a_service_that_does_not_stop_or_come_back_is_said(systemd):
    systemd.active = {"a.service"}
    systemd.broken = {("stop", "a.service")}
    with pytest.raises(ServicesFailed), apply_clients.out_of_the_way(["a.service"]):
        pytest.fail("nothing may be changed then")
    systemd.broken = {("start", "a.service")}
    with pytest.raises(ServicesFailed, match="it failed"), apply_clients.out_of_the_way(["a.service"]):
        pass
    systemd.broken = {("restart", "a.service")}
    with pytest.raises(ServicesFailed):
        apply_clients.restart(["a.service"])


def test_restart_is_of_those_that_run(systemd):
    systemd.active = {"a.service"}
    assert apply_clients.restart(["a.service", "b.service"]) == ("a.service",)
    assert apply_clients.full_name("nvidia-dcgm") == "nvidia-dcgm.service"
    assert apply_clients.full_name("x.target") == "x.target"
