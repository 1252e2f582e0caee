# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM's packages: in which repositories they are, for which CUDA, and from which version on without published vulnerabilities. Pure.

Sources: the repositories are those that a maintainer of NVIDIA's lists on 2026-02-03 (NVIDIA/cuda-repo-management issue 41 [issue]), the same as in
the table of supported distributions of the DCGM user guide [doc]. The names: the user guide's section Installation
(C(datacenter-gpu-manager-4-cuda<major>) with its recommended packages, C(nvidia-dcgm.service)) [doc], and Azure/azhpc-images, components/install_dcgm.sh,
which names all four [code].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .._distributions.distributions import distribution_of
from .._facts_view import CardFacts, HostFacts
from .._options import default
from .._packages.package_set import PackageSet
from .._plan import Refused
from .._versions import product_key

PREFIX = "nvidia_dcgm_"
#: What all packages of DCGM 4 begin with; DCGM 3 is the one package without the number.
FAMILY = "datacenter-gpu-manager"
CORE = f"{FAMILY}-4-core"
#: DCGM 4 conflicts with it (NVIDIA/deepops pull request 1394 [issue]).
OLD_PACKAGES = (FAMILY, f"{FAMILY}-config")

#: The version that NVIDIA pairs with its current exporter (host.md, section 6 [doc]).
DEFAULT_VERSION: str = default("dcgm", "version")
#: CVE-2026-47483 (NVIDIA/product-security 2026/5857, of 2026-07-28 [code]).
FLOOR = "4.5.3"
_VULNERABILITY = f"CVE-2026-47483, CVSS 8.2, fixed in {FLOOR}"
DCGM = PackageSet(
    "DCGM",
    "DCGM",
    PREFIX,
    "unattended upgrades must not move DCGM away from the CUDA version of the driver",
    OLD_PACKAGES,
    DEFAULT_VERSION,
    FLOOR,
)

#: Repositories with DCGM 4 for all CUDA versions, by their name in the path, with the processor architectures for which a source has packages:
#: x86_64 those above; aarch64 by the AUR's list of rhel8/sbsa, aws-parallelcluster-cookbook (rhel9/sbsa), and the table of the user guide up to
#: DCGM 2.4 (SLES, Ubuntu) [secondary].
_BOTH = ("x86_64", "aarch64")
REPOSITORIES: Mapping[str, tuple[str, ...]] = {
    "amzn2023": ("x86_64",),
    "debian12": ("x86_64",),
    "rhel8": _BOTH,
    "rhel9": _BOTH,
    "rhel10": ("x86_64",),
    "sles15": _BOTH,
    "ubuntu2204": _BOTH,
    "ubuntu2404": _BOTH,
}

#: The first driver branch of each CUDA major version (NVIDIA's minor-version compatibility table, host.md, section 1 [doc]), newest first.
_CUDA_OF_BRANCH = ((580, "13"), (525, "12"), (450, "11"))
#: The newest branch of which a source says its CUDA version: 13 (NVIDIA, "Supported drivers and CUDA toolkit versions", the page of branch 620 [doc]).
_NEWEST_BRANCH = 620
CUDA_VERSIONS = tuple(cuda for _branch, cuda in reversed(_CUDA_OF_BRANCH))
#: CUDA 13 has none of these architectures. The user guide says to take the packages for CUDA 12 there, and with those alone the test pcie fails
#: (NVIDIA/DCGM issue 254 [issue]).
_WITHOUT_CUDA_13 = ("maxwell", "pascal", "volta")
_UNMANAGED = f"Set {PREFIX}state: unmanaged; a DCGM that you install yourself is used as it is."


def names(cuda: Iterable[str]) -> tuple[str, ...]:
    """Return the packages for these major versions of CUDA; all of them are of one version."""
    general = (CORE, f"{FAMILY}-4-proprietary")
    return (*general, *(f"{FAMILY}-4-{kind}cuda{major}" for major in cuda for kind in ("", "proprietary-")))


def is_of_cuda(name: str) -> bool:
    """Return whether a package is for one version of CUDA, or stands for those of all."""
    return name.startswith(f"{FAMILY}-4-") and "cuda" in name


def cuda_of_branch(branch: int) -> str:
    """Return the major version of CUDA that a driver branch brings. Raises Refused: no source says it."""
    found = next((cuda for first, cuda in _CUDA_OF_BRANCH if branch >= first), None)
    if found is None or branch > _NEWEST_BRANCH:
        raise Refused(
            f"{PREFIX}cuda",
            f"DCGM's packages are named by CUDA version, and no source was found for that of driver branch {branch}",
            f"Give its major version, as nvidia-smi shows it: {PREFIX}cuda: ['{CUDA_VERSIONS[-1]}'].",
        )
    return found


def check_version(version: str, allow_vulnerable: bool) -> str:
    """Return what is known against a version that is allowed all the same; empty for nothing.

    :raises Refused: it is none, not of DCGM 4, or below the security floor.
    """
    try:
        key = product_key(version)
    except ValueError:
        key = ()
    if key[:1] != (4,):
        raise Refused(
            f"{PREFIX}version",
            f"{version!r} is not a version of DCGM 4, the only major version whose packages are known",
            f"Use a version such as {DEFAULT_VERSION}, without the package's epoch and revision.",
        )
    if key >= product_key(FLOOR):
        return ""
    return DCGM.below_floor(version, _VULNERABILITY, allow_vulnerable)


def check_host(host: HostFacts) -> None:
    """Refuse a host for which no source says that there is DCGM.

    :raises Refused: its distribution or its processor architecture has none.
    """
    try:
        distribution = distribution_of(host)
    except Refused as refusal:
        raise Refused(f"{PREFIX}state", refusal.reason, _UNMANAGED) from refusal
    machine = str(host.architecture)
    machines = REPOSITORIES.get(distribution.repository)
    if machines is not None and machine in machines:
        return
    where = distribution.name if machines is None else f"{distribution.name} on {machine}"
    raise Refused(
        f"{PREFIX}state",
        f"no source was found for packages of DCGM 4 for {where}: NVIDIA's repository {distribution.repository} is not among those that have them",
        f"They are in {', '.join(REPOSITORIES)}. {_UNMANAGED}",
    )


def check_boards(cards: Iterable[CardFacts], cuda: Iterable[str]) -> None:
    """Refuse to choose for boards that the CUDA version of their driver left behind.

    :param cards: the part C(pci) of the facts.
    :param cuda: what the driver's branch stands for.
    :raises Refused: NVIDIA's guide and what users saw contradict each other.
    """
    old = sorted({str(card.architecture) for card in cards} & set(_WITHOUT_CUDA_13))
    if old and "13" in cuda:
        raise Refused(
            f"{PREFIX}cuda",
            f"CUDA 13 has no {', '.join(old)}: NVIDIA's guide uses DCGM's packages for CUDA 12 there, but with those alone test pcie fails (NVIDIA/DCGM#254)",
            f"Choose one: {PREFIX}cuda: ['12'], or ['12', '13'] as in Azure's images.",
        )
