# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container runtimes of a host: which are installed, and whether they know the NVIDIA runtime.

Configuration formats: host.md, sections 7.3 and 7.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

from .._adapters.host_files import HostFiles
from .._runtime.toml_read import dig, loads
from .services import Services
from .source import Source

_NUMBER = re.compile(r"(?<![\w.])v?(\d+\.\d+(?:\.\d+)?[\w.~+-]*)")


@dataclass(frozen=True)
class Configuration:
    """What a runtime's configuration says about NVIDIA.

    :param path: of the main file; None where the runtime runs with its built-in defaults.
    :param version: of containerd's configuration format; None for other runtimes and where there is no file.
    :param nvidia: whether a runtime called C(nvidia) is configured.
    :param default_runtime: what containers without a runtime class get.
    :param cdi: whether CDI is switched on or off; None where the file leaves it to the runtime's default.
    """

    path: str | None
    version: int | None
    nvidia: bool
    default_runtime: str
    cdi: bool | None


@dataclass(frozen=True)
class _Engine:
    program: str
    units: Sequence[str]
    read: Callable[[HostFiles], Configuration]


def parse_version(text: str) -> str | None:
    """Return the version in what C(containerd), C(dockerd), C(crio), C(k3s) or C(rke2) answer to C(--version)."""
    match = _NUMBER.search(text)
    return match.group(1).rstrip(",") if match else None


def parse_containerd(texts: Sequence[str]) -> tuple[int, bool, str, bool | None]:
    """Return format version, nvidia, default runtime and CDI from containerd's main file and its imports, in order.

    :raises TomlError: one of them is no TOML.
    """
    version, nvidia, default, cdi = 1, False, "runc", None
    for position, text in enumerate(texts):
        data = loads(text)
        if position == 0:
            version = int(data.get("version", 1))
        for plugin in (data.get("plugins") or {}).values():
            # "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime" or "cri", whichever version is written.
            nvidia = nvidia or dig(plugin, ("containerd", "runtimes", "nvidia")) is not None
            default = dig(plugin, ("containerd", "default_runtime_name"), default)
            cdi = dig(plugin, ("enable_cdi",), cdi)
    return version, nvidia, default, cdi


def parse_docker(text: str) -> tuple[bool, str, bool | None]:
    """Return nvidia, default runtime and CDI from Docker's C(daemon.json).

    :raises ValueError: it is no JSON object.
    """
    document = json.loads(text or "{}")
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    cdi = (document.get("features") or {}).get("cdi")
    return (
        "nvidia" in (document.get("runtimes") or {}),
        str(document.get("default-runtime", "runc")),
        cdi if isinstance(cdi, bool) else None,
    )


def parse_crio(texts: Sequence[str]) -> tuple[bool, str]:
    """Return nvidia and the default runtime from CRI-O's main file and its drop-ins, in order.

    :raises TomlError: one of them is no TOML.
    """
    nvidia, default = False, "runc"
    for text in texts:
        runtime = dig(loads(text), ("crio", "runtime"), {})
        nvidia = nvidia or dig(runtime, ("runtimes", "nvidia")) is not None
        default = dig(runtime, ("default_runtime",), default)
    return nvidia, default


def _containerd(main: str) -> Callable[[HostFiles], Configuration]:
    def read(files: HostFiles) -> Configuration:
        text = files.read(main)
        if text is None:
            return Configuration(None, None, False, "runc", None)
        imported = [path for pattern in loads(text).get("imports", []) for path in files.glob(pattern) if path != main]
        texts = [text, *(files.read(path) or "" for path in imported)]
        version, nvidia, default, cdi = parse_containerd(texts)
        return Configuration(main, version, nvidia, default, cdi)

    return read


def _docker(files: HostFiles) -> Configuration:
    path = "/etc/docker/daemon.json"
    text = files.read(path)
    nvidia, default, cdi = parse_docker(text or "")
    return Configuration(path if text is not None else None, None, nvidia, default, cdi)


def _crio(files: HostFiles) -> Configuration:
    main = "/etc/crio/crio.conf"
    paths = [path for path in (main, *files.glob("/etc/crio/crio.conf.d/*")) if files.exists(path)]
    nvidia, default = parse_crio([files.read(path) or "" for path in paths])
    # CRI-O reads the directories of CDI whether asked to or not.
    return Configuration(paths[0] if paths else None, None, nvidia, default, True)


_ENGINES = {
    "containerd": _Engine("containerd", ("containerd",), _containerd("/etc/containerd/config.toml")),
    "docker": _Engine("dockerd", ("docker",), _docker),
    "crio": _Engine("crio", ("crio",), _crio),
    "k3s": _Engine("k3s", ("k3s", "k3s-agent"), _containerd("/var/lib/rancher/k3s/agent/etc/containerd/config.toml")),
    "rke2": _Engine(
        "rke2",
        ("rke2-server", "rke2-agent"),
        _containerd("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
    ),
}


def read_runtimes(source: Source, services: Services) -> dict[str, Any]:
    """Return the part C(runtimes) of the facts: the installed ones by name."""
    found = {}
    for name, engine in _ENGINES.items():
        if source.files.find_program(engine.program) is None:
            continue
        answer = source.output(f"runtimes.{name}.version", (engine.program, "--version"))
        try:
            configuration = engine.read(source.files)
        except ValueError as error:
            source.note(f"runtimes.{name}.nvidia", f"the configuration cannot be read: {error}")
            configuration = None
        found[name] = {
            "version": parse_version(answer) if answer else None,
            "active": services.active(*engine.units),
            "config_path": configuration.path if configuration else None,
            "config_version": configuration.version if configuration else None,
            "nvidia": configuration.nvidia if configuration else None,
            "default_runtime": configuration.default_runtime if configuration else None,
            "cdi": configuration.cdi if configuration else None,
        }
    return found
