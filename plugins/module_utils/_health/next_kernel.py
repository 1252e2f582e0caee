# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the kernel that the host boots next has the driver, too. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .report import Evidence, Outcome, failed, passed, skipped

_KEEP = "or make the running kernel the default (grub-set-default or grubby --set-default)"
_BUILD = f"Build it (install the kernel's headers, then dkms autoinstall, or run gpufleet.nvidia.site), {_KEEP}"
# dkms install does not sign a module anew that is built already, not even with --force.
_SIGN = (
    "Enrol the key (mokutil --import) or build the module again with the one that is enrolled (dkms build --force, then dkms install --force), "
    f"{_KEEP}"
)
_SHOW = f"Install the packages mokutil and kmod, which show it, {_KEEP}"


def module_problem(driver: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return why the kernel that is booted next could not load the driver that the running one has on the disk, and the remedy.

    :param driver: the part C(driver) of the facts.
    :returns: None where it can, where the running kernel is booted next, and where there is no driver on the disk.
    """
    found, on_disk = driver.get("next_kernel"), driver.get("on_disk_version")
    if not found or on_disk is None:
        return None
    release, version, built_for = found.get("release"), found.get("version"), found.get("vermagic")
    if version is None:
        return f"the kernel {release} is booted next and has no module of the driver", _BUILD
    if version != on_disk:
        return f"the kernel {release} is booted next with driver {version}, not {on_disk}", _BUILD
    if built_for is not None and built_for != release:
        return f"the kernel {release} is booted next, and its module of the driver was built for {built_for}", _BUILD
    if "key_enrolled" not in found or found["key_enrolled"]:
        return None
    module = f"the kernel {release} is booted next, Secure Boot is on, and its module of the driver"
    if found.get("signer") is None:
        return f"{module} is not signed", _SIGN
    if found["key_enrolled"] is None:
        return f"{module} is signed with a key of which is not known whether it is enrolled", _SHOW
    return f"{module} is signed with the key of {found['signer'] or 'an unnamed signer'}, which is not enrolled", _SIGN


def next_kernel(evidence: Evidence) -> Outcome:
    """The kernel that is booted next can load the module of the driver that is on the disk for the running one."""
    driver = evidence.facts.get("driver") or {}
    found = driver.get("next_kernel")
    if not found:
        return skipped("no other kernel is booted next, as far as the host's files show")
    if driver.get("on_disk_version") is None:
        return skipped("there is no driver on the disk for the running kernel")
    problem = module_problem(driver)
    if problem:
        reason, remedy = problem
        return failed(reason, f"{remedy}. Do not reboot before that")
    return passed(f"{found.get('release')} has driver {found.get('version')}")
