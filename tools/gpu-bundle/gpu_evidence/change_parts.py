# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of C(run.sh --change), each in a process of its own that holds the collection's lock and ends with the one that started it.

python3 -m gpu_evidence.change_parts change|restore UUID KEPT      whether the GPU may be changed; the exit status is run.sh's
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
from typing import Any, Callable, Iterator, Mapping

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import (
    LOCK_PATH,
    HostFiles,
    exclusive,
    read_text,
    remove,
    write_whole,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import (
    NvmlError,
    NvmlUnavailable,
    PynvmlMissing,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_settings import (
    set_ecc,
    settings_of,
    supported_clocks,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.pci import read_pci_devices
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply import ApplyFailed, NotReached
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import StepFailed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import Settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings import apply as settings_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.plan import EccPolicy
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.plan import plan as plan_settings

from gpu_evidence.change_gpu import (
    Kept,
    NotAsPlanned,
    OneGpu,
    bring_back,
    bring_settings_back,
    differences,
    refuse_pending,
    refuse_users,
    snapshot,
)
from gpu_evidence.running import Folder

REFUSED, NO_GPU, NO_ANSWER = 2, 3, 4
_LOCK_SECONDS = 10.0
#: Names the OUT of a run that has not brought everything back. A boot removes it with the instances that it is about.
MARKER = os.path.join(os.path.dirname(LOCK_PATH), "gpu-bundle-change")
_PDEATHSIG = 1
_FAILURES = (
    Refused,
    NvmlError,
    NvmlUnavailable,
    PynvmlMissing,
    NotReached,
    ApplyFailed,
    StepFailed,
    NotAsPlanned,
    Unfit,
    CommandError,
    settings_apply.SettingsError,
    OSError,
)


@contextlib.contextmanager
def the_gpu(uuid: str, kept: Kept) -> Iterator[OneGpu]:
    """The GPU for the block, with the lock that everything of the collection holds that changes GPUs.

    :raises Refused: somebody uses it, or another run holds the lock.
    """
    with exclusive(_LOCK_SECONDS), open_nvml() as nvml:
        machine = OneGpu(nvml, kept.journal, uuid)
        refuse_users(machine.gpu())
        yield machine


def end_with(parent: int) -> None:
    """Have this process killed when its parent ends, however that ends: nothing goes on changing a GPU that nobody watches."""
    ctypes.CDLL(None, use_errno=True).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("The process that started this one has ended.")


def part(work_on: Callable[[Folder, OneGpu, Kept], int]) -> Callable[[str, str], int]:
    @functools.wraps(work_on)
    def run(out: str, _work: str) -> int:
        end_with(int(os.environ["GPU_CHANGE_PARENT"]))
        folder, kept = Folder(out), Kept(os.environ["GPU_CHANGE_KEPT"])
        try:
            with the_gpu(os.environ["GPU_CHANGE_UUID"], kept) as machine:
                return work_on(folder, machine, kept)
        except _FAILURES as error:
            return folder.answer("failed", str(error))

    return run


def check(mode: str, uuid: str, path: str) -> int:
    """Say whether the GPU may be changed, and print why not. It changes nothing."""
    kept = Kept(path)
    try:
        _check(mode, uuid, kept)
    except (Refused, PynvmlMissing) as error:
        print(error, file=sys.stderr)
        return REFUSED
    except NvmlUnavailable as error:
        print(error, file=sys.stderr)
        cards = read_pci_devices(HostFiles()) or ()
        return NO_ANSWER if any(card["kind"] == "gpu" for card in cards) else NO_GPU
    except (NvmlError, StepFailed) as error:
        print(error, file=sys.stderr)
        return NO_ANSWER
    return 0


def _check(mode: str, uuid: str, kept: Kept) -> None:
    if os.geteuid() != 0:
        raise Refused("this user", "only root changes a GPU, and sees who uses it", "Run it as root.")
    with the_gpu(uuid, kept) as machine:
        if mode == "restore":
            return
        _refuse_other_runs(uuid, kept)
        refuse_pending(machine.gpu(), snapshot(machine))


def _refuse_other_runs(uuid: str, kept: Kept) -> None:
    last = Journal().last()
    if last is not None and last.open:
        raise Refused(
            Journal().path,
            "a change of MIG was cut off",
            "Run gpufleet.nvidia.site for this host first, which finishes it.",
        )
    other = read_text(MARKER, links=False)
    if not other or other == kept.folder:
        return
    try:
        found = Kept(other).read()
    except Refused:
        # Nothing is left that could be brought back.
        return
    if found["before"]["uuid"] == uuid and not found.get("finished"):
        out = os.path.dirname(other)
        raise Refused(
            uuid, f"a run that was cut off keeps in {out} what this GPU was", f"Run run.sh --restore {out} first."
        )


@part
def keep(folder: Folder, machine: OneGpu, kept: Kept) -> int:
    """Write down what there is, before anything is changed."""
    before = snapshot(machine)
    write_whole(MARKER, kept.folder + "\n")
    kept.write(before)
    folder.write_json("before.json", before)
    return folder.answer(
        "ran",
        f"MIG {'on' if before['record'].get('mig') else 'off'}, {len(before['record']['instances'])} GPU instances",
    )


@part
def settings(folder: Folder, machine: OneGpu, kept: Kept) -> int:
    """Power limit, clocks and ECC as far as the board has them: set by the collection's plan, read back by planning again, and set back."""
    before, now = kept.read()["before"], snapshot(machine)
    kept.write(before, clocks=True)
    said: dict[str, str] = {}
    failures = []
    for name, wanted in _wanted(machine).items():
        said[name], failed = (
            _set(machine, wanted) if wanted is not None else ("the board does not tell what it takes", False)
        )
        bring_settings_back(machine, now, True)
        differ = differences(now, snapshot(machine))
        failures += [f"{name}: {text}" for text in ([said[name]] if failed else []) + differ]
    said["ecc"], failed = _ecc(machine)
    failures += [f"ecc: {said['ecc']}"] if failed else []
    text = "; ".join(failures) or "; ".join(f"{name}: {one}" for name, one in said.items())
    return folder.answer("failed" if failures else "ran", text, values=said)


def _wanted(machine: OneGpu) -> Mapping[str, Settings | None]:
    """Return values that the board takes and that are not those that it has; None where it does not tell."""
    found = settings_of(machine.nvml, machine.index)
    power, clocks = found.power_w, found.clocks_mhz
    limit = next(
        (watts for watts in (power.min, power.max) if None not in (watts, power.limit) and watts != power.limit), None
    )
    try:
        supported = dict(supported_clocks(machine.nvml, machine.index))
    except NvmlError:
        supported = {}
    memory = max(supported, default=None)
    graphics = sorted(supported[memory]) if memory is not None else []
    middle = graphics[len(graphics) // 2] if graphics else None
    return {
        "power limit": None if limit is None else Settings(power_limit=limit),
        "graphics clock": None if middle is None or clocks.max is None else Settings(graphics_clocks=(middle, middle)),
        "memory clock": None if memory is None or clocks.max is None else Settings(memory_clocks=(memory, memory)),
        "application clocks": None
        if clocks.application is None or memory is None or middle is None
        else Settings(application_clocks=(memory, middle)),
    }


def _set(machine: OneGpu, wanted: Settings) -> tuple[str, bool]:
    """Return what came of setting it, and whether that is a failure."""

    def steps() -> Any:
        gpus = [gpu for gpu in settings_apply.observe(machine.nvml, wanted) if gpu.facts.uuid == machine.uuid]
        # What is wanted is given as recorded: this host restores nothing of it at boot.
        return plan_settings(gpus, wanted, wanted, EccPolicy())

    try:
        plan = steps()
        settings_apply.apply(plan, wanted, machine.nvml)
        left = steps().steps
    except settings_apply.SettingsError as error:
        refused = isinstance(error.__cause__, NvmlError) and error.__cause__.symbol == "NOT_SUPPORTED"
        return str(error), not refused
    except Refused as refused_by_plan:
        return str(refused_by_plan), False
    if left:
        return f"not in effect: {'; '.join(str(step) for step in left)}", True
    return "; ".join(step.what for step in plan.steps), False


def _ecc(machine: OneGpu) -> tuple[str, bool]:
    """ECC as pending alone, and set back at once: a reset is needed for it to come into effect, and none is made."""
    before = settings_of(machine.nvml, machine.index).ecc
    if before.current is None or before.pending is None:
        return "the board has none that can be set", False
    try:
        set_ecc(machine.nvml, machine.index, not before.pending)
        changed = settings_of(machine.nvml, machine.index).ecc
    except NvmlError as error:
        return str(error), error.symbol != "NOT_SUPPORTED"
    finally:
        with contextlib.suppress(NvmlError):
            set_ecc(machine.nvml, machine.index, before.pending)
    after = settings_of(machine.nvml, machine.index).ecc
    if (changed.current, changed.pending, after) != (before.current, not before.pending, before):
        return f"{before} was set to {changed}, and back to {after}", True
    return "pending changed and was set back", False


@part
def restore(folder: Folder, machine: OneGpu, kept: Kept) -> int:
    """Bring everything back that was there before, and compare."""
    says = kept.read()
    before = says["before"]
    if before["uuid"] != machine.uuid:
        raise Refused(kept.folder, f"it keeps what {before['uuid']} was", "Name the OUT of this GPU's run.")
    bring_back(machine, before, bool(says.get("clocks")))
    differ = differences(before, snapshot(machine))
    if not differ:
        kept.write(before, finished=True)
        remove(MARKER)
    folder.write_json("differences.json", differ)
    return folder.answer(
        "failed" if differ else "ran", "; ".join(differ) or "everything is as it was", differences=differ
    )


if __name__ == "__main__":
    sys.exit(check(*sys.argv[1:]))
