# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.cdi_generator import CONTROL_NODES, read_cdi
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.cdi import (
    ExpectedDevices,
    compare,
    parse_specification,
    shape_specification,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.cdi_state import (
    CdiState,
    cdi_of,
    specifications,
    state_of,
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
        ("/x.json", '{"kind": "nvidia.com/gpu", "devices": [1]}'),
        ("/x.json", '{"kind": "nvidia.com/gpu", "devices": {"name": "0"}}'),
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


DRIVER = "580.178.04"
#: As nvidia-ctk 1.19 and newer writes it.
WITH_DRIVER = f"""---
cdiVersion: 0.7.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              major: 195
              permissions: rwm
containerEdits:
    deviceNodes:
        - path: /dev/nvidiactl
          major: 195
        - fileMode: 438
          major: 510
          path: /dev/nvidia-uvm
        - path: /dev/nvidia-uvm-tools
          major: 510
    hooks:
        - hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
    mounts:
        - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}
          containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}
        - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1.1.13
          containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1.1.13
"""
AS_JSON = (
    '{"cdiVersion": "0.7.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": null}], "containerEdits": {"deviceNodes": '
    '[{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm", "major": 510}, {"path": "/dev/nvidia-uvm-tools"}, 7], '
    f'"mounts": [{{"hostPath": "/usr/lib64/libcuda.so.{DRIVER}"}}]}}}}'
)
NODES = {"/dev/nvidiactl": 195, "/dev/nvidia-uvm": 510, "/dev/nvidia-uvm-tools": 510}


def test_device_nodes_are_read_with_their_major_numbers():
    assert parse_specification("/x.yaml", WITH_DRIVER).nodes == {"/dev/nvidia0": 195, **NODES}
    assert parse_specification("/x.yaml", GENERATED).nodes == {"/dev/nvidiactl": None, "/dev/nvidia0": None}


@pytest.mark.parametrize(
    ("driver", "nodes", "differs"),
    [
        (DRIVER, NODES, []),
        (None, NODES, []),
        ("595.91.07", NODES, [f"mounts libraries of driver {DRIVER}, but 595.91.07 is loaded"]),
        (
            DRIVER,
            {**NODES, "/dev/nvidia-uvm": 511},
            ["gives /dev/nvidia-uvm the major number 510, but it is 511"],
        ),
        (DRIVER, {**NODES, "/dev/nvidia-uvm": None}, ["lacks /dev/nvidia-uvm"]),
        (DRIVER, {**NODES, "/dev/nvidia-other": 7}, ["lacks /dev/nvidia-other"]),
    ],
)
@pytest.mark.parametrize(("path", "text"), [("/x.yaml", WITH_DRIVER), ("/x.json", AS_JSON)])
def test_what_is_in_a_specification_is_compared_with_the_driver(path, text, driver, nodes, differs):
    found = shape_specification(parse_specification(path, text), True, ExpectedDevices([whole(0)], driver, nodes))
    assert (found["missing"], found["stale"], found["differs"]) == ([], [], differs)
    # Another file need not name what the collection's own does.
    other = shape_specification(parse_specification(path, text), False, ExpectedDevices([whole(0)], driver, nodes))
    assert other["differs"] == [text for text in differs if not text.startswith("lacks")]


OWN = {
    "path": "/var/run/cdi/nvidia.yaml",
    "kind": "nvidia.com/gpu",
    "missing": [],
    "stale": [],
    "differs": [],
    "own": True,
}
OTHER = {**OWN, "path": "/etc/cdi/nvidia.yaml", "own": False}


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ([], CdiState("there is none")),
        ([OWN], CdiState()),
        ([OWN, OTHER], CdiState()),
        ([{**OWN, "missing": ["GPU-1"]}], CdiState("/var/run/cdi/nvidia.yaml describes other devices")),
        ([{**OWN, "differs": ["lacks /dev/x"]}], CdiState("/var/run/cdi/nvidia.yaml lacks /dev/x")),
        ([{**OWN, "kind": None}], CdiState("/var/run/cdi/nvidia.yaml cannot be read")),
        # Set up as NVIDIA's guide once said: right until something changes, and then moved out of the way of the one that is kept.
        ([OTHER], CdiState()),
        ([{**OTHER, "missing": ["GPU-1"]}], CdiState("there is none")),
        ([{**OTHER, "stale": ["0"]}], CdiState("there is none", ("/etc/cdi/nvidia.yaml",))),
        ([OWN, {**OTHER, "stale": ["0"]}], CdiState("", ("/etc/cdi/nvidia.yaml",))),
        ([OWN, {**OTHER, "differs": ["is old"]}], CdiState("", ("/etc/cdi/nvidia.yaml",))),
        ([OWN, {**OTHER, "kind": None}], CdiState("", unreadable=("/etc/cdi/nvidia.yaml",))),
        ([OWN, {**OTHER, "kind": "vendor.com/nic", "stale": ["0"]}], CdiState()),
        # Of an earlier release.
        ([{"path": "/var/run/cdi/nvidia.yaml", "kind": "nvidia.com/gpu", "missing": [], "stale": []}], CdiState()),
    ],
)
def test_the_state_of_a_host(files, state):
    assert state_of(specifications(files)) == state
    assert cdi_of(view_of({"cdi": files, "gpus": [{"index": 0}]})) == state
    assert cdi_of(view_of({"cdi": files, "gpus": None})) == CdiState()


