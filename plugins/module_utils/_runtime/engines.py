# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd, Docker, CRI-O, k3s and RKE2 on this host: their files, and what the real programs say about them.

A planned configuration is tried by the real program in a directory of its own before any file of the host is touched.
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Callable

from .._adapters.command import CommandError, Result, find, run
from .._adapters.files import HostFiles, NotUtf8, list_directory, read_bytes, read_text, utf8
from .._formats.documents import read_json, whole_number
from .._migration import OPERATOR, is_of
from .._plan import Failure
from .._runtimes import DISTRIBUTIONS
from .._versions import numbers, version_in
from . import containerd, crio, docker, rancher
from .containerd_keys import imports_of, read_all
from .containers import started
from .desired import BINARY, DesiredRuntime, Effective, Files
from .plan import Merged, Service

Runner = Callable[..., Result]

#: Where it is kept that files were changed and the runtime has not been restarted since.
PENDING_FOLDER = "/run/gpufleet"
#: containerd's CRI plugin among what C(ctr plugins ls) prints.
_CRI_PLUGINS = (["io.containerd.grpc.v1", "cri"], ["io.containerd.cri.v1", "runtime"])


# Both, since pylint as ansible-test runs it does not see what L(Failure) is.
class RuntimeFailure(Failure, Exception):
    """A runtime is not there, refused a configuration, or does not answer; the message has what it said."""


class Engine(ABC):
    """A container runtime of this host."""

    name: str

    @abstractmethod
    def files(self) -> dict[str, str]:
        """Return the texts of all files that count, by path, in the order in which they are read."""

    @abstractmethod
    def edit(self, files: Mapping[str, str], desired: DesiredRuntime) -> Files:
        """Return what the files become."""

    @abstractmethod
    def merged(self, files: Mapping[str, str]) -> Merged:
        """Have the real program read C(files). Raises L(RuntimeFailure) when it refuses them."""

    def present(self, files: Mapping[str, str]) -> Merged:
        """Return what the host has now, C(files) being its files."""
        return self.merged(files)

    @abstractmethod
    def service(self) -> Service:
        """Return the unit."""

    def in_force(self) -> Effective:
        """Return what the running (or else the next) runtime has, read anew."""
        return self.merged(self.files()).effective


def engine_for(name: str, binary: str, config_path: str | None = None, runner: Runner = run) -> Engine:
    """Return the runtime C(name).

    :param binary: path of nvidia-container-runtime.
    :param config_path: another main file (containerd, Docker) or drop-in (CRI-O).

    :raises RuntimeFailure: it is not installed on this host.
    """
    if name == "containerd":
        return Containerd(config_path or containerd.MAIN, runner)
    if name == "docker":
        return Docker(config_path or docker.MAIN, runner)
    if name == "crio":
        return Crio(config_path or crio.DROP_IN, runner)
    return Rancher(name, binary, runner)


class Containerd(Engine):
    """containerd; C(containerd config dump) merges and judges."""

    name = "containerd"

    def __init__(self, main: str, runner: Runner = run) -> None:
        self._main = main
        self._run = runner
        self.version = _version(runner, "containerd")

    def files(self) -> dict[str, str]:
        texts = read_all(self._main, _text, glob.glob, self.version)
        return {**texts, **_texts(*(path for path in containerd.LEFTOVERS if path not in texts))}

    def edit(self, files: Mapping[str, str], desired: DesiredRuntime) -> Files:
        return containerd.edit(self.version, files, desired, self._main)

    def merged(self, files: Mapping[str, str]) -> Merged:
        with tempfile.TemporaryDirectory(prefix="gpufleet-containerd-") as folder:
            main = os.path.join(folder, "config.toml")
            imported = self._copies(files, folder)
            text = files.get(self._main)
            if text is None:
                dump = _output(self._run, ["containerd", "config", "default"])
            else:
                # What a pattern matches on the host is not what is planned: a file that is moved aside is still there.
                follows = imported or imports_of(self._main, text, self.version)
                _write(main, containerd.importing(text, list(imported)) if follows else text)
                try:
                    dump = _output(self._run, ["containerd", "--config", main, "config", "dump"])
                except RuntimeFailure as error:
                    # The copies are gone before anybody reads this.
                    said = str(error)
                    for copy, path in {**imported, main: self._main}.items():
                        said = said.replace(copy, path)
                    raise RuntimeFailure(said) from error
        section = containerd.section(dump)
        return Merged(containerd.effective(dump), json.dumps(section, sort_keys=True))

    def _copies(self, files: Mapping[str, str], folder: str) -> dict[str, str]:
        """Copy the imported files, in the order in which they are read, and return of which file each copy is."""
        order = read_all(
            self._main, files.get, lambda pattern: (p for p in files if containerd.covers(pattern, p)), self.version
        )
        copies = {}
        for number, (path, text) in enumerate(list(order.items())[1:]):
            copy = os.path.join(folder, f"{number:04d}.toml")
            copies[copy] = path
            _write(copy, containerd.importing(text, []) if imports_of(path, text, self.version) else text)
        return copies

    def service(self) -> Service:
        return _service("containerd.service", containers=_shims(), runner=self._run)

    def in_force(self) -> Effective:
        if find("ctr") and _service("containerd.service", runner=self._run).active:
            for line in _output(self._run, ["ctr", "plugins", "ls"]).splitlines():
                words = line.split()
                if words[:2] in _CRI_PLUGINS and words[-1] == "error":
                    raise RuntimeFailure(
                        "Failed to load containerd's CRI plugin: 'ctr plugins ls' says error. See 'journalctl -u containerd'."
                    )
        return super().in_force()


