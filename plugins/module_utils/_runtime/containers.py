# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containers that a toolkit's program started. Their shims call it again to enter and to end them (containerd, WriteRuntime of its runc shim [code])."""

from __future__ import annotations

import re
from typing import Any

from .._adapters.files import HostFiles
from .._formats.documents import read_json
from .._runtimes import RUNTIMES
from .desired import BINARY

_PROGRAM = BINARY.rpartition("/")[2]
#: What the CRI plugin writes of a pod into the bundles of its containers.
_POD = "io.kubernetes.cri.sandbox-{}"
_UID = re.compile(r"[0-9a-zA-Z-]{1,64}")


def started(files: HostFiles, runtime: str) -> list[dict[str, Any]]:
    """Return which pods of a runtime, or containers without one, were started by C(nvidia-container-runtime), and by which."""
    folder, found = RUNTIMES[runtime].shims, {}
    for name in files.names(folder) if folder else ():
        program = files.read(f"{folder}/{name}/runtime") or ""
        if not program.rpartition("/")[2].startswith(_PROGRAM):
            continue
        notes = _annotations(files.read(f"{folder}/{name}/config.json") or "")
        namespace, pod, uid = (notes.get(_POD.format(key)) for key in ("namespace", "name", "uid"))
        uid = uid if uid and _UID.fullmatch(uid) else None
        # A container that was started again may be another toolkit's than its pod.
        found[uid or name, program] = {
            "program": program,
            "name": f"{namespace}/{pod}" if pod else name,
            "pod_uid": uid,
        }
    return [found[key] for key in sorted(found)]


def _annotations(text: str) -> dict[str, str]:
    try:
        document = read_json(text)
    except ValueError:
        return {}
    found = document.get("annotations") if isinstance(document, dict) else None
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}
