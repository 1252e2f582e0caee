# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM on a played host: what is done, read back, and what a refusal, a failure or a cut leaves."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import (
    Change,
    Package,
    PackageError,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.desired import DesiredDcgm
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.packages import names
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import NotInEffect, Refused
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

WANTED = names(["13"])


class Played(PackageManager):
    """apt with a repository, and systemd with a host engine that is there as long as the core package is."""

    def __init__(self):
        super().__init__({"bash": "5"})
        # By somebody, before the packages came: the first enable has to undo it.
        self.masked = True
        self.versions = ("1:4.6.0-1", "1:4.5.3-1")
        self.calls = []
        self.engine = "inactive"
        self.at_boot = False
        self.driver = "580.178.04"

    def offered(self, wanted):
        return tuple(Package(name, version) for name in wanted for version in self.versions)

    def apply(self, transaction):
        self.calls.append("apply")
        assert self.engine != "active", "the packages change below a host engine that runs"
        assert not self.held & {one.name for one in transaction.install}
        super().apply(transaction)

    # systemd
    def unit(self, name):
        return Unit(name, "loaded", self.engine)

    def enabled(self, names_):
        return frozenset(names_) if self.at_boot else frozenset()

    def unmask(self, _name):
        self.masked = False

    def enable(self, _names):
        assert not self.masked, "systemctl enable: the unit file is masked"
        self.at_boot = True

    def disable(self, _names):
        self.at_boot = False

    def start(self, _name):
        self.calls.append("start")
        self.engine = "active"

    def stop(self, _name):
        self.calls.append("stop")
        self.engine = "inactive"

    # the kernel's module
    def module_on_disk(self, *_given):
        return (type("Disk", (), {"version": self.driver}) if self.driver else None), None

    def running_kernel(self):
        return "6.1.0-50-amd64"


@pytest.fixture
def host(monkeypatch):
    played = Played()
    monkeypatch.setattr(apply, "systemd", played)
    monkeypatch.setattr(apply, "unmask", played.unmask)
    monkeypatch.setattr(apply, "kernel", played)
    return played


def run(host, check_mode=False, **wanted):
    return run_stage(host, DesiredDcgm(**wanted), check_mode)


def kinds(report):
    return [step.kind.key for step in report.plan.steps]


def ours(host):
    return {name: version for name, version in host.packages.items() if name != "bash"}


def test_installed_held_and_running_and_then_nothing_to_do(host):
    assert kinds(run(host, check_mode=True)) == ["install_dcgm", "hold_packages", "enable_service", "start_service"]
    assert ours(host) == {}
    run(host)
    assert ours(host) == dict.fromkeys(WANTED, "1:4.6.0-1") and host.held == set(WANTED)
    assert host.engine == "active" and host.at_boot
    assert kinds(run(host)) == []


def test_another_version_stops_the_engine_and_starts_it_again(host):
    run(host)
    host.calls.clear()
    assert "clients of the host engine" in str(run(host, check_mode=True, version="4.5.3").plan.steps[0])
    run(host, version="4.5.3")
    assert host.calls == ["stop", "apply", "start"]
    assert ours(host) == dict.fromkeys(WANTED, "1:4.5.3-1") and host.held == set(WANTED)


def test_another_cuda_leaves_no_package_of_another_version(host):
    host.driver = "575.57.08"
    run(host, version="4.5.3")
    assert set(ours(host)) == set(names(["12"]))
    host.driver = "580.178.04"
    run(host)
    assert ours(host) == dict.fromkeys(WANTED, "1:4.6.0-1")


def test_dcgm_3_goes_in_the_same_transaction(host):
    host.packages["datacenter-gpu-manager"] = "1:3.3.9"
    run(host)
    assert ours(host) == dict.fromkeys(WANTED, "1:4.6.0-1") and host.calls.count("apply") == 1


def test_what_stands_beside_the_new_packages_stays(host):
    others = {"datacenter-gpu-manager-4-multinode": "1:4.5.3-1", "datacenter-gpu-manager-4-cuda12": "1:4.6.0-1"}
    host.packages.update(others)
    run(host)
    assert others.items() <= host.packages.items()


def test_a_version_that_is_not_offered(host):
    with pytest.raises(Refused, match=r"no 4\.7\.0 of .*-4-core is offered at 4\.6\.0, 4\.5\.3"):
        run(host, version="4.7.0")
    host.versions = ()
    with pytest.raises(Refused, match="no repository configured on this host"):
        run(host)
    assert ours(host) == {} and host.changes == ["refresh", "refresh"]


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (Change("remove", "nvidia-open", "580"), "would remove nvidia-open 580"),
        (Change("upgrade", "libc6", "1", "2"), "would upgrade libc6 1"),
        (Change("upgrade", WANTED[0], "", "1:9"), "would install datacenter-gpu-manager-4-core 1:9 in place of"),
    ],
)
def test_a_transaction_that_does_more_than_it_was_asked_for(host, extra, text):
    run(host)
    host.extra = (extra,)
    for check_mode in (True, False):
        with pytest.raises(Refused, match=text):
            run(host, check_mode, version="4.5.3")
    assert host.engine == "active" and host.held == set(WANTED)
    assert ours(host) == dict.fromkeys(WANTED, "1:4.6.0-1")


def test_a_transaction_that_fails_leaves_the_engine_running(host):
    run(host)
    host.fails["apply"] = "no space left on device"
    with pytest.raises(PackageError, match="no space"):
        run(host, version="4.5.3")
    assert host.engine == "active" and host.held == set(WANTED)
    run(host, version="4.5.3")
    assert ours(host) == dict.fromkeys(WANTED, "1:4.5.3-1")


def test_a_cut_off_transaction_is_repaired_first(host):
    run(host)
    host.half = (WANTED[1],)
    del host.packages[WANTED[1]]
    assert kinds(run(host))[:2] == ["repair_package_database", "install_dcgm"]
    assert ours(host) == dict.fromkeys(WANTED, "1:4.6.0-1") and host.held == set(WANTED)


def test_a_repair_that_fails_leaves_what_is_whole_held(host):
    run(host)
    host.half = (WANTED[1],)
    del host.packages[WANTED[1]]
    host.fails["repair"] = "no space left on device"
    with pytest.raises(PackageError, match="no space"):
        run(host)
    assert host.held == set(WANTED) - {WANTED[1]}


def test_an_engine_that_does_not_stay_is_a_failure(host):
    host.start = lambda _name: None
    with pytest.raises(NotInEffect, match=r"still needed: start nvidia-dcgm\.service"):
        run(host)

    def refuse(name):
        raise CommandError(["systemctl", "start", name], "the unit is failed (loaded)")

    host.start = refuse
    with pytest.raises(CommandError, match="failed"):
        run(host)


def test_without_a_driver(host):
    host.driver = None
    with pytest.raises(Refused, match="no driver is installed for the running kernel"):
        run(host)
    report = run(host, check_mode=True)
    assert "depend on the driver" in report.plan.warnings[0] and kinds(report) == []
    run(host, cuda=("13",))
    assert ours(host) == dict.fromkeys(WANTED, "1:4.6.0-1")


def test_holds_follow_the_variable(host):
    run(host, hold=False)
    assert host.held == set()
    run(host)
    assert host.held == set(WANTED)
    assert kinds(run(host, hold=False)) == ["release_packages"] and host.held == set()


def test_absent(host):
    run(host)
    assert kinds(run(host, present=False)) == ["disable_service", "release_packages", "uninstall_packages"]
    assert ours(host) == {} and host.held == set() and (host.engine, host.at_boot) == ("inactive", False)
    assert kinds(run(host, present=False)) == []
