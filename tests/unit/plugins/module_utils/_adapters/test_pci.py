# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.pci import read_pci_devices


def test_kinds_and_values(tree):
    tree.pci("0000:18:00.0", "0x2330", "0x030200")
    tree.pci("0000:19:00.0", "0x1eb8", "0x030000", driver=None)
    tree.pci("0000:05:00.0", "0x22a3", "0x068000")
    tree.pci("0000:18:00.1", "0x22bd", "0x040300", driver="snd_hda_intel")
    tree.pci("0000:00:02.0", "0x1234", "0x030000", vendor="0x1b36")

    found = read_pci_devices(tree.files)

    assert [(device["address"], device["kind"], device["kernel_driver"]) for device in found] == [
        ("0000:05:00.0", "nvswitch", "nvidia"),
        ("0000:18:00.0", "gpu", "nvidia"),
        ("0000:18:00.1", "other", "snd_hda_intel"),
        ("0000:19:00.0", "gpu", None),
    ]
    assert (found[1]["device_id"], found[1]["subsystem_id"], found[1]["class"]) == ("0x2330", "0x16c1", "0x030200")


@pytest.mark.parametrize(("text", "node"), [("0", 0), ("1", 1), ("-1", None), ("", None), ("none", None)])
def test_numa_node(tree, text, node):
    tree.pci("0000:18:00.0", "0x2330", "0x030200")
    tree.write("/sys/bus/pci/devices/0000:18:00.0/numa_node", text)
    assert read_pci_devices(tree.files)[0]["numa_node"] == node


def test_no_sysfs_is_not_the_same_as_no_gpu(tree):
    assert read_pci_devices(tree.files) is None
    tree.folder("/sys/bus/pci/devices")
    assert read_pci_devices(tree.files) == []


def test_a_device_that_fell_off_the_bus_while_reading(tree):
    # sysfs still lists the directory, its files cannot be read any more.
    tree.folder("/sys/bus/pci/devices/0000:18:00.0")
    assert read_pci_devices(tree.files) == []
