# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a host decides about its driver, taken from the facts document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .._adapters.installed_packages import parse_versionlock
from .._boards.cards import cards_on_bus, own_switches
from .._distributions.distributions import Distribution, distribution_of
from .._distributions.kernels import module_flavours
from .._facts_view import CardFacts, DkmsFacts, DriverFacts, Facts, ImexFacts, NextKernelFacts
from .._formats.host_names import FABRIC_UNIT, PERSISTENCE_UNIT
from .._records import PreviousDriver
from .desired import REPOSITORY_NAME
from .packages import closure, hold_names, in_family, versioned


@dataclass(frozen=True)
class Signing:
    """What DKMS signs modules with on one host.

    :param key: path of the private key, or a C(pkcs11:) address; C(certificate) is its certificate's path.
    :param exists: whether the certificate and, where it is a file, the key are there.
    :param enrolled: whether shim knows the certificate; None where nobody can tell.
    :param missing: packages that making and enrolling a key needs, and that are not installed.
    """

    key: str
    certificate: str
    exists: bool = False
    enrolled: bool | None = None
    missing: tuple[str, ...] = ()

    @property
    def is_file(self) -> bool:
        return not self.key.startswith("pkcs11:")


@dataclass(frozen=True)
class Host:
    """The present state of a host's driver and what surrounds it.

    :param switches: as of L(own_switches).
    :param kernel: the release that the modules have to be for.
    :param headers: whether modules can be built for it now.
    :param next_kernel: the release that is booted next, where that is another one; C(next_module) the version of the driver's module for it, and
        C(next_headers) whether one can be built.
    :param kernel_packages: names of the installed packages that follow a kernel or bring headers; None where they are not known.
    :param not_offered: which packages with headers of later kernels the repositories did not have when they were last asked.
    :param unread: whether the driver is loaded and the file of its module cannot be read.
    :param packages: installed packages of the driver, by name.
    :param loaded: version of the loaded module; C(on_disk) of the module file; C(library) of user space.
    :param source: who installed the driver: C(nvidia), C(distribution), a key of L(FOREIGN), C(vendor) for packages of C(vendor), or None.
    :param signing: with Secure Boot, what DKMS signs modules with; None where it was not read.
    :param free_mib: free space in MiB, by the paths (joined with commas) that share a file system.
    :param configured_parameters: of the module, in our file; C(loaded_parameters) the values that the loaded module has of them.
    :param masked: services of the driver that nothing can start.
    :param lacking_modules: kernel modules that the fabric manager of NVLink 5 needs and that are not loaded.
    :param imex: what a host of a rack has of it.
    :param missing_for_holds: packages that the package manager needs to hold others, and that are not installed.
    :param interrupted: packages that a transaction which was cut off left half done.
    :param toolkit: version of the container toolkit, or empty.
    """

    distribution: Distribution
    machine: str
    kernel: str
    gpus: tuple[CardFacts, ...] = ()
    switches: str | None = None
    headers: bool = False
    next_kernel: str = ""
    next_module: str | None = None
    next_headers: bool = True
    kernel_packages: tuple[str, ...] | None = None
    not_offered: tuple[str, ...] = ()
    unread: bool = False
    secure_boot: bool | None = None
    signing: Signing | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    holds: tuple[str, ...] = ()
    loaded: str | None = None
    on_disk: str | None = None
    library: str | None = None
    flavour: str | None = None
    source: str | None = None
    vendor: str = ""
    nouveau_loaded: bool = False
    modules: tuple[str, ...] = ()
    builds: tuple[DkmsFacts, ...] = ()
    configured_parameters: Mapping[str, str] = field(default_factory=dict)
    loaded_parameters: Mapping[str, str] = field(default_factory=dict)
    persistence_installed: bool = False
    persistence_active: bool | None = None
    masked: tuple[str, ...] = ()
    fabric_installed: bool = False
    fabric_active: bool | None = None
    fabric_version: str | None = None
    lacking_modules: tuple[str, ...] = ()
    imex: ImexFacts = field(default=ImexFacts())
    container: bool = False
    free_mib: Mapping[str, int] = field(default_factory=dict)
    interrupted: tuple[str, ...] = ()
    missing_for_holds: tuple[str, ...] = ()
    toolkit: str = ""

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Return the different driver versions among the installed packages, sorted as text; one on a sound host."""
        return tuple(sorted(set(versioned(self.packages).values())))

    @property
    def version(self) -> str | None:
        """Return the installed driver version, or None where there is none or the packages disagree."""
        return self.versions[0] if len(self.versions) == 1 else None

    @property
    def unbuilt(self) -> tuple[str, ...]:
        """Return the kernels, of the running one and the next, that have no module of the installed driver."""
        modules = {self.kernel: self.on_disk, **({self.next_kernel: self.next_module} if self.next_kernel else {})}
        return tuple(kernel for kernel, module in modules.items() if self.version not in (None, module))

    @property
    def held(self) -> tuple[str, ...]:
        """Return what is held of the driver: also packages that are gone, whose locks would keep every other version out."""
        own = hold_names(self.packages, self.kernel_packages)
        return tuple(name for name in self.holds if name in self.packages or name in own or in_family(name))

    @property
    def kernel_flavours(self) -> tuple[str, ...]:
        """Return by which flavours the packages with compiled modules are called that the host needs; empty where nobody knows."""
        return module_flavours(self.distribution.kernels, self.kernel, self.kernel_packages or ())

    @property
    def same_everywhere(self) -> bool:
        return self.loaded is not None and self.loaded == self.on_disk == self.library


def from_facts(facts: Facts, **seen: Any) -> Host:
    """Return the host that facts describe.

    :param seen: what the module has read beyond the facts (C(signing), C(free_mib), C(interrupted), ...).
    :raises Refused: the distribution or the processor architecture is not supported.
    """
    host = facts.host
    driver = facts.driver
    fabric = facts.fabric
    manager = fabric.manager
    daemon, following = driver.persistence_daemon, driver.next_kernel or NextKernelFacts()
    values: dict[str, Any] = {
        "distribution": distribution_of(host),
        "machine": host.architecture or "",
        "kernel": host.kernel or "",
        "gpus": tuple(cards_on_bus(facts)),
        "switches": own_switches(facts),
        "headers": bool(host.kernel_headers),
        "next_kernel": following.release or "",
        "next_module": following.version,
        "next_headers": following.headers is not False,
        "kernel_packages": host.kernel_packages,
        "not_offered": host.headers_not_offered or (),
        "secure_boot": host.secure_boot,
        "packages": dict(driver.packages or {}),
        "holds": _held_names(driver),
        "loaded": driver.loaded_version,
        "on_disk": driver.on_disk_version,
        "library": driver.library_version,
        "unread": driver.on_disk_unread,
        "flavour": driver.flavour,
        "source": driver.source,
        "vendor": driver.vendor or "",
        "nouveau_loaded": bool(driver.nouveau_loaded),
        "modules": driver.modules or (),
        "builds": tuple(build for build in driver.dkms or () if build.name and build.name.startswith("nvidia")),
        "configured_parameters": dict(driver.configured_parameters or {}),
        "loaded_parameters": dict(driver.loaded_parameters or {}),
        "persistence_installed": bool(daemon.installed),
        "persistence_active": daemon.active,
        "masked": tuple(unit for unit, found in ((PERSISTENCE_UNIT, daemon), (FABRIC_UNIT, manager)) if found.masked),
        "fabric_installed": bool(manager.installed),
        "fabric_active": manager.active,
        "fabric_version": manager.version,
        "lacking_modules": fabric.lacking_modules or (),
        "imex": fabric.imex or ImexFacts(),
        "container": bool(host.container),
        "toolkit": facts.toolkit.version or "",
    }
    if values["unread"] and values["loaded"] == values["library"]:
        values["on_disk"] = values["loaded"]
    return Host(**{**values, **seen})


def _held_names(driver: DriverFacts) -> tuple[str, ...]:
    """Return the names that are held: dnf's locks are patterns with versions, the others are names."""
    holds = driver.holds or ()
    return tuple(sorted({*parse_versionlock("\n".join(holds)), *(set(holds) & set(driver.packages or ()))}))