@pytest.mark.parametrize("found", ["missing", "stale"])
def test_devices_that_come_after_the_boot_without_the_hosts_doing_are_not_compared(found):
    """The GPU Operator's MIG manager makes them once C(nvidia-cdi-refresh) has run; what else the file says still counts."""
    divided_gpu = {"index": 0, "mig": {"current": True, "pending": True}}
    document = {"cdi": [{**OWN, found: ["MIG-1"]}], "gpus": [divided_gpu], "kubelet": {"installed": True}}
    assert cdi_of(view_of(document)) == CdiState()
    for theirs in (
        {"recorded": {"mig": {"schema": 1}}},
        {"kubelet": {"installed": False}},
        {"gpus": [{"index": 0, "mig": {"current": False, "pending": False}}]},
    ):
        assert cdi_of(view_of({**document, **theirs})).stale == "/var/run/cdi/nvidia.yaml describes other devices"
    document["cdi"][0]["differs"] = ["is of driver 1"]
    assert cdi_of(view_of(document)).stale == "/var/run/cdi/nvidia.yaml is of driver 1"


def test_a_file_from_before_mig_is_a_leftover_and_names_of_a_sites_own_are_not():
    def entry(*devices):
        found = parse_specification("/x.yaml", GENERATED)
        return shape_specification(dataclasses.replace(found, devices=devices), False, ExpectedDevices([divided(0, 2)]))

    assert state_of(specifications([OWN, entry("0", "GPU-0", "all")])).leftovers == ("/x.yaml",)
    assert state_of(specifications([OWN, entry("first-half", "all")])).leftovers == ()


HOOKS_YAML = f"""{WITH_DRIVER}    hooks:
        - hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
          args:
            - nvidia-cdi-hook
            - create-symlinks
            - --link
            - ../libnvidia-allocator.so.1::/usr/lib/gbm/nvidia-drm_gbm.so
          env:
            - NVIDIA_CTK_DEBUG=false
        - args:
            - update-ldcache
          hookName: createContainer
          path: /usr/bin/nvidia-cdi-hook
"""
HOOKS_JSON = AS_JSON.replace(
    '"mounts":',
    '"hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": []}, 7], "mounts":',
)


@pytest.mark.parametrize(("name", "text"), [("nvidia.yaml", HOOKS_YAML), ("nvidia.json", HOOKS_JSON)])
@pytest.mark.parametrize("folder", ["/var/run/cdi", "/etc/cdi"])
def test_a_hook_that_the_host_does_not_have_is_named(tree, folder, name, text):
    """nvidia-ctk writes the path of its hook, and ends well, where it has not found one; then no container with a GPU starts."""
    assert parse_specification(f"/{name}", text).hooks == ("/usr/bin/nvidia-cdi-hook",)
    assert "/usr/bin/nvidia-cdi-hook" not in parse_specification(f"/{name}", text).nodes
    tree.write(f"{folder}/{name}", text)
    tree.write(
        "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env", f"NVIDIA_CTK_CDI_OUTPUT_FILE_PATH={folder}/{name}\n"
    )
    said = "runs /usr/bin/nvidia-cdi-hook, which the host does not have"
    (found,) = read_cdi(tree.source(), [whole(0)], DRIVER)
    assert said in found["differs"] and said in state_of(specifications([found])).stale
    tree.write("/usr/bin/nvidia-cdi-hook", "")
    (found,) = read_cdi(tree.source(), [whole(0)], DRIVER)
    assert said not in found["differs"]


