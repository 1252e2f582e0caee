# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's unmodified tools see exactly what the module mig made, and it sees exactly what they made.

The module's four calls run in a process of their own (ours.py); the third witness is `virtual-gpu show`, which reads the
machine without NVML.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Tools
    from virtual_machine import VirtualMachine

pytestmark = pytest.mark.lab

HERE = Path(__file__).resolve().parent
COLLECTIONS = HERE.parents[2] / "build" / "collections"

#: Board and layouts of its two GPUs, one of each architecture: switched by a reset, without one, and a grid of four.
BOARDS = {
    "a100-40gb": ({"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}, {"1g.5gb": 5, "1g.10gb": 1}),
    "h100-80gb-sxm": ({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, {"1g.20gb": 2, "3g.40gb": 1}),
    "b200": ({"4g.90gb": 1, "3g.90gb": 1}, {"1g.23gb": 7}),
    "rtx-pro-6000": ({"2g.48gb": 1, "1g.24gb": 2}, {"4g.96gb": 1}),
}


class Ours:
    """The module on the machine of a test."""

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine
        self.folder = machine.root / "ours"
        self.folder.mkdir()

    def __call__(self, *arguments: str) -> dict[str, Any]:
        environment = self.machine.environment
        path = f"{self.machine.build}:{environment['PATH']}"
        done = subprocess.run(
            [sys.executable, str(HERE / "ours.py"), str(self.folder), *arguments],
            env={**environment, "PATH": path, "PYTHONPATH": str(COLLECTIONS)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def apply(self, *layouts: dict[str, int]) -> dict[str, Any]:
        entries = [{"devices": [index], "instances": counts} for index, counts in enumerate(layouts)]
        return self("apply", json.dumps(entries))


@pytest.fixture
def ours(machine: VirtualMachine) -> Ours:
    return Ours(machine)


def instances(machine: VirtualMachine) -> list[dict[str, Any]]:
    """Every compute instance that there is, with the profile of its GPU instance."""
    return [
        {**compute, "gpu": gpu["index"], "gpu_profile": instance["profile"]}
        for gpu in machine.show()["gpus"]
        for instance in gpu["gpu_instances"]
        for compute in instance["compute_instances"]
    ]


def counts(machine: VirtualMachine) -> list[Counter[str]]:
    found: list[Counter[str]] = [Counter() for _gpu in machine.show()["gpus"]]
    for one in instances(machine):
        found[one["gpu"]][one["profile"]] += 1
    return found


def exported(tools: Tools) -> list[dict[str, int]]:
    """What mig-parted says that every GPU has."""
    entries = yaml.safe_load(tools.ok("nvidia-mig-parted", "export"))["mig-configs"]["current"]
    by_gpu = {}
    for entry in entries:
        for gpu in [0, 1] if entry["devices"] == "all" else entry["devices"]:
            by_gpu[gpu] = entry["mig-devices"]
    return [by_gpu[gpu] for gpu in sorted(by_gpu)]


@pytest.mark.parametrize("board", list(BOARDS))
def test_mig_parted_sees_what_we_made_and_asserts_what_we_export(
    machine: VirtualMachine, tools: Tools, ours: Ours, tmp_path: Path, board: str
) -> None:
    machine.start(board, "--count=2")
    assert ours.apply(*BOARDS[board])["changed"]
    assert counts(machine) == list(BOARDS[board])
    assert exported(tools) == list(BOARDS[board])
    file = tmp_path / "ours.yaml"
    file.write_text(yaml.safe_dump(ours("export")["mig_parted"]))
    tools.ok("nvidia-mig-parted", "assert", "-f", str(file), "-c", "ours")
    machine.gpu("trace", "on")
    tools.ok("nvidia-mig-parted", "apply", "-f", str(file), "-c", "ours")
    changing = [line.split()[1] for line in machine.gpu("trace", "log").splitlines()]
    assert not [call for call in changing if re.search(r"Create|Destroy|SetMigMode", call)], "it finds nothing to do"


@pytest.mark.parametrize("board", list(BOARDS))
def test_we_see_what_mig_parted_made(
    machine: VirtualMachine, tools: Tools, ours: Ours, tmp_path: Path, board: str
) -> None:
    machine.start(board, "--count=2")
    file = tmp_path / "theirs.yaml"
    entries = [
        {"devices": [index], "mig-enabled": True, "mig-devices": wanted} for index, wanted in enumerate(BOARDS[board])
    ]
    file.write_text(yaml.safe_dump({"version": "v1", "mig-configs": {"theirs": entries}}))
    tools.ok("nvidia-mig-parted", "apply", "-f", str(file), "-c", "theirs")
    assert counts(machine) == list(BOARDS[board])
    seen = ours("export")
    assert [entry["instances"] for entry in seen["layout"]] == list(BOARDS[board])
    assert [one["mig-devices"] for one in seen["mig_parted"]["mig-configs"]["ours"]] == list(BOARDS[board])
    answer = ours.apply(*BOARDS[board])
    assert not answer["created"] and not answer["destroyed"], "what they made is what was asked for"
    assert len(answer["kept"]) == sum(sum(wanted.values()) for wanted in BOARDS[board])


def test_nvidia_ctk_names_every_instance_that_we_made(machine: VirtualMachine, tools: Tools, ours: Ours) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    ours.apply(*BOARDS["h100-80gb-sxm"])
    options = ("cdi", "generate", "--mode=nvml", f"--driver-root={tools.driver_root()}", "--dev-root=/")
    spec = yaml.safe_load(tools.ok("nvidia-ctk", "--quiet", *options))
    named = {device["name"] for device in spec["devices"] if device["name"].startswith("MIG-")}
    assert named == {one["uuid"] for one in instances(machine)}
    reported = {
        compute["uuid"]
        for gpu in ours("export")["gpus"]
        for instance in gpu["instances"]
        for compute in instance["compute_instances"]
    }
    assert reported == named


def test_gpu_feature_discovery_counts_every_instance_that_we_made(
    machine: VirtualMachine, tools: Tools, ours: Ours, tmp_path: Path
) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    ours.apply(*BOARDS["h100-80gb-sxm"])
    file = tmp_path / "labels"
    options = ("--oneshot", "--no-timestamp", "--use-node-feature-api=false", "--mig-strategy=mixed")
    tools.ok("gpu-feature-discovery", *options, f"--output-file={file}", "--machine-type-file=/dev/null")
    labels = dict(line.split("=", 1) for line in file.read_text().splitlines())
    found = {
        match.group(1): int(value)
        for name, value in labels.items()
        if (match := re.fullmatch(r"nvidia\.com/mig-(\d.*)\.count", name))
    }
    assert found == sum(counts(machine), Counter())


def test_the_device_plugin_serves_every_profile_that_we_made(machine: VirtualMachine, tools: Tools, ours: Ours) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    ours.apply(*BOARDS["h100-80gb-sxm"])
    resources = {f"nvidia.com/mig-{one['gpu_profile']}" for one in instances(machine)}
    plugin = subprocess.Popen(
        [*tools.command("nvidia-device-plugin", "--mig-strategy=mixed", "--kubelet-socket=")],
        env={**os.environ, **tools.environment}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    overdue = threading.Timer(600, plugin.kill)
    overdue.start()
    served: set[str] = set()
    try:
        assert plugin.stderr is not None
        for line in plugin.stderr:
            served |= set(re.findall(r"Starting to serve '([^']+)'", line))
            if len(served) == len(resources):
                break
    finally:
        overdue.cancel()
        plugin.kill()
        plugin.wait()
    assert served == resources
