# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container toolkit on every distribution and both architectures: a mirror is configured, and the four packages are
resolved by the real package manager. With each of the three they are installed at one version, held, moved and removed.

NVIDIA signs the metadata of its rpm repository and not the packages; so do these.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import KeyRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import PackageError, Transaction
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_zypper import parse_summary
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import apply as toolkit_system
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import plan as toolkit_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import DesiredToolkit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.packages import IDENTIFIER, PACKAGES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.plan import select
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.state import ToolkitState
from repositories import Signer, build_deb_repository, build_rpm, build_rpm_repository, sign_metadata
from roots import bare_apt, bare_dnf, bare_zypper
from stand_ins import StandIn, container_toolkit

VERSIONS = ("1.19.1", "1.20.2")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class RootedToolkit(toolkit_system.ToolkitSystem):
    """The toolkit's host in a root of its own."""

    def read(self, desired: DesiredToolkit) -> ToolkitState:
        keys = [
            Path(self.manager._root, path)
            for path in (f"etc/apt/keyrings/{IDENTIFIER}.gpg", f"etc/pki/rpm-gpg/{IDENTIFIER}.asc")
        ]
        with patch.object(toolkit_system, "key_is_there", lambda _name: any(path.exists() for path in keys)):
            return super().read(desired)

    def _old_sources(self) -> tuple[str, ...]:
        return ()


def _no_network(url: str, _credentials: object) -> bytes:
    raise AssertionError(f"a test would have fetched {url}")


@pytest.fixture(scope="session")
def mirrors(workspace, signer):
    """Return the mirror of a kind of package, as the variable of the role names it."""
    built: dict[tuple[str, str], str] = {}

    def mirror(manager: str, machine: str) -> str:
        rpm = manager != "apt"
        key = ("rpm" if rpm else "deb", machine)
        if key not in built:
            packages = [package for version in VERSIONS for package in container_toolkit(version, rpm)]
            stable = workspace / f"toolkit-{machine}" / "stable" / key[0]
            if rpm:
                build_rpm_repository(stable / machine, packages, signer, machine=machine, signs="metadata")
            else:
                build_deb_repository(stable / MACHINES[machine], packages, signer, MACHINES[machine])
            built[key] = f"file://{stable}"
        return built[key]

    return mirror


@pytest.fixture
def make(tmp_path, plugins, monkeypatch):
    """Make the toolkit's host of a distribution, with nothing on it."""
    for module in (toolkit_system, toolkit_plan):
        monkeypatch.setattr(module, "PATH", str(tmp_path / "config.toml"))

    def made(distribution, machine="x86_64"):
        monkeypatch.setattr(toolkit_system.platform, "machine", lambda: machine)
        described, root = DISTRIBUTIONS[distribution], tmp_path / "root"
        if described.manager == "apt":
            manager = bare_apt(root, MACHINES[machine])
        elif described.manager == "dnf":
            manager = bare_dnf(root, plugins, distribution[1].partition(".")[0], machine)
        else:
            manager = bare_zypper(root, machine)
            base = build_rpm(tmp_path / "base", StandIn("aaa_base", "84.87-1"), machine)
            assert manager._rpm.run("-i", "--ignorearch", "--nosignature", str(base)).rc == 0
        fields = {"ID": distribution[0], "VERSION_ID": distribution[1]}
        return RootedToolkit(_no_network, manager, fields)

    return made


@pytest.fixture
def desired_for(tmp_path, mirrors, signer):
    key = tmp_path / "mirror.asc"
    key.write_bytes(signer.public_key())

    def desired(system, machine="x86_64", key_fingerprint="", **more):
        url = mirrors(system.manager.name, machine)
        repository = DesiredRepository(url, "", str(key), key_fingerprint or signer.fingerprint)
        return DesiredToolkit(repository=repository, cdi=False, **more)

    return desired


def versions(system):
    """What is installed, without epoch and revision."""
    return {name: version.rpartition(":")[2].partition("-")[0] for name, version in system.manager.installed().items()}


def upgrade(manager) -> list[str]:
    """Return the packages that an upgrade of everything would move."""
    if manager.name == "apt":
        said = manager._run(["apt-get", *manager._options, "-s", "dist-upgrade"]).stdout
        return [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]
    if manager.name == "dnf":
        said = manager._dnf("--assumeno", "upgrade").stdout
        return [word.rpartition(".")[0] or word for word in said.split()]
    said = manager._zypper("update", "--dry-run", xml=True).stdout
    return [change.name for change in parse_summary(said)]


def actions(report):
    return [step.kind.key for step in report.plan.steps]


ONE_OF_EACH = [("debian", "12"), ("rhel", "9"), ("sles", "15")]
each_manager = pytest.mark.parametrize("distribution", ONE_OF_EACH, ids=["apt", "dnf", "zypper"])


