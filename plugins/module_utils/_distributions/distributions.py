# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The supported distributions as data: repositories, signing keys, kernels, how a version is pinned.

A distribution is one row of C(DISTRIBUTIONS); the driver, the container toolkit and the generated repositories of the tests read it.

Sources: NVIDIA's driver installation guides, 610 to 620 [doc]; the fingerprints are those of the key files that NVIDIA publishes next
to each repository, seen alike in several independent public configurations [secondary]. What no two sources say is not here: a key
without a fingerprint has to be given by the user, and what lacks more than that is in C(UNCONFIRMED).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._facts_view import DistributionFacts, HostFacts
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
    """The key of a repository, by its fingerprint, or the SHA-256 of its file without lines C(Version) where the fingerprint is in no source."""

    file: str = ""
    fingerprint: str = ""
    digest: str = ""

    @property
    def is_known(self) -> bool:
        return bool(self.fingerprint or self.digest)


_DEB_KEY = SigningKey("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_DEBIAN_13_KEY = SigningKey("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
_RPM_KEY = SigningKey("D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685")
# What NVIDIA's own Dockerfile compares (gpu-driver-container, rhel10 [code]).
_RHEL_10_KEY = SigningKey("CDF6BA43.pub", digest="afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb")
_FEDORA_44_KEY = SigningKey("73CD9B30.pub", "129994480EC63D2789BC98E490DFED2F73CD9B30")
# The names of these files are known, and no two sources give a fingerprint [secondary].
_FEDORA_43_KEY = SigningKey("1940C73E.pub")
_SUSE_16_KEY = SigningKey("3A8B5622.pub")
# NVIDIA's containers take it from the package cuda-keyring without looking (gpu-driver-container, ubuntu26.04 [code]).
_UBUNTU_26_KEY = SigningKey()


@dataclass(frozen=True)
class DkmsRepositories:
    """Where dkms comes from when the distribution itself does not have it.

    :param package: that configures EPEL, which rebuilds of RHEL offer themselves; empty where the collection does not enable EPEL.
    :param builder: the rebuilds' name of the repository that EPEL builds on (CodeReady Builder).
    :param remedy: what to do where nobody offers the package, as on RHEL.
    :param disabled: EPEL's repository where the package brings it without enabling it.
    """

    package: str
    builder: str
    remedy: str
    disabled: str = ""


@dataclass(frozen=True)
class ModuleKey:
    """The key that DKMS signs modules with, which it makes with the first one, too late for Secure Boot; C(command): of the distribution's own program."""

    key: str
    certificate: str
    packages: tuple[str, ...]
    command: tuple[str, ...] = ()


#: What dkms uses where neither the site nor the distribution says otherwise.
MODULE_KEY = ModuleKey("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub", ("dkms", "mokutil", "openssl"))
# On Ubuntu dkms asks shim-signed's program [code].
_UBUNTU_MODULE_KEY = ModuleKey(
    "/var/lib/shim-signed/mok/MOK.priv",
    "/var/lib/shim-signed/mok/MOK.der",
    ("dkms", "mokutil", "shim-signed"),
    ("update-secureboot-policy", "--new-key"),
)


@dataclass(frozen=True)
class Distribution:
    """What has to be known of one release of a distribution.

    :param names: which table of C(_driver/packages.py) has the names in NVIDIA's repository.
    :param archive: the same for the distribution's own archive, or None where it has no driver.
    :param pinning: one of the constants above.
    :param kernels: the kinds of its kernels with their packages, the first that fits being the one.
    :param initramfs: the program that renews the initial file system, with its arguments; C({kernel}) is replaced.
    :param hint: what is usually missing when the packages cannot be resolved.
    :param machines: the processor architectures for which a source says that NVIDIA has packages, as C(uname -m) names them.
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
    module_key: ModuleKey = MODULE_KEY
    machines: tuple[str, ...] = ("x86_64", "aarch64")

    def url(self, machine: str) -> str:
        """Return NVIDIA's repository for C(machine), as C(uname -m) names it."""
        return f"{NVIDIA_REPOSITORIES}/{self.repository}/{REPOSITORY_ARCHITECTURES[machine]}"


#: NVIDIA calls arm64 servers sbsa.
REPOSITORY_ARCHITECTURES: Mapping[str, str] = {"x86_64": "x86_64", "aarch64": "sbsa"}

_UPDATE_INITRAMFS = ("update-initramfs", "-u", "-k", "{kernel}")
_DRACUT = ("dracut", "--force", "--kver", "{kernel}")
_PACKAGE_HUB = "Some dependencies come from PackageHub: SUSEConnect --product PackageHub/<version>/<architecture>."

_RED_HAT_REMEDY = (
    "On RHEL: subscription-manager repos --enable codeready-builder-for-rhel-{major}-$(arch)-rpms, then dnf install "
    "https://dl.fedoraproject.org/pub/epel/epel-release-latest-{major}.noarch.rpm; or configure mirrors of both."
)
_ORACLE_REMEDY = (
    "Run: dnf install oracle-epel-release-el{major}, then dnf config-manager --set-enabled ol{major}_codeready_builder and the "
    "repository of EPEL that dnf repolist --all shows; or configure mirrors of both."
)


def _dnf(
    name: str, repository: str, key: SigningKey, pinning: str, kernels: tuple[Kernel, ...], **more: Any
) -> Distribution:
    return Distribution(name, "dnf", repository, key, "redhat", None, pinning, kernels, _DRACUT, **more)


def _red_hat(
    major: str,
    pinning: str,
    key: SigningKey,
    kernels: tuple[Kernel, ...],
    name: str = "",
    dkms: DkmsRepositories | None = None,
) -> Distribution:
    """Return RHEL, or a distribution that takes NVIDIA's repository of the RHEL it is compatible with."""
    builder = "powertools" if major == "8" else "crb"
    epel = DkmsRepositories("epel-release", builder, _RED_HAT_REMEDY.replace("{major}", major))
    shown = f"{name} {major}" if name else f"Red Hat Enterprise Linux {major} or a rebuild"
    return _dnf(shown, f"rhel{major}", key, pinning, kernels, dkms=dkms or epel)


def _oracle(major: str, pinning: str, key: SigningKey, kernels: tuple[Kernel, ...]) -> Distribution:
    # Oracle's own package brings EPEL disabled [secondary]. In Oracle Linux 10 the repository's name changes with the minor release.
    package, disabled = (f"oracle-epel-release-el{major}", f"ol{major}_developer_EPEL") if major != "10" else ("", "")
    remedy = _ORACLE_REMEDY.replace("{major}", major)
    dkms = DkmsRepositories(package, f"ol{major}_codeready_builder", remedy, disabled)
    return _red_hat(major, pinning, key, kernels, "Oracle Linux", dkms)


def _fedora(release: str, key: SigningKey) -> Distribution:
    # NVIDIA's guides name Fedora for x86_64 only.
    return _dnf(f"Fedora {release}", f"fedora{release}", key, VERSION_LOCK, RED_HAT, machines=("x86_64",))


def _suse(
    name: str, repository: str, key: SigningKey, machines: tuple[str, ...] = ("x86_64", "aarch64")
) -> Distribution:
    return Distribution(
        name, "zypper", repository, key, "suse", None, ZYPPER_LOCK, SUSE, _DRACUT, _PACKAGE_HUB, machines=machines
    )


def _deb(name: str, repository: str, key: SigningKey, names: str) -> Distribution:
    kernels, module_key = (UBUNTU, _UBUNTU_MODULE_KEY) if names == "ubuntu" else (DEBIAN, MODULE_KEY)
    return Distribution(
        name, "apt", repository, key, names, names, APT_PIN, kernels, _UPDATE_INITRAMFS, module_key=module_key
    )


_EL_8 = ("8", MODULE_STREAM, _RPM_KEY, RED_HAT_8)
_EL_9 = ("9", MODULE_STREAM, _RPM_KEY, RED_HAT)
_EL_10 = ("10", VERSION_LOCK, _RHEL_10_KEY, RED_HAT)
_REBUILDS = ("rhel", "rocky", "almalinux")

#: By os-release's ID and the part of VERSION_ID that decides.
DISTRIBUTIONS: Mapping[tuple[str, str], Distribution] = {
    ("debian", "12"): _deb("Debian 12", "debian12", _DEB_KEY, "debian"),
    ("debian", "13"): _deb("Debian 13", "debian13", _DEBIAN_13_KEY, "debian"),
    ("ubuntu", "22.04"): _deb("Ubuntu 22.04", "ubuntu2204", _DEB_KEY, "ubuntu"),
    ("ubuntu", "24.04"): _deb("Ubuntu 24.04", "ubuntu2404", _DEB_KEY, "ubuntu"),
    ("ubuntu", "26.04"): _deb("Ubuntu 26.04", "ubuntu2604", _UBUNTU_26_KEY, "ubuntu"),
    **{(name, "8"): _red_hat(*_EL_8) for name in _REBUILDS},
    **{(name, "9"): _red_hat(*_EL_9) for name in _REBUILDS},
    **{(name, "10"): _red_hat(*_EL_10) for name in _REBUILDS},
    ("centos", "9"): _red_hat(*_EL_9, "CentOS Stream"),
    ("centos", "10"): _red_hat(*_EL_10, "CentOS Stream"),
    ("ol", "8"): _oracle(*_EL_8),
    ("ol", "9"): _oracle(*_EL_9),
    ("ol", "10"): _oracle(*_EL_10),
    ("fedora", "43"): _fedora("43", _FEDORA_43_KEY),
    ("fedora", "44"): _fedora("44", _FEDORA_44_KEY),
    ("sles", "15"): _suse("SUSE Linux Enterprise Server 15", "sles15", _RPM_KEY),
    ("sles", "16"): _suse("SUSE Linux Enterprise Server 16", "suse16", _SUSE_16_KEY),
    ("opensuse-leap", "15"): _suse("openSUSE Leap 15", "opensuse15", _RPM_KEY, ("x86_64",)),
    ("opensuse-leap", "16"): _suse("openSUSE Leap 16", "suse16", _SUSE_16_KEY, ("x86_64",)),
    ("amzn", "2023"): _dnf("Amazon Linux 2023", "amzn2023", _RPM_KEY, MODULE_STREAM, AMAZON),
}

#: What NVIDIA's guides support and the collection does not, and what is missing for it.
UNCONFIRMED: Mapping[tuple[str, str], str] = {
    ("azurelinux", "3"): (
        "its package manager is tdnf, which the collection does not support, and no source was found for how to hold a version there, for the "
        "packages with the headers of its kernels and for the key of NVIDIA's repository azl3"
    ),
    ("azurelinux", "4"): (
        "no source was found for the name and the key of NVIDIA's repository, nor for the packages with the headers of its kernels"
    ),
}


def find(described: DistributionFacts) -> Distribution:
    """Return the row of a distribution. Raises Refused: there is none."""
    name, version = (described.id or "").lower(), described.version or ""
    keys = ((name, version), (name, version.partition(".")[0]))
    for key in keys:
        if key in DISTRIBUTIONS:
            return DISTRIBUTIONS[key]
    missing = next((f": {UNCONFIRMED[key]}" for key in keys if key in UNCONFIRMED), "")
    raise Refused(
        "the distribution",
        f"{name or 'an unknown distribution'} {version} is not supported{missing}".replace("  ", " "),
        f"Supported are {', '.join(sorted({known.name for known in DISTRIBUTIONS.values()}))}.",
    )


def distribution_of(host: HostFacts) -> Distribution:
    """Return the distribution of a host. Raises Refused: it, or its processor architecture, is not supported."""
    try:
        found = find(host.distribution)
    except Refused as refusal:
        remedy = f"{refusal.remedy} To use the driver of your image as it is, set nvidia_driver_state: unmanaged."
        raise Refused("nvidia_driver_source", refusal.reason, remedy) from refusal
    if host.architecture not in REPOSITORY_ARCHITECTURES:
        raise Refused(
            "nvidia_driver_source",
            f"NVIDIA has no driver packages for {host.architecture or 'an unknown processor architecture'}",
            f"Supported are {', '.join(REPOSITORY_ARCHITECTURES)}.",
        )
    if host.architecture not in found.machines:
        raise Refused(
            "nvidia_driver_source",
            f"no source was found that NVIDIA has packages for {found.name} on {host.architecture}",
            f"Supported is {', '.join(found.machines)}.",
        )
    return found
