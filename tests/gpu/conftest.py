# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests for a host with a real GPU. They change none of its settings, and without a GPU they are skipped, never passed.

What they start (an MPS daemon, CUDA clients) is their own, and ends with them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_DEVICES = Path("/sys/bus/pci/devices")
_GPU_CLASSES = ("0x0300", "0x0302")


def _on_the_bus() -> bool:
    for device in _DEVICES.iterdir() if _DEVICES.is_dir() else ():
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith(_GPU_CLASSES):
            return True
    return False


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU: on the PCI bus, or, in a container without one, as a device node."""
    return _on_the_bus() or Path("/dev/nvidiactl").exists()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="no NVIDIA GPU on this machine")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not has_gpu():
                item.add_marker(skip)


def run_module(name: str, arguments: dict[str, object]) -> dict[str, object]:
    """Run a module of the collection in a process of its own, as Ansible does, and return what it answers."""
    # In the bundle for hosts without a checkout the collection is elsewhere.
    collections = os.environ.get("GPUFLEET_COLLECTIONS") or REPOSITORY / "build" / "collections"
    # Popped: ansible-core takes a first argument for the module's own.
    runner = "import runpy,sys; runpy.run_module(sys.argv.pop(1), run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", runner, f"ansible_collections.gpufleet.nvidia.plugins.modules.{name}"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        timeout=180,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(collections), os.environ.get("PYTHONPATH")])),
        },
        check=False,
    )
    assert done.stdout.strip(), done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def query(*names: str) -> list[dict[str, str]]:
    """Return what nvidia-smi says of every GPU, by name of the property."""
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = csv.reader(io.StringIO(done.stdout), skipinitialspace=True)
    return [dict(zip(names, (cell.strip() for cell in row))) for row in rows if row]


@pytest.fixture(scope="session")
def module():
    return run_module


@pytest.fixture(scope="session")
def document() -> dict[str, object]:
    return run_module("gpu_info", {"gather": ["errors", "holders", "profiles"]})["gpu"]


@pytest.fixture(scope="session")
def nvidia_smi():
    return query