class Docker(Engine):
    """Docker; C(dockerd --validate) judges where it can (23 and newer)."""

    name = "docker"

    def __init__(self, main: str, runner: Runner = run) -> None:
        self._main = main
        self._run = runner
        self.version = _version(runner, "dockerd")

    def files(self) -> dict[str, str]:
        return _texts(self._main)

    def edit(self, files: Mapping[str, str], desired: DesiredRuntime) -> Files:
        return docker.edit(self.version, files.get(self._main), desired, self._main)

    def merged(self, files: Mapping[str, str]) -> Merged:
        text = files.get(self._main)
        if text is not None and self.version >= (23,):
            with tempfile.TemporaryDirectory(prefix="gpufleet-docker-") as folder:
                path = os.path.join(folder, "daemon.json")
                _write(path, text)
                _output(self._run, ["dockerd", "--validate", "--config-file", path])
        return Merged(docker.effective(text, self.version), json.dumps(docker.load(text or ""), sort_keys=True))

    def service(self) -> Service:
        containers = None
        live_restore = False
        found = _service("docker.service", runner=self._run)
        if found.active:
            info = self._info()
            containers = info.get("ContainersRunning")
            live_restore = bool(info.get("LiveRestoreEnabled"))
        return _service(
            "docker.service",
            containers=containers if isinstance(containers, int) else None,
            keeps=live_restore,
            runner=self._run,
        )

    def in_force(self) -> Effective:
        if not _service("docker.service", runner=self._run).active:
            return docker.effective(self.files().get(self._main), self.version)
        return docker.effective_of_daemon(self._info())

    def _info(self) -> Mapping[str, Any]:
        try:
            data = read_json(_output(self._run, ["docker", "info", "--format", "{{json .}}"]))
        except ValueError as error:
            raise RuntimeFailure(f"Failed to read 'docker info': {error}. See 'journalctl -u docker'.") from error
        return data if isinstance(data, dict) else {}


class Crio(Engine):
    """CRI-O; C(crio config) merges and judges."""

    name = "crio"

    def __init__(self, drop_in: str, runner: Runner = run) -> None:
        self._drop_in = drop_in
        self._run = runner
        self.version = _version(runner, "crio")

    def files(self) -> dict[str, str]:
        return _texts(self._drop_in, *crio.LEFTOVERS)

    def edit(self, files: Mapping[str, str], desired: DesiredRuntime) -> Files:
        handler = None
        if desired.present:
            others = self._dump(crio.without_ours(files, self._drop_in))
            handler = crio.handler_of(_output(self._run, ["crio", "config", "--default"]), others)
        return crio.edit(files, desired, handler, self._drop_in)

    def merged(self, files: Mapping[str, str]) -> Merged:
        dump = self._dump(files)
        return Merged(crio.effective(dump), dump)

    def _dump(self, files: Mapping[str, str]) -> str:
        """Have CRI-O merge C(files) with the drop-ins of others, and return what it prints."""
        source = os.path.dirname(self._drop_in)
        with tempfile.TemporaryDirectory(prefix="gpufleet-crio-") as folder:
            for name in list_directory(source):
                text = _text(os.path.join(source, name))
                if text is not None and os.path.join(source, name) not in (self._drop_in, *crio.LEFTOVERS):
                    _write(os.path.join(folder, name), text)
            for path, text in files.items():
                if os.path.dirname(path) == source:
                    _write(os.path.join(folder, os.path.basename(path)), text)
            return _output(self._run, ["crio", "--config-dir", folder, "config"])

    def service(self) -> Service:
        # CRI-O's containers belong to conmon, in scopes of their own.
        return _service("crio.service", kill_mode="process", runner=self._run)


