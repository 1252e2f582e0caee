# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes and clusters that a tree loses because the inventory of this run does not have them. Pure.

One tree can have the clusters of several inventories, so a cluster goes only by its name. Of the nodes of a cluster, a few are hosts that were
taken out of service. Many at once are an inventory that is not whole: AWX gives each job of a sliced template an inventory without the hosts of
the other slices (C(get_script_data) of C(awx/main/models/inventory.py)).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from ...module_utils._plan import Refused
from ..fleet.text import shortened

VARIABLE = "gpu_kubernetes_remove_nodes"
CLUSTERS = "gpu_kubernetes_remove_clusters"
#: The smaller of two slices has half of the hosts or less; the larger one of three hosts has two.
_MANY = 3


def leaving(root: str, before: Collection[str], known: Collection[str], allowed: bool) -> list[str]:
    """Return the nodes that leave the tree.

    :param before: the nodes that are in it, of the clusters that the inventory describes.
    :param known: the nodes that are rendered, and the hosts of the inventory.
    :param allowed: what L(VARIABLE) says.
    :raises Refused: they are a third or more of the nodes, and more than one.
    """
    gone = sorted(set(before) - set(known))
    if len(gone) > 1 and len(gone) * _MANY >= len(before) and not allowed:
        raise Refused(
            root,
            f"{len(gone)} of the {len(before)} nodes in the tree are not in this inventory and would be removed: {shortened(gone)}. An "
            "inventory with a part of the hosts, such as that of a sliced job of AWX, must not render",
            f"Render once, from the whole inventory, and add --skip-tags cluster to jobs with a part of it. If the hosts are gone, set {VARIABLE}: "
            "true for this run.",
        )
    return gone


def removed_clusters(named: Collection[str], described: Collection[str], others: Collection[str]) -> list[str]:
    """Return the clusters that leave the tree: those of L(CLUSTERS) that are in it.

    :param named: what L(CLUSTERS) says.
    :param described: the clusters that the inventory describes.
    :param others: the other clusters in the tree.
    :raises Refused: the inventory describes one of them, or the tree has none of that name and one of a similar name.
    """
    for name in named:
        near = difflib.get_close_matches(name, others, n=1)
        if name in described:
            reason, remedy = "hosts of this inventory are in it", "Take them out of it first (gpu_kubernetes_cluster)."
        elif name not in others and near:
            reason, remedy = "the tree has no such cluster", f"Did you mean {near[0]}?"
        else:
            continue
        raise Refused(f"{CLUSTERS}: {name}", reason, remedy)
    return [name for name in others if name in named]
