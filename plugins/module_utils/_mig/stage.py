# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG stage of C(site): what it would do on a host, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._plan import REBOOT_NEEDED, Refused, StagePlan, Step, awaited_reboot
from .._steps import Kind, gpu_title
from .._users import names, users_of
from .desired import desired_layout
from .mode import mode_change
from .mode import steps as mode_steps
from .model import DesiredGpu
from .nodes import NodeGpu, NodePlan, plan_node
from .plan import DISRUPTIONS, REFUSE
from .record import Unreadable, match, placed, read_recorded_layout
from .selection import normalize_address
from .state import board_of, gpu_step, instances_of, profiles_of, why_no_reset

STAGE = "mig"


def stage(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do.

    :param facts: the facts document.
    :param desired: the variables of the role, under their full names.
    """
    layout = desired.get("nvidia_mig_layout")
    strategy = str(desired.get("nvidia_mig_strategy") or "none")
    disruption = str(desired.get("nvidia_mig_disruption") or REFUSE)
    live = bool((facts.get("nvml") or {}).get("available")) and bool(facts.get("gpus"))
    gpus = gpus_with_pci(facts) if live else gpus_without_driver(facts)
    try:
        if disruption not in DISRUPTIONS:
            raise Refused(
                "nvidia_mig_disruption", f"{disruption!r} is not a disruption policy", f"Use {', '.join(DISRUPTIONS)}."
            )
        found = desired_layout(layout, strategy, gpus, disruption=disruption)
        if not layout:
            return _undescribed(facts, gpus, strategy, desired)
        if not live:
            return _without_driver(facts, gpus, found.gpus)
        plan = plan_node(_node_gpus(gpus), found.gpus, disruption)
    except Refused as refused:
        return StagePlan(STAGE, needed=True, refusals=(refused,))
    return _with_driver(facts, gpus, desired, found.gpus, found.unselected, plan)


def _undescribed(
    facts: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], strategy: str, desired: Mapping[str, Any]
) -> StagePlan:
    """Plan for MIG that no layout describes: the device plugin 0.19 (C(internal/rm)) takes no notice of MIG under C(none)."""
    divided = [str(gpu["index"]) for gpu in gpus if (gpu.get("mig") or {}).get("current")]
    if strategy != "none" or not divided:
        return StagePlan(STAGE, needed=False)
    found = Refused(
        "nvidia_mig_strategy",
        f"MIG is on for GPU {', '.join(divided)}, and with none a Kubernetes cluster would offer these as whole GPUs, which no CUDA program can use",
        "Set nvidia_mig_layout to [{devices: all, enabled: false}], which turns MIG off, or nvidia_mig_strategy to single or mixed.",
    )
    # Without a kubelet nobody offers them, and the DRA driver may make the instances itself.
    offered = (facts.get("kubelet") or {}).get("installed") and desired.get("nvidia_sharing_backend") != "dra"
    if offered:
        raise found
    return StagePlan(STAGE, needed=False, warnings=(found.message.rstrip("."),))


def gpus_with_pci(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return C(gpus) of the facts with C(device_id) and C(subsystem_id) of the same card in C(pci)."""
    by_address = {normalize_address(str(card.get("address"))): card for card in facts.get("pci") or ()}
    found = []
    for gpu in facts.get("gpus") or ():
        card = by_address.get(normalize_address(str(gpu.get("pci_address"))), {})
        known = {key: card[key] for key in ("device_id", "subsystem_id") if card.get(key)}
        found.append({**known, **gpu})
    return found


def gpus_without_driver(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the GPUs of a host without a driver, from C(pci), as the entries of C(gpus) that they will be.

    NVML numbers GPUs by their PCI address. A product name is set only where a board has a single one.
    """
    cards = [card for card in facts.get("pci") or () if card.get("kind") == "gpu"]
    found = []
    for index, card in enumerate(sorted(cards, key=lambda card: str(card.get("address")))):
        board = board_of(card)
        names = board.product_names if board is not None else ()
        found.append(
            {
                "index": index,
                "pci_address": card.get("address"),
                "device_id": card.get("device_id"),
                "subsystem_id": card.get("subsystem_id"),
                "board": board.key if board is not None else None,
                "name": names[0] if len(names) == 1 else None,
            }
        )
    return found


def _without_driver(
    facts: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], found: Mapping[int, DesiredGpu]
) -> StagePlan:
    strangers = [gpu_title(gpu) for gpu in gpus if board_of(gpu) is None]
    if not found and not strangers:
        return StagePlan(STAGE, needed=False)
    if not found:
        why = f"{', '.join(strangers)}: not in the table of boards; only its driver can say whether it has MIG"
        return StagePlan(STAGE, needed=True, unknown=why)
    reason = (facts.get("nvml") or {}).get("reason") or "no driver is loaded"
    steps = tuple(
        gpu_step(Kind.PARTITION_GPU, gpu, f"wanted: {found[int(gpu['index'])]}", (), found[int(gpu["index"])].as_dict())
        for gpu in gpus
        if int(gpu["index"]) in found
    )
    return StagePlan(STAGE, needed=True, steps=steps, unknown=f"the present instances are not known: {reason}")


def _node_gpus(gpus: Sequence[Mapping[str, Any]]) -> list[NodeGpu]:
    return [
        NodeGpu(
            index=int(gpu["index"]),
            profiles=profiles_of(gpu),
            current=instances_of(gpu),
            enabled=(gpu.get("mig") or {}).get("current"),
            busy=names(users_of(gpu).everybody),
        )
        for gpu in gpus
    ]


def _with_driver(
    facts: Mapping[str, Any],
    gpus: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    found: Mapping[int, DesiredGpu],
    unselected: Sequence[int],
    plan: NodePlan,
) -> StagePlan:
    steps: list[Step] = []
    for gpu in gpus:
        index = int(gpu["index"])
        if index not in plan.gpus:
            continue
        toggle = mode_change(gpu, found[index].enabled)
        disturbed, data = names(users_of(gpu).everybody), {}
        obstacles = why_no_reset(facts, gpu, variables) if toggle.needs_reset else ()
        if obstacles:
            reboot = awaited_reboot(obstacles, bool(variables.get("nvidia_mig_reboot")), "nvidia_mig_reboot")
            disturbed, data = (*disturbed, reboot), {"reboot": REBOOT_NEEDED}
        steps += mode_steps(gpu, plan.gpus[index], toggle, disturbs=disturbed, data=data)
    unknown = [
        f"{gpu_title(gpu)}: {plan.gpus[int(gpu['index'])].unknown}"
        for gpu in gpus
        if int(gpu["index"]) in plan.gpus and plan.gpus[int(gpu["index"])].unknown
    ]
    warnings = [refused.message for refused in plan.left_alone.values()]
    if unselected and found:
        listed = ", ".join(str(index) for index in unselected)
        warnings.append(f"nvidia_mig_layout does not change GPU {listed}")
    empty = [str(index) for index, one in found.items() if one.enabled and not one.instances]
    if empty:
        warnings.append(f"MIG is on without instances on GPU {', '.join(empty)}, which is then not offered to any pod")
    if plan.left_alone:
        waiting = ", ".join(map(str, plan.left_alone))
        unknown.append(
            f"GPU {waiting} keeps what it has for as long as it is in use (nvidia_mig_disruption: idle_only)"
        )
    selected = [gpu for gpu in gpus if int(gpu["index"]) in found]
    needed = bool(steps or unknown)
    if not needed and variables.get("nvidia_mig_restore", True) and not _recorded(facts, selected):
        needed = True
        steps.append(
            Step(Kind.RECORD_LAYOUT, "/etc/gpufleet/mig.json", "the present layout is not the one restored at boot")
        )
    if not needed and (facts.get("recorded") or {}).get("mig_unfinished"):
        needed = True
        steps.append(Step(Kind.FINISH_MIG_CHANGE, "mig", "it was cut off before its end"))
    return StagePlan(
        STAGE,
        needed=needed,
        steps=tuple(steps),
        unknown="; ".join(unknown) or None,
        warnings=tuple(warnings),
    )


def _recorded(facts: Mapping[str, Any], selected: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether what is restored at boot is what the selected GPUs have now."""
    try:
        records = read_recorded_layout((facts.get("recorded") or {}).get("mig"))
    except Unreadable:
        return False
    for gpu in selected:
        record = match(records, gpu.get("uuid"), gpu.get("pci_address"), gpu.get("name"))
        if record is None or record.mig != (gpu.get("mig") or {}).get("current"):
            return False
        if record.instances != placed(instances_of(gpu)):
            return False
    return True
