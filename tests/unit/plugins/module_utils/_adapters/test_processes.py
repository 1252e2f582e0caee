# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import processes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import (
    EVERY_GPU,
    add_allocations,
    device_holders,
    parse_cgroup,
    program_processes,
    read_allocations,
    unit_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.kubelet_checkpoint import CHECKPOINT, CLAIMS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import named, names, users_of
from hypothesis import strategies as some

from ....mutation import examples_of, property_of

POD = "8e0f1c0e-2f5a-4a53-9c0b-1b0f6f7f8a91"
CONTAINER = "a3" * 32
PLACE = {"profile": "1g.10gb", "start": 0, "size": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
            (POD, CONTAINER),
        ),
        (f"0::/kubepods/besteffort/pod{POD}/{CONTAINER}", (POD, CONTAINER)),
        (f"0::/system.slice/docker-{CONTAINER}.scope", (None, CONTAINER)),
        (f"12:devices:/kubepods/pod{POD}/{CONTAINER}\n1:name=systemd:/x", (POD, CONTAINER)),
        ("0::/system.slice/nvidia-persistenced.service", (None, None)),
        ("", (None, None)),
    ],
)
def test_cgroup(text, expected):
    assert parse_cgroup(text) == expected


def test_holders_of_device_files(tree):
    tree.process(812, ["/usr/bin/python3", "train.py"], devices=("/dev/nvidia0", "/dev/nvidiactl", "/dev/null"))
    tree.process(900, ["/bin/sh"], devices=("/dev/pts/0", "socket:[1]"))
    tree.process(901, ["dcgm"], devices=("/dev/nvidia1",), cgroup=f"0::/kubepods/pod{POD}/{CONTAINER}")
    tree.write("/proc/sys/x", "no process")

    scan = device_holders(tree.files)

    assert [(holder["pid"], holder["devices"]) for holder in scan.holders] == [
        (812, ["/dev/nvidia0", "/dev/nvidiactl"]),
        (901, ["/dev/nvidia1"]),
    ]
    assert scan.holders[0]["command"] == "python3"
    assert scan.holders[0]["command_line"] == "/usr/bin/python3 train.py"
    assert (scan.holders[1]["pod_uid"], scan.holders[1]["container_id"]) == (POD, CONTAINER)
    assert scan.hidden == 0
    assert [holder["pid"] for holder in device_holders(tree.files, "/dev/nvidia1").holders] == [901]


def test_holders_of_one_of_many_gpus(tree):
    tree.process(812, ["a"], devices=("/dev/nvidia1", "/dev/nvidiactl"))
    tree.process(813, ["b"], devices=("/dev/nvidia10", "/dev/nvidiactl"))
    assert [holder["pid"] for holder in device_holders(tree.files, "/dev/nvidia1").holders] == [812]


def test_devices_that_a_container_has_below_another_directory(tree, monkeypatch):
    """As a monitor's that mounts the host's / at /host: seen on a real node. A file of such a name is no device."""
    tree.process(812, ["monitor"], devices=("/host/dev/nvidia0",))
    tree.process(813, ["backup"], devices=("/srv/dev/nvidia0",))
    real = os.stat

    def status(path):
        character = "812" in str(path)
        return os.stat_result(((stat.S_IFCHR if character else stat.S_IFREG) | 0o666, *real("/")[1:]))

    monkeypatch.setattr(os, "stat", status)
    assert [(holder["pid"], holder["devices"]) for holder in device_holders(tree.files).holders] == [
        (812, ["/dev/nvidia0"])
    ]


def test_processes_that_end_while_they_are_read(tree, monkeypatch):
    tree.process(812, ["a"], devices=("/dev/nvidia0",))
    tree.process(813, ["b"], devices=("/dev/nvidia0",))
    real = os.listdir

    def listdir(path):
        if path.endswith("812/fd"):
            raise FileNotFoundError(path)
        return ["0", "77"] if path.endswith("813/fd") else real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert [holder["pid"] for holder in device_holders(tree.files).holders] == [813]


def test_processes_of_others_are_counted(tree, monkeypatch):
    tree.process(812, ["a"], devices=("/dev/nvidia0",))
    real = os.listdir

    def listdir(path):
        if path.endswith("/fd"):
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    scan = device_holders(tree.files)
    assert (scan.holders, scan.hidden) == ((), 1)


