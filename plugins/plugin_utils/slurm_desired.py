# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the rendered tree has for a host of a Slurm cluster, on the controller of Ansible."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Callable

from ..module_utils._adapters.files import read_bytes, read_text
from ..module_utils._facts_view import Facts, SlurmFacts
from ..module_utils._health.report import SKIPPED, Check
from ..module_utils._plan import Refused
from ..module_utils._slurm.plan import NAMES
from .fleet.slurm_node import ShownSlurmNode, checks, jobs_elsewhere, read_nodes
from .role_variables import collect, role_interface, value_of

_ROLE, _CONTROLLERS, _DIRECTORY = "gpu_slurm", "gpu_slurm_controllers", "gpu_slurm_directory"
_CLUSTER, _NODE = "gpu_slurm_cluster", "gpu_slurm_node_name"
_TREE = "gpu_kubernetes_output_directory"


def is_brought(variables: Mapping[str, Any], template: Callable[[Any], Any] = lambda value: value) -> bool:
    """Return whether Slurm's files are brought to a host, and playbooks drain it in Slurm. Controllers alone may be those of another pool."""
    return all(variables.get(name) and value_of(name, variables, template) for name in (_CONTROLLERS, _CLUSTER))


def asked_of(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> dict[str, str]:
    """Return the options of M(gpufleet.nvidia.gpu_info) for a node of a Slurm cluster: where its files are, if they are brought to it, and its name."""
    cluster = variables.get(_CLUSTER) and value_of(_CLUSTER, variables, template)
    host = str(variables.get("inventory_hostname", ""))
    node = str(value_of(_NODE, variables, template, "") or host.partition(".")[0]) if cluster else ""
    return {"_slurm_directory": _directory(variables, template), "_slurm_node": node}


def _directory(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> str:
    if not is_brought(variables, template):
        return ""
    return str(value_of(_DIRECTORY, variables, template, role_interface(_ROLE).defaults[_DIRECTORY]))


def slurm_desired(
    host: str, variables: Mapping[str, Any], template: Callable[[Any], Any]
) -> dict[str, Any] | str | None:
    """Return what is brought to C(host); why there is nothing yet; or None where the site brings the files itself.

    :raises Refused: a variable is wrong, or the tree cannot be read.
    """
    if not _directory(variables, template):
        return None
    desired = collect(variables, template, (_ROLE,))
    cluster = desired[_CLUSTER]
    texts, nodes = _rendered(cluster, variables, template)
    mine = next((name for name, node in nodes.items() if node.host == host), None)
    if not cluster or mine is None:
        return f"the rendered files of Slurm cluster {cluster or '(none: gpu_slurm_cluster is empty)'} have no node of this host yet"
    return {"directory": desired[_DIRECTORY], "node": mine, "files": texts}


def slurm_checks(host: str, variables: Mapping[str, Any], facts: Facts) -> tuple[Check, ...]:
    """Return what Slurm offers of C(host) beside what is rendered of it, and which of its jobs see another device; nothing of a host of no cluster."""
    try:
        cluster = variables.get(_CLUSTER) and value_of(_CLUSTER, variables)
        nodes = _rendered(cluster, variables)[1] if cluster and facts.slurm and facts.slurm.scontrol is not None else {}
    except Refused as refusal:
        return (Check("slurm", SKIPPED, refusal.message),)
    mine = [(name, node) for name, node in nodes.items() if node.host == host]
    said = facts.slurm or SlurmFacts()
    offered = [checks(name, node, said.slurmd or "", said.scontrol or "") for name, node in mine]
    return (*(one for found in offered for one in found), *jobs_elsewhere(facts.gpus or ()))


def _rendered(
    cluster: str, variables: Mapping[str, Any], template: Callable[[Any], Any] = lambda value: value
) -> tuple[dict[str, str], Mapping[str, ShownSlurmNode]]:
    """Return the rendered files of a cluster, and its nodes. Raises Refused: they cannot be read."""
    root = value_of(_TREE, variables, template, role_interface("gpu_kubernetes").defaults[_TREE])
    folder = os.path.join(os.path.abspath(str(root)), "slurm", cluster)
    paths = [os.path.join(folder, name) for name in (*NAMES, "capacity.json")]
    return _tree(folder, tuple(os.stat(one).st_mtime_ns for one in paths if os.path.exists(one)))


@lru_cache(maxsize=16)
def _tree(folder: str, _times: tuple[int, ...]) -> tuple[dict[str, str], Mapping[str, ShownSlurmNode]]:
    # As they are, to the last line feed.
    read = {name: read_bytes(os.path.join(folder, name), links=False) for name in NAMES}
    source = os.path.join(folder, "capacity.json")
    nodes = read_nodes(read_text(source, links=False), source)
    return {name: data.decode(errors="replace") for name, data in read.items() if data is not None}, nodes
