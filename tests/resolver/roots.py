# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Empty systems for the package managers, and the part of a driver system that the runner needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import run as run_command
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.installed_packages import is_kernel_package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import verified_key
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_apt import Apt
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_dnf import Dnf
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_zypper import Zypper
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import Repository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.apply import plan_packages
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import in_family
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.runner import apply_packages, ensure_repository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.system import DriverSystem
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import CardFacts
from repositories import Signer

#: Where the root says that the package with dnf's plugin versionlock is installed.
PLUGIN_MARK = "usr/lib/versionlock-plugin"

H100 = CardFacts("0000:18:00.0", "0x2330", architecture="hopper", board="h100-80gb-sxm")


class RootedApt(Apt):
    """apt names the key of a source by a path of the running system; in a root of its own it has to name the one in there."""

    def add_repository(self, repository: Repository) -> bool:
        changed = super().add_repository(repository)
        source = Path(self._repository_path(repository.identifier))
        if source.exists():
            source.write_text(source.read_text().replace("Signed-By: /etc/", f"Signed-By: {self._root}/etc/"))
        return changed

    def _path(self, path: str) -> str:
        return path if path.startswith(f"{self._root}/") else super()._path(path)


def _own_key(manager: Dnf | Zypper, folder: str, identifier: str) -> None:
    source = Path(folder) / f"{identifier}.repo"
    source.write_text(source.read_text().replace("file:///etc/pki", f"file://{manager._root}/etc/pki"))


class RootedDnf(Dnf):
    """See L(RootedApt)."""

    def add_repository(self, repository: Repository) -> bool:
        changed = super().add_repository(repository)
        _own_key(self, f"{self._root}/etc/yum.repos.d", repository.identifier)
        return changed


class RootedZypper(Zypper):
    """See L(RootedApt)."""

    def add_repository(self, repository: Repository) -> bool:
        changed = super().add_repository(repository)
        _own_key(self, f"{self._root}/etc/zypp/repos.d", repository.identifier)
        return changed


def repository_of(url: str, signer: Signer) -> Repository:
    return Repository("stand-ins", url, verified_key(signer.public_key(), signer.fingerprint, "the test's key"))


def bare_apt(folder: Path, architecture: str = "amd64") -> Apt:
    """Return an apt whose whole world is C(folder), with no repository."""
    for path in (
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "etc/apt/sources.list.d",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
        "var/lib/dpkg/updates",
        "var/lib/dpkg/info",
        "var/log/apt",
        "usr/bin",
    ):
        (folder / path).mkdir(parents=True)
    (folder / "var/lib/dpkg/status").touch()
    options = []
    for option in (
        f"Dir={folder}",
        f"Dir::State::status={folder}/var/lib/dpkg/status",
        f"APT::Architecture={architecture}",
        f"APT::Architectures={architecture}",
        "APT::Sandbox::User=root",
        "Acquire::Languages=none",
        f"DPkg::Options::=--root={folder}",
        "DPkg::Options::=--force-not-root",
        "DPkg::Options::=--force-bad-path",
        f"DPkg::Options::=--log={folder}/var/log/dpkg.log",
        "DPkg::Path=/usr/sbin:/usr/bin:/sbin:/bin",
        "Dir::Bin::dpkg=/usr/bin/dpkg",
    ):
        options += ["-o", option]
    return RootedApt(root=str(folder), options=options)


def apt_root(folder: Path, url: str, signer: Signer, architecture: str = "amd64") -> Apt:
    """Return an apt whose whole world is C(folder) and the repository at C(url)."""
    apt = bare_apt(folder, architecture)
    apt.add_repository(repository_of(url, signer))
    apt.refresh()
    return apt


def bare_dnf(folder: Path, plugins: Path, release: str, machine: str = "x86_64", *, locks: bool = True) -> Dnf:
    """Return a dnf 4 whose whole world is C(folder), with no repository.

    :param locks: whether dnf knows C(versionlock), which a minimal system has to install first.
    """
    for path in ("etc/yum.repos.d", "etc/dnf/plugins", "etc/dnf/modules.d", "var/lib/rpm", "var/cache/dnf", "var/log"):
        (folder / path).mkdir(parents=True)
    list_of_locks = folder / "etc/dnf/plugins/versionlock.list"
    list_of_locks.touch()
    (folder / "etc/dnf/plugins/versionlock.conf").write_text(f"[main]\nenabled=1\nlocklist={list_of_locks}\n")
    (folder / "etc/os-release").write_text(f'ID="rhel"\nVERSION_ID="{release}"\nPLATFORM_ID="platform:el{release}"\n')
    (folder / "etc/dnf/dnf.conf").write_text("[main]\ngpgcheck=1\n")
    options = (
        "-c",
        str(folder / "etc/dnf/dnf.conf"),
        f"--installroot={folder}",
        f"--releasever={release}",
        f"--forcearch={machine}",
        f"--setopt=module_platform_id=platform:el{release}",
        f"--setopt=reposdir={folder}/etc/yum.repos.d",
        f"--setopt=cachedir={folder}/var/cache/dnf",
        f"--setopt=persistdir={folder}/var/lib/dnf",
        f"--setopt=logdir={folder}/var/log",
        f"--setopt=pluginpath={plugins}/dnf-plugins",
        f"--setopt=pluginconfpath={folder}/etc/dnf/plugins",
        "--setopt=ignorearch=1",
    )
    marker = folder / PLUGIN_MARK

    def runner(command, *, environment=None, **rest):
        # The plugin is a part of the machine, not of the root: it counts from when its package is in the root.
        without = () if locks or marker.exists() else ("--disableplugin=versionlock",)
        command = [*command[:1], *without, *command[1:]] if command[0] == "dnf" else command
        return run_command(command, environment={**(environment or {}), "PYTHONPATH": str(plugins)}, **rest)

    return RootedDnf(root=str(folder), options=options, runner=runner)


