# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the MIG mode of a GPU changes, and the steps for it around those for its instances: in the order in which they are taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._boards.architectures import ARCHITECTURES
from .._plan import Step
from .._steps import Kind
from .plan import GpuPlan
from .state import devices_of, gpu_step

ON = "on"
OFF = "off"
#: The mode is as wanted, and a change of it is pending that is not.
KEEP = "keep"


@dataclass(frozen=True)
class ModeChange:
    """What happens to the mode of a GPU.

    :param mode: C(on), C(off) or C(keep) where the mode is asked for; None where it is as it should be.
    :param set_mode: whether the driver has to be asked; False when the change is pending already.
    :param needs_reset: whether the mode changes only by a reset of the GPU.
    """

    mode: str | None = None
    set_mode: bool = False
    needs_reset: bool = False


def toggle_needs_reset(architecture: str | None) -> bool:
    """Return whether the MIG mode changes only by a reset; assumed for an architecture that no source tells of."""
    known = ARCHITECTURES.get(architecture or "")
    return known is None or known.mig_toggle_needs_reset is not False


def mode_change(gpu: Mapping[str, Any], wanted: bool) -> ModeChange:
    """Return what happens to the mode of one entry of C(gpus)."""
    mode = gpu.get("mig") or {}
    current, pending = mode.get("current"), mode.get("pending")
    if current == wanted:
        return ModeChange() if pending in (None, wanted) else ModeChange(KEEP, True)
    needs_reset = toggle_needs_reset(gpu.get("architecture")) or pending == wanted
    return ModeChange(ON if wanted else OFF, pending != wanted, needs_reset)


def steps(
    gpu: Mapping[str, Any],
    plan: GpuPlan,
    change: ModeChange,
    disturbs: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
) -> tuple[Step, ...]:
    """Return what is done to one entry of C(gpus), in order.

    :param disturbs: whom the change of mode disturbs.
    :param data: what its steps say besides.
    """
    mode, details = [], {"gone": devices_of(gpu), **(data or {})}
    if change.set_mode and change.mode == KEEP:
        mode.append(gpu_step(Kind.CANCEL_MIG_CHANGE, gpu, "the mode is as wanted"))
    elif change.set_mode:
        kind = Kind.ENABLE_MIG if change.mode == ON else Kind.DISABLE_MIG
        mode.append(gpu_step(kind, gpu, f"wanted: {plan.desired}", disturbs, details))
    if change.mode in (ON, OFF) and change.needs_reset:
        why = "on this architecture the MIG mode changes by a reset"
        mode.append(gpu_step(Kind.RESET_GPU, gpu, why, disturbs, details))
    if change.mode == ON:
        return (*mode, *plan.steps(gpu))
    return (*plan.steps(gpu), *mode)
