# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVIDIA's device plugin leaves in the kubelet of a node that the DRA driver is to serve, and how the kubelet forgets it.

A kubelet keeps every resource that a device plugin ever registered in its checkpoint, and reports 0 of it for as long as the checkpoint is
there. The scheduler then finds the resource on the node and looks for no claim. The checkpoint has a checksum over the kubelet's own
structures, so no single entry can be taken out: the kubelet is stopped, the file removed, and the kubelet started. The plugins that run on
the node register again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .._adapters import files, systemd
from .._formats.kubelet_checkpoint import CHECKPOINT, read_checkpoint
from .._plan import Failure, Plan, Refused, Step
from .._runtimes import DISTRIBUTIONS
from .._steps import Kind

#: What runs a kubelet: itself, or the agent of k3s and RKE2. Their servers run a control plane, too.
UNITS = ("kubelet.service", *(f"{distribution.agent}.service" for distribution in DISTRIBUTIONS.values()))
NVIDIA = "nvidia.com/"
_REMEDY = "Drain the node, stop the kubelet, remove the file and start the kubelet by hand."


@dataclass(frozen=True)
class Remembered:
    """What the kubelet of a host remembers. C(held): pods and resources, as pairs of UID and name; those of pods that ended are forgotten only when
    it next gives a device.
    """

    registered: frozenset[str] = frozenset()
    held: frozenset[tuple[str, str]] = frozenset()
    unit: str = ""
    active: bool = False


def remembered(checkpoint: str | None, units: Mapping[str, systemd.Unit]) -> Remembered:
    """Return it from the text of the checkpoint, None where there is none, and the units of UNITS. Raises Refused: it is no checkpoint."""
    unit = next((name for name in UNITS if name in units and units[name].exists), "")
    active = bool(unit) and units[unit].is_active
    if checkpoint is None:
        return Remembered(unit=unit, active=active)
    found = read_checkpoint(checkpoint, _REMEDY)
    held = frozenset((entry.pod_uid, entry.resource) for entry in found.entries)
    return Remembered(found.registered, held, unit, active)


def plan(found: Remembered, pods: Collection[str], start_only: bool = False) -> Plan:
    """Return the steps after which the kubelet remembers nothing of NVIDIA's device plugin, and runs. Raises Refused: a pod still holds a device, of
    whatever vendor: the kubelet would give it to another one.
    """
    ours = {name for name in found.registered | {name for _uid, name in found.held} if name.startswith(NVIDIA)}
    if start_only or not ours:
        if not found.unit or found.active:
            return Plan()
        return Plan((Step(Kind.START_SERVICE, found.unit, "an earlier run stopped it"),))
    if not found.unit:
        reason = f"none of {', '.join(UNITS)} is on this host, and the kubelet has to be stopped while its checkpoint is removed"
        remedy = f"Stop the kubelet, remove {CHECKPOINT} and start the kubelet by hand, then run again."
        raise Refused("the kubelet", reason, remedy)
    held = sorted(name for uid, name in found.held if uid in pods)
    if held:
        raise Refused(
            CHECKPOINT,
            f"pods on this node hold devices of {', '.join(dict.fromkeys(held))}, and without the checkpoint the kubelet would give the same "
            "devices to other pods",
            "Let those pods end or drain the node, then run again.",
        )
    others = sorted(found.registered - ours)
    again = f"; the device plugins of {', '.join(others)} register again" if others else ""
    why = f"the kubelet reports 0 of {', '.join(sorted(ours))} as long as it is there{again}"
    step = Step(Kind.REMOVE_FILE, CHECKPOINT, why, data={"unit": found.unit})
    return Plan((step,), {"resources": sorted(found.registered)}, {"resources": others})


def read() -> Remembered:
    """Return what the kubelet of this host remembers. Raises Refused: its checkpoint is none."""
    return remembered(files.read_text(CHECKPOINT), systemd.units(UNITS))


def apply(planned: Plan) -> None:
    """Carry out the plan. The kubelet is started again whatever happens in between. Raises CommandError: systemd refused."""
    for step in planned.steps:
        if step.kind is Kind.START_SERVICE:
            systemd.start(step.target)
            continue
        unit = str(step.data["unit"])
        try:
            systemd.stop(unit)
            files.remove(step.target)
        finally:
            systemd.start(unit)


def read_back(planned: Plan) -> None:
    """Compare the host with what was planned. Raises Failure: the kubelet does not run, or a device plugin of NVIDIA registered again."""
    found = read()
    if not found.active:
        raise Failure(f"{found.unit or 'the kubelet'} does not run. See journalctl --unit {found.unit}")
    ours = sorted(name for name in found.registered if name.startswith(NVIDIA))
    if ours and any(step.kind is Kind.REMOVE_FILE for step in planned.steps):
        raise Failure(
            f"a device plugin registered {', '.join(ours)} again. Remove its pod from the node: kubectl get pods --field-selector "
            "spec.nodeName=NODE --all-namespaces"
        )
