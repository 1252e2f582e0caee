# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the user wants of the driver and of the kernel module's parameters (C(NVreg_*)), checked as far as it can be without looking at a host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._boards.board import FIRST_BRANCH_WITHOUT_PROPRIETARY
from .._formats import imex
from .._formats.driver_versions import branch_of, is_branch, is_driver_version
from .._options import default as default_of
from .._packages.package_set import DesiredRepository, read_repository
from .._plan import Refused
from .floors import BRANCHES, FLOORS, Branch, Floor, with_advisories, with_releases

PREFIX = "nvidia_driver_"
REFUSE, FORCE = DISRUPTIONS = ("refuse", "force")
#: Under this name the collection configures the repository of the driver.
REPOSITORY_NAME = "gpufleet-nvidia-driver"


@dataclass(frozen=True)
class DesiredDriver:
    """The variables of the role nvidia_driver, without their prefix; see its argument specification."""

    state: str = "present"
    branch: str = default_of("driver", "branch")
    version: str = ""
    flavour: str = "open"
    variant: str = "compute"
    source: str = "nvidia"
    repository: DesiredRepository = field(default_factory=DesiredRepository)
    hold: bool = True
    reload: str = "auto"
    reboot: bool = False
    disruption: str = REFUSE
    persistence: bool = True
    fabric_manager: str = "auto"
    migrate_from: str = ""
    allow_vulnerable: bool = False
    allow_downgrade: bool = False
    imex: imex.DesiredImex = field(default_factory=imex.DesiredImex)
    parameters: tuple[tuple[str, str], ...] = ()
    floors: Mapping[int, Floor] = field(default_factory=lambda: FLOORS, hash=False)
    branches: Mapping[int, Branch] = field(default_factory=lambda: BRANCHES, hash=False)

    @property
    def archive_source(self) -> str:
        """Return whose packages they are: NVIDIA's local repository has the same ones as its repository."""
        return "distribution" if self.source == "distribution" else "nvidia"

    @property
    def branch_number(self) -> int:
        return branch_of(self.version) if self.version else int(self.branch)

    def met_by(self, version: str | None) -> bool:
        """Return whether an installed driver version is what is wanted: exactly, or any of the branch."""
        if version is None or not is_driver_version(version):
            return False
        return version == self.version if self.version else branch_of(version) == int(self.branch)


def from_variables(variables: Mapping[str, Any]) -> DesiredDriver:
    """Return the desired state in the role's variables, where C(nvidia_driver_advisories) and C(nvidia_driver_releases) have the rows of the files
    already, and C(nvidia_driver_imex_nodes) the addresses of the rack.

    :param variables: under their full names; a missing one has its default.
    :raises Refused: they contradict each other.
    """
    given = {name[len(PREFIX) :]: value for name, value in variables.items() if name.startswith(PREFIX)}
    names = ("url", "key_url", "key_file", "key_fingerprint", "username", "password")
    repository = {name: given.get(f"repository_{name}", "") for name in names}
    repository["manage"] = given.get("manage_repository", True)
    rack = {name: given.get(f"imex_{name}") for name in ("nodes", "restart", "remove_nodes")}
    rack["mode"] = given.get("imex")
    return from_options({**given, "repository": repository, "imex": rack})


def from_options(options: Mapping[str, Any]) -> DesiredDriver:
    """Return the desired state in the module's options. Raises Refused: they contradict each other."""
    default = DesiredDriver()
    plain = {name: _text(options.get(name), getattr(default, name)) for name in _TEXTS}
    desired = DesiredDriver(
        **plain,
        repository=read_repository(options.get("repository") or {}, PREFIX),
        hold=bool(options.get("hold", True)),
        reboot=bool(options.get("reboot", False)),
        persistence=bool(options.get("persistence", True)),
        allow_vulnerable=bool(options.get("allow_vulnerable", False)),
        allow_downgrade=bool(options.get("allow_downgrade", False)),
        imex=imex.read(options.get("imex") or {}),
        parameters=read(options.get("module_parameters") or {}, str(options.get("coherent_memory") or "default")),
        floors=with_advisories(options.get("advisories") or ()),
        branches=with_releases(options.get("releases") or ()),
    )
    _check(desired)
    return desired


#: Options that are texts.
_TEXTS = (
    "state",
    "branch",
    "version",
    "flavour",
    "variant",
    "source",
    "reload",
    "disruption",
    "fabric_manager",
    "migrate_from",
)


def _text(value: Any, default: str) -> str:
    return default if value is None else str(value)


