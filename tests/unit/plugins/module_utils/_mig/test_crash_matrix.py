# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors and kills at every NVML call of reconfigurations, on every architecture that has MIG.

Whatever happens to the first run: what was in use is there afterwards, and a second run reaches the request. A run
that reports the former layout as restored has restored it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.virtual_gpus import (
    VirtualHost,
    build,
    counts_of,
    layout_of,
)
from ansible_collections.gpufleet.nvidia.tests.whole import some

#: The calls that change something: before and after them are different states.
CHANGING = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
)


@dataclass(frozen=True)
class Reconfiguration:
    """A change to be cut off anywhere.

    :param before: the layout that the machine has; None is MIG off.
    :param busy: a profile of which one instance is in use.
    """

    board: str
    before: object
    after: object
    busy: str | None = None
    counts: tuple[tuple[str, int], ...] | None = None

    @property
    def id(self) -> str:
        kind = "divide" if self.before is None else "switch-off" if self.after == "all-disabled" else "rearrange"
        return f"{self.board}-{kind}"


def instances(**counts: int) -> list[dict]:
    return [{"devices": "all", "instances": {name.replace("_", "."): count for name, count in counts.items()}}]


def rearrange(board: str, before: dict[str, int], after: dict[str, int], busy: str) -> Reconfiguration:
    return Reconfiguration(board, instances(**before), instances(**after), busy, tuple(sorted(after.items())))


RECONFIGURATIONS = [
    Reconfiguration("a100-40gb", None, "all-balanced"),
    Reconfiguration("h100-80gb-sxm", None, "all-balanced"),
    Reconfiguration("b200-180gb", None, "all-balanced"),
    Reconfiguration("rtx-pro-6000-96gb", None, "all-balanced"),
    rearrange("a100-40gb", {"3g_20gb": 1, "2g_10gb": 1, "1g_5gb": 2}, {"3g_20gb": 1, "1g_5gb": 4}, "3g.20gb"),
    rearrange("h100-80gb-sxm", {"4g_40gb": 1, "2g_20gb": 1, "1g_10gb": 1}, {"2g_20gb": 2, "1g_10gb": 3}, "2g.20gb"),
    rearrange("b200-180gb", {"3g_90gb": 1, "2g_45gb": 1, "1g_23gb": 2}, {"3g_90gb": 2}, "3g.90gb"),
    rearrange("rtx-pro-6000-96gb", {"2g_48gb": 1, "1g_24gb": 2}, {"2g_48gb": 2}, "2g.48gb"),
    Reconfiguration("a100-40gb", "all-balanced", "all-disabled"),
    Reconfiguration("h100-80gb-sxm", "all-balanced", "all-disabled"),
]

#: One of each architecture, and all kinds of change.
ONE_OF_EACH = [RECONFIGURATIONS[0], RECONFIGURATIONS[5], RECONFIGURATIONS[6], RECONFIGURATIONS[7], RECONFIGURATIONS[9]]


@pytest.fixture(scope="module", autouse=True)
def virtual_nvml() -> None:
    build()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(one, id=one.id, marks=() if one in ONE_OF_EACH else pytest.mark.by_name)
        for one in RECONFIGURATIONS
    ],
)
def prepared(request, tmp_path_factory):
    """A machine before the change, what it is, what is in use, and the calls of a change that nothing disturbs."""
    change = request.param
    host = VirtualHost.create(tmp_path_factory.mktemp("machine") / "host", change.board)
    if change.before is not None:
        assert host.run(change.before).error is None
    busy = host.occupy(change.busy) if change.busy else None
    former = host.layout()
    witness = host.copy(host.root.parent / "witness")
    witness.control("trace", "on")
    undisturbed = witness.run(change.after)
    assert undisturbed.error is None and undisturbed.report["setbacks"] == []
    calls = witness.calls()
    wanted = witness.layout()
    assert wanted != former
    return change, host, former, wanted, busy, calls


def still_there(gpus: list[dict], busy: dict | None) -> bool:
    return busy is None or busy in gpus[0]["gpu_instances"]


