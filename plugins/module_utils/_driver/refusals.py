# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be refused from facts alone, before a repository is asked or anything is touched."""

from __future__ import annotations

from .._boards.board import ARCHITECTURES, kernel_modules
from .._boards.lookup import first_driver
from .._facts_view import CardFacts, RolledOutFacts
from .._formats.driver_versions import branch_of, driver_key, is_lower, may_be_as_new
from .._migration import OPERATOR, OPERATORS
from .._plan import Refused
from .desired import PREFIX, DesiredDriver, coherent_refusals
from .fabric import fabric_refusals
from .floors import shortfall
from .packages import from_ubuntu_archive
from .selection import check_floor, follows_kernels
from .state import Host

#: Measured on Debian 12: 785 MB for driver, headers and build tools, and a build that needs as much again for a while.
NEEDED_MIB = {"/usr": 1200, "/var": 1000, "/boot": 60}


def board_refusals(host: Host, desired: DesiredDriver) -> list[Refused]:
    """Return why the boards of a host cannot run the wanted branch or flavour; empty where they can."""
    found = []
    for gpu in host.gpus:
        architecture = ARCHITECTURES.get(gpu.architecture or "")
        if architecture is None:
            continue
        last = architecture.last_driver_branch
        if last is not None and desired.branch_number > last:
            found.append(
                Refused(
                    f"{PREFIX}{'version' if desired.version else 'branch'}",
                    f"{gpu.title} is {architecture.name.capitalize()}, which branch {last} is the last one to support",
                    f'Set {PREFIX}branch: "{last}".',
                )
            )
            continue
        old = too_old(gpu, desired, desired.version)
        if old is not None:
            found.append(old)
            continue
        flavours = kernel_modules(architecture.name, gpu.device_id)
        if desired.flavour not in flavours:
            found.append(_wrong_flavour(host, gpu, flavours, desired))
    boards = {gpu.title: gpu.board for gpu in host.gpus}
    return [*found, *coherent_refusals(desired.parameters, desired.branch_number, boards)]


def too_old(gpu: CardFacts, desired: DesiredDriver, version: str) -> Refused | None:
    """Return why a driver is older than a GPU, or None where it is not, or where no source names the GPU's first driver.

    :param version: of the driver; empty where only the wanted branch is known, of which a later version may do.
    """
    first = first_driver(str(gpu.device_id))
    if first is None or may_be_as_new(version, desired.branch_number, first):
        return None
    oldest = driver_key(first)[0]
    # A branch that gets fixes, for the first driver of a board is soon below the security floor.
    branch = min((branch for branch in desired.floors if branch >= oldest), default=oldest)
    shown = f"branch {oldest}" if first.endswith(".00") else f"driver {first}"
    return Refused(
        f"{PREFIX}{'version' if desired.version else 'branch'}",
        f"{gpu.title} needs {shown} or newer, and {version or f'branch {desired.branch_number}'} is older than the board",
        f'Set {PREFIX}branch: "{branch}".',
    )


def _wrong_flavour(host: Host, gpu: CardFacts, flavours: tuple[str, ...], desired: DesiredDriver) -> Refused:
    others = [
        other
        for other in host.gpus
        if other.architecture in ARCHITECTURES
        and not set(kernel_modules(str(other.architecture), other.device_id)) & set(flavours)
    ]
    if others:
        remedy = f"No flavour drives both it and {others[0].title}: remove one of the two from the host."
    else:
        remedy = f"Set {PREFIX}flavour: {flavours[0]}."
    reason = f"{gpu.title} is driven only by the {' or '.join(flavours)} kernel modules"
    return Refused(f"{PREFIX}flavour", f"{reason}, not by the {desired.flavour} ones", remedy)


def board_warnings(host: Host) -> list[str]:
    """Return which GPUs are in no table, so that nobody could check whether the driver supports them."""
    return [
        f"{gpu.title} is not in the table of boards; whether the driver supports it was not checked"
        for gpu in host.gpus
        if gpu.architecture not in ARCHITECTURES
    ]


