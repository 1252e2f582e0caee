# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply_machine
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Clients, ServicesFailed, active
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import full_name


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
        return {name: Unit(name, "loaded", "active" if name in self.active else "inactive") for name in names}

    def __getattr__(self, verb):
        def change(name):
            self.calls.append((verb, name))
            if (verb, name) in self.broken:
                raise CommandError(["systemctl", verb, name], "it failed")

        return change


@pytest.fixture
def systemd(monkeypatch):
    fake = Systemd()
    monkeypatch.setattr(apply_machine, "systemd", fake)
    return fake


def test_who_has_to_notice(systemd):
    systemd.active = {"nvidia-dcgm.service", "dcgm-exporter.service", "k3s.service"}
    found = apply_machine.to_notify(["dcgm-exporter.service"])
    assert found[0] == "nvidia-dcgm.service" and "pod nvidia-device-plugin" in found
    systemd.active = set()
    assert apply_machine.to_notify([]) == ()
    systemd.broken = {"systemctl"}
    assert apply_machine.to_notify([]) == ()


def test_services_that_were_stopped_are_started_again(systemd):
    systemd.active = {"a.service"}
    clients = Clients(active(["a.service", "b.service"]))
    assert clients.concerned == ("a.service",)
    clients.stop()
    assert clients.start_again(True) == ("a.service",)
    assert systemd.calls == [("stop", "a.service"), ("start", "a.service")]


def test_services_that_were_not_stopped_are_restarted_after_a_change(systemd):
    clients = Clients(["a.service"])
    assert clients.start_again(False) == () and clients.start_again(True) == ("a.service",)
    assert systemd.calls == [("restart", "a.service")]


def test_services_that_a_run_before_left_stopped_are_restarted_whatever_happens(systemd):
    clients = Clients(["a.service"], ["c.service", "a.service"])
    assert clients.concerned == ("a.service", "c.service")
    assert clients.start_again(False) == ("a.service", "c.service")
    assert systemd.calls == [("restart", "a.service"), ("restart", "c.service")]


def test_a_service_that_does_not_stop_or_come_back_is_said(systemd):
    systemd.broken = {("stop", "a.service")}
    clients = Clients(["a.service", "b.service"])
    with pytest.raises(ServicesFailed):
        clients.stop()
    systemd.broken = {("start", "a.service")}
    with pytest.raises(ServicesFailed, match="it failed"):
        clients.start_again(False)
    systemd.broken = {("restart", "a.service")}
    with pytest.raises(ServicesFailed):
        clients.start_again(True)
    assert systemd.calls[-1] == ("restart", "b.service"), "one that fails does not keep the others from it"
    systemd.broken = {"systemctl"}
    with pytest.raises(ServicesFailed, match="no answer"):
        active(["a.service"])


def test_full_names():
    assert full_name("nvidia-dcgm") == "nvidia-dcgm.service"
    assert full_name("x.target") == "x.target"
