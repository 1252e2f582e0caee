# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host itself: its name, kernel, distribution, package manager, Secure Boot and the units that matter to GPUs."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import _runtimes as runtimes
from .._adapters import kernel
from .._adapters.command import CommandError
from .._adapters.files import HostFiles
from .._adapters.host_reader import HostReader
from .._adapters.systemd import Unit
from .._formats.documents import read_record
from .._health.metric_units import METRICS_TIMER
from .._schema import Record, items, needs, of, text

#: The families that the collection knows, by os-release's ID and, where that is not listed, its ID_LIKE.
FAMILIES = {
    "debian": "debian",
    "ubuntu": "debian",
    "rhel": "redhat",
    "centos": "redhat",
    "rocky": "redhat",
    "almalinux": "redhat",
    "ol": "redhat",
    "fedora": "redhat",
    "sles": "suse",
    "sle_hpc": "suse",
    "opensuse-leap": "suse",
    "opensuse": "suse",
    "suse": "suse",
    "amzn": "amazon",
}
PACKAGE_MANAGERS = {"debian": "apt", "redhat": "dnf", "amazon": "dnf", "suse": "zypper"}


def parse_os_release(text: str) -> dict[str, str | None]:
    """Return the distribution's id, version, code name and family from C(/etc/os-release)."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith("#"):
            try:
                values[name] = "".join(shlex.split(value))
            except ValueError:
                continue
    names = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
    return {
        "id": values.get("ID"),
        "version": values.get("VERSION_ID"),
        "codename": values.get("VERSION_CODENAME"),
        "family": next((FAMILIES[name] for name in names if name in FAMILIES), None),
    }


def read_host(source: HostReader) -> dict[str, Any]:
    """Return the part C(host) of the facts."""
    files = source.files
    release = files.read("/etc/os-release") or files.read("/usr/lib/os-release")
    distribution = parse_os_release(release or "")
    if release is None:
        source.note("host.distribution.id", "there is no /etc/os-release")
    elif distribution["family"] is None:
        source.note("host.distribution.family", f"the distribution {distribution['id']} is of no known family")
    secure_boot, reason = kernel.secure_boot(files)
    source.note("host.secure_boot", reason)
    release_name = kernel.running_kernel()
    return {
        "root": os.geteuid() == 0,
        "name": files.read("/proc/sys/kernel/hostname") or files.read("/etc/hostname") or platform.node(),
        "kernel": release_name,
        "architecture": platform.machine(),
        "boot_id": files.read("/proc/sys/kernel/random/boot_id"),
        "python": platform.python_version(),
        "distribution": distribution,
        "package_manager": PACKAGE_MANAGERS.get(distribution["family"] or ""),
        "secure_boot": secure_boot,
        "kernel_headers": kernel.has_headers(files, release_name),
        "headers_not_offered": not_offered_names(files.read(NOT_OFFERED), release_name),
        "container": _in_container(files),
    }


#: How package managers list the versions of packages from the lists that they have, for reading the facts of a host fetches nothing; and where one stands.
_LISTED = {
    "apt": (("apt-cache", "madison"), r"^ *{} \| *([^ |]+)"),
    "dnf": (("dnf", "--cacheonly", "-q", "repoquery", "--qf=%{name}|%{version}-%{release}\\n"), r"\b{}\|([^\s|\\]+)"),
    "zypper": (
        ("zypper", "--no-refresh", "--xmlout", "search", "--details", "--match-exact", "--type", "package"),
        r'name="{}"[^>]*edition="([^"]+)"(?![^>]*\(System Packages\))',
    ),
}


_APT_LISTS = "/var/lib/apt/lists"


def missing_headers(source: HostReader, host: Mapping[str, Any], driver: Mapping[str, Any]) -> list[str]:
    """Return the packages with headers of kernels without any that are in no package list of a host whose driver DKMS builds, as C(Headers.spelled).
    Lists that may be older than the kernel prove nothing: those of rpm have to have a later one, apt's to be fetched after it was installed.
    """
    following = driver.get("next_kernel") or {"headers": True}
    kernels = {host["kernel"]: host["kernel_headers"], following.get("release"): following["headers"]}
    without = [kernel for kernel, there in kernels.items() if kernel and not there]
    builds = any(build["name"].startswith("nvidia") for build in driver["dkms"])
    command, pattern = _LISTED.get(str(host["package_manager"]), ((), ""))
    if not (without and builds and command):
        return []
    # No host that is as described needs these.
    from .._distributions.distributions import find
    from .._distributions.kernels import headers
    from .._facts_view import DistributionFacts
    from .._plan import Refused

    try:
        kinds = find(DistributionFacts(**host["distribution"])).kernels
    except Refused:
        return []
    wanted = {release: headers(kinds, release)[0] for release in without}
    listed, found = source.output("host.headers_not_offered", (*command, *(item.name for item in wanted.values()))), []
    if listed is None:
        return []
    for release, item in wanted.items():
        versions = re.findall(pattern.format(re.escape(item.name)), listed, re.MULTILINE)
        newer = any(_parts(version) > _parts(item.version) for version in versions)
        if not item.version:
            # An image whose lists were removed has the folder, and its time is that of the removal.
            there = any("_Packages" in name for name in source.files.names(_APT_LISTS))
            fetched = source.files.modified(_APT_LISTS) if there else None
            made = source.files.modified(f"/lib/modules/{release}")
            newer = fetched is not None and made is not None and fetched > made
        if newer and not any(map(item.is_version, versions)):
            found.append(item.spelled)
    return found


def _parts(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"[0-9]{1,9}", version)]


def package_manager(files: HostFiles) -> str | None:
    """Return the name of the host's package manager; None where its distribution is of no known family."""
    release = files.read("/etc/os-release") or files.read("/usr/lib/os-release")
    return PACKAGE_MANAGERS.get(parse_os_release(release or "")["family"] or "")


