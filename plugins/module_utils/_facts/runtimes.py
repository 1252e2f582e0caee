# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container runtimes of a host: which are installed, and whether they know the NVIDIA runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from .._adapters.files import HostFiles
from .._adapters.host_reader import HostReader
from .._runtime.state import RuntimeConfiguration, containerd_configuration, crio_configuration, docker_configuration
from .._runtimes import DISTRIBUTIONS, RUNTIMES
from .._versions import numbers, version_in
from .services import Services


def _generated(main: str) -> Callable[[HostFiles, tuple[int, ...]], RuntimeConfiguration]:
    return lambda files, _version: containerd_configuration(main, files)


#: Who reads the configuration of a runtime of a version, where that is known. Of k3s and RKE2 it is not containerd's.
_READERS: Mapping[str, Callable[[HostFiles, tuple[int, ...]], RuntimeConfiguration]] = {
    "containerd": lambda files, version: containerd_configuration("/etc/containerd/config.toml", files, version),
    "docker": lambda files, _version: docker_configuration(files),
    "crio": lambda files, _version: crio_configuration(files),
    **{name: _generated(f"/var/lib/rancher/{name}/agent/etc/containerd/config.toml") for name in DISTRIBUTIONS},
}


def read_runtimes(source: HostReader, services: Services) -> dict[str, Any]:
    """Return the part C(runtimes) of the facts: the installed ones by name."""
    found: dict[str, dict[str, Any]] = {}
    for name, runtime in RUNTIMES.items():
        if source.files.find_program(runtime.program) is None:
            continue
        answer = source.output(f"runtimes.{name}.version", (runtime.program, "--version"))
        version = version_in(answer) if answer else None
        try:
            configuration = _READERS[name](source.files, numbers(version or ""))
        except ValueError as error:
            source.note(f"runtimes.{name}.nvidia", f"the configuration cannot be read: {error}")
            configuration = None
        found[name] = {
            "version": version,
            "active": services.active(*runtime.units),
            "config_path": configuration.path if configuration else None,
            "config_version": configuration.version if configuration else None,
            "nvidia": configuration.nvidia if configuration else None,
            "binary": configuration.binary if configuration else None,
            "default_runtime": configuration.default_runtime if configuration else None,
            "cdi": configuration.cdi if configuration else None,
        }
        if configuration and not configuration.has_type:
            found[name]["has_type"] = False
        if configuration and configuration.cgroup_driver:
            found[name]["cgroup_drivers"] = {
                "nvidia": configuration.cgroup_driver,
                "runc": configuration.other_cgroup_driver,
            }
        if configuration and configuration.monitors is not None:
            found[name]["monitors"] = dict(configuration.monitors)
        if configuration and configuration.low_level_runtime:
            found[name]["low_level_runtime"] = configuration.low_level_runtime
    return found
