# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One repair on the host: who uses the GPUs is read again, the step is taken, and what came of it is read back; or a bundle for the people who take over.

What nvidia-smi and systemctl end with is no proof. Facts are read in a process of their own with a time limit, because a GPU that needs a
repair may hang whoever asks it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._adapters import gpu_reset, systemd
from .._adapters.command import CommandError, find, run
from .._adapters.files import HostFiles, write_whole
from .._adapters.host_reader import HostReader
from .._driver.desired import DesiredDriver
from .._driver.post_install import PostInstall
from .._driver.system import DriverSystem
from .._facts.document import read_document
from .._facts.health import kernel_log
from .._facts_view import Facts, view_of
from .._formats.host_names import BUNDLES, CDI_UNIT, MIG_UNIT, SETTINGS_UNIT, SHARING_UNIT
from .._health.hardware import NO_RECOVERY, recovery_of
from .._health.repair_faults import subject_of
from .._health.repair_plan import users_of_gpus
from .._plan import Failure, Refused
from .._records import UNREADABLE
from .._sharing import mps_units

_PAUSE = 2.0


class Repair:
    """The repairs of this host. C(wait): seconds to wait for programs that use the GPUs to end."""

    def __init__(self, archive: str | None, wait: float, read: Callable[[], Facts] | None = None) -> None:
        self._wait = wait
        self.read = read or (lambda: view_of(read_document(HostReader(HostFiles()), archive, ("errors", "holders"))))

    def refuse_users(self, addresses: Sequence[str], mps: bool = False) -> None:
        """Refuse while somebody uses one of the GPUs. Raises Refused: somebody still does after the wait."""
        until = time.monotonic() + self._wait
        while users := users_of_gpus(self.read(), addresses, mps):
            if time.monotonic() >= until:
                remedy = "End the processes that use it, or wait longer with gpu_heal_wait. Nothing was repaired."
                raise Refused(f"GPU {', '.join(addresses)}", f"in use by {', '.join(users)}", remedy)
            time.sleep(_PAUSE)

    def reset(self, addresses: Sequence[str]) -> str:
        """Reset GPUs in one command and return what the tool said. Raises Failure: they are not as a reset leaves them."""
        known = {subject_of(gpu): gpu for gpu in self.read().gpus or () if not gpu.lost}
        missing = [address for address in addresses if address not in known]
        if missing:
            raise Refused(f"GPU {', '.join(missing)}", "NVML does not see it, so it cannot be reset", "Reboot.")
        self.refuse_users(addresses)
        try:
            result = gpu_reset.reset_gpus([known[address].uuid or address for address in addresses])
            said = " ".join(f"{result.stdout} {result.stderr}".split()) or f"exit status {result.rc}"
        except CommandError as error:
            said, result = str(error), None
        after = {subject_of(gpu): gpu for gpu in self.read().gpus or ()}
        for address in addresses:
            gpu = after.get(address)
            if gpu is None or gpu.lost:
                raise Failure(f"GPU {address} is gone after the reset. nvidia-smi: {said}")
            asked = gpu.recovery_action or NO_RECOVERY
            if asked != NO_RECOVERY:
                wanted = recovery_of(asked).asked
                text = f"the driver asks for {wanted} ({asked}) of GPU {address} after the reset. nvidia-smi: {said}"
                raise Failure(text)
        # Without a recovery action nothing but the tool tells that there was a reset.
        if result is None or result.rc:
            raise Failure(f"GPU {', '.join(addresses)}: nvidia-smi did not reset it: {said}")
        return said

    def drain(self, addresses: Sequence[str]) -> str:
        """See that nobody uses GPUs any more, which is all that the driver asks for. Raises Failure: the driver asks for it still."""
        self.refuse_users(addresses, mps=True)
        still = [subject_of(gpu) for gpu in self.read().gpus or () if gpu.recovery_action not in (None, NO_RECOVERY)]
        if still:
            text = f"the driver of GPU {', '.join(still)} asks for more, although no process uses it any longer"
            raise Failure(text)
        return "no process uses them"

    def restart(self, services: Sequence[str], addresses: Sequence[str]) -> str:
        """Restart services in order, while nobody uses the GPUs at C(addresses). Raises Failure: one does not exist or does not come back."""
        if addresses:
            self.refuse_users(addresses, mps=True)
        for name in services:
            if not systemd.unit(name).exists:
                raise Failure(f"{name} is not installed. Run gpufleet.nvidia.site on this host")
            systemd.restart(name, timeout=900)
        return f"restarted {', '.join(services)}"

    def reload(self) -> str:
        """Load the driver on disk without a reboot. Raises Failure: it takes a reboot, or does not load."""

        def fetch(url: str, _credentials: object = None) -> bytes:
            raise Refused(url, "a reload fetches nothing")

        system = DriverSystem(fetch)
        # As after a rollback: whatever driver is on disk is the one that is wanted.
        run = PostInstall(system, DesiredDriver(state="previous"))
        run.reload(system.read())
        wrong = [*run.problems, *run.reboot]
        if wrong:
            raise Failure(f"the driver cannot be reloaded: {'; '.join(wrong)}")
        return "; ".join(map(str, run.done)) or "the driver on disk is loaded"

    def bring_back(self) -> str:
        """Restore what a reset or a reload takes away, by the services that do it at boot: MIG, CDI, settings, compute mode, MPS daemons. Raises
        Failure: one of them fails.
        """
        recorded = self.read().recorded
        wanted = [MIG_UNIT, CDI_UNIT] if recorded.mig is not None else []
        wanted += [SETTINGS_UNIT] if recorded.settings is not None else []
        if recorded.sharing is UNREADABLE:
            raise Failure("/etc/gpufleet/sharing.json cannot be used")
        if recorded.sharing is not None:
            wanted += [SHARING_UNIT, *(mps_units.instance(daemon.name) for daemon in recorded.sharing.daemons)]
        present = [name for name in wanted if systemd.unit(name).exists]
        return self.restart(present, ()) if present else "nothing is recorded"


_REPORT = "nvidia-bug-report.sh"
_REPORT_SECONDS = 600.0
#: What nvidia-smi is asked, by the file that its answer goes into. A serial number is what a board is returned by.
_ASKED = {
    "serial-numbers.csv": ("--query-gpu=index,pci.bus_id,name,serial,uuid,vbios_version", "--format=csv"),
    "nvidia-smi-q.txt": ("-q",),
}
_SMI_SECONDS = 120.0


def write_bundle(
    reason: str, record: Mapping[str, Any], archive: str | None, parent: str = BUNDLES
) -> tuple[str, list[str]]:
    """Write a bundle with the reason why the host is handed over and what was tried, and return its folder and what could not be put into it."""
    os.makedirs(parent, mode=0o700, exist_ok=True)
    os.chmod(parent, 0o700)
    folder = _new_folder(parent)
    lacking: list[str] = []
    _write(folder, "reason.txt", f"{reason}\n")
    _write(folder, "attempts.json", _as_json(record))
    document = read_document(HostReader(HostFiles()), archive, ("errors", "health", "holders"))
    _write(folder, "facts.json", _as_json(document))
    log = kernel_log()
    if log is None:
        lacking.append("kernel log: it cannot be read")
    else:
        lines = [line for line in log.splitlines() if "NVRM" in line or "SXid" in line or "nvidia" in line.lower()]
        _write(folder, "kernel-log.txt", "\n".join(lines) + "\n")
    for name, arguments in _ASKED.items():
        _ask(folder, name, arguments, lacking)
    _bug_report(folder, bool(document["nvml"]["available"]), lacking)
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