def _in_container(files: HostFiles) -> bool:
    # systemd writes the first in every container that it boots in; the others are Docker's, Podman's and Kubernetes'.
    markers = ("/run/systemd/container", "/.dockerenv", "/run/.containerenv")
    if any(files.exists(marker) for marker in markers):
        return True
    return b"container=" in (files.read_bytes("/proc/1/environ") or b"")


#: Which packages with headers of later kernels the host's repositories did not offer when the driver's stage last asked them. Facts ask no repository:
#: without this record a host whose repositories lack such a package would be planned to change in every run, and no run would change it. It counts for
#: the kernel that ran then.
NOT_OFFERED = "/var/lib/gpufleet/driver-not-offered.json"
_MOST = 64


@dataclass(frozen=True)
class HeadersNotOffered(Record):
    """What was not offered while C(kernel) ran."""

    kernel: str = needs(text(256))
    packages: tuple[str, ...] = needs(items(text(256)))


_NOT_OFFERED = of(HeadersNotOffered, 1)


def not_offered_text(kernel: str, names: Sequence[str]) -> str:
    """Return the record of what was not offered while C(kernel) ran."""
    return HeadersNotOffered(kernel, tuple(sorted(names)[:_MOST])).as_text()


def not_offered_names(text: str | None, kernel: str) -> list[str]:
    """Return the names in the record, none where it is of another kernel or is not such a record."""
    found: HeadersNotOffered | None = read_record(_NOT_OFFERED, text)
    return list(found.packages[:_MOST]) if found and found.kernel == kernel else []


#: Units that the facts tell about; a service without its suffix.
UNITS = (
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "nvidia-dcgm",
    "nvidia-imex",
    "nvidia-cdi-refresh",
    *runtimes.UNITS,
    "kubelet",
    "gpufleet-mig",
    "gpufleet-cdi",
    "gpufleet-sharing",
    METRICS_TIMER,
)


@dataclass(frozen=True)
class Services:
    """The units by name. Without an answer of systemd nothing is known: every question is answered with None."""

    units: Mapping[str, Unit] = field(default_factory=dict)

    def active(self, *names: str) -> bool | None:
        """Return whether one of the units runs, or None where systemd did not answer."""
        if not self.units:
            return None
        return any(name in self.units and self.units[name].active in ("active", "reloading") for name in names)

    def masked(self, name: str) -> dict[str, bool]:
        """Return that a unit is masked as facts have it: nothing where it is not."""
        found = self.units.get(name)
        return {"masked": True} if found is not None and found.load == "masked" else {}


def read_services(source: HostReader) -> Services:
    """Return what systemd says, or an empty answer (with the reason noted) where it does not run."""
    if not source.files.local:
        source.note("services", f"systemd cannot be queried about the host at {source.files.root}")
        return Services()
    if not source.files.exists("/run/systemd/system"):
        source.note("services", "systemd does not run on this host")
        return Services()
    try:
        found = source.units([unit if "." in unit else f"{unit}.service" for unit in UNITS])
    except CommandError as error:
        source.note("services", str(error))
        return Services()
    return Services({name.removesuffix(".service"): unit for name, unit in found.items()})