def dnf_root(
    folder: Path, url: str, signer: Signer, plugins: Path, release: str, machine: str = "x86_64", **more
) -> Dnf:
    """Return a dnf 4 whose whole world is C(folder) and the repository at C(url)."""
    dnf = bare_dnf(folder, plugins, release, machine, **more)
    dnf.add_repository(repository_of(url, signer))
    dnf.refresh()
    return dnf


def bare_zypper(folder: Path, machine: str = "x86_64") -> Zypper:
    """Return a zypper whose whole world is C(folder), with no repository."""
    for path in ("etc/zypp/repos.d", "var/lib/rpm", "var/log"):
        (folder / path).mkdir(parents=True)
    (folder / "etc/zypp/zypp.conf").write_text(f"[main]\narch = {machine}\n")
    (folder / "etc/os-release").write_text('ID="sles"\nVERSION_ID="15.6"\n')

    def runner(command, *, environment=None, **rest):
        # Debian's rpm keeps its database in the home directory; libzypp tells it the place that SLES has.
        where = ["--dbpath", "/var/lib/rpm"] if command[0] == "rpm" else []
        # libzypp takes the architecture from the configuration of the machine, not from that of the root.
        environment = {"ZYPP_CONF": f"{folder}/etc/zypp/zypp.conf", **(environment or {})}
        return run_command([command[0], *where, *command[1:]], environment=environment, **rest)

    return RootedZypper(root=str(folder), options=("--root", str(folder)), runner=runner)


def zypper_root(folder: Path, url: str, signer: Signer, machine: str = "x86_64") -> Zypper:
    """Return a zypper whose whole world is C(folder) and the repository at C(url)."""
    zypper = bare_zypper(folder, machine)
    zypper.add_repository(repository_of(url, signer))
    zypper.refresh()
    return zypper


def _no_network(url: str, _credentials: object) -> bytes:
    raise AssertionError(f"a test would have fetched {url}")


class StandInSystem(DriverSystem):
    """A L(DriverSystem) whose host is made up, with a real package manager in a root of its own.

    :param distribution: key of C(DISTRIBUTIONS).
    """

    def __init__(self, manager, distribution, kernel, machine="x86_64", **host):
        super().__init__(_no_network, manager)
        self._base = Host(DISTRIBUTIONS[distribution], machine, kernel, gpus=(H100,), **host)
        self._record = None

    @property
    def record(self):
        return self._record

    def read(self) -> Host:
        installed = self.manager.installed()
        packages = {name: version for name, version in installed.items() if in_family(name)}
        headers = any(name.startswith(("linux-headers", "kernel-devel", "kernel-default-devel")) for name in installed)
        flavour = None
        if packages:
            is_open = any(
                "open" in name and ("dkms" in name or "kmp" in name or "-open-driver-" in name) for name in packages
            )
            flavour = "open" if is_open else "proprietary"
        found = replace(
            self._base,
            packages=packages,
            holds=self.manager.holds(),
            missing_for_holds=self.manager.missing_for_holds(),
            interrupted=self.manager.interrupted(),
            headers=headers,
            kernel_packages=tuple(sorted(filter(is_kernel_package, installed))),
            flavour=flavour,
        )
        # Nothing is built in a root: the module is there as soon as its packages are.
        return replace(found, on_disk=found.version)

    def repository_url(self, host, desired) -> str:
        # The roots have their repository already, unless the test is about configuring one.
        return super().repository_url(host, desired) if desired.repository.url else ""

    def write_record(self, record) -> None:
        self._record = record

    def plan(self, desired):
        """Plan and resolve; a repository that the desired state names is configured on the way, as the module does it."""
        host = self.read()
        return ensure_repository(self, host, desired, plan_packages(self, host, desired, check=False))

    def bring(self, desired):
        """Plan, resolve and apply; return what was resolved."""
        host = self.read()
        resolved = self.plan(desired)
        apply_packages(self, host, desired, resolved)
        return resolved
