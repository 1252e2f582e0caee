# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""run.sh --change of the GPU bundle on virtual GPUs: what it refuses, what it does, and that everything is as it was, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import py_compile
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pynvml
import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "lab" / "virtual_nvml"))

sys.path.insert(0, str(REPOSITORY / "tools" / "gpu-bundle"))

from gpu_evidence import change_mig, change_parts
from gpu_evidence.__main__ import PARTS
from virtual_machine import VirtualMachine, machine, virtual_nvml

__all__ = ["change_mig", "change_parts", "machine", "virtual_nvml"]
_COLLECTION = "ansible_collections.gpufleet.nvidia"
SOURCES = REPOSITORY / "tools" / "gpu-bundle"
pytestmark = pytest.mark.slow

#: What the host has under these folders is neither read nor written, nvidia-smi is where the collection looks for programs, and nobody else's
#: processes are seen. What is left of run.sh's has some seconds before it ends with its namespace.
_SETUP = (
    'set -e; mkdir -p "$VIRTUAL_GPU_ROOT/run"; mount --bind "$VIRTUAL_GPU_ROOT/run" /run;'
    " for one in /usr/local/sbin /etc/gpufleet /var/lib/gpufleet /var/lib/kubelet; do"
    ' [ ! -d $one ] || mount -t tmpfs none $one; done; ln -s "$0/nvidia-smi" /usr/local/sbin/; set +e; "$@"; status=$?; sleep ${LINGER:-0}; exit $status'
)
_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", _SETUP),
)


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle with the collection and pynvml, as far as a change needs them."""
    folder = tmp_path_factory.mktemp("change") / "bundle"
    (folder / "gpu_evidence").mkdir(parents=True)
    for source in (SOURCES / "gpu_evidence").glob("*.py"):
        (folder / "gpu_evidence" / source.name).write_bytes(source.read_bytes())
    (folder / "run.sh").write_bytes((SOURCES / "run.sh").read_bytes())
    (folder / "wheels").mkdir()
    with zipfile.ZipFile(folder / "wheels" / "nvidia_ml_py-0-py3-none-any.whl", "w") as wheel:
        wheel.write(pynvml.__file__, "pynvml.py")
    (folder / "bundle.json").write_text(json.dumps({"pythons": []}), encoding="utf-8")
    # What a change imports, and compiled: a run has no other place to keep that than its own folder, and would compile it anew each time.
    with tarfile.open(folder / "gpufleet-nvidia-0.tar.gz", "w:gz", compresslevel=1) as archive:
        for name, module in sorted(sys.modules.items()):
            source = Path(getattr(module, "__file__", None) or "")
            if name.startswith(f"{_COLLECTION}.plugins.module_utils") and source.is_file():
                parts = name[len(_COLLECTION) + 1 :].split(".") + (["__init__"] if hasattr(module, "__path__") else [])
                compiled = folder.parent / "compiled"
                py_compile.compile(str(source), cfile=str(compiled), doraise=True)
                archive.add(compiled, "/".join(parts) + ".pyc")
    return folder


class Bundle:
    """run.sh on a machine with virtual GPUs."""

    def __init__(self, machine: VirtualMachine, folder: Path) -> None:
        self.machine, self._folder = machine, folder
        self.out = machine.root / "out"

    def command(self, *words: str) -> list[str]:
        return [*_NAMESPACES, str(self.machine.build), "sh", str(self._folder / "run.sh"), *words]

    def environment(self, transitions: int = 3) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join([str(self.machine.build), self.machine.environment["PATH"]]),
            "PYTHON": sys.executable,
            "HOME": str(self.machine.root),
            "GPU_CHANGE_TRANSITIONS": str(transitions),
        }

    def run(self, *words: str, transitions: int = 3) -> subprocess.CompletedProcess[str]:
        return self.machine.run(*self.command(*words), **self.environment(transitions))

    def change(self, transitions: int = 3) -> tuple[int, dict[str, Any]]:
        return self.ended(self.run("--change", self.uuid(), str(self.out), transitions=transitions))

    def restore(self) -> tuple[int, dict[str, Any]]:
        return self.ended(self.run("--restore", str(self.out)))

    def ended(self, done: subprocess.CompletedProcess[str]) -> tuple[int, dict[str, Any]]:
        assert (self.out / "report.json").exists(), done.stdout + done.stderr
        return done.returncode, self.report()

    def refused(self, *words: str) -> str:
        """Run it and return why it refused: nothing was changed, not even for a moment."""
        before = self.machine.show()["gpus"]
        self.machine.gpu("trace", "on")
        done = self.run(*words)
        calls = {line.split()[1] for line in self.machine.gpu("trace", "log").splitlines()}
        assert done.returncode == 2, done.stdout + done.stderr
        assert not [call for call in calls if re.search("Set|Create|Destroy|Reset", call)], calls
        assert self.machine.show()["gpus"] == before
        assert not (self.out / "change").exists()
        return done.stderr

    def cut(self, number: signal.Signals, call: str, nth: int) -> subprocess.CompletedProcess[str]:
        """Send run.sh a signal in the middle of a change: while one call of the driver does not come back."""
        self.machine.gpu("fail", call, "hang:100", "--nth", str(nth))
        environment = {**self.machine.environment, **self.environment(), "LINGER": "3"}
        command = self.command("--change", self.uuid(), str(self.out))
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            journal, last = self.out / "change" / "journal.jsonl", ""
            for _number in range(300):
                time.sleep(0.3)
                now = journal.read_text(encoding="utf-8") if journal.exists() else ""
                if now and now == last and self.parts():
                    break
                last = now
            (supervisor,) = processes("cmdline", f"gpu_evidence.change\0change\0{self.uuid()}\0{self.out}")
            if number == signal.SIGHUP and process.stdout:
                # As when a terminal is gone: nobody reads what it says.
                process.stdout.close()
                process.stdout = None
            os.kill(supervisor, number)
            if number == signal.SIGKILL:
                # Neither does what it started go on, although nobody is left who ends it.
                time.sleep(1)
                assert process.poll() is None and not self.parts()
            said, _ = process.communicate(timeout=120)
            return subprocess.CompletedProcess(command, process.returncode, said, said)
        finally:
            process.kill()
            self.machine.gpu("fail", "--clear")

    def parts(self) -> list[int]:
        return processes("environ", f"GPU_CHANGE_KEPT={self.out}/change\0")

    def report(self) -> dict[str, Any]:
        return json.loads((self.out / "report.json").read_text(encoding="utf-8"))

    def uuid(self, index: int = 0) -> str:
        return str(self.machine.show()["gpus"][index]["uuid"])

    def start(self, *boards: str) -> list[Any]:
        """A machine whose first GPU has settings of its own: what is compared is nothing that a board is delivered with."""
        self.machine.start(*boards)
        self.machine.nvml(
            """
            device = nvmlDeviceGetHandleByIndex(0)
            nvmlDeviceSetPersistenceMode(device, 1)
            low, high = nvmlDeviceGetPowerManagementLimitConstraints(device)
            nvmlDeviceSetPowerManagementLimit(device, high - 10500)
            nvmlDeviceSetApplicationsClocks(device, nvmlDeviceGetMaxClockInfo(device, NVML_CLOCK_MEM), 1410)
            nvmlDeviceSetComputeMode(device, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
            answer(None)
            """
        )
        return self.machine.show()["gpus"]

    def partition(self) -> list[Any]:
        """MIG with two instances on the first GPU, one of several compute instances, the other one of none."""
        for words in ("-i 0 -mig 1", "mig -i 0 -cgi 3g.40gb,1g.10gb", "mig -i 0 -cci 0,0,0 -gi 2"):
            done = self.machine.smi(*words.split())
            assert done.returncode == 0, (words, done.stdout)
        return self.machine.show()["gpus"]


def processes(file: str, text: str) -> list[int]:
    """The processes that have a text in C(/proc/PID/FILE)."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def bundle(machine: VirtualMachine, packed: Path) -> Bundle:
    return Bundle(machine, packed)


def part(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in report["parts"] if one["name"] == name)


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in report["parts"]}


