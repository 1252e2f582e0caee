# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the host program: a Python zipapp of the collection's own module_utils with pynvml in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pynvml_archive import pack, pynvml_source

_COLLECTION = Path(__file__).resolve().parent.parent.parent
_MODULE_UTILS = _COLLECTION / "plugins" / "module_utils"

#: The packages and files of module_utils that the program is made of. Tests hold this list against what is imported.
PARTS = ("_plan.py", "_adapters", "_boards", "_host", "_mig", "_sharing")

_MAIN = b"""from __future__ import annotations

import sys

from gpufleet_host._host.main import main

sys.exit(main(sys.argv[1:]))
"""
_SHEBANG = b"#!/usr/bin/env python3\n"


@dataclass(frozen=True)
class HostProgram:
    """The program as bytes. The same collection and the same pynvml give the same bytes on every controller."""

    version: str
    content: bytes
    sha256: str


@lru_cache(maxsize=1)
def host_program() -> HostProgram:
    """Return the host program of this collection.

    :raises PynvmlNotOnController: the controller has no pynvml to put into it.
    """
    version = collection_version()
    files = {
        "__main__.py": _MAIN,
        "pynvml.py": pynvml_source(),
        "gpufleet_host/__init__.py": b"",
        "gpufleet_host/VERSION": f"{version}\n".encode(),
    }
    for part in PARTS:
        path = _MODULE_UTILS / part
        sources = [path] if path.is_file() else sorted(path.rglob("*.py"))
        for source in sources:
            files[f"gpufleet_host/{source.relative_to(_MODULE_UTILS).as_posix()}"] = source.read_bytes()
    content = _SHEBANG + pack(files)
    return HostProgram(version, content, hashlib.sha256(content).hexdigest())


def collection_version() -> str:
    """Return the collection's version, from what C(ansible-galaxy) installed or from a checkout."""
    manifest = _COLLECTION / "MANIFEST.json"
    if manifest.is_file():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return str(yaml.safe_load((_COLLECTION / "galaxy.yml").read_text(encoding="utf-8"))["version"])
