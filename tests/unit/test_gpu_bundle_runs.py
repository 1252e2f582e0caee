# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""run.sh of the GPU bundle on virtual GPUs: its parts that need no Ansible, from the sources, with the exit status and the report that come of it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pynvml
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "lab" / "virtual_nvml"))

from virtual_machine import VirtualMachine, machine, virtual_nvml

__all__ = ["machine", "virtual_nvml"]
SOURCES = REPOSITORY / "tools" / "gpu-bundle"
pytestmark = pytest.mark.slow


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The bundle as build.py makes it, without what comes from registries: no Python is one for the collection's own parts."""
    folder = tmp_path / "bundle"
    shutil.copytree(SOURCES / "gpu_evidence", folder / "gpu_evidence", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(SOURCES / "run.sh", folder)
    (folder / "wheels").mkdir()
    with zipfile.ZipFile(folder / "wheels" / "nvidia_ml_py-0-py3-none-any.whl", "w") as wheel:
        wheel.write(pynvml.__file__, "pynvml.py")
    (folder / "bundle.json").write_text(json.dumps({"pythons": []}), encoding="utf-8")
    return folder


def run(machine: VirtualMachine, bundle: Path, *before: str, **environment: str) -> tuple[int, dict]:
    """Run the bundle and return its status and its report.

    :param before: what starts it, in place of nothing.
    """
    out = bundle.parent / "out"
    given = {
        "PATH": os.pathsep.join([str(machine.build), machine.environment["PATH"]]),
        "PYTHON": sys.executable,
        "HOME": str(bundle.parent),
    }
    done = machine.run(*before, "sh", str(bundle / "run.sh"), str(out), **{**given, **environment})
    assert (out / "report.json").exists(), done.stdout + done.stderr
    return done.returncode, json.loads((out / "report.json").read_text(encoding="utf-8"))


def part(report: dict, name: str) -> dict:
    return next(one for one in report["parts"] if one["name"] == name)


def test_a_gpu_that_answers_is_read_and_left_as_it_is(machine: VirtualMachine, bundle: Path):
    machine.start("h200-141gb")
    _status, report = run(machine, bundle)
    assert (part(report, "nvml")["status"], part(report, "commands")["status"]) == ("ran", "ran")
    assert part(report, "nvml")["findings"]["codes"]["0"] > 300
    assert part(report, "facts")["status"] == "absent"
    assert report["settings_changed"] == []


#: Pythons beside the one that runs the tests, as pyenv and distributions have them.
OTHERS = {
    version: path
    for version in ("3.12", "3.13")
    for path in (
        shutil.which(f"python{version}"),
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")),
    )
    if path and ".pyenv/shims" not in path
}


@pytest.mark.parametrize(
    "python",
    [
        pytest.param(path, id=version, marks=() if version == "3.12" else pytest.mark.by_name)
        for version, path in OTHERS.items()
    ],
)
def test_another_python_without_a_network_reads_the_same(machine: VirtualMachine, bundle: Path, python: str):
    """In a network namespace that has not even a loopback that is up."""
    machine.start("h200-141gb")
    _status, report = run(machine, bundle, "unshare", "--user", "--map-root-user", "--net", PYTHON=python)
    assert python.endswith(".".join(report["python"].split(".")[:2]))
    assert (part(report, "nvml")["status"], part(report, "commands")["status"]) == ("ran", "ran")
    assert part(report, "nvml")["findings"]["codes"]["0"] > 300
    assert report["settings_changed"] == []


def test_a_user_without_rights_gets_a_report_too(machine: VirtualMachine, bundle: Path):
    machine.start("h200-141gb")
    before = machine.show()
    # In a user namespace, because the folder of a test belongs to root.
    command = ("unshare", "--user", "--map-user=1000", "--net")
    _status, report = run(machine, bundle, *command, VIRTUAL_GPU_PRIVILEGED="0")
    assert report["root"] is False
    assert (part(report, "nvml")["status"], part(report, "commands")["status"]) == ("ran", "ran")
    assert part(report, "nvml")["findings"]["codes"]["0"] > 300
    assert report["settings_changed"] == [] and machine.show()["gpus"] == before["gpus"]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_a_gpu_and_a_driver_it_says_so(machine: VirtualMachine, bundle: Path):
    status, report = run(machine, bundle, LD_LIBRARY_PATH="", PATH="/usr/bin:/bin")
    assert (status, part(report, "cuda")["status"]) == (3, "absent")


def test_a_gpu_that_fell_off_the_bus_is_read_as_far_as_it_goes(machine: VirtualMachine, bundle: Path):
    machine.start("h200-141gb")
    machine.gpu("lose", "--gpu", "0")
    _status, report = run(machine, bundle)
    assert part(report, "nvml")["status"] == "ran"
    codes = part(report, "nvml")["findings"]["codes"]
    # What is asked of the system is answered, the GPU has no handle.
    assert codes["15"] >= 1 and codes["0"] > 10


@pytest.mark.by_name
def test_a_call_that_hangs_is_left_out_and_the_rest_goes_on(machine: VirtualMachine, bundle: Path):
    """It waits for the call for half a minute: by name only."""
    machine.start("h200-141gb")
    machine.gpu("fail", "nvmlDeviceGetBoardId", "hang:100")
    status, report = run(machine, bundle)
    nvml = part(report, "nvml")
    assert (status, nvml["status"]) == (1, "failed")
    assert '1 did not return: ["nvmlDeviceGetBoardId"' in nvml["said"].replace("'", "")
    assert nvml["findings"]["codes"]["0"] > 300
