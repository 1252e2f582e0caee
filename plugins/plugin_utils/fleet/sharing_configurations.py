# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Named configurations of the device plugin, one of which a node chooses by its label. Pure.

The plugin's config-manager reads the label: a name that its ConfigMap lacks keeps a plugin from starting, and one that runs keeps what it had
(k8s-device-plugin, C(cmd/config-manager/main.go)).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._plan import Refused
from ...module_utils._schema import mapping, needs, not_null, number, text
from ...module_utils._sharing.desired import read as read_sharing
from ...module_utils._sharing.modes import Sharing
from .capacity import Capacity, capacity, merged
from .objects import labels_of
from .served import MIGRATED_LABEL, SERVERS

CONFIGURATIONS = "gpu_kubernetes_sharing_configurations"
DEFAULT = "gpu_kubernetes_sharing_default"
CHOICE = "gpu_kubernetes_sharing_configuration"
VARIABLES = (CONFIGURATIONS, DEFAULT, CHOICE)
#: The label by which the device plugin's config-manager chooses a configuration.
LABEL = "nvidia.com/device-plugin.config"
#: The configuration that shares nothing, which every ConfigMap has.
UNSHARED = "default"

_OPTIONS = {
    "mode": "nvidia_sharing_mode",
    "replicas": "nvidia_sharing_replicas",
    "rename": "nvidia_sharing_rename",
    "gpus_per_pod": "nvidia_sharing_gpus_per_pod",
}
#: A label's value has 63 characters at most, and under a GPU Operator nine of them are a hash of the content.
_LONGEST = 54
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True)
class Named:
    """What one configuration makes of a node."""

    sharing: Sharing
    capacity: Capacity


@dataclass(frozen=True)
class Choices:
    """Between what a node can choose.

    :param named: the others that its GPUs can have, with C(default); empty where there are no named ones.
    :param default: the name of what a node without the label gets; empty for C(own).
    :param chosen: the name that the inventory gives the node; empty where it leaves that to the label.
    :param before: while the pool is migrated, what a node shows until it is moved; else None.
    """

    own: Named
    named: Mapping[str, Named] = field(default_factory=dict)
    refused: Mapping[str, Refused] = field(default_factory=dict)
    default: str = ""
    chosen: str = ""
    before: Named | None = None

    @property
    def base(self) -> Named:
        """What a node without the label shows."""
        return self.named[self.default] if self.default else self.own

    def labelled(self, node: Mapping[str, Any] | None) -> Named:
        """Return what C(node) shows by its label; by a name that is none of these it is the pool's own, or nothing that can be told."""
        labels = labels_of(node)
        if self.before and labels.get(MIGRATED_LABEL) != SERVERS[self.own.sharing.backend]:
            return self.before
        return self.effective if self.chosen else self.named.get(str(labels.get(LABEL)), self.base)

    def reverted(self, node: Mapping[str, Any] | None) -> str:
        """Return what somebody chose for C(node) by its label, and what the rendered labels make of it; empty where both agree."""
        there = str(labels_of(node).get(LABEL) or "")
        if not self.chosen or there == self.chosen or there not in self.named:
            return ""
        return f"label {LABEL}={there}: the rendered labels set it to {self.chosen} again, which the inventory chooses ({CHOICE})"

    @property
    def effective(self) -> Named:
        """What the node shows as long as nobody labels it by hand."""
        return self.named[self.chosen] if self.chosen else self.base


COUNTS, LABELS = mapping(not_null(number())), mapping(not_null(text()))


@dataclass(frozen=True)
class ShownChoice:
    """What a node shows under a configuration, as C(capacity.json) has it."""

    resources: Mapping[str, int] = needs(COUNTS)
    labels: Mapping[str, str] = needs(LABELS)
    mps_replicas: Mapping[str, int] = needs(COUNTS)


