# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the kernel that the host boots next has the driver, too. Pure."""

from __future__ import annotations

from .report import Evidence, Expectation, Outcome, failed, passed, skipped

_REMEDY = (
    "Build it (install the kernel's headers, then dkms autoinstall, or run gpufleet.nvidia.site), or make the running kernel the "
    "default (grub-set-default or grubby --set-default). Do not reboot before that"
)


def next_kernel(evidence: Evidence, _expectation: Expectation) -> Outcome:
    """The kernel that is booted next has the module of the driver that is on the disk for the running one."""
    driver = evidence.facts.get("driver") or {}
    found = driver.get("next_kernel")
    on_disk = driver.get("on_disk_version")
    if not found:
        return skipped("no other kernel is booted next, as far as the host's files show")
    if on_disk is None:
        return skipped("there is no driver on the disk for the running kernel")
    release, version = found.get("release"), found.get("version")
    if version is None:
        return failed(f"the kernel {release} is booted next and has no module of the driver", _REMEDY)
    if version != on_disk:
        return failed(f"the kernel {release} is booted next with driver {version}, not {on_disk}", _REMEDY)
    return passed(f"{release} has driver {version}")