@pytest.mark.proves("toolkit", "", by="distribution", note="installs")
@each_manager
def test_installed_held_and_idempotent(make, desired_for, distribution):
    system = make(distribution)
    desired = desired_for(system)
    assert actions(run_stage(system, desired, check_mode=True))[:2] == ["add_repository", "install_toolkit"]
    assert not system.manager.repositories()
    report = run_stage(system, desired, check_mode=False)
    assert actions(report)[:3] == ["add_repository", "install_toolkit", "hold_packages"]
    assert {name: versions(system)[name] for name in PACKAGES} == dict.fromkeys(PACKAGES, "1.20.2")
    assert set(PACKAGES) <= set(system.manager.holds())
    assert not run_stage(system, desired, check_mode=False).plan.changes


@pytest.mark.proves("toolkit", "", by="distribution", note="installs")
@each_manager
def test_down_and_up_past_the_holds_and_away(make, desired_for, distribution):
    system = make(distribution)
    run_stage(system, desired_for(system, version="1.19.1"), check_mode=False)
    assert {name: versions(system)[name] for name in PACKAGES} == dict.fromkeys(PACKAGES, "1.19.1")
    # What an unattended upgrade of everything would do to them: nothing.
    assert not [name for name in upgrade(system.manager) if name in PACKAGES]
    run_stage(system, desired_for(system, version="1.19.1", hold=False), check_mode=False)
    assert set(PACKAGES) <= set(upgrade(system.manager)), "the proof above means nothing"
    run_stage(system, desired_for(system), check_mode=False)
    run_stage(system, desired_for(system, version="1.19.1"), check_mode=False)
    assert {name: versions(system)[name] for name in PACKAGES} == dict.fromkeys(PACKAGES, "1.19.1")
    assert not run_stage(system, desired_for(system, version="1.19.1"), check_mode=False).plan.changes
    run_stage(system, desired_for(system, present=False), check_mode=False)
    assert not set(PACKAGES) & set(versions(system))
    assert not set(PACKAGES) & set(system.manager.holds())
    assert system.manager.repositories() == ()
    assert not run_stage(system, desired_for(system, present=False), check_mode=False).plan.changes


@pytest.mark.proves("toolkit", "", by="distribution")
@pytest.mark.parametrize(
    ("distribution", "machine"),
    [
        # By default each distribution comes once, and one of each package manager on every architecture.
        pytest.param(key, machine, marks=[pytest.mark.by_name] * (number > 0 and key not in ONE_OF_EACH))
        for key in DISTRIBUTIONS
        for number, machine in enumerate(MACHINES)
    ],
    ids=lambda part: "-".join(part) if isinstance(part, tuple) else part,
)
def test_a_mirror_is_configured_and_the_four_are_resolved(make, desired_for, distribution, machine):
    system = make(distribution, machine)
    desired = desired_for(system, machine)
    system.manager.add_repository(system.repository(desired))
    system.manager.refresh()
    packages = select(system.manager.offered(PACKAGES), "1.20.2")
    changes = {change.name: change.after for change in system.manager.simulate(Transaction(packages))}
    assert changes == {package.name: package.version for package in packages}


@pytest.mark.proves("trap", "", rows=["key"])
@pytest.mark.parametrize("distribution", [("rhel", "9"), ("sles", "15")], ids=["dnf", "zypper"])
def test_metadata_that_somebody_else_signed_are_not_read(tmp_path, make, desired_for, signer, distribution):
    """The packages are not signed, so everything hangs on the metadata; the forger's key lies beside them."""
    other = Signer.create(tmp_path / "other")
    try:
        folder = tmp_path / "forged" / "stable" / "rpm" / "x86_64"
        build_rpm_repository(folder, container_toolkit("1.20.2", True), other, signs="metadata")
        sign_metadata(folder, other)
        system = make(distribution)
        url = f"file://{tmp_path}/forged/stable/rpm"
        forged = replace(desired_for(system), repository=replace(desired_for(system).repository, url=url))
        with pytest.raises(PackageError):
            run_stage(system, forged, check_mode=False)
        assert not set(PACKAGES) & set(versions(system))
        # A repository that cannot be read is not left in the way of every other use of the package manager.
        assert system.manager.repositories() == ()
        trusted = system.manager._rpm.run("-qa", "gpg-pubkey*", "--qf", "%{VERSION}\\n").stdout.split()
        assert trusted in ([], [signer.fingerprint[-8:].lower()])
    finally:
        other.close()


def test_another_fingerprint_is_refused_before_anything(make, desired_for):
    system = make(("rhel", "9"))
    with pytest.raises(KeyRefused, match="expected only 0000"):
        run_stage(system, desired_for(system, key_fingerprint="0" * 40), check_mode=False)
    assert system.manager.repositories() == ()
