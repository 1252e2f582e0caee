# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How another kernel than the one that GRUB would take is booted. Pure.

GRUB's manual: C(grub-set-default) needs C(GRUB_DEFAULT=saved). An entry for one boot (C(grub-reboot)) is taken by every C(grub.cfg) that reads
C(next_entry), whatever C(GRUB_DEFAULT) is, as the C(00_header) of GRUB 2 writes it.
"""

from __future__ import annotations

from .._adapters.boot_kernel import Grub
from .._plan import Plan, Refused, Step
from .._steps import Kind

_SAVED = "Set GRUB_DEFAULT=saved in /etc/default/grub and write GRUB's configuration again (update-grub, or grub2-mkconfig -o /boot/grub2/grub.cfg)."


def plan(grub: Grub, release: str) -> Plan:
    """Return the step that has kernel C(release) booted next; none where it is.

    :raises Refused: GRUB cannot be told.
    """
    thing = f"kernel {release}"
    if release not in grub.kernels:
        raise Refused(thing, f"it is not installed; installed are {', '.join(grub.kernels) or 'none'}")
    if grub.following == release:
        return Plan()
    if grub.default == "saved" and (grub.grubby or (grub.program and release in grub.entries)):
        return _plan(grub, Step(Kind.BOOT_KERNEL, release, "another one is booted next"))
    if not grub.program:
        raise Refused(thing, "the host has none of GRUB's programs that choose a kernel (grub-reboot, grub2-reboot)")
    if grub.boots_once and release in grub.entries:
        why = f"GRUB_DEFAULT is {grub.default}, so the boot after that takes this one again"
        return _plan(grub, Step(Kind.BOOT_KERNEL_ONCE, release, why))
    if release not in grub.entries and not grub.grubby:
        raise Refused(
            thing, "GRUB's configuration has no entry for it", "Write it again: update-grub or grub2-mkconfig."
        )
    raise Refused(
        thing, f"GRUB_DEFAULT is {grub.default}, so the entry that is saved for it would not be booted", _SAVED
    )


def _plan(grub: Grub, step: Step) -> Plan:
    return Plan((step,), {"boots_next": grub.following}, {"boots_next": step.target})
