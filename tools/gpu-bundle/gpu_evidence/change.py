# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(run.sh --change): everything that the collection changes of a GPU, on one that nobody uses, and then everything as it was.

python3 -m gpu_evidence.change change UUID OUT BUNDLE
python3 -m gpu_evidence.change restore OUT BUNDLE

What was there is in OUT/change before the first change. Every part is a process of its own, killed when it takes too long; whatever comes of them,
the last two bring back what was there and compare it. A run that was itself killed is made good by either command with the same OUT.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import signal
import sys
import time
from typing import Any, TextIO

from gpu_evidence import report, smi
from gpu_evidence.__main__ import AFTER, CHANGED, FAILED, PASSED, USAGE, Part, Report, make
from gpu_evidence.running import end_marked, run

_BEFORE = Part("before", "nvidia-smi -q, before", "smi:settings", 60)
_KEEP = Part("keep", "What is there, kept in OUT/change", "change_parts:keep", 60)
_CHANGES = (
    Part("profiles", "MIG on, and every profile at every place", "change_mig:profiles", 420),
    Part("journey", "Random MIG layouts, planned, applied and read back", "change_mig:journey", 870),
    Part("killed", "A change of MIG that is killed, and the run after it", "change_mig:killed", 180),
    Part("settings", "Power limit, clocks and ECC", "change_parts:settings", 60),
)
_RESTORE = Part("restore", "What was there before, brought back", "change_parts:restore", 300)
#: What brings back what a run left that was cut off, in front of a new one.
_FIRST = (
    dataclasses.replace(_RESTORE, name="first-restore", title="What a run that was cut off left, brought back"),
    dataclasses.replace(AFTER, name="first-after", title="nvidia-smi -q, after that"),
)
_RESERVED = 400.0
_TRANSITIONS, _MOST_TRANSITIONS = "200", 1000
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Cut(Exception):
    """A signal asked this run to end."""


