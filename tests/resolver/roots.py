# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Empty systems for the package managers, and the part of a driver system that the runner needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages import run_command
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_apt import Apt
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_dnf import Dnf
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_zypper import Zypper
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import (
    Repository,
    deb822,
    verified_key,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.host import Gpu, Host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import in_family
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.runner import (
    PackageApplier,
    ensure_repository,
    make_plan,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.system import DriverSystem
from repositories import Signer, call

H100 = Gpu("0000:18:00.0", "0x2330", "hopper", "h100-80gb-sxm")


def apt_root(folder: Path, url: str, signer: Signer) -> Apt:
    """Return an apt whose whole world is C(folder) and the repository at C(url)."""
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
    keyring = folder / "keyring.gpg"
    keyring.write_bytes(verified_key(signer.public_key(), signer.fingerprint, "the test's key"))
    repository = Repository("stand-ins", url, keyring.read_bytes())
    # Signed-By is an absolute path of the running system, so it cannot be the one inside of the root.
    (folder / "etc/apt/sources.list.d/stand-ins.sources").write_text(deb822(repository, str(keyring)))
    options = []
    for option in (
        f"Dir={folder}",
        f"Dir::State::status={folder}/var/lib/dpkg/status",
        "APT::Architecture=amd64",
        "APT::Architectures=amd64",
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
    apt = Apt(root=str(folder), options=options)
    apt.refresh()
    return apt


def dnf_root(folder: Path, url: str, signer: Signer, plugins: Path, release: str) -> Dnf:
    """Return a dnf 4 whose whole world is C(folder) and the repository at C(url)."""
    for path in ("etc/yum.repos.d", "etc/dnf/plugins", "etc/dnf/modules.d", "var/lib/rpm", "var/cache/dnf", "var/log"):
        (folder / path).mkdir(parents=True)
    locks = folder / "etc/dnf/plugins/versionlock.list"
    locks.touch()
    (folder / "etc/dnf/plugins/versionlock.conf").write_text(f"[main]\nenabled=1\nlocklist={locks}\n")
    (folder / "etc/os-release").write_text(f'ID="rhel"\nVERSION_ID="{release}"\nPLATFORM_ID="platform:el{release}"\n')
    (folder / "etc/dnf/dnf.conf").write_text("[main]\ngpgcheck=1\n")
    options = (
        "-c",
        str(folder / "etc/dnf/dnf.conf"),
        f"--installroot={folder}",
        f"--releasever={release}",
        f"--setopt=module_platform_id=platform:el{release}",
        f"--setopt=reposdir={folder}/etc/yum.repos.d",
        f"--setopt=cachedir={folder}/var/cache/dnf",
        f"--setopt=persistdir={folder}/var/lib/dnf",
        f"--setopt=logdir={folder}/var/log",
        f"--setopt=pluginpath={plugins}/dnf-plugins",
        f"--setopt=pluginconfpath={folder}/etc/dnf/plugins",
        "--setopt=ignorearch=1",
    )

    def runner(command, *, environment=None, **rest):
        return run_command(command, environment={**(environment or {}), "PYTHONPATH": str(plugins)}, **rest)

    dnf = Dnf(root=str(folder), options=options, runner=runner)
    key = verified_key(signer.public_key(), signer.fingerprint, "the test's key")
    dnf.add_repository(Repository("stand-ins", url, key))
    # gpgkey is a path of the running system as well.
    source = folder / "etc/yum.repos.d/stand-ins.repo"
    source.write_text(source.read_text().replace("file:///etc/pki", f"file://{folder}/etc/pki"))
    call("rpm", "--root", folder, "--import", folder / "etc/pki/rpm-gpg/stand-ins.asc")
    dnf.refresh()
    return dnf


def zypper_root(folder: Path, url: str, signer: Signer) -> Zypper:
    """Return a zypper whose whole world is C(folder) and the repository at C(url)."""
    for path in ("etc/zypp/repos.d", "var/lib/rpm", "var/log"):
        (folder / path).mkdir(parents=True)
    (folder / "etc/zypp/zypp.conf").write_text("[main]\narch = x86_64\n")
    (folder / "etc/os-release").write_text('ID="sles"\nVERSION_ID="15.6"\n')

    def runner(command, **rest):
        # Debian's rpm keeps its database in the home directory; libzypp tells it the place that SLES has.
        where = ["--dbpath", "/var/lib/rpm"] if command[0] == "rpm" else []
        return run_command([command[0], *where, *command[1:]], **rest)

    zypper = Zypper(root=str(folder), options=("--root", str(folder)), runner=runner)
    key = verified_key(signer.public_key(), signer.fingerprint, "the test's key")
    zypper.add_repository(Repository("stand-ins", url, key))
    source = folder / "etc/zypp/repos.d/stand-ins.repo"
    source.write_text(source.read_text().replace("file:///etc/pki", f"file://{folder}/etc/pki"))
    zypper.refresh()
    return zypper


def _no_network(url: str) -> bytes:
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
            is_open = any("open" in name and ("dkms" in name or "kmp" in name) for name in packages)
            flavour = "open" if is_open else "proprietary"
        return replace(
            self._base,
            packages=packages,
            holds=self.manager.holds(),
            missing_for_holds=self.manager.missing_for_holds(),
            interrupted=self.manager.interrupted(),
            headers=headers,
            flavour=flavour,
        )

    def repository_url(self, host, wish) -> str:
        # The roots have their repository already, unless the test is about configuring one.
        return super().repository_url(host, wish) if wish.repository.url else ""

    def write_record(self, record) -> None:
        self._record = record

    def plan(self, wish):
        """Plan and resolve; a repository that the wish names is configured on the way, as the module does it."""
        host = self.read()
        return ensure_repository(self, host, wish, make_plan(self, host, wish))[1]

    def bring(self, wish):
        """Plan, resolve and apply; return what was resolved."""
        host = self.read()
        resolved = self.plan(wish)
        PackageApplier(self, host, wish, resolved).apply()
        return resolved
