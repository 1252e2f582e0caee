# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host as the runner of the driver stage uses it: reading and single changes, put together from the adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy

from .._adapters import module_signing, systemd
from .._adapters.command import CommandError, run
from .._adapters.files import HostFiles, read_text, remove, write_whole
from .._adapters.host_reader import HostReader
from .._adapters.installed_packages import is_kernel_package
from .._adapters.kernel import (
    UNLOAD_ORDER,
    build_module,
    is_blocked,
    load_module,
    module_exists,
    reference_count,
    renew_initramfs,
    unload_module,
)
from .._adapters.package_manager import PackageManager
from .._adapters.package_tools import Fetch, manager_for
from .._adapters.packages_apt import Apt
from .._adapters.processes import device_holders
from .._adapters.repositories import Repository, check_url
from .._distributions.distributions import MODULE_KEY
from .._facts.document import read_document
from .._facts.host import NOT_OFFERED, not_offered_text
from .._facts_view import open_by, view_of
from .._formats.documents import read_record
from .._formats.host_names import wants_link
from .._plan import NotInEffect, Refused, Step
from .._records import PREVIOUS_DRIVER, PreviousDriver
from .._runtime.unit_reload import reload_units, unmask
from .._users import User, holders_of
from . import state
from .desired import PREFIX, REPOSITORY_NAME, DesiredDriver
from .packages import in_family
from .refusals import NEEDED_MIB
from .state import Host, Signing, from_facts
from .steps import PREFERENCES_NAME

#: The dnf module that the driver's streams are of.
MODULE = "nvidia-driver"


class DriverSystem:
    """One host, through the adapters.

    :param fetch: fetches a URL (TLS verified) with credentials or without, and raises an exception of its own when it cannot.
    """

    def __init__(self, fetch: Fetch, manager: PackageManager | None = None) -> None:
        self._fetch = fetch
        self._manager = manager
        self._files = HostFiles()

    @property
    def manager(self) -> PackageManager:
        if self._manager is None:
            raise RuntimeError("the host has not been read yet")
        return self._manager

    def read(self) -> Host:
        """Return the present state of the host. Raises Refused: it is not supported."""
        facts = view_of(read_document(HostReader(self._files)))
        host = from_facts(facts)
        if self._manager is None:
            self._manager = manager_for(host.distribution.manager)
        installed = self._manager.installed()
        packages = {name: version for name, version in installed.items() if in_family(name)}
        return from_facts(
            facts,
            packages=packages,
            kernel_packages=tuple(sorted(filter(is_kernel_package, installed))),
            # Also without packages: the locks of a driver that somebody removed by hand keep every other version out.
            holds=self._manager.holds(),
            missing_for_holds=self._manager.missing_for_holds(),
            interrupted=self._manager.interrupted(),
            signing=_signing(host, installed) if host.secure_boot else None,
            free_mib=_free_mib(),
        )

    def over(self, manager: PackageManager) -> DriverSystem:
        """Return the same host with another package manager."""
        other = copy(self)
        other._manager = manager
        return other

    def repository_url(self, host: Host, desired: DesiredDriver) -> str:
        """Return where the packages come from, or an empty string for the distribution's own archive."""
        if desired.archive_source == "distribution":
            return ""
        return check_url(desired.repository.url or host.distribution.url(host.machine), f"{PREFIX}repository_url")

    def repository(self, host: Host, desired: DesiredDriver) -> Repository:
        """Return the repository to configure, with its verified key.

        :raises Refused: neither a fingerprint nor a digest is known for the key.
        :raises KeyRefused: the key is another one.
        """
        url = self.repository_url(host, desired)
        known = host.distribution.key
        own = bool(desired.repository.url)
        fingerprint = desired.repository.key_fingerprint or ("" if own else known.fingerprint)
        digest = "" if own or fingerprint else known.digest
        if not fingerprint and not digest:
            raise Refused(
                f"{PREFIX}repository_key_fingerprint",
                f"the collection knows no key of the repository {url}",
                "Give all hexadecimal digits of the fingerprint, from its owner.",
            )
        key = desired.repository.signing_key(url, f"{url}/{known.file}", fingerprint, self._fetch, PREFIX, digest)
        return Repository(
            REPOSITORY_NAME, url, key, f"NVIDIA driver ({desired.source})", credentials=desired.repository.credentials
        )

    @property
    def record(self) -> PreviousDriver | None:
        found: PreviousDriver | None = read_record(PREVIOUS_DRIVER, read_text(state.PATH, links=False))
        return found

    def write_record(self, record: PreviousDriver) -> None:
        write_whole(state.PATH, record.as_text(), 0o600)

    def write_not_offered(self, kernel: str, names: Sequence[str]) -> None:
        """Record which packages with headers the repositories lack, which facts cannot ask."""
        self.write_file(NOT_OFFERED, not_offered_text(kernel, names) if names else None)

    def write_preferences(self, text: str | None) -> bool:
        """Write or remove the preferences file that pins the driver (apt only)."""
        return self._manager.write_preferences(PREFERENCES_NAME, text) if isinstance(self._manager, Apt) else False

    def preferences(self) -> str | None:
        return self._manager.preferences(PREFERENCES_NAME) if isinstance(self._manager, Apt) else None

    def remains(self, desired: DesiredDriver) -> state.Remains:
        """Return what the host has of a driver besides its packages."""
        stream = self.manager.streams().get(MODULE, "")
        own = desired.repository.manage and self.manager.has_repository(REPOSITORY_NAME)
        return state.Remains(self.preferences() is not None, own, stream)

    def users(self) -> tuple[User, ...]:
        """Return the processes that have a device file of the driver open, this one excepted."""
        return holders_of(open_by(device_holders(self._files).holders))

    def modules(self) -> tuple[str, ...]:
        return tuple(name for name in UNLOAD_ORDER if self._files.exists(f"/sys/module/{name}"))

    def reference_counts(self, names: Sequence[str]) -> Mapping[str, int | None]:
        return {name: reference_count(self._files, name) for name in names}

    def load(self, name: str) -> str:
        """Load a module; return what modprobe complained about, or an empty string."""
        return _complaint(lambda: load_module(name))

    def unload(self, name: str) -> str:
        """Unload a module; return what rmmod complained about, or an empty string."""
        return _complaint(lambda: unload_module(name))

    def create_signing_key(self, host: Host) -> None:
        """Create the key that DKMS signs modules with. Raises CommandError: it could not be created."""
        signing, own = host.signing, host.distribution.module_key
        if signing is not None:
            usual = (signing.key, signing.certificate) == (own.key, own.certificate)
            module_signing.create(signing.key, signing.certificate, own.command if usual else ())

    def build_module(self, step: Step) -> None:
        """Have DKMS build and install the driver's module for a kernel. Raises NotInEffect: it could not; says why."""
        name, version = str(step.data["name"]), str(step.data["version"])
        complaint = build_module(name, version, step.target, bool(step.data["again"]))
        if complaint:
            raise NotInEffect(f"Failed to {step.what}: {complaint}")

    def module_exists(self, name: str, kernel: str) -> bool:
        return module_exists(name, kernel)

    def is_blocked(self, name: str) -> bool | None:
        return is_blocked(name)

    def renew_initramfs(self, command: Sequence[str]) -> bool:
        return renew_initramfs(command)

    def active_units(self, names: Sequence[str]) -> tuple[str, ...]:
        if not systemd.available():
            return ()
        return tuple(name for name, unit in systemd.units(names).items() if unit.is_active)

    def unit_exists(self, name: str) -> bool:
        return systemd.available() and systemd.unit(name).exists

    def unit_enabled(self, name: str) -> bool:
        return name in systemd.enabled([name])

    def unit_wanted_at_boot(self, name: str) -> bool:
        """Return whether multi-user.target wants a unit, which is how one without an [Install] section starts at boot."""
        return os.path.lexists(wants_link(name))

    def unit_text(self, name: str) -> str:
        return run(["systemctl", "cat", name]).stdout

    def start(self, name: str) -> None:
        systemd.start(name, timeout=900)

    def restart(self, name: str) -> None:
        systemd.restart(name, timeout=900)

    def stop(self, name: str) -> None:
        systemd.stop(name)

    def enable(self, name: str) -> None:
        systemd.enable([name])

    def mask(self, name: str) -> None:
        """Stop a unit, and let nothing start it."""
        systemd.stop(name)
        systemd.mask(name)
        reload_units([name], [name])

    def unmask(self, name: str) -> None:
        unmask(name)

    def add_wants(self, name: str) -> None:
        run(["systemctl", "add-wants", "--no-reload", "multi-user.target", name], allowed=(0,))

    def has_file(self, path: str) -> bool:
        return os.path.lexists(path)

    def write_file(self, path: str, text: str | None) -> bool:
        return remove(path) if text is None else write_whole(path, text)

    def reload_unit(self, name: str) -> None:
        reload_units([name], [name])

    def nvidia_smi(self) -> int | None:
        """Return the exit status of nvidia-smi, or None where it is not installed or does not come back."""
        try:
            return run(["nvidia-smi"], timeout=120).rc
        except CommandError:
            return None


