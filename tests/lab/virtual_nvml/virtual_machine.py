# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with virtual GPUs for tests: built by make, driven by virtual-gpu, asked through pynvml in processes of its own."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pynvml
import pytest

SOURCES = Path(__file__).resolve().parent
REPOSITORY = SOURCES.parents[2]
VERSION = "580.126.09"
PYNVML = Path(pynvml.__file__).parent

#: In front of every script that a test runs beside itself: one line of JSON is its answer.
PREAMBLE = """
import ctypes, json, os, signal, sys, time
sys.path.insert(0, {pynvml!r})
from pynvml import *
from ctypes import byref, c_uint

def answer(value):
    print(json.dumps(value))

def refused(call, *arguments):
    "The name of the NVML error that the call raises; None when it succeeds."
    try:
        call(*arguments)
    except NVMLError as error:
        return type(error).__name__.replace("NVMLError_", "")

def profile_ids(device):
    "Profile id by name, without NVML's prefix."
    ids = {{}}
    for number in range(NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvmlDeviceGetGpuInstanceProfileInfo(device, number)
        except (NVMLError_NotSupported, NVMLError_InvalidArgument):  # not of this board, not known to this driver
            continue
        name = info.name.decode() if isinstance(info.name, bytes) else info.name
        ids[name.removeprefix("MIG ")] = info.id
    return ids

def create(device, profile_id, start=None):
    "A GPU instance; the driver chooses the place when start is None."
    if start is None:
        return nvmlDeviceCreateGpuInstance(device, profile_id)
    place = (c_nvmlGpuInstancePlacement_t * 16)()
    count = c_uint(16)
    nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, place, byref(count))
    return nvmlDeviceCreateGpuInstanceWithPlacement(
        device, profile_id, byref(c_nvmlGpuInstancePlacement_t(start, place[0].size)))

def gpu_instances(device):
    found = []
    for profile_id in profile_ids(device).values():
        handles, count = (c_nvmlGpuInstance_t * 16)(), c_uint()
        nvmlDeviceGetGpuInstances(device, profile_id, handles, byref(count))
        found += handles[: count.value]
    return found

def place(instance):
    info = nvmlGpuInstanceGetInfo(instance)
    return [info.id, info.placement.start, info.placement.size]
"""


class VirtualMachine:
    """A machine with virtual GPUs whose files are all below one folder."""

    def __init__(self, build: Path, root: Path) -> None:
        self.build = build
        self.root = root
        self.tree = root / "tree"
        self.environment = {
            "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(build), "VIRTUAL_GPU_ROOT": str(root), "LC_ALL": "C",
            "VIRTUAL_GPU_PRIVILEGED": "1",
        }  # fmt: skip

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the build folder (or any other), without judging its status."""
        program = self.build / command[0]
        argv = [str(program) if program.exists() else command[0], *command[1:]]
        return subprocess.run(
            argv, env={**self.environment, **environment}, capture_output=True, text=True, check=False
        )

    def gpu(self, *arguments: str) -> str:
        """virtual-gpu, which has to succeed."""
        done = self.run("virtual-gpu", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def smi(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("nvidia-smi", *arguments, **environment)

    def start(self, *boards: str, driver: str = VERSION) -> VirtualMachine:
        """Create, boot and load the driver; boards are the arguments of create, one word each."""
        words = [
            word
            for board in boards
            for word in (["--board", board] if not board.startswith("--") else board.split("="))
        ]
        self.gpu("create", "--seed", "test", *words)
        self.gpu("boot")
        self.gpu("load", driver, "open")
        return self

    def show(self) -> dict[str, Any]:
        return json.loads(self.gpu("show"))

    def raw(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script with pynvml in a process of its own."""
        text = PREAMBLE.format(pynvml=str(PYNVML)) + textwrap.dedent(script)
        return self.run(sys.executable, "-c", text, **environment)

    def nvml(self, script: str, **environment: str) -> Any:
        """The same; the script has NVML open and calls answer() once."""
        done = self.raw("nvmlInit()\n" + textwrap.dedent(script), **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def text(self, path: str) -> str:
        return (self.tree / path).read_text()


@pytest.fixture(scope="session")
def virtual_nvml() -> Path:
    """The folder with the library, virtual-gpu and nvidia-smi."""
    build = REPOSITORY / "build" / "virtual_nvml"
    build.mkdir(parents=True, exist_ok=True)
    with open(build / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-j2", "-C", str(SOURCES), f"BUILD={build}", f"VERSION={VERSION}"], check=True)
    return build


@pytest.fixture
def machine(virtual_nvml: Path, tmp_path: Path) -> VirtualMachine:
    return VirtualMachine(virtual_nvml, tmp_path)
