# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the configuration files of the container runtimes of a host say about NVIDIA.

Formats: host.md, sections 7.3 and 7.4.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from .._adapters.files import HostFiles
from .._formats.toml_read import dig, loads, parse
from .._runtimes import DISTRIBUTIONS, FileFaultFacts
from . import containerd, rancher
from .containerd_keys import SANDBOXERS, merged, read_all, top, version_by_format


@dataclass(frozen=True)
class RuntimeConfiguration:
    """What a runtime's configuration says about NVIDIA.

    :param path: of the main file; None where the runtime runs with its built-in defaults.
    :param version: of containerd's configuration format; None for other runtimes and where there is no file.
    :param nvidia: whether a runtime called C(nvidia) is configured.
    :param binary: the program of that runtime; None where none is named.
    :param default_runtime: what containers without a runtime class get.
    :param cdi: whether CDI is switched on or off; None where the file leaves it to the runtime's default.
    :param has_type: containerd only: whether that runtime has the C(runtime_type) of runc, without which containerd starts no container.
    :param cgroup_driver: containerd only: who makes the cgroups of the runtime C(nvidia), C(systemd) or C(cgroupfs).
    :param other_cgroup_driver: the same of runc, which it has to agree with.
    :param monitors: CRI-O only: the program that watches the containers of the runtime C(nvidia), and that of the low-level
        runtime, which have to be the same; None for one that is looked up in PATH. None without either runtime.
    :param low_level_runtime: CRI-O only: the absolute path of the program that the runtime C(nvidia) has to call; None where it is
        looked up in PATH.
    :param sandboxers: containerd only: the sandboxer of the runtime C(nvidia) and that of runc, where they differ.
    :param cdi_folders: where the runtime reads CDI specifications, where its files say so.
    :param fault: why nothing can be set up with its files.
    """

    path: str | None = None
    version: int | None = None
    nvidia: bool = False
    binary: str | None = None
    default_runtime: str = "runc"
    cdi: bool | None = None
    has_type: bool = True
    cgroup_driver: str | None = None
    other_cgroup_driver: str | None = None
    monitors: Mapping[str, str | None] | None = None
    low_level_runtime: str | None = None
    sandboxers: Mapping[str, str] = field(default_factory=dict)
    cdi_folders: tuple[str, ...] = ()
    fault: FileFaultFacts | None = None

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs without which no container of the runtime C(nvidia) starts, as far as they are named by their paths."""
        named = (self.binary, self.low_level_runtime) if self.nvidia else ()
        return tuple(str(path) for path in named if str(path).startswith("/"))


def parse_containerd(texts: Sequence[str], version: tuple[int, ...] = ()) -> RuntimeConfiguration:
    """Return what containerd's main file and its imports, in order, say; without the path.

    :param version: of containerd; empty: of the one that generated the files.
    :raises TomlError: one of them is no TOML.
    """
    return _of_containerd([loads(text) for text in texts], version)


def _of_containerd(files: Sequence[dict[str, Any]], version: tuple[int, ...]) -> RuntimeConfiguration:
    data = merged(files, version or version_by_format(files[0]))
    number = top(files[0], (2,)).get("version", 1)
    default, cdi, legacy, folders = "runc", None, False, None
    runtimes: dict[str, dict[str, Any]] = {}
    sandboxers: dict[str, str] = {}
    typed = False
    for plugin in data["plugins"].values():
        # "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime" or "cri", whichever version is written.
        for name, runtime in dig(plugin, ("containerd", "runtimes"), {}).items():
            runtimes.setdefault(name, {}).update(dig(runtime, ("options",), {}))
            for key in SANDBOXERS:
                sandboxers[name] = str(dig(runtime, (key,)) or sandboxers.get(name, containerd.SANDBOXER))
            typed = typed or (name == "nvidia" and dig(runtime, ("runtime_type",)) == containerd.RUNTIME_TYPE)
        default = dig(plugin, ("containerd", "default_runtime_name"), default)
        cdi = dig(plugin, ("enable_cdi",), cdi)
        folders = dig(plugin, ("cdi_spec_dirs",), folders)
        legacy = dig(plugin, ("systemd_cgroup",), legacy)
    nvidia = runtimes.get("nvidia")
    # runc says it, or else the default runtime, or else the plugin as a whole: as _runtime/containerd.py reads it.
    said = [runtimes.get(name, {}).get("SystemdCgroup") for name in ("runc", default)]
    other = next((value for value in said if isinstance(value, bool)), legacy)
    both = {name: sandboxers.get(name, containerd.SANDBOXER) for name in (containerd.NAME, "runc")}
    return RuntimeConfiguration(
        version=number if isinstance(number, int) else 1,
        nvidia=nvidia is not None,
        binary=(nvidia or {}).get("BinaryName"),
        default_runtime=default,
        cdi=cdi,
        has_type=nvidia is None or typed,
        cgroup_driver=None if nvidia is None else _cgroup_driver(nvidia.get("SystemdCgroup", False)),
        other_cgroup_driver=_cgroup_driver(other),
        sandboxers=both if nvidia is not None and len(set(both.values())) > 1 else {},
        cdi_folders=_folders(folders),
    )


def _folders(named: object) -> tuple[str, ...]:
    """Return the folders of a setting, as they are called in the facts."""
    paths = [posixpath.normpath(str(one)) for one in named] if isinstance(named, list) else []
    found = (f"/var{path}" if path.startswith("/run/") else path for path in paths if path.startswith("/"))
    return tuple(dict.fromkeys(found))


def _cgroup_driver(systemd: object) -> str:
    return "systemd" if systemd is True else "cgroupfs"


def parse_docker(text: str) -> RuntimeConfiguration:
    """Return what Docker's C(daemon.json) says, without the path. Raises JsonError: it is no such file."""
    # Needed on hosts with Docker alone.
    from .docker import read

    document = read(text)
    cdi = document.get("features", {}).get("cdi")
    runtimes = document.get("runtimes", {})
    return RuntimeConfiguration(
        nvidia="nvidia" in runtimes,
        binary=dig(runtimes, ("nvidia", "path")),
        default_runtime=str(document.get("default-runtime", "runc")),
        cdi=cdi if isinstance(cdi, bool) else None,
        cdi_folders=_folders(document.get("cdi-spec-dirs")),
    )