class _Heard(io.TextIOBase):
    """Where this run speaks to: that nobody listens any more, as after a terminal is gone, keeps nothing from being brought back."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
        return len(text)


class Change(Report):
    """One run with changes, or, with C(only_restore), the end of one that was cut off.

    :param uuid: of the GPU; empty for the one that OUT is about.
    :param transitions: how many random layouts.
    """

    whole = 1800.0

    def __init__(self, *arguments: Any, uuid: str, transitions: str, only_restore: bool) -> None:
        super().__init__(*arguments)
        self._kept, self._only_restore = self._target / "change", only_restore
        state = self._state()
        self._uuid = uuid or str(state["before"]["uuid"] if state else "")
        self._env.update(
            GPU_CHANGE_KEPT=str(self._kept),
            GPU_CHANGE_UUID=self._uuid,
            GPU_CHANGE_TRANSITIONS=transitions,
            GPU_CHANGE_PARENT=str(os.getpid()),
        )
        self._says.update(changes=True, transitions=int(transitions))

    def make(self) -> int:
        sys.stdout, sys.stderr = _Heard(sys.stdout), _Heard(sys.stderr)
        for number in _SIGNALS:
            signal.signal(number, self._cut)
        try:
            return self._run()
        # Neither does a full disk leave the GPU as it is then.
        except (Cut, OSError) as cut:
            self._stay()
            end_marked(self._mark)
            for part in self._says["parts"]:
                if "status" not in part:
                    part.update(status="failed", said=str(cut), seconds=0.0, findings={})
            if not self._unfinished():
                print(f"run.sh: {cut}; nothing was changed", file=sys.stderr)
                return FAILED
            return self._bring_back()

    def _run(self) -> int:
        if sys.version_info < (3, 9):
            return _refuse(
                f"the collection needs Python 3.9 or newer, and this is {sys.version.split()[0]}. Name one: PYTHON=/path/to/python3"
            )
        if os.path.lexists(self._kept) and (self._kept.is_symlink() or self._kept.stat().st_uid != os.geteuid()):
            return _refuse(f"{self._kept} is not a folder of this user, who would write there. Name another OUT")
        state = self._state()
        if self._only_restore and state is None:
            return _refuse(
                f"{self._target} is not the OUT of a run.sh --change that began: there is no change/state.json. Nothing was changed"
            )
        if state is not None and state["before"]["uuid"] != self._uuid and not state.get("finished"):
            other = state["before"]["uuid"]
            return _refuse(
                f"{self._target} keeps what {other} was before a run that was cut off. Run run.sh --restore {self._target} first"
            )
        self._unpack()
        if self._only_restore:
            return self._checked("restore") or self._bring_back()
        if self._unfinished():
            refused = self._checked("restore")
            if refused:
                return refused
            for part in _FIRST:
                self._one(part, self._left() - _RESERVED)
            if self._bad("first-restore") or self._changed("first-after"):
                return self._end("first-restore", "first-after")
        return self._checked("change") or self._change()

    def _change(self) -> int:
        self._one(_BEFORE, self._left() - _RESERVED)
        if self._bad("before"):
            print(
                "Without nvidia-smi -q of before nothing proves that everything is as it was: nothing was changed.",
                file=sys.stderr,
            )
            return self._end("before", "before")
        self._kept.mkdir(mode=0o700, exist_ok=True)
        (self._kept / "q.txt").write_text(self._settings_text("before"), encoding="utf-8")
        self._one(_KEEP, self._left() - _RESERVED)
        if self._bad("keep"):
            return self._end("before", "before")
        for part in _CHANGES:
            self._one(part, self._left() - _RESERVED)
        return self._bring_back()

    def _bring_back(self) -> int:
        self._stay()
        self._one(_RESTORE, self._left() - 60)
        self._one(AFTER, self._left() - 10)
        return self._end("restore", "after")

    def _end(self, restored: str, after: str) -> int:
        """Write the report; return the exit status.

        :param restored: the part that says what could not be brought back; C(after) the one with the settings as they are now.
        """
        parts = {one["name"]: one for one in self._says["parts"]}
        changed = self._changed(after) if restored != "before" else []
        if self._bad(restored) and restored != "before":
            found = parts[restored].get("findings", {}).get("differences")
            changed += found or [f"not brought back: {parts[restored].get('said')}"]
        status = CHANGED if changed else FAILED if any(map(self._bad, parts)) else PASSED
        self._says.update(
            settings_changed=changed, exit_status=status, seconds=round(time.monotonic() - self._started, 1)
        )
        self._write()
        print(report.summary(self._says))
        if self._unfinished():
            print(
                f"Not everything is as it was. Run run.sh --restore {self._target} when the GPU answers and nobody uses it.",
                file=sys.stderr,
            )
        return status

    def _changed(self, after: str = "after") -> list[str]:
        kept = self._kept / "q.txt"
        texts = (kept.read_text(encoding="utf-8") if kept.exists() else "", self._settings_text(after))
        return (
            smi.compare(*texts)
            if all(texts)
            else ["nvidia-smi -q of before or afterwards is missing: nothing is proven"]
        )

    def _bad(self, name: str) -> bool:
        part = next(one for one in self._says["parts"] if one["name"] == name)
        # What a board does not have is no failure; what a proof needs is.
        return part["status"] == "failed" or (part["status"] == "absent" and name in ("before", "after", "first-after"))

    def _checked(self, mode: str) -> int:
        """Return the exit status with which this GPU is refused, or 0; say why."""
        done = run(
            [sys.executable, "-m", "gpu_evidence.change_parts", mode, self._uuid, str(self._kept)],
            60,
            self._env,
        )
        if done.ok:
            return 0
        said = done.err.strip() or done.said
        print(f"run.sh: {said}\nrun.sh: nothing was changed", file=sys.stderr)
        return done.status if done.status in (2, 3, 4) else FAILED

    def _state(self) -> dict[str, Any] | None:
        try:
            found = json.loads((self._kept / "state.json").read_text(encoding="utf-8"))
            return dict(found) if found["before"]["uuid"] else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _unfinished(self) -> bool:
        state = self._state()
        return state is not None and not state.get("finished")

    def _cut(self, number: int, _frame: object) -> None:
        raise Cut(f"it was ended by {signal.Signals(number).name}")

    def _stay(self) -> None:
        """Do not end before what was there is back: that is bounded, too."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _refuse(said: str) -> int:
    print(f"run.sh: {said}", file=sys.stderr)
    return USAGE


def main(mode: str, uuid: str, out: str, bundle: str) -> int:
    transitions = os.environ.get("GPU_CHANGE_TRANSITIONS", _TRANSITIONS)
    if not transitions.isdecimal() or not 1 <= int(transitions) <= _MOST_TRANSITIONS:
        return _refuse(
            f"GPU_CHANGE_TRANSITIONS is {transitions!r} and must be an integer from 1 to {_MOST_TRANSITIONS}"
        )
    kind = functools.partial(Change, uuid=uuid, transitions=transitions, only_restore=mode == "restore")
    return make(kind, out, bundle)


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "change":
        sys.exit(main(*sys.argv[1:]))
    if len(sys.argv) == 4 and sys.argv[1] == "restore":
        sys.exit(main("restore", "", *sys.argv[2:]))
    print(__doc__, file=sys.stderr)
    sys.exit(USAGE)