def test_a_device_that_another_process_holds_and_this_one(monkeypatch):
    # The real /proc. NVML opens devices in this process too, which is no user of them.
    monkeypatch.setattr(processes, "_DEVICE", "/dev/null")
    with open("/dev/null", "rb") as opened, subprocess.Popen(["sleep", "60"], stdin=opened) as sleeping:
        found = [holder["pid"] for holder in device_holders(HostFiles()).holders]
        sleeping.kill()
    assert sleeping.pid in found and os.getpid() not in found


def test_programs_are_found_by_their_file(tree):
    tree.process(1, ["/sbin/init"])
    tree.link("/proc/self/ns/mnt", "mnt:[1]")
    tree.process(900, ["nvidia-cuda-mps-control", "-d"], environment={"A": "b=c"})
    tree.process(910, ["/usr/bin/nvidia-cuda-mps-server"], parent=900, namespace="mnt:[2]")
    tree.process(911, ["/usr/bin/nvidia-cuda-mps-something"])  # the same first 15 characters
    tree.write("/proc/912/comm", "nvidia-cuda-mps\n")  # a zombie: no command line

    found = program_processes(tree.files, "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")

    assert [(process.pid, process.parent, process.foreign) for process in found] == [(900, 1, False), (910, 900, True)]
    assert found[0].environment == {"A": "b=c"}
    assert found[1].environment is None
    assert found[0].unit is None
    assert found[0].user == os.getuid()


@pytest.mark.parametrize(
    ("cgroup", "service"),
    [
        # Version 2, with the slice of a template; version 1; both, in a systemd-nspawn container; a container of systemd's driver, of
        # cgroupfs, and a user's session.
        ("9:name=systemd:/../..\n8:pids:/\n0::/system.slice/gpufleet-mps@node.service\n", "gpufleet-mps@node.service"),
        ("0::/system.slice/system-gpufleet\\x2dmps.slice/gpufleet-mps@node.service\n", "gpufleet-mps@node.service"),
        (
            "4:memory:/kubepods/x.service\n1:name=systemd:/system.slice/gpufleet-mps@node.service\n",
            "gpufleet-mps@node.service",
        ),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-4711.scope\n", None),
        ("0::/system.slice/containerd.service/kubepods/pod1/4711\n", None),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", None),
        ("", None),
    ],
)
def test_the_service_of_a_process(cgroup, service):
    assert unit_of(cgroup, ".service") == service


@pytest.mark.parametrize(("stat", "parent"), [("9 (a) b) S 7 9", 7), ("", 0), ("9 (a) S", 0)])
def test_a_name_with_parentheses(tree, stat, parent):
    tree.process(9, ["nvidia-cuda-mps-server"])
    tree.write("/proc/9/stat", stat)
    assert program_processes(tree.files, "nvidia-cuda-mps-server")[0].parent == parent


NOTEBOOK, LOADER, ENDED = (f"{number}0000000-0000-4000-8000-000000000000" for number in (1, 2, 3))
SLICE = "nvidia.com/mig-1g.10gb"


def entry(uid, devices, resource=SLICE):
    return {"PodUID": uid, "ContainerName": "main", "ResourceName": resource, "DeviceIDs": devices, "AllocResp": ""}


def checkpoint(*entries):
    data = {"PodDeviceEntries": list(entries), "RegisteredDevices": {SLICE: ["MIG-a"]}}
    return json.dumps({"Data": data, "Checksum": 1})


def node(root, written, pods=(NOTEBOOK, LOADER)):
    """Return the files of a node whose kubelet has these pods."""
    path = Path(root) / CHECKPOINT.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written if isinstance(written, bytes) else written.encode())
    for uid in pods:
        (Path(root) / "var/lib/kubelet/pods" / uid).mkdir(parents=True, exist_ok=True)
    (Path(root) / "var/log/pods" / f"team_notebook-0_{NOTEBOOK}").mkdir(parents=True, exist_ok=True)
    (Path(root) / "var/log/pods" / "left_over").mkdir(exist_ok=True)
    return HostFiles(str(root))


def test_devices_are_those_of_the_pods_that_are_on_the_host(tmp_path):
    written = checkpoint(
        entry(NOTEBOOK, {"0": ["MIG-a"], "-1": ["MIG-b"]}),
        entry(LOADER, {"0": ["GPU-1::0", "GPU-1::3"]}, "nvidia.com/gpu.shared"),
        entry(ENDED, {"0": ["MIG-c"]}),
    )
    notebook = {"pod": "team/notebook-0", "pod_uid": NOTEBOOK, "container": "main", "resource": SLICE}
    loader = {"pod": None, "pod_uid": LOADER, "container": "main", "resource": "nvidia.com/gpu.shared"}
    assert read_allocations(node(tmp_path, written)) == {"MIG-a": [notebook], "MIG-b": [notebook], "GPU-1": [loader]}


