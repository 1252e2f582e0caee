# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel that is booted next, if it is not the running one, and the module of the driver that it would load."""

from __future__ import annotations

from typing import Any

from .._adapters import grub, kernel, module_signing
from .._adapters.host_reader import HostReader
from .._adapters.kernel import DiskModule

_PATH = "driver.next_kernel"


def read_next_kernel(source: HostReader, running: DiskModule | None, release: str = "") -> dict[str, Any]:
    """Return the entry C(next_kernel) of the facts; nothing where that is the running kernel, or not known.

    :param running: the module on the disk for the running kernel.
    :param release: of the kernel to read in place of the one that GRUB boots next.
    """
    if not release:
        following, reason = grub.next_kernel(source.files)
        source.note(_PATH, reason)
        release = following or ""
    if release in ("", kernel.running_kernel()):
        return {}
    disk, reason = kernel.module_on_disk(source.files, release, source.run)
    if disk is None:
        source.note(f"{_PATH}.version", reason)
        return {"next_kernel": {"release": release, "version": None}}
    found: dict[str, Any] = {"release": release, "version": disk.version, "vermagic": disk.vermagic}
    if kernel.secure_boot(source.files)[0]:
        loaded = running is not None and running.version == kernel.loaded_version(source.files)
        found.update(signer=disk.signer, key_enrolled=_key_enrolled(source, disk, running if loaded else None))
    return {"next_kernel": found}


def _key_enrolled(source: HostReader, disk: DiskModule, loaded: DiskModule | None) -> bool | None:
    """Return whether a kernel with Secure Boot takes what signed the module; None where that is not known.

    :param loaded: the module that the running kernel has loaded; None where that is not the one on the disk.
    """
    if disk.signer is None:
        return False
    if not disk.key:
        source.note(f"{_PATH}.key_enrolled", "modinfo does not show the key of the module's signature")
        return None
    if loaded is not None and loaded.key and module_signing.serial(loaded.key) == module_signing.serial(disk.key):
        # The running kernel has taken it, which includes keys that a distribution builds into all of its kernels.
        return True
    known = module_signing.enrolled_keys(source.run) if source.files.local else None
    if known is None:
        source.note(f"{_PATH}.key_enrolled", "mokutil, which lists the enrolled keys, cannot be run")
        return None
    return module_signing.serial(disk.key) in known
