# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, apply and read back the container toolkit of a host, with what the adapters offer. Every step can be repeated after a cut."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .._adapters import cdi_generator, systemd
from .._adapters.files import HostFiles, read_bytes, remove, write_link, write_whole
from .._adapters.host_reader import HostReader
from .._adapters.installed_packages import is_toolkit
from .._adapters.kernel import loaded_version
from .._adapters.nvml_gpus import open_nvml
from .._adapters.nvml_library import NvmlError, NvmlUnavailable
from .._adapters.package_manager import PackageManager
from .._adapters.package_tools import Fetch, manager_for
from .._adapters.repositories import Repository, check_url, sources_in
from .._distributions.distributions import find
from .._facts_view import DistributionFacts
from .._formats.cdi_state import CdiState, specifications, state_of
from .._packages.key_file import key_is_there
from .._packages.transactions import Applier, Request, configure, install, package_appliers, run, try_request
from .._plan import Plan, Step
from .._runtime.state import READERS, RuntimeConfiguration
from .._steps import ASIDE, Kind
from .._versions import product_version
from .config import LINKS, PATH, read_hooks
from .desired import DesiredToolkit
from .packages import (
    BASE,
    IDENTIFIER,
    KEY_FINGERPRINT,
    KEY_URL,
    OLD_PACKAGES,
    OLD_SOURCES,
    PACKAGES,
    PREFIX,
    repository_url,
)
from .plan import check_simulation, edited, plan, select, transaction
from .state import ToolkitState, settings

#: NVIDIA's units, enabled where the packages have them (1.18 and newer).
UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")


class ToolkitSystem:
    """One host.

    :param archive: a zip file with pynvml that was sent for this call.
    :param fetch: fetches a URL (TLS verified) with credentials or without, and raises an exception of its own when it cannot.
    :param os_release: fields of /etc/os-release; read when not given.
    """

    def __init__(
        self,
        fetch: Fetch,
        manager: PackageManager | None = None,
        os_release: Mapping[str, str] | None = None,
        archive: str | None = None,
    ) -> None:
        self._archive = archive
        self._fetch = fetch
        fields = os_release if os_release is not None else _os_release()
        self._repository: Repository | None = None
        self._kind = find(DistributionFacts(fields.get("ID"), fields.get("VERSION_ID"))).manager
        self.manager = manager or manager_for(self._kind)

    def url(self, desired: DesiredToolkit) -> str:
        """Return where the packages come from. Raises Failure: nothing may be fetched from there."""
        return check_url(
            repository_url(self._kind, platform.machine(), desired.repository.url), f"{PREFIX}repository_url"
        )

    def read(self, desired: DesiredToolkit) -> ToolkitState:
        """Return the present state of the host. Raises PynvmlMissing: the GPUs cannot be read without it."""
        installed = self.manager.installed()
        packages = {n: v for n, v in installed.items() if is_toolkit(n) or n in OLD_PACKAGES}
        managed = self._is_configured(desired) if desired.present else True
        config = HostFiles().text(PATH)
        units = _units() if desired.cdi else ()
        driver = loaded_version(HostFiles())
        specification, runtime = cdi_generator.path(), RuntimeConfiguration()
        if desired.present and desired.runtime in READERS:
            # What cannot be read is the runtime's stage to refuse.
            with suppress(ValueError):
                runtime = READERS[desired.runtime](HostFiles(), ())
        return ToolkitState(
            packages=packages,
            holds=tuple(self.manager.holds()),
            low_level_runtime=runtime.low_level_runtime,
            missing_for_holds=self.manager.missing_for_holds() if desired.present and desired.hold else (),
            repository=managed and key_is_there(IDENTIFIER),
            old_sources=self._old_sources(),
            interrupted=tuple(self.manager.interrupted()),
            cdi=self._cdi(driver, runtime.cdi_folders) if desired.present and desired.cdi and driver else CdiState(),
            driver_loaded=driver is not None,
            **settings(config),
            specifications=() if desired.present or not os.path.lexists(specification) else (specification,),
            hooks=read_hooks(HostFiles()),
            cdi_unit=len(systemd.enabled(units)) == len(units) if units else None,
        )

    def _cdi(self, driver: str, folders: Sequence[str]) -> CdiState:
        try:
            with open_nvml(self._archive) as nvml:
                gpus = [state.facts for state in nvml.gpus()]
        except (NvmlUnavailable, NvmlError):
            # As facts have it: nothing can be compared.
            return CdiState()
        if not gpus or not cdi_generator.available():
            return CdiState()
        return state_of(specifications(cdi_generator.read_cdi(HostReader(HostFiles()), gpus, driver, folders)))

    def move_aside(self, path: str) -> None:
        """Rename a file, so that runtimes read it no more."""
        os.replace(path, path + ASIDE)

    def _is_configured(self, desired: DesiredToolkit) -> bool:
        url = self.url(desired)
        opened = self.manager.has_credentials(IDENTIFIER, url, desired.repository.credentials)
        return opened and url in self.manager.repositories()

    def repository(self, desired: DesiredToolkit) -> Repository:
        """Return the repository to configure, with its verified key; fetched once.

        :raises Refused: a mirror has no fingerprint, or the key file cannot be read.
        :raises KeyRefused: the key is another one.
        """
        if self._repository is None:
            url, wanted = self.url(desired), desired.repository
            # A mirror carries NVIDIA's signatures, so NVIDIA's key is right for it unless the site signs anew.
            fingerprint = wanted.key_fingerprint or KEY_FINGERPRINT
            key = wanted.signing_key(url, KEY_URL, fingerprint, self._fetch, PREFIX)
            # NVIDIA signs the metadata of its rpm repository, which have the packages' checksums, and not the packages.
            self._repository = Repository(
                IDENTIFIER,
                url,
                key,
                "NVIDIA container toolkit",
                signed_metadata=True,
                signed_packages=False,
                credentials=wanted.credentials,
            )
        return self._repository

    def write_config(self, text: str) -> None:
        write_whole(PATH, text, os.stat(PATH).st_mode & 0o7777 if os.path.exists(PATH) else 0o644)

    def remove_file(self, path: str) -> None:
        """Remove a file, and the toolkit's own folder around it when it was the last one there."""
        remove(path)
        folder = os.path.dirname(path)
        if folder == os.path.dirname(PATH) and os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)

    def enable_refresh(self) -> None:
        """Enable NVIDIA's units, and start the one that watches. Raises CommandError: they are not enabled, or not active, afterwards."""
        names = _units()
        systemd.enable(names)
        if UNITS[0] in names:
            systemd.start(UNITS[0])

    def _old_sources(self) -> tuple[str, ...]:
        """Return apt source files that name the repository, written by hand or by NVIDIA's instructions."""
        if self.manager.name != "apt":
            return ()
        found = []
        for path in OLD_SOURCES:
            urls = [url for url, _signed in sources_in((read_bytes(path) or b"").decode("utf-8", "replace"))]
            if any(url.startswith((BASE, "https://nvidia.github.io/")) for url in urls):
                found.append(path)
        return tuple(found)


