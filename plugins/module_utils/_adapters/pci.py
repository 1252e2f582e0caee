# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's devices on the PCI bus, from sysfs: needs no driver and no privilege."""

from __future__ import annotations

from dataclasses import dataclass

from .files import HostFiles

PCI_DEVICES = "/sys/bus/pci/devices"
NVIDIA_VENDOR = "0x10de"

#: PCI class (its first two bytes) to what the device is for us. 0x0300 VGA controller, 0x0302 3D controller,
#: 0x0680 "other bridge", which is how NVSwitch shows itself (host.md, section 6: not verified on hardware).
_KINDS = {"0x0300": "gpu", "0x0302": "gpu", "0x0680": "nvswitch"}


@dataclass(frozen=True)
class PciDevice:
    """One device of vendor 0x10de. C(kind): C(gpu), C(nvswitch) or C(other) (audio, USB and serial functions of a card)."""

    address: str
    device_id: str
    subsystem_id: str | None
    class_id: str
    kind: str
    numa_node: int | None
    kernel_driver: str | None


def read_pci_devices(files: HostFiles) -> tuple[PciDevice, ...] | None:
    """Return NVIDIA's PCI devices in the order of their addresses, or None where sysfs shows no PCI bus."""
    if not files.is_directory(PCI_DEVICES):
        return None
    found = []
    for address in files.names(PCI_DEVICES):
        folder = f"{PCI_DEVICES}/{address}"
        if files.read(f"{folder}/vendor") != NVIDIA_VENDOR:
            continue
        class_id = files.read(f"{folder}/class") or ""
        found.append(
            PciDevice(
                address=address,
                device_id=files.read(f"{folder}/device") or "",
                subsystem_id=files.read(f"{folder}/subsystem_device"),
                class_id=class_id,
                kind=_KINDS.get(class_id[:6], "other"),
                numa_node=_numa_node(files.read(f"{folder}/numa_node")),
                kernel_driver=files.link_name(f"{folder}/driver"),
            )
        )
    return tuple(found)


def _numa_node(text: str | None) -> int | None:
    try:
        node = int(text or "-1")
    except ValueError:
        return None
    return node if node >= 0 else None