def parse_crio(texts: Sequence[str]) -> RuntimeConfiguration:
    """Return what CRI-O's main file and its drop-ins, in order, say; without the path. Raises TomlError: one of them is no TOML."""
    # Needed on hosts with CRI-O alone.
    from .crio import NAME, Handler, low_level_handler

    handlers: dict[str, Any] = {}
    default = other_default = folders = None
    for text in texts:
        runtime = dig(loads(text), ("crio", "runtime"), {})
        # A handler of a later file replaces the one of an earlier file as a whole: _runtime/crio.py.
        handlers.update(dig(runtime, ("runtimes",), {}))
        default = dig(runtime, ("default_runtime",)) or default
        folders = dig(runtime, ("cdi_spec_dirs",), folders)
        # What our own drop-in makes the default calls what was the default before.
        other_default = other_default if default == NAME else default
    low_level = low_level_handler(other_default, handlers)
    nvidia = Handler(NAME, handlers[NAME]) if NAME in handlers else None
    monitors = {NAME: nvidia.monitor, low_level.name: low_level.monitor} if nvidia and low_level else None
    return RuntimeConfiguration(
        nvidia=nvidia is not None,
        binary=nvidia.settings.get("runtime_path") if nvidia else None,
        default_runtime=default or "runc",
        # CRI-O reads the directories of CDI whether asked to or not.
        cdi=True,
        monitors=monitors,
        low_level_runtime=low_level.program if low_level else None,
        cdi_folders=_folders(folders),
    )


def containerd_configuration(main: str, files: HostFiles, version: tuple[int, ...] = ()) -> RuntimeConfiguration:
    """Return what containerd's files on a host say; C(version) as in L(parse_containerd). Raises TomlError: one of them is no TOML."""
    documents = {path: parse(text) for path, text in read_all(main, files.text, files.glob, version or (2,)).items()}
    if not documents:
        return RuntimeConfiguration()
    found = _of_containerd([document.data for document in documents.values()], version)
    return replace(found, path=main, fault=containerd.fault(version, documents, main) if version else None)


def rancher_configuration(distribution: str, files: HostFiles) -> RuntimeConfiguration:
    """Return what the files of k3s or RKE2 on a host say: containerd's, which it generated, and the templates that it will take the next time.
    Raises TomlError: what it generated is no TOML.
    """
    where = rancher.places(distribution)
    texts = {path: files.text(path) for path in (where.generated, where.template, where.template_v3)}
    there = {path: text for path, text in texts.items() if text is not None}
    return replace(containerd_configuration(where.generated, files), fault=rancher.fault(distribution, there))


def docker_configuration(files: HostFiles) -> RuntimeConfiguration:
    path = "/etc/docker/daemon.json"
    text = files.text(path)
    return replace(parse_docker(text or ""), path=path if text is not None else None)


def crio_configuration(files: HostFiles) -> RuntimeConfiguration:
    """Return what CRI-O's files on a host say. Raises TomlError: one of them is no TOML."""
    main = "/etc/crio/crio.conf"
    paths = [path for path in (main, *files.glob("/etc/crio/crio.conf.d/*")) if files.exists(path)]
    return replace(parse_crio([files.text(path) or "" for path in paths]), path=paths[0] if paths else None)


#: Who reads the configuration of a runtime of a version, where that is known. Of k3s and RKE2 it is not containerd's.
READERS: Mapping[str, Callable[[HostFiles, tuple[int, ...]], RuntimeConfiguration]] = {
    "containerd": lambda files, version: containerd_configuration(containerd.MAIN, files, version),
    "docker": lambda files, _version: docker_configuration(files),
    "crio": lambda files, _version: crio_configuration(files),
    "k3s": lambda files, _version: rancher_configuration("k3s", files),
    "rke2": lambda files, _version: rancher_configuration("rke2", files),
}


def leftovers_of(runtime: str, files: HostFiles, dead: bool) -> list[str]:
    """Return what an earlier toolkit left in the way of a runtime: drop-ins of one that does not run, and what k3s and RKE2 would take for the host's."""
    if runtime in DISTRIBUTIONS:
        return [rancher.FORMER] if files.exists(f"{rancher.FORMER}/nvidia-container-runtime") else []
    found = []
    for path in containerd.LEFTOVERS if runtime == "containerd" and dead else ():
        with suppress(ValueError):
            found += [path] if containerd.is_leftover(files.read(path) or "") else []
    return found