_BOARDS = ("a100-80gb", "h100-80gb-sxm", "h200-141gb", "b200-180gb")
#: One by default: other tests take an H100 through all parts, too.
_RUNS = [
    pytest.param(
        board,
        transitions,
        id=f"{board}-{transitions}",
        marks=() if (board, transitions) == (_BOARDS[0], 15) else pytest.mark.by_name,
    )
    for board in _BOARDS
    for transitions in (15, 200)
]


@pytest.mark.parametrize(("board", "transitions"), _RUNS)
def test_everything_is_changed_and_everything_is_as_it_was(bundle: Bundle, board: str, transitions: int):
    before = bundle.start(board)
    status, report = bundle.change(transitions)
    assert set(statuses(report).values()) == {"ran"}, report["parts"]
    assert (status, report["settings_changed"], report["exit_status"]) == (0, [], 0)
    table = next(one for one in BOARDS if one.key == board)
    places = sum(len(profile.placements.starts) for profile in table.profiles if profile.placements)
    assert part(report, "profiles")["findings"]["places"] == places > 10
    assert part(report, "journey")["findings"]["reached"] == transitions
    assert len(part(report, "killed")["findings"]["kills"]) == 3
    assert "pending changed and was set back" in part(report, "settings")["said"]
    for name in ("power limit", "graphics clock", "memory clock", "application clocks"):
        assert part(report, "settings")["findings"]["values"][name].startswith(("set ", "lock ")), name
    # Ampere changes its mode by a reset, which loses the settings.
    resets = 1 if board.startswith("a100") else 0
    assert len(part(report, "profiles")["findings"]["resets"]) == resets
    assert bundle.machine.show()["gpus"] == before
    assert json.loads((bundle.out / "change" / "state.json").read_text())["finished"] is True


