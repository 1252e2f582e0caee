# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people need who take over a host: a folder that only root can read, because it holds names and arguments of everybody's programs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .._adapters.command import CommandError, find, run
from .._adapters.files import write_whole
from .._adapters.host_files import HostFiles
from .._adapters.host_reader import HostReader
from .._facts.document import read_document
from .._facts.health import kernel_log
from .._health.repair_places import BUNDLES

_REPORT = "nvidia-bug-report.sh"
_REPORT_SECONDS = 600.0
#: What nvidia-smi is asked, by the file that its answer goes into. A serial number is what a board is returned by.
_ASKED = {
    "serial-numbers.csv": (
        "--query-gpu=index,pci.bus_id,name,serial,uuid,vbios_version",
        "--format=csv",
    ),
    "nvidia-smi-q.txt": ("-q",),
}
_SMI_SECONDS = 120.0


def write_bundle(
    reason: str, record: Mapping[str, Any], archive: str | None, parent: str = BUNDLES
) -> tuple[str, list[str]]:
    """Write a bundle and return its folder and what could not be put into it.

    :param reason: why the host is handed over.
    :param record: what was tried.
    :param archive: a zip file with pynvml that was sent for this call.
    """
    os.makedirs(parent, mode=0o700, exist_ok=True)
    os.chmod(parent, 0o700)
    folder = _new_folder(parent)
    lacking: list[str] = []
    _write(folder, "reason.txt", f"{reason}\n")
    _write(folder, "attempts.json", _as_json(record))
    facts = read_document(HostReader(HostFiles()), archive, ("errors", "health", "holders"))
    _write(folder, "facts.json", _as_json(facts))
    log = kernel_log()
    if log is None:
        lacking.append("kernel log: it cannot be read")
    else:
        lines = [line for line in log.splitlines() if "NVRM" in line or "SXid" in line or "nvidia" in line.lower()]
        _write(folder, "kernel-log.txt", "\n".join(lines) + "\n")
    for name, arguments in _ASKED.items():
        _ask(folder, name, arguments, lacking)
    _bug_report(folder, bool((facts.get("nvml") or {}).get("available")), lacking)
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o600)
    return folder, lacking


def _new_folder(parent: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1000):
        folder = os.path.join(parent, f"{stamp}-{number}" if number else stamp)
        try:
            os.mkdir(folder, mode=0o700)
            return folder
        except FileExistsError:
            continue
    raise OSError(f"no free name in {parent}")


def _ask(folder: str, name: str, arguments: Sequence[str], lacking: list[str]) -> None:
    try:
        answer = run(["nvidia-smi", *arguments], timeout=_SMI_SECONDS)
    except CommandError as error:
        lacking.append(f"{name}: {error.reason}")
        return
    _write(folder, name, f"{answer.stdout}{answer.stderr}")
    if answer.rc:
        lacking.append(f"{name}: nvidia-smi ended with {answer.rc}")


def _bug_report(folder: str, answers: bool, lacking: list[str]) -> None:
    """Run NVIDIA's script, where it is installed; in its safe mode where the driver does not answer, because the script may hang then."""
    if find(_REPORT) is None:
        lacking.append(f"{_REPORT} is not installed")
        return
    wanted = os.path.join(folder, "nvidia-bug-report.log")
    try:
        answer = run([_REPORT, *([] if answers else ["--safe-mode"]), "--output-file", wanted], timeout=_REPORT_SECONDS)
    except CommandError as error:
        lacking.append(f"{_REPORT}: {error.reason}")
        return
    if not any(os.path.exists(path) for path in (wanted, f"{wanted}.gz")):
        lacking.append(f"{_REPORT}: exit status {answer.rc}, and no report: {answer.stderr.strip()[-500:]}")


def _write(folder: str, name: str, content: str) -> None:
    write_whole(os.path.join(folder, name), content, 0o600)


def _as_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