def test_a_host_without_a_kubelet_and_a_kubelet_without_pods_allocate_nothing(tmp_path):
    assert read_allocations(HostFiles(str(tmp_path))) == {}
    assert read_allocations(node(tmp_path, '{"Data": {"PodDeviceEntries": null}, "Checksum": 1}')) == {}


def test_pods_that_a_kubelet_keeps_elsewhere_are_not_taken_for_gone(tmp_path):
    files = node(tmp_path, checkpoint(entry(NOTEBOOK, {"0": ["MIG-a"]})), pods=())
    assert list(read_allocations(files)) == [EVERY_GPU]
    (tmp_path / "var/lib/kubelet/pods").mkdir()
    assert read_allocations(files) == {}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "it is not what a kubelet writes"),
        (checkpoint(entry(NOTEBOOK, {"0": ["MIG-a"]}))[:-9], "it is not what a kubelet writes"),
        ('{"Data": {"Pods": []}}', "PodDeviceEntries"),
        ('{"Data": {"PodDeviceEntries": [{"PodUID": 7, "DeviceIDs": null}]}}', "PodDeviceEntries[0]"),
        ('{"Data": {"PodDeviceEntries": [{"PodUID": "u", "ContainerName": "c", "ResourceName": "r"}]}}', "DeviceIDs"),
        ("[" * 100_000, "it is not what a kubelet writes"),
        (b"\xff\xfe", "it is not what a kubelet writes"),
        ("x" * 5000, "it has 5000 bytes"),
    ],
)
def test_a_record_that_cannot_be_read_makes_every_gpu_used(tmp_path, monkeypatch, written, why):
    monkeypatch.setattr(processes, "_LARGEST", 4096 if "bytes" in why else 1 << 20)
    found = read_allocations(node(tmp_path, written))
    gpu = {"index": 0, "uuid": "GPU-1", "processes": []}
    gpu["gpu_instances"] = [
        {
            **PLACE,
            "id": 1,
            "processes": [],
            "compute_instances": [{"id": 0, "profile": "1g.10gb", "uuid": "MIG-a", "processes": []}],
        }
    ]
    add_allocations([gpu], found)
    (user,) = names(users_of(gpu_view(gpu)).on(1))
    assert user.startswith(f"unknown ({CHECKPOINT}: ") and why in user
    assert names(users_of(gpu_view(gpu)).everybody) == (user,)


def claims(*listed):
    data = {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": list(listed) or None,
    }
    return json.dumps({"Data": json.dumps(data), "Checksum": 1})


def claim(name, devices, *pods, driver="gpu.nvidia.com"):
    listed = [
        {"PoolName": "n", "DeviceName": one, "ShareID": None, "RequestNames": ["r"], "CDIDeviceIDs": ["x"]}
        for one in devices
    ]
    return {
        "ClaimUID": "c",
        "ClaimName": name,
        "Namespace": "team",
        "PodUIDs": {uid: {} for uid in pods},
        "DriverState": {driver: {"Devices": listed}},
    }


def with_claims(root, written):
    files = node(root, checkpoint())
    (Path(root) / CLAIMS.lstrip("/")).write_text(written)
    return files


def two_gpus():
    """One with an instance that begins at each of two places, and a whole one, which NVML lists by other numbers than the kernel."""
    parts = [
        {
            "id": number,
            "profile": "3g.40gb",
            "size": 4,
            "start": start,
            "processes": [],
            "compute_instances": [{"id": 0, "profile": "3g.40gb", "uuid": f"MIG-{start}", "processes": []}],
        }
        for number, start in ((7, 0), (9, 4))
    ]
    return [
        {"index": 1, "minor": 0, "uuid": "GPU-0", "processes": [], "gpu_instances": parts},
        {"index": 0, "minor": 1, "uuid": "GPU-1", "processes": []},
    ]


def users_by_part(gpus):
    found = {}
    for gpu in gpus:
        users = users_of(gpu_view(gpu))
        found[gpu["uuid"]] = [user.name for user in users.everybody]
        found.update(
            {f"at {one['start']}": [user.name for user in users.on(one["id"])] for one in gpu.get("gpu_instances", ())}
        )
    return {part: names for part, names in found.items() if names}


CLAIMANT = "pod team/notebook-0"