def shown(named: Named) -> ShownChoice:
    """Return what a node shows under a configuration."""
    found, of_plugin = named.capacity, named.sharing.mps_of_plugin
    replicas = {name: unit.replicas for name, unit in sorted(found.slices.items())} if of_plugin else {}
    return ShownChoice(dict(sorted(found.resources.items())), dict(sorted(found.labels.items())), replicas)


def is_name(name: str) -> bool:
    """Return whether a configuration can have this name: it is the value of a label, and a key of a ConfigMap."""
    return len(name) <= _LONGEST and bool(_NAME.fullmatch(name))


def read(desired: Mapping[str, Any], gpus: Sequence[GpuFacts]) -> Choices:
    """Return what a node with C(gpus) can choose between.

    :param desired: variables of the roles nvidia_mig, nvidia_sharing and gpu_kubernetes.
    :raises Refused: a configuration is invalid, or what is chosen is not there, or the node cannot have it.
    """
    strategy, layout = str(desired.get("nvidia_mig_strategy") or "none"), desired.get("nvidia_mig_layout")
    sharing = read_sharing(desired)
    own, before = Named(sharing, capacity(gpus, strategy, layout, sharing)), None
    if sharing.migrate_from:
        other = replace(sharing, backend=sharing.migrate_from, migrate_from="")
        before = Named(other, capacity(gpus, strategy, layout, other))
    written = _written(desired.get(CONFIGURATIONS))
    default, chosen = str(desired.get(DEFAULT) or ""), str(desired.get(CHOICE) or "")
    if not written and not chosen and not default:
        return Choices(own, before=before)
    if sharing.backend != "mps":
        for name, value in ((CHOICE, chosen), (DEFAULT, default)):
            if value:
                reason = (
                    f"{value} is a configuration of the device plugin, and nvidia_sharing_backend is {sharing.backend}"
                )
                raise Refused(name, reason, "Remove it from this pool.")
        return Choices(own, before=before)
    unshared = capacity(gpus, strategy, layout, Sharing())
    named, refused = {UNSHARED: Named(Sharing(), unshared)}, {}
    for name, options in written.items():
        path = f"{CONFIGURATIONS}.{name}"
        try:
            made = _offered(_sharing(options, desired, path), unshared, path)
            _refuse_beside(made, sharing, path)
            named[name] = Named(made, capacity(gpus, strategy, layout, made))
        except Refused as refusal:
            refused[name] = _of(refusal, path)
    for variable, name in ((CHOICE, chosen), (DEFAULT, default)):
        if name in refused:
            why = refused[name]
            reason = f"{name}: the host cannot have it ({why.thing}: {why.reason})"
            raise Refused(variable, reason, f"{why.remedy} Or choose one of {', '.join(sorted(named))}.".strip())
        if name and name not in named:
            reason = f"there is no configuration {name!r}: on a node with such a label the device plugin does not start"
            remedy = f"Choose one of {', '.join(sorted(named))}, or describe it in {CONFIGURATIONS}."
            raise Refused(variable, reason, remedy)
    return Choices(own, named, refused, default, chosen, before)


def together(found: Sequence[Choices]) -> Choices:
    """Return what hosts can choose between that the same files serve: the highest counts, and no choice of one of them."""
    first = found[0]
    named: dict[str, list[Named]] = {}
    for one in found:
        for name, item in one.named.items():
            named.setdefault(name, []).append(item)
    refused = {name: why for one in found for name, why in one.refused.items()}
    by_name = {name: _merged(items) for name, items in named.items()}
    return replace(first, own=_merged([one.own for one in found]), named=by_name, refused=refused, chosen="")


def _merged(items: Sequence[Named]) -> Named:
    return replace(items[0], capacity=merged([one.capacity for one in items]))


