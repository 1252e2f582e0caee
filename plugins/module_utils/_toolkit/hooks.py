# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hooks of a host that brings its toolkit to a cluster to whose other nodes the GPU Operator brings it.

As long as toolkit.enabled is true in the ClusterPolicy, the operator's device plugin has CDI hooks run from the operator's folder on all nodes
(NVIDIA_CDI_HOOK_PATH, in earlier releases NVIDIA_CTK_PATH: controllers/object_controls.go).
"""

from __future__ import annotations

from .._adapters.files import HostFiles
from .._migration import FORMER

LINKS = {f"{FORMER}/{name}": f"/usr/bin/{name}" for name in ("nvidia-cdi-hook", "nvidia-ctk")}


def read_hooks(files: HostFiles) -> dict[str, bool]:
    """Return what the operator's folder has of them: whether it is a link to the host's, and no program of the operator's."""
    found = {path: files.link_target(path) for path in LINKS}
    return {path: target == LINKS[path] for path, target in found.items() if target is not None or files.exists(path)}