def check(prepared, place, rule: str, again: bool = False, proven: set[str] | None = None) -> str:
    """Run with a fault, then without; return how the first run ended.

    :param again: also look whether a third run finds nothing to do.
    :param proven: what a second run was shown to recover from. Calls that only read leave the machine and the journal alike,
        so that hundreds of first runs leave a dozen states; the second run is made once from each.
    """
    change, original, former, wanted, busy, _calls = prepared
    host = original.copy(place)
    first = host.run(change.after, rule)
    gpus = host.gpus()
    assert still_there(gpus, busy), rule
    if first.outcome == "restored":
        assert layout_of(gpus) == former, rule
    assert first.outcome != "not_restored", (rule, first.message)
    # A run that could not ask who uses a GPU resets nothing and says that a reboot is needed: it claims no success.
    waits = bool(first.report) and first.report.get("reboot_required")
    if first.error is None and not first.killed and not waits:
        assert meets(gpus, change, wanted), rule
    elif proven is None or (found := host.fingerprint()) not in proven:
        second = host.run(change.after)
        assert second.error is None, (rule, second.error, second.message)
        gpus = host.gpus()
        assert meets(gpus, change, wanted), rule
        assert still_there(gpus, busy), rule
        if proven is not None:
            proven.add(found)
    if again:
        third = host.run(change.after)
        assert third.error is None and not third.report["changed"], (rule, third.report)
    shutil.rmtree(place)
    return "killed" if first.killed else first.outcome or first.error or "reached"


def meets(gpus: list[dict], change: Reconfiguration, wanted: list[tuple]) -> bool:
    """After a surprise the planner may choose other places, so a layout is met by its counts."""
    if change.counts is not None:
        return counts_of(gpus[0]) == {name.replace("_", "."): count for name, count in change.counts}
    found = layout_of(gpus)
    return [one[:2] for one in found] == [one[:2] for one in wanted] and [
        sorted(place[0] for place in one[2]) for one in found
    ] == [sorted(place[0] for place in one[2]) for one in wanted]


def numbered(calls: list[str], wanted: tuple[str, ...]) -> list[tuple[str, int]]:
    seen: dict[str, int] = {}
    found = []
    for call in calls:
        seen[call] = seen.get(call, 0) + 1
        if call in wanted:
            found.append((call, seen[call]))
    return found


def cut_off_everywhere(prepared, tmp_path, actions: tuple[str, ...]) -> set[str]:
    changing = numbered(prepared[-1], CHANGING)
    assert changing
    return {
        check(prepared, tmp_path / f"{number}-{action}", f"{call}:{action}:nth={nth}", again=True)
        for number, (call, nth) in enumerate(changing)
        for action in actions
    }


@pytest.mark.slow
def test_every_change_cut_off_before_and_after(prepared, tmp_path) -> None:
    ends = cut_off_everywhere(prepared, tmp_path, ("kill", "kill-after", "error=UNKNOWN", "error-after=UNKNOWN"))
    assert ends == {"killed", "reached"}, "every single error is overcome within the run"


@pytest.mark.slow
def test_an_error_that_stays_brings_the_former_layout_back(prepared, tmp_path) -> None:
    ends = set()
    for number, (call, nth) in enumerate(numbered(prepared[-1], CHANGING)):
        rule = f"{call}:error=UNKNOWN:nth={nth}:count=3"
        ends.add(check(prepared, tmp_path / str(number), rule))
    assert "restored" in ends


@pytest.mark.slow
# A kill at a call that changes nothing leaves what one at the next change leaves, which is cut off above.
@pytest.mark.parametrize("action", [pytest.param("kill", marks=pytest.mark.by_name), "error=UNKNOWN"])
@pytest.mark.parametrize("prepared", ONE_OF_EACH, indirect=True, ids=lambda one: one.id)
def test_every_call(prepared, tmp_path, action) -> None:
    """Errors and kills at every single call, those that only read included; by default errors at a tenth of them."""
    proven: set[str] = set()
    for nth in some(range(1, len(prepared[-1]) + 1)):
        check(prepared, tmp_path / str(nth), f"*:{action}:nth={nth}", proven=proven)
