# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The supported distributions as data: repositories, signing keys, kernels, how a version is pinned.

Sources: NVIDIA's driver installation guide [doc]; the fingerprints are those of the key files that NVIDIA publishes next
to each repository, seen alike in several independent public configurations [secondary].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import Refused
from .kernels import AMAZON, DEBIAN, RED_HAT, RED_HAT_8, SUSE, UBUNTU, Kernel

NVIDIA_REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"

#: How a version is kept: an apt pin and holds, a dnf module stream and version locks, version locks alone, zypper locks.
APT_PIN = "apt_pin"
MODULE_STREAM = "module_stream"
VERSION_LOCK = "version_lock"
ZYPPER_LOCK = "zypper_lock"


@dataclass(frozen=True)
class SigningKey:
    """The key of a repository, by one of two marks.

    :param file: its name in the repository.
    :param fingerprint: of the key; empty where no source has it.
    :param digest: SHA-256 of the key file without its lines C(Version), for where the fingerprint is in no source.
    """

    file: str
    fingerprint: str = ""
    digest: str = ""


_DEB_KEY = SigningKey("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_DEBIAN_13_KEY = SigningKey("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
_RPM_KEY = SigningKey("D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685")
# What NVIDIA's own Dockerfile compares (gpu-driver-container, rhel10 [code]).
_RHEL_10_KEY = SigningKey("CDF6BA43.pub", digest="afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb")


@dataclass(frozen=True)
class DkmsRepositories:
    """Where dkms comes from when the distribution itself does not have it.

    :param package: that configures EPEL, which rebuilds of RHEL offer themselves.
    :param builder: the rebuilds' name of the repository that EPEL builds on (CodeReady Builder).
    :param remedy: what to do where nobody offers the package, as on RHEL.
    """

    package: str
    builder: str
    remedy: str


@dataclass(frozen=True)
class Distribution:
    """What has to be known of one release of a distribution.

    :param name: of the distribution and release, for messages.
    :param manager: C(apt), C(dnf) or C(zypper).
    :param repository: its name in the path of NVIDIA's repositories.
    :param key: the key that signs that repository.
    :param names: which table of C(_driver/packages.py) has the names in NVIDIA's repository.
    :param archive: the same for the distribution's own archive, or None where it has no driver.
    :param pinning: one of the constants above.
    :param kernels: the kinds of its kernels with their packages, the first that fits being the one.
    :param initramfs: the program that renews the initial file system, with its arguments; C({kernel}) is replaced.
    :param hint: what is usually missing when the packages cannot be resolved.
    :param dkms: where dkms comes from, or None where the distribution has it.
    """

    name: str
    manager: str
    repository: str
    key: SigningKey
    names: str
    archive: str | None
    pinning: str
    kernels: tuple[Kernel, ...]
    initramfs: tuple[str, ...]
    hint: str = ""
    dkms: DkmsRepositories | None = None

    def url(self, machine: str) -> str:
        """Return NVIDIA's repository for C(machine), as C(uname -m) names it."""
        return f"{NVIDIA_REPOSITORIES}/{self.repository}/{REPOSITORY_ARCHITECTURES[machine]}"


#: NVIDIA calls arm64 servers sbsa.
REPOSITORY_ARCHITECTURES: Mapping[str, str] = {"x86_64": "x86_64", "aarch64": "sbsa"}

_UPDATE_INITRAMFS = ("update-initramfs", "-u", "-k", "{kernel}")
_DRACUT = ("dracut", "--force", "--kver", "{kernel}")
_PACKAGE_HUB = "Some dependencies come from PackageHub: SUSEConnect --product PackageHub/<version>/<architecture>."


def _red_hat(major: str, pinning: str, key: SigningKey, kernels: tuple[Kernel, ...] = RED_HAT) -> Distribution:
    return Distribution(
        f"Red Hat Enterprise Linux {major} or a rebuild",
        "dnf",
        f"rhel{major}",
        key,
        "redhat",
        None,
        pinning,
        kernels,
        _DRACUT,
        dkms=DkmsRepositories(
            "epel-release",
            "powertools" if major == "8" else "crb",
            f"On RHEL: subscription-manager repos --enable codeready-builder-for-rhel-{major}-$(arch)-rpms, then dnf install "
            f"https://dl.fedoraproject.org/pub/epel/epel-release-latest-{major}.noarch.rpm; or configure mirrors of both.",
        ),
    )


def _deb(name: str, repository: str, key: SigningKey, names: str) -> Distribution:
    kernels = UBUNTU if names == "ubuntu" else DEBIAN
    return Distribution(name, "apt", repository, key, names, names, APT_PIN, kernels, _UPDATE_INITRAMFS)


_RHEL_8 = _red_hat("8", MODULE_STREAM, _RPM_KEY, RED_HAT_8)
_RHEL_9 = _red_hat("9", MODULE_STREAM, _RPM_KEY)
_RHEL_10 = _red_hat("10", VERSION_LOCK, _RHEL_10_KEY)

#: By os-release's ID and the part of VERSION_ID that decides.
DISTRIBUTIONS: Mapping[tuple[str, str], Distribution] = {
    ("debian", "12"): _deb("Debian 12", "debian12", _DEB_KEY, "debian"),
    ("debian", "13"): _deb("Debian 13", "debian13", _DEBIAN_13_KEY, "debian"),
    ("ubuntu", "22.04"): _deb("Ubuntu 22.04", "ubuntu2204", _DEB_KEY, "ubuntu"),
    ("ubuntu", "24.04"): _deb("Ubuntu 24.04", "ubuntu2404", _DEB_KEY, "ubuntu"),
    **{(name, "8"): _RHEL_8 for name in ("rhel", "rocky", "almalinux")},
    **{(name, "9"): _RHEL_9 for name in ("rhel", "rocky", "almalinux")},
    **{(name, "10"): _RHEL_10 for name in ("rhel", "rocky", "almalinux")},
    ("sles", "15"): Distribution(
        "SUSE Linux Enterprise Server 15",
        "zypper",
        "sles15",
        _RPM_KEY,
        "suse",
        None,
        ZYPPER_LOCK,
        SUSE,
        _DRACUT,
        _PACKAGE_HUB,
    ),
    ("amzn", "2023"): Distribution(
        "Amazon Linux 2023",
        "dnf",
        "amzn2023",
        _RPM_KEY,
        "redhat",
        None,
        MODULE_STREAM,
        AMAZON,
        _DRACUT,
    ),
}


def distribution_of(host: Mapping[str, Any]) -> Distribution:
    """Return the distribution of the facts' C(host) part.

    :raises Refused: it, or its processor architecture, is not supported.
    """
    described = host.get("distribution") or {}
    name, version = str(described.get("id") or ""), str(described.get("version") or "")
    found = DISTRIBUTIONS.get((name, version)) or DISTRIBUTIONS.get((name, version.partition(".")[0]))
    if found is None:
        raise Refused(
            "nvidia_driver_source",
            f"{name or 'an unknown distribution'} {version} is not supported".replace("  ", " "),
            f"Supported are {', '.join(sorted({known.name for known in DISTRIBUTIONS.values()}))}.",
        )
    if host.get("architecture") not in REPOSITORY_ARCHITECTURES:
        raise Refused(
            "nvidia_driver_source",
            f"NVIDIA has no driver packages for {host.get('architecture') or 'an unknown processor architecture'}",
            f"Supported are {', '.join(REPOSITORY_ARCHITECTURES)}.",
        )
    return found
