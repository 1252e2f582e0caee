# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nvidia-smi's exit statuses mean, as data.

Source: host.md, section 5.2 (NVIDIA's troubleshooting page).
"""

from __future__ import annotations

from dataclasses import dataclass

from .report import LOAD_ON_DISK, Outcome, failed, passed


@dataclass(frozen=True)
class ExitStatus:
    """The meaning of an exit status and what to do about it."""

    meaning: str
    next_step: str


#: Anything but 0 is a failure. 14 is called a warning by NVIDIA, but such a board is not to be relied on.
EXIT_STATUSES = {
    2: ExitStatus("an argument was not accepted", "Install nvidia-smi of the same version as the driver"),
    3: ExitStatus("the query is not available on this board", "Check that the driver supports this board"),
    4: ExitStatus("permission was refused", "Run as root and check the owner and mode of /dev/nvidia*"),
    6: ExitStatus("a query found nothing", "Look for a GPU that is missing or lost in the kernel's log"),
    8: ExitStatus("a power cable is not connected", "Connect the board's external power cables"),
    9: ExitStatus(
        "the driver is not loaded", "Run gpufleet.nvidia.site (role nvidia_driver), or load the module nvidia"
    ),
    10: ExitStatus("the driver has an interrupt problem with a GPU", "Look for NVRM messages in the kernel's log"),
    12: ExitStatus("libnvidia-ml.so.1 was not found", "Run gpufleet.nvidia.site (role nvidia_driver)"),
    13: ExitStatus(
        "libnvidia-ml.so.1 lacks a function that nvidia-smi needs",
        "Install the library and nvidia-smi of the same version",
    ),
    14: ExitStatus("the infoROM of a board is corrupt", "Have the board replaced"),
    15: ExitStatus("a GPU has fallen off the bus", "Drain and power-cycle the host; if it recurs, replace the board"),
    255: ExitStatus("an internal error occurred", "Look for NVRM messages in the kernel's log"),
}

_MISMATCH = "driver/library version mismatch"


def judge_exit_status(rc: int, text: str) -> Outcome:
    """Return what an exit status of nvidia-smi says about the host.

    :param text: what it printed; its messages are on standard output.
    """
    if rc == 0:
        return passed("nvidia-smi ended with 0")
    said = next((line.strip() for line in text.splitlines() if line.strip()), "")
    quoted = f" ({said.rstrip('.')})" if said else ""
    if _MISMATCH in text.lower():
        return failed(
            f"nvidia-smi ended with {rc}: driver and library are of different versions{quoted}",
            LOAD_ON_DISK,
        )
    known = EXIT_STATUSES.get(rc, ExitStatus("a status that NVIDIA does not document", EXIT_STATUSES[255].next_step))
    return failed(f"nvidia-smi ended with {rc}: {known.meaning}{quoted}", known.next_step)
