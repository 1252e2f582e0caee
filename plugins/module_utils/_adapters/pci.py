# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's devices on the PCI bus, from sysfs: needs no driver and no privilege."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from .._formats.documents import whole_number
from .files import HostFiles

PCI_DEVICES = "/sys/bus/pci/devices"
NVIDIA_VENDOR = "0x10de"
_MELLANOX_VENDOR = "0x15b3"

#: PCI class (its first two bytes) to what the device is for us. 0x0300 VGA controller, 0x0302 3D controller,
#: 0x0680 "other bridge", which is how NVSwitch shows itself (host.md, section 6: not verified on hardware).
_KINDS = {"0x0300": "gpu", "0x0302": "gpu", "0x0680": "nvswitch"}


def read_pci_devices(files: HostFiles) -> list[dict[str, Any]] | None:
    """Return NVIDIA's PCI devices in the order of their addresses, as entries of C(pci) of the facts without their boards, or None where sysfs shows
    no PCI bus. C(kind): C(gpu), C(nvswitch) or C(other) (audio, USB and serial functions of a card).
    """
    if not files.is_directory(PCI_DEVICES):
        return None
    found = []
    for address in files.names(PCI_DEVICES):
        folder = f"{PCI_DEVICES}/{address}"
        if files.read(f"{folder}/vendor") != NVIDIA_VENDOR:
            continue
        class_id = files.read(f"{folder}/class") or ""
        found.append(
            {
                "address": address,
                "device_id": files.read(f"{folder}/device") or "",
                "subsystem_id": files.read(f"{folder}/subsystem_device"),
                "class": class_id,
                "kind": _KINDS.get(class_id[:6], "other"),
                "numa_node": whole_number(files.read(f"{folder}/numa_node")),
                "kernel_driver": files.link_name(f"{folder}/driver"),
            }
        )
    return found


def switch_ports(files: HostFiles, others: Container[str | None]) -> int | None:
    """Return how many ConnectX functions lead to the management of NVLink 5 switches, or None where their vital product data cannot be read. NVIDIA's
    driver container looks for the same text below /sys/class/infiniband, which is empty without mlx5_ib (gpu-operator#2781).

    :param others: kernel drivers of functions that are not the host's own.
    """
    found, unread = 0, False
    for address in files.names(PCI_DEVICES):
        folder = f"{PCI_DEVICES}/{address}"
        if files.read(f"{folder}/vendor") != _MELLANOX_VENDOR or files.link_name(f"{folder}/driver") in others:
            continue
        data = files.read_bytes(f"{folder}/vpd")
        found += b"SW_MNG" in (data or b"")
        unread |= data is None and files.exists(f"{folder}/vpd")
    return None if unread and not found else found
