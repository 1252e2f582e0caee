# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The network of a lab's cluster: every lab has a number, and its addresses and its bridge follow from it.

Hosts share the machine's network. The API server and every node have an address of their own on the loopback interface, so
that each kubelet has its usual ports; the pods of all nodes are on one bridge, whose address is their gateway. Nothing is
forwarded, and no packet filter is touched: a pod reaches the other pods, the nodes and the API server.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass

from hosts.commands import run
from hosts.paths import labs
from hosts.progress import LabError

_NUMBERS = range(64)


@dataclass(frozen=True)
class Network:
    """The addresses of the cluster with this number."""

    number: int

    @property
    def api(self) -> str:
        """The address of the API server: the first of the services, so that no proxy has to translate it."""
        return f"10.96.{self.number}.1"

    @property
    def services(self) -> str:
        return f"10.96.{self.number}.0/24"

    @property
    def nodes(self) -> str:
        return f"10.97.{self.number}.0/24"

    @property
    def pods(self) -> str:
        return f"10.{128 + self.number}.0.0/16"

    @property
    def gateway(self) -> str:
        return f"10.{128 + self.number}.0.1"

    @property
    def bridge(self) -> str:
        return f"gpulab{self.number}"

    def node(self, index: int) -> str:
        """The address of the lab's host number C(index)."""
        return f"10.97.{self.number}.{index + 1}"

    def pod_range(self, index: int) -> tuple[str, str]:
        """The first and the last address of that host's pods."""
        prefix = f"10.{128 + self.number}.{index + 1}"
        return f"{prefix}.1", f"{prefix}.254"

    def up(self, nodes: int) -> None:
        """Make what is missing of it on this machine."""
        for address in (self.api, *map(self.node, range(nodes))):
            run(["ip", "address", "replace", f"{address}/32", "dev", "lo"])
        if self.bridge not in _links():
            run(["ip", "link", "add", self.bridge, "type", "bridge"])
        run(["ip", "address", "replace", f"{self.gateway}/16", "dev", self.bridge])
        run(["ip", "link", "set", self.bridge, "up"])

    def down(self) -> None:
        """Remove all of it, whatever is there."""
        if self.bridge in _links():
            run(["ip", "link", "delete", self.bridge])
        own = [ipaddress.ip_network(text) for text in (self.services, self.nodes)]
        for address in _addresses("lo"):
            if any(ipaddress.ip_address(address) in network for network in own):
                run(["ip", "address", "delete", f"{address}/32", "dev", "lo"])


def free_number(given: Iterable[int]) -> int:
    """The smallest number that no lab has been given, and whose addresses this machine does not use.

    :raises LabError: there is none.
    """
    taken = set(given)
    used = [*map(ipaddress.ip_network, _routes()), *map(ipaddress.ip_network, _addresses())]
    for number in _NUMBERS:
        network = Network(number)
        own = [ipaddress.ip_network(text) for text in (network.services, network.nodes, network.pods)]
        if number not in taken and not any(part.overlaps(other) for part in own for other in used):
            return number
    raise LabError(
        "Failed to find a network for the cluster: 10.96.0.0/18, 10.97.0.0/18 and 10.128.0.0/10 are in use on this machine. "
        "Take a lab down: 'lab status'."
    )


def given_numbers() -> set[int]:
    """The numbers in the state files of all labs."""
    found = (json.loads(state.read_text(encoding="utf-8")).get("network") for state in labs().glob("*/lab.json"))
    return {number for number in found if number is not None}


def _links() -> set[str]:
    return {link["ifname"] for link in json.loads(run(["ip", "-json", "link", "show"]))}


def _addresses(device: str | None = None) -> list[str]:
    links = json.loads(run(["ip", "-json", "-4", "address", "show", *(["dev", device] if device else [])]))
    return [address["local"] for link in links for address in link.get("addr_info", []) if "local" in address]


def _routes() -> list[str]:
    found = (route["dst"] for route in json.loads(run(["ip", "-json", "-4", "route", "show"])))
    return [destination for destination in found if destination != "default"]