def source_refusals(host: Host, desired: DesiredDriver) -> list[Refused]:
    """Return why the wanted source cannot follow the one that is installed; sources are never mixed."""
    if desired.migrate_from == OPERATOR and host.source in OPERATORS:
        # gpufleet.nvidia.migrate asks what would be installed before it has the container leave.
        return []
    found = foreign_refusals(host, f"{PREFIX}source", f" first, or leave it alone with {PREFIX}state: unmanaged")
    if found:
        return found
    installed, wanted = host.source, desired.archive_source
    archive = from_ubuntu_archive(host.packages)
    if host.distribution.archive == "ubuntu" and archive and wanted == "nvidia":
        installed = "distribution"
    if installed == "nvidia" and host.vendor:
        return [
            Refused(
                f"{PREFIX}source",
                f"packages of the driver are from NVIDIA's repository and others from {host.vendor}, and they define the same files",
                f"Disable the repository of {host.vendor}, remove the driver with {PREFIX}state: absent and then run again.",
            )
        ]
    if installed is None or installed == wanted or not host.packages:
        return []
    first, name = (f"Set {PREFIX}source: {installed}, or remove", _SOURCES.get(installed, ""))
    if installed == "vendor":
        first, name = f"Leave it alone with {PREFIX}state: unmanaged, or remove", host.vendor
    return [
        Refused(
            f"{PREFIX}source",
            f"the installed driver {host.version or ', '.join(host.versions)} is from {name}, and packages of "
            f"{_SOURCES[wanted]} define the same files",
            f"{first} the driver first with {PREFIX}state: absent and then run again.",
        )
    ]


_SOURCES = {"nvidia": "NVIDIA's repository", "distribution": "the distribution's archive"}
#: Who has installed a driver that no package has, by the C(source) of the facts, with how it is removed.
FOREIGN = {
    "runfile": ("NVIDIA's .run installer", "Remove it with nvidia-uninstall"),
    "container": (
        "the GPU Operator's driver container (/run/nvidia/driver)",
        "Have the operator leave the driver to the host (ClusterPolicy, driver.enabled: false)",
    ),
    "outside": (
        "something other than a package of the host, such as a mount into a container",
        "Remove it the way it was installed",
    ),
}


def foreign_refusals(host: Host, thing: str, otherwise: str = "") -> list[Refused]:
    """Return that no package manager installed the driver, where it is so. C(otherwise): what follows the remedy."""
    if host.source not in FOREIGN:
        return []
    who, remedy = FOREIGN[host.source]
    return [Refused(thing, f"no package has the driver: it was installed by {who}", f"{remedy}{otherwise}.")]


def key_refusals(host: Host, desired: DesiredDriver) -> list[Refused]:
    """Return what has to be known of NVIDIA's repository and is not: the key that signs it."""
    key, given = host.distribution.key, desired.repository
    if desired.archive_source != "nvidia" or given.url or not given.manage:
        return []
    if given.key_fingerprint and (key.file or given.key_url or given.key_file):
        return []
    if key.is_known:
        return []
    named = f" ({key.file})" if key.file else ""
    file = "" if key.file else f" and {PREFIX}repository_key_url"
    return [
        Refused(
            f"{PREFIX}repository_key_fingerprint",
            f"no two sources confirm the fingerprint of the key{named} of NVIDIA's repository for {host.distribution.name}",
            f"Give all hexadecimal digits of it, from NVIDIA{file}; or configure the repository yourself and set {PREFIX}manage_repository: false.",
        )
    ]


def kernel_refusals(host: Host, desired: DesiredDriver) -> list[Refused]:
    """Return why nobody can tell which package brings the module: of this kernel (SUSE), or of the next one (Ubuntu's archive)."""
    if not follows_kernels(host, desired) or host.kernel_flavours:
        return []
    remedy = f"Boot a kernel of the distribution, or set {PREFIX}variant: full, whose modules are built on the host."
    if host.distribution.manager != "apt":
        reason = (
            f"the running kernel {host.kernel} is of no flavour that {host.distribution.name} has compiled modules for"
        )
        return [Refused("the kernel", reason, remedy)]
    if host.kernel_packages is None:
        return []
    images = [name for name in host.kernel_packages if name.startswith("linux-image-")]
    found = f"; installed are {', '.join(images)}" if images else ""
    return [
        Refused(
            "the kernel",
            f"no metapackage of the running kernel {host.kernel} is installed (such as linux-image-generic or "
            f"linux-image-generic-hwe-24.04), so which package provides the module of its next version is not known{found}",
            f"Install the metapackage that the kernel is from, or set {PREFIX}source: nvidia, which builds the modules.",
        )
    ]