def test_a_host(tree):
    tree.write("/run/cdi/nvidia.yaml", GENERATED)
    tree.link("/var/run", "/run")
    tree.write("/etc/cdi/other.json", '{"cdiVersion": "0.6.0", "kind": "vendor.com/nic", "devices": []}')
    tree.write("/etc/cdi/broken.json", "{")
    tree.write("/etc/cdi/README", "")
    source = tree.source()

    found = read_cdi(source, [whole(0), whole(1)], None)

    assert found == [
        {"path": "/etc/cdi/broken.json", "kind": None, "devices": None, "version": None, "own": False},
        {"path": "/etc/cdi/other.json", "kind": "vendor.com/nic", "devices": 0, "version": "0.6.0", "own": False},
        {
            "path": "/var/run/cdi/nvidia.yaml",
            "kind": "nvidia.com/gpu",
            "devices": 3,
            "version": "0.5.0",
            "missing": ["GPU-1"],
            "stale": [],
            "differs": [f"lacks {', '.join(CONTROL_NODES)}"],
            "own": True,
        },
    ]
    assert list(source.unknown) == ["cdi[0].kind"]


@pytest.mark.parametrize("path", ["/etc/cdi/nvidia.yaml", "/run/cdi/nvidia.json", "/srv/nvidia.yaml"])
def test_the_collections_own_is_where_the_site_has_it_written(tree, path):
    tree.link("/var/run", "/run")
    tree.write(path, AS_JSON if path.endswith(".json") else GENERATED)
    tree.write("/etc/cdi/old.yaml", GENERATED)
    tree.write(
        "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env", f"# here\nNVIDIA_CTK_CDI_OUTPUT_FILE_PATH='{path}'\n"
    )
    found = read_cdi(tree.source(), [whole(0)], None)
    assert [one["path"].replace("/var/run", "/run") for one in found if one["own"]] == [path]
    assert len(found) == 2


def test_nothing_is_compared_without_nvml(tree):
    tree.write("/etc/cdi/nvidia.yaml", GENERATED)
    assert "missing" not in read_cdi(tree.source(), None, None)[0]


def test_a_specification_that_may_not_be_read(tree):
    tree.folder("/etc/cdi/nvidia.yaml")
    source = tree.source()
    assert read_cdi(source, None, None)[0]["kind"] is None
    assert "it cannot be read" in source.unknown["cdi[0].kind"]


def test_of_two_files_of_one_folder_with_the_same_devices_runtimes_take_neither(tree):
    """The collection's own stays, or else the first that is right; a file of another folder is in nobody's way."""
    for name in ("/var/run/cdi/nvidia.yaml", "/var/run/cdi/copy.yaml", "/etc/cdi/nvidia.yaml"):
        tree.write(name, WITH_DRIVER)
    tree.program("/usr/bin/nvidia-cdi-hook")
    found = {one["path"]: one for one in read_cdi(tree.source(), [whole(0)], DRIVER)}
    assert found["/var/run/cdi/copy.yaml"]["double"] == "/var/run/cdi/nvidia.yaml"
    assert [path for path, one in found.items() if "double" in one] == ["/var/run/cdi/copy.yaml"]
    assert state_of(specifications(list(found.values()))).doubles == ("/var/run/cdi/copy.yaml",)
    check_facts({"schema": 1, "cdi": list(found.values())})


def test_the_folders_that_a_runtime_reads_are_read(tree):
    tree.write("/srv/cdi/old.yaml", GENERATED)
    assert read_cdi(tree.source(), [whole(0)], None) == []
    (found,) = read_cdi(tree.source(), [whole(0)], None, ["/srv/cdi"])
    assert (found["path"], found["own"]) == ("/srv/cdi/old.yaml", False)