@pytest.mark.parametrize(
    ("device", "used"),
    [
        ("gpu-0-mig-3g40gb-9-4", {"GPU-0": [CLAIMANT], "at 4": [CLAIMANT]}),
        ("gpu-0-mig-1c2g20gb-me-14-0", {"GPU-0": [CLAIMANT], "at 0": [CLAIMANT]}),
        ("gpu-1", {"GPU-1": [CLAIMANT]}),
        # Its layout was changed by force: what it was given is gone.
        ("gpu-0-mig-3g40gb-9-2", {}),
        # As releases before 25.12 call it: it may be on any instance.
        ("gpu-0-mig-9-4-4", {"GPU-0": [CLAIMANT], "at 0": [CLAIMANT], "at 4": [CLAIMANT]}),
    ],
)
def test_a_pod_with_a_claim_uses_what_the_claim_was_given(tmp_path, device, used):
    gpus = two_gpus()
    add_allocations(gpus, read_allocations(with_claims(tmp_path, claims(claim("mine", [device], NOTEBOOK)))))
    assert users_by_part(gpus) == used
    assert all(named(users_of(gpu_view(gpu)).everybody) in ("", f"{CLAIMANT} (claim mine)") for gpu in gpus)


def test_the_longest_names_that_a_cluster_takes_fit_the_facts(tmp_path):
    name = "a" * 253
    gpus = two_gpus()
    add_allocations(gpus, read_allocations(with_claims(tmp_path, claims(claim(name, ["gpu-1"], NOTEBOOK)))))
    check_gpus(gpus[1:])
    assert f"claim {name}" in named(users_of(gpu_view(gpus[1])).everybody)


def test_claims_of_pods_that_are_gone_and_of_other_drivers_use_no_gpu(tmp_path):
    others = claim("net", ["gpu-0"], NOTEBOOK, driver="net.example.com")
    assert read_allocations(with_claims(tmp_path, claims(claim("old", ["gpu-0"], ENDED), others))) == {}
    assert read_allocations(with_claims(tmp_path, claims())) == {}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (claims(claim("mine", ["gpu-vfio-0"], NOTEBOOK)), "claim mine has a device that is not known here, gpu-vfio-0"),
        (claims(claim("mine", ["gpu-0"], NOTEBOOK))[:-30], "it is not what a kubelet writes"),
        ('{"Data": "{}", "Checksum": 1}', "ClaimInfoStateList"),
        ('{"Data": {}, "Checksum": 1}', "it is not what a kubelet writes"),
        (claims({"ClaimName": "mine"}), "PodUIDs"),
        ("x" * 5000, "it has 5000 bytes"),
    ],
)
def test_claims_that_cannot_be_read_make_every_gpu_used(tmp_path, monkeypatch, written, why):
    monkeypatch.setattr(processes, "_LARGEST", 4096 if "bytes" in why else 1 << 20)
    gpus = two_gpus()
    add_allocations(gpus, read_allocations(with_claims(tmp_path, written)))
    for gpu in gpus:
        assert why in named(users_of(gpu_view(gpu)).everybody) and CLAIMS in named(users_of(gpu_view(gpu)).everybody)


def test_a_gpu_whose_minor_number_is_not_known_may_be_anybodys(tmp_path):
    gpu = {"index": 0, "uuid": "GPU-0", "minor": None, "processes": []}
    add_allocations([gpu], read_allocations(with_claims(tmp_path, claims(claim("mine", ["gpu-5"], NOTEBOOK)))))
    assert named(users_of(gpu_view(gpu)).everybody) == f"{CLAIMANT} (claim mine)"


_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=9),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
_NEARLY = some.fixed_dictionaries(
    {"PodUID": _JSON | some.just(NOTEBOOK), "ContainerName": _JSON, "ResourceName": _JSON, "DeviceIDs": _JSON}
)
_WRITTEN = (
    some.binary(max_size=200)
    | _JSON.map(lambda value: json.dumps(value).encode())
    | some.lists(_NEARLY, max_size=3).map(lambda listed: json.dumps({"Data": {"PodDeviceEntries": listed}}).encode())
)


@examples_of(tests=4)
def test_whatever_the_file_holds_is_read_or_unknown_and_fits_the_facts(examples):
    @property_of(_WRITTEN, examples)
    def check(written):
        with tempfile.TemporaryDirectory() as root:
            found = read_allocations(node(root, written))
        gpu = {"index": 0, "uuid": next((uuid for uuid in found if uuid), "GPU-1")}
        add_allocations([gpu], found)
        assert bool(users_of(gpu_view(gpu)).everybody) == bool(found)
        assert set(found) <= {EVERY_GPU} or EVERY_GPU not in found
        if len(gpu["uuid"]) <= 256 and gpu["uuid"].isprintable():
            check_gpus([gpu])
