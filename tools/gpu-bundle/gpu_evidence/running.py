# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run programs with a time limit, keep all that they say, and end everything that was started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Mapping, Sequence

#: In the environment of everything that a run starts; what still has it at the end is ended.
MARK = "GPU_EVIDENCE_RUN"
#: Of one output. Longer ones are cut, and say so.
ROOM = 3 * 1024 * 1024
#: What NVIDIA's libraries and programs are beside where a system has them: containers mount them here.
PLACES = ("/usr/local/nvidia/bin", "/usr/local/nvidia", "/usr/local/cuda/bin", "/opt/nvidia/bin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Done:
    """One program's end. C(status) is None where it was ended because it took too long, or could not be started."""

    command: Sequence[str]
    status: int | None
    seconds: float
    out: str
    err: str
    #: Why it has no status.
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def said(self) -> str:
        """The end in one line."""
        if self.status is None:
            return self.reason
        lines = [line.strip() for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        return f"status {self.status}" + (f": {lines[-1][:300]}" if self.status and lines else "")


def which(program: str) -> str | None:
    """The path of a program, also where only a container's mounts have it."""
    return shutil.which(program) or shutil.which(program, path=os.pathsep.join(PLACES))


def run(
    command: Sequence[str],
    seconds: float,
    env: Mapping[str, str] | None = None,
    given: str = "",
    cwd: str | None = None,
) -> Done:
    """Run a program to its end or for so many seconds, in a session of its own, with which its children end, too."""
    started = time.monotonic()

    def done(status: int | None, out: bytes = b"", err: bytes = b"", reason: str = "") -> Done:
        return Done(command, status, round(time.monotonic() - started, 3), _text(out), _text(err), reason)

    # Files, not pipes: a daemon that a program leaves behind would hold a pipe open for ever.
    with _files() as (out, err):
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if given else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(os.environ if env is None else env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            return done(None, reason=f"it cannot be started: {error.strerror or error}")
        if given and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.write(given.encode())
                process.stdin.close()
        reason = ""
        try:
            status: int | None = process.wait(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            status, reason = None, f"it was ended after {seconds:.0f} s"
            end_group(process)
            if process.poll() is None:
                reason += ", and is still there: it waits for the driver"
        return done(status, _read(out), _read(err), reason)


@contextlib.contextmanager
def _files() -> Iterator[tuple]:
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        yield out, err


def _read(file) -> bytes:  # type: ignore[no-untyped-def]
    file.seek(0)
    found = file.read(ROOM + 1)
    return found if len(found) <= ROOM else found[:ROOM] + b"\n[cut here]\n"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def end_group(process: subprocess.Popen[bytes], grace: float = 2.0) -> None:
    """End a process and its session's group: by request first, for a CUDA program that is killed may leave the GPU with work."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 3.0)):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
            break
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def end_marked(mark: str) -> list[str]:
    """End every process that a run left behind, whoever its parent is now; return what they were."""
    ended = []
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = list(_marked(mark))
        for pid, name in left:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                if number == signal.SIGTERM:
                    ended.append(name)
        if not left:
            break
        time.sleep(1.5 if number == signal.SIGTERM else 0.3)
    return ended


def _marked(mark: str) -> Iterator[tuple]:
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid in (os.getpid(), os.getppid()):
            continue
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield pid, (folder / "comm").read_text().strip()
        except OSError:
            continue


class Folder:
    """Where a part leaves its evidence: files, and one answer that says how it went."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8", errors="replace")

    def write_json(self, name: str, value: object) -> None:
        self.write(name, json.dumps(value, indent=1, sort_keys=True, default=str) + "\n")

    def keep(self, name: str, done: Done) -> Done:
        """Write down what a program said: NAME.out, NAME.err where there is something, and a line of commands.jsonl."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
        self.write(f"{name}.out", done.out)
        if done.err.strip():
            self.write(f"{name}.err", done.err)
        line = {
            "name": name,
            "command": list(done.command),
            "status": done.status,
            "seconds": done.seconds,
            "reason": done.reason,
        }
        with open(self.path / "commands.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return done

    def answer(self, status: str, said: str, **findings: object) -> int:
        """Say how the part went: C(ran), C(absent) or C(failed). The last one stands."""
        self.write_json("answer.json", {"status": status, "said": said, "findings": findings})
        print(f"{status}: {said}", file=sys.stderr)
        return 0


def environment(**more: str) -> dict[str, str]:
    """The environment for programs, with the C locale, and with the driver's programs in the path."""
    found = {**os.environ, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}
    found["PATH"] = os.pathsep.join([found.get("PATH", os.defpath), *PLACES])
    found.update(more)
    # What Python compiles goes to the folder of the run: beside the bundle nothing is written, and compiling anew each time takes seconds.
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found