class Rancher(Engine):
    """k3s and RKE2: containerd inside, its configuration generated at every start."""

    def __init__(self, name: str, binary: str, runner: Runner = run) -> None:
        self.name = name
        self._run = runner
        self._binary = binary
        self._places = rancher.places(name)
        program = find(name)
        if program is None and name == "rke2" and os.access("/var/lib/rancher/rke2/bin/rke2", os.X_OK):
            program = "/var/lib/rancher/rke2/bin/rke2"
        if program is None:
            raise RuntimeFailure(f"Failed to find {name}: the program is not installed. Install it before this role.")
        self._program = program

    def files(self) -> dict[str, str]:
        where = self._places
        return _texts(where.generated, where.template, where.template_v3, where.default_runtime, *containerd.LEFTOVERS)

    def edit(self, files: Mapping[str, str], desired: DesiredRuntime) -> Files:
        edited = rancher.edit(self.name, files, desired)
        if desired.present and os.path.lexists(f"{rancher.FORMER}/{os.path.basename(BINARY)}"):
            rancher.refuse_former(self.name, desired.move_former)
            used = sum(is_of(one["program"], OPERATOR) for one in started(HostFiles(), self.name))
            edited = replace(edited, moves=(rancher.FORMER,), moved_of=used)
        wanted = any(c.path == self._places.default_runtime and c.after for c in edited.changed)
        if wanted and "--default-runtime" not in _output(self._run, [self._program, "agent", "--help"]):
            raise RuntimeFailure(
                f"Failed to make nvidia the default runtime: this {self.name} has no option --default-runtime. "
                f"Upgrade {self.name}, or use the RuntimeClass nvidia and set nvidia_toolkit_default_runtime to false."
            )
        return edited

    def merged(self, files: Mapping[str, str]) -> Merged:
        return _summary(rancher.expected(self.name, files, self._binary))

    def present(self, files: Mapping[str, str]) -> Merged:
        return _summary(containerd.effective(files.get(self._places.generated, "")))

    def service(self) -> Service:
        units = [f"{unit}.service" for unit in DISTRIBUTIONS[self.name].units]
        services = (_service(unit, runner=self._run) for unit in units)
        return next((one for one in services if one.active), Service(unit=units[0]))

    def in_force(self) -> Effective:
        return containerd.effective(_text(self._places.generated) or "")


def _summary(effective: Effective) -> Merged:
    # Of a generated file only what we care about can be foretold.
    return Merged(effective, json.dumps([effective.binary, effective.default_runtime]))


def pending_since(unit: str) -> int | None:
    """Return when (microseconds of the monotonic clock) files of C(unit) were changed in this boot, or None."""
    boot, _separator, moment = (read_text(f"{PENDING_FOLDER}/restart-{unit}", links=False) or "").partition(" ")
    return whole_number(moment) if boot == read_text("/proc/sys/kernel/random/boot_id") else None


def _service(
    unit: str, *, kill_mode: str | None = None, containers: int | None = None, keeps: bool = True, runner: Runner = run
) -> Service:
    properties_wanted = "--property=ActiveState,KillMode,ActiveEnterTimestampMonotonic"
    try:
        shown = runner(["systemctl", "show", properties_wanted, unit]).stdout
    except CommandError:
        return Service()
    properties = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    since = pending_since(unit)
    started = whole_number(properties.get("ActiveEnterTimestampMonotonic", "0"))
    return Service(
        unit=unit,
        active=properties.get("ActiveState") in ("active", "reloading"),
        kill_mode=kill_mode or properties.get("KillMode", "process"),
        containers=containers,
        restart_pending=since is not None and started is not None and started < since,
        keeps_containers=keeps,
    )


def _shims() -> int | None:
    """Return how many shims (one for each pod, or container) of containerd run."""
    count = 0
    for name in list_directory("/proc"):
        if name.isdigit() and (read_text(f"/proc/{name}/comm") or "").startswith("containerd-shim"):
            count += 1
    return count


def _texts(*paths: str) -> dict[str, str]:
    """Return the texts of those files that are there, by path."""
    return {path: text for path in paths if (text := _text(path)) is not None}


def _text(path: str) -> str | None:
    content = read_bytes(path)
    try:
        return None if content is None else utf8(path, content)
    except NotUtf8 as error:
        raise RuntimeFailure(f"Failed to read the configuration: {error}. Correct the file.") from error


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        handle.write(text)


def _version(runner: Runner, program: str) -> tuple[int, ...]:
    return numbers(version_in(_output(runner, [program, "--version"])) or "")


def _output(runner: Runner, command: list[str]) -> str:
    try:
        return runner(command, allowed=(0,)).stdout
    except CommandError as error:
        raise RuntimeFailure(f"{error}. Correct the runtime's own files, or install it before this role.") from error
