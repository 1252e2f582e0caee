# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver and container toolkit of pools whose nodes C(gpufleet.nvidia.migrate) moves from the GPU Operator's containers to the hosts, or back. Pure.

While a pool is moved, its description says what its hosts are to become, and each host says what it still is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._plan import Refused

if TYPE_CHECKING:
    from ._facts_view import Facts

#: Who brings them, as the variables name the side that a pool leaves.
OPERATOR, HOST = "gpu_operator", "host"
#: By the operator's name of the operand: the variable that a pool has while it is moved.
DRIVER, TOOLKIT = "driver", "container-toolkit"
VARIABLES = {DRIVER: "nvidia_driver_migrate_from", TOOLKIT: "nvidia_toolkit_migrate_from"}
#: Where the operator puts its toolkit, in which k3s and RKE2 look before /usr/bin.
FORMER = "/usr/local/nvidia/toolkit"
#: The C(source) of its driver in the facts; the module that a container left loaded at its end is from nowhere.
OPERATORS = ("container", "outside")
#: What is said of a host that still has it from the operator.
LEFT = "the GPU Operator's container brings the {} until gpufleet.nvidia.migrate moves the node: it is left alone"


def leaves(desired: Mapping[str, Any], operand: str) -> str:
    """Return the side that the pool leaves, C(gpu_operator) or C(host); empty where it is not moved.

    :raises Refused: the description is not one of the other side.
    """
    name = VARIABLES[operand]
    side = str(desired.get(name) or "")
    if not side:
        return ""
    state, runtime = desired.get("nvidia_driver_state", "present"), desired.get("nvidia_toolkit_runtime")
    fits, wanted = {
        (DRIVER, OPERATOR): (state == "present", "nvidia_driver_state: present"),
        (DRIVER, HOST): (state == "unmanaged", "nvidia_driver_state: unmanaged"),
        (TOOLKIT, OPERATOR): (runtime != "none", "the nvidia_toolkit_runtime of the hosts"),
        (TOOLKIT, HOST): (runtime == "none", "nvidia_toolkit_runtime: none"),
    }[operand, side]
    other = next(one for one in VARIABLES.values() if one != name)
    if desired.get(other) not in (None, "", side):
        raise Refused(name, f"it is {side}, and {other} is {desired[other]}", "Move the pool one way at a time.")
    if not fits:
        found = f"nvidia_driver_state is {state}" if operand == DRIVER else f"nvidia_toolkit_runtime is {runtime}"
        raise Refused(
            name, f"it is {side}, and {found}", f"Set {wanted}, to which the pool is moved, or remove {name}."
        )
    return side


def refuse_stack(thing: str, stack: str) -> None:
    """Refuse to take the operator out of a cluster while it still brings something to some of its nodes."""
    if stack != OPERATOR:
        reason = f"gpu_kubernetes_stack is {stack}, and the nodes that are not moved yet have driver or container toolkit from the GPU Operator"
        remedy = "Set gpu_kubernetes_stack: gpu_operator until all nodes are moved and the variable is removed."
        raise Refused(thing, reason, remedy)


def of_operator(facts: Facts, operand: str) -> bool:
    """Return whether a host has it from the GPU Operator's container; a module that this left loaded at its end counts."""
    if operand == DRIVER:
        return facts.driver.source in OPERATORS
    return any(
        FORMER in (one.leftovers or ())
        or ((one.binary or "").startswith(f"{FORMER}/") and one.binary not in (one.absent or ()))
        for one in (facts.runtimes or {}).values()
    )


def is_of(program: str, side: str) -> bool:
    """Return whether a program of a container toolkit is the GPU Operator's, or the host's."""
    return program.startswith(f"{FORMER}/") is (side == OPERATOR)


def is_left(facts: Facts, desired: Mapping[str, Any], operand: str) -> bool:
    """Return whether a host is to have it of its own, and its node was not moved yet: until then nothing is done about it.

    :raises Refused: as in L(leaves).
    """
    return leaves(desired, operand) == OPERATOR and of_operator(facts, operand)
