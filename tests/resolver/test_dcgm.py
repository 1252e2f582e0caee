# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM by each of the three real package managers: installed at one version, held, moved with the driver's CUDA, in place of DCGM 3, and removed.

The host engine is not started: packages in a root of their own have no systemd.
"""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package, Transaction
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.desired import DesiredDcgm
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.packages import FAMILY, names
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from repositories import build_deb_repository, build_rpm, build_rpm_repository
from roots import apt_root, dnf_root, zypper_root
from stand_ins import StandIn, dcgm, dcgm_3

OLDER, NEWER = "4.5.3", "4.6.0"


class Engine:
    """systemd with the host engine's unit, in place of the adapter."""

    def __init__(self):
        self.running = self.at_boot = self.masked = False
        self.stopped = 0

    def unit(self, name):
        return Unit(name, "loaded", "active" if self.running else "inactive")

    def enabled(self, units):
        return frozenset(units) if self.at_boot else frozenset()

    def unmask(self, _name):
        self.masked = False

    def enable(self, _units):
        assert not self.masked, "systemctl enable: the unit file is masked"
        self.at_boot = True

    def disable(self, _units):
        self.at_boot = False

    def start(self, _name):
        self.running = True

    def stop(self, _name):
        self.running = False
        self.stopped += 1


@pytest.fixture
def engine(monkeypatch):
    made = Engine()
    monkeypatch.setattr(apply, "systemd", made)
    monkeypatch.setattr(apply, "unmask", made.unmask)
    return made


@pytest.fixture(scope="session")
def repositories(workspace, signer):
    """Return the address of the repository with rpms, or with debs."""
    built: dict[bool, str] = {}

    def repository(rpm: bool) -> str:
        if rpm not in built:
            packages = [*(one for version in (OLDER, NEWER) for one in dcgm(version, rpm)), dcgm_3(rpm)]
            folder = workspace / ("dcgm-rpm" if rpm else "dcgm-deb")
            build = build_rpm_repository if rpm else build_deb_repository
            built[rpm] = build(folder, packages, signer)
        return built[rpm]

    return repository


@pytest.fixture(params=["apt", "dnf", "zypper"])
def manager(request, tmp_path, plugins, repositories, signer):
    root, url = tmp_path / "root", repositories(request.param != "apt")
    if request.param == "apt":
        return apt_root(root, url, signer)
    if request.param == "dnf":
        return dnf_root(root, url, signer, plugins, "9")
    zypper = zypper_root(root, url, signer)
    # libzypp does not read a database without packages.
    base = build_rpm(tmp_path / "base", StandIn("aaa_base", "84.87-1"), "x86_64")
    assert zypper._rpm.run("-i", "--ignorearch", "--nosignature", str(base)).rc == 0
    return zypper


def installed(manager):
    """Versions without epoch and revision."""
    found = manager.installed().items()
    return {name: text.rpartition(":")[2].partition("-")[0] for name, text in found if name.startswith(FAMILY)}


def of(version, *cuda):
    return dict.fromkeys(names(cuda), version)


def desired(version=NEWER, *cuda, **more):
    return DesiredDcgm(version=version, cuda=cuda or ("13",), **more)


def test_installed_held_and_idempotent(manager, engine):
    shown = run_stage(manager, desired(), check_mode=True)
    assert shown.plan.changes and installed(manager) == {}
    run_stage(manager, desired(), check_mode=False)
    assert installed(manager) == of(NEWER, "13") and engine.running and engine.at_boot
    assert set(names(["13"])) <= set(manager.holds())
    assert not run_stage(manager, desired(), check_mode=False).plan.changes


def test_up_and_down_past_the_holds_and_away(manager, engine):
    for version in (OLDER, NEWER, OLDER):
        run_stage(manager, desired(version), check_mode=False)
        assert installed(manager) == of(version, "13")
        assert not run_stage(manager, desired(version), check_mode=False).plan.changes
    assert engine.stopped == 2, "it has the libraries open that are replaced"
    run_stage(manager, desired(present=False), check_mode=False)
    assert installed(manager) == {} and not engine.running and not engine.at_boot
    assert not [name for name in manager.holds() if name.startswith(FAMILY)]


def test_the_packages_follow_the_cuda_version_of_the_driver(manager, engine):
    run_stage(manager, desired(OLDER, "12"), check_mode=False)
    assert installed(manager) == of(OLDER, "12")
    # Those of another CUDA version at the old version of DCGM cannot stay beside the new core.
    run_stage(manager, desired(NEWER, "13"), check_mode=False)
    assert installed(manager) == of(NEWER, "13")
    run_stage(manager, desired(NEWER, "12", "13"), check_mode=False)
    assert installed(manager) == of(NEWER, "12", "13") and engine.running


def test_dcgm_3_makes_way(manager, engine):
    (old,) = manager.offered([FAMILY])
    manager.apply(Transaction((Package(FAMILY, old.version),)))
    assert installed(manager) == {FAMILY: "3.3.9"}
    run_stage(manager, desired(), check_mode=False)
    assert installed(manager) == of(NEWER, "13") and engine.running


def test_a_version_that_the_repository_lacks_is_refused_with_those_that_it_has(manager, engine):
    with pytest.raises(Refused, match=f"offered at {NEWER}, {OLDER}"):
        run_stage(manager, desired("4.6.1"), check_mode=False)
    assert installed(manager) == {} and not engine.at_boot
