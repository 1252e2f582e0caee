# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs of the module's four calls against the virtual NVML, each in a process of its own that can be killed.

The runs are forked from the test, with pynvml imported and the library mapped but not opened, so that one takes some
hundredths of a second.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles, read_text
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply, apply_run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal

REPOSITORY = Path(__file__).resolve().parents[5]
SOURCE = REPOSITORY / "tests" / "lab" / "virtual_nvml"
BUILD = REPOSITORY / "build" / "virtual_nvml"
LIBRARY = BUILD / "libnvidia-ml.so.1"


def build() -> None:
    """Build the virtual NVML and map it into this process; the test fails where that cannot be."""
    missing = [tool for tool in ("gcc", "make") if shutil.which(tool) is None]
    if missing:
        pytest.fail(
            f"Failed to build the virtual NVML: no {' and no '.join(missing)}. Install gcc and make", pytrace=False
        )
    BUILD.mkdir(parents=True, exist_ok=True)
    # Workers of a run in a fresh checkout come here at once.
    with open(BUILD / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-C", str(SOURCE), f"BUILD={BUILD}"], capture_output=True, text=True, timeout=300, check=False
        )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    # pynvml asks for libnvidia-ml.so.1, and the loader finds the one that is mapped already.
    ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)


@dataclass
class Run:
    """How a run ended."""

    killed: bool = False
    error: str | None = None
    outcome: str | None = None
    message: str = ""
    report: dict = field(default_factory=dict)


def layout_of(gpus: list[dict]) -> list[tuple]:
    """Return what GPUs are: mode, and the instances with their places and compute instances."""
    return [
        (
            gpu["mig"]["current"],
            gpu["mig"]["pending"],
            tuple(
                sorted(
                    (one["profile"], one["start"], tuple(inner["profile"] for inner in one["compute_instances"]))
                    for one in gpu["gpu_instances"]
                )
            ),
        )
        for gpu in gpus
    ]


def counts_of(gpu: dict) -> dict[str, int]:
    """Return how many GPU instances of each profile a GPU has, all of them with one compute instance."""
    found: dict[str, int] = {}
    for one in gpu["gpu_instances"]:
        assert len(one["compute_instances"]) == 1, one
        found[one["profile"]] = found.get(one["profile"], 0) + 1
    return found


def variables(layout: object, **others: object) -> dict:
    """Return what is asked for; the others by their names without C(nvidia_mig_)."""
    asked = {"layout": layout, "strategy": "mixed", "restore": True, "reboot": True, **others}
    return {f"nvidia_mig_{name}": value for name, value in asked.items()}


class VirtualHost:
    """A machine with virtual GPUs, whose state is below C(root)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(cls, root: Path, board: str, count: int = 1) -> VirtualHost:
        host = cls(root)
        host.control("create", "--board", board, "--count", str(count))
        host.control("boot")
        host.control("load", "580.126.09", "open")
        return host

    def copy(self, root: Path) -> VirtualHost:
        """Return a machine in the same state."""
        # Device nodes cannot be copied, and the tree of /proc and /sys follows from the state.
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns("dev", "tree"))
        host = VirtualHost(root)
        host.control("sync")
        return host

    def control(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(BUILD / "virtual-gpu"), *arguments],
            env={**os.environ, "VIRTUAL_GPU_ROOT": str(self.root)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"virtual-gpu {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def gpus(self) -> list[dict]:
        return json.loads(self.control("show"))["gpus"]

    def fingerprint(self) -> str:
        """Return all that a run finds: equal fingerprints make equal runs. When the run before began is left out."""
        journal = [json.loads(line) for line in (read_text(str(self.root / "journal")) or "").splitlines()]
        if journal:
            journal[0].pop("started")
        return json.dumps([self.control("show"), journal, read_text(str(self.root / "mig.json"))])

    def layout(self) -> list[tuple]:
        return layout_of(self.gpus())

    def counts(self, index: int = 0) -> dict[str, int]:
        return counts_of(self.gpus()[index])

    def occupy(self, profile: str, index: int = 0) -> dict:
        """Put a process on an instance of a profile, and return the instance."""
        one = next(one for one in self.gpus()[index]["gpu_instances"] if one["profile"] == profile)
        inner = one["compute_instances"][0]["id"]
        place = ("--gpu", str(index), "--gi", str(one["id"]), "--ci", str(inner))
        self.control("run", *place, "--pid", str(os.getpid()), "--memory", "100")
        return one

    def calls(self) -> list[str]:
        """Return the calls of the last traced run, in order."""
        return [line.split()[1] for line in self.control("trace", "log").splitlines()]

    def run(self, layout: object, fail: str | None = None, **asked: object) -> Run:
        """Bring the machine to a layout in a process of its own.

        :param fail: a rule for the virtual NVML, such as C(nvmlDeviceSetMigMode:error=IN_USE:nth=1).
        """
        sys.stdout.flush()
        if fail is not None:
            self.control("fail", *fail_arguments(fail))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._child(writer, variables(layout, **asked))
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        _pid, status = os.waitpid(child, 0)
        if fail is not None:
            self.control("fail", "--clear")
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return Run(killed=True)
        return Run(**json.loads(answer))

    def _child(self, writer: int, asked: dict) -> None:
        answer: dict = {}
        try:
            os.environ["VIRTUAL_GPU_ROOT"] = str(self.root)
            answer["report"] = self._four_calls(asked)
        except Exception as error:
            answer.update(error=type(error).__name__, message=str(error), outcome=getattr(error, "outcome", None))
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)

    def _four_calls(self, asked: dict) -> dict:
        apply._PAUSE_SECONDS = 0.0
        apply_run.RECORD_PATH = str(self.root / "mig.json")
        apply_run.cdi_generator.available = lambda: False
        apply_run.to_notify = lambda _services: ()
        with open_nvml() as nvml:
            machine = Machine(
                nvml,
                Journal(str(self.root / "journal")),
                asked,
                files=HostFiles(str(self.root / "nobody")),
                reset=self._reset,
            )
            prepared = apply_run.plan(machine, machine.read())
            if not prepared.steps.changes and prepared.interrupted is None:
                return apply_run.report(prepared)
            report = apply_run.carry_out(machine, prepared)
        return {key: report[key] for key in ("changed", "created", "destroyed", "reset", "reboot_required", "setbacks")}

    def _reset(self, address: str) -> str:
        index = next(gpu["index"] for gpu in self.gpus() if gpu["pci_address"].endswith(address[4:]))
        try:
            return self.control("reset", "--gpu", str(index))
        except RuntimeError as error:
            return str(error)


def fail_arguments(rule: str) -> list[str]:
    """Return the arguments of C(virtual-gpu fail) for a rule; what it says in a file holds for processes forked later."""
    symbol, action, *limits = rule.split(":")
    name, _equals, value = action.partition("=")
    given = {"error": value, "error-after": f"after:{value}"}.get(name, name)
    return [symbol, given, *(word for limit in limits for word in (f"--{limit.split('=')[0]}", limit.split("=")[1]))]
