# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the rendered tree has for a host of a Slurm cluster, on the controller of Ansible."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Callable

from ..module_utils._adapters.files import read_text
from ..module_utils._slurm.plan import NAMES, DesiredSlurm
from .fleet.slurm_node import ShownSlurmNode, read_nodes
from .role_variables import collect, role_interface, value_of

_ROLE, CONTROLLERS, _DIRECTORY = "gpu_slurm", "gpu_slurm_controllers", "gpu_slurm_directory"
_TREE = "gpu_kubernetes_output_directory"


def directory_of(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> str:
    """Return where the files of Slurm are on a host to which they are brought; empty of others."""
    if not variables.get(CONTROLLERS) or not value_of(CONTROLLERS, variables, template):
        return ""
    return str(value_of(_DIRECTORY, variables, template, role_interface(_ROLE).defaults[_DIRECTORY]))


def slurm_desired(host: str, variables: Mapping[str, Any], template: Callable[[Any], Any]) -> DesiredSlurm | str | None:
    """Return what is brought to C(host); why there is nothing yet; or None where the site brings the files itself.

    :raises Refused: a variable is wrong, or the tree cannot be read.
    """
    if not directory_of(variables, template):
        return None
    desired = collect(variables, template, (_ROLE,))
    cluster = desired["gpu_slurm_cluster"]
    root = value_of(_TREE, variables, template, role_interface("gpu_kubernetes").defaults[_TREE])
    folder = os.path.join(os.path.abspath(str(root)), "slurm", cluster)
    paths = [os.path.join(folder, name) for name in (*NAMES, "capacity.json")]
    texts, nodes = _tree(folder, tuple(os.stat(one).st_mtime_ns for one in paths if os.path.exists(one)))
    mine = next((name for name, node in nodes.items() if node.host == host), None)
    if not cluster or mine is None:
        return f"the rendered files of Slurm cluster {cluster or '(none: gpu_slurm_cluster is empty)'} have no node of this host yet"
    return DesiredSlurm(desired[_DIRECTORY].rstrip("/"), mine, texts)


@lru_cache(maxsize=16)
def _tree(folder: str, _times: tuple[int, ...]) -> tuple[dict[str, str], Mapping[str, ShownSlurmNode]]:
    found = {name: read_text(os.path.join(folder, name), links=False) for name in (*NAMES, "capacity.json")}
    source = os.path.join(folder, "capacity.json")
    nodes = read_nodes(found.pop("capacity.json"), source)
    return {name: text for name, text in found.items() if text is not None}, nodes
