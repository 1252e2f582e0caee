# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""By what the cluster finds the nodes of a pool: their names, a PCI device, or the labels of a group of nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._boards.cards import board_of
from ...module_utils._boards.lookup import normalize_device_id
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._plan import Refused
from .text import CONFIGURATION_LABEL, LABEL_PREFIX, POOL_LABEL, label_value

VARIABLE = "gpu_kubernetes_node_match"
_WAYS = ("boards", "pci_devices", "labels")
_DEVICE = re.compile(r"[0-9a-f]{4}")
#: The syntax of labels: kubernetes.io/docs/concepts/overview/working-with-objects/labels.
_PART = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_PART}")
_VALUE = re.compile(rf"({_PART})?")


@dataclass(frozen=True)
class NodeMatch:
    """By what the cluster finds the nodes of a pool; by the names of the inventory where nothing is set.

    :param devices: PCI device IDs, one of which a GPU of the node has.
    :param labels: of a group of nodes; whatever makes such nodes gives them these labels.
    """

    devices: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_property(self) -> bool:
        return bool(self.devices or self.labels)

    def as_dict(self) -> dict[str, Any]:
        """Return it as the variable has it, with the IDs of the boards."""
        return {"labels": dict(self.labels)} if self.labels else {"pci_devices": list(self.devices)}

    def finds(self, pool: str, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels, which the inventory may not know, belongs to C(pool)."""
        if self.labels:
            # What Node Feature Discovery labels belongs to the pool that it names.
            return CONFIGURATION_LABEL not in labels and self.labels.items() <= labels.items()
        return bool(self.devices) and labels.get(POOL_LABEL) == label_value(pool)


#: By the names of the inventory.
BY_NAME = NodeMatch()


def devices_of(gpus: Sequence[GpuFacts]) -> tuple[str, ...]:
    """Return the PCI device IDs of GPUs, in lower case without 0x: their own, and those of their boards in the table.

    All IDs of a board, so that reading a host changes no rule.
    """
    found = set(_read_ids(gpus))
    for board in map(board_of, gpus):
        found |= {_digits(device) for device in board.pci_device_ids} if board else set()
    return tuple(sorted(found - {""}))


def _read_ids(gpus: Sequence[GpuFacts]) -> list[str]:
    """Return the IDs that GPUs themselves reported."""
    return [_digits(str(gpu.device_id)) for gpu in gpus if gpu.device_id and not gpu.from_table]


def _digits(device: str) -> str:
    return (normalize_device_id(device) or "")[2:6].lower()


def read(value: Any, gpus: Sequence[GpuFacts]) -> NodeMatch:
    """Return by what the nodes of a pool whose hosts have C(gpus) are found.

    :raises Refused: it is not one of the ways, or nothing that a node can have.
    """
    if not value:
        return BY_NAME
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _WAYS:
        raise Refused(
            VARIABLE,
            f"{value!r} must be a mapping with exactly one of {', '.join(_WAYS)}",
            "Write {boards: true}, {pci_devices: ['2330']} or {labels: {KEY: VALUE}}; or {} to find the nodes by name.",
        )
    if "labels" in value:
        return NodeMatch(labels=_labels(value["labels"]))
    own = devices_of(gpus)
    if "pci_devices" in value:
        return NodeMatch(devices=_devices(value["pci_devices"], _read_ids(gpus) or own))
    if value["boards"] is not True:
        raise Refused(f"{VARIABLE}.boards", f"{value['boards']!r} must be true", "Write {} to find the nodes by name.")
    if not own:
        reason = "the table of boards does not know the PCI device ID of the pool's GPUs"
        remedy = f"Set {VARIABLE}: {{pci_devices: [ID]}}, with what lspci -n -d 10de: shows after the colon."
        raise Refused(f"{VARIABLE}.boards", reason, remedy)
    return NodeMatch(devices=own)


def _devices(given: Any, own: Sequence[str]) -> tuple[str, ...]:
    path = f"{VARIABLE}.pci_devices"
    if not isinstance(given, (list, tuple)) or not given:
        raise Refused(path, f"{given!r} must be a list", "Write ['2330'].")
    for number, device in enumerate(given):
        # YAML reads 2330 as a number and 1e30 as another one.
        if not isinstance(device, str) or not _DEVICE.fullmatch(device):
            reason = f"{device!r} must be a text of four lower-case hexadecimal digits"
            raise Refused(f"{path}[{number}]", reason, "Write it in quotes and without 0x, such as '2330'.")
    if own and not set(own) & set(given):
        reason = f"the host's own GPUs have none of {', '.join(sorted(given))}, so its node would leave the pool"
        raise Refused(path, reason, f"Add {', '.join(sorted(set(own)))}; or set {VARIABLE}: {{boards: true}}.")
    return tuple(sorted(set(given)))


def _labels(given: Any) -> dict[str, str]:
    path = f"{VARIABLE}.labels"
    if not isinstance(given, Mapping) or not given:
        raise Refused(path, f"{given!r} must be a mapping", "Write {KEY: VALUE}, as the nodes of the group have it.")
    for key, value in given.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise Refused(f"{path}.{key}", "it cannot be the key of a label", "Write it as kubectl label takes it.")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            reason = f"{value!r} cannot be the value of a label"
            raise Refused(f"{path}.{key}", reason, "Write a text of at most 63 characters; true and 1 in quotes.")
        if key.startswith(f"{LABEL_PREFIX}/"):
            reason = "labels of this prefix are set by the rendered tree"
            raise Refused(f"{path}.{key}", reason, "Use a label of the group of nodes itself.")
    return {key: given[key] for key in sorted(given)}