def space_refusals(host: Host) -> list[Refused]:
    """Return which file systems have too little space for a driver and its build."""
    found = []
    for paths, free in sorted(host.free_mib.items()):
        needed = sum(NEEDED_MIB.get(path, 0) for path in paths.split(","))
        if free < needed:
            found.append(
                Refused(
                    f"the file system of {paths.replace(',', ', ')}",
                    f"{free} MiB are free, and installing and building a driver needs {needed} MiB",
                    "Free some space (apt-get clean, old kernels) and run again.",
                )
            )
    return found


def judged_version(host: Host, desired: DesiredDriver) -> str:
    """Return the version that can be judged without a repository: the one that was asked for, or will stay; empty where none is known."""
    if desired.version:
        return desired.version
    installed = host.version
    allowed = desired.allow_vulnerable or installed is None or shortfall(installed, desired.floors) is None
    if installed is not None and allowed and desired.met_by(installed):
        return installed
    # Any version of a branch without fixes is refused; a branch that has a floor gets a version above it.
    return f"{desired.branch}.00" if shortfall(f"{desired.branch}.999", desired.floors) is not None else ""


def floor_refusals(host: Host, desired: DesiredDriver) -> list[Refused]:
    """Return why the driver would be below the security floor, whatever the repositories offer."""
    version = judged_version(host, desired)
    try:
        check_floor(version, desired) if version else None
    except Refused as refusal:
        return [refusal]
    return []


def rollout_refusals(host: Host, desired: DesiredDriver, rolled_out: RolledOutFacts) -> list[Refused]:
    """Return that the inventory did not follow an upgrade or a rollback, which this driver would take back."""
    driver, former = rolled_out.driver or "", rolled_out.former or ""
    if desired.allow_downgrade or not driver or host.version != driver or desired.met_by(driver):
        return []
    wanted, name = desired.version or desired.branch, "version" if desired.version else "branch"
    if not desired.met_by(former) and not is_lower(wanted, driver):
        return []
    playbook = "rollback" if is_lower(driver, former) else "upgrade"
    line = f'{PREFIX}{name}: "{driver if desired.version else branch_of(driver)}"'
    return [
        Refused(
            f"{PREFIX}{name}",
            f"it is {wanted}, which would take back driver {driver}: {playbook} gave it to this host in place of {former or 'none'} "
            f"({rolled_out.since or 'no date'}, {rolled_out.operator or 'nobody named'})",
            f"Write {line} into the inventory, or set {PREFIX}allow_downgrade: true.",
        )
    ]


#: The kernel modules of drivers whose names on the bus are not theirs (Linux, drivers/gpu/nova-core/nova_core.rs).
_MODULES = {"NovaCore": "nova_core"}


def kernel_driver_refusals(host: Host) -> list[Refused]:
    """Return which GPUs another kernel driver has, by driver; nouveau gives them up with a reboot, which is planned."""
    taken: dict[str, list[str]] = {}
    for gpu in host.gpus:
        if gpu.kernel_driver not in (None, "nvidia", "nouveau"):
            taken.setdefault(str(gpu.kernel_driver), []).append(gpu.title)
    return [
        Refused(
            ", ".join(gpus),
            f"bound to the kernel driver {name}, so the driver nvidia cannot use {'it' if len(gpus) == 1 else 'them'}",
            f"Block its module (a line 'blacklist {_MODULES.get(name, name.replace('-', '_'))}' in a file of /etc/modprobe.d), rebuild the initramfs "
            "and reboot.",
        )
        for name, gpus in taken.items()
    ]


def refusals(host: Host, desired: DesiredDriver) -> list[Refused]:
    """Return everything that facts alone rule out for C(state: present)."""
    found = [
        *board_refusals(host, desired),
        *source_refusals(host, desired),
        *key_refusals(host, desired),
        *fabric_refusals(host, desired),
        *kernel_driver_refusals(host),
    ]
    # The distribution may have no driver of its own, which is told when its packages are looked for.
    return [*(found or kernel_refusals(host, desired)), *floor_refusals(host, desired)]