def _check(desired: DesiredDriver) -> None:
    if desired.version and not is_driver_version(desired.version):
        raise Refused(
            f"{PREFIX}version",
            f"{desired.version!r} is not a driver version",
            "Give the driver's own version, such as 580.178.04, without the package's epoch and revision.",
        )
    if desired.disruption not in DISRUPTIONS:
        raise Refused(
            f"{PREFIX}disruption",
            f"{desired.disruption!r} is not a disruption policy",
            f"Use {', '.join(DISRUPTIONS)}.",
        )
    if not is_branch(desired.branch):
        raise Refused(
            f"{PREFIX}branch", f"{desired.branch!r} is not a driver branch", "Give three digits, such as 580."
        )
    if (
        desired.state == "present"
        and desired.flavour == "proprietary"
        and desired.branch_number >= FIRST_BRANCH_WITHOUT_PROPRIETARY
    ):
        raise Refused(
            f"{PREFIX}flavour",
            f"there are no proprietary kernel modules from branch {FIRST_BRANCH_WITHOUT_PROPRIETARY} on",
            f"Set {PREFIX}flavour: open, or an older branch.",
        )
    if desired.state == "present" and desired.imex.mode == imex.HOST and not desired.imex.nodes:
        raise Refused(
            f"{imex.VARIABLE}_group",
            "IMEX is to run on this host, but no host of its rack is known",
            "Name the rack's group.",
        )
    repository = desired.repository
    own = repository.url or desired.source == "local_repository"
    if desired.state == "present" and desired.source == "local_repository" and not repository.url:
        raise Refused(
            f"{PREFIX}repository_url",
            "a local repository needs its address",
            "For NVIDIA's local-repository package give file:///var/nvidia-driver-local-repo-<distribution>-<version>.",
        )
    if desired.state == "present" and own and repository.manage and desired.source != "distribution":
        if not (repository.key_url or repository.key_file):
            raise Refused(
                f"{PREFIX}repository_key_url",
                "a repository of your own needs the key that signs it",
                f"Give {PREFIX}repository_key_url or {PREFIX}repository_key_file, and {PREFIX}repository_key_fingerprint; "
                f"or configure the repository yourself and set {PREFIX}manage_repository: false.",
            )
        if not repository.key_fingerprint:
            raise Refused(
                f"{PREFIX}repository_key_fingerprint",
                "a signing key is only trusted by its fingerprint",
                "Give all hexadecimal digits of it.",
            )


COHERENT_MEMORY = "NVreg_CoherentGPUMemoryMode"
#: From this branch on the driver can manage the memory of GPUs that are coherent with the processor (CDMM; gpu-driver-container,
#: corrections.md 3), so that it is no NUMA node of the operating system.
FIRST_BRANCH_WITH_CDMM = 580
#: Boards whose GPU is coherent with a Grace processor over NVLink-C2C (NVIDIA's release notes of 580: GH200, GB200; GB300 is its successor).
COHERENT_BOARDS = frozenset(("h100-96gb-gh200", "gh200-144gb", "gb200-186gb", "gb300-278gb"))

_NAME = re.compile(r"NVreg_[A-Za-z0-9]{1,64}")
#: No blanks, quotes, comments and backslashes, which modprobe.d and the kernel each read in their own way.
_VALUE = re.compile(r"[A-Za-z0-9_.,:;=/+-]{0,512}")
#: A registry key that switches confidential computing, which is nobody's to change in passing.
_CONFIDENTIAL = re.compile(r"confidentialcompute", re.IGNORECASE)


def read(given: Mapping[str, Any], coherent_memory: str) -> tuple[tuple[str, str], ...]:
    """Return the parameters that are wanted, by name.

    :param given: C(nvidia_driver_module_parameters).
    :param coherent_memory: C(nvidia_driver_coherent_memory).
    :raises Refused: a name or a value cannot be one, or two say different things.
    """
    found = {}
    for name, value in given.items():
        thing = f"{PREFIX}module_parameters.{name}"
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if not _NAME.fullmatch(str(name)):
            raise Refused(
                thing, "the parameters of the module nvidia begin with NVreg_", "See modinfo --parameters nvidia."
            )
        if not _VALUE.fullmatch(text):
            raise Refused(
                thing,
                f"{text!r} has characters that are not allowed in a parameter",
                "Only letters, digits and _ . , : ; = / + - are allowed.",
            )
        if _CONFIDENTIAL.search(text):
            raise Refused(
                thing, "it switches confidential computing, which the collection leaves as it is", "Remove it."
            )
        found[str(name)] = text
    if coherent_memory != "default":
        if COHERENT_MEMORY in found:
            raise Refused(
                f"{PREFIX}coherent_memory",
                f"{PREFIX}module_parameters sets {COHERENT_MEMORY} too",
                "Set one of the two.",
            )
        found[COHERENT_MEMORY] = coherent_memory
    return tuple(sorted(found.items()))


def coherent_refusals(
    parameters: Sequence[tuple[str, str]], branch: int, boards: Mapping[str, str | None]
) -> list[Refused]:
    """Return why GPUs or a driver do not have coherent memory that the driver manages.

    :param boards: keys of the table of boards by what people call the GPU; None for a board that is not in it.
    """
    if dict(parameters).get(COHERENT_MEMORY) != "driver":
        return []
    thing = f"{PREFIX}coherent_memory"
    if branch < FIRST_BRANCH_WITH_CDMM:
        reason = (
            f"the driver manages coherent memory from branch {FIRST_BRANCH_WITH_CDMM} on, but {branch} is requested"
        )
        return [Refused(thing, reason, f'Set {PREFIX}branch: "{FIRST_BRANCH_WITH_CDMM}".')]
    others = [gpu for gpu, board in boards.items() if board not in COHERENT_BOARDS]
    if others:
        reason = (
            f"{', '.join(others)} has no memory that is coherent with the processor, as GH200, GB200 and GB300 have"
        )
        return [Refused(thing, reason, f"Set {PREFIX}coherent_memory: default for this host.")]
    return []