def _written(value: Any) -> dict[str, Mapping[str, Any]]:
    """Return the configurations as they are written, each checked as far as no host is needed for it."""
    if not isinstance(value or {}, Mapping):
        raise Refused(CONFIGURATIONS, "it must be a mapping from name to configuration", "Write {NAME: {replicas: 4}}.")
    found: dict[str, Mapping[str, Any]] = {}
    for key, options in (value or {}).items():
        name, path = str(key), f"{CONFIGURATIONS}.{key}"
        if not is_name(name):
            remedy = f"Use at most {_LONGEST} lower-case letters, digits, '-' and '.', such as a100-40gb."
            raise Refused(path, "it cannot be the value of the nodes' label and a key of a ConfigMap", remedy)
        if name == UNSHARED:
            raise Refused(path, "this name is that of the configuration that shares nothing", "Choose another name.")
        if not isinstance(options, Mapping):
            raise Refused(path, "it must be a mapping", f"Its keys are {', '.join(_OPTIONS)}.")
        unknown = sorted(str(option) for option in options if option not in _OPTIONS)
        if unknown:
            raise Refused(f"{path}.{unknown[0]}", "there is no such option", f"The options are {', '.join(_OPTIONS)}.")
        _sharing(options, {}, path)
        found[name] = options
    return found


def _sharing(options: Mapping[str, Any], desired: Mapping[str, Any], path: str) -> Sharing:
    """Return the sharing of a configuration: what it leaves open about the host is as the pool describes it."""
    mode = options.get("mode", "time_slicing")
    rest = {"nvidia_sharing_replicas": 0, "nvidia_sharing_rename": False, "nvidia_sharing_gpus_per_pod": 1}
    given = {_OPTIONS[option]: value for option, value in options.items()}
    variables = {**desired, "nvidia_sharing_memory_slice": "", **rest, **given, "nvidia_sharing_mode": mode}
    if mode != "mps":
        # What a pool that MPS shares says of its daemon is nothing to a configuration without one.
        variables = {name: value for name, value in variables.items() if not name.startswith("nvidia_sharing_mps_")}
    if mode == "none":
        variables.pop("nvidia_sharing_time_slice", None)
    try:
        return read_sharing(variables)
    except Refused as refusal:
        raise _of(refusal, path) from refusal


def _offered(sharing: Sharing, unshared: Capacity, path: str) -> Sharing:
    """Return the sharing without numbers for resources that the node does not have: one configuration may be for several layouts."""
    if not sharing.resource_replicas:
        return sharing
    mine = tuple(pair for pair in sharing.resource_replicas if pair[0] in unshared.resources)
    if not mine:
        reason = f"the node has none of {', '.join(name for name, _number in sharing.resource_replicas)}"
        raise Refused(f"{path}.replicas", reason, f"It has {', '.join(sorted(unshared.resources)) or 'none'}.")
    return replace(sharing, resource_replicas=mine)


def _refuse_beside(made: Sharing, own: Sharing, path: str) -> None:
    """MPS is a matter of the host as well: of its MPS daemon, and of the GPUs' compute mode."""
    if own.mode == "mps" and own.mps_manager == "host":
        reason = "the host's own MPS daemon serves the pool, whose GPUs nothing else can use"
        raise Refused(f"{path}.mode", reason, "Set nvidia_sharing_mps_manager: device_plugin for the pool.")
    if made.shared and (made.mode == "mps") != (own.mode == "mps"):
        reason = f"{made.mode}, and the hosts of the pool are prepared for nvidia_sharing_mode: {own.mode}"
        remedy = f"Set nvidia_sharing_mode: {'mps' if made.mode == 'mps' else 'time_slicing or none'} for the pool."
        raise Refused(f"{path}.mode", reason, remedy)


def _of(refusal: Refused, path: str) -> Refused:
    """Return a refusal that names the option of the configuration in place of the variable that it stands for."""
    if refusal.thing.startswith(CONFIGURATIONS):
        return refusal
    thing, reason, remedy = refusal.thing, refusal.reason, refusal.remedy
    for option, variable in _OPTIONS.items():
        thing = thing.replace(variable, f"{path}.{option}")
        reason, remedy = reason.replace(variable, option), remedy.replace(variable, option)
    return Refused(thing if thing.startswith(path) else f"{path}: {thing}", reason, remedy)