@pytest.mark.by_name
def test_instances_that_were_there_and_the_other_gpu_are_as_they_were(bundle: Bundle):
    bundle.start("h100-80gb-sxm", "h100-80gb-sxm")
    before = bundle.partition()
    assert sorted(len(one["compute_instances"]) for one in before[0]["gpu_instances"]) == [0, 3]
    status, report = bundle.change()
    assert (status, report["settings_changed"]) == (0, []), report["parts"]
    assert bundle.machine.show()["gpus"] == before


@pytest.mark.by_name
def test_a_gpu_without_mig_of_which_nothing_can_be_set_is_asked_and_left(bundle: Bundle):
    before = bundle.machine.start("rtx-2080-ti").show()["gpus"]
    status, report = bundle.change()
    assert status == 0, report["parts"]
    assert {name for name, one in statuses(report).items() if one == "absent"} == {"profiles", "journey", "killed"}
    assert part(report, "settings")["findings"]["values"]["power limit"] == "the board does not tell what it takes"
    assert bundle.machine.show()["gpus"] == before


def test_a_gpu_in_use_is_refused(bundle: Bundle):
    bundle.start("h100-80gb-sxm")
    bundle.machine.gpu("run", "--gpu", "0", "--pid", "4711", "--fictional", "1", "--memory", "100", "--name", "python3")
    said = bundle.refused("--change", bundle.uuid(), str(bundle.out))
    assert "it is in use by" in said and "4711" in said and "Stop its users" in said and "nothing was changed" in said


def test_a_gpu_whose_device_is_open_is_refused(bundle: Bundle):
    bundle.start("h100-80gb-sxm")
    # A file of the GPU's name that is a device: as in a container, whose devices lie below another folder.
    device = bundle.machine.root / "of-a-container" / "dev" / "nvidia0"
    device.parent.mkdir(parents=True)
    device.touch()
    command = bundle.command("--change", bundle.uuid(), str(bundle.out))
    opened = ["sh", "-c", f'mount --bind /dev/null {device}; sleep 60 <{device} & "$@"', "sh"]
    at = command.index(str(bundle.machine.build)) + 1
    done = bundle.machine.run(*command[:at], *opened, *command[at:], **bundle.environment())
    assert done.returncode == 2 and "it is in use by sleep" in done.stderr, done.stdout + done.stderr
    assert not (bundle.out / "change").exists()


def test_another_gpu_is_not_guessed(bundle: Bundle):
    bundle.start("h100-80gb-sxm", "h100-80gb-sxm")
    other = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    said = bundle.refused("--change", other, str(bundle.out))
    assert f"{other}: this host has no such GPU, only {bundle.uuid(0)}, {bundle.uuid(1)}" in said
    for words in (
        ["--change"],
        ["--change", "0"],
        ["--change", "all", str(bundle.out)],
        ["--restore"],
        ["--restore", str(bundle.out / "none")],
    ):
        assert "usage: run.sh" in bundle.refused(*words)
    assert bundle.run("--change", bundle.uuid(), str(bundle.out), transitions=0).returncode == 2
    (bundle.out / "change").symlink_to(bundle.machine.root / "elsewhere")
    assert "is not a folder of this user" in bundle.refused("--change", bundle.uuid(), str(bundle.out))


def test_without_a_driver_it_says_so(bundle: Bundle):
    uuid = bundle.start("h100-80gb-sxm")[0]["uuid"]
    bundle.machine.gpu("unload")
    done = bundle.run("--change", uuid, str(bundle.out))
    assert done.returncode == (4 if Path("/dev/nvidiactl").exists() else 3)
    assert "the NVIDIA kernel driver is not loaded" in done.stderr and not (bundle.out / "change").exists()