def _units() -> tuple[str, ...]:
    """Return those of NVIDIA's units that are installed."""
    folders = ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
    return tuple(unit for unit in UNITS if any(os.path.exists(f"{folder}/{unit}") for folder in folders))


def _os_release() -> dict[str, str]:
    text = (read_bytes("/etc/os-release") or b"").decode("utf-8", "replace")
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name: value.strip().strip("\"'") for name, value in pairs}


@dataclass(frozen=True)
class ToolkitReport:
    """What was, or in check mode would be, done, and the state afterwards."""

    plan: Plan
    after: ToolkitState
    version: str


def run_stage(system: ToolkitSystem, desired: DesiredToolkit, check_mode: bool) -> ToolkitReport:
    """Apply C(desired) to the toolkit of a host.

    :raises Refused: it cannot be met; nothing was installed.
    :raises PackageError: the package manager failed.
    :raises NotInEffect: what is read back is something else.
    """

    def planned(state: ToolkitState) -> Plan:
        made = plan(state, desired)
        if not check_mode and any(step.kind is Kind.ADD_REPOSITORY for step in made.steps):
            # A key that is not the right one is found before the first step.
            system.repository(desired)
        return made

    done, after = run(
        "set up the container toolkit",
        check_mode,
        lambda: system.read(desired),
        planned,
        lambda state: _try(system, state, desired),
        _appliers(system, desired),
    )
    version = product_version(after.packages.get(PACKAGES[0], "")) or ""
    if check_mode and done.changes:
        version = desired.version if desired.present else ""
    return ToolkitReport(done, after, version)


def _try(system: ToolkitSystem, state: ToolkitState, desired: DesiredToolkit) -> None:
    """Ask the real resolver, with the repository as it would be where it is not configured yet."""
    if not (desired.present and state.differing(PACKAGES, desired.version)):
        return None
    request = _request(state, desired)
    if state.repository is not False or not desired.repository.manage:
        return try_request(system.manager, request, system.manager.offered(PACKAGES))
    with system.manager.trial(system.repository(desired)) as manager:
        return try_request(manager, request, manager.offered(PACKAGES)) if manager is not None else None


def _request(state: ToolkitState, desired: DesiredToolkit) -> Request:
    return Request(
        PACKAGES,
        lambda offers: select(offers, desired.version),
        lambda packages: transaction(state, packages),
        check_simulation,
    )


def _appliers(system: ToolkitSystem, desired: DesiredToolkit) -> dict[Kind, Applier[ToolkitState]]:
    def settings(_state: ToolkitState, _step: Step) -> None:
        # The packages' scripts may just have written the file: it is read again.
        system.write_config(edited(system.read(desired), desired))

    return {
        **package_appliers(system.manager),
        Kind.CREATE_FILE: lambda _state, step: write_link(step.target, LINKS[step.target]),
        Kind.REMOVE_FILE: lambda _state, step: system.remove_file(step.target),
        Kind.ADD_REPOSITORY: lambda _state, _step: configure(system.manager, system.repository(desired)),
        Kind.INSTALL_TOOLKIT: lambda state, _step: install(system.manager, _request(state, desired), state.held),
        Kind.ACCEPT_DEVICES: settings,
        Kind.NAME_LOW_LEVEL_RUNTIME: settings,
        Kind.ENABLE_SERVICE: lambda _state, _step: system.enable_refresh(),
        Kind.GENERATE_CDI_SPECIFICATION: lambda _state, _step: cdi_generator.refresh(),
        Kind.MOVE_ASIDE: lambda _state, step: system.move_aside(step.target),
        Kind.REMOVE_REPOSITORY: lambda _state, _step: system.manager.remove_repository(IDENTIFIER),
    }
