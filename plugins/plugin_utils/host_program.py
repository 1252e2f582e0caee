# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller sends to hosts: its pynvml (the package nvidia-ml-py), and the host program, a Python zipapp of module_utils with pynvml in it."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from .host_facts import HostAction

_COLLECTION = Path(__file__).resolve().parent.parent.parent
_MODULE_UTILS = _COLLECTION / "plugins" / "module_utils"

#: Where the program begins; it holds what this file imports, and what that imports, and nothing else.
_ENTRY = "_host/main.py"

_MAIN = b"""from __future__ import annotations

import sys

from gpufleet_host._host.main import main

sys.exit(main(sys.argv[1:]))
"""
#: An import from another file of the program, and what it imports.
_IMPORT = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\([^)]*\)|[^\n(]*)$", re.MULTILINE)
_ALIAS = re.compile(r"(\w+)(?: as \w+)?")
_SHEBANG = b"#!/usr/bin/env python3\n"
# A fixed time and plain storage: the same input gives the same bytes on every controller, whatever its zlib.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16


class PynvmlNotOnController(Exception):
    """The controller has no pynvml that it could send."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Failed to send pynvml to the host: {reason}. Install the Python package nvidia-ml-py into the "
            "environment that runs ansible on the controller (it is among the requirements of the collection)"
        )


@lru_cache(maxsize=1)
def pynvml_source() -> bytes:
    """Return the source of the controller's pynvml, one file of pure Python.

    :raises PynvmlNotOnController: it is not installed, or it is another package of that name.
    """
    found = importlib.util.find_spec("pynvml")
    if found is None or found.origin is None:
        raise PynvmlNotOnController("the controller does not have it")
    origin = Path(found.origin)
    if origin.name != "pynvml.py":
        # The inactive package "pynvml" shadows the real one with a folder.
        raise PynvmlNotOnController(f"{origin} is not the one of nvidia-ml-py")
    return origin.read_bytes()


def pack(files: dict[str, bytes], compress: bool = False) -> bytes:
    """Return a zip archive of C(files): the same bytes for the same input, unless C(compress) is set."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.external_attr = _MODE
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def pynvml_archive() -> bytes:
    """Return a zip archive with pynvml in it, to be sent to a host for one call.

    :raises PynvmlNotOnController: there is none on the controller.
    """
    return pack({"pynvml.py": pynvml_source()}, compress=True)


@dataclass(frozen=True)
class HostProgram:
    """The program as bytes. The same collection and the same pynvml give the same bytes on every controller."""

    version: str
    content: bytes
    sha256: str


def host_program(cache: str | None = None) -> HostProgram:
    """Return the host program of this collection.

    :param cache: a folder that lives as long as this run of Ansible. Ansible forks for every task of every host, and
        only the first of them has to build the program.
    :raises PynvmlNotOnController: the controller has no pynvml to put into it.
    """
    version = collection_version()
    kept = None if cache is None else Path(cache) / f"gpufleet-host-{version}.pyz"
    if kept is not None and kept.is_file():
        content = kept.read_bytes()
    else:
        content = _build(version)
        if kept is not None:
            _keep(kept, content)
    return HostProgram(version, content, hashlib.sha256(content).hexdigest())


@lru_cache(maxsize=1)
def program_identity(cache: str) -> Mapping[str, str] | str:
    """Return version and SHA-256 of the host program, the same for every host of a run; or why the controller cannot build it."""
    try:
        program = host_program(cache)
    except PynvmlNotOnController as error:
        return str(error)
    return {"version": program.version, "sha256": program.sha256}


def _build(version: str) -> bytes:
    files = {
        "__main__.py": _MAIN,
        "pynvml.py": pynvml_source(),
        "gpufleet_host/__init__.py": b"",
        "gpufleet_host/VERSION": f"{version}\n".encode(),
    }
    files.update({f"gpufleet_host/{name}": (_MODULE_UTILS / name).read_bytes() for name in parts()})
    return _SHEBANG + pack(files)


def _keep(path: Path, content: bytes) -> None:
    # Another fork may build at the same time; whoever is last replaces the same bytes by the same bytes.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
    os.replace(temporary, path)


def parts() -> list[str]:
    """Return the files of module_utils that the program is made of, relative to it."""
    found: set[str] = set()
    waiting = [_ENTRY]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        package = Path(name).parent
        waiting += [f"{package / '__init__.py'}"] if package.parts else []
        waiting += _imported(name)
    return sorted(found)


def _imported(name: str) -> list[str]:
    """Return the files of module_utils that one of them imports, at its top or inside a function.

    Every run plans with the program's hash, and to parse the files would take ten times as long as to hash them.
    """
    folder = Path(name).parent
    files = []
    for dots, module, names in _IMPORT.findall((_MODULE_UTILS / name).read_text(encoding="utf-8")):
        base = folder.joinpath(*[".."] * (len(dots) - 1), *(module.split(".") if module else ()))
        candidates = [base.with_suffix(".py")] if module else []
        candidates += [base / f"{alias}.py" for alias in _ALIAS.findall(names)]
        paths = [os.path.normpath(candidate) for candidate in candidates]
        files += [path for path in paths if (_MODULE_UTILS / path).is_file()]
    return files


def collection_version() -> str:
    """Return the collection's version, from what C(ansible-galaxy) installed or from a checkout."""
    manifest = _COLLECTION / "MANIFEST.json"
    if manifest.is_file():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return str(yaml.safe_load((_COLLECTION / "galaxy.yml").read_text(encoding="utf-8"))["version"])


#: The private option that names the archive. A user cannot set it.
ARCHIVE_OPTION = "_pynvml_archive"


class NvmlAction(HostAction):
    """Base of the action plugins of all modules that speak NVML.

    The module answers C(pynvml_missing: true) before it touched anything; then it is run again with pynvml.
    """

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(module_args=self.arguments(), task_vars=task_vars)
        if answer.get("pynvml_missing"):
            try:
                archive = self.send("pynvml.zip", pynvml_archive())
            except PynvmlNotOnController as error:
                return {"failed": True, "msg": str(error)}
            # _execute_module adds what it needs to the arguments that it gets: the second run starts from a fresh copy.
            answer = self.ask_again(answer, {**self.arguments(), ARCHIVE_OPTION: archive}, task_vars)
        answer.pop("pynvml_missing", None)
        return answer

    def arguments(self) -> dict[str, Any]:
        """Return what the module is called with."""
        return {name: value for name, value in self._task.args.items() if name != ARCHIVE_OPTION}