@pytest.mark.by_name
def test_a_change_that_waits_for_a_reset_is_refused(bundle: Bundle):
    bundle.start("a100-80gb")
    assert bundle.machine.smi("-i", "0", "-mig", "1").returncode == 0
    assert "a change of MIG waits for a reset" in bundle.refused("--change", bundle.uuid(), str(bundle.out))


def test_a_call_that_fails_in_the_middle_ends_with_everything_as_it_was(bundle: Bundle):
    bundle.start("h100-80gb-sxm")
    before = bundle.partition()
    bundle.machine.gpu("fail", "nvmlGpuInstanceCreateComputeInstance", "UNKNOWN", "--nth", "40", "--count", "3")
    status, report = bundle.change()
    assert (status, report["settings_changed"]) == (1, [])
    failed = [one for one in report["parts"] if one["status"] == "failed"]
    assert len(failed) == 1 and "nvmlGpuInstanceCreateComputeInstance failed" in failed[0]["said"], report["parts"]
    assert "The former layout is restored" in failed[0]["said"]
    assert part(report, "restore")["status"] == "ran"
    assert bundle.machine.show()["gpus"] == before


@pytest.mark.by_name
def test_what_cannot_be_brought_back_is_said_and_brought_back_later(bundle: Bundle):
    before = bundle.start("a100-80gb")
    bundle.machine.gpu("fail", "nvmlDeviceSetComputeMode", "UNKNOWN")
    status, report = bundle.change()
    assert status == 5 and "Compute Mode: Exclusive_Process before, Default afterwards" in report["settings_changed"][0]
    assert report["settings_changed"][-1].startswith("not brought back: nvmlDeviceSetComputeMode failed")
    assert bundle.machine.show()["gpus"] != before
    bundle.machine.gpu("fail", "--clear")
    status, report = bundle.restore()
    assert (status, report["settings_changed"]) == (0, [])
    assert bundle.machine.show()["gpus"] == before


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.by_name)], ids=["SIGTERM", "SIGHUP"]
)
def test_a_signal_in_the_middle_brings_everything_back_first(bundle: Bundle, number: signal.Signals):
    before = bundle.start("a100-80gb")
    done = bundle.cut(number, "nvmlDeviceCreateGpuInstanceWithPlacement", 12)
    status, report = bundle.ended(done)
    assert status == 1 and report["settings_changed"] == [], done.stdout
    assert part(report, "profiles")["said"] == f"it was ended by {number.name}"
    assert bundle.machine.show()["gpus"] == before


@pytest.mark.parametrize("again", ["--restore", pytest.param("--change", marks=pytest.mark.by_name)])
def test_what_a_killed_run_left_is_brought_back(bundle: Bundle, again: str):
    bundle.start("h100-80gb-sxm", "h100-80gb-sxm")
    before = bundle.partition()
    bundle.cut(signal.SIGKILL, "nvmlDeviceCreateGpuInstanceWithPlacement", 12)
    assert bundle.machine.show()["gpus"] != before
    # With another OUT, what is left would be taken for what was there.
    done = bundle.run("--change", bundle.uuid(), str(bundle.out) + "-2")
    assert done.returncode == 2 and f"Run run.sh --restore {bundle.out} first" in done.stderr
    done = bundle.run("--change", bundle.uuid(1), str(bundle.out))
    assert done.returncode == 2 and f"{bundle.out} keeps what {bundle.uuid()} was" in done.stderr
    status, report = bundle.change() if again == "--change" else bundle.restore()
    assert (status, report["settings_changed"]) == (0, []), report["parts"]
    assert bundle.machine.show()["gpus"] == before
    if again == "--change":
        assert part(report, "first-restore")["status"] == part(report, "journey")["status"] == "ran"
        return
    # It compares all of nvidia-smi -q, the other GPU's too.
    bundle.machine.nvml("nvmlDeviceSetPersistenceMode(nvmlDeviceGetHandleByIndex(1), 1); answer(None)")
    status, report = bundle.restore()
    assert status == 5 and "Persistence Mode: Disabled before, Enabled afterwards" in report["settings_changed"][0]


def test_without_being_asked_nothing_of_it_runs():
    assert not [one for one in PARTS if one.where.startswith("change")]
    assert "--change" not in (REPOSITORY / "Makefile").read_text(encoding="utf-8")
