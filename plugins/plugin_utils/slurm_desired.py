# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the rendered tree has for a host of a Slurm cluster, on the controller of Ansible."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Callable, NamedTuple

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
    try:
        rendered = rendered_for(host, variables, template)
    except NotRendered as refusal:
        return refusal.reason
    return {"directory": desired[_DIRECTORY], "node": rendered.node, "files": rendered.files}


def slurm_checks(host: str, variables: Mapping[str, Any], facts: Facts) -> tuple[Check, ...]:
    """Return what Slurm offers of C(host) beside what is rendered of it, and which of its jobs see another device; nothing of a host of no cluster."""
    said = facts.slurm or SlurmFacts()
    found: tuple[Check, ...] = ()
    try:
        if said.scontrol is not None:
            rendered = rendered_for(host, variables)
            found = checks(rendered.node, rendered.shown, said.slurmd or "", said.scontrol)
    except NotRendered:
        pass
    except Refused as refusal:
        return (Check("slurm", SKIPPED, refusal.message),)
    return (*found, *jobs_elsewhere(facts.gpus or ()))


class NotRendered(Refused):
    """The tree has nothing of a host yet."""


class RenderedNode(NamedTuple):
    """The node of a host in the tree, and the files of its cluster by their names."""

    node: str
    shown: ShownSlurmNode
    files: dict[str, str]


def rendered_for(
    host: str, variables: Mapping[str, Any], template: Callable[[Any], Any] = lambda value: value
) -> RenderedNode:
    """Return what the tree has of a host. Raises Refused: it cannot be read. Raises NotRendered."""
    cluster = value_of(_CLUSTER, variables, template, "")
    root = value_of(_TREE, variables, template, role_interface("gpu_kubernetes").defaults[_TREE])
    folder = os.path.join(os.path.abspath(str(root)), "slurm", cluster)
    paths = [os.path.join(folder, name) for name in (*NAMES, "capacity.json")]
    texts, nodes = _tree(folder, tuple(os.stat(one).st_mtime_ns for one in paths if os.path.exists(one)))
    for name, node in nodes.items():
        if cluster and node.host == host:
            return RenderedNode(name, node, texts)
    reason = f"the rendered files of Slurm cluster {cluster or '(none: gpu_slurm_cluster is empty)'} have no node of this host yet"
    raise NotRendered(host, reason, "Set gpu_slurm_cluster for its pool, and run gpufleet.nvidia.site or render.")


@lru_cache(maxsize=16)
def _tree(folder: str, _times: tuple[int, ...]) -> tuple[dict[str, str], Mapping[str, ShownSlurmNode]]:
    # As they are, to the last line feed.
    read = {name: read_bytes(os.path.join(folder, name), links=False) for name in NAMES}
    source = os.path.join(folder, "capacity.json")
    nodes = read_nodes(read_text(source, links=False), source)
    return {name: data.decode(errors="replace") for name, data in read.items() if data is not None}, nodes