def _complaint(call: Callable[[], object]) -> str:
    try:
        answer = call()
    except CommandError as error:
        return str(error)
    rc, text = getattr(answer, "rc", 1), getattr(answer, "stderr", "").strip()
    return "" if rc == 0 else text or f"exit status {rc}"


def _signing(host: Host, installed: Collection[str]) -> Signing:
    """Return what DKMS signs modules with."""
    usual, configured = host.distribution.module_key, module_signing.configured(host.kernel)
    if usual.command and "mok_signing_key" not in configured:
        # dkms reads only its own configuration or only what the distribution's program makes.
        configured = {}
    elif configured:
        usual = MODULE_KEY
    key = configured.get("mok_signing_key", usual.key)
    certificate = configured.get("mok_certificate", usual.certificate)
    exists = os.path.exists(certificate) and (key.startswith("pkcs11:") or os.path.exists(key))
    enrolled = module_signing.enrolled(certificate) if exists else None
    missing = tuple(name for name in usual.packages if name not in installed)
    return Signing(key, certificate, exists, enrolled, missing)


def _free_mib() -> dict[str, int]:
    """Return the free space of the file systems that a driver needs, in MiB, by their joined paths."""
    devices: dict[int, list[str]] = {}
    for path in NEEDED_MIB:
        if os.path.isdir(path):
            devices.setdefault(os.stat(path).st_dev, []).append(path)
    return {
        ",".join(paths): os.statvfs(paths[0]).f_bavail * os.statvfs(paths[0]).f_frsize // (1024 * 1024)
        for paths in devices.values()
    }
