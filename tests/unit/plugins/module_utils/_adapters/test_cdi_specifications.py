# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.cdi_specifications import (
    compare,
    parse_specification,
    read_cdi,
)

# As nvidia-ctk writes it: keys sorted, the name after the edits.
GENERATED = """---
cdiVersion: 0.5.0
containerEdits:
    deviceNodes:
        - path: /dev/nvidiactl
    env:
        - NVIDIA_VISIBLE_DEVICES=void
    hooks:
        - args:
            - nvidia-cdi-hook
          hookName: createContainer
          name: not-a-device
devices:
    - containerEdits:
        deviceNodes:
            - name: not-a-device-either
              path: /dev/nvidia0
      name: "0"
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
      name: GPU-0
    - name: all
      containerEdits: {}
kind: nvidia.com/gpu
"""
COMPACT = """cdiVersion: "0.7.0"
kind: "nvidia.com/gpu"
# a comment
devices:
- name: "0:0"
  containerEdits:
    deviceNodes:
    - path: "/dev/nvidia0"
- name: "0:1"
  containerEdits:
    deviceNodes:
    - path: "/dev/nvidia0"
"""


def test_yaml_as_generators_write_it():
    found = parse_specification("/x.yaml", GENERATED)
    assert (found.kind, found.version, found.devices) == ("nvidia.com/gpu", "0.5.0", ("0", "GPU-0", "all"))


def test_yaml_with_items_at_the_margin():
    found = parse_specification("/x.yaml", COMPACT)
    assert (found.kind, found.version, found.devices) == ("nvidia.com/gpu", "0.7.0", ("0:0", "0:1"))


def test_json():
    text = '{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}]}'
    assert parse_specification("/x.json", text).devices == ("0", "all")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/x.json", "{"),
        ("/x.json", "[]"),
        ("/x.yaml", "just text"),
        ("/x.yaml", "devices: []\n"),
        ("/x.yaml", "kind: x\ndevices:\n    name: 1\n"),
    ],
)
def test_what_is_no_specification(path, text):
    with pytest.raises(ValueError):
        parse_specification(path, text)


def whole(index):
    return {"index": index, "uuid": f"GPU-{index}", "mig": {"current": False}, "gpu_instances": []}


def divided(index, count):
    compute = [{"uuid": f"MIG-{index}{i}", "index": i} for i in range(count)]
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "mig": {"current": True},
        "gpu_instances": [{"compute_instances": [one]} for one in compute],
    }


@pytest.mark.parametrize(
    ("devices", "gpus", "missing", "stale"),
    [
        (["0", "1", "all"], [whole(0), whole(1)], [], []),
        (["GPU-0", "GPU-1"], [whole(0), whole(1)], [], []),
        (["0"], [whole(0), whole(1)], ["GPU-1"], []),
        (["0", "GPU-9"], [whole(0)], [], ["GPU-9"]),
        (["0:0", "0:1"], [divided(0, 2)], [], []),
        (["MIG-00", "MIG-01"], [divided(0, 2)], [], []),
        (["0:0"], [divided(0, 2)], ["MIG-01"], []),
        # After a repartition the old instances are still named.
        (["0:0", "0:1", "0:2", "MIG-99"], [divided(0, 2)], [], ["0:2", "MIG-99"]),
        # MIG was switched off: the instances are gone, the GPU itself is missing.
        (["0:0"], [whole(0)], ["GPU-0"], ["0:0"]),
        (["0", "GPU-0"], [divided(0, 1)], ["MIG-00"], []),
        (["custom-name", "0"], [whole(0)], [], []),
        ([], [], [], []),
    ],
)
def test_compare(devices, gpus, missing, stale):
    assert compare(devices, gpus) == (missing, stale)


def test_a_host(tree):
    tree.write("/run/cdi/nvidia.yaml", GENERATED)
    tree.link("/var/run", "/run")
    tree.write("/etc/cdi/other.json", '{"cdiVersion": "0.6.0", "kind": "vendor.com/nic", "devices": []}')
    tree.write("/etc/cdi/broken.json", "{")
    tree.write("/etc/cdi/README", "")
    source = tree.source()

    found = read_cdi(source, [whole(0), whole(1)])

    assert found == [
        {"path": "/etc/cdi/broken.json", "kind": None, "devices": None, "version": None},
        {"path": "/etc/cdi/other.json", "kind": "vendor.com/nic", "devices": 0, "version": "0.6.0"},
        {
            "path": "/var/run/cdi/nvidia.yaml",
            "kind": "nvidia.com/gpu",
            "devices": 3,
            "version": "0.5.0",
            "missing": ["GPU-1"],
            "stale": [],
        },
    ]
    assert list(source.unknown) == ["cdi[0].kind"]


def test_nothing_is_compared_without_nvml(tree):
    tree.write("/etc/cdi/nvidia.yaml", GENERATED)
    assert "missing" not in read_cdi(tree.source(), None)[0]


def test_a_specification_that_may_not_be_read(tree):
    tree.folder("/etc/cdi/nvidia.yaml")
    source = tree.source()
    assert read_cdi(source, None)[0]["kind"] is None
    assert "it cannot be read" in source.unknown["cdi[0].kind"]