# The record of the driver that was there before the last change: what C(state: previous) goes back to.
# It is written before a transaction and marked as pending until that succeeded. A run that is cut off and repeated finds the
# mark and keeps the record: what is installed then is half a driver, and nothing to go back to.

PATH = "/var/lib/gpufleet/driver-previous.json"


def to_write(host: Host, record: PreviousDriver | None, target: str, stream: str = "") -> PreviousDriver | None:
    """Return what has to be recorded before going to C(target), or None when the present record has to stay.

    :param target: the driver version that the change goes to; empty for a removal.
    """
    if record is not None and record.pending:
        return None if record.pending == (target or "absent") else replace(record, pending=target or "absent")
    if host.version is None or host.interrupted:
        return None
    return PreviousDriver(
        host.version,
        closure(host.packages),
        host.flavour or "",
        host.source or "",
        stream,
        target or "absent",
        host.toolkit,
    )


@dataclass(frozen=True)
class Remains:
    """What a host has of a driver besides its packages, which its removal takes away.

    :param preferences: whether the collection's preferences file pins a driver (apt).
    :param repository: whether the collection has configured a repository for the driver.
    :param stream: the enabled stream of the dnf module nvidia-driver, or empty.
    """

    preferences: bool = False
    repository: bool = False
    stream: str = ""

    @property
    def named(self) -> tuple[str, ...]:
        """Return what there is of them, for people."""
        found = (
            (self.preferences, "the preferences file"),
            (self.repository, f"the repository {REPOSITORY_NAME}"),
            (bool(self.stream), f"the module stream nvidia-driver:{self.stream}"),
        )
        return tuple(name for there, name in found if there)
