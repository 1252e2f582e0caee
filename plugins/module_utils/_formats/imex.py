# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX, NVIDIA's service that lets the hosts of an NVL72 rack export GPU memory to each other: what is wanted of it, and what a host has.

Facts: NVIDIA IMEX Service for NVLink Networks, User's Guide. It reads its nodes when it starts (config) and checks that all of them have the same
addresses (deployment).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._facts_view import ImexFacts
from .._plan import Refused
from .host_names import IMEX_NODES_FILE, IMEX_UNIT

VARIABLE = "nvidia_driver_imex"
#: The addresses of the rack, among the variables of a host; nobody sets it.
NODES = f"{VARIABLE}_nodes"
#: The address of a host for IMEX, where it is another one than C(ansible_host).
ADDRESS = f"{VARIABLE}_address"
UNMANAGED, HOST, MASKED = "unmanaged", "host", "masked"
MODES = (UNMANAGED, HOST, MASKED)


@dataclass(frozen=True)
class DesiredImex:
    """What the host does with IMEX. C(mode): C(host) runs the service here, C(masked) leaves it to ComputeDomains, C(unmanaged) leaves everything as
    it is.
    """

    mode: str = UNMANAGED
    nodes: tuple[str, ...] = ()
    restart: bool = False
    remove_nodes: bool = False

    @property
    def managed(self) -> bool:
        return self.mode != UNMANAGED

    @property
    def text(self) -> str:
        """Return the content of the file with the nodes: an address a line."""
        return "".join(f"{node}\n" for node in self.nodes)


def read(options: Mapping[str, Any]) -> DesiredImex:
    """Return what the options describe. Raises Refused: there is no such mode, or a node is not an IP address, or is there twice."""
    mode = str(options.get("mode") or UNMANAGED)
    if mode not in MODES:
        raise Refused(VARIABLE, f"{mode!r} must be one of {', '.join(MODES)}", f"Set {VARIABLE}: {UNMANAGED}.")
    nodes = tuple(str(node) for node in options.get("nodes") or ())
    allowed = (bool(options.get(name)) for name in ("restart", "remove_nodes"))
    return DesiredImex(mode, in_order(nodes) if mode == HOST else (), *allowed)


def in_order(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return addresses in one order for all hosts of the rack. Raises Refused: one is not an IP address, or is there twice."""
    for node in nodes:
        if not _is_address(node):
            reason = f"{node!r} is not an IPv4 or IPv6 address"
            raise Refused(ADDRESS, reason, "IMEX takes addresses, not host names.")
    found = [ipaddress.ip_address(node) for node in nodes]
    twice = sorted({str(node) for node in found if found.count(node) > 1})
    if twice:
        reason = f"two hosts of the rack have {', '.join(twice)}"
        raise Refused(ADDRESS, reason, "Give each host its own address.")
    return tuple(str(node) for node in sorted(found, key=lambda node: (node.version, int(node))))


def removed(found: ImexFacts, wanted: DesiredImex) -> tuple[str, ...]:
    """Return the nodes of the file that a shorter one would not have. A sliced job of AWX has an inventory in which groups have no other hosts than
    the slice's. Whether a host has left the rack, or only the inventory of this run, nothing but the number of them tells; other addresses for as
    many hosts are a change like any other.
    """
    if wanted.mode != HOST or not wanted.nodes:
        return ()
    # The package brings a file of its own, in which a line may be a comment.
    there = tuple(node for node in found.nodes or () if _is_address(node))
    return tuple(node for node in there if node not in wanted.nodes) if len(there) > len(wanted.nodes) else ()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def differences(found: ImexFacts, wanted: DesiredImex) -> list[str]:
    """Return how a host differs from what is wanted, for people; what is not known is no difference."""
    if wanted.mode == MASKED:
        running = [f"{IMEX_UNIT} runs on the host, but ComputeDomains run their own"] if found.active else []
        return running + ([] if found.masked else [f"{IMEX_UNIT} is not masked"])
    if wanted.mode != HOST:
        return []
    left = [f"{IMEX_UNIT} is masked"] if found.masked else []
    if found.nodes != wanted.nodes:
        left.append(f"{IMEX_NODES_FILE} has {few(found.nodes)}, not {few(wanted.nodes)}")
    if found.active is False:
        left.append(f"{IMEX_UNIT} does not run")
    elif found.active and not found.enabled:
        left.append(f"{IMEX_UNIT} does not start at boot")
    return left


def few(nodes: Sequence[str] | None) -> str:
    """Return the nodes of a rack as a sentence has room for them."""
    if not nodes:
        return "no node"
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes, {nodes[0]} to {nodes[-1]}"
